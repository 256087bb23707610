"""Requests, their targets, their bodies as they come in and their ids; responses, on their way back to the connection, and
their JSON.

Note [Strict decoding]: two parties that decode differently disagree about which record a name means. So a text that has a
stray ``%``, or is no UTF-8, is refused. A NUL is refused everywhere: PostgreSQL takes none.

Note [Decoded in C]. ``urllib.parse`` decodes escape by escape, a fifth of the cost of a batch of secrets. Where each
``%`` has its two digits, the text is quoted-printable (RFC 2045 6.7) but for the sign, and ``binascii`` decodes that.

JSON is ASCII, without blanks, and harmless in a page (WIRE-35).

Note [Two writers]. orjson writes ten times as fast as the standard library's ``json``, and the same bytes but for four
things. It leaves DEL and what is beyond ASCII as they are, which is seen in its bytes. It refuses halves of surrogate pairs,
integers of more than 64 bits, and more than 250 levels. In these cases ``json`` writes the document once more. The others
can't be seen: NaN becomes null, and fractions near zero are written otherwise. So orjson is given what has no ``float``, as
the type checker proves; where that can't check, behind ``Any``, fractions are rounded to thousandths: both write these
alike.
"""

from __future__ import annotations

import binascii
import json
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from email.utils import formatdate
from http import HTTPStatus
from typing import Final, Protocol, TypeAlias

import attrs
import orjson
from twisted.internet.defer import CancelledError, Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from svc.model.clocks import WallClock
from svc.model.errors import StoreUnavailable, TooLarge
from svc.model.limits import Limits
from svc.model.text import blank_unprintable
from svc.web.http.client_address import TrustedProxies
from svc.web.http.request_reader import Fields, Head
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
    #: Whether it is one beyond the limit; see ``connection``, Note [Room].
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
        self._on_response(Response.internal_error(incident))

    def _on_write_failure(self, failure: Failure) -> None:
        _log.failure("An answer could not be written", failure)
        self._connection.abort()


#: The words for a body that is as it stands, or text: some clients write a charset there, or an encoding of MIME.
_NO_CODING: Final = re.compile(
    rb"(?:identity|binary|[78]bit|base64|utf-?(?:8|16|32)(?:le|be)?|(?:us-)?ascii|iso-8859-[0-9]{1,2}|latin-?1|windows-125[0-8])?"
)


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
    def is_encoded(self) -> bool:
        """Return whether the body has a content coding: it is packed, or in a way that isn't known (RFC 9110 8.4.1)."""
        values = self.headers.get(b"content-encoding", ())
        return any(not _NO_CODING.fullmatch(word.strip().lower()) for value in values for word in value.split(b","))

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


_ABSOLUTE_ORIGIN: Final = re.compile("[A-Za-z][A-Za-z0-9+.-]*://[^/?]*")
_BROKEN_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")


def split_target(target: str) -> tuple[str, str]:
    """Cut a request's target into its raw path, less one trailing slash (WIRE-8), and its raw query.

    An absolute target (``http://host/path``), which servers must take (RFC 9112 3.2.2), is read without its origin.
    """
    if not target.startswith("/") and (origin := _ABSOLUTE_ORIGIN.match(target)) is not None:
        rest = target[origin.end() :]
        target = rest if rest.startswith("/") else f"/{rest}"
    path, _, query = target.partition("?")
    return path if path == "/" else path.removesuffix("/"), query


def percent_decoded(text: str) -> str:
    """Decode ``text``; ``+`` is left as it is. See Notes [Strict decoding] and [Decoded in C].

    :raises ValueError: the text has a broken escape, or is no UTF-8, or holds NUL; the message says which.
    """
    # Most escapes are slashes; to decode these first makes no other escape, and breaks none.
    if "%" in (text := text.replace("%2F", "/")):
        if _BROKEN_ESCAPE.search(text):
            raise ValueError("has a '%' that two hexadecimal digits do not follow")
        try:
            text = binascii.a2b_qp(text.encode().replace(b"=", b"=3D").replace(b"%", b"=")).decode("utf-8")
        except UnicodeDecodeError:
            raise ValueError("is not valid UTF-8") from None
    if "\x00" in text:
        raise ValueError("holds a NUL character")
    return text


