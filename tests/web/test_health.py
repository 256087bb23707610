"""Tests of ``svc.web.health``."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.dialect import CONJUR, NATIVE
from svc.health.probes import AuthzProbe, DatabaseProbe
from svc.health.rounds import Rounds
from svc.web.health import Health
from tests.memory import Memory, MemoryState
from tests.web.support import Client


class HealthTests(SynchronousTestCase):
    """The route tells the last round."""

    def setUp(self) -> None:
        """Make a server whose health is checked every five seconds."""
        self.memory = Memory()
        self.clock = Clock()
        state = MemoryState(self.memory)
        self.rounds = Rounds(self.clock, [AuthzProbe(state)], DatabaseProbe(state), 5.0)
        self.rounds.startService()
        self.addCleanup(self.rounds.stopService)

    def test_healthy(self) -> None:
        """A healthy server answers 200 without a login, with the field names of the dialect; ``HEAD`` works."""
        for dialect, prefix in ((NATIVE, "db_"), (CONJUR, "pg_")):
            client = Client(Health(self.rounds, dialect))
            answer = client.get("/health")
            self.assertEqual(answer.status, 200)
            report = answer.json()
            self.assertEqual(report["services"], {"authz": "ok", "ok": True})
            location = f"{prefix}current_xlog_location"
            self.assertEqual(report["database"]["replication_status"][location], "0/16B3748")
            self.assertEqual(report["database"]["replication_status"][f"{location}_bytes"], 0x16B3748)
            self.assertEqual(client.head("/health").status, 200)

    def test_failing(self) -> None:
        """When the database fails a round, the answer is 502, and 200 again after a round that it passes."""
        client = Client(Health(self.rounds, NATIVE))
        self.memory.down = True
        self.clock.advance(5)
        answer = client.get("/health")
        self.assertEqual((answer.status, answer.json()["ok"], answer.json()["database"]["ok"]), (502, False, False))
        self.assertEqual(answer.json()["database"]["connect"], {"main": "failed"})
        self.memory.down = False
        self.clock.advance(5)
        self.assertEqual(client.get("/health").status, 200)
