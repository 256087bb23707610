"""Tests of ``svc.storage.driver.progress``, on a database that is only imagined."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import StoreBehind, StoreUnavailable
from svc.model.names import RoleName
from svc.model.versions import StateVersion
from svc.storage.driver.connection import Fetched
from svc.storage.driver.progress import PAUSE, WAIT_TIMEOUT, WAITERS, WAITERS_PER_ROLE, Progress, ReachedPosition
from svc.storage.driver.statements import Statement

SYSTEM = 0xFEDCBA9876543210
SERVER = f"{SYSTEM - (1 << 64)} 1700000000.25"
NUMBERS = st.integers(1, 5)


def user(number: int) -> RoleName:
    """A role."""
    return RoleName.from_parts("acme", "user", f"user-{number}")


def version(position: int, timeline: int = 1, system: int = SYSTEM) -> StateVersion:
    """A version."""
    return StateVersion(system, timeline, position)


class Imagined:
    """A standby that has replayed up to ``position``; its answers are held back while ``held`` is a list."""

    def __init__(self) -> None:
        self.server = SERVER
        self.timeline = 1
        self.position: int | None = 10
        self.asked = 0
        self.fault: Exception | None = None
        self.held: list[Deferred[None]] | None = None

    async def fetch(self, statement: Statement, *parameters: object) -> Fetched:
        """Tell the position."""
        self.asked += 1
        if self.held is not None:
            answer: Deferred[None] = Deferred()
            self.held.append(answer)
            await answer
        if self.fault is not None:
            await fail(self.fault)
        return [(SERVER, self.timeline, self.position)]


class ReachedTests(SynchronousTestCase):
    """Which versions a database has."""

    def test_histories(self) -> None:
        """Another system and a lower timeline need no wait, nor does this one on a primary; a higher does, wherever
        (CLU-29).
        """
        standby, primary = ReachedPosition(SERVER, 3, 100), ReachedPosition(SERVER, 3, None)
        for named, on_standby, on_primary in (
            (version(100, 3), True, True),
            (version(101, 3), False, True),
            (version(101, 2), True, True),
            (version(1, 4), False, False),
            (version(101, 4, 7), True, True),
        ):
            self.assertEqual(
                (standby.covers_version(named), primary.covers_version(named)), (on_standby, on_primary), str(named)
            )

    @given(NUMBERS, NUMBERS, NUMBERS, NUMBERS)
    def test_older(self, timeline: int, position: int, at: int, further: int) -> None:
        """A database that has a version has all that are older, and so does it when it has come further (CLU-29)."""
        reached = ReachedPosition(SERVER, at, 3)
        if reached.covers_version(version(position, timeline)):
            self.assertTrue(reached.covers_version(version(max(1, position - further), timeline)))
            self.assertTrue(attrs.evolve(reached, position=3 + further).covers_version(version(position, timeline)))
            self.assertTrue(attrs.evolve(reached, timeline=at + further).covers_version(version(position, timeline)))


class ProgressTests(SynchronousTestCase):
    """Who waits, and for how long."""

    def setUp(self) -> None:
        """Imagine a standby."""
        self.clock, self.database = Clock(), Imagined()
        self.progress = Progress(self.database, self.clock)

    def begin(self, *positions: int, role: int = 0, versions: Sequence[StateVersion] = ()) -> Deferred[None]:
        """Begin to wait."""
        wanted = [*map(version, positions), *versions]
        return Deferred.fromCoroutine(self.progress.wait_until_reached(wanted, user(role)))

    def test_known(self) -> None:
        """What was reached before is reached without a question (CLU-28)."""
        self.successResultOf(self.begin(10))
        self.successResultOf(self.begin(10, 9))
        self.successResultOf(self.begin(1, versions=[version(99, system=7)]))
        self.assertEqual(self.database.asked, 1)

    def test_away(self) -> None:
        """While the database is away, who comes is refused at once, one by one (CLU-28)."""
        self.database.fault = StoreUnavailable("it is away")
        for asked in (1, 2):
            self.failureResultOf(self.begin(10), StoreUnavailable)
            self.assertEqual(self.database.asked, asked)

    def test_waits(self) -> None:
        """A request waits until all versions are reached, however they come, and the database is asked in turns for all
        that wait, never while nobody does (CLU-28).
        """
        waiting = [self.begin(11), self.begin(3, 12), self.begin(12)]
        self.assertEqual(self.database.asked, 1)
        self.clock.advance(PAUSE)
        self.assertEqual(self.database.asked, 2)
        self.database.position = 11
        self.clock.advance(PAUSE)
        self.successResultOf(waiting[0])
        self.assertNoResult(waiting[1])
        self.database.position = 12
        self.clock.advance(PAUSE)
        for each in waiting[1:]:
            self.successResultOf(each)
        self.clock.advance(PAUSE)
        self.clock.advance(10)
        self.assertEqual((self.database.asked, self.clock.getDelayedCalls()), (4, []))
        # And the next one begins again.
        self.assertNoResult(self.begin(13))
        self.assertEqual(self.database.asked, 5)

    def test_refused(self) -> None:
        """It waits two seconds, then it is refused, be it that the question isn't answered (CLU-28)."""
        for answers in (True, False):
            self.database.held = None if answers else []
            waiting = self.begin(11)
            self.clock.pump([PAUSE] * int(WAIT_TIMEOUT / PAUSE - 1))
            self.assertNoResult(waiting)
            self.clock.advance(2 * PAUSE)
            refusal = self.failureResultOf(waiting, StoreBehind).value
            self.assertEqual(refusal.retry_after, 1)

    def test_few(self) -> None:
        """Few wait at a time, and fewer of one role; when one has ended another may (CLU-30)."""
        of_one = [self.begin(11) for _ in range(WAITERS_PER_ROLE)]
        self.failureResultOf(self.begin(11), StoreBehind)
        others = [self.begin(11, role=number) for number in range(1, 1 + WAITERS - WAITERS_PER_ROLE)]
        self.failureResultOf(self.begin(11, role=-1), StoreBehind)
        # What was reached doesn't wait.
        self.successResultOf(self.begin(10))
        of_one[0].cancel()
        self.failureResultOf(of_one[0], CancelledError)
        last = self.begin(11)
        self.database.position = 11
        self.clock.advance(PAUSE)
        for each in (*of_one[1:], *others, last):
            self.successResultOf(each)

    def test_lost(self) -> None:
        """When the database can't be asked all that wait are told, and the next request asks again (CLU-28)."""
        waiting = [self.begin(11), self.begin(12, role=1)]
        self.database.fault = StoreUnavailable("gone")
        self.clock.advance(PAUSE)
        for each in waiting:
            self.failureResultOf(each, StoreUnavailable)
        self.database.fault, self.database.position = None, 12
        self.successResultOf(self.begin(12))

    def test_another_server(self) -> None:
        """What one server had reached says nothing of another, nor while sessions are with several (CLU-28)."""
        self.successResultOf(self.begin(10))
        for server in ("", "7 1700000001"):
            self.database.server = server
            waiting = self.begin(10)
            self.clock.advance(PAUSE)
            self.assertNoResult(waiting)
            self.database.server = SERVER
            self.clock.advance(PAUSE)
            self.successResultOf(waiting)
