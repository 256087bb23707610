"""Requests read from the bytes of a connection, one after the other, within the limits of their heads.

Note [Whole heads]: a head is read when all of it is there. Its limits hold before that: a first line that is none, or too
long, and headers that are too many or too large are refused while the rest is still coming in. So no more is kept of a head
than it may weigh, an eighth, and what one reading brings.
"""

from __future__ import annotations

from typing import Final

from svc.model.limits import Limits
from svc.web.http.framing import ChunkDecoder, MalformedRequest
from svc.web.http.head import AbsurdLength, Head, is_first_line
from svc.web.http.refusal_responses import HEADERS_TOO_LARGE, LINE_TOO_LONG, MALFORMED, TOO_LARGE
from svc.web.http.response import Response

#: Bytes of a chunked body that are read at a time; when they are empty lines alone they take a quarter of a millisecond.
PIECE_SIZE: Final = 1024

#: Blank lines that are passed over before a request, as some clients send them after a body (RFC 9112 2.2).
_BLANK_LINES: Final = 4

_LINE_END: Final = b"\r\n"
_HEAD_END: Final = b"\r\n\r\n"


class UnreadableRequest(Exception):
    """The input can't be read as a request; ``response`` is the answer to it."""

    def __init__(self, response: Response) -> None:
        super().__init__()
        self.response = response


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
                raise UnreadableRequest(MALFORMED)
        start = self._taken
        end = received.find(_HEAD_END, start + max(0, self._searched_size - len(_HEAD_END) + 1))
        self.size = len(received) - start
        if end < 0:
            self._check_partial_head()
            return None
        self._taken = end + len(_HEAD_END)
        self.size = len(received) - self._taken
        line, _, block = received[start : self._taken].partition(_LINE_END)
        self._blank_lines = self._searched_size = self._next_check_size = 0
        if len(line) > limits.request_line:
            raise UnreadableRequest(LINE_TOO_LONG)
        if len(block) > limits.header_block or block.count(b"\n") > limits.header_count + 1:
            raise UnreadableRequest(HEADERS_TOO_LARGE)
        try:
            head = Head(line, block)
        except MalformedRequest:
            raise UnreadableRequest(MALFORMED) from None
        except AbsurdLength:
            raise UnreadableRequest(TOO_LARGE) from None
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
            return body, not self._remaining
        try:
            body, rest = chunks.decode(body)
        except MalformedRequest:
            raise UnreadableRequest(MALFORMED) from None
        self._taken -= rest
        self.size = len(self._received) - self._taken
        if chunks.has_ended:
            self._chunks = None
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
            raise UnreadableRequest(LINE_TOO_LONG)
        # A client that ends lines with LF alone would wait for the timer.
        if (ended and not is_first_line(line)) or b"\n" in line or block.count(b"\n") > block.count(_LINE_END):
            raise UnreadableRequest(MALFORMED)
        if len(block) > limits.header_block or block.count(b"\n") > limits.header_count:
            raise UnreadableRequest(HEADERS_TOO_LARGE)
