"""Tests of ``svc.authn.providers.discovery``: from a source to its keys, by way of the provider's document or without."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.authn.providers.discovery import Publications, document_uri, jwks_uri
from svc.model.authentication import KeySource
from svc.model.errors import KeysUnavailable
from svc.model.key_sets import KeySet
from svc.model.strict_json import Malformed
from tests.authn.providers.names import Names
from tests.net.test_fetch import Case as FetchCase
from tests.signing import jwk, jwks

PROVIDER = "http://idp.example/realm"
KEYS = "http://keys.example/jwks"


def document(issuer: object = PROVIDER, uri: object = KEYS) -> bytes:
    """A discovery document; a member that is ``None`` is left out."""
    members = {"issuer": issuer, "jwks_uri": uri, "scopes_supported": ["openid"]}
    return json.dumps({name: value for name, value in members.items() if value is not None}).encode("utf-8")


class DocumentTests(SynchronousTestCase):
    """``document_uri`` and ``jwks_uri``."""

    def test_where_it_is(self) -> None:
        """The document lies under the provider's address, of which one final slash is dropped (AUTH-50)."""
        for provider in ("https://idp.example", "https://idp.example/"):
            self.assertEqual(document_uri(provider), "https://idp.example/.well-known/openid-configuration")
        self.assertEqual(document_uri("https://idp.example/a//"), "https://idp.example/a//.well-known/openid-configuration")

    def test_a_provider_with_a_query(self) -> None:
        """An address with a query is refused, since the document would be looked for elsewhere."""
        self.assertIn("has a query", self.assertRaises(KeysUnavailable, document_uri, "https://idp.example/?a=b").why)

    def test_names_the_keys(self) -> None:
        """A document of the same provider, a final slash aside, names the address of the keys."""
        for issuer in (PROVIDER, PROVIDER + "/"):
            for provider in (PROVIDER, PROVIDER + "/"):
                self.assertEqual(jwks_uri(document(issuer), provider), KEYS)

    def test_another_provider(self) -> None:
        """A document of another provider is refused, however similar its name, and both are told (AUTH-50)."""
        for issuer in ("https://idp.example/realm", PROVIDER + "//", PROVIDER.upper(), PROVIDER + "/x", " " + PROVIDER, ""):
            refusal = self.assertRaises(Malformed, jwks_uri, document(issuer), PROVIDER)
            self.assertEqual(refusal.why, f"its issuer is {issuer!r}, not {PROVIDER!r}")

    def test_incomplete_documents(self) -> None:
        """A document without issuer or address, or with one that is no text, is refused."""
        for issuer in (None, 5, [PROVIDER], True):
            self.assertEqual(self.assertRaises(Malformed, jwks_uri, document(issuer), PROVIDER).why, "it names no issuer")
        for uri in (None, 5, [KEYS], {"uri": KEYS}):
            refusal = self.assertRaises(Malformed, jwks_uri, document(uri=uri), PROVIDER)
            self.assertEqual(refusal.why, "it names no jwks_uri")

    def test_no_documents(self) -> None:
        """A web page, an array and a document that says something twice are none."""
        twice = document()[:-1] + b', "issuer": "http://idp.example/realm"}'
        for text in (b"<html>", b"", b"[]", b"null", b"\xff", twice):
            self.assertRaises(Malformed, jwks_uri, text, PROVIDER)

    @given(st.text(max_size=30), st.text(max_size=30))
    def test_any_document(self, issuer: str, provider: str) -> None:
        """A document counts exactly if it is the provider's."""
        if issuer.removesuffix("/") == provider.removesuffix("/"):
            self.assertEqual(jwks_uri(document(issuer), provider), KEYS)
        else:
            self.assertRaises(Malformed, jwks_uri, document(issuer), provider)


