"""A request is answered once, whatever its router does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.model.limits import Limits
from svc.web.http.client_address import TrustedProxies
from svc.web.http.connection import Site
from svc.web.http.request import HttpConfig, IncomingRequest
from svc.web.http.response import Response
from tests.web.support import Connection

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
