"""Tests of ``svc.audit.record_search``: pages of what the files of one server have."""

from __future__ import annotations

import gzip
import itertools
import lzma
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.audit import record_search
from svc.audit.record_files import RecordQuery, search_files
from svc.audit.record_search import (
    PAGE_BYTES,
    RecordKey,
    RecordsPage,
    RecordsQuestion,
    find_record_files,
    make_account_matcher,
    search_server_files,
)
from svc.model.events import Event
from tests.audit.chained import Ticking, Writer, fetched


class Stopped(Ticking):
    """A clock that goes on only when it is told to."""

    def seconds(self) -> float:
        """See ``WallClock``."""
        return self.now


def question(limit: int = 100, before: RecordKey | None = None, account: str = "acme", **filters: Any) -> RecordsQuestion:
    """A search."""
    return RecordsQuestion(RecordQuery(**filters), account, limit, before)


class PagesTests(SynchronousTestCase):
    """A folder with the files of a server."""

    def setUp(self) -> None:
        """Make it."""
        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        self.path = self.folder / "audit.log"

    def write(self, name: str, lines: Iterable[bytes], *, packed: bool = False) -> Path:
        """Write a file."""
        path = self.folder / name
        text = b"".join(lines)
        path.write_bytes(gzip.compress(text) if packed else text)
        return path

    def found(self, asked: RecordsQuestion) -> list[bytes]:
        """All records, page by page, as lines with their ends."""
        lines: list[bytes] = []
        while True:
            page = search_server_files(self.path, asked)
            self.assertEqual(page.faults, ())
            self.assertLessEqual(len(page.lines), asked.limit)
            lines += [line + b"\n" for line in page.lines]
            if not page.more:
                return lines
            asked = attrs.evolve(asked, before=RecordKey.of_line(page.lines[-1]))

    @given(
        st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc"), st.booleans()), max_size=40),
        st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=3),
        st.integers(1, 9),
        st.sampled_from(
            [{}, {"what": "variable:a"}, {"outcome": "failure"}, {"resource": "variable:b", "user": "host:web"}]
        ),
        st.integers(600, 3000),
    )
    def test_pages(
        self,
        records: list[tuple[int, str, bool]],
        cuts: list[tuple[int, bool]],
        limit: int,
        filters: dict[str, Any],
        piece: int,
    ) -> None:
        """Pages of any size have, of any files in which records of few moments stand, in no order, what ``--file`` finds,
        each once, the newest first (AUD-61).
        """
        self.patch(record_search, "PIECE", piece)
        wall = Stopped()
        writer = Writer(wall=wall)
        lines: list[bytes] = []
        for moment, name, failed in records:
            wall.now = 1_700_000_000.25 + moment
            lines += writer.lines(1, events=[fetched(f"acme:variable:{name}")], reason="forbidden" if failed else None)
        for old in self.folder.iterdir():
            old.unlink()
        bounds = sorted({0, len(lines), *(min(cut, len(lines)) for cut, _ in cuts)})
        packed = dict(cuts)
        for number, (start, end) in enumerate(itertools.pairwise(bounds)):
            # Each begins with the last record of the file before it, as copies of files do.
            self.write(f"audit.log.{number + 1}", lines[max(0, start - 1) : end], packed=packed.get(start, False))
        self.write("audit.log", [b"a log's line\n", b'"acme\n', lines[0][:70] if lines else b""])
        expected = {*search_files([*self.folder.iterdir()], RecordQuery(**filters), 1000).lines}
        found = self.found(question(limit, **filters))
        self.assertEqual(len(found), len(expected))
        self.assertEqual({*found}, expected)
        keys = [RecordKey.of_line(line[:-1]) for line in found]
        self.assertEqual(keys, sorted(keys, reverse=True))
        self.assertEqual([RecordKey.parse(str(key)) for key in keys], keys)

    def test_while_it_is_rotated(self) -> None:
        """Between two pages files may be appended to, renamed and compressed: none is left out or comes twice (AUD-61)."""
        writer = Writer()
        lines = writer.lines(6)
        self.write("audit.log", lines)
        first = search_server_files(self.path, question(3))
        self.assertEqual([line + b"\n" for line in first.lines], lines[:2:-1])
        self.write("audit.log-20261122.gz", lines, packed=True)
        self.write("audit.log", writer.lines(4))
        second = search_server_files(self.path, question(9, RecordKey.of_line(first.lines[-1])))
        self.assertEqual(([line + b"\n" for line in second.lines], second.more), (lines[2::-1], False))

    def test_last_line(self) -> None:
        """A line that is being written is no record until its end is there (AUD-61)."""
        lines = Writer().lines(2)
        self.write("audit.log", [lines[0], lines[1][:-1]])
        self.assertEqual(self.found(question()), [lines[0]])
        self.write("audit.log", lines)
        self.assertEqual(self.found(question()), lines[::-1])
        self.write("audit.log", [lines[0][:-1]])
        self.assertEqual(self.found(question()), [])

    def test_files(self) -> None:
        """Names that go on are the server's, and others, such as the end of its chain, aren't read (AUD-61)."""
        ours = {
            "audit.log",
            "audit.log.1",
            "audit.log.2.gz",
            "audit.log-20261122",
            "audit-20261122.log.gz",
            "audit-2026.log",
        }
        for name in (*ours, "audit-chain", "audit-old.log", "xaudit.log", "audit.logs", "other.log"):
            self.write(name, [])
        self.assertEqual({path.name for path in find_record_files(self.path)}, ours)

    def test_faults(self) -> None:
        """A file that can't be read is named with the reason, and the others are searched (AUD-61)."""
        lines = Writer().lines(40)
        self.write("audit.log", lines)
        (self.folder / "audit.log.1.xz").write_bytes(lzma.compress(b"x"))
        whole = gzip.compress(os.urandom(5000))
        (self.folder / "audit.log.2.gz").write_bytes(whole[:900])
        (self.folder / "audit.log.3.gz").write_bytes(whole[:20] + bytes(400) + whole[420:])
        (self.folder / "audit.log.4").mkdir()
        os.mkfifo(self.folder / "audit.log.5")
        page = search_server_files(self.path, question())
        self.assertEqual(len(page.lines), 40)
        one, two, three = page.faults
        self.assertEqual(one, "audit.log.1.xz can't be read: it is compressed by xz, and only gzip is read")
        self.assertTrue(two.startswith("audit.log.2.gz can't be read: the compressed file is cut or damaged: "), two)
        self.assertTrue(three.startswith("audit.log.3.gz can't be read: "), three)
        # One that is being compressed is still there.
        (self.folder / "audit.log.2").write_bytes(b"")
        self.assertEqual(len(search_server_files(self.path, question()).faults), 2)

    def test_nothing_there(self) -> None:
        """A file that isn't there, its folder, and what is no file, are named (AUD-61)."""
        self.assertEqual(search_server_files(self.path, question()).faults, ("audit.log can't be read: it isn't there",))
        lost = self.folder / "lost" / "audit.log"
        self.assertEqual(search_server_files(lost, question()).faults, ("lost can't be read: No such file or directory",))
        os.mkfifo(self.path)
        expected = ("audit.log can't be read: it is a device or a pipe, and no file",)
        self.assertEqual(search_server_files(self.path, question()).faults, expected)

    def test_many_files(self) -> None:
        """More files than a search reads are named, so that nobody takes the answer for whole (AUD-61)."""
        self.patch(record_search, "MAX_FILES", 2)
        lines = Writer().lines(3)
        for number, line in enumerate(lines):
            self.write(f"audit.log.{number}", [line])
        page = search_server_files(self.path, question())
        self.assertEqual((len(page.lines), len(page.faults)), (2, 1))
        self.assertIn("a search reads at most 2 files", page.faults[0])

    def test_old_files(self) -> None:
        """A file that was last written long before ``since`` isn't read; one written a day before is (AUD-61)."""
        lines = Writer().lines(1)
        old = self.write("audit.log.1", lines)
        since = "2023-11-14T22:13:20.000Z"
        for seconds, count in ((record_search.CLOCK_SLACK - 60, 1), (record_search.CLOCK_SLACK + 60, 0)):
            os.utime(old, (0, 1_700_000_000 - seconds))
            self.assertEqual(len(self.found(question(since=since))), count, seconds)
        self.assertEqual(self.found(question()), lines)

    def test_long_records(self) -> None:
        """A page of long records is shorter, and has one at least (AUD-61)."""
        self.patch(record_search, "PAGE_BYTES", 700)
        lines = Writer().lines(5)
        self.write("audit.log", lines)
        self.assertEqual(len(search_server_files(self.path, question()).lines), 700 // len(lines[-1][:-1]))
        self.assertEqual(self.found(question()), lines[::-1])
        self.patch(record_search, "PAGE_BYTES", 7)
        self.assertEqual(self.found(question()), lines[::-1])
        self.assertGreaterEqual(PAGE_BYTES, 16 * 1024)


class AccountTests(SynchronousTestCase):
    """Whose a record is."""

    def test_accounts(self) -> None:
        """A record is of its role's account, else of that of what it is about, and of nobody's else (AUD-26, AUD-61)."""
        for user, subject, expected in (
            ("acme:user:eve", (("resource", "acme:variable:x"),), "acme"),
            ("acme:user:eve", (("resource", "other:variable:x"),), "acme"),
            ("other:user:eve", (("resource", "acme:variable:x"),), "other"),
            ("other:user:eve", (("limit", 'a"][auth@43868 user="acme:user:eve"'),), "other"),
            ("acmes:user:eve", (), "acmes"),
            ("not-found", (("role", "acme:user:eve"),), "acme"),
            ("acme:x:user:eve", (), None),
            ("acme:host_factory:f", (), "acme"),
            ("not-found", (("role", "acme:x:user:eve"),), None),
            ("not-found", (("role", "acme/user:user:eve"),), None),
            ("svc", (("resource", "acme:variable:x"), ("rotator", "postgresql")), "acme"),
            ("svc", (("account", "acme"), ("role", "acme:user:admin")), "acme"),
            ("svc", (("account", "acme"),), "acme"),
            ("svc", (("resource", "acme:variable:x"), ("role", "other:user:y")), None),
            ("svc", (), None),
            ("svc", (("limit", "acme"),), None),
            ("-", (("resource", 'x"] acme:variable:x'),), None),
            ('a"b:user:x', (("resource", "acme:variable:x"),), 'a"b'),
        ):
            event = Event("fetch", "fetch", subject, 'did "] [auth@43868 user="acme:x:y"] acme:z:z', "do")
            [line] = Writer().lines(1, user=user, events=[event])
            for account in ("acme", "other", "acmes", 'a"b'):
                fits = make_account_matcher(account)(line)
                self.assertEqual(fits, account == expected, (user, subject, account))

    @given(st.text(min_size=1, max_size=20), st.text(max_size=60))
    def test_any_text(self, account: str, text: str) -> None:
        """Whatever text stands anywhere, nobody finds another account's record (AUD-13, AUD-26)."""
        folder = Path(self.mktemp())
        folder.mkdir()
        event = Event("fetch", "fetch", (("resource", f"acme:variable:{text}"),), text, text)
        (folder / "audit.log").write_bytes(b"".join(Writer().lines(1, events=[event])))
        found = search_server_files(folder / "audit.log", question(account=account)).lines
        self.assertEqual(len(found), account == "acme")


class FormTests(SynchronousTestCase):
    """Keys and pages as text."""

    @given(
        st.lists(st.binary(min_size=1, max_size=30).filter(lambda line: b"\n" not in line)),
        st.booleans(),
        st.lists(st.text(max_size=20).filter(str.isprintable)),
    )
    def test_pages(self, lines: list[bytes], more: bool, faults: list[str]) -> None:
        """A page is read as it was written, and a part of one isn't read at all (AUD-62)."""
        page = RecordsPage(tuple(lines), more, tuple(faults))
        text = b"".join(page.encode())
        self.assertEqual(RecordsPage.decode(text), page)
        for part in (text[:-1], b"", b"end\n", b"end 2\nx\n", b"\x80" + text):
            self.assertRaises(ValueError, RecordsPage.decode, part)

    def test_keys(self) -> None:
        """What is no key is none (AUD-61)."""
        good = "2023-11-14T22:13:21.250Z_7_0123456789abcdef"
        self.assertEqual(str(RecordKey.parse(good)), good)
        for bad in ("", good + "0", good.upper(), good.replace("_7_", "_-7_"), good.replace("7", "\u0667"), good + "\n"):
            self.assertRaises(ValueError, RecordKey.parse, bad)
