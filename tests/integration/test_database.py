"""The database on a real PostgreSQL, which is killed, frozen and restarted."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import attrs
from psycopg2.extensions import AsIs
from twisted.internet import reactor
from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.internet.endpoints import UNIXServerEndpoint
from twisted.internet.protocol import ClientFactory, Factory, Protocol
from twisted.internet.task import deferLater
from twisted.logger import LogLevel, capturedLogs
from twisted.protocols import portforward

from svc.model.dialect import NATIVE
from svc.model.errors import OutcomeUnknown, ReadOnlyStandby, StoreUnavailable, WritesUnavailable
from svc.storage.driver.connection import Fetched
from svc.storage.driver.database import FIRST_RENEWAL, Database
from svc.storage.driver.failures import (
    DatabaseUnfit,
    ForeignKeyViolation,
    LockNotAvailable,
    StatementFailed,
    UniqueViolation,
)
from svc.storage.driver.statements import Statement, Transaction, run_prepared
from svc.web.http.refusal_responses import response_to
from tests.integration.postgres import PostgresTestCase

ECHO: Final = Statement("echo", "SELECT $1::text, $2::bytea, $3::text[], $4::bigint, $5::double precision, $6::boolean")
BYTES: Final = Statement("bytes", "SELECT $1::bytea, $2::bytea[]")
PID: Final = Statement("pid", "SELECT pg_backend_pid()")
PID_AFTER = Statement("pid_after", "SELECT pg_backend_pid() FROM pg_sleep($1::double precision)")
SLEEP: Final = Statement("sleep", "SELECT FROM pg_sleep($1)")
INSERT: Final = Statement("insert", "INSERT INTO notes (id, text) VALUES ($1, $2)")
INSERT_SLOWLY: Final = Statement(
    "insert_slowly", "INSERT INTO notes (id, text) SELECT $1, 'a' FROM (SELECT pg_sleep($2)) AS slept"
)
NOTES: Final = Statement("notes", "SELECT id, text FROM notes ORDER BY id")
LOCK: Final = Statement("lock", "SELECT FROM notes WHERE id = $1 FOR UPDATE")
SETTING: Final = Statement("setting", "SELECT current_setting($1)")


class OldServer(portforward.ProxyFactory):
    """Passes connections on to a PostgreSQL, and has it say another major version; ``asked`` is what it was asked."""

    version = b""

    def __init__(self, path: str) -> None:
        super().__init__("", 0)
        self.path = path
        self.asked = b""

    def buildProtocol(self, addr: object) -> portforward.ProxyServer:
        """Pass one connection on."""
        old = self

        class Client(portforward.ProxyClient):
            def dataReceived(self, data: bytes) -> None:
                super().dataReceived(re.sub(rb"(server_version\x00)..\.", rb"\g<1>" + old.version, data))

        class ClientFactory(portforward.ProxyClientFactory):
            protocol = Client

        class Passing(portforward.ProxyServer):
            clientProtocolFactory = ClientFactory  # noqa: N815  # the name is Twisted's
            reactor: Any = UnixReactor(old.path)

            def dataReceived(self, data: bytes) -> None:
                # A question is a message Q; the first message of all has no letter.
                old.asked += data if data[:1] == b"Q" and old.version < b"14" else b""
                super().dataReceived(data)

        protocol = Passing()
        protocol.factory = self
        return protocol


@attrs.frozen
class UnixReactor:
    """Connects to a socket of the file system in place of a host and a port."""

    path: str

    def connectTCP(self, host: str, port: int, factory: ClientFactory) -> object:
        """Connect to the path."""
        return reactor.connectUNIX(self.path, factory)  # type: ignore[attr-defined]


def begun(awaitable: Awaitable[Any]) -> Deferred[Any]:
    """Run a coroutine as far as it gets, and go on beside it."""

    async def run() -> Any:
        return await awaitable

    return Deferred.fromCoroutine(run())


def later(seconds: float) -> Deferred[None]:
    """A pause."""
    return deferLater(reactor, seconds)


def insertion(note: int) -> Callable[[Transaction], Awaitable[object]]:
    """Work that inserts one note."""
    return lambda transaction: transaction.fetch(INSERT, note, "a")


class NotesTestCase(PostgresTestCase):
    """A test with a table of its own, and a database with one connection of each kind, so that who has it is known."""

    dsn: str
    database: Database

    async def prepare(self) -> None:
        """Make the table."""
        await super().prepare()
        self.dsn = await self.create_database(migrated=False)
        self.server.command("CREATE TABLE notes (id bigint PRIMARY KEY, text text)", self.name)
        self.database = await self.open_database(self.dsn, pool_size=1)

    @property
    def name(self) -> str:
        """The database's name."""
        return self.dsn.rpartition("dbname=")[2]

    async def notes(self) -> list[int]:
        """The ids in the table, as the connection for writing sees them once it comes free."""
        return [note for note, _ in await self.database.change(NOTES)]

    async def pid(self) -> int:
        """The server process of the one connection for readings."""
        ((pid,),) = await self.database.fetch(PID)
        return int(pid)

    async def writer(self) -> int:
        """The server process of the one connection for writing."""
        ((pid,),) = await self.database.change(PID)
        return int(pid)

    def terminate(self, pid: int) -> None:
        """End a session on the server's side, and block until it has ended."""
        self.assertEqual(self.server.command(f"SELECT pg_terminate_backend({pid}, 10000)"), [(True,)])

    async def until(self, sql: str) -> None:
        """Wait until a query on the server, beside the database, has a row."""
        while not self.server.command(sql):
            await later(0.02)

    async def available(self, database: Database | None = None) -> None:
        """Wait until a database answers."""
        while True:
            try:
                await (database or self.database).fetch(PID)
                await (database or self.database).change(PID)
            except StoreUnavailable:
                await later(0.02)
            else:
                return


