"""The edge over real sockets: every limit, early answers that arrive, clients that leave, TLS, and the end of it all."""

from __future__ import annotations

import datetime
import os
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import attrs
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from twisted.internet import reactor
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, connectProtocol, serverFromString, wrapClientTLS
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IListeningPort, IProtocolNegotiationFactory
from twisted.internet.protocol import Protocol
from twisted.internet.ssl import Certificate, optionsForClientTLS
from twisted.internet.task import LoopingCall, deferLater
from twisted.internet.threads import deferToThread
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase
from zope.interface.verify import verifyObject

from svc.model.dialect import NATIVE
from svc.model.limits import Limits
from svc.model.names import RoleName
from svc.web.http.client_address import TrustedProxies
from svc.web.http.declarations import Body, BodySize
from svc.web.http.messages import HttpConfig, Response
from svc.web.http.router import Router
from svc.web.http.routing import PUBLIC, REQUIRED, Call, Routes
from svc.web.http.site import Site
from tests.chronicle import Chronicle
from tests.web.support import Answer, caller, primary, reached, read_answers, token

#: Seconds that a client waits for anything at all.
PATIENCE: Final = 20

ALICE: Final = token(RoleName("acct", "user", "alice")).encode("ascii")

GET: Final = b"GET /things/a/b HTTP/1.1\r\nHost: h\r\nAuthorization: " + ALICE + b"\r\n\r\n"


@attrs.define
class Things:
    """A noun that tells its test when it runs and when it is stopped."""

    routes = Routes()

    #: What a slow route waits for.
    waiting: Deferred[None] = attrs.field(factory=Deferred)
    #: Fires when a slow route has begun.
    begun: Deferred[None] = attrs.field(factory=Deferred)
    bodies: list[bytes] = attrs.field(factory=list)
    #: How many pieces of 100 kB a long answer has, and what fires when nobody asks for more.
    pieces: int = 100
    stopped: Deferred[None] = attrs.field(factory=Deferred)

    @routes.add("GET", "/things/<flat:account>/<tail:identifier>", caller=REQUIRED)
    async def show(self, call: Call, account: str, identifier: str) -> Response:
        """Return the path's values."""
        return Response.json([account, identifier])

    @routes.add("POST", "/things", caller=PUBLIC)
    async def take(self, call: Call) -> Response:
        """Keep the body, and return it."""
        self.bodies.append(call.body)
        return Response.content(call.body, "application/octet-stream")

    @routes.add("PUT", "/things", caller=REQUIRED, body=Body("text", size=BodySize.POLICY))
    async def load(self, call: Call) -> Response:
        """Return the body's length."""
        return Response.json(len(call.body))

    @routes.add("GET", "/long", caller=PUBLIC)
    async def count(self, call: Call) -> Response:
        """Return numbers, in pieces."""
        return await Response.json_array(self._numbers())

    async def _numbers(self) -> AsyncIterator[list[str]]:
        try:
            for number in range(self.pieces):
                yield [f"{number:0100000}"]
        finally:
            self.stopped.callback(None)

    @routes.add("GET", "/slow", caller=PUBLIC)
    async def wait(self, call: Call) -> Response:
        """Wait for the test."""
        self.begun.callback(None)
        await self.waiting
        return Response.text("at last")


