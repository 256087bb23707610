"""Tests of ``svc.storage.purging``: deleted records go by themselves."""

from __future__ import annotations

from typing import cast

from prometheus_client import generate_latest
from twisted.internet.task import Clock
from twisted.logger import ILogObserver, LogEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from svc.model.counts import PurgeCounts
from svc.model.deleted_records import DeletedRecord, RecordRetention, RoleIdentity
from svc.model.query_results import Sealed
from svc.storage.purging import INTERVAL, PurgeService
from svc.telemetry.metrics import Metrics
from tests.memory import KeptRow, Memory, MemoryKeptAnswers
from tests.memory_deleted import MemoryDeleted

OWNER = RoleIdentity("acct:policy:root", 0)


class PurgingTests(SynchronousTestCase):
    """A store that keeps three values of a variable, of which there is room for two."""

    def setUp(self) -> None:
        """Keep them."""
        self.memory, self.clock = Memory(keeping=RecordRetention(seconds=10 * INTERVAL, bytes=4000)), Clock()
        for version in (1, 2, 3):
            record = DeletedRecord(0, "acct:variable:v", OWNER, None, True, 1.0, 0.0, 0.0, versions=(version,))
            self.memory.keep(KeptRow(record, OWNER, {version: (Sealed(b"x" * 1400), (0.0, None))}))
        self.purging = PurgeService(
            self.clock, MemoryDeleted(self.memory), MemoryKeptAnswers(self.memory), self.memory.ensure_writable
        )
        self.logged: list[str] = []
        observer = cast(ILogObserver, self.observe)
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)

    def observe(self, event: LogEvent) -> None:
        """Keep what is logged of purging."""
        if event.get("log_namespace") == "svc.storage.purging":
            self.logged.append(event["log_format"].format(**event))

    def test_rounds(self) -> None:
        """What is too much goes at once, the oldest first, and what is over its time within a round; the log says so, and
        counters do (DEL-4, DEL-26).
        """
        self.purging.startService()
        self.assertEqual(list(self.memory.deleted), [2, 3])
        self.assertEqual(self.purging.purge_counts(), PurgeCounts(2, 2 * 1912, 0, 1))
        self.memory.now += 9 * INTERVAL
        self.clock.advance(INTERVAL)
        self.assertEqual(list(self.memory.deleted), [2, 3])
        self.memory.now += INTERVAL
        self.clock.advance(INTERVAL)
        self.assertEqual(self.memory.deleted, {})
        self.assertEqual(
            self.logged,
            [
                "1 deleted records of the account acct, the oldest, were purged: it has more than --deleted-limit",
                "2 deleted records were purged: their time is over",
            ],
        )
        metrics = Metrics()
        metrics.watch_deleted(self.purging.purge_counts)
        text = generate_latest(metrics.registry).decode()
        for line in ("svc_deleted_records 0.0", "svc_deleted_bytes 0.0"):
            self.assertIn(line, text)
        for reason, count in (("old", 2), ("excess", 1)):
            self.assertIn(f'svc_deleted_purged_total{{reason="{reason}"}} {count}.0', text)
        self.purging.stopService()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_later(self) -> None:
        """A standby purges nothing, and a store that is away is asked again later (DEL-4)."""
        self.memory.standby = True
        self.purging.startService()
        self.memory.standby, self.memory.down = False, True
        self.clock.advance(INTERVAL)
        self.assertEqual(len(self.memory.deleted), 3)
        self.memory.down = False
        self.clock.advance(INTERVAL)
        self.assertEqual(len(self.memory.deleted), 2)
