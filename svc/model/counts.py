"""Counts of sessions with the database, and of connections of clients."""

from __future__ import annotations

import attrs


@attrs.frozen
class Census:
    """Sessions with the database; ``waits``, ``waited`` (seconds) and ``returned`` (or opened) count from the start on."""

    sessions: int
    lent: int
    waiting: int
    waits: int
    waited: float
    returned: int = attrs.field(default=0, eq=False)


@attrs.frozen
class ConnectionCounts:
    """The open connections of clients; since the start, idle ones that were closed for others, and ones beyond the limit."""

    open: int
    evicted: int
    overflowed: int
