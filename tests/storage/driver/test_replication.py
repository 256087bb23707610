"""Tests of ``svc.storage.driver.replication``."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import StoreUnavailable
from svc.storage.driver.replication import Replication


class Database:
    """A database that is a standby or a primary, and counts what it is asked."""

    def __init__(self) -> None:
        self.standby = True
        self.reachable = True
        self.questions = self.beats = 0

    async def fetch(self, statement: object) -> list[tuple[bool]]:
        """Return whether it is a standby."""
        self.questions += 1
        if not self.reachable:
            raise StoreUnavailable("Connection refused")
        return [(self.standby,)]

    async def change_unreported(self, statement: object) -> None:
        """Count a beat."""
        self.beats += 1


class ReplicationTests(SynchronousTestCase):
    """How soon it is known which role the database has."""

    def test_looks(self) -> None:
        """A standby is asked four times a second, so that a promotion is soon known; a primary once, with a beat (CLU-5)."""
        clock, database = Clock(), Database()
        double: Any = database
        replication = Replication(double, clock)
        replication.startService()
        self.addCleanup(replication.stopService)
        clock.pump([0.25] * 8)
        self.assertEqual((database.questions, database.beats, replication.is_writable), (9, 0, False))
        database.standby = False
        clock.pump([0.25])
        self.assertEqual((database.beats, replication.is_writable), (1, True))
        database.questions = database.beats = 0
        clock.pump([0.25] * 12)
        self.assertEqual((database.questions, database.beats), (3, 3))
        database.standby = True
        clock.pump([0.25] * 4)
        self.assertFalse(replication.is_writable)

    def test_a_former_primary(self) -> None:
        """A primary that went away is none until asked again, since it may be back as a standby (CLU-4, CLU-5)."""
        clock, database = Clock(), Database()
        double: Any = database
        database.standby = False
        replication = Replication(double, clock)
        replication.startService()
        self.addCleanup(replication.stopService)
        self.assertTrue(replication.is_writable)
        database.reachable = False
        clock.pump([0.25] * 4)
        self.assertFalse(replication.is_writable)
        database.reachable = database.standby = True
        self.assertFalse(replication.is_writable)
        clock.pump([0.25])
        self.assertFalse(replication.is_writable)
        database.standby = False
        clock.pump([0.25])
        self.assertTrue(replication.is_writable)
