"""Tests of ``svc.cli.server``."""

from __future__ import annotations

import sys

from click.testing import CliRunner
from twisted.scripts import twistd
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.main import main


class ServerCommandTests(SynchronousTestCase):
    """What ``svc server`` starts."""

    def started(self, *arguments: str) -> list[str]:
        """The command line that twistd is given."""
        found: list[list[str]] = []
        self.patch(sys, "argv", sys.argv)
        self.patch(twistd, "run", lambda: found.append(sys.argv))
        self.assertEqual(CliRunner().invoke(main, ["server", *arguments]).exit_code, 0)
        [one] = found
        return one

    def test_server(self) -> None:
        """It is the server in the foreground, with the options that it is given, whatever they are (OPS-10)."""
        foreground = ["twistd", "--nodaemon", "--pidfile=", "svc"]
        self.assertEqual(self.started(), foreground)
        options = ("--listen", "tcp:0", "--help", "-h", "--", "x")
        self.assertEqual(self.started(*options), [*foreground, *options])
