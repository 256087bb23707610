"""The files that make the schema."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from itertools import zip_longest
from typing import Final

from twisted.trial.unittest import SynchronousTestCase

from svc.storage.driver.migrations import FIRST_RELEASE, FORMER, Migration, load_migrations, order_migrations

#: The ``sha256`` of each migration after those of ``FORMER``, by its name. A line is added with the file, and never changed.
LANDED: Final[Mapping[str, str]] = {
    "0022_kept_answers.sql": "289a6748b8a1cc2a0a93985411ae78905360a17eb7d281d15c8aa0f34bcfc5b3",
    "0023_verified_backups.sql": "3476596911e17e34700ce67f2ce1383d1eda880d8bf4c5e665ed599c82fde098",
    "0024_unannounced_accounts.sql": "0376bcb57ad22bc95d1801b5caedde7fd8ccb2270bb9d4186f622236c5b75631",
    "0025_directory_users.sql": "fd48dea16b533601772fb42f6ba9f20dd2284d3ab8ee3fcae66c3706d3561772",
    "0026_readings.sql": "6166466c5d0794bd6c8bca1b28a5c3f407a858fe27284bae8e0b7d8fe6dd5121",
}


class NumberedTests(SynchronousTestCase):
    """Files put in order."""

    def test_order(self) -> None:
        """Files are put in the order of their numbers, whatever order they come in (DATA-10)."""
        files = {f"{number:04}_step.sql": f"SELECT {number}" for number in (3, 1, 2)}
        self.assertEqual(
            order_migrations(files), [Migration(number, f"{number:04}_step.sql", f"SELECT {number}") for number in (1, 2, 3)]
        )

    def test_gaps_and_doubles(self) -> None:
        """A missing or double number, or a name of another form, is refused (DATA-10)."""
        for names in (
            ["0002_a.sql"],
            ["0001_a.sql", "0003_b.sql"],
            ["0001_a.sql", "0001_b.sql"],
            ["1_a.sql"],
            ["0001-a.sql"],
        ):
            with self.assertRaises(ValueError):
                order_migrations(dict.fromkeys(names, ""))

    def test_checksum(self) -> None:
        """A migration is known by the SHA-256 of its statements: comments and blank lines may change, and nothing else may
        (DATA-11).
        """
        sql = "SELECT 'π';\nSELECT '--', '/* */', 'it''s';"
        known = Migration(1, "0001_π.sql", sql)
        self.assertEqual(known.sha256, hashlib.sha256(sql.encode()).hexdigest())
        self.assertEqual(known.recorded_sha256, known.sha256)
        for same in (
            f"-- expand\n-- don't\n\n{sql}\n",
            "SELECT 'π'; -- that's pi\n\n  \nSELECT '--', '/* */', 'it''s';",
            "/* don't\n  do */\n" + sql,
        ):
            self.assertEqual(Migration(1, "0001_π.sql", same).sha256, known.sha256, same)
        for other in (sql.replace("π", "p"), sql.replace("'--'", "'-- '"), sql.replace("/* */", ""), f"{sql}--\nSELECT 1"):
            self.assertNotEqual(Migration(1, "0001_π.sql", other).sha256, known.sha256, other)


class PackagedTests(SynchronousTestCase):
    """The files that come with the program."""

    def test_there_are_some(self) -> None:
        """The program brings its schema along, numbered from 1."""
        self.assertEqual([migration.version for migration in load_migrations()], list(range(1, len(load_migrations()) + 1)))
        self.assertTrue(load_migrations())

    def test_landed(self) -> None:
        """A migration that has landed stays as it is, but for its comments (DATA-11)."""
        landed = [*FORMER, *LANDED.values()]
        for migration, known in zip_longest(load_migrations(), landed):
            assert migration is not None, f"a migration is gone: {known}"
            remedy = f"its statements have changed; if {migration.name} is new, add it to LANDED: {migration.sha256}"
            self.assertEqual(migration.sha256, known, remedy)
        self.assertEqual([migration.name for migration in load_migrations()[len(FORMER) :]], [*LANDED])

    def test_former(self) -> None:
        """Databases whose migrations were recorded by the hashes of whole files are this program's, also where a comment has
        another wording since (DATA-11).
        """
        deleted, mappings = load_migrations()[12], load_migrations()[20]
        for migration, before, after in (
            (deleted, "-- read its values, whoever said so.", "-- read its values, no matter who said so."),
            (deleted, "", ""),
            (mappings, "", ""),
        ):
            former = hashlib.sha256(migration.sql.replace(after, before).encode()).hexdigest()
            self.assertTrue(migration.is_recorded(migration.name, former))
            self.assertTrue(migration.is_recorded(migration.name, migration.sha256))
            self.assertFalse(migration.is_recorded("other.sql", former))
            self.assertFalse(migration.is_recorded(migration.name, "0" * 64))
        for migration in load_migrations()[:21]:
            self.assertEqual(migration.recorded_sha256, hashlib.sha256(migration.sql.encode()).hexdigest())

    def test_heads(self) -> None:
        """Each migration since the first release says whether older programs bear it (OPS-2)."""
        for migration in load_migrations()[FIRST_RELEASE:]:
            first = migration.sql.partition("\n")[0]
            self.assertRegex(first, "^-- (expand|contract since [0-9]+)$", f"{migration.name}: begin it with `-- expand`")

    def test_no_transactions_of_their_own(self) -> None:
        """No migration ends the transaction that records it."""
        for migration in load_migrations():
            self.assertIsNone(re.search(r"^\s*(BEGIN|COMMIT|ROLLBACK|END)\s*;", migration.sql, re.IGNORECASE | re.MULTILINE))