_STATUS_LINES: Final = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}

#: Statuses whose answers have neither a body nor a length (RFC 9110 8.6).
_WITHOUT_CONTENT: Final = frozenset({204, 304})

#: Pairs of name and value, in the order in which they are written.
HeaderPairs = tuple[tuple[str, str], ...]


@attrs.frozen
class Response:
    """The answer of a route.

    One that has ``pieces`` has no ``body``: they follow one by one, none of them empty, each when the client has taken most
    of what came before. When one can't be had, the answer is cut off, so that no client takes it for whole. ``headers`` come
    on top of those that every answer has. ``cache_control`` forbids any store by default, since most answers are secret.
    """

    status: int = attrs.field(validator=attrs.validators.in_(_STATUS_LINES))
    body: bytes = attrs.field(default=b"", repr=False)
    content_type: str | None = None
    headers: HeaderPairs = ()
    cache_control: str = "no-store"
    pieces: AsyncGenerator[bytes, None] | None = attrs.field(default=None, repr=False, eq=False)

    @classmethod
    def json(cls, document: Json, status: int = 200, headers: HeaderPairs = ()) -> Response:
        """Return an answer in JSON (WIRE-35) that has no fractions."""
        return cls(status, encode_json(document), "application/json", headers)

    @classmethod
    def json_with_floats(cls, document: object, status: int = 200, headers: HeaderPairs = ()) -> Response:
        """Return an answer in JSON (WIRE-35) that may have fractions, at ten times the cost."""
        return cls(status, encode_json_with_floats(document), "application/json", headers)

    @classmethod
    def json_from_text(cls, text: str, status: int = 200, headers: HeaderPairs = ()) -> Response:
        """Return an answer in JSON that has been written already, in ASCII."""
        return cls(status, escape_html(text.encode("ascii")), "application/json", headers)

    @classmethod
    async def json_pieces(
        cls,
        pieces: AsyncGenerator[bytes, None],
        headers: HeaderPairs = (),
        *,
        head: bytes = b"",
        tail: bytes = b"",
        status: int = 200,
    ) -> Response:
        """Return an answer in JSON of ``head``, ``pieces`` that aren't empty, and ``tail``; whole if that is at most one.

        Errors in producing the first two pieces are raised here.
        """
        first = await anext(pieces, b"")
        second = await anext(pieces, None)
        if second is None:
            return cls(status, head + first + tail, "application/json", headers)
        return cls(status, b"", "application/json", headers, pieces=_rejoin_pieces(head + first, second, pieces, tail))

    @classmethod
    async def json_array(
        cls,
        batches: AsyncIterator[Sequence[Json]],
        headers: HeaderPairs = (),
        *,
        head: bytes = b"[",
        tail: bytes = b"]",
        status: int = 200,
    ) -> Response:
        """Return a JSON array of everything in ``batches``, between ``head`` and ``tail``, as :meth:`json_pieces` does."""
        return await cls.json_pieces(_array_pieces(batches), headers, head=head, tail=tail, status=status)

    @classmethod
    def text(cls, text: str, status: int = 200, headers: HeaderPairs = ()) -> Response:
        """Return an answer in plain text."""
        return cls(status, text.encode("utf-8"), "text/plain; charset=utf-8", headers)

    @classmethod
    def content(cls, body: bytes, content_type: str, status: int = 200, headers: HeaderPairs = ()) -> Response:
        """Return an answer of any type, its bytes as they are."""
        return cls(status, body, content_type, headers)

    @classmethod
    def internal_error(cls, incident: str) -> Response:
        """Return the answer to a bug: it has nothing but the id under which the log has it."""
        message = f"an internal error, in the log as incident {incident}"
        return cls.json({"error": {"code": "internal_error", "message": message}}, 500)

    @classmethod
    def empty(cls, status: int = 204, headers: HeaderPairs = ()) -> Response:
        """Return an answer without a body."""
        return cls(status, headers=headers)

    def encode(self, common: str, *, request_id: str | None, close: bool, head: bool, chunked: bool = True) -> bytes:
        """Return the status line with the headers, and the body, ready to be written.

        :param common: header lines that every answer has at the moment, each with its line end.
        :param request_id: what to echo as ``X-Request-Id``; ``None`` when no request could be read.
        :param close: whether the connection closes after this answer.
        :param head: whether the request was a ``HEAD``, whose answer has the length of a body that doesn't follow.
        :param chunked: whether pieces come as chunks; otherwise the end of the connection ends them.
        """
        lines = f"{_STATUS_LINES[self.status]}{common}Cache-Control: {self.cache_control}\r\n"
        if request_id is not None:
            lines += f"X-Request-Id: {request_id}\r\n"
        typed = () if self.content_type is None else (("Content-Type", self.content_type),)
        for name, value in (*typed, *self.headers):
            # Values may come from policy (a variable's MIME type): a line end inside would forge a header or a whole answer.
            lines += f"{name}: {value if value.isprintable() else blank_unprintable(value)}\r\n"
        if self.pieces is not None:
            lines += "Transfer-Encoding: chunked\r\n" if chunked else ""
        elif self.status not in _WITHOUT_CONTENT:
            lines += f"Content-Length: {len(self.body)}\r\n"
        lines += "Connection: close\r\n\r\n" if close else "\r\n"
        return lines.encode("ascii", "replace") + (b"" if head or self.status in _WITHOUT_CONTENT else self.body)


