"""A connection holds its requests to their limits, in memory; the same over sockets is in ``integration/test_edge.py``."""

from __future__ import annotations

from socket import SO_SNDBUF, SOL_SOCKET, socket, socketpair

import attrs
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import ISystemHandle
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from svc.model.limits import Limits
from svc.model.names import RoleName
from svc.web.http.connection import LINGER_SECONDS
from svc.web.http.declarations import Body, BodySize
from svc.web.http.messages import Response
from svc.web.http.routing import PUBLIC, REQUIRED, Call, Routes
from tests.web.support import Client, Connection, Wire, read_answers, token

LIMITS = Limits(
    body=100,
    policy_body=1000,
    request_line=80,
    header_limit=209,
    header_count=6,
    request_seconds=30.0,
    idle_seconds=60.0,
)

GET = b"GET /echo HTTP/1.1\r\nHost: h\r\n\r\n"


@attrs.define
class Echo:
    """A noun that returns what it gets, once its test lets it."""

    routes = Routes()

    waiting: Deferred[None] | None = None
    bodies: list[bytes] = attrs.field(factory=list)

    @routes.add("GET", "/echo", caller=PUBLIC)
    @routes.add("POST", "/echo", caller=PUBLIC)
    async def echo(self, call: Call) -> Response:
        """Return the body."""
        self.bodies.append(call.body)
        if self.waiting is not None:
            await self.waiting
        return Response.content(call.body, "text/plain")

    @routes.add("PUT", "/policy", caller=REQUIRED, body=Body("text", size=BodySize.POLICY))
    async def load(self, call: Call) -> Response:
        """Return the body's length."""
        self.bodies.append(call.body)
        return Response.json(len(call.body))


class ConnectionCase(SynchronousTestCase):
    """One connection to one noun."""

    def setUp(self) -> None:
        """Serve one noun."""
        self.echo = Echo()
        self.client = Client(self.echo, limits=LIMITS)
        self.connection = self.client.connect()

    def tearDown(self) -> None:
        """Connections that end leave no timer behind."""
        drained = Deferred.fromCoroutine(self.client.site.drain(10))
        self.client.clock.advance(10)
        self.successResultOf(drained)
        self.assertEqual(self.client.clock.getDelayedCalls(), [])

    def refused(self, status: int, connection: Connection | None = None) -> None:
        """One answer came; the server listens no more, and lets go when the client has had time to read."""
        connection = connection or self.connection
        answer = connection.answer()
        self.assertEqual((answer.status, answer.headers["connection"]), (status, "close"))
        connection.send(GET)
        self.assertEqual(connection.received(), b"")
        self.client.clock.advance(LINGER_SECONDS)
        self.assertFalse(connection.open)


