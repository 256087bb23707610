"""Tests of ``svc.authn.oidc``: which codes and id tokens admit whom, in both dialects."""

from __future__ import annotations

import attrs
from twisted.internet.defer import Deferred

from svc.model.authentication import Admitted, Explanation, LoginRequest, Refused
from svc.model.clocks import iso_seconds
from svc.model.dialect import CONJUR
from svc.model.errors import UNLISTED, StoreUnavailable
from svc.model.names import RoleName
from svc.model.oidc import ClientRefusal, ClientRefused, CodeRefused, OidcClient, OidcIssuer, ProviderUnavailable
from svc.model.reasons import Reason
from tests.authn.oidc_world import CLAIMS, CLIENT, METADATA, NONCE, SECRET, OidcCase
from tests.authn.world import ALICE, NOW, PROVIDER
from tests.signing import base64url, jwk, jwk_for, jwks, signed, token
from tests.statuses import privilege_missing_status, refusal_status


class TokenTests(OidcCase):
    """The id token that a code is exchanged for, and its user."""

    def test_admitted(self) -> None:
        """A good id token admits the user that its claim names (OIDC-26), whatever else it says."""
        self.assert_user(token(CLAIMS))
        self.assert_user(self.claims(aud=[CLIENT], azp=CLIENT, typ="ID", token_use="id", at_hash="x", nbf=NOW))
        self.assert_user(self.claims(aud=[CLIENT, "other"], azp=CLIENT, groups=["admin"]))

    def test_types(self) -> None:
        """The header's ``typ`` may be absent, or be the media type JWT in either form and any case (OIDC-25)."""
        for text in ("JWT", "jwt", "application/jwt", "application/JWT", "APPLICATION/JWT"):
            self.assert_user(token(CLAIMS, typ=text))
        for text in ("", "x-jwt", "text/jwt", "application/jwt;x=y", "application/application/jwt"):
            self.assert_refused(Reason.NOT_AN_ID_TOKEN, token(CLAIMS, typ=text), self.bad)

    def test_users_alone(self) -> None:
        """A claim names a user, whatever its text: never a host, and never the role of another account (OIDC-1, OIDC-26)."""
        for text in ("host/app", "acme:host:app", "other:user:alice", "group/x", "@", "Admin", "alice@x.example"):
            role = RoleName("acme", "user", text)
            self.readings.annotations[role] = {}
            self.readings.permitted.add(role)
            self.assert_user(self.claims(preferred_username=text), role)
        self.readings.annotations[RoleName("acme", "host", "app2")] = {}
        self.assert_refused(Reason.ROLE_UNKNOWN, self.claims(preferred_username="host/app2"), self.bad)

    #: The status of a bad code or token, and of one whose claims name no user.
    bad = 401

    def test_claims(self) -> None:
        """Each claim is checked: issuer, audience, times, kind and user (OIDC-23 to OIDC-27)."""
        many: list[tuple[Reason, str, tuple[object, ...]]] = [
            (Reason.ISSUER_MISSING, "iss", (...,)),
            (Reason.ISSUER_WRONG, "iss", (f"{PROVIDER}/", "https://evil.example", 7, [PROVIDER])),
            (Reason.AUDIENCE_MISSING, "aud", (...,)),
            (Reason.AUDIENCE_WRONG, "aud", ("other", [], ["other"], [CLIENT, 7], CLIENT.upper(), 7, [CLIENT, "other"])),
            (Reason.AUDIENCE_WRONG, "azp", ("other", 7, [CLIENT], "")),
            (Reason.EXPIRY_MISSING, "exp", (...,)),
            (Reason.TOKEN_EXPIRED, "exp", (NOW,)),
            (Reason.TIME_CLAIM_INVALID, "exp", (str(NOW + 60),)),
            (Reason.TOKEN_NOT_YET_VALID, "nbf", (NOW + 9,)),
            (Reason.TOKEN_NOT_YET_VALID, "iat", (NOW + 9,)),
            (Reason.NOT_AN_ID_TOKEN, "typ", ("Bearer", "Refresh", 1, ["ID"])),
            (Reason.NOT_AN_ID_TOKEN, "token_use", ("access", None)),
            (Reason.IDENTITY_CLAIM_MISSING, "preferred_username", (..., "")),
            (Reason.IDENTITY_CLAIM_INVALID, "preferred_username", (7, True, ["alice"], {"a": "b"})),
            (Reason.OIDC_ROLE_REFUSED, "preferred_username", ("admin",)),
            (Reason.ROLE_UNKNOWN, "preferred_username", ("mallory", "x" * 2000)),
        ]
        of_claim = {Reason.IDENTITY_CLAIM_MISSING, Reason.IDENTITY_CLAIM_INVALID, Reason.OIDC_ROLE_REFUSED}
        for reason, name, values in many:
            for value in values:
                with self.subTest(name=name, value=value):
                    self.assert_refused(reason, self.claims(**{name: value}), 401 if reason in of_claim else self.bad)
        self.assert_refused(Reason.AUDIENCE_WRONG, self.claims(aud=[CLIENT, "other"], azp="other"), self.bad)
        for value, said in ((None, "null"), (True, "true"), (["ID", None], '["ID", null]'), ("Bearer", "'Bearer'")):
            refused = self.assert_refused(Reason.NOT_AN_ID_TOKEN, self.claims(typ=value), self.bad)
            self.assertIn(f"'typ' is {said}, not", refused.detail)

    def test_admin(self) -> None:
        """No provider speaks for ``admin``, although it exists and may do everything (OIDC-27)."""
        admin = RoleName("acme", "user", "admin")
        self.readings.annotations[admin] = {}
        self.readings.permitted.add(admin)
        self.assert_refused(Reason.OIDC_ROLE_REFUSED, self.claims(preferred_username="admin"), 401)

    def test_unverified_addresses(self) -> None:
        """A user named by ``email`` isn't admitted where the provider says that it has not verified it (OIDC-27)."""
        email = RoleName("acme", "user", "alice@x.example")
        self.readings.annotations[email] = {}
        self.readings.permitted.add(email)
        self.readings.set(self.branch, claim_mapping="email", id_token_user_property="email")
        good: tuple[object, ...] = (True, "true", ...)
        for verified in good:
            self.assert_user(self.claims(email=email.identifier, email_verified=verified), email)
        bad: tuple[object, ...] = (False, "false", None, 0, 1, 1.0, "1", "True", "yes", [True], {})
        for unverified in bad:
            evidence = self.claims(email=email.identifier, email_verified=unverified)
            self.assert_refused(Reason.EMAIL_UNVERIFIED, evidence, 401)

    def test_top_level_claims(self) -> None:
        """The claim is looked for at the top of the token, in either dialect (OIDC-26)."""
        self.readings.set(self.branch, claim_mapping="who/name", id_token_user_property="who/name")
        self.assert_refused(Reason.IDENTITY_CLAIM_MISSING, self.claims(who={"name": "alice"}), 401)
        self.assert_user(self.claims(**{"who/name": "alice"}))

    def test_signatures(self) -> None:
        """An id token is signed by a key of the provider, with an algorithm of RSA, and is no access token (OIDC-25)."""
        header, _, rest = self.claims().partition(b".")
        unsigned = base64url(b'{"alg":"none"}').encode() + b"." + rest.partition(b".")[0] + b"."
        for reason, evidence in (
            (Reason.TOKEN_UNSIGNED, unsigned),
            (Reason.TOKEN_UNSIGNED, unsigned + b"x"),
            (Reason.ALGORITHM_REFUSED, signed({"alg": "HS256", "kid": "k1"}, CLAIMS)),
            (Reason.ALGORITHM_REFUSED, token(CLAIMS, algorithm="ES256")),
            (Reason.KEY_UNKNOWN, token(CLAIMS, "k2")),
            (Reason.SIGNATURE_WRONG, token(CLAIMS, "k2", kid="k1")),
            (Reason.NOT_AN_ID_TOKEN, token(CLAIMS, typ="at+jwt")),
            (Reason.NOT_AN_ID_TOKEN, token(CLAIMS, typ="application/at+jwt")),
            (Reason.NOT_AN_ID_TOKEN, token(CLAIMS, typ="logout+jwt")),
            (Reason.TOKEN_MALFORMED, b"x"),
            (Reason.TOKEN_MALFORMED, header + b".."),
        ):
            with self.subTest(reason=reason, evidence=evidence[:40]):
                self.assert_refused(reason, evidence, self.bad)
        # A token brings no key of its own.
        foreign = token({**CLAIMS, "sub": "x"}, "k9", jwk=jwk("k9"), kid="k9")
        self.assert_refused(Reason.KEY_UNKNOWN, foreign, self.bad)

    def test_algorithms(self) -> None:
        """An id token may be signed with what the variable lists, and with nothing else (OIDC-2, AUTH-17)."""
        self.provider.published[PROVIDER] = jwks(jwk(), jwk_for("ES256", "e1"))
        elliptic = token(CLAIMS, "e1", "ES256")
        self.assert_refused(Reason.ALGORITHM_REFUSED, elliptic, self.bad)
        self.readings.set(self.branch, algorithms="ES256")
        self.assert_user(elliptic)
        self.assert_refused(Reason.ALGORITHM_REFUSED, token(CLAIMS), self.bad)
        self.readings.set(self.branch, algorithms="none")
        self.assert_refused(Reason.CONFIGURATION_INVALID, elliptic, 401)

    def test_candidate(self) -> None:
        """The user needs the privilege, and comes from where it may (OIDC-28)."""
        self.readings.restrictions[ALICE] = ("198.51.100.0/24",)
        self.assert_refused(Reason.ORIGIN_REFUSED, token(CLAIMS), 401)
        self.assert_user(token(CLAIMS), client_ip="198.51.100.7")
        self.readings.permitted.clear()
        refused = self.assert_refused(Reason.PRIVILEGE_MISSING, token(CLAIMS), privilege_missing_status(self.dialect))
        self.assertTrue(refused.detail.endswith(" has no privilege authenticate on 'authn-oidc/corp'"), refused.detail)

    def test_keys_away(self) -> None:
        """Without the provider's keys nobody can be judged: 503 (FAIL-12)."""
        self.provider.refused = "no route"
        self.assert_refused(Reason.KEYS_UNAVAILABLE, token(CLAIMS), 503)

    def test_not_set_up(self) -> None:
        """An authenticator that isn't enabled, has no webservice or has faulty settings admits nobody (OIDC-3)."""
        self.assert_refused(Reason.AUTHENTICATOR_NOT_ENABLED, token(CLAIMS), self.bad, service="off")
        self.assert_refused(Reason.WEBSERVICE_UNKNOWN, token(CLAIMS), 401, service="bare")
        self.readings.webservice_missing = True
        self.assert_refused(Reason.WEBSERVICE_UNKNOWN, token(CLAIMS), 401)
        self.readings.webservice_missing = False
        self.readings.set(self.branch, claim_mapping=None)
        self.assert_refused(Reason.CONFIGURATION_INVALID, token(CLAIMS), 401)


