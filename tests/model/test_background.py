"""Tests of ``svc.model.background``."""

from __future__ import annotations

from typing import cast

from twisted.internet.defer import Deferred
from twisted.logger import ILogObserver, Logger, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from svc.model.background import run_in_background


class RunInBackgroundTests(SynchronousTestCase):
    """Work that nothing waits for."""

    def test_ends(self) -> None:
        """Work that fails is logged with its sentence; work that succeeds or is cancelled isn't logged."""
        events: list[str] = []

        observer = cast(ILogObserver, lambda event: events.append(event["log_format"]))
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)

        async def work(waited: Deferred[None]) -> None:
            await waited

        waited = [Deferred[None]() for _ in range(3)]
        done = [run_in_background(work(each), Logger(), "It could not be done") for each in waited]
        waited[0].callback(None)
        done[1].cancel()
        self.assertEqual(events, [])
        waited[2].errback(LookupError("bug"))
        self.assertEqual(events, ["It could not be done"])
        self.assertEqual(len(self.flushLoggedErrors(LookupError)), 1)
        for each in done:
            self.assertIsNone(self.successResultOf(each))
