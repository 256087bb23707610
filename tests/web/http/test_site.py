"""A site ends its connections in good order."""

from __future__ import annotations

import attrs
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from svc.web.http.connection import LINGER_SECONDS
from svc.web.http.messages import Response
from svc.web.http.routing import PUBLIC, Call, Routes
from tests.web.support import Client

GET = b"GET /slow HTTP/1.1\r\nHost: h\r\n\r\n"


@attrs.define
class Slow:
    """A noun that answers when its test says so."""

    routes = Routes()

    waiting: Deferred[None] = attrs.field(factory=Deferred)

    @routes.add("GET", "/slow", caller=PUBLIC)
    async def wait(self, call: Call) -> Response:
        """Wait."""
        await self.waiting
        return Response.empty(200)


class DrainTests(SynchronousTestCase):
    """``Site.drain``."""

    def setUp(self) -> None:
        """Serve one noun."""
        self.slow = Slow()
        self.client = Client(self.slow)

    def drain(self, timeout: float = 10) -> Deferred[None]:
        """Begin to drain."""
        return Deferred.fromCoroutine(self.client.site.drain(timeout))

    def test_nothing_to_wait_for(self) -> None:
        """A site without connections is drained."""
        self.successResultOf(self.drain())

    def test_idle(self) -> None:
        """Idle connections are closed at once, those that were refused as well (WIRE-45)."""
        connections = [self.client.connect(), self.client.connect().send(b"nonsense\r\n")]
        self.successResultOf(self.drain())
        self.assertFalse(any(connection.open for connection in connections))

    def test_in_progress(self) -> None:
        """A request in progress is answered, and then its connection closes (WIRE-45)."""
        connection = self.client.connect().send(GET + GET)
        drained = self.drain()
        self.assertNoResult(drained)
        self.slow.waiting.callback(None)
        self.assertEqual(connection.answer().headers["connection"], "close")
        self.assertFalse(connection.open)
        self.successResultOf(drained)

    def test_arriving(self) -> None:
        """A request that is just coming in may come in (WIRE-45)."""
        self.slow.waiting.callback(None)
        connection = self.client.connect().send(GET[:5])
        drained = self.drain()
        answer = connection.send(GET[5:]).answer()
        self.assertEqual((answer.status, answer.headers["connection"]), (200, "close"))
        self.successResultOf(drained)

    def test_too_long(self) -> None:
        """What isn't done in time is cut off."""
        connection = self.client.connect().send(GET)
        drained = self.drain(10)
        self.client.clock.advance(9)
        self.assertNoResult(drained)
        self.client.clock.advance(1)
        self.successResultOf(drained)
        self.assertEqual((connection.open, connection.received()), (False, b""))

    def test_late_comers(self) -> None:
        """A site that drains takes no further connections (WIRE-45)."""
        self.successResultOf(self.drain())
        self.assertIsNone(self.client.site.buildProtocol(None))

    def test_leaves_no_timer(self) -> None:
        """After draining, no timer is left."""
        self.client.connect()
        self.successResultOf(self.drain())
        self.client.clock.advance(LINGER_SECONDS)
        self.assertEqual(self.client.clock.getDelayedCalls(), [])

    def test_protocols(self) -> None:
        """TLS offers HTTP/1.1 and no other (WIRE-1)."""
        self.assertEqual(self.client.site.acceptableProtocols(), [b"http/1.1"])
