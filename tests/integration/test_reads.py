"""Counted reads of running servers: what is written at a stop, by several processes, and what a primary collects."""

from __future__ import annotations

import base64
from urllib.parse import quote

from svc.cluster.peer_claims import PeerClaims
from svc.crypto.vault import Vault
from svc.model.readings import ReadingBatch
from tests.integration.client import Api, now
from tests.integration.postgres import PATIENCE
from tests.integration.process import DATA_KEY, beat
from tests.integration.test_followers import ClusterTestCase
from tests.integration.test_last_logins import ServersCase

POLICY = b"""
- !host web
- !variable db
- !permit { role: !host web, privileges: [ read, execute ], resource: !variable db }
"""


async def readers_of(api: Api, admin: str) -> dict[str, int]:
    """How often each role has read the variable, as the server answers."""
    answer = await api.ask("GET", "/resources/acme/variable/db?readers", token=admin)
    assert answer.status == 200, answer
    return {each["role"].partition(":")[2]: each["count"] for each in answer.json()["readers"]}


class StoppedTests(ServersCase):
    """A server that is stopped, of one process."""

    async def prepare(self) -> None:
        """Start the server, with a variable that has a value."""
        await super().prepare()
        loaded = await self.api.ask("POST", "/policies/acme/policy/root", POLICY, self.admin)
        self.assertEqual(loaded.status, 201, loaded)
        self.assertEqual((await self.api.ask("POST", self.api.variable("db"), b"value", self.admin)).status, 201)

    async def test_stopped(self) -> None:
        """A server that stops writes what it has counted, in all of its processes (READ-3)."""
        for _ in range(6):
            api = Api.of(self, self.api.url)
            token = await api.authenticate("host/web", self.keys["host:web"])
            self.assertEqual((await api.ask("GET", api.variable("db"), token=token)).status, 200)
        self.assertEqual(await readers_of(self.api, self.admin), {})
        self.assertEqual(await self.process.stop(), 0)
        await self.again()
        self.assertEqual(await readers_of(self.api, self.admin), {"host:web": 6})


class ProcessesTests(StoppedTests):
    """A server of two processes."""

    options = ("--processes=2",)


class CollectedTests(ClusterTestCase):
    """A primary that collects the counts of its follower."""

    async def test_collected(self) -> None:
        """A primary collects what a follower has counted, and says when it can't reach it (READ-7, READ-12)."""
        primary = self.server_on(self.pair.primary.dsn(self.name))
        api = Api.of(self, await primary.ready())
        key = primary.admin_key()
        admin = await api.authenticate("admin", key)
        loaded = await api.ask("POST", "/policies/acme/policy/root", POLICY, admin)
        host = loaded.json()["created_roles"]["acme:host:web"]["api_key"]
        self.assertEqual((await api.ask("POST", api.variable("db"), b"value", admin)).status, 201)
        await self.pair.caught_up()
        follower = self.server_on(self.pair.follower.dsn(self.name))
        near = Api.of(self, await follower.ready())
        token = await near.authenticate("host/web", host)
        for _ in range(3):
            self.assertEqual((await near.ask("GET", near.variable("db"), token=token)).status, 200)
        batch = await self.waiting_batch(near)
        self.assertEqual(
            [(read.role, read.variable, read.number) for read in batch.reads], [("acme:host:web", "acme:variable:db", 3)]
        )
        self.assertEqual(await primary.stop(), 0)

        options = f"--cluster=f={near.url},gone=http://127.0.0.1:9"
        again = Api.of(self, await self.server_on(self.pair.primary.dsn(self.name), options).ready())
        admin = await again.authenticate("admin", key)
        deadline = now() + PATIENCE
        while (await readers_of(again, admin)).get("host:web") != 3:
            self.assertLess(now(), deadline, "the counts were not collected")
            await beat()
        while True:
            answer = (await again.ask("GET", "/resources/acme/variable/db?readers", token=admin)).json()
            if answer["missing"]:
                break
            self.assertLess(now(), deadline, "nobody is missing")
            await beat()
        self.assertEqual((answer["missing"], answer["certain"]), (["gone"], False))

    async def waiting_batch(self, api: Api) -> ReadingBatch:
        """Return what the follower hands out, as soon as it has something."""
        claims = PeerClaims(Vault(base64.b64decode(DATA_KEY)))
        deadline = now() + PATIENCE
        while True:
            challenge, code = claims.new_readings_question("", 0)
            answer = await api.ask("GET", f"/cluster/readings?challenge={challenge}&code={quote(code)}&source=&confirmed=0")
            self.assertEqual(answer.status, 200, answer)
            batch = claims.open_readings(challenge, answer.body)
            assert batch is not None
            if not batch.is_empty:
                return batch
            self.assertLess(now(), deadline, "the follower has counted nothing")
            await beat()
