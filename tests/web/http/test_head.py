"""Heads of requests, and what they say of bodies; whole requests are in ``smuggling``."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.web.http.request_reader import AbsurdLength, Head, MalformedRequest, is_first_line

LINE = b"GET /a HTTP/1.1"
HOST = b"Host: h\r\n"

TOKEN = st.text("!#$%&'*+-.^_`|~09azAZ", min_size=1, max_size=8).map(str.encode)
VALUE = st.lists(st.integers(33, 255).filter(lambda byte: byte != 127), min_size=1, max_size=8).map(bytes)
BLANKS = st.text(" \t", max_size=3).map(str.encode)


def head(*headers: bytes, line: bytes = LINE) -> Head:
    """A head with these headers, and a host."""
    return Head(line, HOST + b"".join(header + b"\r\n" for header in headers) + b"\r\n")


class HeadTests(SynchronousTestCase):
    """``Head``."""

    def test_first_line(self) -> None:
        """The first line has a method, a target and a version, each as it was written."""
        read = head(line=b"X-y http://h/a?b=%2F HTTP/1.0")
        self.assertEqual((read.method, read.target, read.is_http11), ("X-y", "http://h/a?b=%2F", False))
        self.assertTrue(head().is_http11)

    @given(st.integers(0, 255), st.sampled_from([b"G%cT /a HTTP/1.1", b"GET /%c HTTP/1.1", b"GET /a HTTP/1.1%c"]))
    def test_bytes_of_the_first_line(self, byte: int, line: bytes) -> None:
        """A method is a token, a target is visible ASCII but ``#``, and nothing follows the version (WIRE-7)."""
        token = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
        allowed = token if line.startswith(b"G%c") else bytes({*range(33, 127)} - {35}) if b"/%c" in line else b""
        line = line.replace(b"%c", bytes([byte]))
        self.assertEqual(is_first_line(line), byte in allowed, line)
        if byte in allowed:
            self.assertIsInstance(head(line=line), Head)
        else:
            self.assertRaises(MalformedRequest, head, line=line)

    @given(st.lists(st.tuples(TOKEN, BLANKS, VALUE, BLANKS), max_size=5))
    def test_headers(self, headers: list[tuple[bytes, bytes, bytes, bytes]]) -> None:
        """Headers are kept in their order, by their names in lower case, without the blanks around their values."""
        read = head(*(b"X-%b:%b%b%b" % header for header in headers))
        expected: dict[bytes, list[bytes]] = {b"host": [b"h"]}
        for name, _, value, _ in headers:
            expected.setdefault(b"x-" + name.lower(), []).append(value)
        self.assertEqual(read.fields, expected)

    def test_folded(self) -> None:
        """A line that begins with a blank goes on with the value before it; the first one can't (RFC 9112 5.2)."""
        read = head(b"A: b\r\n \t c\r\n\td", b"E:\r\n f", b"G: h\r\n ")
        self.assertEqual((read.fields[b"a"], read.fields[b"e"], read.fields[b"g"]), ([b"b c d"], [b"f"], [b"h"]))
        self.assertRaises(MalformedRequest, Head, LINE, b" A: b\r\n" + HOST + b"\r\n")
        self.assertRaises(MalformedRequest, head, b"A\r\n : b")

    def test_length(self) -> None:
        """The length is that of the header, none for chunks, and 0 for neither."""
        self.assertEqual((head().length, head(b"Content-Length: 007").length), (0, 7))
        self.assertIsNone(head(b"Transfer-Encoding: chunked").length)
        self.assertRaises(MalformedRequest, head, b"Content-Length: 7", b"Transfer-Encoding: chunked")
        for digits in (20, 200):
            self.assertRaises(AbsurdLength, head, b"Content-Length: " + b"9" * digits)
            self.assertRaises(AbsurdLength, head, b"A: b\r\n c", b"content-LENGTH:\t" + b"9" * digits)
            self.assertRaises(MalformedRequest, head, b"Content-Length: " + b"9" * digits + b"x")

    def test_persistent(self) -> None:
        """A connection stays open after a request of HTTP/1.1 that doesn't say otherwise (WIRE-43)."""
        for options, stays in (
            ((), True),
            ((b"keep-alive",), True),
            ((b"close",), False),
            ((b"keep-alive, CLOSE",), False),
            ((b"a", b"b ,close\t"), False),
            ((b"closed",), True),
            ((b"Upgrade",), True),
        ):
            headers = [b"Connection: " + option for option in options]
            self.assertEqual(head(*headers).is_persistent, stays, options)
            self.assertFalse(head(*headers, line=b"GET /a HTTP/1.0").is_persistent)

    def test_upgrade(self) -> None:
        """A request that would like another protocol is one like any other, with its body (WIRE-1)."""
        read = head(b"Connection: Upgrade", b"Upgrade: h2c", b"Content-Length: 3")
        self.assertEqual((read.length, read.is_persistent, read.fields[b"upgrade"]), (3, True, [b"h2c"]))

    def test_connect(self) -> None:
        """CONNECT is refused, whatever its target (WIRE-1)."""
        for target in (b"h:80", b"/a", b"http://h/"):
            self.assertRaises(MalformedRequest, head, line=b"CONNECT " + target + b" HTTP/1.1")

    def test_invitation(self) -> None:
        """A client of HTTP/1.1 may ask to be told to go on; other expectations aren't known (WIRE-5)."""
        self.assertTrue(head(b"Expect: 100-Continue").expects_continue)
        self.assertFalse(head(b"Expect: 100-continue", line=b"GET /a HTTP/1.0").expects_continue)
        for headers in ((), (b"Expect: cow",), (b"Expect: 100-continue, cow",)):
            self.assertFalse(head(*headers).expects_continue)

    @given(st.binary(max_size=60) | st.text("AHost:0 \t\r\n,chunked", max_size=60).map(str.encode))
    def test_any_headers(self, block: bytes) -> None:
        """Whatever stands where headers should be, there is a head or a refusal, and no line end in any value."""
        try:
            read = Head(LINE, HOST + block + b"\r\n\r\n")
        except (MalformedRequest, AbsurdLength):
            return
        for name, values in read.fields.items():
            for text in (name, *values):
                self.assertNotRegex(text, rb"[\r\n\x00]")
