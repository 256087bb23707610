"""Tests of ``svc.authn.providers.oidc_endpoints`` without a network: a test plays the provider, a hostile one above all."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any
from urllib.parse import parse_qsl

import attrs
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from svc.authn.providers.oidc_endpoints import MAX_AGE, MAX_PER_ADDRESS, MAX_PER_PROVIDER, SPENT_SECONDS, OidcEndpoints
from svc.model.errors import UNLISTED, KeysUnavailable
from svc.model.oidc import ClientRefused, CodeLogin, CodeRefused, OidcClient, OidcIssuer, OidcMetadata, ProviderUnavailable
from svc.net.fetch import GuardedClient
from svc.net.trust import client_tls
from tests.authn.providers.names import Names
from tests.net.test_fetch import Case as FetchCase

ISSUER = OidcIssuer("http://idp.example/realm")
CLIENT = OidcClient(ISSUER, "svc:1", "s&cret +/\u00e4", "openid", "http://127.0.0.1:8888/callback")
DOCUMENT: dict[str, object] = {
    "issuer": ISSUER.uri,
    "authorization_endpoint": "http://login.example/authorize",
    "token_endpoint": "http://tokens.example/token?realm=1",
    "jwks_uri": "http://idp.example/keys",
}
METADATA = OidcMetadata("http://login.example/authorize", "http://tokens.example/token?realm=1")


def login(code: str = "c0de", nonce: str = "nonce", client_ip: str = "192.0.2.1", verifier: str | None = None) -> CodeLogin:
    """A login with a code."""
    return CodeLogin("acme", None, code.encode(), client_ip, "corp", nonce=nonce, verifier=verifier)


class Case(FetchCase):
    """Providers on a memory reactor, whose hosts are public."""

    def setUp(self) -> None:
        """No time has passed and nobody was asked."""
        super().setUp()
        self.answered = 0
        self.providers = self.made()

    def made(self, *, allow_http: bool = True, names: Names | None = None) -> OidcEndpoints:
        """Providers that are asked by a guarded client."""
        self.names = names or Names(["93.184.216.34"])
        client = GuardedClient(self.reactor, self.names, client_tls, allow_http=allow_http, limit=20_000)
        return OidcEndpoints(client, self.reactor, self.reactor, 10.0)

    def metadata(self, issuer: OidcIssuer = ISSUER) -> Deferred[OidcMetadata]:
        """Ask what a provider says of itself."""
        return Deferred.fromCoroutine(self.providers.read_metadata(issuer))

    def exchange(self, wanted: CodeLogin, client: OidcClient = CLIENT) -> Deferred[bytes]:
        """Exchange a code."""
        return Deferred.fromCoroutine(self.providers.exchange_code(client, wanted))

    def answer(self, body: object, status: str = "200 OK", headers: str = "") -> str:
        """Answer the next question, and return it."""
        protocol, transport = self.next_question()
        text = body if isinstance(body, bytes) else json.dumps(body).encode("utf-8")
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(text)}\r\n{headers}\r\n"
        protocol.dataReceived(head.encode("ascii") + text)
        return str(transport.value().decode("ascii"))

    def next_question(self) -> tuple[Any, StringTransport]:
        """Let the next connection be made."""
        factory = self.reactor.tcpClients[self.answered][2]
        self.answered += 1
        protocol = factory.buildProtocol(None)
        transport = StringTransport()
        protocol.makeConnection(transport)
        return protocol, transport

    def known(self) -> None:
        """Have the provider known."""
        asked = self.metadata()
        self.answer(DOCUMENT)
        self.successResultOf(asked)

    @property
    def questions(self) -> int:
        """How many questions were asked."""
        return len(self.reactor.tcpClients)


class MetadataTests(Case):
    """What a provider says of itself."""

    def test_interface(self) -> None:
        """The interface is provided."""

    def test_read(self) -> None:
        """The document is read from where discovery has it, and says where everything else is (OIDC-7)."""
        asked = self.metadata()
        question = self.answer({**DOCUMENT, "device_authorization_endpoint": "http://idp.example/device"})
        self.assertTrue(question.startswith("GET /realm/.well-known/openid-configuration HTTP/1.1\r\n"))
        expected = OidcMetadata(
            "http://login.example/authorize",
            "http://tokens.example/token?realm=1",
            device_endpoint="http://idp.example/device",
        )
        self.assertEqual(self.successResultOf(asked), expected)

    def test_name(self) -> None:
        """A final slash makes no other provider, and what it calls itself then is told (OIDC-30)."""
        for asked_as, said, called in (("", "", None), ("/", "/", None), ("", "/", "/"), ("/", "", "")):
            self.providers = self.made()
            asked = self.metadata(OidcIssuer(ISSUER.uri + asked_as))
            self.answer({**DOCUMENT, "issuer": ISSUER.uri + said})
            expected = None if called is None else ISSUER.uri + called
            self.assertEqual(self.successResultOf(asked).declared_issuer, expected)

    def test_more(self) -> None:
        """What the provider takes from clients, and says to browsers, is known from there (OIDC-14)."""
        for more, posts, names in (
            ({}, False, False),
            ({"token_endpoint_auth_methods_supported": ["client_secret_post"]}, True, False),
            ({"token_endpoint_auth_methods_supported": ["client_secret_post", "client_secret_basic"]}, False, False),
            ({"token_endpoint_auth_methods_supported": "client_secret_post"}, False, False),
            ({"authorization_response_iss_parameter_supported": True}, False, True),
            ({"authorization_response_iss_parameter_supported": "true"}, False, False),
        ):
            self.providers = self.made()
            asked = self.metadata()
            self.answer({**DOCUMENT, **more})
            found = self.successResultOf(asked)
            self.assertEqual((found.posts_secret, found.names_issuer), (posts, names))

    def test_hostile_documents(self) -> None:
        """A document of another provider, or with an address that is none, is not used (OIDC-7, AUTH-50)."""
        for changes, why in (
            ({"issuer": "http://evil.example"}, "its issuer is 'http://evil.example'"),
            ({"issuer": ["http://idp.example/realm"]}, "it names no issuer"),
            ({"token_endpoint": None}, "it names no token_endpoint"),
            ({"authorization_endpoint": 7}, "it names no authorization_endpoint"),
            ({"authorization_endpoint": "javascript:alert(1)"}, "is no address"),
            ({"authorization_endpoint": "http://login.example/#part"}, "is no address"),
            ({"authorization_endpoint": "http://login.example/a b"}, "is no address"),
            ({"token_endpoint": "http://user@idp.example/"}, "is no address"),
            ({"device_authorization_endpoint": "file:///etc/passwd"}, "is no address"),
            ({"token_endpoint": "/t"}, "its token_endpoint '/t' is no address of the form https://host[:port]/path"),
        ):
            self.providers = self.made()
            asked = self.metadata()
            self.answer({**DOCUMENT, **changes})
            refused = self.failureResultOf(asked, ProviderUnavailable).value
            self.assertIn(why, refused.why)
            at_fault = f"{ISSUER.uri}/.well-known/openid-configuration: the discovery document is not usable: it"
            self.assertTrue(refused.why.startswith(at_fault), refused.why)
        for text in (b"", b"[]", b"<html>", b'{"issuer": "a", "issuer": "b"}'):
            self.providers = self.made()
            asked = self.metadata()
            self.answer(text)
            self.failureResultOf(asked, ProviderUnavailable)

    def test_absent_members(self) -> None:
        """A member of the document that is null or empty is as good as absent, as serializers write them (AUTH-50)."""
        optional = (
            "device_authorization_endpoint",
            "token_endpoint_auth_methods_supported",
            "authorization_response_iss_parameter_supported",
            "code_challenge_methods_supported",
            "userinfo_endpoint",
            "jwks_uri",
        )
        empty: tuple[object, ...] = (None, "", [], {})
        for value in empty:
            self.providers = self.made()
            asked = self.metadata()
            self.answer({**DOCUMENT, **dict.fromkeys(optional, value)})
            self.assertEqual(self.successResultOf(asked), METADATA)
            for name in ("issuer", "authorization_endpoint", "token_endpoint"):
                self.providers = self.made()
                asked = self.metadata()
                self.answer({**DOCUMENT, name: value})
                self.assertIn(f"it names no {name}", self.failureResultOf(asked, ProviderUnavailable).value.why)

    def test_check(self) -> None:
        """Endpoints that are known, and whose host for tokens is public, can be used; no request is made there (OIDC-30)."""
        checked = Deferred.fromCoroutine(self.providers.check_endpoints(ISSUER))
        self.answer(DOCUMENT)
        self.successResultOf(checked)
        self.assertEqual((self.names.asked, self.questions), (["idp.example", "tokens.example"], 1))

    def test_redirected(self) -> None:
        """A redirect is not followed (NET-14)."""
        asked = self.metadata()
        self.answer({}, "302 Found", "Location: http://evil.example/\r\n")
        self.assertIn("redirects are not followed", self.failureResultOf(asked, ProviderUnavailable).value.why)
        self.assertEqual(self.questions, 1)

    def test_downgrade(self) -> None:
        """An ``https`` provider can't lead elsewhere than to ``https``, though ``http`` is allowed (OIDC-7)."""
        client = GuardedClient(self.reactor, Names([]), client_tls, allow_http=True)
        uri = "http://idp.example/token"
        refusal = self.assertRaises(KeysUnavailable, client.demand_address, uri, "https://idp.example")
        self.assertIn("is not https, and its provider is", refusal.why)
        self.assertEqual(client.demand_address(uri, "http://idp.example"), uri)
        self.assertEqual(client.demand_address("https://idp.example/", "https://idp.example"), "https://idp.example/")

    def test_shared(self) -> None:
        """All who wait share one fetch, and a client that leaves ends no other's wait (OIDC-7)."""
        one, other, third = self.metadata(), self.metadata(), self.metadata()
        one.cancel()
        self.failureResultOf(one)
        self.answer(DOCUMENT)
        self.assertEqual((self.successResultOf(other), self.successResultOf(third)), (METADATA, METADATA))
        self.assertEqual(self.questions, 1)

    def test_kept(self) -> None:
        """A document is used for five minutes, and the old one goes on while there is no newer one (OIDC-7)."""
        self.known()
        self.reactor.advance(MAX_AGE - 1)
        self.successResultOf(self.metadata())
        self.assertEqual(self.questions, 1)
        self.reactor.advance(1)
        asked = self.metadata()
        self.answer({}, "500 No")
        self.assertEqual(self.successResultOf(asked), METADATA)
        for seconds, questions in ((9, 2), (1, 3)):
            self.reactor.advance(seconds)
            asked = self.metadata()
            if questions == 3:
                self.answer({**DOCUMENT, "token_endpoint": "http://new.example/"})
            self.successResultOf(asked)
            self.assertEqual(self.questions, questions)
        self.assertEqual(self.successResultOf(self.metadata()).token_endpoint, "http://new.example/")

    def test_away(self) -> None:
        """A provider that is away is asked again after an interval, however many logins come (OIDC-7)."""
        asked = self.metadata()
        self.answer({}, "503 No")
        refusal = self.failureResultOf(asked, ProviderUnavailable).value
        self.assertGreaterEqual(refusal.retry_after or 0, 1)
        for _ in range(50):
            self.failureResultOf(self.metadata(), ProviderUnavailable)
        self.assertEqual(self.questions, 1)
        self.reactor.advance(10)
        asked = self.metadata()
        self.answer(DOCUMENT)
        self.assertEqual(self.successResultOf(asked), METADATA)


