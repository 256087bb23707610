"""Upgrades without a stop: the last release and this program on one database, which this program migrates meanwhile."""

from __future__ import annotations

import itertools
import json
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg2
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs

from svc.model import interrupts
from svc.model.errors import StartRefused
from svc.storage.driver import migrations
from svc.storage.driver.migration_heads import LOCKS, Lock
from svc.storage.driver.migrations import FIRST_RELEASE, Migration, forecast_migrations, load_migrations, migrate
from tests.integration.client import Api
from tests.integration.postgres import PostgresTestCase
from tests.integration.process import DATA_KEY, ServerTestCase, beat
from tests.integration.stores import database_of
from tests.integration.test_cli import CommandTestCase

reactor: Any = installed_reactor

#: The last release: its source, as ``git archive`` writes it, and every statement that it prepares.
RELEASED: Final = Path(__file__).parent / "released"
RELEASE: Final = RELEASED / f"svc_of_schema_{FIRST_RELEASE}.tar.xz"
STATEMENTS: Final[dict[str, str]] = json.loads(
    (RELEASED / f"statements_of_schema_{FIRST_RELEASE}.json").read_text(encoding="utf-8")
)
#: Statements about time and the log, which may look alike for a moment: of what they return, only the columns are compared.
MOVING: Final = frozenset({"replication_beat", "state_position"})

#: What is there before the upgrade; some rows have ids that the statements below ask for.
ROWS: Final = """
    INSERT INTO accounts (account) VALUES ('acct');
    INSERT INTO roles (role_id) VALUES ('acct:user:admin'), ('acct:policy:root'), ('acct:group:all');
    INSERT INTO roles (role_id, policy_id)
        VALUES ('acct:host:one', 'acct:policy:root'), ('acct:host:two', 'acct:policy:root');
    INSERT INTO resources (resource_id, owner_id, policy_id) VALUES
        ('acct:policy:root', 'acct:user:admin', NULL), ('acct:host:one', 'acct:policy:root', 'acct:policy:root'),
        ('acct:variable:v', 'acct:policy:root', 'acct:policy:root');
    INSERT INTO memberships (role_id, member_id, ownership, admin_option, policy_id) VALUES
        ('acct:group:all', 'acct:host:one', false, true, 'acct:policy:root'),
        ('acct:policy:root', 'acct:user:admin', true, true, NULL);
    INSERT INTO permissions (resource_id, privilege, role_id, policy_id) VALUES
        ('acct:variable:v', 'execute', 'acct:host:one', 'acct:policy:root'),
        ('acct:host:one', 'read', 'acct:host:one', NULL);
    INSERT INTO annotations (resource_id, name, value) VALUES ('acct:host:one', 'acct:host:one', 'x');
    INSERT INTO credentials (role_id, api_key) VALUES ('acct:host:one', 'sealed');
    INSERT INTO secrets (resource_id, version, sealed) VALUES ('acct:variable:v', 1, 'one'), ('acct:host:one', 1, 'two');
    INSERT INTO signing_keys (key_id, account, sealed, created_at) VALUES ('k', 'acct', 'sealed', 1);
    INSERT INTO policy_versions (policy_id, version, text, sha256, loaded_by, client_ip)
        VALUES ('acct:policy:root', 1, '- !host one', 'x', 'acct:user:admin', '-');
    INSERT INTO canary (sealed) VALUES ('sealed');
"""

#: A value for a parameter of each type, by which most statements find or change something.
SAMPLES: Final = {
    "text": "'acct:host:one'",
    "text[]": "ARRAY['acct:host:one', 'acct:variable:v']",
    "integer": "1",
    "smallint": "1",
    "bigint": "1",
    "double precision": "1",
    "boolean": "true",
    "boolean[]": "ARRAY[true, false]",
    "integer[]": "ARRAY[1, 2]",
    "bigint[]": "ARRAY[1, 2]",
    "bytea": "'sealed'",
    "bytea[]": "ARRAY['sealed', 'other']::bytea[]",
    "jsonb": """'{"a": 1}'""",
    "timestamp with time zone": "'2024-01-01'",
}

