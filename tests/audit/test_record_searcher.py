"""Tests of ``svc.audit.record_searcher``: the process of a search, played, and the real one."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ProcessDone, ProcessExitedAlready, ProcessTerminated
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.audit.record_files import RecordQuery
from svc.audit.record_search import RecordsPage, RecordsQuestion, SearchTask
from svc.audit.record_searcher import NO_FILE, SEARCH_SECONDS, WAIT_SECONDS, RecordSearcher, make_command
from svc.audit.search_permits import SearchPermits
from svc.model.errors import AuditSearchUnavailable
from svc.model.permits import make_local_permits
from svc.model.pickled_messages import MessageDecoder, encode_message
from tests.audit.chained import Writer

QUESTION = RecordsQuestion(RecordQuery(what="fetch"), "acme", 10)
PAGE = RecordsPage((b"one", b"two"), True, ("a fault",))


class Played:
    """A process that the test plays, and the reactor that starts it."""

    def __init__(self, protocol: Any, command: tuple[str, ...], env: dict[str, str]) -> None:
        self.protocol, self.command, self.env = protocol, command, env
        self.sent = b""
        self.is_dead = False
        protocol.makeConnection(self)

    def write(self, data: bytes) -> None:
        """Take the task."""
        self.sent += data

    def signalProcess(self, name: str) -> None:
        """Die."""
        assert name == "KILL"
        if self.is_dead:
            raise ProcessExitedAlready
        self.end(ProcessTerminated(signal=9))

    def end(self, reason: Exception | None = None) -> None:
        """End, well or not."""
        self.is_dead = True
        self.protocol.processEnded(Failure(reason or ProcessDone(0)))


class Reactor(Clock):
    """What starts processes."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[Played] = []
        self.refused: OSError | None = None

    def spawnProcess(self, protocol: Any, executable: str, args: tuple[str, ...], env: dict[str, str]) -> None:
        """Start one."""
        if self.refused is not None:
            raise self.refused
        self.started.append(Played(protocol, args, env))


