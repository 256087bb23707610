"""A server whose certificates, and those of the authorities that it trusts, are renewed while it runs."""

from __future__ import annotations

import http.client
import signal
import ssl
from pathlib import Path

from twisted.internet.threads import deferToThread

from tests.authn.providers.authority import Authority
from tests.certificates import LEAF_KEY, STRANGERS_KEY, TRUSTED, Key, chain, pem
from tests.integration.postgres import PostgresTestCase, unavailable
from tests.integration.process import ServerProcess, ServerTestCase
from tests.server.test_endpoints import key_pem

OLD, NEW, OTHER = "the host's name", "a wildcard for one label", "among other names"


class RenewalTests(PostgresTestCase, ServerTestCase):
    """One server with two ports over TLS, the second for counters, and a cluster of which it trusts one authority."""

    skip = unavailable()
    timeout = 240

    async def prepare(self) -> None:
        """Start it."""
        await super().prepare()
        self.folder = Path(self.mktemp()).resolve()
        self.folder.mkdir()
        self.write(OLD)
        self.authority = self.folder / "ca.pem"
        self.authority.write_text(TRUSTED)
        endpoint = f"ssl:0:interface=127.0.0.1:privateKey={self.folder}/key.pem:certKey={self.folder}/cert.pem"
        self.process: ServerProcess = self.serve(
            f"--metrics-listen={endpoint}",
            f"--cluster-ca={self.authority}",
            "--cluster=b.example=https://127.0.0.1:1",
            database_url=await self.create_database(migrated=False),
            listen=endpoint,
        )
        self.port = int((await self.process.ready()).rpartition(":")[2])
        said = self.process.stdout.decode()
        self.counters = int(said.partition("Metrics are served at https://127.0.0.1:")[2].split()[0])

    def write(self, name: str, key: Key = LEAF_KEY) -> None:
        """Write a certificate and a key over those that are there."""
        (self.folder / "cert.pem").write_text(pem(*chain(name).certificates))
        (self.folder / "key.pem").write_text(key_pem(key))

    async def hang_up(self, told: str) -> None:
        """Send ``SIGHUP``, and wait until this is told."""
        after = len(self.process.stdout)
        self.process.signal(signal.SIGHUP)
        await self.process.says(told, after)

    async def assert_shown(self, name: str) -> None:
        """New connections to both ports get this certificate."""
        for port in (self.port, self.counters):
            shown = await deferToThread(ssl.get_server_certificate, ("127.0.0.1", port), timeout=20)
            self.assertEqual(shown.strip(), pem(chain(name).certificates[0]).strip())

    async def test_ports(self) -> None:
        """After ``SIGHUP`` new connections get the renewed certificate, and no broken one; open connections go on
        (CFG-17).
        """
        await self.assert_shown(OLD)
        line = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=20, context=ssl._create_unverified_context())
        self.addCleanup(line.close)

        def ask() -> int:
            line.request("GET", "/livez")
            with line.getresponse() as answer:
                answer.read()
                return answer.status

        self.assertEqual(await deferToThread(ask), 200)
        self.write(NEW)
        await self.hang_up("was read again, and is in force")
        await self.assert_shown(NEW)
        for name, key, told in (
            (OTHER, STRANGERS_KEY, "keys do not match"),
            ("expired", LEAF_KEY, "certificate has expired"),
        ):
            self.write(name, key)
            await self.hang_up(told)
            await self.assert_shown(NEW)
        (self.folder / "cert.pem").write_text(pem(*chain(OTHER).certificates)[:200])
        await self.hang_up("can't be used, so what was read before stays")
        await self.assert_shown(NEW)
        self.write(OTHER)
        await self.hang_up("was read again, and is in force")
        await self.assert_shown(OTHER)
        self.assertEqual(await deferToThread(ask), 200)
        self.assertNotIn("Traceback", self.process.said)

    async def test_authorities(self) -> None:
        """The authorities of the cluster are read again, too, and a broken file leaves those that are trusted (CFG-24)."""
        self.authority.write_text("nonsense")
        await self.hang_up("holds no whole certificate in PEM")
        self.authority.write_text(Authority().pem)
        await self.hang_up(f"--cluster-ca {self.authority} was read again")
