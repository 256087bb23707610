"""Tests of ``svc.cli.table``."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.table import format_table

HEADER = ("MEMBER", "NOTES")


class TableTests(SynchronousTestCase):
    """Rows for people and for programs."""

    def test_terminal(self) -> None:
        """On a terminal columns are aligned under a header, wide and combining characters counted as they are shown
        (CLI-3).
        """
        rows = [("host:a", "(owner)"), ("host:日本", "x"), ("host:u\u0308", "y"), ("host:longer-than-that", "")]
        self.assertEqual(
            list(format_table(HEADER, rows, terminal=True)),
            [
                "MEMBER                 NOTES",
                "host:a                 (owner)",
                "host:日本              x",
                "host:u\u0308                 y",
                "host:longer-than-that",
            ],
        )
        self.assertEqual(list(format_table(HEADER, [], terminal=True)), ["MEMBER  NOTES"])

    def test_program(self) -> None:
        """Otherwise there are rows alone, their columns parted by tabs (CLI-3)."""
        rows = [("host:a", "(owner)"), ("host:b", "")]
        self.assertEqual(list(format_table(HEADER, rows, terminal=False)), ["host:a\t(owner)", "host:b"])

    @given(st.lists(st.tuples(st.text(), st.text())), st.booleans())
    def test_any_text(self, rows: list[tuple[str, str]], terminal: bool) -> None:
        """Whatever stands in a row, it is one line, and nothing in it is obeyed by a terminal (CLI-3)."""
        lines = list(format_table(HEADER, rows, terminal=terminal))
        self.assertEqual(len(lines), len(rows) + terminal)
        self.assertTrue(all(line.replace("\t", "").isprintable() for line in lines))
