"""A wall clock that a test sets, beside the clock of its timers."""

from __future__ import annotations

import attrs
from twisted.internet.interfaces import IReactorTime


@attrs.define
class Wall:
    """A ``WallClock`` that goes as ``clock`` does, ``ahead`` seconds before it: that is set as somebody sets a machine's."""

    clock: IReactorTime
    ahead: float = 0.0

    def seconds(self) -> float:
        """See ``WallClock``."""
        return self.clock.seconds() + self.ahead
