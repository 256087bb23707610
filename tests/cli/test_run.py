"""Tests of ``svc.cli.run``."""

from __future__ import annotations

import signal
from pathlib import Path

import click
from click.testing import CliRunner
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.run import become, run

SERVER = ("--url", "http://127.0.0.1:1", "--account-name", "acme")


class RunTests(SynchronousTestCase):
    """The command line of ``svc run``; what it starts is tried in ``tests/integration``."""

    def test_a_mapping_and_a_command_are_needed(self) -> None:
        """Without a mapping file, or without a command, it is a usage error."""
        for arguments in ((*SERVER, "--", "true"), (*SERVER, "-f", "secrets.yml")):
            self.assertEqual(CliRunner().invoke(run, arguments).exit_code, 2, arguments)

    def test_help(self) -> None:
        """Its help shows a mapping file, and each way to log in."""
        shown = CliRunner().invoke(run, ["--help"]).output
        for part in (
            "DB_PASSWORD: ci/database/password",
            "--jwt-file /run/token --service-id ci",
            "--cloud --service-id prod",
        ):
            self.assertIn(part, shown)
        self.assertIn("    svc run -f secrets.yml -- ./serve --port 80\n", shown, "examples keep their lines")

    def test_what_cannot_be_started(self) -> None:
        """A command that isn't there is exit code 127, one that can't be started 126, as in shells; both are named."""
        path = Path(self.mktemp())
        path.write_text("no program")
        for command, code in (("no-such-command-anywhere", 127), (str(path), 126)):
            fault = self.assertRaises(click.ClickException, become, (command,), {"PATH": "/nowhere"})
            self.assertEqual(fault.exit_code, code)
            self.assertIn(f"cannot start {command}", fault.message)

    def test_signals_without_a_start(self) -> None:
        """A command that can't be started leaves this process's signals as they were."""
        signals = (signal.SIGPIPE, signal.SIGXFSZ)
        before = [signal.getsignal(number) for number in signals]
        self.assertNotIn(signal.SIG_DFL, before)
        self.assertRaises(click.ClickException, become, ("no-such-command-anywhere",), {"PATH": "/nowhere"})
        self.assertEqual([signal.getsignal(number) for number in signals], before)
