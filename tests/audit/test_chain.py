"""Tests of ``svc.audit.record``: numbers and digests, and where the end is found again."""

from __future__ import annotations

import os
from base64 import b64encode
from hashlib import blake2b
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from svc.audit.file_lock import SharedFileLock
from svc.audit.file_sinks import FileSink, StandardOutputSink
from svc.audit.journal import Backlog
from svc.audit.record import CHAINED_RECORD, RECORD_LIMIT, Chain, RecordFormatter
from svc.audit.verification import verify_files
from svc.model.events import AuditContext, Event, EventSource, Outcome
from svc.server.shared_page import make_shared_page
from tests.audit.chained import KEY, Ticking, Writer, fetched
from tests.audit.parsing import parse


class StampTests(SynchronousTestCase):
    """Records of a chain."""

    def test_element(self) -> None:
        """A record has the id of its chain, its number and its digest, which anybody with the key can compute (AUD-33)."""
        first, second = (line[:-1] for line in Writer().lines(2))
        element = parse(first).data["chain@43868"]
        self.assertEqual((element["number"], element["after"]), ("1", "none"))
        self.assertEqual(list(parse(second).data["chain@43868"]), ["id", "number", "length", "digest"])
        self.assertEqual(parse(second).data["chain@43868"]["id"], element["id"])
        head, rest = second.split(b' digest="', 1)
        matched = CHAINED_RECORD.fullmatch(first)
        assert matched is not None
        before = blake2b(bytes(24) + matched[1] + matched[7], key=KEY, digest_size=24).digest()
        self.assertEqual(
            parse(second).data["chain@43868"]["digest"].encode(),
            b64encode(blake2b(before + head + rest.split(b'"]', 1)[1], key=KEY, digest_size=24).digest()),
        )

    @given(st.text(max_size=50), st.text(max_size=200), st.text(max_size=50))
    def test_any_text(self, user: str, value: str, request: str) -> None:
        """Whatever stands in a record, a parser reads it back as without the chain, and the chain finds its parts
        (AUD-13, AUD-33).
        """
        event = Event("fetch", "fetch", (("resource", value),), f"fetched {value}", f"fetch {value}")
        records = RecordFormatter(EventSource("m", "svc"), Ticking())
        [plain] = records.format_events(AuditContext(EventSource("m", "svc"), user, "::1", request), [event], Outcome())
        chain = Chain(KEY)
        chain.resume_chain(None)
        [line] = chain.stamp_records([plain])
        read, expected = parse(line), parse(plain)
        self.assertEqual(read.data.pop("chain@43868")["number"], "1")
        self.assertEqual(read, expected)
        matched = CHAINED_RECORD.fullmatch(line)
        assert matched is not None
        self.assertEqual(len(matched[7]), int(matched[5]))

    def test_longest(self) -> None:
        """The longest record stays within its limit with the chain (AUD-14)."""
        event = Event("m" * 32, "o", tuple((f"p{n}", "\U0001f600" * 900) for n in range(8)), "d" * 9000, "d")
        records = RecordFormatter(EventSource("h" * 255, "a" * 48), Ticking())
        [line] = records.format_events(AuditContext(EventSource("", ""), "u" * 999, "::1", "r" * 128), [event], Outcome())
        chain = Chain(KEY)
        chain.resume_chain(None)
        self.assertLessEqual(len(chain.stamp_records([line])[0]), RECORD_LIMIT)

    def test_not_written(self) -> None:
        """What was stamped and not written takes no number (AUD-34)."""
        writer = Writer()
        writer.chain.stamp_records([b"<86>1 t h a p m [x] y"] * 3)
        writer.chain.advance_end(0)
        self.assertEqual(writer.chain.end.number, 0)

    def test_key(self) -> None:
        """A key of another length is refused."""
        self.assertRaises(ValueError, Chain, b"short")