class PipeliningTests(ConnectionCase):
    """Requests on one connection."""

    def test_keep_alive(self) -> None:
        """A connection takes one request after another."""
        for _ in range(3):
            self.assertEqual(self.connection.send(GET).answer().status, 200)
        self.assertTrue(self.connection.open)

    def test_pipelined(self) -> None:
        """Requests that come at once are answered in their order, however their bytes are spread (LIM-10, WIRE-41)."""
        stream = b"".join(b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n%d" % n for n in range(5))
        for size in (1, 7, len(stream)):
            pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
            bodies = [answer.body for answer in self.connection.send(*pieces).answers()]
            self.assertEqual(bodies, [b"0", b"1", b"2", b"3", b"4"])

    def test_one_at_a_time(self) -> None:
        """The next request isn't begun before the one before it is answered (LIM-10, WIRE-41)."""
        self.echo.waiting = Deferred()
        self.connection.send(GET + b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx")
        self.assertEqual(self.echo.bodies, [b""])
        waiting, self.echo.waiting = self.echo.waiting, None
        waiting.callback(None)
        self.assertEqual([answer.body for answer in self.connection.answers()], [b"", b"x"])

    def test_refusal_keeps_the_connection(self) -> None:
        """After a refusal whose body was read to its end, the connection takes further requests (WIRE-42, FAIL-7)."""
        for request in (b"PUT /policy", b"POST /nowhere"):
            head = request + b" HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n"
            self.connection.send(head)
            self.assertEqual(self.connection.received(), b"")
            statuses = [answer.status for answer in self.connection.send(b"abc", GET).answers()]
            self.assertEqual(statuses[1:], [200])
            self.assertIn(statuses[0], {401, 404})

    def test_close(self) -> None:
        """A client that says close, or speaks HTTP/1.0, gets one answer (WIRE-43)."""
        for request in (
            b"GET /echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
            b"GET /echo HTTP/1.1\r\nHost: h\r\nConnection: x, Close\r\n\r\n",
            b"GET /echo HTTP/1.0\r\n\r\n",
        ):
            connection = self.client.connect()
            answer = connection.send(request + GET).answer()
            self.assertEqual((answer.status, answer.headers["connection"]), (200, "close"))
            self.assertFalse(connection.open)

    def test_blank_line_between(self) -> None:
        """One blank line before a request is passed over, as old clients send it."""
        self.assertEqual(self.connection.send(b"\r\n" + GET).answer().status, 200)

    @given(st.lists(st.binary(max_size=300), max_size=5))
    def test_any_bytes(self, pieces: list[bytes]) -> None:
        """Whatever a client sends, there is nothing but answers, none of them a 500, and nothing is logged as a bug
        (WIRE-6).
        """
        connection = self.client.connect()
        answers = connection.send(*pieces).answers()
        self.assertLessEqual({answer.status for answer in answers}, {400, 404, 413, 414, 431})
        connection.leave()

    @given(
        st.sampled_from(["GET", "POST", "PUT"]),
        st.sampled_from(["/echo", "/policy", "*", "http://h/echo", "/%"]),
        st.lists(
            st.tuples(
                st.sampled_from(["Content-Length", "Transfer-Encoding", "Expect", "Connection", "X-Forwarded-For", "Host"]),
                st.sampled_from(["0", "5", "-5", "5, 5", "9" * 30, "chunked", "identity", "100-continue", "close", "", "é"]),
            ),
            max_size=4,
        ),
        st.binary(max_size=120) | st.sampled_from([b"5\r\nabcde\r\n0\r\n\r\n", b"fffffffff\r\n", b"0\r\nA: b\r\n\r\n"]),
    )
    def test_any_framing(self, method: str, target: str, headers: list[tuple[str, str]], body: bytes) -> None:
        """However a client frames its body, it gets answers, and none of them is a 500 (WIRE-6)."""
        connection = self.client.connect()
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers), "", ""]
        received = connection.send("\r\n".join(lines).encode(), body).received()
        answers = read_answers(received.replace(b"HTTP/1.1 100 Continue\r\n\r\n", b""))
        self.assertNotIn(500, {answer.status for answer in answers})
        connection.leave()


