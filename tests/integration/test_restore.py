"""Backups put back as operators do it: commands as processes, into data directories and databases, killed on the way."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final

from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

import svc
from svc.crypto.vault import new_data_key
from svc.model.errors import OutcomeUnknown, StartRefused, StoreUnavailable
from svc.storage.driver.migrations import load_migrations, migrate
from svc.storage.driver.statements import Statement
from svc.storage.restoring import RestoringStore, name_sessions
from tests.integration.client import Api
from tests.integration.postgres import PostgresTestCase, program
from tests.integration.process import DATA_KEY
from tests.integration.test_cli import CommandTestCase, Outcome

reactor: Any = installed_reactor

POLICY: Final = b"""
- !user alice
- !host job
- !variable first
- !variable
  id: database/password
  annotations:
    rotation/rotator: postgresql/password
    description: "\\u03a9"
- !layer jobs
- !host-factory
  id: factory
  layers: [ !layer jobs ]
"""

#: The source tree.
ROOT: Final = Path(__file__).resolve().parents[2]
#: The folder of the program that is tested.
PROGRAM: Final = str(Path(svc.__file__).parents[1])

#: A value that is in no output.
VALUE: Final = b"hunter2"


class RestoreCase(CommandTestCase, PostgresTestCase):
    """A server that is lost, with a backup of it."""

    async def prepare(self) -> None:
        """Make both, and a folder for new data directories, to which PostgreSQL's user may pass."""
        await super().prepare()
        self.scratch = Path(tempfile.mkdtemp(prefix="svc-test-", dir="/tmp"))
        self.addCleanup(shutil.rmtree, self.scratch)
        self.scratch.chmod(0o755)
        self.dsn = await self.create_origin()
        self.lost = self.serve("--account=acme", database_url=self.dsn)
        api = Api.of(self, await self.lost.ready())
        self.api_key = self.lost.admin_key()
        self.token = await api.authenticate("admin", self.api_key)
        loaded = await api.ask("POST", "/policies/acme/policy/root", POLICY, self.token)
        self.assertEqual(loaded.status, 201, loaded)
        for name in ("first", "database/password"):
            self.assertEqual((await api.ask("POST", api.variable(name), VALUE, self.token)).status, 201)
        self.dump, self.key_file = self.scratch / "svc.dump", self.scratch / "key"
        self.key_file.write_text(DATA_KEY)
        self.key_file.chmod(0o600)
        self.new = self.scratch / "new"
        await self.svc("backup", "create", str(self.dump), environ=self.at(self.dsn))

    async def create_origin(self) -> str:
        """Make the database of the server that is lost, and return its DSN."""
        return await self.create_database(migrated=False)

    def at(self, dsn: str) -> dict[str, str]:
        """The environment of a command on a database."""
        return {"SERVICE_DATABASE_URL": dsn, "SERVICE_DATA_KEY": DATA_KEY, "TMPDIR": str(self.scratch)}

    def name(self, dsn: str) -> str:
        """The name of a database."""
        return dsn.rpartition("=")[2]

    def into(self, target: str | Path) -> tuple[list[str], dict[str, str]]:
        """Arguments and environment of a restore."""
        if isinstance(target, Path):
            arguments = ["--data-dir", str(target), "--data-key-file", str(self.key_file)]
            return ["backup", "restore", *arguments, str(self.dump)], {"TMPDIR": str(self.scratch)}
        return ["backup", "restore", str(self.dump)], self.at(target)

    async def restore(self, target: str | Path, code: int = 0) -> Outcome:
        """Restore the backup."""
        arguments, environ = self.into(target)
        outcome = await self.svc(*arguments, environ=environ, code=code)
        for secret in (VALUE.decode(), self.api_key, DATA_KEY):
            self.assertNotIn(secret, outcome.stdout + outcome.stderr)
        return outcome

    async def works(self, **where: Any) -> Api:
        """Start a server on what was restored: the admin logs in and reads the value, and tokens of before are none."""
        server = self.serve(data_key=DATA_KEY, **where)
        api = Api.of(self, await server.ready())
        old = await api.ask("GET", api.variable("first"), token=self.token)
        self.assertEqual(old.status, 401, old)
        read = await api.ask("GET", api.variable("first"), token=await api.authenticate("admin", self.api_key))
        self.assertEqual((read.status, read.body), (200, VALUE))
        return api

    def tables(self, dsn: str) -> set[str]:
        """The names of a database's tables."""
        rows = self.server.command("SELECT tablename::text FROM pg_tables WHERE schemaname = 'public'", self.name(dsn))
        return {name for (name,) in rows}


