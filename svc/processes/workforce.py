"""The processes that serve, seen by the one that supervises them: started, watched, replaced, and stopped.

Note [One stands by]. A process takes a second or two to read its modules, longer on a machine that is busy. So there is one
more than there are to serve: it has read them, and takes the place of one that dies in no time. Processes are started, not
forked: a fork of a running reactor shares its descriptors, and the locks of its threads.

Note [Beats, not seconds]. Each process is pinged in each beat, and one that gave no answer for ``HEARTBEATS_UNTIL_HUNG`` of
them is killed. One that has yet to begin, or to serve, may take ``HEARTBEATS_TO_START``: it reads modules and opens files
meanwhile, and shares its processor with others that do. Beats are counted by this process's own reactor: where the whole
machine was suspended none was missed.

Note [Again and again]. A process that dies young makes the next one wait longer before it takes a place. After
``DEATHS_UNTIL_END`` young deaths in succession, without one in between that served for ``YOUNG_SECONDS`` seconds, the server
gives up: something is wrong that starting again doesn't mend, and what supervises the server is to know.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

import attrs
from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from svc.model.background import PeriodicService
from svc.model.errors import Refusal, StartRefused
from svc.model.probes import IProbe

#: Seconds between two beats, and beats without an answer after which a process hangs; of one that has yet to begin.
HEARTBEAT_INTERVAL: Final = 1.0
HEARTBEATS_UNTIL_HUNG: Final = 4
HEARTBEATS_TO_START: Final = 60

#: Seconds that a process must have served to have died old; young deaths in succession after which the server gives up.
YOUNG_SECONDS: Final = 60.0
DEATHS_UNTIL_END: Final = 10

#: Young deaths in succession that are no reason to wait, the first pause after those in seconds, and the longest.
QUICK_RESTARTS: Final = 3
FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 10.0

#: Deaths within a minute for which the server isn't well.
DEATHS_UNTIL_UNHEALTHY: Final = 5
MINUTE: Final = 60.0

#: Seconds that processes may take to stop before they are killed: what connections may take, and the rest.
STOP_TIMEOUT: Final = 45.0

_log = Logger()


@attrs.frozen
class Ready:
    """A process reports that it has loaded its modules."""


@attrs.frozen
class ServingStarted:
    """A process reports that it serves."""


@attrs.frozen
class CannotServe:
    """A process reports why it can't serve."""

    why: str


@attrs.frozen
class Ping:
    """Asks a process whether its reactor runs."""


@attrs.frozen
class Pong:
    """It does. ``audit_fault``: why the process can't write audit records, if it can't."""

    audit_fault: str | None = None


@attrs.frozen
class StopServing:
    """Has a process finish its requests, and exit."""


class IProcess(Protocol):
    """A process as it was started."""

    def send_notice(self, notice: object) -> None:
        """Send it a message."""

    async def send_question(self, question: object, patience: float) -> Any:
        """Ask it something, and wait for so many seconds at most."""

    def kill(self) -> None:
        """Kill it, if it lives."""


class IWorkerListener(Protocol):
    """Handles the messages of one process to its workforce; made for each process."""

    def handle_notice(self, notice: object) -> None:
        """Handle a notice of the process."""

    async def answer_question(self, question: object) -> Any:
        """Answer a question of the process."""

    def handle_exit(self, why: str) -> None:
        """Note that the process has ended."""


class IWorkerCoordinator(Protocol):
    """Gives tasks to the serving processes and handles their messages; processes are known by their numbers."""

    def make_task(self, number: int) -> object:
        """Return the task that a process gets when it is to serve."""

    def handle_notice(self, number: int, notice: object) -> None:
        """Handle a notice of a process."""

    async def answer_question(self, number: int, question: object) -> Any:
        """Answer a question of a process."""

    def release_worker(self, number: int) -> None:
        """Release what a dead process held."""


@attrs.define(eq=False)
class _WorkerHandle:
    """A process; ``number`` is that of its place, 0 while it stands by. ``missed_heartbeats`` counts beats without an
    answer.
    """

    workforce: Workforce
    process: IProcess = attrs.field(init=False)
    number: int = 0
    ready: bool = False
    serving_since: float | None = None
    missed_heartbeats: int = 0
    audit_fault: str | None = None
    exited: Deferred[None] = attrs.field(factory=Deferred)

    def handle_notice(self, notice: object) -> None:
        """See ``IWorkerListener``."""
        self.workforce.handle_notice(self, notice)

    async def answer_question(self, question: object) -> Any:
        """See ``IWorkerListener``."""
        return await self.workforce.answer_question(self, question)

    def handle_exit(self, why: str) -> None:
        """See ``IWorkerListener``."""
        self.workforce.handle_exit(self, why)


