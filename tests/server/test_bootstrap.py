"""Tests of ``svc.server.bootstrap``."""

from __future__ import annotations

from pathlib import Path

from twisted.internet.defer import Deferred
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import StartRefused
from svc.server.bootstrap import run_on_database
from svc.settings.config import Settings
from svc.storage.driver.migrations import forecast_migrations


class LookIntoTests(SynchronousTestCase):
    """Looks at a database that leave it as it was."""

    def test_no_database(self) -> None:
        """Where there is no embedded database none is made to look at: a mistyped folder stays as it was (OPS-4)."""
        folder = Path(self.mktemp())
        looking = Deferred.fromCoroutine(
            run_on_database(MemoryReactorClock(), Settings(data_dir=folder), forecast_migrations)
        )
        self.assertIn("there is no database in", self.failureResultOf(looking, StartRefused).getErrorMessage())
        self.assertFalse(folder.exists())
