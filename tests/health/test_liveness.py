"""The liveness of a database that goes, hangs and comes back, on a clock that the tests turn."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.health.liveness import TICK, TICKS_BETWEEN, TICKS_UNTIL_LATE, DatabaseLiveness
from svc.model.counts import PoolCounts
from svc.model.errors import StoreUnavailable


class PulseTests(SynchronousTestCase):
    """A database with ``sessions``, that answers when it isn't ``hanging``, and what was told of it."""

    def setUp(self) -> None:
        """Start on a database that is well."""
        self.clock = Clock()
        self.sessions, self.returned, self.asked = 8, 0, 0
        self.hanging = False
        self.questions: list[Deferred[None]] = []
        self.told: list[bool] = []
        self.liveness = DatabaseLiveness(self.clock, self.ask, self.census, lambda: self.told.append(self.liveness.is_alive))
        self.liveness.startService()
        self.addCleanup(self.liveness.stopService)

    async def ask(self) -> None:
        """Answer, or don't."""
        self.asked += 1
        if self.hanging:
            question: Deferred[None] = Deferred()
            self.questions.append(question)
            await question

    def census(self) -> PoolCounts:
        """The sessions."""
        return PoolCounts(self.sessions, 0, 0, 0, 0.0, self.returned)

    def hang(self) -> None:
        """Hang, and be noticed."""
        self.hanging = True
        self.clock.pump([TICK] * (TICKS_BETWEEN + TICKS_UNTIL_LATE))

    def test_well(self) -> None:
        """A database that answers is asked twice a second, and beats; nobody is told anything."""
        self.clock.pump([TICK] * 40)
        self.assertTrue(self.liveness.is_alive)
        self.assertEqual((self.asked, self.told), (21, []))

    def test_lost(self) -> None:
        """A server without a session knows at once that it can't serve, and that it can again, and tells of both
        (HEALTH-11).
        """
        self.sessions = 0
        self.assertFalse(self.liveness.is_alive)
        self.clock.advance(TICK)
        self.sessions = 1
        self.assertTrue(self.liveness.is_alive)
        self.clock.advance(TICK)
        self.assertEqual(self.told, [False, True])

    def test_hangs(self) -> None:
        """A database that hangs is known to within two seconds, is asked once meanwhile, and beats when it answers
        (HEALTH-11).
        """
        self.hang()
        self.assertLessEqual(self.clock.seconds(), 2)
        self.assertEqual((self.liveness.is_alive, self.told), (False, [False]))
        self.clock.pump([TICK] * 40)
        self.assertEqual(len(self.questions), 1)
        self.hanging = False
        self.questions.pop().callback(None)
        self.assertEqual((self.liveness.is_alive, self.told), (True, [False, True]))

    def test_session_given_up(self) -> None:
        """That the question was given up is no answer: a database that hung hangs until it has answered another."""
        self.hang()
        self.questions.pop().errback(StoreUnavailable("a statement went unanswered"))
        self.assertFalse(self.liveness.is_alive)
        self.hanging = False
        self.clock.pump([TICK] * TICKS_BETWEEN)
        self.assertEqual((self.liveness.is_alive, self.told), (True, [False, True]))

    def test_busy(self) -> None:
        """While sessions are given back the database doesn't hang, however long the question waits for its turn."""
        self.hanging = True
        for _ in range(40):
            self.returned += 1
            self.clock.advance(TICK)
        self.assertTrue(self.liveness.is_alive)
        self.clock.pump([TICK] * TICKS_UNTIL_LATE)
        self.assertFalse(self.liveness.is_alive)

    def test_suspended(self) -> None:
        """A process that was suspended itself doesn't take the answer that it finds for late."""
        self.hanging = True
        self.clock.pump([TICK] * TICKS_BETWEEN)
        self.clock.advance(3600)
        self.assertTrue(self.liveness.is_alive)

    def test_bug(self) -> None:
        """A question that fails as it shouldn't is in the log, is no answer, and isn't the last."""
        self.hanging = True
        self.clock.pump([TICK] * TICKS_BETWEEN)
        self.questions.pop().errback(LookupError("no such thing"))
        self.assertEqual(len(self.flushLoggedErrors(LookupError)), 1)
        self.hanging = False
        asked = self.asked
        self.clock.pump([TICK] * TICKS_BETWEEN)
        self.assertEqual(self.asked, asked + 1)

    def test_stop(self) -> None:
        """Stopped, it leaves nothing on the clock, and no failure in the log."""
        self.hang()
        self.liveness.stopService()
        self.assertEqual(self.clock.getDelayedCalls(), [])
