"""Two clocks: one for how long something takes, and one for what time it is.

Note [Two clocks]. A machine's clock may be set, by hand or by NTP. Timers that go by it stand still after it was set back,
for as long as that lasts, and are all due at once after it was set forwards; those of Twisted do. So every process that this
program begins has its reactor go by a clock that nobody can set (:func:`run_steadily`). A ``clock`` or ``reactor`` is asked
for durations alone. What time it is (when a token ends, what a record says) is asked of a ``wall``, which follows the
machine's clock wherever that is set.

The steady clock starts with the time of day, and goes on from there. Timers that are running already are not moved by it,
and what libraries write as a date from a reactor's clock is none of 1970. It counts the time that a machine sleeps, where
the system can tell: what was to be trusted for an hour is not trusted for a night.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any, Final, Protocol

_STEADY: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class WallClock(Protocol):
    """What tells the time of day."""

    def seconds(self) -> float:
        """Seconds since the epoch; less than before, once the clock was set back."""


class MachineClock:
    """The machine's clock, a :class:`WallClock`."""

    def seconds(self) -> float:
        """See ``WallClock``."""
        return time.time()


def iso_seconds(seconds: float) -> str:
    """Return a moment, in seconds since the epoch, as text in ISO 8601: in UTC, to the second."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def iso_milliseconds(seconds: float) -> str:
    """Return a moment, in seconds since the epoch, as text in ISO 8601: in UTC, to the millisecond, with ``+00:00``."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def run_steadily(reactor: Any) -> None:
    """Have a reactor's timers go by a clock that nobody can set (Note [Two clocks]).

    For reactors of processes that this program begins; another program's is not ours to change. Twisted reads no other
    clock than this attribute for them.
    """
    started = time.time() - time.clock_gettime(_STEADY)
    reactor.seconds = lambda: started + time.clock_gettime(_STEADY)
