"""Faults of the database under load: what was acknowledged is kept, and the service recovers by itself."""

from __future__ import annotations

import os
import signal
from itertools import chain
from pathlib import Path

from twisted.internet.defer import Deferred, gatherResults

from tests.integration.client import Api
from tests.integration.postgres import Server, unavailable
from tests.integration.process import ServerTestCase, beat

WRITERS = range(4)

#: How many variables each writer has: every write goes to one of its own, so that none hides another.
VARIABLES = range(400)


class KilledDatabaseTests(ServerTestCase):
    """The embedded PostgreSQL is killed while clients write."""

    skip = unavailable()

    async def test_no_acknowledged_write_is_lost(self) -> None:
        """PostgreSQL, killed under load, is started again, without a restart of the service.

        Clients meanwhile get 503 with ``Retry-After``, unless the change may have been made, and every write that was
        acknowledged is there afterwards.
        """
        process = self.serve("--account=acme")
        api = Api.of(self, await process.ready())
        admin = await api.authenticate("admin", process.admin_key())
        policy = "".join(f"- !variable {writer}/{number}\n" for writer in WRITERS for number in VARIABLES)
        self.assertEqual((await api.ask("POST", "/policies/acme/policy/root", policy.encode(), admin)).status, 201)

        running = True
        acknowledged: dict[int, list[str]] = {writer: [] for writer in WRITERS}
        statuses: set[int] = set()

        async def write(writer: int) -> None:
            for number in VARIABLES:
                if not running:
                    return
                name = f"{writer}/{number}"
                answer = await api.ask("POST", api.variable(name), f"value of {name}".encode(), admin)
                statuses.add(answer.status)
                if answer.status == 201:
                    acknowledged[writer].append(name)
                else:
                    self.assertEqual(answer.status, 503, answer)
                    if answer.json()["error"]["code"] != "outcome_unknown":
                        self.assertGreaterEqual(int(answer.headers["retry-after"]), 1)
                await beat()
            self.fail("the writers ran out of variables")

        writers = gatherResults([Deferred.fromCoroutine(write(writer)) for writer in WRITERS], consumeErrors=True)
        # A writer that fails ends all of this.
        while not writers.called and min(map(len, acknowledged.values())) < 5:
            await beat()
        os.kill(_postmaster(process.data_dir), signal.SIGKILL)
        while not writers.called and 503 not in statuses:
            await beat()
        before = {writer: len(names) for writer, names in acknowledged.items()}
        while not writers.called and any(len(acknowledged[writer]) < before[writer] + 5 for writer in WRITERS):
            await beat()
        running = False
        await writers

        for name in chain.from_iterable(acknowledged.values()):
            answer = await api.ask("GET", api.variable(name), token=admin)
            self.assertEqual(answer.body, f"value of {name}".encode(), answer)
        self.assertEqual(statuses, {201, 503})
        health = await api.ask("GET", "/health")
        while health.status != 200:
            await beat()
            health = await api.ask("GET", "/health")
        self.assertIsNone(process.exit_code)
        self.assertEqual(await process.stop(), 0)


def _postmaster(data_dir: Path) -> int:
    """The process id of the embedded PostgreSQL."""
    [file] = data_dir.rglob("postmaster.pid")
    return int(file.read_text().split()[0])


class AbsentDatabaseTests(ServerTestCase):
    """A database of somebody else's goes away and comes back."""

    skip = unavailable()

    async def test_requests_get_503_and_recover(self) -> None:
        """While the database is away, health is 502 and requests are 503 with ``Retry-After``; then all is well again."""
        server = Server()
        self.addCleanup(server.destroy)
        await server.start()
        await server.create_database("faults", migrated=False)
        process = self.serve("--account=acme", "--health-interval=0.5", database_url=server.dsn("faults"))
        api = Api.of(self, await process.ready())
        admin = await api.authenticate("admin", process.admin_key())
        await server.kill()
        answer = await api.ask("GET", "/whoami", token=admin)
        self.assertEqual((answer.status, "retry-after" in answer.headers), (503, True))
        while (await api.ask("GET", "/health")).status != 502:
            await beat()
        await server.start()
        while (await api.ask("GET", "/whoami", token=admin)).status != 200:
            await beat()
        while (await api.ask("GET", "/health")).status != 200:
            await beat()
        self.assertEqual(await process.stop(), 0)
