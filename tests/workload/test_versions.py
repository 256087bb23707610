"""Tests of ``svc.workload.versions``, and of how requests carry them."""

from __future__ import annotations

from typing import cast

from hypothesis import given
from hypothesis import strategies as st
from klein import Klein
from treq.client import HTTPClient
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.server import Request

from svc.model.versions import MAX_VERSIONS
from svc.workload.exchange import Exchange
from svc.workload.replies import Reply
from svc.workload.versions import REQUIRED_SECONDS, Versions
from tests.workload.wire import Wire


class VersionsTests(SynchronousTestCase):
    """What is noted, and what is asked for."""

    def setUp(self) -> None:
        """Note nothing yet."""
        self.clock = Clock()
        self.versions = Versions(self.clock.seconds)

    def test_newest(self) -> None:
        """The newest of each system is asked for, by timeline, then position, in whatever order they were told (NET-27)."""
        self.assertIsNone(self.versions.wanted)
        for text in ("a.1.20", "a.1.3", "b.1.1", "a.1.100", "a.1.21"):
            self.versions.note(text)
        self.assertEqual(self.versions.wanted, "b.1.1,a.1.100")
        self.versions.note("a.2.5")
        self.assertEqual(self.versions.wanted, "b.1.1,a.2.5")

    @given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 300)), min_size=1))
    def test_any_order(self, told: list[tuple[int, int]]) -> None:
        """Whatever the order, the newest remains (NET-27)."""
        versions = Versions(self.clock.seconds)
        for timeline, position in told:
            versions.note(f"a.{timeline:x}.{position:x}")
        timeline, position = max(told)
        self.assertEqual(versions.wanted, f"a.{timeline:x}.{position:x}")

    def test_ignored(self) -> None:
        """What is no version is ignored (NET-27)."""
        for text in (None, "", "x", "1.1.1\r\nX: y", "1.1.1,2.2.2"):
            self.versions.note(text)
        self.assertIsNone(self.versions.wanted)

    def test_forgotten(self) -> None:
        """Each is asked for during an hour, and no more than four (NET-27)."""
        for system in range(1, MAX_VERSIONS + 3):
            self.clock.advance(1)
            self.versions.note(f"{system}.1.1")
        self.assertEqual(self.versions.wanted, "3.1.1,4.1.1,5.1.1,6.1.1")
        self.clock.advance(REQUIRED_SECONDS - 2)
        self.assertEqual(self.versions.wanted, "5.1.1,6.1.1")
        self.clock.advance(REQUIRED_SECONDS)
        self.assertIsNone(self.versions.wanted)
        # As after a database was set back: what is older counts again, once the newer one is forgotten.
        self.versions.note("6.1.9")
        self.clock.advance(REQUIRED_SECONDS)
        self.versions.note("6.1.2")
        self.assertEqual(self.versions.wanted, "6.1.2")


class ExchangeTests(SynchronousTestCase):
    """Requests that carry them."""

    def setUp(self) -> None:
        """Serve what tells a version for each change, and notes what is asked for."""
        self.asked: list[str | None] = []
        self.clock = Clock()
        app = Klein()

        @app.route("/", branch=True)
        def answer(request: Request) -> bytes:
            self.asked.append(request.getHeader("Svc-At-Least"))
            if request.method == b"POST":
                request.setHeader("Svc-Version", "a.1.7")
            return b""

        self.http = cast(HTTPClient, Wire(app.resource()))

    def ask(self, exchange: Exchange, method: str) -> Reply:
        """Ask."""
        return self.successResultOf(Deferred.fromCoroutine(exchange.ask(method, "http://svc.example/", within=1)))

    def test_carried(self) -> None:
        """A change's version is asked for by every request after it, also of another client that shares the versions
        (NET-27).
        """
        versions = Versions(self.clock.seconds)
        one, other = (Exchange(self.http, self.clock, 100, versions) for _ in range(2))
        for exchange, method in ((one, "GET"), (one, "POST"), (one, "GET"), (other, "GET")):
            self.ask(exchange, method)
        self.assertEqual(self.asked, [None, None, "a.1.7", "a.1.7"])

    def test_without(self) -> None:
        """An exchange that has none, as one with a cloud's metadata service, carries nothing (NET-27)."""
        exchange = Exchange(self.http, self.clock, 100)
        self.ask(exchange, "POST")
        self.ask(exchange, "GET")
        self.assertEqual(self.asked, [None, None])
