"""PostgreSQL as others set it up: behind PgBouncer, read-only for a while, with the programs of another version."""

from __future__ import annotations

from typing import Final

from twisted.internet import reactor
from twisted.internet.task import deferLater
from twisted.logger import LogLevel, capturedLogs
from twisted.trial.unittest import SkipTest

from svc.model.errors import StartRefused, StoreUnavailable
from svc.storage.driver.database import Database
from svc.storage.driver.failures import DatabaseUnfit
from svc.storage.driver.migrations import migrate
from svc.storage.driver.statements import Statement
from svc.storage.dumps import run_program
from tests.bouncer import Bouncer, missing
from tests.integration.client import Api
from tests.integration.postgres import PostgresTestCase
from tests.integration.process import ServerTestCase
from tests.programs import find_postgresql

#: Makes a database read-only, and ends the sessions from before.
READ_ONLY: Final = """
    ALTER DATABASE "{0}" SET default_transaction_read_only = on;
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{0}' AND pid <> pg_backend_pid()
"""
#: Changes a setting of a database, and ends the sessions from before.
ALTER: Final = """
    ALTER DATABASE "{0}" SET {1};
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{0}' AND pid <> pg_backend_pid()
"""
GUARDS: Final = Statement.with_name("guards")("""
    SELECT current_setting('statement_timeout'), current_setting('lock_timeout'), current_setting('plan_cache_mode'),
        current_setting('default_transaction_read_only'), pg_backend_pid()
""")
INSERT: Final = Statement("insert", "INSERT INTO notes VALUES ($1)")


class PoolerTests(ServerTestCase, PostgresTestCase):
    """PgBouncer in front of PostgreSQL."""

    skip = missing() or PostgresTestCase.skip

    async def prepare(self) -> None:
        """Make a database."""
        await super().prepare()
        self.dsn = await self.create_database(migrated=False)
        self.name = self.dsn.rpartition("dbname=")[2]
        self.server.command("CREATE TABLE notes (id bigint)", self.name)

    def bouncer(self, **settings: str) -> str:
        """Start one, and return the DSN of the database behind it."""
        bouncer = Bouncer(f"host={self.server.directory} user=svc", settings)
        self.addCleanup(bouncer.stop)
        return bouncer.dsn(self.name)

    async def test_session_mode(self) -> None:
        """In session mode it works as it comes, and where it drops the options of libpq: sessions have their settings
        (DATA-50).
        """
        for settings in ({}, {"ignore_startup_parameters": "options"}, {"server_reset_query": ""}):
            database = await self.open_database(self.bouncer(pool_mode="session", **settings), pool_size=2)
            ((*reading, _),) = await database.fetch(GUARDS)
            ((*writing, process),) = await database.change(GUARDS)
            self.assertEqual(reading, ["5s", "0", "force_generic_plan", "on"])
            self.assertEqual(writing, ["5s", "0", "force_generic_plan", "off"])
            self.assertIn((process,), self.server.command("SELECT pid FROM pg_stat_activity"))

    async def test_transaction_mode(self) -> None:
        """In transaction and in statement mode it is refused at once, with a sentence that says so, also where there is one
        session of each kind (DATA-53).
        """
        for mode in ("transaction", "statement"):
            for size in (1, 4):
                for others in ({}, {"min_pool_size": "3"}, {"server_round_robin": "1"}):
                    dsn = self.bouncer(pool_mode=mode, **others)
                    database = Database(reactor, dsn, pool_size=size, statement_timeout=5.0, first_wait=60.0)
                    database.startService()
                    self.addCleanup(database.stopService)
                    try:
                        await database.wait_until_connected()
                    except DatabaseUnfit as refusal:
                        self.assertIn("a pooler in transaction mode is in between", refusal.why)
                    else:
                        self.fail(f"{mode} mode with {others} was not noticed by {size} sessions of each kind")
        server = self.serve("--account=acme", database_url=self.bouncer(pool_mode="transaction"))
        self.assertEqual(await server.ended(), 1)
        self.assertIn(b"svc did not start: a pooler in transaction mode is in between", server.stderr)

    async def test_quoting(self) -> None:
        """Where the role's strings have escapes, and a pooler takes no options, the setting is named that is to be changed
        (DATA-18).
        """
        self.server.command(f'ALTER DATABASE "{self.name}" SET standard_conforming_strings = off')
        server = self.serve("--account=acme", database_url=self.bouncer(pool_mode="session"))
        self.assertEqual(await server.ended(), 1)
        self.assertIn(b"standard_conforming_strings is off: set it on for the database and its role", server.stderr)

    async def test_read_only(self) -> None:
        """A session that a pooler keeps, and that was opened while the database was read-only, is ended by a write that it
        refuses (DATA-51).
        """
        database = await self.open_database(self.bouncer(pool_mode="session"), pool_size=1)
        self.server.command(READ_ONLY.format(self.name))
        refused = await self.refusal(database)
        while "default_transaction_read_only is on" not in refused:
            await deferLater(reactor, 0.05)
            refused = await self.refusal(database)
        self.server.command(f'ALTER DATABASE "{self.name}" RESET default_transaction_read_only')
        while await self.refusal(database):
            await deferLater(reactor, 0.05)

    async def test_altered(self) -> None:
        """A session that a pooler keeps, and whose settings don't lead to the server's tables, is ended (DATA-59)."""
        database = await self.open_database(self.bouncer(pool_mode="session"), pool_size=1)
        await migrate(database)
        self.server.command(ALTER.format(self.name, "search_path = nowhere"))
        while 'search_path is "nowhere"' not in await self.refusal(database):
            await deferLater(reactor, 0.05)
        self.server.command(f'ALTER DATABASE "{self.name}" RESET search_path')
        while await self.refusal(database):
            await deferLater(reactor, 0.05)

    async def refusal(self, database: Database) -> str:
        """Write, and return why that is refused."""
        try:
            await database.change(INSERT, 1)
        except StoreUnavailable as refusal:
            return refusal.why
        return ""


