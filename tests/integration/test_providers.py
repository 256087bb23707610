"""Tests of ``svc.authn.providers`` against servers on loopback sockets: what a provider may do wrong, and how it ends."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import attrs
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IHostnameResolver
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.ssl import PrivateCertificate
from twisted.internet.task import Clock, LoopingCall, deferLater
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request, Site
from twisted.web.util import Redirect

from svc.authn.providers.discovery import KeySetFetcher
from svc.authn.providers.keys import ProviderKeys
from svc.model.authentication import KeySource
from svc.model.errors import KeysUnavailable
from svc.model.query_results import Network
from svc.net.fetch import ANSWER_LIMIT, GuardedClient
from svc.net.trust import client_tls
from tests.authn.providers.authority import Authority
from tests.authn.providers.names import Names
from tests.negotiation import is_acceptable
from tests.signing import jwk, jwks

reactor: Any = installed_reactor

LOOPBACK = (ip_network("127.0.0.0/8"),)
#: The deadline, in seconds, of fetches that it must end, and of those that must not come near it.
DEADLINE = 0.5
PATIENCE = 60.0


class Peer(Protocol):
    """A server that takes connections and says nothing."""

    factory: Peers
    transport: Any

    def connectionMade(self) -> None:
        """Count."""
        self.factory.met += 1

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Report that the client is gone."""
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
        """Answer, as far as that is what is asked for."""
        self.asked += 1
        if not is_acceptable(request.getHeader("accept"), request.path.decode("ascii")):
            request.setResponseCode(406)
            return b""
        return self.document


class Sometimes(Keys):
    """A resource that answers until ``hangs``."""

    hangs = False

    def render_GET(self, request: Request) -> Any:
        """Answer, or don't."""
        answer = super().render_GET(request)
        return NOT_DONE_YET if self.hangs else answer


