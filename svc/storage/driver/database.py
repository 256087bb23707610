"""The database: single statements, and transactions of several, on a pool of sessions with PostgreSQL.

While PostgreSQL is away every call fails soon with ``StoreUnavailable``. Nothing that was sent is sent again, except that a
transaction or statement which PostgreSQL rolled back for a conflict, with another or with a standby's replay, is run again.

Note [Readings and writes]. A COMMIT may wait for a synchronous standby without end. So writes have a few sessions of their
own, and readings never stand behind them. PostgreSQL itself refuses to write in the sessions for readings.

Note [Ended, not cancelled]. A session that waits for a COMMIT is given up after a while, but its server process waits on:
another session has it terminated, and only when it is gone a new one takes its place, so that there never are more of them
than sessions for writing. It isn't cancelled: PostgreSQL would call that a success.

Note [Unknown outcomes]. A COMMIT that isn't answered may have happened. So may one that is answered with a warning: that is
how PostgreSQL says that its wait was cancelled, and that what was committed has not reached the standby. Warnings come in
the language of the server, so each one counts. And a transaction that changes nothing may rest on a COMMIT of unknown
outcome: it writes a record that says nothing, for which its own COMMIT waits like any other.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from random import random
from typing import Any, Final, Self, TypeVar

import attrs
from twisted.application.service import Service
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.task import deferLater
from twisted.logger import Logger

from svc.model.counts import Census
from svc.model.errors import OutcomeUnknown, StoreUnavailable
from svc.storage.driver.connection import Fetched, Session
from svc.storage.driver.failures import Contention, StatementFailed, TransactionAborted
from svc.storage.driver.location import Location, milliseconds
from svc.storage.driver.pool import Pool
from svc.storage.driver.shield import shielded

T = TypeVar("T")
#: How much longer than the statement time-out the server's word that it struck may take to arrive, in seconds.
GRACE: Final = 1.0
#: How often a transaction is run, at most, before its conflicts with others make it fail.
ATTEMPTS: Final = 3
#: How long to wait before a transaction is run again, so that the one it met can end; in seconds, times the attempts made.
CONFLICT_PAUSE: Final = 0.05
#: How much longer than usual a COMMIT may take at most, in seconds: no longer than what it commits took.
LONGEST_COMMIT: Final = 60.0
#: How long the end of processes that were given up is waited for: the time between two looks, in seconds, and their number.
GLANCE: Final = 0.05
GLANCES: Final = 40
#: Says nothing, and has the COMMIT wait for its record, where a transaction has written nothing (Note [Unknown outcomes]).
_COMMIT: Final = """
    SELECT pg_logical_emit_message(true, 'svc', '')
    WHERE pg_current_xact_id_if_assigned() IS NULL AND NOT pg_is_in_recovery(); COMMIT
"""

_STARTED: Final = "SELECT backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()"
_TERMINATE: Final = """
    SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE (pid, backend_start) IN (SELECT * FROM unnest(%s::integer[], %s::timestamptz[]))