class FetchTests(NotesTestCase):
    """Single statements."""

    async def test_parameters(self) -> None:
        """Values travel to PostgreSQL and back as they are, when a statement is first prepared and later (DATA-18)."""
        values = ("it's 100% \\ π $1", b"\x00\xff'\\", ["a'b", "", '{,"}', "NULL"], -7, 2.5, True)
        for _ in range(2):
            self.assertEqual(await self.database.fetch(ECHO, *values), [values])

    async def test_absent_parameters(self) -> None:
        """None travels as NULL, and an empty list as an empty array."""
        values: tuple[object, ...] = (None, None, [], None, None, None)
        self.assertEqual(await self.database.fetch(ECHO, *values), [values])

    async def test_bytes(self) -> None:
        """A bytea comes back as bytes, also in an array."""
        ((single, several),) = await self.database.fetch(BYTES, b"\x00", [b"\xff", b""])
        self.assertEqual((single, several), (b"\x00", [b"\xff", b""]))
        self.assertIs(type(single), bytes)
        self.assertEqual([type(one) for one in several], [bytes, bytes])

    async def test_large(self) -> None:
        """A value that fills the socket many times over travels to PostgreSQL and back."""
        value = os.urandom(1 << 20) * 8
        ((echoed, _),) = await self.database.fetch(BYTES, value, [])
        self.assertEqual(echoed, value)

    async def test_one_round_trip(self) -> None:
        """A statement is prepared once on a connection, and is one message from then on, in no transaction of ours."""
        self.server.command(f'ALTER DATABASE "{self.name}" SET log_statement = "all"')
        database = await self.open_database(self.dsn, pool_size=1)
        log = self.server.log.open()
        self.addCleanup(log.close)
        log.seek(0, os.SEEK_END)
        for _ in range(3):
            await database.fetch(ECHO, "a", b"", [], 1, 1.0, True)
        logged = [line.partition("statement: ")[2].split()[0] for line in log if "statement: " in line]
        self.assertEqual(logged, ["PREPARE", "EXECUTE", "EXECUTE", "EXECUTE"])

    async def test_sql_fragments_are_no_parameters(self) -> None:
        """What the driver would write into a statement as it is, is refused, and the connection serves on."""
        for fragment in (AsIs("1); DROP TABLE notes; --"), ("a",), {"a": 1}, bytearray(b"a")):
            with self.assertRaises(TypeError):
                await self.database.change(INSERT, 1, fragment)
        self.assertEqual(await self.notes(), [])

    async def test_impossible_text(self) -> None:
        """Text with NUL or half a surrogate pair, or a wrong number of parameters, raises and the connection serves on
        (DATA-18).
        """
        for wrong in ("a\x00b", "\ud800"):
            with self.assertRaises(ValueError):
                await self.database.change(INSERT, 1, wrong)
        with self.assertRaises(IndexError):
            await self.database.change(INSERT, 1)
        with self.assertRaises(TypeError):
            await self.database.change(INSERT, 1, "a", "b")
        self.assertEqual(await self.notes(), [])

    async def test_unreadable_value(self) -> None:
        """A value that Python has no room for raises, and the connection serves on."""
        with self.assertRaises(ValueError):
            await self.database.fetch(Statement("ancient", "SELECT '0044-03-15 BC'::date"))
        self.assertEqual(await self.notes(), [])

    async def test_violation(self) -> None:
        """A violated constraint passes as it is, and the connection serves on."""
        pid = await self.writer()
        await self.database.change(INSERT, 1, "a")
        for _ in range(2):
            with self.assertRaises(UniqueViolation):
                await self.database.change(INSERT, 1, "b")
        self.assertEqual(await self.database.fetch(NOTES), [(1, "a")])
        self.assertEqual(await self.writer(), pid)

    async def test_wrong_sql(self) -> None:
        """SQL that cannot be prepared raises each time, and the connection serves on."""
        for _ in range(2):
            with self.assertRaises(StatementFailed):
                await self.database.fetch(Statement("wrong", "SELECT id FROM notes WHERE"))
        self.assertEqual(await self.notes(), [])

    async def test_two_statements_of_one_name(self) -> None:
        """Two different statements cannot pass for each other by having the same name."""
        await self.database.fetch(NOTES)
        with self.assertRaises(RuntimeError):
            await self.database.fetch(Statement("notes", "SELECT 1"))
        self.assertEqual(await self.notes(), [])

    async def test_cancelled(self) -> None:
        """A caller that leaves in the middle of a statement is let go at once; the statement runs to its end."""
        await self.database.change(INSERT_SLOWLY, 0, 0)
        for note in (1, 2):
            statement = begun(self.database.change(INSERT_SLOWLY, note, 0.05))
            statement.cancel()
            self.failureResultOf(statement, CancelledError)
            self.assertEqual(await self.notes(), list(range(note + 1)))

    async def test_cancelled_while_preparing(self) -> None:
        """A caller that leaves while its statement is prepared leaves the connection as good as it was."""
        statement = begun(self.database.change(INSERT_SLOWLY, 1, 0.05))
        statement.cancel()
        self.failureResultOf(statement, CancelledError)
        self.assertEqual(await self.notes(), [1])

    async def test_cancelled_while_waiting(self) -> None:
        """A caller that leaves while it waits for a connection never begins, and the next one in the queue gets it."""
        slow = begun(self.database.fetch(SLEEP, 0.05))
        waiting = [begun(self.database.change(INSERT, note, "a")) for note in range(3)]
        waiting[1].cancel()
        self.failureResultOf(waiting[1], CancelledError)
        await gatherResults([slow, waiting[0], waiting[2]])
        self.assertEqual(await self.notes(), [0, 2])

    async def test_statement_timeout(self) -> None:
        """A statement that takes too long is ended by PostgreSQL, as a store that is unavailable; its connection stays
        (LIM-20).
        """
        database = await self.open_database(self.dsn, pool_size=1, statement_timeout=1.0)
        before = await database.fetch(PID)
        for _ in range(2):
            with self.assertRaisesRegex(StoreUnavailable, "statement timeout"):
                await database.fetch(SLEEP, 10)
        self.assertEqual(await database.fetch(PID), before)

    async def test_stale_plan(self) -> None:
        """A prepared statement whose result another program's migration has changed fails once, then is prepared again."""
        every = Statement("every", "SELECT * FROM notes")
        await self.database.fetch(every)
        self.server.command("ALTER TABLE notes ADD COLUMN added integer", self.name)
        self.server.command("INSERT INTO notes VALUES (1, 'a', 2)", self.name)
        with self.assertRaises(StoreUnavailable):
            await self.database.fetch(every)
        self.assertEqual(await self.database.fetch(every), [(1, "a", 2)])

    async def test_notices(self) -> None:
        """What PostgreSQL remarks beside its answer disturbs nothing."""
        noisy = "DO $$ BEGIN RAISE WARNING 'remarked'; END $$"

        async def work(transaction: Transaction) -> int:
            return await transaction.execute(noisy)

        before = await self.writer()
        await self.database.transact(work)
        self.assertEqual(await self.writer(), before)

    async def test_settings(self) -> None:
        """Every session has the settings that the program counts on, whatever the database's own are (DATA-50)."""
        for name, value in (
            *(("timezone", "Asia/Kolkata"), ("datestyle", "German"), ("bytea_output", "escape")),
            *(("standard_conforming_strings", "off"), ("default_transaction_isolation", "serializable")),
            *(("statement_timeout", "50ms"), ("lock_timeout", "1ms"), ("transaction_timeout", "300ms")),
            *(("idle_session_timeout", "500ms"), ("idle_in_transaction_session_timeout", "1ms")),
            *(("plan_cache_mode", "auto"), ("jit", "on"), ("client_min_messages", "debug1")),
        ):
            self.server.command(f"ALTER DATABASE \"{self.name}\" SET {name} = '{value}'")
        database = await self.open_database(self.dsn, pool_size=1, statement_timeout=1.5)
        expected = {
            "application_name": "svc",
            "timezone": "UTC",
            "datestyle": "ISO, DMY",
            "bytea_output": "hex",
            "client_encoding": "UTF8",
            "standard_conforming_strings": "on",
            "default_transaction_isolation": "read committed",
            "statement_timeout": "1500ms",
            "lock_timeout": "0",
            "transaction_timeout": "0",
            "idle_session_timeout": "0",
            "idle_in_transaction_session_timeout": "30s",
            "plan_cache_mode": "force_generic_plan",
            "enable_seqscan": "off",
            "jit": "off",
            "client_min_messages": "warning",
        }
        await later(0.6)
        for ask, read_only in ((database.fetch, "on"), (database.change, "off"), (self.asked_beside(database), "on")):
            wanted = {**expected, "default_transaction_read_only": read_only}
            found = {name: (await ask(SETTING, name))[0][0] for name in wanted}
            self.assertEqual(found, wanted)

    async def test_quotes(self) -> None:
        """A value is a value, also where the database's own strings have escapes (DATA-18)."""
        for value in ("off", "on"):
            self.server.command(f'ALTER DATABASE "{self.name}" SET standard_conforming_strings = {value}')
            database = await self.open_database(self.dsn, pool_size=1)
            for text in ("a\\' , 'b', 1, 2, true) --", "\\", "\\'", "'", "\\\\"):
                ((found, *_),) = await database.fetch(ECHO, text, b"\\'", [text, "'"], 1, 1.5, True)
                self.assertEqual(found, text)

    def asked_beside(self, database: Database) -> Callable[..., Awaitable[Fetched]]:
        """Ask in a session of its own, as what looks for changes has one."""

        async def ask(statement: Statement, *parameters: object) -> Fetched:
            session = await database.open_session(lambda _: None)
            try:
                return await run_prepared(session, statement, parameters)
            finally:
                session.close()

        return ask

    async def test_role_limits(self) -> None:
        """A role's own limits for locks and transactions end nothing that this program has longer limits for (DATA-50)."""
        self.server.command(f"ALTER DATABASE \"{self.name}\" SET lock_timeout = '50ms'")
        self.server.command(f"ALTER DATABASE \"{self.name}\" SET transaction_timeout = '50ms'")
        database = await self.open_database(self.dsn, pool_size=2)
        await database.change(INSERT, 1, "a")
        holding = begun(database.transact(lambda held: held.execute("SELECT FROM notes FOR UPDATE; SELECT pg_sleep(0.3)")))
        while not self.server.command("SELECT 1 FROM pg_locks WHERE mode = 'RowShareLock'", self.name):
            await later(0.01)
        await database.change(LOCK, 1)
        await holding

    async def test_remarks(self) -> None:
        """What PostgreSQL remarks at a login is logged once, as that a password expires soon (DATA-54)."""
        self.server.command(
            "CREATE FUNCTION remark() RETURNS event_trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE WARNING 'role password will expire soon'; END $$;"
            " CREATE EVENT TRIGGER remark ON login EXECUTE FUNCTION remark()",
            self.name,
        )
        with capturedLogs() as events:
            await self.open_database(self.dsn)
        remarks = [event["remark"] for event in events if "remark" in event]
        self.assertEqual(remarks, ["WARNING:  role password will expire soon"])

    async def test_old_server(self) -> None:
        """A PostgreSQL that is too old is refused by its version, before anything is asked (DATA-53)."""
        directory = tempfile.mkdtemp(dir="/tmp")
        self.addCleanup(shutil.rmtree, directory)
        receiver = OldServer(f"{self.server.directory}/.s.PGSQL.5432")
        port = await UNIXServerEndpoint(reactor, f"{directory}/.s.PGSQL.5432").listen(receiver)
        self.addCleanup(port.stopListening)
        for version, name in ((b"13.", "PostgreSQL 13."), (b"12.", "PostgreSQL 12.")):
            receiver.version = version
            database = Database(
                reactor, f"host={directory} user=svc dbname={self.name}", pool_size=1, statement_timeout=5.0, first_wait=60.0
            )
            database.startService()
            self.addCleanup(database.stopService)
            with self.assertRaises(DatabaseUnfit) as caught:
                await database.wait_until_connected()
            self.assertRegex(caught.exception.why, rf"\A{name}[0-9]+ is too old: 15 or newer is needed\Z")
            self.assertEqual((database.count_sessions().sessions, receiver.asked), (0, b""))
        receiver.version = b"14."
        await self.open_database(f"host={directory} user=svc dbname={self.name}", pool_size=1)