class ConjurTokenTests(TokenTests):
    """The same where bad codes are answered as malformed requests (OIDC-20)."""

    dialect = CONJUR
    bad = 400


class IdTokenTests(TokenTests):
    """The same where the client brings the id token."""

    by_code = False

    def test_empty(self) -> None:
        """A request without a token is 400 (FAIL-14)."""
        self.assert_refused(Reason.TOKEN_MISSING, b" ", 400)

    def test_scopes(self) -> None:
        """A token with scopes that a client brings is taken for an access token (OIDC-25)."""
        for changes in ({"scope": "openid"}, {"scope": None}, {"scp": ["x"]}, {"scp": None}):
            self.assert_refused(Reason.NOT_AN_ID_TOKEN, self.claims(**changes))

    def test_off(self) -> None:
        """Id tokens aren't taken unless a variable says so, and no key is fetched for them (OIDC-3)."""
        self.readings.unset(self.branch, "id-token-user-property")
        self.assert_refused(Reason.CONFIGURATION_INVALID, token(CLAIMS))
        self.assertEqual(self.provider.fetches, 0)

    def test_audience_always(self) -> None:
        """Without a client id nobody is admitted: an id token for another client would be (OIDC-3, OIDC-24)."""
        self.readings.unset(self.branch, "client-id", "client-secret", "claim-mapping")
        self.assert_refused(Reason.CONFIGURATION_INVALID, token(CLAIMS), 401)

    def test_path(self) -> None:
        """A path that names a user beside the token is ambiguous."""
        self.assert_refused(Reason.IDENTITY_AMBIGUOUS, token(CLAIMS), login="alice")

    def test_lifetime(self) -> None:
        """An access token for an id token has the usual lifetime (OIDC-21)."""
        decision = self.tried(token(CLAIMS))
        assert isinstance(decision, Admitted)
        self.assertIsNone(decision.lifetime)


