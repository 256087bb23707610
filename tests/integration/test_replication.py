"""The pair of servers that other tests stand on does what it says."""

from __future__ import annotations

from typing import Any

import psycopg2
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from svc.model.errors import ReadOnlyStandby, StoreUnavailable
from svc.model.expiration import RoundOwner
from svc.storage.database_state import DatabaseState
from svc.storage.driver.database import Database
from svc.storage.driver.replication import Replication
from svc.storage.driver.statements import Statement, Transaction
from svc.storage.expirations import ExpirationStore
from tests.integration.replication import PairTestCase

reactor: Any = installed_reactor

_SLOW_READ = Statement("slow_read", "SELECT count(*), pg_sleep($1::float) IS NULL FROM secrets")

_BEATEN = "SELECT extract(epoch FROM beaten_at)::float FROM heartbeat"


class PairTests(PairTestCase):
    """A primary and its hot standby."""

    async def test_streams(self) -> None:
        """What is written on the primary is soon read on the standby, which takes no writes itself."""
        pair = self.pair
        pair.primary.command("CREATE TABLE notes (id int); INSERT INTO notes VALUES (1)", self.name)
        await pair.caught_up()
        self.assertEqual(pair.follower.command("SELECT id FROM notes", self.name), [(1,)])
        with self.assertRaises(psycopg2.errors.ReadOnlySqlTransaction):
            pair.follower.command("INSERT INTO notes VALUES (2)", self.name)

    async def test_pause_and_disconnect(self) -> None:
        """A standby that is paused or disconnected falls behind, and catches up afterwards (CLU-9)."""
        pair = self.pair
        pair.primary.command("CREATE TABLE notes (id int)", self.name)
        await pair.caught_up()
        pair.pause()
        pair.primary.command("INSERT INTO notes VALUES (1)", self.name)
        self.assertEqual(pair.follower.command("SELECT id FROM notes", self.name), [])
        pair.resume()
        await pair.caught_up()
        self.assertEqual(pair.follower.command("SELECT id FROM notes", self.name), [(1,)])
        await pair.disconnect()
        pair.primary.command("INSERT INTO notes VALUES (2)", self.name)
        self.assertEqual(pair.follower.command("SELECT id FROM notes", self.name), [(1,)])
        await pair.reconnect()
        await pair.caught_up()
        self.assertEqual(pair.follower.command("SELECT id FROM notes", self.name), [(1,), (2,)])

    async def test_kill_and_promote(self) -> None:
        """When the primary is gone the standby becomes one, and another takes its place beside it."""
        pair = self.pair
        await pair.primary.kill()
        await pair.exchange()
        pair.primary.command("CREATE TABLE notes (id int); INSERT INTO notes VALUES (1)", self.name)
        await pair.caught_up()
        self.assertEqual(pair.follower.command("SELECT id FROM notes", self.name), [(1,)])

    async def test_link(self) -> None:
        """The link leads to one server, then to another."""
        pair = self.pair
        asked = "SELECT pg_is_in_recovery()"
        for server, standby in ((pair.primary, False), (pair.follower, True)):
            pair.lead_to(server)
            connection = psycopg2.connect(pair.dsn(self.name))
            self.addCleanup(connection.close)
            with connection.cursor() as cursor:
                cursor.execute(asked)
                self.assertEqual(cursor.fetchall(), [(standby,)])


