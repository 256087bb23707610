"""Processes of two servers and a follower with their memories, whose readings and looks can be held back, and their clock.

Processes ``a`` and ``b`` are of one server and share a page of slots; ``c`` is another server; ``f`` is a follower, on a
standby; ``s`` and ``t`` are of a server that writes to the primary and reads from that standby. All are in this process,
each with its own ``Database``, so that a history is deterministic but for what PostgreSQL takes for it. ``judge`` is a
``Database`` without memory, and so is ``others``, whose commits nobody counts: psql, commands, servers that don't remember.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import attrs
from twisted.application.service import Service
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import deferLater

from svc.model.dialect import NATIVE
from svc.model.errors import StoreUnavailable
from svc.model.request_notes import begin_notes
from svc.model.versions import StateVersion
from svc.storage.accounts import AccountStore
from svc.storage.authenticators import AuthenticatorStore
from svc.storage.cache.commit_counters import BYTES, WIDTH, CommitCounters
from svc.storage.cache.read_cache import ReadCache
from svc.storage.credentials import CredentialStore
from svc.storage.driver.connection import Fetched, Session
from svc.storage.driver.database import Database
from svc.storage.driver.location import with_attributes
from svc.storage.driver.replication import Replication
from svc.storage.driver.standbys import Standbys
from svc.storage.driver.statements import (
    CachedReading,
    CachedStatement,
    NamedAnswer,
    Statement,
    Statements,
    Transaction,
)
from svc.storage.host_factories import HostFactoryStore
from svc.storage.ldap_mappings import LdapMappingStore
from svc.storage.policies import PolicyStore
from svc.storage.read_routing import ReadRouter
from svc.storage.replicas import Replicas
from svc.storage.resources import ResourceStore
from svc.storage.roles import RoleStore
from svc.storage.secrets import SecretStore

T = TypeVar("T")

reactor: Any = installed_reactor

#: How old memory may be, in seconds: of the server of two processes, so that its slots alone make it see its own writes, and
#: of the others.
LONG: Final = 600.0
SHORT: Final = 0.5

#: Bytes of a memory.
LIMIT: Final = 16 * 1024 * 1024


class SkippingClock:
    """The reactor's clock, which can be told to skip some time; its timers stay the reactor's."""

    def __init__(self) -> None:
        self._skipped = 0.0

    def seconds(self) -> float:
        """Return the time."""
        return float(reactor.seconds()) + self._skipped

    def skip(self, seconds: float) -> None:
        """Let time pass."""
        self._skipped += seconds

    def callLater(self, delay: float, call: Callable[..., object], *arguments: object) -> Any:
        """See ``IReactorTime``."""
        return reactor.callLater(delay, call, *arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(reactor, name)


class Gate:
    """A place at which an answer waits until it is opened."""

    def __init__(self, *, before: bool = False) -> None:
        #: Whether the question waits, instead of its answer.
        self.before = before
        self.taken = False
        self._opened: Deferred[None] = Deferred()

    def open(self) -> None:
        """Let what waits go on."""
        if not self._opened.called:
            self._opened.callback(None)

    async def passed(self) -> None:
        """Wait until it is opened."""
        self.taken = True
        passed: Deferred[None] = Deferred()
        self._opened.addCallback(passed.callback)
        await passed


@attrs.define
class _HeldSession:
    """A session for looks, each of whose answers waits for the gate that there is when it is asked."""

    _session: Session
    _gates: list[Gate]
    _rows: list[int]

    @property
    def server(self) -> str:
        return self._session.server

    @property
    def lost(self) -> bool:
        return self._session.lost

    @property
    def process(self) -> int:
        return self._session.process

    def drop(self, reason: Exception) -> None:
        self._session.drop(reason)

    def run(self, sql: str, parameters: tuple[object, ...] = ()) -> Deferred[Fetched]:
        answer = self._session.run(sql, parameters)
        if "EXECUTE cache_poll" not in sql:
            return answer
        answer.addCallback(self._count)
        if not self._gates:
            return answer
        gate = self._gates.pop()

        async def held() -> Fetched:
            rows = await answer
            await gate.passed()
            if self._session.lost:
                raise StoreUnavailable("the session was lost meanwhile")
            return rows

        return Deferred.fromCoroutine(held())

    def _count(self, rows: Fetched) -> Fetched:
        self._rows.append(len(rows))
        return rows


class _Held:
    """Has the next answers to remembered statements, and to looks, be held back."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.gates: list[Gate] = []
        self.look_gates: list[Gate] = []
        #: The server's process behind the session of looks, and how many rows each look has returned.
        self.looker = 0
        self.looked: list[int] = []
        #: What to make of the names that an answer depends on.
        self.names: Callable[[list[str]], list[str]] = lambda names: names

    async def fetch_with_server(self, statement: Statement, *parameters: object) -> tuple[Fetched, str]:
        """See ``Database``."""
        gate = self.gates.pop() if self.gates and statement.name.endswith("_remembered") else None
        if gate is not None and gate.before:
            await gate.passed()
        inner: Any = super()
        told, server = await inner.fetch_with_server(statement, *parameters)
        if gate is not None and not gate.before:
            await gate.passed()
        if told and statement.name.endswith("_remembered"):
            *row, names, lasts, known = told[0]
            told = [(*row, self.names(names), lasts, known), *told[1:]]
        return told, server

    async def read_with_server(self, reading: CachedReading[T]) -> tuple[NamedAnswer[T], str]:
        """See ``Database``."""
        gate = self.gates.pop() if self.gates else None
        if gate is not None and gate.before:
            await gate.passed()
        inner: Any = super()
        answer, server = await inner.read_with_server(reading)
        if gate is not None and not gate.before:
            await gate.passed()
        names = None if answer.names is None else self.names(list(answer.names))
        return attrs.evolve(answer, names=names), server

    async def open_session(self, lost: Callable[[Exception], None]) -> Session:
        """See ``Database``."""
        inner: Any = super()
        session = await inner.open_session(lost)
        self.looker = session.process
        return cast(Session, _HeldSession(session, self.look_gates, self.looked))


