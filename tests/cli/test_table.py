"""Tests of ``svc.cli.table``."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.cli.table import table


class TableTests(SynchronousTestCase):
    """``table``."""

    def test_columns(self) -> None:
        """Each column is as wide as its widest text, and no line ends in blanks."""
        rows = [("variable:db/password", "policy:root"), ("host:h", "user:admin")]
        self.assertEqual(
            table(("resource", "owner"), rows).split("\n"),
            ["RESOURCE              OWNER", "variable:db/password  policy:root", "host:h                user:admin"],
        )

    def test_nothing(self) -> None:
        """Without rows there are the headings."""
        self.assertEqual(table(("resource", "owner"), []), "RESOURCE  OWNER")

    def test_names_stay_text(self) -> None:
        """A name can neither begin a line nor give a command to the terminal."""
        found = table(("id",), [("a\nb\x1b[2Jc\x1b]0;title\x07\r\u202e",)])
        self.assertEqual(found.count("\n"), 1)
        self.assertTrue(found.replace("\n", "").isprintable())
