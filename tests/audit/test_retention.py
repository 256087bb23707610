"""Events that are too old go."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.audit.retention import INTERVAL, EventRetention
from svc.model.events import AuditContext, Event, EventBatch
from tests.chronicle import Chronicle
from tests.memory import Memory
from tests.memory_events import MemoryEvents


class RetentionTests(SynchronousTestCase):
    """A store with an event."""

    def setUp(self) -> None:
        """Record it, and begin."""
        self.memory, self.clock = Memory(), Clock()
        origin = AuditContext(Chronicle().server, "acme:user:u", "::1", "r")
        self.memory.record(EventBatch(origin, (Event("update", "update", (), "did", "do"),)))
        self.clock.advance(self.memory.made_at)
        self.retention = EventRetention(
            self.clock, self.clock, MemoryEvents(self.memory), 10 * INTERVAL, self.memory.ensure_writable
        )

    def test_age(self) -> None:
        """An event goes within an interval from when it is older than the age, and no sooner (AUD-25)."""
        self.retention.startService()
        for _ in range(10):
            self.clock.advance(INTERVAL)
            self.assertEqual(len(self.memory.events), 1)
        self.clock.advance(INTERVAL)
        self.assertEqual(self.memory.events, {})
        self.retention.stopService()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_later(self) -> None:
        """A store that is away, or a standby, is asked again later."""
        self.memory.standby = True
        self.clock.advance(20 * INTERVAL)
        self.retention.startService()
        self.memory.standby, self.memory.down = False, True
        self.clock.advance(INTERVAL)
        self.assertEqual(len(self.memory.events), 1)
        self.memory.down = False
        self.clock.advance(INTERVAL)
        self.assertEqual(self.memory.events, {})
