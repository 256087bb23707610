"""The heads of requests that leave in doubt where the body ends, or which host is asked (RFC 9112 3.2 and 6).

A proxy and this server that read one differently would see different requests in the same bytes: so the answer is 400, and
the connection closes.
"""

from __future__ import annotations

import functools
import re
from typing import Final

from twisted.web.http_headers import Headers

_CURRENT: Final = b"HTTP/1.1"

#: A host and perhaps a port (RFC 9110 7.2, RFC 3986 3.2.2); nobody's name is longer.
_HOST: Final = re.compile(rb"(?:\[[0-9A-Za-z:.~_%-]+\]|(?:[0-9A-Za-z._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)(?::[0-9]{0,5})?")
_HOST_LIMIT: Final = 300


def is_sound(headers: Headers, version: bytes) -> bool:
    """Return whether a head says once, and plainly, how long its body is and which host is asked.

    ``Transfer-Encoding`` may be there once, as ``chunked`` alone, without ``Content-Length``, in HTTP/1.1. ``Host`` must be
    there once in HTTP/1.1, and at most once in HTTP/1.0, with a value that is a host.
    """
    encodings = headers.getRawHeaders(b"Transfer-Encoding")
    if encodings is not None:
        alone = len(encodings) == 1 and encodings[0].lower() == b"chunked"
        if not alone or version != _CURRENT or headers.hasHeader(b"Content-Length"):
            return False
    hosts = headers.getRawHeaders(b"Host")
    if hosts is None:
        return version != _CURRENT
    return len(hosts) == 1 and len(hosts[0]) <= _HOST_LIMIT and _is_host(hosts[0])


@functools.lru_cache(256)  # clients call a server by the same few
def _is_host(value: bytes) -> bool:
    return _HOST.fullmatch(value) is not None
