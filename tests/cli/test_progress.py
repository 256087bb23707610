"""Tests of ``svc.cli.progress``."""

from __future__ import annotations

import asyncio
import io
import re
import threading

from twisted.trial.unittest import SynchronousTestCase

from svc.cli.progress import show_progress


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

    def wait(self, seconds: float, *, terminal: bool = True, fault: Exception | None = None) -> str:
        """Wait for a work of so many hundredths of what is a second here; return what was shown."""
        screen = Screen(terminal=terminal)

        async def work() -> str:
            await asyncio.sleep(seconds / 100)
            if fault is not None:
                raise fault
            return "done"

        try:
            self.assertEqual(asyncio.run(show_progress(work(), "Loading", screen, 0.01)), "done")
        finally:
            self.assertEqual([thread for thread in threading.enumerate() if thread.name == "shown"], [])
            self.said = screen.getvalue()
        return self.said

    def test_long(self) -> None:
        """What takes longer than a second has a line that counts the seconds, and is wiped in the end."""
        self.assertRegex(self.wait(10), re.compile(r"\A\rLoading: 1 s\rLoading: 2 s.*\r\x1b\[K\Z", re.DOTALL))

    def test_short(self) -> None:
        """What takes less leaves no trace."""
        self.assertEqual(self.wait(0), "")

    def test_no_terminal(self) -> None:
        """Off a terminal nothing is shown, however long it takes (CLI-3)."""
        self.assertEqual(self.wait(5, terminal=False), "")

    def test_failure(self) -> None:
        """A failure passes, and wipes the line, too."""
        self.assertRaises(ValueError, self.wait, 5, fault=ValueError("no"))
        self.assertTrue(self.said.endswith("\r\x1b[K"))
