"""Records over a connection, as syslog."""

from __future__ import annotations

from typing import Any, Final

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectError, ConnectionLost
from twisted.internet.interfaces import IConsumer, IProtocol, IProtocolFactory, IStreamClientEndpoint, ITransport
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from svc.audit.journal import Backlog
from svc.audit.syslog import PATIENCE, SyslogSink

ADDRESS: Final = IPv4Address("TCP", "192.0.2.1", 601)


@implementer(ITransport, IConsumer)
class Socket:
    """A connection in memory, as the reactor's sockets behave: what is written leaves when ``drain`` is called."""

    def __init__(self) -> None:
        self.buffer = self.sent = b""
        self.producer: Any = None
        self.closed = False

    def write(self, data: bytes) -> None:
        """Keep what has yet to leave."""
        self.buffer += data

    def writeSequence(self, data: Any) -> None:
        """Keep what has yet to leave."""
        self.write(b"".join(data))

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """A producer that is pulled is asked at once."""
        assert self.producer is None
        assert not streaming
        self.producer = producer
        producer.resumeProducing()

    def unregisterProducer(self) -> None:
        """Ask it no more."""
        self.producer = None

    def drain(self) -> None:
        """Let leave what was written, and ask for more."""
        self.sent, self.buffer = self.sent + self.buffer, b""
        if self.producer is not None:
            self.producer.resumeProducing()

    def loseConnection(self) -> None:
        """Close."""
        self.closed = True

    def abortConnection(self) -> None:
        """Close."""
        self.closed = True

    def getPeer(self) -> IPv4Address:
        """The receiver's address."""
        return ADDRESS

    def getHost(self) -> IPv4Address:
        """Our address."""
        return ADDRESS


@implementer(IStreamClientEndpoint)
class Receiver:
    """An endpoint; while it is ``away`` connections to it are refused."""

    def __init__(self) -> None:
        self.away = False
        self.sockets: list[Socket] = []
        self.protocols: list[IProtocol] = []

    def connect(self, factory: IProtocolFactory) -> Deferred[IProtocol]:
        """Connect at once, or not."""
        if self.away:
            return fail(ConnectError(string="nobody listens"))
        protocol, socket = factory.buildProtocol(ADDRESS), Socket()
        assert protocol is not None
        self.sockets.append(socket)
        self.protocols.append(protocol)
        protocol.makeConnection(socket)
        return succeed(protocol)

    def lose(self) -> None:
        """Lose the connection."""
        self.protocols[-1].connectionLost(Failure(ConnectionLost()))


class SyslogTests(SynchronousTestCase):
    """A receiver, and the sink that sends to it."""

    def setUp(self) -> None:
        """Make both."""
        self.clock, self.receiver, self.number = Clock(), Receiver(), 0
        self.backlog = Backlog(lambda: None)
        self.sink = SyslogSink(self.clock, self.receiver, "tcp:logs")

    def open(self) -> Deferred[None]:
        """Open the sink."""
        return Deferred.fromCoroutine(self.sink.open(self.backlog))

    def write(self, *records: bytes) -> None:
        """Give the sink records, in one turn."""
        first, self.number = self.number + 1, self.number + len(records)
        self.backlog.add_records(list(enumerate(records, first)))
        self.sink.drain_backlog()

    def test_frames(self) -> None:
        """Each record follows its length, and is taken when it has left (AUD-19)."""
        self.successResultOf(self.open())
        self.write(b"one", b"zo\xc3\xab")
        [socket] = self.receiver.sockets
        self.assertEqual(len(self.backlog), 2)
        socket.drain()
        self.assertEqual(socket.sent, b"3 one4 zo\xc3\xab")
        self.assertEqual(len(self.backlog), 0)
        self.write(b"three")
        socket.drain()
        self.assertEqual(socket.sent, b"3 one4 zo\xc3\xab5 three")

    def test_blocked(self) -> None:
        """A receiver that reads nothing is given no more than one piece, and the rest when that has left."""
        self.successResultOf(self.open())
        self.write(*[b"x" * 1000] * 200)
        [socket] = self.receiver.sockets
        self.write(b"last")
        self.assertLess(len(socket.buffer), 70_000)
        self.assertEqual(len(self.backlog), 201)
        while self.backlog:
            socket.drain()
        self.assertTrue(socket.sent.endswith(b"4 last"))

    def test_ready(self) -> None:
        """It is ready while there is a connection from which everything has left."""
        self.assertFalse(self.sink.is_ready())
        self.successResultOf(self.open())
        self.assertTrue(self.sink.is_ready())
        self.write(b"one")
        self.assertFalse(self.sink.is_ready())
        self.receiver.sockets[0].drain()
        self.assertTrue(self.sink.is_ready())
        self.receiver.away = True
        self.receiver.lose()
        self.assertFalse(self.sink.is_ready())

    def test_lost(self) -> None:
        """When the connection is lost that is trouble; what hadn't left is sent again over the next one (AUD-19)."""
        self.successResultOf(self.open())
        self.write(b"one")
        self.receiver.sockets[0].drain()
        self.write(b"two")
        self.receiver.away = True
        self.receiver.lose()
        self.assertIsNotNone(self.backlog.failure)
        self.write(b"three")
        self.clock.advance(1)
        self.receiver.away = False
        self.clock.pump([1] * 10)
        self.assertIsNone(self.backlog.failure)
        self.receiver.sockets[1].drain()
        self.assertEqual(self.receiver.sockets[1].sent, b"3 two5 three")
        self.assertEqual(len(self.backlog), 0)

    def test_absent(self) -> None:
        """A receiver that isn't there at the start is waited for a moment, is trouble then, and is found later."""
        self.receiver.away = True
        opening = self.open()
        self.assertNoResult(opening)
        self.clock.pump([1] * int(PATIENCE + 1))
        self.successResultOf(opening)
        self.assertEqual(self.backlog.failure, "there is no connection")
        self.receiver.away = False
        self.clock.pump([1] * 40)
        self.assertIsNone(self.backlog.failure)

    def test_end(self) -> None:
        """The end waits until what there is has left, for a while, and closes the connection."""
        self.successResultOf(self.open())
        self.write(b"one")
        closing = Deferred.fromCoroutine(self.sink.close())
        self.assertNoResult(closing)
        [socket] = self.receiver.sockets
        socket.drain()
        self.receiver.lose()
        self.successResultOf(closing)
        self.assertTrue(socket.closed)
        self.assertEqual(socket.sent, b"3 one")

    def test_end_of_a_blocked_one(self) -> None:
        """The end doesn't wait for ever."""
        self.successResultOf(self.open())
        self.write(b"one")
        closing = Deferred.fromCoroutine(self.sink.close())
        self.clock.advance(PATIENCE)
        self.receiver.lose()
        self.successResultOf(closing)
        self.assertEqual(len(self.backlog), 1)