class AlteredTests(ServerTestCase, PostgresTestCase):
    """A server whose database or role is altered while it runs."""

    async def test_settings(self) -> None:
        """Requests are 503 with Retry-After, the log names the setting, and after it is reset requests and readiness recover
        without a restart (DATA-59).
        """
        dsn = await self.create_database(migrated=False)
        name = dsn.rpartition("dbname=")[2]
        server = self.serve("--account=acme", "--health-interval=0.5", database_url=dsn)
        api = Api.of(self, await server.ready())
        admin = await api.authenticate("admin", server.admin_key())
        loaded = await api.ask("POST", "/policies/acme/policy/root", b"- !variable a", admin)
        self.assertEqual(loaded.status, 201, loaded)
        for setting, shown in (
            ("search_path = nowhere", b'search_path is "nowhere", the role is "svc"'),
            ("role = pg_monitor", b'the role is "pg_monitor"'),
        ):
            self.server.command(ALTER.format(name, setting))
            await server.says(shown.decode())
            for method, path, body in (
                ("POST", api.variable("a"), b"one"),
                ("GET", "/resources/acme?count=true", None),
                ("POST", "/authn/acme/admin/authenticate", server.admin_key().encode()),
            ):
                answer = await api.ask(method, path, body, "" if "authenticate" in path else admin)
                self.assertEqual((answer.status, answer.headers.get("retry-after")), (503, "1"), (setting, answer))
            await api.tells("/readyz", 503)
            self.server.command(f'ALTER DATABASE "{name}" RESET {setting.split()[0]}')
            await api.tells("/readyz", 200)
            while (answer := await api.ask("POST", api.variable("a"), b"two", admin)).status == 503:
                await deferLater(reactor, 0.05)
            self.assertEqual(answer.status, 201, answer)

    async def test_statements(self) -> None:
        """A statement whose table, column, function or schema isn't there, or that the role may not use, makes the store
        unavailable; the log has each reason once. Afterwards the statement works (DATA-59).
        """
        dsn = await self.create_database(migrated=False)
        name = dsn.rpartition("dbname=")[2]
        self.server.command("CREATE TABLE notes (id bigint); CREATE SCHEMA inner_one", name)
        self.server.command("CREATE FUNCTION inner_one.one() RETURNS bigint RETURN 1", name)
        self.server.command("DROP ROLE IF EXISTS plain")
        self.server.command(
            "CREATE ROLE plain LOGIN; GRANT SELECT ON notes TO plain; GRANT USAGE ON SCHEMA inner_one TO plain", name
        )
        self.addCleanup(self.server.command, "DROP OWNED BY plain; DROP ROLE plain", name)
        database = await self.open_database(dsn.replace("user=svc", "user=plain"), pool_size=1)
        reading = Statement("notes", "SELECT id FROM notes WHERE id < inner_one.one()")
        for break_it, mend_it, why in (
            ("REVOKE SELECT ON notes FROM plain", "GRANT SELECT ON notes TO plain", "permission denied for table notes"),
            ("ALTER TABLE notes RENAME TO other", "ALTER TABLE other RENAME TO notes", 'relation "notes" does not exist'),
            ("ALTER TABLE notes RENAME id TO n", "ALTER TABLE notes RENAME n TO id", 'column "id" does not exist'),
            (
                "ALTER FUNCTION inner_one.one() RENAME TO two",
                "ALTER FUNCTION inner_one.two() RENAME TO one",
                "function inner_one.one() does not exist",
            ),
            (
                "ALTER SCHEMA inner_one RENAME TO outer_one",
                "ALTER SCHEMA outer_one RENAME TO inner_one",
                'schema "inner_one" does not exist',
            ),
        ):
            self.server.command(break_it, name)
            with capturedLogs() as events:
                for _ in range(3):
                    with self.assertRaises(StoreUnavailable) as caught:
                        await database.fetch(reading)
                    self.assertEqual(caught.exception.why, f'{why} (search_path is ""$user", public", the role is "plain")')
            logged = [event for event in events if event.get("log_level") in {LogLevel.warn, LogLevel.error}]
            self.assertEqual([event.get("why") for event in logged], [caught.exception.why])
            self.server.command(mend_it, name)
            self.assertEqual(await database.fetch(reading), [])


