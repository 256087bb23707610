"""Requests: their bodies as they come in, the answer on its way back to the connection, and the ids of requests."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Callable, Iterator
from email.utils import formatdate
from typing import Final, Protocol

import attrs
from twisted.internet.defer import CancelledError, Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from svc.model.clocks import WallClock
from svc.model.errors import StoreUnavailable, TooLarge
from svc.model.limits import Limits
from svc.web.http.client_address import TrustedProxies
from svc.web.http.refusal_responses import internal_error
from svc.web.http.request_reader import Fields, Head
from svc.web.http.response import Response
from svc.web.http.stream import Stream

_log = Logger()

#: A client's request id that is fit to stand in a header and in a log.
_REQUEST_ID: Final = re.compile("[A-Za-z0-9._~:/+=@-]{1,128}", re.ASCII)

#: Characters of an id that is made here, which are hexadecimal; and how many ids are made at a time.
ID_LENGTH: Final = 16
BATCH_SIZE: Final = 512


@attrs.define(kw_only=True, eq=False)
class HttpConfig:
    """The settings and the services that all connections share."""

    #: Answers a request; see ``routing.Router.respond``.
    respond: Callable[[IncomingRequest], Deferred[Response]]
    limits: Limits
    clock: IReactorTime
    wall: WallClock
    #: Makes ids for requests that bring none, and for bugs.
    new_id: Callable[[], str]
    proxies: TrustedProxies
    _common_headers: str = attrs.field(default="", init=False)
    _headers_made_at: int = attrs.field(default=0, init=False)

    def common_headers(self) -> str:
        """Return the header lines that every answer has, with the date to the second."""
        now = int(self.wall.seconds())
        if now != self._headers_made_at or not self._common_headers:
            date = formatdate(now, usegmt=True)
            self._common_headers = f"Server: svc\r\nDate: {date}\r\nX-Content-Type-Options: nosniff\r\n"
            self._headers_made_at = now
        return self._common_headers


class Connection(Protocol):
    """The connection that a request came on."""

    #: The address at the other end.
    peer: str
    #: Whether ``X-Forwarded-For`` may count on it, if the address is trusted; see ``UnnamedClient``.
    forwards: bool
    #: Whether it is one beyond the limit; see ``connection_limits``, Note [Room].
    overflow: bool

    def write_response(self, request: Request, response: Response) -> None:
        """Write the answer to a request that is complete, and go on to the next."""

    def open_stream(self, request: Request, response: Response) -> Stream:
        """Write the head of an answer in pieces to a request that is complete, and return what writes them."""

    def finish_stream(self) -> None:
        """Go on to the next request, now that the last piece was written."""

    def refuse_request(self, response: Response, request: Request | None = None) -> None:
        """Write the answer to a request that is not complete, and take no other."""

    def send_continue(self) -> None:
        """Ask the client to send the body."""

    def abort(self) -> None:
        """Close at once, whatever is under way."""


class Request:
    """One request: it collects what arrives, has it answered, and hands the answer back when its body is complete."""

    __slots__ = ("_answer", "_config", "_connection", "_incoming", "_response", "_sending", "is_head", "request_id")

    def __init__(self, connection: Connection, config: HttpConfig, head: Head) -> None:
        fields = head.fields
        forwarded = fields.get(b"x-forwarded-for") if connection.forwards else None
        #: The id that the answer carries.
        self.request_id = (b"x-request-id" in fields and _client_request_id(fields)) or config.new_id()
        #: Whether this is a ``HEAD``, whose answer has no body.
        self.is_head = head.method == "HEAD"
        self._connection = connection
        self._config = config
        self._incoming = IncomingRequest(
            method=head.method,
            target=head.target,
            headers=fields,
            client_ip=config.proxies.client_ip(connection.peer, forwarded) if forwarded else connection.peer,
            request_id=self.request_id,
            size=head.length or 0,
            limit=config.limits.body,
            overflow=connection.overflow,
        )
        self._answer: Deferred[None] | None = None
        self._sending: Deferred[None] | None = None
        self._response: Response | None = None

    def begin_response(self, body: bytes | None = None) -> None:
        """Start to answer, now that the head is read, and perhaps all there is: its ``body``."""
        if body is not None:
            self._incoming.is_complete = True
            if body:
                self._incoming.append_body(body)
        self._answer = maybeDeferred(self._config.respond, self._incoming).addCallbacks(self._on_response, self._on_failure)
        self._answer.addErrback(self._on_write_failure)

    def ask_for_body(self) -> None:
        """Ask for the body, unless there is an answer without it: ``Expect: 100-continue`` (RFC 9110 10.1.1)."""
        if self._response is None:
            self._connection.send_continue()
        else:
            self._connection.refuse_request(self._response, self)

    def abandon(self) -> None:
        """Stop, since the client is gone or has had an answer: cancel what was begun, drop what arrives."""
        if not self._incoming.abandoned:
            self._incoming.abandoned = True
            self._incoming.discard_body()
        for begun in (self._answer, self._sending):
            if begun is not None:
                begun.cancel()

    def append(self, data: bytes) -> None:
        """Take a piece of the body."""
        self._incoming.append_body(data)
        if self._response is not None and self._incoming.size > self._incoming.limit:
            self._connection.refuse_request(self._response, self)

    def end_body(self) -> None:
        """Note that the body has ended."""
        self._incoming.end_body()
        # The end of a body can come in one piece with the bytes beyond the limit.
        if self._response is not None:
            self._on_response(self._response)

    def _on_response(self, response: Response) -> None:
        incoming = self._incoming
        if incoming.abandoned:
            return
        if incoming.is_complete:
            if response.pieces is None or self.is_head:
                self._connection.write_response(self, response)
            else:
                incoming.release_memory()
                sending = Deferred.fromCoroutine(self._send_pieces(response, response.pieces))
                self._sending = sending.addErrback(self._abort_stream)
        elif incoming.size > incoming.limit:
            self._connection.refuse_request(response, self)
        else:
            # The rest of the body is read and dropped, so that the connection stays usable.
            self._response = response
            incoming.discard_body()

    async def _send_pieces(self, response: Response, pieces: AsyncGenerator[bytes, None]) -> None:
        await self._connection.open_stream(self, response).send_pieces(pieces)
        self._connection.finish_stream()

    def _abort_stream(self, failure: Failure) -> None:
        """Abort an answer whose next piece fails, without the end that would make it look complete."""
        if self._incoming.abandoned and failure.check(CancelledError):
            return
        if isinstance(failure.value, StoreUnavailable):
            _log.warn("An answer was cut off: {why} ({id})", why=failure.value.why, id=self.request_id)
        else:
            _log.failure("An answer was cut off ({id})", failure, id=self.request_id)
        self._connection.abort()

    def _on_failure(self, failure: Failure) -> None:
        if self._incoming.abandoned and failure.check(CancelledError):
            return
        incident = self._config.new_id()
        _log.failure("A request failed outside its route, incident {incident}", failure, incident=incident)
        self._on_response(internal_error(incident))

    def _on_write_failure(self, failure: Failure) -> None:
        _log.failure("An answer could not be written", failure)
        self._connection.abort()


#: The content codings that change the bytes of a body. Some clients write a charset in that header, which changes none.
_COMPRESSIONS: Final = frozenset({b"gzip", b"x-gzip", b"deflate", b"compress", b"x-compress", b"br", b"zstd"})


def _client_request_id(fields: Fields) -> str | None:
    named = fields[b"x-request-id"][-1].decode("latin-1")
    return named if _REQUEST_ID.fullmatch(named) else None


def generate_ids() -> Iterator[str]:
    """Yield random ids, none of which anything had before.

    The system's random numbers cost a call of the kernel, 6 µs, however few they are: so many are fetched at a time.
    """
    while True:
        digits = os.urandom(BATCH_SIZE * ID_LENGTH // 2).hex()
        for start in range(0, len(digits), ID_LENGTH):
            yield digits[start : start + ID_LENGTH]


@attrs.define(eq=False)
class IncomingRequest:
    """One request on its way in: no more of its body than ``limit`` is kept, in memory.

    ``target`` is as it arrived, in ASCII; ``headers`` have their names in lower case. ``size`` is that of the body as far as
    it is known: what ``Content-Length`` says, or what has arrived if that is more. ``overflow`` says that it came on a
    connection beyond the limit, ``abandoned`` that the client is gone, or has had an answer already. ``route`` is the one
    that answers, once that is known, ``visit`` the visit to the console that it is a part of, if it is one, and ``call`` the
    request as the route saw it, while its refusal is recorded and answered.
    """

    method: str
    target: str
    headers: Fields
    client_ip: str
    request_id: str
    size: int
    limit: int
    overflow: bool = False
    abandoned: bool = False
    route: object | None = None
    call: object | None = None
    visit: object | None = None
    #: Whether the whole body has arrived.
    is_complete: bool = False
    _received_size: int = 0
    _buffer: bytearray | None = attrs.field(factory=bytearray, repr=False)
    _waiting_reader: Deferred[None] | None = None

    def header(self, name: bytes) -> str | None:
        """Return the value of a header; several lines of one name are joined with commas (RFC 9110 5.3)."""
        values = self.headers.get(name.lower())
        return None if values is None else b", ".join(values).decode("latin-1")

    def append_body(self, chunk: bytes) -> None:
        """Add a piece of the body."""
        self._received_size += len(chunk)
        self.size = max(self.size, self._received_size)
        if self.size > self.limit:
            self.discard_body()
            self._wake_reader()
        elif self._buffer is not None:
            # Not a list of chunks: 32 MiB in chunks of two bytes would weigh twenty times as much.
            self._buffer += chunk

    def end_body(self) -> None:
        """Note that the body has ended."""
        self.is_complete = True
        self._wake_reader()

    def discard_body(self) -> None:
        """Drop the body: the received part, and the rest when it comes."""
        self._buffer = None

    def release_memory(self) -> None:
        """Let go of all that was sent: an answer in pieces may take long, and needs none of it."""
        self.discard_body()
        self.headers, self.target = {}, ""

    @property
    def is_compressed(self) -> bool:
        """Return whether the body is packed (RFC 9110 8.4.1)."""
        values = self.headers.get(b"content-encoding", ())
        return any(word.strip().lower() in _COMPRESSIONS for value in values for word in value.split(b","))

    async def read_body(self) -> bytes:
        """Wait for the body and return it.

        :raises TooLarge: it has more than ``limit`` bytes; known as soon as ``Content-Length`` or the bytes say so.
        """
        if not self.is_complete and self.size <= self.limit:
            self._waiting_reader = Deferred()
            await self._waiting_reader
        if self.size > self.limit:
            raise TooLarge("the body", self.limit)
        return bytes(self._buffer or b"")

    def _wake_reader(self) -> None:
        waiting, self._waiting_reader = self._waiting_reader, None
        if waiting is not None:
            waiting.callback(None)
