"""Requests read from the bytes of a connection, one after the other, within the limits of their heads (``model/limits.py``).

Note [Whole heads]: a head is read when all of it is there. Its limits hold before that: a first line that is none, or too
long, and headers that are too many or too large are refused while the rest is still coming in. So no more is kept of a head
than it may weigh, an eighth, and what one reading brings.

Note [What llhttp reads]: llhttp, the parser of Node, reads the lines of headers, and reads a head as one or not at all. The
first line is read here: llhttp knows some methods only, passes over blanks that shouldn't be there, takes versions that are
none of ours, and stops reading at the preface of HTTP/2 and at ``Upgrade``. So each head has a parser of its own, which gets
``_FIRST_LINE`` in place of the client's, and nothing of what follows the head; its result on keep-alive and upgrades isn't
used. ``CONNECT`` is refused, since a proxy may take what follows it for something else than HTTP.

Note [Chunks]: llhttp decodes chunks, in a parser that has been given a head of ours. It doesn't report where in a piece a
body ended. But a body can only end after an empty line: so it gets the input in parts that end there.
"""

from __future__ import annotations

import enum
import functools
import re
from typing import Final

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from svc.model.limits import Limits

#: Bytes of a chunked body that are read at a time; when they are empty lines alone they take a quarter of a millisecond.
PIECE_SIZE: Final = 1024

#: Blank lines that are passed over before a request, as some clients send them after a body (RFC 9112 2.2).
_BLANK_LINES: Final = 4

_LINE_END: Final = b"\r\n"
_HEAD_END: Final = b"\r\n\r\n"


class Unreadable(enum.Enum):
    """Why input can't be read as a request; ``refusal_responses`` has the answers."""

    MALFORMED = enum.auto()
    TOO_LARGE = enum.auto()
    LINE_TOO_LONG = enum.auto()
    HEADERS_TOO_LARGE = enum.auto()


class UnreadableRequest(Exception):
    """The input can't be read as a request."""

    def __init__(self, why: Unreadable) -> None:
        super().__init__()
        self.why = why


class Reader:
    """Reads the received bytes of a connection as requests: a head, then its body, then the next head.

    ``size`` counts the bytes that are unread; ``needs_more`` says that these are the beginning of a head, of which more
    must come. Reading some bytes moves no others.
    """

    __slots__ = (
        "_blank_lines",
        "_chunks",
        "_limits",
        "_next_check_size",
        "_received",
        "_remaining",
        "_searched_size",
        "_taken",
        "needs_more",
        "size",
    )

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        #: The bytes that were received last, after those that were unread before; and how many of them are read.
        self._received = b""
        self._taken = 0
        self.size = 0
        self.needs_more = False
        self._blank_lines = 0
        #: How many bytes of it were searched for the end of the head, and the size at which its limits are checked again.
        self._searched_size = 0
        self._next_check_size = 0
        #: Bytes of a body that are still to come.
        self._remaining = 0
        self._chunks: ChunkDecoder | None = None

    def append(self, data: bytes) -> None:
        """Add what was received."""
        self._received = self._received[self._taken :] + data if self.size else data
        self._taken = 0
        self.size = len(self._received)
        self.needs_more = False

    def clear(self) -> None:
        """Forget it."""
        self._received, self._taken, self.size = b"", 0, 0
        self._chunks = None

    def read_head(self) -> Head | None:
        """Read the head of a request; ``None`` while it isn't whole.

        :raises Unreadable: it is none, or larger than it may be.
        """
        received, limits = self._received, self._limits
        while received.startswith(_LINE_END, self._taken):
            self._taken += len(_LINE_END)
            self._blank_lines += 1
            if self._blank_lines > _BLANK_LINES:
                raise UnreadableRequest(Unreadable.MALFORMED)
        start = self._taken
        end = received.find(_HEAD_END, start + max(0, self._searched_size - len(_HEAD_END) + 1))
        self.size = len(received) - start
        if end < 0:
            self._check_partial_head()
            return None
        self._taken = end = end + len(_HEAD_END)
        self.size = len(received) - end
        line, _, block = received[start:end].partition(_LINE_END)
        if not self.size:
            # The connection may rest for long.
            self._received, self._taken = b"", 0
        self._blank_lines = self._searched_size = self._next_check_size = 0
        if len(line) > limits.request_line:
            raise UnreadableRequest(Unreadable.LINE_TOO_LONG)
        if len(block) > limits.header_limit or block.count(b"\n") > limits.header_count + 1:
            raise UnreadableRequest(Unreadable.HEADERS_TOO_LARGE)
        try:
            head = Head(line, block)
        except MalformedRequest:
            raise UnreadableRequest(Unreadable.MALFORMED) from None
        except AbsurdLength:
            raise UnreadableRequest(Unreadable.TOO_LARGE) from None
        self._remaining = head.length or 0
        self._chunks = ChunkDecoder() if head.length is None else None
        return head

    def read_body(self) -> tuple[bytes, bool]:
        """Read what has come of a body, of one in chunks a piece; the second is whether it has ended.

        :raises Unreadable: these are no chunks.
        """
        start, chunks = self._taken, self._chunks
        end = start + (self._remaining if chunks is None else PIECE_SIZE)
        body = self._received[start:end]
        self._taken = start + len(body)
        if chunks is None:
            self._remaining -= len(body)
            self.size -= len(body)
            if not self.size:
                # The connection may rest for long.
                self._received, self._taken = b"", 0
            return body, not self._remaining
        try:
            body, rest = chunks.decode(body)
        except MalformedRequest:
            raise UnreadableRequest(Unreadable.MALFORMED) from None
        self._taken -= rest
        self.size = len(self._received) - self._taken
        if chunks.has_ended:
            self._chunks = None
        if not self.size:
            self._received, self._taken = b"", 0
        return body, chunks.has_ended

    def _check_partial_head(self) -> None:
        """Refuse the beginning of a head that nothing can follow (Note [Whole heads])."""
        limits, size = self._limits, self.size
        self.needs_more = True
        self._searched_size = size
        if size < self._next_check_size:
            return
        # A long head that comes byte by byte isn't gone through for each of them.
        self._next_check_size = size * 9 // 8 - 128
        line, ended, block = self._received[self._taken :].partition(_LINE_END)
        # A line without its end yet may have the first half of it (CR).
        if len(line) > limits.request_line + (not ended):
            raise UnreadableRequest(Unreadable.LINE_TOO_LONG)
        # A client that ends lines with LF alone would wait for the timer.
        if (ended and not is_first_line(line)) or b"\n" in line or block.count(b"\n") > block.count(_LINE_END):
            raise UnreadableRequest(Unreadable.MALFORMED)
        if len(block) > limits.header_limit or block.count(b"\n") > limits.header_count:
            raise UnreadableRequest(Unreadable.HEADERS_TOO_LARGE)


