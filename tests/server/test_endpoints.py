"""Tests of ``svc.server.endpoints``: endpoints as they are written, and the certificates of those that speak TLS."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from OpenSSL import SSL
from twisted.internet.error import VerifyError
from twisted.internet.interfaces import IProtocolNegotiationFactory
from twisted.internet.protocol import Factory, Protocol, ServerFactory
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.logger import capturedLogs
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from svc.net.trust import Trust
from svc.server.endpoints import client_endpoint, listening_endpoint
from svc.server.listening import Endpoint
from tests.certificates import HOST, LEAF_KEY, STRANGERS_KEY, TRUSTED, Chain, Key, chain, pem
from tests.net.test_trust import Meeting

#: What a text is refused with, which its kind of endpoint decides.
REFUSALS: Any = (ValueError, TypeError, KeyError, OSError)


def key_pem(key: Key) -> str:
    """A key as text."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode("ascii")


@implementer(IProtocolNegotiationFactory)
class Site(ServerFactory):
    """A server that speaks HTTP of one version."""

    protocol = Protocol

    def acceptableProtocols(self) -> list[bytes]:
        """Name it."""
        return [b"http/1.1"]


class PortTests(SynchronousTestCase):
    """Ports, of which some speak TLS."""

    def setUp(self) -> None:
        """Write a certificate and its key."""
        self.reactor: Any = MemoryReactorClock()
        self.folder = Path(self.mktemp()).resolve()
        self.folder.mkdir()
        self.write("the host's name")

    def write(self, name: str, key: Key = LEAF_KEY, *, together: bool = False) -> None:
        """Write a certificate of the table, with those behind it, and a key, in a file of its own or in the same."""
        shown, text = pem(*chain(name).certificates), key_pem(key)
        (self.folder / "cert.pem").write_text(shown)
        (self.folder / "key.pem").write_text(text + shown if together else text)

    def endpoint(self, **files: str) -> Endpoint:
        """An endpoint with these files beside the key's."""
        named = "".join(f":{name}={self.folder}/{file}" for name, file in (files or {"certKey": "cert.pem"}).items())
        return listening_endpoint(self.reactor, f"ssl:8443:privateKey={self.folder}/key.pem{named}")

    def shown(self, endpoint: Endpoint) -> list[x509.Certificate]:
        """Listen, connect, and return the certificates that a client sees."""
        self.successResultOf(endpoint.inner.listen(Site()))
        context = self.reactor.sslServers[-1][2]
        protocol: Any = TLSMemoryBIOFactory(context, False, Site(), self.reactor).buildProtocol(None)
        server = context.serverConnectionForTLS(protocol)
        server.set_accept_state()
        server.set_app_data(protocol)
        client = Trust.from_pem(TRUSTED).connection_creator(HOST).clientConnectionForTLS(protocol)
        client.set_connect_state()
        client.set_alpn_protos([b"h2", b"http/1.1"])
        Meeting(client, server).greet()
        self.assertEqual(client.get_alpn_proto_negotiated(), b"http/1.1")
        return list(client.get_peer_cert_chain(as_cryptography=True) or ())

    def renew(self, endpoint: Endpoint) -> list[str]:
        """Look at the files, and return what is told of them."""
        assert endpoint.certificate is not None
        with capturedLogs() as logs:
            endpoint.certificate.reload_if_changed()
        return [log["why"] if log["log_level"].name == "warn" else "taken" for log in logs]

    def test_arguments(self) -> None:
        """An ``ssl:`` endpoint is what Twisted makes of it, with its arguments in their order, by their names, or both
        (CFG-7).
        """
        cert, key = f"{self.folder}/cert.pem", f"{self.folder}/key.pem"
        for text in (
            rf"ssl:8443:{key}:{cert}:interface=\:\:1",
            rf"ssl:port=8443:privateKey={key}:certKey={cert}:interface=\:\:1:backlog=7",
        ):
            self.successResultOf(listening_endpoint(self.reactor, text).inner.listen(Site()))
            port, _, _, backlog, interface = self.reactor.sslServers[-1]
            self.assertEqual((port, interface), (8443, "::1"))
        self.assertEqual(backlog, 7)
        for text in (
            "ssl",
            "ssl:8443",
            f"ssl:8443:{key}:{cert}:x:y:1:a:b:c",
            f"ssl:8443:{key}:privateKey={key}",
            f"ssl:8443:{key}:x=1",
        ):
            with self.assertRaises(REFUSALS, msg=text):
                listening_endpoint(self.reactor, text)

    def test_others(self) -> None:
        """What speaks no TLS is Twisted's (CFG-7)."""
        endpoint = listening_endpoint(self.reactor, r"tcp:8080:interface=\:\:1")
        self.successResultOf(endpoint.inner.listen(Site()))
        self.assertEqual(self.reactor.tcpServers[0][0], 8080)
        self.assertIsNone(endpoint.certificate)

    def test_shown(self) -> None:
        """Clients see the certificate, and those behind it in its file or in a file of their own."""
        certificates = list(chain("the host's name").certificates)
        self.assertEqual(self.shown(self.endpoint()), certificates)
        self.write("the host's name", together=True)
        self.assertEqual(self.shown(listening_endpoint(self.reactor, f"ssl:8443:{self.folder}/key.pem")), certificates)
        self.write("an authority between")
        leaf, middle = chain("an authority between").certificates
        self.assertEqual(self.shown(self.endpoint()), [leaf, middle])
        (self.folder / "cert.pem").write_text(pem(leaf))
        (self.folder / "chain.pem").write_text(pem(middle))
        self.assertEqual(self.shown(self.endpoint(certKey="cert.pem", extraCertChain="chain.pem")), [leaf, middle])

    def test_broken_at_the_start(self) -> None:
        """A port without a usable key and certificate isn't one; one whose certificate has expired is, with a warning
        (CFG-25).
        """
        self.write("the host's name", STRANGERS_KEY)
        self.assertRaises(VerifyError, self.endpoint)
        for name in ("cert.pem", "key.pem"):
            self.write("the host's name")
            (self.folder / name).write_text("garbage")
            self.assertRaises(REFUSALS, self.endpoint)
            (self.folder / name).unlink()
            self.assertRaises(FileNotFoundError, self.endpoint)
        self.write("expired")
        with capturedLogs() as logs:
            self.endpoint()
        self.assertEqual([log["why"] for log in logs], ["certificate has expired"])

    def test_renewed(self) -> None:
        """A renewed certificate is shown to new connections, with all that the endpoint says besides (CFG-24)."""
        endpoint = self.endpoint()
        self.write("an authority between")
        self.assertEqual(self.renew(endpoint), ["taken"])
        self.assertEqual(self.shown(endpoint), list(chain("an authority between").certificates))

    def test_broken_afterwards(self) -> None:
        """A certificate of another key, a broken, missing or expired one is refused, told once, and the old one shown
        (CFG-24).
        """
        endpoint = self.endpoint()
        before = list(chain("the host's name").certificates)
        for name, key, told in (
            ("a wildcard for one label", STRANGERS_KEY, "keys do not match"),
            ("expired", LEAF_KEY, "certificate has expired"),
            ("not yet valid", LEAF_KEY, "certificate is not yet valid"),
        ):
            self.write(name, key)
            (why,) = self.renew(endpoint)
            self.assertIn(told, why)
            self.assertEqual(self.renew(endpoint), [])
            self.assertEqual(self.shown(endpoint), before)
        self.write("a wildcard for one label")
        whole = (self.folder / "cert.pem").read_text()
        for text in ("", "garbage", whole[:200], None):
            if text is None:
                (self.folder / "cert.pem").unlink()
            else:
                (self.folder / "cert.pem").write_text(text)
            self.assertEqual([len(self.renew(endpoint)), len(self.renew(endpoint))], [1, 0])
            self.assertEqual(self.shown(endpoint), before)
        (self.folder / "cert.pem").write_text(whole)
        self.assertEqual(self.renew(endpoint), ["taken"])

    def test_passwords(self) -> None:
        """A key with a password, for which OpenSSL would ask at the terminal, never takes the place of one without."""
        endpoint = self.endpoint()
        secret = LEAF_KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
        (self.folder / "key.pem").write_bytes(secret)
        self.assertEqual(self.renew(endpoint), ["the key is encrypted"])

    def test_other_directory(self) -> None:
        """Files are found again by a process that has left the directory in which it was started, as daemons do."""
        here = os.getcwd()
        self.addCleanup(os.chdir, here)
        os.chdir(self.folder)
        endpoint = listening_endpoint(self.reactor, "ssl:8443:privateKey=key.pem:certKey=cert.pem")
        os.chdir("/")
        self.write("a wildcard for one label")
        self.assertEqual(self.renew(endpoint), ["taken"])


