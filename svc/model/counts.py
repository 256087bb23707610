"""What is counted while the server runs: sessions with the database, and connections of clients."""

from __future__ import annotations

import attrs


@attrs.frozen
class Census:
    """How the sessions with the database stand: how many there are, how many of them are lent, and who waits for one.

    ``waits`` is how often somebody has had to wait, ``waited`` for how many seconds altogether, and ``returned`` how often a
    session was given back, or had just been opened: all three since the start.
    """

    sessions: int
    lent: int
    waiting: int
    waits: int
    waited: float
    returned: int = attrs.field(default=0, eq=False)


@attrs.frozen
class ConnectionCounts:
    """How many connections of clients are open; how many idle ones have had to make room, and how many came when there was
    none, since the start.
    """

    open: int
    evicted: int
    overflowed: int
