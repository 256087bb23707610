"""Tests of processes of PostgreSQL that need none; real ones are in the integration tests."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessDone, ProcessExitedAlready, ProcessTerminated
from twisted.internet.interfaces import IProcessTransport
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from svc.storage.embedded.directory import DataDirectory
from svc.storage.embedded.postmaster import STOP_SERVER, ChildProcess, find_stragglers, is_accepting, postmaster_of


@implementer(IProcessTransport)
class Process(StringTransport):
    """A process that ends by one signal only, and notes which came when."""

    pid: int | None = 1
    gone = False

    def __init__(self, clock: Clock, mortal: int) -> None:
        super().__init__()
        self._clock = clock
        self._mortal = mortal
        self.child = ChildProcess(clock, 0)
        self.child.makeConnection(self)
        self.signals: list[tuple[float, int]] = []
        self.written: list[object] = []

    def signalProcess(self, signalID: str | int) -> None:  # noqa: N803 # Twisted's name
        """Note it, and end by the one."""
        assert isinstance(signalID, int)
        if self.gone:
            raise ProcessExitedAlready
        self.signals.append((self._clock.seconds(), signalID))
        if signalID == self._mortal:
            self.child.processEnded(Failure(ProcessTerminated(None, signalID, signalID)))

    def closeChildFD(self, descriptor: int) -> None:
        """Note it."""
        self.written.append(("closed", descriptor))

    def writeToChild(self, childFD: int, data: bytes) -> None:  # noqa: N803 # Twisted's name
        """Note it."""
        self.written.append((childFD, data))

    def closeStdin(self) -> None:
        """Not used."""

    def closeStdout(self) -> None:
        """Not used."""

    def closeStderr(self) -> None:
        """Not used."""


class ChildTests(SynchronousTestCase):
    """A child."""

    def setUp(self) -> None:
        """Have a clock."""
        self.clock = Clock()

    def stop(self, process: Process) -> Deferred[None]:
        """Stop it as a server is stopped."""
        return Deferred.fromCoroutine(process.child.stop(STOP_SERVER))

    def test_fake(self) -> None:
        """The fake process is like a real one."""
        verifyObject(IProcessTransport, Process(self.clock, signal.SIGINT))

    def test_in_order(self) -> None:
        """A server that stops in order gets one signal."""
        process = Process(self.clock, signal.SIGINT)
        self.successResultOf(self.stop(process))
        self.assertEqual(process.signals, [(0, signal.SIGINT)])
        self.assertEqual(process.child.outcome, f"signal {int(signal.SIGINT)}")
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_escalates(self) -> None:
        """A server that doesn't stop is told more and more firmly, and in the end not asked."""
        process = Process(self.clock, signal.SIGKILL)
        stopped = self.stop(process)
        self.clock.advance(9.9)
        self.assertEqual(process.signals, [(0, signal.SIGINT)])
        self.clock.pump([0.1, 5.0])
        self.assertEqual(process.signals, [(0, signal.SIGINT), (10.0, signal.SIGQUIT), (15.0, signal.SIGKILL)])
        self.successResultOf(stopped)

    def test_waits(self) -> None:
        """A stop ends when the process has ended, and not before, however long that takes."""
        process = Process(self.clock, -1)
        stopped = self.stop(process)
        self.clock.pump([10.0, 5.0, 5.0, 1000.0])
        self.assertNoResult(stopped)
        process.child.processEnded(Failure(ProcessDone(0)))
        self.successResultOf(stopped)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_ended(self) -> None:
        """A process that has ended gets no signal: its process id may be another's by now."""
        process = Process(self.clock, signal.SIGINT)
        process.child.processEnded(Failure(ProcessTerminated(3, None, 768)))
        self.successResultOf(self.stop(process))
        self.assertEqual(process.signals, [])
        self.assertEqual((process.child.exit_code, process.child.outcome), (3, "exit code 3"))

    def test_reaped(self) -> None:
        """A process that has been reaped, but has a pipe still to be closed, is waited for."""
        process = Process(self.clock, -1)
        process.gone = True
        stopped = self.stop(process)
        self.assertNoResult(stopped)
        process.child.processEnded(Failure(ProcessDone(0)))
        self.successResultOf(stopped)

    def test_within(self) -> None:
        """Waiting for the end may have a limit, may be cancelled, and be done by several."""
        child = Process(self.clock, signal.SIGINT).child
        limited, patient, cancelled = (Deferred.fromCoroutine(child.wait_for_end(within)) for within in (1.0, None, 5.0))
        cancelled.addErrback(lambda _: None)
        cancelled.cancel()
        self.clock.advance(1.0)
        self.assertFalse(self.successResultOf(limited))
        self.assertNoResult(patient)
        child.processEnded(Failure(ProcessDone(0)))
        self.assertTrue(self.successResultOf(patient))
        self.assertEqual((child.exit_code, self.clock.getDelayedCalls()), (0, []))

    def test_stdin(self) -> None:
        """What a program is to read is written to it, to the end; others get nothing."""
        for stdin, written in ((b"text", [(0, b"text"), ("closed", 0)]), (None, [])):
            process = Process(self.clock, signal.SIGINT)
            ChildProcess(self.clock, 0, stdin).makeConnection(process)
            self.assertEqual(process.written, written)


