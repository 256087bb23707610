"""Tests of ``svc.providers`` against servers on loopback sockets: what a provider may do wrong, and how it ends."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from functools import partial
from ipaddress import ip_address, ip_network
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IHostnameResolver
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.ssl import Certificate, PrivateCertificate, optionsForClientTLS, trustRootFromCertificates
from twisted.internet.task import LoopingCall, deferLater
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase
from twisted.web.resource import Resource
from twisted.web.server import Request, Site
from twisted.web.util import Redirect

from svc.errors import KeysUnavailable
from svc.providers.fetch import ANSWER_LIMIT, GuardedClient
from svc.providers.keys import ProviderKeys
from svc.records import Network
from tests.providers.names import Names
from tests.signing import jwk, jwks

reactor: Any = installed_reactor

LOOPBACK = (ip_network("127.0.0.0/8"),)
#: The deadline, in seconds, of fetches that it must end, and of those that must not come near it.
DEADLINE = 0.5
PATIENCE = 60.0
_START = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)


class Authority:
    """A certificate authority that a client may trust or not."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        signed = (
            self._builder(self.name, self.key, 36_500).add_extension(constraints, critical=True).sign(self.key, SHA256())
        )
        self.certificate = Certificate.loadPEM(signed.public_bytes(Encoding.PEM))

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, days: int) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(_START)
            .not_valid_after(_START + datetime.timedelta(days=days))
        )

    def issue(self, host: str, days: int = 36_500) -> PrivateCertificate:
        """A certificate for a host, by name or number, with its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        try:
            name: x509.GeneralName = x509.IPAddress(ip_address(host))
        except ValueError:
            name = x509.DNSName(host)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        builder = self._builder(subject, key, days).add_extension(x509.SubjectAlternativeName([name]), critical=False)
        pem = builder.sign(self.key, SHA256()).public_bytes(Encoding.PEM)
        pem += key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        issued: PrivateCertificate = PrivateCertificate.loadPEM(pem)
        return issued


class Peer(Protocol):
    """A server that takes connections and says nothing."""

    factory: Peers
    transport: Any

    def connectionMade(self) -> None:
        """Count."""
        self.factory.met += 1

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Tell that the client is gone."""
        self.factory.gone.callback(None)


class Dripping(Peer):
    """A server that answers a byte at a time, for ever."""

    def dataReceived(self, data: bytes) -> None:
        """Begin to drip."""
        self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
        self.drip = LoopingCall(self.transport.write, b" ")
        self.drip.start(0.02)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Stop."""
        self.drip.stop()
        super().connectionLost(reason)


class Flooding(Peer):
    """A server that sends as much as the client takes, up to a gigabyte; with ``header``, all of it in headers."""

    header = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n"
    line = b" " * 65_536

    def dataReceived(self, data: bytes) -> None:
        """Begin to flood."""
        self.transport.write(self.header)
        self.transport.registerProducer(self, False)

    def resumeProducing(self) -> None:
        """Send more."""
        self.factory.sent += len(self.line)
        self.transport.write(self.line)

    def stopProducing(self) -> None:
        """Nothing is held."""


class FloodingHeaders(Flooding):
    """A server whose headers never end."""

    header = b"HTTP/1.1 200 OK\r\n"
    line = b"X-Pad: " + b"x" * 1000 + b"\r\n"


class Babbling(Peer):
    """A server that answers anything with what isn't TLS."""

    def dataReceived(self, data: bytes) -> None:
        """Babble."""
        self.transport.write(b"HTTP/1.1 400 Speak English\r\n\r\n")


class Peers(Factory):
    """Counts connections, and octets sent; ``gone`` fires when the client of the only one is."""

    noisy = False

    def __init__(self, protocol: type[Peer]) -> None:
        self.protocol = protocol  # type: ignore[assignment]
        self.met = 0
        self.sent = 0
        self.gone: Deferred[None] = Deferred()


class Keys(Resource):
    """A resource that answers with a key set, and counts."""

    isLeaf = True

    def __init__(self, document: bytes) -> None:
        super().__init__()
        self.document = document
        self.asked = 0

    def render_GET(self, request: Request) -> bytes:
        """Answer."""
        self.asked += 1
        return self.document