#: Tables that were there, locked by the session that asks.
HELD: Final = """
    SELECT relname, lower(regexp_replace(regexp_replace(mode, 'Lock$', ''), '([a-z])([A-Z])', '\\1 \\2', 'g'))
    FROM pg_locks JOIN pg_class ON pg_class.oid = relation
    WHERE pid = pg_backend_pid() AND relkind = 'r' AND relnamespace = 'public'::regnamespace AND relname = ANY (%s)
"""
FILES: Final = "SELECT relname, relfilenode FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
#: Not in it: the 200 rows that keep a table from being empty, which are as many whatever the size of the table.
WRITTEN: Final = (
    "SELECT relname, CASE WHEN n_tup_ins > 200 THEN n_tup_ins ELSE 0 END + n_tup_upd + n_tup_del"
    " FROM pg_stat_xact_user_tables"
)


@contextmanager
def session(dsn: str, *, autocommit: bool = True) -> Iterator[Any]:
    """Yield a cursor of a session of one's own."""
    with closing(psycopg2.connect(dsn, connect_timeout=10)) as connection:
        connection.autocommit = autocommit
        yield connection.cursor()


def outcome(cursor: Any, name: str) -> tuple[object, ...]:
    """What comes of a recorded statement, which is rolled back: columns and rows, or the SQLSTATE."""
    cursor.execute(f"SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = '{name}'")
    ((types,),) = cursor.fetchall()
    parameters = f"({', '.join(SAMPLES[kind] for kind in types)})" if types else ""
    try:
        cursor.execute("BEGIN; SET LOCAL statement_timeout = '20s'")
        cursor.execute(f"EXECUTE {name}{parameters}")
        rows = cursor.fetchall() if cursor.description else []
        return [each.type_code for each in cursor.description or ()], cursor.rowcount, sorted(map(repr, rows))
    except psycopg2.Error as error:
        return (error.pgcode,)
    finally:
        cursor.execute("ROLLBACK")


class ReleasedStatementTests(PostgresTestCase):
    """The statements of the last release."""

    async def test_same_outcome(self) -> None:
        """Every statement of the last release, prepared before the upgrade, has the outcome after it that it had before
        (OPS-1).
        """
        dsn = await self.create_database(migrated=False)
        database = await self.open_database(dsn, pool_size=1)
        await migrate(database, load_migrations()[:FIRST_RELEASE])
        self.server.command(ROWS, database_of(dsn))
        with session(dsn) as cursor:
            for name, sql in STATEMENTS.items():
                cursor.execute(f"PREPARE {name} AS {sql}")
            before = {name: outcome(cursor, name) for name in STATEMENTS}
            again = {name: outcome(cursor, name) for name in STATEMENTS}
            self.assertEqual(await migrate(database), len(load_migrations()))
            after = {name: outcome(cursor, name) for name in STATEMENTS}
        steady = {name for name in STATEMENTS if before[name] == again[name]}
        changing = {name: (len(before[name]), before[name][:2]) for name in STATEMENTS.keys() - steady - MOVING}
        found = {name: (before[name], after[name]) for name in steady - MOVING if before[name] != after[name]}
        self.assertEqual(found, {})
        self.assertEqual([before[name][0] for name in MOVING], [after[name][0] for name in MOVING])
        # What depends on time or on numbers that PostgreSQL gives has the same form.
        self.assertEqual(changing, {name: (len(after[name]), after[name][:2]) for name in changing})
        worked = [name for name in STATEMENTS if len(before[name]) > 1]
        self.assertGreater(len(worked), 0.8 * len(STATEMENTS), sorted(STATEMENTS.keys() - set(worked)))


