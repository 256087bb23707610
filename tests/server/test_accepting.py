"""Ports that are inherited, with sockets that only this machine sees."""

from __future__ import annotations

import errno
import os
import socket
import tempfile
from typing import Any

from twisted.internet.address import IPv4Address, UNIXAddress
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import _SystemdParser
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.protocol import ServerFactory
from twisted.internet.task import Clock
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure
from twisted.python.systemd import ListenFDs
from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import StartRefused
from svc.server.accepting import InheritedPort
from svc.server.endpoints import bound_endpoint, inherited_endpoint
from svc.server.listening import ACCEPT_PAUSE, BoundPorts, Endpoint, listen_at
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

    def adoptStreamPort(self, descriptor: int, family: int, factory: Any) -> socket.socket:
        """Take a port that is listened at."""
        self.adopted.append((family, factory))
        return socket.socket(fileno=os.dup(descriptor))

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


class BoundTests(SynchronousTestCase):
    """Sockets that are bound before they are listened at (CFG-16)."""

    def setUp(self) -> None:
        """Have a reactor."""
        self.reactor = FakeReactor()

    def bind(self, text: str) -> Endpoint:
        """Bind an endpoint; return it."""
        endpoint = bound_endpoint(self.reactor, text)
        assert endpoint.binding is not None
        self.addCleanup(endpoint.binding.release_unused)
        self.successResultOf(Deferred.fromCoroutine(endpoint.binding.bind(endpoint.inner)))
        return endpoint

    def listen(self, endpoint: Endpoint) -> Any:
        """Listen at it; return what the reactor was given."""
        port = self.successResultOf(Deferred.fromCoroutine(listen_at(endpoint, ServerFactory())))
        self.addCleanup(getattr(port, "close", lambda: None))
        return port

    def test_bound(self) -> None:
        """A port that is bound is the endpoint's, and refuses connections until the endpoint listens."""
        for interface in ("127.0.0.1", "\\:\\:1"):
            with socket.socket(socket.AF_INET6 if ":" in interface else socket.AF_INET) as free:
                free.bind((interface.replace("\\", ""), 0))
                number = free.getsockname()[1]
            endpoint = self.bind(f"tcp:{number}:interface={interface}")
            address = (interface.replace("\\", ""), number)
            self.assertRaises(ConnectionRefusedError, socket.create_connection, address, 5)
            self.assertEqual(self.reactor.adopted, [])
            self.assertEqual(self.listen(endpoint).getsockname()[1], number)
            socket.create_connection(address, 5).close()
            self.reactor.adopted.clear()

    def test_wrapped(self) -> None:
        """So is the port of an endpoint with a PROXY header; one of systemd, and an unknown kind, is left for later."""
        endpoint = self.bind("haproxy:tcp:0:interface=127.0.0.1")
        self.listen(endpoint)
        [(family, _)] = self.reactor.adopted
        self.assertEqual(family, socket.AF_INET)
        self.patch(_SystemdParser, "_sddaemon", ListenFDs([3]))
        for text in ("systemd:domain=INET:index=0", "haproxy:systemd:domain=INET:index=0"):
            self.assertIsNone(bound_endpoint(self.reactor, text).binding, text)

    def test_taken(self) -> None:
        """A port that another listens at is refused while it is bound, by the endpoint's name; nothing listens then."""
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            texts = ["tcp:0:interface=127.0.0.1", f"tcp:{other.getsockname()[1]}:interface=127.0.0.1"]
            endpoints = [bound_endpoint(self.reactor, text) for text in texts]
            ports = BoundPorts(endpoints)
            refusal = self.failureResultOf(Deferred.fromCoroutine(ports.bind()), StartRefused).value
            ports.stopService()
        self.assertIn(f"it cannot listen at {texts[1]}: ", str(refusal))
        self.assertIn("Address already in use", str(refusal))
        self.assertEqual(self.reactor.adopted, [])

    def test_freed(self) -> None:
        """What was bound, and isn't listened at, is let go: the port is another's to take, and the socket's file goes."""
        path = os.path.join(tempfile.mkdtemp(dir="/tmp"), "socket")
        for text in (f"unix:{path}", f"unix:{path}:lockfile=0"):
            endpoint = self.bind(text)
            self.assertTrue(os.path.exists(path))
            assert endpoint.binding is not None
            endpoint.binding.release_unused()
            self.assertEqual(os.listdir(os.path.dirname(path)), [])
        bound = self.bind("tcp:0:interface=127.0.0.1")
        assert bound.binding is not None
        bound.binding.release_unused()
        bound.binding.release_unused()

    def test_unix(self) -> None:
        """A socket in the file system that a dead process left is replaced, where the lock of it says so; another isn't."""
        folder = tempfile.mkdtemp(dir="/tmp")
        path = os.path.join(folder, "socket")
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(path)
        endpoint = bound_endpoint(self.reactor, f"unix:{path}:lockfile=0")
        assert endpoint.binding is not None
        self.failureResultOf(Deferred.fromCoroutine(endpoint.binding.bind(endpoint.inner)), OSError)
        os.symlink("4194304", f"{path}.lock")  # the id of a process that isn't there
        endpoint = self.bind(f"unix:{path}:mode=600")
        port = self.listen(endpoint)
        self.addCleanup(port.socket.close)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        self.assertEqual(self.reactor.readers, [port])


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
        self.reactor.advance(ACCEPT_PAUSE)
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
        listening: Deferred[Any] = endpoint.inner.listen(self.factory)
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
