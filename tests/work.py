"""Work counted, where a stopwatch would depend on the machine: how many functions of ours are called."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final

import svc

_OURS: Final = str(Path(svc.__file__).parent)


def functions_called(work: Callable[[], object]) -> list[str]:
    """Do something, and return the names of the functions that were called for it, those of libraries too."""
    return [name for name, _ in _called(work)]


def functions_of_ours(work: Callable[[], object]) -> int:
    """Do something, and return how many calls of functions in ``svc`` that took; steps of generator expressions aside, whose
    number depends on the digits of a random key.
    """
    return sum(ours and name != "<genexpr>" for name, ours in _called(work))


def _called(work: Callable[[], object]) -> list[tuple[str, bool]]:
    called: list[tuple[str, bool]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called.append((frame.f_code.co_name, frame.f_code.co_filename.startswith(_OURS)))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return called
