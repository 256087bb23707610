"""Two clocks: one for durations, and one for the time of day.

Note [Two clocks]. A machine's clock may be set. Twisted's timers, which go by it, then stand still, or are all due at once.
So the reactor of every process of this program goes by a clock that nobody can set (:func:`use_steady_clock`), and ``clock``
or ``reactor`` is used only for durations; the time of day comes from a ``wall``, the machine's clock.

The steady clock starts with the time of day, so that running timers aren't moved and libraries write no dates of 1970. It
counts the time that a machine sleeps, where the system measures it: a trust of an hour doesn't last for a night.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any, Final, Protocol

_STEADY: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class WallClock(Protocol):
    """A clock that has the time of day."""

    def seconds(self) -> float:
        """Seconds since the epoch; less than before, once the clock was set back."""


class MachineClock:
    """The machine's clock, a :class:`WallClock`."""

    def seconds(self) -> float:
        """See ``WallClock``."""
        return time.time()


def steady_seconds() -> float:
    """Return seconds for durations, by a clock that nobody can set, which counts the time that a machine sleeps."""
    return time.clock_gettime(_STEADY)


def iso_seconds(seconds: float) -> str:
    """Return a moment, in seconds since the epoch, as text in ISO 8601: in UTC, to the second."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def iso_milliseconds(seconds: float) -> str:
    """Return a moment, in seconds since the epoch, as text in ISO 8601: in UTC, to the millisecond, with ``+00:00``."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def describe_moment(seconds: float) -> str:
    """Return a moment for people, in ISO 8601: to the second, or where it has a fraction to the millisecond, in UTC.

    A number that is outside the calendar stays one, since tokens of others may have any.
    """
    try:
        return iso_seconds(seconds) if seconds == int(seconds) else iso_milliseconds(seconds).replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return f"{seconds:.15g} s after 1970"


def parse_rfc3339(text: str) -> float:
    """Return the moment that a text of RFC 3339 names, in seconds since the epoch.

    :raises ValueError: it names none, or lacks its zone.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a moment has a zone")
    seconds = moment.timestamp()
    try:
        iso_milliseconds(seconds)
    except (ValueError, OverflowError):
        # In UTC it is before the year 1 or after 9999, where nothing can write it.
        raise ValueError("a moment lies in the years 1 to 9999") from None
    return seconds


def use_steady_clock(reactor: Any) -> None:
    """Make a reactor's timers go by a clock that nobody can set (Note [Two clocks]); only for processes of this program."""
    started = time.time() - time.clock_gettime(_STEADY)
    reactor.seconds = lambda: started + time.clock_gettime(_STEADY)
