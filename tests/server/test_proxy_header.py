"""Tests of ``svc.server.proxy_header``: who the client is behind a ``haproxy:`` endpoint, and what isn't served there."""

from __future__ import annotations

import os
import socket
import struct
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.address import IPv4Address, UNIXAddress
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.ssl import CertificateOptions
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.logger import capturedLogs
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.server.endpoints import inherited_endpoint, listening_endpoint, parse_port
from svc.server.listening import port_url
from svc.server.proxy_header import (
    HEADER_TIMEOUT,
    LONGEST_BLOCK,
    LONGEST_LINE,
    MAX_WAITING,
    SIGNATURE,
    HeaderFactory,
    HeaderInvalid,
    HeaderProtocol,
    read_header,
)
from svc.web.http.client_address import TrustedProxies
from svc.web.http.messages import Response
from svc.web.http.routing import PUBLIC, Call, Routes
from tests.certificates import LEAF_KEY, chain, pem
from tests.server.test_endpoints import key_pem
from tests.web.support import Client

V4: Final = socket.inet_aton("198.51.100.7") + socket.inet_aton("10.0.0.1") + struct.pack(">HH", 4000, 443)
V6: Final = socket.inet_pton(socket.AF_INET6, "2001:db8::7") * 2 + struct.pack(">HH", 4000, 443)
LOCAL_SOCKET: Final = b"/run/a".ljust(108, b"\0") * 2
TLV: Final = b"\x02\x00\x07example"

#: The proxy, which the connection comes from.
PROXY: Final = "10.0.0.9"


def block(kind: int, payload: bytes, command: int = 0x21) -> bytes:
    """A header of version 2."""
    return SIGNATURE + struct.pack(">BBH", command, kind, len(payload)) + payload