class TransactionTests(NotesTestCase):
    """Several statements, all or none."""

    async def test_commit(self) -> None:
        """What the work did is there, and its result is returned (DATA-13)."""

        async def work(transaction: Transaction) -> str:
            await transaction.fetch(INSERT, 1, "a")
            self.assertEqual(await transaction.execute("INSERT INTO notes VALUES (%s, %s), (3, 'c')", (2, "50%")), 2)
            self.assertEqual(await transaction.execute("UPDATE notes SET text = '%s' WHERE id = 3"), 1)
            return "done"

        self.assertEqual(await self.database.transact(work), "done")
        self.assertEqual(await self.database.fetch(NOTES), [(1, "a"), (2, "50%"), (3, "%s")])

    async def test_failure(self) -> None:
        """When the work raises, nothing has happened, and what it raised is raised (DATA-13)."""

        async def work(transaction: Transaction) -> None:
            await transaction.fetch(INSERT, 1, "a")
            raise KeyError("a bug")

        with self.assertRaises(KeyError):
            await self.database.transact(work)
        self.assertEqual(await self.notes(), [])

    async def test_swallowed_failure(self) -> None:
        """Work that goes on after a statement of it failed does not pass for done."""

        async def work(transaction: Transaction) -> None:
            await transaction.fetch(INSERT, 1, "a")
            with self.assertRaises(UniqueViolation):
                await transaction.fetch(INSERT, 1, "b")

        with self.assertRaises(RuntimeError):
            await self.database.transact(work)
        self.assertEqual(await self.notes(), [])

    async def test_ended(self) -> None:
        """A transaction that has ended takes no more statements."""

        async def work(transaction: Transaction) -> Transaction:
            return transaction

        transaction = await self.database.transact(work)
        with self.assertRaises(RuntimeError):
            await transaction.fetch(INSERT, 1, "a")
        with self.assertRaises(RuntimeError):
            await transaction.execute("DELETE FROM notes")

    async def test_cancelled(self) -> None:
        """A caller that leaves is let go at once; its transaction commits, and the next borrower's connection is clean
        (DATA-13).
        """
        for note in range(3):

            async def work(transaction: Transaction, note: int = note) -> None:
                await transaction.fetch(INSERT_SLOWLY, note * 2, 0.05)
                await transaction.fetch(INSERT_SLOWLY, note * 2 + 1, 0.05)

            transacting = begun(self.database.transact(work))
            await later(0.03 * note)
            transacting.cancel()
            self.failureResultOf(transacting, CancelledError)
            self.assertEqual(await self.notes(), list(range(note * 2 + 2)))

    async def test_failure_after_cancellation(self) -> None:
        """A bug in work that its caller had left is logged, and the next borrower has a clean connection."""

        async def work(transaction: Transaction) -> None:
            await transaction.fetch(INSERT_SLOWLY, 1, 0.05)
            raise KeyError("a bug")

        transacting = begun(self.database.transact(work))
        transacting.cancel()
        self.failureResultOf(transacting, CancelledError)
        self.assertEqual(await self.notes(), [])
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)

    async def test_work_that_is_cancelled_itself(self) -> None:
        """Work whose own wait is cancelled is rolled back."""
        wait: Deferred[None] = Deferred()

        async def work(transaction: Transaction) -> None:
            await transaction.fetch(INSERT, 1, "a")
            reactor.callLater(0, wait.cancel)
            await wait

        with self.assertRaises(CancelledError):
            await self.database.transact(work)
        self.assertEqual(await self.notes(), [])

    async def test_abandoned_statement(self) -> None:
        """Work that ends with a statement still under way costs its connection, and nobody gets the statement's answer."""
        pid = await self.writer()
        statements = []

        async def work(transaction: Transaction) -> None:
            statements.append(begun(transaction.fetch(SLEEP, 10)))
            await later(0.02)
            raise KeyError("a bug")

        with self.assertRaises(KeyError):
            await self.database.transact(work)
        self.failureResultOf(statements[0], StoreUnavailable)
        self.assertNotEqual(await self.writer(), pid)

    async def test_two_statements_at_once(self) -> None:
        """A second statement, begun before the first has ended, is refused, and the first goes on."""

        async def work(transaction: Transaction) -> None:
            await transaction.fetch(NOTES)
            first = begun(transaction.fetch(INSERT_SLOWLY, 1, 0.05))
            with self.assertRaises(StatementFailed):
                await transaction.fetch(NOTES)
            await first

        await self.database.change(INSERT_SLOWLY, 0, 0)
        await self.database.transact(work)
        self.assertEqual(await self.notes(), [0, 1])

    async def test_deadlock(self) -> None:
        """Of two transactions that wait for each other one is run again, and both succeed (DATA-14)."""
        database = await self.open_database(self.dsn, pool_size=2)
        for note in (1, 2):
            await database.change(INSERT, note, "")
        runs = []
        locked = set()
        both: Deferred[None] = Deferred()

        async def append(first: int, second: int) -> None:
            async def work(transaction: Transaction) -> None:
                runs.append(first)
                await transaction.execute("SET LOCAL deadlock_timeout = '20ms'")
                await transaction.fetch(LOCK, first)
                locked.add(first)
                if len(locked) == 1:
                    await both
                elif not both.called:
                    both.callback(None)
                await transaction.fetch(LOCK, second)
                await transaction.execute("UPDATE notes SET text = text || %s", (str(first),))

            await database.transact(work)

        await gatherResults([begun(append(1, 2)), begun(append(2, 1))])
        self.assertGreaterEqual(len(runs), 3)
        ((_, text), _) = await database.fetch(NOTES)
        self.assertEqual(sorted(text), ["1", "2"])

    async def test_endless_conflict(self) -> None:
        """Work that meets a conflict every time is run three times, then the store is unavailable (DATA-14)."""
        runs = []

        async def work(transaction: Transaction) -> None:
            runs.append(await transaction.execute("INSERT INTO notes VALUES (1, 'a')"))
            await transaction.execute("DO $$ BEGIN RAISE EXCEPTION 'conflict' USING ERRCODE = '40001'; END $$")

        with self.assertRaisesRegex(StoreUnavailable, "conflict"):
            await self.database.transact(work)
        self.assertEqual(runs, [1, 1, 1])
        self.assertEqual(await self.notes(), [])

    async def test_conflict_of_one_statement(self) -> None:
        """A conflict that meets a single statement makes the store unavailable, when first prepared and later."""
        conflict = Statement("conflict", "SELECT conflict()")
        self.server.command(
            "CREATE FUNCTION conflict() RETURNS void LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE EXCEPTION 'conflict' USING ERRCODE = '40001'; END $$",
            self.name,
        )
        for _ in range(2):
            with self.assertRaises(StoreUnavailable):
                await self.database.fetch(conflict)

    async def test_read_only(self) -> None:
        """A primary that is read-only for a while is unavailable for writes, says why, and takes them again, in all
        sessions, soon after that has ended; readings go on (DATA-51).
        """
        self.server.command(f'ALTER DATABASE "{self.name}" SET default_transaction_read_only = on')
        database = await self.open_database(self.dsn, pool_size=3)
        readings = await gatherResults([begun(database.fetch(PID_AFTER, 0.2)) for _ in range(3)])
        await gatherResults([begun(database.change(SLEEP, 0.05)) for _ in range(3)])
        with self.assertRaisesRegex(WritesUnavailable, "default_transaction_read_only is on") as refused:
            await database.transact(insertion(1))
        response = response_to(refused.exception, NATIVE)
        assert response is not None
        self.assertIn(b"the database takes no writes now", response.body)
        self.server.command(f'ALTER DATABASE "{self.name}" RESET default_transaction_read_only')
        while True:
            try:
                await database.change(INSERT, 1, "a")
            except StoreUnavailable:
                await later(0.05)
            else:
                break
        await gatherResults([begun(database.transact(insertion(number))) for number in range(2, 8)])
        self.assertEqual([note for note, _ in await database.fetch(NOTES)], list(range(1, 8)))
        after = await gatherResults([begun(database.fetch(PID_AFTER, 0.2)) for _ in range(3)])
        self.assertEqual(sorted(after), sorted(readings))

    async def test_read_only_for_long(self) -> None:
        """While a primary refuses writes, sessions are replaced with pauses, and the log says so once (DATA-51)."""
        self.server.command(f'ALTER DATABASE "{self.name}" SET default_transaction_read_only = on')
        database = await self.open_database(self.dsn, pool_size=2)
        began = reactor.seconds()
        with capturedLogs() as events:
            for _ in range(100):
                with self.assertRaisesRegex(StoreUnavailable, "default_transaction_read_only is on"):
                    await database.change(INSERT, 1, "a")
            passed = reactor.seconds() - began
        logged = [(event["log_level"], event["log_format"]) for event in events if event.get("log_format")]
        warnings = [text for level, text in logged if level is LogLevel.warn]
        self.assertEqual(len(warnings), 1, warnings)
        self.assertIn("replaced, with pauses", warnings[0])
        self.assertNotIn("The database is connected", [text for _, text in logged])
        replaced = sum("is replaced" in text for _, text in logged)
        self.assertTrue(1 <= replaced <= 2 * (passed / FIRST_RENEWAL + 1), (replaced, passed))

    async def test_write_in_a_reading(self) -> None:
        """A session for readings takes no writes, and stays (DATA-15)."""
        before = await self.database.fetch(PID)
        with self.assertRaises(ReadOnlyStandby):
            await self.database.fetch(INSERT, 1, "a")
        self.assertEqual(await self.database.fetch(PID), before)

    async def test_locks(self) -> None:
        """A lock that is not to be waited for makes the store unavailable (DATA-52); a missing reference passes as it is."""
        database = await self.open_database(self.dsn, pool_size=2)
        await database.change(INSERT, 1, "a")
        self.server.command("CREATE TABLE remarks (note bigint REFERENCES notes)", self.name)

        async def hold(transaction: Transaction) -> None:
            async def grab(other: Transaction) -> None:
                await other.execute("SELECT FROM notes WHERE id = 1 FOR UPDATE NOWAIT")

            await transaction.fetch(LOCK, 1)
            with self.assertRaises(StoreUnavailable) as caught:
                await database.transact(grab)
            self.assertIsInstance(caught.exception.__cause__, LockNotAvailable)

        async def refer(transaction: Transaction) -> None:
            await transaction.execute("INSERT INTO remarks VALUES (2)")

        await database.transact(hold)
        with self.assertRaises(ForeignKeyViolation):
            await database.transact(refer)

    async def test_statement_timeout(self) -> None:
        """A transaction in which a statement takes too long is rolled back, and its connection stays."""
        database = await self.open_database(self.dsn, pool_size=1, statement_timeout=1.0)
        before = await database.change(PID)

        async def work(transaction: Transaction) -> None:
            await transaction.fetch(INSERT, 1, "a")
            await transaction.fetch(SLEEP, 10)

        with self.assertRaises(StoreUnavailable):
            await database.transact(work)
        self.assertEqual(await database.change(PID), before)
        self.assertEqual(await self.notes(), [])

    async def test_statement_timeout_of_its_own(self) -> None:
        """A transaction may have a longer statement time-out, which ends with it."""
        database = await self.open_database(self.dsn, pool_size=1, statement_timeout=1.0)

        async def work(transaction: Transaction) -> None:
            await transaction.fetch(SLEEP, 1.2)

        await database.transact(work, statement_timeout=10.0)
        with self.assertRaises(StoreUnavailable):
            await database.change(SLEEP, 10)

    async def test_lost_while_idle_in_transaction(self) -> None:
        """A transaction that PostgreSQL ends for its idleness is unavailable at the next statement."""
        pid = await self.writer()

        async def work(transaction: Transaction) -> None:
            await transaction.fetch(INSERT, 1, "a")
            await transaction.execute("SET LOCAL idle_in_transaction_session_timeout = 10")
            await self.until(f"SELECT 1 WHERE NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {pid})")
            await transaction.fetch(INSERT, 2, "b")

        with self.assertRaises(StoreUnavailable):
            await self.database.transact(work)
        await self.available()
        self.assertEqual(await self.notes(), [])

    async def test_lost_while_committing(self) -> None:
        """A transaction whose connection is lost in the commit is not run again, and nobody knows whether it happened
        (CLU-12, DATA-14).
        """
        self.server.command(
            """
            CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(10); RETURN NULL; END $$;
            CREATE CONSTRAINT TRIGGER dawdle AFTER INSERT ON notes DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION dawdle()
            """,
            self.name,
        )
        pid = await self.writer()
        runs = []

        async def work(transaction: Transaction) -> None:
            runs.append(await transaction.fetch(INSERT, 1, "a"))

        transacting = begun(self.database.transact(work))
        await self.until(f"SELECT 1 FROM pg_stat_activity WHERE pid = {pid} AND state = 'active' AND query LIKE '%COMMIT%'")
        self.terminate(pid)
        with self.assertRaises(OutcomeUnknown):
            await transacting
        self.assertEqual(len(runs), 1)
        await self.available()
        self.assertEqual(await self.notes(), [])


