"""The health of the server in a process that doesn't check it: as the one that does has last reported it.

Note [Told in time]. Reports may stop coming, as rounds of checks may. Then the report says ``stale`` after the same three
intervals: a process that is cut off from the others doesn't look healthy.
"""

from __future__ import annotations

import attrs
from twisted.internet.interfaces import IReactorTime

from svc.health.checks_loop import INTERVALS_UNTIL_STALE, HealthReport
from svc.model.clocks import WallClock
from svc.model.dialect import Dialect


class ToldHealth:
    """The last report received; ``interval`` is that of the rounds, in seconds (Note [Told in time])."""

    def __init__(self, clock: IReactorTime, wall: WallClock, interval: float, report: HealthReport) -> None:
        self._clock, self._wall, self._patience = clock, wall, INTERVALS_UNTIL_STALE * interval
        self.hear(report)

    def hear(self, report: HealthReport) -> None:
        """Keep a report."""
        self._report, self._heard = report, self._clock.seconds()

    def report(self, dialect: Dialect) -> HealthReport:
        """Return the report."""
        report = attrs.evolve(self._report, dialect=dialect)
        overdue = self._clock.seconds() - self._heard - self._patience
        return report if overdue <= 0 else report.grown_stale(self._wall.seconds() - overdue)

    def now(self) -> float:
        """Return the moment by which the times of reports go, in epoch seconds."""
        return self._wall.seconds()
