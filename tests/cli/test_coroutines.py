"""Tests of ``svc.cli.coroutines``."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

PROGRAM = """
import click
from svc.cli.coroutines import run_asyncio

async def work(network):
    for _ in range(100):
        click.echo("a line")

@click.command()
def command():
    run_asyncio(work)

command()
"""


#: In the background of a shell, where tests may run, SIGINT is ignored, and commands leave it so.
PROMPT = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
import click
from svc.cli.connection import prompt_line
from svc.cli.coroutines import run_asyncio

async def work(network):
    prompt_line("Name")

@click.command()
def command():
    run_asyncio(work)

command()
"""


class ReactTests(SynchronousTestCase):
    """Commands in processes of their own."""

    def test_nobody_reads(self) -> None:
        """When nobody reads its output any more a command ends with 1, and shows no traceback (CLI-1)."""
        read, write = os.pipe()
        os.close(read)
        try:
            ended = subprocess.run([sys.executable, "-c", PROGRAM], stdout=write, stderr=subprocess.PIPE, check=False)
        finally:
            os.close(write)
        self.assertEqual((ended.returncode, ended.stderr), (1, b""))

    def test_prompts(self) -> None:
        """Ctrl-C ends a command that waits for a person, as it ends one that waits for a server (CLI-1)."""
        control, terminal = pty.openpty()
        # Where Python has no readline, prompts go to the standard error.
        program = [sys.executable, "-c", PROMPT]
        command = subprocess.Popen(program, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True)
        try:
            self.assertIn(b"Name", self.shown(control))
            # One that comes just before Python waits for input is only heard with the next, which must not meet its end.
            while command.poll() is None:
                command.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    command.wait(5)
            said = self.shown(control, 0)
        finally:
            command.kill()
            os.close(control)
            os.close(terminal)
        self.assertEqual((command.returncode, said.strip()), (128 + signal.SIGINT, b""))

    @staticmethod
    def shown(control: int, seconds: float = 20) -> bytes:
        """What a terminal shows, as soon as it shows something; nothing, if that takes longer."""
        readable, _, _ = select.select([control], [], [], seconds)
        return os.read(control, 1000) if readable else b""
