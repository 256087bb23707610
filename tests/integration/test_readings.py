"""Readings from a standby while writes follow the primary, on a real pair; and a server as operators run it so."""

from __future__ import annotations

from typing import Any, Final

from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from svc.model.errors import StoreUnavailable
from svc.model.request_notes import begin_notes
from svc.model.versions import StateVersion
from svc.storage.cache.commit_counters import CommitCounters
from svc.storage.driver.database import Database
from svc.storage.driver.location import with_attributes
from svc.storage.driver.primaries import EVERY
from svc.storage.driver.replication import Replication
from svc.storage.driver.standbys import Standbys
from svc.storage.driver.statements import Statement
from svc.storage.read_routing import ReadRouter
from svc.storage.replicas import Replicas
from tests.integration.client import Answer, Api
from tests.integration.process import ServerTestCase
from tests.integration.replication import PairTestCase

reactor: Any = installed_reactor

#: Whether a standby answered, and the largest number there.
_READ: Final = Statement("numbers_read", "SELECT pg_is_in_recovery(), (SELECT coalesce(max(n), 0) FROM numbers)")
_WRITE: Final = Statement("numbers_write", "INSERT INTO numbers VALUES ($1)")


class SplitCase(PairTestCase):
    """A process that writes to the primary of a pair and reads from its standby."""

    async def prepare(self) -> None:
        """Make a table of numbers, and begin to read from the standby."""
        await super().prepare()
        pair = self.pair
        pair.primary.command("CREATE TABLE numbers (n integer)", self.name)
        self.dsn = dsn = with_attributes(pair.hosts(self.name), "primary")
        self.slots = CommitCounters.for_one_process()
        self.primary = await self.opened(dsn, pool_size=3)
        self.primary.report_commits(self.written, lambda: self.slots.written_versions(self.slots.read_counters()).timeline)
        self.replication = Replication(self.primary, reactor)
        self.places = Replicas(reactor, self.primary, Standbys(reactor, dsn, self.primary), self.slots)
        for service in (self.replication, self.places):
            service.startService()
            self.addCleanup(service.stopService)
        self.readings = ReadRouter(reactor, self.places)
        await self.comes_to_be((True, 0))

    def written(self, confirmed: bool, version: StateVersion | None) -> None:
        """Count a commit."""
        self.slots.count_commit(confirmed=confirmed, version=version)

    async def read(self) -> tuple[bool, int]:
        """Read, for a request of its own."""

        async def request() -> tuple[bool, int]:
            begin_notes()
            ((standby, number),) = await self.readings.fetch(_READ)
            return standby, number

        return await Deferred.fromCoroutine(request())

    async def write(self, number: int) -> None:
        """Write."""
        await self.readings.change(_WRITE, number)

    async def comes_to_be(self, answer: tuple[bool, int]) -> None:
        """Wait until a reading is answered so; none may fail."""
        told: list[tuple[bool, int]] = []
        for _ in range(1500):
            told.append(await self.read())
            if told[-1] == answer:
                return
            await deferLater(reactor, 0.01)
        raise AssertionError(f"never {answer}: {told[-10:]}")

    async def written_again(self, number: int) -> None:
        """Write when there is a primary, while readings go on."""
        for _ in range(1500):
            try:
                await self.write(number)
            except StoreUnavailable:
                await self.read()
                await deferLater(reactor, 0.01)
            else:
                return
        raise AssertionError("there is no primary to write to")