class SearcherTests(SynchronousTestCase):
    """The server's side."""

    def setUp(self) -> None:
        """Have a file."""
        self.reactor = Reactor()
        self.permits = make_local_permits(SearchPermits())
        self.searcher = RecordSearcher(self.reactor, Path("/var/log/audit.log"), self.permits)

    def search(self, user: str = "") -> Deferred[RecordsPage]:
        """Begin, for a user who may read all of the account, or for another server that doesn't say for whom."""
        role = f"acme:user:{user}" if user else ""
        asked = attrs.evolve(QUESTION, role=role, reads_all=bool(user))
        return Deferred.fromCoroutine(self.searcher.search_records(asked))

    def test_page(self) -> None:
        """A process gets the path and the question, and an empty environment; what it writes is the page (AUD-62)."""
        begun = self.search()
        [process] = self.reactor.started
        [message] = MessageDecoder().feed(process.sent)
        self.assertEqual(message.value, SearchTask("/var/log/audit.log", QUESTION, SEARCH_SECONDS))
        self.assertEqual(process.env, {})
        self.assertIn("-I", process.command)
        for piece in PAGE.encode():
            process.protocol.outReceived(piece)
        self.assertNoResult(begun)
        process.end()
        self.assertEqual(self.successResultOf(begun), PAGE)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_without_file(self) -> None:
        """Where records go nowhere searchable, the page says so, and what to set; no process is started (AUD-63)."""
        searcher = RecordSearcher(self.reactor, None, self.permits)
        page = self.successResultOf(Deferred.fromCoroutine(searcher.search_records(QUESTION)))
        self.assertEqual((page.faults, self.reactor.started), ((NO_FILE,), []))
        self.assertIn("audit_file", NO_FILE)

    def test_two_at_a_time(self) -> None:
        """Others wait for a permit, and begin when one search has ended, however that ends (AUD-62, AUD-65)."""
        first, _second = self.search("one"), self.search("two")
        third, fourth = self.search("three"), self.search("four")
        self.assertEqual(len(self.reactor.started), 2)
        first.addErrback(lambda failure: failure.trap(CancelledError))
        first.cancel()
        self.assertTrue(self.reactor.started[0].is_dead)
        self.assertEqual(len(self.reactor.started), 3)
        self.reactor.refused = OSError(11, "no room")
        self.reactor.started[1].end(ProcessTerminated(1))
        self.reactor.started[2].end(ProcessTerminated(1))
        self.successResultOf(third)
        for each in (fourth, self.search("five"), self.search("six")):
            why = self.failureResultOf(each, AuditSearchUnavailable).value.why
            self.assertEqual(why, "no process can be started for a search: no room")
        self.flushLoggedErrors()

    def test_waiting(self) -> None:
        """Whoever waits too long, or leaves, gets no permit, and keeps none from others (AUD-65)."""
        self.search("one"), self.search("two")
        late, left = self.search("three"), self.search("four")
        left.cancel()
        self.failureResultOf(left, CancelledError)
        self.reactor.advance(WAIT_SECONDS - 1)
        last = self.search("five")
        self.reactor.advance(1)
        refusal = self.failureResultOf(late, AuditSearchUnavailable).value
        self.assertGreater(refusal.retry_after, 0)
        self.assertIn(f"none of them ended in {WAIT_SECONDS} s", refusal.why)
        self.reactor.started[0].end()
        self.assertEqual(len(self.reactor.started), 3)
        self.assertNoResult(last)
        self.flushLoggedErrors()

    def test_late(self) -> None:
        """One that takes too long is ended, and the page says how to ask for less (AUD-62)."""
        begun = self.search()
        self.reactor.advance(SEARCH_SECONDS - 1)
        self.assertNoResult(begun)
        self.reactor.advance(1)
        self.assertTrue(self.reactor.started[0].is_dead)
        [fault] = self.successResultOf(begun).faults
        self.assertIn("longer than 60 s: narrow it by since and until", fault)

    def test_broken(self) -> None:
        """A process that dies, writes half a page or too much, is a fault, never a page with nothing in it (AUD-62)."""
        whole = b"".join(PAGE.encode())
        for written, reason in (
            (whole, ProcessTerminated(signal=11)),
            (whole[:-1], None),
            (b"", None),
            (b"end 0\n" + b"x" * 5_000_000 + b"\n", None),
        ):
            begun = self.search()
            process = self.reactor.started[-1]
            process.protocol.errReceived(b"a traceback")
            process.protocol.outReceived(written)
            if not process.is_dead:
                process.end(reason)
            page = self.successResultOf(begun)
            self.assertEqual((page.lines, page.more), ((), False))
            self.assertEqual(page.faults, ("the search failed, and the log of that server has the reason",))
        self.assertEqual(self.reactor.getDelayedCalls(), [])


class ProcessTests(SynchronousTestCase):
    """The process itself."""

    def test_search(self) -> None:
        """It finds what is in the file (AUD-61, AUD-62)."""
        path = Path(self.mktemp()).absolute()
        lines = Writer().lines(3)
        path.write_bytes(b"".join(lines))
        with subprocess.Popen(make_command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={}) as process:
            assert process.stdout is not None and process.stdin is not None
            process.stdin.write(b"".join(encode_message(SearchTask(str(path), QUESTION, 50))))
            process.stdin.flush()
            page = RecordsPage.decode(process.stdout.read())
        self.assertEqual((process.returncode, page.faults), (0, ()))
        self.assertEqual([*page.lines], [line[:-1] for line in lines[::-1]])

    def test_server_gone(self) -> None:
        """It ends when the server is gone, in the middle of its work, and before it had any (AUD-62)."""
        path = Path(self.mktemp()).absolute()
        # It would read this for minutes.
        with path.open("wb") as file:
            file.truncate(1 << 40)
        for given in (b"".join(encode_message(SearchTask(str(path), QUESTION, 50))), b""):
            with subprocess.Popen(make_command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={}) as process:
                written, _ = process.communicate(given)
            self.assertEqual((written, process.returncode), (b"", 1))