class Guarded(Keys):
    """A resource that answers who shows a token, as the API of a cluster does; another token is 403."""

    def __init__(self, document: bytes, token: str) -> None:
        super().__init__(document)
        self.token = token
        self.shown: list[str | None] = []

    def render_GET(self, request: Request) -> bytes:
        """Answer, or don't."""
        shown = request.getHeader("authorization")
        self.shown.append(shown)
        if shown != f"Bearer {self.token}":
            request.setResponseCode(401 if shown is None else 403)
            return b"{}"
        return super().render_GET(request)


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
        networks: Sequence[Network] = LOOPBACK,
        deadline: float = PATIENCE,
    ) -> GuardedClient:
        """A client that finds every name at 127.0.0.1."""
        return GuardedClient(
            reactor,
            names or Names(["127.0.0.1"]),
            client_tls,
            allow_http=True,
            private_networks=networks,
            deadline=deadline,
        )

    async def refusal(self, client: GuardedClient, uri: str, ca_cert: str | None = None) -> str:
        """Why the fetch is refused."""
        try:
            document = await client.fetch(uri, ca_cert)
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

    async def test_no_proxy(self) -> None:
        """A proxy that the environment names is not asked (NET-14)."""
        proxy, keys = Peers(Peer), Keys(jwks())
        uri = f"http://127.0.0.1:{self.listen(proxy)}"
        proxies = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), uri)
        self.patch(os, "environ", {**os.environ, **proxies, **{name.upper(): uri for name in proxies}})
        await self.client().fetch(f"http://idp.example:{self.listen(keys)}/keys")
        self.assertEqual((keys.asked, proxy.met), (1, 0))

    async def test_rebinding(self) -> None:
        """A name that moves to a forbidden address between two fetches is refused the second time (NET-10)."""
        keys = Keys(jwks())
        port = self.listen(keys)
        client = self.client(names=Names(["127.0.0.1"], ["127.0.0.2"]), networks=[ip_network("127.0.0.1/32")])
        await client.fetch(f"http://idp.example:{port}/keys")
        self.assertIn("its address is loopback", await self.refusal(client, f"http://idp.example:{port}/keys"))
        self.assertEqual(keys.asked, 1)

    async def test_link_local_is_refused(self) -> None:
        """A name that resolves to where clouds give out credentials is refused, the first time or the second."""
        uri = f"http://idp.example:{self.listen(Keys(jwks()))}/keys"
        self.assertIn("is link-local", await self.refusal(self.client(names=Names(["169.254.169.254"])), uri))
        client = self.client(names=Names(["127.0.0.1"], ["127.0.0.1", "fe80::1"]))
        await client.fetch(uri)
        self.assertIn("is link-local", await self.refusal(client, uri))

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
        """An authority that is trusted."""
        self.authority = Authority()

    async def tls_refusal(self, port: int, deadline: float = PATIENCE) -> str:
        """Why the provider is refused, with the authority's certificate as the only one that is trusted."""
        return await self.refusal(self.client(deadline=deadline), f"https://idp.example:{port}/keys", self.authority.pem)

    async def test_a_good_certificate(self) -> None:
        """TLS verifies the certificate for the name, while the connection goes to the checked address."""
        port = self.listen(Keys(jwks()), self.authority.issue("idp.example"))
        self.assertEqual(await self.client().fetch(f"https://idp.example:{port}/keys", self.authority.pem), jwks())

    async def test_a_certificate_for_a_number(self) -> None:
        """A provider known by number has a certificate for that number."""
        port = self.listen(Keys(jwks()), self.authority.issue("127.0.0.1"))
        self.assertEqual(await self.client().fetch(f"https://127.0.0.1:{port}/keys", self.authority.pem), jwks())

    async def test_one_authority_of_several(self) -> None:
        """Any of the certificates of a bundle will do, also where blanks stand for its ends of lines."""
        port = self.listen(Keys(jwks()), self.authority.issue("idp.example"))
        bundle = Authority("another").pem + self.authority.pem
        for text in (bundle, bundle.replace("\n", " ")):
            self.assertEqual(await self.client().fetch(f"https://idp.example:{port}/keys", text), jwks())

    async def test_the_platforms_authorities(self) -> None:
        """Without certificates of its own a source trusts the platform's authorities, to which this one doesn't belong."""
        keys = Keys(jwks())
        port = self.listen(keys, self.authority.issue("idp.example"))
        self.assertIn("certificate verify failed", await self.refusal(self.client(), f"https://idp.example:{port}/keys"))
        self.assertEqual(keys.asked, 0)

    async def test_broken_authorities(self) -> None:
        """Certificates that can't be read are told, and nothing is connected to."""
        peers = Peers(Peer)
        uri = f"https://idp.example:{self.listen(peers)}/keys"
        self.assertIn("ca-cert holds no whole certificate", await self.refusal(self.client(), uri, self.authority.pem[:-40]))
        self.assertEqual(peers.met, 0)

    async def test_authorities_without_tls(self) -> None:
        """Where certificates are given nothing is fetched over http."""
        keys = Keys(jwks())
        uri = f"http://idp.example:{self.listen(keys)}/keys"
        self.assertIn("it is not https", await self.refusal(self.client(), uri, self.authority.pem))
        self.assertEqual(keys.asked, 0)

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
        return ProviderKeys(KeySetFetcher(self.client(deadline=deadline)).fetch_key_set, reactor, 0)

    def source(self, server: Any) -> KeySource:
        """The source that a server is, from now on."""
        return KeySource(f"http://idp.example:{self.listen(server)}/keys")

    async def test_a_set_is_fetched_once_and_renewed(self) -> None:
        """A set is kept until a newer one is asked for, by a login or by an operator."""
        keys, server = self.keys(), Keys(jwks(jwk("k1")))
        source = self.source(server)
        old = await keys.current_keys(source)
        self.assertIs(await keys.current_keys(source), old)
        server.document = jwks(jwk("k2"))
        new = await keys.fetch_newer_keys(source, old)
        self.assertEqual([key.key_id for key in new.keys], ["k2"])
        server.document = jwks(jwk("k1"))
        new = await keys.current_keys(source, 1)
        self.assertEqual([key.key_id for key in new.keys], ["k1"])
        self.assertEqual(server.asked, 3)

    async def test_what_is_no_set(self) -> None:
        """A provider that answers with a web page or an empty set leaves the old set in force, and operators are told."""
        keys, server = self.keys(), Keys(jwks())
        source = self.source(server)
        old = await keys.current_keys(source)
        for document, why in (
            (b"<html><body>Please sign in</body></html>", "it is not JSON"),
            (b'{"keys": []}', "it has no usable key"),
        ):
            server.document = document
            await self.assertFailure(Deferred.fromCoroutine(keys.fetch_newer_keys(source, old)), KeysUnavailable)
            self.assertIs(await keys.current_keys(source), old)
            self.assertIn(why, keys.keys_state(source).failure or "")

    async def test_one_that_hangs_hinders_no_other(self) -> None:
        """While one provider hangs, another one serves."""
        keys, peers = self.keys(3.0), Peers(Peer)
        hanging = Deferred.fromCoroutine(keys.current_keys(self.source(peers)))
        await keys.current_keys(self.source(Keys(jwks())))
        self.assertNoResult(hanging)
        await self.assertFailure(hanging, KeysUnavailable)
        await peers.gone

    async def test_keys_at_hand_serve_while_the_provider_hangs(self) -> None:
        """A provider that stops to answer keeps nobody from the keys that it published before."""
        server = Sometimes(jwks())
        keys, source = self.keys(3.0), self.source(server)
        old = await keys.current_keys(source)
        server.hangs = True
        hanging = Deferred.fromCoroutine(keys.fetch_newer_keys(source, old))
        while server.asked < 2:
            await deferLater(reactor, 0.01)
        self.assertIs(await keys.current_keys(source), old)
        self.assertNoResult(hanging)
        await self.assertFailure(hanging, KeysUnavailable)
        self.assertIs(await keys.current_keys(source), old)
        self.assertIn("no complete answer within 3 seconds", keys.keys_state(source).failure or "")

    async def test_renewed_in_the_background(self) -> None:
        """With an age keys are fetched again before it is reached, while nobody asks."""
        clock, server = Clock(), Keys(jwks(jwk("k1")))
        keys = ProviderKeys(KeySetFetcher(self.client()).fetch_key_set, clock, 10, max_age=100)
        source = self.source(server)
        await keys.current_keys(source)
        server.document = jwks(jwk("k2"))
        clock.advance(75)
        while keys.keys_state(source).fetched_at != 75:
            await deferLater(reactor, 0.01)
        self.assertEqual([key_id for key_id, _ in keys.keys_state(source).keys], ["k2"])


