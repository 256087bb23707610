"""The page of health lists the faults that are tried, with what is to be told of each."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.fault_matrix import BEGIN, END, FAULTS, Outcome, cells, written
from tests.integration.verdicts import VALUES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operations" / "health.md"


class FaultPageTests(SynchronousTestCase):
    """``docs/operations/health.md``, which is written by a command and kept with the sources."""

    def test_page(self) -> None:
        """The table has a line for each fault, in order, that says what the matrix expects of each server."""
        table = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
        lines = [line for line in table.splitlines() if line.startswith("| ")][1:]
        self.assertEqual(len(lines), len(FAULTS))
        for line, fault in zip(lines, FAULTS, strict=True):
            self.assertTrue(line.startswith(f"{cells(fault)} "), f"write the page again: {line} is not {cells(fault)}")

    def test_faults(self) -> None:
        """There are at least thirty faults, each with a name of its own, and between them every value fails."""
        self.assertGreaterEqual(len(FAULTS), 30)
        self.assertEqual(len({fault.name for fault in FAULTS}), len(FAULTS))
        self.assertEqual(frozenset[str]().union(*(fault.primary.failed for fault in FAULTS if not fault.hangs)), VALUES)

    def test_written_again(self) -> None:
        """Writing the table keeps the rest of the page, and tells whole intervals."""
        outcomes = {fault.name: Outcome(0.3, 2.1, None) for fault in FAULTS}
        page = written(f"before\n{BEGIN}\nold\n{END}\nafter\n", outcomes)
        self.assertTrue(page.startswith(f"before\n{BEGIN}\n"))
        self.assertTrue(page.endswith(f"\n{END}\nafter\n"))
        self.assertNotIn("\nold\n", page)
        self.assertIn(f"{cells(FAULTS[0])} 2 | 3 |  |", page)
        self.assertEqual(written(page, outcomes), page)