class ReplicationTests(PairTestCase):
    """How a server knows what its database is."""

    async def begun(self, dsn: str) -> tuple[Database, Replication]:
        """Replication on a database, stopped when the test ends."""
        database = await self.opened(dsn)
        replication = Replication(database, reactor)
        replication.startService()
        self.addCleanup(replication.stopService)
        return database, replication

    async def refuses(self, replication: Replication) -> bool:
        """Whether writes are refused."""
        try:
            await replication.require_primary()
        except ReadOnlyStandby:
            return True
        return False

    async def comes_to(self, replication: Replication, refuses: bool) -> None:
        """Wait until writes are refused, or are not."""
        for _ in range(1000):
            try:
                if await self.refuses(replication) is refuses:
                    return
            except StoreUnavailable:
                pass
            await deferLater(reactor, 0.02)
        raise AssertionError("it is never noticed")

    async def test_changes(self) -> None:
        """A primary that is replaced by a standby behind the same address, and its promotion, are noticed without a restart
        (CLU-1, CLU-5).

        A standby that was promoted takes the very next write, and the next turn of expiration; before, none.
        """
        pair = self.pair
        database, replication = await self.begun(pair.dsn(self.name))
        state = DatabaseState(database)
        self.assertFalse(await self.refuses(replication))
        position = await state.read_position()
        self.assertEqual((position.standby, position.lag_bytes, position.lag_seconds), (False, None, None))
        await pair.caught_up()
        pair.lead_to(pair.follower)
        pair.primary.command("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'svc'")
        await self.comes_to(replication, True)
        position = await state.read_position()
        self.assertTrue(position.standby)
        self.assertGreaterEqual(position.lag_seconds or 0, 0)
        self.assertIsNotNone(position.lag_seconds)
        self.assertEqual(position.lag_bytes, 0)
        await state.check_transaction()
        expirations = ExpirationStore(database)
        worked: list[bool] = []

        async def work() -> None:
            worked.append(True)

        self.assertEqual((await expirations.run_exclusively(work), worked), (RoundOwner.STANDBY, []))
        await pair.promote()
        self.assertFalse(await self.refuses(replication))
        await state.check_transaction()
        self.assertEqual((await expirations.run_exclusively(work), worked), (RoundOwner.OURS, [True]))
        self.assertIsNone((await state.read_position()).lag_seconds)

    async def test_becomes_a_standby(self) -> None:
        """A write on what was a primary a moment ago is refused by PostgreSQL; a transaction that its end cuts off fails
        (CLU-5).
        """
        pair = self.pair
        database, replication = await self.begun(pair.primary.dsn(self.name))
        await replication.require_primary()

        async def work(transaction: Transaction) -> None:
            await transaction.execute("CREATE TABLE never (id int)")
            await pair.primary.demote()
            await transaction.execute("INSERT INTO never VALUES (1)")

        await self.assertFailure(Deferred.fromCoroutine(database.transact(work)), StoreUnavailable)
        await database.wait_until_connected()
        add = Statement("add_canary", "INSERT INTO canary (sealed) VALUES ('x')")
        await self.assertFailure(Deferred.fromCoroutine(database.fetch(add)), ReadOnlyStandby)
        await self.comes_to(replication, True)
        self.assertEqual(pair.primary.command("SELECT to_regclass('never')", self.name), [(None,)])

    async def test_beats(self) -> None:
        """A primary beats once a second, however many servers stand on it; a lag is never negative, whatever clocks say
        (CLU-9).
        """
        pair = self.pair
        for _ in range(3):
            await self.begun(pair.primary.dsn(self.name))
        seen: set[float] = set()
        began = reactor.seconds()
        while len(seen) < 5:
            seen.update(beaten for (beaten,) in pair.primary.command(_BEATEN, self.name))
            await deferLater(reactor, 0.05)
        self.assertGreater(reactor.seconds() - began, 2.5)
        state = DatabaseState(await self.opened(pair.follower.dsn(self.name)))
        # The primary's clock is ahead.
        pair.primary.command("UPDATE heartbeat SET beaten_at = now() + interval '1 hour'", self.name)
        await pair.caught_up()
        lag = (await state.read_position()).lag_seconds
        assert lag is not None
        self.assertGreaterEqual(lag, 0)

    async def test_conflicts(self) -> None:
        """A reading that replay cancels is repeated, alone and in a transaction; one that always is, is unavailable
        (CLU-8).
        """
        pair = self.pair
        database = await self.opened(pair.follower.dsn(self.name), pool_size=3)
        for session in range(3):
            await database.fetch(_SLOW_READ, 0.0 * session)

        async def read(transaction: Transaction) -> int:
            ((count, _),) = await transaction.fetch(_SLOW_READ, 1.0)
            return int(count)

        alone = Deferred.fromCoroutine(database.fetch(_SLOW_READ, 1.0))
        together = Deferred.fromCoroutine(database.transact(read))
        await deferLater(reactor, 0.3)
        self._lock()
        ((count, _),) = await alone
        self.assertEqual(count, await together)
        conflicts = "SELECT confl_lock + confl_snapshot FROM pg_stat_database_conflicts WHERE datname = "
        await pair.until(
            lambda: pair.follower.command(f"{conflicts}'{self.name}'")[0][0] >= 2, "nothing was in the way of replay"
        )

    async def test_idle_conflict(self) -> None:
        """A transaction that dawdles while replay needs what it holds is ended by PostgreSQL: the store is unavailable."""
        pair = self.pair
        database = await self.opened(pair.follower.dsn(self.name))

        async def dawdle(transaction: Transaction) -> None:
            await transaction.fetch(_SLOW_READ, 0.0)
            self._lock()
            await deferLater(reactor, 2.0)
            await transaction.fetch(_SLOW_READ, 0.0)

        await self.assertFailure(Deferred.fromCoroutine(database.transact(dawdle)), StoreUnavailable)
        await database.wait_until_connected()
        await database.fetch(_SLOW_READ, 0.0)

    def _lock(self) -> None:
        """Have replay need the table of secrets for itself."""
        self.pair.primary.command("DO $$ BEGIN LOCK TABLE secrets; PERFORM pg_current_xact_id(); END $$", self.name)
