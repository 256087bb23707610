"""The test of the test: whatever is forgotten about what is remembered is found."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from twisted.internet.defer import Deferred

from svc.model.query_results import Sealed
from svc.storage.cache.read_cache import ReadCache
from svc.storage.driver.statements import Transaction
from tests.integration.memory_mutants import Case, Mutant, of_coarse_names, of_names, of_program, of_triggers
from tests.integration.memory_readings import crowd
from tests.integration.memory_scene import ROTATE, Scene
from tests.integration.memory_world import LONG, SHORT, Gate, World, execute, turn
from tests.integration.postgres import PostgresTestCase

_TABLES: Final = "DELETE FROM changes; UPDATE changes_removed SET below = pg_snapshot_xmax(pg_current_snapshot())"


class MutantCase(PostgresTestCase):
    """A world, and accounts in it."""

    dsn: str
    _number = 0

    async def prepare(self) -> None:
        """Make the database."""
        await super().prepare()
        self.dsn = await self.create_database()

    async def world(self, memory: type[ReadCache] = ReadCache, *, counted: bool = True) -> World:
        """A world that has started, and stops with the test."""
        world = World(self.dsn, memory=memory, counted=counted)
        self.addCleanup(world.stop)
        await world.start()
        return world

    async def scene(self, world: World, *before: str, crowded: bool = False) -> Scene:
        """A new account, of which all processes know."""
        MutantCase._number += 1
        return await Scene.made(world, f"m{MutantCase._number}", *before, crowded=crowded)


class NameTests(MutantCase):
    """Triggers that are missing, and names that answers don't depend on."""

    async def test_triggers(self) -> None:
        """A trigger that is missing is found, each (DATA-26)."""
        await self._assert_found(of_triggers())

    async def test_names(self) -> None:
        """A name that a statement doesn't return is found, of each sort (CLU-32)."""
        await self._assert_found(of_names())

    async def test_coarse_names(self) -> None:
        """Names of more than is told apart are needed: of memberships, and of whole accounts (DATA-26)."""
        await self._assert_found(of_coarse_names())

    async def _assert_found(self, mutants: Iterable[Mutant]) -> None:
        world = await self.world()
        for mutant in mutants:
            self.assertFalse(await self._is_stale(world, mutant.case), f"{mutant.name}: stale without a mutation")
            self.assertTrue(await self._is_stale(world, mutant.case, mutant), f"{mutant.name}: not found")

    async def _is_stale(self, world: World, case: Case, mutant: Mutant | None = None) -> bool:
        """Tell whether the second server answers as before after a change, though it may not."""
        scene = await self.scene(world, *case.before, crowded=case.crowded)
        process = scene.process("c")
        process.database.names = lambda names: names if mutant is None else mutant.names(scene.account, names)
        first = await scene.ask("c", case.reading)
        hits = process.memory.cache_counts().hits
        self.assertEqual(await scene.ask("c", case.reading), first)
        self.assertGreater(process.memory.cache_counts().hits, hits, f"{case} isn't remembered")
        if mutant is not None and mutant.sql:
            await execute(world.others, mutant.sql)
        try:
            await scene.change(*case.change)
            world.clock.skip(2 * SHORT)
            then, now = await scene.ask("c", case.reading), await scene.truth(case.reading)
        finally:
            if mutant is not None and mutant.back:
                await execute(world.others, mutant.back)
        self.assertNotEqual(now, first, f"{case} changes nothing")
        self.assertIn(then, (first, now))
        return then == first


