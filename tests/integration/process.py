"""The server as a process of its own, started as a user starts it: ``twistd -n svc …``, or without ``-n`` as a daemon.

It listens on a free port, keeps its data in a directory of the test's, and is stopped when the test ends::

    class WhoamiTests(ServerTestCase):
        async def test_whoami(self) -> None:
            \"\"\"…\"\"\"
            server = self.serve("--account", "acme")
            url = await server.ready()          # "http://127.0.0.1:43210"
            key = server.admin_key()
            ...
            self.assertEqual(await server.stop(), 0)

``serve`` without a ``--database-url`` uses the embedded PostgreSQL, which costs a second or two. With
``database_url=await self.create_database(migrated=False)`` of ``postgres.PostgresTestCase`` it is faster; a data key
is given then, too.
"""

from __future__ import annotations

import base64
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.error import ProcessDone, ProcessTerminated
from twisted.internet.interfaces import IProcessTransport, IReactorProcess, IReactorTime
from twisted.internet.process import Process
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.task import deferLater
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

import svc
from tests.integration.forkserver import REAL, process_class

#: A data key for tests.
DATA_KEY: Final = base64.b64encode(b"a data key that only tests use.!").decode("ascii")

#: How long a server may take to stop when a test has ended, before it is killed, in seconds.
PATIENCE: Final = 40.0

_READY: Final = re.compile(rb"(?m)^svc ready: (\S+(?: \S+)*)\n")
_ADMIN_KEY: Final = re.compile(rb"(?m)^API key for admin: (\S+)\n")


class ServerProcess(ProcessProtocol):
    """One run of ``twistd``. ``stdout`` and ``stderr`` are what it has said so far, ``directory`` is where it runs."""

    def __init__(self, directory: Path, data_dir: Path) -> None:
        self.directory = directory
        self.data_dir = data_dir
        self.stdout = b""
        self.stderr = b""
        self.exit_code: int | None = None
        self._waiting: list[Deferred[None]] = []

    def outReceived(self, data: bytes) -> None:
        """Keep what it says."""
        self.stdout += data
        self._changed()

    def errReceived(self, data: bytes) -> None:
        """Keep what it says on standard error."""
        self.stderr += data
        self._changed()

    def processEnded(self, reason: Failure) -> None:
        """Keep how it ended; death by a signal is a negative exit code."""
        ended = reason.value
        assert isinstance(ended, ProcessTerminated | ProcessDone)
        self.exit_code = -ended.signal if ended.signal else ended.exitCode
        self._changed()

    @property
    def pid(self) -> int:
        """The process id."""
        transport = self.transport
        assert IProcessTransport.providedBy(transport) and isinstance(transport.pid, int)
        return transport.pid

    @property
    def said(self) -> str:
        """Everything it said, for the message of a failed assertion."""
        return f"exit code {self.exit_code}\nstdout:\n{self.stdout.decode()}\nstderr:\n{self.stderr.decode()}"

    def workers(self) -> set[int]:
        """The processes of this server that serve, where it has several, and the one that stands by (Linux)."""
        found = set()
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                parent = int(path.read_text().rpartition(")")[2].split()[1])
                command = (path.parent / "cmdline").read_bytes()
            except OSError:  # it has ended
                continue
            if parent == self.pid and b"svc.server.process" in command:
                found.add(int(path.parent.name))
        return found

    async def urls(self) -> list[str]:
        """Wait for the ready line, and return the addresses that it gives."""
        while (line := _READY.search(self.stdout)) is None:
            assert self.exit_code is None, f"it ended before it was ready: {self.said}"
            await self._change()
        return line[1].decode("ascii").split(" ")

    async def ready(self) -> str:
        """Wait for the ready line, and return its first address."""
        return (await self.urls())[0]

    async def ended(self) -> int:
        """Wait for its end, and return its exit code; death by a signal is a negative one."""
        while self.exit_code is None:
            await self._change()
        return self.exit_code

    async def stop(self) -> int:
        """Ask it to stop, and return its exit code."""
        self.signal(signal.SIGTERM)
        return await self.ended()

    async def kill(self) -> int:
        """Kill it: ``kill -9``. An embedded PostgreSQL stays behind."""
        self.signal(signal.SIGKILL)
        return await self.ended()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    async def says(self, text: str, after: int = 0) -> None:
        """Wait until it has said this on standard output, where its log goes, after so many bytes."""
        while self.stdout.find(text.encode(), after) < 0:
            assert self.exit_code is None, f"it ended without saying {text!r}: {self.said}"
            await self._change()

    async def records(self, request_id: str, reason: str) -> None:
        """Wait until the audit on standard output has a request that failed for this reason.

        The log counts refusals that repeat, and has them a minute later.
        """
        wanted = re.compile(rf'(?m)^<\d+>1 \S+ \S+ svc {re.escape(request_id)} .* reason="{re.escape(reason)}"'.encode())
        while wanted.search(self.stdout) is None:
            assert self.exit_code is None, f"it ended without recording {reason} of {request_id}: {self.said}"
            await self._change()

    def admin_key(self) -> str:
        """The API key of the account that was created, from its standard output."""
        line = _ADMIN_KEY.search(self.stdout)
        assert line is not None, f"it printed no admin key: {self.said}"
        return line[1].decode("ascii")

    async def dispose(self) -> None:
        """See to its end: first politely, because its PostgreSQL would survive a kill."""
        if self.exit_code is None:
            self.signal(signal.SIGTERM)
            try:
                await Deferred.fromCoroutine(self.ended()).addTimeout(PATIENCE, IReactorTime(installed_reactor))
            except DeferredTimeout:
                await self.kill()

    def _change(self) -> Deferred[None]:
        change: Deferred[None] = Deferred()
        self._waiting.append(change)
        return change

    def _changed(self) -> None:
        waiting, self._waiting = self._waiting, []
        for change in waiting:
            change.callback(None)