class ReadingsTests(SplitCase):
    """Where readings go."""

    async def test_own_writes(self) -> None:
        """What this server wrote is read from the primary until the standby has replayed it, for however long, then from the
        standby; so is what may have come of a write with an unknown outcome. What others wrote is seen when the standby has
        replayed it (CLU-39, CLU-40).
        """
        self.pair.pause()
        await self.write(1)
        self.assertEqual(await self.read(), (False, 1))
        while self.places.standby is not None:
            self.assertEqual(await self.read(), (False, 1))
            await deferLater(reactor, 0.02)
        self.assertEqual(await self.read(), (False, 1))
        self.pair.resume()
        await self.comes_to_be((True, 1))
        self.pair.primary.command("INSERT INTO numbers VALUES (2)", self.name)
        await self.pair.caught_up()
        self.assertEqual(await self.read(), (True, 2))
        self.pair.pause()
        self.pair.primary.command("INSERT INTO numbers VALUES (3)", self.name)
        self.slots.count_commit(confirmed=False)
        for _ in range(20):
            self.assertEqual(await self.read(), (False, 3))
            await deferLater(reactor, 0.01)
        self.pair.resume()
        await self.comes_to_be((True, 3))

    async def test_standby_gone(self) -> None:
        """No reading fails when the standby is killed, or hangs: they go to the primary, and back when it is there again
        (CLU-41).
        """
        await self.write(1)
        await self.comes_to_be((True, 1))
        await self.pair.follower.kill()
        await self.comes_to_be((False, 1))
        await self.pair.follower.start()
        await self.comes_to_be((True, 1))
        await self.pair.follower.freeze()
        await self.comes_to_be((False, 1))
        await self.pair.follower.thaw()
        await self.comes_to_be((True, 1))

    async def test_two_primaries(self) -> None:
        """Where a standby was promoted and the former primary runs on, first in the list, all is written to the newer: by a
        process that is started then, and soon by one that has written to the former. When the newer is gone, nothing is
        written (CLU-45).
        """
        await self.write(1)
        newer, older = await self.pair.promote(), self.pair.primary
        fresh = await self.opened(self.dsn)
        await fresh.change(_WRITE, 2)
        count = "SELECT count(*) FROM numbers WHERE n = 2"
        self.assertEqual((newer.command(count, self.name), older.command(count, self.name)), ([(1,)], [(0,)]))
        await deferLater(reactor, EVERY + 1.0)
        await self.written_again(2)
        self.assertEqual((newer.command(count, self.name), older.command(count, self.name)), ([(2,)], [(0,)]))
        await newer.kill()
        for _ in range(30):
            await self.assertFailure(Deferred.fromCoroutine(fresh.change(_WRITE, 2)), StoreUnavailable)
            await deferLater(reactor, 0.1)
        self.assertEqual(older.command(count, self.name), [(0,)])

    async def test_primary_gone(self) -> None:
        """No reading fails while the standby lives: the primary killed, no primary, the standby promoted. Writes fail until
        then; what is written afterwards is read at once. A process that starts without a primary reads too (CLU-39, CLU-41,
        CLU-42).
        """
        await self.write(1)
        await self.comes_to_be((True, 1))
        await self.pair.primary.kill()
        for _ in range(50):
            self.assertEqual(await self.read(), (True, 1))
            await deferLater(reactor, 0.02)
        await self.assertFailure(Deferred.fromCoroutine(self.write(2)), StoreUnavailable)
        other = Database(reactor, self.dsn, pool_size=1, statement_timeout=5.0, first_wait=0.5)
        other.startService()
        self.addCleanup(other.stopService)
        places = Replicas(reactor, other, Standbys(reactor, self.dsn, other), CommitCounters.for_one_process())
        places.startService()
        self.addCleanup(places.stopService)
        self.assertEqual(await ReadRouter(reactor, places).fetch(_READ), [(True, 1)])
        promoting = Deferred.fromCoroutine(self.pair.promote())
        while not promoting.called:
            self.assertEqual((await self.read())[1], 1)
            await deferLater(reactor, 0.01)
        await self.written_again(3)
        self.assertEqual(await self.read(), (False, 3))


