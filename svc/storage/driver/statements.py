"""Statements, each prepared once by a session, and the transactions that run several."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Generic, Protocol, Self, TypeVar

import attrs

from svc.model.counts import PoolCounts
from svc.storage.driver.connection import Fetched, Session

T = TypeVar("T")

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_PARAMETER = re.compile(r"\$([1-9][0-9]*)")

#: How many of the last columns of a cached statement's rows are for the cache: see ``svc/storage/sql/dependencies.py``.
_DEPENDENCY_COLUMNS = 3


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
    def with_name(cls, name: str) -> Callable[[str], Self]:
        """Return the constructor for a statement with this name, which takes its SQL alone."""
        return partial(cls, name)

    @preparation.default
    def _default_preparation(self) -> str:
        return f"PREPARE {self.name} AS {self.sql}"

    @execution.default
    def _default_execution(self) -> str:
        count = max(map(int, _PARAMETER.findall(self.sql)), default=0)
        return f"EXECUTE {self.name}" + (f" ({', '.join(['%s'] * count)})" if count else "")


#: A query that only tests whether the database answers.
PING = Statement("turn", "SELECT true")


@attrs.frozen
class CachedStatement(Statement):
    """A statement whose answer may be cached (see ``svc/storage/cache``).

    ``with_dependencies`` is the same statement with more columns at the end of its rows: see
    ``svc/storage/sql/dependencies.py``.
    """

    with_dependencies: Statement = attrs.field(kw_only=True, eq=False)


async def run_prepared(session: Session, statement: Statement, parameters: tuple[object, ...]) -> Fetched:
    """Run a statement on a session, after preparing it there if it is the first time."""
    known = session.prepared.get(statement.name)
    if known is None:
        await session.run(statement.preparation)
        session.prepared[statement.name] = statement
    elif known != statement:
        raise RuntimeError(f"two statements are named {statement.name}")
    return await session.run(statement.execution, parameters)


class Transaction:
    """Run the statements of one transaction, one at a time, until its work returns."""

    def __init__(self, session: Session) -> None:
        self._session: Session | None = session

    async def fetch(self, statement: Statement, *parameters: object) -> Fetched:
        """Run a prepared statement and return its rows."""
        return await run_prepared(self._current_session(), statement, parameters)

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        """Run a statement that is not prepared, with ``%s`` where parameters go; return the number of rows it touched.

        Without parameters a ``%`` is only that, and ``sql`` may have several statements, parted by semicolons.
        """
        session = self._current_session()
        await session.run(sql, parameters)
        return session.row_count

    def end(self) -> None:
        """Refuse further statements."""
        self._session = None

    def _current_session(self) -> Session:
        if self._session is None:
            raise RuntimeError("this transaction has ended")
        return self._session


@attrs.frozen
class NamedAnswer(Generic[T]):
    """The answer to a read, with its dependencies for the read cache.

    ``names`` are those of everything whose change may change it (``schema/0010_changes.sql``), ``None`` where something of
    that has no name; ``lasts`` is in how many seconds it changes by itself, ``None`` for never. ``known``: it is about
    something that exists. ``single``: it is one row.
    """

    value: T
    names: Iterable[str] | None
    known: bool = True
    lasts: float | None = None
    single: bool = False


def split_dependencies(answer: Fetched) -> NamedAnswer[Fetched]:
    """Return the rows of ``CachedStatement.with_dependencies`` without their last columns, and the values of these."""
    rows = [row[:-_DEPENDENCY_COLUMNS] for row in answer]
    if not answer:
        return NamedAnswer(rows, None)
    names, _, known = answer[0][-_DEPENDENCY_COLUMNS:]
    lasts = min((row[-2] for row in answer if row[-2] is not None), default=None)
    return NamedAnswer(rows, names, known, lasts, single=len(rows) == 1)


@attrs.frozen
class CachedReading(Generic[T]):
    """A read of several statements in one state of the database, whose answer may be cached.

    ``key`` tells it apart from every other: its name, which no cached statement has, and all parameters. ``work`` runs the
    statements, and must be repeatable.
    """

    key: tuple[object, ...]
    work: Callable[[Transaction], Awaitable[NamedAnswer[T]]]


class Fetching(Protocol):
    """Where single statements are run, be it within a transaction."""

    async def fetch(self, statement: Statement, *parameters: object) -> Fetched:
        """Run a statement that reads."""


class Statements(Fetching, Protocol):
    """Where single statements and transactions are run: the database itself, or the read cache before it.

    Every method is as the ``Database``'s.
    """

    async def fetch_uncached(self, statement: Statement, *parameters: object) -> Fetched:
        """Run a statement that reads, now: nothing of its answer comes from the cache."""

    async def read(self, reading: CachedReading[T]) -> T:
        """Run a read of several statements."""

    async def change(self, statement: Statement, *parameters: object) -> Fetched:
        """Run a statement that writes."""

    async def transact_read_only(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Run a transaction that reads."""

    async def transact(self, work: Callable[[Transaction], Awaitable[T]], *, statement_timeout: float | None = None) -> T:
        """Run a transaction that writes."""


class ReadSource(Statements, Protocol):
    """The source whose answers the read cache keeps: the database itself, or one whose reads may go to standbys."""

    @property
    def uses_standbys(self) -> bool:
        """Return whether reads may go to another PostgreSQL than writes."""

    def count_read_sessions(self) -> PoolCounts:
        """Count the sessions for reads."""

    async def fetch_with_server(self, statement: Statement, *parameters: object) -> tuple[Fetched, str]:
        """Do as ``fetch``, and also return which PostgreSQL answered."""

    async def read_with_server(self, reading: CachedReading[T]) -> tuple[NamedAnswer[T], str]:
        """Do as ``read``, and also return which PostgreSQL answered."""

    async def open_session(self, lost: Callable[[Exception], None]) -> Session:
        """Open a session for reads that the caller closes."""
