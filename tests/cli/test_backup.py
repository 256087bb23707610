"""Tests of ``svc.cli.backup``; backups of databases are made in ``tests/integration``."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner
from twisted.trial.unittest import SynchronousTestCase

from svc.cli import admin
from svc.cli.backup import backup
from tests.cli.completing import complete


class CreateTests(SynchronousTestCase):
    """Backups that can't be made."""

    def test_no_database(self) -> None:
        """Where there is no database none is made to be dumped: an empty backup, every night, would be taken for one
        (CLI-23).
        """
        self.patch(admin, "run_reactor", complete)
        folder = Path(self.mktemp()).resolve()
        outcome = CliRunner().invoke(backup, ["create", str(folder / "dump"), "--data-dir", str(folder / "data")])
        self.assertEqual(outcome.exit_code, 1)
        self.assertIn(f"there is no database in {folder / 'data'}", outcome.output)
        self.assertFalse(folder.exists())