#: Method, target and version (RFC 9112 3), with one blank in between. ``#`` can't be in a target: some would cut it there.
_LINE: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([!\"$-~]+) HTTP/1\.([01])")

_FIRST_LINE: Final = b"POST / HTTP/1.1\r\n"

#: The end of a line and the beginning of one that continues it, which together are a blank (RFC 9112 5.2).
_FOLD: Final = re.compile(rb"\r\n[\t ]+")

#: A ``Content-Length`` that no integer of the parser's holds.
_ABSURD_LENGTH: Final = re.compile(rb"(?:^|\n)content-length:[\t ]*[0-9]{19,}[\t ]*\r", re.IGNORECASE)


class AbsurdLength(Exception):
    """A head announces a body of more bytes than can be counted."""


class Head:
    """A request's method and target as they arrived, its headers, and what they say of its body."""

    __slots__ = ("_is_whole", "fields", "is_http11", "is_persistent", "length", "method", "target")

    def __init__(self, line: bytes, block: bytes) -> None:
        """Read a head.

        :param line: its first line, without the line's end.
        :param block: all that follows, with the blank line.
        :raises MalformedRequest: it can't be read.
        :raises AbsurdLength: it announces more bytes than the parser can count.
        """
        matched = _LINE.fullmatch(line)
        if matched is None:
            raise MalformedRequest
        method, target, minor = matched.groups()
        self.method = method.decode("ascii")
        self.target = target.decode("ascii")
        if method == b"CONNECT":
            raise MalformedRequest
        #: Whether the version is HTTP/1.1, not 1.0.
        self.is_http11 = minor == b"1"
        self.fields: Fields = {}
        self._is_whole = False
        try:
            HttpRequestParser(self).feed_data(_FIRST_LINE + block)
        except HttpParserUpgrade:
            pass
        except HttpParserError:
            self._parse_folded(block)
        if not self._is_whole:
            raise MalformedRequest
        # A head has to state once, unambiguously, how long its body is and which host is requested.
        fields = self.fields
        encodings, lengths, hosts = fields.get(b"transfer-encoding"), fields.get(b"content-length"), fields.get(b"host")
        #: The value of ``Content-Length``, 0 if there is none, ``None`` for a chunked body.
        self.length: int | None = 0
        if encodings is not None:
            if lengths is not None or not self.is_http11 or len(encodings) > 1 or encodings[0].lower() != b"chunked":
                raise MalformedRequest
            self.length = None
        elif lengths is not None:
            if len(lengths) > 1 or len(lengths[0]) > _LENGTH_DIGITS or not lengths[0].isdigit():
                raise MalformedRequest
            self.length = int(lengths[0])
        if self.is_http11 if hosts is None else len(hosts) > 1 or len(hosts[0]) > _HOST_LIMIT or not _is_host(hosts[0]):
            raise MalformedRequest
        options = fields.get(b"connection", ())
        #: Whether another request may follow on the connection (WIRE-43).
        self.is_persistent = self.is_http11 and not (
            options and b"close" in map(bytes.strip, b",".join(options).lower().split(b","))
        )

    @property
    def expects_continue(self) -> bool:
        """Whether the client waits for ``100 Continue`` before it sends the body (RFC 9110 10.1.1)."""
        expected = self.fields.get(b"expect")
        return expected is not None and self.is_http11 and b"100-continue" in map(bytes.lower, expected)

    def _parse_folded(self, block: bytes) -> None:
        """Read headers that the parser has refused, as it does when one of them is folded."""
        self.fields, self._is_whole = {}, False
        try:
            HttpRequestParser(self).feed_data(_FIRST_LINE + _FOLD.sub(b" ", block))
        except HttpParserUpgrade:
            pass
        except HttpParserError:
            raise AbsurdLength if _ABSURD_LENGTH.search(block) else MalformedRequest from None

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header, as the parser calls it."""
        name, value = name.lower(), value.rstrip(b"\t ")
        values = self.fields.get(name)
        if values is None:
            self.fields[name] = [value]
        else:
            values.append(value)

    def on_headers_complete(self) -> None:
        """Note that the head is whole, as the parser calls it."""
        self._is_whole = True


def is_first_line(line: bytes) -> bool:
    """Return whether this can be the first line of a request."""
    return _LINE.fullmatch(line) is not None


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
