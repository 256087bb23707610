"""Random ids under which requests and bugs are logged.

The system's random numbers cost a call of the kernel, 6 µs, however few they are: so many are fetched at a time.
"""

from __future__ import annotations

import os
from typing import Final

#: Characters of an id, which are hexadecimal; and how many ids are made at a time.
LENGTH: Final = 16
MANY: Final = 512


class RequestIds:
    """Returns another id with each call."""

    def __init__(self) -> None:
        self._ids: list[str] = []

    def __call__(self) -> str:
        """Return an id that nothing had before."""
        if not self._ids:
            digits = os.urandom(MANY * LENGTH // 2).hex()
            self._ids = [digits[start : start + LENGTH] for start in range(0, len(digits), LENGTH)]
        return self._ids.pop()
