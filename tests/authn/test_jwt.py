"""Tests of ``svc.authn.jwt`` and ``evaluation``: which tokens admit whom."""

from __future__ import annotations

import hashlib
import hmac
import json
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from zope.interface.verify import verifyObject

from svc.crypto.key_sets import parse_key_set
from svc.model.authentication import IProviderKeys, Refused
from svc.model.dialect import CONJUR
from svc.model.errors import StoreUnavailable
from svc.model.reasons import Reason
from tests.authn.providers.authority import Authority
from tests.authn.world import ALICE, CLAIMS, HOST, ISSUER, NOW, PROVIDER, URI, Case, Webservice
from tests.signing import base64url, jwk, jwks, signed, token
from tests.statuses import privilege_missing_status, refusal_status
from tests.work import functions_of_ours


class AdmissionTests(Case):
    """Who is admitted, in both dialects."""

    def test_provides_the_interfaces(self) -> None:
        """The fakes of these tests are what they say."""
        verifyObject(IProviderKeys, self.provider)

    def test_a_good_token(self) -> None:
        """A token that fits in every respect admits its host, with the key to sign for it."""
        self.assert_admitted(token(CLAIMS))

    def test_blanks_around_the_token(self) -> None:
        """Blanks and line ends around a token, as files have them, are no part of it (AUTH-14)."""
        self.assert_admitted(b" " + token(CLAIMS) + b"\r\n")

    def test_every_algorithm(self) -> None:
        """RS256, RS384 and RS512 are good."""
        for algorithm in ("RS256", "RS384", "RS512"):
            self.assert_admitted(token(CLAIMS, algorithm=algorithm))

    def test_public_keys(self) -> None:
        """Keys may stand in a variable instead of being fetched."""
        self.readings.unset(self.branch, "jwks-uri")
        self.readings.set(self.branch, public_keys=json.dumps({"type": "jwks", "value": json.loads(jwks())}))
        self.assert_admitted(token(CLAIMS))
        self.refusal(Reason.KEY_UNKNOWN, token(CLAIMS, "k2"))
        self.assertEqual(self.provider.fetches, 0)

    def test_identity_in_the_path(self) -> None:
        """Without token-app-property the path names the host or user, and identity-path is not looked at."""
        self.readings.unset(self.branch, "token-app-property")
        self.readings.set(self.branch, identity_path=None)
        self.assert_admitted(token(CLAIMS), login="host/jwt-apps/build")
        self.readings.annotations[ALICE] = {"authn-jwt/ci/repo": "org/app"}
        self.readings.permitted.add(ALICE)
        self.assert_admitted(token(CLAIMS), role=ALICE, login="alice")
        self.assert_admitted(token(CLAIMS), role=ALICE, login="user/alice")

    def test_optional_time_claims(self) -> None:
        """``nbf`` and ``iat`` may be absent."""
        self.assert_admitted(self.claims(nbf=..., iat=...))

    def test_audience(self) -> None:
        """A token for several audiences, ours among them, is good."""
        self.readings.set(self.branch, audience="svc")
        for audience in ("svc", ["other", "svc"]):
            self.assert_admitted(self.claims(aud=audience))

    def test_other_annotations_say_nothing(self) -> None:
        """Annotations for other services, or for the authenticator in general, are not compared (AUTH-32)."""
        self.readings.annotations[HOST] |= {"authn-jwt/repo": "x", "authn-jwt/other/repo": "x", "authn-jwt/ci2/repo": "x"}
        self.assert_admitted(token(CLAIMS))


