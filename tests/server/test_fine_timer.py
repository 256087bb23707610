"""Tests of ``svc.server.fine_timer``, with the system's own timer."""

from __future__ import annotations

import time

from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase, TestCase

from svc.server import fine_timer
from svc.server.fine_timer import FineTimer


class FineTimerTests(TestCase):
    """Waits on the reactor."""

    def setUp(self) -> None:
        """Start a timer."""
        self.timer = FineTimer(reactor)
        self.timer.startService()
        self.addCleanup(self.timer.stopService)

    async def test_in_their_order(self) -> None:
        """Waits end in the order in which they are due, whenever they began; one that is due at once ends."""
        ended = list[float]()

        async def wait(seconds: float) -> None:
            await self.timer.wait_seconds(seconds)
            ended.append(seconds)

        now = time.monotonic_ns()
        # They all begin at one moment, however busy the machine is.
        patch = self.patch(time, "monotonic_ns", lambda: now)
        waits = [Deferred.fromCoroutine(wait(seconds)) for seconds in (0.006, 0.0, 0.002, 0.004)]
        patch.restore()
        await gatherResults(waits)
        self.assertEqual(ended, [0.0, 0.002, 0.004, 0.006])

    async def test_cancelled(self) -> None:
        """One that is cancelled ends, and others go on: those before it, those after it, and one that begins then."""
        first, second, third = (self.timer.wait_seconds(seconds) for seconds in (0.001, 0.002, 0.003))
        first.addErrback(lambda _: None)
        second.addErrback(lambda _: None)
        first.cancel()
        second.cancel()
        await third
        await self.timer.wait_seconds(0.001)

    async def test_begun_at_an_end(self) -> None:
        """A wait that begins where another ends takes its own time."""
        first = self.timer.wait_seconds(0.001)
        ended = list[str]()

        async def again() -> None:
            await first
            ended.append("first")
            await self.timer.wait_seconds(0.001)
            ended.append("again")

        await again()
        self.assertEqual(ended, ["first", "again"])


class WithoutTests(SynchronousTestCase):
    """Where the system has no timer of that kind."""

    def test_the_reactor_waits(self) -> None:
        """The reactor's own wait is taken."""
        self.patch(fine_timer, "_create_timer", lambda: None)
        clock = Clock()
        timer = FineTimer(clock)
        timer.startService()
        wait = timer.wait_seconds(0.02)
        clock.advance(0.019)
        self.assertNoResult(wait)
        clock.advance(0.001)
        self.successResultOf(wait)
        timer.stopService()
