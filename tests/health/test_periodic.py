"""Tests of ``svc.health.periodic``."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.health.periodic import PeriodicTask


class PeriodicTaskTests(SynchronousTestCase):
    """A task every ten seconds."""

    def setUp(self) -> None:
        """Start it; each time it waits for the last of ``begun``."""
        self.clock = Clock()
        self.begun: list[Deferred[None]] = []
        self.failures: list[Failure] = []
        self.task = PeriodicTask(self.clock, 10.0, self.work, self.failures.append)
        self.task.start()

    async def work(self) -> None:
        """Wait until the test says that it is done."""
        done: Deferred[None] = Deferred()
        self.begun.append(done)
        await done

    def test_steady(self) -> None:
        """It begins at once, then at its times, and never beside itself."""
        self.clock.advance(25)
        self.assertEqual(len(self.begun), 1)
        self.begun[0].callback(None)
        self.clock.advance(5)
        self.assertEqual(len(self.begun), 2)

    def test_triggered(self) -> None:
        """Triggered, it begins now, and from then on at its times."""
        self.begun[0].callback(None)
        self.clock.advance(3)
        self.task.trigger()
        self.assertEqual(len(self.begun), 2)
        self.begun[1].callback(None)
        self.clock.advance(9)
        self.assertEqual(len(self.begun), 2)
        self.clock.advance(1)
        self.assertEqual(len(self.begun), 3)

    def test_triggered_under_way(self) -> None:
        """Triggered while it is under way, however often, it is done once more, when that has ended."""
        self.task.trigger()
        self.task.trigger()
        self.assertEqual((len(self.begun), self.task.triggered), (1, True))
        self.begun[0].callback(None)
        self.assertEqual((len(self.begun), self.task.triggered), (2, False))
        self.begun[1].callback(None)
        self.assertEqual(len(self.begun), 2)

    def test_stopped(self) -> None:
        """Stopped, it begins no more, whether it was triggered before or is afterwards."""
        self.task.trigger()
        self.task.stop()
        self.assertFalse(self.task.running)
        self.begun[0].callback(None)
        self.task.trigger()
        self.clock.advance(100)
        self.assertEqual(len(self.begun), 1)

    def test_failed(self) -> None:
        """What it raises ends it, and is told."""
        self.begun[0].errback(LookupError("bug"))
        self.assertEqual([str(failure.value) for failure in self.failures], ["bug"])
        self.clock.advance(100)
        self.assertEqual((len(self.begun), self.task.running), (1, False))
