"""Tests of ``svc.authn.settings``: what variables mean, and all that can be wrong with them."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.authn.settings import VARIABLES, Configuration, Misconfiguration, open_values, parse_jwt_values
from svc.crypto.vault import Vault
from svc.model.authentication import AuthenticatorSettings, KeySource, Problem
from svc.model.dialect import CONJUR, NATIVE, Dialect
from svc.model.key_sets import ALGORITHMS, KeySet
from svc.model.query_results import Sealed
from tests.authn.providers.authority import Authority
from tests.authn.world import PROVIDER, URI
from tests.signing import jwk, jwk_for, jwks

#: Keys in a variable.
KEYS = json.dumps({"type": "jwks", "value": json.loads(jwks())})

PEM = Authority().pem

#: Texts that are no certificates of authorities, and why.
BROKEN = {
    "MIIB": "holds no whole certificate in PEM, from BEGIN CERTIFICATE to END CERTIFICATE",
    PEM.replace("\n", "\\n"): "holds no whole certificate in PEM, from BEGIN CERTIFICATE to END CERTIFICATE",
    PEM[:200]: "holds no whole certificate in PEM, from BEGIN CERTIFICATE to END CERTIFICATE",
    PEM + PEM[:200]: "holds a broken certificate, or something else than certificates",
    PEM + "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n": (
        "holds a broken certificate, or something else than certificates"
    ),
    PEM[:200] + PEM[-28:]: "is not usable: certificate 1 of 1 is broken",
}

#: A value for each variable with which it can stand beside ``jwks-uri``.
GOOD = {
    "jwks-uri": URI,
    "ca-cert": PEM,
    "jwks-token": "abc.d-e_f~+/==",
    "algorithms": "ES256, RS256",
    "issuer": "i",
    "audience": "a",
    "enforced-claims": "ref",
    "claim-aliases": "branch: ref",
    "token-app-property": "app",
    "identity-path": "/p",
}


class Case(SynchronousTestCase):
    """Variables as keyword arguments; underscores stand for dashes."""

    def understood(self, dialect: Dialect, **values: str | None) -> Configuration | Misconfiguration:
        """What the variables mean."""
        return parse_jwt_values({name.replace("_", "-"): text for name, text in values.items()}, dialect)

    def faults(self, dialect: Dialect = NATIVE, /, **values: str | None) -> tuple[str, ...]:
        """What is wrong with the variables; each fault has a remedy."""
        understood = self.understood(dialect, **values)
        if isinstance(understood, Configuration):
            return ()
        for problem in understood.problems:
            for sentence in (problem.what, problem.remedy):
                self.assertRegex(sentence, r"^['A-Z].*\.$")
                self.assertTrue(sentence.isprintable(), sentence)
        return tuple(problem.what for problem in understood.problems)

    def fault(self, dialect: Dialect = NATIVE, /, **values: str | None) -> str:
        """The one thing that is wrong."""
        (fault,) = self.faults(dialect, **values)
        return fault

    def good(self, dialect: Dialect = NATIVE, /, **values: str | None) -> Configuration:
        """What the variables mean, with which nothing is wrong."""
        understood = self.understood(dialect, **values)
        assert isinstance(understood, Configuration), understood
        return understood


class ConfigurationTests(Case):
    """``parse_jwt_values``."""

    def test_everything(self) -> None:
        """Every variable has its place (AUTH-24)."""
        both = ("RS256", "ES256")
        for dialect in (NATIVE, CONJUR):
            self.assertEqual(
                parse_jwt_values(GOOD, dialect),
                Configuration(
                    KeySource(URI, False, PEM, both, GOOD["jwks-token"]),
                    "i",
                    "a",
                    "app",
                    "/p",
                    ("ref",),
                    {"branch": "ref"},
                    both,
                ),
            )

    def test_one_source_of_keys(self) -> None:
        """Exactly one of the three sources must be declared (AUTH-24)."""
        self.assertEqual(self.fault(), "It is not said where keys come from.")
        for others, named in (
            ({"public_keys": KEYS, "issuer": "i"}, "jwks-uri and public-keys"),
            ({"provider_uri": PROVIDER}, "jwks-uri and provider-uri"),
            ({"public_keys": KEYS, "provider_uri": PROVIDER, "issuer": "i"}, "jwks-uri, public-keys and provider-uri"),
        ):
            self.assertEqual(
                self.fault(NATIVE, jwks_uri=URI, **others), f"The variables {named} are declared beside each other."
            )
        self.assertEqual(
            self.fault(public_keys=KEYS, provider_uri=PROVIDER, issuer="i"),
            "The variables public-keys and provider-uri are declared beside each other.",
        )

    def test_what_is_declared_counts_as_a_source(self) -> None:
        """A source that is declared conflicts with another, set or not."""
        self.assertEqual(len(self.faults(jwks_uri=URI, public_keys=None, issuer="i")), 2)
        self.assertEqual(len(self.faults(jwks_uri=None, provider_uri=None)), 3)

    def test_discovery(self) -> None:
        """An OIDC provider's address is one whose keys are discovered."""
        self.assertEqual(self.good(provider_uri=PROVIDER).keys, KeySource(PROVIDER, discovered=True))
        self.assertEqual(self.good(provider_uri=PROVIDER, ca_cert=PEM).keys, KeySource(PROVIDER, True, PEM))

    def test_authority_without_address(self) -> None:
        """A certificate of an authority needs an address that it is used for (AUTH-26)."""
        expected = "The variable ca-cert is declared, and there is no address to use it for."
        self.assertEqual(self.fault(public_keys=KEYS, issuer="i", ca_cert=PEM), expected)
        self.assertIn(expected, self.faults(ca_cert=PEM))

    def test_authority_of_http(self) -> None:
        """A certificate of an authority is of no use where none is shown (AUTH-26)."""
        for scheme in ("http", "HTTP"):
            self.assertIn("jwks-uri begins with http:", self.fault(jwks_uri=f"{scheme}://idp/keys", ca_cert=PEM))
            self.assertIn("provider-uri begins with http:", self.fault(provider_uri=f"{scheme}://idp", ca_cert=PEM))

    def test_authority_that_is_none(self) -> None:
        """Certificates of authorities are whole ones in PEM, with nothing beside them (AUTH-29, NET-6)."""
        for text, fault in BROKEN.items():
            for source in ({"jwks_uri": URI}, {"provider_uri": PROVIDER}):
                self.assertEqual(self.fault(ca_cert=text, **source), f"The variable ca-cert {fault}.")

    def test_tokens_without_use(self) -> None:
        """A token needs an address to be shown at, one of https (AUTH-26)."""
        expected = "The variable jwks-token is declared, and there is no address to use it for."
        self.assertEqual(self.fault(public_keys=KEYS, issuer="i", jwks_token="x"), expected)
        for name in ("jwks_uri", "provider_uri"):
            for scheme in ("http", "HTTP"):
                fault = self.fault(**{name: f"{scheme}://k8s.example/"}, jwks_token="x")
                self.assertIn("begins with http: where anybody between could read it.", fault)

    def test_what_is_no_token(self) -> None:
        """Whatever could end a header's line, or isn't a bearer token, is refused, and isn't repeated (AUTH-26)."""
        for text in (
            "Bearer sec",
            "a b",
            "sec\r\nX: y",
            "sec\x00",
            "s\u00e9c",
            "=",
            "sec=s",
            "Token token=sec",
            "s" * 16_385,
        ):
            fault = self.fault(jwks_uri=URI, jwks_token=text)
            self.assertEqual(fault, "The variable jwks-token is not usable: it holds no bearer token.")
        source = self.good(jwks_uri=URI, jwks_token="secret").keys
        self.assertEqual(source, KeySource(URI, token="secret"))
        self.assertNotEqual(source, KeySource(URI, token="other"))
        self.assertNotIn("secret", repr(self.good(jwks_uri=URI, jwks_token="secret")))

    def test_long_lists(self) -> None:
        """Lists as long as a value may be are read at once, and of their faults a few are told."""
        faults = self.faults(jwks_uri="https://i/k", enforced_claims="a," * 30_000, claim_aliases="a:b," * 15_000)
        self.assertEqual(len(faults), 20)
        self.assertLess(max(map(len, faults)), 300)
        enforced = self.good(
            jwks_uri="https://i/k", enforced_claims=",".join(f"c{number}" for number in range(9000))
        ).enforced
        self.assertEqual(len(enforced), 9000)

    def test_public_keys_need_an_issuer(self) -> None:
        """Keys in a variable say nothing about who issues tokens (AUTH-26)."""
        for dialect in (NATIVE, CONJUR):
            self.assertEqual(
                self.fault(dialect, public_keys=KEYS), "The variable public-keys is declared without the variable issuer."
            )
            self.assertIsInstance(self.good(dialect, public_keys=KEYS, issuer="i").keys, KeySet)

    def test_malformed_public_keys(self) -> None:
        """Keys in a variable are as strictly read as fetched ones, and must hold a usable one (AUTH-26)."""
        for text in (
            *(
                "",
                "x",
                "[]",
                "{}",
                jwks().decode(),
                '{"type":"jwks"}',
                '{"type":"jwks","value":{}}',
                '{"type":"jwks","value":[]}',
            ),
            *(
                '{"type":"pem","value":{"keys":[]}}',
                '{"type":"jwks","value":{"keys":[]}}',
                '{"type":["jwks"],"value":{"keys":[]}}',
            ),
            json.dumps({"type": "jwks", "value": {"keys": [jwk("weak", 1024)]}}),
        ):
            (fault,) = self.faults(public_keys=text, issuer="i")
            self.assertIn("The variable public-keys is", fault)

    def test_declared_but_unset(self) -> None:
        """A variable that is declared must be set, and not to blanks (AUTH-25)."""
        for name in GOOD:
            for value, what in ((None, "is declared and has no value."), ("", "is blank."), (" \n", "is blank.")):
                understood = parse_jwt_values({**GOOD, name: value}, NATIVE)
                assert isinstance(understood, Misconfiguration)
                self.assertEqual([problem.what for problem in understood.problems], [f"The variable {name} {what}"])
        for name in ("provider-uri", "public-keys", "mapping-claims"):
            values = {"issuer": "i", name: None} if name != "mapping-claims" else {"jwks-uri": URI, name: None}
            understood = parse_jwt_values(values, CONJUR)
            assert isinstance(understood, Misconfiguration)
            self.assertEqual(understood.problems[0].what, f"The variable {name} is declared and has no value.")

    def test_blanks_around(self) -> None:
        """A line end at the end of an address or name, which nobody sees, is told; elsewhere it counts for nothing
        (AUTH-25).
        """
        for name, value in GOOD.items():
            understood = parse_jwt_values({**GOOD, name: value + "\n"}, NATIVE)
            if name in {"ca-cert", "algorithms", "enforced-claims", "claim-aliases"}:
                self.assertIsInstance(understood, Configuration)
            else:
                assert isinstance(understood, Misconfiguration)
                (problem,) = understood.problems
                self.assertEqual(problem.what, f"The variable {name} begins or ends with a blank or line end.")

    def test_byte_order_mark(self) -> None:
        """A byte order mark before a value is no part of it (AUTH-29)."""
        for name, value in GOOD.items():
            marked = parse_jwt_values({**GOOD, name: "\ufeff" + value}, NATIVE)
            self.assertEqual(marked, parse_jwt_values(GOOD, NATIVE), name)

    def test_algorithms(self) -> None:
        """Algorithms are listed with commas or blanks between, in any order; the three of RSA stand for no list."""
        self.assertEqual(self.good(jwks_uri=URI).algorithms, ("RS256", "RS384", "RS512"))
        for text, algorithms in (
            ("ES256", ("ES256",)),
            ("EdDSA ES256", ("ES256", "EdDSA")),
            (" PS256,RS256 ,\tRS256\n", ("RS256", "PS256")),
            ("RS256 RS384,RS512 , ES256\nES384 ES512 PS256 PS384 PS512 EdDSA", ALGORITHMS),
        ):
            understood = self.good(jwks_uri=URI, algorithms=text)
            self.assertEqual(understood.algorithms, algorithms)
            self.assertEqual(understood.keys, KeySource(URI, algorithms=algorithms))

    def test_algorithms_that_are_none(self) -> None:
        """A name that isn't exactly one that there is makes the whole list unusable, and so does a list of nothing."""
        for text in ("none", "HS256", "RS256 HS256", "rs256", "RS256;ES256", "ES521", "ES256K", "Ed448", "RS256,,ES256"):
            self.assertIn("The variable algorithms is not usable: ", self.fault(jwks_uri=URI, algorithms=text))
        understood = self.understood(NATIVE, jwks_uri=URI, algorithms="ed25519")
        assert isinstance(understood, Misconfiguration)
        (problem,) = understood.problems
        for name in (*ALGORITHMS, "Ed25519"):
            self.assertIn(f" {name},", problem.remedy)
        for text in (",", "RS256,", ", RS256", "\u00a0,"):
            self.assertTrue(self.faults(jwks_uri=URI, algorithms=text))
        for text in ("", "  "):
            self.assertEqual(self.fault(jwks_uri=URI, algorithms=text), "The variable algorithms is blank.")
        self.assertEqual(self.fault(jwks_uri=URI, algorithms=None), "The variable algorithms is declared and has no value.")

    def test_algorithms_of_public_keys(self) -> None:
        """Keys in a variable are read for the algorithms that are allowed; those that are for others are told apart."""
        value = {"keys": [jwk("k1"), jwk_for("ES256", "e1")]}
        text = json.dumps({"type": "jwks", "value": value})
        for algorithms, used, unused in ((None, "k1", "key 2 'e1'"), ("ES256", "e1", "key 1 'k1'")):
            declared = {} if algorithms is None else {"algorithms": algorithms}
            keys = self.good(public_keys=text, issuer="i", **declared).keys
            assert isinstance(keys, KeySet)
            self.assertEqual([key.key_id for key in keys.keys], [used])
            self.assertEqual(keys.problems, ())
            self.assertIn(f"{unused} is not used", keys.unused[0])

    def test_identity_path(self) -> None:
        """The identity path matters only beside token-app-property (AUTH-25)."""
        for value in (None, " ", "p"):
            self.assertEqual(self.good(jwks_uri=URI, identity_path=value).identity_path, "")
        self.assertEqual(len(self.faults(jwks_uri=URI, identity_path=None, token_app_property="a")), 1)

    def test_aliases_by_the_old_name(self) -> None:
        """``mapping-claims`` is the old name of ``claim-aliases``, and not looked at beside it (AUTH-24)."""
        for name in ("claim_aliases", "mapping_claims"):
            self.assertEqual(self.good(NATIVE, jwks_uri=URI, **{name: "a: b"}).aliases, {"a": "b"})
            self.assertIn(name.replace("_", "-"), self.fault(NATIVE, jwks_uri=URI, **{name: "a"}))
        for old in ("c: d", "?", None):
            self.assertEqual(self.good(jwks_uri=URI, claim_aliases="a: b", mapping_claims=old).aliases, {"a": "b"})
        self.assertIn("claim-aliases", self.fault(jwks_uri=URI, claim_aliases=None, mapping_claims="c: d"))

    def test_lists(self) -> None:
        """Each fault of a list is a problem of its own."""
        self.assertEqual(len(self.faults(jwks_uri=URI, enforced_claims="iss,a b", claim_aliases="a,b:c d,e:exp")), 5)

    def test_nested(self) -> None:
        """A path may stand where a claim is named in the dialect that has nested claims, and is a fault in the other
        (AUTH-27).
        """
        for name, value in (("enforced_claims", "a/b"), ("claim_aliases", "x: a/b"), ("token_app_property", "a/b")):
            self.good(CONJUR, jwks_uri=URI, **{name: value})
            self.assertIn("is a path", self.fault(NATIVE, jwks_uri=URI, **{name: value}))

    def test_all_faults_at_once(self) -> None:
        """Faults are told together, and where keys come from all the same (AUTH-29)."""
        self.assertEqual(len(self.faults(ca_cert="x", audience=None, token_app_property="a b")), 5)
        understood = parse_jwt_values({"jwks-uri": URI, "audience": None, "token-app-property": "a b"}, NATIVE)
        assert isinstance(understood, Misconfiguration)
        self.assertEqual(len(understood.problems), 2)
        self.assertEqual(understood.keys, KeySource(URI))

    def test_keys_are_not_asked_for_with_faulty_settings(self) -> None:
        """Where something is wrong with the source of keys, there is none."""
        for values in ({"jwks-uri": URI, "provider-uri": PROVIDER}, {"jwks-uri": URI, "ca-cert": None}, {"jwks-uri": " "}):
            understood = parse_jwt_values(values, NATIVE)
            assert isinstance(understood, Misconfiguration)
            self.assertIsNone(understood.keys)

    def test_every_variable_is_asked_for(self) -> None:
        """All twelve variables and the old name of one are among those read."""
        self.assertEqual(len(set(VARIABLES)), 13)

    @given(st.dictionaries(st.sampled_from(VARIABLES), st.none() | st.text(max_size=10) | st.sampled_from([URI, KEYS, PEM])))
    def test_any_values_are_decided(self, values: dict[str, str | Problem | None]) -> None:
        """Whatever the variables are, they mean something or there is a problem."""
        for dialect in (NATIVE, CONJUR):
            understood = parse_jwt_values(values, dialect)
            if isinstance(understood, Misconfiguration):
                self.assertTrue(understood.problems)


