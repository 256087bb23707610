"""Rarer traps of memory: the loss of the session of looks alone, numbers of another history, statements of many rows."""

from __future__ import annotations

from typing import Final

from svc.storage.cache.commit_counters import CommitCounters
from svc.storage.cache.read_cache import ReadCache
from svc.storage.driver.connection import Fetched
from svc.storage.driver.statements import CachedReading, NamedAnswer, Statement, Transaction
from svc.storage.sql.descriptions import PORTION
from tests.integration.memory_changes import NEW_VERSION
from tests.integration.memory_readings import answered
from tests.integration.memory_scene import KEY, ROTATE, Scene
from tests.integration.memory_world import SHORT, StoresThrough, execute, turn
from tests.integration.test_memory_mutants import MutantCase
from tests.integration.test_memory_traps import StandbyCase, begin_transaction

_SEALED: Final = Statement("sealed_key", "SELECT api_key FROM credentials WHERE role_id = $1::text")
_ROTATED: Final = "INSERT INTO annotations VALUES ('{a}:variable:v1', 'rotation/rotator', 'none')"
_TOKEN: Final = "INSERT INTO host_factory_tokens VALUES (sha256('{a}'), '{a}:host_factory:f', 4e9, '{}')"
_LONG_NOTE: Final = f"INSERT INTO annotations VALUES ('{{a}}:variable:v2', 'note', repeat('x', {PORTION}))"


class LostLookTests(MutantCase):
    """Traps on a primary."""

    async def outliving(self, scene: Scene) -> ReadCache:
        """A memory of the process "c" that may outlive its database, and has looked."""
        database = scene.process("c").database
        memory = ReadCache(
            scene.world.clock, database, CommitCounters.for_one_process(), lag=SHORT, limit=1_000_000, serve_stale=30.0
        )
        memory.startService()
        self.addCleanup(memory.stopService)
        while not await memory.poll_now():
            await scene.turn()
        return memory

    async def test_stale_while_the_database_answers(self) -> None:
        """With ``--serve-stale`` the database is asked as long as it can be, also without a session of looks (CLU-36)."""
        scene = await self.scene(await self.world())
        process, reading = scene.process("c"), scene.found[KEY]
        memory = await self.outliving(scene)
        stores = StoresThrough(process.database, memory)
        before = await answered(reading, stores)
        self.assertEqual(await answered(reading, stores), before)
        await execute(scene.world.others, f"SELECT pg_terminate_backend({process.database.looker})")
        await scene.change()
        scene.world.clock.skip(2 * SHORT)
        while not memory.is_lost:
            await scene.turn()
        told, truth = await answered(reading, stores), await scene.truth()
        while not await memory.poll_now():
            await scene.turn()
        self.assertEqual(told, truth)

    async def test_stale_while_no_session_can_be_opened(self) -> None:
        """Nor is it enough for that that no session to look with can be opened, as where there are too many (CLU-36)."""
        scene = await self.scene(await self.world())
        process, reading = scene.process("c"), scene.found[KEY]
        memory = await self.outliving(scene)
        stores = StoresThrough(process.database, memory)
        await answered(reading, stores)
        self.server.command(f"ALTER DATABASE {scene.world.name} ALLOW_CONNECTIONS false")
        await execute(scene.world.others, f"SELECT pg_terminate_backend({process.database.looker})")
        await scene.change()
        for _ in range(3):
            scene.world.clock.skip(2 * SHORT)
            await memory.poll_now()
            await turn(0.1)
        told, truth = await answered(reading, stores), await scene.truth()
        self.server.command(f"ALTER DATABASE {scene.world.name} ALLOW_CONNECTIONS true")
        self.assertEqual(told, truth)


class HistoryOnStandbyTests(StandbyCase):
    """Traps on a standby."""

    async def test_rows_of_another_history(self) -> None:
        """Rows of changes from another history hide no change: on a standby their numbers don't count as seen (DATA-26)."""
        scene = await self.scene()
        before = await scene.ask("f")
        ((last,),) = self.pair.primary.command("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
        foreign = f"SELECT (number::text)::xid8, '{{v:another}}' FROM generate_series({last}, {last + 20}) AS number"
        self.pair.primary.command(f"INSERT INTO changes {foreign}", self.name)
        await self.pair.caught_up()
        gate, done = await begin_transaction(scene, ROTATE)
        await execute(scene.world.judge, "UPDATE heartbeat SET beaten_at = now()")
        await self.pair.caught_up()
        scene.world.clock.skip(2 * SHORT)
        await scene.ask("f")
        gate.open()
        await done
        await self.pair.caught_up()
        scene.world.clock.skip(2 * SHORT)
        self.assertNotEqual(await scene.truth(), before)
        self.assertEqual(await scene.ask("f"), await scene.truth())


class UnnamedTests(MutantCase):
    """What changes without a name."""

    async def test_pages(self) -> None:
        """A page of resources isn't remembered if changes of something in it have no names (CLU-34)."""
        scene = await self.scene(await self.world(), _ROTATED)
        process = scene.process("c")
        for reading, change in (
            ("page of alice: policy", NEW_VERSION),
            ("page of alice: host_factory", _TOKEN),
            ("page of alice: variable", "UPDATE expirations SET failures = failures + 1 WHERE resource_id LIKE '{a}:%'"),
        ):
            before, hits = await scene.ask("c", reading), process.memory.cache_counts().hits
            await scene.change(change)
            scene.world.clock.skip(2 * SHORT)
            told = await scene.ask("c", reading)
            self.assertNotEqual(told, before, reading)
            self.assertEqual(told, await scene.truth(reading))
            self.assertEqual(process.memory.cache_counts().hits, hits)

    async def test_long_pages(self) -> None:
        """Nor is one that doesn't fit into a portion (CLU-34)."""
        scene = await self.scene(await self.world(), _LONG_NOTE)
        process, reading = scene.process("c"), "page of alice: variable"
        before, hits = await scene.ask("c", reading), process.memory.cache_counts().hits
        self.assertEqual(await scene.ask("c", reading), before)
        self.assertEqual(process.memory.cache_counts().hits, hits)


class OneStateTests(MutantCase):
    """Readings of several statements."""

    async def test_one_state(self) -> None:
        """All statements of a reading see one state, and it is that which is remembered (CLU-34)."""
        scene = await self.scene(await self.world())
        role, process = str(scene.alice), scene.process("c")

        async def work(transaction: Transaction) -> NamedAnswer[tuple[Fetched, Fetched]]:
            first = await transaction.fetch(_SEALED, role)
            await scene.change()
            return NamedAnswer((first, await transaction.fetch(_SEALED, role)), [f"c:{role}"])

        reading = CachedReading(("twice",), work)
        first, second = await process.memory.read(reading)
        self.assertEqual(first, second)
        scene.world.clock.skip(2 * SHORT)
        self.assertNotEqual(await process.memory.read(reading), (first, second))


class ManyRowsTests(MutantCase):
    """Traps of what changes leave behind."""

    async def test_one_statement(self) -> None:
        """Of a statement that touches more than is named, little is left: an account is named whole once (DATA-26)."""
        world = await self.world()
        made = "SELECT 'acct:host:' || number FROM generate_series(1, 5000) AS number"
        await execute(world.others, f"INSERT INTO roles (role_id) {made}")
        rows = self.server.command("SELECT touched FROM changes", self.dsn.rpartition("=")[2])
        self.assertEqual(rows.count((["*:acct"],)), 1)
