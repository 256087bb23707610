"""Every rule that the authenticator keeps: each test names its row there, and the code of the
installed base where it has one. Deciding and explaining say the same, and of no two ways to be refused the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from svc.model.authentication import ANNOTATIONS_LIMIT, Refused
from svc.model.dialect import CONJUR
from svc.model.reasons import Reason
from tests.authn.providers.authority import Authority
from tests.authn.world import ALICE, CLAIMS, HOST, ISSUER, NOW, PROVIDER, URI, Case, Webservice
from tests.signing import jwk, jwks, signed, token
from tests.statuses import privilege_missing_status, refusal_status

#: More annotations than a login reads.
TOO_MANY: Final = {f"authn-jwt/ci/a{number}": "x" for number in range(ANNOTATIONS_LIMIT + 1)}

KEYS = json.dumps({"type": "jwks", "value": json.loads(jwks())})
PEM = Authority().pem


class Rows(Case):
    """A world in which rows are told."""

    def setUp(self) -> None:
        """Nothing is told yet."""
        super().setUp()
        self.told: list[tuple[Reason, str]] = []

    def row(self, check: str, reason: Reason, evidence: bytes | None = None, status: int = 401, **options: Any) -> None:
        """The token, a good one unless another is given, is refused by this check for this reason."""
        evidence = token(CLAIMS) if evidence is None else evidence
        decision = self.attempt(evidence, **options)
        assert isinstance(decision, Refused), "it was admitted"
        self.assertEqual((decision.reason, refusal_status(decision)), (reason, status), decision.detail)
        failed = self.failed(evidence, **options)
        assert failed is not None
        self.assertEqual((failed.check, failed.reason, failed.detail), (check, reason, decision.detail))
        self.told.append((reason, decision.detail))

    def faulty(self, *unset: str, **variables: str | None) -> None:
        """With these settings nobody is admitted, until they are as before."""
        webservice = self.readings.webservices[self.branch]
        before = dict(webservice.variables)
        self.readings.unset(self.branch, *unset)
        self.readings.set(self.branch, **variables)
        self.row("configuration", Reason.CONFIGURATION_INVALID)
        webservice.variables = before
        webservice.changes += 1
        self.assert_admitted(token(CLAIMS))

    def annotated(self, check: str, reason: Reason, annotations: Mapping[str, str], evidence: bytes | None = None) -> None:
        """With these annotations for this service the host is refused."""
        self.readings.annotations[HOST] = {f"authn-jwt/ci/{name}": value for name, value in annotations.items()}
        self.row(check, reason, evidence)


class EveryRowTests(Rows):
    """Rows that hold in both dialects."""

    def test_account(self) -> None:
        """CONJ00008E: the account must exist (AUTH-8)."""
        self.row("account", Reason.ACCOUNT_UNKNOWN, account="other")

    def test_enabled(self) -> None:
        """CONJ00004E: the authenticator must be enabled, whether it has a webservice or not (AUTH-2)."""
        self.readings.webservices[f"{self.dialect.prefix}/authn-jwt/off"] = Webservice()
        self.row("enabled", Reason.AUTHENTICATOR_NOT_ENABLED, service="off")
        self.row("enabled", Reason.AUTHENTICATOR_NOT_ENABLED, service="offer")

    def test_token_missing(self) -> None:
        """CONJ00009E: a request without token is a bad one, and is told so (FAIL-14)."""
        self.row("token", Reason.TOKEN_MISSING, b" ", status=400)

    def test_token_malformed(self) -> None:
        """CONJ00077E: a token is three parts in base64url with dots between (AUTH-14)."""
        self.row("token", Reason.TOKEN_MALFORMED, b"a.b")
        self.row("token", Reason.TOKEN_MALFORMED, b"..a")
        self.row("token", Reason.TOKEN_MALFORMED, b"a!.b.c")

    def test_token_unsigned(self) -> None:
        """A token must be signed (AUTH-16)."""
        self.row("token", Reason.TOKEN_UNSIGNED, token(CLAIMS).rpartition(b".")[0] + b".")

    def test_unset(self) -> None:
        """CONJ00037E: every variable that is declared must have a value (AUTH-25)."""
        for name in ("jwks_uri", "issuer", "audience", "enforced_claims", "claim_aliases", "mapping_claims", "ca_cert"):
            self.faulty(**{name: None})
        for name in ("token_app_property", "identity_path"):
            self.faulty(**{name: None})
        self.faulty("jwks-uri", public_keys=None)
        self.faulty("jwks-uri", provider_uri=None)

    def test_no_source(self) -> None:
        """CONJ00122E: one of jwks-uri, public-keys and provider-uri must be declared (AUTH-24)."""
        self.faulty("jwks-uri")

    def test_three_sources(self) -> None:
        """CONJ00122E: not all three of them (AUTH-24)."""
        self.faulty(public_keys=KEYS, provider_uri=PROVIDER)

    def test_two_sources(self) -> None:
        """CONJ00122E: not any two of them (AUTH-24)."""
        self.faulty(provider_uri=PROVIDER)
        self.faulty(public_keys=KEYS)
        self.faulty("jwks-uri", public_keys=KEYS, provider_uri=PROVIDER)

    def test_authority_without_address(self) -> None:
        """CONJ00122E: ca-cert needs jwks-uri or provider-uri (AUTH-26)."""
        self.faulty("jwks-uri", public_keys=KEYS, ca_cert=PEM)

    def test_authority_of_http(self) -> None:
        """CONJ00087E: ca-cert is of no use for an address of http (AUTH-26)."""
        self.faulty(ca_cert=PEM, jwks_uri="http://idp.example/keys")

    def test_public_keys_without_issuer(self) -> None:
        """CONJ00122E: public-keys needs issuer (AUTH-26)."""
        self.faulty("jwks-uri", "issuer", public_keys=KEYS)

    def test_public_keys(self) -> None:
        """CONJ00120E: public-keys is an object, its type is jwks, its value is one, and that has keys (AUTH-26)."""
        for text in ("?", "[]", '{"value": {}}', '{"type": "jwks"}', '{"type": "jwks", "value": {}}'):
            self.faulty("jwks-uri", public_keys=text)
        self.faulty("jwks-uri", public_keys='{"type": "jwks", "value": {"keys": []}}')

    def test_keys(self) -> None:
        """CONJ00087E and its kin: there must be keys; the provider's failure is told (FAIL-13)."""
        for why in ("idp.example: connection refused", "idp.example: status 404", "idp.example: the answer is no JWK set"):
            self.provider.refused = why
            self.row("keys", Reason.KEYS_UNAVAILABLE, status=503)

    def test_algorithm(self) -> None:
        """RS256, RS384 and RS512 are all that there is (AUTH-17)."""
        for algorithm in ("ES256", "HS256", "PS256", "EdDSA", "rs256"):
            self.row("token", Reason.ALGORITHM_REFUSED, signed({"alg": algorithm, "kid": "k1"}, CLAIMS))

    def test_algorithm_of_the_key(self) -> None:
        """A key that is for one of them is not for the others (AUTH-17)."""
        self.provider.published[URI] = jwks(jwk(alg="RS512"))
        self.row("signature", Reason.ALGORITHM_REFUSED)

    def test_key_id(self) -> None:
        """A key id is text, and must be there when there are several keys (AUTH-41)."""
        self.row("token", Reason.TOKEN_MALFORMED, signed({"alg": "RS256", "kid": 1}, CLAIMS))
        self.provider.published[URI] = jwks(jwk("k1"), jwk("k2"))
        self.row("signature", Reason.KEY_ID_MISSING, token(CLAIMS, kid=None))

    def test_key_unknown(self) -> None:
        """CONJ00035E: the key id must be that of a key (AUTH-41)."""
        self.row("signature", Reason.KEY_UNKNOWN, token(CLAIMS, "k2"))

    def test_signature(self) -> None:
        """CONJ00035E: the signature must be by that key, also after the keys were fetched again (AUTH-44)."""
        self.row("signature", Reason.SIGNATURE_WRONG, token(CLAIMS, "k2", kid="k1"))
        self.assertGreater(self.provider.fetches, 1)

    def test_signature_before_expiry(self) -> None:
        """Of a token with a bad signature that is expired too the signature is told (AUTH-8)."""
        expired = {**CLAIMS, "exp": NOW - 1}
        self.provider.published[URI] = jwks(jwk(kid="k3"))
        self.row("signature", Reason.SIGNATURE_WRONG, token(expired, "k2", kid="k3"))

    def test_critical_header(self) -> None:
        """A header that nothing here understands is refused, though the installed base ignores it (AUTH-18)."""
        self.row("token", Reason.CRITICAL_HEADER, token(CLAIMS, crit=["exp"]))

    def test_no_claims(self) -> None:
        """CONJ00085E: a token must have claims (AUTH-19)."""
        self.row("expiry", Reason.EXPIRY_MISSING, token({}))

    def test_expiry_missing(self) -> None:
        """CONJ00091E: a token must say when it expires (AUTH-19)."""
        self.row("expiry", Reason.EXPIRY_MISSING, self.claims(exp=...))

    def test_expired(self) -> None:
        """CONJ00016E: a token is dead from its expiry on; the client learns no more than otherwise (AUTH-19)."""
        self.row("expiry", Reason.TOKEN_EXPIRED, self.claims(exp=NOW))

    def test_not_yet_valid(self) -> None:
        """A token may not be from the future by nbf (AUTH-19)."""
        self.row("not-before", Reason.TOKEN_NOT_YET_VALID, self.claims(nbf=NOW + 1))

    def test_issued_in_the_future(self) -> None:
        """A token may not be from the future by iat, not by a fraction (AUTH-19)."""
        self.row("issued-at", Reason.TOKEN_NOT_YET_VALID, self.claims(iat=NOW + 0.5))

    def test_times(self) -> None:
        """Times are finite numbers; nothing else is read, though the installed base reads text and null (AUTH-19)."""
        for name, check in (("exp", "expiry"), ("nbf", "not-before"), ("iat", "issued-at")):
            values: tuple[object, ...] = ("1800000000", None, True, [], {})
            for value in values:
                self.row(check, Reason.TIME_CLAIM_INVALID, self.claims(**{name: value}))
            self.row(check, Reason.TIME_CLAIM_INVALID, self.claims(**{name: 10**400}))

    def test_issuer(self) -> None:
        """``iss`` is exactly the issuer; an array never is (AUTH-21)."""
        self.row("issuer", Reason.ISSUER_WRONG, self.claims(iss=f"{ISSUER}/"))
        self.row("issuer", Reason.ISSUER_WRONG, self.claims(iss=[ISSUER]))

    def test_issuer_of_the_provider(self) -> None:
        """Without the variable issuer it is the whole of provider-uri (AUTH-21)."""
        self.readings.unset(self.branch, "issuer", "jwks-uri")
        self.readings.set(self.branch, provider_uri=f"{PROVIDER}/a/")
        self.provider.published[f"{PROVIDER}/a/"] = jwks()
        self.assert_admitted(self.claims(iss=f"{PROVIDER}/a/"))
        self.row("issuer", Reason.ISSUER_WRONG, self.claims(iss=f"{PROVIDER}/a"))

    def test_audience_missing(self) -> None:
        """CONJ00091E: aud must be there when an audience is configured (AUTH-23)."""
        self.readings.set(self.branch, audience="svc")
        self.row("audience", Reason.AUDIENCE_MISSING)

    def test_audience(self) -> None:
        """``aud`` is the audience, or an array that holds it (AUTH-23)."""
        self.readings.set(self.branch, audience="svc")
        self.assert_admitted(self.claims(aud=["x", "svc"]))
        self.row("audience", Reason.AUDIENCE_WRONG, self.claims(aud="x"))
        self.row("audience", Reason.AUDIENCE_WRONG, self.claims(aud=[]))

    def test_audience_blank(self) -> None:
        """CONJ00115E: the audience may not be blank (AUTH-25)."""
        self.faulty(audience=" ")

    def test_identity_from_both(self) -> None:
        """CONJ00098E: not both the token and the path may name the host, even when they agree (AUTH-30)."""
        self.row("identity", Reason.IDENTITY_AMBIGUOUS, login=HOST.login)

    def test_identity_from_neither(self) -> None:
        """CONJ00098E: one of them must (AUTH-30)."""
        self.readings.unset(self.branch, "token-app-property")
        self.row("identity", Reason.IDENTITY_AMBIGUOUS)

    def test_identity_claim_missing(self) -> None:
        """CONJ00081E: the claim that names the host must be there (AUTH-31)."""
        self.row("identity", Reason.IDENTITY_CLAIM_MISSING, self.claims(app=...))

    def test_identity_claim_type(self) -> None:
        """CONJ00118E: it must be text (AUTH-31)."""
        self.row("identity", Reason.IDENTITY_CLAIM_INVALID, self.claims(app=7))
        self.row("identity", Reason.IDENTITY_CLAIM_INVALID, self.claims(app=["build"]))

    def test_identity_claim_name(self) -> None:
        """CONJ00117E and CONJ00116E: its name must be one that a claim can have (AUTH-27)."""
        self.faulty(token_app_property="app[0]")
        self.faulty(token_app_property="a//b")

    def test_role(self) -> None:
        """CONJ00007E: the role must exist (AUTH-8)."""
        self.row("role", Reason.ROLE_UNKNOWN, self.claims(app="other"))

    def test_host_is_no_user(self) -> None:
        """A claim that begins like the login of a host or user names a host below the path all the same (AUTH-31)."""
        self.row("role", Reason.ROLE_UNKNOWN, self.claims(app="host/build"))
        self.row("role", Reason.ROLE_UNKNOWN, self.claims(app="user/alice"))

    def test_webservice(self) -> None:
        """CONJ00005E: the webservice must exist (AUTH-8)."""
        self.readings.webservice_missing = True
        self.row("webservice", Reason.WEBSERVICE_UNKNOWN)

    def test_privilege(self) -> None:
        """CONJ00006E: the role must have the privilege; the client learns so where the dialect tells it (AUTH-12)."""
        self.readings.permitted.clear()
        self.row("privilege", Reason.PRIVILEGE_MISSING, status=privilege_missing_status(self.dialect))

    def test_origin(self) -> None:
        """CONJ00003E: the request must come from where the role may log in (TOK-20)."""
        self.readings.restrictions[HOST] = ("198.51.100.0/24",)
        self.row("origin", Reason.ORIGIN_REFUSED)

    def test_enforced_claims(self) -> None:
        """CONJ00104E to 108E: a list that is blank, has an empty item, one twice, or a name that is none (AUTH-28)."""
        for text in (" ", "a,", "a,a", "1a", "iss"):
            self.faulty(enforced_claims=text)

    def test_claim_aliases(self) -> None:
        """CONJ00109E to 114E: a list that is blank, has an empty item, one without two sides, a slash on the left, a name
        that is none, or one twice (AUTH-28).
        """
        for text in (" ", "a:b,", "a", "a: b c", "a/b:c", "1a:b", "a:b[1]", "exp:a", "a:aud", "a:b,a:c", "a:c,b:c"):
            self.faulty(claim_aliases=text)

    def test_mapping_claims(self) -> None:
        """The same under the old name (AUTH-24)."""
        self.faulty(mapping_claims="a")

    def test_annotations_excessive(self) -> None:
        """Who has more annotations than a login reads is refused, whatever they say (AUTH-13)."""
        self.readings.annotations[HOST] = {**self.readings.annotations[HOST], **TOO_MANY}
        self.row("annotations-extent", Reason.ANNOTATIONS_EXCESSIVE)

    def test_annotation_names(self) -> None:
        """CONJ00119E: an annotation has a name that a claim could have (AUTH-27)."""
        self.annotated("annotation-names", Reason.ANNOTATION_NAME_INVALID, {"a[0]": "x"})

    def test_annotations_missing(self) -> None:
        """CONJ00099E: there must be one for this service; those for others, or for all, are none (AUTH-32)."""
        self.readings.annotations[HOST] = {"authn-jwt/repo": "org/app", "authn-jwt/other/repo": "org/app"}
        self.row("annotations", Reason.ANNOTATIONS_MISSING)

    def test_enforced(self) -> None:
        """CONJ00057E: every enforced claim must be among them (AUTH-35)."""
        self.readings.set(self.branch, enforced_claims="repo,ref")
        self.row("enforced-claims", Reason.ANNOTATION_ENFORCED)

    def test_enforced_by_alias(self) -> None:
        """An enforced claim with an alias must be among them by that (AUTH-35)."""
        self.readings.set(self.branch, enforced_claims="repo", claim_aliases="repository: repo")
        self.row("enforced-claims", Reason.ANNOTATION_ENFORCED)

    def test_forbidden(self) -> None:
        """CONJ00069E: none is named after a registered claim (AUTH-34)."""
        for name in ("iss", "exp", "nbf", "iat", "jti", "aud"):
            self.annotated("permitted-names", Reason.ANNOTATION_FORBIDDEN, {"repo": "org/app", name: "x"})

    def test_forbidden_by_alias(self) -> None:
        """CONJ00069E: none is named after a claim that has an alias (AUTH-34)."""
        self.readings.set(self.branch, claim_aliases="repository: repo")
        self.annotated("permitted-names", Reason.ANNOTATION_FORBIDDEN, {"repo": "x", "repository": "x"})

    def test_annotation_empty(self) -> None:
        """CONJ00100E: none is blank (AUTH-33)."""
        self.annotated("claims", Reason.ANNOTATION_EMPTY, {"repo": " "}, self.claims(repo=" "))

    def test_claim_missing(self) -> None:
        """CONJ00084E: the claim of each must be there (AUTH-33)."""
        self.row("claims", Reason.CLAIM_MISSING, self.claims(repo=...))

    def test_claim_missing_by_alias(self) -> None:
        """CONJ00084E: of a claim with an alias both names are told (AUTH-34)."""
        self.readings.set(self.branch, claim_aliases="repository: repo")
        self.annotated("claims", Reason.CLAIM_MISSING, {"repository": "x"}, self.claims(repo=...))
        self.assertIn("'repo' (annotation 'repository')", self.told[-1][1])

    def test_claim_mismatch(self) -> None:
        """CONJ00049E: the claim must be equal (AUTH-33)."""
        self.row("claims", Reason.CLAIM_MISMATCH, self.claims(repo="org/App"))

    def test_claim_type(self) -> None:
        """The claim must be text; each other type has its own reason (AUTH-33)."""
        for value, reason in (
            (1, Reason.CLAIM_IS_NUMBER),
            (True, Reason.CLAIM_IS_BOOLEAN),
            (["org/app"], Reason.CLAIM_IS_ARRAY),
            ({"org": "app"}, Reason.CLAIM_IS_OBJECT),
        ):
            self.row("claims", reason, self.claims(repo=value))

    def test_distinct(self) -> None:
        """No two rows are told alike."""
        seen: dict[tuple[Reason, str], str] = {}
        for name in sorted(dir(self)):
            if name.startswith("test_") and name not in {"test_distinct", "test_order"}:
                self.setUp()
                getattr(self, name)()
                self.assertTrue(self.told, name)
                for told in self.told:
                    self.assertNotIn(told, seen, (name, seen.get(told)))
                    seen[told] = name
        self.assertGreater(len(seen), 100)

    def test_order(self) -> None:
        """Of several things that are wrong the first is told, in the order of the checks (AUTH-8)."""
        self.readings.set(self.branch, audience=None)
        self.readings.annotations.clear()
        self.readings.permitted.clear()
        self.readings.restrictions[HOST] = ("198.51.100.0/24",)
        self.readings.webservice_missing = True
        self.provider.refused = "no route"
        wrong: dict[str, Any] = {"exp": NOW, "nbf": NOW + 9, "iss": "x", "iat": NOW + 9, "aud": "x", "app": 7, "repo": "x"}
        world: dict[str, Any] = {"service": "off", "account": "other"}
        found: list[str] = []
        mended: dict[str, Callable[[], object]] = {
            "enabled": lambda: world.update(service="ci"),
            "account": lambda: world.update(account="acme"),
            "token": lambda: world.update(evidence=None),
            "webservice": lambda: setattr(self.readings, "webservice_missing", False),
            "configuration": lambda: self.readings.set(self.branch, audience="svc", enforced_claims="repo"),
            "keys": lambda: setattr(self.provider, "refused", None),
            "signature": lambda: self.provider.published.update({URI: jwks(jwk("k2"))}),
            "expiry": lambda: wrong.update(exp=NOW + 9),
            "not-before": lambda: wrong.update(nbf=NOW),
            "issuer": lambda: wrong.update(iss=ISSUER),
            "issued-at": lambda: wrong.update(iat=NOW),
            "audience": lambda: wrong.update(aud="svc"),
            "identity": lambda: wrong.update(app="build"),
            "role": lambda: self.readings.annotations.update({HOST: TOO_MANY}),
            "privilege": lambda: self.readings.permitted.add(HOST),
            "origin": self.readings.restrictions.clear,
            "annotations-extent": lambda: self.readings.annotations.update({HOST: {"authn-jwt/ci/a b": "x"}}),
            "annotation-names": lambda: self.readings.annotations.update({HOST: {}}),
            "annotations": lambda: self.readings.annotations.update({HOST: {"authn-jwt/ci/iss": "x"}}),
            "enforced-claims": lambda: self.readings.annotations[HOST].update({"authn-jwt/ci/repo": "org/app"}),
            "permitted-names": lambda: self.readings.annotations[HOST].pop("authn-jwt/ci/iss"),
            "claims": lambda: wrong.update(repo="org/app"),
        }
        world["evidence"] = b"a.b"
        while len(found) <= len(mended):
            options = {name: world[name] for name in ("service", "account")}
            failed = self.failed(world["evidence"] or token(wrong, "k2"), **options)
            if failed is None:
                break
            found.append(failed.check)
            mended[failed.check]()
        self.assertEqual(found, list(mended))