#: Each form of a header, and the client that it names.
HEADERS: Final = (
    (b"PROXY TCP4 198.51.100.7 10.0.0.1 4000 443\r\n", "198.51.100.7"),
    (b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n", "255.255.255.255"),
    (b"PROXY TCP4 0.0.0.0 0.0.0.0 0 0\r\n", "0.0.0.0"),
    (b"PROXY TCP6 2001:db8::7 ::1 4000 443\r\n", "2001:db8::7"),
    (b"PROXY TCP6 2001:DB8:0:0:0:0:0:7 ::1 4000 443\r\n", "2001:db8::7"),
    (b"PROXY TCP6 ::ffff:198.51.100.7 ::1 4000 443\r\n", "198.51.100.7"),
    (b"PROXY TCP6 " + b" ".join([b"ffff:" * 7 + b"ffff"] * 2) + b" 65535 65535\r\n", "ffff:" * 7 + "ffff"),
    (b"PROXY UNKNOWN\r\n", PROXY),
    (b"PROXY UNKNOWN " + b" ".join([b"ffff:" * 7 + b"ffff"] * 2) + b" 65535 65535\r\n", PROXY),
    (block(0x11, V4), "198.51.100.7"),
    (block(0x11, V4 + TLV), "198.51.100.7"),
    (block(0x11, V4 + b"x" * (LONGEST_BLOCK - 12)), "198.51.100.7"),
    (block(0x12, V4), "198.51.100.7"),
    (block(0x21, V6), "2001:db8::7"),
    (block(0x22, V6 + TLV), "2001:db8::7"),
    (block(0x31, LOCAL_SOCKET), PROXY),
    (block(0x00, b""), PROXY),
    (block(0x00, TLV), PROXY),
    (block(0x10, V4), PROXY),
    (block(0x00, b"", 0x20), PROXY),
    (block(0x11, V4, 0x20), PROXY),
    (block(0xFF, TLV, 0x20), PROXY),
)

#: What is no header, though some of it begins like one.
NONE: Final = (
    b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
    b"P" * 20,
    b"\r\n\r\n\x00\r\nQUIT\r",
    b"proxy TCP4 198.51.100.7 10.0.0.1 4000 443\r\n",
    b" PROXY TCP4 198.51.100.7 10.0.0.1 4000 443\r\n",
    b"PROXY\r\n",
    b"PROXY \r\n",
    b"PROXY TCP4\r\n",
    b"PROXY TCP5 198.51.100.7 10.0.0.1 4000 443\r\n",
    b"PROXY TCP4 198.51.100.7 10.0.0.1 4000\r\n",
    b"PROXY TCP4 198.51.100.7 10.0.0.1 4000 443 \r\n",
    b"PROXY TCP4  198.51.100.7 10.0.0.1 4000 443\r\n",
    b"PROXY TCP4\t198.51.100.7 10.0.0.1 4000 443\r\n",
    b"PROXY TCP4 198.51.100.7 10.0.0.1 4000 65536\r\n",
    b"PROXY TCP4 198.51.100.7 10.0.0.1 04000 443\r\n",
    b"PROXY TCP4 198.51.100.7 10.0.0.1 -1 443\r\n",
    b"PROXY TCP4 198.51.100.07 10.0.0.1 4000 443\r\n",
    b"PROXY TCP4 198.51.100.256 10.0.0.1 4000 443\r\n",
    b"PROXY TCP4 198.51.100 10.0.0.1 4000 443\r\n",
    b"PROXY TCP4 198.51.100.7 client 4000 443\r\n",
    b"PROXY TCP4 2001:db8::7 ::1 4000 443\r\n",
    b"PROXY TCP6 198.51.100.7 10.0.0.1 4000 443\r\n",
    b"PROXY TCP6 fe80::1%eth0 ::1 4000 443\r\n",
    b"PROXY TCP6 :::7 ::1 4000 443\r\n",
    b"PROXY TCP4 198.51.100.7 10.0.0.1 4000 443\n" + b"x" * 100,
    b"PROXY UNKNOWNS\r\n",
    b"PROXY UNKNOWN\x00\r\n",
    b"PROXY UNKNOWN " + b"x" * (LONGEST_LINE - 14) + b"\r\n",
    b"PROXY TCP4 " + b"1" * LONGEST_LINE,
    block(0x11, V4, 0x11),
    block(0x11, V4, 0x22),
    block(0x11, V4[:-1]),
    block(0x21, V4),
    block(0x21, V6[:-1]),
    block(0x31, LOCAL_SOCKET[:-1]),
    block(0x41, LOCAL_SOCKET),
    block(0x13, V4),
    block(0x11, V4 + b"x" * (LONGEST_BLOCK - 11)),
    block(0x00, b"x" * (LONGEST_BLOCK + 1), 0x20),
)


class Asked:
    """A noun that answers whom it takes the client for."""

    routes = Routes()

    @routes.add("GET", "/client", caller=PUBLIC)
    async def show(self, call: Call) -> Response:
        """Return the client's address."""
        return Response.text(call.client_ip)


class HeaderTests(SynchronousTestCase):
    """Connections with a header, or with none, to a server in memory."""

    def setUp(self) -> None:
        """Listen at an endpoint; proxies of 10.0.0.0/8 are trusted."""
        self.reactor: Any = MemoryReactorClock()
        self.client = Client(Asked(), proxies=TrustedProxies((ip_network("10.0.0.0/8"),)), clock=self.reactor)
        self.endpoint("haproxy:tcp:8501:interface=127.0.0.1")

    def endpoint(self, text: str) -> None:
        """Listen there instead."""
        self.port = self.successResultOf(listening_endpoint(self.reactor, text).inner.listen(self.client.site))
        servers = self.reactor.unixServers if ":unix:" in text else self.reactor.tcpServers
        self.factory: HeaderFactory = servers[-1][1]

    def connect(self, address: Any = None) -> tuple[Any, StringTransport]:
        """Connect, from the proxy."""
        transport = StringTransport(peerAddress=address or IPv4Address("TCP", PROXY, 1))
        protocol: Any = self.factory.buildProtocol(None)
        protocol.makeConnection(transport)
        return protocol, transport

    def answered(self, header: bytes, *, forwarded: str = "", step: int = 1 << 20) -> str:
        """Return whom the server takes the client for that sends this header, and a request, in pieces of ``step`` bytes."""
        protocol, transport = self.connect()
        line = f"X-Forwarded-For: {forwarded}\r\n" if forwarded else ""
        sent = header + f"GET /client HTTP/1.1\r\nHost: h\r\n{line}\r\n".encode()
        for start in range(0, len(sent), step):
            protocol.dataReceived(sent[start : start + step])
        self.reactor.advance(0)
        head, _, body = transport.value().partition(b"\r\n\r\n")
        self.assertTrue(head.startswith(b"HTTP/1.1 200 "), (header, transport.value()))
        protocol.connectionLost(Failure(ConnectionError()))
        return str(body, "ascii")

    def test_client(self) -> None:
        """The client is the one that the header names, byte by byte too, and otherwise the connection (WIRE-32, CFG-48)."""
        for header, client in HEADERS:
            self.assertEqual(self.answered(header), client, header)
            if len(header) < 1000:
                self.assertEqual(self.answered(header, step=1), client, header)
            self.assertEqual(self.answered(header, step=len(header)), client, header)

    def test_forwarded(self) -> None:
        """X-Forwarded-For counts if the address that the header names is trusted; where it names none the connection's own
        address counts, though that is trusted (WIRE-32, CFG-48).
        """
        for header, client in (
            (b"PROXY TCP4 198.51.100.7 10.0.0.1 4000 443\r\n", "198.51.100.7"),
            (b"PROXY TCP4 10.0.0.77 10.0.0.1 4000 443\r\n", "192.0.2.1"),
            (block(0x11, V4), "198.51.100.7"),
            (b"PROXY UNKNOWN\r\n", PROXY),
            (b"PROXY UNKNOWN 10.0.0.77 10.0.0.1 4000 443\r\n", PROXY),
            (block(0x31, LOCAL_SOCKET), PROXY),
            (block(0x00, b""), PROXY),
            (block(0x10, V4), PROXY),
            (block(0x00, b"", 0x20), PROXY),
            (block(0x11, V4, 0x20), PROXY),
        ):
            self.assertEqual(self.answered(header, forwarded="192.0.2.1"), client, header)

    def test_none(self) -> None:
        """A connection that begins with no header, or a malformed or too long one, is closed without an answer (CFG-48)."""
        for sent in NONE:
            for step in (len(sent) + 100, 1):
                protocol, transport = self.connect()
                rest = sent + b"GET /client HTTP/1.1\r\nHost: h\r\n\r\n"
                for start in range(0, min(len(rest), 300 if step == 1 else len(rest)), step):
                    protocol.dataReceived(rest[start : start + step])
                self.reactor.advance(0)
                self.assertTrue(transport.disconnected, sent)
                self.assertEqual(transport.value(), b"", sent)
                self.assertIsNone(protocol.wrappedProtocol, sent)

    @given(st.binary(max_size=300) | st.binary(max_size=300).map(SIGNATURE.__add__) | st.binary().map(b"PROXY ".__add__))
    def test_total(self, data: bytes) -> None:
        """Whatever comes is a header, the beginning of one, or none."""
        try:
            header = read_header(data)
        except HeaderInvalid:
            return
        if header is None:
            self.assertLess(len(data), 16 + LONGEST_BLOCK)
        else:
            self.assertLessEqual(header[1], len(data))

    def test_beginnings(self) -> None:
        """A header is complete with its last byte, not before."""
        for header, _ in HEADERS:
            for size in (*range(min(len(header), 130)), len(header) - 1):
                self.assertIsNone(read_header(header[:size]), header[:size])
            found = read_header(header + b"GET")
            assert found is not None
            self.assertEqual(found[1], len(header))

    def test_silent(self) -> None:
        """A connection that sends no header, or a part of one, is closed after five seconds; others stay (CFG-48)."""
        silent, slow, good = self.connect(), self.connect(), self.connect()
        slow[0].dataReceived(b"PROXY TCP4 198.51.100.7")
        good[0].dataReceived(b"PROXY UNKNOWN\r\n")
        self.reactor.advance(HEADER_TIMEOUT - 0.1)
        slow[0].dataReceived(b" 10.0.0.1")
        self.assertEqual([each[1].disconnected for each in (silent, slow, good)], [False] * 3)
        self.reactor.advance(0.2)
        self.assertEqual([each[1].disconnected for each in (silent, slow, good)], [True, True, False])
        slow[0].dataReceived(b" 1 1\r\nGET /client HTTP/1.1\r\nHost: h\r\n\r\n")
        self.assertEqual(slow[1].value(), b"")

    def test_left(self) -> None:
        """A client that leaves before its header leaves nothing behind."""
        protocol, _ = self.connect()
        protocol.connectionLost(Failure(ConnectionError()))
        self.assertEqual(self.reactor.getDelayedCalls(), [])
        self.assertEqual(self.factory._waiting, {})

    def test_many(self) -> None:
        """At most 256 connections wait for their header: one more cuts off the one that has waited for longest (CFG-48)."""
        connections = [self.connect() for _ in range(MAX_WAITING + 2)]
        closed = [transport.disconnected for _, transport in connections]
        self.assertEqual(closed, [True, True] + [False] * MAX_WAITING)
        connections[-1][0].dataReceived(b"PROXY UNKNOWN\r\n")
        self.assertFalse(self.connect()[1].disconnected)
        self.assertFalse(connections[2][1].disconnected)

    def test_stopped(self) -> None:
        """With the port those end that wait, and nobody is served whose header comes when the site drains."""
        self.factory.doStart()
        waiting, late = self.connect(), self.connect()
        self.client.site._draining = True
        late[0].dataReceived(b"PROXY UNKNOWN\r\nGET /client HTTP/1.1\r\nHost: h\r\n\r\n")
        self.assertEqual((late[1].disconnected, late[1].value()), (True, b""))
        self.factory.doStop()
        self.assertTrue(waiting[1].disconnected)

    def test_logged(self) -> None:
        """The log has a line about what was closed, at most one a minute (CFG-48)."""
        with capturedLogs() as events:
            for _ in range(3):
                self.connect()[0].dataReceived(b"GET / HTTP/1.1\r\n\r\n")
            self.reactor.advance(61)
            self.connect()
            self.reactor.advance(HEADER_TIMEOUT + 1)
        self.assertEqual([(event["peer"], event["why"]) for event in events], [
            (PROXY, "it doesn't begin with a PROXY header"),
            (PROXY, "its PROXY header didn't come"),
        ])  # fmt: skip

    def test_counted(self) -> None:
        """Connections count for the client that the header names, not for the proxy (LIM-8)."""
        protocol, _ = self.connect()
        protocol.dataReceived(HEADERS[0][0])
        self.assertEqual(list(self.client.site._limiter._by_network), ["198.51.100.7"])

    def test_socket_in_the_file_system(self) -> None:
        """A port may be a socket in the file system; a connection without a name is then this machine's, whatever its
        requests claim (WIRE-32).
        """
        self.client = Client(Asked(), proxies=TrustedProxies(), clock=self.reactor)
        self.endpoint("haproxy:unix:/run/svc")
        for header, client in (
            (b"PROXY TCP4 198.51.100.7 10.0.0.1 4000 443\r\n", b"198.51.100.7"),
            (b"PROXY UNKNOWN\r\n", b"127.0.0.1"),
        ):
            protocol, transport = self.connect(UNIXAddress(b"/run/nginx"))
            protocol.dataReceived(header + b"GET /client HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n")
            self.reactor.advance(0)
            self.assertTrue(transport.value().endswith(b"\r\n\r\n" + client), header)


class TcpTransport(StringTransport):
    """A transport with the option of TCP that the server sets above TLS."""

    no_delay = False

    def setTcpNoDelay(self, enabled: bool) -> None:
        """Keep the option."""
        self.no_delay = enabled


class TlsTests(SynchronousTestCase):
    """Endpoints whose connections have a header before TLS."""

    def setUp(self) -> None:
        """Write a certificate and its key."""
        self.reactor: Any = MemoryReactorClock()
        folder = Path(self.mktemp()).resolve()
        folder.mkdir()
        (folder / "cert.pem").write_text(pem(*chain("the host's name").certificates))
        (folder / "key.pem").write_text(key_pem(LEAF_KEY))
        self.text = f"haproxy:ssl:8443:privateKey={folder}/key.pem:certKey={folder}/cert.pem"

    def test_before_tls(self) -> None:
        """The header is the first thing on the connection, and what is above TLS knows the client (CFG-48)."""
        seen: list[Any] = []

        class Above(Protocol):
            def connectionMade(self) -> None:
                assert self.transport is not None
                seen.append(self.transport.getPeer())

            def dataReceived(self, data: bytes) -> None:
                seen.append(data)

        endpoint = listening_endpoint(self.reactor, self.text)
        assert endpoint.certificate is not None
        self.assertEqual(endpoint.text, self.text)
        self.exchange(endpoint, Factory.forProtocol(Above), b"PROXY TCP4 198.51.100.7 10.0.0.1 4000 443\r\n", b"hello")
        self.assertEqual((seen[0].host, seen[1]), ("198.51.100.7", b"hello"))

    def test_unnamed(self) -> None:
        """Above TLS too X-Forwarded-For counts for nothing where the header names no address (WIRE-32)."""
        site = Client(Asked(), proxies=TrustedProxies((ip_network("10.0.0.0/8"),)), clock=self.reactor).site
        asked = b"GET /client HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n"
        for header, client in (
            (b"PROXY UNKNOWN\r\n", PROXY),
            (b"PROXY TCP4 10.0.0.77 10.0.0.1 4000 443\r\n", "192.0.2.1"),
        ):
            answer = self.exchange(listening_endpoint(self.reactor, self.text), site, header, asked)
            self.assertTrue(answer.endswith(b"\r\n\r\n" + client.encode()), (header, answer))

    def exchange(self, endpoint: Any, factory: Any, header: bytes, sent: bytes) -> bytes:
        """Send a header, and something above TLS; return the answer."""
        received: list[bytes] = []

        class Asking(Protocol):
            def dataReceived(self, data: bytes) -> None:
                received.append(data)

        self.successResultOf(endpoint.inner.listen(factory))
        transport = TcpTransport(peerAddress=IPv4Address("TCP", PROXY, 1))
        server = self.reactor.tcpServers[-1][1].buildProtocol(None)
        server.makeConnection(transport)
        server.dataReceived(header)
        beyond = StringTransport()
        made = TLSMemoryBIOFactory(CertificateOptions(), True, Factory.forProtocol(Asking), self.reactor)
        client: Any = made.buildProtocol(None)
        client.makeConnection(beyond)
        client.write(sent)
        for _ in range(4):
            self.reactor.advance(0)
            for source, sink in ((beyond, server), (transport, client)):
                written = source.value()
                source.clear()
                if written:
                    sink.dataReceived(written)
        return b"".join(received)

    def test_address(self) -> None:
        """The port's address has the scheme of TLS, and the doctor knows where it is (CFG-12, CLI-40)."""
        for text, scheme in ((self.text, "https"), ("haproxy:tcp:8443", "http")):
            port: Any = self.successResultOf(listening_endpoint(self.reactor, text).inner.listen(Factory()))
            port.factory = self.reactor.tcpServers[-1][1]
            self.assertEqual(port_url(port), f"{scheme}://127.0.0.1:8443")
        place = parse_port(self.text)
        assert place is not None
        self.assertEqual((place.tls, place.has_proxy_header, place.port, place.host), (True, True, 8443, ""))
        self.assertTrue(str(place.key).endswith("key.pem"))
        self.assertIsNone(parse_port("haproxy:unix:/run/svc"))
        with self.assertRaises(Exception):  # noqa: B017 - kinds of endpoints raise what they like
            listening_endpoint(self.reactor, "haproxy:")

    def test_inherited(self) -> None:
        """Each of several processes reads the header of what it accepts, whatever the kind of endpoint (CFG-28)."""
        with socket.socket() as opened:
            opened.bind(("127.0.0.1", 0))
            opened.listen()
            for text in ("haproxy:tcp:0", "haproxy:unix:/nowhere", "haproxy:systemd:domain=INET:index=0", self.text):
                inner = Factory()
                endpoint = inherited_endpoint(self.reactor, text, os.dup(opened.fileno()))
                self.assertEqual(endpoint.text, text)
                port: Any = self.successResultOf(endpoint.inner.listen(inner))
                headed = port._factory
                self.assertIsInstance(headed, HeaderFactory)
                above = headed.wrapped
                self.assertIs(above.wrappedFactory if text == self.text else above, inner)
                self.assertIsInstance(headed.buildProtocol(None), HeaderProtocol)
                port.stopListening()
