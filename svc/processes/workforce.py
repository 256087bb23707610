"""The processes that serve, seen by the one that supervises them: started, watched, replaced, and stopped.

Note [One stands by]. A process takes a second or two to read its modules, longer on a machine that is busy. So there is one
more than there are to serve: it has read them, and takes the place of one that dies in no time. Processes are started, not
forked: a fork of a running reactor shares its descriptors, and the locks of its threads.

Note [Beats, not seconds]. Each process is pinged in each beat, and one that gave no answer for ``BEATS_UNTIL_HUNG`` of them
is killed. One that has yet to begin, or to serve, may take ``BEATS_TO_BEGIN``: it reads modules and opens files meanwhile,
and shares its processor with others that do. Beats are counted by this process's own turns: where the whole machine was
suspended none was missed.

Note [Again and again]. A process that dies young makes the next one wait longer before it takes a place. After
``DEATHS_UNTIL_END`` young deaths in succession, without one in between that served for ``YOUNG`` seconds, the server gives
up: something is wrong that starting again doesn't mend, and what supervises the server is to know.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

import attrs
from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from zope.interface import implementer

from svc.model.errors import Refusal, StartRefused
from svc.model.ports import IProbe

#: Seconds between two beats, and beats without an answer after which a process hangs; of one that has yet to begin.
BEAT: Final = 1.0
BEATS_UNTIL_HUNG: Final = 4
BEATS_TO_BEGIN: Final = 60

#: Seconds that a process must have served to have died old; young deaths in succession after which the server gives up.
YOUNG: Final = 60.0
DEATHS_UNTIL_END: Final = 10

#: Young deaths in succession that are no reason to wait, the first pause after those in seconds, and the longest.
PATIENT: Final = 3
PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 10.0

#: Deaths within a minute for which the server isn't well.
DEATHS_UNTIL_ILL: Final = 5
MINUTE: Final = 60.0

#: Seconds that processes may take to stop before they are killed: what connections may take, and the rest.
STOPPING: Final = 45.0

_log = Logger()


@attrs.frozen
class Ready:
    """A process reports that it has loaded its modules."""


@attrs.frozen
class Begun:
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
    """It does. ``trouble``: why the process can't write audit records, if it can't."""

    trouble: str | None = None


@attrs.frozen
class Leave:
    """Has a process finish its requests, and exit."""


class IProcess(Protocol):
    """A process as it was started."""

    def tell(self, notice: object) -> None:
        """Tell it something."""

    async def ask(self, question: object, patience: float) -> Any:
        """Ask it something, and wait for so many seconds at most."""

    def kill(self) -> None:
        """Kill it, if it lives."""


class IOwner(Protocol):
    """Handles the messages of one process to its workforce; made for each process."""

    def heard(self, notice: object) -> None:
        """Take what the process has told."""

    async def asked(self, question: object) -> Any:
        """Answer a question of the process."""

    def ended(self, why: str) -> None:
        """Note that the process has ended."""


class IOffice(Protocol):
    """Gives tasks to the serving processes and handles their messages; processes are known by their numbers."""

    def task(self, number: int) -> object:
        """Return the task that a process gets when it is to serve."""

    def heard(self, number: int, notice: object) -> None:
        """Take what a process has told."""

    async def asked(self, number: int, question: object) -> Any:
        """Answer a question of a process."""

    def buried(self, number: int) -> None:
        """Release what a dead process held."""


@attrs.define(eq=False)
class _Hand:
    """A process; ``number`` is that of its place, 0 while it stands by. ``silent`` counts beats without an answer."""

    force: Workforce
    process: IProcess = attrs.field(init=False)
    number: int = 0
    ready: bool = False
    serving_since: float | None = None
    silent: int = 0
    trouble: str | None = None
    over: Deferred[None] = attrs.field(factory=Deferred)

    def heard(self, notice: object) -> None:
        """See ``IOwner``."""
        self.force.heard(self, notice)

    async def asked(self, question: object) -> Any:
        """See ``IOwner``."""
        return await self.force.asked(self, question)

    def ended(self, why: str) -> None:
        """See ``IOwner``."""
        self.force.ended(self, why)


class Workforce(Service):
    """Keeps ``count`` processes serving, with one that stands by.

    ``start`` starts a process and returns it, ``office`` returns the object that handles their messages, and ``give_up`` is
    called with the reason when the server is to end.
    """

    name = "workforce"

    def __init__(
        self,
        clock: IReactorTime,
        count: int,
        start: Callable[[IOwner], IProcess],
        office: Callable[[], IOffice],
        give_up: Callable[[str], object],
    ) -> None:
        self._clock, self._count, self._start, self._office, self._give_up = clock, count, start, office, give_up
        self._hands: list[_Hand] = []
        self._all_serving: Deferred[None] | None = Deferred()
        self._deaths: deque[float] = deque(maxlen=DEATHS_UNTIL_ILL)
        self._young = 0
        self._not_before = 0.0
        self.replaced = 0
        self._loop = LoopingCall(self._beat)
        self._loop.clock = clock

    def startService(self) -> None:
        """Start the processes."""
        super().startService()  # type: ignore[no-untyped-call] # Twisted's
        self._fill()
        self._loop.start(BEAT, now=False)

    async def all_serve(self) -> None:
        """Return when all processes serve for the first time.

        :raises StartRefused: one of them can't.
        """
        if self._all_serving is not None:
            await self._all_serving

    @property
    def serving(self) -> int:
        """Return how many processes serve now."""
        return sum(hand.serving_since is not None for hand in self._hands)

    @property
    def answers(self) -> bool:
        """Return whether one of those that serve has answered lately (Note [Beats, not seconds])."""
        return any(hand.serving_since is not None and hand.silent < BEATS_UNTIL_HUNG for hand in self._hands)

    @property
    def trouble(self) -> str | None:
        """Return why the server isn't well, as far as its processes show; ``None`` when it is."""
        if self._all_serving is not None:
            return None
        if not self.serving:
            return "no process serves"
        if len(self._deaths) == DEATHS_UNTIL_ILL and self._clock.seconds() - self._deaths[0] < MINUTE:
            return f"{DEATHS_UNTIL_ILL} processes have died within a minute"
        return next((f"worker {hand.number}: {hand.trouble}" for hand in self._hands if hand.trouble), None)

    def tell(self, notice: object) -> None:
        """Tell all that have a place."""
        for hand in self._hands:
            if hand.number:
                hand.process.tell(notice)

    async def ask_each(self, question: object, patience: float, take: Callable[[int, Any], object]) -> None:
        """Ask all serving processes, and give each answer that comes in time to ``take``, with the number of its process."""

        async def one(hand: _Hand) -> None:
            answer = await hand.process.ask(question, patience)
            if hand in self._hands:
                take(hand.number, answer)

        asked = [hand for hand in self._hands if hand.serving_since is not None]
        await DeferredList([Deferred.fromCoroutine(one(hand)) for hand in asked], consumeErrors=True)

    def stopService(self) -> Deferred[None]:
        """Have all processes let their requests end, and return when they have ended."""
        super().stopService()  # type: ignore[no-untyped-call] # Twisted's
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        hands = list(self._hands)
        for hand in hands:
            if hand.ready:
                hand.process.tell(Leave())
            else:
                hand.process.kill()
        timer = self._clock.callLater(STOPPING, self._kill_all)
        for hand in hands:
            if not hand.over.called:
                await hand.over
        if timer.active():
            timer.cancel()
        # Until now: one that hangs isn't waited for longer than at any other time.
        if self._loop.running:
            self._loop.stop()

    def _kill_all(self) -> None:
        for hand in list(self._hands):
            _log.warn("Worker {number} did not stop in time, and is killed", number=hand.number)
            hand.process.kill()

    def heard(self, hand: _Hand, notice: object) -> None:
        """Take what a process has told."""
        match notice:
            case Ready():
                hand.ready, hand.silent = True, 0
                self._fill()
            case Pong(trouble=trouble):
                hand.silent, hand.trouble = 0, trouble
            case Begun():
                hand.serving_since, hand.silent = self._clock.seconds(), 0
                _log.info("Worker {number} serves", number=hand.number)
                if self._all_serving is not None and self.serving == self._count:
                    begun, self._all_serving = self._all_serving, None
                    begun.callback(None)
                    self._fill()
            case CannotServe(why=why):
                self._refuse(why)
            case _:
                self._office().heard(hand.number, notice)

    async def asked(self, hand: _Hand, question: object) -> Any:
        """Answer a question of a process."""
        return await self._office().asked(hand.number, question)

    def ended(self, hand: _Hand, why: str) -> None:
        """Replace a process that has ended, unless all are to."""
        self._hands.remove(hand)
        if hand.number:
            self._office().buried(hand.number)
        hand.over.callback(None)
        if not self.running:
            return
        if self._all_serving is not None:
            self._refuse(f"a process that was to serve ended at once: {why}")
            return
        now = self._clock.seconds()
        self._deaths.append(now)
        lasted = 0.0 if hand.serving_since is None else now - hand.serving_since
        _log.error("Worker {number} has died ({why}), and is replaced", number=hand.number, why=why)
        self.replaced += 1
        if lasted < YOUNG:
            self._young += 1
            if self._young >= DEATHS_UNTIL_END:
                self._give_up(f"{self._young} of its processes have died one after the other, the last of: {why}")
                return
            if self._young > PATIENT:
                self._not_before = now + min(LONGEST_PAUSE, PAUSE * 2 ** (self._young - PATIENT - 1))
        self._fill()

    def _refuse(self, why: str) -> None:
        if self._all_serving is not None:
            begun, self._all_serving = self._all_serving, None
            begun.errback(StartRefused(why))

    def _fill(self) -> None:
        """Start what is lacking, and give free places to those that are ready."""
        if not self.running:
            return
        # The one that stands by comes when the others serve: it would only keep them from it.
        wanted = self._count + (self._all_serving is None)
        while len(self._hands) < wanted and self._may_start():
            hand = _Hand(self)
            try:
                hand.process = self._start(hand)
            except OSError as error:
                _log.error("No process can be started: {why}", why=str(error))
                self._refuse(f"no process can be started: {error}")
                return
            self._hands.append(hand)
        for number in sorted(set(range(1, self._count + 1)) - {hand.number for hand in self._hands}):
            free = next((hand for hand in self._hands if hand.ready and not hand.number), None)
            if free is None or not self._may_start():
                return
            free.number, free.silent = number, 0
            free.process.tell(self._office().task(number))

    def _may_start(self) -> bool:
        return self._clock.seconds() >= self._not_before

    def _beat(self) -> None:
        """See to Note [Beats, not seconds]."""
        now = self._clock.seconds()
        for hand in list(self._hands):
            hand.silent += 1
            begins = not hand.ready or (hand.number and hand.serving_since is None)
            if hand.silent >= (BEATS_TO_BEGIN if begins else BEATS_UNTIL_HUNG):
                _log.error("Worker {number} hangs, and is killed", number=hand.number)
                hand.silent = 0
                hand.process.kill()
            elif hand.ready:
                hand.process.tell(Ping())
            if hand.serving_since is not None and now - hand.serving_since >= YOUNG and self._is_after_deaths(hand):
                self._young = 0
        self._fill()

    def _is_after_deaths(self, hand: _Hand) -> bool:
        """Return whether a process began to serve after the last death."""
        return not self._deaths or (hand.serving_since or 0.0) >= self._deaths[-1]


@implementer(IProbe)
@attrs.frozen
class WorkforceProbe:
    """Checks that the processes that serve do."""

    service = "workers"

    force: Workforce

    async def check(self) -> None:
        """Fail while processes die again and again, or can't write audit records."""
        if (why := self.force.trouble) is not None:
            raise WorkersFail(why)


@attrs.frozen(str=False)
class WorkersFail(Refusal):
    """Processes that serve don't; raised by a probe, for the log."""

    why: str
