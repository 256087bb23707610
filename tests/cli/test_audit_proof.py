"""Tests of ``svc.cli.audit_proof``, without a database."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path

from click.testing import CliRunner, Result
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.main import main
from tests.audit.chained import KEY, Writer


class ProofTests(SynchronousTestCase):
    """A server's file, and the key."""

    def setUp(self) -> None:
        """Write both."""
        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        self.path, self.key = self.folder / "audit", self.folder / "key"
        self.lines = Writer().lines(5)
        self.path.write_bytes(b"".join(self.lines))
        self.key.write_bytes(b64encode(KEY) + b"\n")

    def run_command(self, name: str, *options: str) -> Result:
        """Run a command."""
        return CliRunner().invoke(main, ["audit", name, *options])

    def verify(self, *options: str) -> Result:
        """Verify the file."""
        return self.run_command("verify", "--key-file", str(self.key), str(self.path), *options)

    def test_well(self) -> None:
        """Whole files end with 0, and what was verified is said, with what can't be without an anchor (AUD-37)."""
        result = self.verify()
        self.assertEqual((result.exit_code, result.output.splitlines()[-1]), (0, "All is well."), result.output)
        self.assertIn("5 records, 1 to 5", result.output)
        self.assertIn("without an anchor", result.output)

    def test_wrong(self) -> None:
        """Anything wrong ends with 1, and is told by its file and line, or as JSON (AUD-37)."""
        self.path.write_bytes(b"".join(self.lines).replace(b":v3", b":v4"))
        result = self.verify()
        self.assertEqual(result.exit_code, 1)
        self.assertIn(f"WRONG: {self.path}:4: record 4 does not fit its digest", result.output)
        shown = self.verify("--json")
        document = json.loads(shown.output)
        self.assertEqual((shown.exit_code, document["whole"], document["count"]), (1, False, 1))

    def test_anchor(self) -> None:
        """An anchor is printed, kept, and finds a cut end; so does the record itself (AUD-39)."""
        anchor = self.folder / "anchor"
        anchor.write_text(self.run_command("anchor", str(self.path)).output)
        self.assertIn("anchored up to record 5", self.verify("--anchor", str(anchor)).output)
        [told] = json.loads(self.run_command("anchor", "--json", str(self.path)).output)
        self.assertEqual(f"{told['chain']} {told['number']} {told['digest']}\n", anchor.read_text())
        self.path.write_bytes(b"".join(self.lines[:4]))
        result = self.verify("--anchor", str(anchor))
        self.assertEqual((result.exit_code, "the end is missing" in result.output), (1, True))
        anchor.write_bytes(self.lines[4])
        self.assertEqual(self.verify("--anchor", str(anchor)).exit_code, 1)
        self.assertEqual(self.verify().exit_code, 0)

    def test_refused(self) -> None:
        """Files that are not what they are given for are named, with what to do (AUD-42)."""
        text = self.folder / "text"
        text.write_text("text\n")
        for arguments, said in (
            (("verify", "--key-file", str(text), str(self.path)), "export-key"),
            (("verify", "--key-file", "absent", str(self.path)), "absent can't be read"),
            (("verify", "--key-file", str(self.key), "absent"), "absent can't be read"),
            (("verify", "--key-file", str(self.key), str(self.path), "--anchor", str(text)), "no anchor in it"),
            (("anchor", str(text)), "no record with a digest"),
            (("anchor", "absent"), "absent can't be read"),
        ):
            result = self.run_command(*arguments)
            self.assertEqual((result.exit_code, said in result.output), (1, True), result.output)

    def test_help(self) -> None:
        """The group's help names all commands; each has an example."""
        shown = CliRunner().invoke(main, ["audit", "--help"]).output
        for name in ("search", "tail", "verify", "anchor", "export-key"):
            self.assertIn(f"  {name} ", shown)
            self.assertIn("Example", self.run_command(name, "--help").output)