class ConjurIdTokenTests(IdTokenTests):
    """The same in the other dialect: what is bad is 401 there, too."""

    dialect = CONJUR


class CodeTests(OidcCase):
    """Codes, and the exchange."""

    def refused(self, reason: Reason, status: int, **options: object) -> Refused:
        """The login with a code is refused."""
        return self.assert_refused(reason, self.providers.token, status, **options)

    def test_who_exchanges(self) -> None:
        """The provider of the settings is given the code, by this client, with nonce and verifier (OIDC-11, OIDC-14)."""
        login = self.login(verifier="v" * 50)
        self.assertIsInstance(self.decided(login), Admitted)
        scope = "openid email profile"
        self.assertEqual(self.providers.asked, [(OidcClient(OidcIssuer(PROVIDER), CLIENT, SECRET, scope), login)])

    def test_redirect(self) -> None:
        """A browser's own address takes the place of the client's, whatever that is."""
        self.readings.set(self.branch, redirect_uri="http://127.0.0.1:8888/callback")
        self.decided(self.login())
        self.decided(self.login(redirect_uri="https://svc.example/ui"))
        uris = [client.redirect_uri for client, _ in self.providers.asked]
        self.assertEqual(uris, ["http://127.0.0.1:8888/callback", "https://svc.example/ui"])

    def test_incomplete(self) -> None:
        """A request without a code, or without a nonce, is 400, and the provider isn't asked (FAIL-14)."""
        for options in ({"code": ""}, {"code": " "}, {"nonce": ""}, {"nonce": "\t"}):
            self.refused(Reason.CODE_MISSING, 400, **options)
        self.refused(Reason.TOKEN_TOO_LARGE, 413, code="x" * 20_000)
        self.assertEqual(self.providers.asked, [])

    def test_what_the_provider_says(self) -> None:
        """A code that the provider refuses is bad; one that can't be judged is put off (OIDC-16, OIDC-17, FAIL-13)."""
        for wrong, reason, status in (
            (CodeRefused("invalid_grant"), Reason.CODE_REFUSED, self.bad),
            (CodeRefused("again", replayed=True), Reason.CODE_REPLAYED, self.bad),
            (ClientRefused("invalid_client"), Reason.OIDC_CLIENT_REFUSED, 503),
            (ProviderUnavailable("no route", 3), Reason.OIDC_UNAVAILABLE, 503),
        ):
            self.providers.wrong = wrong
            refused = self.refused(reason, status)
            self.assertEqual(refused.retry_after is not None, status == 503)

    bad = 401

    def test_no_id_token(self) -> None:
        """An answer without an id token admits nobody (OIDC-15)."""
        self.assert_refused(Reason.ID_TOKEN_MISSING, b"", self.bad)

    def test_scopes(self) -> None:
        """An id token that the provider gives for a code may have scopes, as those of AD FS do (OIDC-15, OIDC-25)."""
        self.assert_user(self.claims(scp="openid", appid=CLIENT, apptype="Confidential"))
        self.assert_user(self.claims(scope="openid profile"))

    def test_nonce(self) -> None:
        """The id token is for the login that has its nonce, and for no other (OIDC-19)."""
        for nonce in (..., None, 7, "", NONCE + "x", NONCE.lower(), [NONCE]):
            self.assert_refused(Reason.NONCE_WRONG, self.claims(nonce=nonce), self.bad)
        self.refused(Reason.NONCE_WRONG, self.bad, nonce="another")

    def test_lifetime(self) -> None:
        """An access token lives as long as the variable says, and for an hour without it (OIDC-5)."""
        for text, seconds in ((None, 3600), ("PT90S", 90), ("PT1H30M", 5400), ("P1D", 18_000), ("P1W", 18_000)):
            self.readings.set(self.branch, token_ttl=text)
            decision = self.tried(token(CLAIMS))
            assert isinstance(decision, Admitted), decision
            self.assertEqual(decision.lifetime, seconds)

    def test_not_taken(self) -> None:
        """Where id tokens alone are taken a code is sent nowhere (OIDC-3)."""
        self.readings.unset(self.branch, "client-secret", "claim-mapping")
        self.refused(Reason.CONFIGURATION_INVALID, 401)
        self.assertEqual(self.providers.asked, [])

    def test_unasked(self) -> None:
        """No code is sent for an authenticator that isn't enabled, or in an account that doesn't exist (OIDC-12)."""
        self.refused(Reason.AUTHENTICATOR_NOT_ENABLED, self.bad, service="off")
        self.refused(Reason.ACCOUNT_UNKNOWN, self.bad, account="other")
        self.readings.tell(self.branch, switched=False)
        if self.dialect is not CONJUR:
            self.refused(Reason.AUTHENTICATOR_NOT_ENABLED, self.bad)
        self.assertEqual(len(self.providers.asked), 0)

    def test_settings_first(self) -> None:
        """A provider that was replaced is sent neither a code nor a secret, from the next login on (OIDC-13)."""
        self.decided(self.login())
        self.readings.set(self.branch, provider_uri="https://other.example", client_secret="another")
        self.decided(self.login("c2"))
        client, _ = self.providers.asked[-1]
        self.assertEqual((client.issuer.uri, client.secret), ("https://other.example", "another"))

    def test_changed_meanwhile(self) -> None:
        """Settings that change during the exchange decide: the code isn't sent twice to one client (OIDC-13, AUTH-10)."""
        self.providers.meanwhile = lambda: self.readings.set(self.branch, name="Corporate")
        self.assertIsInstance(self.decided(self.login()), Admitted)
        self.assertEqual(len(self.providers.asked), 1)
        self.providers.meanwhile = lambda: self.readings.tell(self.branch, distrusted=frozenset({"k1"}))
        self.refused(Reason.KEY_DISTRUSTED, self.bad)
        self.assertEqual(len(self.providers.asked), 2)

    def test_changing_without_end(self) -> None:
        """A login whose settings keep changing is put off, and the provider was asked once."""
        self.readings.before_candidate = lambda: self.readings.set(self.branch, name="x")
        login = Deferred.fromCoroutine(self.authenticator.authenticate(self.login()))
        self.failureResultOf(login, StoreUnavailable)
        self.assertEqual(len(self.providers.asked), 1)

    def test_secrets_are_not_shown(self) -> None:
        """Neither a login nor a client shows its secrets where it is printed."""
        login = self.login(verifier="a-verifier")
        self.decided(login)
        client, _ = self.providers.asked[0]
        for text in (repr(login), str(login), repr(client), repr(attrs.evolve(client, redirect_uri="x"))):
            for secret in (SECRET, "c0de", NONCE, "a-verifier", self.providers.token.decode()):
                self.assertNotIn(secret, text)