async def _array_pieces(batches: AsyncIterator[Sequence[Json]]) -> AsyncGenerator[bytes, None]:
    comma = b""
    async for batch in batches:
        for piece in join_chunks(encode_elements(batch)):
            yield comma + piece
            comma = b""
        comma = b"," if batch else comma


async def _rejoin_pieces(
    first: bytes, second: bytes, rest: AsyncGenerator[bytes, None], tail: bytes
) -> AsyncGenerator[bytes, None]:
    yield first
    last = second
    async for piece in rest:
        yield last
        last = piece
    yield last + tail


#: A document without ``float``.
Json: TypeAlias = str | int | Mapping[str, "Json"] | Sequence["Json"] | None

#: How many bytes of JSON go out as one piece: as much as is written within a millisecond or so.
PIECE_SIZE: Final = 64 * 1024

#: How many elements of an array are written down at once; a short one by itself would cost twice as much.
_GROUP_SIZE: Final = 16

_STANDARD: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":"))

#: DEL, which orjson doesn't escape.
_DEL: Final = b"\x7f"


def encode_json(document: Json) -> bytes:
    """Return a document that has no ``float`` (Note [Two writers])."""
    try:
        text = orjson.dumps(document)
    except TypeError:
        return encode_json_with_floats(document)
    return escape_html(text) if text.isascii() and _DEL not in text else encode_json_with_floats(document)


def encode_json_with_floats(document: object) -> bytes:
    """Return any document.

    :raises ValueError: it has a NaN, or an infinite number, or itself.
    :raises TypeError: it has what is no JSON.
    """
    return escape_html(_STANDARD.encode(document).encode("ascii"))


def escape_html(text: bytes) -> bytes:
    """Return JSON in ASCII with ``<``, ``>`` and ``&`` escaped, which stand in strings alone."""
    return text.replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")


def encode_elements(rows: Sequence[Json]) -> Iterator[bytes]:
    """Return the inside of an array's brackets, in chunks of a few elements, with the commas between."""
    for start in range(0, len(rows), _GROUP_SIZE):
        chunk = encode_json(rows[start : start + _GROUP_SIZE])[1:-1]
        yield chunk if start == 0 else b"," + chunk


def encode_object_start(some: Mapping[str, Json]) -> bytes:
    """Return the beginning of an object that has these members, up to where others may follow."""
    return encode_json(some)[:-1]


def join_chunks(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Return the chunks, put together to pieces of ``PIECE_SIZE`` bytes, or a chunk more."""
    some: list[bytes] = []
    size = 0
    for chunk in chunks:
        some.append(chunk)
        size += len(chunk)
        if size >= PIECE_SIZE:
            yield b"".join(some)
            some.clear()
            size = 0
    if some:
        yield b"".join(some)
