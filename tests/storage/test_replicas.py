"""Tests of ``svc.storage.replicas``: the standby in use, and when another is."""

from __future__ import annotations

from typing import cast

from twisted.internet.defer import Deferred

from svc.model.errors import StoreUnavailable
from svc.storage.driver.statements import Statement
from svc.storage.replicas import BEHIND, PAUSE, POLL_INTERVAL, SINGLE_POLL_INTERVAL, STALE
from tests.storage.places import SYSTEM, ImaginedPlace, ImaginedSession, PlacesCase


class ChoiceTests(PlacesCase):
    """Which standby is used."""

    def test_first(self) -> None:
        """The first standby of the DSN is used, and kept; the others are left alone (CLU-40)."""
        self.assertEqual((self.used(), self.first.started, self.second.started), ("b", 1, 0))
        self.pass_time(5)
        self.assertEqual(self.search.searches, 1)

    def test_lost(self) -> None:
        """When it is lost, the next is used within a second; without any the primary is, and one that comes back is found
        (CLU-41).
        """
        self.first.away = True
        self.pass_time(POLL_INTERVAL + 0.1)
        self.assertEqual((self.used(), self.first.started), ("c", 0))
        self.second.away = True
        self.pass_time(POLL_INTERVAL + 0.1)
        self.assertEqual(self.used(), "")
        self.first.away = False
        self.pass_time(2 * POLL_INTERVAL)
        self.assertEqual(self.used(), "b")

    def test_hangs(self) -> None:
        """One that hangs is given up after a second, with all that is under way there (CLU-41)."""
        self.first.hangs = True
        self.pass_time(2 * POLL_INTERVAL + 0.3)
        self.assertEqual(self.used(), "c")

    def test_behind(self) -> None:
        """One that doesn't replay what this server wrote is given up after two seconds, for another that has, if there is
        one; none is given up for what is still on its way (CLU-40).
        """
        for position in range(11, 31):
            self.write(position)
            self.pass_time(0.2)
            self.first.position = position
        self.assertEqual((self.used(), self.search.searches), ("b", 1))
        self.write(40)
        self.pass_time(BEHIND + 2 * POLL_INTERVAL + 0.1)
        self.assertEqual(self.used(), "")
        self.second.position = 40
        self.pass_time(2 * POLL_INTERVAL)
        self.assertEqual(self.used(), "c")

    def test_stale(self) -> None:
        """One whose newest heartbeat is old isn't used while there is a primary (CLU-40)."""
        self.first.lag = STALE + 1
        self.assertIsNotNone(self.places.find_readable_standby(()))
        self.pass_time(POLL_INTERVAL + 0.1)
        self.assertEqual(self.used(), "c")
        self.second.lag = STALE + 1
        self.pass_time(2 * POLL_INTERVAL)
        self.assertEqual(self.used(), "")
        self.primary.away = True
        self.pass_time(2 * POLL_INTERVAL)
        self.assertEqual(self.used(), "b")

    def test_furthest(self) -> None:
        """Without a primary one that has what this server wrote takes the place of one that hasn't; a process that begins
        then uses the one that is furthest (CLU-41).
        """
        self.write(20)
        self.primary.away, self.second.position = True, 20
        self.assertIsNone(self.places.find_readable_standby(()))
        self.pass_time(POLL_INTERVAL + 0.1)
        self.assertEqual(self.used(), "c")
        self.places.stopService()
        self.first.position = 19
        self.begin()
        self.assertEqual(self.used(), "c")

    def test_promoted(self) -> None:
        """One that is promoted is kept until there are sessions with a primary (CLU-41)."""
        self.primary.away = True
        self.first.position, self.first.timeline = None, 2
        self.pass_time(2 * POLL_INTERVAL)
        self.assertEqual(self.used(), "b")
        self.assertIsNotNone(self.places.find_readable_standby(()))
        self.primary.away = False
        self.pass_time(POLL_INTERVAL + 0.1)
        self.assertNotEqual(self.used(), "b")

    def test_promoted_hastens(self) -> None:
        """Without a primary the standby is asked four times a second, and when that is promoted the primary is looked for at
        once (CLU-42).
        """
        self.primary.away = True
        self.pass_time(POLL_INTERVAL + SINGLE_POLL_INTERVAL)
        self.assertEqual(self.primary.hastened, 0)
        self.first.position, self.first.timeline = None, 2
        self.pass_time(SINGLE_POLL_INTERVAL + 0.05)
        self.assertGreater(self.primary.hastened, 0)
        self.primary.away = False
        hastened = self.primary.hastened
        self.pass_time(2 * POLL_INTERVAL)
        self.assertEqual(self.primary.hastened, hastened)


