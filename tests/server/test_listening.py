"""Where the server listens: addresses as URLs, and opening and closing ports."""

from __future__ import annotations

from typing import Any

import attrs
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IAddress, IListeningPort, IProtocolFactory, IReadDescriptor, IStreamServerEndpoint
from twisted.internet.protocol import ServerFactory
from twisted.internet.ssl import CertificateOptions
from twisted.internet.task import Clock
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from svc.model.errors import StartRefused
from svc.server.listening import ACCEPT_PAUSE, DRAIN_SECONDS, Endpoint, ListeningPorts, port_url


@implementer(IListeningPort)
@attrs.define
class FakePort:
    """A port with an address; ``log`` tells when it was closed."""

    address: IAddress
    factory: Any = None
    log: list[str] = attrs.field(factory=list)
    closed: Deferred[None] = attrs.field(factory=lambda: succeed(None))

    def startListening(self) -> None:
        """Do nothing."""

    def stopListening(self) -> Deferred[None]:
        """Close it."""
        self.log.append("closed")
        return self.closed

    def getHost(self) -> IAddress:
        """Return the address."""
        return self.address


@implementer(IReadDescriptor)
@attrs.define(slots=False)
class FakeAcceptingPort(FakePort):
    """A port at which ``waiting`` clients are to be accepted, while that is possible."""

    reactor: Clock = attrs.field(factory=Clock)
    waiting: int = 0
    possible: bool = True
    sessionno: int = 0
    connected: bool = True
    disconnecting: bool = False
    reading: bool = True

    def doRead(self) -> None:
        """Accept them."""
        if self.possible:
            self.sessionno += self.waiting
            self.waiting = 0

    def startReading(self) -> None:
        """Be asked again."""
        self.reading = True

    def stopReading(self) -> None:
        """Don't."""
        self.reading = False

    def fileno(self) -> int:
        """Have none."""
        return -1

    def logPrefix(self) -> str:
        """Have none."""
        return ""

    def connectionLost(self, reason: object) -> None:
        """Do nothing."""


@implementer(IStreamServerEndpoint)
@attrs.frozen
class FakeEndpoint:
    """An endpoint that opens a port, or can't."""

    outcome: FakePort | Exception

    def listen(self, protocolFactory: IProtocolFactory) -> Deferred[IListeningPort]:
        """Open it."""
        return fail(self.outcome) if isinstance(self.outcome, Exception) else succeed(self.outcome)


def tcp(host: str, port: int) -> FakePort:
    """A port of that address."""
    address = IPv6Address("TCP", host, port) if ":" in host else IPv4Address("TCP", host, port)
    return FakePort(address)


class UrlTests(SynchronousTestCase):
    """URLs of ports."""

    def test_port(self) -> None:
        """A port's URL has its address and the number that it really has."""
        self.assertEqual(port_url(tcp("192.0.2.1", 43210)), "http://192.0.2.1:43210")

    def test_wildcard(self) -> None:
        """A wildcard address, of either family, is shown as 127.0.0.1 (CFG-12)."""
        self.assertEqual(port_url(tcp("0.0.0.0", 8080)), "http://127.0.0.1:8080")
        self.assertEqual(port_url(tcp("::", 8080)), "http://127.0.0.1:8080")

    def test_ipv6(self) -> None:
        """An IPv6 address stands in brackets, and the sign before its zone is escaped."""
        self.assertEqual(port_url(tcp("::1", 8080)), "http://[::1]:8080")
        self.assertEqual(port_url(tcp("fe80::1%eth0", 8080)), "http://[fe80::1%25eth0]:8080")

    def test_tls(self) -> None:
        """A port that speaks TLS has an https URL."""
        port = tcp("127.0.0.1", 8443)
        port.factory = TLSMemoryBIOFactory(CertificateOptions(), False, ServerFactory())
        self.assertEqual(port_url(port), "https://127.0.0.1:8443")

    def test_unix(self) -> None:
        """A socket in the file system is shown by its path."""
        self.assertEqual(port_url(FakePort(UNIXAddress("/run/svc/socket"))), "http+unix:/run/svc/socket")


class ListeningTests(SynchronousTestCase):
    """Ports that open and close."""

    def setUp(self) -> None:
        """Prepare two ports."""
        self.ports = [tcp("127.0.0.1", 1), tcp("127.0.0.1", 2)]
        self.drained: Deferred[None] = Deferred()
        self.patience: list[float] = []

    async def drain(self, timeout: float) -> None:
        """Wait until the test says so."""
        self.patience.append(timeout)
        await self.drained

    def listening(self, *outcomes: FakePort | Exception) -> ListeningPorts:
        """Make a service."""
        endpoints = [Endpoint(f"endpoint-{number}", FakeEndpoint(outcome)) for number, outcome in enumerate(outcomes)]
        service = ListeningPorts(endpoints, ServerFactory(), self.drain)
        service.startService()
        return service

    def test_fakes(self) -> None:
        """The fakes provide the interfaces."""
        verifyObject(IListeningPort, self.ports[0])
        verifyObject(IStreamServerEndpoint, FakeEndpoint(self.ports[0]))

    def test_open(self) -> None:
        """Every endpoint is listened at, and the URLs come in the order of the endpoints."""
        opened = Deferred.fromCoroutine(self.listening(*self.ports).open())
        self.assertEqual(self.successResultOf(opened), ["http://127.0.0.1:1", "http://127.0.0.1:2"])

    def test_port_in_use(self) -> None:
        """An endpoint that can't be listened at refuses the start by its name, and ports that were open by then close
        (CFG-16).
        """
        listening = self.listening(self.ports[0], CannotListenError("127.0.0.1", 2, OSError(98, "Address already in use")))
        refusal = self.failureResultOf(Deferred.fromCoroutine(listening.open()), StartRefused).value
        self.assertIn("endpoint-1", str(refusal))
        self.assertIn("Address already in use", str(refusal))
        listening.stopService()
        self.assertEqual(self.ports[0].log, ["closed"])

    def test_stop(self) -> None:
        """Ports close first, and then requests in progress have their time to end."""
        self.ports[0].closed = Deferred()
        listening = self.listening(*self.ports)
        self.successResultOf(Deferred.fromCoroutine(listening.open()))
        stopped = listening.stopService()
        self.assertEqual(self.patience, [])
        self.ports[0].closed.callback(None)
        self.assertEqual((self.ports[1].log, self.patience), (["closed"], [DRAIN_SECONDS]))
        self.assertNoResult(stopped)
        self.drained.callback(None)
        self.successResultOf(stopped)

    def test_nobody_could_be_accepted(self) -> None:
        """A port that is readable, and accepts nobody, is left alone for a moment, again and again."""
        port = FakeAcceptingPort(IPv4Address("TCP", "127.0.0.1", 1), waiting=1)
        self.successResultOf(Deferred.fromCoroutine(self.listening(port).open()))
        verifyObject(IReadDescriptor, port)
        port.doRead()
        self.assertEqual((port.sessionno, port.reading), (1, True))
        port.waiting, port.possible = 3, False
        for _ in range(3):
            port.doRead()
            self.assertFalse(port.reading)
            port.reactor.advance(ACCEPT_PAUSE)
            self.assertTrue(port.reading)
        port.possible = True
        port.doRead()
        self.assertEqual((port.sessionno, port.reading, port.reactor.getDelayedCalls()), (4, True, []))
        port.doRead()
        port.connected = False
        port.reactor.advance(ACCEPT_PAUSE)
        self.assertFalse(port.reading)