class ProgramTests(MutantCase):
    """What the program does about looks and readings, each part of it left out."""

    async def _assert_needed(self, name: str, stale: Callable[[Scene], Awaitable[bool]]) -> None:
        """The program isn't stale, and a mutant is."""
        mutant = of_program(name)
        self.assertFalse(await stale(await self.scene(await self.world())), "stale without a mutation")
        world = await self.world(mutant.memory(), counted=mutant.counted)
        self.assertTrue(await stale(await self.scene(world)), "not found")

    async def test_slots_raised(self) -> None:
        """A process sees what another of its server wrote, since that raised its slot (CLU-31)."""
        await self._assert_needed("slots raised", _written_by_another)

    async def test_slots_compared(self) -> None:
        """Slots are compared before memory is used (CLU-31)."""
        await self._assert_needed("slots compared", _written_by_another)

    async def test_slots_before_the_look(self) -> None:
        """Slots are read before a look is sent, not when it is answered (CLU-31)."""

        async def stale(scene: Scene) -> bool:
            gate, before = Gate(), await scene.ask("b")
            scene.process("b").database.look_gates.append(gate)
            scene.world.clock.skip(LONG + 1)
            asked = scene.begin("b")
            await scene.held(gate)
            await scene.process("a").stores.credentials.set_api_key(scene.alice, Sealed(b"new"))
            gate.open()
            await asked
            return await scene.ask("b") == before

        await self._assert_needed("slots before the look", stale)

    async def test_joined(self) -> None:
        """A request doesn't wait for a look that was sent before this server wrote (CLU-31)."""

        async def stale(scene: Scene) -> bool:
            gate, before = Gate(), await scene.ask("b")
            scene.process("b").database.look_gates.append(gate)
            scene.world.clock.skip(LONG + 1)
            first = scene.begin("b")
            await scene.held(gate)
            await scene.process("a").stores.credentials.set_api_key(scene.alice, Sealed(b"new"))
            second = scene.begin("b")
            gate.open()
            await first
            return await second == before

        await self._assert_needed("joined", stale)

    async def test_joined_late(self) -> None:
        """A request doesn't wait for a look that was sent longer ago than the lag (CLU-32)."""

        async def stale(scene: Scene) -> bool:
            first, gate, before = await _looking(scene)
            await scene.change()
            scene.world.clock.skip(2 * SHORT)
            second = scene.begin("c")
            gate.open()
            await first
            return await second == before

        await self._assert_needed("joined late", stale)

    async def test_age(self) -> None:
        """A look's age counts from its sending (CLU-32)."""

        async def stale(scene: Scene) -> bool:
            first, gate, before = await _looking(scene)
            await scene.change()
            scene.world.clock.skip(2 * SHORT)
            gate.open()
            await first
            return await scene.ask("c") == before

        await self._assert_needed("age", stale)

    async def test_lag(self) -> None:
        """What was looked at longer ago than the lag isn't used (CLU-32)."""

        async def stale(scene: Scene) -> bool:
            before = await scene.ask("c")
            await scene.change()
            scene.world.clock.skip(2 * SHORT)
            return await scene.ask("c") == before

        await self._assert_needed("lag", stale)

    async def test_running(self) -> None:
        """A transaction that was open at the last look is seen when it has been committed (CLU-32)."""

        async def stale(scene: Scene) -> bool:
            before, gate = await scene.ask("c"), Gate()

            async def work(transaction: Transaction) -> None:
                await transaction.execute(ROTATE.replace("{a}", scene.account))
                await gate.passed()

            done = Deferred.fromCoroutine(scene.world.others.transact(work))
            await scene.held(gate)
            # Others commit meanwhile, so that the snapshot goes past the open one.
            await execute(scene.world.judge, "UPDATE heartbeat SET beaten_at = now()")
            scene.world.clock.skip(2 * SHORT)
            await scene.ask("c")
            gate.open()
            await done
            scene.world.clock.skip(2 * SHORT)
            return await scene.ask("c") == before

        await self._assert_needed("running", stale)

    async def test_overtaken(self) -> None:
        """An answer that a change has overtaken isn't remembered (CLU-32)."""

        async def stale(scene: Scene) -> bool:
            gate = Gate()
            scene.process("c").database.gates.append(gate)
            asked = scene.begin("c")
            await scene.held(gate)
            await scene.change()
            scene.world.clock.skip(2 * SHORT)
            await scene.ask("c", "credential: host:h1")
            gate.open()
            before = await asked
            return await scene.ask("c") == before

        await self._assert_needed("overtaken", stale)

    async def test_history(self) -> None:
        """An answer from before the session of looks ended isn't remembered (CLU-33)."""

        async def stale(scene: Scene) -> bool:
            gate, process = Gate(), scene.process("c")
            process.database.gates.append(gate)
            asked = scene.begin("c")
            await scene.held(gate)
            await scene.world.lose(process)
            await scene.change()
            await scene.world.looked(process)
            gate.open()
            before = await asked
            return await scene.ask("c") == before

        await self._assert_needed("history", stale)

    async def test_forgotten(self) -> None:
        """What was remembered before the session of looks ended is forgotten (CLU-33)."""

        async def stale(scene: Scene) -> bool:
            before, process = await scene.ask("c"), scene.process("c")
            await scene.world.lose(process)
            await scene.change()
            await scene.world.looked(process)
            return await scene.ask("c") == before

        await self._assert_needed("forgotten", stale)

    async def test_missed(self) -> None:
        """Who didn't look while rows of changes were removed forgets everything (DATA-26)."""

        async def stale(scene: Scene) -> bool:
            before = await scene.ask("c")
            await scene.change()
            await scene.change(_TABLES)
            scene.world.clock.skip(2 * SHORT)
            return await scene.ask("c") == before

        await self._assert_needed("missed", stale)

    async def test_ends(self) -> None:
        """A value that ends is forgotten in time (CLU-34)."""

        async def stale(scene: Scene) -> bool:
            reading = "secret of alice: v1"
            ends = "clock_timestamp() + interval '0.5 seconds'"
            await scene.change(f"UPDATE secrets SET expires_at = {ends} WHERE resource_id = '{{a}}:variable:v1'")
            scene.world.clock.skip(LONG + 1)
            before = await scene.ask("a", reading)
            self.assertEqual(await scene.ask("a", reading), before)
            while await scene.truth(reading) == before:
                await turn(0.02)
            return await scene.ask("a", reading) == before

        await self._assert_needed("ends", stale)

    async def test_everything_in_the_account(self) -> None:
        """A change of policy touches what follows more memberships than are told apart (CLU-32)."""

        async def stale(scene: Scene) -> bool:
            (mutant,) = (each for each in of_coarse_names() if each.few)
            await crowd(scene.world.judge, scene.account)
            await scene.change(*mutant.case.before)
            scene.world.clock.skip(2 * SHORT)
            before = await scene.ask("c", mutant.case.reading)
            await scene.change(*mutant.case.change)
            scene.world.clock.skip(2 * SHORT)
            return await scene.ask("c", mutant.case.reading) == before

        await self._assert_needed("everything in the account", stale)

    async def test_folders(self) -> None:
        """A value in an authenticator's folder touches those who log in with it (CLU-32)."""

        async def stale(scene: Scene) -> bool:
            reading = "candidate: host:h1"
            before = await scene.ask("c", reading)
            await scene.change("DELETE FROM secrets WHERE resource_id LIKE '{a}:variable:svc/authn-jwt/ci/%'")
            scene.world.clock.skip(2 * SHORT)
            return await scene.ask("c", reading) == before

        await self._assert_needed("folders", stale)


async def _written_by_another(scene: Scene) -> bool:
    """Tell whether a process doesn't see what another one of its server wrote."""
    before = await scene.ask("b")
    await scene.process("a").stores.credentials.set_api_key(scene.alice, Sealed(b"new"))
    return await scene.ask("b") == before


async def _looking(scene: Scene) -> tuple[Deferred[object], Gate, object]:
    """Have the second server begin a look; return the request that waits for it, its gate, and what was answered before."""
    gate, before = Gate(), await scene.ask("c")
    scene.process("c").database.look_gates.append(gate)
    scene.world.clock.skip(2 * SHORT)
    first = scene.begin("c")
    await scene.held(gate)
    return first, gate, before