class BadTokenTests(Case):
    """Which tokens are refused, in both dialects."""

    def test_no_token(self) -> None:
        """A request without token is a bad request."""
        for evidence in (b"", b" \r\n"):
            self.refusal(Reason.TOKEN_MISSING, evidence, 400)

    def test_megabyte_token(self) -> None:
        """A token of a megabyte is refused for its size, which the client may know."""
        self.refusal(Reason.TOKEN_TOO_LARGE, b"x" * (1 << 20), 413)
        self.refusal(Reason.TOKEN_TOO_LARGE, self.claims(pad="x" * 16_384), 413)

    def test_malformed(self) -> None:
        """What isn't a token is refused."""
        for evidence in (b"x", b"a.b", b"a.b.c", b"a.b.c.d", b"\x00", b"\xff.\xff.\xff", b"." * 1000):
            self.refusal(Reason.TOKEN_MALFORMED, evidence)

    def test_unsigned(self) -> None:
        """A token without signature is refused."""
        self.refusal(Reason.TOKEN_UNSIGNED, token(CLAIMS).rpartition(b".")[0] + b".")
        self.refusal(Reason.TOKEN_UNSIGNED, signed({"alg": "none", "kid": "k1"}, CLAIMS))

    def test_hs256_signed_with_the_public_key(self) -> None:
        """A token signed with the provider's public key as if that were a secret is refused."""
        parts = signed({"alg": "HS256", "kid": "k1"}, CLAIMS).rpartition(b".")[0]
        mac = hmac.new(json.dumps(jwk()).encode(), parts, hashlib.sha256).digest()
        self.refusal(Reason.ALGORITHM_REFUSED, parts + b"." + base64url(mac).encode())

    def test_critical_header(self) -> None:
        """A token with critical extensions is refused."""
        self.refusal(Reason.CRITICAL_HEADER, token(CLAIMS, crit=["exp"]))

    def test_unknown_key(self) -> None:
        """A token signed with a key that the provider doesn't publish is refused."""
        self.refusal(Reason.KEY_UNKNOWN, token(CLAIMS, "k2"))

    def test_wrong_kid(self) -> None:
        """A token that names another key than it is signed with is refused."""
        self.provider.published[URI] = jwks(jwk("k1"), jwk("k2"))
        self.refusal(Reason.SIGNATURE_WRONG, token(CLAIMS, "k1", kid="k2"))
        self.refusal(Reason.KEY_ID_MISSING, token(CLAIMS, kid=None))

    def test_altered(self) -> None:
        """A token with other claims under the same signature is refused."""
        head, _, signature = token(CLAIMS).split(b".")
        body = base64url(json.dumps({**CLAIMS, "app": "deploy"}).encode()).encode()
        self.refusal(Reason.SIGNATURE_WRONG, b".".join((head, body, signature)))

    def test_no_exp(self) -> None:
        """A token that never expires is refused, and an empty one too."""
        self.refusal(Reason.EXPIRY_MISSING, self.claims(exp=...))
        self.refusal(Reason.EXPIRY_MISSING, token({}))

    def test_expired(self) -> None:
        """A token is refused from the second of its expiry on, like any other refusal."""
        self.refusal(Reason.TOKEN_EXPIRED, self.claims(exp=NOW))
        good = token(CLAIMS)
        self.assert_admitted(good)
        self.clock.advance(60)
        self.refusal(Reason.TOKEN_EXPIRED, good)

    def test_not_yet_valid(self) -> None:
        """A token from the future is refused."""
        self.refusal(Reason.TOKEN_NOT_YET_VALID, self.claims(nbf=NOW + 1))
        self.refusal(Reason.TOKEN_NOT_YET_VALID, self.claims(iat=NOW + 1))

    def test_how_far_ahead(self) -> None:
        """A token from within the second that has begun here is admitted, and the detail of a refusal says how far ahead its
        time is (AUTH-19).
        """
        self.clock.advance(0.25)
        for name in ("nbf", "iat"):
            self.assert_admitted(self.claims(**{name: NOW + 1}))
            for moment, ahead in (
                (NOW + 3.25, "3 s"),
                (NOW + 2, "1.75 s"),
                (NOW + 1.5, "1.25 s"),
                (NOW + 86400.25, "86400 s"),
            ):
                decision = self.attempt(self.claims(**{name: moment}))
                assert isinstance(decision, Refused)
                self.assertEqual(decision.reason, Reason.TOKEN_NOT_YET_VALID)
                self.assertIn(f"which is {ahead} ahead of the time here", decision.detail)

    def test_bad_times(self) -> None:
        """Times that aren't finite numbers are refused."""
        for name in ("exp", "nbf", "iat"):
            for value in (None, True, "1800000000", [1], {"a": 1}):
                self.refusal(Reason.TIME_CLAIM_INVALID, self.claims(**{name: value}))
        for spelling in (b"1e400", b"-1e400", b"1" + b"0" * 400):
            self.refusal(Reason.TIME_CLAIM_INVALID, token(b'{"exp":' + spelling + b"}"))

    def test_clock_skew(self) -> None:
        """The configured difference of clocks is granted, for all three times alike (AUTH-20)."""
        self.authenticator = self.made(clock_skew=5.0)
        self.assert_admitted(self.claims(exp=NOW - 4, nbf=NOW + 5, iat=NOW + 5))
        self.refusal(Reason.TOKEN_EXPIRED, self.claims(exp=NOW - 5))
        self.refusal(Reason.TOKEN_NOT_YET_VALID, self.claims(nbf=NOW + 6))
        self.refusal(Reason.TOKEN_NOT_YET_VALID, self.claims(iat=NOW + 6))

    def test_wrong_issuer(self) -> None:
        """A token by another issuer is refused, whatever else it looks like."""
        for issuer in ("https://idp.example/", "https://idp", "", [ISSUER], None, 1):
            self.refusal(Reason.ISSUER_WRONG, self.claims(iss=issuer))

    def test_wrong_audience(self) -> None:
        """A token for another audience, or for none, is refused when one is configured."""
        self.readings.set(self.branch, audience="svc")
        self.refusal(Reason.AUDIENCE_WRONG, self.claims(aud="other"))
        self.refusal(Reason.AUDIENCE_WRONG, self.claims(aud=["other"]))
        self.refusal(Reason.AUDIENCE_MISSING, self.claims())

    def test_payload_that_is_no_object(self) -> None:
        """A signed payload that isn't a JSON object without duplicates is refused."""
        for payload in (b"[]", b"x", b'{"exp":1,"exp":9e9}', b'{"exp":NaN}', token(CLAIMS)):
            self.refusal(Reason.TOKEN_MALFORMED, token(payload))


class IdentityTests(Case):
    """Which identities are refused, in both dialects."""

    def test_identity_from_both(self) -> None:
        """Token and path may not both name the host, even when they agree (AUTH-30)."""
        self.refusal(Reason.IDENTITY_AMBIGUOUS, token(CLAIMS), login="host/jwt-apps/build")

    def test_identity_from_neither(self) -> None:
        """One of token and path must name the host (AUTH-30)."""
        self.readings.unset(self.branch, "token-app-property")
        self.refusal(Reason.IDENTITY_AMBIGUOUS, token(CLAIMS))

    def test_claim_missing(self) -> None:
        """A token without the claim that names the host is refused."""
        for value in (..., None, ""):
            self.refusal(Reason.IDENTITY_CLAIM_MISSING, self.claims(app=value))

    def test_claim_of_another_type(self) -> None:
        """A claim that isn't text names no host."""
        for value in (1, True, ["build"], {"build": 1}):
            self.refusal(Reason.IDENTITY_CLAIM_INVALID, self.claims(app=value))

    def test_unknown_host(self) -> None:
        """A host that doesn't exist, or can't, is refused."""
        refused = self.refusal(Reason.ROLE_UNKNOWN, self.claims(app="other"))
        self.assertEqual(refused.role, "acme:host:jwt-apps/other")
        for value in ("a\x00", "x" * 2000, "\ud800", "/"):
            self.refusal(Reason.ROLE_UNKNOWN, self.claims(app=value))

    def test_a_claim_names_no_user(self) -> None:
        """No claim admits a user."""
        self.readings.annotations[ALICE] = {"authn-jwt/ci/repo": "org/app"}
        self.readings.permitted.add(ALICE)
        self.readings.unset(self.branch, "identity-path")
        for value in ("alice", "user/alice", "acme:user:alice"):
            self.refusal(Reason.ROLE_UNKNOWN, self.claims(app=value))

    def test_host_outside_apps(self) -> None:
        """A host without the privilege is refused, with the status of the dialect."""
        self.readings.permitted.clear()
        refused = self.refusal(Reason.PRIVILEGE_MISSING, token(CLAIMS), privilege_missing_status(self.dialect))
        self.assertEqual(refused.role, str(HOST))

    def test_host_without_annotations(self) -> None:
        """A host without annotation for this authenticator is refused."""
        self.readings.annotations[HOST] = {"authn-jwt/other/repo": "org/app", "authn-jwt/ci": "x"}
        self.refusal(Reason.ANNOTATIONS_MISSING, token(CLAIMS))

    def test_a_claim_that_differs(self) -> None:
        """A claim that differs from its annotation is refused, and the detail shows both."""
        refused = self.refusal(Reason.CLAIM_MISMATCH, self.claims(repo="org/evil\n2024 admitted"))
        self.assertEqual(refused.detail, r"the claim 'repo' is 'org/evil\n2024 admitted'; the annotation says 'org/app'")
        self.assertEqual(refused.role, str(HOST))

    def test_a_claim_that_is_missing(self) -> None:
        """A claim that is missing or no text doesn't match."""
        self.refusal(Reason.CLAIM_MISSING, self.claims(repo=...))
        self.refusal(Reason.CLAIM_IS_NUMBER, self.claims(repo=1))
        self.refusal(Reason.CLAIM_IS_ARRAY, self.claims(repo=["org/app"]))

    def test_bad_annotations(self) -> None:
        """Annotations that are forbidden, misnamed or blank refuse every token."""
        for name, reason in (
            ("iss", Reason.ANNOTATION_FORBIDDEN),
            ("a b", Reason.ANNOTATION_NAME_INVALID),
            ("", Reason.ANNOTATION_NAME_INVALID),
        ):
            self.readings.annotations[HOST] = {"authn-jwt/ci/repo": "org/app", f"authn-jwt/ci/{name}": ISSUER}
            self.refusal(reason, token(CLAIMS))
        self.readings.annotations[HOST] = {"authn-jwt/ci/repo": " "}
        self.refusal(Reason.ANNOTATION_EMPTY, self.claims(repo=" "))


