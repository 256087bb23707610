"""Tests of ``svc.workload.capped_agent``."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionAborted
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.workload.capped_agent import HEADERS_LIMIT
from svc.workload.exchange import Exchange, http_client
from svc.workload.faults import TooLong, Unreachable
from svc.workload.replies import Reply


class Transport(StringTransport):
    """A connection that ends when the test says so; ``aborted`` is whether that was wanted."""

    aborted = False

    def abortConnection(self) -> None:
        """Want it."""
        self.aborted = True


class LineTests(SynchronousTestCase):
    """The connection of a request."""

    def ask(self, limit: int = 100) -> Deferred[Reply]:
        """Send a request, and connect."""
        self.reactor: Any = MemoryReactorClock()
        exchange = Exchange(http_client(self.reactor), self.reactor, limit)
        waiting = Deferred.fromCoroutine(exchange.ask("GET", "http://192.0.2.1/a", within=10))
        factory: Any
        [(_, _, factory, *_)] = self.reactor.tcpClients
        self.transport = Transport()
        self.wire: Any = factory.buildProtocol(None)
        self.wire.makeConnection(self.transport)
        self.assertIn(b"GET /a HTTP/1.1\r\n", self.transport.value())
        return waiting

    def test_whole(self) -> None:
        """An answer arrives in whatever pieces, and then the connection ends at once."""
        answer = b"HTTP/1.1 200 OK\r\nX-One: a\r\nContent-Length: 5\r\n\r\nparts"
        for size in (1, 7, 1000):
            waiting = self.ask()
            for start in range(0, len(answer), size):
                self.wire.dataReceived(answer[start : start + size])
            self.assertEqual(self.successResultOf(waiting).body, b"parts")
            self.assertTrue(self.transport.aborted)

    def test_base64(self) -> None:
        """That a body is in base64 is told as the server says it, and the body left as it is."""
        waiting = self.ask()
        self.wire.dataReceived(b"HTTP/1.1 200 OK\r\nContent-Encoding: base64\r\nContent-Length: 4\r\n\r\nYWJj")
        reply = self.successResultOf(waiting)
        self.assertEqual((reply.headers["content-encoding"], reply.body), ("base64", b"YWJj"))

    def test_headers(self) -> None:
        """Headers that don't end, and interim answers that don't, are cut off; a long body is not taken for headers."""
        for began, line in (
            (b"HTTP/1.1 200 OK\r\n", b"X: %s\r\n" % (b"x" * 1000)),
            (b"", b"HTTP/1.1 102 Processing\r\nX: %s\r\n\r\n" % (b"x" * 1000)),
        ):
            waiting = self.ask()
            self.wire.dataReceived(began)
            for _ in range(HEADERS_LIMIT // len(line) + 1):
                self.assertFalse(self.transport.aborted)
                self.wire.dataReceived(line)
            self.assertTrue(self.transport.aborted)
            self.wire.connectionLost(Failure(ConnectionAborted()))
            self.assertIn("larger than", str(self.failureResultOf(waiting, TooLong).value))
        waiting = self.ask(limit=2 * HEADERS_LIMIT)
        self.wire.dataReceived(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (HEADERS_LIMIT + 1))
        self.wire.dataReceived(b"x" * HEADERS_LIMIT)
        self.wire.dataReceived(b"x")
        self.assertEqual(len(self.successResultOf(waiting).body), HEADERS_LIMIT + 1)

    def test_hanging_up(self) -> None:
        """When an answer is too long or late, the connection ends at once, whatever the other side does."""
        waiting = self.ask(limit=3)
        self.wire.dataReceived(b"HTTP/1.1 200 OK\r\n\r\nabcd")
        self.failureResultOf(waiting, TooLong)
        self.assertTrue(self.transport.aborted)
        for began in (b"", b"HTTP/1.1 200 OK\r\n\r\nabcd"):
            waiting = self.ask()
            self.wire.dataReceived(began)
            self.reactor.advance(10)
            self.failureResultOf(waiting, Unreachable)
            self.assertTrue(self.transport.aborted)