class EndTests(SynchronousTestCase):
    """Where a chain goes on after a restart (AUD-36)."""

    def setUp(self) -> None:
        """Make a server with a file."""
        folder = Path(self.mktemp())
        folder.mkdir()
        self.saved, self.audit, self.wall = folder / "audit-chain", folder / "audit.log", Ticking()
        self.writer = self.start()

    def start(self) -> Writer:
        """Start the server."""
        return Writer(saved=self.saved, audit=self.audit, wall=self.wall)

    def write(self, count: int) -> None:
        """Append records."""
        with self.audit.open("ab") as file:
            file.write(b"".join(self.writer.lines(count)))

    def end_after_restart(self) -> tuple[bool, int]:
        """Whether the chain goes on, and after which number, where the server starts again."""
        before = self.writer.chain.end.chain
        self.writer = self.start()
        return self.writer.chain.end.chain == before, self.writer.chain.end.number

    def test_stopped(self) -> None:
        """It goes on where it ended, though the file was moved away (AUD-36)."""
        self.write(5)
        self.writer.chain.close()
        self.assertEqual(self.saved.stat().st_mode & 0o777, 0o600)
        self.audit.rename(self.audit.with_suffix(".1"))
        self.assertEqual(self.end_after_restart(), (True, 5))
        self.write(2)
        self.assertTrue(verify_files([self.audit, self.audit.with_suffix(".1")], KEY).is_intact)

    def test_killed(self) -> None:
        """After a crash it goes on after the last record of the file (AUD-36)."""
        self.write(5)
        self.assertEqual(self.end_after_restart(), (True, 5))
        self.write(3)
        self.assertEqual(self.end_after_restart(), (True, 8))
        with self.audit.open("ab") as file:
            file.write(self.writer.lines(1)[0][:-20] + b"\n")
        self.assertEqual(self.end_after_restart(), (True, 8))
        self.write(1)
        verdict = verify_files([self.audit], KEY)
        self.assertEqual((verdict.is_intact, len(verdict.notes)), (True, 1))

    def test_nothing_saved(self) -> None:
        """The file alone is enough (AUD-36)."""
        self.write(3)
        self.saved.unlink()
        self.assertEqual(self.end_after_restart(), (True, 3))

    def test_cut_while_stopped(self) -> None:
        """An end that was cut from the file while the server was stopped is not gone on from: it is found missing
        (AUD-36).
        """
        self.write(5)
        self.writer.chain.close()
        self.audit.write_bytes(b"".join(self.audit.read_bytes().splitlines(keepends=True)[:3]))
        self.assertEqual(self.end_after_restart(), (True, 5))
        self.write(1)
        verdict = verify_files([self.audit], KEY)
        self.assertIn("records 4 to 5 are missing", verdict.findings[0].what)

    def test_lost(self) -> None:
        """Where the end is not found another chain begins, says after which, and is reported (AUD-36, AUD-37)."""
        self.write(5)
        self.writer.chain.close()
        self.assertEqual(self.end_after_restart(), (True, 5))
        self.write(2)
        old = self.audit.with_suffix(".1")
        self.audit.rename(old)
        first = self.writer.chain.end
        with capturedLogs() as logs:
            self.assertEqual(self.end_after_restart(), (False, 0))
        self.assertEqual(len(logs), 1)
        self.write(1)
        element = parse(self.audit.read_bytes()[:-1]).data["chain@43868"]
        self.assertEqual(element["after"], f"{first.chain} 5")
        verdict = verify_files([self.audit, old], KEY)
        self.assertEqual(["another chain begins" in each.what for each in verdict.findings], [True])
        self.assertTrue(verify_files([self.audit, old], KEY, [first]).is_intact)

    def test_forged(self) -> None:
        """Records that somebody without the key has appended are not gone on from (AUD-36)."""
        self.write(2)
        line = self.audit.read_bytes().splitlines()[-1]
        with self.audit.open("ab") as file:
            file.write(line.replace(b'number="2"', b'number="900"') + b"\n")
        self.assertEqual(self.end_after_restart(), (True, 2))

    def test_unreadable(self) -> None:
        """What was saved and isn't an end counts as lost; a place that can't be written is told in the log (AUD-36)."""
        for text in ("", "x y z", "00 1 AAAA stopped", "zz 1 AAAA stopped"):
            self.saved.write_text(text)
            self.assertEqual(self.end_after_restart(), (False, 0))
        with capturedLogs() as logs:
            Writer(saved=self.saved / "below")
        self.assertEqual(len(logs), 1)