class PlaceTests(Case):
    """Where tokens are refused, in both dialects."""

    def test_not_enabled(self) -> None:
        """An authenticator that isn't listed admits nobody, and an impossible one isn't asked for."""
        self.readings.webservices[f"{self.dialect.prefix}/authn-jwt/off"] = self.readings.webservices[self.branch]
        for service in ("off", "", "CI", "ci/", "\n"):
            self.refusal(Reason.AUTHENTICATOR_NOT_ENABLED, token(CLAIMS), service=service)
        self.assertEqual(self.provider.fetches, 0)
        self.readings.asked.clear()
        for impossible in ("\x00", "\ud800", "x" * 2000, None):
            self.refusal(Reason.AUTHENTICATOR_NOT_ENABLED, token(CLAIMS), service=impossible)
        for account in ("", "a b", "\x00", "\ud800"):
            self.refusal(Reason.AUTHENTICATOR_NOT_ENABLED, token(CLAIMS), service="off", account=account)
        self.assertEqual(self.readings.asked, [])

    def test_unknown_service_id(self) -> None:
        """An authenticator that is listed, and that no policy defines, admits nobody."""
        self.refusal(Reason.WEBSERVICE_UNKNOWN, token(CLAIMS), service="bare")

    def test_without_settings(self) -> None:
        """An authenticator whose policy declares no variable admits nobody."""
        self.readings.webservices[f"{self.dialect.prefix}/authn-jwt/bare"] = Webservice()
        self.refusal(Reason.CONFIGURATION_INVALID, token(CLAIMS), service="bare")

    def test_without_webservice(self) -> None:
        """Variables without a webservice admit nobody."""
        self.readings.webservice_missing = True
        self.refusal(Reason.WEBSERVICE_UNKNOWN, token(CLAIMS))

    def test_unknown_account(self) -> None:
        """An account that doesn't exist, or can't, is the first thing that is wrong."""
        for evidence in (token(CLAIMS), b"", b"x" * (1 << 20), b"a.b.c"):
            for account in ("other", "", "a b", "a:b", "a/b", "\x00", "\ud800", "x" * 1000):
                self.refusal(Reason.ACCOUNT_UNKNOWN, evidence, account=account)

    def test_unreadable_request(self) -> None:
        """A request from which no token could be read is refused for what was found, after the reading that all cost."""
        for reason, status in ((Reason.REQUEST_MALFORMED, 400), (Reason.TOKEN_TOO_LARGE, 413)):
            refused = self.refusal(reason, b"", status, fault=(reason, "so it is"))
            self.assertEqual(refused.detail, "so it is")
        self.assertEqual(self.readings.asked.count("applicant acme:host:"), 2)

    def test_what_does_not_exist_costs_no_more(self) -> None:
        """That an account or policy doesn't exist is remembered, so that a refusal there costs one reading too."""
        for _ in range(3):
            self.refusal(Reason.ACCOUNT_UNKNOWN, token(CLAIMS), account="other")
            self.refusal(Reason.WEBSERVICE_UNKNOWN, token(CLAIMS), service="bare")
        self.assertEqual(self.readings.asked.count("settings"), 2)

    def test_strangers_displace_nothing(self) -> None:
        """However many accounts a stranger makes up, the settings of those that exist stay at hand."""
        self.assert_admitted(token(CLAIMS))
        for number in range(1001):
            self.refusal(Reason.ACCOUNT_UNKNOWN, token(CLAIMS), account=f"other{number}")
        self.readings.asked.clear()
        self.assert_admitted(token(CLAIMS))
        self.refusal(Reason.ACCOUNT_UNKNOWN, token(CLAIMS), account="other0")
        self.assertEqual(self.readings.asked.count("settings"), 1)

    def test_store_unavailable(self) -> None:
        """While the store can't be asked nobody is admitted or refused."""
        self.readings.down = True
        request = self.trying(token(CLAIMS))
        self.failureResultOf(Deferred.fromCoroutine(self.authenticator.authenticate(request)), StoreUnavailable)
        self.readings.down = False
        self.assert_admitted(token(CLAIMS))