class ServerTestCase(TestCase):
    """A test that starts servers."""

    timeout = 240

    def serve(
        self,
        *options: str,
        database_url: str | None = None,
        data_key: str | None = DATA_KEY,
        data_dir: Path | None = None,
        environ: Mapping[str, str] | None = None,
        listen: str = "tcp:0:interface=127.0.0.1",
        daemon: bool = False,
        terminal: bool = False,
        wrapped: tuple[str, ...] = (),
        descriptors: Mapping[int, int | str] | None = None,
    ) -> ServerProcess:
        """Start a server with these options; it ends with the test, at the latest.

        ``wrapped``: the command that starts it, before its own; ``descriptors`` are those of ``spawnProcess``.
        """
        directory = Path(self.mktemp()).resolve()
        directory.mkdir(parents=True)
        server = ServerProcess(directory, data_dir or directory / "data")
        surroundings = {
            # Where it is installed, or in the source tree, whichever the tests run on.
            "PYTHONPATH": str(Path(svc.__file__).resolve().parent.parent),
            "PATH": os.defpath,
            "HOME": str(directory),
            "LANG": "C.UTF-8",
        }
        arguments = ["--data-dir", str(server.data_dir), "--listen", listen]
        if database_url is not None:
            arguments += ["--database-url", database_url]
            surroundings |= {"SERVICE_DATA_KEY": data_key} if data_key is not None else {}
        twistd = Path(sys.executable).with_name("twistd")
        command = [*wrapped, str(twistd), *([] if daemon else ["-n"]), "svc", *arguments, *options]
        surroundings |= environ or {}
        if terminal:
            IReactorProcess(installed_reactor).spawnProcess(
                server, command[0], command, env=surroundings, path=str(directory), usePTY=True, childFDs=descriptors
            )
        else:
            spawn(self, server, command, surroundings, directory, descriptors)
        self.addCleanup(server.dispose)
        return server

    async def refused(self, server: ServerProcess) -> str:
        """Wait for a start to fail, and return what it said on standard error; it must have been no crash."""
        self.assertEqual(await server.ended(), 1, server.said)
        self.assertNotIn(b"svc ready", server.stdout)
        said = server.stderr.decode()
        self.assertNotIn("Traceback", said)
        return said


def spawn(
    case: TestCase,
    protocol: ProcessProtocol,
    command: Sequence[str],
    environ: Mapping[str, str],
    directory: Path,
    descriptors: Mapping[int, int | str] | None = None,
) -> None:
    """Start a program for a test; it is forked from one that has read its modules, unless the test is about that."""
    kind = Process if type(case).__module__.rpartition("test_")[2] in REAL else process_class()
    kind(installed_reactor, command[0], command, environ, str(directory), protocol, childFDs=descriptors)


def beat() -> Deferred[None]:
    """Let a moment pass, between two looks at something that changes by itself."""
    return deferLater(IReactorTime(installed_reactor), 0.05)
