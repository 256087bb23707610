"""Random histories: what memory answers is what the database answered, in the time allowed."""

from __future__ import annotations

from typing import Final

from tests.integration.memory_runs import run
from tests.integration.memory_world import World
from tests.integration.postgres import PostgresTestCase
from tests.integration.replication import PairTestCase

#: How many histories are run here; ``memory_runs`` runs more.
HISTORIES: Final = 100
WITH_FOLLOWER: Final = 40


class HistoriesTests(PostgresTestCase):
    """Two processes of a server, and another server."""

    async def test_histories(self) -> None:
        """Whatever changes, an answer is one that the database gave in the time allowed (CLU-31, CLU-32)."""
        world = World(await self.create_database())
        self.addCleanup(world.stop)
        await world.start()
        self.assertIsNone(await run(world, range(HISTORIES)))


class FollowerHistoriesTests(PairTestCase):
    """The same, and a follower, and a server that writes to the primary and reads from the standby."""

    async def test_histories(self) -> None:
        """On a follower that holds from when its standby has replayed a change (CLU-11); a server that reads from a standby
        sees its own changes at once, and those of others like a follower (CLU-39, CLU-40).
        """
        pair = self.pair
        world = World(pair.primary.dsn(self.name), pair.follower.dsn(self.name), hosts=pair.hosts(self.name))
        self.addCleanup(world.stop)
        await world.start()
        self.assertIsNone(await run(world, range(HISTORIES, HISTORIES + WITH_FOLLOWER), pair))
