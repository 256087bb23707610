"""The sessions with PostgreSQL that the service holds: a fixed number, each replaced when it is lost.

The pool of txpostgres isn't used: it limits no wait, and doesn't replace a lost connection.

Note [Patience]

One number of seconds bounds every wait: for a connection to open, a session to come free, a statement to be answered. The
last two are counted in beats of the reactor, so that a process that was itself suspended doesn't treat its answers as late.

Note [One tries]

Once an attempt to connect has failed, only one place of the pool keeps trying, at short intervals; the others follow when
that has succeeded. So a database that is back is noticed within half a second, and one that is in trouble isn't flooded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, Generic, Protocol, TypeVar

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.task import deferLater
from twisted.logger import Logger

from svc.model.background import PeriodicService, run_in_background
from svc.model.counts import PoolCounts
from svc.model.errors import StoreUnavailable
from svc.storage.driver.failures import DatabaseUnfit, SessionReplaced, summarize_error

#: Time between two checks of what waits, in seconds.
TICK: Final = 0.25
#: Longest pause between two attempts to connect, in seconds. A session that lived as long makes the pauses begin again.
LONGEST_PAUSE: Final = 0.5
#: How many callers may wait for a session at a time.
QUEUE_LIMIT: Final = 1000
_CLOSED: Final = "the service is stopping, or was not started"

_log = Logger()
_FAILED: Final = "A part of the connection pool has ended for a bug"


class Lendable(Protocol):
    """A session, as far as the pool needs it."""

    lost: bool

    def is_open(self) -> bool:
        """Return whether the session is still open, without asking the server; a closed one is lost."""

    def count_time(self, seconds: float) -> None:
        """Count time for a statement that is under way."""

    def drop(self, reason: Exception) -> None:
        """Lose the session."""


S = TypeVar("S", bound=Lendable)


def retry_pauses(chance: Callable[[], float]) -> Iterator[float]:
    """Yield the seconds to wait before each attempt to connect: none, then growing, shortened at random to half at least.

    :param chance: returns random numbers of [0, 1), so that a cluster's servers do not all come back at once.
    """
    yield 0.0
    pause = 0.05
    while True:
        yield pause * (1 - chance() / 2)
        pause = min(pause * 2, LONGEST_PAUSE)


@attrs.define(eq=False)
class _Waiter(Generic[S]):
    """A caller that waits for a session, and how long it has, in seconds."""

    session: Deferred[S]
    waited: float = 0.0


def _unanswered(seconds: float) -> str:
    return f"PostgreSQL gave no answer in {seconds:.2g} seconds; where a pooler is in front of it, its pool may be full"


class Pool(Generic[S]):
    """Lend a fixed number of sessions to one borrower each, in the order in which they asked.

    :param connect: opens a session, which calls its argument once with the reason when it is lost; may be cancelled.
    :param patience: the bound of every wait, in seconds (Note [Patience]).
    :param chance: see :func:`retry_pauses`.
    """

    def __init__(
        self,
        reactor: Any,
        connect: Callable[[Callable[[Exception], None]], Coroutine[Deferred[Any], Any, S]],
        *,
        size: int,
        patience: float,
        chance: Callable[[], float],
    ) -> None:
        self._reactor = reactor
        self._connect = connect
        self._size = size
        self._patience = patience
        self._chance = chance
        self._open = False
        self._unreachable: str | None = None
        #: The fault of a session that was opened since the start, and couldn't be used.
        self.unfit: DatabaseUnfit | None = None
        self._sessions: set[S] = set()
        self._idle: list[S] = []
        self._waiters: deque[_Waiter[S]] = deque()
        self._session_waiters: list[Deferred[None]] = []
        self._keepers: list[Deferred[None]] = []
        self._trying: object | None = None  # Note [One tries]
        self._followers: list[Deferred[None]] = []
        self._pauses: list[Deferred[None]] = []
        self._lending = False
        self._replacing = False
        self._drained: Deferred[None] | None = None
        self._ticker = PeriodicService(
            reactor, TICK, self._count_time, _log, "The connection pool could not count the time", at_once=False
        )
        self._waits, self._waited, self._returned = 0, 0.0, 0

    def count_sessions(self) -> PoolCounts:
        """Count the sessions, those that are lent, and the callers that wait. Thread-safe."""
        waiting = sum(not waiter.session.called for waiter in list(self._waiters))
        sessions, idle = len(self._sessions), len(self._idle)
        return PoolCounts(sessions, max(0, sessions - idle), waiting, self._waits, self._waited, self._returned)

    def open_sessions(self) -> Iterator[S]:
        """Return the sessions that are open, lent or not."""
        return iter(self._sessions)

    def start(self) -> None:
        """Begin to connect."""
        self._open = True
        self.unfit = None
        self._trying, self._followers = None, []
        self._ticker.startService()
        self._keepers = [run_in_background(self._keep_session(), _log, _FAILED) for _ in range(self._size)]

    async def stop(self) -> None:
        """Lend no more, wait for lent sessions, at most ``patience`` seconds, and close all."""
        if not self._open:
            return
        self._open = False
        self._refuse_waiters(_CLOSED)
        session_waiters, self._session_waiters = self._session_waiters, []
        for waiter in session_waiters:
            waiter.errback(StoreUnavailable(_CLOSED))
        if self._has_lent:
            self._drained = Deferred()
            try:
                await self._drained.addTimeout(self._patience, self._reactor)
            except DeferredTimeout:
                _log.warn("Transactions are cut off, since they did not end in {patience} seconds", patience=self._patience)
            self._drained = None
        # The caller may be one of the keepers, and a keeper can't be cancelled while it runs.
        await deferLater(self._reactor, 0)
        self._ticker.stopService()
        for keeper in self._keepers:
            keeper.cancel()
        for session in tuple(self._sessions):
            session.drop(StoreUnavailable(_CLOSED))
        self._sessions.clear()
        self._idle.clear()

    async def wait_until_connected(self, wait: float) -> None:
        """Return once there is a session, at most ``wait`` seconds from now.

        :raises StoreUnavailable: there is none; the message says why the last attempt failed.
        :raises DatabaseUnfit: there can be none before something is changed.
        """
        if self._sessions:
            return
        waiter: Deferred[None] = Deferred()
        self._session_waiters.append(waiter)
        try:
            await waiter.addTimeout(wait, self._reactor)
        except DeferredTimeout:
            raise StoreUnavailable(self._unreachable or _unanswered(wait)) from None

    async def borrow(self) -> S:
        """Return a session that nobody else has, and whose server has not closed it by now; may be cancelled.

        :raises StoreUnavailable: PostgreSQL cannot be reached, no session came free in time, or too many callers wait.
        """
        if not self._open:
            raise StoreUnavailable(_CLOSED)
        while self._idle:
            session = self._idle.pop()
            if session.is_open():
                return session
        if self._unreachable is not None and not self._sessions:
            raise StoreUnavailable(self._unreachable)
        if len(self._waiters) >= QUEUE_LIMIT:
            raise StoreUnavailable(f"{QUEUE_LIMIT} callers wait for a database connection")
        waiter: _Waiter[S] = _Waiter(Deferred())
        self._waiters.append(waiter)
        self._waits += 1
        since = self._reactor.seconds()
        try:
            return await waiter.session
        finally:
            self._waited += max(0.0, self._reactor.seconds() - since)

    def release(self, session: S) -> None:
        """Give a session back, outside any transaction; the caller that has waited longest gets it."""
        if not session.lost:
            self._returned += 1
            self._idle.append(session)
            if self._waiters and not self._lending:
                self._lend_idle()
        self._check_drained()

    def _lend_idle(self) -> None:
        # A caller may give the session back before it returns from here: a loop, so that many of them need no deep stack.
        self._lending = True
        while self._idle and self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.session.called:
                waiter.session.callback(self._idle.pop())
        self._lending = False

    @property
    def _has_lent(self) -> bool:
        return len(self._sessions) > len(self._idle)

    def abandon(self, why: str) -> None:
        """Lose every session, lent or not, and refuse the callers that wait for one; attempts to connect go on."""
        self._unreachable = why
        for session in tuple(self._sessions):
            session.drop(StoreUnavailable(why))
        self._refuse_waiters(why)

    def renew_idle(self, why: str) -> None:
        """Lose the sessions that nobody has now; new ones take their places."""
        for session in tuple(self._idle):
            session.drop(SessionReplaced(why))

    def hasten(self) -> None:
        """End the pauses between attempts to connect: the next one may succeed."""
        for pause in tuple(self._pauses):
            if not pause.called:
                pause.callback(None)

    async def _pause(self, seconds: float) -> None:
        pause: Deferred[None] = Deferred()
        end = self._reactor.callLater(seconds, pause.callback, None)
        self._pauses.append(pause)
        try:
            await pause
        finally:
            self._pauses.remove(pause)
            if end.active():
                end.cancel()

    async def _keep_session(self) -> None:
        """Keep one session open: connect, and connect again when it is lost."""
        attempts, place = retry_pauses(self._chance), object()
        while True:
            await self._pause(next(attempts))
            if self._trying not in {None, place}:
                follower: Deferred[None] = Deferred()
                self._followers.append(follower)
                await follower  # Note [One tries]
            gone: Deferred[Exception] = Deferred()
            try:
                connecting = Deferred.fromCoroutine(self._connect(gone.callback))
                session = await connecting.addTimeout(self._patience, self._reactor)
            except StoreUnavailable as refusal:
                self._record_failure(place, refusal.why)
                if isinstance(refusal, DatabaseUnfit):
                    self.unfit = refusal
                    session_waiters, self._session_waiters = self._session_waiters, []
                    for waiter in session_waiters:
                        waiter.errback(refusal)
                continue
            except DeferredTimeout:
                self._record_failure(place, _unanswered(self._patience))
                continue
            except CancelledError:
                raise
            except Exception:  # no caller would try again
                _log.failure("An attempt to connect to the database met a bug")
                self._record_failure(place, "an attempt to connect met a bug")
                continue
            since = self._reactor.seconds()
            self._admit_session(session)
            self._forget_session(session, await gone)
            if self._reactor.seconds() - since >= LONGEST_PAUSE:
                attempts = retry_pauses(self._chance)

    def _admit_session(self, session: S) -> None:
        if not self._sessions and not self._replacing:
            _log.info("The database is connected")
        self._unreachable, self._trying, self._replacing = None, None, False
        self._sessions.add(session)
        self.release(session)
        waiting = [*self._followers, *self._session_waiters]
        self._followers, self._session_waiters = [], []
        for each in waiting:
            each.callback(None)

    def _forget_session(self, session: S, reason: Exception) -> None:
        self._replacing = isinstance(reason, SessionReplaced)
        if self._replacing:
            _log.debug("A database connection is replaced: {why}", why=summarize_error(reason))
        else:
            _log.warn("A database connection was lost: {why}", why=summarize_error(reason))
        self._sessions.remove(session)
        if session in self._idle:
            self._idle.remove(session)
        self._check_drained()

    def _record_failure(self, place: object, why: str) -> None:
        """Note a failed attempt to connect; without any session, callers that wait are refused."""
        if self._trying is None:
            self._trying = place
        if why != self._unreachable:
            _log.warn("The database cannot be reached: {why}", why=why)
        self._unreachable = why
        if not self._sessions:
            self._refuse_waiters(why)

    def _refuse_waiters(self, why: str) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.session.called:
                waiter.session.errback(StoreUnavailable(why))

    def _check_drained(self) -> None:
        if self._drained is not None and not self._drained.called and not self._has_lent:
            self._drained.callback(None)

    def _count_time(self) -> None:
        for session in tuple(self._sessions):
            session.count_time(TICK)
        for waiter in self._waiters:
            waiter.waited += TICK
        while self._waiters and (self._waiters[0].session.called or self._waiters[0].waited >= self._patience):
            waiter = self._waiters.popleft()
            if not waiter.session.called:
                waiter.session.errback(StoreUnavailable(f"no connection came free in {self._patience:g} seconds"))
