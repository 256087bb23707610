"""Requests read from bytes, however these arrive; over connections, in ``test_connection`` and ``smuggling``."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.model.limits import Limits
from svc.web.http.refusal_responses import UNREADABLE
from svc.web.http.request_reader import Head, Reader, UnreadableRequest

LIMITS = Limits(request_line=2000, header_limit=3000, header_count=9)


def read(sent: bytes, size: int) -> Head | int:
    """The head in these bytes, or the status of the refusal, when so many of them come at a time."""
    reader = Reader(LIMITS)
    for start in range(0, len(sent), size):
        reader.append(sent[start : start + size])
        try:
            head = reader.read_head()
        except UnreadableRequest as unreadable:
            return UNREADABLE[unreadable.why].status
        if head is not None:
            return head
    return 0


class ReaderTests(SynchronousTestCase):
    """``Reader``."""

    @given(
        st.integers(1980, 2005) | st.integers(1, 100),
        st.lists(st.integers(1, 50) | st.integers(300, 1200), max_size=10),
        st.integers(1, 700),
    )
    def test_limits(self, line: int, headers: list[int], size: int) -> None:
        """The limits of a head are the same however it arrives, to the byte when it comes at once (LIM-1)."""
        first = b"GET /" + b"x" * (line - len("GET / HTTP/1.0")) + b" HTTP/1.0\r\n"
        block = b"".join(b"X:" + b"x" * length + b"\r\n" for length in headers) + b"\r\n"
        expected = 414 if len(first) - 2 > 2000 else 431 if len(block) > 3000 or len(headers) > 9 else 200
        for pieces in (len(first + block), size):
            found = read(first + block, pieces)
            self.assertEqual(200 if isinstance(found, Head) else found, expected)

    def test_endless(self) -> None:
        """A head that doesn't end is refused when it has grown by an eighth beyond its limits, or before (LIM-1)."""
        for begun, text, most, status in (
            (b"", b"x", 2000, 414),
            (b"GET / HTTP/1.1\r\n", b"x", 3000, 431),
            (b"GET / HTTP/1.1\r\n", b"X: y\r\n", 60, 431),
        ):
            for size in (1, 100):
                endless, kept = begun + text * 10_000, 0
                reader = Reader(LIMITS)
                while kept < len(endless):
                    reader.append(endless[kept : kept + size])
                    kept += size
                    try:
                        self.assertIsNone(reader.read_head())
                    except UnreadableRequest as unreadable:
                        self.assertEqual(UNREADABLE[unreadable.why].status, status)
                        break
                self.assertLess(kept, (len(begun) + most + size) * 9 / 8)

    def test_bare(self) -> None:
        """A line that ends with LF alone is refused when it is there, not when the head has ended or time is up (WIRE-2)."""
        for head in (
            b"GET / HTTP/1.1\nHost: x\n\n",
            b"GET / HTTP/1.1\r\nHost: x\n",
            b"\n",
            b"GET / HTTP/1.1\r\nA: b\r\nC:\n",
        ):
            for size in (1, 100):
                self.assertEqual(read(head, size), 400, head)

    def test_waiting(self) -> None:
        """The beginning of a head isn't ready to be read until more has come; blank lines are nothing at all."""
        reader = Reader(LIMITS)
        for received, ready in ((b"\r\n\r\n", 4), (b"GET / HTTP/1.0", 14), (b"\r\n\r", 17), (b"\nGET", 21)):
            reader.append(received)
            self.assertEqual((reader.size, reader.needs_more), (ready, False))
            head = reader.read_head()
            self.assertIs(reader.needs_more, head is None)
        self.assertEqual(reader.size, 3)

    @given(st.lists(st.tuples(st.integers(0, 4), st.binary(max_size=40), st.booleans()), min_size=1, max_size=6), st.data())
    def test_pieces(self, requests: list[tuple[int, bytes, bool]], data: st.DataObject) -> None:
        """Requests come out in their order, whole and once, whatever pieces they arrive in."""
        sent = b""
        for blank_lines, body, chunked in requests:
            framing, coded = f"Content-Length: {len(body)}", body
            if chunked:
                framing = "Transfer-Encoding: chunked"
                coded = b"".join(b"1\r\n" + bytes([byte]) + b"\r\n" for byte in body) + b"0\r\n\r\n"
            first = f"POST / HTTP/1.1\r\nHost: h\r\n{framing}\r\n\r\n"
            sent += b"\r\n" * blank_lines + first.encode() + coded
        reader, bodies, received = Reader(LIMITS), list[bytes](), 0
        begun = ended = False
        while received < len(sent):
            size = data.draw(st.integers(1, 60))
            reader.append(sent[received : received + size])
            received = min(received + size, len(sent))
            while reader.size and not reader.needs_more:
                if not begun and reader.read_head() is not None:
                    begun, ended = True, False
                    bodies.append(b"")
                if begun:
                    piece, ended = reader.read_body()
                    bodies[-1] += piece
                    begun = not ended
            self.assertLessEqual(reader.size, received)
        self.assertEqual((bodies, reader.size), ([body for _, body, _ in requests], 0))

    def test_bodies(self) -> None:
        """A body is read to its end and no further, and the next head after it."""
        reader = Reader(LIMITS)
        post = b"POST / HTTP/1.1\r\nHost: h\r\n"
        reader.append(post + b"Content-Length: 3\r\n\r\nab")
        assert reader.read_head() is not None
        self.assertEqual(reader.read_body(), (b"ab", False))
        reader.append(b"c" + post + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n")
        self.assertEqual(reader.read_body(), (b"c", True))
        assert reader.read_head() is not None
        self.assertEqual(reader.read_body(), (b"ab", False))
        reader.append(b"\r\nGET / HTTP/1.0\r\n\r\n")
        self.assertEqual(reader.read_body(), (b"", True))
        assert reader.read_head() is not None
        self.assertEqual(reader.size, 0)
