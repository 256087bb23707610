"""Start, watch and stop processes of PostgreSQL, and find one that an earlier ``svc`` left running.

Note [Who is a postmaster]. When ``svc`` is killed, its PostgreSQL lives on, and the next ``svc`` has to stop it. The process
id that PostgreSQL writes down proves nothing: after a crash it may be any process's. So each process that works on the
cluster takes a POSIX lock on a file before it becomes PostgreSQL (``launch``). The kernel says which process holds it: that
is the postmaster, and where nobody holds it, a ``postmaster.pid`` is a dead one's and may be removed. PostgreSQL's own
interlock in shared memory, against a postmaster that an operator started by hand, stays in force.

Note [Stragglers]. When a postmaster is killed, a child that works on a long statement goes on, and PostgreSQL refuses to
start as long as one is left. On Linux they are found and killed: they stand in the cluster's directory, call themselves
PostgreSQL's, and none of their parents stands there. Elsewhere they are waited for, by starting again and again.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.error import ProcessExitedAlready, ProcessTerminated
from twisted.internet.interfaces import IProcessTransport, IReactorCore, IReactorProcess, IReactorThreads, IReactorTime
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from svc.model.errors import StartRefused
from svc.storage.embedded import launch
from svc.storage.embedded.directory import DataDirectory
from svc.storage.embedded.users import User

#: How to stop a server: in order, sessions ended; then at once, which costs a recovery; seconds to wait after each.
STOP_SERVER: Final = ((signal.SIGINT, 10.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0))
#: How to stop any other of PostgreSQL's programs, of which nothing is kept.
STOP_PROGRAM: Final = ((signal.SIGKILL, 5.0),)
#: PostgreSQL's environment, and nothing of the one of ``svc``, which holds the data key.
ENVIRONMENT: Final = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}
#: How often a process that isn't a child is checked, in seconds.
POLL_INTERVAL: Final = 0.05
#: Where Linux lists processes, and how the titles of a postmaster's children begin.
_PROCESSES: Final = Path("/proc")
_CHILD: Final = b"postgres: "

if sys.platform == "darwin":
    _FLOCK, _PID, _TYPE = struct.Struct("qqihh"), 2, 3
else:
    _FLOCK, _TYPE, _PID = struct.Struct("hhqqi0q"), 0, 4


class ISystemReactor(IReactorCore, IReactorProcess, IReactorThreads, IReactorTime):
    """A reactor that has processes, threads and a clock: any on Linux or macOS."""


@attrs.define(eq=False, slots=False)
class ChildProcess(ProcessProtocol):
    """A child process, with its outcome in words, and where in PostgreSQL's log its part begins."""

    clock: IReactorTime
    log_start: int
    _stdin: bytes | None = None
    outcome: str | None = None
    exit_code: int | None = None
    transport: IProcessTransport | None = None
    _waiting: list[Deferred[None]] = attrs.field(factory=list)

    def connectionMade(self) -> None:
        """Write the child's input."""
        if self.transport and self._stdin is not None:
            self.transport.writeToChild(0, self._stdin)
            self.transport.closeChildFD(0)

    def processEnded(self, reason: Failure) -> None:
        """Record how the child ended, and wake those who wait for it."""
        ended = reason.value
        self.exit_code, number = (ended.exitCode, ended.signal) if isinstance(ended, ProcessTerminated) else (0, None)
        self.outcome = f"exit code {self.exit_code}" if number is None else f"signal {number}"
        while self._waiting:
            self._waiting.pop().callback(None)

    async def wait_for_end(self, within: float | None = None) -> bool:
        """Wait for its end, for so many seconds at most; return whether it has ended."""
        if self.outcome is None:
            waiting: Deferred[None] = Deferred(self._waiting.remove)
            self._waiting.append(waiting)
            if within is not None:
                waiting.addTimeout(within, self.clock)
            try:
                await waiting
            except DeferredTimeout:
                return False
        return True

    async def stop(self, steps: Sequence[tuple[signal.Signals, float]]) -> None:
        """Send signals, each after the time of the one before is over, until the child has ended.

        SIGKILL goes to its session, since it can't end its own children any more.
        """
        for number, patience in steps:
            if self.outcome is None and self.transport:
                with contextlib.suppress(ProcessExitedAlready):  # gone, with a pipe still to be closed
                    if number == signal.SIGKILL:
                        self._kill_session(self.transport.pid)
                    self.transport.signalProcess(number)
                await self.wait_for_end(patience)
        await self.wait_for_end()

    @staticmethod
    def _kill_session(pid: object) -> None:
        with contextlib.suppress(OSError):  # it has yet to begin one, or has ended
            if isinstance(pid, int) and os.getsid(pid) == pid:
                os.killpg(pid, signal.SIGKILL)