"""

_log = Logger()

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_PARAMETER = re.compile(r"\$([1-9][0-9]*)")


@attrs.frozen
class Statement:
    """A statement that each session prepares once, when it first needs it; a module-level constant.

    ``name`` is unique in the program. ``sql`` names its parameters ``$1``, ``$2`` …
    """

    name: str = attrs.field(validator=attrs.validators.matches_re(_NAME))
    sql: str
    preparation: str = attrs.field(init=False, repr=False, eq=False)
    execution: str = attrs.field(init=False, repr=False, eq=False)

    @classmethod
    def named(cls, name: str) -> Callable[[str], Self]:
        """Return the constructor for a statement with this name, which takes its SQL alone."""
        return partial(cls, name)

    @preparation.default
    def _preparation(self) -> str:
        return f"PREPARE {self.name} AS {self.sql}"

    @execution.default
    def _execution(self) -> str:
        count = max(map(int, _PARAMETER.findall(self.sql)), default=0)
        return f"EXECUTE {self.name}" + (f" ({', '.join(['%s'] * count)})" if count else "")


class Transaction:
    """Run the statements of one transaction, one at a time, until its work returns."""

    def __init__(self, session: Session) -> None:
        self._session: Session | None = session

    async def fetch(self, statement: Statement, *parameters: object) -> Fetched:
        """Run a prepared statement and return its rows."""
        return await _fetch(self._current(), statement, parameters)

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        """Run a statement that is not prepared, with ``%s`` where parameters go; return the number of rows it touched.

        Without parameters a ``%`` is only that, and ``sql`` may have several statements, parted by semicolons.
        """
        session = self._current()
        await session.run(sql, parameters)
        return session.row_count

    def end(self) -> None:
        """Refuse further statements."""
        self._session = None

    def _current(self) -> Session:
        if self._session is None:
            raise RuntimeError("this transaction has ended")
        return self._session


class Database(Service):
    """Run statements and transactions on pools of sessions with PostgreSQL.

    :param dsn: a URL or a string of ``key=value`` pairs, as libpq reads it.
    :param pool_size: how many connections are held for readings, and without ``writers`` as many again for writes.
    :param statement_timeout: how long PostgreSQL may work on one statement, in seconds.
    :param first_wait: how long :meth:`connected` waits for PostgreSQL, in seconds.
    :param chance: see :func:`svc.storage.driver.pool.pauses`.
    :raises ConfigurationInvalid: the DSN cannot be read.
    """

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
        self._location = Location(reactor, dsn, statement_timeout)
        self._first_wait = first_wait
        self._chance = chance
        self._patience = statement_timeout + GRACE
        #: The server processes that sessions left behind in the middle of a statement, with the start of each.
        self._left: set[tuple[int, str]] = set()

        def pool(connect: Callable[[Callable[[Exception], None]], Coroutine[Any, Any, Session]], size: int) -> Pool[Session]:
            return Pool(reactor, connect, size=size, patience=self._patience, chance=chance)

        self._readings = pool(self._connect, pool_size)
        self._writes = pool(self._connect_to_write, pool_size if writers is None else writers)

    def census(self) -> Census:
        """Count the sessions of both pools, and the callers that wait for one. Thread-safe."""
        counts = zip(*(attrs.astuple(pool.census()) for pool in (self._readings, self._writes)), strict=True)
        return Census(*map(sum, counts))

    def readings(self) -> Census:
        """Count the sessions for readings; without any, no request can be served."""
        return self._readings.census()

    def startService(self) -> None:
        """Begin to connect."""
        super().startService()  # type: ignore[no-untyped-call]  # Twisted has no types here
        self._readings.start()
        self._writes.start()

    def stopService(self) -> Deferred[None]:
        """Take no more work, wait for transactions under way, though not for ever, and close every connection."""
        super().stopService()  # type: ignore[no-untyped-call]  # Twisted has no types here
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        await gatherResults([Deferred.fromCoroutine(pool.stop()) for pool in (self._writes, self._readings)])
        if self._left:
            # To open a session for writing is to end what others left behind.
            last = Deferred.fromCoroutine(self._connect_to_write(lambda _: None)).addTimeout(self._patience, self._reactor)
            with suppress(StoreUnavailable, DeferredTimeout):
                (await last).close()

    async def connected(self) -> None:
        """Return when PostgreSQL has been reached; attempts go on behind this call, also after it failed.

        :raises StoreUnavailable: it has not been reached within ``first_wait`` seconds.
        """
        deadline = self._reactor.seconds() + self._first_wait
        await self._readings.connected(self._first_wait)
        await self._writes.connected(max(0.0, deadline - self._reactor.seconds()))

    async def fetch(self, statement: Statement, *parameters: object) -> Fetched:
        """Run a prepared statement that reads on its own, in one round trip, and return its rows.

        ``bytea`` comes as ``bytes``. Cancelled, it runs to its end unheard, or does not begin.

        :raises StoreUnavailable: PostgreSQL cannot be asked now, or the answer was lost.
        :raises StoreReadOnly: it is a write.
        :raises TypeError: a parameter is none of ``str bytes int float bool None`` and no list.
        """
        session = await self._readings.borrow()
        try:
            if session.prepared.get(statement.name) is statement:
                return await session.run(statement.execution, parameters, self._readings.release)
            return await shielded(self._fetch_first(session, statement, parameters))
        except Contention:
            # It was rolled back, whole: on a standby, where replay takes precedence, that may befall any reading.
            return await self.look(lambda transaction: transaction.fetch(statement, *parameters))

    async def change(self, statement: Statement, *parameters: object) -> Fetched:
        """Run a prepared statement that writes, in a transaction of its own, and return its rows; see :meth:`transact`."""
        return await self.transact(lambda transaction: transaction.fetch(statement, *parameters))

    async def look(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Run ``work``, which writes nothing, in one transaction of a session for readings, and return its result.

        :raises StoreUnavailable: PostgreSQL cannot be asked now.
        :raises StoreReadOnly: it writes.
        """
        return await shielded(self._transaction(self._readings, await self._readings.borrow(), work, None, _look))

    async def transact(self, work: Callable[[Transaction], Awaitable[T]], *, statement_timeout: float | None = None) -> T:
        """Run ``work`` in one transaction and return its result: all of it happens, or, when it raises, nothing.

        Cancelled, it runs to its end unheard (Note [Shielded transactions]), or does not begin. ``work`` must bear being
        repeated: it is run again when PostgreSQL rolls it back for a conflict with another transaction.

        :param statement_timeout: seconds that each statement of this transaction may take, instead of the usual ones.
        :raises StoreUnavailable: PostgreSQL cannot be asked now; nothing has happened.
        :raises OutcomeUnknown: nobody knows whether the transaction happened, or will last (Note [Unknown outcomes]).
        :raises StoreReadOnly: it writes, and PostgreSQL is a standby.
        """
        session = await self._writes.borrow()
        return await shielded(self._transaction(self._writes, session, work, statement_timeout, self._commit))

    async def _connect(self, lost: Callable[[Exception], None]) -> Session:
        session = Session(self._reactor, lost, self._patience)
        await session.open(await self._location.parameters(read_only=True))
        return session

    async def _connect_to_write(self, lost: Callable[[Exception], None]) -> Session:
        """Open a session for writing, after the processes of lost ones have ended (Note [Ended, not cancelled])."""

        def left(reason: Exception) -> None:
            if session.interrupted and started is not None:
                self._left.add((process, started))
            lost(reason)

        process, started = 0, None
        session = Session(self._reactor, left, self._patience)
        await session.open(await self._location.parameters(read_only=False))
        try:
            process = session.process
            ((started,),) = await session.run(_STARTED)
            await self._end_left(session)
        except BaseException:
            session.close()
            raise
        return session

    async def _end_left(self, session: Session) -> None:
        """Terminate the server processes that lost sessions left behind, and return when they are gone.

        :raises StoreUnavailable: they don't go.
        """
        for _ in range(GLANCES):
            left = sorted(self._left)
            if not left:
                return
            running = await session.run(_TERMINATE, [list(column) for column in zip(*left, strict=True)])
            if not running:
                self._left.difference_update(left)
                return
            for process, _ in running:
                _log.debug("PostgreSQL's process {process}, which a lost session left behind, is ended", process=process)
            await deferLater(self._reactor, GLANCE)
        raise StoreUnavailable("PostgreSQL does not end the sessions that were given up")

    async def _fetch_first(self, session: Session, statement: Statement, parameters: tuple[object, ...]) -> Fetched:
        try:
            return await _fetch(session, statement, parameters)
        finally:
            _give_back(self._readings, session)

    async def _transaction(
        self,
        pool: Pool[Session],
        session: Session,
        work: Callable[[Transaction], Awaitable[T]],
        statement_timeout: float | None,
        end: Callable[[Session, float], Awaitable[None]],
    ) -> T:
        try:
            for attempt in range(ATTEMPTS):
                if attempt:
                    await deferLater(self._reactor, CONFLICT_PAUSE * attempt * (1 - self._chance() / 2))
                began = self._reactor.seconds()
                if statement_timeout is not None:
                    session.patience = statement_timeout + GRACE
                try:
                    result = await _attempt(session, work, statement_timeout)
                    await end(session, self._reactor.seconds() - began)
                except Contention as contention:
                    conflict = str(contention)
                else:
                    return result
            raise StoreUnavailable(f"{ATTEMPTS} attempts met conflicts with other transactions: {conflict}")
        finally:
            session.patience = self._patience
            _give_back(pool, session)

    async def _commit(self, session: Session, lasted: float) -> None:
        """Commit a transaction that has lasted so many seconds (Note [Unknown outcomes]).

        :raises OutcomeUnknown: it may have been committed.
        :raises StoreUnavailable: it wasn't.
        """
        session.patience = max(self._patience, min(lasted, LONGEST_COMMIT))
        session.take_notices()
        try:
            await session.run(_COMMIT)
        except StoreUnavailable as refusal:
            if session.lost:
                raise OutcomeUnknown(f"a COMMIT was not answered: {refusal.why}") from None
            await _roll_back(session)
            raise
        except Exception as error:
            await _roll_back(session)
            if isinstance(error, TransactionAborted):
                raise RuntimeError("a statement failed, its transaction went on, and PostgreSQL rolled it back") from None
            raise
        if notices := session.take_notices():
            raise OutcomeUnknown(f"PostgreSQL answered a COMMIT with a warning: {notices[0]}")


