"""A primary and a follower with TLS, behind HAProxy with the file that the sources ship."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import ClassVar

from twisted.web.client import ResponseNeverReceived

from tests.authn.providers.authority import Authority
from tests.integration import postgres
from tests.integration.bed import free_port
from tests.integration.postgres import PATIENCE, Server
from tests.integration.process import ServerProcess, ServerTestCase, beat
from tests.integration.proxy import Proxy, certificate_file, unavailable
from tests.integration.replication import PairTestCase


class ProxiedPairTestCase(PairTestCase, ServerTestCase):
    """Both servers run and the proxy routes changes; ``key`` is the admin's, variable ``v`` of ``acme`` is ``kept``.

    ``ports`` are those of the primary and of the follower; ``options`` are further ones of both servers.
    """

    skip = unavailable() or postgres.unavailable()

    options: ClassVar[tuple[str, ...]] = ()

    def _serve(self, database: Server, port: int) -> ServerProcess:
        return self.serve(
            "--account=acme",
            *self.options,
            listen=f"ssl:{port}:privateKey={self.certificate}:certKey={self.certificate}:interface=127.0.0.1",
            database_url=database.dsn(self.name),
        )

    async def prepare(self) -> None:
        """Start the servers and the proxy, and set the value."""
        await super().prepare()
        authority, self.ports = Authority(), (free_port(), free_port())
        self.certificate = certificate_file(Path(self.mktemp()).resolve(), authority)
        primary = self._serve(self.pair.primary, self.ports[0])
        await primary.ready()
        self.key = primary.admin_key()
        await self.pair.caught_up()
        await self._serve(self.pair.follower, self.ports[1]).ready()
        self.proxy = Proxy(self, authority, *self.ports)
        await self.proxy.listens()
        self.api = self.proxy.api()
        await self.until_changed("POST", "/policies/acme/policy/root", b"- !variable v")
        await self.until_changed("POST", self.api.variable("v"), b"kept")
        await self.pair.caught_up()

    async def until_changed(self, method: str, path: str, body: bytes) -> None:
        """Make a change, as soon as a server takes changes."""
        for _ in range(int(PATIENCE / 0.05)):
            admin = await self.api.authenticate("admin", self.key)
            # The proxy ends connections with a server that it takes from its list.
            with contextlib.suppress(ResponseNeverReceived):
                if (await self.api.ask(method, path, body, admin)).status == 201:
                    return
            await beat()
        self.fail("no changes are taken")
