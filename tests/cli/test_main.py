"""Tests of ``svc.cli.main``."""

from __future__ import annotations

import base64
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from click.testing import CliRunner
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.main import COMMANDS, GROUPS, main

ROOT = Path(__file__).resolve().parents[2]


def commands(context: click.Context) -> Iterator[tuple[click.Context, click.Command]]:
    """A command and all that are beneath it, each with the context of its own."""
    command = context.command
    yield context, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            sub = command.get_command(context, name)
            assert sub is not None
            yield from commands(click.Context(sub, info_name=name, parent=context))


class HelpTests(SynchronousTestCase):
    """What the command says of itself."""

    def test_every_command_has_help(self) -> None:
        """Each command and each of its own commands explains itself."""
        listed = CliRunner().invoke(main, ["--help"])
        self.assertEqual(listed.exit_code, 0)
        with main.make_context("svc", ["--help"], resilient_parsing=True) as context:
            for name in main.list_commands(context):
                self.assertIn(f"  {name}", listed.output)
                command = main.get_command(context, name)
                assert command is not None
                self.assertTrue(command.help, name)
                for sub in getattr(command, "commands", {}).values():
                    self.assertTrue(sub.help, f"{name} {sub.name}")
                    self.assertEqual(CliRunner().invoke(main, [name, sub.name, "--help"]).exit_code, 0)

    def test_marks_of_layout(self) -> None:
        """No help shows the mark by which examples keep their lines: it is a backspace, not two characters."""
        for context, command in commands(click.Context(main, info_name="svc")):
            self.assertNotIn("\\b", command.get_help(context), context.command_path)

    def test_headings(self) -> None:
        """Each command is under one heading, which is a line that begins with a capital and ends in a colon; the reference
        has the same sections (CLI-58).
        """
        self.assertEqual(sorted(name for names in GROUPS.values() for name in names), sorted(COMMANDS))
        lines = CliRunner().invoke(main, ["--help"]).output.splitlines()
        headings = [line.removesuffix(":") for line in lines if re.fullmatch(r"[A-Z][a-z ]*:", line)]
        self.assertEqual(headings, ["Options", *GROUPS])
        reference = (ROOT / "docs/reference/commands.md").read_text(encoding="utf-8")
        sections = dict(part.split("\n", 1) for part in reference.split("\n## ")[1:])
        self.assertEqual(list(sections)[: len(GROUPS)], list(GROUPS))
        for heading, names in GROUPS.items():
            place = lines.index(f"{heading}:") + 1
            rows = [line.split()[0] for line in lines[place:] if re.match(r"  \S", line)][: len(names)]
            self.assertEqual(rows, list(names))
            for name in names:
                self.assertRegex(sections[heading], rf"`(svc )?{name}[` ]", f"docs/reference/commands.md, {heading}")

    def test_suggestions(self) -> None:
        """A mistyped command or option is a usage error that suggests those that are like it, at each level (CLI-59)."""
        for line, suggested in (
            ("polcy load root x", "svc policy"),
            ("whoma", "svc whoami"),
            ("variable gte", "get"),
            ("hostfactory tokens crate", "create"),
            ("authenticator explian", "explain"),
            ("--hlep", "--help"),
            ("variable get x --versoin 1", "--version"),
            ("whoami --accont-name a", "--account-name"),
        ):
            outcome = CliRunner().invoke(main, line.split())
            self.assertEqual(outcome.exit_code, 2, line)
            self.assertRegex(outcome.output, f"Did you mean.*'{suggested}'", line)

    def test_jwt_options(self) -> None:
        """The file of a JWT is ``--jwt-file`` with each command that takes one; ``--jwt`` is understood and not shown
        (CLI-62).
        """
        found = set()
        for context, command in commands(click.Context(main, info_name="svc")):
            for option in command.params:
                if option.name == "jwt_file":
                    found.add(context.command_path)
                    self.assertEqual(option.opts, ["--jwt-file"])
                    self.assertEqual(getattr(option, "former", ""), "--jwt")
                    self.assertNotRegex(command.get_help(context), r"--jwt\b(?!-)")
        self.assertEqual(found, {"svc authenticate jwt", "svc authenticator explain", "svc run"})

    def test_unknown_commands(self) -> None:
        """An unknown command is a usage error (CLI-1)."""
        outcome = CliRunner().invoke(main, ["explode"])
        self.assertEqual(outcome.exit_code, 2)
        self.assertIn("No such command", outcome.output)
        self.assertNotIn("Did you mean", outcome.output)

    def test_api_keys_stay_off_the_command_line(self) -> None:
        """An API key among the arguments, which every user of the machine sees, is a usage error; it tells the other way
        (CLI-4).
        """
        outcome = CliRunner().invoke(
            main, ["whoami", "--url", "http://127.0.0.1:1", "--account-name", "a", "--api-key", "x"]
        )
        self.assertEqual(outcome.exit_code, 2)
        self.assertIn("SVC_API_KEY", outcome.output)

    def test_missing_arguments(self) -> None:
        """A command that lacks an argument is a usage error."""
        self.assertEqual(CliRunner().invoke(main, ["variable", "get"]).exit_code, 2)

    def test_data_keys(self) -> None:
        """A data key is the base64 of 32 bytes, and each is another (CLI-24)."""
        first, second = (CliRunner().invoke(main, ["data-key", "generate"]).output for _ in range(2))
        self.assertNotEqual(first, second)
        self.assertEqual(len(base64.b64decode(first, validate=False)), 32)

    def test_a_client_does_not_load_the_server(self) -> None:
        """A command that speaks HTTP doesn't import what only the server needs."""
        program = (
            "import sys\n"
            "from svc.cli.main import COMMANDS, GROUPS, main\n"
            "main.get_command(None, 'whoami')\n"
            "print(sorted(m for m in ('svc.tap', 'psycopg2', 'klein', 'yaml') if m in sys.modules))\n"
        )
        seen = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        self.assertEqual(seen.stdout, "[]\n")
