"""SIGINT while a program loads its modules: nothing has been made by then, so it ends at once, in one line.

Python's own handler prints a traceback, and Twisted's reactor replaces only Python's handler: so this one is removed, or
replaced, before a reactor runs.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

#: The exit code of a process that SIGINT has ended, by the convention of shells.
INTERRUPTED: Final = 128 + signal.SIGINT


def leave_at_once(*_: object) -> None:
    """End this process; a handler of signals."""
    os.write(2, b"svc was interrupted before it began\n")
    os._exit(INTERRUPTED)


def heed_interrupts() -> None:
    """Leave at SIGINT from now on, unless it is ignored, or has another handler."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, leave_at_once)


@contextmanager
def leaving_at_once() -> Generator[None, None, None]:
    """Leave at SIGINT within this context."""
    before = signal.getsignal(signal.SIGINT)
    heed_interrupts()
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is leave_at_once:
            signal.signal(signal.SIGINT, before)
