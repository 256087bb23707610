"""Tests of ``svc.cli.agent``."""

from __future__ import annotations

from click.testing import CliRunner

from svc.cli.main import main
from tests.agent.scene import HEAD, AgentCase


class AgentCommandLineTests(AgentCase):
    """The command line of the agent."""

    def invoke(self, text: str, *more: str) -> tuple[int, str, str]:
        """Run the command with a configuration; return its exit code, output and messages."""
        path = self.folder / "agent.toml"
        path.write_text(f"{HEAD}\n{text}".replace("DIR/", f"{self.folder}/"))
        path.chmod(0o644)
        done = CliRunner().invoke(main, ["agent", "--config", str(path), *more])
        return done.exit_code, done.stdout, done.stderr

    def test_check(self) -> None:
        """``--check`` lists what there is, warns, and finds what can't be used (AGT-1)."""
        text = "[[file]]\ndestination = 'DIR/out'\nvariable = 'a'\nmode = '644'\n[environment]\nA = 'b'\n"
        code, out, err = self.invoke(text, "--check")
        self.assertEqual((code, out), (0, f"{self.folder}/out\ta\n$A\tb\n"))
        self.assertIn("can read", err)
        self.assertIn("[environment] is for a COMMAND", err)
        code, out, err = self.invoke("x = 7", "--check")
        self.assertEqual((code, out), (2, ""))
        self.assertIn("x is no setting", err)

    def test_in_the_clear(self) -> None:
        """An address on another machine without TLS is worth a warning (CLI-8)."""
        path = self.folder / "agent.toml"
        for url, warned in (("http://svc.example.org", True), ("http://127.0.0.1:80", False)):
            path.write_text(HEAD.replace("https://svc.example.org", url) + "[[file]]\ndestination = '/x'\nvariable = 'a'\n")
            done = CliRunner().invoke(main, ["agent", "--config", str(path), "--check"])
            self.assertEqual("can be read on the way" in done.stderr, warned)

    def test_exclusive(self) -> None:
        """A round of its own and a program exclude each other (AGT-32)."""
        code, _, err = self.invoke("", "--once", "--", "true")
        self.assertEqual(code, 2)
        self.assertIn("exclude each other", err)