class Workforce(Service):
    """Keeps ``count`` processes serving, with one that stands by.

    ``start`` starts a process and returns it, ``coordinator`` returns the object that handles their messages, and
    ``give_up`` is called with the reason when the server is to end.
    """

    name = "workforce"

    def __init__(
        self,
        clock: IReactorTime,
        count: int,
        start: Callable[[IWorkerListener], IProcess],
        coordinator: Callable[[], IWorkerCoordinator],
        give_up: Callable[[str], object],
    ) -> None:
        self._clock, self._count, self._start, self._coordinator, self._give_up = clock, count, start, coordinator, give_up
        self._workers: list[_WorkerHandle] = []
        self._all_serving: Deferred[None] | None = Deferred()
        self._deaths: deque[float] = deque(maxlen=DEATHS_UNTIL_UNHEALTHY)
        self._young_deaths = 0
        self._not_before = 0.0
        self.replaced = 0
        self._loop = PeriodicService(
            clock, HEARTBEAT_INTERVAL, self._check_heartbeats, _log, "Heartbeats could not be checked", at_once=False
        )

    def startService(self) -> None:
        """Start the processes."""
        super().startService()  # type: ignore[no-untyped-call] # Twisted's
        self._fill_places()
        self._loop.startService()

    async def wait_until_serving(self) -> None:
        """Return when all processes serve for the first time.

        :raises StartRefused: one of them can't.
        """
        if self._all_serving is not None:
            await self._all_serving

    @property
    def serving_count(self) -> int:
        """Return how many processes serve now."""
        return sum(hand.serving_since is not None for hand in self._workers)

    @property
    def is_responsive(self) -> bool:
        """Return whether one of those that serve has answered lately (Note [Beats, not seconds])."""
        return any(
            hand.serving_since is not None and hand.missed_heartbeats < HEARTBEATS_UNTIL_HUNG for hand in self._workers
        )

    @property
    def health_fault(self) -> str | None:
        """Return why the server isn't well, as far as its processes show; ``None`` when it is."""
        if self._all_serving is not None:
            return None
        if not self.serving_count:
            return "no process serves"
        if len(self._deaths) == DEATHS_UNTIL_UNHEALTHY and self._clock.seconds() - self._deaths[0] < MINUTE:
            return f"{DEATHS_UNTIL_UNHEALTHY} processes have died within a minute"
        return next((f"worker {hand.number}: {hand.audit_fault}" for hand in self._workers if hand.audit_fault), None)

    def notify_all(self, notice: object) -> None:
        """Send a message to all that have a place."""
        for hand in self._workers:
            if hand.number:
                hand.process.send_notice(notice)

    async def question_all(self, question: object, patience: float, take: Callable[[int, Any], object]) -> None:
        """Ask all serving processes, and give each answer that comes in time to ``take``, with the number of its process."""

        async def question_worker(hand: _WorkerHandle) -> None:
            answer = await hand.process.send_question(question, patience)
            if hand in self._workers:
                take(hand.number, answer)

        asked = [hand for hand in self._workers if hand.serving_since is not None]
        await DeferredList([Deferred.fromCoroutine(question_worker(hand)) for hand in asked], consumeErrors=True)

    def stopService(self) -> Deferred[None]:
        """Have all processes let their requests end, and return when they have ended."""
        super().stopService()  # type: ignore[no-untyped-call] # Twisted's
        return Deferred.fromCoroutine(self._stop_workers())

    async def _stop_workers(self) -> None:
        hands = list(self._workers)
        for hand in hands:
            if hand.ready:
                hand.process.send_notice(StopServing())
            else:
                hand.process.kill()
        timer = self._clock.callLater(STOP_TIMEOUT, self._kill_all)
        for hand in hands:
            if not hand.exited.called:
                await hand.exited
        if timer.active():
            timer.cancel()
        # Until now: one that hangs isn't waited for longer than at any other time.
        self._loop.stopService()

    def _kill_all(self) -> None:
        for hand in list(self._workers):
            _log.warn("Worker {number} did not stop in time, and is killed", number=hand.number)
            hand.process.kill()

    def handle_notice(self, hand: _WorkerHandle, notice: object) -> None:
        """Handle a notice of a process."""
        match notice:
            case Ready():
                hand.ready, hand.missed_heartbeats = True, 0
                self._fill_places()
            case Pong(audit_fault=trouble):
                hand.missed_heartbeats, hand.audit_fault = 0, trouble
            case ServingStarted():
                hand.serving_since, hand.missed_heartbeats = self._clock.seconds(), 0
                _log.info("Worker {number} serves", number=hand.number)
                if self._all_serving is not None and self.serving_count == self._count:
                    begun, self._all_serving = self._all_serving, None
                    begun.callback(None)
                    self._fill_places()
            case CannotServe(why=why):
                self._refuse_start(why)
            case _:
                self._coordinator().handle_notice(hand.number, notice)

    async def answer_question(self, hand: _WorkerHandle, question: object) -> Any:
        """Answer a question of a process."""
        return await self._coordinator().answer_question(hand.number, question)

    def handle_exit(self, hand: _WorkerHandle, why: str) -> None:
        """Replace a process that has ended, unless all are to."""
        self._workers.remove(hand)
        if hand.number:
            self._coordinator().release_worker(hand.number)
        hand.exited.callback(None)
        if not self.running:
            return
        if self._all_serving is not None:
            self._refuse_start(f"a process that was to serve ended at once: {why}")
            return
        now = self._clock.seconds()
        self._deaths.append(now)
        lasted = 0.0 if hand.serving_since is None else now - hand.serving_since
        _log.error("Worker {number} has died ({why}), and is replaced", number=hand.number, why=why)
        self.replaced += 1
        if lasted < YOUNG_SECONDS:
            self._young_deaths += 1
            if self._young_deaths >= DEATHS_UNTIL_END:
                self._give_up(f"{self._young_deaths} of its processes have died one after the other, the last of: {why}")
                return
            if self._young_deaths > QUICK_RESTARTS:
                self._not_before = now + min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (self._young_deaths - QUICK_RESTARTS - 1))
        self._fill_places()

    def _refuse_start(self, why: str) -> None:
        if self._all_serving is not None:
            begun, self._all_serving = self._all_serving, None
            begun.errback(StartRefused(why))

    def _fill_places(self) -> None:
        """Start what is lacking, and give free places to those that are ready."""
        if not self.running:
            return
        # The one that stands by comes when the others serve: it would only keep them from it.
        wanted = self._count + (self._all_serving is None)
        while len(self._workers) < wanted and self._may_start():
            hand = _WorkerHandle(self)
            try:
                hand.process = self._start(hand)
            except OSError as error:
                _log.error("No process can be started: {why}", why=str(error))
                self._refuse_start(f"no process can be started: {error}")
                return
            self._workers.append(hand)
        for number in sorted(set(range(1, self._count + 1)) - {hand.number for hand in self._workers}):
            free = next((hand for hand in self._workers if hand.ready and not hand.number), None)
            if free is None or not self._may_start():
                return
            free.number, free.missed_heartbeats = number, 0
            free.process.send_notice(self._coordinator().make_task(number))

    def _may_start(self) -> bool:
        return self._clock.seconds() >= self._not_before

    def _check_heartbeats(self) -> None:
        """See to Note [Beats, not seconds]."""
        now = self._clock.seconds()
        for hand in list(self._workers):
            hand.missed_heartbeats += 1
            begins = not hand.ready or (hand.number and hand.serving_since is None)
            if hand.missed_heartbeats >= (HEARTBEATS_TO_START if begins else HEARTBEATS_UNTIL_HUNG):
                _log.error("Worker {number} hangs, and is killed", number=hand.number)
                hand.missed_heartbeats = 0
                hand.process.kill()
            elif hand.ready:
                hand.process.send_notice(Ping())
            if hand.serving_since is not None and now - hand.serving_since >= YOUNG_SECONDS and self._is_after_deaths(hand):
                self._young_deaths = 0
        self._fill_places()

    def _is_after_deaths(self, hand: _WorkerHandle) -> bool:
        """Return whether a process began to serve after the last death."""
        return not self._deaths or (hand.serving_since or 0.0) >= self._deaths[-1]


@implementer(IProbe)
@attrs.frozen
class WorkforceProbe:
    """Checks that the processes that serve do."""

    service = "workers"

    workforce: Workforce

    async def check(self) -> None:
        """Fail while processes die again and again, or can't write audit records."""
        if (why := self.workforce.health_fault) is not None:
            raise WorkersFail(why)


@attrs.frozen(str=False)
class WorkersFail(Refusal):
    """Processes that serve don't; raised by a probe, for the log."""

    why: str