class IssuerTests(Case):
    """Which issuer is expected."""

    def test_provider(self) -> None:
        """The provider's own text is the issuer in both dialects, unless the variable says another (AUTH-21)."""
        for dialect in (NATIVE, CONJUR):
            for uri in (PROVIDER, f"{PROVIDER}/", f"{PROVIDER}/realm"):
                self.assertIsNone(self.good(dialect, provider_uri=uri).issuer)
            self.assertEqual(self.good(dialect, provider_uri=PROVIDER, issuer="i").issuer, "i")

    def test_items(self) -> None:
        """The remedy for a registered claim is to remove it, and for a repeated name to remove one (AUTH-28)."""
        for name, value, remedy in (
            ("claim_aliases", "u: exp", "Remove that item, since this claim can't tell one host from another."),
            ("enforced_claims", "exp", "Remove that item, since this claim can't tell one host from another."),
            ("claim_aliases", "u: a, u: b", "Remove one of the two: each name may stand once on each side."),
            ("claim_aliases", "u: a, v: a", "Remove one of the two: each name may stand once on each side."),
            ("enforced_claims", "a, a", "Remove one of the two."),
            ("claim_aliases", "u", "Set it to items of the form 'annotation: claim', with commas between."),
        ):
            understood = self.understood(NATIVE, jwks_uri=URI, **{name: value})
            assert isinstance(understood, Misconfiguration)
            (problem,) = understood.problems
            self.assertEqual(problem.remedy, remedy, value)

    def test_paths(self) -> None:
        """Where claims within claims can't be named, the fault says in which dialect they can, and the remedy says what a
        token of Kubernetes has instead (AUTH-27, AUTH-29).
        """
        for name, value in (
            ("token_app_property", "kubernetes.io/pod/name"),
            ("enforced_claims", "sub, kubernetes.io/namespace"),
            ("claim_aliases", "namespace: kubernetes.io/namespace"),
        ):
            understood = self.understood(NATIVE, jwks_uri=URI, **{name: value})
            assert isinstance(understood, Misconfiguration)
            (problem,) = understood.problems
            self.assertIn("can be named in the dialect conjur alone", problem.what)
            self.assertIn("sub has namespace and name of the service account", problem.remedy)
            self.good(CONJUR, jwks_uri=URI, **{name: value})

    def test_addresses_need_an_alias(self) -> None:
        """A claim that is named by an address is no path: in enforced-claims it needs an alias, as the remedy says
        (AUTH-27, AUTH-29).
        """
        for name in ("https://acme.example/role", "urn:acme:a/b", "cognito:username"):
            for dialect in (NATIVE, CONJUR):
                understood = self.understood(dialect, jwks_uri=URI, enforced_claims=name)
                assert isinstance(understood, Misconfiguration)
                (problem,) = understood.problems
                self.assertIn("can't name a claim in an annotation", problem.what)
                self.assertIn("needs an alias in claim-aliases", problem.remedy)
                self.good(dialect, jwks_uri=URI, enforced_claims=name, claim_aliases=f"role: {name}")

    def test_issuer_by_dialect(self) -> None:
        """The host of the address is the issuer in the dialect of the installed base, as it is written there."""
        self.assertIsNone(self.good(jwks_uri=URI).issuer)
        for uri, issuer in (
            (URI, "idp.example"),
            ("https://IdP.example:8443/keys?x=/", "IdP.example"),
            ("https://idp.example?x", "idp.example"),
            ("https://[2001:db8::1]:8443/keys", "[2001:db8::1]"),
        ):
            self.assertEqual(self.good(CONJUR, jwks_uri=uri).issuer, issuer)
        for uri in ("idp.example/keys", "https://", "https:///keys", "https://:8443/"):
            self.assertEqual(len(self.faults(CONJUR, jwks_uri=uri)), 1)
        self.assertEqual(self.good(CONJUR, jwks_uri=URI, issuer="i").issuer, "i")

    def test_addresses(self) -> None:
        """An address that is none is a fault of the settings, with a remedy; the case of a scheme is none (AUTH-29)."""
        for name in ("jwks_uri", "provider_uri"):
            for uri in (
                "http://idp.example/realms/My Realm",
                "https://idp.example/realms/Größe",
                "idp.example",
                "ftp://a/",
                "",
            ):
                understood = self.understood(NATIVE, **{name: uri or "https://"})
                assert isinstance(understood, Misconfiguration)
                (problem,) = understood.problems
                self.assertIn(f"The variable {name.replace('_', '-')} is not usable: ", problem.what)
                self.assertIn("is no address of the form https://host[:port]/path.", problem.what)
                self.assertIn("percent-encoded", problem.remedy)
            self.assertIn("impossible port", self.fault(**{name: "https://idp.example:0/"}))
            self.assertIn("'https://…@idp.example/' is no address", self.fault(**{name: "https://u:p@idp.example/"}))
            for uri in ("HTTPS://idp.example/x", "Https://idp.example:8443", "https://idp.example/My%20Realm"):
                self.good(**{name: uri})
        self.assertIn("it has a query", self.fault(provider_uri="https://idp.example/m?p=x"))
        self.good(jwks_uri="https://idp.example/m?p=x")


