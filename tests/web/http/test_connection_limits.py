"""How many connections there may be, who makes room for whom, and what is answered when there is none."""

from __future__ import annotations

from ipaddress import ip_network

import attrs
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import LogLevel, capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from svc.model.limits import Limits
from svc.web.http.client_address import TrustedProxies
from svc.web.http.connection import (
    LINGER_SECONDS,
    LOG_INTERVAL,
    MAX_CLOSING,
    MAX_OVERFLOW,
    MAX_OVERFLOW_PER_ADDRESS,
    OVERFLOW_SECONDS,
    ConnectionLimiter,
)
from svc.web.http.messages import Response
from svc.web.http.routing import PUBLIC, Call, Routes
from tests.web.declared import declared
from tests.web.support import Client, Connection

GET = b"GET /slow HTTP/1.1\r\nHost: h\r\n\r\n"
LIVE = b"GET /live HTTP/1.1\r\nHost: h\r\n\r\n"
PROXIES = TrustedProxies((ip_network("10.0.0.0/8"),))


@attrs.define
class Slow:
    """A noun with a route that waits for its test, and a vital one."""

    routes = Routes()

    waits: bool = True
    waiting: list[Deferred[None]] = attrs.field(factory=list)

    @routes.add("GET", "/slow", caller=PUBLIC)
    @routes.add("POST", "/slow", caller=PUBLIC)
    async def wait(self, call: Call) -> Response:
        """Wait."""
        if self.waits:
            self.waiting.append(Deferred())
            await self.waiting[-1]
        return Response.text("at last")

    @routes.add("GET", "/live", caller=PUBLIC, vital=True)
    async def live(self, call: Call) -> Response:
        """Don't."""
        return Response.text("alive")


