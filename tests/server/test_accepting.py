"""Ports that are inherited, with sockets that only this machine sees."""

from __future__ import annotations

import errno
import os
import socket
import tempfile
from typing import Any

from twisted.internet.address import IPv4Address, UNIXAddress
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.protocol import ServerFactory
from twisted.internet.task import Clock
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.server.accepting import InheritedPort
from svc.server.endpoints import inherited_endpoint
from svc.server.listening import PAUSE
from tests.certificates import LEAF_KEY, chain, pem
from tests.server.test_endpoints import key_pem


class FakeReactor(Clock):
    """Knows who reads, and counts the connections that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.readers: list[Any] = []
        self.adopted: list[tuple[int, Any]] = []

    def addReader(self, reader: Any) -> None:
        """Note one who reads."""
        if reader not in self.readers:
            self.readers.append(reader)

    def removeReader(self, reader: Any) -> None:
        """Forget it."""
        if reader in self.readers:
            self.readers.remove(reader)

    def adoptStreamConnection(self, descriptor: int, family: int, factory: Any) -> None:
        """Take a connection."""
        os.fstat(descriptor)
        self.adopted.append((family, factory))


class PortCase(SynchronousTestCase):
    """A socket, at which processes accept."""

    def setUp(self) -> None:
        """Listen."""
        self.reactor, self.factory = FakeReactor(), ServerFactory()
        self.socket = socket.socket()
        self.addCleanup(self.socket.close)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.listen()

    def connect(self) -> None:
        """Be a client."""
        client = socket.create_connection(self.socket.getsockname(), timeout=10)
        self.addCleanup(client.close)


class InheritedPortTests(PortCase):
    """Two processes that accept."""

    def setUp(self) -> None:
        """Begin."""
        super().setUp()
        self.ports = [InheritedPort(self.reactor, self.socket.fileno(), self.factory) for _ in range(2)]
        for port in self.ports:
            port.startListening()
            self.addCleanup(port.stopListening)

    def test_one_at_a_time(self) -> None:
        """A process takes one connection in a turn, and leaves the others to the next (CFG-28)."""
        for _ in range(3):
            self.connect()
        self.ports[0].doRead()
        self.ports[1].doRead()
        self.assertEqual(self.reactor.adopted, [(socket.AF_INET, self.factory)] * 2)

    def test_another_was_faster(self) -> None:
        """A process that finds nobody goes on at once."""
        self.ports[0].doRead()
        self.assertEqual((self.reactor.adopted, len(self.reactor.readers)), ([], 2))

    def test_out_of_descriptors(self) -> None:
        """Where nobody can be accepted the port is left alone for a moment."""

        class Full:
            """A socket of a machine that is out of descriptors."""

            def accept(self) -> None:
                """Fail."""
                raise OSError(errno.EMFILE, "too many")

        real, full = self.ports[0]._socket, Full()
        self.ports[0]._socket = full  # type: ignore[assignment]
        self.ports[0].doRead()
        self.assertEqual(self.reactor.readers, [self.ports[1]])
        self.ports[0]._socket = real
        self.reactor.advance(PAUSE)
        self.assertEqual(len(self.reactor.readers), 2)

    def test_stopped(self) -> None:
        """A port that is stopped accepts no more, and the socket is left to others."""
        self.successResultOf(self.ports[0].stopListening())
        self.assertEqual(self.reactor.readers, [self.ports[1]])
        self.connect()
        self.ports[1].doRead()
        self.assertEqual(len(self.reactor.adopted), 1)

    def test_closed_elsewhere(self) -> None:
        """When the process that has opened the port closes it, that is in order; anything else is in the log."""
        self.ports[0].connectionLost(Failure(ConnectionDone()))
        self.ports[1].connectionLost(Failure(ConnectionLost()))
        self.assertEqual(self.reactor.readers, [])

    def test_addresses(self) -> None:
        """A port knows where it is."""
        number = self.socket.getsockname()[1]
        self.assertEqual(self.ports[0].getHost(), IPv4Address("TCP", "127.0.0.1", number))
        with tempfile.TemporaryDirectory(dir="/tmp") as folder, socket.socket(socket.AF_UNIX) as opened:
            opened.bind(f"{folder}/s")
            port = InheritedPort(self.reactor, opened.fileno(), self.factory)
            port.startListening()
            self.assertEqual(port.getHost(), UNIXAddress(f"{folder}/s".encode()))
            port.stopListening()


class InheritedEndpointTests(PortCase):
    """Endpoints of all kinds, at the same socket."""

    def listen(self, text: str) -> Any:
        """Listen at an endpoint, and return what a connection is given to."""
        endpoint = inherited_endpoint(self.reactor, text, self.socket.fileno())
        before = len(self.reactor.readers)
        listening: Deferred[Any] = endpoint.place.listen(self.factory)
        port = self.successResultOf(listening)
        self.addCleanup(port.stopListening)
        self.assertEqual(len(self.reactor.readers), before + 1)
        self.connect()
        port.doRead()
        return self.reactor.adopted.pop()[1]

    def test_plain(self) -> None:
        """Ports, sockets in the file system, and those of systemd are their sockets (CFG-28)."""
        for text in ("tcp:0", "tcp6:0", "unix:/nowhere/at/all:mode=600", "systemd:domain=INET:index=0"):
            self.assertIs(self.listen(text), self.factory)

    def test_tls(self) -> None:
        """A port with TLS speaks it in every process, with a certificate that is read again when it changes (CFG-28)."""
        folder = self.mktemp()
        os.mkdir(folder)
        for name, text in (("cert", pem(*chain("the host's name").certificates)), ("key", key_pem(LEAF_KEY))):
            with open(f"{folder}/{name}", "w", encoding="ascii") as file:
                file.write(text)
        text = f"ssl:0:privateKey={folder}/key:certKey={folder}/cert"
        self.assertIsInstance(self.listen(text), TLSMemoryBIOFactory)
        self.assertIsNotNone(inherited_endpoint(self.reactor, text, 0).certificate)

    def test_wrapped(self) -> None:
        """What a kind of endpoint puts around its connections is there in every process (CFG-28)."""
        self.assertIsNot(self.listen("haproxy:tcp:0"), self.factory)
