"""Invalidation polls: one statement that returns the changes committed since the last one, on its own session.

Note [What is new]. A poll returns a snapshot with the changes, and the next one requests those that this one could not see:
on a primary, of transactions that began after it or were in progress. A standby's snapshot doesn't name those in progress
(PostgreSQL keeps them elsewhere), so there it requests all from its oldest transaction on, and skips those that were seen
before. Whether a poll was a standby's is part of its result: the first poll after a promotion requests what its predecessor
needs. A snapshot may be taken on a standby that is promoted before it reports its role, so a snapshot is treated as a
primary's only if the poll before it reported a primary, too.

Note [One history]. Transaction numbers belong to one running PostgreSQL. After a crash those of aborted transactions are
given out again, after a failover or a restore lower ones. So all polls are of one session: when it ends, the cache is
dropped, and a read that began before isn't cached. Nor is one that another PostgreSQL answered.

Note [Missed]. Rows of changes are removed some minutes later, and a standby's replay may stand still, then pass over both.
The number below which they are removed is part of each poll: if the last poll could not see all below that, changes were
missed.

Note [Too many]. After a time without polls there may be more changes than can be processed without keeping others waiting.
Then a poll returns some of them, and everything counts as changed, so that no change that was left out is missed. On a
standby these are new to the next poll, if it requests them.

Note [Waiting for polls]. A poll shows what had been committed when it was sent. A request may wait for one under way if this
server has written nothing since it was sent, and if that isn't longer ago than the lag; otherwise for the next, which all
requests share that arrive meanwhile. The age of a poll counts from its sending.

Note [Known before]. A poll may be made on a standby, or with a primary that was left behind, while this server writes
elsewhere. So it also returns how far that PostgreSQL was, read by a statement before it in the same message: a position that
is read in the poll itself may be later than its snapshot. A poll that doesn't show all writes that were counted when it was
sent finds changes like any other, but confirms nothing. With a primary that was left behind there are no more polls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Final

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.task import deferLater
from twisted.logger import Logger

from svc.model.background import run_in_background
from svc.model.errors import StoreUnavailable
from svc.model.versions import StateVersion
from svc.storage.cache.commit_counters import CommitCounters, WrittenVersions
from svc.storage.cache.dependency_names import ALL, expand_touched
from svc.storage.driver.connection import Fetched, Session
from svc.storage.driver.failures import Contention, StatementFailed
from svc.storage.driver.progress import POSITION_QUERY, ReachedPosition
from svc.storage.driver.query_timeout import within_timeout
from svc.storage.driver.statements import ReadSource, Statement

#: Seconds between two attempts to open a session.
_PAUSE: Final = 0.25

#: A number larger than any transaction's: nothing is new to it.
_NOTHING: Final = str(2**64 - 1)

#: How many touched names are kept for reads under way; with more, answers to these reads aren't cached.
_TOUCHED: Final = 50_000

#: How many changes a poll returns, of those from a transaction on and of those that were running; with as many, everything
#: counts as changed (Note [Too many]). One transaction names about 2,000 at most (``schema/0010_changes.sql``).
_FOUND: Final = 5_000

_POLL: Final = Statement.with_name("cache_poll")(f"""
    SELECT
        pg_current_snapshot()::text, pg_is_in_recovery(), (SELECT below::text FROM changes_removed WHERE single),
        current_setting('svc.reached'), NULL::text, NULL::text, NULL::text[]
    UNION ALL
    (
        SELECT NULL, NULL, NULL, NULL, xid::text, ctid::text, touched FROM changes WHERE xid >= $1::text::xid8
        LIMIT {_FOUND}
    )
    UNION ALL
    (
        SELECT NULL, NULL, NULL, NULL, xid::text, ctid::text, touched FROM changes
        WHERE xid = ANY ($2::text[]::xid8[]) AND xid < $1::text::xid8
        LIMIT {_FOUND}
    )