class ReadOnlyTests(ServerTestCase, PostgresTestCase):
    """A server whose database is read-only for a while."""

    async def test_for_a_while(self) -> None:
        """Changes are 503 with Retry-After and reads go on; health and log name the setting; afterwards changes work again
        without a restart. A start that would change something is refused with a sentence that names it (DATA-51).
        """
        dsn = await self.create_database(migrated=False)
        name = dsn.rpartition("dbname=")[2]
        server = self.serve("--account=acme", database_url=dsn)
        api = Api.of(self, await server.ready())
        admin = await api.authenticate("admin", server.admin_key())
        loaded = await api.ask("POST", "/policies/acme/policy/root", b"- !variable a", admin)
        self.assertEqual(loaded.status, 201, loaded)
        self.assertEqual((await api.ask("POST", api.variable("a"), b"one", admin)).status, 201)
        self.server.command(READ_ONLY.format(name))
        await server.says("writes are refused, since default_transaction_read_only is on for the database or its role")
        while (answer := await api.ask("GET", api.variable("a"), None, admin)).status == 503:
            await deferLater(reactor, 0.05)
        self.assertEqual((answer.status, answer.body), (200, b"one"))
        for _ in range(3):
            answer = await api.ask("POST", api.variable("a"), b"two", admin)
            self.assertEqual((answer.status, answer.headers.get("retry-after")), (503, "1"), answer)
        other = self.serve("--account=acme", database_url=await self.read_only_database())
        self.assertEqual(await other.ended(), 1)
        self.assertIn(b"svc did not start: the database can't be used: writes are refused, since default_tr", other.stderr)
        self.server.command(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
        while (answer := await api.ask("POST", api.variable("a"), b"two", admin)).status == 503:
            await deferLater(reactor, 0.05)
        self.assertEqual(answer.status, 201)
        self.assertEqual((await api.ask("GET", api.variable("a"), None, admin)).body, b"two")

    async def read_only_database(self) -> str:
        """Make an empty database in which nothing can be made."""
        dsn = await self.create_database(migrated=False)
        self.server.command(f'ALTER DATABASE "{dsn.rpartition("dbname=")[2]}" SET default_transaction_read_only = on')
        return dsn


class ProgramsTests(PostgresTestCase):
    """PostgreSQL's programs of another version."""

    async def test_old_program(self) -> None:
        """Where the machine's pg_dump is older than the server, the package is named that is needed (DATA-55)."""
        ((version,),) = self.server.command("SHOW server_version_num")
        major = int(version) // 10000
        programs = find_postgresql()
        if programs is None or int(programs.parent.name) >= major:
            raise SkipTest(f"no pg_dump is older than PostgreSQL {major}: install Debian's postgresql")
        dsn = await self.create_database(migrated=False)
        with self.assertRaisesRegex(StartRefused, f"pg_dump failed: install postgresql-client-{major}: pg_dump must not be"):
            await run_program(reactor, "pg_dump", dsn, [], str(programs / "pg_dump"))
