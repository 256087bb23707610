"""What one request may weigh, and how long it may take; how many connections there may be; what one record may carry."""

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
    """The limits that the HTTP edge holds every request to (LIM-1). Sizes in bytes, times in seconds."""

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


@attrs.frozen(kw_only=True)
class RecordLimits:
    """How much one record of policy may carry, whoever gave it that, and in however many loads; more is 422.

    Everybody who sees a record may ask for all of it. What was stored before there were limits is told all the same, but for
    restrictions, layers and keys beyond them.
    """

    #: Annotations of a resource.
    annotations: int = 1000
    #: Their names and values together, in bytes of UTF-8.
    annotation_bytes: int = 256 * 1024
    #: Privileges on a resource, each counted for each role that was given it.
    permissions: int = 10_000
    #: Networks that a user or host is restricted to: a login reads no more.
    restrictions: int = 1000
    #: Public keys of a user: anybody may ask for them, and is told no more.
    public_keys: int = 1000
    #: Layers of a host factory, each of which its hosts are put into.
    layers: int = 1000


#: The limits of records, unless the configuration says otherwise.
RECORD_LIMITS: Final = RecordLimits()


def most_connections() -> int:
    """How many connections of clients the number of files that this process may open leaves room for."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MANY_CONNECTIONS if files == resource.RLIM_INFINITY else files - min(_OTHER_FILES, files // 2)


def usual_connections() -> int:
    """How many there may be unless somebody says otherwise."""
    return min(Limits().connections, most_connections())
