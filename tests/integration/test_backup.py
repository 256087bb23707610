"""Backups as operators make and try them: commands as processes, beside a server on the embedded PostgreSQL or another."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet import reactor as installed_reactor
from twisted.internet.task import deferLater

from svc.crypto.vault import new_data_key
from svc.model.databases import VerifiedBackup
from svc.storage.database_state import DatabaseState
from svc.storage.dumps import known_objects, read_contents
from tests.integration.client import Api
from tests.integration.postgres import PostgresTestCase, program
from tests.integration.process import DATA_KEY
from tests.integration.stores import statements
from tests.integration.test_cli import CommandTestCase

reactor: Any = installed_reactor

#: Columns of bytes that hold nothing sealed, and why; every other is read by ``svc backup verify``.
NOT_SEALED = {
    ("canary", "sealed"): "looked at by itself",
    ("host_factory_tokens", "digest"): "a digest",
    ("kept_answers", "request"): "a digest",
    ("sessions", "token"): "a keyed hash",
    ("sessions", "used"): "a keyed hash",
    ("sessions", "seed"): "random bytes",
}

#: Those that are read.
SEALED = {
    ("secrets", "sealed"),
    ("deleted_values", "sealed"),
    ("expirations", "candidate"),
    ("credentials", "api_key"),
    ("credentials", "password"),
    ("signing_keys", "sealed"),
    ("audit_keys", "sealed"),
    ("kept_answers", "sealed"),
}


class BackupTests(CommandTestCase, PostgresTestCase):
    """One server, with secrets, and what becomes of its backups."""

    async def prepare(self) -> None:
        """Start it, with a password, and two secrets, of which one has two versions."""
        await super().prepare()
        self.dsn = await self.create_database(migrated=False)
        server = self.serve("--account=acme", database_url=self.dsn)
        api = Api.of(self, await server.ready())
        self.api_key = server.admin_key()
        admin = await api.authenticate("admin", self.api_key)
        policy = b"- !user alice\n- !variable first\n- !variable second\n"
        loaded = await api.ask("POST", "/policies/acme/policy/root", policy, admin)
        self.assertEqual(loaded.status, 201, loaded)
        for name, value in (("first", b"hunter2"), ("first", b"hunter3"), ("second", b"s3cret")):
            self.assertEqual((await api.ask("POST", api.variable(name), value, admin)).status, 201)
        proof = "Basic " + base64.b64encode(f"admin:{self.api_key}".encode()).decode("ascii")
        changed = await api.ask("PUT", "/authn/acme/password", b"My-Password-1", Authorization=proof)
        self.assertEqual(changed.status, 204, changed)
        self.dump = Path(self.mktemp()).resolve()

    async def create(self) -> None:
        """Make a backup; the command printed to try it has the options that lead to the data key (DATA-19)."""
        key = self.dump.with_name("data key")
        key.write_text(DATA_KEY)
        key.chmod(0o600)
        option = f"--data-key-file={key}"
        made = await self.svc("backup", "create", option, str(self.dump), environ={"SERVICE_DATABASE_URL": self.dsn})
        self.assertTrue(made.stdout.endswith(f"Try it with: svc backup verify --data-key-file '{key}' {self.dump}\n"), made)
        self.assertEqual(self.dump.stat().st_mode & 0o777, 0o600)

    async def verify(self, *options: str, code: int = 0, data_key: str | None = DATA_KEY) -> Any:
        """Try it; nothing of it remains."""
        scratch = Path(tempfile.mkdtemp(prefix="svc-test-", dir="/tmp"))  # sockets have short paths
        self.addCleanup(shutil.rmtree, scratch)
        scratch.chmod(0o755)  # PostgreSQL runs as another user than root, and may need copies of its programs there
        # A server that runs as this user may have its data key where servers keep it.
        given = {"TMPDIR": str(scratch), "SERVICE_DATA_DIR": str(scratch / "none")}
        given |= {"SERVICE_DATA_KEY": data_key} if data_key else {}
        outcome = await self.svc("backup", "verify", str(self.dump), *options, environ=given, code=code)
        self.assertEqual(list(scratch.iterdir()), [])
        for secret in (b"hunter2", b"hunter3", b"s3cret", b"My-Password-1", self.api_key.encode()):
            self.assertNotIn(secret.decode(), outcome.stdout + outcome.stderr)
        return outcome

    async def test_backup(self) -> None:
        """A backup verifies: all is counted, none is shown; damaged, cut off or with another key, it fails and says why
        (DATA-19, DATA-20).
        """
        await self.create()
        good = await self.verify()
        self.assertRegex(good.stdout, r"Schema: version [0-9]+\.\n")
        self.assertIn(
            "Opened: secrets: 3, API keys: 2, passwords: 1, signing keys: 1, audit keys: 1, kept answers: 0\n", good.stdout
        )
        self.assertIn("The backup can be restored, and all of it opens.", good.stdout)
        again = await self.svc(
            "backup",
            "create",
            str(self.dump),
            environ={"SERVICE_DATABASE_URL": self.dsn, "SERVICE_DATA_KEY": DATA_KEY},
            code=1,
        )
        self.assertIn("exists: name a new file", again.stderr)
        other = await self.verify(code=1, data_key=new_data_key())
        self.assertIn("the data key is not the one under which the backup was sealed", other.stderr)
        missing = await self.verify(code=1, data_key=None)
        self.assertIn("there is no data key", missing.stderr)
        whole = self.dump.read_bytes()
        self.dump.write_bytes(whole[: len(whole) // 2])
        self.assertIn("pg_restore failed", (await self.verify(code=1)).stderr)
        self.dump.write_bytes(b"SELECT 1;\n")
        self.assertIn("is no dump in PostgreSQL's custom format", (await self.verify(code=1)).stderr)
        self.dump.unlink()
        self.assertIn("can't be read", (await self.verify(code=1)).stderr)

    async def test_partial(self) -> None:
        """A backup gets its name when it is complete: one that a signal ends leaves nothing, and one that was killed a
        partial file, which the next replaces by a new one (DATA-60), after the pg_dump of the killed one has ended
        (DATA-61).
        """
        given = {"SERVICE_DATABASE_URL": self.dsn, "SERVICE_DATA_KEY": DATA_KEY}
        partial = self.dump.with_name(f"{self.dump.name}.partial")
        tools = Path(self.mktemp()).resolve()
        tools.mkdir()
        (tools / "pg_dump").write_text(f"#!/bin/sh\necho $$ > {tools}/pid\necho PGDMP\nexec sleep 60\n")
        (tools / "pg_dump").chmod(0o755)
        for number, left in ((signal.SIGTERM, False), (signal.SIGINT, False), (signal.SIGKILL, True)):
            command = self.start(
                "backup", "create", str(self.dump), environ={**given, "PATH": f"{tools}:{os.environ['PATH']}"}
            )
            while not partial.exists() or not partial.stat().st_size:
                await deferLater(reactor, 0.02)
            transport: Any = command.transport
            if number != signal.SIGKILL:
                await self.refused_writer(given, partial)
            os.kill(transport.pid, number)
            await command.ended
            self.assertEqual((self.dump.exists(), partial.exists()), (False, left))
        with partial.open("r+") as leftover:
            await self.refused_writer(given, partial)
            os.kill(int((tools / "pid").read_text()), signal.SIGKILL)
            partial.chmod(0o644)
            await self.create()
            self.assertEqual((self.dump.stat().st_mode & 0o777, partial.exists()), (0o600, False))
            self.assertNotEqual(self.dump.stat().st_ino, os.fstat(leftover.fileno()).st_ino)
        await self.verify()

    async def refused_writer(self, given: dict[str, str], partial: Path) -> None:
        """A command is refused while another process writes its partial file."""
        refused = await self.svc("backup", "create", str(self.dump), environ=given, code=1)
        self.assertIn(f"another process writes {partial}: wait for it", refused.stderr)

    async def test_replaced(self) -> None:
        """A backup whose partial file was replaced while it was written fails, and the replacement stays (DATA-61)."""
        given = {"SERVICE_DATABASE_URL": self.dsn, "SERVICE_DATA_KEY": DATA_KEY}
        partial = self.dump.with_name(f"{self.dump.name}.partial")
        tools = Path(self.mktemp()).resolve()
        tools.mkdir()
        (tools / "pg_dump").write_text(f"#!/bin/sh\nrm {partial}\necho notes > {partial}\necho PGDMP\n")
        (tools / "pg_dump").chmod(0o755)
        environ = {**given, "PATH": f"{tools}:{os.environ['PATH']}"}
        failed = await self.svc("backup", "create", str(self.dump), environ=environ, code=1)
        self.assertIn(f"{partial} was removed or replaced while it was written", failed.stderr)
        self.assertEqual((self.dump.exists(), partial.read_text()), (False, "notes\n"))

    async def test_obstacles(self) -> None:
        """Obstacles that no backup of this user has left are neither written to nor removed, and the message names them; so
        does the one on a name that is too long (DATA-61). A file without a name is refused in a sentence.
        """
        given = {"SERVICE_DATABASE_URL": self.dsn, "SERVICE_DATA_KEY": DATA_KEY}
        partial, notes = (self.dump.with_name(f"{self.dump.name}.{name}") for name in ("partial", "notes"))
        notes.write_text("notes\n")

        def make_file_of_another() -> None:
            partial.touch()
            os.chown(partial, 65534, 65534)

        obstacles: list[Callable[[], object]] = [
            partial.mkdir,
            lambda: os.mkfifo(partial),
            lambda: partial.symlink_to(notes),
            lambda: partial.hardlink_to(notes),
        ]
        for make in [*obstacles, make_file_of_another] if os.geteuid() == 0 else obstacles:
            make()
            before = partial.lstat()
            refused = await self.svc("backup", "create", str(self.dump), environ=given, code=1)
            self.assertIn(f"{partial} is not the file of an earlier backup by this user: remove it", refused.stderr)
            self.assertEqual((partial.lstat(), notes.read_text(), self.dump.exists()), (before, "notes\n", False))
            if partial.is_dir():
                partial.rmdir()
            else:
                partial.unlink()
        long = self.dump.with_name("x" * 250)
        for name, sentence in (("", ". exists: name a new file"), (str(long), f"{long}.partial can't be written")):
            refused = await self.svc("backup", "create", name, environ=given, code=1)
            self.assertIn(sentence, refused.stderr)

    async def test_damage(self) -> None:
        """Values that somebody has altered, or moved to another name, are told by their ids (DATA-19)."""
        name = self.dsn.rpartition("=")[2]
        self.server.command(
            "UPDATE secrets SET sealed = sealed || '\\x00' WHERE resource_id = 'acme:variable:first' AND version = 1;"
            "UPDATE credentials SET api_key = (SELECT sealed FROM secrets WHERE resource_id = 'acme:variable:second')"
            " WHERE role_id = 'acme:user:alice';"
            "UPDATE credentials SET password = api_key WHERE role_id = 'acme:user:admin';"
            "INSERT INTO expirations (resource_id, candidate)"
            " SELECT 'acme:variable:second', sealed FROM secrets WHERE resource_id = 'acme:variable:first' AND version = 2",
            name,
        )
        await self.create()
        outcome = await self.verify(code=1)
        self.assertIn("Does not open: acme:variable:first (version 1)\n", outcome.stderr)
        self.assertIn("Does not open: acme:variable:second (of an unfinished rotation)\n", outcome.stderr)
        self.assertIn("Does not open: API key of acme:user:alice\n", outcome.stderr)
        self.assertIn("Does not open: password of acme:user:admin\n", outcome.stderr)
        self.assertIn("4 of its values can't be opened", outcome.stderr)
        self.assertIn(
            "Opened: secrets: 2, API keys: 1, passwords: 0, signing keys: 1, audit keys: 1, kept answers: 0\n",
            outcome.stdout,
        )

    async def test_noted(self) -> None:
        """A backup that was found whole is noted in the database, where that is in reach, and the newest one stays
        (DATA-38).
        """
        await self.create()
        await self.verify()
        question = "SELECT file, size, beside FROM backups WHERE dumped_at > now() - interval '1 hour'"
        self.assertEqual(self.server.command(question, self.dsn.rpartition("=")[2]), [])
        await self.verify("--database-url", self.dsn)
        noted = [(str(self.dump), self.dump.stat().st_size, self.dump.stat().st_dev == Path("/tmp").stat().st_dev)]
        self.assertEqual(self.server.command(question, self.dsn.rpartition("=")[2]), noted)
        database = DatabaseState(await self.open_database(self.dsn))
        await database.record_verified_backup(VerifiedBackup(1000.0, 1, "/older.dump", None))
        verified = (await database.read_ages()).verified
        assert verified is not None
        self.assertEqual((verified.file, verified.beside), (noted[0][0], noted[0][2]))
        self.assertGreater(verified.dumped, 1_700_000_000)

    async def test_another_database(self) -> None:
        """A dump of something else is none of ours (DATA-20)."""
        self.dsn = await self.create_database(migrated=False)
        self.server.command("CREATE TABLE notes (id int)", self.dsn.rpartition("=")[2])
        subprocess.run([program("pg_dump"), "--format=custom", f"--file={self.dump}", f"--dbname={self.dsn}"], check=True)
        self.assertIn("it holds no database of this program", (await self.verify(code=1)).stderr)

    async def test_altered(self) -> None:
        """A backup with code that no migration makes is refused before it is run, or before a row is written, by ``verify``
        and by ``restore``, which leaves nothing (DATA-39).
        """
        into = await self.create_database(migrated=False)
        evil = "CREATE OR REPLACE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NULL; END$$;"
        trigger = "TRIGGER {} AFTER TRUNCATE ON roles FOR EACH STATEMENT EXECUTE FUNCTION {}()"
        for planted, restored, named in (
            (f"{evil.format('evil')} CREATE {trigger.format('evil', 'evil')}", False, "'FUNCTION public evil()'"),
            (
                "DROP FUNCTION evil CASCADE; CREATE RULE evil AS ON DELETE TO roles DO INSTEAD NOTHING",
                False,
                "'RULE public roles evil'",
            ),
            (f"DROP RULE evil ON roles; {evil.format('touch_account')}", True, "'FUNCTION touch_account'"),
        ):
            self.server.command(planted, self.dsn.rpartition("=")[2])
            await self.create()
            for outcome in (
                await self.verify(code=1),
                await self.svc(
                    "backup",
                    "restore",
                    str(self.dump),
                    environ={"SERVICE_DATABASE_URL": into, "SERVICE_DATA_KEY": DATA_KEY},
                    code=1,
                ),
            ):
                self.assertIn(f"it holds {named}", outcome.stderr)
                self.assertIn("which this program doesn't make: it was altered", outcome.stderr)
            self.assertEqual("Restoring the tables" in outcome.stderr, restored)
            self.assertEqual("Warning: The role of the database is a superuser" in outcome.stderr, restored)
            tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
            self.assertEqual(self.server.command(tables, into.rpartition("=")[2]), [(0,)])
            self.dump.unlink()

    async def test_objects(self) -> None:
        """The list of objects that a backup may hold is that of the objects which the migrations make (DATA-39)."""
        await self.create()
        entries = (await read_contents(reactor, self.dump, [], embedded=False)).entries
        found = {entry.rpartition(" ")[0].replace(" public ", " ", 1) for entry in entries}
        own = {f"{kind} {name}" for kind, name in known_objects()}
        self.assertEqual({entry for entry in found if not entry.startswith(("TABLE DATA ", "SEQUENCE SET "))}, own)

    async def test_everything_is_read(self) -> None:
        """Every column of bytes in the schema is opened by the trial, or is known to hold nothing sealed (DATA-19)."""
        columns = self.server.command(
            "SELECT table_name::text, column_name::text FROM information_schema.columns"
            " WHERE table_schema = 'public' AND data_type = 'bytea'",
            self.dsn.rpartition("=")[2],
        )
        self.assertEqual(set(columns) - NOT_SEALED.keys(), SEALED)
        read = " ".join(statement.sql for statement in statements() if statement.name.startswith("sealed_"))
        for table, column in SEALED:
            self.assertRegex(read, rf"\b{column} FROM {table}\b")
