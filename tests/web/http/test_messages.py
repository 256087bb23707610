"""Requests, on their way in and answered once; responses as values, on the wire, and their JSON."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import TooLarge
from svc.model.limits import Limits
from svc.web.http.client_address import TrustedProxies
from svc.web.http.messages import (
    BATCH_SIZE,
    HttpConfig,
    IncomingRequest,
    Json,
    Response,
    encode_elements,
    encode_json,
    encode_json_with_floats,
    encode_object_start,
    escape_html,
    generate_ids,
)
from svc.web.http.request_reader import Fields
from svc.web.http.site import Site
from tests.web.support import Answer, Connection, read_answers

GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"


def connect(respond: Callable[[IncomingRequest], Any]) -> Connection:
    """A connection whose requests ``respond`` answers, with no router behind it."""
    clock = Clock()
    config = HttpConfig(
        respond=respond, limits=Limits(), clock=clock, wall=clock, new_id=lambda: "i-1", proxies=TrustedProxies()
    )
    return Connection(Site(config), clock)


class RequestTests(SynchronousTestCase):
    """``Request``, with a router that breaks its word."""

    def test_router_raises(self) -> None:
        """A router that raises has a bug, and the client gets its incident."""

        def respond(_: IncomingRequest) -> Deferred[Response]:
            raise KeyError("a bug")

        connection = connect(respond).send(GET)
        self.assertEqual(connection.answer().status, 500)
        self.assertTrue(connection.open)
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)

    def test_router_fails(self) -> None:
        """A router whose answer is a failure has a bug, too."""
        connection = connect(lambda _: fail(KeyError("a bug"))).send(GET)
        self.assertIn(b"i-1", connection.answer().body)
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)

    def test_answer_that_cannot_be_written(self) -> None:
        """When nothing sensible can be written any more, the connection ends."""
        connection = connect(lambda _: succeed(None)).send(GET)
        self.assertEqual((connection.received(), connection.open), (b"", False))
        self.assertEqual(len(self.flushLoggedErrors(AttributeError)), 1)

    def test_late_answer(self) -> None:
        """An answer for which nobody waits any more is dropped."""
        waiting: Deferred[Response] = Deferred(lambda deferred: deferred.callback(Response.empty()))
        connection = connect(lambda _: waiting).send(GET)
        connection.leave()
        self.assertEqual(connection.received(), b"")


class RequestIdsTests(SynchronousTestCase):
    """Ids of requests."""

    def test_each_is_another(self) -> None:
        """No two ids are alike, of one generator or of several, within what is made at a time and beyond."""
        first, second = generate_ids(), generate_ids()
        ids = [next(ids) for _ in range(2 * BATCH_SIZE + 1) for ids in (first, second)]
        self.assertEqual(len(set(ids)), len(ids))
        self.assertTrue(all(re.fullmatch("[0-9a-f]{16}", each) for each in ids))


def incoming(declared: int = 0, limit: int = 10, headers: Fields | None = None) -> IncomingRequest:
    """A request whose body is to come."""
    return IncomingRequest("POST", "/", headers or {}, "192.0.2.1", "r1", declared, limit)


def wait(request: IncomingRequest) -> Deferred[bytes]:
    """Ask for the body."""
    return Deferred.fromCoroutine(request.read_body())


class IncomingTests(SynchronousTestCase):
    """``IncomingRequest``."""

    def test_body(self) -> None:
        """The body comes when it is complete, whole."""
        request = incoming()
        asked = wait(request)
        request.append_body(b"12345")
        request.append_body(b"67890")
        self.assertNoResult(asked)
        request.end_body()
        self.assertEqual(self.successResultOf(asked), b"1234567890")
        self.assertEqual(self.successResultOf(wait(request)), b"1234567890")

    def test_declared_too_large(self) -> None:
        """A declared length over the limit is refused before a byte has come (LIM-2)."""
        self.assertEqual(self.failureResultOf(wait(incoming(11)), TooLarge).value.limit, 10)

    def test_chunked_too_large(self) -> None:
        """A body without a declared length is refused with the byte that exceeds the limit (LIM-2)."""
        request = incoming()
        asked = wait(request)
        request.append_body(b"1234567890")
        self.assertNoResult(asked)
        request.append_body(b"1")
        self.failureResultOf(asked, TooLarge)
        request.append_body(b"2" * 100)
        self.assertGreater(request.size, request.limit)

    def test_too_large_before_anyone_asks(self) -> None:
        """A body that has exceeded the limit is refused whenever it is asked for."""
        request = incoming()
        request.append_body(b"12345678901")
        request.end_body()
        self.failureResultOf(wait(request), TooLarge)

    def test_limit_of_the_route(self) -> None:
        """A route may take more than what is usual."""
        request = incoming(11)
        request.limit = 20
        self.assertLessEqual(request.size, request.limit)
        request.append_body(b"12345678901")
        request.end_body()
        self.assertEqual(self.successResultOf(wait(request)), b"12345678901")

    def test_discard(self) -> None:
        """What nobody wants is dropped, and still counted."""
        request = incoming()
        request.discard_body()
        request.append_body(b"12345678901")
        self.assertGreater(request.size, request.limit)

    def test_headers(self) -> None:
        """Header lines of one name are one value; bytes that are no text are read as Latin-1."""
        headers = {b"x-some": [b"a", b"\xe9"]}
        request = incoming(headers=headers)
        self.assertEqual(request.header(b"X-Some"), "a, é")
        self.assertIsNone(request.header(b"x-other"))

    def test_secret_in_no_repr(self) -> None:
        """The body doesn't show."""
        request = incoming()
        request.append_body(b"hunter2")
        self.assertNotIn("hunter2", repr(request))


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


