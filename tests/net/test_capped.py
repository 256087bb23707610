"""Tests of ``svc.net.capped``: a connection that counts, and ends at once."""

from __future__ import annotations

from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.trial.unittest import SynchronousTestCase

from svc.net.capped import CappedEndpoint


class Gathering(Protocol):
    """A client that keeps what it is given."""

    data = b""

    def dataReceived(self, data: bytes) -> None:
        """Keep it."""
        self.data += data


class CappedEndpointTests(SynchronousTestCase):
    """``CappedEndpoint``, with a limit of 10 bytes."""

    def setUp(self) -> None:
        """Connect."""
        reactor: Any = MemoryReactorClock()
        self.capped = CappedEndpoint(TCP4ClientEndpoint(reactor, "192.0.2.1", 80), 10)
        connected = self.capped.connect(Factory.forProtocol(Gathering))
        self.wire = reactor.tcpClients[0][2].buildProtocol(IPv4Address("TCP", "192.0.2.1", 80))
        self.transport = StringTransport()
        self.wire.makeConnection(self.transport)
        self.protocol: Any = self.successResultOf(connected)
        self.assertIsInstance(self.protocol, Gathering)

    def test_limit(self) -> None:
        """What is within the limit is passed on; the byte beyond ends the connection, and what it came with is lost."""
        for data in (b"12345", b"67890"):
            self.wire.dataReceived(data)
        self.assertEqual((self.protocol.data, self.capped.is_over_limit), (b"1234567890", False))
        self.assertFalse(self.transport.disconnected)
        self.wire.dataReceived(b"1")
        self.assertEqual((self.protocol.data, self.capped.is_over_limit), (b"1234567890", True))
        self.assertTrue(self.transport.disconnected)

    def test_lifted(self) -> None:
        """Once the limit is lifted nothing is counted."""
        self.wire.dataReceived(b"1234567890")
        self.capped.lift_limit()
        self.wire.dataReceived(b"1" * 1000)
        self.assertEqual((len(self.protocol.data), self.capped.is_over_limit), (1010, False))
        self.assertFalse(self.transport.disconnected)

    def test_end(self) -> None:
        """The one who asked, and the client, hang up at once."""
        self.protocol.transport.loseConnection()
        self.assertTrue(self.transport.disconnected)
        self.transport.disconnected = False
        self.capped.hang_up()
        self.assertTrue(self.transport.disconnected)

    def test_never_connected(self) -> None:
        """Where there is no connection there is none to end."""
        CappedEndpoint(TCP4ClientEndpoint(MemoryReactorClock(), "192.0.2.1", 80), 10).hang_up()
