"""The words of a process to the one that started it, and its end."""

from __future__ import annotations

import gc
import io
import os
import signal
from collections.abc import Callable, Sequence
from typing import Any

from twisted.application.service import MultiService
from twisted.internet.defer import Deferred
from twisted.internet.error import ReactorNotRunning
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from svc.model.errors import ConfigurationInvalid, Conflict, OutcomeUnknown, StartRefused, StoreUnavailable
from svc.server.lifecycle import ServerService, Started
from svc.server.notifying import SystemdNotifier
from svc.server.startup import STOP_SIGNALS, IProcessReactor, Launch, ProcessConsole, describe_refusal
from svc.settings.systemd import SystemdUnit


class Broken(io.StringIO):
    """A stream that nobody reads any more."""

    def write(self, text: str) -> int:
        """Fail."""
        raise BrokenPipeError


@implementer(IProcessReactor)
class FakeReactor(MemoryReactorClock):
    """A reactor that counts how often it was stopped, and like a real one refuses a second time."""

    def __init__(self) -> None:
        super().__init__()
        self.stops = 0

    def callFromThread(self, callable: Callable[..., Any], *args: object, **kwargs: object) -> None:  # noqa: A002
        """Call."""
        callable(*args, **kwargs)

    def run(self) -> None:
        """Run, and go on running."""
        self.running = True
        for function, args, kwargs in self.whenRunningHooks:
            function(*args, **kwargs)

    def stop(self) -> None:
        """Count."""
        if self.stops:
            raise ReactorNotRunning
        self.stops += 1


class ReasonTests(SynchronousTestCase):
    """Reasons of refusals."""

    def test_reasons(self) -> None:
        """A refusal is told in a sentence: the key with what is wrong with it, or the message, without names of classes."""
        for refusal, reason in (
            (ConfigurationInvalid("SERVICE_LISTEN", "must list at least one"), "SERVICE_LISTEN must list at least one"),
            (StartRefused("the data key does not fit"), "the data key does not fit"),
            (StoreUnavailable("connection lost"), "the database can't be used: connection lost"),
            (
                OutcomeUnknown("connection lost"),
                "the database did not confirm the change, which may have been made: connection lost",
            ),
            (Conflict("account", "acme", "exists"), "Conflict: account: acme: exists"),
        ):
            self.assertEqual(describe_refusal(refusal), reason)


class ConsoleTests(SynchronousTestCase):
    """The console, in the foreground and for a daemon."""

    def daemon(self) -> tuple[ProcessConsole, dict[str, Any], io.StringIO, io.StringIO, int]:
        """A console of a daemon that has been started, twistd's options, its streams, and the launcher's end of the pipe."""
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        twistd: dict[str, Any] = {"nodaemon": False, "statusPipe": writer}
        out, err = io.StringIO(), io.StringIO()
        console = ProcessConsole(out, err, twistd)
        console.attach_launcher()
        return console, twistd, out, err, reader

    def test_foreground(self) -> None:
        """Under ``twistd -n``, or no twistd at all, the process is no daemon."""
        self.assertFalse(ProcessConsole.of_process(None).is_daemon)
        self.assertFalse(ProcessConsole.of_process({"nodaemon": True}).is_daemon)

    def test_lines_are_bare(self) -> None:
        """Each message is one line, and nothing else."""
        out = io.StringIO()
        self.assertTrue(ProcessConsole(out, None).print_line("svc ready: http://127.0.0.1:1"))
        self.assertEqual(out.getvalue(), "svc ready: http://127.0.0.1:1\n")

    def test_refusal(self) -> None:
        """A refusal goes to standard error."""
        out, err = io.StringIO(), io.StringIO()
        ProcessConsole(out, err).report_refused("no port")
        self.assertEqual((out.getvalue(), err.getvalue()), ("", "svc did not start: no port\n"))

    def test_nobody_listens(self) -> None:
        """Where nobody can hear, that is told to the caller and does no harm."""
        closed = io.StringIO()
        closed.close()
        for stream in (None, Broken(), closed):
            console = ProcessConsole(stream, stream)
            self.assertFalse(console.print_line("API key for admin: k"))
            console.report_refused("no port")

    def test_daemon_keeps_the_streams_of_its_launcher(self) -> None:
        """A daemon's console has copies of the standard streams, which twistd will replace; children don't inherit them."""
        console = ProcessConsole.of_process({"nodaemon": False})
        self.assertTrue(console.is_daemon)
        copies = [stream.fileno() for stream in (console._out, console._err) if stream is not None]
        self.assertEqual([os.get_inheritable(copy) for copy in copies], [False, False])
        self.assertFalse({1, 2} & set(copies))
        console.report_started()

    def test_launcher_waits(self) -> None:
        """The pipe that a launcher waits at is taken from twistd, which would answer too early."""
        _, twistd, _, _, reader = self.daemon()
        self.assertIsNone(twistd["statusPipe"])
        os.set_blocking(reader, False)
        self.assertRaises(BlockingIOError, os.read, reader, 100)

    def test_launcher_succeeds(self) -> None:
        """When the daemon has started, its launcher is told what twistd itself would tell, and the streams are let go."""
        console, _, out, err, reader = self.daemon()
        self.assertTrue(console.print_line("svc ready: http://127.0.0.1:1"))
        console.report_started()
        self.assertEqual((os.read(reader, 100), os.read(reader, 100)), (b"0", b""))
        self.assertTrue(out.closed and err.closed)
        self.assertFalse(console.print_line("anything"))

    def test_launcher_fails(self) -> None:
        """When the daemon has failed, its launcher hears the reason, and goes on waiting until the process ends."""
        console, _, _, err, reader = self.daemon()
        console.report_interrupted()
        self.assertEqual(err.getvalue(), "svc was stopped before it was ready\n")
        os.set_blocking(reader, False)
        self.assertRaises(BlockingIOError, os.read, reader, 100)
        console.exit_process()
        self.assertEqual(os.read(reader, 100)[:2], b"1 ")

    def test_launcher_is_gone(self) -> None:
        """A launcher that is gone doesn't keep the server from starting."""
        reader, writer = os.pipe()
        os.close(reader)
        console = ProcessConsole(io.StringIO(), io.StringIO(), {"nodaemon": False, "statusPipe": writer})
        console.attach_launcher()
        console.report_started()
        self.assertRaises(OSError, os.fstat, writer)