class DiscoveryTests(Case):
    """Sources that are OIDC providers."""

    def setUp(self) -> None:
        """A provider without TLS, and its keys at a port of their own."""
        self.keys, self.about = Keys(jwks()), Keys(b"")
        self.provider = f"http://idp.example:{self.listen(self.about)}"
        self.tell(f"http://keys.example:{self.listen(self.keys)}/jwks")

    def tell(self, uri: str, provider: str | None = None) -> None:
        """Have the provider name that address for its keys."""
        members = {"issuer": provider or self.provider, "jwks_uri": uri}
        self.about.document = json.dumps(members).encode("ascii")

    async def told(self, client: GuardedClient, source: KeySource | None = None) -> str:
        """Why the keys can't be had."""
        try:
            await KeySetFetcher(client).fetch_key_set(source or KeySource(self.provider, discovered=True))
        except KeysUnavailable as error:
            return error.why
        raise self.failureException("keys came")

    async def test_found_by_discovery(self) -> None:
        """The keys come from where the document says."""
        keys = await KeySetFetcher(self.client()).fetch_key_set(KeySource(f"{self.provider}/", discovered=True))
        self.assertEqual([key.key_id for key in keys.keys], ["k1"])
        self.assertEqual((self.about.asked, self.keys.asked), (1, 1))

    async def test_authorities_hold_for_both(self) -> None:
        """The authorities of a source are the only ones that are trusted, for the document and for the keys."""
        authority, stranger = Authority(), Authority()
        provider = f"https://idp.example:{self.listen(self.about, authority.issue('idp.example'))}"
        good = self.listen(self.keys, authority.issue("keys.example"))
        bad = self.listen(self.keys, stranger.issue("keys.example"))
        source = KeySource(provider, discovered=True, ca_cert=authority.pem)
        self.tell(f"https://keys.example:{good}/jwks", provider)
        await KeySetFetcher(self.client()).fetch_key_set(source)
        self.tell(f"https://keys.example:{bad}/jwks", provider)
        self.assertIn("certificate verify failed", await self.told(self.client(), source))
        self.tell(f"http://keys.example:{bad}/jwks", provider)
        self.assertIn("it is not https", await self.told(self.client(), source))
        self.assertEqual(self.keys.asked, 1)

    async def test_a_cluster_that_wants_a_token(self) -> None:
        """Document and keys of a cluster with an authority of its own come to who shows its token; whom it refuses is told
        the status and whether a token was shown, and a redirect gets no token (AUTH-67, AUTH-70).
        """
        authority, keys = Authority(), Guarded(jwks(), "good")
        about = Guarded(b"", "good")
        root, well_known = Resource(), Resource()
        root.putChild(b"keys", keys)
        root.putChild(b".well-known", well_known)
        well_known.putChild(b"openid-configuration", about)
        stranger = Guarded(jwks(), "good")
        leaving = f"https://idp.example:{self.listen(stranger, authority.issue('idp.example'))}/keys"
        root.putChild(b"moved", Redirect(leaving.encode("ascii")))
        cluster = f"https://idp.example:{self.listen(root, authority.issue('idp.example'))}"
        about.document = json.dumps({"issuer": cluster, "jwks_uri": f"{cluster}/keys"}).encode("ascii")
        source = KeySource(cluster, True, authority.pem, token="good")
        self.assertEqual([key.key_id for key in (await KeySetFetcher(self.client()).fetch_key_set(source)).keys], ["k1"])
        self.assertEqual(about.shown + keys.shown, ["Bearer good"] * 2)
        path = Path(self.mktemp())
        path.write_text("good\n")
        from_file = attrs.evolve(source, token=None)
        self.assertEqual(len((await KeySetFetcher(self.client(), {cluster: path}).fetch_key_set(from_file)).keys), 1)
        for token, told in (
            (None, "status 401: no token was shown"),
            ("other", "status 403: the token that was shown is not accepted"),
        ):
            self.assertIn(told, await self.told(self.client(), attrs.evolve(source, token=token)))
        moved = KeySource(f"{cluster}/moved", False, authority.pem, token="good")
        self.assertIn("status 302", await self.told(self.client(), moved))
        about.document = json.dumps({"issuer": cluster, "jwks_uri": leaving}).encode("ascii")
        self.assertIn("jwks-token was not shown there", await self.told(self.client(), source))
        self.assertEqual(stranger.shown, [None])

    async def test_keys_at_a_forbidden_address(self) -> None:
        """A document can't lead to a forbidden address, be it written there or found by name."""
        self.tell("http://169.254.169.254/latest")
        self.assertIn("is link-local", await self.told(self.client()))
        self.tell("http://keys.example/jwks")
        client = self.client(names=Names(["127.0.0.1"], ["10.0.0.1"]))
        self.assertIn("is private", await self.told(client))

    async def test_another_providers_document(self) -> None:
        """A document of another provider is refused."""
        self.tell("http://keys.example/jwks", "http://other.example")
        self.assertIn("its issuer is 'http://other.example'", await self.told(self.client()))

    async def test_no_document(self) -> None:
        """A web page or a redirect in place of the document is refused."""
        self.about.document = b"<html>"
        self.assertIn("the discovery document is not usable: it is not JSON", await self.told(self.client()))
        redirect = Redirect(self.provider.encode("ascii"))
        redirect.isLeaf = True
        source = KeySource(f"http://idp.example:{self.listen(redirect)}", discovered=True)
        self.assertIn("status 302", await self.told(self.client(), source))

    async def test_one_deadline(self) -> None:
        """Document and keys together have the time that one fetch has."""
        peers = Peers(Peer)
        self.tell(f"http://keys.example:{self.listen(peers)}/jwks")
        self.assertIn("no complete answer within 3 seconds", await self.told(self.client(deadline=3.0)))
        await peers.gone
