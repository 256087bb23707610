"""The rotation loop: a round at a steady pace, on one server of the cluster at a time.

A value ends at its moment whether or not anybody looks: readers compare it with the database's clock. The loop tells that it
ended, gives values that were there before the annotation their end, rotates, and removes what nobody can use any more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from twisted.application.service import Service
from twisted.internet.defer import Deferred, gatherResults, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from svc.model.clocks import WallClock
from svc.model.errors import Refusal
from svc.model.expiration import Due, IExpirationEvents, IExpirations, IRotator, Turn
from svc.model.host_factories import IHostFactories
from svc.rotation.plans import Lives, Rotates, UnusablePlan, plan_of
from svc.rotation.rotation import DEADLINE, Rotations

#: How many variables are seen to beside each other.
BATCH: Final = 20

#: How soon a round that lacked something, such as its database, is followed by another, in seconds.
AGAIN: Final = 0.5

#: How many intervals may pass from the end of one round to that of the next, beside what the last rotations take.
INTERVALS_UNTIL_LATE: Final = 3

_log = Logger()


class Expirations(Service):
    """Run a round every ``interval`` seconds, and sooner after one that lacked what it needs.

    One that has much to do goes on for as long, and leaves the rest to the next. ``wall`` says which tokens of host
    factories have ended, as it does where one is shown. ``demand_primary`` returns when this server may write.
    """

    name = "expiration"

    def __init__(
        self,
        clock: IReactorTime,
        wall: WallClock,
        store: IExpirations,
        factories: IHostFactories,
        rotations: Rotations,
        rotators: Sequence[IRotator],
        events: IExpirationEvents,
        interval: float,
        demand_primary: Callable[[], Awaitable[None]],
    ) -> None:
        self._clock = clock
        self._wall = wall
        self._store = store
        self._factories = factories
        self._rotations = rotations
        self._rotators: Mapping[str, IRotator] = {rotator.name: rotator for rotator in rotators}
        self._events = events
        self._interval = interval
        self._demand_primary = demand_primary
        self._loop = LoopingCall(self._begin)
        self._loop.clock = clock
        self._round: Deferred[None] | None = None
        self._again: IDelayedCall | None = None
        self._last: float | None = None
        self._waiting: list[Deferred[None]] = []
        self._trouble: str | None = None

    def startService(self) -> None:
        """Begin with a round at once."""
        super().startService()  # type: ignore[no-untyped-call] # Twisted's
        self._loop.start(self._interval).addErrback(lambda failure: _log.failure("The loop of expiration died", failure))

    def stopService(self) -> Deferred[None] | None:
        """Stop the loop: cancel the rotations of the round that is under way, and wait for its end."""
        super().stopService()  # type: ignore[no-untyped-call] # Twisted's
        if self._loop.running:
            self._loop.stop()
        if self._again is not None:
            self._again.cancel()
            self._again = None
        under_way = self._round
        self._rotations.stop()
        return under_way

    @property
    def patience(self) -> float:
        """Return how long after a round the next one must have ended, in seconds."""
        return INTERVALS_UNTIL_LATE * self._interval + 2 * DEADLINE

    async def first_round(self) -> None:
        """Return when a round has ended that could do its work, or rightly had none. May be cancelled."""
        if self._last is None:
            waiting: Deferred[None] = Deferred()
            self._waiting.append(waiting)
            await waiting

    @property
    def trouble(self) -> str | None:
        """Return why the last round failed, for the log and operators; ``None`` when it didn't."""
        return self._trouble

    async def look(self) -> None:
        """Read whether anything is due, and do nothing about it.

        :raises StoreUnavailable: that can't be read.
        """
        await self._store.due(1)

    def last_round(self) -> float | None:
        """Return when a round ended last that could do its work, or rightly had none; ``None`` before the first."""
        return self._last

    def _begin(self) -> Deferred[None]:
        def ended(refused: bool | Failure) -> None:
            self._round = None
            if refused is True and self.running:
                self._again = self._clock.callLater(AGAIN, again)

        def again() -> None:
            self._again = None
            self._begin()

        if self._round is not None:
            return succeed(None)  # the one that came sooner
        if self._again is not None:
            self._again.cancel()
            self._again = None

        # Returned to the loop and to who stops it, each of whom waits by himself.
        waiting: Deferred[None] = Deferred()
        self._round = waiting
        Deferred.fromCoroutine(self._attempt()).addBoth(ended).addBoth(waiting.callback)
        return waiting

    async def _attempt(self) -> bool:
        """Make a round; return whether it was refused what it needs."""
        try:
            turn = await self._store.take_turn(self._work)
        except Refusal as refusal:
            self._fail(str(refusal))
            return True
        except Exception as error:
            self._fail(f"{type(error).__name__}: {error}")
            _log.failure("A round of expiration met a fault in the program")
        else:
            self._last = self._clock.seconds()
            if self._trouble is not None:
                _log.info("Expiration works again")
            self._trouble = None
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                each.callback(None)
            if turn is not Turn.OURS:
                _log.debug("Expiration rests here: {turn}", turn=turn.value)
        return False

    def _fail(self, why: str) -> None:
        if self._trouble is None:
            _log.warn("A round of expiration failed: {why}", why=why)
        self._trouble = why

    async def _work(self) -> None:
        # Of two primaries one may not give out passwords that the other has not.
        await self._demand_primary()
        begun = self._clock.seconds()
        self._events.admit()
        while removed := await self._factories.remove_expired(self._wall.seconds(), self._events.removal):
            await self._events.removed(removed)
        while self.running and (batch := await self._store.due(BATCH)):
            self._events.admit()
            attended = await gatherResults([Deferred.fromCoroutine(self._attend(due)) for due in batch])
            # What could not be seen to is still due: it waits for the next round.
            if not all(attended) or self._clock.seconds() >= begun + self._interval:
                return

    async def _attend(self, due: Due) -> bool:
        """Handle one variable that is due; return whether that could be done."""
        try:
            await self._see_to(due)
        except Refusal as refusal:
            _log.warn("Expiration could not see to {variable}: {why}", variable=str(due.variable), why=str(refusal))
            return False
        except Exception:
            _log.failure("Expiration met a fault in the program at {variable}", variable=str(due.variable))
            return False
        return True

    async def _see_to(self, due: Due) -> None:
        plan = plan_of(due.annotations, self._rotators)
        match plan:
            case UnusablePlan(fault):
                await self._events.failed(due.variable, due.rotator, fault)
                await self._store.rest(due, fault)
            case Rotates(interval=interval) if due.changed and due.ends_at is not None:
                await self._store.set_interval(due, interval)
            case Rotates():
                await self._rotations.rotate(due, plan)
            case Lives(lifetime) if due.changed:
                await self._store.set_lifetime(due, lifetime)
            case Lives():
                if due.ended and due.ends_at is not None:
                    await self._events.expired(due.variable, due.ends_at)
                await self._store.rest(due)