class SharedEndTests(SynchronousTestCase):
    """Several processes that write to one file, of which one dies (AUD-34)."""

    def setUp(self) -> None:
        """Make a page and a file."""
        self.page = make_shared_page(2)
        self.addCleanup(os.close, self.page)
        self.path, self.clock = Path(self.mktemp()), Clock()
        self.turn = SharedFileLock(self.page)
        self.assertFalse(self.turn.has_chain)
        chain = Chain(KEY, self.turn.chain)
        chain.resume_chain(None)
        self.assertTrue(self.turn.has_chain)
        self.sinks = [self.sink(), self.sink()]

    def sink(self) -> FileSink:
        """The sink of another process, as far as one process can have it."""
        turn = SharedFileLock(self.page)
        sink = FileSink(self.clock, self.path, turn, Chain(KEY, turn.chain))
        self.successResultOf(Deferred.fromCoroutine(sink.open(Backlog(lambda: None))))
        return sink

    def take(self, which: int) -> None:
        """Record something in one of them."""
        records = RecordFormatter(EventSource("m", "svc"), Ticking())
        lines = records.format_events(
            AuditContext(EventSource("m", "svc"), "acme:user:a", "::1", "r"), [fetched("x")], Outcome()
        )
        self.assertEqual(len(self.sinks[which].try_write(lines)), 1)

    def test_in_turns(self) -> None:
        """Their records are one chain, in the order of lines (AUD-33)."""
        for which in (0, 1, 1, 0, 1):
            self.take(which)
        verdict = verify_files([self.path], KEY)
        self.assertEqual((verdict.is_intact, [each.last for each in verdict.chains]), (True, [5]))

    def test_died_after_writing(self) -> None:
        """A record that was written, by a process that died before it moved the end on, keeps its number (AUD-34)."""
        self.take(0)
        state = bytes(self.turn.chain)
        self.take(0)
        self.turn.chain[:] = state
        self.turn.set_mark()
        self.take(1)
        verdict = verify_files([self.path], KEY)
        self.assertEqual((verdict.is_intact, verdict.chains[0].count), (True, 3))

    def test_died_in_a_line(self) -> None:
        """A torn line is ended, takes no number, and is told apart (AUD-34, AUD-38)."""
        self.take(0)
        state = bytes(self.turn.chain)
        self.take(0)
        self.turn.chain[:] = state
        self.path.write_bytes(self.path.read_bytes()[:-10])
        self.turn.set_mark()
        self.take(1)
        self.take(0)
        verdict = verify_files([self.path], KEY)
        self.assertEqual((verdict.is_intact, verdict.chains[0].count, len(verdict.notes)), (True, 3, 1))
        self.assertIn("record 2 is cut", verdict.notes[0].what)

    def test_moved_away(self) -> None:
        """When one opens the file again, the others do so before they write: lines stay in order across files (AUD-17)."""
        old = self.path.with_suffix(".old")
        self.take(0)
        self.path.rename(old)
        self.take(1)
        self.sinks[0].reopen()
        self.take(1)
        self.take(0)
        self.assertEqual([len(path.read_bytes().splitlines()) for path in (old, self.path)], [2, 2])
        self.assertTrue(verify_files([self.path, old], KEY).is_intact)

    def test_died_before_it_is_moved(self) -> None:
        """One that finds a dead process's record in the old file counts it before it opens another (AUD-34)."""
        old = self.path.with_suffix(".old")
        self.take(0)
        state = bytes(self.turn.chain)
        self.take(0)
        self.turn.chain[:] = state
        self.turn.set_mark()
        self.path.rename(old)
        self.sinks[1].reopen()
        self.take(1)
        self.assertTrue(verify_files([self.path, old], KEY).is_intact)

    def test_on_a_pipe(self) -> None:
        """Where nothing can be read back another chain begins after such a death, and says so (AUD-36)."""
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        self.addCleanup(os.close, writer)
        sink = StandardOutputSink(self.clock, writer, self.turn, Chain(KEY, self.turn.chain))
        os.set_blocking(reader, False)
        self.successResultOf(Deferred.fromCoroutine(sink.open(Backlog(lambda: None))))
        sink.drain_backlog()
        records = RecordFormatter(EventSource("m", "svc"), Ticking())
        lines = records.format_events(AuditContext(EventSource("m", "svc"), "u", "::1", "r"), [fetched("x")], Outcome())
        sink.try_write(lines)
        self.turn.set_mark()
        sink.try_write(lines)
        first, second = os.read(reader, 10**6).splitlines()
        elements = [parse(line).data["chain@43868"] for line in (first, second)]
        self.assertEqual(elements[1]["after"], f"{elements[0]['id']} 1")