class HeldDatabase(_Held, Database):
    """A database whose answers can be held back."""


class HeldReadings(_Held, ReadRouter):
    """Readings from a standby that can be held back."""


@attrs.frozen
class StoresThrough:
    """The stores that a server has, whose remembered statements go through ``statements``."""

    database: Database
    statements: Statements

    @property
    def accounts(self) -> AccountStore:
        """Accounts."""
        return AccountStore(self.database)

    @property
    def roles(self) -> RoleStore:
        """Roles."""
        return RoleStore(self.statements)

    @property
    def resources(self) -> ResourceStore:
        """Resources."""
        return ResourceStore(self.statements)

    @property
    def secrets(self) -> SecretStore:
        """Values of variables."""
        return SecretStore(self.statements, NATIVE)

    @property
    def credentials(self) -> CredentialStore:
        """Credentials."""
        return CredentialStore(self.statements)

    @property
    def authenticators(self) -> AuthenticatorStore:
        """Authenticators."""
        return AuthenticatorStore(self.statements)

    @property
    def policies(self) -> PolicyStore:
        """Policy loads."""
        return PolicyStore(self.database)

    @property
    def mappings(self) -> LdapMappingStore:
        """Mappings of LDAP authenticators."""
        return LdapMappingStore(self.database)

    @property
    def factories(self) -> HostFactoryStore:
        """Host factories."""
        return HostFactoryStore(self.database)


@attrs.frozen(eq=False)
class Remembering:
    """A process of a server, which remembers. ``server`` tells which are of one server."""

    name: str
    server: str
    lag: float
    database: HeldDatabase
    memory: ReadCache
    stores: StoresThrough
    slots: CommitCounters

    async def ask(self, statement: CachedStatement, *parameters: object) -> Fetched:
        """Run a remembered statement."""
        return await self.memory.fetch(statement, *parameters)