class ConjurCodeTests(CodeTests):
    """The same where bad codes are answered as malformed requests (OIDC-20)."""

    dialect = CONJUR
    bad = 400


class OrderTests(OidcCase):
    """The order of the checks."""

    def test_names(self) -> None:
        """The checks of both forms stand in the order in which failures count (OIDC-12, OIDC-22)."""
        rest = "keys signature expiry not-before issuer issued-at audience id-token"
        self.assertEqual(
            " ".join(check.name for check in self.kinds.code.checks),
            f"enabled account code webservice configuration form exchange {rest} nonce identity role privilege origin",
        )
        self.assertEqual(
            " ".join(check.name for check in self.kinds.token.checks),
            f"enabled account token webservice configuration form {rest} identity role privilege origin",
        )

    def test_no_oracle(self) -> None:
        """In ``native`` what proves nobody is 401 with one and the same kind, whatever it is (OIDC-20, FAIL-17)."""
        kinds = {reason: kind.value for reason, kind in self.kinds.code.refusal_kinds.items()}
        self.assertEqual(set(kinds.values()), {"malformed", "too-large"})
        self.assertEqual(
            {reason.value for reason in kinds}, {"code-missing", "request-malformed", "token-missing", "token-too-large"}
        )


class ExplainTests(OidcCase):
    """What operators are told."""

    def explanation(self, evidence: bytes) -> Explanation:
        """Every check of an id token."""
        self.authenticator = self.made(kind=self.kinds.explanation)
        return self.explained(evidence, service="corp")

    def test_explained(self) -> None:
        """An id token is explained as it would be judged, check by check, and no code is needed for that (OIDC-30)."""
        for unset in ((), ("id-token-user-property",), ("client-secret", "claim-mapping")):
            if unset:
                self.setUp()
                self.readings.unset(self.branch, *unset)
            found = self.explanation(token(CLAIMS))
            self.assertTrue(found.admitted, found)
            self.assertEqual(found.role, "acme:user:alice")
            failed = [step for step in self.explanation(self.claims(aud="x")).steps if step.outcome == "failed"]
            self.assertEqual([(step.check, step.reason) for step in failed], [("audience", Reason.AUDIENCE_WRONG)])

    def test_scopes(self) -> None:
        """A token with scopes is explained as brought by a client, or where only codes are taken, as given for one (OIDC-25,
        OIDC-30).
        """
        evidence = self.claims(scp="openid")
        failed = [step.reason for step in self.explanation(evidence).steps if step.outcome == "failed"]
        self.assertEqual(failed, [Reason.NOT_AN_ID_TOKEN])
        self.readings.unset(self.branch, "id-token-user-property")
        self.assertTrue(self.explanation(evidence).admitted)

    def test_codes_are_told(self) -> None:
        """Each check of a login with a code tells what it compared, and neither code, nonce nor secret."""
        login = self.login()
        found: Explanation = self.successResultOf(Deferred.fromCoroutine(self.authenticator.explain(login)))
        self.assertTrue(found.admitted)
        for step in found.steps:
            for secret in (SECRET, "c0de", NONCE):
                self.assertNotIn(secret, step.detail)

    def test_status(self) -> None:
        """The status tells that the endpoints aren't known, or may not be asked, beside all that others tell (OIDC-30)."""
        self.authenticator = self.made(kind=self.kinds.explanation)
        self.assertEqual(self.status(service="corp").problems, ())
        self.providers.unlisted = f"https://idp.example/token: its address is private, and {UNLISTED}"
        (problem,) = self.status(service="corp").problems
        self.assertIn(self.providers.unlisted, problem.what)
        self.assertIn("list its network in --allow-private-providers", problem.remedy)
        self.providers.wrong = ProviderUnavailable("it names no token_endpoint")
        (problem,) = self.status(service="corp").problems
        self.assertIn("it names no token_endpoint", problem.what)
        self.readings.unset(self.branch, "client-secret", "claim-mapping")
        self.assertEqual(self.status(service="corp").problems, ())
        self.readings.unset(self.branch, "client-id")
        (problem,) = self.status(service="corp").problems
        self.assertIn("client-id is not declared", problem.what)
        self.provider.refused = "no route"
        self.provider.cached.clear()
        self.readings.set(self.branch, client_id=CLIENT)
        (problem,) = self.status(service="corp").problems
        self.assertIn("There are no keys", problem.what)

    def test_other_name(self) -> None:
        """The provider's own text of its issuer counts; ``provider-uri`` may differ by a final slash (OIDC-23)."""
        self.provider.issuers[PROVIDER] = f"{PROVIDER}/"
        self.authenticator = self.made(kind=self.kinds.explanation)
        for iss, outcome in ((f"{PROVIDER}/", None), (PROVIDER, "issuer"), (f"{PROVIDER}//", "issuer")):
            failed = self.failed(self.claims(iss=iss), service="corp")
            self.assertEqual(None if failed is None else failed.check, outcome)
        self.providers.known = attrs.evolve(METADATA, declared_issuer=f"{PROVIDER}/")
        self.assertEqual(self.status(service="corp").problems, ())

    def test_client_refused(self) -> None:
        """The status tells that the provider refused client and secret at a login, since when, and what to do, also where
        nothing may be asked; and no more once they are others (OIDC-30).
        """
        self.decided(self.login())
        [(client, _)] = self.providers.asked
        self.authenticator = self.made(kind=self.kinds.explanation)
        self.assertEqual(self.status(service="corp").problems, ())
        self.providers.refusals[client] = ClientRefusal(NOW, "https://idp/token: the answer is 'invalid_client'")
        for ask in (True, False):
            asked = self.authenticator.read_status("acme", "corp", ask=ask)
            (problem,) = self.successResultOf(Deferred.fromCoroutine(asked)).problems
            for text in ("refused client-id and client-secret at a login", iso_seconds(NOW), "invalid_client"):
                self.assertIn(text, problem.what)
            self.assertIn("Set client-id and client-secret", problem.remedy)
            self.assertNotIn(SECRET, problem.what + problem.remedy)
        self.readings.set(self.branch, client_secret="another")
        self.assertEqual(self.status(service="corp").problems, ())


