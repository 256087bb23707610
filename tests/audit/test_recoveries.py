"""Tests of ``svc.audit.recoveries``."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.task import Clock
from twisted.logger import LogLevel, capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from svc.audit.recoveries import INTERVAL, REPORT_WINDOW, RecoveryReporter
from svc.model.errors import StoreUnavailable
from svc.model.events import WARNING
from tests.chronicle import Chronicle


class RecoveriesTests(SynchronousTestCase):
    """A server that looks for recoveries."""

    def setUp(self) -> None:
        """Make it."""
        self.clock, self.journal = Clock(), Chronicle()
        self.found: Sequence[tuple[str, float]] | None = ()
        self.asked: list[float] = []
        self.recoveries = RecoveryReporter(self.clock, self.recovered, self.journal)

    async def recovered(self, seconds: float) -> Sequence[tuple[str, float]]:
        """What there is."""
        self.asked.append(seconds)
        if self.found is None:
            raise StoreUnavailable("gone")
        return self.found

    def told(self) -> list[str]:
        """Let one more look be made, and return the warnings of the log."""
        with capturedLogs() as events:
            self.clock.advance(INTERVAL)
        self.assertEqual({event["log_level"] for event in events} - {LogLevel.warn}, set())
        return [event["account"] for event in events]

    def test_told_once(self) -> None:
        """Each recovery is told once in the log and once in the audit, within ten seconds, also by a server that was away
        (AUD-32).
        """
        self.found = [("acme", 1000.0)]
        with capturedLogs() as events:
            self.recoveries.startService()
        self.assertEqual([event["at"] for event in events], ["1970-01-01T00:16:40Z"])
        self.assertEqual(self.asked, [REPORT_WINDOW])
        [(origin, event, outcome)] = self.journal.taken
        subject = {"account": "acme", "role": "acme:user:admin", "resource": "acme:user:admin"}
        self.assertEqual((origin.user, event.user, outcome.reason), (None, "svc", None))
        self.assertEqual((event.msgid, event.operation, dict(event.subject)), ("account", "recover", subject))
        self.assertEqual(event.severity, WARNING)
        self.assertEqual(self.told(), [])
        self.found = [("acme", 1000.0), ("acme", 2000.0), ("other", 1500.0)]
        self.assertEqual(self.told(), ["acme", "other"])
        self.found = None
        self.assertEqual(self.told(), [])
        self.found = [("other", 1500.0)]
        self.assertEqual(self.told(), [])
        self.assertEqual(len(self.journal.taken), 3)
        self.recoveries.stopService()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_no_audit(self) -> None:
        """What the audit doesn't take is told again (AUD-32)."""
        self.journal.away = True
        self.found = [("acme", 1000.0)]
        self.recoveries.startService()
        self.journal.away = False
        self.assertEqual(self.told(), ["acme"])
        self.assertEqual(len(self.journal.taken), 1)
        self.assertEqual(self.told(), [])
