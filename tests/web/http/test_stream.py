"""Answers in pieces: over a connection in memory, as fast as the client takes them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import attrs
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import StoreUnavailable
from svc.model.limits import Limits
from svc.web.http.connection import LINGER_SECONDS
from svc.web.http.messages import Response
from svc.web.http.routing import PUBLIC, Call, Routes
from tests.web.support import Client, Connection, read_answers

GET = b"GET /numbers HTTP/1.1\r\nHost: h\r\n\r\n"


@attrs.define
class Numbers:
    """A noun that counts, in batches of three, as far as its test lets it."""

    routes = Routes()

    batches: int = 4
    #: What becomes of the batch of that number: it waits, or fails.
    waits: dict[int, Deferred[None]] = attrs.field(factory=dict)
    fails: dict[int, Exception] = attrs.field(factory=dict)
    #: How many batches were asked for, and whether the counting came to its end, in whatever way.
    begun: int = 0
    ended: bool = False

    @routes.add("GET", "/numbers", caller=PUBLIC)
    async def count(self, call: Call) -> Response:
        """Count."""
        return await Response.json_array(self._count(), (("X-More", "1"),), head=b'{"n":[', tail=b"]}")

    @routes.add("GET", "/one", caller=PUBLIC)
    async def one(self, call: Call) -> Response:
        """Something short."""
        return Response.text("one")

    async def _count(self) -> AsyncIterator[list[int]]:
        try:
            for number in range(self.batches):
                self.begun += 1
                if number in self.waits:
                    await self.waits[number]
                if number in self.fails:
                    raise self.fails[number]
                yield [number, number, number]
        finally:
            self.ended = True


class StreamTests(SynchronousTestCase):
    """One connection to one noun."""

    def setUp(self) -> None:
        """Serve one noun."""
        self.numbers = Numbers()
        self.client = Client(self.numbers, limits=Limits(idle_seconds=60.0))
        self.connection = self.client.connect()

    def tearDown(self) -> None:
        """Nothing goes on when the connection has ended, and no timer is left."""
        self.connection.leave()
        self.assertEqual(self.client.clock.getDelayedCalls(), [])
        self.assertTrue(self.numbers.ended or not self.numbers.begun)

    def send(self, request: bytes = GET) -> Connection:
        """Send a request."""
        return self.connection.send(request)

    def test_whole(self) -> None:
        """All batches make one array, in chunks, and the connection takes further requests (WIRE-37)."""
        for batches in (2, 3, 9):
            self.numbers.batches = batches
            answer = self.send().answer()
            self.assertEqual(json.loads(answer.body), {"n": [n for n in range(batches) for _ in range(3)]})
            self.assertEqual(answer.headers["content-type"], "application/json")
            self.assertEqual(answer.headers["x-more"], "1")
        self.assertEqual(self.send(b"GET /one HTTP/1.1\r\nHost: h\r\n\r\n").answer().body, b"one")

    def test_short(self) -> None:
        """One batch, or none, has a length and no chunks."""
        for batches, numbers in ((0, []), (1, [0, 0, 0])):
            self.numbers.batches = batches
            answer = self.send().answer()
            self.assertEqual((answer.json(), answer.headers["content-length"]), ({"n": numbers}, str(len(answer.body))))

    def test_pipelined(self) -> None:
        """The next request is answered after the last piece."""
        self.numbers.waits[2] = waiting = Deferred[None]()
        self.send(GET + b"GET /one HTTP/1.1\r\nHost: h\r\n\r\n")
        self.assertNotIn(b"one", self.connection.sent)
        waiting.callback(None)
        self.assertEqual([len(answer.body) for answer in self.connection.answers()], [31, 3])

    def test_head(self) -> None:
        """A HEAD is told no length and gets no piece."""
        answer = self.send(GET.replace(b"GET", b"HEAD")).answer(head=True)
        self.assertEqual((answer.status, answer.headers["transfer-encoding"]), (200, "chunked"))
        self.assertEqual(self.numbers.begun, 2)
        self.numbers.ended = True

    def test_old_clients(self) -> None:
        """A client of HTTP/1.0 gets no chunks: the end of the connection ends the answer (WIRE-37)."""
        head, _, body = self.send(GET.replace(b"1.1", b"1.0")).received().partition(b"\r\n\r\n")
        self.assertNotIn(b"chunked", head)
        self.assertIn(b"Connection: close", head)
        self.assertEqual(len(json.loads(body)["n"]), 12)
        self.assertFalse(self.connection.open)

    def test_held_back(self) -> None:
        """While the client takes nothing, nothing more is asked for; when it does, it goes on."""
        self.numbers.batches = 100
        self.connection.stall()
        self.send()
        self.assertEqual(self.numbers.begun, 2)
        self.connection.resume()
        self.assertEqual(len(json.loads(self.connection.answer().body)["n"]), 300)

    def test_stalled(self) -> None:
        """A client that takes nothing for too long is let go, whatever it sends meanwhile."""
        self.numbers.batches = 100
        self.connection.stall()
        self.send()
        self.client.clock.advance(59)
        self.send(b"G")
        self.client.clock.advance(2)
        self.client.clock.advance(LINGER_SECONDS)
        self.assertFalse(self.connection.open)
        self.assertTrue(self.numbers.ended)

    def test_slow_store(self) -> None:
        """A client that waits for the next piece is not idle."""
        self.numbers.waits[3] = waiting = Deferred[None]()
        self.send()
        self.client.clock.advance(1000)
        self.assertTrue(self.connection.open)
        waiting.callback(None)
        self.assertEqual(self.connection.answer().status, 200)

    def test_client_leaves(self) -> None:
        """A client that leaves ends the asking at once, whether a piece was awaited or the client."""
        cancelled: list[object] = []
        self.numbers.waits[3] = Deferred(cancelled.append)
        self.send()
        self.connection.leave()
        self.assertEqual((len(cancelled), self.numbers.ended), (1, True))
        stalled = self.client.connect()
        self.numbers.waits.clear()
        self.numbers.ended = False
        stalled.stall()
        stalled.send(GET)
        stalled.leave()
        self.assertTrue(self.numbers.ended)

    def test_fails_at_first(self) -> None:
        """What fails before the first piece was written is answered as an error."""
        for number, fault, status in ((0, StoreUnavailable("gone"), 503), (1, KeyError("a bug"), 500)):
            self.numbers.fails = {number: fault}
            self.assertEqual(self.send().answer().status, status)
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)

    def test_fails_later(self) -> None:
        """What fails later cuts the answer off, without the last chunk, and ends the connection (WIRE-37)."""
        for fault in (StoreUnavailable("gone"), KeyError("a bug")):
            connection = self.client.connect()
            self.numbers.fails = {2: fault}
            received = connection.send(GET).received()
            self.assertTrue(received.startswith(b"HTTP/1.1 200 OK\r\n"))
            self.assertFalse(connection.open)
            self.assertRaises(AssertionError, read_answers, received)
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)

    def test_drained(self) -> None:
        """A server that stops lets the answer come to its end, then closes."""
        self.numbers.waits[3] = waiting = Deferred[None]()
        self.send()
        drained = Deferred.fromCoroutine(self.client.site.drain(10))
        self.assertNoResult(drained)
        waiting.callback(None)
        self.successResultOf(drained)
        self.assertEqual(len(json.loads(self.connection.answer().body)["n"]), 12)
        self.assertFalse(self.connection.open)