class ReceiverTests(SynchronousTestCase):
    """Whom one connects to."""

    def setUp(self) -> None:
        """Write a directory of authorities, and a certificate to show."""
        self.reactor: Any = MemoryReactorClock()
        self.folder = Path(self.mktemp()).resolve()
        self.folder.mkdir()
        (self.folder / "root.pem").write_text(TRUSTED)
        (self.folder / "own.crt").write_text(pem(*chain("for clients").certificates) + key_pem(LEAF_KEY))

    def met(self, text: str, shown: Chain) -> tuple[bytes, SSL.Connection]:
        """Connect to a server that shows this chain; return what it hears of a word, and its side of the connection."""
        heard: list[bytes] = []
        factory = Factory.forProtocol(Protocol)
        connecting = client_endpoint(self.reactor, text).connect(factory)
        self.addCleanup(connecting.addErrback, lambda _: None)
        client = self.reactor.tcpClients[-1][2].buildProtocol(None)
        transport = StringTransport()
        context = shown.context()
        context.set_verify(SSL.VERIFY_PEER, lambda *_: True)
        server = SSL.Connection(context)
        server.set_accept_state()
        client.makeConnection(transport)
        connected: Any = self.successResultOf(connecting)
        connected.transport.write(b"secret")
        for _ in range(6):
            self.reactor.advance(0)
            if transport.value():
                server.bio_write(transport.value())
                transport.clear()
            with contextlib.suppress(SSL.Error):
                server.do_handshake()
                heard.append(server.recv(100))
            with contextlib.suppress(SSL.WantReadError):
                client.dataReceived(server.bio_read(65_536))
        return b"".join(heard), server

    def test_certificates(self) -> None:
        """A receiver over TLS must have the certificate of its host, by the platform's authorities or a folder's (NET-8)."""
        good, bad = chain("the host's name"), chain("no name, and an old printer's")
        roots = f":trustRoots={self.folder}"
        below = r"endpoint=tcp\:127.0.0.1\:601"
        for text, shown, heard in (
            (f"tls:{HOST}:6514:{below}{roots}", good, b"secret"),
            (f"TLS:host={HOST}:{below}{roots}:port=1", good, b"secret"),
            (f"port=1:tls:{HOST}:{below}{roots}", good, b"secret"),
            (f"tls:{HOST}:6514:{below}{roots}", bad, b""),
            (f"port=1:tls:{HOST}:{below}{roots}", bad, b""),
            (f"tls:{HOST}:6514:{below}", good, b""),
            (f"tls:127.0.0.1:6514{roots}", good, b""),
        ):
            self.assertEqual(self.met(text, shown)[0], heard, text)

    def test_own(self) -> None:
        """A receiver may be shown a certificate."""
        text = f"tls:{HOST}:1:endpoint=tcp\\:127.0.0.1\\:601:trustRoots={self.folder}:certificate={self.folder}/own.crt"
        heard, server = self.met(text, chain("the host's name"))
        self.assertEqual(heard, b"secret")
        self.assertEqual(server.get_peer_certificate(as_cryptography=True), chain("for clients").certificates[0])

    def test_refused(self) -> None:
        """What would connect to anybody is refused, and so is what can't be understood (NET-8)."""
        for text in (
            f"ssl:{HOST}:6514",
            f"SSL:{HOST}:6514:caCertsDir={self.folder}",
            f"port=6514:ssl:{HOST}",
            f"tls:{HOST}:1:endpoint=ssl\\:{HOST}\\:1",
            f"tls:{HOST}:6514:hostname=other",
            f"tls:{HOST}",
            "tls:my_host:6514",
            f"tls:{HOST}:6514:trustRoots={self.folder}/none",
            f"tls:{HOST}:6514:certificate={self.folder}/none",
        ):
            with self.assertRaises(REFUSALS, msg=text):
                client_endpoint(self.reactor, text)

    def test_others(self) -> None:
        """What speaks no TLS is Twisted's (CFG-7)."""
        client_endpoint(self.reactor, "tcp:127.0.0.1:601").connect(Factory.forProtocol(Protocol))
        self.assertEqual(self.reactor.tcpClients[0][:2], ("127.0.0.1", 601))
