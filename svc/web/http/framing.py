"""The end of a request's body, and heads that leave it ambiguous (RFC 9112 3.2, 6 and 7.1).

A proxy and this server that read one differently would see different requests in the same bytes: so the answer is 400, and
the connection closes.

Note [Chunks]: llhttp decodes chunks, in a parser that has been given a head of ours. It doesn't report where in a piece a
body ended. But a body can only end after an empty line: so it gets the input in parts that end there.
"""

from __future__ import annotations

import functools
import re
from typing import Final

from httptools import HttpParserError, HttpRequestParser

#: Headers by their names in lower case; each line of a name is a value, without the blanks around it.
Fields = dict[bytes, list[bytes]]

#: Bytes that may come without one of the body among them: extensions of chunks, and trailers, which are ignored.
MAX_OVERHEAD: Final = 4096

#: A host and perhaps a port (RFC 9110 7.2, RFC 3986 3.2.2); nobody's name is longer.
_HOST: Final = re.compile(rb"(?:\[[0-9A-Za-z:.~_%-]+\]|(?:[0-9A-Za-z._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)(?::[0-9]{0,5})?")
_HOST_LIMIT: Final = 300

#: As many digits as the largest number that the parser counts to; more of them begin with zeros.
_LENGTH_DIGITS: Final = 20

_CHUNKED_HEAD: Final = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
_EMPTY_LINE: Final = b"\r\n\r\n"


class MalformedRequest(Exception):
    """The input is no request, or is ambiguous."""


def is_unambiguous(fields: Fields, *, current: bool) -> bool:
    """Return whether a head states once, unambiguously, how long its body is and which host is requested.

    ``Transfer-Encoding`` may be there once, as ``chunked`` alone, without ``Content-Length``, in HTTP/1.1, which is what
    ``current`` means. ``Host`` must be there once in HTTP/1.1, and at most once in HTTP/1.0, with a value that is a host.
    """
    encodings, lengths = fields.get(b"transfer-encoding"), fields.get(b"content-length")
    if encodings is not None and (
        lengths is not None or not current or len(encodings) > 1 or encodings[0].lower() != b"chunked"
    ):
        return False
    if lengths is not None and (len(lengths) > 1 or len(lengths[0]) > _LENGTH_DIGITS or not lengths[0].isdigit()):
        return False
    hosts = fields.get(b"host")
    if hosts is None:
        return not current
    return len(hosts) == 1 and len(hosts[0]) <= _HOST_LIMIT and _is_host(hosts[0])


@functools.lru_cache(256)  # clients call a server by the same few
def _is_host(value: bytes) -> bool:
    return _HOST.fullmatch(value) is not None


class _BodyCollector:
    """The output of the parser of a chunked body: the pieces since the last take, and whether the body has ended."""

    __slots__ = ("ended", "on_body", "pieces")

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.ended = False
        self.on_body = self.pieces.append

    def on_message_begin(self) -> None:
        """Stop the parser, if it takes what follows the body for another request."""
        if self.ended:
            raise MalformedRequest

    def on_message_complete(self) -> None:
        """Note the end of the body."""
        self.ended = True


class ChunkDecoder:
    """A chunked body on its way in (Note [Chunks])."""

    __slots__ = ("_collector", "_overhead_size", "_parser", "_previous_end")

    def __init__(self) -> None:
        self._collector = _BodyCollector()
        self._parser = HttpRequestParser(self._collector)
        self._parser.feed_data(_CHUNKED_HEAD)
        #: The last bytes of the piece before, in which an empty line may have begun.
        self._previous_end = b""
        #: How many bytes have come since one of the body did.
        self._overhead_size = 0

    @property
    def has_ended(self) -> bool:
        """Whether the body has ended."""
        return self._collector.ended

    def decode(self, piece: bytes) -> tuple[bytes, int]:
        """Return what a piece has of the body, and how many of its bytes come after the body's end.

        :raises MalformedRequest: it is no chunked body, or has too much beside the body.
        """
        decoded, seen, start = self._collector, self._previous_end + piece, len(self._previous_end)
        while start < len(seen) and not decoded.ended:
            found = seen.find(_EMPTY_LINE, max(0, start - len(_EMPTY_LINE) + 1))
            end = len(seen) if found < 0 else found + len(_EMPTY_LINE)
            before = len(decoded.pieces)
            try:
                self._parser.feed_data(seen[start:end])
            except HttpParserError:
                raise MalformedRequest from None
            self._overhead_size = self._overhead_size + end - start if len(decoded.pieces) == before else 0
            if self._overhead_size > MAX_OVERHEAD:
                raise MalformedRequest
            start = end
        self._previous_end = seen[1 - len(_EMPTY_LINE) :]
        body = b"".join(decoded.pieces)
        decoded.pieces.clear()
        return body, len(seen) - start