class World:
    """All processes, on a primary, ``c`` at a place of its own, if one is named, and ``f`` on a standby, if there is one.

    With ``hosts``, a DSN of both, ``s`` and ``t`` are a server that writes to the primary and reads from the standby.
    """

    def __init__(
        self,
        primary: str,
        standby: str | None = None,
        *,
        memory: type[ReadCache] = ReadCache,
        counted: bool = True,
        place: str | None = None,
        hosts: str | None = None,
    ) -> None:
        self.clock = SkippingClock()
        self.name = primary.rpartition("=")[2]
        page = self._page = memoryview(bytearray(2 * WIDTH * BYTES)).cast("Q")
        self._memory, self._counted, self._primary = memory, counted, primary
        self._databases: list[Database] = []
        self.judge, self.others = self._plain(primary), self._plain(primary)
        self.processes = {
            "a": self._process("a", "one", LONG, primary, CommitCounters(page, 0)),
            "b": self._process("b", "one", LONG, primary, CommitCounters(page, 1)),
            "c": self._process("c", "two", SHORT, place or primary, CommitCounters.for_one_process()),
        }
        if standby is not None:
            self.processes["f"] = self._process("f", "follower", SHORT, standby, CommitCounters.for_one_process())
        self._services: list[Service] = []
        if hosts is not None:
            dsn, shared = with_attributes(hosts, "primary"), memoryview(bytearray(2 * WIDTH * BYTES)).cast("Q")
            self._services.append(Replication(self.judge, reactor))
            for number, (name, lag) in enumerate((("s", LONG), ("t", SHORT))):
                self.processes[name] = self._split(name, lag, dsn, CommitCounters(shared, number))

    async def start(self) -> None:
        """Connect, and look once."""
        for database in self._databases:
            database.startService()
        for database in self._databases:
            await database.wait_until_connected()
        for service in self._services:
            service.startService()
        for process in self.processes.values():
            process.memory.startService()
            await self.looked(process)

    async def stop(self) -> None:
        """Close everything."""
        for process in self.processes.values():
            process.memory.stopService()
        for service in self._services:
            await maybeDeferred(service.stopService)
        for database in self._databases:
            await maybeDeferred(database.stopService)

    async def looked(self, process: Remembering) -> None:
        """Wait until a process has a session that looks."""
        while not await process.memory.poll_now():
            await turn(0.01)

    async def version(self) -> StateVersion:
        """Return a version of the state that has all that was committed by now."""

        async def noted() -> StateVersion | None:
            notes = begin_notes()
            await execute(self.judge)
            return StateVersion.parse_or_none(notes.version or "")

        # In a context of its own.
        version = await Deferred.fromCoroutine(noted())
        assert version is not None
        return version

    async def lose(self, process: Remembering) -> None:
        """End the session that a process looks with, on the side of PostgreSQL."""
        sql = f"SELECT pg_terminate_backend({process.database.looker})"
        await process.database.transact_read_only(lambda transaction: transaction.execute(sql))

    async def replace(self, name: str) -> None:
        """Have another process take the place of one, ``b``, that has ended."""
        process = self.processes[name] = self._process(name, "one", LONG, self._primary, CommitCounters(self._page, 1))
        process.database.startService()
        await process.database.wait_until_connected()
        process.memory.startService()
        await self.looked(process)

    def _plain(self, dsn: str) -> Database:
        database = Database(reactor, dsn, pool_size=3, writers=2, statement_timeout=10.0, first_wait=20.0)
        self._databases.append(database)
        return database

    def _process(self, name: str, server: str, lag: float, dsn: str, slots: CommitCounters) -> Remembering:
        database = self._counting(dsn, slots)
        memory = self._memory(self.clock, database, slots, lag=lag, limit=LIMIT)
        return Remembering(name, server, lag, database, memory, StoresThrough(database, memory), slots)

    def _split(self, name: str, lag: float, dsn: str, slots: CommitCounters) -> Remembering:
        """Return a process that reads from a standby."""
        primary = self._counting(dsn, slots)
        places = Replicas(reactor, primary, Standbys(reactor, dsn, primary), slots)
        self._services.append(places)
        readings = HeldReadings(reactor, places)
        memory = self._memory(self.clock, readings, slots, lag=lag, limit=LIMIT)
        # What holds answers back is the same of both.
        return Remembering(name, "split", lag, cast(HeldDatabase, readings), memory, StoresThrough(primary, memory), slots)

    def _counting(self, dsn: str, slots: CommitCounters) -> HeldDatabase:
        def written(confirmed: bool, version: StateVersion | None) -> None:
            if self._counted:
                slots.count_commit(confirmed=confirmed, version=version)

        database = HeldDatabase(reactor, dsn, pool_size=3, writers=1, statement_timeout=10.0, first_wait=20.0)
        database.report_commits(written, lambda: slots.written_versions(slots.read_counters()).timeline)
        self._databases.append(database)
        return database


async def turn(seconds: float = 0.0) -> None:
    """Let the reactor do something else."""
    await deferLater(reactor, seconds)


async def execute(database: Database, *statements: str) -> None:
    """Run statements in one transaction, as psql would."""

    async def work(transaction: Transaction) -> None:
        for sql in statements:
            await transaction.execute(sql)

    await database.transact(work)