class HeadTests(PostgresTestCase):
    """What migrations say of themselves, and what PostgreSQL does."""

    async def test_locks(self) -> None:
        """Each migration locks exactly the tables that its head names, in these modes, and rewrites or writes no others
        than it says (OPS-3).
        """
        dsn = await self.create_database(migrated=False)
        for migration in load_migrations():
            with session(dsn, autocommit=False) as cursor:
                cursor.execute(FILES)
                before = dict(cursor.fetchall())
                cursor.execute(migration.sql)
                cursor.execute(HELD, (list(before),))
                held = {(table, mode) for table, mode in cursor.fetchall() if mode in LOCKS}
                cursor.execute(FILES)
                after = dict(cursor.fetchall())
                cursor.execute(WRITTEN)
                written = {table for table, count in cursor.fetchall() if count}
                cursor.connection.commit()
                if migration.version > FIRST_RELEASE:
                    told = {(lock.table, lock.mode) for lock in migration.head.locks}
                    strongest = {table: max((m for t, m in held if t == table), key=list(LOCKS).index) for table, _ in held}
                    self.assertEqual(told, set(strongest.items()), migration.name)
                    changed = {t for t in before if after.get(t) != before[t]} | (written & before.keys())
                    writes = {lock.table for lock in migration.head.locks if lock.work == "writes all"}
                    self.assertEqual(writes, changed & strongest.keys(), migration.name)


class WaitingTests(PostgresTestCase):
    """A migration that can't have its locks at once."""

    steps = (
        Migration(1, "0001_notes.sql", "CREATE TABLE notes (id bigint); INSERT INTO notes VALUES (1)"),
        Migration(
            2, "0002_more.sql", "-- expand\n-- locks notes: access exclusive, at once\nALTER TABLE notes ADD more bigint"
        ),
    )

    async def prepare(self) -> None:
        """Make a database at the first step."""
        await super().prepare()
        self.dsn = await self.create_database(migrated=False)
        self.database = await self.open_database(self.dsn)
        await migrate(self.database, self.steps[:1])

    async def test_nobody_queues(self) -> None:
        """While a long transaction keeps a migration from its lock, others read and write the table; when it ends, the
        migration is made (OPS-3).
        """
        with session(self.dsn, autocommit=False) as long, session(self.dsn) as others, capturedLogs() as events:
            long.execute("SELECT * FROM notes")
            migrating = Deferred.fromCoroutine(migrate(self.database, self.steps))
            while not any("others have locked" in event["log_format"] for event in events):
                await beat()
            others.execute("SET statement_timeout = '10s'")
            for number in range(5):
                others.execute("INSERT INTO notes (id) VALUES (%s)", (number,))
                others.execute("SELECT count(*) FROM notes")
                await beat()
            self.assertFalse(migrating.called)
            (step,) = (await forecast_migrations(self.database, self.steps)).steps
            (locked,) = step.locked
            self.assertEqual(locked.lock, Lock("notes", "access exclusive", "at once"))
            self.assertGreater(locked.size, 0)
            long.connection.rollback()
            self.assertEqual(await migrating, 2)

    async def test_given_up(self) -> None:
        """A migration that doesn't get its locks in time is given up with a sentence that names who has them; nothing of it
        stays, and it can be tried again (OPS-3).
        """
        self.patch(migrations, "LOCK_ATTEMPTS", 2)
        self.patch(migrations, "LOCK_PAUSE", 0.01)
        with session(f"{self.dsn} application_name=dump", autocommit=False) as long:
            long.execute("SELECT * FROM notes")
            process = long.connection.info.backend_pid
            with self.assertRaisesRegex(
                StartRefused, rf"0002_more.*process {process} \(dump\), for .*end long transactions"
            ):
                await migrate(self.database, self.steps)
        self.assertEqual(await migrate(self.database, self.steps), 2)


