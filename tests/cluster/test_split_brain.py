"""Permission to write when there are two primaries, on a clock that the tests turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.cluster.split_brain import INTERVALS_RETAINED, LONGEST_INTERVAL, MAX_WAIT, SplitBrainDetector, is_conflicting
from svc.model.databases import DatabaseIdentity
from svc.model.errors import PrimaryContested, StoreUnavailable

OWN = DatabaseIdentity(system=1, timeline=2, started=100, standby=False)
STANDBY = attrs.evolve(OWN, started=200, standby=True)
NEWER = attrs.evolve(OWN, started=200, timeline=3)
SAME = attrs.evolve(OWN, started=200)
OLDER = attrs.evolve(OWN, started=200, timeline=1)


class RivalsTests(SynchronousTestCase):
    """A server and two members ``b`` and ``c``, whose databases are what ``told`` says, or give no answer."""

    def setUp(self) -> None:
        """One's own is a primary."""
        self.clock = Clock()
        self.own: DatabaseIdentity | None = OWN
        self.mute = False
        self.told: dict[str, DatabaseIdentity | None] = {"b": None, "c": None}
        self.waits: dict[str, Deferred[None]] = {}
        self.asked: list[str] = []

    def rivals(self) -> SplitBrainDetector:
        """Begin to look for them."""
        rivals = SplitBrainDetector(
            self.clock, self.clock, self.observe, {name: self.asking(name) for name in self.told}, LONGEST_INTERVAL
        )
        rivals.startService()
        self.addCleanup(rivals.stopService)
        return rivals

    async def observe(self) -> DatabaseIdentity:
        """What one's own database is."""
        if self.mute:
            raise PermissionError
        if self.own is None:
            raise StoreUnavailable("away")
        return self.own

    def asking(self, name: str) -> Callable[[], Awaitable[DatabaseIdentity | None]]:
        """What asks a member."""

        async def ask() -> DatabaseIdentity | None:
            self.asked.append(name)
            if name in self.waits:
                await self.waits[name]
            return self.told[name]

        return ask

    def look(self) -> None:
        """Let the time come for another look."""
        self.clock.advance(LONGEST_INTERVAL)

    def refused(self, rivals: SplitBrainDetector) -> str | None:
        """Why writes are refused; ``None`` when they are not. What decides and what tells agree."""
        demanded = Deferred.fromCoroutine(rivals.wait_until_writable())
        if rivals.is_writable:
            self.successResultOf(demanded)
            return None
        return str(self.failureResultOf(demanded, PrimaryContested).value.why)

    def test_table(self) -> None:
        """A primary's rival is a database of the same system that is a primary itself, or on a newer timeline (CLU-15)."""
        for other, rival in (
            (OWN, False),  # another server on the same PostgreSQL
            (STANDBY, False),
            (NEWER, True),
            (SAME, True),
            (OLDER, True),
            (attrs.evolve(NEWER, standby=True), True),
            (attrs.evolve(OLDER, standby=True), False),
            (attrs.evolve(NEWER, system=9), False),
            (attrs.evolve(SAME, system=9), False),
        ):
            self.assertEqual(is_conflicting(OWN, other), rival, other)
            self.assertFalse(is_conflicting(attrs.evolve(OWN, standby=True), other), other)

    def test_verdicts(self) -> None:
        """The older of two primaries refuses writes, of two equal ones each does, the newer one goes on; all say so
        (HEALTH-7, CLU-16).
        """
        for told, refuses, counted in (
            (NEWER, True, {"newer": 1, "same": 0, "older": 0}),
            (SAME, True, {"newer": 0, "same": 1, "older": 0}),
            (OLDER, False, {"newer": 0, "same": 0, "older": 1}),
        ):
            self.told["b"] = told
            rivals = self.rivals()
            why = self.refused(rivals)
            self.assertEqual(why is not None and "the server b " in why, refuses, why)
            self.assertEqual(
                (rivals.status, rivals.count_by_timeline(), rivals.conflicting_members), ("two", counted, frozenset({"b"}))
            )

    def test_alone(self) -> None:
        """A primary among standbys, strangers, servers of its own database and members that are away writes, and is well
        (CLU-15, CLU-18).
        """
        for told in (STANDBY, OWN, attrs.evolve(NEWER, system=9), None):
            self.told["b"] = told
            rivals = self.rivals()
            self.assertEqual((self.refused(rivals), rivals.status, rivals.conflicting_members), (None, "ok", frozenset()))

    def test_no_cluster(self) -> None:
        """A server that knows no others asks nobody, and says nothing of primaries."""
        self.told.clear()
        self.own = None
        rivals = self.rivals()
        rivals.require_poll()
        self.assertEqual((self.refused(rivals), rivals.status), (None, None))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_first_write(self) -> None:
        """The first write waits until all members have answered or are given up, though not for ever (CLU-17)."""
        self.waits["c"] = Deferred()
        rivals = self.rivals()
        self.assertFalse(rivals.is_writable)
        write, late = (Deferred.fromCoroutine(rivals.wait_until_writable()) for _ in range(2))
        late.cancel()
        self.failureResultOf(late)
        self.assertNoResult(write)
        self.clock.advance(MAX_WAIT)
        self.failureResultOf(write, StoreUnavailable)
        write = Deferred.fromCoroutine(rivals.wait_until_writable())
        self.told["c"] = NEWER
        self.waits.pop("c").callback(None)
        self.failureResultOf(write, PrimaryContested)

    def test_restarted(self) -> None:
        """When one's own database was away, no write begins before the members were asked again: it may be the old one
        (CLU-17).
        """
        rivals = self.rivals()
        self.assertIsNone(self.refused(rivals))
        self.own = None
        rivals.require_poll()
        self.assertFalse(rivals.is_writable)
        self.own, self.told["b"], self.waits["c"] = attrs.evolve(OWN, started=300), NEWER, Deferred()
        rivals.require_poll()
        write = Deferred.fromCoroutine(rivals.wait_until_writable())
        self.assertNoResult(write)
        self.waits.pop("c").callback(None)
        self.failureResultOf(write, PrimaryContested)

    def test_away(self) -> None:
        """While one's own database is away, or doesn't say which one it is, writes are refused at once, also those that
        waited for a look at it (CLU-17).
        """
        for mute in (False, True):
            self.own, self.mute = OWN, False
            rivals = self.rivals()
            self.waits["b"] = Deferred()
            rivals.require_poll()
            waited = Deferred.fromCoroutine(rivals.wait_until_writable())
            self.assertNoResult(waited)
            self.own, self.mute = None, mute
            self.waits.pop("b").callback(None)
            self.failureResultOf(waited, StoreUnavailable)
            for _ in range(3):
                self.failureResultOf(Deferred.fromCoroutine(rivals.wait_until_writable()), StoreUnavailable)
                self.look()
            self.own, self.mute = OWN, False
            self.look()
            self.assertIsNone(self.refused(rivals))
            self.flushLoggedErrors(PermissionError)

    def test_unjudged(self) -> None:
        """When what the others say can't be judged for a bug, this server refuses writes, and goes on looking (CLU-19)."""
        rivals = self.rivals()
        self.successResultOf(Deferred.fromCoroutine(rivals.wait_until_writable()))
        judge = rivals._update_conflicts

        def broken(*_: object) -> None:
            raise ZeroDivisionError

        self.patch(rivals, "_update_conflicts", broken)
        self.clock.advance(LONGEST_INTERVAL)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.failureResultOf(Deferred.fromCoroutine(rivals.wait_until_writable()), StoreUnavailable)
        self.assertFalse(rivals.is_writable)
        self.patch(rivals, "_update_conflicts", judge)
        self.clock.advance(LONGEST_INTERVAL)
        self.successResultOf(Deferred.fromCoroutine(rivals.wait_until_writable()))

    def test_gives_up(self) -> None:
        """Of a write that waited in vain, or whose client has gone, nothing is kept."""
        self.waits["c"] = Deferred()
        rivals = self.rivals()
        late, gone = (Deferred.fromCoroutine(rivals.wait_until_writable()) for _ in range(2))
        gone.cancel()
        self.failureResultOf(gone)
        self.clock.advance(MAX_WAIT)
        self.failureResultOf(late, StoreUnavailable)
        self.assertEqual(rivals._waiting, [])

    def test_doubt_during_a_look(self) -> None:
        """What was found out by a look that began before the database was away doesn't count; another one begins at once."""
        self.waits["b"] = Deferred()
        rivals = self.rivals()
        rivals.require_poll()
        self.told["c"] = NEWER
        self.waits.pop("b").callback(None)
        self.assertEqual(self.asked, ["b", "c", "b", "c"])
        self.assertIsNotNone(self.refused(rivals))

    def test_silence(self) -> None:
        """A rival that forbids writes does so when it can't be asked any more; an older one is forgotten after a while
        (CLU-18).
        """
        for told, forbids in ((NEWER, True), (SAME, True), (OLDER, False)):
            self.told["b"] = told
            rivals = self.rivals()
            self.told["b"] = None
            self.look()
            self.assertEqual((rivals.status, rivals.is_writable), ("two", not forbids))
            for _ in range(10 * INTERVALS_RETAINED):
                self.look()
            self.assertEqual((rivals.status, rivals.is_writable), ("two" if forbids else "ok", not forbids))

    def test_ends(self) -> None:
        """It is over when the rival says that it is a standby on no newer timeline, or one's own database is one
        (CLU-18).
        """
        follows = attrs.evolve(STANDBY, timeline=OWN.timeline)
        for own, told, well in (
            (OWN, follows, True),
            (OWN, attrs.evolve(follows, timeline=3), False),
            (OWN, attrs.evolve(NEWER, system=9), True),
            (attrs.evolve(OWN, standby=True), NEWER, True),
            (attrs.evolve(OWN, standby=True), None, True),
            (attrs.evolve(OWN, system=9), None, True),
            (attrs.evolve(OWN, started=300), None, False),
            (attrs.evolve(OWN, timeline=4), None, False),
            (attrs.evolve(OWN, timeline=4), attrs.evolve(NEWER, standby=True), True),
        ):
            self.own, self.told["b"] = OWN, NEWER
            rivals = self.rivals()
            self.assertIsNotNone(self.refused(rivals))
            self.own, self.told["b"] = own, told
            self.look()
            self.assertEqual(rivals.status == "ok", well, (own, told))
            self.assertEqual(rivals.is_writable, well or own.timeline > NEWER.timeline, (own, told))

    def test_changed_meanwhile(self) -> None:
        """While one's own database is exchanged between two looks at it, the answers don't count."""
        rivals = self.rivals()
        # A server on the same PostgreSQL tells of it as it was before the restart.
        self.told["b"], self.waits["b"] = OWN, Deferred()
        self.look()
        self.own = attrs.evolve(OWN, started=300)
        self.waits.pop("b").callback(None)
        self.assertIsNone(self.refused(rivals))
        self.told["b"] = self.own
        self.look()
        self.assertEqual((self.refused(rivals), rivals.status), (None, "ok"))

    def test_onlookers(self) -> None:
        """A follower tells of two primaries of its system that it knows; two servers on one primary are none."""
        self.own = attrs.evolve(OWN, started=300, standby=True)
        self.told = {"b": NEWER, "c": attrs.evolve(OLDER, started=400)}
        rivals = self.rivals()
        self.assertEqual((rivals.status, rivals.conflicting_members), ("ok", frozenset({"b", "c"})))
        self.told["c"] = NEWER
        self.look()
        self.assertEqual(rivals.conflicting_members, frozenset())

    def test_bug(self) -> None:
        """A question that fails as it shouldn't is in the log, and keeps no other answer from counting (CLU-19)."""
        self.waits["c"] = Deferred()
        self.told["b"] = NEWER
        rivals = self.rivals()
        self.waits["c"].errback(LookupError("no such thing"))
        self.assertEqual(len(self.flushLoggedErrors(LookupError)), 1)
        self.assertIsNotNone(self.refused(rivals))

    def test_unknown(self) -> None:
        """A server whose database doesn't say which one it is refuses writes, and says that it doesn't know (HEALTH-7,
        CLU-17).
        """
        rivals = self.rivals()
        self.mute = True
        for _ in range(3):
            self.look()
        self.assertEqual(len(self.flushLoggedErrors(PermissionError)), 1)
        self.assertEqual((rivals.status, rivals.is_writable), ("unknown", False))
        self.mute = False
        self.look()
        self.assertEqual((rivals.status, self.refused(rivals)), ("ok", None))

    def test_when(self) -> None:
        """It is told since when there are two primaries, or are not."""
        rivals = self.rivals()
        self.look()
        self.assertEqual(rivals.changed_at, 0.0)
        self.told["b"] = NEWER
        self.look()
        self.look()
        self.assertEqual(rivals.changed_at, 2 * LONGEST_INTERVAL)
