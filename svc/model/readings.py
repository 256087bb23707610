"""Counts of reads of variables, by role and by day (READ-1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import attrs

from svc.model.names import ResourceName

#: How many days are kept one by one, the last of them a role's last read.
DAYS_KEPT: Final = 64

_MASK: Final = (1 << DAYS_KEPT) - 1


class ReaderKey(NamedTuple):
    """A role by its full id, its ``creation`` as in ``Caller``, and a day."""

    role: str
    creation: int
    day: int


class CountedReads(NamedTuple):
    """How often a role read a variable; both by their full ids."""

    role: str
    creation: int
    variable: str
    number: int


@attrs.frozen
class ReadingBatch:
    """Reads of one day, counted by one server.

    ``source`` is that server from its start to its end, and ``sequence`` the number of the batch: it is added once, however
    often it is delivered. On ``lost_days`` reads were not counted.
    """

    source: str
    sequence: int
    day: int
    reads: tuple[CountedReads, ...] = ()
    lost_days: tuple[int, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Return whether nothing waits."""
        return not self.reads and not self.lost_days


class ReadersCursor(NamedTuple):
    """The last of a page of readers: its last day, and its full id."""

    day: int
    role: str


#: The cursor before the first one: later than any day.
READERS_START: Final = ReadersCursor(1_000_000, "")


@attrs.frozen
class Reader:
    """A role that read a variable: the day of its last read, all its reads, and the days, as bits before that day."""

    role: str
    last_day: int
    count: int
    day_mask: int

    def list_days(self) -> list[int]:
        """Return the days on which it read, the last first, of the 64 that end with the last."""
        mask = self.day_mask & _MASK
        return [self.last_day - back for back in range(DAYS_KEPT) if mask >> back & 1]


class VariableRead(NamedTuple):
    """A variable that a role read, by its full id: the day of the last read, and all its reads."""

    variable: str
    last_day: int
    number: int


@attrs.frozen
class VariableReaders:
    """A variable by its full id, and the first of its readers, those that did last first; ``more``: there are others."""

    variable: str
    readers: Sequence[Reader]
    more: bool


@attrs.frozen
class ReadersOfSeveral:
    """Variables that were read since the day ``since``, with their readers, as far as the caller may know of these.

    ``complete``: no other variable was asked for that was read. ``kept_since``: epoch seconds, and nothing before is known.
    ``missing``: names of servers whose counts are missing. ``certain``: no other reads are possible.
    """

    variables: Sequence[VariableReaders]
    since: int
    complete: bool
    kept_since: float
    missing: Sequence[str]
    certain: bool


@attrs.frozen
class CountingState:
    """The state of the counts: since when reads are counted, in epoch seconds, the servers whose counts are missing, and the
    last day on which reads were not counted.
    """

    since: float
    missing: Sequence[str] = ()
    lost_day: int | None = None


@attrs.frozen
class VariableUse:
    """A variable, when it was made, in epoch seconds, and the day of the last read that was counted."""

    variable: ResourceName
    made_at: float
    last_day: int | None


@attrs.frozen
class PurgePosition:
    """How far a purge of counts has come, in variables and in roles; ``None`` where it is complete."""

    variable: int | None = 0
    reader: int | None = 0