""")

#: Precedes a poll, in one message with it (Note [Known before]): the timeline, and the position of a standby.
_POSITION: Final = Statement.with_name("cache_position")(
    f"SELECT set_config('svc.reached', concat_ws(' ', timeline, position), false) FROM ({POSITION_QUERY}) AS reached"
)
_BOTH: Final = f"{_POSITION.execution}; {_POLL.execution}"

#: A row of changes: its transaction, and its place in the table. Rows of another history may have numbers that this one has
#: yet to give to transactions.
ChangesRow = tuple[int, str]

_log = Logger()


@attrs.frozen
class PendingPoll:
    """A poll under way: when it was sent (seconds), and what the processes of the server had written before."""

    at: float
    counters: bytes


@attrs.frozen
class PolledSnapshot:
    """The state that a poll saw; the changes that it could not see are those from ``new`` on, and of those ``running``.

    ``handled``: those from ``new`` on that were seen (Note [What is new]). ``primary``: it was surely a primary's.
    ``reached`` is how far that PostgreSQL was before, and ``shows`` whether that included all writes that were counted (Note
    [Known before]).
    """

    sent: PendingPoll
    oldest: int
    new: int
    running: tuple[int, ...] = ()
    handled: frozenset[ChangesRow] = frozenset()
    primary: bool = False
    reached: ReachedPosition | None = None
    shows: bool = True

    @classmethod
    def of(
        cls, sent: PendingPoll, last: PolledSnapshot | None, snapshot: str, standby: bool, seen: Iterable[ChangesRow]
    ) -> PolledSnapshot:
        """Return the state of a snapshot as PostgreSQL writes it; ``seen`` are the rows that the poll returned.

        ``last`` is the state before. The snapshot may be a standby's that was promoted before it reported its role.
        """
        oldest, next_, running = snapshot.split(":")
        if standby or last is None or not last.primary:
            handled = frozenset(row for row in seen if row[0] >= int(oldest))
            return cls(sent, int(oldest), int(oldest), (), handled, not standby)
        return cls(sent, int(oldest), int(next_), tuple(map(int, filter(None, running.split(",")))), primary=True)


class InvalidationPoll:
    """Invalidation polls of one database, made as they are needed.

    ``lag`` is in seconds, of the reactor's clock, which counts also while the machine sleeps (``model/clocks``). ``changed``
    is called with the names that a poll found touched; ``on_history_reset`` at the first poll of a session: the cache
    from before is of another history.
    """

    def __init__(
        self,
        reactor: Any,
        database: ReadSource,
        commit_counters: CommitCounters,
        lag: float,
        changed: Callable[[list[str]], None],
        on_history_reset: Callable[[], None],
    ) -> None:
        self._reactor = reactor
        self._database = database
        self._counters = commit_counters
        self._lag = lag
        self._changed = changed
        self._on_history_reset = on_history_reset
        self._session: Session | None = None
        self._opening: Deferred[None] | None = None
        self._stopped = False
        #: The number of the session: it rises when that ends.
        self.history = 0
        self._snapshot: PolledSnapshot | None = None
        #: The state that was confirmed last, also when its history has ended, and that history's number.
        self.confirmed: PolledSnapshot | None = None
        self.confirmed_in = 0
        self.processed = 0
        #: Whether the database can't be reached, according to the last attempt to poll, or to open a session for polling.
        self.failing = False
        self._working = False
        self._sent: PendingPoll | None = None
        self._duration = math.inf
        self._waiting: list[Deferred[bool]] = []
        self._joined: list[Deferred[bool]] = []
        self._touched: dict[str, int] = {}
        #: The first poll since which all touched names are kept.
        self._forgotten = 0

    @property
    def is_lost(self) -> bool:
        """Return whether there is no session to poll with."""
        return self._session is None

    def last_age(self) -> float | None:
        """Return the seconds since the last confirmed poll was sent."""
        return None if self.confirmed is None else self._reactor.seconds() - self.confirmed.sent.at

    @property
    def last_duration(self) -> float:
        """Return the seconds that the last poll took, or the one under way has taken if these are more."""
        return self._duration if self._sent is None else max(self._duration, self._reactor.seconds() - self._sent.at)

    def is_current(self) -> bool:
        """Return whether the cache is known to hold for a request that begins now; start the next poll in time."""
        seen = self._snapshot
        if seen is None or not seen.shows or self._counters.read_counters() != seen.sent.counters:
            return False
        age = self._reactor.seconds() - seen.sent.at
        if age > self._lag / 2 and self._sent is None and age <= self._lag:
            self._request_poll(Deferred())
        return bool(age <= self._lag)

    async def confirm_current(self) -> bool:
        """Return whether the cache is known to hold for a request that begins now, after a poll if need be."""
        sent = None if self._session is None else self._sent
        if (
            sent is not None
            and sent.counters == self._counters.read_counters()
            and self._reactor.seconds() - sent.at <= self._lag
        ):
            asked: Deferred[bool] = Deferred()
            self._joined.append(asked)
            return await asked
        return await self.poll_now()

    def keep_current(self) -> None:
        """Poll, or open a session to poll with, though nobody waits for it."""
        if self._session is None:
            self.start()
        elif not self._working:
            self._request_poll(Deferred())

    async def poll_now(self) -> bool:
        """Return whether a poll succeeded that was sent after this was called."""
        if self._session is None:
            self.start()
            return False
        asked: Deferred[bool] = Deferred()
        self._request_poll(asked)
        return await asked

    def shows_versions(self, versions: Iterable[StateVersion]) -> bool:
        """Return whether the last poll was on a standby that had replayed all these versions."""
        reached = None if self._snapshot is None else self._snapshot.reached
        return reached is not None and reached.position is not None and all(map(reached.covers_version, versions))

    def reading_mark(self) -> int | None:
        """Return the moment at which a read is sent, as the number of the poll that was processed last; ``None`` when the
        read can't be cached.
        """
        return None if self._snapshot is None else self.processed

    def is_untouched(self, mark: int, server: str, names: Iterable[str]) -> bool:
        """Return whether a read that ``server`` answered holds up to the last poll: no change since touches it."""
        if self._session is None or server != self._session.server or mark < self._forgotten:
            return False
        return all(self._touched.get(name, 0) <= mark for name in names)

    def stop(self) -> None:
        """Close the session."""
        self._stopped = True
        if self._opening is not None:
            self._opening.cancel()
        if self._session is not None:
            self._session.drop(StoreUnavailable("the service is stopping"))

    # -- the session

    def start(self) -> None:
        """Open the session, unless that is under way; the next request for it tries again."""
        if self._opening is None and not self._stopped:
            failed = "The session of invalidation polls could not be opened"
            self._opening = run_in_background(self._open_session(), _log, failed)

    async def _open_session(self) -> None:
        """Open a session and poll once; after a failure the next request tries again, after a pause."""
        session: Session | None = None
        try:
            opening = Deferred.fromCoroutine(self._database.open_session(self._note_loss))
            session = await within_timeout(opening, self._reactor)
            for statement in (_POSITION, _POLL):
                await within_timeout(session.run(statement.preparation), self._reactor)
            if not self._database.count_read_sessions().sessions:
                raise StoreUnavailable("there is no session yet for what isn't cached")
            self._session = session
            self._request_poll(Deferred())
        except (StoreUnavailable, StatementFailed, Contention, DeferredTimeout) as error:
            self.failing = isinstance(error, DeferredTimeout) or not self._database.count_read_sessions().sessions
            _log.debug("There is no session for invalidation polls: {why}", why=str(error))
            if session is not None:
                session.drop(StoreUnavailable("it was of no use"))
            await deferLater(self._reactor, _PAUSE)
        finally:
            self._opening = None

    def _note_loss(self, reason: Exception) -> None:
        self._session, self._snapshot = None, None
        self.history += 1
        self._forgotten = self.processed + 1
        if not self._stopped:
            _log.debug("The session of invalidation polls is lost: {why}", why=str(reason))

    # -- polls

    def _request_poll(self, asked: Deferred[bool]) -> None:
        """Make ``asked`` wait for a poll that is sent from now on."""
        self._waiting.append(asked)
        if not self._working:
            run_in_background(self._run_polls(), _log, "Invalidation polls ended")

    async def _run_polls(self) -> None:
        """Poll until nobody waits for another poll."""
        self._working = True
        try:
            while self._waiting:
                self._joined, self._waiting = self._waiting, []
                # The counters first: writes made meanwhile belong to the next poll.
                commit_counters = self._counters.read_counters()
                self._sent = PendingPoll(self._reactor.seconds(), commit_counters)
                confirmed = await self._poll_once(self._sent)
                self._duration = self._reactor.seconds() - self._sent.at
                self._sent = None
                asked, self._joined = self._joined, []
                for each in asked:
                    each.callback(confirmed)
        finally:
            self._working, self._sent = False, None

    async def _poll_once(self, sent: PendingPoll) -> bool:
        session, seen = self._session, self._snapshot
        if session is None or session.lost:
            return False
        known = (_NOTHING, "{}") if seen is None else (str(seen.new), "{" + ",".join(map(str, seen.running)) + "}")
        try:
            rows = await within_timeout(session.run(_BOTH, known), self._reactor)
            return self._process_answer(sent, seen, session.server, rows)
        except (StoreUnavailable, StatementFailed, Contention, DeferredTimeout) as error:
            self.failing = isinstance(error, DeferredTimeout)
            session.drop(StoreUnavailable(f"an invalidation poll failed: {error}"))
            return False
        except Exception:  # whatever it is, those who wait for the poll get it
            session.drop(StoreUnavailable("an invalidation poll met a fault in the program"))
            _log.failure("An invalidation poll failed")
            return False

    def _process_answer(self, sent: PendingPoll, seen: PolledSnapshot | None, server: str, rows: Fetched) -> bool:
        """Process the answer to a poll, and return whether it shows all writes that were counted when it was sent."""
        self.failing = False
        ((snapshot, standby, below, far, *_),) = [row for row in rows if row[0] is not None]
        found = {(int(xid), place): touched for *_, xid, place, touched in rows if xid is not None}
        self.processed += 1
        if seen is None or int(below or 0) > seen.oldest:  # Note [Missed]
            self._touched.clear()
            self._forgotten = self.processed
            self._on_history_reset()
        else:
            new = [touched for row, touched in found.items() if row not in seen.handled]
            # Note [Too many]
            names = [ALL] if len(found) >= _FOUND else [name for touched in new for name in expand_touched(touched)]
            if len(self._touched) > _TOUCHED:
                self._touched.clear()
                self._forgotten = self.processed
            self._touched.update(dict.fromkeys(names, self.processed))
            if names:
                self._changed([ALL] if ALL in names else names)
        timeline, _, position = far.partition(" ")
        reached = ReachedPosition(server, int(timeline), int(position) if position else None)
        shows = self._shows_writes(reached, self._counters.written_versions(sent.counters))
        state = PolledSnapshot.of(sent, seen, snapshot, standby, found)
        self._snapshot = attrs.evolve(state, reached=reached, shows=shows)
        if shows:
            self.confirmed, self.confirmed_in = self._snapshot, self.history
        elif reached.position is None:
            raise StoreUnavailable("this PostgreSQL is no longer the primary that this server has written to")
        return shows

    def _shows_writes(self, reached: ReachedPosition, written: WrittenVersions) -> bool:
        """Return whether a PostgreSQL that has reached so much shows all that was written."""
        # On a primary every commit is visible, whatever its version.
        settled = written.certain or reached.position is None or not self._database.uses_standbys
        return settled and all(map(reached.shows_commit, written.versions))