class AskedPrimaryTests(PlacesCase):
    """Whether the primary answers."""

    def setUp(self) -> None:
        """Begin with a request under way there, and without the session that asks."""
        super().setUp()
        self.primary.slow = True
        self.under_way = Deferred.fromCoroutine(self.places.primary.fetch(Statement("name", "SELECT name")))
        self.primary.slow = False
        (asking,) = self.primary.sessions
        asking.drop(StoreUnavailable("gone"))

    def test_slow_to_open(self) -> None:
        """A primary that opens no session in time, while it answers those that there are, is not lost: it may have just been
        promoted, and everybody connects (CLU-41).
        """
        self.primary.opens = False
        self.pass_time(3 * POLL_INTERVAL)
        self.assertNoResult(self.under_way)
        self.primary.opens = True
        self.pass_time(2 * POLL_INTERVAL)
        self.assertEqual(len(self.primary.sessions), 2)

    def test_just_come(self) -> None:
        """Nor is one that came while the session was opened (CLU-41)."""
        self.primary.opens, self.primary.away_from_pool = False, True
        self.pass_time(POLL_INTERVAL + 0.5)
        self.primary.away_from_pool, self.primary.hangs = False, True
        self.pass_time(POLL_INTERVAL / 2)
        self.assertNoResult(self.under_way)

    def test_hangs(self) -> None:
        """One that answers nobody is lost within two seconds, with all that is under way there (CLU-41)."""
        self.primary.hangs = True
        self.pass_time(2 * POLL_INTERVAL + 0.1)
        self.failureResultOf(self.under_way, StoreUnavailable)


class ShownTests(PlacesCase):
    """Whether the standby in use has what this server wrote."""

    def test_positions(self) -> None:
        """It has what it has replayed, of the primary's own history; it is asked soon when it lacks something (CLU-39)."""
        self.assertIsNotNone(self.places.find_readable_standby(()))
        self.write(11)
        self.assertIsNone(self.places.find_readable_standby(()))
        self.first.position = 11
        self.assertIsNone(self.places.find_readable_standby(()))
        self.pass_time(2 * PAUSE)
        self.assertIsNotNone(self.places.find_readable_standby(()))
        self.write(5, timeline=2)
        self.pass_time(2 * PAUSE)
        self.assertIsNone(self.places.find_readable_standby(()))
        self.first.timeline = 2
        self.places.find_readable_standby(())
        self.pass_time(2 * PAUSE)
        self.assertIsNotNone(self.places.find_readable_standby(()))

    def test_another_system(self) -> None:
        """A standby of another system than this server writes to is never read from (CLU-44)."""
        self.write(1, system=SYSTEM + 1)
        self.pass_time(2 * PAUSE)
        self.assertIsNone(self.places.find_readable_standby(()))
        self.primary.away = True
        self.pass_time(POLL_INTERVAL + 0.1)
        self.assertIsNone(self.places.find_readable_standby(()))

    def test_unknown_outcome(self) -> None:
        """After a commit with an unknown outcome the primary is asked where it stands, which is to be replayed (CLU-39)."""
        self.slots.count_commit(confirmed=False)
        self.primary.position = 12
        self.assertIsNone(self.places.find_readable_standby(()))
        self.pass_time(2 * PAUSE)
        self.assertIsNone(self.places.find_readable_standby(()))
        self.first.position = 12
        self.assertIsNone(self.places.find_readable_standby(()))
        self.pass_time(2 * PAUSE)
        self.assertIsNotNone(self.places.find_readable_standby(()))

    def test_begins(self) -> None:
        """A process that is started reads from no standby before that has what the primary had then (CLU-39)."""
        self.places.stopService()
        self.primary.hangs, self.primary.position = True, 30
        self.begin()
        self.assertEqual(self.used(), "")
        self.pass_time(1.5)
        self.assertIsNone(self.places.find_readable_standby(()))
        self.primary.hangs = False
        self.pass_time(1.5)
        self.assertIsNone(self.places.find_readable_standby(()))
        self.first.position = 30
        self.pass_time(POLL_INTERVAL + 0.1)
        self.assertIsNotNone(self.places.find_readable_standby(()))


class SessionsTests(PlacesCase):
    """Sessions that look for changes."""

    def open(self) -> ImaginedPlace:
        """Open one, and return where it leads."""
        lost: list[Exception] = []
        session = self.successResultOf(self.opened(lost))
        self.lost = lost
        return session

    def opened(self, lost: list[Exception]) -> Deferred[ImaginedPlace]:
        """Open one."""

        async def place() -> ImaginedPlace:
            session = cast(ImaginedSession, await self.places.open_session(lost.append))
            return session.place

        return Deferred.fromCoroutine(place())

    def test_moves(self) -> None:
        """Looks are made where readings go, and begin again when these go elsewhere (CLU-39)."""
        self.assertIs(self.open(), self.first)
        self.first.away = True
        self.pass_time(POLL_INTERVAL + 0.1)
        self.assertEqual([type(reason) for reason in self.lost], [StoreUnavailable])
        self.assertIs(self.open(), self.second)
        self.second.away = True
        self.pass_time(POLL_INTERVAL + 0.1)
        self.assertIs(self.open(), self.primary)
