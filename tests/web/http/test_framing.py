"""A head that leaves a doubt where its body ends, or for whom it is, is refused (RFC 9112 2.2, 3.2 and 6); chunks (7.1)."""

from __future__ import annotations

import attrs
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.web.http.messages import Response
from svc.web.http.request_reader import MAX_OVERHEAD, ChunkDecoder, MalformedRequest
from svc.web.http.routing import PUBLIC, Call, Routes
from tests.web.support import Client

HOST = b"Host: svc.example\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
BODY = b"3\r\nabc\r\n0\r\n\r\n"
GET = b"GET /echo HTTP/1.1\r\n" + HOST + b"\r\n"


@attrs.define
class Echo:
    """A noun that returns what it gets."""

    routes = Routes()

    begun: int = 0

    @routes.add("GET", "/echo", caller=PUBLIC)
    @routes.add("POST", "/echo", caller=PUBLIC)
    async def echo(self, call: Call) -> Response:
        """Return the body."""
        self.begun += 1
        return Response.content(call.body, "text/plain")


class FramingTests(SynchronousTestCase):
    """Requests as they arrive."""

    def setUp(self) -> None:
        """Serve one noun."""
        self.echo = Echo()
        self.client = Client(self.echo)

    def statuses(self, raw: bytes) -> list[int]:
        """The statuses of all answers to these bytes, and to a request after them."""
        return [answer.status for answer in self.client.connect().send(raw, GET).answers()]

    def refused(self, raw: bytes) -> None:
        """There is one answer, 400, and the connection takes nothing more."""
        begun = self.echo.begun
        connection = self.client.connect().send(raw)
        answer = connection.answer()
        self.assertEqual((answer.status, answer.headers["connection"]), (400, "close"), raw)
        self.assertEqual(connection.send(GET).received(), b"")
        self.assertEqual(self.echo.begun, begun, raw)

    def test_transfer_encoding(self) -> None:
        """The only transfer coding is chunked, said once and alone, however it is spelled (WIRE-2)."""
        head = b"POST /echo HTTP/1.1\r\n" + HOST
        for line in (
            CHUNKED,
            b"transfer-encoding:chunked\r\n",
            b"Transfer-Encoding: \tChunked \r\n",
            b"Transfer-Encoding:\r\n CHUNKED\r\n",
        ):
            self.assertEqual(self.statuses(head + line + b"\r\n" + BODY), [200, 200], line)
        for lines in (
            CHUNKED + CHUNKED,
            CHUNKED + b"Transfer-Encoding: identity\r\n",
            b"Transfer-Encoding: identity\r\n" + CHUNKED,
            CHUNKED + b"Transfer-Encoding:\r\n",
            b"Transfer-Encoding:\r\n",
            b"Transfer-Encoding: identity\r\n",
            b"Transfer-Encoding: identity\r\nContent-Length: 13\r\n",
            b"Transfer-Encoding: chunked, chunked\r\n",
            b"Transfer-Encoding: gzip, chunked\r\n",
            b"Transfer-Encoding: chunked, identity\r\n",
            b"Transfer-Encoding: chunked,\r\n",
            b"Transfer-Encoding: ,chunked\r\n",
            b"Transfer-Encoding: chunked;q=1\r\n",
            b'Transfer-Encoding: "chunked"\r\n',
            b"Transfer-Encoding: xchunked\r\n",
            b"Transfer-Encoding: chunked\r\n identity\r\n",
            b"Transfer-Encoding: \x0bchunked\r\n",
            b"Transfer-Encoding : chunked\r\n",
            CHUNKED + b"Content-Length: 13\r\n",
            b"Content-Length: 13\r\n" + CHUNKED,
            CHUNKED + b"Content-Length: 0\r\n",
            b"Content-Length: 13\r\nContent-Length: 13\r\n",
            b"Content-Length: 13, 13\r\n",
            b"Content-Length: +13\r\n",
            b"Content-Length: 0x13\r\n",
            b"Content-Length:\r\n",
        ):
            self.refused(head + lines + b"\r\n" + BODY)

    def test_old_version(self) -> None:
        """In HTTP/1.0 there are no transfer codings (WIRE-2)."""
        self.refused(b"POST /echo HTTP/1.0\r\n" + CHUNKED + b"\r\n" + BODY)
        self.assertEqual(self.statuses(b"POST /echo HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc"), [200])

    def test_host(self) -> None:
        """A request of HTTP/1.1 names one host, one of HTTP/1.0 one at most, and both by what can be a host (WIRE-3)."""
        self.refused(b"GET /echo HTTP/1.1\r\n\r\n")
        self.assertEqual(self.statuses(b"GET /echo HTTP/1.0\r\n\r\n"), [200])
        for version in (b"1.1", b"1.0"):
            head = b"GET /echo HTTP/" + version + b"\r\n"
            for host in (
                b"svc.example",
                b"SVC.example:8443",
                b"my_host",
                b"127.0.0.1:80",
                b"[::1]",
                b"[2001:db8::1]:8443",
                b"[fe80::1%25eth0]",
                b"h%C3%A9",
                b"h:",
                b"",
            ):
                self.assertEqual(self.statuses(head + b"Host: " + host + b"\r\n\r\n")[0], 200, host)
            for host in (
                b"a b",
                b"a, b",
                b"a/b",
                b"a@b",
                b"http://a",
                b"a:b",
                b"a:1:2",
                b"a:123456",
                b"a#b",
                b"a?b",
                b"a\\b",
                b"h%zz",
                b"::1",
                b"[::1",
                b"[]",
                b"[::1]x",
                b"h\xc3\xa9",
                b"a\x01",
                b"x" * 2000,
            ):
                self.refused(head + b"Host: " + host + b"\r\n\r\n")
            self.refused(head + HOST + HOST + b"\r\n")
            self.refused(head + HOST + b"X: y\r\nhost: other\r\n\r\n")
            self.refused(head + b"Host : a\r\n\r\n")

    def test_absolute(self) -> None:
        """A target that names a host itself doesn't do without the header (WIRE-3)."""
        self.refused(b"GET http://svc.example/echo HTTP/1.1\r\n\r\n")
        self.assertEqual(self.statuses(b"GET http://svc.example/echo HTTP/1.1\r\n" + HOST + b"\r\n"), [200, 200])

    def test_blank_lines(self) -> None:
        """A few blank lines before a request are passed over, before each one; many are refused, and so are halves
        (WIRE-4).
        """
        blank = b"\r\n"
        for count in (1, 2, 4):
            self.assertEqual(self.statuses((blank * count + GET) * 3), [200] * 4)
            connection = self.client.connect().send(*[b"\r", b"\n"] * count, GET)
            self.assertEqual([answer.status for answer in connection.answers()], [200])
        self.refused(blank * 5 + GET)
        self.refused(blank * 100_000)
        for raw in (b"\n" + GET, b"\r" + GET, b" \r\n" + GET, b"\r\n\n" + GET):
            self.refused(raw)

    @given(
        st.lists(
            st.sampled_from(
                [HOST, HOST, CHUNKED, b"Content-Length: 13\r\n", b"Transfer-Encoding: identity\r\n", b"A: b\r\n"]
            ),
            max_size=5,
        ),
        st.sampled_from([b"1.0", b"1.1"]),
    )
    def test_one_meaning(self, lines: list[bytes], version: bytes) -> None:
        """A head is read in one way or refused, whichever lines it has in whichever order."""
        raw = b"POST /echo HTTP/" + version + b"\r\n" + b"".join(lines) + b"\r\n"
        codings = sum(line.startswith(b"Transfer") for line in lines)
        lengths, hosts, current = lines.count(b"Content-Length: 13\r\n"), lines.count(HOST), version == b"1.1"
        chunked = CHUNKED in lines
        sound = (
            (codings == 0 or (codings == 1 and chunked and current and not lengths))
            and lengths <= 1
            and (hosts == 1 or (hosts == 0 and not current))
        )
        answers = self.client.connect().send(raw + (BODY if codings or lengths else b"")).answers()
        self.assertEqual([answer.status for answer in answers], [200 if sound else 400])
        if sound:
            self.assertEqual(answers[0].body, b"abc" if chunked else BODY if lengths else b"")


