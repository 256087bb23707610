"""Tests of ``svc.model.periodic_service``."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import Logger
from twisted.trial.unittest import SynchronousTestCase

from svc.model.periodic_service import PeriodicService


class RoundsServiceTests(SynchronousTestCase):
    """What is done in rounds."""

    def setUp(self) -> None:
        """Make a service whose rounds are ended by the test."""
        self.clock = Clock()
        self.rounds: list[Deferred[None]] = []
        self.service = PeriodicService(self.clock, 10.0, self.work, Logger(), "It is not done any more")

    async def work(self) -> None:
        """Begin a round."""
        self.rounds.append(Deferred())
        await self.rounds[-1]

    def test_pace(self) -> None:
        """Rounds begin at the start, then at a steady pace, but none before the one before it has ended."""
        self.service.startService()
        self.assertEqual(len(self.rounds), 1)
        self.clock.advance(10)
        self.assertEqual(len(self.rounds), 1)
        self.rounds[0].callback(None)
        self.clock.advance(10)
        self.assertEqual(len(self.rounds), 2)

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
        """An exception ends the rounds, and is logged."""
        self.service.startService()
        self.rounds[0].errback(ZeroDivisionError())
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.clock.advance(100)
        self.assertEqual(len(self.rounds), 1)
        self.service.stopService()