class RoomTests(SynchronousTestCase):
    """A server that takes six connections, three from one address."""

    def setUp(self) -> None:
        """Serve one noun."""
        self.slow = Slow()
        limits = Limits(connections=6, connections_per_address=3, idle_seconds=60, request_seconds=30)
        self.client = Client(self.slow, limits=limits, proxies=PROXIES)
        self.next = 0

    def tearDown(self) -> None:
        """When all connections have ended, none is counted, and no timer is left."""
        drained = Deferred.fromCoroutine(self.client.site.drain(1))
        self.client.clock.advance(1)
        self.successResultOf(drained)
        self.assertEqual((self.client.site.connection_counts().open, self.client.clock.getDelayedCalls()), (0, []))

    def busy(self, peer: str | None = None) -> Connection:
        """A connection with a request under way, from an address of its own if no other is given."""
        self.next += 1
        return self.client.connect(peer or f"192.0.2.{self.next}").send(GET)

    def idle(self, peer: str | None = None) -> Connection:
        """A connection on which nothing is under way."""
        self.next += 1
        return self.client.connect(peer or f"192.0.2.{self.next}")

    def beyond(self, connection: Connection) -> None:
        """It is asked about health alone, and once."""
        answer = connection.send(LIVE).answer()
        self.assertEqual((answer.status, answer.headers["connection"], connection.open), (200, "close", False))

    def within(self, connection: Connection) -> None:
        """It is a connection like any other."""
        self.assertNotIn("connection", connection.send(LIVE).answer().headers)
        self.assertTrue(connection.open)

    def test_oldest_idle(self) -> None:
        """A new connection takes the place of the one that has been idle for longest, and of no busy one (LIM-8)."""
        busy = self.busy()
        idle = [self.idle() for _ in range(5)]
        for connection in (idle[1], idle[0]):
            self.within(connection)
        for oldest in (2, 3, 4, 1, 0):
            newest = self.busy()
            self.assertEqual((newest.open, idle[oldest].open), (True, False))
        self.assertTrue(busy.open)
        self.assertEqual(self.client.site.connection_counts().evicted, 5)

    def test_fresh_ones(self) -> None:
        """A connection on which nothing was ever asked is idle, one on which a request has begun isn't."""
        begun = [self.idle().send(b"G") for _ in range(5)]
        silent = self.idle()
        self.within(self.idle())
        self.assertEqual(([each.open for each in begun], silent.open), ([True] * 5, False))

    def test_none_idle(self) -> None:
        """When all are busy, health is answered to those who come, everything else is 503, and both close (HEALTH-13,
        LIM-8).
        """
        busy = [self.busy() for _ in range(6)]
        self.beyond(self.idle())
        for request, status in (
            (GET, 503),
            (GET.replace(b"1.1", b"1.0"), 503),
            (b"POST /slow HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx" + LIVE, 503),
            (b"GET /nowhere HTTP/1.1\r\nHost: h\r\n\r\n", 404),
        ):
            connection = self.idle().send(request)
            answer = connection.answer()
            self.assertEqual((answer.status, answer.headers["connection"], connection.open), (status, "close", False))
            if status == 503:
                self.assertEqual((answer.headers["retry-after"], answer.json()["error"]["code"]), ("2", "unavailable"))
        self.assertEqual(self.client.site.connection_counts().overflowed, 5)
        busy[0].leave()
        self.within(self.idle())

    def test_under_way(self) -> None:
        """Those that are within are served while others have to wait: one request after another."""
        busy = [self.busy() for _ in range(6)]
        self.idle()
        for waiting in self.slow.waiting:
            waiting.callback(None)
        for connection in busy:
            self.assertEqual(connection.answer().status, 200)
            self.within(connection)

    def test_one_address(self) -> None:
        """An address has its own limit: its oldest idle connection makes room, and when it has none others aren't asked
        (LIM-7).
        """
        stranger = self.idle()
        first, second, third = (self.idle("198.51.100.1") for _ in range(3))
        second.send(GET)
        third.send(GET)
        self.busy("198.51.100.1")
        self.assertEqual((first.open, stranger.open), (False, True))
        self.beyond(self.idle("198.51.100.1"))
        self.assertTrue(stranger.open)
        self.within(self.idle("198.51.100.2"))
        second.leave()
        self.within(self.idle("198.51.100.1"))

    def test_ipv6(self) -> None:
        """All addresses of a network of 64 bits are one; an IPv4 address is itself, in whatever form (LIM-7)."""
        for number in range(3):
            self.busy(f"2001:db8::{number}:1")
        self.beyond(self.idle("2001:db8::ffff:ffff:ffff:ffff"))
        self.within(self.idle("2001:db8:0:1::1"))
        for peer in ("::ffff:198.51.100.1", "198.51.100.1"):
            self.within(self.idle(peer))

    def test_proxies(self) -> None:
        """Proxies that are trusted, and this machine, have the limit of all alone (LIM-7)."""
        for peers in (("10.0.0.1", "127.0.0.1"), ("::1", "::ffff:10.0.0.1")):
            connections = [self.busy(peer) for peer in peers * 3]
            self.beyond(self.idle(peers[0]))
            for connection in connections:
                connection.leave()

    def test_beyond_is_short(self) -> None:
        """On a connection beyond the limit a request has little time, and so has one that doesn't come (LIM-8)."""
        for _ in range(6):
            self.busy()
        silent, slow = self.idle(), self.idle().send(b"GET /live HT")
        self.client.clock.advance(OVERFLOW_SECONDS)
        self.assertFalse(silent.open)
        self.assertEqual(slow.answer().status, 408)
        self.client.clock.advance(LINGER_SECONDS)
        self.assertFalse(slow.open)

    def test_newest_first(self) -> None:
        """Beyond the limit there is room for some, a few of one address; the newest take the place of the oldest (LIM-8)."""
        for _ in range(6):
            self.busy()
        flood = [self.idle("198.51.100.1").send(b"G") for _ in range(MAX_OVERFLOW_PER_ADDRESS + 2)]
        self.assertEqual([each.open for each in flood], [False] * 2 + [True] * MAX_OVERFLOW_PER_ADDRESS)
        others = [self.idle(f"203.0.113.{number}").send(b"G") for number in range(MAX_OVERFLOW)]
        self.assertEqual([each.open for each in flood], [False] * len(flood))
        self.beyond(self.idle())
        self.assertEqual([each.open for each in others], [False] + [True] * (MAX_OVERFLOW - 1))

    def test_long_answer(self) -> None:
        """A client that is still taking an answer isn't idle."""
        self.slow.waits = False
        taking = self.client.connect()
        taking.stall()
        taking.send(GET)
        others = [self.idle() for _ in range(5)]
        self.within(self.idle())
        self.assertEqual((taking.open, others[0].open), (True, False))
        taking.resume()
        self.assertEqual(taking.answer().status, 200)
        self.within(taking)

    def test_told_once(self) -> None:
        """The log says which limit was reached, once in a while however many come."""
        for peer, setting in (("198.51.100.1", "connection_limit_per_address"), (None, "connection_limit")):
            with capturedLogs() as logged:
                for _ in range(10):
                    self.busy(peer)
            warnings = [event for event in logged if event["log_level"] is LogLevel.warn]
            self.assertEqual(len(warnings), 1)
            self.assertTrue(warnings[0]["log_format"].endswith(f"see {setting}"))
            self.client.clock.advance(LOG_INTERVAL)


