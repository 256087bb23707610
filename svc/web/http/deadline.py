"""The moment at which a connection is overdue."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime

#: A moment this near has come; clocks and sums of floats differ by less.
_SOON: Final = 0.001


class Deadline:
    """One moment, moved whenever something happens; ``passed`` is called when it has come.

    A timer that fires before the moment is wound up again, so that a busy connection never touches it.
    """

    def __init__(self, clock: IReactorTime, passed: Callable[[], None]) -> None:
        self._clock = clock
        self._passed = passed
        self._moment = inf
        self._timer: IDelayedCall | None = None

    def set(self, seconds: float) -> None:
        """Let it be in so many seconds."""
        self._moment = self._clock.seconds() + seconds
        if self._timer is None:
            self._timer = self._clock.callLater(seconds, self._check)
        elif self._timer.getTime() > self._moment:
            self._timer.reset(seconds)

    def lift(self) -> None:
        """Let there be none."""
        self._moment = inf

    def end(self) -> None:
        """Leave no timer behind, nor a reference to what it is for."""
        self._moment = inf
        self._passed = _nothing
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = None
        remaining = self._moment - self._clock.seconds()
        if remaining <= _SOON:
            self._passed()
        elif remaining < inf:
            self._timer = self._clock.callLater(remaining, self._check)


def _nothing() -> None:
    """Do nothing."""
