"""Health in a process that is told of it."""

from __future__ import annotations

import attrs
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.health.checks_loop import INTERVALS_UNTIL_STALE, HealthReport, RemoteHealth
from svc.model.dialect import CONJUR, NATIVE
from tests.walls import Wall

REPORT = HealthReport(NATIVE, {"core": "ok", "authn": "ok"}, "ok", None, 1.0, {"core": 1.0, "database": 1.0})
INTERVAL = 5.0


class ToldHealthTests(SynchronousTestCase):
    """Reports, as they are told."""

    def setUp(self) -> None:
        """Tell the first."""
        self.clock = Clock()
        self.wall = Wall(self.clock, 1000.0)
        self.health = RemoteHealth(self.clock, self.wall, INTERVAL, REPORT)

    def test_told(self) -> None:
        """The report is the one that was told last, in the dialect that is asked for (CFG-35)."""
        self.assertEqual(self.health.last_report(NATIVE), REPORT)
        self.assertEqual(self.health.last_report(CONJUR).dialect, CONJUR)
        ill = attrs.evolve(REPORT, services={"core": "failed", "authn": "ok"})
        self.health.receive_report(ill)
        self.assertEqual(self.health.last_report(NATIVE), ill)
        self.assertEqual(self.health.now(), 1000.0)

    def test_stale(self) -> None:
        """A process that was told nothing for three intervals says stale, until it is told again (CFG-35)."""
        self.clock.advance(INTERVALS_UNTIL_STALE * INTERVAL)
        self.assertTrue(self.health.last_report(NATIVE).ok)
        self.clock.advance(1.0)
        report = self.health.last_report(NATIVE)
        self.assertEqual((set(report.services.values()), report.database), ({"stale"}, "stale"))
        self.assertEqual((report.ok, report.is_ready, report.is_ready_to_write), (False, False, False))
        self.assertEqual(report.changed, {"core": 1015.0, "database": 1015.0})
        self.health.receive_report(REPORT)
        self.assertTrue(self.health.last_report(NATIVE).is_ready)
