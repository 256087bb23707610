"""Tests of ``svc.authn.providers.discovery``: from a source to its keys, by way of the provider's document or without."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.authn.providers.discovery import KeySetFetcher, discovery_uri, parse_discovery, read_address
from svc.model.authentication import KeySource
from svc.model.errors import KeysUnavailable
from svc.model.key_sets import KeySet
from svc.model.strict_json import Malformed
from svc.model.web_address import is_same_provider
from tests.authn.providers.names import Names
from tests.negotiation import is_acceptable
from tests.net.test_fetch import Case as FetchCase
from tests.signing import jwk, jwks

PROVIDER = "http://idp.example/realm"
KEYS = "http://keys.example/jwks"


def document(issuer: object = PROVIDER, uri: object = KEYS) -> bytes:
    """A discovery document; a member that is ``None`` is left out."""
    members = {"issuer": issuer, "jwks_uri": uri, "scopes_supported": ["openid"]}
    return json.dumps({name: value for name, value in members.items() if value is not None}).encode("utf-8")


def issuer_and_keys(text: bytes, provider: str) -> tuple[object, str]:
    """The issuer of a document, and the address of the keys, whatever that is."""
    members = parse_discovery(text, provider)
    return members["issuer"], read_address(members, "jwks_uri", lambda _: None)


class DocumentTests(SynchronousTestCase):
    """``discovery_uri``, ``parse_discovery`` and ``read_address``."""

    def test_where_it_is(self) -> None:
        """The document lies under the provider's address, of which one final slash is dropped (AUTH-50)."""
        for provider in ("https://idp.example", "https://idp.example/"):
            self.assertEqual(discovery_uri(provider), "https://idp.example/.well-known/openid-configuration")
        self.assertEqual(discovery_uri("https://idp.example/a//"), "https://idp.example/a//.well-known/openid-configuration")

    def test_a_provider_with_a_query(self) -> None:
        """An address with a query is refused, since the document would be looked for elsewhere."""
        self.assertIn("has a query", self.assertRaises(KeysUnavailable, discovery_uri, "https://idp.example/?a=b").why)

    def test_names_the_keys(self) -> None:
        """A document of the same provider, a final slash aside, names the address of the keys."""
        for issuer in (PROVIDER, PROVIDER + "/"):
            for provider in (PROVIDER, PROVIDER + "/"):
                self.assertEqual(issuer_and_keys(document(issuer), provider), (issuer, KEYS))

    def test_another_provider(self) -> None:
        """A document of another provider is refused, however similar its name, and both are told (AUTH-50)."""
        for issuer in ("https://idp.example/realm", PROVIDER + "//", PROVIDER.upper(), PROVIDER + "/x", " " + PROVIDER):
            refusal = self.assertRaises(Malformed, issuer_and_keys, document(issuer), PROVIDER)
            self.assertEqual(refusal.why, f"its issuer is {issuer!r}, not {PROVIDER!r}")

    def test_incomplete_documents(self) -> None:
        """A document without issuer or address, or with one that is no text, is refused."""
        for issuer in (None, "", 5, [PROVIDER], True):
            self.assertEqual(
                self.assertRaises(Malformed, issuer_and_keys, document(issuer), PROVIDER).why, "it names no issuer"
            )
        for uri in (None, "", 5, [KEYS], {"uri": KEYS}):
            refusal = self.assertRaises(Malformed, issuer_and_keys, document(uri=uri), PROVIDER)
            self.assertEqual(refusal.why, "it names no jwks_uri")

    def test_no_documents(self) -> None:
        """A web page, an array and a document that says something twice are none."""
        twice = document()[:-1] + b', "issuer": "http://idp.example/realm"}'
        for text in (b"<html>", b"", b"[]", b"null", b"\xff", twice):
            self.assertRaises(Malformed, issuer_and_keys, text, PROVIDER)

    @given(st.text(max_size=30), st.text(max_size=30))
    def test_any_document(self, issuer: str, provider: str) -> None:
        """A document counts exactly if it is the provider's."""
        if issuer and is_same_provider(issuer, provider):
            self.assertEqual(issuer_and_keys(document(issuer), provider), (issuer, KEYS))
        else:
            self.assertRaises(Malformed, issuer_and_keys, document(issuer), provider)