class AdmittedRowTests(Rows):
    """Rows by which a token is good, in both dialects."""

    def test_success(self) -> None:
        """When nothing is wrong the identity is admitted (AUTH-8)."""
        self.assert_admitted(token(CLAIMS))

    def test_algorithms(self) -> None:
        """RS256, RS384 and RS512 are good (AUTH-17)."""
        for algorithm in ("RS256", "RS384", "RS512"):
            self.assert_admitted(token(CLAIMS, algorithm=algorithm))

    def test_keys_beside(self) -> None:
        """Keys of other types in the set are harmless, those of a type that nobody knows too (AUTH-40)."""
        others = ({"kty": "EC", "kid": "e"}, {"kty": "OKP", "kid": "o"}, {"kty": "AKP", "kid": "p"})
        self.provider.published[URI] = jwks(*others, jwk("k1"))
        self.assert_admitted(token(CLAIMS))

    def test_headers_that_name_keys(self) -> None:
        """jku, jwk, x5c and x5u are ignored (AUTH-18)."""
        evil: dict[str, Any] = {
            "jku": "https://evil.example",
            "x5u": "https://evil.example",
            "jwk": jwk("k2"),
            "x5c": ["AAAA"],
        }
        self.assert_admitted(token(CLAIMS, **evil))

    def test_public_keys_are_not_cached(self) -> None:
        """Keys in a variable are those that it has now (AUTH-43)."""
        self.readings.unset(self.branch, "jwks-uri")
        for key in ("k1", "k2"):
            entries = {"type": "jwks", "value": {"keys": [jwk(key)]}}
            self.readings.set(self.branch, public_keys=json.dumps(entries))
            self.assert_admitted(token(CLAIMS, key))

    def test_refresh(self) -> None:
        """A failing signature makes the keys be fetched again and the token be tried again; expiry never does (AUTH-44)."""
        self.assert_admitted(token(CLAIMS))
        self.attempt(self.claims(exp=NOW))
        self.assertEqual(self.provider.fetches, 1)
        self.provider.published[URI] = jwks(jwk("k2", kid="k1"))
        self.assert_admitted(token(CLAIMS, "k2", kid="k1"))
        self.assertEqual(self.provider.fetches, 2)

    def test_issuer_comes_first(self) -> None:
        """The variable issuer comes before provider-uri (AUTH-21)."""
        self.readings.unset(self.branch, "jwks-uri")
        self.readings.set(self.branch, provider_uri=PROVIDER)
        self.assert_admitted(token(CLAIMS))

    def test_optional_times(self) -> None:
        """``nbf`` and ``iat`` may be absent (AUTH-19)."""
        self.assert_admitted(self.claims(nbf=..., iat=...))

    def test_identity_from_the_token(self) -> None:
        """The claim names a host below identity-path, joined with single slashes (AUTH-31)."""
        for path in ("jwt-apps", "/jwt-apps/"):
            self.readings.set(self.branch, identity_path=path)
            for value in ("build", "/build"):
                self.assert_admitted(self.claims(app=value))

    def test_identity_from_the_path(self) -> None:
        """Without token-app-property the path names a host or user, and identity-path is not looked at (AUTH-30)."""
        self.readings.unset(self.branch, "token-app-property")
        self.readings.annotations[ALICE] = {"authn-jwt/ci/repo": "org/app"}
        self.readings.permitted.add(ALICE)
        for path in ("elsewhere", None):
            self.readings.set(self.branch, identity_path=path)
            self.assert_admitted(token(CLAIMS), login=HOST.login)
            self.assert_admitted(token(CLAIMS), role=ALICE, login="alice")

    def test_enforced_and_aliases(self) -> None:
        """An enforced claim is satisfied by its alias, and the claim is compared (AUTH-35)."""
        self.readings.set(self.branch, enforced_claims=" repo ", claim_aliases="repository: repo")
        self.readings.annotations[HOST] = {"authn-jwt/ci/repository": "org/app"}
        self.assert_admitted(token(CLAIMS))

    def test_chain_of_aliases(self) -> None:
        """Aliases are followed once (AUTH-34)."""
        self.readings.set(self.branch, claim_aliases="a: repo, repo: c")
        self.readings.annotations[HOST] = {"authn-jwt/ci/a": "org/app"}
        self.assert_admitted(self.claims(c="other"))

    def test_other_annotations(self) -> None:
        """Annotations for the authenticator in general, and for other services, count for nothing (AUTH-32)."""
        self.readings.annotations[HOST] |= {"authn-jwt/repo": "x", "authn-jwt/other/repo": "x", "authn-jwt": "x"}
        self.assert_admitted(token(CLAIMS))