class LostConnectionTests(NotesTestCase):
    """PostgreSQL ends connections, dies, hangs, and comes back."""

    async def test_census(self) -> None:
        """Sessions are counted together, and those for readings by themselves."""
        database = Database(reactor, self.dsn, pool_size=2, writers=1, statement_timeout=5.0, first_wait=10.0)
        self.addCleanup(database.stopService)
        database.startService()
        await database.wait_until_connected()
        while (database.count_read_sessions().sessions, database.count_sessions().sessions) != (2, 3):
            await later(0.02)
        changing = begun(database.change(SLEEP, 0.1))
        self.assertEqual((database.count_read_sessions().lent, database.count_sessions().lent), (0, 1))
        await changing

    async def test_lost_while_idle(self) -> None:
        """A connection that died in the pool, this very moment, is noticed before anything is sent on it (DATA-16)."""
        for _ in range(2):
            pid = await self.pid()
            self.terminate(pid)
            self.assertNotEqual(await self.pid(), pid)

    async def test_lost_while_idle_then_transaction(self) -> None:
        """A transaction, too, gets a connection that lives."""
        self.terminate(await self.writer())

        async def work(transaction: Transaction) -> None:
            await transaction.fetch(INSERT, 1, "a")

        await self.database.transact(work)
        self.assertEqual(await self.notes(), [1])

    async def test_lost_during_a_statement(self) -> None:
        """A statement whose connection is ended is unavailable, never sent again, and the next one has a new connection
        (DATA-16).
        """
        pid = await self.writer()
        statement = begun(self.database.change(INSERT_SLOWLY, 1, 10))
        await later(0.05)
        self.terminate(pid)
        with self.assertRaises(StoreUnavailable):
            await statement
        self.assertNotEqual(await self.writer(), pid)
        self.assertEqual(await self.notes(), [])

    async def test_killed(self) -> None:
        """While PostgreSQL is dead every call is unavailable at once; when it is back, calls succeed by themselves
        (DATA-16).
        """
        statement = begun(self.database.fetch(SLEEP, 10))
        transaction = begun(self.database.transact(lambda transaction: transaction.fetch(SLEEP, 10)))
        await later(0.05)
        await self.server.kill()
        for lost in (statement, transaction):
            with self.assertRaises(StoreUnavailable):
                await lost
        for _ in range(3):
            before = reactor.seconds()
            with self.assertRaises(StoreUnavailable):
                await self.database.fetch(PID)
            self.assertLess(reactor.seconds() - before, 5)
        await self.server.start()
        await self.available()

    async def test_restarted_behind_our_back(self) -> None:
        """A restart of PostgreSQL while nobody asks is not noticed by those who ask afterwards (DATA-16)."""
        database = await self.open_database(self.dsn, pool_size=4)
        await self.server.stop()
        await self.server.start()
        await self.available(database)
        await gatherResults([begun(database.fetch(SLEEP, 0.01)) for _ in range(8)])

    async def test_killed_under_load(self) -> None:
        """What was acknowledged before PostgreSQL was killed, or after it was back, is there (DATA-17)."""
        database = await self.open_database(self.dsn, pool_size=4)
        acknowledged: set[int] = set()
        stopped = False

        async def write(first: int) -> None:
            note = first
            while not stopped:
                try:
                    if note % 2:
                        await database.change(INSERT, note, "a")
                    else:
                        await database.transact(insertion(note))
                except StoreUnavailable:
                    await later(0.01)
                else:
                    acknowledged.add(note)
                note += 1

        writers = [begun(write(first * 1_000_000)) for first in range(8)]
        for _ in range(2):
            await later(0.2)
            await self.server.kill()
            before = len(acknowledged)
            await self.server.start()
            while len(acknowledged) <= before:
                await later(0.02)
        stopped = True
        await gatherResults(writers)
        await self.available(database)
        stored = {note for note, _ in await database.fetch(NOTES)}
        self.assertEqual(acknowledged - stored, set())

    async def test_frozen(self) -> None:
        """When PostgreSQL hangs, a call is unavailable in time, and the connection that owes an answer is not used again."""
        database = await self.open_database(self.dsn, pool_size=1, statement_timeout=0.5)
        before = await database.fetch(PID)
        await self.server.freeze()
        calls = [begun(database.fetch(PID)), begun(database.transact(lambda transaction: transaction.fetch(PID)))]
        begun_at = reactor.seconds()
        for call in calls:
            with self.assertRaises(StoreUnavailable):
                await call
        self.assertLess(reactor.seconds() - begun_at, 10)
        await self.server.thaw()
        await self.available(database)
        self.assertNotEqual(await database.fetch(PID), before)