def talk(port: int, *pieces: bytes) -> bytes:
    """Be a client that reads nothing before it has sent everything, and then reads to the end."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection:
        for piece in pieces:
            connection.sendall(piece)
        received = b""
        while chunk := connection.recv(1 << 16):
            received += chunk
        return received


class Dialogue(Protocol):
    """A client that talks as its test wants."""

    def __init__(self) -> None:
        self.received = b""
        self._ended: Deferred[type[BaseException]] = Deferred()
        self._watched: tuple[int, Deferred[list[Answer]]] | None = None

    def dataReceived(self, data: bytes) -> None:
        """Keep what the server sends."""
        self.received += data
        self._look()

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]  # it always has a reason
        """Note why the connection ended."""
        assert reason.value is not None
        self._ended.callback(type(reason.value))

    @property
    def negotiated(self) -> bytes | None:
        """The protocol that TLS agreed on."""
        return getattr(self.transport, "negotiatedProtocol", None)

    async def answers(self, count: int) -> list[Answer]:
        """Wait for so many answers and take them."""
        watched: Deferred[list[Answer]] = Deferred()
        self._watched = (count, watched)
        self._look()
        return await watched.addTimeout(PATIENCE, reactor)

    async def end(self) -> type[BaseException]:
        """Wait for the end of the connection, and return of which kind it was."""
        return await self._ended.addTimeout(PATIENCE, reactor)

    def _look(self) -> None:
        if self._watched is None or self.received.count(b"\r\n\r\n") < self._watched[0]:
            return
        try:
            answers = read_answers(self.received)
        except AssertionError:
            return
        if len(answers) >= self._watched[0]:
            (_, watched), self._watched = self._watched, None
            self.received = b""
            watched.callback(answers)


class EdgeTestCase(TestCase):
    """A server of one noun on a port of its own."""

    limits = Limits()

    def setUp(self) -> None:
        """Make the site; a test opens the port."""
        self.things = Things()
        ids = iter(range(1 << 30))
        new_id = lambda: f"id-{next(ids)}"  # noqa: E731
        router = Router(
            [self.things],
            caller=caller,
            ensure_writable=primary,
            reached=reached,
            limits=self.limits,
            new_id=new_id,
            journal=Chronicle(),
            dialect=NATIVE,
            clock=reactor,
        )
        self.site = Site(
            HttpConfig(
                respond=router.respond,
                limits=self.limits,
                clock=reactor,
                wall=reactor,
                new_id=new_id,
                proxies=TrustedProxies(),
            )
        )
        self.port = 0

    async def listen(self, endpoint: str = "tcp:0:interface=127.0.0.1") -> None:
        """Open a port; it is closed, and its connections are, when the test ends."""
        port: IListeningPort = await serverFromString(reactor, endpoint).listen(self.site)
        address = port.getHost()
        assert isinstance(address, IPv4Address)
        self.port = address.port
        self.addCleanup(lambda: Deferred.fromCoroutine(self.site.drain(0.1)))
        self.addCleanup(port.stopListening)

    async def talk(self, *pieces: bytes) -> list[Answer]:
        """What a blocking client reads, from its first answer to the end of the connection."""
        if not self.port:
            await self.listen()
        return read_answers(await deferToThread(talk, self.port, *pieces))

    async def dialogue(self) -> Dialogue:
        """Connect a client that doesn't block."""
        if not self.port:
            await self.listen()
        dialogue = Dialogue()
        await connectProtocol(HostnameEndpoint(reactor, "127.0.0.1", self.port), dialogue)
        return dialogue

    async def assert_fair(self, other: Dialogue, floods: list[Dialogue], count: int = 1000) -> None:
        """Somebody is answered five times before half of what others sent at once has been; they get their answers, too."""
        request = b"POST /things HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"
        for dialogue in floods:
            assert dialogue.transport is not None
            dialogue.transport.write(request * count)
        for _ in range(5):
            assert other.transport is not None
            other.transport.write(GET)
            await other.answers(1)
        self.assertLess(len(self.things.bodies), len(floods) * count / 2)
        for dialogue in floods:
            self.assertEqual({answer.status for answer in await dialogue.answers(count)}, {200})


