"""The server's side: workers are started when there is work for them, and end when there has been none for a while."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessExitedAlready
from twisted.internet.interfaces import IDelayedCall, IProcessTransport
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

import svc
from svc.model.errors import LoadsUnavailable, OutcomeUnknown, Refusal
from svc.model.names import RoleName
from svc.model.permits import IPermits
from svc.model.pickled_messages import MessageDecoder, encode_message
from svc.model.policy_loads import ILoads, Load, LoadOutcome
from svc.model.request_notes import request_notes
from svc.model.versions import StateVersion
from svc.storage.driver.commits import Written
from svc.worker.messages import Batch, Committed, DataKeys, LoadBug, LoadWorkerSettings, decode_outcome

MAX_WORKERS: Final = 2  # at most; each takes some 50 MB, and what its document takes
MAX_WAITING: Final = 16  # loads that may wait for a worker, each with its document in memory
MAX_PER_CALLER: Final = 8  # loads of one caller that may be under way and wait: no caller keeps all others from loading
IDLE_SECONDS: Final = 30.0  # seconds that a worker without work is kept, since it takes a while to start one
LOAD_DEADLINE: Final = 600.0  # seconds that a load may take before its worker is given up
STOP_TIMEOUT: Final = 5.0  # seconds that a worker may take to end before it is killed

# Its modules come from where ours come from, and none from the folder that the server happens to stand in.
_PROGRAM: Final = "import sys; sys.path.insert(0, sys.argv[1]); from svc.worker.main import main; main()"
_COMMAND: Final = (sys.executable, "-P", "-c", _PROGRAM, str(Path(svc.__path__[0]).parent))

_log = Logger()


@implementer(ILoads)
class Workers(Service):
    """Provides ``ILoads`` by processes that do nothing else, so that the one which answers requests never stops for it.

    Loads are refused with ``LoadsUnavailable`` where too many of them wait, and with ``OutcomeUnknown`` where a worker dies.
    ``reactor``: ``IReactorProcess`` and ``IReactorTime``; ``command``: the program that a worker is, with its arguments;
    ``idle``: for how many seconds one without work is kept. ``written`` is as in ``Database``: a worker commits in a process
    of its own. ``data_keys`` returns the data keys for a load, if not the task's.
    """

    name = "workers"

    def __init__(
        self,
        reactor: Any,
        task: LoadWorkerSettings,
        command: tuple[str, ...] = _COMMAND,
        idle: float = IDLE_SECONDS,
        written: Written = lambda *_: None,
        data_keys: Callable[[], tuple[bytes, ...]] | None = None,
    ) -> None:
        self._reactor = reactor
        self._data_keys = data_keys or (lambda: task.data_keys)
        self._idle = idle
        self._task = task
        self._command = command
        self._on_commit = written
        self._workers: set[_Worker] = set()
        self._waiting: deque[_WaitingLoad] = deque()

    async def load_policy(self, load: Load) -> LoadOutcome:
        """See ``ILoads``."""
        worker = await self._acquire_worker(load.caller.role)
        confirmed, version = False, None
        try:
            outcome, version = await worker.load(load)
            confirmed = True
        finally:
            self._on_commit(confirmed, None if version is None else StateVersion.parse_or_none(version))
        notes = request_notes()
        if notes is not None and version is not None:
            notes.version = version
        return outcome

    def stopService(self) -> Deferred[None]:
        """End all workers, with their loads."""
        super().stopService()  # type: ignore[no-untyped-call]  # Twisted has no types here
        return Deferred.fromCoroutine(self._stop_workers())

    async def _stop_workers(self) -> None:
        while self._waiting:
            self._waiting.popleft().worker.errback(LoadsUnavailable("the server stops"))
        workers = list(self._workers)
        for worker in workers:
            worker.request_exit()
        for worker in workers:
            if not worker.exited.called:
                await worker.exited

    async def _acquire_worker(self, caller: RoleName) -> _Worker:
        """Return a worker that has nothing to do, for a load of the caller's; each has no more than one at a time."""
        if not self.running:
            raise LoadsUnavailable("the server stops")
        waiting = [each.caller for each in self._waiting]
        if not self._is_served(caller):
            if free := next((worker for worker in self._workers if worker.is_free), None):
                return free
            if len(self._workers) < MAX_WORKERS:
                return self._start_worker()
        elif waiting.count(caller) + 1 >= MAX_PER_CALLER:
            raise LoadsUnavailable(f"{MAX_PER_CALLER} policy loads of the same role are under way already")
        if len(waiting) >= MAX_WAITING:
            raise LoadsUnavailable(f"{MAX_WAITING} policy loads wait already")
        entry = _WaitingLoad(caller, Deferred(lambda _: self._waiting.remove(entry)))
        self._waiting.append(entry)
        return await entry.worker

    def _is_served(self, caller: RoleName) -> bool:
        return any(worker.caller == caller for worker in self._workers)

    def _start_worker(self) -> _Worker:
        worker = _Worker(self._reactor, self._task, self._serve_next, self._idle, self._data_keys)
        try:
            self._reactor.spawnProcess(worker, self._command[0], self._command, env=None)
        except OSError as error:
            raise LoadsUnavailable(f"no process can be started: {error}") from None
        self._workers.add(worker)
        return worker

    def _serve_next(self, worker: _Worker) -> None:
        """Serve the load that has waited longest of those whose caller has no worker; one that has ended is replaced."""
        if worker.exited.called:
            self._workers.discard(worker)
        entry = next((entry for entry in self._waiting if not self._is_served(entry.caller)), None)
        if entry is None or not self.running:
            return
        self._waiting.remove(entry)
        try:
            entry.worker.callback(self._start_worker() if worker.exited.called else worker)
        except LoadsUnavailable as refusal:
            entry.worker.errback(refusal)


