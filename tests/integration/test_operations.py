"""``docs/operations/servers.md``, followed step by step with the files of ``etc/``."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Final

from tests.integration.client import Api
from tests.integration.postgres import Server, program
from tests.integration.process import DATA_KEY, beat
from tests.integration.replication import Pair
from tests.integration.test_cli import CommandTestCase
from tests.integration.test_follower_commands import Follower

ROOT: Final = Path(__file__).resolve().parent.parent.parent

#: What doesn't suit servers that are reached by sockets alone.
ELSEWHERE: Final = {"ssl", "ssl_min_protocol_version", "listen_addresses"}

#: Servers under test have a superuser of the name that the page gives the service's role.
ROLE: Final = ("svc LOGIN", "keeper LOGIN"), ("OWNER svc", "OWNER keeper"), ("TO svc", "TO keeper")


def settings(name: str) -> dict[str, str]:
    """The settings of a file of ``etc/postgresql``."""
    text = (ROOT / "etc" / "postgresql" / name).read_text(encoding="utf-8")
    found = dict(re.findall(r"(?m)^(\w+) = (?:'?)([^'\n]*)'?$", text))
    assert len(found) == len(re.findall(r"(?m)^\w", text)), "a line isn't understood"
    return {name: value for name, value in found.items() if name not in ELSEWHERE}


def documented() -> list[str]:
    """The blocks of SQL on the page, in order."""
    return re.findall(r"(?s)```sql\n(.*?)```", (ROOT / "docs" / "operations" / "servers.md").read_text(encoding="utf-8"))


def question() -> str:
    """What ``etc/haproxy.cfg`` asks a server to find out whether it takes changes, which is 200 then."""
    text = (ROOT / "etc" / "haproxy.cfg").read_text(encoding="utf-8").partition("\nbackend primary\n")[2]
    assert "http-check expect status 200" in text
    (target,) = re.findall(r"(?m)^ +option httpchk GET (\S+)$", text)
    return str(target)


class OperationsTests(CommandTestCase):
    """An operator who believes the page."""

    async def test_two_servers(self) -> None:
        """Two servers are set up as the page says, one is promoted, backed up and restored; svc needs no superuser."""
        given = {**settings("primary.conf"), **settings("standby.conf")}
        primary = Server(settings=given)
        await primary.start()
        (sql,) = documented()
        for statement in filter(str.strip, sql.split(";")):
            for theirs, ours in ROLE:
                statement = statement.replace(theirs, ours)  # noqa: PLW2901
            primary.command(statement)

        def dsn(server: Server, database: str = "svc") -> str:
            return f"host={server.directory} user=keeper dbname={database}"

        first = self.serve("--account=acme", "--health-interval=0.5", database_url=dsn(primary))
        api = Api.of(self, await first.ready())
        admin = await api.authenticate("admin", first.admin_key())
        loaded = await api.ask("POST", "/policies/acme/policy/root", b"- !variable v\n", admin)
        self.assertEqual(loaded.status, 201, loaded)
        self.assertEqual((await api.ask("POST", api.variable("v"), b"kept", admin)).status, 201)
        standby = Follower(origin=primary, settings=given)
        self.assertEqual(standby.made.returncode, 0, standby.made)
        await standby.start()
        pair = Pair(primary, standby)
        self.addCleanup(pair.destroy)
        await pair.caught_up()
        self.assertEqual(primary.command("SELECT active FROM pg_replication_slots WHERE slot_name = 'two'"), [(True,)])
        second = self.serve("--account=acme", "--health-interval=0.5", database_url=dsn(standby))
        follower = Api.of(self, await second.ready())
        self.assertEqual((await follower.ask("GET", follower.variable("v"), token=admin)).body, b"kept")
        self.assertEqual((await follower.ask("POST", follower.variable("v"), b"new", admin)).status, 405)
        while (report := await follower.ask("GET", "/health")).status != 200:  # on a busy machine a probe may be late
            await beat()
        self.assertLess(report.json()["database"]["replication_status"]["lag_seconds"], 30)
        while True:  # until the primary's server has looked again
            status = json.loads((await self.svc("cluster", "status", "--json", "--url", api.url)).stdout)
            if found := status["servers"][0]["standbys"]:
                break
        self.assertEqual([each["name"] for each in found], ["two"])
        self.assertEqual((await follower.ask("GET", question())).status, 503)
        self.assertEqual((await api.ask("GET", question())).status, 200)
        # A backup of the follower is one, which its database can't note (HEALTH-28).
        environ = {"SERVICE_DATA_KEY": DATA_KEY, "SERVICE_DATABASE_URL": dsn(standby)}
        made = await self.svc("backup", "create", str(Path(self.mktemp()).resolve()), environ=environ)
        self.assertIn("couldn't be noted", made.stderr)
        # The primary is gone.
        await first.stop()
        await primary.kill()
        await pair.promote()
        while (await follower.ask("POST", follower.variable("v"), b"new", admin)).status == 503:
            await beat()
        self.assertEqual((await follower.ask("GET", follower.variable("v"), token=admin)).body, b"new")
        for _ in range(600):
            if (await follower.ask("GET", question())).status == 200:
                break
            await beat()
        else:
            self.fail("the proxy would not find the new primary")
        # Backup, and back.
        dump = Path(self.mktemp()).resolve()
        environ = {"SERVICE_DATA_KEY": DATA_KEY, "SERVICE_DATABASE_URL": dsn(standby)}
        await self.svc("backup", "create", str(dump), environ=environ)
        await self.svc("backup", "verify", str(dump), environ=environ)
        standby.command("CREATE DATABASE again OWNER keeper ENCODING 'UTF8' TEMPLATE template0")
        # By PostgreSQL's own program sessions go on, which `svc backup restore` ends.
        flags = ("--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction")
        subprocess.run([program("pg_restore"), *flags, f"--dbname={dsn(standby, 'again')}", str(dump)], check=True)
        third = self.serve("--account=acme", database_url=dsn(standby, "again"))
        again = Api.of(self, await third.ready())
        self.assertEqual((await again.ask("GET", again.variable("v"), token=admin)).body, b"new")
