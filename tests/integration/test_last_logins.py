"""Last logins of running servers: what is written at a stop, what is lost with one that is killed, and followers."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.certificates import LEAF_KEY, chain, pem
from tests.integration.client import Api
from tests.integration.postgres import PostgresTestCase, unavailable
from tests.integration.process import ServerProcess, ServerTestCase
from tests.integration.test_followers import ClusterTestCase
from tests.server.test_endpoints import key_pem

POLICY = b"- !host web\n- !host batch\n- !user alice\n"


async def last_login(api: Api, admin: str, kind: str, identifier: str) -> str | None:
    """The day of a role's last login, as the server tells it."""
    answer = await api.ask("GET", f"/roles/acme/{kind}/{quote(identifier, safe='')}", token=admin)
    assert answer.status == 200, answer
    day: str | None = answer.json()["last_login"]["day"]
    return day


class ServersCase(PostgresTestCase, ServerTestCase):
    """A server on a database of its own."""

    skip = unavailable()
    options: tuple[str, ...] = ()

    async def prepare(self) -> None:
        """Start it, with hosts and a user."""
        await super().prepare()
        self.database_url = await self.create_database(migrated=False)
        self.process, self.api = await self.started()
        self.admin_key = self.process.admin_key()
        self.admin = await self.api.authenticate("admin", self.admin_key)
        loaded = await self.api.ask("POST", "/policies/acme/policy/root", POLICY, self.admin)
        self.keys = {role.partition(":")[2]: made["api_key"] for role, made in loaded.json()["created_roles"].items()}

    async def started(self) -> tuple[ServerProcess, Api]:
        """A server."""
        server = self.serve("--account=acme", *self.options, database_url=self.database_url)
        return server, Api.of(self, await server.ready())

    async def again(self) -> None:
        """Start another after the first, with the same admin."""
        self.process, self.api = await self.started()
        self.admin = await self.api.authenticate("admin", self.admin_key)

    async def days(self, *names: str) -> list[bool]:
        """Whether a last login is known of each."""
        found = [await last_login(self.api, self.admin, *name.split(":")) for name in names]
        return [day is not None for day in found]

    async def unused(self) -> list[str]:
        """Who isn't used, with all that were made before now."""
        answer = await self.api.ask("GET", "/unused?since=0", token=self.admin)
        self.assertEqual(answer.status, 200, answer)
        return [each["role"].partition(":")[2] for each in answer.json()["unused"]]


class OneProcessTests(ServersCase):
    """A server of one process."""

    async def test_stop_and_kill(self) -> None:
        """What logged in is written when the server stops, and lost with one that is killed soon after (END-21)."""
        await self.api.authenticate("host/web", self.keys["host:web"])
        self.assertEqual(await self.days("host:web", "user:admin"), [False, False])
        self.assertEqual(sorted(await self.unused()), ["host:batch", "host:web", "user:admin", "user:alice"])
        self.assertEqual(await self.process.stop(), 0)

        await self.again()
        self.assertEqual(await self.days("host:web", "user:admin", "user:alice"), [True, True, False])
        self.assertEqual(sorted(await self.unused()), ["host:batch", "user:alice"])
        await self.api.authenticate("alice", self.keys["user:alice"])
        refused = await self.api.ask("POST", "/authn/acme/host%2Fbatch/authenticate", b"wrong")
        self.assertEqual(refused.status, 401)
        await self.process.kill()

        await self.again()
        self.assertEqual(await self.days("user:alice"), [False])
        await self.api.authenticate("alice", self.keys["user:alice"])
        await self.process.stop()
        await self.again()
        self.assertEqual(await self.unused(), ["host:batch"])

    async def test_what_ends(self) -> None:
        """The lists are there, in order, of what this server has (END-1, END-6)."""
        answer = await self.api.ask("GET", "/expiring?age=86400", token=self.admin)
        self.assertEqual(answer.status, 200, answer)
        found = answer.json()["expiring"]
        self.assertEqual([each["at"] for each in found], sorted(each["at"] for each in found))
        self.assertEqual({each["kind"] for each in found}, {"signing-key", "api-key"})


class ProcessesTests(ServersCase):
    """A server of two processes, which speaks TLS to those who ask for its counters."""

    async def prepare(self) -> None:
        """Write the certificate, and start the server."""
        folder = Path(self.mktemp()).resolve()
        folder.mkdir(parents=True)
        (folder / "cert.pem").write_text(pem(*chain("the host's name").certificates))
        (folder / "key.pem").write_text(key_pem(LEAF_KEY))
        metrics = f"ssl:0:interface=127.0.0.1:privateKey={folder}/key.pem:certKey={folder}/cert.pem"
        self.options = ("--processes=2", f"--metrics-listen={metrics}")
        await super().prepare()

    async def test_all_write(self) -> None:
        """Each process writes what it noted when the server stops (END-21)."""
        connections = [Api.of(self, self.api.url) for _ in range(6)]
        for api in connections:
            await api.authenticate("host/web", self.keys["host:web"])
        await connections[-1].authenticate("host/batch", self.keys["host:batch"])
        self.assertEqual(await self.process.stop(), 0)
        await self.again()
        self.assertEqual(await self.unused(), ["user:alice"])

    async def test_certificates(self) -> None:
        """Certificates that only the process that supervises has are listed, too (END-4)."""
        answer = await self.api.ask("GET", f"/expiring?kind=certificate&within={100 * 365 * 86400}", token=self.admin)
        found: list[dict[str, Any]] = answer.json()["expiring"]
        self.assertEqual([(each["id"], each["part"]) for each in found], [("metrics_listen", "port 0")])


class FollowerTests(ClusterTestCase):
    """A primary and its follower."""

    async def test_follower(self) -> None:
        """Logins at the follower aren't counted, its lists are there, and those at the primary arrive (END-23, END-26)."""
        primary = self.server_on(self.pair.primary.dsn(self.name))
        api = Api.of(self, await primary.ready())
        key = primary.admin_key()
        admin = await api.authenticate("admin", key)
        loaded = await api.ask("POST", "/policies/acme/policy/root", POLICY, admin)
        keys = {role.partition(":")[2]: made["api_key"] for role, made in loaded.json()["created_roles"].items()}
        await self.pair.caught_up()
        follower = self.server_on(self.pair.follower.dsn(self.name))
        at_follower = Api.of(self, await follower.ready())
        await at_follower.authenticate("host/web", keys["host:web"])
        for path in ("/unused?since=0", "/expiring"):
            answer = await at_follower.ask("GET", path, token=admin)
            self.assertEqual(answer.status, 200, answer)
        self.assertEqual(await follower.stop(), 0)
        self.assertEqual(await primary.stop(), 0)

        api = Api.of(self, await self.server_on(self.pair.primary.dsn(self.name)).ready())
        admin = await api.authenticate("admin", key)
        self.assertIsNone(await last_login(api, admin, "host", "web"))
        self.assertIsNotNone(await last_login(api, admin, "user", "admin"))
        answer = await api.ask("GET", "/unused?since=0", token=admin)
        self.assertIs(answer.json()["followers_counted"], False)
        self.assertIn("acme:host:web", [each["role"] for each in answer.json()["unused"]])
