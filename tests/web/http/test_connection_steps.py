"""What one connection asks for is done a little at a time: turns, what is unread, and connections that ask for much."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.model.limits import Limits
from svc.web.http.connection import LINGER_SECONDS, UNREAD_LIMIT
from svc.web.http.messages import Response
from svc.web.http.request_reader import MAX_OVERHEAD, PIECE_SIZE
from svc.web.http.routing import PUBLIC, Call, Routes
from svc.web.http.site import SECONDS_PER_ITERATION, STEPS_PER_ITERATION, StepQueue
from tests.web.support import Client, Connection

GET = b"GET /count HTTP/1.1\r\nHost: h\r\n\r\n"
CHUNKED = b"POST /count HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNK = b"1\r\nx\r\n"


def turn(clock: Clock) -> None:
    """Let one turn of the reactor pass: what is due now is called, what that asks for isn't."""
    due: list[Any] = [call for call in clock.getDelayedCalls() if call.getTime() <= clock.seconds()]
    work = [(call.func, call.args, call.kw) for call in due]
    for call in due:
        call.cancel()
    for function, arguments, keywords in work:
        function(*arguments, **keywords)


class TurnsTests(SynchronousTestCase):
    """``StepQueue``."""

    def setUp(self) -> None:
        """Note which steps are made."""
        self.clock = Clock()
        self.turns = StepQueue(self.clock)
        self.made: list[str] = []

    def add(self, name: str, times: int, seconds: float = 0.0) -> None:
        """Add something that needs so many steps, each of which takes so long."""

        def step() -> None:
            self.made.append(name)
            self.clock.rightNow += seconds
            if times > 1:
                self.add(name, times - 1, seconds)

        self.turns.add_step(step)

    def test_not_at_once(self) -> None:
        """A step is made in a turn of its own, and none is left behind."""
        self.add("a", 1)
        self.assertEqual(self.made, [])
        turn(self.clock)
        self.assertEqual((self.made, self.clock.getDelayedCalls()), (["a"], []))

    def test_in_turns(self) -> None:
        """Who has more to do comes after all others."""
        self.add("a", 3)
        self.add("b", 2)
        turn(self.clock)
        self.assertEqual("".join(self.made), "ababa")

    def test_number(self) -> None:
        """In one turn only so many steps are made, by all connections together."""
        for name in "abcdefg":
            self.add(name, 1000)
        for count in range(1, 4):
            turn(self.clock)
            self.assertEqual(len(self.made), count * STEPS_PER_ITERATION)

    def test_time(self) -> None:
        """When the time of a turn is over, no further step is begun, nor when the clock was set forward."""
        self.add("a", 20, SECONDS_PER_ITERATION * 0.4)
        turn(self.clock)
        self.assertEqual(len(self.made), 3)
        self.add("b", 1, 3600.0)
        turn(self.clock)
        self.assertEqual("".join(self.made), "aaaab")

    def test_failure(self) -> None:
        """A step that raises takes none of the others with it."""
        self.turns.add_step(lambda: 1 // 0)  # type: ignore[arg-type]  # it returns nothing
        self.add("a", 1)
        self.assertRaises(ZeroDivisionError, turn, self.clock)
        turn(self.clock)
        self.assertEqual(self.made, ["a"])


@attrs.define
class Counter:
    """A noun that counts how often it is asked."""

    routes = Routes()

    begun: int = 0
    waiting: Deferred[None] | None = None

    @routes.add("GET", "/count", caller=PUBLIC)
    @routes.add("POST", "/count", caller=PUBLIC)
    async def count(self, call: Call) -> Response:
        """Count, and tell how long the body is."""
        self.begun += 1
        if self.waiting is not None:
            await self.waiting
        return Response.json(len(call.body))


class ConnectionTests(SynchronousTestCase):
    """Connections that ask for more than their share."""

    def setUp(self) -> None:
        """Serve one noun."""
        self.counter = Counter()
        self.client = Client(self.counter, limits=Limits(idle_seconds=60.0))

    def tearDown(self) -> None:
        """Nothing is left of any connection."""
        drained = Deferred.fromCoroutine(self.client.site.drain(1))
        self.client.clock.advance(1)
        self.successResultOf(drained)
        self.assertEqual(self.client.clock.getDelayedCalls(), [])

    def written(self, *connections: Connection) -> int:
        """How many answers were begun to be written."""
        return sum(connection.sent.count(b"HTTP/1.1 ") for connection in connections)

    def turns_until(self, done: Callable[[], bool]) -> int:
        """How many turns it takes."""
        turns = 0
        while not done():
            self.assertLess(turns, 10_000)
            turns += 1
            turn(self.client.clock)
        return turns

    def test_pipelined(self) -> None:
        """However many requests came at once on however many connections, each turn answers a few; in the end all are
        (LIM-10, WIRE-41).
        """
        lines = b"".join(b"x%d: y\r\n" % number for number in range(190))
        for request in (
            GET,
            GET.replace(b"GET", b"HEAD"),
            b"GET /nowhere HTTP/1.1\r\nHost: h\r\n\r\n",
            b"\r\nPOST /nowhere HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx",
            CHUNKED + b"1\r\nx\r\n0\r\n\r\n",
            b"POST /nowhere HTTP/1.1\r\nHost: h\r\n" + lines + b"Content-Length: 0\r\n\r\n",
        ):
            count = max(50, 16_384 // len(request))
            connections = [self.client.connect() for _ in range(3)]
            for connection in connections:
                connection.send_at_once(request * count)
            self.assertEqual(self.written(*connections), 3)
            while (before := self.written(*connections)) < 3 * count:
                turn(self.client.clock)
                self.assertGreater(self.written(*connections), before)
                self.assertLessEqual(self.written(*connections), before + STEPS_PER_ITERATION)
            self.assertEqual(self.written(connections[0]), count)

    def test_others_meanwhile(self) -> None:
        """One request is answered in the turn in which it is asked, a few after a few turns (LIM-10)."""
        floods = [self.client.connect() for _ in range(20)]
        for flood in floods:
            flood.send_at_once(GET * 1000)
        turn(self.client.clock)
        one, few = self.client.connect(), self.client.connect()
        one.send_at_once(GET)
        self.assertEqual(self.written(one), 1)
        few.send_at_once(GET * 10)
        self.assertLessEqual(self.turns_until(lambda: self.written(few) == 10), 10)
        self.assertLess(self.written(*floods), 1000)

    def test_no_turn_for_one(self) -> None:
        """A request that fits into what is read at once is answered at once, whatever its size."""
        for request in (
            GET,
            GET.replace(b"\r\n\r\n", b"\r\nX: " + b"x" * 30_000 + b"\r\n\r\n"),
            b"POST /count HTTP/1.1\r\nHost: h\r\nContent-Length: 60000\r\n\r\n" + b"x" * 60_000,
        ):
            connection = self.client.connect()
            connection.send_at_once(request)
            self.assertEqual(self.written(connection), 1)

    def test_long_head(self) -> None:
        """A head that comes in pieces is read on, also if all of it is more than what is held back of other requests."""
        connection = self.client.connect()
        lines = b"X: " + b"x" * 15_000 + b"\r\n"
        for piece in (b"GET /count?" + b"x" * 40_000, b" HTTP/1.1\r\nHost: h\r\n", lines, lines, b"\r\n"):
            self.assertEqual((self.written(connection), connection.read_from), (0, True))
            connection.send_at_once(piece)
        self.assertEqual(connection.answer().json(), 0)

    def test_tiny_chunks(self) -> None:
        """A body in chunks of a byte is taken apart piece by piece."""
        connection = self.client.connect()
        body = CHUNK * (PIECE_SIZE * 2 * STEPS_PER_ITERATION // len(CHUNK)) + b"0\r\n\r\n"
        connection.send_at_once(CHUNKED + body)
        self.assertGreaterEqual(self.turns_until(lambda: self.written(connection) == 1), 2)
        self.assertEqual(connection.answer().json(), (len(body) - 5) // len(CHUNK))

    def test_trailers(self) -> None:
        """Of what follows the last chunk little is taken."""
        for size, status in ((MAX_OVERHEAD // 2, 200), (MAX_OVERHEAD * 2, 400)):
            connection = self.client.connect().send(CHUNKED + b"0\r\n" + b"a: b\r\n" * (size // 6) + b"\r\n")
            self.assertEqual(connection.answer().status, status)

    def test_deaf(self) -> None:
        """For a client that takes no answers nothing more is begun, nor read; in the end it is cut off (LIM-9, WIRE-41)."""
        connection = self.client.connect()
        connection.stall()
        connection.send_at_once(GET * 1000)
        self.assertFalse(connection.read_from)
        for _ in range(10):
            turn(self.client.clock)
        self.assertEqual(self.counter.begun, 1)
        self.client.clock.advance(60)
        self.client.clock.advance(LINGER_SECONDS)
        self.assertEqual((connection.open, self.counter.begun), (False, 1))

    def test_deaf_for_a_while(self) -> None:
        """A client that takes its answers again gets the others."""
        connection = self.client.connect()
        connection.stall()
        connection.send_at_once(GET * 600)
        self.client.clock.advance(59)
        connection.resume()
        self.assertEqual(len(connection.answers()), 600)
        self.assertTrue(connection.read_from)

    def test_held_back(self) -> None:
        """While a request is under way, what follows is read up to a limit, and its turn comes after."""
        self.counter.waiting = waiting = Deferred[None]()
        connection, count = self.client.connect(), UNREAD_LIMIT // len(GET)
        connection.send_at_once(GET * (1 + count))
        self.assertTrue(connection.read_from)
        connection.send_at_once(GET)
        self.assertFalse(connection.read_from)
        self.counter.waiting = None
        waiting.callback(None)
        self.assertEqual((self.counter.begun, self.written(connection)), (1, 1))
        self.assertEqual(len(connection.answers()), count + 2)
        self.assertTrue(connection.read_from)

    def test_leaves(self) -> None:
        """A client that leaves has nothing more begun of what it asked for."""
        connection = self.client.connect()
        connection.send_at_once(GET * 1000)
        turn(self.client.clock)
        begun = self.counter.begun
        connection.leave()
        turn(self.client.clock)
        self.assertEqual(self.counter.begun, begun)

    def test_no_garbage(self) -> None:
        """Of a connection that closes with nothing under way nothing waits for the collector of garbage."""
        gc.disable()
        self.addCleanup(gc.enable)
        for data in (b"", GET, GET * 1000, b"G", b"nonsense\r\n\r\n"):
            connection = self.client.connect()
            connection.send_at_once(data)
            end = weakref.ref(connection.far_end)
            connection.leave()
            self.client.clock.advance(0)
            self.assertIsNone(end(), data[:50])

    def test_refused_amid(self) -> None:
        """What follows a request that can't be read is dropped."""
        connection = self.client.connect()
        connection.send_at_once(GET + b"nonsense\r\n\r\n" + GET * 1000)
        self.assertEqual([answer.status for answer in connection.answers()], [200, 400])
        self.assertEqual(self.counter.begun, 1)
