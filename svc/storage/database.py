"""The database: single statements, and transactions of several, on a pool of sessions with PostgreSQL.

PostgreSQL may come and go. While it is away every call fails soon with ``StoreUnavailable``; when it is back, calls succeed
again. Nothing that was sent is sent again, except that a transaction, or single statement, which PostgreSQL rolled back for
its conflict with another one, or with the replay of a standby's log, is run again from the start.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from random import random
from typing import Any, Final, TypeVar

import attrs
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from svc.errors import StoreUnavailable
from svc.records import Census
from svc.storage.connection import Fetched, Session
from svc.storage.failures import Contention, StatementFailed
from svc.storage.location import Location, milliseconds
from svc.storage.pool import Pool
from svc.storage.shield import shielded

T = TypeVar("T")

#: How much longer than the statement time-out the server's word that it struck may take to arrive, in seconds.
GRACE: Final = 1.0

#: How often a transaction is run, at most, before its conflicts with others make it fail.
ATTEMPTS: Final = 3

#: How long to wait before a transaction is run again, so that the one it met can end; in seconds, times the attempts made.
CONFLICT_PAUSE: Final = 0.05

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

    @preparation.default
    def _preparation(self) -> str:
        return f"PREPARE {self.name} AS {self.sql}"

    @execution.default
    def _execution(self) -> str:
        count = max(map(int, _PARAMETER.findall(self.sql)), default=0)
        return f"EXECUTE {self.name}" + (f" ({', '.join(['%s'] * count)})" if count else "")


class Transaction:
    """What the work of one transaction speaks to, one statement at a time, until the work returns."""

    def __init__(self, session: Session) -> None:
        self._session: Session | None = session

    async def fetch(self, statement: Statement, *parameters: object) -> Fetched:
        """Run a prepared statement and return its rows."""
        return await _fetch(self._current(), statement, parameters)

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        """Run a statement that is not prepared, with ``%s`` where parameters go; return the number of rows it touched.

        Without parameters a ``%`` is only that, and several statements may stand in ``sql``, parted by semicolons.
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
    """PostgreSQL as the rest of ``storage`` sees it.

    :param dsn: a URL or a string of ``key=value`` pairs, as libpq reads it.
    :param pool_size: how many connections are held.
    :param statement_timeout: how long PostgreSQL may work on one statement, in seconds.
    :param first_wait: how long :meth:`connected` waits for PostgreSQL, in seconds.
    :param chance: returns random numbers of [0, 1), by which pauses before further attempts differ.
    :raises ConfigurationInvalid: the DSN cannot be read.
    """

    def __init__(
        self,
        reactor: Any,
        dsn: str,
        *,
        pool_size: int,
        statement_timeout: float,
        first_wait: float,
        chance: Callable[[], float] = random,
    ) -> None:
        self._reactor = reactor
        self._location = Location(reactor, dsn, statement_timeout)
        self._first_wait = first_wait
        self._chance = chance
        self._patience = statement_timeout + GRACE
        self._pool = Pool(reactor, self._connect, size=pool_size, patience=self._patience, chance=chance)

    def census(self) -> Census:
        """How its sessions stand, and who waits for one; it may be asked from another thread."""
        return self._pool.census()

    def startService(self) -> None:
        """Begin to connect."""
        super().startService()  # type: ignore[no-untyped-call]  # Twisted has no types here
        self._pool.start()

    def stopService(self) -> Deferred[None]:
        """Take no more work, wait for transactions under way, though not for ever, and close every connection."""
        super().stopService()  # type: ignore[no-untyped-call]  # Twisted has no types here
        return Deferred.fromCoroutine(self._pool.stop())

    async def connected(self) -> None:
        """Return when PostgreSQL has been reached; attempts go on behind this call, also after it failed.

        :raises StoreUnavailable: it has not been reached within ``first_wait`` seconds.
        """
        await self._pool.connected(self._first_wait)

    async def fetch(self, statement: Statement, *parameters: object) -> Fetched:
        """Run a prepared statement on its own, in one round trip, and return its rows; ``bytea`` comes as ``bytes``.

        Cancelled, it runs to its end unheard, or does not begin.

        :raises StoreUnavailable: PostgreSQL cannot be asked now, or the answer was lost: a write may have happened.
        :raises StoreReadOnly: it is a write, and PostgreSQL is a standby.
        :raises TypeError: a parameter is none of ``str bytes int float bool None`` and no list.
        """
        session = await self._pool.borrow()
        try:
            if session.prepared.get(statement.name) is statement:
                return await session.run(statement.execution, parameters, self._pool.release)
            return await shielded(self._fetch_first(session, statement, parameters))
        except Contention:
            # It was rolled back, whole: on a standby, where replay takes precedence, that may befall any reading.
            return await self.transact(lambda transaction: transaction.fetch(statement, *parameters))

    async def transact(self, work: Callable[[Transaction], Awaitable[T]], *, statement_timeout: float | None = None) -> T:
        """Run ``work`` in one transaction and return its result: all of it happens, or, when it raises, nothing.

        Cancelled, it runs to its end unheard (Note [Shielded transactions]), or does not begin. ``work`` is run again when
        PostgreSQL rolls it back for a conflict with another transaction, so that what it does beside asking the
        transaction must bear repeating.

        :param statement_timeout: seconds that each statement of this transaction may take, instead of the usual ones.
        :raises StoreUnavailable: PostgreSQL cannot be asked now. When the connection was lost during the commit, nobody
            knows whether the transaction happened.
        :raises StoreReadOnly: it writes, and PostgreSQL is a standby.
        """
        return await shielded(self._transaction(await self._pool.borrow(), work, statement_timeout))

    async def _connect(self, lost: Callable[[Exception], None]) -> Session:
        session = Session(self._reactor, lost, self._patience)
        await session.open(await self._location.parameters())
        return session

    async def _fetch_first(self, session: Session, statement: Statement, parameters: tuple[object, ...]) -> Fetched:
        try:
            return await _fetch(session, statement, parameters)
        finally:
            self._give_back(session)

    async def _transaction(
        self, session: Session, work: Callable[[Transaction], Awaitable[T]], statement_timeout: float | None
    ) -> T:
        if statement_timeout is not None:
            session.patience = statement_timeout + GRACE
        try:
            for attempt in range(ATTEMPTS):
                if attempt:
                    await deferLater(self._reactor, CONFLICT_PAUSE * attempt * (1 - self._chance() / 2))
                try:
                    return await _attempt(session, work, statement_timeout)
                except Contention as contention:
                    conflict = str(contention)
            raise StoreUnavailable(f"{ATTEMPTS} attempts met conflicts with other transactions: {conflict}")
        finally:
            session.patience = self._patience
            self._give_back(session)

    def _give_back(self, session: Session) -> None:
        if session.clean:
            self._pool.release(session)
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
    """Run ``work`` once, between BEGIN and COMMIT.

    :raises Contention: PostgreSQL rolled it back for a conflict with another transaction.
    """
    await session.run("BEGIN")
    transaction = Transaction(session)
    try:
        if statement_timeout is not None:
            await session.run(f"SET LOCAL statement_timeout = {milliseconds(statement_timeout)}")
        result = await work(transaction)
    except Exception:
        await _roll_back(session)
        raise
    finally:
        transaction.end()
    try:
        await session.run("COMMIT")
    except StoreUnavailable as refusal:
        if not session.lost:
            raise
        raise StoreUnavailable(f"nobody knows whether a transaction was committed: {refusal.why}") from None
    if session.command != "COMMIT":
        raise RuntimeError("a statement failed, its transaction went on, and PostgreSQL rolled it back")
    return result


async def _roll_back(session: Session) -> None:
    """Undo what can be undone. A session that cannot be told to is dropped by its owner, and the server rolls back."""
    if not session.lost:
        with suppress(StoreUnavailable, StatementFailed):
            await session.run("ROLLBACK")