class LaunchTests(SynchronousTestCase):
    """A server under ``twistd``."""

    def setUp(self) -> None:
        """Prepare a server, its start in the test's hands."""
        self.addCleanup(gc.unfreeze)
        self.reactor = FakeReactor()
        self.composed: Deferred[Sequence[str]] = Deferred()
        self.undone, self.announced, self.answers = list[bool](), list[str](), True
        self.out, self.err = io.StringIO(), io.StringIO()
        self.console = ProcessConsole(self.out, self.err)
        self.handlers: dict[int, Callable[[int, object], object]] = {}
        self.server = ServerService(self.reactor, self.compose, lambda: self.undone.append(True))
        self.launch = Launch(
            self.reactor,
            self.server,
            self.console,
            self.handlers.__setitem__,
        )
        self.launch.startService()

    async def compose(self, parent: MultiService) -> Started:
        """Wait."""
        return Started(await self.composed, self.announce, lambda: self.answers)

    async def announce(self) -> None:
        """Note what was written by then, and fail."""
        self.announced.append(self.out.getvalue())
        raise StoreUnavailable("gone")

    def test_ready(self) -> None:
        """When the server can serve, the ready line tells all its addresses; not before (CFG-12)."""
        self.reactor.run()
        self.assertEqual(self.out.getvalue(), "")
        self.composed.callback(["http://127.0.0.1:1", "https://[::1]:2"])
        self.assertEqual(self.out.getvalue(), "svc ready: http://127.0.0.1:1 https://[::1]:2\n")
        self.assertEqual((self.err.getvalue(), self.console.exit_code, self.reactor.stops), ("", 0, 0))

    def test_garbage(self) -> None:
        """From then on the collector of garbage looks only at what comes later: a look at all stops the loop for long."""
        gc.unfreeze()
        self.reactor.run()
        self.assertEqual(gc.get_freeze_count(), 0)
        self.composed.callback(["http://127.0.0.1:1"])
        self.assertGreater(gc.get_freeze_count(), 10_000)

    def refused(self, error: Exception) -> str:
        """Let the start fail, and return what standard error says."""
        self.reactor.run()
        self.composed.errback(error)
        self.assertEqual((self.out.getvalue(), self.console.exit_code, self.reactor.stops), ("", 1, 1))
        return self.err.getvalue()

    def test_refused(self) -> None:
        """A start that is refused gives its reason on standard error, stops the process, and makes its exit code 1
        (CFG-13).
        """
        self.assertEqual(self.refused(StartRefused("no port")), "svc did not start: no port\n")

    def test_system_error(self) -> None:
        """An error of the operating system is a reason, too."""
        self.assertIn("/d/data-key", self.refused(PermissionError(13, "Permission denied", "/d/data-key")))

    def test_fault(self) -> None:
        """A fault in the program is logged with its traceback, and ends the start as well."""
        self.assertIn("a fault in the program: LookupError: x", self.refused(LookupError("x")))
        self.assertEqual(len(self.flushLoggedErrors(LookupError)), 1)

    def test_signals(self) -> None:
        """Either signal stops the reactor, a second one changes nothing, and the exit code stays 0."""
        self.reactor.run()
        self.composed.callback([])
        self.assertEqual(set(self.handlers), set(STOP_SIGNALS))
        self.handlers[signal.SIGTERM](signal.SIGTERM, None)
        self.handlers[signal.SIGINT](signal.SIGINT, None)
        self.assertEqual((self.reactor.stops, self.console.exit_code), (1, 0))

    def test_stopped_while_starting(self) -> None:
        """A start that is interrupted says so, and that it was asked for leaves the exit code 0."""
        self.reactor.run()
        stopped = self.launch.stopService()
        self.successResultOf(stopped)
        self.assertIn("stopped before it was ready", self.err.getvalue())
        self.assertEqual(self.console.exit_code, 0)

    def test_interrupted(self) -> None:
        """SIGINT before the ready line undoes the start when all has stopped, and makes the exit code 130; SIGTERM undoes
        nothing, and so does either signal afterwards (CFG-14).
        """
        for number, ready, undone, code in (
            (signal.SIGINT, False, 1, 130),
            (signal.SIGTERM, False, 0, 0),
            (signal.SIGINT, True, 0, 0),
            (signal.SIGTERM, True, 0, 0),
        ):
            self.setUp()
            self.reactor.run()
            if ready:
                self.composed.callback([])
            self.handlers[number](number, None)
            self.assertEqual(self.undone, [])
            self.successResultOf(self.launch.stopService())
            self.assertEqual((len(self.undone), self.console.exit_code), (undone, code), (number, ready))
            self.assertEqual(self.err.getvalue(), "" if ready else "svc was stopped before it was ready\n")

    def test_interrupted_before_the_reactor_runs(self) -> None:
        """SIGINT after the server was made, and before the reactor runs, is noted, and stops the server then (CFG-14)."""
        self.launch.note_interrupts()
        self.handlers[signal.SIGINT](signal.SIGINT, None)
        self.assertEqual(self.reactor.stops, 0)
        self.reactor.run()
        self.assertEqual(self.reactor.stops, 1)
        self.successResultOf(self.launch.stopService())
        self.assertEqual(self.console.exit_code, 130)

    def test_launcher_is_interrupted(self) -> None:
        """A daemon's launcher leaves SIGINT to Python."""
        Launch(self.reactor, self.server, ProcessConsole(None, None, {}), self.handlers.__setitem__).note_interrupts()
        self.assertIs(self.handlers[signal.SIGINT], signal.default_int_handler)

    def test_announced(self) -> None:
        """When the ready line is written, the server notes that its admin's key needn't be shown again (CFG-20)."""
        self.reactor.run()
        self.assertEqual(self.announced, [])
        self.composed.callback(["http://a"])
        self.assertEqual(self.announced, ["svc ready: http://a\n"])
        self.assertEqual(self.console.exit_code, 0)

    def test_handlers_follow_those_of_the_reactor(self) -> None:
        """The signal handlers are put up when the reactor runs, after its own."""
        self.assertEqual(self.handlers, {})

    def test_systemd_is_told(self) -> None:
        """Systemd is told when the server is ready, that it lives while the server answers, why it ends, and that it stops
        (CFG-40).
        """
        self.addCleanup(signal.signal, signal.SIGHUP, signal.getsignal(signal.SIGHUP))
        told: list[str] = []
        unit = SystemdUnit(notify="/n", watchdog=4.0)
        reactor = FakeReactor()
        notifying = SystemdNotifier(reactor, unit, 7, lambda _, text: told.extend(text.splitlines()))
        server = ServerService(reactor, self.compose)
        launch = Launch(reactor, server, self.console, self.handlers.__setitem__, notifying=notifying)
        launch.startService()
        reactor.run()
        self.answers = False
        self.composed.callback(["http://a"])
        self.assertIn("READY=1", told)
        self.assertIn("STATUS=Serving at http://a", told)
        self.assertNotIn("WATCHDOG=1", told)
        server.give_up("its processes die")
        self.assertEqual(told[-1], "STATUS=svc ends: its processes die")
        launch.stopService()
        self.assertEqual(told[-1], "STOPPING=1")

    def test_gives_up(self) -> None:
        """A server that gives up says why on standard error, stops, and has the exit code 1 (CFG-30)."""
        self.reactor.run()
        self.composed.callback([])
        self.server.give_up("its processes die")
        self.assertEqual(self.err.getvalue(), "svc ends: its processes die\n")
        self.assertEqual((self.reactor.stops, self.console.exit_code), (1, 1))

    def test_leave(self) -> None:
        """At the end of a process whose start didn't fail, its exit code is left alone."""
        self.console.exit_process()