class RefusedTests(OidcCase):
    """What failures are counted for."""

    def test_whose(self) -> None:
        """Without a user, each code is counted by itself, and an id token for its account (OIDC-29)."""
        one, other = self.login("a"), self.login("b")
        self.assertNotEqual(one.throttle_key, other.throttle_key)
        self.assertEqual(one.throttle_key, self.login("a").throttle_key)
        self.assertNotIn("c0de", self.login().throttle_key)
        self.assertEqual(LoginRequest("acme", None, b"", "192.0.2.1").throttle_key, "acme:None")

    def test_decoys(self) -> None:
        """A refused code costs the same reading as an admitted one, of a role that can't exist (FAIL-18)."""
        self.decided(self.login())
        admitted = [asked.split()[0] for asked in self.readings.asked]
        self.readings.asked.clear()
        self.providers.wrong = CodeRefused("invalid_grant")
        refused = self.decided(self.login("x"))
        assert isinstance(refused, Refused)
        self.assertEqual(refusal_status(refused), 401)
        self.assertEqual([asked.split()[0] for asked in self.readings.asked], admitted)
        self.assertEqual(admitted, ["settings", "applicant"])


class KeyConfusionTests(OidcCase):
    """Keys of one provider, or of one client, that are used at another."""

    def test_mixed_up_issuers(self) -> None:
        """A token of another issuer isn't taken, though the same key signed it, or it has the same key id (OIDC-23)."""
        other = "https://other.example"
        self.provider.published[other] = jwks(jwk("k2", kid="k1"))
        self.assert_refused(Reason.SIGNATURE_WRONG, token({**CLAIMS}, "k2", kid="k1"))
        self.assert_refused(Reason.ISSUER_WRONG, self.claims(iss=other))
        self.readings.set(self.branch, provider_uri=other)
        self.assert_refused(Reason.SIGNATURE_WRONG, token(CLAIMS))
        self.assert_refused(Reason.ISSUER_WRONG, token(CLAIMS, "k2", kid="k1"))
        self.assert_user(token({**CLAIMS, "iss": other}, "k2", kid="k1"))
