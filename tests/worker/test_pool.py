"""Workers as the server has them, with processes that the tests play."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessDone, ProcessTerminated
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.model.dialect import NATIVE
from svc.model.errors import Forbidden, LoadsUnavailable, OutcomeUnknown
from svc.model.names import RoleName
from svc.model.pickled_messages import Message, MessageDecoder, encode_message
from svc.model.policy_loads import Load, LoadMode, LoadOutcome, LoadResult
from svc.model.query_results import Caller
from svc.model.request_notes import begin_notes
from svc.policy.document import Bounds
from svc.worker.messages import Batch, Committed, LoadBug, LoadWorkerSettings
from svc.worker.pool import IDLE_SECONDS, LOAD_DEADLINE, MAX_PER_CALLER, MAX_WAITING, MAX_WORKERS, STOP_TIMEOUT, Workers

TASK = LoadWorkerSettings("dbname=x", 5.0, (b"k" * 32,), NATIVE, Bounds())

#: What a worker answers when a load was done, but for the API keys.
DONE = LoadResult(1, audited=(3, 5))


def load(document: bytes, caller: str) -> Load:
    """A load."""
    root = RoleName("acme", "policy", "root")
    return Load(root, LoadMode.APPEND, Caller(RoleName("acme", "user", caller), 0), "192.0.2.7", document)


class Process:
    """A process that is played: the transport of its protocol."""

    def __init__(self, protocol: ProcessProtocol, number: int) -> None:
        self.pid = number
        self.closed = False
        self.ended = False
        self._protocol: Any = protocol
        self._reading = MessageDecoder()
        self._messages: list[Message] = []

    def write(self, data: bytes) -> None:
        """Take what the server writes."""
        self._messages.extend(self._reading.feed(data))

    def closeStdin(self) -> None:
        """The server wants it to end."""
        self.closed = True

    def signalProcess(self, name: str) -> None:
        """Die at once."""
        assert name == "KILL"
        self.end(ProcessTerminated(signal=9))

    def received(self) -> list[Message]:
        """Take what it was sent."""
        messages, self._messages = self._messages, []
        return messages

    def answer(self, value: object, content: bytes = b"") -> None:
        """Answer."""
        self._protocol.outReceived(b"".join(encode_message(value, content)))

    def say(self, text: bytes) -> None:
        """Say something on standard error."""
        self._protocol.errReceived(text)

    def end(self, reason: Exception | None = None) -> None:
        """End."""
        self.ended = True
        self._protocol.processEnded(Failure(reason or ProcessDone(0)))


class Reactor(Clock):
    """A clock that starts processes; ``scarce``: there are no more of them."""

    def __init__(self) -> None:
        super().__init__()
        self.processes: list[Process] = []
        self.scarce = False

    def spawnProcess(
        self, protocol: ProcessProtocol, executable: str, args: Sequence[str], env: Mapping[str, str] | None
    ) -> None:
        """Start one."""
        assert (executable, env) == (args[0], None)
        if self.scarce:
            raise BlockingIOError("Resource temporarily unavailable")
        process = Process(protocol, len(self.processes) + 1)
        self.processes.append(process)
        protocol.makeConnection(process)


class PoolTests(SynchronousTestCase):
    """When workers are started, what they are given, and when they end."""

    def setUp(self) -> None:
        """Make a pool."""
        self.reactor = Reactor()
        self.workers = Workers(self.reactor, TASK)
        self.workers.startService()
        self.callers = 0
        self.processes = self.reactor.processes

    def load(self, document: bytes = b"- !user bob\n", caller: str | None = None) -> Deferred[LoadOutcome]:
        """Begin a load, of a caller of its own when none is given."""
        self.callers += 1
        return Deferred.fromCoroutine(self.workers.load_policy(load(document, caller or f"user-{self.callers}")))

    def refused(self, begun: Deferred[LoadOutcome]) -> str:
        """Why a load is refused."""
        return str(self.failureResultOf(begun, LoadsUnavailable, OutcomeUnknown).value)

    def test_version(self) -> None:
        """The version that a worker tells before its outcome is noted for the request of that load alone (CLU-27)."""

        async def request(document: bytes) -> str | None:
            notes = begin_notes()
            await self.load(document)
            return notes.version

        for version in ("a.1.7", None, "a.1.8"):
            begun = Deferred.fromCoroutine(request(b"- !user eve\n"))
            [process] = self.processes
            if version is not None:
                process.answer(Committed(version))
            process.answer(DONE)
            self.assertEqual(self.successResultOf(begun), version)
        # Work that no request began notes nothing.
        begun_alone = self.load()
        process.answer(Committed("a.1.9"))
        process.answer(DONE)
        self.successResultOf(begun_alone)

    def test_started_when_needed(self) -> None:
        """The first load starts a worker, which is told its task, then the load, its document beside it."""
        self.assertEqual(self.processes, [])
        begun = self.load(b"- !user eve\n", "alice")
        [process] = self.processes
        told = load(b"", "alice")
        self.assertEqual(process.received(), [Message(TASK, b""), Message(told, b"- !user eve\n")])
        self.assertNoResult(begun)
        process.answer(DONE)
        self.assertEqual(self.successResultOf(begun), DONE)

    def test_batches(self) -> None:
        """An outcome has the batches that came for it, which can be read again, and none of the load before."""
        begun = self.load()
        [process] = self.processes
        keys = [(f"acme:user:{number}", "key") for number in range(3)]
        for some in (keys[:2], keys[2:]):
            process.answer(Batch("api_keys"), pickle.dumps(some))
        self.assertNoResult(begun)
        process.answer(DONE)
        outcome = self.successResultOf(begun)
        assert isinstance(outcome, LoadResult)
        self.assertEqual([list(outcome.api_keys) for _ in range(2)], [[keys[:2], keys[2:]]] * 2)
        self.assertEqual((outcome.version, outcome.audited), (1, (3, 5)))
        begun = self.load()
        process.answer(DONE)
        self.assertEqual(self.successResultOf(begun), DONE)

    def test_kept(self) -> None:
        """A worker that is free gets the next load; one without work for a while is let go, and another one started."""
        for _ in range(2):
            self.load()
            self.processes[0].answer(DONE)
        self.assertEqual(len(self.processes), 1)
        self.reactor.advance(IDLE_SECONDS)
        self.assertTrue(self.processes[0].closed)
        self.load()
        self.assertEqual(len(self.processes), 2)
        self.processes[0].end()
        self.processes[1].answer(DONE)
        self.reactor.advance(IDLE_SECONDS / 2)
        begun = self.load()
        self.reactor.advance(IDLE_SECONDS)
        self.assertFalse(self.processes[1].closed)
        self.processes[1].answer(DONE)
        self.successResultOf(begun)
        self.assertEqual(len(self.processes), 2)

    def test_bounds(self) -> None:
        """There are only so many workers, and so many loads that wait, first come, first served; more are refused (POL-51,
        LIM-15).
        """
        running = [self.load() for _ in range(MAX_WORKERS)]
        waiting = [self.load(f"{number}".encode()) for number in range(MAX_WAITING)]
        self.assertEqual(len(self.processes), MAX_WORKERS)
        self.assertIn("wait already", self.refused(self.load()))
        process = self.processes[0]
        process.received()
        process.answer(DONE)
        self.successResultOf(running[0])
        self.assertEqual(process.received()[0].content, b"0")
        waiting[1].cancel()
        self.failureResultOf(waiting[1])
        process.answer(DONE)
        self.assertEqual(process.received()[0].content, b"2")

    def test_callers(self) -> None:
        """A caller has one worker at a time, and but so many loads that wait, no matter who else waits (POL-51, LIM-15)."""
        running = self.load(b"0", "alice")
        waiting = [self.load(f"{number}".encode(), "alice") for number in range(1, MAX_PER_CALLER)]
        self.assertIn("same role", self.refused(self.load(caller="alice")))
        self.assertEqual(len(self.processes), 1)
        others = [self.load(caller="bob"), self.load(b"carol", "carol")]
        self.assertEqual(len(self.processes), 2)
        self.processes[1].received()
        self.processes[1].answer(DONE)
        self.successResultOf(others[0])
        self.assertEqual(self.processes[1].received()[0].content, b"carol")
        self.processes[0].received()
        self.processes[0].answer(DONE)
        self.successResultOf(running)
        self.assertEqual(self.processes[0].received()[0].content, b"1")
        self.processes[0].answer(DONE)
        self.successResultOf(waiting[0])

    def test_hanging_end(self) -> None:
        """A worker that is let go and stays is killed."""
        self.load()
        self.processes[0].answer(DONE)
        self.reactor.advance(IDLE_SECONDS)
        self.assertFalse(self.processes[0].ended)
        self.reactor.advance(STOP_TIMEOUT)
        self.assertTrue(self.processes[0].ended)

    def test_refusal(self) -> None:
        """What a worker refuses is refused, and it goes on."""
        begun = self.load()
        self.processes[0].answer(Forbidden("no"))
        self.assertEqual(self.failureResultOf(begun, Forbidden).value.why, "no")
        begun = self.load()
        self.processes[0].answer(DONE)
        self.successResultOf(begun)

    def test_bug(self) -> None:
        """A bug in a worker is a bug of the load, and what the worker says about it is logged."""
        begun = self.load()
        self.processes[0].say(b"Traceback\nKeyErr")
        self.processes[0].say(b"or\n")
        self.processes[0].answer(LoadBug("KeyError"))
        self.assertIn("KeyError", str(self.failureResultOf(begun, RuntimeError).value))

    def test_left_by_the_client(self) -> None:
        """A load whose client leaves goes on; its worker is free when it ends, and not before."""
        begun = self.load()
        begun.cancel()
        self.failureResultOf(begun)
        self.load()
        self.assertEqual(len(self.processes), 2)
        self.processes[0].answer(DONE)
        self.load()
        self.assertEqual(len(self.processes), 2)

    def test_death(self) -> None:
        """When a worker dies its load is refused, and who waits gets a new one."""
        running = [self.load() for _ in range(MAX_WORKERS)]
        waiting = self.load(b"waiting")
        self.processes[0].end(ProcessTerminated(signal=9))
        self.assertIn("ended", self.refused(running[0]))
        self.assertEqual(self.processes[-1].received()[1].content, b"waiting")
        self.processes[-1].answer(DONE)
        self.successResultOf(waiting)

    def test_death_without_work(self) -> None:
        """A worker that dies while it is free is replaced when there is work."""
        self.load()
        self.processes[0].answer(DONE)
        self.processes[0].end(ProcessTerminated(signal=9))
        begun = self.load()
        self.processes[1].answer(DONE)
        self.successResultOf(begun)

    def test_deadline(self) -> None:
        """A load that takes too long is given up with its worker, and nobody knows whether it was committed (POL-51,
        LIM-15).
        """
        begun = self.load()
        self.reactor.advance(LOAD_DEADLINE)
        self.assertTrue(self.processes[0].ended)
        self.failureResultOf(begun, OutcomeUnknown)

    def test_no_processes(self) -> None:
        """Where no process can be started loads are refused, also those that wait for a worker that died."""
        running = [self.load() for _ in range(MAX_WORKERS)]
        waiting = self.load()
        self.reactor.scarce = True
        self.processes[0].end(ProcessTerminated(signal=9))
        for begun in (running[0], waiting, self.load()):
            self.refused(begun)

    def test_stop(self) -> None:
        """When the server stops, workers are let go, and killed if they stay; who waits or comes is refused."""
        running = [self.load() for _ in range(MAX_WORKERS)]
        waiting = self.load()
        stopped = self.workers.stopService()
        self.assertIn("stops", self.refused(waiting))
        self.assertIn("stops", self.refused(self.load()))
        self.assertEqual([process.closed for process in self.processes], [True] * MAX_WORKERS)
        self.processes[0].end()
        self.assertNoResult(stopped)
        self.reactor.advance(STOP_TIMEOUT)
        self.successResultOf(stopped)
        for begun in running:
            self.refused(begun)
        self.assertTrue(all(process.ended for process in self.processes))
        self.assertEqual(self.reactor.getDelayedCalls(), [])
