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


def exit_on_interrupt(*_: object) -> None:
    """End this process; a handler of signals."""
    os.write(2, b"svc was interrupted before it began\n")
    os._exit(INTERRUPTED)


def install_interrupt_handler() -> None:
    """Leave at SIGINT from now on, unless it is ignored, or has another handler."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, exit_on_interrupt)


@contextmanager
def exiting_on_interrupt() -> Generator[None, None, None]:
    """Leave at SIGINT within this context."""
    before = signal.getsignal(signal.SIGINT)
    install_interrupt_handler()
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is exit_on_interrupt:
            signal.signal(signal.SIGINT, before)
