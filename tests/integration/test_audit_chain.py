"""The chain of a server's records, through deaths, rotations of its file, and restarts; verified by the commands."""

from __future__ import annotations

import gzip
import os
import signal
from pathlib import Path

from twisted.internet.threads import deferToThread

from tests.integration.client import Api
from tests.integration.postgres import PostgresTestCase, unavailable
from tests.integration.process import DATA_KEY, ServerProcess, beat
from tests.integration.test_cli import CommandTestCase, Outcome
from tests.integration.test_processes import Load

#: How often a process is killed, and the file moved away, under load.
TIMES = 5


class ChainTests(PostgresTestCase, CommandTestCase):
    """A server of two processes that serve, with an audit file."""

    skip = unavailable()
    timeout = 240

    async def prepare(self) -> None:
        """Make a database, and places for the files."""
        await super().prepare()
        self.dsn = await self.create_database(migrated=False)
        self.folder = Path(self.mktemp()).resolve()
        self.folder.mkdir()
        self.audit = self.folder / "audit.log"

    async def begin(self, name: str = "data", processes: int = 2) -> ServerProcess:
        """Start the server; it has the data directory of that name."""
        server = self.serve(
            "--account=acme",
            f"--processes={processes}",
            f"--audit-file={self.audit}",
            database_url=self.dsn,
            data_dir=self.folder / name,
        )
        self.url = await server.ready()
        self.api = Api.of(self, self.url)
        return server

    async def verify(self, *arguments: str | Path, code: int = 0) -> Outcome:
        """Verify files by the command."""
        environ = {"SERVICE_DATABASE_URL": self.dsn, "SERVICE_DATA_KEY": DATA_KEY}
        return await self.svc("audit", "verify", *map(str, arguments), environ=environ, code=code)

    async def more(self, load: Load, count: int = 100) -> None:
        """Wait for more answers."""
        wanted = len(load.answered) + count
        while len(load.answered) < wanted:
            await beat()

    async def test_life(self) -> None:
        """Processes that are killed under load, files that are moved away, a killed server and a restart leave one whole
        chain (AUD-33, AUD-34, AUD-36); what is done to its files is found (AUD-37, AUD-39, AUD-42).
        """
        server = await self.begin()
        admin_key = server.admin_key()
        token = await self.api.authenticate("admin", admin_key)
        policy = b"- !policy\n  id: apps\n  body:\n    - !variable password\n"
        await self.api.ask("POST", "/policies/acme/policy/root", policy, token)
        await self.api.ask("POST", self.api.variable("apps/password"), b"s3cret", token)
        load = Load(self.url, token)
        self.addCleanup(load.stop)
        files = []
        for number in range(TIMES):
            await self.more(load)
            os.kill(max(server.workers()), signal.SIGKILL)
            await self.more(load)
            files.append(self.folder / f"audit.log.{number}")
            self.audit.rename(files[-1])
            server.signal(signal.SIGHUP)
            while not self.audit.exists():
                await beat()
        await self.more(load)
        await deferToThread(load.stop)
        await server.kill()
        await self.verify(*files, self.audit)

        server = await self.begin()
        for _ in range(5):
            await self.api.ask("GET", self.api.variable("apps/password"), token=token)
        self.assertEqual(await server.stop(), 0)
        packed = self.folder / "audit.log.0.gz"
        packed.write_bytes(gzip.compress(files[0].read_bytes()))
        files[0].unlink()
        files = [packed, *files[1:], self.audit]
        said = (await self.verify(*files)).stdout
        self.assertEqual((said.count("Chain "), said.splitlines()[-1]), (1, "All is well."), said)

        anchor, key = self.folder / "anchor", self.folder / "key"
        anchor.write_text((await self.svc("audit", "anchor", str(self.audit))).stdout)
        environ = {"SERVICE_DATABASE_URL": self.dsn, "SERVICE_DATA_KEY": DATA_KEY}
        await self.svc("audit", "export-key", str(key), environ=environ)
        self.assertEqual(key.stat().st_mode & 0o777, 0o600)
        await self.svc("audit", "verify", "--key-file", str(key), "--anchor", str(anchor), *map(str, files))
        lines = self.audit.read_bytes().splitlines(keepends=True)
        self.audit.write_bytes(b"".join(lines[:-2]))
        await self.verify(*files)
        self.assertIn("the end is missing", (await self.verify("--anchor", anchor, *files, code=1)).stdout)
        self.audit.write_bytes(b"".join([*lines[:3], *lines[4:]]))
        self.assertIn("is missing", (await self.verify(*files, code=1)).stdout)
        found = await self.svc("audit", "search", "--what", "fetch", "--limit", "3", *[f"--file={path}" for path in files])
        self.assertEqual(found.stdout.count("fetched acme:variable:apps/password"), 3)

    async def test_two_servers(self) -> None:
        """Servers on one database have a chain each, under one key, and one that has lost its end begins another
        (AUD-33, AUD-36, AUD-42).
        """
        server = await self.begin()
        key = server.admin_key()
        await self.api.authenticate("admin", key)
        first = self.audit.rename(self.folder / "first")
        self.assertEqual(await server.stop(), 0)
        server = await self.begin("other", processes=1)
        await self.api.authenticate("admin", key)
        self.assertEqual(await server.stop(), 0)
        second = self.audit.rename(self.folder / "second")
        said = (await self.verify(first, second, code=1)).stdout
        self.assertEqual(said.count("Chain "), 2)
        self.assertIn("another chain begins", said)
        anchor = self.folder / "anchor"
        anchor.write_text((await self.svc("audit", "anchor", str(first))).stdout)
        await self.verify("--anchor", anchor, first, second)