class StartTests(NotesTestCase):
    """Starting and stopping."""

    def database_at(self, dsn: str, *, statement_timeout: float = 5.0, first_wait: float = 10.0) -> Database:
        """A started database, stopped after the test."""
        database = Database(reactor, dsn, pool_size=2, statement_timeout=statement_timeout, first_wait=first_wait)
        database.startService()
        self.addCleanup(database.stopService)
        return database

    async def test_waits_for_postgresql(self) -> None:
        """A database that is not there yet is waited for."""
        await self.server.stop()
        database = self.database_at(self.dsn)
        connected = begun(database.wait_until_connected())
        with self.assertRaises(StoreUnavailable):
            await database.fetch(PID)
        self.assertNoResult(connected)
        await self.server.start()
        await connected
        await database.fetch(PID)

    async def test_waits_not_for_ever(self) -> None:
        """A database that does not come is unavailable after the wait, with the reason, and its password is not in it
        (LIM-21).
        """
        dsn = f"{self.dsn}_missing password=hidden"
        with self.assertRaisesRegex(StoreUnavailable, "does not exist") as caught:
            await self.database_at(dsn, first_wait=5.0).wait_until_connected()
        self.assertNotIn("hidden", str(caught.exception))

    async def test_silent_server(self) -> None:
        """A server that accepts connections and says nothing is given up in time, again and again."""
        directory = tempfile.mkdtemp(dir="/tmp")
        self.addCleanup(shutil.rmtree, directory)
        reached = []

        class Silent(Protocol):
            def connectionMade(self) -> None:
                reached.append(self)

        port = await UNIXServerEndpoint(reactor, str(Path(directory) / ".s.PGSQL.5432")).listen(Factory.forProtocol(Silent))
        self.addCleanup(port.stopListening)
        database = self.database_at(f"host={directory} user=svc", statement_timeout=0.01, first_wait=0.1)
        with self.assertRaisesRegex(StoreUnavailable, "no answer"):
            await database.wait_until_connected()
        with self.assertRaisesRegex(StoreUnavailable, "no answer"):
            await database.fetch(PID)
        while len(reached) <= 2:
            await later(0.02)

    async def test_second_host(self) -> None:
        """When the first of two hosts refuses, the second is tried at once."""
        database = self.database_at(f"host=127.0.0.1,{self.server.directory} port=1,5432 user=svc dbname={self.name}")
        await database.wait_until_connected()
        await gatherResults([begun(database.fetch(SLEEP, 0.01)) for _ in range(4)])

    async def test_stops_while_connecting(self) -> None:
        """A stop in the middle of an attempt to connect leaves nothing behind, and tells those who wait."""
        database = self.database_at(self.dsn)
        connected = begun(database.wait_until_connected())
        fetched = begun(database.fetch(PID))
        await database.stopService()
        self.failureResultOf(connected, StoreUnavailable)
        self.failureResultOf(fetched, StoreUnavailable)

    async def test_stops_after_transactions(self) -> None:
        """A stop waits for the transaction that is under way, and takes no more."""

        async def work(transaction: Transaction) -> None:
            await transaction.fetch(INSERT_SLOWLY, 1, 0.05)
            await transaction.fetch(INSERT_SLOWLY, 2, 0.05)

        database = await self.open_database(self.dsn, pool_size=1)
        transacting = begun(database.transact(work))
        waiting = begun(database.change(PID))
        stopping = database.stopService()
        self.failureResultOf(waiting, StoreUnavailable)
        with self.assertRaises(StoreUnavailable):
            await database.fetch(PID)
        await stopping
        self.successResultOf(transacting)
        self.assertEqual(await self.notes(), [1, 2])

    async def test_stop_is_bounded(self) -> None:
        """A transaction that does not end is cut off when its time is over."""
        forever: Deferred[None] = Deferred()

        async def work(transaction: Transaction) -> None:
            await transaction.fetch(INSERT, 1, "a")
            await forever

        database = await self.open_database(self.dsn, pool_size=1, statement_timeout=1.0)
        transacting = begun(database.transact(work))
        await database.stopService()
        forever.callback(None)
        with self.assertRaises(StoreUnavailable):
            await transacting
        self.assertEqual(await self.notes(), [])

    async def test_starts_again(self) -> None:
        """A database that was stopped can be started again."""
        await self.database.stopService()
        with self.assertRaises(StoreUnavailable):
            await self.database.fetch(PID)
        self.database.startService()
        await self.database.wait_until_connected()
        self.assertEqual(await self.notes(), [])
