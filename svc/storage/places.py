"""The places that readings go to: the primary, and the standby in use; the state of each, and the choice of another standby.

Note [One standby]. A process reads from one standby at a time, which the read cache polls too. It takes the first of the DSN
that has this server's writes, and keeps it until it is lost, promoted, or too far behind. Then readings go to the primary,
and the process searches for standbys once a second. While there is no primary, any standby is better than none: the one that
is furthest, or one that was promoted until there are sessions with it as the primary.

Note [Told by the primary]. This server's writes are in the slots. Only the primary knows the writes from before its start,
and the result of a commit with an unknown outcome: it is asked for its position in the log. Until it has answered, as long
as there are sessions with it, no standby is read from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, Protocol

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, maybeDeferred, succeed
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.task import deferLater
from twisted.logger import Logger

from svc.model.errors import StoreUnavailable
from svc.model.versions import StateVersion
from svc.storage.driver.commits import POSITION, system_of
from svc.storage.driver.connection import Session
from svc.storage.driver.database import Database
from svc.storage.driver.failures import Contention, StatementFailed
from svc.storage.driver.patience import PATIENCE, in_time
from svc.storage.driver.standbys import Standby
from svc.storage.driver.statements import TURN
from svc.storage.memory.slots import Slots

#: Seconds between two polls of a place, of a standby that may be promoted, and while a request waits for the answer.
BEAT: Final = 1.0
LONELY_BEAT: Final = 0.25
PAUSE: Final = 0.025

#: For how many seconds a standby may lack a write of this server, and how old its newest heartbeat may be, until another is
#: searched for; while there is no primary it is kept.
BEHIND: Final = 2.0
STALE: Final = 10.0

#: For how many seconds there must have been no standby until requests stop waiting for one.
HOPE: Final = 5.0

#: The least time between two searches for a standby, in seconds.
SEARCH: Final = 0.25

#: Where a primary's log stands: the timeline, and what has been committed.
_STANDS: Final = POSITION.format(where="")

_log = Logger()


class ISearch(Protocol):
    """``Standbys``."""

    async def found(self) -> list[Standby]:
        """See ``Standbys``."""


class _Pace:
    """The pause between two rounds, shorter when a request waits for the next."""

    def __init__(self, clock: Any) -> None:
        self._clock = clock
        self._hastened = False
        self._long: Deferred[None] | None = None

    async def pause(self, seconds: float) -> None:
        """Wait so long, or less when hastened."""
        hastened, self._hastened = self._hastened, False
        if hastened:
            await deferLater(self._clock, PAUSE)
            return
        pause = self._long = deferLater(self._clock, seconds)
        try:
            await pause
        except CancelledError:
            if self._long is pause:  # It wasn't hastened: this is the end.
                raise
        self._long = None

    def hasten(self) -> None:
        """End a long pause, or make the next one short."""
        pause, self._long = self._long, None
        if pause is None:
            self._hastened = True
        else:
            pause.cancel()


class Places(Service):
    """Polls the position of the primary and of the standby in use, and searches for another standby when that is needed.

    ``slots`` are the server's; ``search`` finds standbys.
    """

    name = "places"

    def __init__(self, clock: Any, primary: Database, search: ISearch, slots: Slots) -> None:
        self._clock = clock
        self.primary = primary
        self._search = search
        self._slots = slots
        #: The standby in use.
        self.standby: Standby | None = None
        #: When a standby was used or found last (seconds).
        self._had = clock.seconds()
        #: Whether the primary has reported its position since the start.
        self._begun = False
        #: When this was written (seconds), which a standby has yet to show; and the last search.
        self._goal: tuple[float, tuple[StateVersion, ...]] = (clock.seconds(), ())
        self._searched = -math.inf
        self._sessions: list[Session] = []
        self._asking: Session | None = None
        self._rounds: list[Deferred[None]] = []
        self._of_primary, self._of_standby = _Pace(clock), _Pace(clock)

    def startService(self) -> None:
        """Begin to poll the primary, then to search for a standby."""
        super().startService()  # type: ignore[no-untyped-call]  # Twisted has no types here
        self._rounds = [Deferred.fromCoroutine(self._run()).addErrback(_log_bug)]

    def stopService(self) -> Deferred[None]:
        """Read from no standby any more; the primary is stopped by its owner."""
        super().stopService()  # type: ignore[no-untyped-call]  # Twisted has no types here
        for each in self._rounds:
            each.cancel()
        self._forget_primary("the service is stopping")
        standby, self.standby = self.standby, None
        if standby is None:
            return succeed(None)
        standby.close("the service is stopping")
        return maybeDeferred(standby.database.stopService)

    @property
    def hopeless(self) -> bool:
        """Return whether there has been no standby for a while."""
        return self.standby is None and self._clock.seconds() - self._had > HOPE

    @property
    def primary_answers(self) -> bool:
        """Return whether there are sessions with a primary."""
        return self.primary.readings().sessions > 0

    def shown(self, at_least: Iterable[StateVersion]) -> Standby | None:
        """Return the standby in use if it has this server's writes, and these versions; else have it polled soon."""
        standby = self.standby
        if standby is None:
            return None
        written, reached = self._slots.written(self._slots.read()), standby.reached
        known = self._begun and written.settled
        if not known and self.primary_answers:
            self._of_primary.hasten()
        if (known and standby.lag <= STALE) or not self.primary_answers:
            if all(map(reached.shows, written.versions)) and all(map(reached.covers, at_least)):
                return standby
            self._of_standby.hasten()
        return None

    def doubt(self) -> None:
        """Poll the standby soon, or search for one: a request waits for it, or it gave no answer."""
        self._of_standby.hasten()

    async def open_session(self, lost: Callable[[Exception], None]) -> Session:
        """Open a session with the standby in use, else with the primary; it is lost when another standby is used.

        :raises StoreUnavailable: it can't be opened.
        """
        standby = self.standby
        session = await (self.primary if standby is None else standby.database).open_session(lost)
        if self.standby is not standby:
            session.close()
            raise StoreUnavailable("readings go elsewhere by now")
        self._sessions = [*(each for each in self._sessions if not each.lost), session]
        return session

    # -- rounds

    async def _run(self) -> None:
        """Poll the primary first: no standby is used before that was tried."""
        await self._ask_primary()
        rounds = self._repeated(self._ask_primary, self._of_primary), self._repeated(self._ask_standby, self._of_standby)
        if self.running:
            self._rounds = [Deferred.fromCoroutine(each).addErrback(_log_bug) for each in rounds]

    async def _repeated(self, step: Callable[[], Coroutine[Any, Any, None]], pace: _Pace) -> None:
        while True:
            try:
                await step()
            except CancelledError:
                raise
            except Exception:  # the loop must go on
                _log.failure("A place to read from could not be asked")
            alone = pace is self._of_standby and self.standby is not None and not self.primary_answers
            await pace.pause(LONELY_BEAT if alone else BEAT)

    async def _ask_primary(self) -> None:
        """Check whether the primary answers, and ask for its position if that is needed."""
        number = self._slots.unsettled()
        try:
            if self._asking is None or self._asking.lost:
                await self._meet_primary()
            assert self._asking is not None
            ((timeline, position),) = await in_time(self._asking.run(_STANDS), self._clock)
        except DeferredTimeout:
            self._forget_primary("it gave no answer")
            if self.primary_answers:
                self.primary.abandon(f"the primary gave no answer in {PATIENCE:g} s")
        except (StoreUnavailable, StatementFailed, Contention) as error:
            self._forget_primary(str(error))
        else:
            if number is not None or not self._begun:
                version = StateVersion(system_of(self._asking.server), timeline, position)
                self._slots.settle(number, version)
                self._begun = True

    async def _meet_primary(self) -> None:
        """Open the session that polls the primary.

        :raises TimeoutError: Twisted's: there is a primary, and it doesn't answer.
        :raises StoreUnavailable: there is none, or none that opens a session.
        """
        told: list[object] = []
        turn = Deferred.fromCoroutine(self.primary.fetch(TURN)) if self.primary_answers else succeed([])
        turn.addBoth(told.append)
        opening = Deferred.fromCoroutine(self.primary.open_session(lambda _: self._of_standby.hasten()))
        try:
            self._asking = await in_time(opening, self._clock)
        except DeferredTimeout:
            if not told:
                turn.cancel()
                raise
            # A primary that has just started may take long to open one more.
            raise StoreUnavailable(f"no session was opened in {PATIENCE:g} s") from None

    def _forget_primary(self, why: str) -> None:
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.drop(StoreUnavailable(why))

    async def _ask_standby(self) -> None:
        """Poll how far the standby in use is, and search for another if it isn't fit (Note [One standby])."""
        standby = self.standby
        if standby is not None:
            try:
                await standby.ask(self._clock)
            except StoreUnavailable as refusal:
                self._leave(standby, refusal.why)
                standby.database.abandon(refusal.why)
            else:
                if standby.reached.position is None and not self.primary_answers:
                    self.primary.hasten()
                if (why := self._unfit(standby)) is None:
                    return
                if self.primary_answers:
                    self._leave(standby, why)
        await self._look_for_one()

    def _unfit(self, standby: Standby) -> str | None:
        """Return why a standby shouldn't be used any more, or why another might be better; ``None`` otherwise."""
        now, (since, goal), written = self._clock.seconds(), self._goal, self._written()
        if not self.primary_answers:
            return None if all(map(standby.reached.shows, written)) else "it lacks what this server wrote"
        if standby.reached.position is None:
            return "it is a primary now"
        if standby.lag > STALE:
            return f"its newest heartbeat is {standby.lag:.0f} s old"
        if all(map(standby.reached.shows, goal)):
            self._goal = now, written
        elif now - since > BEHIND:
            return "it has not replayed what this server wrote"
        return None

    def _written(self) -> tuple[StateVersion, ...]:
        return self._slots.written(self._slots.read()).versions

    async def _look_for_one(self) -> None:
        """Use a standby that is better than the one in use, if there is one."""
        now = self._clock.seconds()
        if now - self._searched < SEARCH:
            return
        self._searched = now
        found, former = await self._search.found(), self.standby
        chosen = self._best(found)
        for each in found:
            if each is not chosen:
                each.close("another is used")
        if found:
            self._had = self._clock.seconds()
        if chosen is None:
            return
        if former is not None and former.reached.server == chosen.reached.server:
            chosen.close("it is in use already")
            return
        chosen.database.startService()
        try:
            await chosen.database.connected()
        except StoreUnavailable as refusal:
            chosen.close(refusal.why)
            await maybeDeferred(chosen.database.stopService)
            return
        if former is not None:
            self._leave(former, "another one has more")
        _log.info("Readings go to the standby {name}", name=chosen.name)
        self._goal = self._clock.seconds(), self._written()
        self._use(chosen)

    def _best(self, found: Sequence[Standby]) -> Standby | None:
        """Return which of those found to use, ``None`` to keep the current one."""
        # One may have been promoted meanwhile.
        found = [each for each in found if each.reached.position is not None]
        if self.primary_answers:
            # Writes from a moment ago are still being replicated.
            fit = [each for each in found if each.lag <= STALE and all(map(each.reached.shows, self._goal[1]))]
            self._goal = self._clock.seconds(), self._written()
            return fit[0] if fit else None
        written = self._written()
        fit = [each for each in found if all(map(each.reached.shows, written))]
        if fit or self.standby is not None:
            return fit[0] if fit else None
        return max(found, key=lambda each: (each.reached.timeline, each.reached.position or 0), default=None)

    def _leave(self, standby: Standby, why: str) -> None:
        """Stop using a standby; readings under way there are finished."""
        if self.standby is not standby:
            return
        _log.warn("Readings no longer go to the standby {name}: {why}", name=standby.name, why=why)
        self._had = self._clock.seconds()
        self._searched = -math.inf
        self._use(None)
        standby.close(why)
        maybeDeferred(standby.database.stopService).addErrback(_log_bug)

    def _use(self, standby: Standby | None) -> None:
        """Send readings there from now on, and invalidation polls with them."""
        self.standby = standby
        sessions, self._sessions = self._sessions, []
        for session in sessions:
            session.drop(StoreUnavailable("readings go elsewhere"))


def _log_bug(failure: Any) -> None:
    if not failure.check(CancelledError):
        _log.failure("What keeps a standby to read from has ended for a bug", failure)
