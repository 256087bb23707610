"""Tests of ``svc.cli.progress``."""

from __future__ import annotations

import io

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.progress import shown


class Screen(io.StringIO):
    """A terminal, or a file."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._terminal


class ProgressTests(SynchronousTestCase):
    """What is shown while one waits."""

    def wait(self, *, terminal: bool) -> None:
        """Begin to wait."""
        self.clock, self.screen, self.work = Clock(), Screen(terminal=terminal), Deferred[str]()
        self.waiting = Deferred.fromCoroutine(shown(self.work, "Loading", self.clock, self.screen))

    def test_long(self) -> None:
        """What takes longer than a second has a line that counts the seconds, and is wiped in the end."""
        self.wait(terminal=True)
        self.clock.advance(0.9)
        self.assertEqual(self.screen.getvalue(), "")
        self.clock.advance(0.2)
        self.clock.advance(1.0)
        self.assertEqual(self.screen.getvalue(), "\rLoading: 1 s\rLoading: 2 s")
        self.work.callback("done")
        self.assertEqual(self.successResultOf(self.waiting), "done")
        self.assertTrue(self.screen.getvalue().endswith("\r\x1b[K"))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_short(self) -> None:
        """What takes less leaves no trace."""
        self.wait(terminal=True)
        self.work.callback("done")
        self.assertEqual((self.successResultOf(self.waiting), self.screen.getvalue()), ("done", ""))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_no_terminal(self) -> None:
        """Off a terminal nothing is shown, however long it takes (CLI-3)."""
        self.wait(terminal=False)
        self.clock.advance(5)
        self.work.callback("done")
        self.assertEqual((self.successResultOf(self.waiting), self.screen.getvalue()), ("done", ""))

    def test_failure(self) -> None:
        """A failure passes, and wipes the line, too."""
        self.wait(terminal=True)
        self.clock.advance(1)
        self.work.errback(ValueError("no"))
        self.failureResultOf(self.waiting, ValueError)
        self.assertTrue(self.screen.getvalue().endswith("\r\x1b[K"))
