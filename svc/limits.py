"""What one request may weigh, how long it may take to arrive, and how many connections there may be."""

from __future__ import annotations

import resource
from typing import Final

import attrs

#: More connections than these are none that a process could serve.
MANY_CONNECTIONS: Final = 1_000_000

#: Open files that are kept for all but connections of clients: the database, outgoing connections, logs, connections beyond
#: the limit and such as are closing. Where few may be open it is half of them.
_OTHER_FILES: Final = 384


@attrs.frozen(kw_only=True)
class Limits:
    """The limits that the HTTP edge holds every request to (rulings: bad input). Sizes in bytes, times in seconds."""

    #: A request body; more is 413.
    body: int = 1024 * 1024
    #: The body of a request that loads policy; more is 413.
    policy_body: int = 32 * 1024 * 1024
    #: The line with the method and the path; more is 414.
    request_line: int = 64 * 1024
    #: All header lines together; more is 431.
    header_block: int = 32 * 1024
    #: How many header lines there may be; more is 431.
    header_count: int = 200
    #: A name in the path, decoded; more is 422.
    identifier: int = 1024
    #: A request from its first byte to its last, however it is spread; more is 408.
    request_seconds: float = 30.0
    #: A connection without a request in progress; then it is closed. Also how long a client may take to read an answer.
    idle_seconds: float = 75.0
    #: How many connections there may be, and from one address; further ones may ask about health alone.
    connections: int = 10_000
    connections_per_address: int = 2500


def most_connections() -> int:
    """How many connections of clients the number of files that this process may open leaves room for."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MANY_CONNECTIONS if files == resource.RLIM_INFINITY else files - min(_OTHER_FILES, files // 2)
