"""The answer to a request, as a value, and how it is written on the wire."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Final

import attrs

from svc.model.text import blanked

#: The bytes that the installed base escapes in JSON, so that a body is harmless in a page (WIRE-35).
_ESCAPES: Final = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})

_STATUS_LINES: Final = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}

#: Statuses whose answers have neither a body nor a length (RFC 9110 8.6).
_WITHOUT_CONTENT: Final = frozenset({204, 304})

#: How many bytes of JSON go out as one piece: as much as is written within a millisecond or so.
PIECE: Final = 64 * 1024

#: How many elements of an array are written down at once; a short one by itself would cost twice as much.
_GROUP: Final = 16

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
    def json(cls, document: object, status: int = 200, headers: HeaderPairs = ()) -> Response:
        """Return an answer in JSON, pure ASCII; ``<``, ``>`` and ``&`` are escaped as the installed base does."""
        return cls(status, _json(document), "application/json", headers)

    @classmethod
    def json_text(cls, text: str, status: int = 200, headers: HeaderPairs = ()) -> Response:
        """Return an answer in JSON that has been written already, in ASCII."""
        return cls(status, _escaped(text), "application/json", headers)

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

        What is raised before the third piece is raised here.
        """
        first = await anext(pieces, b"")
        second = await anext(pieces, None)
        if second is None:
            return cls(status, head + first + tail, "application/json", headers)
        return cls(status, b"", "application/json", headers, pieces=_resumed(head + first, second, pieces, tail))

    @classmethod
    async def json_array(
        cls,
        batches: AsyncIterator[Sequence[object]],
        headers: HeaderPairs = (),
        *,
        head: bytes = b"[",
        tail: bytes = b"]",
        status: int = 200,
    ) -> Response:
        """Return a JSON array of everything in ``batches``, between ``head`` and ``tail``, as :meth:`json_pieces` does."""
        return await cls.json_pieces(_array(batches), headers, head=head, tail=tail, status=status)

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

    def wire(
        self, common: str, *, request_id: str | None, close: bool, head: bool, chunked: bool = True
    ) -> tuple[bytes, bytes]:
        """Return the status line with the headers, and the body, ready to be written.

        :param common: header lines that every answer has at the moment, each with its line end.
        :param request_id: what to echo as ``X-Request-Id``; ``None`` when no request could be read.
        :param close: whether the connection closes after this answer.
        :param head: whether the request was a ``HEAD``, whose answer tells the length of a body that doesn't follow.
        :param chunked: whether pieces come as chunks; otherwise the end of the connection ends them.
        """
        # Values may come from policy (a variable's MIME type): a line end inside would forge a header or a whole answer.
        lines = [_STATUS_LINES[self.status], common, f"Cache-Control: {blanked(self.cache_control)}\r\n"]
        if request_id is not None:
            lines.append(f"X-Request-Id: {request_id}\r\n")
        if self.content_type is not None:
            lines.append(f"Content-Type: {blanked(self.content_type)}\r\n")
        lines.extend(f"{name}: {blanked(value)}\r\n" for name, value in self.headers)
        if self.pieces is not None:
            lines.append("Transfer-Encoding: chunked\r\n" if chunked else "")
        elif self.status not in _WITHOUT_CONTENT:
            lines.append(f"Content-Length: {len(self.body)}\r\n")
        lines.append("Connection: close\r\n\r\n" if close else "\r\n")
        return "".join(lines).encode("ascii", "replace"), b"" if head or self.status in _WITHOUT_CONTENT else self.body


def json_elements(elements: Sequence[object]) -> Iterator[bytes]:
    """Return the inside of an array's brackets, in chunks of a few elements, with the commas between."""
    for start in range(0, len(elements), _GROUP):
        chunk = _json(elements[start : start + _GROUP])[1:-1]
        yield chunk if start == 0 else b"," + chunk


def json_members(members: Mapping[str, object]) -> bytes:
    """Return the beginning of an object that has these members, up to where others may follow."""
    return _json(members)[:-1]


def gathered(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Return the chunks, put together to pieces of ``PIECE`` bytes, or a chunk more."""
    some: list[bytes] = []
    size = 0
    for chunk in chunks:
        some.append(chunk)
        size += len(chunk)
        if size >= PIECE:
            yield b"".join(some)
            some.clear()
            size = 0
    if some:
        yield b"".join(some)


async def _array(batches: AsyncIterator[Sequence[object]]) -> AsyncGenerator[bytes, None]:
    comma = b""
    async for batch in batches:
        for piece in gathered(json_elements(batch)):
            yield comma + piece
            comma = b""
        comma = b"," if batch else comma


async def _resumed(
    first: bytes, second: bytes, rest: AsyncGenerator[bytes, None], tail: bytes
) -> AsyncGenerator[bytes, None]:
    yield first
    yield second
    async for piece in rest:
        yield piece
    if tail:
        yield tail


def _json(document: object) -> bytes:
    return _escaped(json.dumps(document, allow_nan=False, separators=(",", ":")))


def _escaped(text: str) -> bytes:
    return text.translate(_ESCAPES).encode("ascii")
