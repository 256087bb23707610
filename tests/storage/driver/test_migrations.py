"""The files that make the schema."""

from __future__ import annotations

import hashlib
import re

from twisted.trial.unittest import SynchronousTestCase

from svc.storage.driver.migrations import FIRST_RELEASE, Migration, numbered, packaged


class NumberedTests(SynchronousTestCase):
    """Files put in order."""

    def test_order(self) -> None:
        """Files are put in the order of their numbers, whatever order they come in (DATA-10)."""
        files = {f"{number:04}_step.sql": f"SELECT {number}" for number in (3, 1, 2)}
        self.assertEqual(
            numbered(files), [Migration(number, f"{number:04}_step.sql", f"SELECT {number}") for number in (1, 2, 3)]
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
                numbered(dict.fromkeys(names, ""))

    def test_checksum(self) -> None:
        """A migration is known by the SHA-256 of its text."""
        self.assertEqual(Migration(1, "0001_π.sql", "SELECT 'π'").sha256, hashlib.sha256("SELECT 'π'".encode()).hexdigest())


class PackagedTests(SynchronousTestCase):
    """The files that come with the program."""

    def test_there_are_some(self) -> None:
        """The program brings its schema along, numbered from 1."""
        self.assertEqual([migration.version for migration in packaged()], list(range(1, len(packaged()) + 1)))
        self.assertTrue(packaged())

    def test_heads(self) -> None:
        """Each migration since the first release says whether older programs bear it (OPS-2)."""
        for migration in packaged()[FIRST_RELEASE:]:
            first = migration.sql.partition("\n")[0]
            self.assertRegex(first, "^-- (expand|contract since [0-9]+)$", f"{migration.name}: begin it with `-- expand`")

    def test_no_transactions_of_their_own(self) -> None:
        """No migration ends the transaction that records it."""
        for migration in packaged():
            self.assertIsNone(re.search(r"^\s*(BEGIN|COMMIT|ROLLBACK|END)\s*;", migration.sql, re.IGNORECASE | re.MULTILINE))
