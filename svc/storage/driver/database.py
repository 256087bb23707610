"""The database: single statements, and transactions of several, on a pool of sessions with PostgreSQL.

While PostgreSQL is away every call fails soon with ``StoreUnavailable``. Nothing that was sent is sent again, except that a
transaction or statement which PostgreSQL rolled back for a conflict, with another or with a standby's replay, is run again.

Note [Reads and writes]. A COMMIT may wait for a synchronous standby without end. So writes have a few sessions of their
own, and reads never stand behind them. PostgreSQL itself refuses to write in the sessions for reads.

Note [Ended, not cancelled]. A session that waits for a COMMIT is given up after a while, but its server process waits on:
another session has it terminated, and only when it is gone a new one takes its place, so that there never are more of them
than sessions for writing. It isn't cancelled: PostgreSQL would call that a success.

Note [Left behind]. Where the DSN leads to whichever host is the primary, sessions with a former one may live on after a
failover. A commit of this server on a newer timeline shows that they are left behind: nothing is read or written there any
more. Other hosts that are primaries are looked for, too (Note [Seen beside] in ``primaries``).

Note [Read-only for a while]. ``default_transaction_read_only`` may be set on a database, as services do whose disk is nearly
full. Sessions keep what they were opened with, poolers for longer than this program. So where a primary refuses a write, the
server's process ends with the session, and those that nobody uses are replaced. As long as the setting is on, new ones are
no better: one that was opened since is kept for a pause, which grows, so that the database isn't flooded with connections.

Note [Altered meanwhile]. Sessions keep the ``search_path`` and the role that the database's settings gave them when they
began. Once the server's tables were found, a session that doesn't find them is refused, with its server's process, which a
pooler would keep; the pool goes on trying, so that the service recovers within a second after the settings are mended. A
statement that misses an object or a right ends its session likewise. The log has the reason, since it may be a bug.

Note [Unknown outcomes]. A COMMIT that isn't answered may have happened. So may one that is answered with a warning: that is
how PostgreSQL reports that its wait was cancelled, and that the commit has not reached the standby. Warnings come in the
language of the server, so every warning counts. And a transaction that changes nothing may rest on a COMMIT of unknown
outcome: it writes an empty record, for which its own COMMIT waits like any other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from math import inf
from random import random
from typing import Any, Final, TypeVar

import attrs
from twisted.application.service import Service
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.task import deferLater
from twisted.logger import Logger

from svc.model.counts import PoolCounts
from svc.model.errors import PrimaryContested, ReadOnlyStandby, StoreUnavailable, WritesUnavailable
from svc.storage.driver.commits import Written, attempt_transaction, commit
from svc.storage.driver.connection import Fetched, Session
from svc.storage.driver.failures import Contention, DatabaseAltered, SessionReplaced
from svc.storage.driver.hosts import Hosts
from svc.storage.driver.location import Location
from svc.storage.driver.pool import Pool
from svc.storage.driver.primaries import Primaries
from svc.storage.driver.shield import run_to_end
from svc.storage.driver.statements import CachedReading, NamedAnswer, Statement, Transaction, run_prepared

T = TypeVar("T")
#: How long after the statement time-out the server's report of it may take to arrive, in seconds.
GRACE: Final = 1.0
#: How often a transaction is run, at most, before its conflicts with others make it fail.
ATTEMPTS: Final = 3
#: How long to wait before a transaction is run again, so that the conflicting one can end; in seconds, times the attempts.
CONFLICT_PAUSE: Final = 0.05
#: How long to wait for abandoned processes to end: the time between two checks, in seconds, and the number of checks.
POLL_INTERVAL: Final = 0.05
POLLS: Final = 40
_BEGIN: Final = "BEGIN"
#: A transaction whose statements all see what the first one saw.
_BEGIN_SNAPSHOT: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
_TERMINATE: Final = """
    SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE (pid, backend_start) IN (SELECT * FROM unnest(%s::integer[], %s::timestamptz[]))
