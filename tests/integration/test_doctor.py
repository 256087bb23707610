"""``svc doctor`` beside a real server: what it finds in PostgreSQL, of the running server, and nowhere else."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from typing import Any

from twisted.internet import reactor

from svc.model.clocks import MachineClock
from svc.server import doctor_facts
from svc.server.doctor_facts import collect_facts
from svc.server.effective_settings import ChosenSettings
from svc.settings.config import Settings
from tests.integration.postgres import PostgresTestCase, Server
from tests.integration.process import DATA_KEY, beat
from tests.integration.test_cli import CommandTestCase


class DoctorTests(CommandTestCase):
    """A server on a PostgreSQL of the test's, as an operator looks at it."""

    async def begin(self, **settings: str) -> Server:
        """Start PostgreSQL with these settings, and a database for svc."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        postgres = Server(settings=settings, port=port)
        self.addCleanup(postgres.destroy)
        await postgres.start()
        await postgres.create_database("doctor", migrated=False)
        self.folder = Path(self.mktemp()).resolve()
        self.folder.mkdir(parents=True)
        self.environ = {
            "SERVICE_DATABASE_URL": postgres.dsn("doctor"),
            "SERVICE_DATA_KEY": DATA_KEY,
            "SERVICE_DATA_DIR": str(self.folder / "data"),
            "SERVICE_AUDIT_FILE": str(self.folder / "audit.log"),
        }
        return postgres

    async def found(self, *arguments: str, code: int = 1) -> dict[str, dict[str, Any]]:
        """What the doctor finds, by name."""
        outcome = await self.svc("doctor", "--json", *arguments, environ=self.environ, code=code)
        return {risk["name"]: risk for risk in json.loads(outcome.stdout)}

    async def test_the_rounds(self) -> None:
        """It finds that there is no schema, and makes none; then, of a server that runs, what is risky, and no more; what is
        mended it doesn't find again; and it finds when the server and PostgreSQL are away (CLI-40, CLI-41).
        """
        postgres = await self.begin(listen_addresses="127.0.0.1,0.0.0.0")
        (self.folder / "data").mkdir(mode=0o755)
        found = await self.found()
        self.assertIn("no database of this program", found["database-away"]["found"])
        self.assertLessEqual({"file-mode", "server-away", "audit-file"}, set(found))
        self.assertEqual(postgres.command("SELECT to_regclass('schema_versions')", "doctor"), [(None,)])
        (self.folder / "data").chmod(0o700)

        server = self.serve(
            "--account=acme",
            "--metrics-listen=tcp:0:interface=127.0.0.1",
            f"--audit-file={self.folder}/audit.log",
            database_url=postgres.dsn("doctor"),
        )
        url = await server.ready()
        port = url.rpartition(":")[2]
        metrics = re.findall(rb"Metrics are served at http://127.0.0.1:(\d+)", server.stdout)[0].decode()
        self.environ["SERVICE_LISTEN"] = f"tcp:{port}:interface=127.0.0.1"
        self.environ["SERVICE_METRICS_LISTEN"] = f"tcp:{metrics}:interface=127.0.0.1"
        self.assertIn("loopback-trusted", await self.found())
        self.environ["SERVICE_TRUSTED_PROXIES"] = "none"
        # On a busy machine a server may be unhealthy for a moment, which the doctor finds.
        while "unhealthy" in (found := await self.found()):
            await beat()
        self.assertEqual(set(found) - {"one-process", "postgresql-old"}, {"no-backup", "not-durable", "database-superuser"})
        with (postgres.directory / "data" / "pg_hba.conf").open("a") as rules:
            rules.write("host all all 0.0.0.0/0 scram-sha-256\n")
        self.assertIn("pg_hba.conf admits any address", (await self.found())["database-exposed"]["found"])

        made = await self.svc("backup", "create", str(self.folder / "dump"), environ=self.environ)
        self.assertEqual(made.stderr.count("couldn't be noted"), 0)
        self.assertNotIn("no-backup", await self.found())
        postgres.command("UPDATE backups SET made_at = now() - interval '3 days'", "doctor")
        postgres.command("UPDATE signing_keys SET created_at = created_at - 401 * 86400", "doctor")
        postgres.command("DELETE FROM canary", "doctor")
        postgres.command("CREATE TABLE last AS SELECT * FROM schema_steps ORDER BY version DESC LIMIT 1", "doctor")
        postgres.command("DELETE FROM schema_steps WHERE version = (SELECT version FROM last)", "doctor")
        found = await self.found()
        self.assertIn("schema-behind", found)
        self.assertNotIn("no-backup", found)
        self.assertEqual(postgres.command("SELECT count(*) FROM canary", "doctor"), [(0,)])
        postgres.command("INSERT INTO schema_steps SELECT * FROM last", "doctor")
        while "unhealthy" not in (found := await self.found()):
            await beat()
        self.assertLessEqual({"no-backup", "signing-key-old"}, set(found))
        self.assertIn("3.0 days", found["no-backup"]["found"])

        await server.stop()
        found = await self.found()
        self.assertIn("server-away", found)
        await postgres.stop()
        self.assertIn("database-away", await self.found("--database-wait=1"))

    async def test_settings_in_force(self) -> None:
        """Beside a server of several processes it evaluates that server's own settings, asks it where it is, and looks at
        the disk of its database; once the server has ended, it says that it has the given settings alone (CLI-81, CFG-93).
        """
        postgres = await self.begin()
        data = self.folder / "data"
        server = self.serve(
            "--processes=2", f"--audit-file={self.folder}/audit.log", database_url=postgres.dsn("doctor"), data_dir=data
        )
        await server.ready()
        file = data / "effective-settings.json"
        self.assertEqual(file.stat().st_mode & 0o777, 0o600)
        outcome = await self.svc("doctor", "--json", "--memory-lag=3", environ=self.environ, code=1)
        self.assertIn(f"the running server (process {server.pid}", outcome.stderr)
        found = {risk["name"]: risk for risk in json.loads(outcome.stdout)}
        self.assertIn("--memory-lag", found["settings-differ"]["found"])
        unexpected = {"server-away", "server-not-asked", "listen-default", "one-process", "database-disk-unknown"}
        self.assertFalse(unexpected & set(found), found)
        await server.stop()
        self.assertFalse(file.exists())
        outcome = await self.svc("doctor", "--json", environ=self.environ, code=1)
        self.assertIn("Evaluated are the given settings", outcome.stderr)
        self.assertIn("listen-default", {risk["name"] for risk in json.loads(outcome.stdout)})


class ClockTests(PostgresTestCase):
    """The clocks of two machines."""

    async def test_skew(self) -> None:
        """By how much the database's clock is ahead of ours is found (CLI-40)."""
        dsn = await self.create_database()
        for behind in (0.0, 5.0):

            class Wrong(MachineClock):
                """A clock that is behind."""

                def seconds(self) -> float:
                    """The time of day, nearly."""
                    return super().seconds() - behind  # noqa: B023 - it is bound for this turn

            self.patch(doctor_facts, "MachineClock", Wrong)
            settings = Settings(database_url=dsn, data_dir=Path(self.mktemp()))
            facts = await collect_facts(reactor, ChosenSettings(settings, ""), None)
            assert facts.skew is not None
            self.assertLess(abs(facts.skew - behind), 1.5)
