"""The pool, on a clock and with sessions that are only imagined."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.logger import LogLevel, capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from svc.model.counts import PoolCounts
from svc.model.errors import StoreUnavailable
from svc.storage.driver.failures import DatabaseUnfit
from svc.storage.driver.pool import LONGEST_PAUSE, QUEUE_LIMIT, TICK, Pool, retry_pauses

PATIENCE = 6.0


class Imagined:
    """A session that nobody is at the other end of."""

    def __init__(self, lost: Callable[[Exception], None]) -> None:
        self.lost = False
        self.dead = False
        self.age = 0.0
        self._tell = lost

    def is_open(self) -> bool:
        """Alive, unless it is told that the server has gone."""
        if self.dead:
            self.drop(StoreUnavailable("gone"))
        return not self.dead

    def count_time(self, seconds: float) -> None:
        """Count."""
        self.age += seconds

    def drop(self, reason: Exception) -> None:
        """Tell the pool."""
        if not self.lost:
            self.lost = True
            self._tell(reason)


class PausesTests(SynchronousTestCase):
    """The schedule of attempts."""

    def test_growth(self) -> None:
        """The first attempt is made at once, and the pauses after it double up to the longest."""
        self.assertEqual(list(islice(retry_pauses(lambda: 0.0), 9)), [0, 0.05, 0.1, 0.2, 0.4, *4 * [LONGEST_PAUSE]])

    @given(st.floats(0, 1, exclude_max=True))
    def test_chance(self, chance: float) -> None:
        """Chance shortens a pause, to no less than half."""
        for whole, shortened in islice(zip(retry_pauses(lambda: 0.0), retry_pauses(lambda: chance), strict=True), 9):
            self.assertTrue(whole / 2 <= shortened <= whole)


class PoolTests(SynchronousTestCase):
    """A pool of two sessions, with a server that can be had or not."""

    def setUp(self) -> None:
        """Start the pool; its sessions come with the next turn of the reactor."""
        self.clock = Clock()
        self.attempts: list[float] = []
        self.sessions: list[Imagined] = []
        self.refusal: str | None = None
        self.kind: type[StoreUnavailable] = StoreUnavailable
        self.silent = False
        self.bug: Exception | None = None
        self.unanswered: list[Deferred[None]] = []
        self.pool = Pool(self.clock, self.connect, size=2, patience=PATIENCE, chance=lambda: 0.0)
        self.pool.start()

    async def connect(self, lost: Callable[[Exception], None]) -> Imagined:
        """Open a session, unless the server refuses or keeps silent."""
        self.attempts.append(self.clock.seconds())
        if self.silent:
            self.unanswered.append(Deferred())
            await self.unanswered[-1]
        if self.bug is not None:
            raise self.bug
        if self.refusal is not None:
            raise self.kind(self.refusal)
        self.sessions.append(Imagined(lost))
        return self.sessions[-1]

    def borrow(self) -> Deferred[Imagined]:
        """Ask for a session."""
        return Deferred.fromCoroutine(self.pool.borrow())

    def refused(self, deferred: Deferred[Any], why: str) -> None:
        """Assert that a call failed for that reason."""
        self.assertIn(why, self.failureResultOf(deferred, StoreUnavailable).getErrorMessage())

    def pass_time(self, seconds: float) -> None:
        """Let the reactor turn many times."""
        for _ in range(round(seconds / 0.01)):
            self.clock.advance(0.01)

    def stop(self) -> Deferred[None]:
        """Stop the pool."""
        return Deferred.fromCoroutine(self.pool.stop())

    def test_hastened(self) -> None:
        """The pause before the next attempt ends when there is hope (CLU-42)."""
        self.clock.advance(0)
        self.refusal = "refused"
        for session in self.sessions:
            session.drop(StoreUnavailable("gone"))
        self.clock.pump([0.1] * 20)
        before = len(self.attempts)
        self.clock.advance(0.01)
        self.pool.hasten()
        self.assertEqual(len(self.attempts), before + 1)
        self.refusal = None
        self.pool.hasten()
        self.clock.advance(0)
        self.assertEqual(self.pool.count_sessions().sessions, 2)
        self.pool.hasten()

    def test_lends_each_once(self) -> None:
        """A session has one borrower at a time."""
        self.clock.advance(0)
        first, second = (self.successResultOf(self.borrow()) for _ in range(2))
        self.assertEqual({first, second}, set(self.sessions))
        self.assertIsNot(first, second)

    def test_the_warmest_first(self) -> None:
        """Of the idle sessions, the one that was used last is lent first."""
        self.clock.advance(0)
        lent = [self.successResultOf(self.borrow()) for _ in range(2)]
        for session in lent:
            self.pool.release(session)
        self.assertIs(self.successResultOf(self.borrow()), lent[1])

    def test_waits_for_the_first_attempt(self) -> None:
        """A caller that comes before the first attempt to connect has ended, waits for it."""
        borrowed = self.borrow()
        self.assertNoResult(borrowed)
        self.clock.advance(0)
        self.successResultOf(borrowed)

    def test_unfit(self) -> None:
        """Nobody waits for a database that can't be used until something is changed; attempts go on (DATA-53)."""
        self.refusal, self.kind = "too old", DatabaseUnfit
        connected = Deferred.fromCoroutine(self.pool.wait_until_connected(10.0))
        self.clock.advance(0)
        self.assertEqual(self.failureResultOf(connected, DatabaseUnfit).value.why, "too old")
        self.refusal = None
        self.clock.advance(LONGEST_PAUSE)
        self.successResultOf(Deferred.fromCoroutine(self.pool.wait_until_connected(10.0)))
        assert self.pool.unfit is not None
        self.assertEqual(self.pool.unfit.why, "too old")

    def test_renewed(self) -> None:
        """Sessions that nobody has are replaced, and one that is lent stays with its borrower (DATA-51)."""
        self.clock.advance(0)
        lent = self.successResultOf(self.borrow())
        with capturedLogs() as events:
            self.pool.renew_idle("it is read-only")
        self.assertEqual([event["log_level"] for event in events], [LogLevel.debug])
        self.assertEqual([session.lost for session in self.sessions], [session is not lent for session in self.sessions])
        self.pass_time(0.1)
        self.assertEqual((len(self.sessions), self.pool.count_sessions().sessions), (3, 2))

    def test_turned_away(self) -> None:
        """When the server cannot be reached those who wait are told, and those who come are told at once."""
        self.refusal = "refused"
        early = self.borrow()
        self.clock.advance(0)
        self.refused(early, "refused")
        self.refused(self.borrow(), "refused")

    def test_attempts(self) -> None:
        """Once an attempt has failed, one place is tried on for ever, after growing pauses."""
        self.refusal = "refused"
        self.pass_time(2.5)
        expected = [0, 0.05, 0.15, 0.35, 0.75, 1.25, 1.75, 2.25]
        for attempt, at in zip(self.attempts, expected, strict=True):
            self.assertTrue(at <= attempt < at + 0.1, (attempt, at))

    def test_followers(self) -> None:
        """When the one place has its session the others follow at once; what fails then is tried on by one again."""
        self.refusal = "refused"
        self.pass_time(10)
        self.refusal = None
        self.pass_time(LONGEST_PAUSE)
        self.assertEqual(len(self.sessions), 2)
        self.refusal = "too many"
        for session in self.sessions:
            session.drop(StoreUnavailable("ended"))
        self.pass_time(10)
        del self.attempts[:]
        self.pass_time(10)
        self.assertEqual(len(self.attempts), round(10 / LONGEST_PAUSE))

    def test_recovers(self) -> None:
        """Once the server can be reached again, callers are served."""
        self.refusal = "refused"
        self.pass_time(1)
        self.refused(self.borrow(), "refused")
        self.refusal = None
        self.pass_time(1)
        self.successResultOf(self.borrow())

    def test_silent_server(self) -> None:
        """An attempt to connect that is not answered is given up when patience ends; the message names a pooler whose pool
        is full as a possible cause (LIM-21).
        """
        self.silent = True
        borrowed = self.borrow()
        starting = Deferred.fromCoroutine(self.pool.wait_until_connected(10.0))
        self.pass_time(PATIENCE + 0.1)
        self.refused(borrowed, "6 seconds")
        self.pass_time(4.0)
        self.refused(starting, "6 seconds; where a pooler is in front of it, its pool may be full")
        self.assertEqual(len(self.attempts), 3)

    def test_bug(self) -> None:
        """A bug in an attempt to connect is logged, and does not cost the session's place for ever."""
        self.bug = KeyError("a bug")
        self.clock.advance(0)
        self.refused(self.borrow(), "bug")
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)
        self.bug = None
        self.pass_time(0.1)
        self.successResultOf(self.borrow())

    def test_replaces_at_once(self) -> None:
        """A session that lived for a while and is lost, is replaced at once."""
        self.clock.advance(0)
        self.clock.advance(LONGEST_PAUSE)
        self.sessions[0].drop(StoreUnavailable("ended"))
        self.clock.advance(0)
        self.assertEqual(len(self.sessions), 3)
        self.assertEqual({self.successResultOf(self.borrow()) for _ in range(2)}, set(self.sessions[1:]))

    def test_sessions_that_die_young(self) -> None:
        """Sessions that are lost as soon as they are opened make the pauses grow."""
        self.clock.advance(0)
        for count in range(3, 7):
            self.sessions[-1].drop(StoreUnavailable("ended"))
            self.clock.advance(0)
            self.assertEqual(len(self.sessions), count - 1)
            self.clock.advance(LONGEST_PAUSE - 0.01)
            self.assertEqual(len(self.sessions), count)

    def test_dead_in_the_pool(self) -> None:
        """A session that turns out to be dead when it is to be lent is passed over."""
        self.clock.advance(0)
        dead, living = self.sessions[1], self.sessions[0]
        dead.dead = True
        self.assertIs(self.successResultOf(self.borrow()), living)
        self.assertTrue(dead.lost)

    def test_all_dead_in_the_pool(self) -> None:
        """When every idle session turns out to be dead, the caller gets the first that replaces them."""
        self.pass_time(LONGEST_PAUSE + 0.1)
        for session in self.sessions:
            session.dead = True
        borrowed = self.borrow()
        self.assertNoResult(borrowed)
        self.clock.advance(0)
        self.assertFalse(self.successResultOf(borrowed).lost)

    def test_lost_when_given_back(self) -> None:
        """A session that was lost while it was lent is not lent again."""
        self.clock.advance(0)
        borrowed = [self.successResultOf(self.borrow()) for _ in range(2)]
        waiting = self.borrow()
        borrowed[0].drop(StoreUnavailable("ended"))
        self.pool.release(borrowed[0])
        self.assertNoResult(waiting)
        self.pool.release(borrowed[1])
        self.assertIs(self.successResultOf(waiting), borrowed[1])

    def test_queue(self) -> None:
        """Those who wait are served in the order in which they came, without those who left."""
        self.clock.advance(0)
        session, _ = (self.successResultOf(self.borrow()) for _ in range(2))
        first, second, third = (self.borrow() for _ in range(3))
        second.cancel()
        self.failureResultOf(second, CancelledError)
        self.pool.release(session)
        self.successResultOf(first)
        self.assertNoResult(third)
        self.pool.release(session)
        self.successResultOf(third)

    def test_census(self) -> None:
        """It tells how many sessions there are and are lent, who waits, and for how long altogether somebody has had to."""
        self.clock.advance(0)
        self.assertEqual(self.pool.count_sessions(), PoolCounts(2, 0, 0, 0, 0.0))
        sessions = [self.successResultOf(self.borrow()) for _ in range(2)]
        waits, leaves = self.borrow(), self.borrow()
        self.assertEqual(self.pool.count_sessions(), PoolCounts(2, 2, 2, 2, 0.0))
        self.clock.advance(1.5)
        leaves.cancel()
        self.failureResultOf(leaves, CancelledError)
        self.assertEqual(self.pool.count_sessions(), PoolCounts(2, 2, 1, 2, 1.5))
        returned = self.pool.count_sessions().returned
        self.pool.release(sessions[0])
        self.successResultOf(waits)
        self.pool.release(sessions[1])
        self.assertEqual(self.pool.count_sessions(), PoolCounts(2, 1, 0, 2, 3.0))
        self.assertEqual(self.pool.count_sessions().returned - returned, 2)

    def test_queue_is_bounded_in_time(self) -> None:
        """Nobody waits longer than patience allows, and who left is forgotten (LIM-20)."""
        self.clock.advance(0)
        for _ in range(2):
            self.borrow()
        gone, waiting = self.borrow(), self.borrow()
        gone.cancel()
        self.failureResultOf(gone, CancelledError)
        self.pass_time(PATIENCE - 1)
        self.assertNoResult(waiting)
        late = self.borrow()
        self.pass_time(1 + TICK)
        self.refused(waiting, "no connection came free in 6 seconds")
        self.assertNoResult(late)

    def test_queue_is_bounded_in_length(self) -> None:
        """When too many wait, the next is turned away at once (LIM-20)."""
        self.clock.advance(0)
        for _ in range(2 + QUEUE_LIMIT):
            self.assertFalse(self.borrow().called and len(self.sessions) < 2)
        self.refused(self.borrow(), "1000 callers wait")

    def test_many_that_give_back_at_once(self) -> None:
        """A queue of callers, each of which gives the session back as soon as it has it, needs no deep stack."""
        self.clock.advance(0)
        session, _ = (self.successResultOf(self.borrow()) for _ in range(2))
        waiting = [self.borrow().addCallback(self.pool.release) for _ in range(QUEUE_LIMIT)]
        self.pool.release(session)
        for one in waiting:
            self.successResultOf(one)

    def test_sessions_grow_older(self) -> None:
        """Sessions are told of time that passes; a time in which the reactor itself stood still counts as a moment."""
        self.clock.advance(0)
        self.pass_time(10)
        self.assertTrue(10 - 2 * TICK <= self.sessions[0].age <= 10)
        self.sessions[0].age = 0
        self.clock.advance(1000)
        self.assertEqual(self.sessions[0].age, TICK)

    def test_connected(self) -> None:
        """Who asks to be told when the first session is there, is told then, and later at once."""
        connected = Deferred.fromCoroutine(self.pool.wait_until_connected(3.0))
        self.assertNoResult(connected)
        self.clock.advance(0)
        self.successResultOf(connected)
        self.successResultOf(Deferred.fromCoroutine(self.pool.wait_until_connected(3.0)))

    def test_not_connected(self) -> None:
        """Who asks in vain is told so when the wait is over, with the last reason, and may ask again."""
        self.refusal = "refused"
        connected = Deferred.fromCoroutine(self.pool.wait_until_connected(3.0))
        self.pass_time(2.9)
        self.assertNoResult(connected)
        self.pass_time(0.2)
        self.assertEqual(self.failureResultOf(connected, StoreUnavailable).value.why, "refused")
        self.refusal = None
        connected = Deferred.fromCoroutine(self.pool.wait_until_connected(3.0))
        self.pass_time(2.1)
        self.successResultOf(connected)

    def test_stop(self) -> None:
        """A stop leaves no session and nothing scheduled, and lends no more."""
        self.clock.advance(0)
        stopped = self.stop()
        self.refused(self.borrow(), "stopping")
        self.clock.advance(0)
        self.successResultOf(stopped)
        self.assertTrue(all(session.lost for session in self.sessions))
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.successResultOf(self.stop())

    def test_stop_waits(self) -> None:
        """A stop waits for what is lent, but not for ever, and turns those away who wait."""
        for ending in ("given back", "lost", "neither"):
            self.setUp()
            self.clock.advance(0)
            borrowed = [self.successResultOf(self.borrow()) for _ in range(2)]
            waiting = self.borrow()
            stopped = self.stop()
            self.refused(waiting, "stopping")
            self.pool.release(borrowed[0])
            self.pass_time(PATIENCE - 1)
            self.assertNoResult(stopped)
            if ending == "given back":
                self.pool.release(borrowed[1])
            elif ending == "lost":
                borrowed[1].drop(StoreUnavailable("ended"))
            else:
                self.pass_time(1.1)
            self.clock.advance(0)
            self.successResultOf(stopped)
            self.assertTrue(all(session.lost for session in self.sessions))
            self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stop_from_within(self) -> None:
        """A stop by the one who was told of the first session stops all the same."""
        connected = Deferred.fromCoroutine(self.pool.wait_until_connected(3.0)).addCallback(lambda _: self.stop())
        self.clock.advance(0)
        self.clock.advance(0)
        self.successResultOf(connected)
        self.assertTrue(all(session.lost for session in self.sessions))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stop_while_connecting(self) -> None:
        """A stop gives up the attempts that are under way, and tells those who wait for one."""
        self.silent = True
        connected = Deferred.fromCoroutine(self.pool.wait_until_connected(3.0))
        self.clock.advance(0)
        stopped = self.stop()
        self.failureResultOf(connected, StoreUnavailable)
        self.clock.advance(0)
        self.successResultOf(stopped)
        self.assertTrue(all(attempt.called for attempt in self.unanswered))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_starts_again(self) -> None:
        """A pool that was stopped can be started again."""
        self.clock.advance(0)
        self.stop()
        self.clock.advance(0)
        self.pool.start()
        self.clock.advance(0)
        self.assertFalse(self.successResultOf(self.borrow()).lost)
        self.assertEqual(len(self.sessions), 4)

    def test_abandoned(self) -> None:
        """Abandoned, it loses every session, refuses who waits, and who comes before there is a session again."""
        self.clock.advance(0)
        sessions = [self.successResultOf(self.borrow()) for _ in range(2)]
        waiting = self.borrow()
        self.silent = True
        self.pool.abandon("it hangs")
        self.assertTrue(all(session.lost for session in sessions))
        for refused in (waiting, self.borrow()):
            self.assertEqual(self.failureResultOf(refused, StoreUnavailable).value.why, "it hangs")
