"""Tests of ``svc.cli.run``."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import click
from click.testing import CliRunner
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.main import main
from svc.cli.options import VARIABLES
from svc.cli.run import command_environment, exec_command, run

SERVER = ("--url", "http://127.0.0.1:1", "--account-name", "acme")


def _commands(group: click.Group, context: click.Context) -> Iterator[click.Command]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield command
        if isinstance(command, click.Group):
            yield from _commands(command, context)


class RunTests(SynchronousTestCase):
    """The command line of ``svc run``; what it starts is tried in ``tests/integration``."""

    def test_a_mapping_and_a_command_are_needed(self) -> None:
        """Without a mapping file, or without a command, it is a usage error."""
        for arguments in ((*SERVER, "--", "true"), (*SERVER, "-f", "secrets.yml")):
            self.assertEqual(CliRunner().invoke(run, arguments).exit_code, 2, arguments)

    def test_help(self) -> None:
        """Its help shows a mapping file, and each way to log in (CLI-22)."""
        shown = CliRunner().invoke(run, ["--help"]).output
        for part in (
            "DB_PASSWORD: ci/database/password",
            "--jwt-file /run/token --service-id ci",
            "--cloud --service-id prod",
        ):
            self.assertIn(part, shown)
        self.assertIn("    svc run -f secrets.yml -- ./serve --port 80\n", shown, "examples keep their lines")

    def test_secrets_stay_behind(self) -> None:
        """The command gets none of this program's own secrets, unless the mapping names one; the rest it gets as it is
        (CLI-21).
        """
        given = dict.fromkeys(VARIABLES, "own") | {"PATH": "/bin", "SVC_URL": "http://a"}
        self.assertEqual(command_environment(given, {}), {"PATH": "/bin", "SVC_URL": "http://a"})
        self.assertEqual(command_environment(given, {"SVC_API_KEY": b"another", "PATH": b"\xff"})["SVC_API_KEY"], "another")

    def test_every_secret_is_known(self) -> None:
        """Whatever hidden option of a command has a variable, that is among those which stay behind.

        The credentials of another server, which an import reads, may be those of the program that is started.
        """
        hidden = {
            variable
            for command in _commands(main, click.Context(main))
            for option in command.params
            if isinstance(option, click.Option) and option.hidden and isinstance(variable := option.envvar, str)
        }
        self.assertGreaterEqual(hidden, {"SVC_API_KEY", "SVC_HOST_FACTORY_TOKEN"})
        self.assertLessEqual({variable for variable in hidden if not variable.startswith("CONJUR_")}, VARIABLES)
        self.assertFalse([variable for variable in VARIABLES if variable.startswith("CONJUR_")])

    def test_what_cannot_be_started(self) -> None:
        """A command that isn't there is exit code 127, one that can't be started 126, as in shells; both are named
        (CLI-20).
        """
        path = Path(self.mktemp())
        path.write_text("no program")
        for command, code in (("no-such-command-anywhere", 127), (str(path), 126)):
            fault = self.assertRaises(click.ClickException, exec_command, (command,), {"PATH": "/nowhere"})
            self.assertEqual(fault.exit_code, code)
            self.assertIn(f"cannot start {command}", fault.message)

    def test_signals_without_a_start(self) -> None:
        """A command that can't be started leaves this process's signals as they were."""
        signals = (signal.SIGPIPE, signal.SIGXFSZ)
        before = [signal.getsignal(number) for number in signals]
        self.assertNotIn(signal.SIG_DFL, before)
        self.assertRaises(click.ClickException, exec_command, ("no-such-command-anywhere",), {"PATH": "/nowhere"})
        self.assertEqual([signal.getsignal(number) for number in signals], before)