@attrs.frozen(eq=False)
class _WaitingLoad:
    caller: RoleName
    worker: Deferred[_Worker]


class _Worker(ProcessProtocol):
    """A worker's process. ``freed`` is called with it when it becomes free, and when it has ended."""

    transport: IProcessTransport

    def __init__(
        self,
        clock: Any,
        task: LoadWorkerSettings,
        freed: Callable[[_Worker], None],
        idle: float,
        data_keys: Callable[[], tuple[bytes, ...]],
    ) -> None:
        self._idle = idle
        self._data_keys = data_keys
        self._given = task.data_keys
        self._clock = clock
        self._task = task
        self._on_freed = freed
        self._decoder = MessageDecoder()
        self._batches: dict[str, list[bytes]] = {}
        self.caller: RoleName | None = None
        self._version: str | None = None
        self._answer: Deferred[tuple[LoadOutcome, str | None]] | None = None
        self._later: IDelayedCall | None = None
        self._stderr = b""
        self._stopping = False
        self.exited: Deferred[None] = Deferred()

    @property
    def is_free(self) -> bool:
        """Return whether it can be given a load."""
        return self._answer is None and not self._stopping

    def load(self, load: Load) -> Deferred[tuple[LoadOutcome, str | None]]:
        """Send it a load, and return the outcome to come, with the version of the state after it if it was committed."""
        self._schedule(LOAD_DEADLINE, self._give_up)
        self.caller = load.caller.role
        answer = self._answer = Deferred()
        if (keys := self._data_keys()) != self._given:
            self._given = keys
            self._send_message(DataKeys(keys))
        self._send_message(attrs.evolve(load, document=b""), load.document)
        return answer

    def request_exit(self) -> None:
        """Ask it to end, and kill it where it doesn't."""
        self._stopping = True
        self.transport.closeStdin()
        self._schedule(STOP_TIMEOUT, self._kill)

    def connectionMade(self) -> None:
        """Send it its task."""
        _log.info("A process for large policy loads was started: {pid}", pid=self.transport.pid)
        self._send_message(self._task)

    def outReceived(self, data: bytes) -> None:
        """Read batches and outcomes."""
        for message in self._decoder.feed(data):
            if isinstance(message.value, Batch):
                self._batches.setdefault(message.value.field, []).append(message.content)
                continue
            if isinstance(message.value, Committed):
                self._version = message.value.version
                continue
            answer, self._answer, self.caller = self._answer, None, None
            batches, self._batches = self._batches, {}
            version, self._version = self._version, None
            self._schedule(self._idle, self.request_exit)
            if answer is not None:
                match message.value:
                    case Refusal() as refusal:
                        answer.errback(refusal)
                    case LoadBug() as bug:
                        answer.errback(RuntimeError(f"a policy load met a bug, which is in the log above: {bug.why}"))
                    case rest:
                        answer.callback((decode_outcome(rest, batches), version))
            self._on_freed(self)

    def errReceived(self, data: bytes) -> None:
        """Log its standard error."""
        *lines, self._stderr = (self._stderr + data).split(b"\n")
        for line in lines:
            _log.warn("From the process for policy loads: {line}", line=line.decode("utf-8", "replace"))

    def processEnded(self, reason: Failure) -> None:
        """Refuse the load that it was doing."""
        if self._later is not None:
            self._later.cancel()
        answer, self._answer, self.caller = self._answer, None, None
        if not self._stopping or answer is not None:
            _log.warn("A process for policy loads ended by itself: {why}", why=reason.getErrorMessage())
        self._stopping = True
        if answer is not None:
            answer.errback(OutcomeUnknown("the process for policy loads ended in the middle of one"))
        if not self.exited.called:
            self.exited.callback(None)
        self._on_freed(self)

    def _send_message(self, value: object, content: bytes = b"") -> None:
        for piece in encode_message(value, content):
            self.transport.write(piece)

    def _schedule(self, seconds: float, call: Callable[[], None]) -> None:
        if self._later is not None:
            self._later.cancel()

        def run_call() -> None:
            self._later = None
            call()

        self._later = self._clock.callLater(seconds, run_call)

    def _give_up(self) -> None:
        _log.error("A policy load took longer than {seconds} seconds, and was given up", seconds=LOAD_DEADLINE)
        self._kill()

    def _kill(self) -> None:
        with suppress(ProcessExitedAlready):
            self.transport.signalProcess("KILL")


@implementer(ILoads)
@attrs.frozen
class LimitedLoads:
    """Passes loads on to ``inner``; each waits for a permit that all processes of the server share.

    A permit is released when its load has ended, not when the client stops waiting.
    """

    _inner: ILoads
    _permits: IPermits

    async def load_policy(self, load: Load) -> LoadOutcome:
        """See ``ILoads``."""
        give_back = await self._permits.acquire(str(load.caller.role))
        outcome: Deferred[LoadOutcome] = Deferred()

        def finish_load(result: object) -> None:
            give_back()
            outcome.callback(result)  # type: ignore[arg-type] # a failure is passed on as one; it goes nowhere when nobody waits

        Deferred.fromCoroutine(self._inner.load_policy(load)).addBoth(finish_load)
        return await outcome
