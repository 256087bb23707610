"""The answer to a request, as a value, and how it is written on the wire."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Final

import attrs

#: The bytes that the installed base escapes in JSON, so that a body is harmless in a page (wire facts, core 0.4).
_ESCAPES: Final = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})

_STATUS_LINES: Final = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}

#: Statuses whose answers have neither a body nor a length (RFC 9110 8.6).
_WITHOUT_CONTENT: Final = frozenset({204, 304})

#: Pairs of name and value, in the order in which they are written.
HeaderPairs = tuple[tuple[str, str], ...]


@attrs.frozen
class Response:
    """An answer: what a route returns. Made by :meth:`json`, :meth:`json_text`, :meth:`text`, :meth:`content` or
    :meth:`empty`.

    ``headers`` come on top of those that every answer has: ``Server``, ``Date``, ``Content-Length``, ``Content-Type``,
    ``X-Request-Id``, ``X-Content-Type-Options`` and ``Cache-Control``. The latter forbids any store unless
    ``cache_control`` says otherwise, since most answers are secret.
    """

    status: int = attrs.field(validator=attrs.validators.in_(_STATUS_LINES))
    body: bytes = attrs.field(default=b"", repr=False)
    content_type: str | None = None
    headers: HeaderPairs = ()
    cache_control: str = "no-store"

    @classmethod
    def json(cls, document: object, status: int = 200, headers: HeaderPairs = ()) -> Response:
        """An answer in JSON, pure ASCII; ``<``, ``>`` and ``&`` are escaped as the installed base does.

        :raises ValueError: the document holds NaN or an infinity, which JSON lacks.
        """
        return cls.json_text(json.dumps(document, allow_nan=False, separators=(",", ":")), status, headers)

    @classmethod
    def json_text(cls, text: str, status: int = 200, headers: HeaderPairs = ()) -> Response:
        """An answer in JSON that has been written already, in ASCII."""
        return cls(status, text.translate(_ESCAPES).encode("ascii"), "application/json", headers)

    @classmethod
    def text(cls, text: str, status: int = 200, headers: HeaderPairs = ()) -> Response:
        """An answer in plain text."""
        return cls(status, text.encode("utf-8"), "text/plain; charset=utf-8", headers)

    @classmethod
    def content(cls, body: bytes, content_type: str, status: int = 200, headers: HeaderPairs = ()) -> Response:
        """An answer of any type, its bytes as they are."""
        return cls(status, body, content_type, headers)

    @classmethod
    def empty(cls, status: int = 204, headers: HeaderPairs = ()) -> Response:
        """An answer without a body."""
        return cls(status, headers=headers)

    def wire(self, common: str, *, request_id: str | None, close: bool, head: bool) -> tuple[bytes, bytes]:
        """The status line with the headers, and the body, ready to be written.

        :param common: header lines that every answer has at the moment, each with its line end.
        :param request_id: what to echo as ``X-Request-Id``; ``None`` when no request could be read.
        :param close: whether the connection closes after this answer.
        :param head: whether the request was a ``HEAD``, whose answer tells the length of a body that doesn't follow.
        """
        # Values may come from policy (a variable's MIME type): a line end inside would forge a header or a whole answer.
        lines = [_STATUS_LINES[self.status], common, f"Cache-Control: {_one_line(self.cache_control)}\r\n"]
        if request_id is not None:
            lines.append(f"X-Request-Id: {request_id}\r\n")
        if self.content_type is not None:
            lines.append(f"Content-Type: {_one_line(self.content_type)}\r\n")
        lines.extend(f"{name}: {_one_line(value)}\r\n" for name, value in self.headers)
        if self.status not in _WITHOUT_CONTENT:
            lines.append(f"Content-Length: {len(self.body)}\r\n")
        lines.append("Connection: close\r\n\r\n" if close else "\r\n")
        return "".join(lines).encode("ascii", "replace"), b"" if head or self.status in _WITHOUT_CONTENT else self.body


def _one_line(value: str) -> str:
    return value if value.isprintable() else "".join(char if char.isprintable() else " " for char in value)