class OpenedTests(SynchronousTestCase):
    """``open_values``."""

    def test_values(self) -> None:
        """Values are opened under their names; what doesn't open, or is no text, is a problem, and the others are read
        (AUTH-25).
        """
        vault = Vault(bytes(32))
        branch = "svc/authn-jwt/ci"

        def sealed(name: str, value: bytes) -> Sealed:
            return vault.seal(f"acme:variable:{branch}/{name}", value)

        values = {
            "issuer": sealed("issuer", b"i"),
            "audience": sealed("other", b"a"),
            "jwks-uri": sealed("jwks-uri", b"\xff"),
        }
        values["enforced-claims"] = vault.seal(f"acme:variable:{branch}/enforced-claims", b"a," * 40_000)
        read = open_values("acme", branch, AuthenticatorSettings("1", {**values, "identity-path": None}), vault)
        self.assertIn("more than 64 KiB", getattr(read.pop("enforced-claims"), "what", ""))
        self.assertEqual((read["issuer"], read["identity-path"]), ("i", None))
        for name, what in (("audience", "data key"), ("jwks-uri", "UTF-8")):
            problem = read[name]
            assert isinstance(problem, Problem)
            self.assertIn(name, problem.what)
            self.assertIn(what, problem.what)
        understood = parse_jwt_values(read, NATIVE)
        assert isinstance(understood, Misconfiguration)
        self.assertEqual(understood.problems, (read["jwks-uri"], read["audience"]))