class OriginTests(Case):
    """From where a host may log in, in both dialects."""

    def test_restricted(self) -> None:
        """A host that is restricted to networks logs in from one of them, and from nowhere else."""
        self.readings.restrictions[HOST] = ("198.51.100.0/24", "2001:db8::/32", "192.0.2.7/32")
        for address in ("198.51.100.9", "::ffff:198.51.100.9", "2001:db8::1", "2001:db8::1%eth0", "192.0.2.7"):
            self.assert_admitted(token(CLAIMS), client_ip=address)
        for address in ("192.0.2.1", "2001:db9::1", "::ffff:192.0.2.1", "", "unix", "198.51.100.9, 192.0.2.1"):
            refused = self.refusal(Reason.ORIGIN_REFUSED, token(CLAIMS), client_ip=address)
            self.assertEqual(refused.role, str(HOST))

    def test_unrestricted(self) -> None:
        """A host without restriction logs in from everywhere, also where no address is known."""
        for address in ("192.0.2.1", "::1", "unix"):
            self.assert_admitted(token(CLAIMS), client_ip=address)

    def test_after_the_privilege(self) -> None:
        """Where a host that may not authenticate comes from isn't looked at."""
        self.readings.restrictions[HOST] = ("198.51.100.0/24",)
        self.readings.permitted.clear()
        self.refusal(Reason.PRIVILEGE_MISSING, token(CLAIMS), privilege_missing_status(self.dialect))


class ClaimSettingsTests(Case):
    """Aliases, enforced claims and discovery, from the variables to the decision, in both dialects."""

    def test_aliases(self) -> None:
        """With an alias the annotation must have the new name, under either name of the variable."""
        for name in ("mapping_claims", "claim_aliases"):
            self.readings.set(self.branch, **{name: "repository: repo"})
            self.readings.annotations[HOST] = {"authn-jwt/ci/repository": "org/app"}
            self.assert_admitted(token(CLAIMS))
            self.readings.annotations[HOST] = {"authn-jwt/ci/repo": "org/app"}
            self.refusal(Reason.ANNOTATION_FORBIDDEN, token(CLAIMS))

    def test_enforced_claims(self) -> None:
        """Once a claim is enforced, a host without its annotation is refused."""
        self.readings.set(self.branch, enforced_claims="repo, ref")
        self.refusal(Reason.ANNOTATION_ENFORCED, self.claims(ref="main"))
        self.readings.annotations[HOST]["authn-jwt/ci/ref"] = "main"
        self.assert_admitted(self.claims(ref="main"))
        self.refusal(Reason.CLAIM_MISMATCH, self.claims(ref="other"))

    def test_discovery(self) -> None:
        """Keys may be those of an OIDC provider, which is the issuer then."""
        self.readings.unset(self.branch, "jwks-uri", "issuer")
        self.readings.set(self.branch, provider_uri=PROVIDER)
        self.assert_admitted(self.claims(iss=PROVIDER))
        for issuer in (ISSUER, f"{PROVIDER}/"):
            self.refusal(Reason.ISSUER_WRONG, self.claims(iss=issuer))
        self.assertEqual([source.discovered for source in self.provider.cached], [True])

    def test_its_own_text(self) -> None:
        """The provider's own text of its issuer counts, whichever final slash ``provider-uri`` has, unless ``issuer`` says
        another (AUTH-21).
        """
        self.readings.unset(self.branch, "jwks-uri", "issuer")
        for provider, issuer in ((PROVIDER, f"{PROVIDER}/"), (f"{PROVIDER}/", PROVIDER), (PROVIDER, PROVIDER)):
            self.provider.published[provider] = jwks()
            self.provider.issuers[provider] = issuer
            self.provider.cached.clear()
            self.readings.set(self.branch, provider_uri=provider)
            self.assert_admitted(self.claims(iss=issuer))
            for other in {PROVIDER, f"{PROVIDER}/", f"{PROVIDER}//", ISSUER} - {issuer}:
                self.refusal(Reason.ISSUER_WRONG, self.claims(iss=other))
            self.assertEqual(self.status().problems, ())
        self.readings.set(self.branch, issuer=f"{PROVIDER}/x")
        self.assert_admitted(self.claims(iss=f"{PROVIDER}/x"))
        self.refusal(Reason.ISSUER_WRONG, self.claims(iss=PROVIDER))

    def test_authority(self) -> None:
        """The certificates of the provider's authority go where its keys are fetched."""
        pem = Authority().pem
        self.readings.set(self.branch, ca_cert=pem)
        self.assert_admitted(token(CLAIMS))
        self.assertEqual([source.ca_cert for source in self.provider.cached], [pem])


class SameWorkTests(Case):
    """Note [Same work], in both dialects."""

    def trips(self, evidence: bytes, **options: Any) -> list[str]:
        """What the store is asked for one attempt with settings at hand."""
        self.assert_admitted(token(CLAIMS))
        self.readings.asked.clear()
        self.attempt(evidence, **options)
        return [asked.partition(" ")[0] for asked in self.readings.asked]

    def test_one_round_trip(self) -> None:
        """An admission and every sort of refusal cost one reading each (FAIL-18, AUTH-11)."""
        for evidence in (
            token(CLAIMS),
            self.claims(app="unknown"),
            self.claims(app="im\x00possible"),
            self.claims(app=...),
            self.claims(repo="other"),
            self.claims(exp=NOW),
            token(CLAIMS, "k2", kid="k1"),
            b"a.b.c",
            b"",
        ):
            self.assertEqual(self.trips(evidence), ["applicant"], evidence)
        self.readings.permitted.clear()
        self.readings.asked.clear()
        self.attempt(token(CLAIMS))
        self.assertEqual(self.readings.asked, [f"applicant {HOST}"])

    def test_no_more_than_an_admission(self) -> None:
        """A refusal with its reason calls hardly more functions than an admission, for which a token is yet to be signed
        (FAIL-18).
        """
        self.assert_admitted(token(CLAIMS))
        admitted = functions_of_ours(partial(self.attempt, token(CLAIMS)))
        for evidence in (
            self.claims(app="unknown"),
            self.claims(repo="other"),
            self.claims(exp=NOW),
            token(CLAIMS, "k2", kid="k1"),
            b"a.b.c",
            b"",
        ):
            self.assertLessEqual(functions_of_ours(partial(self.attempt, evidence)), admitted + 6, evidence)

    def test_nobody(self) -> None:
        """Where no role is known, the reading is for one that can't exist (FAIL-18)."""
        self.refusal(Reason.TOKEN_EXPIRED, self.claims(exp=NOW))
        self.assertEqual(self.readings.asked[-1], "applicant acme:host:")

    def test_refusals_look_alike(self) -> None:
        """Unknown host, wrong claim and expired token have one status (FAIL-17)."""
        for evidence in (self.claims(app="unknown"), self.claims(repo="other"), self.claims(exp=NOW), b"x"):
            refused = self.attempt(evidence)
            assert isinstance(refused, Refused)
            self.assertEqual(refusal_status(refused), 401)