class CommandTests(CommandTestCase, PostgresTestCase):
    """``svc migrate``, by hand."""

    async def test_check(self) -> None:
        """--check says what will be done, what it locks, and who is in the way, and changes nothing; without it, it is done
        (OPS-4).
        """
        dsn = await self.create_database(migrated=False)
        database = await self.open_database(dsn, pool_size=1)
        await migrate(database, load_migrations()[:FIRST_RELEASE])
        environ = {"SERVICE_DATABASE_URL": dsn, "SERVICE_DATA_KEY": DATA_KEY}
        said = f"at version {FIRST_RELEASE}, and this program brings it to {len(load_migrations())}"
        with session(f"{dsn} application_name=dump", autocommit=False) as long:
            long.execute("SELECT pg_sleep(1.1) FROM heartbeat")
            told = (await self.svc("migrate", "--check", environ=environ)).stdout
            process = long.connection.info.backend_pid
        for expected in (
            said,
            "0011_timeline.sql (expands: programs of before go on)",
            "reads and writes wait: heartbeat (",
            "writes wait: accounts (",
            f"its tables are in use: process {process} (dump), for ",
            "The work takes about a moment",
        ):
            self.assertIn(expected, told)
        self.assertEqual((await forecast_migrations(database)).state.version, FIRST_RELEASE)
        self.assertIn("up to date", (await self.svc("migrate", environ=environ)).stdout)
        told = (await self.svc("migrate", "--check", environ=environ)).stdout
        self.assertIn(f"at version {len(load_migrations())}, as this program needs it: nothing is to be done", told)
        newer = f"INSERT INTO schema_steps (version, name, sha256, needs) VALUES ({len(load_migrations()) + 1}, 'x', 'x', 0)"
        self.server.command(newer, database_of(dsn))
        self.assertIn("which this program works with", (await self.svc("migrate", "--check", environ=environ)).stdout)
        self.server.command(
            f"UPDATE schema_steps SET needs = {len(load_migrations()) + 1} WHERE name = 'x'", database_of(dsn)
        )
        refused = await self.svc("migrate", "--check", environ=environ, code=1)
        self.assertIn("can't work with version", refused.stderr)


class ProgramTests(PostgresTestCase, ServerTestCase):
    """The last release itself, beside this program."""

    timeout = 240

    def released(self) -> Path:
        """Return a directory with the source of the last release."""
        place = Path(self.mktemp()).resolve()
        place.mkdir(parents=True)
        with tarfile.open(RELEASE) as files:
            # Python 3.11.2, which Debian 12 has, knows no filters.
            files.extraction_filter = getattr(tarfile, "data_filter", None)
            files.extractall(place)
        # The plugin that Twisted finds first may be the installed one of today, which imports this module.
        shutil.copy(Path(interrupts.__file__), place / "svc" / "model")
        return place

    async def work(self, api: Api, token: str) -> int:
        """Write and read until the newer program has started, and return how often; every answer must be a success."""
        for number in itertools.count():
            written = await api.ask("POST", api.variable("one"), b"%d" % number, token)
            read = await api.ask("GET", api.variable("one"), None, token)
            self.assertEqual((written.status, read.status, read.body), (201, 200, b"%d" % number))
            if self.upgraded:
                return number
        raise AssertionError

    async def test_side_by_side(self) -> None:
        """While a newer program is started on its database, a server of the last release writes and reads on; it can be
        started again, and each of the two reads what the other writes (OPS-1).
        """
        older = {"PYTHONPATH": str(self.released()), "PYTHONDONTWRITEBYTECODE": "1"}
        url = await self.create_database(migrated=False)
        before = self.serve("--account", "acme", database_url=url, environ=older)
        first = Api.of(self, await before.ready())
        token = await first.authenticate("admin", before.admin_key())
        loaded = await first.ask("POST", "/policies/acme/policy/root", b"- !variable one\n", token)
        self.assertEqual(loaded.status, 201, loaded)
        self.upgraded = False
        working = Deferred.fromCoroutine(self.work(first, token))
        newer = Api.of(self, await self.serve(database_url=url).ready())
        self.upgraded = True
        self.assertGreater(await working, 0)
        applied = self.server.command("SELECT max(version) FROM schema_steps", database_of(url))
        self.assertEqual(applied, [(len(load_migrations()),)])
        again = Api.of(self, await self.serve(database_url=url, environ=older).ready())
        one = first.variable("one")
        for number, each in enumerate((first, again)):
            token = await each.authenticate("admin", before.admin_key())
            for writer, reader in ((newer, each), (each, newer)):
                value = b"%d of %s" % (number, writer.url.encode())
                self.assertEqual((await writer.ask("POST", one, value, token)).status, 201)
                while (await reader.ask("GET", one, None, token)).body != value:
                    await beat()
            more = await each.ask("POST", "/policies/acme/policy/root", b"- !variable more%d\n" % number, token)
            self.assertEqual(more.status, 201, more)
