"""The rotation loop: a round at a steady pace, on one server of the cluster at a time.

A value expires whether or not the loop runs: readers compare it with the database's clock. The loop reports the end, gives
values that were there before the annotation theirs, rotates, and removes expired tokens of host factories.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from twisted.internet.defer import Deferred, gatherResults, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from svc.model.background import PeriodicService
from svc.model.clocks import WallClock
from svc.model.errors import Refusal
from svc.model.expiration import DueVariable, IExpirationEvents, IRotator, RoundOwner
from svc.rotation.plans import ExpirationPlan, RotationPlan, UnusablePlan, parse_plan
from svc.rotation.runner import DEADLINE, RotationRunner
from svc.storage.expirations import ExpirationStore
from svc.storage.host_factories import HostFactoryStore

#: The variables that are handled at the same time.
BATCH: Final = 20

#: The seconds after which a round that lacked something, such as its database, is followed by another.
RETRY_SECONDS: Final = 0.5

_log = Logger()


class ExpirationLoop(PeriodicService):
    """The service that runs a round every ``interval`` seconds, and sooner after one that lacked what it needs.

    A round takes no new batch after ``interval``. ``wall`` says which tokens of host factories have ended.
    ``ensure_writable`` returns when this server may write. ``failure``: why the last round failed, ``None`` when it didn't.
    """

    name = "expiration"

    def __init__(
        self,
        clock: IReactorTime,
        wall: WallClock,
        store: ExpirationStore,
        factories: HostFactoryStore,
        rotations: RotationRunner,
        rotators: Sequence[IRotator],
        events: IExpirationEvents,
        interval: float,
        ensure_writable: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(clock, interval, self._begin_round, _log, "A round of expiration could not begin")
        self._clock = clock
        self._wall = wall
        self._store = store
        self._factories = factories
        self._rotations = rotations
        self._rotators: Mapping[str, IRotator] = {rotator.name: rotator for rotator in rotators}
        self._events = events
        self._demand_primary = ensure_writable
        self._round: Deferred[None] | None = None
        self._retry: IDelayedCall | None = None
        self._last_round_at: float | None = None
        self._waiting: list[Deferred[None]] = []
        self.failure: str | None = None

    def stopService(self) -> Deferred[None] | None:
        """Stop the loop: cancel the rotations of the round that is under way, and wait for its end."""
        super().stopService()
        if self._retry is not None and self._retry.active():
            self._retry.cancel()
        under_way = self._round  # which stopping may end
        self._rotations.stop()
        return under_way

    @property
    def max_round_seconds(self) -> float:
        """Return the seconds after a round in which the next one must have ended, its last rotations included."""
        return 3 * self._interval + 2 * DEADLINE

    async def await_first_round(self) -> None:
        """Wait for a round that could do its work, or rightly had none. May be cancelled."""
        if self._last_round_at is None:
            waiting: Deferred[None] = Deferred()
            self._waiting.append(waiting)
            await waiting

    async def check_store(self) -> None:
        """Check that the store can say what is due.

        :raises StoreUnavailable: it can't.
        """
        await self._store.list_due(1)

    def last_round_at(self) -> float | None:
        """Return the end of the last round that could do its work, or rightly had none; ``None`` before the first."""
        return self._last_round_at

    def _begin_round(self) -> Deferred[None]:
        def finish_round(refused: bool | Failure) -> None:
            self._round = None
            if refused is True and self.running:
                self._retry = self._clock.callLater(RETRY_SECONDS, self._begin_round)

        if self._round is not None:
            return succeed(None)  # the one that came sooner
        if self._retry is not None and self._retry.active():
            self._retry.cancel()
        waiting: Deferred[None] = Deferred()
        self._round = waiting
        Deferred.fromCoroutine(self._attempt_round()).addBoth(finish_round).addBoth(waiting.callback)
        return waiting

    async def _attempt_round(self) -> bool:
        """Make a round; return whether it was refused what it needs."""
        try:
            turn = await self._store.run_exclusively(self._run_round)
        except Refusal as refusal:
            self._note_failure(str(refusal))
            return True
        except Exception as error:
            self._note_failure(f"{type(error).__name__}: {error}")
            _log.failure("A round of expiration met a fault in the program")
        else:
            self._last_round_at = self._clock.seconds()
            if self.failure is not None:
                _log.info("Expiration works again")
            self.failure = None
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                each.callback(None)
            if turn is not RoundOwner.OURS:
                _log.debug("Expiration rests here: {turn}", turn=turn.value)
        return False

    def _note_failure(self, why: str) -> None:
        if self.failure is None:
            _log.warn("A round of expiration failed: {why}", why=why)
        self.failure = why

    async def _run_round(self) -> None:
        # Of two primaries one may not put passwords in force that the other has not.
        await self._demand_primary()
        begun = self._clock.seconds()
        self._events.require_available()
        while removed := await self._factories.remove_expired(self._wall.seconds(), self._events.removal_batch):
            await self._events.record_removal(removed)
        while self.running and (batch := await self._store.list_due(BATCH)):
            self._events.require_available()
            attended = await gatherResults([Deferred.fromCoroutine(self._handle_due(due)) for due in batch])
            # Failed rotations are still due: they wait for the next round.
            if not all(attended) or self._clock.seconds() >= begun + self._interval:
                return

    async def _handle_due(self, due: DueVariable) -> bool:
        """Handle one variable that is due; return whether that could be done."""
        try:
            match parse_plan(due.annotations, self._rotators):
                case UnusablePlan(fault):
                    await self._events.record_failure(due.variable, due.rotator_name, fault)
                    await self._store.mark_handled(due, fault)
                case RotationPlan(interval=interval) if due.changed and due.expires_at is not None:
                    await self._store.set_interval(due, interval)
                case RotationPlan() as plan:
                    await self._rotations.attempt_rotation(due, plan)
                case ExpirationPlan(lifetime) if due.changed:
                    await self._store.set_lifetime(due, lifetime)
                case ExpirationPlan():
                    if due.has_expired and due.expires_at is not None:
                        await self._events.record_expiration(due.variable, due.expires_at)
                    await self._store.mark_handled(due)
        except Refusal as refusal:
            _log.warn("Expiration could not see to {variable}: {why}", variable=str(due.variable), why=str(refusal))
            return False
        except Exception:
            _log.failure("Expiration met a fault in the program at {variable}", variable=str(due.variable))
            return False
        return True
