"""Counts of sessions with the database, of its read cache, and of connections of clients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

import attrs


@attrs.frozen
class PoolCounts:
    """Sessions with the database; ``waits``, ``waited`` (seconds) and ``returned`` (or opened) count from the start on."""

    sessions: int
    lent: int
    waiting: int
    waits: int
    waited: float
    returned: int = attrs.field(default=0, eq=False)

    @classmethod
    def sum_counts(cls, counts: Iterable[PoolCounts]) -> Self:
        """Return the sum of some."""
        return cls(*map(sum, zip(*map(attrs.astuple, counts), strict=True)))


@attrs.frozen
class ConnectionCounts:
    """The open connections of clients; since the start, idle ones that were closed for others, and ones beyond the limit."""

    open: int
    evicted: int
    overflowed: int


@attrs.frozen
class CacheCounts:
    """The cached answers of the store, in ``bytes``, and the ``age`` of their last confirmation (seconds).

    Since the start: ``hits`` in the cache, ``misses``, answers ``dropped`` for a change, ``evicted`` for want of room,
    served ``stale`` while the database couldn't be reached, and invalidation polls (``polls``).
    """

    hits: int
    misses: int
    dropped: int
    evicted: int
    stale: int
    polls: int
    entries: int
    bytes: int
    age: float | None


@attrs.frozen
class PurgeCounts:
    """The deleted records and bytes that were kept at the last round, and the records purged since the start.

    ``old`` ones were past their retention, and ``excess`` ones exceeded the limits.
    """

    records: int = 0
    bytes: int = 0
    old: int = 0
    excess: int = 0
