"""Where audit records go when no setting names a file."""

from __future__ import annotations

import os
import pty
import sys
from pathlib import Path
from typing import TextIO

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from svc.server.audit_output import AuditOutput
from svc.settings.reading import read_settings


class DestinationTests(SynchronousTestCase):
    """The destination of a server in the foreground."""

    def make_output(self, stdout: TextIO | None, **settings: str) -> AuditOutput:
        """Return the output of a server with this standard output."""
        self.patch(sys, "__stdout__", stdout)
        self.data = Path(self.mktemp()).absolute()
        return AuditOutput(read_settings({"data_dir": str(self.data), **settings}, {}), bytes(32), None, None, daemon=False)

    def open_terminal(self) -> TextIO:
        """Return a stream that is a terminal."""
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        stream = os.fdopen(theirs, "w", encoding="utf-8")
        self.addCleanup(stream.close)
        return stream

    def test_terminal(self) -> None:
        """On a terminal it is a file of mode 0600 in the data directory, which one line of the log names (AUD-60)."""
        output = self.make_output(self.open_terminal())
        path = self.data / "audit.log"
        self.assertEqual(output.path, path)
        journal = output.make_journal(Clock(), Clock(), None)
        self.successResultOf(Deferred.fromCoroutine(journal.open()))
        self.successResultOf(journal.stopService())
        self.assertEqual(path.stat().st_mode & 0o777, 0o600)
        with capturedLogs() as logged:
            output.log_destination()
        self.assertEqual([formatEvent(event) for event in logged], [f"Audit records are appended to {path}"])

    def test_elsewhere(self) -> None:
        """A pipe and a closed stream are standard output, and so is a terminal that the setting asks for (AUD-60)."""
        pipe, other = os.pipe()
        self.addCleanup(os.close, pipe)
        with open(other, "w", encoding="utf-8") as stream:
            self.assertIsNone(self.make_output(stream).path)
        self.assertIsNone(self.make_output(stream).path)
        self.assertIsNone(self.make_output(None).path)
        self.assertIsNone(self.make_output(self.open_terminal(), audit_file="-").path)
