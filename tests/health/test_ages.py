"""Tests of ``svc.health.ages``."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.health.ages import INTERVAL, AgesPoller
from svc.model.databases import Ages
from svc.model.errors import StoreUnavailable
from tests.health.fakes import FakeState


class AgesLoopTests(SynchronousTestCase):
    """What is known of ages."""

    def test_ages(self) -> None:
        """They are asked about once a minute; what was known stays while the database is away, and nothing runs on."""
        clock, state = Clock(), FakeState()
        loop = AgesPoller(clock, state)
        self.assertIsNone(loop.current)
        loop.startService()
        self.assertEqual(loop.current, Ages(1000.0, 2000.0))

        async def away() -> None:
            raise StoreUnavailable("it is away")

        state.work["ages"] = away
        clock.advance(INTERVAL)
        self.assertEqual(loop.current, Ages(1000.0, 2000.0))
        del state.work["ages"]
        clock.advance(INTERVAL)
        loop.stopService()
        clock.advance(10 * INTERVAL)
        self.assertEqual((len(state.asked), clock.getDelayedCalls()), (3, []))