@attrs.frozen
class Launcher:
    """Starts programs of PostgreSQL in one data directory, as one user."""

    reactor: ISystemReactor
    directory: DataDirectory
    user: User

    def launch(
        self,
        place: Path,
        program: Sequence[str],
        *,
        reach: Sequence[tuple[str, int]] = (),
        remove: Sequence[str] = (),
        write: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
    ) -> ChildProcess:
        """Start a program in the directory ``place``; the other parameters are those of ``launch.run_order``.

        :raises OSError: files or processes can't be had.
        """
        order = {"directory": str(place), "uid": self.user.uid, "gid": self.user.gid, "environment": ENVIRONMENT}
        order |= {"reach": reach, "remove": remove, "write": write or {}, "program": program}
        command = [sys.executable, "-I", "-S", launch.__file__, json.dumps(order)]
        with contextlib.ExitStack() as files:
            files.callback(os.close, null := os.open(os.devnull, os.O_RDONLY))
            files.callback(os.close, log := self.directory.open_log())
            lock = os.open(self.directory.postmaster_lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            files.callback(os.close, lock)
            child = ChildProcess(self.reactor, os.lseek(log, 0, os.SEEK_END), stdin)
            channels: dict[int, Any] = {0: null if stdin is None else "w", 1: log, 2: log, launch.LOCK: lock}
            self.reactor.spawnProcess(child, sys.executable, command, ENVIRONMENT, childFDs=channels)
        return child


def postmaster_of(directory: DataDirectory) -> int | None:
    """Return the process id of the postmaster of the cluster, according to the kernel (note [Who is a postmaster]).

    :raises StartRefused: there is one, out of sight, as in another container.
    """
    try:
        file = os.open(directory.postmaster_lock, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    question = [0] * 5
    question[_TYPE] = fcntl.F_WRLCK
    try:
        answer = _FLOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, _FLOCK.pack(*question)))
    finally:
        os.close(file)
    if answer[_TYPE] == fcntl.F_UNLCK:
        return None
    if answer[_PID] <= 0:
        raise StartRefused(f"a PostgreSQL out of sight from here, in another container perhaps, uses {directory.path}")
    return int(answer[_PID])


def is_accepting(directory: DataDirectory) -> bool:
    """Return whether a live postmaster reports that it accepts connections."""
    lines = (directory.read_in_cluster("postmaster.pid") or "").splitlines()
    return len(lines) > 7 and lines[7].strip() in {"ready", "standby"} and lines[0] == str(postmaster_of(directory))


async def stop_orphan(clock: IReactorTime, directory: DataDirectory) -> int | None:
    """Stop the PostgreSQL that a former ``svc`` left running, if there is one; return its process id.

    :raises StartRefused: it doesn't end, or is out of sight.
    :raises OSError: it may not be stopped.
    """
    orphan = pid = postmaster_of(directory)
    for number, patience in STOP_SERVER:
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            pid = await _postmaster_after(patience, clock, directory)
    if pid is not None:
        raise StartRefused(f"the PostgreSQL that an earlier svc left in {directory.path}, process {pid}, does not end")
    for straggler in find_stragglers(directory):
        with contextlib.suppress(ProcessLookupError):
            os.kill(straggler, signal.SIGKILL)
    return orphan


def find_stragglers(directory: DataDirectory, processes: Path = _PROCESSES) -> list[int]:
    """Return the processes that a dead postmaster left running in the cluster (Note [Stragglers])."""
    try:
        place = directory.cluster.stat()
        found = [int(entry.name) for entry in processes.iterdir() if entry.name.isdigit()]
    except OSError:
        return []
    parents = {pid: parent for pid in found if (parent := _straggler_parent(processes / str(pid), place)) is not None}
    return [pid for pid, parent in parents.items() if not _works_in(processes / str(parent), place)]


def _straggler_parent(process: Path, place: os.stat_result) -> int | None:
    """Return the parent of a process, if that is PostgreSQL's, no postmaster, and stands in a place."""
    try:
        if not (_works_in(process, place) and (process / "cmdline").read_bytes().startswith(_CHILD)):
            return None
        # The name may contain anything; after it come the state and the parent.
        return int((process / "stat").read_bytes().rpartition(b")")[2].split()[1])
    except OSError:
        return None


def _works_in(process: Path, place: os.stat_result) -> bool:
    try:
        return os.path.samestat((process / "cwd").stat(), place)
    except OSError:
        return False


async def _postmaster_after(patience: float, clock: IReactorTime, directory: DataDirectory) -> int | None:
    """Return the postmaster when the time is up, or ``None`` as soon as there is none."""
    deadline = clock.seconds() + patience
    while (pid := postmaster_of(directory)) is not None and clock.seconds() < deadline:
        await deferLater(clock, POLL_INTERVAL)
    return pid
