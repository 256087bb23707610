"""The start and end of the process: the ready line, the reason of a refusal, exit codes, signals.

Note [The launcher]. ``twistd`` without ``-n`` forks. The launcher, the process that somebody started, waits at a pipe, where
``twistd`` answers as soon as the application has *begun* to start; but what makes a start fail comes later. So the pipe is
taken away from ``twistd``, and answered when the server is ready, or at the end of the process. For as long the launcher's
standard output and error are kept, in whose place ``twistd`` puts ``/dev/null``.

Note [Exit codes]. ``twistd`` ends with 0 whenever the reactor has stopped, and dies of the signal that stopped it, if one
did. A start that failed must end with 1: that is done at the very end of the process, after ``twistd`` has removed its pid
file. A requested stop must end with 0: the signals have handlers of our own.

Note [Interrupted]. Before the ready line SIGINT ends the process with 130 and one line, and what the start has made is
removed again. While modules are read nothing has been made, so the process ends at once (``model/interrupts``); from then
on ``twistd`` writes its pid file, so the signal is noted until the reactor runs, which is soon, and stops the server then.
The launcher of a daemon, and Python itself before it has read this module, end as Python has it.

Note [Garbage]. Python's garbage collector traverses all objects now and then, for 40 to 80 ms in which no request is served.
Nearly all of them belong to modules and never are garbage, so these are frozen.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from typing import Any, Final, Self, TextIO

import attrs
from twisted.application.service import MultiService
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ReactorNotRunning
from twisted.internet.interfaces import IReactorCore, IReactorFromThreads, IReactorTime
from twisted.logger import ILogObserver, Logger

from svc.model.errors import ConfigurationInvalid, OutcomeUnknown, ReadOnlyStandby, Refusal, StartRefused, StoreUnavailable
from svc.model.interrupts import INTERRUPTED
from svc.server.lifecycle import ServerService, Started, add_child
from svc.server.notifying import SystemdNotifier
from svc.server.reloading import call_on_hangup
from svc.server.serverlog import RepeatReporter, ServerLog
from svc.settings.systemd import SystemdUnit

#: Signals that stop the server.
STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

_STOPPED: Final = "svc was stopped before it was ready"

log = Logger()


def describe_refusal(refusal: Refusal) -> str:
    """Return the text of a refusal to start for the operator, in one sentence or a few."""
    match refusal:
        case ConfigurationInvalid():
            return f"{refusal.key} {refusal.message}"
        case StartRefused():
            return refusal.message
        case OutcomeUnknown():
            return f"the database did not confirm the change, which may have been made: {refusal.why}"
        case StoreUnavailable():
            return f"the database can't be used: {refusal.why}"
        case ReadOnlyStandby():
            return "the database takes no writes, as a standby does: do this on the primary"
        case _:
            return str(refusal)


@attrs.define
class ProcessConsole:
    """The output and the exit code for the process that started this one (Note [The launcher]).

    ``twistd`` are the options of ``twistd`` when it is about to make a daemon of this process.
    """

    _out: TextIO | None
    _err: TextIO | None
    _twistd: MutableMapping[str, Any] | None = None
    _launcher: int | None = None
    exit_code: int = attrs.field(default=0, init=False)

    @classmethod
    def of_process(cls, twistd: MutableMapping[str, Any] | None) -> Self:
        """Return the console of this process, which ``twistd`` runs with these options, if any."""
        if twistd is None or twistd.get("nodaemon", True):
            return cls(sys.__stdout__, sys.__stderr__)
        return cls(_duplicate_stream(1), _duplicate_stream(2), twistd)

    @property
    def is_daemon(self) -> bool:
        """Return whether the process is a daemon, whose output is not read."""
        return self._twistd is not None

    def attach_launcher(self) -> None:
        """Take over from ``twistd`` what the launcher waits for. To be called when the services are started."""
        if self._twistd is not None:
            self._launcher, self._twistd["statusPipe"] = self._twistd.get("statusPipe"), None

    def print_line(self, line: str) -> bool:
        """Write one bare line on standard output; return whether that could be done."""
        return _write_line(self._out, line)

    def report_started(self) -> None:
        """Let the launcher end with success, and close its streams."""
        self._answer_launcher(b"0")
        if self._twistd is not None:
            for stream in filter(None, (self._out, self._err)):
                stream.close()
            self._out = self._err = None

    def report_interrupted(self, exit_code: int = 0) -> None:
        """Write to standard error that the server was stopped before it was ready, and let this process end with a code."""
        _write_line(self._err, _STOPPED)
        self.exit_code = exit_code

    def report_refused(self, reason: str) -> None:
        """Write the reason to standard error, and let this process end with failure."""
        _write_line(self._err, f"svc did not start: {reason}")
        self.exit_code = 1

    def report_give_up(self, reason: str) -> None:
        """Write why the server ends by itself to standard error, and let this process end with failure."""
        _write_line(self._err, f"svc ends: {reason}")
        self.exit_code = 1

    def exit_process(self) -> None:
        """End the process, as its last act: a launcher that still waits gets the result only now (Note [Exit codes])."""
        self._answer_launcher(b"1 svc is not running")
        if self.exit_code:
            for stream in filter(None, (sys.__stdout__, sys.__stderr__)):
                with suppress(OSError, ValueError):
                    stream.flush()
            os._exit(self.exit_code)

    def _answer_launcher(self, word: bytes) -> None:
        if self._launcher is not None:
            # A launcher that was interrupted doesn't wait any more.
            with suppress(BrokenPipeError):
                os.write(self._launcher, word)
            os.close(self._launcher)
            self._launcher = None


def _duplicate_stream(descriptor: int) -> TextIO | None:
    """Return a copy of a standard stream that no child process inherits; ``None`` when the stream is closed."""
    try:
        return os.fdopen(os.dup(descriptor), "w", encoding="utf-8", errors="backslashreplace")
    except OSError:
        return None


def _write_line(stream: TextIO | None, line: str) -> bool:
    try:
        if stream is None:
            return False
        stream.write(f"{line}\n")
        stream.flush()
    except (OSError, ValueError):  # Nobody reads any more, or the stream was closed: no reason for a server to end.
        return False
    return True


class IProcessReactor(IReactorCore, IReactorFromThreads, IReactorTime):
    """The interfaces of the reactor that a launch needs."""


def is_at_terminal() -> bool:
    """Return whether this process reads from a terminal or writes to one; one that was closed is none any more."""
    return any(map(os.isatty, range(3)))


class Launch(MultiService):
    """The server as ``twistd`` runs it: it reports how its start ended, and stops at signals.

    ``server_log`` takes the place of the log that ``twistd`` would make, unless its option ``--logger`` names another.
    ``notifying`` notifies systemd of the server's state.
    """

    def __init__(
        self,
        reactor: IProcessReactor,
        server: ServerService,
        console: ProcessConsole,
        on_signal: Callable[[int, Callable[[int, object], object]], object] = signal.signal,
        server_log: ServerLog | None = None,
        notifying: SystemdNotifier | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # Twisted's
        self._reactor, self._server, self._console = reactor, server, console
        self._on_signal = on_signal
        self._log = server_log
        self._notifying = notifying or SystemdNotifier(reactor, SystemdUnit(), 0)
        self._at_terminal = False
        self._interrupted = False
        add_child(self, self._notifying)
        if server_log is not None:
            add_child(self, RepeatReporter(server_log.repeats, reactor))
        add_child(self, server)

    def setServiceParent(self, parent: Any) -> None:  # noqa: N802 - the name is Twisted's
        """Become part of the application, whose log ``twistd`` asks it for."""
        super().setServiceParent(parent)  # type: ignore[no-untyped-call] # Twisted's
        if self._log is not None:
            parent.setComponent(ILogObserver, self._log.observer)

    def note_interrupts(self) -> None:
        """Note SIGINT from now on, until the reactor runs (Note [Interrupted]); a daemon's launcher leaves it to Python."""
        ends: Any = signal.default_int_handler
        self._on_signal(signal.SIGINT, ends if self._console.is_daemon else self._note_interrupt)

    def _note_interrupt(self, *_: object) -> None:
        self._interrupted = True

    def startService(self) -> None:
        """Start the server, and wait for the outcome."""
        self._console.attach_launcher()
        super().startService()  # type: ignore[no-untyped-call] # Twisted's
        self._reactor.callWhenRunning(self._begin_launch)

    def stopService(self) -> Deferred[None]:
        """Stop the server, after telling systemd so."""
        self._notifying.notify_stopping()
        stopped: Deferred[None] = super().stopService()  # type: ignore[no-untyped-call] # Twisted's
        return stopped

    def _begin_launch(self) -> None:
        # The reactor has put up its own handlers by now (Note [Exit codes]).
        for number in STOP_SIGNALS:
            self._on_signal(number, lambda number, _: self._reactor.callFromThread(self._stop_at_signal, number))
        if self._log is not None:
            # By now a daemon has left the terminal that it was started from.
            self._at_terminal = is_at_terminal()
            self._notifying.notify_at_hangups()
            call_on_hangup(self._reactor, self._handle_hangup)
        Deferred.fromCoroutine(self._await_outcome())
        if self._interrupted:
            self._stop_at_signal(signal.SIGINT)

    def _stop_at_signal(self, number: int) -> None:
        """Stop at a signal; SIGINT also undoes a start that isn't ready."""
        self._interrupted = self._server.interrupted = self._server.interrupted or number == signal.SIGINT
        self._stop_reactor()

    def _handle_hangup(self) -> None:
        """Reopen the log at SIGHUP; stop where the signal means that the terminal is gone."""
        if self._at_terminal and not is_at_terminal():
            self._stop_reactor()
        elif self._log is not None and self._log.file is not None:
            self._log.file.reopen()

    def _stop_reactor(self) -> None:
        # A second signal changes nothing: the stop is under way.
        with suppress(ReactorNotRunning):
            self._reactor.stop()

    async def _await_outcome(self) -> None:
        try:
            server = await self._server.wait_until_ready()
        except CancelledError:
            self._console.report_interrupted(INTERRUPTED if self._server.interrupted else 0)
        except Refusal as refusal:
            self._report_refusal(describe_refusal(refusal))
        except OSError as error:
            self._report_refusal(str(error))
        except Exception as error:
            log.failure("The start met a fault in the program")
            self._report_refusal(f"a fault in the program: {type(error).__name__}: {error}")
        else:
            gc.collect()
            gc.freeze()  # Note [Garbage]
            urls = " ".join(server.urls)
            log.info("The server is ready at {urls}", urls=urls)
            self._console.print_line(f"svc ready: {urls}")
            self._console.report_started()
            self._notifying.notify_ready(urls, server.answers)
            await self._announce_ready(server)
            self._give_up(await self._server.wait_for_give_up())

    async def _announce_ready(self, server: Started) -> None:
        try:
            await server.announced()
        except Refusal as refusal:
            log.warn("That the server was ready couldn't be noted: {why}", why=describe_refusal(refusal))

    def _give_up(self, reason: str) -> None:
        log.error("svc ends: {reason}", reason=reason)
        self._console.report_give_up(reason)
        self._notifying.notify_failed(f"svc ends: {reason}")
        self._stop_reactor()

    def _report_refusal(self, reason: str) -> None:
        log.error("svc did not start: {reason}", reason=reason)
        self._console.report_refused(reason)
        self._notifying.notify_failed(f"svc did not start: {reason}")
        self._stop_reactor()
