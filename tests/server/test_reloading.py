"""Tests of ``svc.server.reloading``: what is read again, what is kept, and what is told of it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from twisted.internet.task import Clock
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from svc.server.reloading import INTERVAL, FileReloader, Reloadable


class SignalledClock(Clock):
    """A clock whose turns may be asked for from elsewhere."""

    def callFromThread(self, work: Any, *args: Any) -> None:
        """Do it in the next turn."""
        self.callLater(0, work, *args)


class RenewalCase(SynchronousTestCase):
    """A file of a number, of which odd ones have expired."""

    def setUp(self) -> None:
        """Write it, and listen to the log."""
        self.path = Path(self.mktemp())
        self.path.write_text("2")
        self.clock = SignalledClock()
        self.renewals = FileReloader(self.clock)
        self.read = 0
        capturing = capturedLogs()
        self.events: Any = capturing.__enter__()
        self.addCleanup(capturing.__exit__, None, None, None)
        self.addCleanup(signal.signal, signal.SIGHUP, signal.getsignal(signal.SIGHUP))

    @property
    def told(self) -> list[str]:
        """The levels of what was told of the number."""
        return [event["log_level"].name for event in self.events if event["log_namespace"] == "svc.server.reloading"]

    def number(self) -> Reloadable[int]:
        """Watch the number."""

        def read() -> int:
            self.read += 1
            return int(self.path.read_text())

        return self.renewals.watch(Reloadable("the number", [self.path], read, lambda n: "odd" if n % 2 else None))

    def after(self, text: str | None, intervals: int = 1) -> None:
        """Let the file have another content, or be gone, and time pass."""
        if text is None:
            self.path.unlink()
        else:
            self.path.write_text(text)
        for _ in range(intervals):
            self.clock.advance(INTERVAL)


class RenewableTests(RenewalCase):
    """One file."""

    def setUp(self) -> None:
        """Begin to look."""
        super().setUp()
        self.value = self.number()
        self.renewals.startService()
        self.addCleanup(self.renewals.stopService)

    def test_changed(self) -> None:
        """A file that changed is read within half a minute, told once, and not read again before it changes again
        (CFG-24).
        """
        self.after("4", 3)
        self.assertEqual((self.value.current, self.read, self.told), (4, 2, ["info"]))

    def test_unchanged(self) -> None:
        """A file with the same content is left alone, when it is written again."""
        self.after("2", 3)
        self.assertEqual((self.value.current, self.read, self.told), (2, 1, []))

    def test_broken(self) -> None:
        """What can't be read, is gone, or is objected to, changes nothing, and is told once for each content."""
        for text in ("x", "", "3", None):
            self.events.clear()
            self.after(text, 5)
            self.assertEqual((self.value.current, self.told), (2, ["warn"]), text)
        self.after("6")
        self.assertEqual((self.value.current, self.told), (6, ["warn", "info"]))

    def test_taken_back(self) -> None:
        """A broken file that becomes what it was needs no reading, and is logged again if it breaks again."""
        self.after("x")
        self.after("2")
        self.assertEqual(self.told, ["warn"])
        self.after("x")
        self.assertEqual((self.value.current, self.told), (2, ["warn", "warn"]))

    def test_fit_later(self) -> None:
        """What was objected to is taken when it isn't any more, as a certificate is that wasn't valid yet."""
        fit = False
        value = self.renewals.watch(
            Reloadable("it", [self.path], self.path.read_text, lambda text: None if fit or text == "2" else "not yet")
        )
        self.after("4", 2)
        self.assertEqual(value.current, "2")
        fit = True
        self.clock.advance(INTERVAL)
        self.assertEqual(value.current, "4")

    def test_hangup(self) -> None:
        """At ``SIGHUP`` files are read at once, and what is wrong is told again to who asks (CFG-24)."""
        os.kill(os.getpid(), signal.SIGHUP)
        self.after("8", 0)
        self.clock.advance(0)
        self.assertEqual(self.value.current, 8)
        self.events.clear()
        self.after("x", 0)
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGHUP)
            self.clock.advance(0)
        self.assertEqual((self.value.current, self.told), (8, ["warn", "warn"]))


class StartTests(RenewalCase):
    """The first reading, and the end."""

    def test_broken(self) -> None:
        """What can't be read at the start raises what its reader raises."""
        self.path.write_text("x")
        self.assertRaises(ValueError, self.number)

    def test_objection(self) -> None:
        """A certificate with a fault at the start is in force, there being nothing else, and logged."""
        self.path.write_text("3")
        self.assertEqual((self.number().current, self.told), (3, ["warn"]))

    def test_hangups(self) -> None:
        """Everything is done at ``SIGHUP``; where there is nothing to do, the signal keeps its meaning."""
        before = signal.getsignal(signal.SIGHUP)
        done: list[int] = []
        FileReloader(self.clock).startService()
        self.assertEqual(signal.getsignal(signal.SIGHUP), before)
        self.renewals.at_hangup(lambda: done.append(1))
        self.renewals.at_hangup(lambda: done.append(2))
        os.kill(os.getpid(), signal.SIGHUP)
        self.clock.advance(0)
        self.assertEqual(done, [1, 2])

    def test_stop(self) -> None:
        """Nothing is read when it has stopped."""
        value = self.number()
        self.renewals.startService()
        self.renewals.stopService()
        self.after("4", 3)
        self.assertEqual((value.current, self.clock.getDelayedCalls()), (2, []))