class SettingsTests(Case):
    """Note [Optimistic settings], in both dialects."""

    def test_settings_are_read_once(self) -> None:
        """As long as nothing changes, the settings are read for the first login alone."""
        for _ in range(5):
            self.assert_admitted(token(CLAIMS))
        self.assertEqual(self.readings.asked, ["settings", *[f"applicant {HOST}"] * 5])

    def test_a_change_takes_effect_at_once(self) -> None:
        """The first login after a change is decided with it, when it locks out and when it lets in (AUTH-10)."""
        self.assert_admitted(token(CLAIMS))
        self.readings.set(self.branch, issuer="https://new.example")
        self.refusal(Reason.ISSUER_WRONG, token(CLAIMS))
        self.assert_admitted(self.claims(iss="https://new.example"))
        self.readings.set(self.branch, issuer=ISSUER)
        self.assert_admitted(token(CLAIMS))

    def test_a_new_address_needs_no_answer_from_the_old(self) -> None:
        """When a provider is replaced, its keys are good no longer, and the new one's are at once."""
        self.assert_admitted(token(CLAIMS))
        other = "https://other.example/keys"
        self.provider.published[other] = jwks(jwk("k2"))
        self.readings.set(self.branch, jwks_uri=other)
        self.refusal(Reason.KEY_UNKNOWN, token(CLAIMS))
        self.assert_admitted(token(CLAIMS, "k2"))

    def test_a_fault_takes_effect_and_heals_at_once(self) -> None:
        """Settings that become faulty admit nobody; mended ones admit again."""
        self.assert_admitted(token(CLAIMS))
        self.readings.set(self.branch, audience=None)
        self.refusal(Reason.CONFIGURATION_INVALID, token(CLAIMS))
        self.readings.unset(self.branch, "audience")
        self.assert_admitted(token(CLAIMS))

    def test_a_change_during_a_login(self) -> None:
        """Settings that change while a login is decided decide it (AUTH-10)."""
        self.assert_admitted(token(CLAIMS))

        def change() -> None:
            self.readings.before_candidate = lambda: None
            self.readings.set(self.branch, audience="svc")

        self.readings.before_candidate = change
        self.refusal(Reason.AUDIENCE_MISSING, token(CLAIMS))

    def test_changes_without_end(self) -> None:
        """A login whose settings change at every look is neither admitted nor refused (AUTH-10)."""
        self.readings.before_candidate = lambda: self.readings.set(self.branch, issuer=ISSUER)
        request = self.trying(token(CLAIMS))
        self.failureResultOf(Deferred.fromCoroutine(self.authenticator.authenticate(request)), StoreUnavailable)
        self.assertLess(len(self.readings.asked), 10)

    def test_moved_values_do_not_open(self) -> None:
        """A sealed value that was moved to another variable is a fault, not a setting."""
        variables = self.readings.webservices[self.branch].variables
        variables["audience"] = variables["issuer"]
        self.assertIn("audience", self.refusal(Reason.CONFIGURATION_INVALID, token(CLAIMS)).detail)

    def test_values_are_text(self) -> None:
        """A value that isn't UTF-8 is a fault."""
        full = f"acme:variable:{self.branch}/audience"
        self.readings.webservices[self.branch].variables["audience"] = self.vault.seal(full, b"\xff")
        self.assertIn("audience", self.refusal(Reason.CONFIGURATION_INVALID, token(CLAIMS)).detail)