class LimitTests(ConnectionCase):
    """What a request may weigh."""

    def test_request_line(self) -> None:
        """A request line over its limit is 414, with its end or without (LIM-1)."""
        line = b"GET /" + b"x" * (80 - len("GET / HTTP/1.1")) + b" HTTP/1.1"
        self.assertEqual(self.connection.send(line + b"\r\nHost: h\r\n\r\n").answer().status, 404)
        self.connection.send(line.replace(b"/x", b"/xx") + b"\r\n\r\n")
        self.refused(414)
        endless = self.client.connect().send(*[b"x" * 10] * 9)
        self.refused(414, endless)

    def test_header_block(self) -> None:
        """All headers together over their limit, or one header, or a folded one, are 431 (LIM-1)."""
        fits = b"X: " + b"x" * (200 - 7) + b"\r\n"
        self.assertEqual(self.connection.send(b"GET /echo HTTP/1.1\r\nHost: h\r\n" + fits + b"\r\n").answer().status, 200)
        for lines in (
            [b"X: " + b"x" * 196 + b"\r\n"],
            [b"X: " + b"x" * 90 + b"\r\n"] * 3,
            [b"X: x\r\n"] + [b" " + b"x" * 90 + b"\r\n"] * 3,
            [b"x" * 100] * 3,
        ):
            self.refused(431, self.client.connect().send(b"GET /echo HTTP/1.1\r\nHost: h\r\n", *lines))

    def test_header_count(self) -> None:
        """More header lines than there may be are 431 (LIM-1)."""
        request = b"GET /echo HTTP/1.1\r\nHost: h\r\n" + b"X: x\r\n" * 5
        self.assertEqual(self.connection.send(request + b"\r\n").answer().status, 200)
        self.connection.send(request + b"X: x\r\n\r\n")
        self.refused(431)
        self.refused(431, self.client.connect().send(request + b" x\r\n\r\n"))
        self.refused(431, self.client.connect().send(request, b"X: x\r\n"))

    def test_limits_count_per_request(self) -> None:
        """What one request weighed isn't laid to the next one's charge."""
        request = b"GET /echo HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 150 + b"\r\n\r\n"
        self.assertEqual([answer.status for answer in self.connection.send(request * 4).answers()], [200] * 4)

    def test_declared_body(self) -> None:
        """A declared length over the limit is 413 before a byte of the body has come (LIM-1)."""
        self.connection.send(b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 101\r\n\r\n")
        self.refused(413)
        self.assertEqual(self.echo.bodies, [])

    def test_absurd_length(self) -> None:
        """A length that no integer holds is 413 like any other, and one that is no number is 400."""
        head = b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: %s\r\n\r\n"
        for length, status in ((b"9" * 150, 413), (b"  " + b"9" * 19, 413), (b"1" * 18, 413), (b"-1", 400), (b"1a", 400)):
            self.refused(status, self.client.connect().send(head % length))
        self.assertEqual(self.client.connect().send(head % (b" " * 50 + b"0")).answer().status, 200)

    def test_chunked_body(self) -> None:
        """A chunked body is 413 with the byte that exceeds the limit (LIM-1)."""
        head = b"POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
        body = b"32\r\n" + b"x" * 50 + b"\r\n"
        self.assertEqual(self.connection.send(head, body, body, b"0\r\n\r\n").answer().body, b"x" * 100)
        self.connection.send(head, body, body)
        self.assertEqual(self.connection.received(), b"")
        self.connection.send(b"1\r\nx")
        self.refused(413)

    def test_larger_body_for_policies(self) -> None:
        """A route for policies takes more, from a caller whose token is valid (LIM-3)."""
        head = b"PUT /policy HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\nAuthorization: %s\r\n\r\n"
        alice = token(RoleName("acct", "user", "alice")).encode()
        self.assertEqual(self.connection.send(head % (1000, alice), b"x" * 1000).answer().body, b"1000")
        self.refused(413, self.client.connect().send(head % (1001, alice)))

    def test_nothing_is_kept_for_strangers(self) -> None:
        """A body whose sender has been refused is counted, not kept; over the limit the refusal comes at once (LIM-2)."""
        head = b"PUT /policy HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
        piece = b"64\r\n" + b"x" * 100 + b"\r\n"
        self.connection.send(head, *[piece] * 10)
        self.assertEqual(self.connection.received(), b"")
        self.connection.send(piece)
        self.refused(401)
        self.assertEqual(self.echo.bodies, [])

    def test_refused_once(self) -> None:
        """A body that is too large and complete in one piece gets one answer, with a token or without (WIRE-42)."""
        alice = token(RoleName("acct", "user", "alice")).encode()
        chunks = b"1f4\r\n" + b"x" * 500 + b"\r\n"
        for headers, status in ((b"", 401), (b"Authorization: " + alice + b"\r\n", 413)):
            head = b"PUT /policy HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n" + headers + b"\r\n"
            self.refused(status, self.client.connect().send(head + chunks * 3 + b"0\r\n\r\n" + GET))

    def test_malformed(self) -> None:
        """What is no HTTP/1.1 is 400."""
        head = b"POST /echo HTTP/1.1\r\nHost: h\r\n"
        for raw in (
            b"hello\r\n",
            b"GET /echo\r\n",
            b"GET /echo HTTP/2.0\r\n",
            b"GET  /echo HTTP/1.1\r\n",
            b"GET /\x01 HTTP/1.1\r\n",
            b"GET /\x90 HTTP/1.1\r\nHost: h\r\n\r\n",
            b"G\xc3T /echo HTTP/1.1\r\n",
            head + b"no colon\r\n\r\n",
            head + b"no colon\r\nX: y\r\n\r\n",
            head + b"X : y\r\n\r\n",
            head + b" folded: first\r\n\r\n",
            head + b"X: a\x00b\r\n\r\n",
            head + b"X: a\nY: b\r\n\r\n",
            head + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\n",
            head + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            head + b"Transfer-Encoding: gzip\r\n\r\n",
            head + b"Transfer-Encoding: chunked\r\n\r\nx\r\n",
            head + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n",
            head + b"Transfer-Encoding: chunked\r\n\r\n1\r\nabc",
        ):
            connection = self.client.connect().send(raw)
            self.refused(400, connection)
        self.assertEqual(self.echo.bodies, [])

    def test_expect(self) -> None:
        """A client that asks first is told to go on, or gets its refusal without having sent the body (WIRE-5)."""
        head = b"%s HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\nExpect: 100-Continue\r\n\r\n"
        self.connection.send(head % (b"POST /echo", 3))
        self.assertEqual(self.connection.received(), b"HTTP/1.1 100 Continue\r\n\r\n")
        self.assertEqual(self.connection.send(b"abc").answer().body, b"abc")
        for request, length, status in ((b"POST /nowhere", 3, 404), (b"PUT /policy", 3, 401), (b"POST /echo", 101, 413)):
            self.refused(status, self.client.connect().send(head % (request, length)))

    def test_expect_nothing(self) -> None:
        """Where no body follows, nobody is told to send it (WIRE-5)."""
        self.assertEqual(
            self.connection.send(b"GET /echo HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n\r\n").answer().status, 200
        )


class TimeTests(ConnectionCase):
    """How long a request may take."""

    def test_slow_sender(self) -> None:
        """A request that isn't complete after its time is 408, however lively its bytes trickle in (LIM-1)."""
        for request in (
            b"GET /echo HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 100,
            b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 90\r\n\r\n",
        ):
            connection = self.client.connect().send(request)
            for _ in range(29):
                self.client.clock.advance(1)
                connection.send(b"x")
            self.assertEqual(connection.received(), b"")
            self.client.clock.advance(1)
            self.refused(408, connection)
        self.assertEqual(self.echo.bodies, [])

    def test_time_counts_from_the_first_byte(self) -> None:
        """A connection that was idle for long gives its next request all of its time."""
        self.client.clock.advance(50)
        self.connection.send(b"G")
        self.client.clock.advance(29)
        self.assertEqual(self.connection.send(GET[1:]).answer().status, 200)

    def test_each_request_has_its_own_time(self) -> None:
        """The time of a request begins with it, not with the one before."""
        self.connection.send(GET + b"G")
        for _ in range(3):
            self.client.clock.advance(20)
            self.connection.send(GET[1:] + b"G")
        self.assertEqual([answer.status for answer in self.connection.answers()], [200] * 4)
        self.client.clock.advance(30)
        self.refused(408)

    def test_idle(self) -> None:
        """A connection on which nothing happens is closed without a word, a new one as well (LIM-9)."""
        for sent in ((), (GET,)):
            connection = self.client.connect().send(*sent)
            connection.received()
            self.client.clock.advance(59)
            self.assertTrue(connection.open)
            self.client.clock.advance(1)
            self.assertFalse(connection.open)
            self.assertEqual(connection.received(), b"")

    def test_idle_after_blank_lines(self) -> None:
        """Blank lines after a request are no beginning of another one (WIRE-4)."""
        self.connection.send(GET + b"\r\n\r\n").received()
        self.client.clock.advance(59)
        self.assertTrue(self.connection.open)
        self.client.clock.advance(1)
        self.assertEqual((self.connection.open, self.connection.received()), (False, b""))

    def test_requests_keep_a_connection(self) -> None:
        """Idleness counts from the last request."""
        for _ in range(5):
            self.client.clock.advance(59)
            self.assertEqual(self.connection.send(GET).answer().status, 200)

    def test_routes_take_their_time(self) -> None:
        """A request that has arrived may be answered when it may."""
        self.echo.waiting = Deferred()
        self.connection.send(GET)
        self.client.clock.advance(3600)
        self.echo.waiting.callback(None)
        self.assertEqual(self.connection.answer().status, 200)
        self.client.clock.advance(59)
        self.assertTrue(self.connection.open)

    def test_stalled_reader(self) -> None:
        """A client that doesn't take its answer is cut off in the end (LIM-9)."""
        for request, seconds in ((GET, 60), (b"GET /echo HTTP/1.0\r\n\r\n", 60), (b"nonsense\r\n", LINGER_SECONDS)):
            connection = self.client.connect()
            connection.stall()
            connection.send(request)
            self.client.clock.advance(seconds)
            self.assertTrue(connection.open)
            self.client.clock.advance(LINGER_SECONDS)
            self.assertFalse(connection.open)

    def test_request_while_closing(self) -> None:
        """A request that comes when the connection is closing already isn't begun."""
        self.connection.stall()
        self.client.clock.advance(60)
        self.connection.send(GET)
        self.assertEqual((self.connection.open, self.echo.bodies), (True, []))

    def test_client_leaves_in_mid_body(self) -> None:
        """A client that leaves before its body was complete has begun nothing (WIRE-44)."""
        self.connection.send(b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc")
        self.connection.leave()
        self.assertEqual(self.echo.bodies, [])


@implementer(ISystemHandle)
class SocketWire(Wire):
    """The server's end of a connection in memory that has a socket."""

    def __init__(self, handle: socket) -> None:
        super().__init__("127.0.0.1")
        self._handle = handle

    def getHandle(self) -> socket:
        """Return the socket."""
        return self._handle


class SocketTests(ConnectionCase):
    """Answers go to the socket itself: see ``connection``, Note [At once]."""

    def setUp(self) -> None:
        """Serve one noun on a socket that holds little."""
        super().setUp()
        ours, self.theirs = socketpair()
        for end in (ours, self.theirs):
            end.setblocking(False)
            self.addCleanup(end.close)
        ours.setsockopt(SOL_SOCKET, SO_SNDBUF, 4096)
        self.wire = SocketWire(ours)
        channel = self.client.site.buildProtocol(None)
        assert channel is not None
        self.channel = channel
        self.wire.protocol = self.channel
        self.channel.makeConnection(self.wire)
        self.addCleanup(self.wire.abortConnection)

    def ask(self, body: bytes) -> None:
        """Send a request, to which the answer is its body."""
        self.channel.dataReceived(b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    def test_whole(self) -> None:
        """What the socket takes never comes to the transport."""
        for body in (b"one", b"two"):
            self.ask(body)
            [answer] = read_answers(self.theirs.recv(65_536))
            self.assertEqual((answer.body, self.wire.written), (body, b""))

    def test_partly(self) -> None:
        """What a full socket doesn't take is the transport's, and so is what follows, so that nothing overtakes."""
        bodies = [b"%d" % number * 90 for number in range(10)]
        while not self.wire.written:
            for body in bodies:
                self.ask(body)
        direct = self.theirs.recv(1_000_000)
        self.ask(b"last")
        answers = read_answers(direct + self.wire.written)
        self.assertEqual([answer.body for answer in answers[:-1]], bodies * (len(answers) // 10))
        self.assertEqual(answers[-1].body, b"last")
        self.assertRaises(BlockingIOError, self.theirs.recv, 1)

    def test_broken(self) -> None:
        """A socket that takes nothing any more leaves the answer to the transport, which knows how connections end."""
        self.theirs.close()
        self.ask(b"body")
        [answer] = read_answers(self.wire.written)
        self.assertEqual(answer.body, b"body")


class HeaderTests(ConnectionCase):
    """What every answer carries."""

    def test_date(self) -> None:
        """The date is the clock's."""
        self.assertEqual(self.connection.send(GET).answer().headers["date"], "Tue, 14 Nov 2023 22:13:20 GMT")
        self.client.clock.advance(1)
        self.assertEqual(self.connection.send(GET).answer().headers["date"], "Tue, 14 Nov 2023 22:13:21 GMT")

    def test_request_id(self) -> None:
        """A sane request id is echoed; anything else is replaced by one of ours (WIRE-34)."""
        for sent, echoed in (
            ("abc-123_X.y~z:/+=@", "abc-123_X.y~z:/+=@"),
            ("x" * 128, "x" * 128),
            ("x" * 129, "id-1"),
            ("a b", "id-2"),
            ("", "id-3"),
            ("é", "id-4"),
        ):
            answer = self.client.get("/echo", headers=[("X-Request-Id", sent)])
            self.assertEqual(answer.headers["x-request-id"], echoed)

    def test_names_no_version(self) -> None:
        """The server doesn't tell its version, and forbids guesses about types (WIRE-33)."""
        headers = self.connection.send(GET).answer().headers
        self.assertEqual((headers["server"], headers["x-content-type-options"]), ("svc", "nosniff"))
