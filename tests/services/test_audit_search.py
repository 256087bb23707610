"""Tests of ``svc.services.audit_search``: pages of several servers, merged."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.audit.record_search import RecordKey, RecordsPage
from svc.services import audit_search
from svc.services.audit_search import FoundRecord, merge_pages
from tests.audit.chained import Ticking, Writer


class Stopped(Ticking):
    """A clock that stands."""

    def seconds(self) -> float:
        """See ``WallClock``."""
        return self.now


def make_lines(moments: list[int], host: str) -> list[bytes]:
    """Return records of these moments, in the order of a search."""
    wall = Stopped()
    writer, lines = Writer(host, wall=wall), []
    for moment in moments:
        wall.now = 1_700_000_000.25 + moment
        lines += [line[:-1] for line in writer.lines(1)]
    return sorted(lines, key=RecordKey.of_line, reverse=True)


def make_page(lines: list[bytes], limit: int, most: int, before: RecordKey | None) -> RecordsPage:
    """Return the page of a server whose pages have at most so many records, whatever is asked for."""
    older = [line for line in lines if before is None or RecordKey.of_line(line) < before]
    page = older[: min(limit, most)]
    return RecordsPage(tuple(page), len(page) < len(older))


class MergeTests(SynchronousTestCase):
    """The merged pages."""

    @given(
        st.lists(st.tuples(st.lists(st.integers(0, 4), max_size=12), st.integers(1, 9)), min_size=1, max_size=3),
        st.integers(1, 9),
        st.booleans(),
    )
    def test_pages(self, servers: list[tuple[list[int], int]], limit: int, shared: bool) -> None:
        """Page by page every record comes once, the newest first, however few records each server returns (AUD-63)."""
        files = {
            f"vault{number}": (make_lines(moments, f"vault{number}"), most) for number, (moments, most) in enumerate(servers)
        }
        if shared:
            files["copy"] = files["vault0"]
        expected = sorted({line for lines, _ in files.values() for line in lines}, key=RecordKey.of_line, reverse=True)
        found: list[FoundRecord] = []
        before = None
        for _ in range(len(expected) + 1):
            pages = {name: make_page(lines, limit, most, before) for name, (lines, most) in files.items()}
            records, before = merge_pages(pages, limit)
            self.assertLessEqual(len(records), limit)
            found += records
            if before is None:
                break
            self.assertTrue(records)
        self.assertIsNone(before)
        self.assertEqual([record.line for record in found], expected)
        for record in found:
            self.assertIn(record.line, files[record.server][0])

    def test_long_pages(self) -> None:
        """A page of many bytes ends early, and goes on (AUD-61, AUD-63)."""
        lines = make_lines([1, 2, 3], "a")
        self.patch(audit_search, "PAGE_BYTES", 2 * len(lines[-1]))
        records, after = merge_pages({"a": RecordsPage(tuple(lines))}, 9)
        self.assertEqual(
            ([record.line for record in records], after), (lines[:-1][: len(records)], RecordKey.of_line(records[-1].line))
        )
        self.assertLess(len(records), 3)
        self.assertGreater(len(records), 0)