class RotationTests(Case):
    """How keys are renewed, in both dialects."""

    def test_a_new_key(self) -> None:
        """A token signed with a new key makes the keys be fetched, and is decided with them."""
        self.assert_admitted(token(CLAIMS))
        self.provider.published[URI] = jwks(jwk("k1"), jwk("k2"))
        self.assert_admitted(token(CLAIMS, "k2"))
        self.assertEqual(self.provider.fetches, 2)

    def test_a_new_key_under_the_old_id(self) -> None:
        """A provider may rotate and keep the key id."""
        self.assert_admitted(token(CLAIMS))
        self.provider.published[URI] = jwks(jwk("k2", kid="k1"))
        self.assert_admitted(token(CLAIMS, "k2", kid="k1"))
        self.refusal(Reason.SIGNATURE_WRONG, token(CLAIMS))

    def test_one_key_in_place_of_two(self) -> None:
        """Tokens without key id are good again when it is known that the provider is back to one key."""
        self.provider.published[URI] = jwks(jwk("k1"), jwk("k2"))
        self.refusal(Reason.KEY_ID_MISSING, token(CLAIMS, kid=None))
        self.provider.published[URI] = jwks(jwk("k2"))
        self.refusal(Reason.KEY_ID_MISSING, token(CLAIMS, "k2", kid=None))
        self.readings.tell(self.branch, refreshes=1)
        self.assert_admitted(token(CLAIMS, "k2", kid=None))

    def test_a_provider_without_key_ids(self) -> None:
        """A provider of one key that never names it may change it."""
        self.provider.published[URI] = jwks(jwk("k1", kid=None))
        self.assert_admitted(token(CLAIMS, kid=None))
        self.provider.published[URI] = jwks(jwk("k2", kid=None))
        self.assert_admitted(token(CLAIMS, "k2", kid=None))
        self.refusal(Reason.SIGNATURE_WRONG, token(CLAIMS, kid=None))

    def test_what_has_newer_keys_asked_for(self) -> None:
        """An unknown key id and a wrong signature have newer keys asked for, once each, and nothing else does (AUTH-44)."""
        (thumbprint,) = (key.thumbprint for key in parse_key_set(jwks(jwk("stolen"))).keys)
        self.provider.published[URI] = jwks(jwk("k1"), jwk("k2"), jwk("narrow", alg="RS256"), jwk("gone"), jwk("stolen"))
        self.readings.tell(self.branch, distrusted=frozenset({"gone", thumbprint}))
        head, body, _ = token(CLAIMS).split(b".")
        unknown, wrong = Reason.KEY_UNKNOWN, Reason.SIGNATURE_WRONG
        for reason, evidence in (
            (unknown, token(CLAIMS, "k3")),
            (unknown, token({**CLAIMS, "exp": NOW}, "k3")),
            (wrong, token(CLAIMS, "k2", kid="k1")),
            (wrong, b".".join((head, body, base64url(bytes(256)).encode()))),
            (wrong, token(CLAIMS, "k1", kid="gone")),
            (wrong, token(CLAIMS, "k1", kid="stolen")),
            (Reason.TOKEN_MISSING, b""),
            (Reason.TOKEN_TOO_LARGE, b"a" * 20_000),
            (Reason.TOKEN_MALFORMED, b"a.b.c"),
            (Reason.TOKEN_MALFORMED, token(b"[]")),
            (Reason.TOKEN_MALFORMED, signed({"alg": "RS256", "kid": 1}, CLAIMS)),
            (Reason.TOKEN_UNSIGNED, head + b"." + body + b"."),
            (Reason.TOKEN_UNSIGNED, signed({"alg": "none"}, CLAIMS)),
            (Reason.CRITICAL_HEADER, token(CLAIMS, crit=["exp"])),
            (Reason.ALGORITHM_REFUSED, signed({"alg": "ES256", "kid": "k3"}, CLAIMS)),
            (Reason.ALGORITHM_REFUSED, token(CLAIMS, "narrow", "RS512")),
            (Reason.ALGORITHM_REFUSED, token(CLAIMS, "k1", "RS512", kid="narrow")),
            (Reason.KEY_ID_MISSING, token(CLAIMS, kid=None)),
            (Reason.KEY_ID_MISSING, token(CLAIMS, "k3", kid=None)),
            (Reason.KEY_DISTRUSTED, token(CLAIMS, "gone")),
            (Reason.KEY_DISTRUSTED, token(CLAIMS, "stolen")),
            (Reason.EXPIRY_MISSING, self.claims(exp=...)),
            (Reason.TOKEN_EXPIRED, self.claims(exp=NOW)),
            (Reason.TIME_CLAIM_INVALID, self.claims(exp="x")),
            (Reason.TOKEN_NOT_YET_VALID, self.claims(nbf=NOW + 9)),
            (Reason.TOKEN_NOT_YET_VALID, self.claims(iat=NOW + 9)),
            (Reason.ISSUER_WRONG, self.claims(iss="x")),
            (Reason.IDENTITY_CLAIM_MISSING, self.claims(app=...)),
            (Reason.IDENTITY_CLAIM_INVALID, self.claims(app=1)),
            (Reason.ROLE_UNKNOWN, self.claims(app="unknown")),
            (Reason.CLAIM_MISSING, self.claims(repo=...)),
            (Reason.CLAIM_MISMATCH, self.claims(repo="x")),
        ):
            for spent in (False, True):
                self.provider.spent, before = spent, self.provider.wanted
                status = {Reason.TOKEN_MISSING: 400, Reason.TOKEN_TOO_LARGE: 413}.get(reason, 401)
                self.refusal(reason, evidence, status)
                self.assertEqual(self.provider.wanted - before, reason in {unknown, wrong}, (reason, evidence[:60]))
        self.assertEqual(self.provider.fetches, 1 + 6)

    def test_inside_the_interval(self) -> None:
        """When these are the newest keys there are, the refusal says what is wrong with the token, and that (FAIL-15,
        AUTH-45).
        """
        self.assert_admitted(token(CLAIMS))
        self.provider.spent = True
        for reason, evidence in (
            (Reason.KEY_UNKNOWN, token(CLAIMS, "k2")),
            (Reason.SIGNATURE_WRONG, token(CLAIMS, "k2", kid="k1")),
        ):
            refused = self.refusal(reason, evidence)
            self.assertTrue(refused.detail.endswith("; these keys were fetched a moment ago"), refused.detail)
            self.assertIsNone(refused.retry_after)
        self.assert_admitted(token(CLAIMS))

    def test_no_newer_keys(self) -> None:
        """A login that needs newer keys that can't be had is put off, not refused: nobody knows whether its token is good
        (FAIL-15, AUTH-45).
        """
        self.assert_admitted(token(CLAIMS))
        self.provider.refused = "no route"
        for evidence, what in (
            (token(CLAIMS, "k2"), "the token names the key 'k2'; usable are 'k1'"),
            (token(CLAIMS, "k2", kid="k1"), "the signature is not by the key 'k1'"),
            (token(CLAIMS, "k2", kid=None), "the signature is not by the key 'k1'"),
        ):
            refused = self.refusal(Reason.KEYS_UNAVAILABLE, evidence, 503)
            self.assertEqual((refused.detail, refused.retry_after), (f"{what}; no newer keys: no route", 7))
            step = self.failed(evidence)
            assert step is not None
            self.assertEqual((step.check, step.reason), ("signature", Reason.KEYS_UNAVAILABLE))
        self.assert_admitted(token(CLAIMS))

    def test_no_keys(self) -> None:
        """Without keys everybody is put off, before anything is known of the role (FAIL-19)."""
        self.provider.refused = "no route"
        for evidence in (token(CLAIMS), token(CLAIMS, "k2"), self.claims(exp=NOW), self.claims(app="unknown")):
            refused = self.refusal(Reason.KEYS_UNAVAILABLE, evidence, 503)
            self.assertEqual((refused.detail, refused.retry_after, refused.role), ("no route", 7, None))


