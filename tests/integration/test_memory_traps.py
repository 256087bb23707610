"""The traps of what is remembered, each produced on a real PostgreSQL."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Final

from twisted.internet import reactor
from twisted.internet.defer import Deferred

from svc.model.dialect import NATIVE
from svc.model.errors import Refusal
from svc.model.names import RoleName
from svc.model.query_results import Caller, MembersQuery, Sealed
from svc.services.invocation import Invocation, NullRecorder
from svc.services.roles import RoleService
from svc.storage.cache.read_cache import ReadCache
from svc.storage.cache.trimming import RETENTION, ChangeTrimming
from svc.storage.driver.statements import Transaction
from svc.storage.dumps import dump_database, restore_dump
from svc.storage.last_logins import LastLoginStore
from tests.integration.memory_mutants import of_program
from tests.integration.memory_readings import BRANCH, NAMES, UNDER
from tests.integration.memory_scene import KEY, ROTATE, Scene
from tests.integration.memory_world import SHORT, Gate, World, execute, turn
from tests.integration.postgres import PostgresTestCase, Server
from tests.integration.replication import PairTestCase

#: Looks at which something would show that grows with each.
_LOOKS: Final = 12

#: What nobody asks about.
_NOTE: Final = "resource_id = '{a}:host:h2' AND name = 'note'"

_numbers = itertools.count(1)


async def begin_transaction(scene: Scene, sql: str) -> tuple[Gate, Deferred[None]]:
    """Begin a transaction that stays open until its gate is opened, then commits."""
    gate = Gate()

    async def work(transaction: Transaction) -> None:
        await transaction.execute(sql.replace("{a}", scene.account))
        await gate.passed()

    done = Deferred.fromCoroutine(scene.world.others.transact(work))
    await scene.held(gate)
    return gate, done


async def _demand_nothing() -> None:
    """Take the database for a primary."""


class OneServerTests(PostgresTestCase):
    """On a PostgreSQL that runs on, or doesn't."""

    async def scene(self, dsn: str | None = None, memory: type[ReadCache] = ReadCache) -> Scene:
        """An account in a world of its own."""
        world = World(dsn or await self.create_database(), memory=memory)
        self.addCleanup(world.stop)
        await world.start()
        return await Scene.made(world, f"t{next(_numbers)}")

    async def own(self) -> tuple[Server, Scene]:
        """A server of the test's own, and an account on it."""
        server = Server()
        self.addCleanup(server.destroy)
        await server.start()
        return server, await self.scene(await server.create_database("own"))

    async def assert_current(self, scene: Scene, name: str = "c") -> None:
        """A process answers as the database does, twice: also when it has remembered that."""
        self.assertEqual(await scene.ask(name), await scene.truth())
        self.assertEqual(await scene.ask(name), await scene.truth())

    async def test_waiting_reading(self) -> None:
        """A reading that waited for a lock, while a change overtook it, isn't remembered (CLU-32)."""
        scene = await self.scene()
        await scene.ask("c", "credential: host:h1")  # so that the statement is prepared
        lock, done = await begin_transaction(scene, "LOCK TABLE credentials IN ACCESS EXCLUSIVE MODE")
        asked = scene.begin("c")
        waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'EXECUTE credential%'"
        while not self.server.command(waiting):
            await turn(0.01)
        await scene.change("UPDATE roles SET creation = creation + 1 WHERE role_id = '{a}:user:alice'")
        scene.world.clock.skip(2 * SHORT)
        await scene.process("c").memory.poll_now()
        lock.open()
        await done
        before = await asked
        self.assertNotEqual(before, await scene.truth())
        await self.assert_current(scene)

    async def test_numbers_given_again(self) -> None:
        """After a crash transactions have numbers again that aborted ones had: what they change is seen (CLU-33)."""
        server, scene = await self.own()
        await scene.change()
        # Nobody is to write down soon which numbers were given.
        server.command("ALTER SYSTEM SET wal_writer_delay = '10s'")
        server.command("SELECT pg_reload_conf()")
        await scene.ask("c")
        process = scene.process("c")
        for _ in range(20):
            server.command("BEGIN; SELECT pg_current_xact_id(); ROLLBACK", "own")
        scene.world.clock.skip(2 * SHORT)
        await scene.ask("c")
        ((seen,),) = server.command("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint", "own")
        await server.kill()
        await server.start()
        quoted = ROTATE.replace("{a}", scene.account)
        server.command(quoted, "own")
        ((written,),) = server.command("SELECT max(xid::text::bigint) FROM changes", "own")
        self.assertLess(written, seen, "the trap is not there")
        await scene.world.looked(process)
        await scene.world.judge.wait_until_connected()
        await self.assert_current(scene)

    async def test_hanging_database(self) -> None:
        """Where the database hangs, memory is given up, and the database asked (CLU-33)."""
        server, scene = await self.own()
        await scene.ask("c")
        scene.world.clock.skip(2 * SHORT)
        await server.freeze()
        asked = scene.begin("c")
        while not scene.process("c").memory.is_lost:
            await turn(0.02)
        self.assertFalse(asked.called)
        await server.thaw()
        self.assertEqual(await asked, await scene.truth())

    async def test_end_in_the_middle_of_a_look(self) -> None:
        """Where the session ends in the middle of a look, who waits for it is answered by the database (CLU-33)."""
        scene = await self.scene()
        await scene.ask("c")
        lock, done = await begin_transaction(scene, "LOCK TABLE changes IN ACCESS EXCLUSIVE MODE")
        scene.world.clock.skip(2 * SHORT)
        asked = [scene.begin("c"), scene.begin("c")]
        self.server.command(f"SELECT pg_terminate_backend({scene.process('c').database.looker})")
        self.assertEqual([await each for each in asked], [await scene.truth()] * 2)
        lock.open()
        await done
        await scene.change()
        await scene.world.looked(scene.process("c"))
        await self.assert_current(scene)

    async def test_replaced_process(self) -> None:
        """A process that takes the place of another goes on with its slot, so that its commits are seen (CLU-31)."""
        scene = await self.scene()
        world, before = scene.world, await scene.ask("a")
        for _ in range(3):
            await scene.process("b").stores.credentials.set_api_key(scene.alice, Sealed(b"first"))
        await scene.ask("a")
        former = world.processes["b"]
        former.memory.stopService()
        await former.database.stopService()
        await world.replace("b")
        for number in range(3):
            await scene.process("b").stores.credentials.set_api_key(scene.alice, Sealed(b"new %d" % number))
            self.assertNotEqual(await scene.ask("a"), before)
            await self.assert_current(scene, "a")

    async def test_long_transaction(self) -> None:
        """A long transaction in another database neither drops what it doesn't touch, nor lengthens looks (CLU-32)."""
        scene = await self.scene()
        other = await self.open_database(await self.create_database())
        gate = Gate()

        async def work(transaction: Transaction) -> None:
            await transaction.execute("SELECT pg_current_xact_id()")
            await gate.passed()

        done = Deferred.fromCoroutine(other.transact(work))
        await scene.held(gate)
        process = scene.process("c")
        await scene.ask("c")
        await scene.change("INSERT INTO annotations VALUES ('{a}:host:h2', 'note', 'first')")
        await change_others(scene, 1 + _LOOKS)
        counts = process.memory.cache_counts()
        self.assertEqual(max(process.database.looked[-_LOOKS:]), 2, "the snapshot, and one change")
        await scene.ask("c")
        self.assertEqual(process.memory.cache_counts().hits, counts.hits + 1)
        gate.open()
        await done

    async def test_many_changes(self) -> None:
        """Of more changes than a look returns, those that it leaves out aren't missed, and a look reads no more (CLU-32)."""
        scene = await self.scene()
        before = await scene.ask("c")
        noted = "INSERT INTO annotations SELECT '{a}:host:h2', 'note' || {begin} + n, 'x' FROM generate_series(1, 1999) AS n"
        for number in range(6):
            if number == 3:
                await scene.change()
            await scene.change(noted.replace("{begin}", str(number * 2000)))
        scene.world.clock.skip(2 * SHORT)
        self.assertNotEqual(await scene.truth(), before)
        await self.assert_current(scene)
        self.assertEqual(max(scene.process("c").database.looked), 1 + 5_000)

    async def test_lists_of_several_batches(self) -> None:
        """A list of several batches isn't judged by memory while later batches come from the database (CLU-34)."""
        scene = await self.scene()
        made = "SELECT '{a}:host:many-' || number FROM generate_series(10000, 12500) AS number"
        await scene.change(
            f"INSERT INTO roles (role_id) {made}",
            f"INSERT INTO memberships SELECT '{{a}}:group:g1', role_id, false, false FROM ({made}) AS made (role_id)",
            "INSERT INTO permissions VALUES ('{a}:group:g1', 'read', '{a}:group:g2')",
        )
        scene.world.clock.skip(2 * SHORT)
        stores = scene.process("c").stores
        service = RoleService(stores.roles, NATIVE, LastLoginStore(stores.database))
        invocation = Invocation(Caller(scene.alice, 0, scene.creation), "192.0.2.7", NullRecorder())

        async def listed() -> list[str]:
            try:
                page = await service.list_members(invocation, MembersQuery(RoleName(scene.account, "group", "g1")))
            except Refusal as refusal:
                return [type(refusal).__name__]
            return [row.member async for batch in page.batches for row in batch]

        self.assertEqual(len(await listed()), 2504)
        # Alice may see the group no more, and then somebody joins whom she never could see there.
        await scene.change("DELETE FROM memberships WHERE member_id = '{a}:user:alice' AND NOT ownership")
        await scene.change(
            "INSERT INTO roles (role_id) VALUES ('{a}:host:zzz')",
            "INSERT INTO memberships VALUES ('{a}:group:g1', '{a}:host:zzz', false, false)",
        )
        self.assertNotIn(f"{scene.account}:host:zzz", await listed())

    async def test_dump_and_restore(self) -> None:
        """A dump has no rows of changes, and a restored database remembers and drops as any other (DATA-26)."""
        scene = await self.scene()
        place = Path(self.mktemp())
        await dump_database(reactor, self.server.dsn(scene.world.name), place, embedded=True)
        empty = await self.create_database(migrated=False)
        await restore_dump(reactor, empty, place, "public", embedded=True)
        name = empty.rpartition("=")[2]
        self.assertEqual(self.server.command("SELECT count(*) FROM changes", name), [(0,)])
        restored = await self.scene(empty)
        before = await restored.ask("c")
        await restored.change()
        restored.world.clock.skip(2 * SHORT)
        self.assertNotEqual(await restored.ask("c"), before)
        await self.assert_current(restored)

    async def test_rows_of_another_history(self) -> None:
        """Rows that come from another history, with a dump of somebody's, hide no change, and are removed (DATA-26)."""
        scene = await self.scene()
        for below, foreign in (("0", "9000000000"), ("9000000000", "9000000001"), ("3", "3")):
            await scene.change(
                f"UPDATE changes_removed SET below = '{below}'",
                f"INSERT INTO changes VALUES ('{foreign}', '{{v:another}}')",
            )
            scene.world.clock.skip(2 * SHORT)
            before = await scene.ask("c")
            await scene.change()
            scene.world.clock.skip(2 * SHORT)
            self.assertNotEqual(await scene.ask("c"), before)
            await self.assert_current(scene)
        await ChangeTrimming(scene.world.clock, scene.world.others, _demand_nothing).trim()
        rest = "SELECT count(*) FROM changes, changes_removed WHERE xid > 8000000000 OR below > '8000000000'::xid8"
        self.assertEqual(self.server.command(rest.replace("> 8000000000", "> '8000000000'::xid8"), scene.world.name), [(0,)])

    async def test_settings_of_a_candidate(self) -> None:
        """Who is told another etag of an authenticator's settings, and asks for them, gets that one (CLU-34)."""
        scene = await self.scene()
        stores = scene.process("a").stores.authenticators
        await stores.read_settings(scene.account, BRANCH, NAMES)
        issuer = f"'{{a}}:variable:{BRANCH}/issuer'"
        await scene.change(f"INSERT INTO secrets (resource_id, version, sealed) VALUES ({issuer}, 2, 'new')")
        candidate = await stores.read_candidate(RoleName(scene.account, "host", "h1"), BRANCH, NAMES, UNDER)
        self.assertEqual((await stores.read_settings(scene.account, BRANCH, NAMES)).etag, candidate.etag)

    async def test_settings_before_a_candidate(self) -> None:
        """Who knows newer settings than memory, and asks afresh, is told of a candidate with those (CLU-34)."""
        scene = await self.scene()
        host, stores = RoleName(scene.account, "host", "h1"), scene.process("a").stores.authenticators
        await stores.read_candidate(host, BRANCH, NAMES, UNDER)
        await scene.change(f"INSERT INTO authenticator_switches VALUES ('{{a}}:webservice:{BRANCH}', true)")
        settings = await stores.read_settings(scene.account, BRANCH, NAMES)
        self.assertNotEqual((await stores.read_candidate(host, BRANCH, NAMES, UNDER)).etag, settings.etag)
        afresh = await stores.read_candidate(host, BRANCH, NAMES, UNDER, afresh=True)
        self.assertEqual(afresh.etag, settings.etag)