class PublicationsTests(FetchCase):
    """``KeySetFetcher``, on a memory reactor."""

    def begin(self, source: KeySource, names: Names | None = None) -> Deferred[KeySet]:
        """Begin to fetch the keys of a source."""
        return Deferred.fromCoroutine(KeySetFetcher(self.client(names)).fetch_key_set(source))

    def answer(self, body: bytes) -> bytes:
        """Answer the newest request as the API server of a cluster would, and return its path."""
        protocol, transport = self.connect()
        path: bytes = transport.value().split(b" ")[1]
        accept = re.search(rb"\r\nAccept: ([^\r]*)\r\n", transport.value())
        fits = is_acceptable(accept[1].decode("ascii") if accept else None, path.decode("ascii"))
        status = b"200 OK" if fits else b"406 Not Acceptable"
        protocol.dataReceived(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body))
        protocol.connectionLost(Failure(ConnectionDone()))
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

    def test_its_own_text(self) -> None:
        """The text of a provider's issuer goes with its keys, as its document has it (AUTH-21, AUTH-50)."""
        for provider, issuer in (
            (PROVIDER, f"{PROVIDER}/"),
            (f"{PROVIDER}/", PROVIDER),
            (PROVIDER.replace("http", "HTTP"), PROVIDER),
        ):
            asked = self.begin(KeySource(provider, discovered=True))
            self.answer(document(issuer))
            self.answer(jwks())
            self.assertEqual(self.successResultOf(asked).issuer, issuer)
        asked = self.begin(KeySource(KEYS))
        self.answer(jwks())
        self.assertIsNone(self.successResultOf(asked).issuer)

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
        at_fault = f"{PROVIDER}/.well-known/openid-configuration: the discovery document is not usable: its jwks_uri"
        for uri, why in (
            ("/rel/keys", f"{at_fault} '/rel/keys' is no address of the form"),
            ("file:///etc/passwd", f"{at_fault} 'file:///etc/passwd' is no address of the form"),
            ("http://user:hunter2@keys.example/", f"{at_fault} 'http://…@keys.example/' is no address of the form"),
            ("http://127.0.0.1/jwks", "is loopback"),
            ("http://[::ffff:169.254.169.254]/jwks", "is link-local"),
        ):
            asked = self.begin(KeySource(PROVIDER, discovered=True))
            self.answer(document(uri=uri))
            self.assert_told(asked, why)

    def test_named_addresses_without_tls(self) -> None:
        """Where ``http`` isn't allowed, an address of it is the document's fault, and no connection is made (AUTH-50)."""
        source = KeySource("https://idp.example", discovered=True)
        client: Any = Shown(idp_example=document("https://idp.example"))
        client.demand_address = self.client(allow_http=False).demand_address
        asked = Deferred.fromCoroutine(KeySetFetcher(client).fetch_key_set(source))
        self.assert_told(asked, f"its jwks_uri {KEYS} is not https, and allow_http_providers is off")
        self.assertEqual(len(client.shown), 1)

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
            (b'{"keys": []}', "it has no usable key: the set is empty"),
            (b'{"keys": {}}', "it is no JWK set"),
            (jwks(jwk("weak", 1024)), "it has no usable key: key 1 'weak' is refused: it has 1024 bits"),
        ):
            asked = self.begin(KeySource(KEYS))
            self.answer(body)
            self.assert_told(asked, f"{KEYS}: the answer is not usable: {why}")


class Shown:
    """A guarded client that answers from ``documents`` and notes the token that each address is shown."""

    def __init__(self, **documents: bytes | KeysUnavailable) -> None:
        self.documents = {f"https://{host.replace('_', '.')}": answer for host, answer in documents.items()}
        self.shown: list[tuple[str, str | None]] = []

    def new_deadline(self) -> float:
        """The moment of the end."""
        return 5.0

    def demand_address(self, uri: str) -> str:
        """Any text is an address."""
        return uri

    async def fetch(self, uri: str, ca_cert: str | None, deadline: float, token: str | None) -> bytes:
        """The document of the host, whatever its path and port."""
        self.shown.append((uri, token))
        answer = next(answer for start, answer in self.documents.items() if uri.lower().startswith(start))
        if isinstance(answer, KeysUnavailable):
            raise answer
        return answer


