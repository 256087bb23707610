"""Watches, batches and logins that read secrets, on a primary and a follower."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import Final
from urllib.parse import quote

import treq
from twisted.internet.defer import Deferred

from tests.integration.client import Api, KeySetSite
from tests.integration.postgres import PATIENCE
from tests.integration.process import ServerProcess, ServerTestCase, beat
from tests.integration.replication import PairTestCase

PASSWORD: Final = "acme:variable:apps/password"


class WatchesTests(PairTestCase, ServerTestCase):
    """A primary and a follower."""

    timeout = 200
    migrated = False

    def server_on(self, dsn: str, *options: str) -> ServerProcess:
        """Start a server."""
        return self.serve(
            "--account=acme", "--authenticators=authn,authn-jwt/ci", "--allow-http-providers", *options, database_url=dsn
        )

    async def watch(self, api: Api, token: str) -> tuple[bytearray, Deferred[None]]:
        """Begin to watch; return what comes, and when it ends."""
        path = f"{api.url}/secrets/watch?variable_ids={quote(PASSWORD)}"
        headers: dict[bytes | str, bytes | str] = {"Authorization": f'Token token="{token}"'}
        response = await api.http.get(path, headers=headers, unbuffered=True)
        self.assertEqual(response.code, 200)
        came = bytearray()
        return came, treq.collect(response, came.extend)

    async def until(self, holds: Callable[[], bool], complaint: str) -> None:
        """Wait until that holds, though not for ever."""
        for _ in range(int(PATIENCE / 0.05)):
            if holds():
                return
            await beat()
        self.fail(complaint)

    async def test_cluster(self) -> None:
        """What is written at the primary is told by the follower's watches, which end with a revocation and at a drain; a
        batch has the same tag on both; and a login at the follower reads (SEC-39, SEC-43, SEC-47, SEC-48, SEC-51).
        """
        provider = KeySetSite(self)
        primary = self.server_on(self.pair.primary.dsn(self.name), "--allow-private-providers=127.0.0.0/8")
        one = Api.of(self, await primary.ready())
        key = primary.admin_key()
        admin = await one.set_up(key, provider.uri)
        await self.pair.caught_up()
        follower = self.server_on(self.pair.follower.dsn(self.name), "--processes=2")
        two = Api.of(self, await follower.ready())
        came, ended = await self.watch(two, admin)
        await self.until(lambda: f'{{"{PASSWORD}":1}}'.encode() in came, "the first event never came")
        self.assertEqual((await one.ask("POST", one.variable("apps/password"), b"second", admin)).status, 201)
        await self.until(lambda: f'{{"{PASSWORD}":2}}'.encode() in came, "the change was never told")

        body = json.dumps({"variable_ids": [PASSWORD]}).encode()
        batch = await one.ask("POST", "/secrets/batch", body, admin)
        self.assertEqual(batch.json(), {"values": {PASSWORD: "second"}})
        known = await two.ask("POST", "/secrets/batch", body, admin, If_None_Match=batch.headers["etag"])
        self.assertEqual((known.status, known.headers["etag"]), (304, batch.headers["etag"]))
        login = await two.ask("POST", f"/authn/acme/admin/authenticate?secrets={PASSWORD}", key.encode())
        self.assertEqual(login.json()["values"], {PASSWORD: "second"})

        self.assertEqual((await one.ask("DELETE", "/authn/acme/tokens", None, admin)).status, 204)
        await ended
        self.assertTrue(came.endswith(b'event: end\ndata: {"reason":"role"}\n\n'), came)
        admin = await one.authenticate("admin", key)
        await self.pair.caught_up()
        came, ended = await self.watch(two, admin)
        follower.signal(signal.SIGTERM)
        await ended
        self.assertTrue(came.endswith(b'event: end\ndata: {"reason":"drain"}\n\n'), came)
        self.assertEqual(await follower.ended(), 0)
