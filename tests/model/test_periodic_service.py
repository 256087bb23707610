"""Tests of ``svc.model.background``."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import Logger
from twisted.trial.unittest import SynchronousTestCase

from svc.model.background import PeriodicService


class PeriodicServiceTests(SynchronousTestCase):
    """A service with a round every ten seconds."""

    def setUp(self) -> None:
        """Make a service whose rounds are ended by the test."""
        self.clock = Clock()
        self.rounds: list[Deferred[None]] = []
        self.service = PeriodicService(self.clock, 10.0, self.work, Logger(), "It could not be done")

    async def work(self) -> None:
        """Begin a round."""
        self.rounds.append(Deferred())
        await self.rounds[-1]

    def test_pace(self) -> None:
        """Rounds begin at the start, then at a steady pace, but none before the one before it has ended."""
        self.service.startService()
        self.assertEqual(len(self.rounds), 1)
        self.clock.advance(25)
        self.assertEqual(len(self.rounds), 1)
        self.rounds[0].callback(None)
        self.clock.advance(5)
        self.assertEqual(len(self.rounds), 2)

    def test_later(self) -> None:
        """A service whose first round isn't at once begins it after an interval; a function is a round, too."""
        calls: list[float] = []
        service = PeriodicService(
            self.clock, 10.0, lambda: calls.append(self.clock.seconds()), Logger(), "It could not be done", at_once=False
        )
        service.startService()
        self.clock.pump([9.0, 1.0, 10.0])
        service.stopService()
        self.clock.advance(10)
        self.assertEqual(calls, [10.0, 20.0])

    def test_stopped(self) -> None:
        """When it is stopped no round begins any more, be one under way or not; it can be started again."""
        for number, ended in enumerate((False, True), start=1):
            self.service.startService()
            if ended:
                self.rounds[-1].callback(None)
            self.service.stopService()
            self.clock.advance(100)
            self.assertEqual(len(self.rounds), number)

    def test_bug(self) -> None:
        """An exception in a round is logged, and the next round comes."""
        self.service.startService()
        self.rounds[0].errback(ZeroDivisionError())
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.clock.advance(10)
        self.assertEqual(len(self.rounds), 2)
        self.service.stopService()

    def test_triggered(self) -> None:
        """Triggered, it begins a round now, and from then on at its times."""
        self.service.startService()
        self.rounds[0].callback(None)
        self.clock.advance(3)
        self.service.trigger()
        self.assertEqual(len(self.rounds), 2)
        self.rounds[1].callback(None)
        self.clock.advance(9)
        self.assertEqual(len(self.rounds), 2)
        self.clock.advance(1)
        self.assertEqual(len(self.rounds), 3)

    def test_triggered_under_way(self) -> None:
        """Triggered while a round is under way, however often, it does one more when that has ended, be it with a bug."""
        self.service.startService()
        self.service.trigger()
        self.service.trigger()
        self.assertEqual((len(self.rounds), self.service.triggered), (1, True))
        self.rounds[0].errback(ZeroDivisionError())
        self.assertEqual((len(self.rounds), self.service.triggered), (2, False))
        self.rounds[1].callback(None)
        self.assertEqual(len(self.rounds), 2)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_triggered_and_stopped(self) -> None:
        """Stopped, it begins no round, whether it was triggered before or is afterwards."""
        self.service.startService()
        self.service.trigger()
        self.service.stopService()
        self.rounds[0].callback(None)
        self.service.trigger()
        self.clock.advance(100)
        self.assertEqual(len(self.rounds), 1)