def decoded(chunks: ChunkDecoder, *pieces: bytes) -> tuple[bytes, bytes]:
    """What these pieces have of a body, and what follows it."""
    body, rest = b"", b""
    for piece in pieces:
        if chunks.has_ended:
            rest += piece
        else:
            more, left = chunks.decode(piece)
            body, rest = body + more, piece[len(piece) - left :]
    return body, rest


class ChunksTests(SynchronousTestCase):
    """``ChunkDecoder``."""

    @given(
        st.lists(st.binary(min_size=1, max_size=40) | st.text("\r\n0", min_size=1, max_size=9).map(str.encode), max_size=5),
        st.sampled_from([b"", b";a", b';a="b c"']),
        st.sampled_from([b"", b"A: b\r\n", b"A:\r\nB: c\r\n"]),
        st.binary(max_size=20) | st.sampled_from([b"\r\n\r\n", b"0\r\n\r\n", GET]),
        st.integers(1, 30),
    )
    def test_any_chunks(self, chunks: list[bytes], extension: bytes, trailers: bytes, rest: bytes, size: int) -> None:
        """A body comes out as it went in, and what follows it is left, wherever what arrives is cut."""
        sent = b"".join(b"%x%b\r\n%b\r\n" % (len(chunk), extension, chunk) for chunk in chunks)
        sent += b"0\r\n" + trailers + b"\r\n" + rest
        reader = ChunkDecoder()
        pieces = [sent[start : start + size] for start in range(0, len(sent), size)]
        self.assertEqual((decoded(reader, *pieces), reader.has_ended), ((b"".join(chunks), rest), True))

    @given(st.lists(st.sampled_from([b"0", b"1", b"\r\n", b"\r", b"\n", b"x", b";a", b"a: b", b"G"]), max_size=12))
    def test_one_end(self, parts: list[bytes]) -> None:
        """A body ends after an empty line alone, whatever stands before it."""
        reader, sent = ChunkDecoder(), b"".join(parts)
        try:
            _, rest = decoded(reader, sent)
        except MalformedRequest:
            return
        self.assertTrue(not reader.has_ended or sent[: len(sent) - len(rest)].endswith(b"\r\n\r\n"), sent)

    def test_bounded(self) -> None:
        """Extensions and trailers have a limit together, and bytes of the body begin it again (WIRE-2)."""
        line = b"A: b\r\n"
        for before in (b"0\r\n", b"1;a="):
            text = line if before.endswith(b"\n") else b"aaaaaa"
            reader = ChunkDecoder()
            decoded(reader, before, *[text] * (MAX_OVERHEAD // 6 - 1))
            self.assertRaises(MalformedRequest, decoded, reader, text * 2)
        reader = ChunkDecoder()
        body, _ = decoded(reader, *[b"1;a=" + b"b" * (MAX_OVERHEAD // 2) + b"\r\nx\r\n"] * 10)
        self.assertEqual(body, b"x" * 10)
