"""``svc follower create`` and ``remove``, between a PostgreSQL that runs and one that is made."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import svc
from tests.integration.postgres import PATIENCE, PostgresTestCase, Server, program
from tests.integration.process import beat
from tests.integration.replication import SETTINGS

STANDBYS = "SELECT application_name, state FROM pg_stat_replication"
SLOTS = "SELECT slot_name::text, active FROM pg_replication_slots"


def follower(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command, which has PostgreSQL's programs of the tests before those of the machine."""
    environ = {
        "PATH": f"{Path(program('pg_basebackup')).parent}:{os.defpath}",
        "PYTHONPATH": str(Path(svc.__file__).resolve().parent.parent),
        "LANG": "C.UTF-8",
        "HOME": "/nonexistent",
    }
    command = [sys.executable, "-m", "svc", "follower", *arguments]
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environ, timeout=PATIENCE, check=False
    )


class Follower(Server):
    """A PostgreSQL whose data the command makes, as the standby ``two`` of a primary."""

    def _copy(self, origin: Server) -> None:
        self.data = self._data
        self.data.mkdir()
        if self._account:
            os.chown(self.data, self._account.pw_uid, self._account.pw_gid)
        self.made = follower("create", "two", "--pgdata", str(self.data), "--from", origin_dsn(origin))


def origin_dsn(origin: Server) -> str:
    """How to reach a server as a role that may replicate, and nothing else."""
    return f"host={origin.directory} user=replicator"


class FollowerCommandTests(PostgresTestCase):
    """A primary of the test's own."""

    async def prepare(self) -> None:
        """Start it, with a table."""
        self.primary = Server(settings=SETTINGS)
        self.addCleanup(self.primary.destroy)
        await self.primary.start()
        self.primary.command("CREATE ROLE replicator LOGIN REPLICATION")
        self.primary.command("CREATE TABLE notes AS SELECT 1 AS id")

    async def until(self, server: Server, sql: str, wanted: Sequence[tuple[object, ...]]) -> None:
        """Wait until a statement has this result."""
        for _ in range(int(PATIENCE / 0.05)):
            if server.command(sql) == wanted:
                return
            await beat()
        self.assertEqual(server.command(sql), wanted)

    def refused(self, sentence: str, *arguments: str) -> None:
        """Run a command that is refused with a sentence."""
        ended = follower(*arguments)
        self.assertEqual(ended.returncode, 1, ended)
        self.assertNotIn("Traceback", ended.stderr)
        self.assertRegex(ended.stderr, sentence)

    async def test_comes_and_goes(self) -> None:
        """A new follower is made in one command, streams by a slot of its name, and misses nothing while it is away; when it
        is removed its slot is dropped. Each command may be repeated (OPS-8, OPS-9).
        """
        origin = origin_dsn(self.primary)
        made = Follower(origin=self.primary, settings=SETTINGS)
        self.addCleanup(made.destroy)
        self.assertEqual(made.made.returncode, 0, made.made)
        self.assertIn("new slot two", made.made.stderr)
        self.assertIn("Start PostgreSQL", made.made.stdout)
        self.assertEqual(self.primary.command(SLOTS), [("two", False)])
        self.primary.command("INSERT INTO notes VALUES (2)")
        await made.start()
        await self.until(self.primary, STANDBYS, [("two", "streaming")])
        await self.until(made, "SELECT count(*) FROM notes", [(2,)])
        self.assertEqual(made.command("SELECT pg_is_in_recovery()"), [(True,)])

        self.refused("isn't empty", "create", "two", "--pgdata", str(made.data), "--from", origin)
        other = made.directory / "other"
        other.mkdir()
        os.chown(other, made.data.stat().st_uid, made.data.stat().st_gid)
        self.refused("is a standby: name the primary", "create", "three", "--pgdata", str(other), "--from", origin_dsn(made))
        self.refused("two is connected: stop its PostgreSQL", "remove", "two", "--from", origin)
        self.assertEqual(self.primary.command(SLOTS), [("two", True)])

        await made.stop()
        self.primary.command("ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (one, two)'")
        self.primary.command("SELECT pg_reload_conf()")
        await self.until(self.primary, "SHOW synchronous_standby_names", [("ANY 1 (one, two)",)])
        self.refused("synchronous_standby_names of the primary has two", "remove", "two", "--from", origin)
        self.assertEqual(self.primary.command(SLOTS), [])
        self.primary.command("ALTER SYSTEM RESET synchronous_standby_names")
        self.primary.command("SELECT pg_reload_conf()")
        await self.until(self.primary, "SHOW synchronous_standby_names", [("",)])
        again = follower("remove", "two", "--from", origin)
        self.assertEqual((again.returncode, again.stdout), (0, "The primary has no slot two.\n"), again)

    async def test_refusals(self) -> None:
        """What can't be copied is refused with a sentence, and leaves the directory empty, so that the command can be tried
        again (OPS-8).
        """
        directory = self.primary.directory / "new"
        directory.mkdir()
        os.chown(directory, self.primary.directory.stat().st_uid, self.primary.directory.stat().st_gid)
        self.primary.command("CREATE ROLE plain LOGIN")
        origin, plain = origin_dsn(self.primary), f"host={self.primary.directory} user=plain"
        for sentence, name, dsn in (
            ("the primary can't be reached: .*", "two", "host=/nonexistent user=replicator"),
            ("the primary refuses: .*permission denied to start WAL sender", "two", plain),
            ("NAME must be 1 to 63", "Two", origin),
            ("--from is neither", "two", "no dsn"),
        ):
            self.refused(sentence, "create", name, "--pgdata", str(directory), "--from", dsn)
        self.primary.command("ALTER SYSTEM SET max_wal_senders = 1")  # a copy takes two connections
        await self.primary.stop()
        await self.primary.start()
        self.refused("pg_basebackup failed: .*", "create", "two", "--pgdata", str(directory), "--from", origin)
        self.assertEqual(list(directory.iterdir()), [])
        self.assertEqual(self.primary.command(SLOTS), [("two", False)])
        self.primary.command("ALTER SYSTEM RESET max_wal_senders")
        await self.primary.stop()
        await self.primary.start()
        again = follower("create", "two", "--pgdata", str(directory), "--from", origin)
        self.assertEqual(again.returncode, 0, again)
        self.assertIn("had a slot two", again.stderr)
        if os.geteuid() == 0:
            self.refused("doesn't run as root", "create", "two", "--pgdata", f"{directory}-none", "--from", origin)
