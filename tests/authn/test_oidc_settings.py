"""Tests of ``svc.authn.oidc_settings``: what variables mean, and what is wrong with them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.authn.oidc_settings import LONGEST_LIFETIME, OidcConfiguration, parse_oidc_values
from svc.authn.settings import Misconfiguration
from svc.model.authentication import KeySource, Problem
from svc.model.dialect import NATIVE
from svc.model.oidc import OidcClient, OidcIssuer
from tests.authn.providers.authority import Authority
from tests.authn.test_settings import BROKEN

PEM = Authority().pem
COMMON = {"provider-uri": "https://idp.example", "client-id": "svc"}
CODES = {"client-secret": "hidden", "claim-mapping": "email"}
TOKENS = {"id-token-user-property": "sub"}

Given = dict[str, str | Problem | None]


class SettingsTests(SynchronousTestCase):
    """``parse_oidc_values``."""

    def understood(self, **values: str | None) -> OidcConfiguration:
        """The meaning of sound values beside those for codes; underscores stand for dashes."""
        more = {name.replace("_", "-"): value for name, value in values.items()}
        meaning = parse_oidc_values({**COMMON, **CODES, **more}, NATIVE)
        assert isinstance(meaning, OidcConfiguration), meaning
        return meaning

    def faults(self, values: Given) -> str:
        """What is wrong with these."""
        meaning = parse_oidc_values(values, NATIVE)
        assert isinstance(meaning, Misconfiguration), meaning
        self.assertTrue(meaning.problems)
        for problem in meaning.problems:
            self.assertTrue(problem.remedy)
            self.assertNotIn("hidden", problem.what)
        return " ".join(problem.what for problem in meaning.problems)

    def test_forms(self) -> None:
        """Which variables are declared decides what is taken: codes, id tokens or both (OIDC-3)."""
        for declared, codes, tokens in (
            (CODES, True, False),
            (TOKENS, False, True),
            ({**CODES, **TOKENS}, True, True),
        ):
            meaning = parse_oidc_values({**COMMON, **declared}, NATIVE)
            assert isinstance(meaning, OidcConfiguration)
            self.assertEqual((meaning.client is not None, meaning.token_claim is not None), (codes, tokens))
            self.assertEqual((meaning.issuer, meaning.audience), (None, "svc"))
            self.assertEqual(meaning.keys, KeySource("https://idp.example", discovered=True))

    def test_required(self) -> None:
        """Each variable that is missing is a fault, and all faults are told together (OIDC-3, AUTH-29)."""
        for values, missing in (
            ({}, ("provider-uri", "client-id", "client-secret", "claim-mapping")),
            (COMMON, ("client-secret", "claim-mapping")),
            (TOKENS, ("provider-uri", "client-id")),
            ({**COMMON, **TOKENS, "client-secret": "hidden"}, ("claim-mapping",)),
            ({**COMMON, **TOKENS, "claim-mapping": "sub"}, ("client-secret",)),
        ):
            wanted = " ".join(f"The variable {name} is not declared." for name in missing)
            self.assertEqual(self.faults(dict(values)), wanted)

    def test_values(self) -> None:
        """A declared variable has a value; those that may be absent may also never have been set (OIDC-4)."""
        for name in (*COMMON, *CODES, *TOKENS, "ca-cert"):
            for value in (None, "", " "):
                self.assertIn(f"The variable {name} is", self.faults({**COMMON, **CODES, **TOKENS, name: value}))
        for name in ("redirect-uri", "response-type", "provider-scope", "token-ttl", "name"):
            self.understood(**{name: None})
            self.assertIn(f"The variable {name} is blank", self.faults({**COMMON, **CODES, name: " "}))
        self.assertEqual(self.faults({**COMMON, **CODES, "name": Problem("It is closed.", "Open it.")}), "It is closed.")

    def test_spelling(self) -> None:
        """A dash and an underscore are the same in names, and a name in both spellings is a fault (OIDC-2)."""
        values: Given = {name.replace("-", "_"): value for name, value in {**COMMON, **CODES}.items()}
        values["redirect_uri"] = "http://127.0.0.1:8888/callback"
        meaning = parse_oidc_values(values, NATIVE)
        assert isinstance(meaning, OidcConfiguration)
        assert meaning.client is not None
        self.assertEqual(meaning.client.redirect_uri, "http://127.0.0.1:8888/callback")
        self.assertIn("beside each other", self.faults({**COMMON, **CODES, "client_id": "other"}))

    def test_fragments(self) -> None:
        """A redirect-uri has no fragment, which no provider registers (OIDC-2, OIDC-3; RFC 6749 3.1.2)."""
        for text in ("https://svc.example/cb#x", "https://svc.example/cb#", "#", "urn:x#y"):
            faults = self.faults({**COMMON, **CODES, "redirect-uri": text})
            self.assertEqual(faults, "The variable redirect-uri has a fragment (#).")

    def test_authorities(self) -> None:
        """Named authorities are those of keys and of everything else, and need https; with others nothing is fetched
        (OIDC-6, AUTH-29).
        """
        meaning = self.understood(ca_cert=PEM)
        self.assertEqual(meaning.provider, OidcIssuer("https://idp.example", PEM))
        self.assertEqual(meaning.keys, KeySource("https://idp.example", discovered=True, ca_cert=PEM))
        for text, fault in BROKEN.items():
            values: Given = {**COMMON, **CODES, "ca-cert": text}
            self.assertEqual(self.faults(values), f"The variable ca-cert {fault}.")
            self.assertIsNone(parse_oidc_values(values, NATIVE).keys)
        http: Given = {**COMMON, **CODES, "ca-cert": PEM, "provider-uri": "http://idp.example"}
        self.assertIn("begins with http:", self.faults(http))

    def test_algorithms(self) -> None:
        """Id tokens may be signed with what the variable lists, and with RSA without it (OIDC-2, AUTH-17)."""
        self.assertEqual(self.understood().algorithms, ("RS256", "RS384", "RS512"))
        meaning = self.understood(algorithms="ES256, RS256")
        self.assertEqual(meaning.algorithms, ("RS256", "ES256"))
        self.assertEqual(meaning.keys, KeySource("https://idp.example", True, algorithms=("RS256", "ES256")))
        for text in ("none", "HS256", "RS256 es256", "*"):
            self.assertIn("The variable algorithms is not usable", self.faults({**COMMON, **CODES, "algorithms": text}))
        self.assertIn("The variable algorithms is declared", self.faults({**COMMON, **CODES, "algorithms": None}))

    def test_scopes(self) -> None:
        """Scopes are added to those that every login asks for, each once (OIDC-2)."""
        client = OidcClient(OidcIssuer("https://idp.example"), "svc", "hidden", "openid email profile groups")
        self.assertEqual(self.understood(provider_scope="groups  email\topenid").client, client)
        self.assertIn("is no scope", self.faults({**COMMON, **CODES, "provider-scope": 'a "b"'}))

    def test_odd_values(self) -> None:
        """A response type other than code, a duration or an address that is none: each is a fault (OIDC-4, OIDC-5)."""
        for name, value in (
            *(("response-type", text) for text in ("id_token", "code id_token", "CODE")),
            *(("token-ttl", text) for text in ("60", "PT", "P", "PT0S", "1h", "-PT5M", "PT5", "PT1M1H", "P1.5D", "pt5m")),
            *(
                ("redirect-uri", text)
                for text in ("callback", "/callback", "http://x y/", "http:", "https://\u00e4.example")
            ),
        ):
            self.assertIn(f"The variable {name} is", self.faults({**COMMON, **CODES, name: value}))

    @given(st.text(max_size=20) | st.text("PTYMWDHS0123456789", max_size=20).map("P{}".format))
    def test_durations(self, text: str) -> None:
        """Whatever is set as a duration, it is a fault or a time of some seconds to five hours (OIDC-5)."""
        meaning = parse_oidc_values({**COMMON, **CODES, "token-ttl": text}, NATIVE)
        if isinstance(meaning, OidcConfiguration):
            self.assertTrue(0 < meaning.lifetime <= LONGEST_LIFETIME)

    def test_secrets_are_not_shown(self) -> None:
        """A configuration that is printed doesn't show the client's secret."""
        self.assertNotIn("hidden", repr(self.understood()))
