"""Tests of ``svc.cli.completion``, asked as the shells ask."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete
from click.testing import CliRunner
from twisted.trial.unittest import SynchronousTestCase

import svc
from svc.cli.main import main

#: What the server consists of, and what makes commands slow: completion of commands imports none of it.
SLOW = ("twisted", "svc.server", "svc.web", "svc.storage", "psycopg2", "cryptography")


class CompletionTests(SynchronousTestCase):
    """What is completed."""

    def complete(self, kind: type[ShellComplete], words: str, last: str = "") -> str:
        """What the script of a shell is told after these words, and the beginning of another."""
        environment = {"COMP_WORDS": f"{words} {last}", "COMP_CWORD": str(len(words.split()))}
        if kind is FishComplete:
            environment["COMP_CWORD"] = last
        self.patch(os, "environ", {**os.environ, **environment})
        return kind(main, {}, "svc", "_SVC_COMPLETE").complete()

    def test_commands(self) -> None:
        """Commands are completed with what help says of them, and so are commands of these, and options (CLI-42)."""
        for kind, told in (
            (BashComplete, "plain,whoami"),
            (ZshComplete, "plain\nwhoami\nSay who the server takes you for."),
            (FishComplete, "plain,whoami\tSay who the server takes you for."),
        ):
            self.assertIn(told, self.complete(kind, "svc", "whoa"))
        self.assertEqual(self.complete(BashComplete, "svc variable", "ge"), "plain,get")
        self.assertEqual(self.complete(BashComplete, "svc run", "--jwt"), "plain,--jwt-file")
        self.assertEqual(self.complete(BashComplete, "svc completion", "f"), "plain,fish")
        self.assertIn("plain,--version", self.complete(BashComplete, "svc", "--"))

    def test_scripts(self) -> None:
        """Each shell's script calls svc in the way that it understands, and no other shell has one (CLI-42)."""
        for shell in ("bash", "zsh", "fish"):
            done = CliRunner().invoke(main, ["completion", shell])
            self.assertEqual(done.exit_code, 0, done.output)
            self.assertIn(f"_SVC_COMPLETE={shell}_complete", done.output)
        self.assertEqual(CliRunner().invoke(main, ["completion", "csh"]).exit_code, 2)

    def test_bash(self) -> None:
        """Bash completes with the script, and commands of svc are completed without what makes a server (CLI-42)."""
        folder = Path(self.mktemp()).resolve()
        folder.mkdir()
        probe = folder / "svc"
        probe.write_text(
            f"#!{sys.executable}\n"
            "import sys\n"
            "from svc.cli.main import main\n"
            "try:\n    main(prog_name='svc')\n"
            f"finally:\n    assert not {set(SLOW)!r} & sys.modules.keys()\n"
        )
        probe.chmod(0o755)
        script = CliRunner().invoke(main, ["completion", "bash"]).output
        script += 'COMP_WORDS=(svc wh); COMP_CWORD=1; _svc_completion svc; printf "%s\\n" "${COMPREPLY[@]}"\n'
        source = str(Path(svc.__file__).parent.parent)
        done = subprocess.run(
            ["bash", "-c", script],
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": f"{folder}:{os.defpath}", "PYTHONPATH": source, "LANG": "C.UTF-8"},
        )
        self.assertEqual((done.stdout, done.stderr), ("who-can\nwhoami\n", ""))