class ConjurAdmittedRowTests(AdmittedRowTests):
    """The same in the dialect of the installed base."""

    dialect = CONJUR

    def test_nested_identity(self) -> None:
        """The claim that names the host may be nested; a flat one of that name comes first (AUTH-27)."""
        self.readings.set(self.branch, token_app_property="k8s/app")
        self.assert_admitted(self.claims(k8s={"app": "build"}))
        self.assert_admitted(self.claims(k8s={"app": "other"}, **{"k8s/app": "build"}))

    def test_nested_alias(self) -> None:
        """An alias may stand for a nested claim, which may be enforced (AUTH-27)."""
        self.readings.set(self.branch, claim_aliases="pod: k8s/pod", enforced_claims="k8s/pod")
        self.readings.annotations[HOST] = {"authn-jwt/ci/pod": "p"}
        self.assert_admitted(self.claims(k8s={"pod": "p"}))


class ConjurEveryRowTests(EveryRowTests):
    """The same in the dialect of the installed base, and its own rows."""

    dialect = CONJUR

    def test_issuer_missing(self) -> None:
        """CONJ00091E: iss must be there when an issuer can be determined (AUTH-22)."""
        self.row("issuer", Reason.ISSUER_MISSING, self.claims(iss=...))

    def test_issuer_of_the_address(self) -> None:
        """Without the variables issuer and provider-uri it is the host of jwks-uri (AUTH-21)."""
        self.readings.unset(self.branch, "issuer")
        self.assert_admitted(self.claims(iss="idp.example"))
        self.row("issuer", Reason.ISSUER_WRONG)
        self.row("issuer", Reason.ISSUER_MISSING, self.claims(iss=...))

    def test_issuer_of_no_address(self) -> None:
        """CONJ00079E and CONJ00080E: an address without host tells no issuer (AUTH-21)."""
        self.faulty("issuer", jwks_uri="idp.example/keys")

    def test_nested(self) -> None:
        """A path leads through objects alone, and to text alone (AUTH-27)."""
        self.readings.annotations[HOST] = {"authn-jwt/ci/k8s/pod": "p"}
        self.assert_admitted(self.claims(k8s={"pod": "p"}))
        self.row("claims", Reason.CLAIM_MISSING, self.claims(k8s="p"))
        self.row("claims", Reason.CLAIM_IS_ARRAY, self.claims(k8s={"pod": ["p"]}))

    def test_flat_name_first(self) -> None:
        """A claim whose whole name is the path comes before the one at its end (AUTH-27)."""
        self.readings.annotations[HOST] = {"authn-jwt/ci/example.org/role": "r"}
        self.assert_admitted(self.claims(**{"example.org/role": "r", "example.org": {"role": "x"}}))
        self.row("claims", Reason.CLAIM_MISMATCH, self.claims(**{"example.org/role": "x", "example.org": {"role": "r"}}))


class NativeRowTests(Rows):
    """Rows of the service's own dialect alone."""

    def test_switched_off(self) -> None:
        """An authenticator that is listed may be switched off."""
        self.readings.tell(self.branch, switched=False)
        self.row("enabled", Reason.AUTHENTICATOR_NOT_ENABLED)

    def test_nested(self) -> None:
        """A path is no claim, wherever one is named (AUTH-27)."""
        for name, value in (("enforced_claims", "a/b"), ("claim_aliases", "x: a/b"), ("token_app_property", "a/b")):
            self.faulty(**{name: value})
        self.readings.annotations[HOST] = {"authn-jwt/ci/k8s/pod": "p"}
        self.row("annotation-names", Reason.ANNOTATION_NAME_INVALID, self.claims(k8s={"pod": "p"}))

    def test_issuer_of_another_type(self) -> None:
        """Where no issuer is known any text will do, and nothing else (AUTH-21)."""
        self.readings.unset(self.branch, "issuer")
        self.assert_admitted(self.claims(iss="whoever"))
        self.row("issuer", Reason.ISSUER_WRONG, self.claims(iss=7))