class TokenTests(SynchronousTestCase):
    """Tokens that are shown where keys are fetched."""

    K8S = "https://k8s.example"

    def shown(self) -> Any:
        """A client, which passes for a guarded one."""
        return Shown()

    def fetched(self, source: KeySource, files: dict[str, Path] | None = None, **documents: Any) -> Any:
        """What was shown where while the keys of a source came."""
        client: Any = Shown(**{"k8s_example": jwks(), "other_example": jwks(), **documents})
        self.successResultOf(Deferred.fromCoroutine(KeySetFetcher(client, files or {}).fetch_key_set(source)))
        return client

    def refused(self, source: KeySource, files: dict[str, Path] | None = None, **documents: Any) -> tuple[str, Shown]:
        """Why the keys of a source can't be had, and what was shown."""
        client: Any = Shown(**{"k8s_example": jwks(), **documents})
        failure = self.failureResultOf(
            Deferred.fromCoroutine(KeySetFetcher(client, files or {}).fetch_key_set(source)), KeysUnavailable
        )
        return failure.value.why, client

    def file(self, text: bytes) -> Path:
        """A file that holds a token."""
        path = Path(self.mktemp()).resolve()
        path.write_bytes(text)
        return path

    def test_same_origin(self) -> None:
        """The variable's token is shown with both requests at the provider's own origin, however it is written (AUTH-67)."""
        for uri in ("https://k8s.example/keys", "https://K8S.example:443/keys", "https://k8s.example?x"):
            client = self.fetched(KeySource(uri, token="secret"))
            self.assertEqual(client.shown, [(uri, "secret")])
        about = document(self.K8S, "https://K8s.example:443/openid/v1/jwks")
        client = self.shown()
        client.documents = {"https://k8s.example/.well": about, "https://k8s.example:443": jwks()}
        source = KeySource(self.K8S, discovered=True, token="secret")
        self.successResultOf(Deferred.fromCoroutine(KeySetFetcher(client).fetch_key_set(source)))
        self.assertEqual([token for _, token in client.shown], ["secret", "secret"])

    def test_elsewhere(self) -> None:
        """A discovery document leads the token nowhere: not to another host, port or scheme, or to a name that looks alike
        (AUTH-67).
        """
        source = KeySource(self.K8S, discovered=True, token="secret")
        for place in (
            "https://other.example/keys",
            "https://k8s.example:8443/keys",
            "http://k8s.example/keys",
            "http://k8s.example:443/keys",
            "https://k8s.example.evil.example/keys",
            "https://evil.example/k8s.example",
            "https://k8s.example@evil.example/keys",
            "https://evil.example\\@k8s.example/keys",
            "https://k8s.example\t.evil.example/",
            "https://k8s.example./keys",
        ):
            client = self.shown()
            refusal = KeysUnavailable("refused")
            client.documents = {"https://k8s.example/.well": document(self.K8S, place), "": refusal}
            self.failureResultOf(Deferred.fromCoroutine(KeySetFetcher(client).fetch_key_set(source)), KeysUnavailable)
            self.assertEqual([token for _, token in client.shown], ["secret", None], place)

    def test_told_that_it_was_not_shown(self) -> None:
        """Who declares provider-uri for keys that are elsewhere, and take a token, is told why there are none (AUTH-70)."""
        source = KeySource(self.K8S, discovered=True, token="secret")
        why, client = self.refused(
            source,
            k8s_example=document(self.K8S, "https://other.example/keys"),
            other_example=KeysUnavailable("https://other.example/keys: the answer has status 401: no token was shown"),
        )
        self.assertIn("status 401", why)
        self.assertIn("jwks-token was not shown there, but only where provider-uri is", why)
        self.assertNotIn("secret", why)
        self.assertEqual(len(client.shown), 2)

    def test_file(self) -> None:
        """A file's token is read for each fetch, shown at its origin alone, and gives way to the variable's (AUTH-68)."""
        path = self.file(b"first\n")
        files = {"https://k8s.example:443": path}
        for text in (b"first\n", b" second "):
            path.write_bytes(text)
            self.assertEqual(self.fetched(KeySource(f"{self.K8S}/keys"), files).shown[0][1], text.strip().decode())
        path.write_bytes(b"a" * (16 * 1024) + b"\n")
        self.assertEqual(self.fetched(KeySource(f"{self.K8S}/keys"), files).shown[0][1], "a" * (16 * 1024))
        for uri in ("https://other.example/keys", "https://k8s.example:8443/keys"):
            self.assertIsNone(self.fetched(KeySource(uri), files).shown[0][1])
        self.assertEqual(self.fetched(KeySource(self.K8S, token="own"), files).shown[0][1], "own")

    def test_file_without_a_token(self) -> None:
        """Without a readable file that holds one token nothing is asked, and no path and no content is told (AUTH-68)."""
        texts = (b"", b"\n", b"two words", b"a\r\nX: y", b"\xff", b"s" * (16 * 1024 + 1), b"s" * 100_000)
        for path in (*map(self.file, texts), Path(self.mktemp()), Path("/")):
            why, client = self.refused(KeySource(f"{self.K8S}/keys"), {"https://k8s.example:443": path})
            self.assertIn("https://k8s.example/keys: the file of jwks-token-files for it", why)
            if path.name:
                self.assertNotIn(path.name, why)
            self.assertEqual(client.shown, [])