class RestoreTests(RestoreCase):
    """Where backups are restored, and where they aren't."""

    async def test_new_directory(self) -> None:
        """A backup is restored into a new data directory, which has its key as after a first start, beside files that aren't
        the server's; what may have come back is listed, tokens of before have ended, and a server works there (DATA-35,
        DATA-36).
        """
        (self.new / "lost+found").mkdir(0o700, parents=True)
        (self.new / ".bash_history").touch()
        outcome = await self.restore(self.new)
        self.assertIn(
            "Opened: secrets: 2, API keys: 3, passwords: 0, signing keys: 1, audit keys: 1, kept answers: 0\n",
            outcome.stdout,
        )
        self.assertIn("There are: accounts: 1, roles: 6, resources: 8, values: 2\n", outcome.stdout)
        self.assertIn("of these 1 variables:\n    acme:variable:database/password\n", outcome.stdout)
        self.assertIn("host factory tokens that were revoked since, among 0", outcome.stdout)
        self.assertRegex(outcome.stdout, r"The backup is of [-0-9]+ [:0-9]+ UTC\. It can't know")
        key = self.new / "data-key"
        self.assertEqual((key.read_text(), key.stat().st_mode & 0o777), (f"{DATA_KEY}\n", 0o600))
        self.assertFalse((self.new / "restoring").exists())
        again = await self.restore(self.new, code=1)
        self.assertIn("it has cluster, data-key, postgres.log; a backup is restored into a new directory", again.stderr)
        await self.works(data_dir=self.new)

    async def test_empty_database(self) -> None:
        """A backup is restored into an empty database, from standard input too; one that isn't empty is refused, and keeps
        what it has (DATA-35).
        """
        dsn = await self.create_database(migrated=False)
        arguments, environ = self.into(dsn)
        await self.svc(*arguments[:-1], "-", environ=environ, given=self.dump.read_bytes())
        again = await self.restore(dsn, code=1)
        self.assertIn("the database isn't empty: it has the table public.", again.stderr)
        await self.works(database_url=dsn)
        other = await self.create_database(migrated=False)
        self.server.command("CREATE TABLE notes AS SELECT 7 AS number", self.name(other))
        refused = await self.restore(other, code=1)
        self.assertIn("isn't empty: it has the table public.notes;", refused.stderr)
        self.assertEqual(self.tables(other), {"notes"})

    async def test_checked_first(self) -> None:
        """A wrong data key, and a dump that is cut off or of something else, are refused before anything is made, or leave
        nothing (DATA-35).
        """
        dsn, whole = await self.create_database(migrated=False), self.dump.read_bytes()
        self.key_file.write_text(new_data_key())
        refused = await self.restore(self.new, code=1)
        self.assertIn("the data key is not the one under which the backup was sealed", refused.stderr)
        self.assertFalse(self.new.exists())
        self.key_file.write_text(DATA_KEY)
        self.dump.write_bytes(whole[: len(whole) * 9 // 10])
        for target in (self.new, dsn):
            await self.restore(target, code=1)
        self.dump.write_bytes(b"SELECT 1;\n")
        self.assertIn("is no dump in PostgreSQL's custom format", (await self.restore(dsn, code=1)).stderr)
        self.assertFalse(self.new.exists())
        self.assertEqual(self.tables(dsn), set())
        arguments, environ = self.into(self.new)
        none = [each for each in arguments if each not in {"--data-key-file", str(self.key_file)}]
        self.assertIn("there is no data key", (await self.svc(*none, environ=environ, code=1)).stderr)

    async def test_damaged(self) -> None:
        """A backup of which a value doesn't open is restored only if that is asked for (DATA-35)."""
        self.server.command(
            "UPDATE secrets SET sealed = sealed || '\\x00' WHERE resource_id = 'acme:variable:first'", self.name(self.dsn)
        )
        self.dump.unlink()
        await self.svc("backup", "create", str(self.dump), environ=self.at(self.dsn))
        refused = await self.restore(self.new, code=1)
        self.assertIn("1 of its values can't be opened: acme:variable:first (version 1)", refused.stderr)
        self.assertFalse(self.new.exists())
        arguments, environ = self.into(self.new)
        await self.svc(*arguments, "--damaged", environ=environ)
        self.assertTrue((self.new / "data-key").exists())

    async def test_older(self) -> None:
        """A backup of an older schema is brought up to this program's (DATA-35)."""
        older = await self.create_database(migrated=False)
        await migrate(await self.open_database(older), load_migrations()[:-1])
        canary = "\\x" + self.server.command("SELECT encode(sealed, 'hex') FROM canary", self.name(self.dsn))[0][0]
        self.server.command(f"INSERT INTO canary (sealed) VALUES ('{canary}')", self.name(older))
        self.dump.unlink()
        subprocess.run([program("pg_dump"), "--format=custom", f"--file={self.dump}", f"--dbname={older}"], check=True)
        outcome = await self.restore(self.new)
        self.assertIn(
            f"Schema: version {len(load_migrations()) - 1}; this program brought it to {len(load_migrations())}.",
            outcome.stdout,
        )


class SchemaTests(RestoreCase):
    """A server whose tables are in a schema of its own."""

    #: As SQL has it.
    SCHEMA: Final = '"Its Own"'

    async def create_origin(self) -> str:
        """Make a database with a schema, which its sessions use."""
        dsn = await super().create_origin()
        self.use(dsn, self.SCHEMA)
        return dsn

    def use(self, dsn: str, schema: str) -> None:
        """Make a schema, and have the sessions of the database use it."""
        name = self.name(dsn)
        self.server.command(f"CREATE SCHEMA {schema}; ALTER DATABASE {name} SET search_path = {schema}", name)

    def schemas(self, dsn: str) -> set[str]:
        """The names of the schemas in which a database has tables."""
        rows = self.server.command(
            "SELECT DISTINCT schemaname::text FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')",
            self.name(dsn),
        )
        return {name for (name,) in rows}

    async def test_restored(self) -> None:
        """A backup of tables in a schema of its own can be verified, and restored into a new data directory and into a
        database whose sessions use a schema of that name (DATA-57).
        """
        self.assertEqual(self.schemas(self.dsn), {"Its Own"})
        verified = await self.svc("backup", "verify", str(self.dump), environ=self.at(self.dsn))
        self.assertIn("The backup can be restored, and all of it opens.", verified.stdout)
        await self.restore(self.new)
        await self.works(data_dir=self.new)
        dsn = await self.create_database(migrated=False)
        self.use(dsn, self.SCHEMA)
        await self.restore(dsn)
        self.assertEqual(self.schemas(dsn), {"Its Own"})
        await self.works(database_url=dsn)

    async def test_elsewhere(self) -> None:
        """A restore into a database whose sessions use another schema, or none, is refused before anything is made, and
        names the commands after which it works (DATA-57).
        """
        dsn = await self.create_database(migrated=False)
        name = self.name(dsn)
        for search_path, led in (("public", "the schema public"), (self.SCHEMA, "no schema")):
            self.server.command(f"ALTER DATABASE {name} SET search_path = {search_path}", name)
            refused = (await self.restore(dsn, code=1)).stderr
            self.assertIn(f"in the schema Its Own, and the role's search_path leads to {led}: run `CREATE SCHEMA", refused)
            self.assertEqual(self.schemas(dsn), set())
        self.server.command(refused.partition("run `")[2].partition("`")[0], name)
        await self.restore(dsn)
        await self.works(database_url=dsn)
        # The other way round.
        await self.svc("backup", "create", str(self.scratch / "public.dump"), environ=self.at(await self.public()))
        self.dump = self.scratch / "public.dump"
        target = await self.create_database(migrated=False)
        self.use(target, "other")
        refused = (await self.restore(target, code=1)).stderr
        self.assertIn("in the schema public, and the role's search_path leads to the schema other: run `CREATE", refused)
        self.assertEqual(self.schemas(target), set())

    async def public(self) -> str:
        """Restore the backup, and return the DSN of its database, with the tables moved to ``public``."""
        dsn = await self.create_database(migrated=False)
        self.use(dsn, self.SCHEMA)
        await self.restore(dsn)
        name = self.name(dsn)
        self.server.command(
            f"DROP SCHEMA public; ALTER SCHEMA {self.SCHEMA} RENAME TO public; ALTER DATABASE {name} RESET search_path", name
        )
        return dsn


class SettingsTests(RestoreCase):
    """Databases whose settings change the text of dumps, or what PostgreSQL makes of it."""

    SETTINGS: Final = (
        "quote_all_identifiers = on",
        "bytea_output = escape",
        "client_encoding = LATIN1",
        "standard_conforming_strings = off",
        "DateStyle = 'SQL, DMY'",
        "IntervalStyle = sql_standard",
        "TimeZone = 'Asia/Kolkata'",
        "row_security = off",
        "statement_timeout = 1",
        "lock_timeout = 1",
    )

    async def create_origin(self) -> str:
        """Make a database with these settings."""
        dsn = await super().create_origin()
        name = self.name(dsn)
        self.server.command("; ".join(f"ALTER DATABASE {name} SET {setting}" for setting in self.SETTINGS), name)
        return dsn

    async def test_settings(self) -> None:
        """Whatever settings a database has, a backup of it can be verified, and restored (DATA-58)."""
        verified = await self.svc("backup", "verify", str(self.dump), environ=self.at(self.dsn))
        self.assertIn("The backup can be restored, and all of it opens.", verified.stdout)
        await self.restore(self.new)
        await self.works(data_dir=self.new)
        dsn = await self.create_origin()
        await self.restore(dsn)
        await self.works(database_url=dsn)
        described = "SELECT encode(convert_to(value, 'UTF8'), 'hex') FROM annotations WHERE name = 'description'"
        self.assertEqual(self.server.command(described, self.name(dsn)), [("cea9",)])


class ObjectTests(PostgresTestCase):
    """What a restore may have made is known by name."""

    async def test_all_are_named(self) -> None:
        """An abandoned restore drops all that migrations make, so that the database is empty again; what somebody else has
        made there isn't dropped (DATA-37).
        """
        dsn = await self.create_database(migrated=False)
        database = await self.open_database(dsn)
        store = RestoringStore(database)
        self.assertFalse(await store.begin_restore("public", [], load_migrations()))
        await migrate(database)
        self.assertTrue(await store.begin_restore("public", [], load_migrations()))
        await migrate(database)
        await store.abandon_restore()
        self.server.command("CREATE TABLE notes ()", dsn.rpartition("=")[2])
        await self.assertFailure(Deferred.fromCoroutine(store.begin_restore("public", [], load_migrations())), StartRefused)


class KilledTests(RestoreCase):
    """Restores that are killed, at moments all over their time."""

    async def killed(self, target: str | Path, seconds: float) -> bool:
        """Begin a restore, and kill it after so many seconds; return whether there has to be another one."""
        arguments, environ = self.into(target)
        command = self.start(*arguments, environ=environ)
        transport: Any = command.transport
        await deferLater(reactor, seconds)
        if transport.pid is None:
            outcome = await command.ended
            self.assertTrue(outcome.exit_code == 0 or "it has the" in outcome.stderr, outcome)
            return False
        os.kill(transport.pid, signal.SIGKILL)
        await command.ended
        return True

    async def kill_everywhere(self, target: str | Path) -> int:
        """Kill restores later and later, until one ends by itself, or is refused since the last one was complete."""
        count = 0
        while await self.killed(target, 0.1 * 1.5**count):
            count += 1
        return count

    async def test_directory(self) -> None:
        """A restore into a data directory can be run again after each kill, and no server starts in between (DATA-37)."""
        self.new.mkdir(0o755)
        count = await self.kill_everywhere(self.new)
        self.assertGreater(count, 2)
        self.assertEqual(
            sorted(path.name for path in self.new.iterdir() if path.name.startswith(("unfinished", "rest"))), []
        )
        await self.works(data_dir=self.new)

    async def test_database(self) -> None:
        """A restore into a database can be run again after each kill (DATA-37)."""
        dsn = await self.create_database(migrated=False)
        count = await self.kill_everywhere(dsn)
        self.assertGreater(count, 1)
        self.assertNotIn("svc_restoring", self.tables(dsn))
        await self.works(database_url=dsn)

    async def test_left_at_work(self) -> None:
        """A restore ends the sessions in which PostgreSQL still works for one that was killed; one that lives keeps others
        out, and isn't harmed (DATA-37).
        """
        dsn = await self.create_database(migrated=False)
        left = await self.open_database(name_sessions(dsn))
        alive = await self.open_database(name_sessions(dsn))
        working = Deferred.fromCoroutine(left.transact(lambda transaction: transaction.execute("SELECT pg_sleep(3600)")))

        async def restore_another() -> None:
            await self.assertFailure(working, StoreUnavailable, OutcomeUnknown)
            refused = await self.restore(dsn, code=1)
            self.assertIn("another restore into this database is at work: wait for it, or end it", refused.stderr)
            await alive.fetch(Statement("alive", "SELECT 1"))

        await RestoringStore(alive).run_locked(restore_another)
        await self.restore(dsn)

    async def test_lost_lock(self) -> None:
        """A restore that loses the session of its lock ends with a sentence, and one that begins meanwhile isn't harmed
        (DATA-62).
        """
        dsn = await self.create_database(migrated=False)
        first, second = [RestoringStore(await self.open_database(name_sessions(dsn))) for _ in range(2)]

        async def lose_lock() -> None:
            await first.begin_restore("public", [], load_migrations())
            self.server.command(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE starts_with(query, 'SELECT pg_try_advisory')"
                " AND datname = current_database()",
                self.name(dsn),
            )
            await Deferred()

        async def begin_another() -> None:
            self.assertTrue(await second.begin_restore("public", [], load_migrations()))
            await first.abandon_restore()
            with self.assertRaisesRegex(StartRefused, "another restore into this database has begun meanwhile"):
                await first.finish_restore()
            self.assertEqual(self.tables(dsn), {"svc_restoring"})
            await second.finish_restore()
            self.assertEqual(self.tables(dsn), set())

        with self.assertRaisesRegex(StartRefused, "the session that keeps other restores out was lost .*: run it again"):
            await first.run_locked(lose_lock)
        await second.run_locked(begin_another)

    async def test_interrupted(self) -> None:
        """A restore that a signal ends says that it is to be run again (DATA-37)."""
        dsn = await self.create_database(migrated=False)
        for target in (dsn, self.new):
            arguments, environ = self.into(target)
            command = self.start(*arguments, environ=environ)
            command.awaited_error = b"Restoring the tables" if target == dsn else b"Making a database"
            await command.on_error
            transport: Any = command.transport
            os.kill(transport.pid, signal.SIGTERM)
            outcome = await command.ended
            self.assertEqual(outcome.exit_code, 128 + signal.SIGTERM, outcome)
            self.assertIn("The restore was interrupted: run it again, which removes what this one has left.", outcome.stderr)

    async def test_another_program(self) -> None:
        """A table of another program that has the name of one of this program's, and came after a restore was killed, is in
        the way of the next restore, and is not dropped (DATA-37).
        """
        dsn = await self.create_database(migrated=False)
        database = await self.open_database(dsn)
        objects = [("TABLE", "public", "accounts"), ("TABLE", "public", "roles")]
        store = RestoringStore(database)
        await store.begin_restore("public", objects, load_migrations())
        self.server.command("CREATE TABLE accounts AS SELECT 7 AS number", self.name(dsn))
        self.assertIn("it has the table public.accounts;", (await self.restore(dsn, code=1)).stderr)
        await store.abandon_restore()
        self.assertEqual(self.tables(dsn), {"accounts"})
        self.server.command("DROP TABLE accounts", self.name(dsn))
        await self.restore(dsn)
        await self.works(database_url=dsn)

    async def test_missing(self) -> None:
        """A restore waits --database-wait for a database that doesn't exist, and ends with PostgreSQL's reason (LIM-21)."""
        environ = {**self.at(self.server.dsn("missing")), "SERVICE_DATABASE_WAIT": "2"}
        outcome = await self.svc("backup", "restore", str(self.dump), environ=environ, code=1)
        self.assertIn("the database was not there within 2 seconds: ", outcome.stderr)
        self.assertIn('database "missing" does not exist', outcome.stderr)

    async def test_without_rights(self) -> None:
        """A role that may not create tables in the database is refused with the sentence that it has to own it (DATA-35)."""
        dsn = await self.create_database(migrated=False)
        self.server.command("CREATE ROLE guest LOGIN")
        self.addCleanup(self.server.command, "DROP ROLE guest")
        database = await self.open_database(dsn.replace("user=svc", "user=guest"), pool_size=1)
        with self.assertRaises(StartRefused) as caught:
            await RestoringStore(database).begin_restore("public", [], load_migrations())
        self.assertIn("permission denied for schema public", caught.exception.message)
        self.assertIn("the database's role must own the database", caught.exception.message)

    async def test_marked(self) -> None:
        """No server starts on what a killed restore has left; a restore removes that, and nothing else (DATA-37)."""
        dsn = await self.create_database(migrated=False)
        await self.restore(dsn)
        self.server.command(
            "CREATE TABLE svc_restoring (kind text, place text, name text);"
            "INSERT INTO svc_restoring SELECT 'TABLE', schemaname, tablename FROM pg_tables"
            " WHERE schemaname = 'public' AND tablename <> 'svc_restoring';"
            "INSERT INTO svc_restoring SELECT 'VIEW', 'public', 'searchable';"
            "INSERT INTO svc_restoring SELECT 'SEQUENCE', 'public', 'key_refresh_numbers';"
            "INSERT INTO svc_restoring SELECT 'FUNCTION', 'public', proname FROM pg_proc"
            " WHERE pronamespace = 'public'::regnamespace;"
            "CREATE TABLE notes AS SELECT 7 AS number",
            self.name(dsn),
        )
        refused = await self.refused(self.serve(database_url=dsn))
        self.assertIn("a restore into this database has not ended: run `svc backup restore` again", refused)
        self.assertIn("it has the table public.notes;", (await self.restore(dsn, code=1)).stderr)
        self.assertIn("accounts", self.tables(dsn))  # nothing was dropped, since that would be in vain
        self.server.command("DROP TABLE notes", self.name(dsn))
        self.assertIn("What an earlier restore had left was removed.", (await self.restore(dsn)).stdout)
        await self.works(database_url=dsn)
        self.new.mkdir(0o755)
        (self.new / "restoring").touch()
        (self.new / "notes").touch()
        self.assertIn("has not ended: run `svc backup restore`", await self.refused(self.serve(data_dir=self.new)))
        await self.restore(self.new)
        self.assertTrue((self.new / "notes").exists())
        await self.works(data_dir=self.new)


class PageTests(RestoreCase):
    """The page on backups, followed word by word."""

    async def test_drill(self) -> None:
        """A machine is lost, and its server is restored with the page's commands alone (DATA-35)."""
        page = (ROOT / "docs" / "operations" / "backup.md").read_text(encoding="utf-8")
        drill = page.partition("### With the embedded database\n\n```sh\n")[2].partition("```")[0]
        copies, media, temporary = (self.scratch / name for name in ("copies", "key-copy", "tmp"))
        settings, units = self.scratch / "settings", self.scratch / "units"
        for folder in (copies, copies / "etc-svc", media, temporary):
            folder.mkdir()
        (copies / "etc-svc" / "svc.toml").write_text("# as before\n")
        shutil.move(self.dump, copies / "svc.dump")
        shutil.move(self.key_file, media / "data-key")
        await self.lost.kill()
        # The program is that of the sources, the user that of the tests, and systemd isn't there.
        kept = [line for line in drill.splitlines() if not line.startswith(("python3 -m venv", "useradd", "systemctl"))]
        self.assertEqual(len(drill.splitlines()) - len(kept), 3)
        script = "\n".join(kept)
        for words, others in (
            ("runuser -u svc -- /opt/svc/bin/svc", f"{sys.executable} -m svc"),
            (" -o svc", ""),
            (" -g svc", ""),
            (" -o root", ""),
            ("/etc/svc", str(settings)),
            ("/etc/systemd/system", str(units)),
            ("/media/key", str(media)),
            ("/mnt/copies", str(copies)),
            ("/var/tmp", str(temporary)),
            ("/var/lib/svc", str(self.new)),
        ):
            self.assertIn(words, script)
            script = script.replace(words, others)
        environ = {"PATH": os.environ["PATH"], "PYTHONPATH": PROGRAM, "TMPDIR": str(self.scratch)}
        command = ["/bin/sh", "-euc", script]
        done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual((settings / "svc.toml").read_text(), "# as before\n")
        self.assertIn("/etc/svc/svc.toml", (units / "svc.service").read_text())
        self.assertIn("these may have come back", done.stdout)
        self.assertEqual(list(temporary.glob("data-key")), [])
        await self.works(data_dir=self.new)

    async def test_kept(self) -> None:
        """The timer's script makes, verifies and hands on a backup, and keeps seven daily and four weekly ones; one that
        can't be restored removes none.
        """
        script = str(ROOT / "etc" / "systemd" / "svc-backup.sh")
        kept, sent = self.scratch / "kept", self.scratch / "sent"
        kept.mkdir()
        sent.mkdir()
        command = self.scratch / "svc"
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m svc "$@"\n')
        command.chmod(0o755)
        environ = {**self.at(self.dsn), "PATH": os.environ["PATH"], "PYTHONPATH": PROGRAM, "SVC": str(command)}
        environ |= {"BACKUP_DIR": str(kept), "BACKUP_SEND": f"cp -t {sent}"}

        def run(day: date) -> subprocess.CompletedProcess[str]:
            given = {**environ, "BACKUP_DATE": day.isoformat()}
            return subprocess.run(["/bin/sh", script], env=given, capture_output=True, text=True, check=False)

        first = date(2026, 11, 1)  # a Sunday
        days = [first + timedelta(days=number) for number in range(40)]
        for day in days[:-2]:
            (kept / f"daily-{day}.dump").touch()
            if day.isoweekday() == 7:
                (kept / f"weekly-{day}.dump").touch()
        (kept / "notes").touch()
        for day in days[-2:]:
            done = run(day)
            self.assertEqual(done.returncode, 0, done)
        sundays = [day for day in days if day.isoweekday() == 7]
        names = [f"daily-{day}.dump" for day in days[-7:]] + [f"weekly-{day}.dump" for day in sundays[-4:]]
        self.assertEqual(sorted(os.listdir(kept)), sorted([*names, "notes"]))
        self.assertEqual(sorted(os.listdir(sent)), [f"daily-{day}.dump" for day in days[-2:]])
        self.assertEqual((sent / f"daily-{days[-1]}.dump").stat().st_mode & 0o077, 0)
        ages = self.server.command("SELECT file, dumped_at IS NOT NULL, beside FROM backups", self.name(self.dsn))
        self.assertEqual(ages, [(str(kept / f"daily-{days[-1]}.dump"), True, True)])
        self.server.command("UPDATE credentials SET api_key = api_key || '\\x00'", self.name(self.dsn))
        before = set(os.listdir(kept))
        failed = run(days[-1] + timedelta(days=1))
        self.assertEqual(failed.returncode, 1, failed)
        self.assertEqual(set(os.listdir(kept)) - before, {f"damaged-{days[-1] + timedelta(days=1)}.dump"})
        self.assertEqual(before - set(os.listdir(kept)), set())