class DistrustTests(Case):
    """What operators tell of keys, in both dialects."""

    def thumbprint(self, name: str) -> str:
        """The thumbprint of a key."""
        return parse_key_set(jwks(jwk(name))).keys[0].thumbprint

    def test_by_id_and_by_thumbprint(self) -> None:
        """A key that is distrusted by its id or thumbprint verifies nothing, from then on; others do (AUTH-51)."""
        self.provider.published[URI] = jwks(jwk("k1"), jwk("k2"))
        for name in ("k1", self.thumbprint("k1")):
            self.assert_admitted(token(CLAIMS))
            self.readings.tell(self.branch, distrusted=frozenset({name}))
            self.refusal(Reason.KEY_DISTRUSTED, token(CLAIMS))
            self.assert_admitted(token(CLAIMS, "k2"))
            self.readings.tell(self.branch, distrusted=frozenset())

    def test_a_new_key_in_its_place(self) -> None:
        """A wrong signature under a key that is distrusted makes newer ones be looked for, under the same id too."""
        self.assert_admitted(token(CLAIMS))
        self.readings.tell(self.branch, distrusted=frozenset({self.thumbprint("k1")}))
        self.provider.published[URI] = jwks(jwk("k2", kid="k1"))
        self.refusal(Reason.KEY_DISTRUSTED, token(CLAIMS))
        self.assert_admitted(token(CLAIMS, "k2", kid="k1"))
        self.refusal(Reason.SIGNATURE_WRONG, token(CLAIMS))

    def test_while_no_newer_keys_are_to_be_had(self) -> None:
        """A distrusted key is refused whether the provider can be asked or not: newer keys would change nothing."""
        self.assert_admitted(token(CLAIMS))
        self.readings.tell(self.branch, distrusted=frozenset({"k1"}))
        self.provider.refused = "no route"
        self.assertEqual(self.refusal(Reason.KEY_DISTRUSTED, token(CLAIMS)).detail, "the key 'k1' is distrusted here")

    def test_in_a_variable(self) -> None:
        """Keys that stand in a variable can be distrusted too (AUTH-51)."""
        self.readings.unset(self.branch, "jwks-uri")
        self.readings.set(self.branch, public_keys=json.dumps({"type": "jwks", "value": json.loads(jwks())}))
        self.readings.tell(self.branch, distrusted=frozenset({"k1"}))
        self.refusal(Reason.KEY_DISTRUSTED, token(CLAIMS))

    def test_elsewhere(self) -> None:
        """What one authenticator distrusts another may trust (AUTH-51)."""
        other = f"{self.dialect.prefix}/authn-jwt/bare"
        self.readings.set(other, jwks_uri=URI, issuer=ISSUER)
        self.readings.annotations[HOST]["authn-jwt/bare/repo"] = "org/app"
        self.readings.tell(self.branch, distrusted=frozenset({"k1"}))
        self.refusal(Reason.KEY_DISTRUSTED, token(CLAIMS))
        self.assert_admitted(token(CLAIMS), service="bare", login=HOST.login)

    def test_during_a_login(self) -> None:
        """A key that is distrusted while a login is decided doesn't decide it."""
        self.assert_admitted(token(CLAIMS))

        def distrust() -> None:
            self.readings.before_candidate = lambda: None
            self.readings.tell(self.branch, distrusted=frozenset({"k1"}))

        self.readings.before_candidate = distrust
        self.refusal(Reason.KEY_DISTRUSTED, token(CLAIMS))

    def test_refresh(self) -> None:
        """Each wish of an operator makes the next login fetch keys, once; what is gone then verifies nothing."""
        self.assert_admitted(token(CLAIMS))
        for refreshes, published in ((1, jwks(jwk("k1"), jwk("k2"))), (2, jwks(jwk("k2")))):
            self.provider.published[URI] = published
            self.assert_admitted(token(CLAIMS))
            self.assertEqual(self.provider.fetches, refreshes)
            self.readings.tell(self.branch, refreshes=refreshes)
            for _ in range(2):
                self.assert_admitted(token(CLAIMS, "k2" if refreshes == 2 else "k1"))
            self.assertEqual(self.provider.fetches, refreshes + 1)
        self.refusal(Reason.KEY_UNKNOWN, token(CLAIMS))

    def test_refresh_in_vain(self) -> None:
        """When a wish for newer keys can't be granted, those at hand stay good."""
        self.assert_admitted(token(CLAIMS))
        self.provider.refused = "no route"
        self.readings.tell(self.branch, refreshes=1)
        self.assert_admitted(token(CLAIMS))


class ConjurAdmissionTests(AdmissionTests):
    """The same in the dialect of the installed base."""

    dialect = CONJUR


class ConjurBadTokenTests(BadTokenTests):
    """The same in the dialect of the installed base."""

    dialect = CONJUR


class ConjurIdentityTests(IdentityTests):
    """The same in the dialect of the installed base."""

    dialect = CONJUR


class ConjurPlaceTests(PlaceTests):
    """The same in the dialect of the installed base."""

    dialect = CONJUR


class ConjurSameWorkTests(SameWorkTests):
    """The same in the dialect of the installed base."""

    dialect = CONJUR


class ConjurSettingsTests(SettingsTests):
    """The same in the dialect of the installed base."""

    dialect = CONJUR


class ConjurRotationTests(RotationTests):
    """The same in the dialect of the installed base."""

    dialect = CONJUR


class ConjurOriginTests(OriginTests):
    """The same in the dialect of the installed base."""

    dialect = CONJUR


class ConjurClaimSettingsTests(ClaimSettingsTests):
    """The same in the dialect of the installed base."""

    dialect = CONJUR


class ConjurDistrustTests(DistrustTests):
    """The same in the dialect of the installed base."""

    dialect = CONJUR


