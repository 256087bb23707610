"""Tests of ``svc.cli.reactor``."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

#: A command that reads a file, as another user where root runs the tests.
PROGRAM = """
import os, pwd, sys
import click
from twisted.internet import reactor
from svc.cli.reactor import run_reactor

async def work(_):
    open(sys.argv[1]).close()

if os.geteuid() == 0:
    os.seteuid(pwd.getpwnam("nobody").pw_uid)

click.command()(lambda: run_reactor(work))(args=[])
"""


class RunReactorTests(SynchronousTestCase):
    """A command on Twisted's reactor."""

    def test_permission_denied(self) -> None:
        """A command that may not read a file, or not even find it, ends with 1 and one sentence that names the nearest owner
        (CLI-51).
        """
        folder = Path(tempfile.mkdtemp(dir=os.path.realpath(tempfile.gettempdir())))
        folder.chmod(0o755)
        (folder / "closed").mkdir()
        (folder / "file").write_text("")
        for hidden, file, place in (
            (folder / "file", folder / "file", folder / "file"),
            (folder / "closed", folder / "closed" / "a" / "b", folder / "closed"),
        ):
            hidden.chmod(0)
            command = [sys.executable, "-c", PROGRAM, str(file)]
            ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
            self.addCleanup(hidden.chmod, 0o700)
            owner = place.owner()
            self.assertEqual(
                (ended.returncode, ended.stdout, ended.stderr),
                (
                    1,
                    "",
                    f"Error: {file}: Permission denied; {place} belongs to the user {owner}: run this as that user\n",
                ),
            )
