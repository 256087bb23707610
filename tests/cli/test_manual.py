"""Tests of ``svc.cli.manual``."""

from __future__ import annotations

import subprocess
from pathlib import Path

import click
from click.testing import CliRunner
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.main import GROUPS, main
from svc.cli.manual import manual_page
from tests.programs import require_programs


def page(help_text: str) -> str:
    """The page of a command with this help text."""
    return manual_page(click.Context(click.Command("x", help=help_text), info_name="x"))


class ManualTests(SynchronousTestCase):
    """Pages of commands."""

    def write(self) -> Path:
        """Write all pages, and return their folder."""
        folder = Path(self.mktemp())
        done = CliRunner().invoke(main, ["man", str(folder)])
        self.assertEqual(done.exit_code, 0, done.output)
        return folder / "man1"

    def test_pages(self) -> None:
        """Each command has a page, those within commands too, with what its help says (CLI-43)."""
        pages = {path.name: path.read_text("utf-8") for path in self.write().iterdir()}
        for name in ("svc.1", "svc-run.1", "svc-policy.1", "svc-policy-load.1", "svc-hostfactory-tokens-create.1"):
            self.assertIn(name, pages)
        self.assertIn("\\fB\\-f, \\-\\-mapping FILE\\fR\n", pages["svc-run.1"])
        self.assertIn(".nf\n    DB_PASSWORD: ci/database/password\n", pages["svc-run.1"])
        self.assertIn("\\fBsvc\\-policy\\-load\\fR(1)\n", pages["svc-policy.1"])
        self.assertIn(".SH SEE ALSO\n\\fBsvc\\-policy\\fR(1)\n", pages["svc-policy-load.1"])

    def test_headings(self) -> None:
        """The page of ``svc`` has the headings of its help, each before its commands (CLI-58)."""
        page = (self.write() / "svc.1").read_text("utf-8")
        places = [page.index(f".SS {heading}\n") for heading in GROUPS]
        self.assertEqual(places, sorted(places))
        self.assertLess(places[0], page.index("svc\\-variable\\fR(1)"))
        self.assertLess(page.index("svc\\-variable\\fR(1)"), places[1])

    def test_characters(self) -> None:
        """What would mean something to roff is text (CLI-43)."""
        text = page('One.\n\n.two \\- "x" `a-b`\n\n\b\n\'three\n  four')
        self.assertIn(".PP\n\\&.two \\e\\- \\(dqx\\(dq \\fBa\\-b\\fR\n.PP\n.nf\n\\&'three\n  four\n.fi\n", text)

    def test_lint(self) -> None:
        """They are sound pages, but for a date, which they don't have (CLI-43)."""
        require_programs("mandoc")
        pages = [str(path) for path in self.write().iterdir()]
        done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", *pages], capture_output=True, text=True, check=False)
        said = [line for line in done.stdout.splitlines() if 'missing date, using ""' not in line]
        self.assertEqual(said, [])
        self.assertEqual(len(done.stdout.splitlines()), len(pages), "it has read all")

    def test_no_folder(self) -> None:
        """Where pages can't be written is said."""
        file = Path(self.mktemp())
        file.write_text("")
        done = CliRunner().invoke(main, ["man", str(file / "man")])
        self.assertEqual(done.exit_code, 1)
        self.assertIn("cannot write to", done.output)