class NativeTests(Case):
    """What holds in the service's own dialect alone."""

    def test_privilege_missing(self) -> None:
        """A missing privilege looks like every refusal."""
        self.readings.permitted.clear()
        self.refusal(Reason.PRIVILEGE_MISSING, token(CLAIMS), 401)

    def test_switch(self) -> None:
        """An authenticator that is listed can be switched off and on again; one that isn't listed can't be switched on
        (AUTH-2).
        """
        self.assert_admitted(token(CLAIMS))
        self.readings.tell(self.branch, switched=False)
        self.refusal(Reason.AUTHENTICATOR_NOT_ENABLED, token(CLAIMS))
        self.refusal(Reason.AUTHENTICATOR_NOT_ENABLED, b"")
        self.readings.tell(self.branch, switched=True)
        self.assert_admitted(token(CLAIMS))
        self.readings.set("svc/authn-jwt/off", jwks_uri=URI)
        self.readings.tell("svc/authn-jwt/off", switched=True)
        self.readings.asked.clear()
        self.refusal(Reason.AUTHENTICATOR_NOT_ENABLED, token(CLAIMS), service="off")
        self.assertEqual(self.readings.asked, [])

    def test_the_list_read_again(self) -> None:
        """A list that was read again holds from the next login and status on, though nothing in the database has changed;
        what a pattern permits needs a webservice all the same (CFG-90, CFG-91).
        """
        self.assert_admitted(token(CLAIMS))
        self.listed.replace_items(["authn"])
        self.refusal(Reason.AUTHENTICATOR_NOT_ENABLED, token(CLAIMS))
        (problem,) = self.successResultOf(Deferred.fromCoroutine(self.authenticator.read_status("acme", "ci"))).problems
        self.assertEqual(problem.what, "'authn-jwt/ci' is not listed in the configuration.")
        self.assertIn("SIGHUP", problem.remedy)
        self.listed.replace_items(["authn-jwt/*"])
        self.assert_admitted(token(CLAIMS))
        status = self.successResultOf(Deferred.fromCoroutine(self.authenticator.read_status("acme", "ci")))
        self.assertEqual(status.problems, ())
        self.refusal(Reason.WEBSERVICE_UNKNOWN, token(CLAIMS), service="new")
        self.refusal(Reason.AUTHENTICATOR_NOT_ENABLED, token(CLAIMS), service="a/b")

    def test_missing_issuer(self) -> None:
        """A token may be without issuer, even when one is configured (AUTH-22)."""
        self.assert_admitted(self.claims(iss=...))

    def test_no_issuer_configured(self) -> None:
        """With an address alone, a text as issuer isn't compared, and anything else is refused."""
        self.readings.unset(self.branch, "issuer")
        self.assert_admitted(self.claims(iss="whoever"))
        self.assert_admitted(self.claims(iss=...))
        for issuer in (None, 1, ["whoever"], {"a": "b"}):
            self.refusal(Reason.ISSUER_WRONG, self.claims(iss=issuer))

    def test_nested_claims(self) -> None:
        """A path is no claim, in settings and annotations, and an object never matches."""
        self.readings.annotations[HOST] = {"authn-jwt/ci/k8s/pod": "p"}
        self.refusal(Reason.ANNOTATION_NAME_INVALID, self.claims(k8s={"pod": "p"}))
        self.readings.annotations[HOST] = {"authn-jwt/ci/k8s": "p"}
        self.refusal(Reason.CLAIM_IS_OBJECT, self.claims(k8s={"pod": "p"}))
        self.readings.set(self.branch, token_app_property="k8s/pod")
        self.refusal(Reason.CONFIGURATION_INVALID, self.claims(k8s={"pod": "build"}))


class ConjurTests(Case):
    """What holds in the dialect of the installed base alone."""

    dialect = CONJUR

    def test_privilege_missing(self) -> None:
        """A missing privilege of a proven identity is told."""
        self.readings.permitted.clear()
        self.refusal(Reason.PRIVILEGE_MISSING, token(CLAIMS), 403)

    def test_switch(self) -> None:
        """An authenticator that isn't listed can be switched on and off again; one that is listed stays on (AUTH-2)."""
        off = "conjur/authn-jwt/off"
        self.readings.set(off, jwks_uri=URI, issuer=ISSUER, token_app_property="app", identity_path="jwt-apps")
        self.readings.annotations[HOST]["authn-jwt/off/repo"] = "org/app"
        self.refusal(Reason.AUTHENTICATOR_NOT_ENABLED, token(CLAIMS), service="off")
        self.readings.tell(off, switched=True)
        self.assert_admitted(token(CLAIMS), service="off")
        self.readings.tell(off, switched=False)
        self.refusal(Reason.AUTHENTICATOR_NOT_ENABLED, token(CLAIMS), service="off")
        self.readings.tell(self.branch, switched=False)
        self.assert_admitted(token(CLAIMS))

    def test_missing_issuer(self) -> None:
        """A token must have an issuer, unless the configuration forgives it (AUTH-22)."""
        self.refusal(Reason.ISSUER_MISSING, self.claims(iss=...))
        self.authenticator = self.made(ignore_missing_issuer=True)
        self.assert_admitted(self.claims(iss=...))

    def test_a_wrong_issuer_is_never_forgiven(self) -> None:
        """To forgive missing issuers forgives no wrong one (AUTH-21)."""
        self.authenticator = self.made(ignore_missing_issuer=True)
        for issuer in ("https://evil.example", "", None, [ISSUER]):
            self.refusal(Reason.ISSUER_WRONG, self.claims(iss=issuer))

    def test_issuer_from_the_address(self) -> None:
        """Without variable the issuer is the host of the address."""
        self.readings.unset(self.branch, "issuer")
        self.assert_admitted(self.claims(iss="idp.example"))
        self.refusal(Reason.ISSUER_WRONG, self.claims(iss=ISSUER))
        self.refusal(Reason.ISSUER_MISSING, self.claims(iss=...))

    def test_nested_claims(self) -> None:
        """A path leads to a nested claim, in settings and annotations; a flat name comes first."""
        self.readings.annotations[HOST] = {"authn-jwt/ci/k8s/pod": "p", "authn-jwt/ci/idp.example/role": "r"}
        self.assert_admitted(self.claims(k8s={"pod": "p"}, **{"idp.example/role": "r"}))
        self.refusal(Reason.CLAIM_MISSING, self.claims(k8s="p", **{"idp.example/role": "r"}))
        self.readings.set(self.branch, token_app_property="k8s/app")
        self.assert_admitted(self.claims(k8s={"pod": "p", "app": "build"}, **{"idp.example/role": "r"}))

    def test_illegal_paths_are_faults(self) -> None:
        """A path that is no path is a fault, also where a claim happens to have that name."""
        self.readings.set(self.branch, token_app_property="a[0]")
        self.refusal(Reason.CONFIGURATION_INVALID, self.claims(**{"a[0]": "build"}))
