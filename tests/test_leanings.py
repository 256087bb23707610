"""What svc and its tests lean on in libraries beyond what these document, each with the version in which it was seen.

A failure here says that a library has changed: look at the module that is named before its cap in ``setup.py`` is raised.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from threading import Thread
from typing import Any

import psycopg2
import yaml
from klein import Klein
from ldaptor.protocols import pureldap
from OpenSSL import SSL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from twisted.internet import reactor as installed_reactor
from twisted.internet import tcp
from twisted.internet.base import ReactorBase
from twisted.internet.endpoints import serverFromString
from twisted.internet.protocol import Factory
from twisted.internet.ssl import CertificateOptions
from twisted.internet.testing import StringTransport
from twisted.python.threadpool import ThreadPool
from twisted.trial.unittest import SynchronousTestCase, TestCase
from twisted.web.http import HTTPChannel, Request, _ChunkedTransferDecoder
from txpostgres import txpostgres
from werkzeug.routing import Map, Rule

ROOT = Path(__file__).resolve().parent.parent

reactor: Any = installed_reactor


class _Channel(HTTPChannel):
    """A channel whose requests are never answered."""

    class requestFactory(Request):
        """A request."""

        def process(self) -> None:
            """Leave it."""


def _channel(received: bytes) -> Any:
    channel = _Channel()
    channel.makeConnection(StringTransport())
    channel.dataReceived(received)
    return channel


class TwistedTests(SynchronousTestCase):
    """Twisted."""

    def test_channel_state(self) -> None:
        """A channel tells what it is at by private attributes (web/http/connection; Twisted 26.10)."""
        channel = _channel(b"PUT / HTT")
        state = (channel._buffer, channel._handlingRequest, channel._waitingForTransport, channel._dataBuffer)
        self.assertEqual(state, (b"PUT / HTT", False, False, []))
        channel.dataReceived(b"P/1.1\r\nContent-Length: 1\r\n\r\n")
        self.assertEqual((channel._command, channel._path, channel._version), (b"PUT", b"/", b"HTTP/1.1"))
        channel.dataReceived(b"a")
        self.assertTrue(channel._handlingRequest)

    def test_channel_keeps_what_follows(self) -> None:
        """What follows a request that is being handled is kept in a list (web/http/connection; Twisted 26.10)."""
        self.assertEqual(_channel(b"GET / HTTP/1.1\r\n\r\nGET /b")._dataBuffer, [b"GET /b"])

    def test_channel_stalls(self) -> None:
        """A channel whose transport is full waits; its reading is paused apart (web/http/connection; Twisted 26.10)."""
        channel = _channel(b"")
        channel.pauseProducing()
        self.assertTrue(channel._waitingForTransport)
        channel._networkProducer.pauseProducing()
        self.assertEqual(channel.transport.producerState, "paused")

    def test_channel_refuses(self) -> None:
        """Whatever the parser can't read ends in one private method (web/http/connection; Twisted 26.10)."""
        refused = []
        channel: Any = _Channel()
        channel._respondToBadRequestAndDisconnect = lambda: refused.append(True)
        channel.makeConnection(StringTransport())
        channel.dataReceived(b"nonsense\r\n")
        self.assertEqual(refused, [True])

    def test_chunked_body(self) -> None:
        """The decoder of a chunked body is private, and limits trailers (web/http/connection; Twisted 26.10)."""
        channel = _channel(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
        self.assertIsInstance(channel._transferDecoder, _ChunkedTransferDecoder)
        self.assertIsInstance(channel._transferDecoder._maxTrailerHeadersSize, int)
        self.assertIsNone(channel.length)

    def test_exit_signal(self) -> None:
        """A reactor remembers the signal that stopped it (cli/running; Twisted 26.10)."""
        self.assertIsNone(ReactorBase._exitSignal)

    def test_clock_of_a_reactor(self) -> None:
        """A reactor asks its attribute ``seconds`` for the time of its timers (model/clocks; Twisted 26.10)."""
        self.patch(reactor, "seconds", lambda: 1000.0)
        call = reactor.callLater(5, lambda: None)
        self.addCleanup(call.cancel)
        self.assertEqual(call.getTime(), 1005.0)

    def test_threads(self) -> None:
        """A thread pool makes its threads by the attribute ``threadFactory`` (crypto/passwords; Twisted 26.10)."""
        self.assertIs(ThreadPool.threadFactory, Thread)

    def test_socket(self) -> None:
        """A connection tells its socket (audit/syslog; Twisted 26.10)."""
        self.assertTrue(callable(tcp.Connection.getHandle))

    def test_tls_endpoint(self) -> None:
        """An endpoint ``ssl:`` gives its options to ``listenSSL`` (server/endpoints; Twisted 26.10)."""
        names = list(inspect.signature(reactor.listenSSL).parameters)
        self.assertEqual(names, ["port", "factory", "contextFactory", "backlog", "interface"])
        self.assertTrue({"certificate", "extraCertChain"} <= set(inspect.signature(CertificateOptions).parameters))

    def test_plain_endpoint(self) -> None:
        """An endpoint listens on the reactor that it was read for (server/endpoints; Twisted 26.10)."""
        ports = []

        class Port:
            """A reactor that takes what is listened on."""

            def listenTCP(self, port: int, factory: Factory, **options: object) -> None:
                """Take it."""
                ports.append((port, options))

        endpoint: Any = serverFromString(Port(), r"tcp:80:interface=\:\:1")
        self.successResultOf(endpoint.listen(Factory()))
        self.assertEqual(ports, [(80, {"backlog": 50, "interface": "::1"})])

    def test_waiting(self) -> None:
        """A test case of trial's waits for its test in one private method (tests/conftest; Twisted 26.10)."""
        source = inspect.getsource(TestCase)
        self.assertIn("def _wait(self, d", source)
        self.assertEqual(source.count("self._wait("), 1)


class OtherLibrariesTests(SynchronousTestCase):
    """The other libraries."""

    def test_klein_endpoint(self) -> None:
        """Klein calls an endpoint by its name with what it is given, for a Deferred (web/http/router; klein 24.8)."""
        klein = Klein()

        async def endpoint(owner: object, request: object, more: object) -> object:
            return (owner, request, more)

        klein.route("/a", endpoint="a")(endpoint)  # type: ignore[type-var]
        told: Any = klein.execute_endpoint("a", 1, 2, 3)  # type: ignore[arg-type]
        self.assertEqual(self.successResultOf(told), (1, 2, 3))
        self.assertIsInstance(klein.url_map, Map)

    def test_werkzeug_match(self) -> None:
        """A map answers an endpoint's name and the values of the path (web/http/router; Werkzeug 3.1)."""
        adapter = Map([Rule("/a/<b>", endpoint="a", methods=["GET"])]).bind("svc")
        self.assertEqual(adapter.match("/a/c", "GET"), ("a", {"b": "c"}))

    def test_txpostgres_polls(self) -> None:
        """A connection polls by a private base class, and wraps ``_connection`` (storage/driver; txpostgres 1.7)."""
        self.assertTrue(issubclass(txpostgres.Connection, txpostgres._PollingMixin))
        connection = txpostgres.Connection(reactor)
        self.assertIsNone(connection._connection)
        self.assertIs(connection.reactor, reactor)
        for name in ("poll", "doRead", "doWrite", "connectionLost", "fileno", "close"):
            self.assertTrue(callable(getattr(connection, name)), name)

    def test_psycopg_binary(self) -> None:
        """The type of ``bytea`` is a value that others can be made like (storage/driver/connection; psycopg2 2.9)."""
        self.assertEqual(psycopg2.BINARY.values, (17,))

    def test_ldaptor_writes(self) -> None:
        """A message is written as RFC 4511 5.1 says (authn/ldap/messages; ldaptor 21.2)."""
        message = pureldap.LDAPMessage(pureldap.LDAPBindRequest(dn=b"", auth=b""), id=1).toWire()
        self.assertEqual(message, b"0\x0c\x02\x01\x01`\x07\x02\x01\x03\x04\x00\x80\x00")

    def test_openssl_names(self) -> None:
        """A connection's ``write`` is ``send``, ``read`` is ``recv``, and no others speak (net/trust; pyOpenSSL 26.4)."""
        self.assertIs(SSL.Connection.write, SSL.Connection.send)
        self.assertIs(SSL.Connection.read, SSL.Connection.recv)
        speaking = {name for name in vars(SSL.Connection) if re.match(r"(?!set_|get_)\w*(send|recv|write|read)", name)}
        self.assertEqual(
            speaking,
            {"send", "write", "sendall", "recv", "read", "recv_into", "bio_read", "bio_write", "want_read", "want_write"},
        )

    def test_openssl_chain(self) -> None:
        """A connection gives the chain that was verified as certificates of cryptography's (net/trust; pyOpenSSL 26.4)."""
        self.assertIn("as_cryptography", inspect.signature(SSL.Connection.get_verified_chain).parameters)

    def test_yaml_in_c(self) -> None:
        """PyYAML's wheels have the loader in C, which tells events, and none at the end (policy/document; PyYAML 6.0)."""
        next_event = yaml.CSafeLoader(b"a").get_event
        kinds = [type(event).__name__ for event in iter(next_event, None)]
        expected = ["StreamStartEvent", "DocumentStartEvent", "ScalarEvent", "DocumentEndEvent", "StreamEndEvent"]
        self.assertEqual(kinds, expected)


class ConstraintsTests(SynchronousTestCase):
    """``constraints.txt`` beside ``setup.py``."""

    def test_caps_and_pins(self) -> None:
        """Each package that svc or its tests require has one version, within the bounds of ``setup.py``."""
        pins = dict(re.findall(r"(?m)^([A-Za-z0-9._-]+)==(\S+)", (ROOT / "constraints.txt").read_text(encoding="utf-8")))
        pinned = {canonicalize_name(name): version for name, version in pins.items()}
        written = re.findall(r'(?m)^ +"([A-Za-z].* >= .*)",', (ROOT / "setup.py").read_text(encoding="utf-8"))
        required = [Requirement(text) for text in written]
        self.assertGreater(len(required), 20)
        for each in required:
            self.assertIn(pinned.get(canonicalize_name(each.name), "none"), each.specifier, each.name)