"""
#: Seconds between two replacements of sessions that refuse writes: the first, and the longest.
FIRST_RENEWAL: Final = 1.0
LONGEST_RENEWAL: Final = 5.0
#: After so many seconds without a refused write, the next one counts as a new read-only period of the database.
REFUSED_AFRESH: Final = 60.0
#: After so many seconds without one, the same refusal of a statement is logged again (Note [Altered meanwhile]).
ALTERED_AFRESH: Final = 60.0
#: Which kind of read-only PostgreSQL is, and the age of the process that serves the session that runs it, in seconds.
_READ_ONLY: Final = """
    SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on',
        coalesce((
            SELECT extract(epoch FROM clock_timestamp() - backend_start)::float8 FROM pg_stat_activity
            WHERE pid = pg_backend_pid()
        ), 0)
"""
#: Ends that process.
_END: Final = "SELECT pg_terminate_backend(pg_backend_pid())"

_log = Logger()


class Database(Service):
    """Run statements and transactions on pools of sessions with PostgreSQL.

    :param dsn: a URL or a string of ``key=value`` pairs, as libpq reads it.
    :param pool_size: how many connections are held for reads, and without ``writers`` as many again for writes.
    :param statement_timeout: how long PostgreSQL may work on one statement, in seconds.
    :param first_wait: how long :meth:`wait_until_connected` waits for PostgreSQL, in seconds.
    :param chance: see :func:`svc.storage.driver.pool.retry_pauses`.
    :raises ConfigurationInvalid: the DSN cannot be read.
    """

    #: Reads and writes are of one DSN.
    uses_standbys = False

    def __init__(
        self,
        reactor: Any,
        dsn: str,
        *,
        pool_size: int,
        writers: int | None = None,
        statement_timeout: float,
        first_wait: float,
        chance: Callable[[], float] = random,
    ) -> None:
        self._reactor = reactor
        self._pool_size, self._statement_timeout = pool_size, statement_timeout
        self._written: Written = lambda *_: None
        self._newest: Callable[[], int] = lambda: 0
        self._location = Location(reactor, dsn, statement_timeout)
        self._hosts: Hosts[Session] = Hosts(reactor, self._location)
        self._primaries = Primaries(reactor, self._location, self._identity_at, self._hosts.prefer, self._hosts.avoid)
        self._remarks: set[str] = set()
        self._first_wait = first_wait
        self._chance = chance
        self._patience = statement_timeout + GRACE
        #: The server processes that sessions left behind in the middle of a statement, with the start of each.
        self._abandoned: set[tuple[int, str]] = set()
        #: When a write was last refused, when sessions were last replaced for that, and the pause before the next
        #: replacement.
        self._refused, self._renewed, self._renewal = -inf, -inf, FIRST_RENEWAL
        #: The one PostgreSQL that reads may be of, as ``Session.server``; empty for whichever the DSN leads to.
        self.required_server = ""
        #: Whether the server's tables exist, so that a session that doesn't find them is refused (Note [Altered meanwhile]).
        self.tables_required = False
        self._altered, self._altered_whys = -inf, set[str]()

        def make_pool(
            connect: Callable[[Callable[[Exception], None]], Coroutine[Any, Any, Session]], size: int
        ) -> Pool[Session]:
            return Pool(reactor, connect, size=size, patience=self._patience, chance=chance)

        self._read_pool = make_pool(self._connect_to_read, pool_size)
        self._writers = pool_size if writers is None else writers
        self._write_pool = make_pool(self._connect_to_write, self._writers)

    def report_commits(self, written: Written, newest: Callable[[], int] = lambda: 0) -> None:
        """Have ``written`` called for each commit; ``newest`` returns the newest timeline of any (Note [Left behind])."""
        self._written, self._newest = written, newest

    def count_sessions(self) -> PoolCounts:
        """Count the sessions of both pools, and the callers that wait for one. Thread-safe."""
        return PoolCounts.sum_counts((self._read_pool.count_sessions(), self._write_pool.count_sessions()))

    def count_read_sessions(self) -> PoolCounts:
        """Count the sessions for reads; without any, no request can be served."""
        return self._read_pool.count_sessions()

    def count_write_sessions(self) -> PoolCounts:
        """Count the sessions for reads, but no more than there are for writes; without any, nothing can be changed."""
        readings = self._read_pool.count_sessions()
        return attrs.evolve(readings, sessions=min(readings.sessions, self._write_pool.count_sessions().sessions))

    @property
    def server(self) -> str:
        """The one PostgreSQL that all sessions for reads are with, as ``Session.server``; empty where it isn't one."""
        servers = {session.server for session in self._read_pool.open_sessions()}
        return servers.pop() if len(servers) == 1 else ""

    @property
    def contested(self) -> bool:
        """Return whether two hosts of the DSN were primaries of one system when they were last asked."""
        return self._primaries.contested

    def startService(self) -> None:
        """Begin to connect."""
        super().startService()  # type: ignore[no-untyped-call]  # Twisted has no types here
        if self._location.suits_one:
            self._primaries.start()
        self._read_pool.start()
        self._write_pool.start()

    def stopService(self) -> Deferred[None]:
        """Take no more work, wait for transactions under way, though not for ever, and close every connection."""
        super().stopService()  # type: ignore[no-untyped-call]  # Twisted has no types here
        self._primaries.stop()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        await gatherResults([Deferred.fromCoroutine(pool.stop()) for pool in (self._write_pool, self._read_pool)])
        if self._abandoned:
            # Opening a session for writing terminates the processes that lost sessions left behind.
            last = Deferred.fromCoroutine(self._connect_to_write(lambda _: None)).addTimeout(self._patience, self._reactor)
            with suppress(StoreUnavailable, DeferredTimeout):
                (await last).close()

    async def wait_until_connected(self) -> None:
        """Return when PostgreSQL has been reached; attempts go on behind this call, also after it failed.

        :raises StoreUnavailable: it has not been reached within ``first_wait`` seconds.
        :raises DatabaseUnfit: it was reached, and can't be used.
        """
        deadline = self._reactor.seconds() + self._first_wait
        await self._read_pool.wait_until_connected(self._first_wait)
        if self._writers:
            await self._write_pool.wait_until_connected(max(0.0, deadline - self._reactor.seconds()))
        pools = (self._read_pool, self._write_pool) if self._writers else (self._read_pool,)
        for pool in pools:
            # A pooler gives each transaction the session that was used last, or the next in turn: either shows here.
            for _ in range(2):
                await run_to_end(self._verify_session(pool, await pool.borrow()))
        for pool in pools:
            # One that balances load gives some sessions another PostgreSQL.
            if pool.unfit is not None:
                raise pool.unfit

    async def _verify_session(self, pool: Pool[Session], session: Session) -> None:
        try:
            await session.verify_settings()
        except Contention as contention:
            raise StoreUnavailable(str(contention)) from None
        finally:
            _return_session(pool, session)

    async def pause(self, seconds: float) -> None:
        """Return after so many seconds, for work that is to be retried."""
        await deferLater(self._reactor, seconds)

    async def fetch(self, statement: Statement, *parameters: object) -> Fetched:
        """Run a prepared statement that reads on its own, in one round trip, and return its rows.

        ``bytea`` comes as ``bytes``. When cancelled, it runs to its end with its result dropped, or does not begin.

        :raises StoreUnavailable: PostgreSQL cannot be reached now, or the answer was lost.
        :raises ReadOnlyStandby: it is a write.
        :raises TypeError: a parameter is none of ``str bytes int float bool None`` and no list.
        """
        rows, _ = await self.fetch_with_server(statement, *parameters)
        return rows

    async def fetch_uncached(self, statement: Statement, *parameters: object) -> Fetched:
        """Do as ``fetch``: here every answer is PostgreSQL's own, and none is cached."""
        return await self.fetch(statement, *parameters)

    async def fetch_with_server(self, statement: Statement, *parameters: object) -> tuple[Fetched, str]:
        """Do as ``fetch``, and also return which PostgreSQL answered, as ``Session.server``; empty if that isn't known."""
        session = await self._borrow_session(self._read_pool)
        server = session.server
        try:
            if session.prepared.get(statement.name) is statement:
                return await session.run(statement.execution, parameters, self._read_pool.release), server
            return await run_to_end(self._prepare_and_fetch(session, statement, parameters)), server
        except Contention:
            # It was rolled back as a whole: on a standby, where replay takes precedence, that may happen to any read.
            return await self.transact_read_only(lambda transaction: transaction.fetch(statement, *parameters)), ""

    async def open_session(self, lost: Callable[[Exception], None]) -> Session:
        """Open a session for reads beside those of the pools, which its caller closes; ``lost`` is as in ``Session``.

        :raises StoreUnavailable: PostgreSQL can't be reached, or refuses.
        """
        return await self._connect_to_read(lost)

    async def change(self, statement: Statement, *parameters: object) -> Fetched:
        """Run a prepared statement that writes, in a transaction of its own, and return its rows; see :meth:`transact`."""
        return await self.transact(lambda transaction: transaction.fetch(statement, *parameters))

    async def transact_read_only(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Run ``work``, which writes nothing, in one transaction of a session for reads, and return its result.

        :raises StoreUnavailable: PostgreSQL cannot be reached now.
        :raises ReadOnlyStandby: it writes.
        """
        return await run_to_end(
            self._run_transaction(self._read_pool, await self._borrow_session(self._read_pool), work, None, _end_reading)
        )

    async def read(self, reading: CachedReading[T]) -> T:
        """Run a read, whose statements all see one state of the database, and return its answer; raises as
        ``transact_read_only``.
        """
        answer, _ = await self.read_with_server(reading)
        return answer.value

    async def read_with_server(self, reading: CachedReading[T]) -> tuple[NamedAnswer[T], str]:
        """Do as ``read``, and also return which PostgreSQL answered, as ``Session.server``."""
        session = await self._borrow_session(self._read_pool)
        server = session.server
        running = self._run_transaction(self._read_pool, session, reading.work, None, _end_reading, begin=_BEGIN_SNAPSHOT)
        return await run_to_end(running), server

    async def transact(self, work: Callable[[Transaction], Awaitable[T]], *, statement_timeout: float | None = None) -> T:
        """Run ``work`` in one transaction and return its result: all of it happens, or, when it raises, nothing.

        When cancelled, it runs to its end with its result dropped (Note [Shielded transactions]), or does not begin.
        ``work`` must be repeatable: it is run again when PostgreSQL rolls it back for a conflict with another transaction.

        :param statement_timeout: seconds that each statement of this transaction may take, instead of the usual ones.
        :raises StoreUnavailable: PostgreSQL cannot be reached now; nothing has happened.
        :raises OutcomeUnknown: nobody knows whether the transaction happened, or will last (Note [Unknown outcomes]).
        :raises ReadOnlyStandby: it writes, and PostgreSQL is a standby, or there are no sessions for writing.
        """
        if not self._writers:
            raise ReadOnlyStandby
        ended = partial(commit, self._patience, self._written)
        session = await self._borrow_session(self._write_pool)
        return await run_to_end(self._run_transaction(self._write_pool, session, work, statement_timeout, ended))

    async def change_unreported(self, statement: Statement, *parameters: object) -> None:
        """Run a statement that writes what is never cached: its COMMIT isn't reported; otherwise as ``change``."""
        ended = partial(commit, self._patience, lambda *_: None)
        session = await self._borrow_session(self._write_pool)

        async def run_statement(transaction: Transaction) -> None:
            await transaction.fetch(statement, *parameters)

        await run_to_end(self._run_transaction(self._write_pool, session, run_statement, None, ended))

    def make_sibling(self, dsn: str, first_wait: float) -> Database:
        """Return a database with another DSN, with as many sessions for reads as this one, and none for writing."""
        return Database(
            self._reactor,
            dsn,
            pool_size=self._pool_size,
            writers=0,
            statement_timeout=self._statement_timeout,
            first_wait=first_wait,
            chance=self._chance,
        )

    def hasten(self) -> None:
        """Try to connect now, since there may be a primary again."""
        self._read_pool.hasten()
        self._write_pool.hasten()

    def abandon(self, why: str) -> None:
        """Lose every session for reads, with the statements under way there, which go unanswered."""
        self._read_pool.abandon(why)

    async def _borrow_session(self, pool: Pool[Session]) -> Session:
        """Return a session of a pool that isn't left behind (Note [Left behind])."""
        session = await pool.borrow()
        newest = max(self._newest(), self._primaries.newest(session.server))
        if not 0 < session.timeline < newest:
            try:
                self._primaries.check(session.server, session.timeline, writes=pool is self._write_pool)
            except PrimaryContested:
                _return_session(pool, session)
                raise
            return session
        why = StoreUnavailable("it was opened with a former primary")
        for each in [each for each in pool.open_sessions() if 0 < each.timeline < newest]:
            each.drop(why)
        session = await pool.borrow()
        if 0 < session.timeline < newest:
            session.drop(why)
            raise StoreUnavailable("this PostgreSQL is no longer the primary that this server has written to")
        return session

    async def _identity_at(self, place: Mapping[str, str]) -> tuple[str, int]:
        """Return the PostgreSQL at a host, as ``Session.server``, and its timeline.

        :raises StoreUnavailable: it can't be reached, or is no primary.
        """
        session = Session(self._reactor, lambda _: None, self._patience)
        await session.open(place)
        try:
            await session.apply_settings(self._location.session_settings(read_only=True))
            return session.server, session.timeline
        finally:
            session.close()

    async def _demand_newest(self, session: Session) -> None:
        """Return if no other host is seen to be a newer primary than the one of a session (Note [Seen beside]).

        :raises PrimaryContested: one is.
        """
        if self._location.suits_one:
            await self._primaries.look()
            self._primaries.check(session.server, session.timeline, writes=False)

    async def _connect_to_read(self, lost: Callable[[Exception], None]) -> Session:
        def note_loss(reason: Exception) -> None:
            self._log_altered(reason)
            lost(reason)

        session = await self._hosts.open(lambda: Session(self._reactor, note_loss, self._patience), read_only=True)
        try:
            await self._begin_session(session, read_only=True)
            if self.required_server not in {"", session.server}:
                raise StoreUnavailable("another PostgreSQL has taken its place, or it was restarted")
            await self._demand_newest(session)
        except BaseException:
            session.close()
            raise
        self._write_pool.hasten()
        return session

    async def _connect_to_write(self, lost: Callable[[Exception], None]) -> Session:
        """Open a session for writing, after the processes of lost ones have ended (Note [Ended, not cancelled])."""

        def note_abandoned(reason: Exception) -> None:
            if session.interrupted and session.started:
                self._abandoned.add((session.process, session.started))
            self._log_altered(reason)
            lost(reason)

        session = await self._hosts.open(lambda: Session(self._reactor, note_abandoned, self._patience), read_only=False)
        try:
            await self._begin_session(session, read_only=False)
            await self._demand_newest(session)
            await self._terminate_abandoned(session)
        except BaseException:
            session.close()
            raise
        self._read_pool.hasten()
        return session

    async def _begin_session(self, session: Session, *, read_only: bool) -> None:
        for remark in await session.apply_settings(self._location.session_settings(read_only=read_only)):
            if remark not in self._remarks:
                self._remarks.add(remark)
                _log.warn("PostgreSQL remarked at a login: {remark}", remark=remark)
        self.tables_required |= session.finds_tables
        if self.tables_required and not session.finds_tables:
            with suppress(StoreUnavailable):
                await session.run(_END)
            raise StoreUnavailable(f"the server's tables aren't found, or may not be read: {session.origin}")

    def _log_altered(self, reason: Exception) -> None:
        """Log why a session ended, if that was for a statement that PostgreSQL refused; the same not over and over."""
        if not isinstance(reason, DatabaseAltered):
            return
        now = self._reactor.seconds()
        if now - self._altered >= ALTERED_AFRESH:
            self._altered_whys.clear()
        self._altered = now
        if reason.why not in self._altered_whys:
            self._altered_whys.add(reason.why)
            _log.error("PostgreSQL refused a statement of the server: {why}", why=reason.why)

    async def _terminate_abandoned(self, session: Session) -> None:
        """Terminate the server processes that lost sessions left behind, and return when they are gone.

        :raises StoreUnavailable: they don't go.
        """
        for _ in range(POLLS):
            left = sorted(self._abandoned)
            if not left:
                return
            running = await session.run(_TERMINATE, [list(column) for column in zip(*left, strict=True)])
            if not running:
                self._abandoned.difference_update(left)
                return
            for process, _ in running:
                _log.debug("PostgreSQL's process {process}, which a lost session left behind, is ended", process=process)
            await deferLater(self._reactor, POLL_INTERVAL)
        raise StoreUnavailable("PostgreSQL does not end the sessions that were given up")

    async def _prepare_and_fetch(self, session: Session, statement: Statement, parameters: tuple[object, ...]) -> Fetched:
        try:
            return await run_prepared(session, statement, parameters)
        finally:
            _return_session(self._read_pool, session)

    async def _run_transaction(
        self,
        pool: Pool[Session],
        session: Session,
        work: Callable[[Transaction], Awaitable[T]],
        statement_timeout: float | None,
        end: Callable[[Session, float], Awaitable[None]],
        *,
        begin: str = _BEGIN,
    ) -> T:
        try:
            for attempt in range(ATTEMPTS):
                if attempt:
                    await deferLater(self._reactor, CONFLICT_PAUSE * attempt * (1 - self._chance() / 2))
                began = self._reactor.seconds()
                if statement_timeout is not None:
                    session.patience = statement_timeout + GRACE
                try:
                    result = await attempt_transaction(session, begin, work, statement_timeout)
                    await end(session, self._reactor.seconds() - began)
                except Contention as contention:
                    conflict = str(contention)
                except ReadOnlyStandby:
                    if pool is self._write_pool:
                        await self._refuse_unless_standby(session)
                    raise
                else:
                    return result
            raise StoreUnavailable(f"{ATTEMPTS} attempts met conflicts with other transactions: {conflict}")
        finally:
            session.patience = self._patience
            _return_session(pool, session)

    async def _refuse_unless_standby(self, session: Session) -> None:
        """Return on a standby; else have the sessions of a primary replaced, with pauses (Note [Read-only for a while]).

        :raises WritesUnavailable: it is a primary.
        :raises StoreUnavailable: it can't be reached.
        """
        ((standby, by_default, age),) = await session.run(_READ_ONLY)
        if standby:
            return
        cause = "it was a standby, or default_transaction_read_only was on, when this session began"
        if by_default:
            cause = "default_transaction_read_only is on for the database or its role"
        why = f"writes are refused, since {cause}"
        now = self._reactor.seconds()
        if now - self._refused >= REFUSED_AFRESH:
            self._renewed, self._renewal = -inf, FIRST_RENEWAL
            _log.warn("Database connections are replaced, with pauses, until they take writes: {why}", why=why)
        self._refused, since = now, now - self._renewed
        if by_default and age < since < self._renewal:
            raise WritesUnavailable(why)
        session.run(_END).addErrback(lambda _: None)
        session.drop(SessionReplaced(why))
        if since >= self._renewal:
            if since < inf:
                self._renewal = min(2 * self._renewal, LONGEST_RENEWAL)
            self._renewed = now
            self._write_pool.renew_idle(why)
        raise WritesUnavailable(why)


def _return_session(pool: Pool[Session], session: Session) -> None:
    if session.is_clean:
        pool.release(session)
    else:
        session.drop(StoreUnavailable("a transaction was left unfinished"))


async def _end_reading(session: Session, _: float) -> None:
    """End a transaction that only reads: whether it is committed makes no difference."""
    await session.run("COMMIT")
