"""One connection and the requests on it, held to their limits beyond what ``HTTPChannel`` does.

Note [Answering early]: a request may be refused while it is still coming in. Then the answer is written at once, and no
other follows. But closing a socket that has unread bytes resets it, and a reset can overtake the answer. So this side only
stops writing, and goes on reading and dropping for ``LINGER`` seconds, or until the client closes. A refusal that leaves the
body within its limit waits for the end of the body, of which nothing is kept, and the connection stays usable.

Note [Bounded]: the parser is given what came in by pieces, as far as the end of one request; the rest waits for its turn
(``pacing``, Note [Turns]), and beyond ``HELD`` unread bytes no more is read. While the client doesn't take its answers no
further request is begun, and one that takes none of them for as long as it may be idle is cut off. Twisted alone pauses a
client that doesn't read only between requests, and there is always one under way where answers are made at once.

Note [Names of the parser]: attributes of Twisted's classes are used that its documentation doesn't name (``_buffer``,
``_dataBuffer``, ``_transferDecoder`` …), and ``_respondToBadRequestAndDisconnect`` is the method through which its parser
refuses. Tests over sockets hold us to them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.interfaces import ITCPTransport
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel

from svc.web.http.deadline import Deadline
from svc.web.http.faults import HEADERS_TOO_LARGE, LINE_TOO_LONG, MALFORMED, TOO_LARGE, TOO_SLOW
from svc.web.http.framing import is_sound
from svc.web.http.occupancy import Occupancy
from svc.web.http.origin import plain
from svc.web.http.pacing import HELD, PIECE, TRAILERS, Turns, Unread
from svc.web.http.request import HttpConfig, Request
from svc.web.http.response import Response
from svc.web.http.stream import Stream

#: Seconds for which a client that was refused in mid-request may take its answer, and for which a close may take.
LINGER: Final = 5.0

#: How long a connection beyond the limit may be idle, and a request on it take to arrive, in seconds.
OVERFLOW_SECONDS: Final = 5.0

#: A ``Content-Length`` of more digits is too large, whatever they are; Python refuses to read thousands of them.
_LENGTH_DIGITS: Final = 18

#: Blank lines that are passed over before a request, as some clients send them after a body (RFC 9112 2.2).
_BLANK_LINES: Final = 4


class Channel(HTTPChannel):
    """A connection. Requests are answered in their order, one at a time.

    ``turns`` and ``occupancy`` are those of all connections; ``on_closed`` is called with this one when it has closed.
    """

    timeOut = None
    transport: ITCPTransport

    def __init__(self, config: HttpConfig, turns: Turns, occupancy: Occupancy, on_closed: Callable[[Channel], None]) -> None:
        super().__init__()
        limits = config.limits
        self.peer = "127.0.0.1"
        self.overflow = False
        self.requestFactory = lambda *_: Request(self, config)  # type: ignore[assignment]  # a callable will do
        # Reached only after our own, which answer better.
        self.totalHeadersSize = limits.request_line + limits.header_block
        self.maxHeaders = limits.header_count
        self.MAX_LENGTH = limits.request_line
        self._config = config
        self._turns = turns
        self._occupancy = occupancy
        self._idle_seconds, self._request_seconds = limits.idle_seconds, limits.request_seconds
        self._on_closed = on_closed
        self._unread = Unread()
        self._parsing = False
        self._answered: Request | None = None
        self._queued = False
        self._held = False
        self._deaf = False
        self._in_headers = False
        self._header_bytes = 0
        self._header_lines = 0
        self._blank_lines = 0
        self._receiving = False
        self._answering = False
        self._refusing = False
        self._retiring = False
        self._closing = False
        self._stalled = False
        self._chunks = True
        self._deadline = Deadline(config.clock, self._is_overdue)

    # -- request.Connection

    def answer(self, request: Request, response: Response) -> None:
        """Write the answer to a request that is complete, and go on to the next."""
        self._write(response, request)
        self.requestDone(request)

    def open(self, request: Request, response: Response) -> Stream:
        """Write the head of an answer in pieces to a request that is complete, and return what writes them."""
        self._write(response, request, chunked=self._chunks)
        stream = Stream(self.transport.write, chunked=self._chunks)
        self.registerProducer(stream, True)
        if self._waitingForTransport:
            stream.pauseProducing()
        return stream

    def finish(self, request: Request) -> None:
        """Go on to the next request, now that the last piece was written."""
        self.unregisterProducer()
        self.persistent = self.persistent and not self._retiring
        self.requestDone(request)

    def refuse(self, response: Response, request: Request | None = None) -> None:
        """Write the answer to a request that is not complete, and take no other. See Note [Answering early]."""
        if self._refusing:
            return
        self._refusing = self._deaf = True
        self._unread.clear()
        self._transferDecoder = None
        self.persistent = False
        for begun in self.requests:
            begun.abandon()
        self._write(response, request)
        # Whatever is in the parser's hands goes to ``rawDataReceived``, which drops it.
        self.setRawMode()
        # TLS can't stop writing alone; its clients have a length to go by.
        if not self.isSecure() and ITCPTransport.providedBy(self.transport):
            self.transport.loseWriteConnection()
        self._deadline.set(LINGER)

    def proceed(self) -> None:
        """Tell the client to send the body."""
        self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def abort(self) -> None:
        """Close at once, whatever is under way."""
        self.transport.abortConnection()

    def retire(self) -> None:
        """Close after the request in progress, at once if there is none."""
        self._retiring = True
        if self._refusing or not self._busy():
            self._close()

    def _write(self, response: Response, request: Request | None, *, chunked: bool = True) -> None:
        self.persistent = self.persistent and not self._retiring
        head, body = response.wire(
            self._config.common_headers(),
            request_id=request.request_id if request else None,
            close=not self.persistent,
            head=request is not None and request.head,
            chunked=chunked,
        )
        self.transport.writeSequence([head, body])

    # -- what Twisted's parser calls, or does

    def connectionMade(self) -> None:
        """Begin to wait for the first request."""
        super().connectionMade()
        address = self.getPeer()
        if isinstance(address, IPv4Address | IPv6Address):
            self.peer = plain(address.host)
        self.overflow = not self._occupancy.enter(self)
        if self.overflow:
            self._idle_seconds = min(self._idle_seconds, OVERFLOW_SECONDS)
            self._request_seconds = min(self._request_seconds, OVERFLOW_SECONDS)
        self._watch()

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]  # the base class leaves it untyped
        """Let go of what was begun."""
        self._closing = self._deaf = True
        self._unread.clear()
        self._deadline.end()
        self._occupancy.leave(self)
        self._on_closed(self)
        super().connectionLost(reason)
        # Cycles would stay until the garbage is collected.
        self.requests.clear()
        self._transferDecoder = None
        del self.requestFactory

    def dataReceived(self, data: bytes) -> None:
        """Take what came in, unless this connection has said its last word; a TLS one may get data while it closes."""
        if self._deaf:
            return
        self._unread.append(data)
        if not self._queued:
            self._parse()
        self._settle()

    def rawDataReceived(self, data: bytes) -> None:
        """Take in a piece of a body, or what comes after a request that is being answered."""
        if not self._refusing:
            super().rawDataReceived(data)

    def lineReceived(self, line: bytes) -> None:
        """Read a line of a request's head, within the limits for all of its headers."""
        first = not self._in_headers
        if first and not line:
            self._blank_lines += 1
            if self._blank_lines > _BLANK_LINES:
                self.refuse(MALFORMED)
            return
        if not first:
            self._header_bytes += len(line) + len(self.delimiter)
            self._header_lines += bool(line)
            limits = self._config.limits
            if self._header_bytes > limits.header_block or self._header_lines > limits.header_count:
                self.refuse(HEADERS_TOO_LARGE)
                return
        super().lineReceived(line)
        if first and not self._refusing:
            self._in_headers = True
            self._header_bytes = self._header_lines = self._blank_lines = 0
            self.MAX_LENGTH = self._config.limits.header_block

    def lineLengthExceeded(self, line: bytes) -> None:  # noqa: ARG002
        """Refuse a line of a request's head that is longer than all of it may be."""
        self.refuse(HEADERS_TOO_LARGE if self._in_headers else LINE_TOO_LONG)

    def headerReceived(self, line: bytes) -> bool:
        """Keep a header, once its line and those that continue it are there; return whether it was fit."""
        if line[:15].lower() == b"content-length:":
            length = line[15:].strip()
            if len(length) > _LENGTH_DIGITS and length.isdigit():
                self.refuse(TOO_LARGE)
                return False
        return bool(super().headerReceived(line))

    def allHeadersReceived(self) -> None:
        """Begin to answer a request whose body is still to come."""
        [request] = self.requests
        self._in_headers = False
        self.MAX_LENGTH = self._config.limits.request_line
        self.persistent = self.checkPersistence(request, self._version)
        self._chunks = self._version == b"HTTP/1.1"
        if not is_sound(request.requestHeaders, self._version):
            self.refuse(MALFORMED)
            return
        if self.length == 0:
            return
        decoder: Any = self._transferDecoder
        if self.length is None:
            decoder._maxTrailerHeadersSize = TRAILERS
        request.begin(self._command, self._path, self.length)
        expected = request.requestHeaders.getRawHeaders(b"Expect", ())
        if not self._refusing and self._version == b"HTTP/1.1" and b"100-continue" in map(bytes.lower, expected):
            request.invite()

    def checkPersistence(self, request: Request, version: bytes) -> bool:
        """Return whether another request may follow on this connection."""
        options = b",".join(request.requestHeaders.getRawHeaders(b"Connection", ())).lower().split(b",")
        return version == b"HTTP/1.1" and b"close" not in map(bytes.strip, options) and not self.overflow

    def allContentReceived(self) -> None:
        """Have the request answered, now that it is complete."""
        if self._refusing:
            return
        self._receiving = False
        self._answering = True
        super().allContentReceived()

    def pauseProducing(self) -> None:  # noqa: N802  # the name is Twisted's
        """Hold back, since the client doesn't take what there is; one that takes nothing for too long is overdue."""
        super().pauseProducing()
        if not self._refusing and not self._closing:
            self._stalled = True
            self._occupancy.work(self)
            self._deadline.set(self._idle_seconds)

    def resumeProducing(self) -> None:  # noqa: N802  # the name is Twisted's
        """Go on, since the client takes it."""
        self._stalled = False
        super().resumeProducing()
        self._settle()

    def requestDone(self, request: Request) -> None:
        """Go on to the next request, or close."""
        if self._parsing:
            # The parser still has what follows this request: that comes back first.
            self._answered = request
        else:
            self._conclude(request)
            self._settle()

    def _respondToBadRequestAndDisconnect(self) -> None:
        self.refuse(MALFORMED)

    # -- Note [Bounded]

    def _parse(self) -> None:
        """Make one step: as far as the end of a request, or of a piece of a chunked body."""
        unread = self._unread
        self._parsing = True
        while unread.size and not (self._handlingRequest or self._waitingForTransport or self._deaf):
            super().dataReceived(unread.take(PIECE))
            if self._dataBuffer:
                unread.give_back(sum(map(len, self._dataBuffer)))
                self._dataBuffer.clear()
            if self.length is None:
                break
        self._parsing = False
        answered, self._answered = self._answered, None
        if answered is not None:
            self._conclude(answered)

    def _conclude(self, request: Request) -> None:
        self._answering = False
        super().requestDone(request)
        if not self.persistent:
            self._deaf = True
            self._unread.clear()

    def _settle(self) -> None:
        """Have what is unread wait for its turn, read more if there is room, and note what this connection waits for."""
        size = self._unread.size
        if size and not (self._queued or self._handlingRequest or self._waitingForTransport):
            self._queued = True
            self._turns.add(self._take_turn)
        if size > HELD:
            self._held = True
            self._networkProducer.pauseProducing()
        elif self._held:
            self._held = False
            self._networkProducer.resumeProducing()
        self._watch()

    def _take_turn(self) -> None:
        self._queued = False
        if self._deaf:
            return
        try:
            self._parse()
            self._settle()
        except BaseException:
            # The reactor ends a connection whose reading raises; so does this.
            self.abort()
            raise

    # -- the one moment at which something is overdue: the rest of a request, the next request, or the end

    def _busy(self) -> bool:
        """Return whether a request has begun to arrive and is not answered."""
        return bool(self.requests or self._buffer or self._unread.size)

    def _watch(self) -> None:
        """Note what this connection waits for now, and until when."""
        if self._refusing or self._closing or self._stalled:
            return
        if not self._busy():
            self._receiving = False
            self._deadline.set(self._idle_seconds)
            self._occupancy.rest(self)
            return
        self._occupancy.work(self)
        if self._answering:
            self._deadline.lift()
        elif not self._receiving:
            # From the first byte to the last, however lively the sender is in between.
            self._receiving = True
            self._deadline.set(self._request_seconds)

    def _is_overdue(self) -> None:
        if self._closing:
            self.abort()
        elif self._receiving and not self._refusing:
            self.refuse(TOO_SLOW)
        else:
            self._close()

    def _close(self) -> None:
        self._closing = self._deaf = True
        self._deadline.set(LINGER)
        self.loseConnection()