class VitalTests(SynchronousTestCase):
    """Which routes answer beyond the limit."""

    def test_health_alone(self) -> None:
        """Only the routes of this server's own health do, which are public, ask nobody and change nothing (HEALTH-13)."""
        vital = [route for _, route in declared() if route.vital]
        self.assertEqual({route.pattern.text for route in vital}, {"/health", "/livez", "/readyz"})
        self.assertEqual({(route.method, route.admission, route.writes) for route in vital}, {("GET", PUBLIC, False)})


@attrs.define(eq=False)
class Stubborn:
    """A connection that closes when its test says so."""

    peer: str
    within: bool = False
    retired: bool = False
    aborted: bool = False

    def close_when_idle(self) -> None:
        """Note that it should close."""
        self.retired = True

    def abort(self) -> None:
        """Note that it was cut off."""
        self.aborted = True


class OccupancyTests(SynchronousTestCase):
    """``ConnectionLimiter``, with connections that take their time to close."""

    def test_closing(self) -> None:
        """Of those that were told to close only so many may take their time: descriptors are bounded."""
        occupancy = ConnectionLimiter(Limits(connections=1, connections_per_address=1), PROXIES, Clock())
        guests = [Stubborn(f"192.0.2.{number % 250}") for number in range(MAX_CLOSING + 10)]
        for guest in guests:
            self.assertTrue(occupancy.admit_connection(guest))
            occupancy.mark_idle(guest)
        self.assertTrue(all(guest.retired for guest in guests[:-1]))
        self.assertEqual([guest.aborted for guest in guests], [True] * 9 + [False] * (MAX_CLOSING + 1))

    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["enter", "mark_idle", "mark_busy", "connection_closed"]),
                st.integers(0, 7),
                st.integers(0, 3),
            )
        )
    )
    def test_bounds(self, moves: list[tuple[str, int, int]]) -> None:
        """Whatever happens in whatever order, no limit is passed, and when all have left nothing is kept of any."""
        occupancy = ConnectionLimiter(Limits(connections=4, connections_per_address=2), PROXIES, Clock())
        guests: list[Stubborn] = []
        for move, which, place in moves:
            if move == "enter":
                guest = Stubborn(f"192.0.2.{place}")
                guest.within = occupancy.admit_connection(guest)
                guests.append(guest)
            elif guests:
                guest = guests[which % len(guests)]
                getattr(occupancy, move)(guest)
                if move == "connection_closed":
                    guests.remove(guest)
            for bound, peers in ((4, {guest.peer for guest in guests}), *((2, {guest.peer}) for guest in guests)):
                within = [guest for guest in guests if guest.within and not guest.retired and guest.peer in peers]
                self.assertLessEqual(len(within), bound)
            self.assertEqual(occupancy.connection_counts().open, len(guests))
        for guest in guests:
            occupancy.connection_closed(guest)
        self.assertEqual((occupancy.connection_counts().open, occupancy._by_network, occupancy._idle), (0, {}, {}))
