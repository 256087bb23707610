"""Programs that are forked, beside the same ones started as users start them."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Final

from twisted.internet import reactor
from twisted.internet.process import Process
from twisted.trial.unittest import SynchronousTestCase

from tests.integration.client import Api
from tests.integration.forkserver import client, is_forkable, process_class
from tests.integration.postgres import PostgresTestCase
from tests.integration.test_cli import Command, CommandTestCase, Outcome

#: Command lines of ``svc``, of which some succeed, some fail, and some are wrong.
LINES: Final = (("--version",), ("policy", "load", "--help"), ("nonsense",), ("whoami",), ("variable", "get"), ("openapi",))


def parent(pid: int) -> int:
    """The parent of a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


class ForkedTests(CommandTestCase, PostgresTestCase):
    """Forked programs."""

    async def really(self, *arguments: str) -> Outcome:
        """Run a command as users do."""
        command = Command(b"")
        environ = {"PYTHONPATH": client().python_path, "PATH": os.defpath, "HOME": str(self.home), "LANG": "C.UTF-8"}
        Process(reactor, sys.executable, [sys.executable, "-m", "svc", *arguments], environ, str(self.home), command)
        return await command.ended

    async def test_same(self) -> None:
        """A forked command writes and returns the same as one that users start."""
        for line in LINES:
            self.assertEqual(await self.start(*line).ended, await self.really(*line), line)

    async def test_server(self) -> None:
        """A forked server is the test's own child, shows its arguments, and has processes of its own that load policy."""
        server = self.serve("--account=acme", database_url=await self.create_database())
        api = Api.of(self, await server.ready())
        token = await api.authenticate("admin", server.admin_key())
        self.assertEqual(
            (await api.ask("POST", "/policies/acme/policy/root", b"#" * 9000 + b"\n- !user u\n", token)).status, 201
        )
        self.assertEqual(parent(server.pid), os.getpid())
        shown = Path(f"/proc/{server.pid}/cmdline").read_bytes().split(b"\0")
        self.assertIn(b"--account=acme", shown)
        self.assertTrue(shown[1].endswith(b"twistd"))
        children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
        workers = [pid for pid in children if b"svc.worker.main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        [environ] = [Path(f"/proc/{pid}/environ").read_bytes() for pid in workers]
        self.assertIn(b"HOME=/nonexistent\0", environ)  # the memory of the first of all servers that fork
        self.assertEqual(await server.stop(), 0)

    async def test_signals(self) -> None:
        """A forked server that is killed says so by its exit code, and so does one that is interrupted."""
        for number, code in ((signal.SIGKILL, -9), (signal.SIGINT, 0)):
            server = self.serve("--account=acme", database_url=await self.create_database())
            await server.ready()
            server.signal(number)
            self.assertEqual(await server.ended(), code, server.said)


class ForkableTests(SynchronousTestCase):
    """What is forked, and what isn't."""

    def test_commands(self) -> None:
        """Only the program is forked: its scripts, its module, and the processes that it starts itself."""
        own = "import sys; sys.path.insert(0, sys.argv[1]); from svc.worker.main import main; main()"
        twistd = str(Path(sys.executable).with_name("twistd"))
        for command in ([twistd, "-n"], [sys.executable, "-m", "svc"], [sys.executable, "-P", "-c", own, "/"]):
            self.assertTrue(is_forkable(command), command)
        for command in (
            ["sh", twistd],
            [sys.executable, "-m", "pip"],
            [sys.executable, "-P", "-c", "pass"],
            [sys.executable],
        ):
            self.assertFalse(is_forkable(command), command)

    def test_environments(self) -> None:
        """What Python or a library reads before the program does isn't forked."""
        python_path = {"PYTHONPATH": client().python_path}
        self.assertTrue(client().serves({**python_path, "HOME": "/", "SERVICE_DATA_KEY": "x", "LANG": "C.UTF-8"}))
        for name in ("PYTHONWARNINGS", "LD_PRELOAD", "LC_ALL", "SSL_CERT_FILE", "LANG", "PYTHONPATH"):
            self.assertFalse(client().serves({**python_path, name: "x"}), name)

    def test_class(self) -> None:
        """A forked process is Twisted's in all else."""
        self.assertTrue(issubclass(process_class(), Process))