class FormerPrimaryTests(PairTestCase):
    """A process whose sessions are with a primary that has a successor, and lives on."""

    async def test_left_behind(self) -> None:
        """When its server has written to the successor, it reads and writes there too, and nothing at the former primary;
        where the successor can't be had, it reads nothing (CLU-44).
        """
        pair, newest = self.pair, [1]
        pair.primary.command("CREATE TABLE numbers (n integer)", self.name)
        await pair.caught_up()
        database, stuck = await self.opened(pair.dsn(self.name)), await self.opened(pair.primary.dsn(self.name))
        for each in (database, stuck):
            each.report_commits(lambda *_: None, lambda: newest[0])
            await each.fetch(_READ)
            await each.change(_WRITE, 1)
        await pair.caught_up()
        await pair.promote()
        pair.lead_to(pair.follower)
        pair.follower.command("INSERT INTO numbers VALUES (2)", self.name)
        self.assertEqual(await database.fetch(_READ), [(False, 1)])
        newest[0] = 2
        self.assertEqual(await database.fetch(_READ), [(False, 2)])
        await database.change(_WRITE, 3)
        self.assertEqual(pair.follower.command("SELECT max(n) FROM numbers", self.name), [(3,)])
        await self.assertFailure(Deferred.fromCoroutine(stuck.fetch(_READ)), StoreUnavailable)


class ServerTests(PairTestCase, ServerTestCase):
    """A server of two processes, as operators run it."""

    timeout = 400
    migrated = False

    async def change(self, value: bytes) -> Answer:
        """Write a value."""
        return await self.api.ask("POST", self.api.variable("v"), value, self.admin)

    async def assert_read(self, value: bytes) -> None:
        """Somebody logs in, and reads that value, by whichever process."""
        for _ in range(8):
            await self.api.tells("/readyz", 200)
            token = await self.api.authenticate("admin", self.key)
            answer = await self.api.ask("GET", self.api.variable("v"), token=token)
            self.assertEqual((answer.status, answer.body), (200, value))
            batch = await self.api.ask("GET", "/secrets?variable_ids=acme:variable:v", token=token)
            self.assertEqual((batch.status, batch.json()), (200, {"acme:variable:v": value.decode()}))

    async def test_all(self) -> None:
        """A value that was changed is read at once while the standby is behind. Without a primary, logins and readings go
        on, changes are 503 with ``Retry-After``, and readiness tells the two apart, also of a server that is started then;
        a change succeeds soon after a promotion (CLU-39, CLU-41, CLU-42, HEALTH-10, HEALTH-12).
        """
        pair, options = self.pair, ("--account=acme", "--read-from=standby", "--processes=2", "--health-interval=1")
        hosts = pair.hosts(self.name)
        server = self.serve(*options, database_url=hosts)
        self.api = api = Api.of(self, await server.ready())
        self.key = server.admin_key()
        self.admin = await api.authenticate("admin", self.key)
        loaded = await api.ask("POST", "/policies/acme/policy/root", b"- !variable v", self.admin)
        self.assertEqual(loaded.status, 201, loaded)
        for value in (b"one", b"two", b"three"):
            self.assertEqual((await self.change(value)).status, 201)
            await self.assert_read(value)
        pair.pause()
        self.assertEqual((await self.change(b"four")).status, 201)
        await self.assert_read(b"four")
        pair.resume()
        await pair.caught_up()
        await self.api.tells("/readyz?write", 200)
        # Each process asks its standby within a second of that.
        await server.says("Readings go to the standby")
        await pair.primary.kill()
        await self.assert_read(b"four")
        await self.api.tells("/readyz?write", 503)
        await self.assert_read(b"four")
        refused = await self.change(b"lost")
        self.assertEqual(refused.status, 503, refused)
        self.assertIn("retry-after", refused.headers)
        other = self.serve(*options, "--database-wait=1", database_url=hosts)
        first, self.api = self.api, Api.of(self, await other.ready())
        await self.api.tells("/readyz", 200)
        await self.assert_read(b"four")
        self.api = first
        await pair.promote()
        await self.api.tells("/readyz?write", 200)
        self.assertEqual((await self.change(b"five")).status, 201)
        await self.assert_read(b"five")