class PostmasterTests(SynchronousTestCase):
    """Whether a postmaster lives in a directory."""

    def setUp(self) -> None:
        """Make one, in which none does."""
        self.directory = DataDirectory(Path(tempfile.mkdtemp()))

    def test_none(self) -> None:
        """Without a lock file, and with one that nobody holds, there is none."""
        self.assertIsNone(postmaster_of(self.directory))
        self.directory.postmaster_lock.touch()
        self.assertIsNone(postmaster_of(self.directory))

    def test_not_accepting(self) -> None:
        """What a dead postmaster wrote says nothing, even if its process id is alive."""
        self.assertFalse(is_accepting(self.directory))
        self.directory.cluster.mkdir()
        (self.directory.cluster / "postmaster.pid").write_text(f"{os.getpid()}\n/\n1\n5432\n.\n\n1 1\nready   \n")
        self.assertFalse(is_accepting(self.directory))


class StragglerTests(SynchronousTestCase):
    """Who is left in a cluster when its postmaster was killed, as the system tells it."""

    def setUp(self) -> None:
        """Have a cluster, and a system without processes."""
        self.directory = DataDirectory(Path(tempfile.mkdtemp()))
        self.directory.cluster.mkdir()
        self.processes = Path(tempfile.mkdtemp())
        (self.processes / "meminfo").touch()

    def run_process(self, pid: int, parent: int, cwd: Path, command: str) -> None:
        """Have a process."""
        place = self.processes / str(pid)
        place.mkdir()
        (place / "cwd").symlink_to(cwd)
        (place / "cmdline").write_bytes(command.encode() + b"\0")
        (place / "stat").write_text(f"{pid} (a) b) S {parent} 1 1 0")

    def test_which(self) -> None:
        """Children of PostgreSQL's in the cluster whose parent isn't there: no others, and none of a live postmaster."""
        cluster, elsewhere = self.directory.cluster, Path(tempfile.mkdtemp())
        for pid, parent, cwd, command in (
            (10, 1, cluster, "postgres: svc: svc svc [local] SELECT"),
            (11, 1, cluster, "postgres: svc: checkpointer"),
            (12, 1, cluster, "bash"),
            (13, 1, elsewhere, "postgres: other"),
            (14, 1, cluster / "gone", "postgres: gone"),
            (20, 1, cluster, "/usr/bin/postgres -D /cluster"),
            (21, 20, cluster, "postgres: svc: svc svc [local] idle"),
        ):
            self.run_process(pid, parent, cwd, command)
        self.assertEqual(sorted(find_stragglers(self.directory, self.processes)), [10, 11])

    def test_unknown(self) -> None:
        """Where the system tells nothing of processes, none are known."""
        self.assertEqual(find_stragglers(self.directory, self.processes / "absent"), [])
