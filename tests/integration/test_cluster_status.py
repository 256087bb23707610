"""``svc cluster status`` on real servers: who is what since when, before a promotion and after it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from twisted.internet import reactor

from svc._version import VERSION
from svc.storage.database_state import DatabaseState
from svc.storage.driver.migrations import load_migrations
from svc.storage.driver.replication import Replication
from tests.integration.bed import free_port
from tests.integration.postgres import PATIENCE
from tests.integration.process import beat
from tests.integration.replication import PairTestCase
from tests.integration.test_cli import CommandTestCase


class NodeTests(PairTestCase):
    """What a database tells of itself as a node."""

    async def test_promotion(self) -> None:
        """A primary knows since when it is one, by its first beat on its timeline, however often its servers are started;
        and a standby by when it was started. Standbys are seen with their states, if the role may see them (OPS-6).
        """
        pair = self.pair
        pair.primary.command("CREATE ROLE plain LOGIN")
        self.addCleanup(pair.primary.command, "DROP OWNED BY plain; DROP ROLE plain")
        pair.primary.command("GRANT SELECT ON ALL TABLES IN SCHEMA public TO plain", self.name)
        state = DatabaseState(await self.opened(pair.primary.dsn(self.name)))
        node = (await state.read_position()).node
        assert node is not None and node.standbys is not None
        self.assertEqual((node.schema, node.release[:2]), (len(load_migrations()), "18"))
        (standby,) = node.standbys
        self.assertEqual((standby.name, standby.state, standby.sync), (pair.follower.directory.name, "streaming", "async"))
        plain = DatabaseState(await self.opened(pair.primary.dsn(self.name).replace("user=svc", "user=plain"), pool_size=1))
        seen = (await plain.read_position()).node
        assert seen is not None
        self.assertEqual((seen.timeline, seen.standbys), (node.timeline, None))
        pair.primary.command("GRANT pg_read_all_stats TO plain")
        granted = (await plain.read_position()).node
        assert granted is not None and granted.standbys is not None
        self.assertEqual([(each.name, each.state) for each in granted.standbys], [(standby.name, standby.state)])
        pair.primary.command("REVOKE ALL ON ALL TABLES IN SCHEMA public FROM plain", self.name)
        self.assertIsNotNone(node.since)

        follower = DatabaseState(await self.opened(pair.follower.dsn(self.name)))
        ((started,),) = pair.follower.command("SELECT extract(epoch FROM pg_postmaster_start_time())::float")
        copied = (await follower.read_position()).node
        assert copied is not None
        self.assertEqual((copied.timeline, copied.since, copied.standbys), (node.timeline, started, None))

        before = time.time()
        promoted = await pair.promote()
        database = await self.opened(promoted.dsn(self.name))
        replication = Replication(database, reactor)
        replication.startService()
        self.addCleanup(replication.stopService)
        beaten = f"SELECT timeline > {node.timeline} FROM heartbeat"
        while promoted.command(beaten, self.name) != [(True,)]:
            await beat()
        first = (await DatabaseState(database).read_position()).node
        assert first is not None and first.since is not None
        self.assertEqual((first.timeline, first.standbys), (node.timeline + 1, ()))
        self.assertTrue(before - 1 < first.since < time.time() + 1)
        await promoted.stop()
        await promoted.start()
        again = (await DatabaseState(await self.opened(promoted.dsn(self.name))).read_position()).node
        assert again is not None
        self.assertEqual(again.since, first.since)


class ClusterStatusTests(CommandTestCase, PairTestCase):
    """A server on each of a pair."""

    async def test_status(self) -> None:
        """Each server tells of both, with versions and timelines, of the standby, and that it would take over; since when
        one of them is gone is known to one that is asked later (OPS-6, OPS-7).
        """
        ports = [free_port(), free_port()]
        servers = []
        for here, there, database in ((0, 1, self.pair.primary), (1, 0, self.pair.follower)):
            server = self.serve(
                f"--cluster=other=http://127.0.0.1:{ports[there]}",
                "--health-interval=0.5",
                database_url=database.dsn(self.name),
                listen=f"tcp:{ports[here]}:interface=127.0.0.1",
            )
            await server.ready()
            servers.append(server)
        url = f"http://127.0.0.1:{ports[0]}"
        document = await self.status(url, lambda found: found["successor"] and not found["versions"] and found["ok"])
        own, other = document["servers"]
        self.assertEqual((own["role"], other["role"]), ("primary", "follower"))
        for each in (own, other):
            self.assertEqual((each["version"], each["schema"]), (VERSION, len(load_migrations())))
            self.assertEqual(each["timeline"], own["timeline"])
            self.assertGreater(each["changed"], 1_600_000_000)
        name = self.pair.follower.directory.name
        self.assertEqual([each["name"] for each in own["standbys"]], [name])
        self.assertEqual(document["successor"], {"name": name, "complete": False})
        told = await self.svc("cluster", "status", "--url", url)
        self.assertIn(f"{name} would take over, which may lack the last changes", told.stdout)

        before = time.time()
        await servers[1].stop()
        document = await self.status(url, lambda found: not found["ok"], code=1)
        gone = document["servers"][1]
        self.assertEqual((gone["word"], gone["role"]), ("unreachable", ""))
        self.assertTrue(before - 1 < gone["changed"] < time.time() + 1)
        again = await self.status(url, lambda _: True, code=1)
        self.assertEqual(again["servers"][1]["changed"], gone["changed"])

    async def status(self, url: str, wanted: Callable[[Any], object], code: int = 0) -> Any:
        """Ask for the status until it is as wanted, and the exit code with it."""
        for _ in range(int(PATIENCE)):
            outcome = await self.start("cluster", "status", "--json", "--url", url).ended
            document = json.loads(outcome.stdout)
            if wanted(document) and outcome.exit_code == code:
                return document
            await beat()
        raise AssertionError(document)
