"""The head of a request: its first line and its headers, read strictly and once.

Note [What llhttp reads]: llhttp, the parser of Node, reads the lines of headers, and reads a head as one or not at all. The
first line is read here: llhttp knows some methods only, passes over blanks that shouldn't be there, takes versions that are
none of ours, and stops reading at the preface of HTTP/2 and at ``Upgrade``. So each head has a parser of its own, which gets
``_FIRST_LINE`` in place of the client's, and nothing of what follows the head; its result on keep-alive and upgrades isn't
used. ``CONNECT`` is refused, since a proxy may take what follows it for something else than HTTP.
"""

from __future__ import annotations

import re
from typing import Final

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from svc.web.http.framing import Fields, MalformedRequest, is_unambiguous

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
        if not self._parse_headers(block) and not self._parse_headers(_FOLD.sub(b" ", block)):
            raise AbsurdLength if _ABSURD_LENGTH.search(block) else MalformedRequest
        if not self._is_whole or not is_unambiguous(self.fields, current=self.is_http11):
            raise MalformedRequest
        #: The value of ``Content-Length``, 0 if there is none, ``None`` for a chunked body.
        lengths = self.fields.get(b"content-length")
        self.length = None if b"transfer-encoding" in self.fields else 0 if lengths is None else int(lengths[0])
        options = self.fields.get(b"connection", ())
        #: Whether another request may follow on the connection (WIRE-43).
        self.is_persistent = self.is_http11 and not (
            options and b"close" in map(bytes.strip, b",".join(options).lower().split(b","))
        )

    @property
    def expects_continue(self) -> bool:
        """Whether the client waits for ``100 Continue`` before it sends the body (RFC 9110 10.1.1)."""
        expected = self.fields.get(b"expect")
        return expected is not None and self.is_http11 and b"100-continue" in map(bytes.lower, expected)

    def _parse_headers(self, block: bytes) -> bool:
        """Read the headers; return false if the parser refuses them, as it does when one of them is folded."""
        self.fields: Fields = {}
        self._is_whole = False
        try:
            HttpRequestParser(self).feed_data(_FIRST_LINE + block)
        except HttpParserUpgrade:
            pass
        except HttpParserError:
            return False
        return True

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