class PublicationsTests(FetchCase):
    """``Publications``, on a memory reactor."""

    def begin(self, source: KeySource, names: Names | None = None) -> Deferred[KeySet]:
        """Begin to fetch the keys of a source."""
        return Deferred.fromCoroutine(Publications(self.client(names)).key_set(source))

    def answer(self, body: bytes) -> bytes:
        """Answer the newest request, and return its path."""
        protocol, transport = self.connect()
        protocol.dataReceived(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        protocol.connectionLost(Failure(ConnectionDone()))
        path: bytes = transport.value().split(b" ")[1]
        return path

    def assert_told(self, asked: Deferred[KeySet], why: str) -> None:
        """It ended in a refusal that says why."""
        self.assertIn(why, self.failureResultOf(asked, KeysUnavailable).value.why)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_an_address_of_keys(self) -> None:
        """A source that is the address of a set is fetched as that."""
        asked = self.begin(KeySource(KEYS))
        self.assertEqual(self.answer(jwks()), b"/jwks")
        self.assertEqual([key.key_id for key in self.successResultOf(asked).keys], ["k1"])
        self.assertEqual(self.names.asked, ["keys.example"])

    def test_a_provider(self) -> None:
        """A provider's document is fetched first, and then the set that it names."""
        asked = self.begin(KeySource(PROVIDER + "/", discovered=True))
        self.assertEqual(self.answer(document()), b"/realm/.well-known/openid-configuration")
        self.assertEqual(self.answer(jwks()), b"/jwks")
        self.assertEqual([key.key_id for key in self.successResultOf(asked).keys], ["k1"])
        self.assertEqual(self.names.asked, ["idp.example", "keys.example"])

    def test_another_providers_document(self) -> None:
        """A document of another provider is refused by the address at which it was found, and no keys are fetched."""
        asked = self.begin(KeySource(PROVIDER, discovered=True))
        self.answer(document("https://evil.example"))
        self.assert_told(
            asked, f"{PROVIDER}/.well-known/openid-configuration: the discovery document is not usable: its issuer"
        )
        self.assertEqual(len(self.reactor.tcpClients), 1)

    def test_named_addresses_are_checked(self) -> None:
        """The address that a document names is checked like any: its form, its scheme, its place (AUTH-50)."""
        for uri, why in (
            ("file:///etc/passwd", "is no address of the form"),
            ("http://user@keys.example/", "is no address of the form"),
            ("http://127.0.0.1/jwks", "is loopback"),
            ("http://[::ffff:169.254.169.254]/jwks", "is link-local"),
        ):
            asked = self.begin(KeySource(PROVIDER, discovered=True))
            self.answer(document(uri=uri))
            self.assert_told(asked, why)

    def test_named_names_are_looked_up(self) -> None:
        """A named host that has a forbidden address is refused, though the provider's own has none."""
        asked = self.begin(KeySource(PROVIDER, discovered=True), Names(["93.184.216.34"], ["10.0.0.1"]))
        self.answer(document())
        self.assert_told(asked, f"{KEYS}: its address is private")

    def test_one_deadline(self) -> None:
        """Time that discovery took is not there for the keys (AUTH-50)."""
        asked = self.begin(KeySource(PROVIDER, discovered=True))
        self.reactor.advance(3)
        self.answer(document())
        self.connect()
        self.reactor.advance(1.9)
        self.assertNoResult(asked)
        self.reactor.advance(0.2)
        self.assert_told(asked, f"{KEYS}: there was no complete answer within 5 seconds")

    def test_authorities_need_tls(self) -> None:
        """With ca-cert, http is refused even where it is allowed: for the provider, and for what it names."""
        asked = self.begin(KeySource(KEYS, ca_cert="-"))
        self.assert_told(asked, f"{KEYS}: it is not https, and ca-cert is for https alone")
        self.assertEqual(self.reactor.tcpClients, [])

    def test_broken_authorities(self) -> None:
        """A broken ca-cert is told before anything is connected to."""
        asked = self.begin(KeySource("https://idp.example", discovered=True, ca_cert="-----BEGIN CERTIFICATE-----"))
        self.assert_told(asked, "https://idp.example/.well-known/openid-configuration: ca-cert holds no whole certificate")
        self.assertEqual(self.reactor.tcpClients, [])

    def test_unusable_sets(self) -> None:
        """Web pages, empty and broken sets, and sets without usable key are refused by address and fault."""
        for body, why in (
            (b"<html>maintenance</html>", "it is not JSON"),
            (b"", "it is not JSON"),
            (b'{"keys": []}', "it has no usable key."),
            (b'{"keys": {}}', "it is no JWK set"),
            (jwks(jwk("weak", 1024)), "it has no usable key. key 1 'weak' is refused: it has 1024 bits"),
        ):
            asked = self.begin(KeySource(KEYS))
            self.answer(body)
            self.assert_told(asked, f"{KEYS}: the answer is not usable: {why}")