class StandbyCase(PairTestCase):
    """A primary and its standby."""

    async def scene(self, memory: type[ReadCache] = ReadCache, *, place: str | None = None) -> Scene:
        """An account in a world of its own; ``c`` is at a place of its own, if one is named."""
        primary = self.pair.primary.dsn(self.name)
        world = World(primary, self.pair.follower.dsn(self.name), memory=memory, place=place)
        self.addCleanup(world.stop)
        await world.start()
        scene = await Scene.made(world, f"s{next(_numbers)}")
        await self.pair.caught_up()
        return scene


class StandbyTests(StandbyCase):
    """On a primary and its standby."""

    async def test_open_transaction(self) -> None:
        """A standby's snapshot names no open transaction, and yet what one changes is seen when it is replayed (CLU-32)."""
        self.assertFalse(await self._is_stale(ReadCache))
        self.assertTrue(await self._is_stale(of_program("standby").memory()))

    async def _is_stale(self, memory: type[ReadCache]) -> bool:
        scene = await self.scene(memory)
        before = await scene.ask("f")
        gate, done = await begin_transaction(scene, ROTATE)
        await execute(scene.world.judge, "UPDATE heartbeat SET beaten_at = now()")
        await self.pair.caught_up()
        ((snapshot, waits),) = self.pair.follower.command(
            "SELECT pg_current_snapshot()::text, pg_snapshot_xmin(pg_current_snapshot()) <"
            " pg_snapshot_xmax(pg_current_snapshot())"
        )
        self.assertTrue(snapshot.endswith(":") and waits, snapshot)
        scene.world.clock.skip(2 * SHORT)
        await scene.ask("f")
        gate.open()
        await done
        await self.pair.caught_up()
        scene.world.clock.skip(2 * SHORT)
        self.assertNotEqual(await scene.truth(), before)
        return await scene.ask("f") == before

    async def test_long_transaction(self) -> None:
        """A long transaction on the primary has a standby's looks drop nothing that it doesn't touch (CLU-32)."""
        scene = await self.scene()
        gate, done = await begin_transaction(scene, "SELECT pg_current_xact_id()")
        await scene.change("INSERT INTO annotations VALUES ('{a}:host:h2', 'note', 'first')")
        await scene.ask("f", "credential: host:h1")
        for _ in range(_LOOKS):
            await change_others(scene, 1)
            await self.pair.caught_up()
        process = scene.process("f")
        counts = process.memory.cache_counts()
        await scene.ask("f", "credential: host:h1")
        self.assertEqual(process.memory.cache_counts().hits, counts.hits + 1)
        gate.open()
        await done

    async def test_rows_removed_unseen(self) -> None:
        """Changes that a standby replays together with their removal are not missed (DATA-26)."""
        scene = await self.scene()
        trimming = ChangeTrimming(scene.world.clock, scene.world.others, _demand_nothing)
        before = await scene.ask("f")
        self.pair.pause()
        await scene.change()
        await trimming.trim()
        scene.world.clock.skip(RETENTION + 1)
        await trimming.trim()
        self.assertEqual(self.pair.primary.command("SELECT count(*) FROM changes", self.name), [(0,)])
        self.pair.resume()
        await self.pair.caught_up()
        scene.world.clock.skip(2 * SHORT)
        self.assertNotEqual(await scene.truth(), before)
        self.assertEqual(await scene.ask("f"), await scene.truth())

    async def test_promotion(self) -> None:
        """A standby that is promoted goes on in one history: what was open before, and comes after, is seen (CLU-32)."""
        scene = await self.scene()
        before = await scene.ask("f")
        await scene.change()
        await self.pair.caught_up()
        scene.world.clock.skip(2 * SHORT)
        now = await scene.ask("f")
        self.assertNotEqual(now, before)
        promoted = await self.pair.promote()
        for _ in range(2):
            promoted.command(ROTATE.replace("{a}", scene.account), self.name)
            scene.world.clock.skip(2 * SHORT)
            former, now = now, await scene.ask("f")
            self.assertNotEqual(now, former)

    async def test_failover(self) -> None:
        """After a failover memory is of the new primary, and nothing is left of the old one (CLU-33)."""
        scene = await self.scene(place=self.pair.dsn(self.name))
        process, before = scene.process("c"), await scene.ask("c")
        await self.pair.primary.kill()
        promoted = await self.pair.promote()
        promoted.command(ROTATE.replace("{a}", scene.account), self.name)
        self.pair.lead_to(promoted)
        await process.database.wait_until_connected()
        await scene.world.looked(process)
        now = await scene.ask("c")
        self.assertNotEqual(now, before)
        self.assertEqual(await scene.ask("f"), now)

    async def test_another_server_answers(self) -> None:
        """What another PostgreSQL answers than the one that is looked at isn't remembered (CLU-33)."""
        for memory, remembered in ((ReadCache, 0), (of_program("server").memory(), 1)):
            self.pair.lead_to(self.pair.primary)
            scene = await self.scene(memory, place=self.pair.dsn(self.name))
            process = scene.process("c")
            self.pair.lead_to(self.pair.follower)
            self.pair.primary.command(f"SELECT pg_terminate_backend({process.database.looker})")
            while not process.memory.is_lost:
                await turn()
            await scene.world.looked(process)
            hits = process.memory.cache_counts().hits
            await scene.ask("c", KEY)
            await scene.ask("c", KEY)
            self.assertEqual(process.memory.cache_counts().hits - hits, remembered)


async def change_others(scene: Scene, times: int) -> None:
    """Change what nobody asks about, and have all look, so many times."""
    for number in range(times):
        await scene.change(f"UPDATE annotations SET value = '{number}' WHERE {_NOTE}")
        scene.world.clock.skip(2 * SHORT)
        for process in scene.world.processes.values():
            await process.memory.poll_now()
