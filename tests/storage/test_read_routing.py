"""Tests of ``svc.storage.read_routing``: where the readings of a request go, and where else when that fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twisted.internet.defer import Deferred

from svc.model.errors import StoreBehind, StoreUnavailable
from svc.model.names import RoleName
from svc.model.request_notes import RequestNotes, begin_notes
from svc.model.versions import StateVersion
from svc.storage.driver.connection import Fetched
from svc.storage.driver.statements import CachedReading, NamedAnswer, Statement, Transaction
from svc.storage.read_routing import WAIT
from svc.storage.replicas import PAUSE, POLL_INTERVAL, STANDBY_PATIENCE
from tests.storage.places import SYSTEM, PlacesCase

_NAME = Statement("name", "SELECT name")
_ROLE = RoleName("acme", "user", "alice")


class ReadingsCase(PlacesCase):
    """Requests, each with notes of its own."""

    def ask(
        self, times: int = 1, prepare: Callable[[RequestNotes], object] = id, between: Callable[[], object] = int
    ) -> Deferred[str]:
        """Begin a request that reads so often, and return who answered."""

        async def request() -> str:
            prepare(begin_notes())
            told = []
            for number in range(times):
                if number:
                    between()
                ((name,),) = await self.readings.fetch(_NAME)
                told.append(str(name))
            return "".join(told)

        return Deferred.fromCoroutine(request())

    def told(
        self, times: int = 1, prepare: Callable[[RequestNotes], object] = id, between: Callable[[], object] = int
    ) -> str:
        """Have a request that reads so often, and return who answered."""
        return self.successResultOf(self.ask(times, prepare, between))


def writing(notes: RequestNotes) -> None:
    """Be a request that may write."""
    notes.may_write = True


class PlaceTests(ReadingsCase):
    """Where readings go while all is well."""

    def test_own_writes(self) -> None:
        """A reading goes to the standby once that has what this server wrote, until then to the primary (CLU-39)."""
        self.assertEqual(self.told(), "b")
        self.write(11)
        self.assertEqual(self.told(), "a")
        self.first.position = 11
        self.assertEqual(self.told(), "a")
        self.pass_time(2 * PAUSE)
        self.assertEqual(self.told(), "b")

    def test_kinds(self) -> None:
        """Each kind of reading goes to the standby, and to the primary when that has gone (CLU-39, CLU-41)."""

        async def named(transaction: Transaction) -> NamedAnswer[Fetched]:
            return NamedAnswer(await transaction.fetch(_NAME), None)

        async def kinds() -> list[object]:
            reading = CachedReading(("name",), named)
            told, server = await self.readings.fetch_with_server(_NAME)
            page, page_server = await self.readings.read_with_server(reading)
            looked = await self.readings.transact_read_only(named)
            rows = [
                told,
                page.value,
                looked.value,
                await self.readings.read(reading),
                await self.readings.fetch_uncached(_NAME),
            ]
            return [server, page_server, *(name for ((name,),) in rows)]

        def asked() -> list[object]:
            return self.successResultOf(Deferred.fromCoroutine(kinds()))

        self.assertEqual(asked(), [f"{SYSTEM} b"] * 2 + ["b"] * 5)
        self.first.away = self.second.away = True
        self.assertEqual(asked(), [f"{SYSTEM} a"] * 2 + ["a"] * 5)

    def test_writing(self) -> None:
        """A request that may write reads from the primary, and writes there (CLU-39)."""
        self.assertEqual(self.told(prepare=writing), "a")
        self.assertEqual(self.successResultOf(Deferred.fromCoroutine(self.readings.change(_NAME))), [("a",)])

    def test_one_request(self) -> None:
        """A request goes on where it has begun, or with the primary: never with an older state (CLU-39)."""
        self.assertEqual(self.told(2, between=lambda: self.write(11)), "bb")
        self.pass_time(2 * PAUSE)

        def caught_up() -> None:
            self.first.position = 11
            self.pass_time(POLL_INTERVAL + 0.1)
            self.assertEqual(self.told(), "b")

        self.assertEqual(self.told(2, between=caught_up), "aa")

        def replaced() -> None:
            self.first.away, self.second.position = True, 11
            self.pass_time(POLL_INTERVAL + 0.1)
            self.assertEqual(self.told(), "c")

        self.assertEqual(self.told(2, between=replaced), "ba")


class FailoverTests(ReadingsCase):
    """Where readings go when a place is lost."""

    def test_standby_lost(self) -> None:
        """A reading that the standby can't answer goes to the primary, one under way too (CLU-41)."""
        self.first.hangs = True
        under_way = self.ask()
        self.assertNoResult(under_way)
        self.pass_time(2 * POLL_INTERVAL + 0.3)
        self.assertEqual(self.successResultOf(under_way), "a")
        self.second.away = True
        self.assertEqual(self.told(), "a")

    def test_primary_lost(self) -> None:
        """Without a primary a reading goes to the standby that has what this server wrote, and waits for it (CLU-41)."""
        self.primary.away = True
        self.assertEqual(self.told(), "b")
        self.write(11)
        waits = self.ask()
        self.assertNoResult(waits)
        self.first.position = 11
        self.pass_time(3 * PAUSE)
        self.assertEqual(self.successResultOf(waits), "b")
        self.write(12)
        waits, self.second.position = self.ask(), 12
        self.pass_time(0.5)
        self.assertEqual(self.successResultOf(waits), "c")

    def test_primary_hangs(self) -> None:
        """A reading that went to a primary which hangs goes to the standby when that is given up (CLU-41)."""
        self.write(11)
        self.primary.hangs = True
        waits = self.ask()
        self.first.position = 11
        self.assertNoResult(waits)
        self.primary.away = True
        self.pass_time(POLL_INTERVAL)
        self.primary.abandon("it hangs")
        self.pass_time(3 * PAUSE)
        self.assertEqual(self.successResultOf(waits), "b")

    def test_never_older(self) -> None:
        """Without a primary, what this server wrote is missed by no reading: it fails when no standby has that in time, and
        at once when there has been no standby for a while (CLU-39, CLU-41).
        """
        self.write(11)
        self.primary.away = True
        waits = self.ask()
        self.pass_time(WAIT)
        self.assertNoResult(waits)
        self.pass_time(3 * PAUSE)
        self.failureResultOf(waits, StoreUnavailable)
        self.first.away = self.second.away = True
        self.pass_time(2 * POLL_INTERVAL)
        waits = self.ask()
        self.assertNoResult(waits)
        self.pass_time(STANDBY_PATIENCE)
        self.failureResultOf(waits, StoreUnavailable)
        self.failureResultOf(self.ask(), StoreUnavailable)

    def test_begun_at_the_primary(self) -> None:
        """A request that has read from the primary fails with it: a standby may be older (CLU-39)."""

        def lost() -> None:
            self.primary.away = True

        self.write(11)
        self.failureResultOf(self.ask(2, between=lost), StoreUnavailable)

    def test_slow_and_lost(self) -> None:
        """What had taken long at a place when that was lost is tried elsewhere: it isn't the reading's fault (CLU-41)."""
        self.first.slow = True
        slow = self.ask()
        self.pass_time(2.0)
        # Its other sessions are noticed to be lost a moment later, and it is asked later still.
        self.first.abandon("server closed the connection unexpectedly")
        self.assertNoResult(slow)
        self.first.away_from_pool = True
        self.pass_time(2 * PAUSE)
        self.assertEqual(self.successResultOf(slow), "a")
        self.assertEqual(self.used(), "b")
        self.write(11)
        self.primary.slow = True
        slow = self.ask()
        self.pass_time(2.0)
        self.first.position, self.first.away_from_pool, self.first.slow = 11, False, False
        self.primary.abandon("server closed the connection unexpectedly")
        self.assertNoResult(slow)
        self.primary.away = True
        self.pass_time(4 * PAUSE)
        self.assertEqual(self.successResultOf(slow), "b")

    def test_too_slow(self) -> None:
        """What takes too long at a place that is well isn't tried elsewhere (CLU-41)."""
        self.first.slow = True
        slow = self.ask()
        self.pass_time(3.0)
        self.first.abandon("canceling statement due to statement timeout")
        self.pass_time(2 * PAUSE)
        self.failureResultOf(slow, StoreUnavailable)
        self.assertEqual(self.primary.asked, 0)

    def test_writes(self) -> None:
        """Without a primary a write fails at once, and so does what it would have read (CLU-42)."""
        self.primary.away = True
        self.failureResultOf(self.ask(prepare=writing), StoreUnavailable)
        self.failureResultOf(Deferred.fromCoroutine(self.readings.change(_NAME)), StoreUnavailable)


