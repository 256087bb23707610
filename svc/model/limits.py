"""Limits of requests, of connections, and of records."""

from __future__ import annotations

import resource
from typing import Final

import attrs

#: More connections than a process could serve.
MANY_CONNECTIONS: Final = 1_000_000

#: Open files that are kept for all else: the database, outgoing connections, logs, connections beyond the limit and those
#: that are closing. Where few may be open it is half of them.
_OTHER_FILES: Final = 384


@attrs.frozen(kw_only=True)
class Limits:
    """The limits that the HTTP edge holds every request to (LIM-1). Sizes in bytes, times in seconds."""

    body: int = 1024 * 1024  #: of a request; more is 413
    policy_body: int = 32 * 1024 * 1024  #: the body of a request that loads policy; more is 413
    request_line: int = 64 * 1024  #: the line with the method and the path; more is 414
    header_limit: int = 32 * 1024  #: all header lines together; more is 431
    header_count: int = 200  #: header lines; more is 431
    identifier: int = 1024  #: a name in the path, decoded; more is 422
    request_seconds: float = 30.0  #: from a request's first byte to its last, however it is spread; more is 408
    idle_seconds: float = 75.0  #: a connection without a request in progress, and the reading of an answer
    #: How many connections there may be, and from one address; further ones may ask about health alone.
    connections: int = 10_000
    connections_per_address: int = 2500


@attrs.frozen(kw_only=True)
class RecordLimits:
    """The limits of one record of policy, however its data was added; more is 422.

    Everybody who sees a record may request all of it. Data stored before there were limits is returned all the same, except
    for restrictions, layers and keys beyond them.
    """

    annotations: int = 1000  #: of a resource
    annotation_bytes: int = 256 * 1024  #: their names and values together, in UTF-8
    permissions: int = 10_000  #: privileges on a resource, each counted for each role that was given it
    restrictions: int = 1000  #: networks that a user or host is restricted to: a login reads no more
    public_keys: int = 1000  #: of a user: anybody may request them, and no more are returned
    layers: int = 1000  #: of a host factory, each of which its hosts are put into


#: The limits of records, unless the configuration says otherwise.
RECORD_LIMITS: Final = RecordLimits()


def connections_by_file_limit() -> int:
    """Return how many connections of clients the number of files that this process may open leaves room for."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MANY_CONNECTIONS if files == resource.RLIM_INFINITY else files - min(_OTHER_FILES, files // 2)


def default_connections() -> int:
    """Return how many there may be unless the configuration says otherwise."""
    return min(Limits().connections, connections_by_file_limit())
