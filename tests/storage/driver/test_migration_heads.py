"""The first lines of migrations."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.storage.driver.migration_heads import Lock, MigrationHead, parse_head


class MigrationHeadTests(SynchronousTestCase):
    """What they say."""

    def test_read(self) -> None:
        """An expansion is borne by every program, a contraction from a version on, and what says neither by no older one
        (OPS-2); the tables that are locked follow (OPS-3).
        """
        locks = "-- locks a b: share row exclusive, reads all\n-- locks c: access exclusive, at once\n"
        told = (
            *(Lock(table, "share row exclusive", "reads all") for table in ("a", "b")),
            Lock("c", "access exclusive", "at once"),
        )
        for sql, wanted in (
            ("-- expand\n\nSELECT 1", MigrationHead(0)),
            (f"-- expand\n{locks}\nSELECT 1", MigrationHead(0, told)),
            (f"-- contract since 11\n{locks}-- Why.", MigrationHead(11, told)),
            ("-- What it is.\n-- expand", MigrationHead(12)),
            ("", MigrationHead(12)),
        ):
            self.assertEqual(parse_head(12, sql), wanted, sql)

    def test_malformed(self) -> None:
        """What begins as a head and isn't one is refused (OPS-2)."""
        for sql in (
            "-- expands",
            "-- expand ",
            "-- contract",
            "-- contract since",
            "-- contract since 0",
            "-- contract since 13",
            "-- expand\n-- locks",
            "-- expand\n-- locks a",
            "-- expand\n-- locks a: row exclusive, at once",
            "-- expand\n-- locks a, b: share, at once",
            "-- expand\n-- locks a: share, slowly",
        ):
            with self.assertRaises(ValueError, msg=sql):
                parse_head(12, sql)

    def test_durations(self) -> None:
        """Work takes longer on a larger table, and longer to write than to read (OPS-4)."""
        at_once, read, written = (Lock("a", "share", work).seconds(10**9) for work in ("at once", "reads all", "writes all"))
        self.assertEqual((at_once, read, written), (0.0, 10.0, 100.0))
