"""Tests of ``svc.cli.reactor``."""

from __future__ import annotations

import os
import signal
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


#: A command that gets a signal, or two, while it waits, and cleans up in its own time.
INTERRUPTED = """
import os, signal, sys
import click
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from svc.cli.reactor import run_reactor

# A shell has what it begins in the background ignore SIGINT, and so what that begins.
signal.signal(signal.SIGINT, signal.default_int_handler)

def send(number):
    os.kill(os.getpid(), number)

async def work(_):
    numbers = list(map(int, sys.argv[1:]))
    reactor.callLater(0.01, send, numbers[0])
    try:
        await Deferred()
    finally:
        if numbers[1:]:
            reactor.callLater(0.01, send, numbers[1])
            await Deferred()
        await deferLater(reactor, 0.05)
        print("cleaned up")

click.command()(lambda: run_reactor(work))(args=[])
"""


#: A command that gets both signals at once, as that of a terminal and that of a program that has begun it.
INTERRUPTED_TWICE = """
import os, signal
import click
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from svc.cli.reactor import run_reactor, until_stopped

signal.signal(signal.SIGINT, signal.default_int_handler)

def send():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT, signal.SIGTERM])

async def work(_):
    reactor.callLater(0.01, send)
    await until_stopped()

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

    def test_signals(self) -> None:
        """A signal ends a command when that has cleaned up, without a word, and a second one at once (CLI-52)."""
        for numbers, ended in (
            ((signal.SIGINT,), (128 + signal.SIGINT, "cleaned up\n", "")),
            ((signal.SIGTERM,), (128 + signal.SIGTERM, "cleaned up\n", "")),
            ((signal.SIGINT, signal.SIGTERM), (128 + signal.SIGTERM, "", "")),
        ):
            command = [sys.executable, "-c", INTERRUPTED, *(str(int(number)) for number in numbers)]
            found = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
            self.assertEqual((found.returncode, found.stdout, found.stderr), ended)

    def test_signals_at_once(self) -> None:
        """A second signal right behind the first ends a command at once, too (CLI-52)."""
        command = [sys.executable, "-c", INTERRUPTED_TWICE]
        found = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
        self.assertEqual((found.returncode, found.stdout, found.stderr), (128 + signal.SIGTERM, "", ""))
