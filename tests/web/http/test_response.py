"""Answers as values, and on the wire."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.web.http.response import Response
from tests.web.support import Answer, read_answers


def written(response: Response, *, close: bool = False, head: bool = False, request_id: str | None = "r1") -> Answer:
    """The answer as a client reads it."""
    [answer] = read_answers(response.encode("Server: svc\r\n", request_id=request_id, close=close, head=head), head=head)
    return answer


class ResponseTests(SynchronousTestCase):
    """``Response``."""

    def test_json(self) -> None:
        """JSON is compact ASCII, and has no character that means something in a page (WIRE-35)."""
        response = Response.json({"a": ["<é>", "&", 1, None]}, 201)
        self.assertEqual((response.status, response.content_type), (201, "application/json"))
        self.assertEqual(response.body, rb'{"a":["\u003c\u00e9\u003e","\u0026",1,null]}')

    def test_json_takes_any_text(self) -> None:
        """Even half a surrogate pair, which no encoding takes, can be told."""
        self.assertEqual(Response.json("\ud800").body, rb'"\ud800"')

    def test_json_without_nan(self) -> None:
        """NaN, which JSON lacks, is a bug of who wrote it."""
        self.assertRaises(ValueError, Response.json_with_floats, float("nan"))

    def test_secret_in_no_repr(self) -> None:
        """The body doesn't show."""
        self.assertNotIn("hunter2", repr(Response.text("hunter2")))

    def test_statuses_that_exist(self) -> None:
        """A status that HTTP lacks is refused where the answer is made."""
        self.assertRaises(ValueError, Response, 999)

    def test_wire(self) -> None:
        """On the wire an answer has its type, length and id, and is stored nowhere (WIRE-33)."""
        answer = written(Response.text("héllo", 200, (("X-More", "1"),)))
        self.assertEqual(answer.body, "héllo".encode())
        self.assertEqual(
            answer.headers,
            {
                "server": "svc",
                "cache-control": "no-store",
                "x-request-id": "r1",
                "content-type": "text/plain; charset=utf-8",
                "content-length": "6",
                "x-more": "1",
            },
        )

    def test_close(self) -> None:
        """The last answer on a connection says so."""
        self.assertEqual(written(Response.empty(), close=True).headers["connection"], "close")
        self.assertNotIn("connection", written(Response.empty()).headers)

    def test_json_text(self) -> None:
        """Text that is JSON already is answered as JSON, harmless in a page."""
        answer = written(Response.json_from_text('{"a":"<b>"}'))
        self.assertEqual((answer.headers["content-type"], answer.body), ("application/json", b'{"a":"\\u003cb\\u003e"}'))

    def test_without_request(self) -> None:
        """An answer to what was no request echoes no id (WIRE-34)."""
        self.assertNotIn("x-request-id", written(Response.empty(400), request_id=None).headers)

    def test_head(self) -> None:
        """A HEAD is told the length of the body that it doesn't get (WIRE-17)."""
        answer = written(Response.text("12345"), head=True)
        self.assertEqual((answer.headers["content-length"], answer.body), ("5", b""))

    def test_no_content(self) -> None:
        """An answer without content has no length, and an empty one has length 0 (WIRE-33)."""
        self.assertNotIn("content-length", written(Response.empty(204)).headers)
        self.assertEqual(written(Response(204, b"never sent")).body, b"")
        self.assertEqual(written(Response.empty(201)).headers["content-length"], "0")

    def test_cache_control(self) -> None:
        """What is no secret may be stored."""
        self.assertEqual(written(Response(200, cache_control="max-age=60")).headers["cache-control"], "max-age=60")

    @given(st.text(), st.text())
    def test_no_header_is_forged(self, mime_type: str, value: str) -> None:
        """Whatever stands in a value, there are as many headers as were meant, and one answer (WIRE-36)."""
        answer = written(Response.content(b"x", mime_type, headers=(("X-More", value),)))
        self.assertEqual(len(answer.headers), 6)
        self.assertEqual(answer.body, b"x")

    def test_line_ends_become_blanks(self) -> None:
        """A type that holds line ends, as policy may give, stays on its line (WIRE-36)."""
        answer = written(Response.content(b"x", "text/plain\r\nSet-Cookie: a\r\n\r\n"))
        self.assertEqual(answer.headers["content-type"].rstrip(), "text/plain  Set-Cookie: a")