def _give_back(pool: Pool[Session], session: Session) -> None:
    if session.clean:
        pool.release(session)
    else:
        session.drop(StoreUnavailable("a transaction was left unfinished"))


async def _fetch(session: Session, statement: Statement, parameters: tuple[object, ...]) -> Fetched:
    known = session.prepared.get(statement.name)
    if known is None:
        await session.run(statement.preparation)
        session.prepared[statement.name] = statement
    elif known != statement:
        raise RuntimeError(f"two statements are named {statement.name}")
    return await session.run(statement.execution, parameters)


async def _attempt(session: Session, work: Callable[[Transaction], Awaitable[T]], statement_timeout: float | None) -> T:
    """Run ``work`` once after BEGIN; what it did is yet to be committed.

    :raises Contention: PostgreSQL rolled it back for a conflict with another transaction.
    """
    await session.run("BEGIN")
    transaction = Transaction(session)
    try:
        if statement_timeout is not None:
            await session.run(f"SET LOCAL statement_timeout = {milliseconds(statement_timeout)}")
        return await work(transaction)
    except Exception:
        await _roll_back(session)
        raise
    finally:
        transaction.end()


async def _look(session: Session, _: float) -> None:
    """End a transaction that only reads: whether it is committed makes no difference."""
    await session.run("COMMIT")


async def _roll_back(session: Session) -> None:
    """Roll back, as far as that works: otherwise the session is dropped by its owner, and the server rolls back."""
    if not session.lost and not session.clean:
        with suppress(StoreUnavailable, StatementFailed):
            await session.run("ROLLBACK")
