"""What svc and its tests lean on in libraries beyond what these document, each with the version in which it was seen.

A failure here says that a library has changed: look at the module that is named before its cap in ``setup.py`` is raised.
"""

from __future__ import annotations

import inspect
import re
import string
from pathlib import Path
from threading import Thread
from typing import Any

import httpcore
import httpx
import orjson
import psycopg2
import yaml
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
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
from twisted.python.threadpool import ThreadPool
from twisted.trial.unittest import SynchronousTestCase, TestCase
from txpostgres import txpostgres
from werkzeug.routing import Map, Rule

ROOT = Path(__file__).resolve().parent.parent

reactor: Any = installed_reactor


class _Message:
    """What a parser of llhttp's tells."""

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.body: list[bytes] = []
        self.told: list[str] = []
        self.on_body = self.body.append

    def on_message_begin(self) -> None:
        """A message begins."""
        self.told.append("begin")

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header is whole."""
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self.told.append("head")

    def on_message_complete(self) -> None:
        """The message is whole."""
        self.told.append("end")


def _parsed(*received: bytes) -> _Message | None:
    """What llhttp tells of a head and a body; ``None`` when it refuses them."""
    message = _Message()
    parser = HttpRequestParser(message)
    try:
        for piece in (b"POST / HTTP/1.1\r\n", *received):
            parser.feed_data(piece)
    except HttpParserError:
        return None
    return message


class LlhttpTests(SynchronousTestCase):
    """llhttp, as httptools brings it."""

    def taken(self, line: bytes) -> set[int]:
        """The bytes that are taken in place of ``%c`` in a line of a head or of a chunked body."""
        return {byte for byte in range(256) if _parsed(line.replace(b"%c", bytes([byte]))) is not None}

    def test_names(self) -> None:
        """A header's name is a token, and its colon follows at once (web/http/head; httptools 0.9)."""
        token = set(b"!#$%&'*+-.^_`|~" + string.ascii_letters.encode() + string.digits.encode())
        for line in (b"%cX: y\r\n\r\n", b"X%cX: y\r\n\r\n", b"X%c: y\r\n\r\n"):
            self.assertEqual(self.taken(line) - set(b":"), token, line)

    def test_values(self) -> None:
        """A header's value has no control character but tabs, wherever it stands (web/http/head; httptools 0.9)."""
        text = {*b"\t", *range(32, 127), *range(128, 256)}
        for line in (b"X:%c\r\n\r\n", b"X: %cy\r\n\r\n", b"X: y%cy\r\n\r\n", b"Connection: close%c\r\n\r\n"):
            self.assertEqual(self.taken(line), text, line)

    def test_line_ends(self) -> None:
        """A line ends with CR and LF, and the next one isn't its continuation (web/http/head; httptools 0.9)."""
        for line in (b"X: y\n", b"X: y\r\r\n", b"X: y\rZ: z\r\n", b"X: y\r\n\n", b"\n", b"X: y\r\n z\r\n", b"X\r\n"):
            self.assertIsNone(_parsed(line + b"\r\n"), line)

    def test_lengths(self) -> None:
        """A length is digits, said once, and there is no coding beside it (web/http/framing; httptools 0.9)."""
        self.assertEqual(self.taken(b"Content-Length: 1%c\r\n\r\n"), set(b"0123456789\t "))
        self.assertEqual(self.taken(b"Content-Length: %c1\r\n\r\n"), set(b"0123456789\t "))
        coding = b"Transfer-Encoding: chunked\r\n"
        for more in (b"Content-Length: 1\r\n", b"Content-Length: 01\r\n", coding):
            self.assertIsNone(_parsed(b"Content-Length: 1\r\n" + more + b"\r\n"), more)
        self.assertIsNone(_parsed(coding + b"Content-Length: 1\r\n\r\n"))

    def test_headers_are_told_whole(self) -> None:
        """A header is told once, without the blanks before its value (web/http/head; httptools 0.9)."""
        head = b"X:\t y z \r\nX:\r\n\r\n"
        for pieces in ((head,), tuple(bytes([byte]) for byte in head)):
            message = _parsed(*pieces)
            assert message is not None
            self.assertEqual(message.headers, [(b"X", b"y z "), (b"X", b"")])

    def test_upgrade(self) -> None:
        """A request for another protocol is told whole, then an exception is raised (web/http/head; httptools 0.9)."""
        message = _Message()
        head = b"GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 1\r\n\r\n"
        self.assertRaises(HttpParserUpgrade, HttpRequestParser(message).feed_data, head)
        self.assertEqual((len(message.headers), message.told[:2]), (3, ["begin", "head"]))

    def test_chunks(self) -> None:
        """Chunks have sizes of digits alone, and lines that end with CR and LF (web/http/framing; httptools 0.9)."""
        head = b"Transfer-Encoding: chunked\r\n\r\n"
        self.assertEqual(self.taken(head + b"1%c"), set(b"0123456789abcdefABCDEF;\r"))
        for place in (b"1\r%cx", b"1\r\nx\r%c", b"1;a\r%c", b"0\r%c", b"0\r\nA: b\r%c", b"0\r\n\r%c"):
            self.assertEqual(self.taken(head + place), {10}, place)
        self.assertEqual(self.taken(head + b"1\r\nx%c"), {13})

    def test_end_of_chunks(self) -> None:
        """What follows a body is told as the beginning of another message (web/http/framing; httptools 0.9)."""
        message = _parsed(b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n")
        assert message is not None
        self.assertEqual((message.body, message.told), ([b"x"], ["begin", "head", "end"]))
        more = _parsed(b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nG")
        assert more is not None
        self.assertEqual(more.told, ["begin", "head", "end", "begin"])

    def test_callback_that_raises(self) -> None:
        """A callback that raises stops the parser, with an exception like its own (web/http/framing; httptools 0.9)."""

        class Stubborn:
            """Takes no message."""

            def on_message_begin(self) -> None:
                """Refuse."""
                raise KeyError

        self.assertRaises(HttpParserError, HttpRequestParser(Stubborn()).feed_data, b"G")


class TwistedTests(SynchronousTestCase):
    """Twisted."""

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

    def test_orjson_bytes(self) -> None:
        """It refuses what it can't write, and leaves DEL and what is beyond ASCII (web/http/json_bytes; orjson 3.13)."""
        self.assertEqual(orjson.dumps("\x7fé/\x1f"), b'"\x7f\xc3\xa9/\\u001f"')
        for refused in ("\ud800", 2**64, -(2**63) - 1, {1: 2}, {1}, b""):
            self.assertRaises(TypeError, orjson.dumps, refused)

    def test_yaml_in_c(self) -> None:
        """PyYAML's wheels have the loader in C, which tells events, and none at the end (policy/document; PyYAML 6.0)."""
        next_event = yaml.CSafeLoader(b"a").get_event
        kinds = [type(event).__name__ for event in iter(next_event, None)]
        expected = ["StreamStartEvent", "DocumentStartEvent", "ScalarEvent", "DocumentEndEvent", "StreamEndEvent"]
        self.assertEqual(kinds, expected)


class HttpxTests(SynchronousTestCase):
    """What ``svc.client.blocking`` leans on."""

    def test_pool(self) -> None:
        """A transport sends by what it has as its pool, which is all that it has (httpx 0.28.1)."""
        transport = httpx.HTTPTransport()
        self.assertEqual(list(vars(transport)), ["_pool"])
        self.assertIsInstance(transport._pool, httpcore.ConnectionPool)
        sent: list[httpcore.Request] = []

        class Pool(httpcore.ConnectionPool):
            def handle_request(self, request: httpcore.Request) -> httpcore.Response:
                sent.append(request)
                return httpcore.Response(204)

        transport._pool = Pool()
        self.assertEqual(transport.handle_request(httpx.Request("GET", "https://svc.example/a")).status_code, 204)
        self.assertEqual([request.url.target for request in sent], [b"/a"])


class ConstraintsTests(SynchronousTestCase):
    """``constraints.txt`` beside ``setup.py``."""

    def test_caps_and_pins(self) -> None:
        """Each package that svc or its tests require has one version, within the bounds of both ``setup.py``."""
        pins = dict(re.findall(r"(?m)^([A-Za-z0-9._-]+)==(\S+)", (ROOT / "constraints.txt").read_text(encoding="utf-8")))
        pinned = {canonicalize_name(name): version for name, version in pins.items()}
        files = (ROOT / "setup.py", ROOT / "etc" / "client" / "setup.py")
        text = "".join(path.read_text(encoding="utf-8") for path in files)
        written = re.findall(r'(?m)^ +"([A-Za-z].* >= .*)",', text)
        required = [Requirement(text) for text in written]
        self.assertGreater(len(required), 20)
        for each in required:
            self.assertIn(pinned.get(canonicalize_name(each.name), "none"), each.specifier, each.name)