class Case(TestCase):
    """Servers and clients on loopback sockets."""

    def listen(self, factory: Any, certificate: PrivateCertificate | None = None, backlog: int = 50) -> int:
        """Serve on a free port until the end of the test; return the port."""
        if isinstance(factory, Resource):
            factory = Site(factory)
            factory.noisy = False
        if certificate is None:
            port = reactor.listenTCP(0, factory, interface="127.0.0.1", backlog=backlog)
        else:
            port = reactor.listenSSL(0, factory, certificate.options(), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        return int(port.getHost().port)

    def client(
        self,
        *,
        names: IHostnameResolver | None = None,
        authorities: Sequence[Authority] = (),
        networks: Sequence[Network] = LOOPBACK,
        deadline: float = PATIENCE,
    ) -> GuardedClient:
        """A client that finds every name at 127.0.0.1."""
        trusted = trustRootFromCertificates([authority.certificate for authority in authorities])
        return GuardedClient(
            reactor,
            names or Names(["127.0.0.1"]),
            partial(optionsForClientTLS, trustRoot=trusted),
            allow_http=True,
            private_networks=networks,
            deadline=deadline,
        )

    async def refusal(self, client: GuardedClient, uri: str) -> str:
        """Why the fetch is refused."""
        try:
            document = await client.fetch(uri)
        except KeysUnavailable as error:
            return error.why
        raise self.failureException(f"{len(document)} octets came")


class PlainTests(Case):
    """Providers without TLS."""

    async def test_a_good_provider(self) -> None:
        """A document comes back as it was sent."""
        port = self.listen(Keys(jwks()))
        self.assertEqual(await self.client().fetch(f"http://idp.example:{port}/keys"), jwks())

    async def test_the_largest_document(self) -> None:
        """A document that is almost as large as an answer may be comes back whole."""
        port = self.listen(Keys(b" " * (ANSWER_LIMIT - 1000)))
        self.assertEqual(len(await self.client().fetch(f"http://idp.example:{port}/keys")), ANSWER_LIMIT - 1000)

    async def test_loopback_is_refused(self) -> None:
        """A name that resolves to loopback is refused unless the configuration lists it, and nothing is connected to."""
        peers = Peers(Peer)
        port = self.listen(peers)
        client = self.client(names=reactor.nameResolver, networks=())
        for host in ("localhost", "127.0.0.1", "127.1"):
            self.assertIn("is loopback", await self.refusal(client, f"http://{host}:{port}/keys"))
        self.assertEqual(peers.met, 0)

    async def test_rebinding(self) -> None:
        """A name that moves to a forbidden address between two fetches is refused the second time."""
        keys = Keys(jwks())
        port = self.listen(keys)
        client = self.client(names=Names(["127.0.0.1"], ["127.0.0.2"]), networks=[ip_network("127.0.0.1/32")])
        await client.fetch(f"http://idp.example:{port}/keys")
        self.assertIn("127.0.0.2 is loopback", await self.refusal(client, f"http://idp.example:{port}/keys"))
        self.assertEqual(keys.asked, 1)

    async def test_nobody_listens(self) -> None:
        """A port where nobody listens is refused at once."""
        port = reactor.listenTCP(0, Peers(Peer), interface="127.0.0.1")
        number = port.getHost().port
        await port.stopListening()
        self.assertIn("no connection to 127.0.0.1", await self.refusal(self.client(), f"http://idp.example:{number}/keys"))

    async def test_the_next_address_answers(self) -> None:
        """When nobody listens at one address of a name, another one serves."""
        port = self.listen(Keys(jwks()))
        names = Names(["127.0.0.9", "127.0.0.1"])
        self.assertEqual(await self.client(names=names).fetch(f"http://idp.example:{port}/keys"), jwks())

    async def test_a_provider_that_hangs(self) -> None:
        """A provider that says nothing is hung up on at the deadline."""
        peers = Peers(Peer)
        port = self.listen(peers)
        why = await self.refusal(self.client(deadline=DEADLINE), f"http://idp.example:{port}/keys")
        self.assertIn("no complete answer within 0.5 seconds", why)
        await peers.gone

    async def test_a_provider_that_drips(self) -> None:
        """A provider that sends a byte now and then is hung up on at the deadline."""
        peers = Peers(Dripping)
        port = self.listen(peers)
        why = await self.refusal(self.client(deadline=DEADLINE), f"http://idp.example:{port}/keys")
        self.assertIn("no complete answer within 0.5 seconds", why)
        await peers.gone

    async def test_a_provider_that_floods(self) -> None:
        """A provider that sends a gigabyte, in the body or in headers, is hung up on at the limit."""
        for protocol in (Flooding, FloodingHeaders):
            peers = Peers(protocol)
            port = self.listen(peers)
            why = await self.refusal(self.client(), f"http://idp.example:{port}/keys")
            self.assertIn(f"the answer is longer than {ANSWER_LIMIT} bytes", why)
            await peers.gone
            self.assertLess(peers.sent, 50_000_000)

    async def test_a_provider_that_redirects(self) -> None:
        """A redirect is not followed, wherever it leads."""
        target = Keys(jwks())
        port = self.listen(Redirect(f"http://127.0.0.1:{self.listen(target)}/".encode("ascii")))
        self.assertIn("status 302", await self.refusal(self.client(), f"http://idp.example:{port}/keys"))
        self.assertEqual(target.asked, 0)

    async def test_a_provider_that_hangs_up(self) -> None:
        """A client that goes away during the fetch takes the connection along."""
        peers = Peers(Peer)
        port = self.listen(peers)
        asked = Deferred.fromCoroutine(self.client(deadline=60).fetch(f"http://idp.example:{port}/keys"))
        while not peers.met:
            await deferLater(reactor, 0.01)
        asked.addErrback(lambda failure: None)
        asked.cancel()
        await peers.gone


class TlsTests(Case):
    """Providers with TLS."""

    def setUp(self) -> None:
        """An authority that clients trust."""
        self.authority = Authority()

    async def tls_refusal(self, port: int, deadline: float = PATIENCE) -> str:
        """Why a client that trusts the authority refuses the provider."""
        client = self.client(authorities=[self.authority], deadline=deadline)
        return await self.refusal(client, f"https://idp.example:{port}/keys")

    async def test_a_good_certificate(self) -> None:
        """TLS verifies the certificate for the name, while the connection goes to the checked address."""
        port = self.listen(Keys(jwks()), self.authority.issue("idp.example"))
        client = self.client(authorities=[self.authority])
        self.assertEqual(await client.fetch(f"https://idp.example:{port}/keys"), jwks())

    async def test_a_certificate_for_a_number(self) -> None:
        """A provider known by number has a certificate for that number."""
        port = self.listen(Keys(jwks()), self.authority.issue("127.0.0.1"))
        client = self.client(authorities=[self.authority])
        self.assertEqual(await client.fetch(f"https://127.0.0.1:{port}/keys"), jwks())

    async def test_another_hosts_certificate(self) -> None:
        """A certificate for another host, or for the number where a name was asked, is refused."""
        for host in ("other.example", "127.0.0.1", "sub.idp.example"):
            keys = Keys(jwks())
            port = self.listen(keys, self.authority.issue(host))
            self.assertIn("the certificate is for another host", await self.tls_refusal(port))
            self.assertEqual(keys.asked, 0)

    async def test_an_unknown_authority(self) -> None:
        """A certificate by an authority that isn't trusted is refused, and so is one that has expired."""
        for certificate in (Authority().issue("idp.example"), self.authority.issue("idp.example", days=1)):
            keys = Keys(jwks())
            port = self.listen(keys, certificate)
            self.assertIn("certificate verify failed", await self.tls_refusal(port))
            self.assertEqual(keys.asked, 0)

    async def test_no_tls_at_all(self) -> None:
        """A provider that doesn't speak TLS, or nothing at all, is refused."""
        port = self.listen(Peers(Babbling))
        self.assertIn("TLS failed: ", await self.tls_refusal(port))
        port = self.listen(Peers(Peer))
        self.assertIn("no complete answer", await self.tls_refusal(port, DEADLINE))


class SourceTests(Case):
    """Key sets from sockets."""

    def keys(self, deadline: float = PATIENCE) -> ProviderKeys:
        """Keys that may be refetched at once."""
        return ProviderKeys(self.client(deadline=deadline).fetch, reactor, 0)

    async def test_a_set_is_fetched_once_and_renewed(self) -> None:
        """A set is kept until a newer one is asked for."""
        keys, server = self.keys(), Keys(jwks(jwk("k1")))
        uri = f"http://idp.example:{self.listen(server)}/keys"
        old = await keys.current(uri)
        self.assertIs(await keys.current(uri), old)
        server.document = jwks(jwk("k2"))
        new = await keys.newer(uri, old)
        self.assertEqual([key.key_id for key in new.keys], ["k2"])
        self.assertEqual(server.asked, 2)

    async def test_a_web_page_is_no_set(self) -> None:
        """A provider that answers with a web page leaves the old set in force."""
        keys, server = self.keys(), Keys(jwks())
        uri = f"http://idp.example:{self.listen(server)}/keys"
        old = await keys.current(uri)
        server.document = b"<html><body>Please sign in</body></html>"
        await self.assertFailure(Deferred.fromCoroutine(keys.newer(uri, old)), KeysUnavailable)
        self.assertIs(await keys.current(uri), old)

    async def test_one_that_hangs_hinders_no_other(self) -> None:
        """While one provider hangs, another one serves."""
        keys, peers = self.keys(3.0), Peers(Peer)
        hanging = Deferred.fromCoroutine(keys.current(f"http://idp.example:{self.listen(peers)}/keys"))
        await keys.current(f"http://idp.example:{self.listen(Keys(jwks()))}/keys")
        self.assertNoResult(hanging)
        await self.assertFailure(hanging, KeysUnavailable)
        await peers.gone
