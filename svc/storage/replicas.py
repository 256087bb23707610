"""The replicas that reads go to: the primary, and the standby in use; the state of each, and the choice of another standby.

Note [One standby]. A process reads from one standby at a time, which the read cache polls too. It takes the first of the DSN
that has this server's writes, and keeps it until it is lost, promoted, or too far behind. Then reads go to the primary,
and the process searches for standbys once a second. While there is no primary, any standby is better than none: the one that
is furthest, or one that was promoted until there are sessions with it as the primary.

Note [Asked of the primary]. This server's writes are in the slots. Only the primary knows the writes from before its start,
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

from svc.model.background import run_in_background
from svc.model.errors import StoreUnavailable
from svc.model.versions import StateVersion
from svc.storage.cache.commit_counters import CommitCounters
from svc.storage.driver.commits import POSITION, system_of
from svc.storage.driver.connection import Session
from svc.storage.driver.database import Database
from svc.storage.driver.failures import Contention, StatementFailed
from svc.storage.driver.query_timeout import QUERY_TIMEOUT, within_timeout
from svc.storage.driver.standbys import Standby
from svc.storage.driver.statements import PING

#: Seconds between two polls of a replica, of a standby that may be promoted, and while a request waits for the answer.
POLL_INTERVAL: Final = 1.0
SINGLE_POLL_INTERVAL: Final = 0.25
PAUSE: Final = 0.025

#: For how many seconds a standby may lack a write of this server, and how old its newest heartbeat may be, until another is
#: searched for; while there is no primary it is kept.
BEHIND: Final = 2.0
STALE: Final = 10.0

#: For how many seconds there must have been no standby until requests stop waiting for one.
STANDBY_PATIENCE: Final = 5.0

#: The least time between two searches for a standby, in seconds.
SEARCH_INTERVAL: Final = 0.25

#: Where a primary's log stands: the timeline, and what has been committed.
_POSITION: Final = POSITION.format(where="")

_log = Logger()
_FAILED: Final = "What keeps a standby to read from has ended for a bug"


class IStandbyFinder(Protocol):
    """``Standbys``."""

    async def find_standbys(self) -> list[Standby]:
        """See ``Standbys``."""


class _PollTimer:
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


class Replicas(Service):
    """Polls the position of the primary and of the standby in use, and searches for another standby when that is needed.

    ``commit_counters`` are the server's; ``search`` finds standbys.
    """

    name = "places"

    def __init__(self, clock: Any, primary: Database, search: IStandbyFinder, commit_counters: CommitCounters) -> None:
        self._clock = clock
        self.primary = primary
        self._search = search
        self._counters = commit_counters
        #: The standby in use.
        self.standby: Standby | None = None
        #: When a standby was used or found last (seconds).
        self._standby_seen_at = clock.seconds()
        #: Whether the primary has reported its position since the start.
        self._begun = False
        #: When this was written (seconds), which a standby has yet to show; and the last search.
        self._goal: tuple[float, tuple[StateVersion, ...]] = (clock.seconds(), ())
        self._searched = -math.inf
        self._sessions: list[Session] = []
        self._poll_session: Session | None = None
        self._rounds: list[Deferred[None]] = []
        self._primary_timer, self._standby_timer = _PollTimer(clock), _PollTimer(clock)

    def startService(self) -> None:
        """Begin to poll the primary, then to search for a standby."""
        super().startService()  # type: ignore[no-untyped-call]  # Twisted has no types here
        self._rounds = [run_in_background(self._start_polling(), _log, _FAILED)]

    def stopService(self) -> Deferred[None]:
        """Read from no standby any more; the primary is stopped by its owner."""
        super().stopService()  # type: ignore[no-untyped-call]  # Twisted has no types here
        for each in self._rounds:
            each.cancel()
        self._drop_primary_session("the service is stopping")
        standby, self.standby = self.standby, None
        if standby is None:
            return succeed(None)
        standby.close("the service is stopping")
        return maybeDeferred(standby.database.stopService)

    @property
    def lacks_standby(self) -> bool:
        """Return whether there has been no standby for a while."""
        return self.standby is None and self._clock.seconds() - self._standby_seen_at > STANDBY_PATIENCE

    @property
    def has_primary(self) -> bool:
        """Return whether there are sessions with a primary."""
        return self.primary.count_read_sessions().sessions > 0

    def find_readable_standby(self, at_least: Iterable[StateVersion]) -> Standby | None:
        """Return the standby in use if it has this server's writes, and these versions; else have it polled soon."""
        standby = self.standby
        if standby is None:
            return None
        written, reached = self._counters.written_versions(self._counters.read_counters()), standby.reached
        known = self._begun and written.certain
        if not known and self.has_primary:
            self._primary_timer.hasten()
        if (known and standby.lag <= STALE) or not self.has_primary:
            if all(map(reached.shows_commit, written.versions)) and all(map(reached.covers_version, at_least)):
                return standby
            self._standby_timer.hasten()
        return None

    def recheck_standby(self) -> None:
        """Poll the standby soon, or search for one: a request waits for it, or it gave no answer."""
        self._standby_timer.hasten()

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

    async def _start_polling(self) -> None:
        """Poll the primary first: no standby is used before that was tried."""
        await self._poll_primary()
        rounds = (
            self._poll_repeatedly(self._poll_primary, self._primary_timer),
            self._poll_repeatedly(self._poll_standby, self._standby_timer),
        )
        if self.running:
            self._rounds = [run_in_background(each, _log, _FAILED) for each in rounds]

    async def _poll_repeatedly(self, step: Callable[[], Coroutine[Any, Any, None]], pace: _PollTimer) -> None:
        while True:
            try:
                await step()
            except CancelledError:
                raise
            except Exception:  # the loop must go on
                _log.failure("A place to read from could not be asked")
            alone = pace is self._standby_timer and self.standby is not None and not self.has_primary
            await pace.pause(SINGLE_POLL_INTERVAL if alone else POLL_INTERVAL)

    async def _poll_primary(self) -> None:
        """Check whether the primary answers, and ask for its position if that is needed."""
        number = self._counters.pending_number()
        try:
            if self._poll_session is None or self._poll_session.lost:
                await self._connect_primary()
            assert self._poll_session is not None
            ((timeline, position),) = await within_timeout(self._poll_session.run(_POSITION), self._clock)
        except DeferredTimeout:
            self._drop_primary_session("it gave no answer")
            if self.has_primary:
                self.primary.abandon(f"the primary gave no answer in {QUERY_TIMEOUT:g} s")
        except (StoreUnavailable, StatementFailed, Contention) as error:
            self._drop_primary_session(str(error))
        else:
            if number is not None or not self._begun:
                version = StateVersion(system_of(self._poll_session.server), timeline, position)
                self._counters.resolve_pending(number, version)
                self._begun = True

    async def _connect_primary(self) -> None:
        """Open the session that polls the primary.

        :raises TimeoutError: Twisted's: there is a primary, and it doesn't answer.
        :raises StoreUnavailable: there is none, or none that opens a session.
        """
        results: list[object] = []
        ping = Deferred.fromCoroutine(self.primary.fetch(PING)) if self.has_primary else succeed([])
        ping.addBoth(results.append)
        opening = Deferred.fromCoroutine(self.primary.open_session(lambda _: self._standby_timer.hasten()))
        try:
            self._poll_session = await within_timeout(opening, self._clock)
        except DeferredTimeout:
            if not results:
                ping.cancel()
                raise
            # A primary that has just started may take long to open one more.
            raise StoreUnavailable(f"no session was opened in {QUERY_TIMEOUT:g} s") from None

    def _drop_primary_session(self, why: str) -> None:
        asking, self._poll_session = self._poll_session, None
        if asking is not None:
            asking.drop(StoreUnavailable(why))

    async def _poll_standby(self) -> None:
        """Poll how far the standby in use is, and search for another if it isn't fit (Note [One standby])."""
        standby = self.standby
        if standby is not None:
            try:
                await standby.poll_position(self._clock)
            except StoreUnavailable as refusal:
                self._leave_standby(standby, refusal.why)
                standby.database.abandon(refusal.why)
            else:
                if standby.reached.position is None and not self.has_primary:
                    self.primary.hasten()
                if (why := self._find_unfitness(standby)) is None:
                    return
                if self.has_primary:
                    self._leave_standby(standby, why)
        await self._search_standby()

    def _find_unfitness(self, standby: Standby) -> str | None:
        """Return why a standby shouldn't be used any more, or why another might be better; ``None`` otherwise."""
        now, (since, goal), written = self._clock.seconds(), self._goal, self._written_versions()
        if not self.has_primary:
            return None if all(map(standby.reached.shows_commit, written)) else "it lacks what this server wrote"
        if standby.reached.position is None:
            return "it is a primary now"
        if standby.lag > STALE:
            return f"its newest heartbeat is {standby.lag:.0f} s old"
        if all(map(standby.reached.shows_commit, goal)):
            self._goal = now, written
        elif now - since > BEHIND:
            return "it has not replayed what this server wrote"
        return None

    def _written_versions(self) -> tuple[StateVersion, ...]:
        return self._counters.written_versions(self._counters.read_counters()).versions

    async def _search_standby(self) -> None:
        """Use a standby that is better than the one in use, if there is one."""
        now = self._clock.seconds()
        if now - self._searched < SEARCH_INTERVAL:
            return
        self._searched = now
        found, former = await self._search.find_standbys(), self.standby
        chosen = self._choose_standby(found)
        for each in found:
            if each is not chosen:
                each.close("another is used")
        if found:
            self._standby_seen_at = self._clock.seconds()
        if chosen is None:
            return
        if former is not None and former.reached.server == chosen.reached.server:
            chosen.close("it is in use already")
            return
        chosen.database.startService()
        try:
            await chosen.database.wait_until_connected()
        except StoreUnavailable as refusal:
            chosen.close(refusal.why)
            await maybeDeferred(chosen.database.stopService)
            return
        if former is not None:
            self._leave_standby(former, "another one has more")
        _log.info("Readings go to the standby {name}", name=chosen.name)
        self._goal = self._clock.seconds(), self._written_versions()
        self._switch_to(chosen)

    def _choose_standby(self, found: Sequence[Standby]) -> Standby | None:
        """Return which of those found to use, ``None`` to keep the current one."""
        # One may have been promoted meanwhile.
        found = [each for each in found if each.reached.position is not None]
        if self.has_primary:
            # Writes from a moment ago are still being replicated.
            fit = [each for each in found if each.lag <= STALE and all(map(each.reached.shows_commit, self._goal[1]))]
            self._goal = self._clock.seconds(), self._written_versions()
            return fit[0] if fit else None
        written = self._written_versions()
        fit = [each for each in found if all(map(each.reached.shows_commit, written))]
        if fit or self.standby is not None:
            return fit[0] if fit else None
        return max(found, key=lambda each: (each.reached.timeline, each.reached.position or 0), default=None)

    def _leave_standby(self, standby: Standby, why: str) -> None:
        """Stop using a standby; reads under way there are finished."""
        if self.standby is not standby:
            return
        _log.warn("Readings no longer go to the standby {name}: {why}", name=standby.name, why=why)
        self._standby_seen_at = self._clock.seconds()
        self._searched = -math.inf
        self._switch_to(None)
        standby.close(why)
        maybeDeferred(standby.database.stopService).addErrback(lambda failure: _log.failure(_FAILED, failure))

    def _switch_to(self, standby: Standby | None) -> None:
        """Send reads there from now on, and invalidation polls with them."""
        self.standby = standby
        sessions, self._sessions = self._sessions, []
        for session in sessions:
            session.drop(StoreUnavailable("readings go elsewhere"))