class VersionsTests(ReadingsCase):
    """Requests that want a version."""

    def reach(self, *positions: int) -> Deferred[str]:
        """Begin a request that wants versions, then reads."""
        versions: Sequence[StateVersion] = [StateVersion(SYSTEM, 1, position) for position in positions]

        async def request() -> str:
            begin_notes()
            await self.readings.wait_until_reached(versions, _ROLE)
            ((name,),) = await self.readings.fetch(_NAME)
            return str(name)

        return Deferred.fromCoroutine(request())

    def test_where(self) -> None:
        """It is answered by the standby if that has them, else by the primary, and nobody waits (CLU-43)."""
        self.assertEqual(self.successResultOf(self.reach(9, 10)), "b")
        self.assertEqual(self.successResultOf(self.reach(11)), "a")

    def test_without_a_primary(self) -> None:
        """Without a primary it waits for the standby, as on a follower (CLU-28, CLU-43)."""
        self.primary.away = True
        waits, late = self.reach(11), self.reach(12)
        self.first.position = 11
        self.pass_time(4 * PAUSE)
        self.assertEqual(self.successResultOf(waits), "b")
        self.pass_time(2.5)
        self.failureResultOf(late, StoreBehind)


class CountsTests(ReadingsCase):
    """How many sessions there are."""

    def test_counts(self) -> None:
        """Those with the primary count, and those with the standby; without any, nothing can be read (CLU-42)."""
        self.assertEqual((self.readings.count_read_sessions().sessions, self.readings.count_sessions().sessions), (4, 4))
        self.primary.away = True
        self.assertEqual(self.readings.count_read_sessions().sessions, 2)