class ExchangeTests(Case):
    """Codes for id tokens."""

    def setUp(self) -> None:
        """A provider that is known."""
        super().setUp()
        self.known()

    def test_question(self) -> None:
        """The token endpoint is asked where the document says, as RFC 6749 and RFC 7636 have it (OIDC-14)."""
        asked = self.exchange(login("a+b/c", verifier="v" * 43))
        head, _, body = self.answer({"id_token": "x.y.z", "access_token": "at"}).partition("\r\n\r\n")
        lines = head.split("\r\n")
        self.assertEqual(lines[0], "POST /token?realm=1 HTTP/1.1")
        for line in ("Host: tokens.example", "Accept-Encoding: identity", f"Content-Length: {len(body)}"):
            self.assertIn(line, lines)
        self.assertIn("Content-Type: application/x-www-form-urlencoded", lines)
        (authorization,) = (line for line in lines if line.startswith("Authorization: "))
        basic = b64decode(authorization.removeprefix("Authorization: Basic ")).decode("ascii")
        self.assertEqual(basic, "svc%3A1:s%26cret%20%2B%2F%C3%A4")
        fields = dict(parse_qsl(body, strict_parsing=True))
        expected = {"code": "a+b/c", "redirect_uri": "http://127.0.0.1:8888/callback", "code_verifier": "v" * 43}
        self.assertEqual(fields, {"grant_type": "authorization_code", **expected})
        self.assertEqual(self.successResultOf(asked), b"x.y.z")

    def test_secret_in_the_form(self) -> None:
        """A provider that takes no HTTP Basic is sent id and secret in the form (OIDC-14)."""
        self.providers = self.made()
        asked = self.exchange(login(), OidcClient(ISSUER, "svc", "s&cret", "openid"))
        self.answer({**DOCUMENT, "token_endpoint_auth_methods_supported": ["client_secret_post", "private_key_jwt"]})
        head, _, body = self.answer({"id_token": "x.y.z"}).partition("\r\n\r\n")
        self.assertNotIn("Authorization", head)
        fields = dict(parse_qsl(body))
        self.assertEqual((fields["client_id"], fields["client_secret"]), ("svc", "s&cret"))
        self.assertNotIn("redirect_uri", fields)
        self.successResultOf(asked)

    def test_access_tokens(self) -> None:
        """An answer without an id token, or with one that is no text, has none: the access token is not looked at
        (OIDC-15).
        """
        others: list[dict[str, object]] = [{}, {"id_token": None}, {"id_token": ["x"]}, {"id_token": 7}, {"id_token": ""}]
        for number, more in enumerate(others):
            asked = self.exchange(login(f"code-{number}", f"nonce-{number}"))
            self.answer({"access_token": "x.y.z", "token_type": "Bearer", **more})
            self.assertEqual(self.successResultOf(asked), b"")

    def test_refusals(self) -> None:
        """Answers of the provider are told apart: a bad code, a bad client, and what is no answer (OIDC-16)."""
        for number, (status, body, kind) in enumerate(
            (
                ("400 Bad", {"error": "invalid_grant", "error_description": "expired"}, CodeRefused),
                ("401 No", {"error": "invalid_grant"}, CodeRefused),
                ("400 Bad", {"error": "invalid_request"}, CodeRefused),
                ("401 No", {"error": "invalid_client"}, ClientRefused),
                ("400 Bad", {"error": "unauthorized_client"}, ClientRefused),
                ("400 Bad", {"error": "unsupported_grant_type"}, ClientRefused),
                ("200 OK", {"ok": False, "error": "bad_client_secret"}, ClientRefused),
                ("200 OK", {"ok": False, "error": "invalid_client_id"}, ClientRefused),
                ("200 OK", {"error": "incorrect_client_credentials"}, ClientRefused),
                ("200 OK", {"ok": False, "error": "invalid_code"}, CodeRefused),
                ("200 OK", {"error": "temporarily_unavailable"}, ProviderUnavailable),
                ("400 Bad", {"error": "temporarily_unavailable"}, ProviderUnavailable),
                ("400 Bad", {"error": "server_error"}, ProviderUnavailable),
                ("400 Bad", {"error": 7}, ProviderUnavailable),
                ("400 Bad", {}, ProviderUnavailable),
                ("400 Bad", b"<html>", ProviderUnavailable),
                ("404 No", {"error": "invalid_grant"}, ProviderUnavailable),
                ("429 No", {"error": "slow_down"}, ProviderUnavailable),
                ("500 No", {"error": "invalid_grant"}, ProviderUnavailable),
                ("302 Found", {"id_token": "x"}, ProviderUnavailable),
                ("200 OK", b"id_token=x", ProviderUnavailable),
                ("200 OK", b'{"id_token": "x", "id_token": "y"}', ProviderUnavailable),
                ("200 OK", {"id_token": None, "error": "invalid_code"}, CodeRefused),
                ("200 OK", [{"id_token": "x"}], ProviderUnavailable),
            )
        ):
            asked = self.exchange(login(f"code-{number}", f"nonce-{number}"))
            self.answer(body, status, "Location: http://evil.example/\r\n" if status.startswith("302") else "")
            refusal = self.failureResultOf(asked, kind).value
            if kind is not ProviderUnavailable and isinstance(body, dict):
                self.assertTrue(refusal.why.endswith(f": the answer is {body['error']!r}"), refusal.why)
            self.assertNotIn("s&cret", refusal.why)
            self.assertNotIn(f"code-{number}", refusal.why)

    def test_refused_client(self) -> None:
        """That a client was refused is remembered, since the first time, until it has exchanged a code; one with another
        secret was never refused, and a refused code is no news of the client (OIDC-30).
        """

        def exchanged(code: str, body: object, status: str, client: OidcClient = CLIENT) -> None:
            asked = self.exchange(login(code, code), client)
            self.answer(body, status)
            asked.addErrback(lambda failure: failure.trap(ClientRefused, CodeRefused, ProviderUnavailable))
            self.successResultOf(asked)

        self.assertIsNone(self.providers.find_client_refusal(CLIENT))
        exchanged("a", {"error": "invalid_grant"}, "400 Bad")
        self.assertIsNone(self.providers.find_client_refusal(CLIENT))
        began = self.reactor.seconds()
        for code in ("b", "c"):
            exchanged(code, {"error": "invalid_client"}, "401 No", attrs.evolve(CLIENT, redirect_uri="https://svc.example/"))
            self.reactor.advance(20)
        for code, body in (("d", {"error": "invalid_grant"}), ("e", {})):
            exchanged(code, body, "400 Bad")
        refusal = self.providers.find_client_refusal(CLIENT)
        assert refusal is not None
        self.assertEqual((refusal.since, "invalid_client" in refusal.why), (began, True))
        self.assertNotIn(CLIENT.secret, repr(self.providers._refused))
        for changed in ({"secret": "other"}, {"id": "other"}, {"issuer": OidcIssuer("http://other.example")}):
            self.assertIsNone(self.providers.find_client_refusal(attrs.evolve(CLIENT, **changed)))
        exchanged("f", {"id_token": "x"}, "200 OK")
        self.assertIsNone(self.providers.find_client_refusal(CLIENT))

    def test_elsewhere(self) -> None:
        """A redirect of the token endpoint is followed nowhere: code and secret go to no other host (OIDC-14)."""
        asked = self.exchange(login())
        self.answer({}, "307 Temporary", "Location: http://evil.example/\r\n")
        self.failureResultOf(asked, ProviderUnavailable)
        self.assertEqual([host for host, *_ in self.reactor.tcpClients], ["93.184.216.34"] * 2)
        self.assertEqual(self.names.asked, ["idp.example", "tokens.example"])

    def test_private_endpoints(self) -> None:
        """A token endpoint in a private network is not asked, wherever the document is (OIDC-14, OIDC-30, NET-9)."""
        self.providers = self.made()
        asked = self.metadata()
        self.answer({**DOCUMENT, "token_endpoint": "http://169.254.169.254/latest"})
        self.successResultOf(asked)
        before = self.questions
        refusal = self.failureResultOf(self.exchange(login()), ProviderUnavailable).value
        self.assertIn("its address is link-local", refusal.why)
        # The status finds that without a login (OIDC-30).
        checked = Deferred.fromCoroutine(self.providers.check_endpoints(ISSUER))
        refusal = self.failureResultOf(checked, ProviderUnavailable).value
        self.assertEqual(refusal.why, f"http://169.254.169.254/latest: its address is link-local, and {UNLISTED}")
        self.assertEqual(self.questions, before)

    def test_slow(self) -> None:
        """An answer that doesn't end in time ends the connection, as one that is too long does (NET-15)."""
        asked = self.exchange(login())
        protocol, _ = self.next_question()
        protocol.dataReceived(b"HTTP/1.1 200 OK\r\n\r\n{")
        self.reactor.advance(4.9)
        self.assertNoResult(asked)
        self.reactor.advance(0.2)
        self.assertIn("no complete answer within 5 seconds", self.failureResultOf(asked, ProviderUnavailable).value.why)
        asked = self.exchange(login("other", "other"))
        protocol, _ = self.next_question()
        protocol.dataReceived(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(30):
            protocol.dataReceived(b"x" * 1000)
        # As the reactor does after the transport was aborted.
        protocol.connectionLost(Failure(ConnectionDone()))
        self.assertIn("longer than 20000 bytes", self.failureResultOf(asked, ProviderUnavailable).value.why)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_replayed(self) -> None:
        """A code or nonce that was sent isn't sent again for a while, whatever the provider said to it (OIDC-17)."""
        asked = self.exchange(login("c1", "n1"))
        # While the first is under way, too.
        self.assertTrue(self.failureResultOf(self.exchange(login("c1", "n1")), CodeRefused).value.replayed)
        self.answer({"id_token": "x.y.z"})
        self.successResultOf(asked)
        asked = self.exchange(login("c2", "n2"))
        self.answer({"error": "invalid_grant"}, "400 Bad")
        self.assertFalse(self.failureResultOf(asked, CodeRefused).value.replayed)
        before = self.questions
        for code, nonce in (("c1", "n1"), ("c1", "n9"), ("c9", "n1"), ("c2", "n2"), ("c2", "n9"), ("c9", "n2")):
            self.assertTrue(self.failureResultOf(self.exchange(login(code, nonce)), CodeRefused).value.replayed)
        self.assertEqual(self.questions, before)
        # A code isn't a nonce, and belongs to one client.
        for wanted, client in ((login("n1", "c1"), CLIENT), (login("c1", "n1"), OidcClient(ISSUER, "other", "x", "openid"))):
            asked = self.exchange(wanted, client)
            self.answer({"id_token": "x.y.z"})
            self.successResultOf(asked)
        self.reactor.advance(SPENT_SECONDS)
        asked = self.exchange(login("c1", "n1"))
        self.answer(DOCUMENT)
        self.answer({"error": "invalid_grant"}, "400 Bad")
        self.assertFalse(self.failureResultOf(asked, CodeRefused).value.replayed)

    def test_unanswered(self) -> None:
        """A code to which no answer came may be sent again (OIDC-17)."""
        asked = self.exchange(login())
        self.reactor.advance(6)
        self.failureResultOf(asked, ProviderUnavailable)
        self.answered += 1
        asked = self.exchange(login())
        self.answer({"id_token": "x.y.z"})
        self.assertEqual(self.successResultOf(asked), b"x.y.z")

    def test_places(self) -> None:
        """One address has few places with a provider, a provider has its own, and all come free again (OIDC-18)."""
        under_way = [self.exchange(login(f"c{n}", f"n{n}")) for n in range(MAX_PER_ADDRESS)]
        refusal = self.failureResultOf(self.exchange(login("x", "x")), ProviderUnavailable).value
        self.assertIn("than there is room for", refusal.why)
        under_way += [
            self.exchange(login(f"d{n}", f"d{n}", f"2001:db8:0:{n}::1")) for n in range(MAX_PER_PROVIDER - MAX_PER_ADDRESS)
        ]
        self.failureResultOf(self.exchange(login("y", "y", "198.51.100.9")), ProviderUnavailable)
        elsewhere = self.metadata(OidcIssuer("http://other.example"))
        self.assertNoResult(elsewhere)
        elsewhere.cancel()
        self.failureResultOf(elsewhere)
        under_way[0].cancel()
        self.failureResultOf(under_way[0])
        self.reactor.advance(6)
        for asked in under_way[1:]:
            self.failureResultOf(asked, ProviderUnavailable)
        self.answered = self.questions
        asked = self.exchange(login("x", "x"))
        self.answer({"id_token": "x.y.z"})
        self.successResultOf(asked)

    @given(st.binary(max_size=60) | st.dictionaries(st.text(max_size=5), st.text(max_size=5) | st.none()))
    def test_any_answer(self, body: object) -> None:
        """Whatever a provider answers, the outcome is an id token or a refusal."""
        self.providers = self.made()
        asked = self.exchange(login())
        self.answer(DOCUMENT)
        self.answer(body)
        asked.addErrback(lambda failure: failure.trap(ProviderUnavailable, CodeRefused, ClientRefused))
        self.successResultOf(asked)
