"""Tests of ``svc.server.notifying``."""

from __future__ import annotations

import signal
import socket
from pathlib import Path
from typing import Any

from twisted.internet.task import Clock
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from svc.server.notifying import EXTENSION_SECONDS, NOTIFICATIONS_PER_WATCHDOG, SystemdNotifier, send_datagram
from svc.settings.systemd import SystemdUnit

TIME = f"EXTEND_TIMEOUT_USEC={EXTENSION_SECONDS * 1_000_000}"


class Turning(Clock):
    """A reactor that does at once what a signal asks for."""

    def callFromThread(self, work: Any) -> None:
        """Do it."""
        work()


class NotifyingTests(SynchronousTestCase):
    """What systemd hears."""

    def setUp(self) -> None:
        """Prepare a unit whose watchdog waits for 20 seconds."""
        self.clock, self.told = Turning(), list[str]()
        self.alive = True
        before = signal.getsignal(signal.SIGHUP)
        self.addCleanup(signal.signal, signal.SIGHUP, before)

    def notifying(self, **environ: str) -> SystemdNotifier:
        """What tells it, in a process of id 7."""
        unit = SystemdUnit.from_environ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "20000000", **environ})
        return SystemdNotifier(self.clock, unit, 7, lambda _, text: self.told.append(text))

    def heard(self) -> list[str]:
        """What was told since this was asked last."""
        told, self.told[:] = list(self.told), []
        return told

    def test_life(self) -> None:
        """A server asks for time until it is ready; then it tells that it lives, several times within the watchdog's time,
        while it does, and nothing when it has stopped (CFG-40).
        """
        notifying = self.notifying(WATCHDOG_PID="7")
        notifying.startService()
        self.clock.pump([20 / NOTIFICATIONS_PER_WATCHDOG] * 3)
        self.assertEqual(self.heard(), [TIME] * 4)
        notifying.notify_ready("http://a http://b", lambda: self.alive)
        self.assertEqual(self.heard(), ["READY=1\nSTATUS=Serving at http://a http://b", "WATCHDOG=1"])
        self.clock.pump([20 / NOTIFICATIONS_PER_WATCHDOG] * NOTIFICATIONS_PER_WATCHDOG)
        self.assertEqual(self.heard(), ["WATCHDOG=1"] * NOTIFICATIONS_PER_WATCHDOG)
        self.alive = False
        self.clock.pump([20 / NOTIFICATIONS_PER_WATCHDOG] * NOTIFICATIONS_PER_WATCHDOG)
        self.assertEqual(self.heard(), [])
        self.alive = True
        self.clock.advance(20 / NOTIFICATIONS_PER_WATCHDOG)
        self.assertEqual(self.heard(), ["WATCHDOG=1"])
        notifying.notify_failed("svc ends: it can't")
        notifying.notify_stopping()
        notifying.stopService()
        self.assertEqual(self.heard(), ["STATUS=svc ends: it can't", "STOPPING=1"])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_hangup(self) -> None:
        """At a hangup it is told that the server reloads, then that it has (CFG-40)."""
        notifying = self.notifying()
        notifying.notify_at_hangups()
        notifying.notify_ready("", lambda: True)
        self.heard()
        signal.raise_signal(signal.SIGHUP)
        self.assertEqual(self.heard(), ["RELOADING=1", "READY=1"])

    def test_no_watchdog(self) -> None:
        """Where no watchdog is set, or that of another process, nothing is told of life; without a socket nothing at all."""
        for environ, expected in (
            ({"WATCHDOG_USEC": "0"}, 1),
            ({"WATCHDOG_USEC": "x"}, 1),
            ({"WATCHDOG_PID": "8"}, 1),
            ({"NOTIFY_SOCKET": ""}, 0),
        ):
            notifying = self.notifying(**environ)
            notifying.startService()
            self.heard()
            notifying.notify_ready("", lambda: True)
            self.clock.advance(100)
            self.assertEqual(len(self.heard()), expected, environ)
            notifying.stopService()

    def test_sockets(self) -> None:
        """A datagram reaches a socket at a path and an abstract one; one that is gone is logged, and stops nothing."""
        path = str(Path("n").absolute())[:100] if len(str(Path("n").absolute())) < 100 else "n"
        for address, bound in ((path, path), (f"@svc-test-{id(self)}", f"\0svc-test-{id(self)}")):
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as hearing:
                hearing.bind(bound)
                send_datagram(address, "READY=1")
                self.assertEqual(hearing.recv(100), b"READY=1")
        Path(path).unlink()
        with capturedLogs() as logs:
            SystemdNotifier(self.clock, SystemdUnit(notify="/nowhere/at/all"), 7).notify_stopping()
        self.assertEqual([event["why"] for event in logs], ["No such file or directory"])
