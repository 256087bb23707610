"""Tests of ``svc.cli.quickstart``; whole runs are in ``tests/integration``."""

from __future__ import annotations

import os
from pathlib import Path

from click.testing import CliRunner
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.quickstart import quickstart
from svc.storage.embedded.directory import DataDirectory


class FolderTests(SynchronousTestCase):
    """The folder of a quickstart."""

    def test_in_use(self) -> None:
        """The folder of a running server, or of another quickstart, is refused, and the process named (CLI-26)."""
        folder = Path(self.mktemp()).resolve()
        folder.mkdir(0o700)
        directory = DataDirectory(folder)
        self.assertIsNone(directory.take_lock(serving=True))
        self.addCleanup(directory.release)
        outcome = CliRunner().invoke(quickstart, ["--data-dir", str(folder)])
        self.assertEqual(outcome.exit_code, 1)
        self.assertEqual(outcome.output, f"Error: {folder} is in use by another svc, process {os.getpid()}\n")
        self.assertEqual(os.listdir(folder), ["lock"])
