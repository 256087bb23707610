"""Requests as bytes on connections that stay open, several at a time, and answers read strictly."""

from __future__ import annotations

import re
import select
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs

_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2}) [ -~]*")
_HEADER: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+): ?([ -~]*)")
_CHUNK_SIZE: Final = re.compile(rb"[0-9A-Fa-f]{1,8}")

#: Answers that have no body, whatever their headers say.
_BODILESS: Final = frozenset({204, 304})


class Malformed(Exception):
    """What was answered is no answer of HTTP."""


@attrs.frozen
class Reply:
    """An answer; ``body`` is ``None`` where it doesn't end, and wasn't waited for."""

    status: int
    headers: Mapping[str, str]
    body: bytes | None


@attrs.frozen
class Sending:
    """The bytes of a request, and how its answer is read.

    ``ended`` is whether the client then says that it sends no more; the server need not answer one that wasn't whole.
    """

    data: bytes
    head: bool = False
    ended: bool = False


@attrs.define(eq=False)
class Line:
    """One connection, on which one request at a time waits for its answer; it is opened when it is needed."""

    address: tuple[str, int]
    patience: float
    sending: Sending | None = None
    began: float = 0.0
    _socket: socket.socket | None = None
    _unread: bytearray = attrs.field(factory=bytearray)
    #: Whether the connection had been idle, so that the server may have closed it before the request came.
    _again: bool = False
    _heard: bool = False

    def fileno(self) -> int:
        """Return what is waited for."""
        if self._socket is None:
            raise ValueError("this one waits for nothing")
        return self._socket.fileno()

    def send(self, sending: Sending) -> None:
        """Send a request."""
        self.sending, self.began = sending, time.monotonic()
        self._again, self._heard = self._socket is not None, False
        try:
            self._write(sending)
        except OSError:
            # It may have answered all the same, before it closed; what there is of that is read.
            if self._socket is None:
                raise

    def reply(self) -> Reply | None:
        """Read the answer; ``None`` where the server closed without one.

        :raises TimeoutError: it doesn't come.
        :raises Malformed: it is none.
        """
        sending = self.sending
        if sending is None:
            raise ValueError("nothing was sent")
        try:
            found = self._read(head=sending.head)
        except (ConnectionError, EOFError):
            self.close()
            if self._heard:
                self.sending = None
                raise Malformed("an answer breaks off") from None
            if not self._again or sending.ended:
                self.sending = None
                return None
            self._again = False
            self._write(sending)
            return self.reply()
        except BaseException:
            self.close()
            self.sending = None
            raise
        self.sending = None
        if sending.ended or found.body is None or "close" in found.headers.get("connection", ""):
            self.close()
        return found

    def close(self) -> None:
        """Close it; it can be used again."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        self._unread.clear()

    def _write(self, sending: Sending) -> None:
        if self._socket is None:
            self._socket = socket.create_connection(self.address, self.patience)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(sending.data)
        if sending.ended:
            self._socket.shutdown(socket.SHUT_WR)

    def _more(self) -> None:
        if self._socket is None:
            raise EOFError
        received = self._socket.recv(65536)
        if not received:
            raise EOFError
        self._heard = True
        self._unread += received

    def _taken(self, size: int) -> bytes:
        while len(self._unread) < size:
            self._more()
        found = bytes(self._unread[:size])
        del self._unread[:size]
        return found

    def _through(self, end: bytes) -> bytes:
        while (place := self._unread.find(end)) < 0:
            self._more()
        return self._taken(place + len(end))[: -len(end)]

    def _read(self, *, head: bool) -> Reply:
        lines = self._through(b"\r\n\r\n").split(b"\r\n")
        matched = _STATUS_LINE.fullmatch(lines[0])
        if matched is None:
            raise Malformed(f"the first line is {lines[0][:200]!r}")
        status = int(matched[1])
        if status < 200:
            return self._read(head=head)
        headers: dict[str, str] = {}
        for line in lines[1:]:
            matched = _HEADER.fullmatch(line)
            if matched is None:
                raise Malformed(f"a header is {line[:200]!r}")
            headers[matched[1].decode("ascii").lower()] = matched[2].decode("ascii")
        if head or status in _BODILESS:
            # An answer to HEAD tells the length of what doesn't follow.
            return Reply(status, headers, b"")
        if headers.get("content-type", "").startswith("text/event-stream"):
            return Reply(status, headers, None)
        if headers.get("transfer-encoding") == "chunked":
            return Reply(status, headers, b"".join(self._chunks()))
        length = headers.get("content-length")
        if length is not None:
            return Reply(status, headers, self._taken(int(length)))
        if "close" not in headers.get("connection", ""):
            raise Malformed("an answer has no end")
        return Reply(status, headers, self._rest())

    def _chunks(self) -> Iterator[bytes]:
        while True:
            size = self._through(b"\r\n")
            if _CHUNK_SIZE.fullmatch(size) is None:
                raise Malformed(f"the size of a chunk is {size[:200]!r}")
            piece = self._taken(int(size, 16) + 2)
            if not piece.endswith(b"\r\n"):
                raise Malformed("a chunk is longer than it says")
            if len(piece) == 2:
                return
            yield piece[:-2]

    def _rest(self) -> bytes:
        try:
            while True:
                self._more()
        except EOFError:
            return self._taken(len(self._unread))


def ready(lines: Sequence[Line], patience: float) -> list[Line]:
    """Return those of the lines that have something to read, after a while perhaps none."""
    return select.select(lines, [], [], patience)[0]