class LimitTests(EdgeTestCase):
    """What a request may weigh, with the limits that a server has by default."""

    async def one(self, status: int, *pieces: bytes) -> None:
        """Exactly one answer comes, whole, and the connection ends without a reset."""
        [answer] = await self.talk(*pieces)
        self.assertEqual((answer.status, answer.headers["connection"]), (status, "close"))
        self.assertIn("error", answer.json())

    async def test_request_line(self) -> None:
        """A request line of 64 KiB is read; a longer one is 414."""
        line = b"GET /" + b"x" * (64 * 1024 - len("GET / HTTP/1.1")) + b" HTTP/1.1\r\nHost: h\r\n"
        await self.one(404, line + b"Connection: close\r\n\r\n")
        await self.one(414, line.replace(b"/x", b"/xx", 1) + b"Connection: close\r\n\r\n")
        await self.one(414, b"x" * 1_000_000)

    async def test_headers(self) -> None:
        """Headers of 32 KiB are read; more is 431, in one line or in many."""
        head = b"GET /nowhere HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
        rest = 32 * 1024 - len("Host: h\r\nConnection: close\r\nX: \r\n\r\n")
        await self.one(404, head + b"X: " + b"x" * rest + b"\r\n\r\n")
        await self.one(431, head + b"X: " + b"x" * (rest + 1) + b"\r\n\r\n")
        await self.one(431, head, *[b"X-%d: x\r\n" % n for n in range(300)], b"\r\n")
        await self.one(431, head + b"x" * 1_000_000)

    async def test_declared_body(self) -> None:
        """A body of 1 MiB is read; a larger one is 413, and who sends it all first still gets to read that."""
        head = b"POST /things HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
        [answer] = await self.talk(head % (1 << 20), b"x" * (1 << 20))
        self.assertEqual((answer.status, len(answer.body)), (200, 1 << 20))
        await self.one(413, head % ((1 << 20) + 1), b"x" * ((1 << 20) + 1))
        await self.one(413, head % (4 << 20), b"x" * (4 << 20))
        await self.one(413, head % (1 << 62))
        self.assertEqual(len(self.things.bodies), 1)

    async def test_chunked_body(self) -> None:
        """A chunked body has the same limit, whatever the size of its chunks."""
        head = b"POST /things HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        for size in (1000, 1 << 19):
            chunk = b"%x\r\n%s\r\n" % (size, b"x" * size)
            count = (1 << 20) // size
            [answer] = await self.talk(head, chunk * count, b"0\r\n\r\n")
            self.assertEqual((answer.status, len(answer.body)), (200, count * size))
            await self.one(413, head, chunk * (count + 1), b"0\r\n\r\n")
            await self.one(413, head, chunk * count * 4)

    async def test_policy_body(self) -> None:
        """A route for policies takes more than others, from callers that it knows."""
        head = b"PUT /things HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: %d\r\n%s\r\n"
        authorization = b"Authorization: " + ALICE + b"\r\n"
        [answer] = await self.talk(head % (3 << 20, authorization), b"x" * (3 << 20))
        self.assertEqual(answer.json(), 3 << 20)
        await self.one(413, head % ((32 << 20) + 1, authorization), b"x" * 1_000_000)
        [answer] = await self.talk(head % (3 << 20, b""), b"x" * (3 << 20))
        self.assertEqual((answer.status, answer.body), (401, b"Authorization missing"))

    async def test_no_http(self) -> None:
        """A request that is no HTTP is 400."""
        await self.one(400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(500) + b"\r\n")
        await self.one(
            400, b"POST /things HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n", b"x" * 1_000_000
        )


class PathTests(EdgeTestCase):
    """Raw paths."""

    async def test_paths(self) -> None:
        """Encoded and raw slashes, other encodings and what doesn't decode, over a socket (WIRE-10)."""
        for path, status, value in (
            (b"/things/a/b%2Fc/d", 200, ["a", "b/c/d"]),
            (b"/things/a/%2Fb+%C3%A9%40/", 200, ["a", "/b+é@"]),
            (b"http://h:1/things/a/b", 200, ["a", "b"]),
            (b"/things/a/%ff", 422, None),
            (b"/things/a/%00", 422, None),
            (b"/things/a/b%", 422, None),
            (b"/things/a/" + b"x" * 1025, 422, None),
            (b"/things/a%2Fb/c", 404, None),
            (b"/things/a/b\xc3\xa9", 400, None),
        ):
            request = b"GET " + path + b" HTTP/1.1\r\nHost: h\r\nConnection: close\r\nAuthorization: " + ALICE + b"\r\n\r\n"
            [answer] = await self.talk(request)
            self.assertEqual(answer.status, status, path)
            if value is not None:
                self.assertEqual(answer.json(), value)


