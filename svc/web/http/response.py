"""The answer to a request, as a value, and how it is written on the wire."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from http import HTTPStatus
from typing import Final

import attrs

from svc.model.text import blank_unprintable
from svc.web.http.json_encoding import Json, encode_elements, encode_json, encode_json_with_floats, escape_html, join_chunks

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
