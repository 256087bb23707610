"""Requests that are counted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.model.dialect import NATIVE
from svc.model.limits import Limits
from svc.web.http.messages import IncomingRequest, Response
from svc.web.http.router import Router
from svc.web.http.routing import PUBLIC, REQUIRED, Call, Routes
from tests.chronicle import Chronicle
from tests.web.support import caller, primary, reached


class Noun:
    """A noun with a route that answers, one that waits and one that needs a token."""

    routes = Routes()

    def __init__(self) -> None:
        self.waiting: Deferred[None] = Deferred()

    @routes.add("GET", "/things/<name>", caller=PUBLIC)
    async def show(self, call: Call, name: str) -> Response:
        """Answer."""
        return Response.text(name)

    @routes.add("GET", "/wait", caller=PUBLIC)
    async def wait(self, call: Call) -> Response:
        """Wait."""
        await self.waiting
        return Response.empty()

    @routes.add("GET", "/mine", caller=REQUIRED)
    async def mine(self, call: Call) -> Response:
        """Answer a request that has a token."""
        return Response.empty()


class MeasuredTests(SynchronousTestCase):
    """Counts, by route and status."""

    def setUp(self) -> None:
        """Count nothing yet."""
        self.noun, self.clock = Noun(), Clock()
        self.counted: list[tuple[str, str, float]] = []
        self.router = Router(
            [self.noun],
            caller=caller,
            ensure_writable=primary,
            reached=reached,
            limits=Limits(),
            new_id=lambda: "id",
            journal=Chronicle(),
            dialect=NATIVE,
            clock=self.clock,
            count=lambda *counted: self.counted.append(counted),
        )

    def ask(self, target: str, method: str = "GET") -> Deferred[Response]:
        """Ask."""
        incoming = IncomingRequest(method, target, {}, "192.0.2.1", "id", 0, 1000)
        incoming.end_body()
        self.incoming = incoming
        return self.router.respond(incoming)

    def test_routes(self) -> None:
        """A request counts under the route's pattern, whatever stands in its place, and under none where there is none
        (HEALTH-27).
        """
        for target, method in (("/things/a?x", "GET"), ("/things/b", "HEAD"), ("/nothing", "GET"), ("/mine", "GET")):
            self.successResultOf(self.ask(target, method))
        self.assertEqual(
            self.counted,
            [
                ("GET /things/<name>", "200", 0.0),
                ("GET /things/<name>", "200", 0.0),
                ("none", "404", 0.0),
                ("GET /mine", "401", 0.0),
            ],
        )

    def test_durations(self) -> None:
        """What counts is the time until there is an answer; a clock put back makes it none."""
        for passed, expected in ((1.5, 1.5), (-5.0, 0.0)):
            self.noun.waiting = Deferred()
            asked = self.ask("/wait")
            self.clock.rightNow += passed
            self.noun.waiting.callback(None)
            self.assertEqual(self.successResultOf(asked).status, 204)
            self.assertEqual(self.counted[-1], ("GET /wait", "204", expected))

    def test_clients_that_leave(self) -> None:
        """A client that leaves before there was an answer is counted as gone, and stays gone (HEALTH-27)."""
        asked = self.ask("/wait")
        self.incoming.abandoned = True
        asked.cancel()
        self.failureResultOf(asked, CancelledError)
        self.assertEqual(self.counted, [("GET /wait", "gone", 0.0)])

    @given(st.text(), st.text(min_size=1, max_size=9))
    def test_nothing_that_is_sent_is_a_label(self, target: str, method: str) -> None:
        """Whatever is asked for, there are no operations but the routes and none (HEALTH-27)."""
        self.successResultOf(self.ask("/" + target, method)) if "wait" not in target else None
        self.assertLessEqual({operation for operation, _, _ in self.counted}, {"GET /things/<name>", "GET /mine", "none"})