#: Any text, with those characters again and again that one writer or the other escapes; halves of surrogate pairs, too.
TEXTS = st.text(st.characters(exclude_categories=())) | st.text('<>&"\\/\x00\x08\n\x1f\x7f\x80\u2028\ud800\udfff😀é')

#: Integers of any length, and booleans, which Python counts among them.
DOCUMENTS: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(-(2**70), 2**70) | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner) | st.tuples(inner, inner),
)


def expected(document: object) -> bytes:
    """What the standard library writes, with the escapes of WIRE-35."""
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    return text.translate({ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&"}).encode("ascii")


class WritingTests(SynchronousTestCase):
    """``encode_json``, ``encode_json_with_floats``."""

    @given(DOCUMENTS)
    @example("\x7f")
    @example(["\ud83d\ude00", {"😀": -(2**63), "<": 2**64}])
    def test_same_bytes(self, document: Json) -> None:
        """A document has the bytes that the standard library writes, but for three escapes (WIRE-35)."""
        self.assertEqual(encode_json(document), expected(document))

    @given(st.floats(allow_nan=False, allow_infinity=False) | DOCUMENTS)
    @example([1e16, 1e-7, -0.0, 1e22, 5e-324, 123456789.123])
    def test_any(self, document: object) -> None:
        """So has one with fractions, from the writer that takes them."""
        self.assertEqual(encode_json_with_floats(document), expected(document))

    @given(st.floats(allow_nan=False, allow_infinity=False))
    def test_thousandths(self, number: float) -> None:
        """Fractions that are rounded to thousandths have the same bytes from both writers, as health reports rely on."""
        rounded: object = round(number, 3)
        self.assertEqual(encode_json([rounded]), encode_json_with_floats([rounded]))  # type: ignore[list-item]

    def test_order(self) -> None:
        """Members stay in the order in which they were given."""
        self.assertEqual(encode_json({"b": 1, "a": {"d": 2, "c": 3}}), b'{"b":1,"a":{"d":2,"c":3}}')

    def test_deep(self) -> None:
        """What is too deep for one library is written by the other."""
        document: Json = []
        for _ in range(300):
            document = [document]
        self.assertEqual(encode_json(document), b"[" * 301 + b"]" * 301)

    def test_no_numbers(self) -> None:
        """NaN and infinite numbers, which JSON lacks, are bugs of who writes them."""
        for number in (float("nan"), float("inf"), -float("inf")):
            self.assertRaises(ValueError, encode_json_with_floats, {"a": number})

    def test_no_json(self) -> None:
        """What isn't JSON is a bug of who writes it, for either library."""
        for document in ({1, 2}, b"bytes", object()):
            self.assertRaises(TypeError, encode_json, document)

    def test_harmless(self) -> None:
        """Nothing in a page begins or ends in JSON."""
        self.assertEqual(escape_html(b'{"<a>":"&amp;"}'), rb'{"\u003ca\u003e":"\u0026amp;"}')


class PartsTests(SynchronousTestCase):
    """``encode_elements``, ``encode_object_start``."""

    @given(st.lists(DOCUMENTS, max_size=60))
    def test_elements(self, rows: list[Json]) -> None:
        """Chunks of elements make the inside of their array."""
        self.assertEqual(b"[" + b"".join(encode_elements(rows)) + b"]", expected(rows))

    def test_many_elements(self) -> None:
        """Long arrays come in many chunks, each of a few elements."""
        rows: list[Json] = [{"id": f"acct:host:{number}", "é": sys.maxsize} for number in range(1000)]
        chunks = list(encode_elements(rows))
        self.assertGreater(len(chunks), 50)
        self.assertEqual(b"[" + b"".join(chunks) + b"]", expected(rows))

    def test_members(self) -> None:
        """Members are the beginning of their object."""
        self.assertEqual(encode_object_start({"a": 1, "b": "<"}) + b"}", rb'{"a":1,"b":"\u003c"}')
