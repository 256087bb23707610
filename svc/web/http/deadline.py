"""The moment at which a connection is overdue."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from twisted.internet.interfaces import IDelayedCall, IReactorTime


class Deadline:
    """One moment, at which ``passed`` is called; a timer that fires before is set again, so that moving it is cheap."""

    def __init__(self, clock: IReactorTime, passed: Callable[[], None]) -> None:
        self._clock = clock
        self._passed = passed
        self._moment = inf
        self._timer: IDelayedCall | None = None
        #: When the timer fires.
        self._due = inf

    def set(self, seconds: float) -> None:
        """Move the moment to so many seconds from now."""
        self._moment = moment = self._clock.seconds() + seconds
        if self._timer is None:
            self._timer, self._due = self._clock.callLater(seconds, self._check), moment
        elif self._due > moment:
            self._timer.reset(seconds)
            self._due = moment

    def lift(self) -> None:
        """Remove the moment."""
        self._moment = inf

    def end(self) -> None:
        """Leave no timer behind, nor a reference to what it is for."""
        self._moment = inf
        self._passed = lambda: None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = None
        remaining = self._moment - self._clock.seconds()
        if remaining <= 0.001:  # clocks and sums of floats differ by less
            self._passed()
        elif remaining < inf:
            self._timer, self._due = self._clock.callLater(remaining, self._check), self._moment