class ConnectionTests(EdgeTestCase):
    """Several requests on one connection, and clients that don't stay."""

    async def test_pipelined(self) -> None:
        """A thousand requests at once are answered in order, on one connection."""
        count = 1000
        requests = [GET.replace(b"/b ", b"/%d " % n) for n in range(count)]
        answers = await self.talk(b"".join(requests), GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        self.assertEqual([answer.json()[1] for answer in answers], [*map(str, range(count)), "b"])

    async def test_refused_and_used_again(self) -> None:
        """A connection whose request was refused takes the next one (WIRE-42)."""
        post = b"POST /nowhere HTTP/1.1\r\nHost: h\r\nContent-Length: 200000\r\n\r\n" + b"x" * 200_000
        answers = await self.talk(post, GET, post, GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        self.assertEqual([answer.status for answer in answers], [404, 200, 404, 200])

    async def test_leaves_in_mid_body(self) -> None:
        """A client that leaves before its body is complete has begun nothing, and the next one is served."""
        dialogue = await self.dialogue()
        assert dialogue.transport is not None
        dialogue.transport.write(b"POST /things HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nabc")
        dialogue.transport.loseConnection()
        await dialogue.end()
        [answer] = await self.talk(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        self.assertEqual((answer.status, self.things.bodies), (200, []))

    async def test_leaves_in_mid_route(self) -> None:
        """A client that leaves while its route runs has the route cancelled."""
        for leave in ("loseConnection", "abortConnection"):
            stopped: Deferred[Deferred[None]] = Deferred()
            self.things.begun = Deferred()
            self.things.waiting = Deferred(stopped.callback)
            dialogue = await self.dialogue()
            assert dialogue.transport is not None
            dialogue.transport.write(b"GET /slow HTTP/1.1\r\nHost: h\r\n\r\n")
            await self.things.begun
            getattr(dialogue.transport, leave)()
            await stopped.addTimeout(PATIENCE, reactor)
            await dialogue.end()

    async def test_drain(self) -> None:
        """A site that drains lets the request in progress end, and closes the connections without a reset."""
        busy, idle = await self.dialogue(), await self.dialogue()
        assert busy.transport is not None
        busy.transport.write(b"GET /slow HTTP/1.1\r\nHost: h\r\n\r\n")
        await self.things.begun
        drained = Deferred.fromCoroutine(self.site.drain(PATIENCE))
        self.assertIs(await idle.end(), ConnectionDone)
        self.things.waiting.callback(None)
        [answer] = await busy.answers(1)
        self.assertEqual((answer.body, answer.headers["connection"]), (b"at last", "close"))
        self.assertIs(await busy.end(), ConnectionDone)
        await drained


class PipeliningTests(EdgeTestCase):
    """Connections that ask for much at once."""

    async def test_others_are_answered(self) -> None:
        """While twenty connections have a thousand requests each in the works, somebody else is answered soon."""
        await self.assert_fair(await self.dialogue(), [await self.dialogue() for _ in range(20)])

    async def test_half_closed(self) -> None:
        """Who stops writing after many requests has left: what is unread is never begun, and others are served."""
        dialogue = await self.dialogue()
        transport: Any = dialogue.transport
        transport.write(b"GET /slow HTTP/1.1\r\nHost: h\r\n\r\n" + b"POST /things HTTP/1.1\r\nHost: h\r\n\r\n" * 100)
        await self.things.begun
        transport.loseWriteConnection()
        await dialogue.end()
        [answer] = await self.talk(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        self.assertEqual((answer.status, self.things.bodies), (200, []))

    async def test_framing(self) -> None:
        """What could be read in two ways is 400, and ends the connection (WIRE-2)."""
        post = b"POST /things HTTP/1.1\r\nHost: h\r\n"
        for head in (
            post + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n",
            post + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
            post + b"Host: h\r\n\r\n",
            b"POST /things HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        ):
            [answer] = await self.talk(head + b"0\r\n\r\n" + GET)
            self.assertEqual((answer.status, answer.headers["connection"], self.things.bodies), (400, "close", []))
        first, second = await self.talk(
            b"\r\n" + GET, b"\r\n\r\n" + GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        )
        self.assertEqual((first.status, second.status), (200, 200))


class TimeTests(EdgeTestCase):
    """How long a request may take, and a connection be idle."""

    limits = Limits(request_seconds=0.3, idle_seconds=0.3)

    async def test_slow_sender(self) -> None:
        """Who sends a byte now and then is told that it took too long."""
        for head in (b"GET /things/a/", b"POST /things HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n"):
            dialogue = await self.dialogue()
            assert dialogue.transport is not None
            dialogue.transport.write(head)
            trickle = LoopingCall(dialogue.transport.write, b"x")
            trickling = trickle.start(0.02)
            [answer] = await dialogue.answers(1)
            self.assertEqual((answer.status, answer.headers["connection"]), (408, "close"))
            self.assertIs(await dialogue.end(), ConnectionDone)
            trickle.stop()
            await trickling
        self.assertEqual(self.things.bodies, [])

    async def test_takes_nothing(self) -> None:
        """Who takes nothing of a long answer has it held back, and is let go."""
        self.things.pieces = 1 << 40
        dialogue = await self.dialogue()
        transport: Any = dialogue.transport
        transport.write(b"GET /long HTTP/1.1\r\nHost: h\r\n\r\n")
        transport.pauseProducing()
        await self.things.stopped.addTimeout(PATIENCE, reactor)
        transport.resumeProducing()
        await dialogue.end()
        self.assertLess(len(dialogue.received), 50_000_000)
        self.assertRaises(AssertionError, read_answers, dialogue.received)

    async def test_takes_no_answers(self) -> None:
        """Who asks on and on and takes no answer has no more of it read, and is let go."""
        body = b"x" * 1000
        request = b"POST /things HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        dialogue = await self.dialogue()
        transport: Any = dialogue.transport
        transport.pauseProducing()
        transport.write(request * 100_000)
        ended = Deferred.fromCoroutine(dialogue.end())
        while len(self.site._channels):
            await deferLater(reactor, 0.01)
        transport.resumeProducing()
        await ended
        self.assertLess(len(self.things.bodies), 50_000)

    async def test_idle(self) -> None:
        """A connection on which nothing happens is closed without a word."""
        self.assertEqual(await self.talk(), [])
        [answer] = await self.talk(GET)
        self.assertNotIn("connection", answer.headers)


class TlsTests(EdgeTestCase):
    """The same over TLS."""

    async def secure(self) -> Dialogue:
        """Open a port for TLS with a certificate of its own, and connect to it."""
        # Not ``mktemp``: under pytest that leaves files where the tests were started.
        directory = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, directory)
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "svc.example")])
        now = datetime.datetime.fromtimestamp(reactor.seconds(), datetime.UTC)
        certificate = (
            x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("svc.example")]), critical=False)
            .sign(key, SHA256())
        )
        pem = certificate.public_bytes(Encoding.PEM)
        (directory / "cert.pem").write_bytes(pem)
        (directory / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        await self.listen(f"ssl:0:interface=127.0.0.1:privateKey={directory / 'key.pem'}:certKey={directory / 'cert.pem'}")
        options = optionsForClientTLS(
            "svc.example", trustRoot=Certificate.loadPEM(pem), acceptableProtocols=[b"h2", b"http/1.1"]
        )
        dialogue = Dialogue()
        await connectProtocol(wrapClientTLS(options, HostnameEndpoint(reactor, "127.0.0.1", self.port)), dialogue)
        return dialogue

    async def test_requests(self) -> None:
        """Requests are answered over TLS, and HTTP/2 isn't offered (WIRE-1)."""
        verifyObject(IProtocolNegotiationFactory, self.site)
        dialogue = await self.secure()
        assert dialogue.transport is not None
        dialogue.transport.write(GET + GET)
        self.assertEqual([answer.status for answer in await dialogue.answers(2)], [200, 200])
        self.assertEqual(dialogue.negotiated, b"http/1.1")
        dialogue.transport.loseConnection()
        await dialogue.end()

    async def test_others_are_answered(self) -> None:
        """While connections have many requests in the works over TLS, somebody else is answered soon."""
        dialogues = [await self.secure() for _ in range(11)]
        await self.assert_fair(dialogues[0], dialogues[1:])
        for dialogue in dialogues:
            assert dialogue.transport is not None
            dialogue.transport.loseConnection()
            await dialogue.end()

    async def test_long_answer(self) -> None:
        """An answer in pieces arrives whole over TLS, too, and the connection takes another request."""
        self.things.pieces = 20
        dialogue = await self.secure()
        assert dialogue.transport is not None
        dialogue.transport.write(b"GET /long HTTP/1.1\r\nHost: h\r\n\r\n" + GET)
        await self.things.stopped.addTimeout(PATIENCE, reactor)
        long, short = await dialogue.answers(2)
        self.assertEqual([int(number[-9:]) for number in long.json()], list(range(20)))
        self.assertEqual(short.status, 200)
        dialogue.transport.loseConnection()
        await dialogue.end()

    async def test_early_answer(self) -> None:
        """A refusal in mid-request arrives over TLS, too."""
        dialogue = await self.secure()
        assert dialogue.transport is not None
        dialogue.transport.write(b"POST /things HTTP/1.1\r\nHost: h\r\nContent-Length: 8000000\r\n\r\n" + b"x" * 2_000_000)
        [answer] = await dialogue.answers(1)
        self.assertEqual((answer.status, answer.headers["connection"]), (413, "close"))
        dialogue.transport.loseConnection()
        await dialogue.end()
