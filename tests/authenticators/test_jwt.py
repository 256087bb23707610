"""Tests of ``svc.authenticators.jwt``: which tokens admit whom."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from svc.authenticators.jwt import VARIABLES, Configuration, JwtAuthenticator, Misconfiguration, configuration_of
from svc.dialect import CONJUR, NATIVE, Dialect
from svc.errors import KeysUnavailable, Reason, StoreUnavailable
from svc.interfaces import IAuthenticator, IAuthenticatorReadings, IProviderKeys
from svc.jose import KeySet, parse_key_set
from svc.names import RoleName
from svc.records import Admitted, Applicant, Attempt, AuthenticatorSettings, Refused, Sealed
from svc.vault import Vault
from tests.signing import base64url, jwk, jwks, signed, token

NOW = 1_700_000_000.0
URI = "https://idp.example/keys"
ISSUER = "https://idp.example"
HOST = RoleName("acme", "host", "jwt-apps/build")
ALICE = RoleName("acme", "user", "alice")

CLAIMS: Mapping[str, object] = {"iss": ISSUER, "app": "build", "repo": "org/app", "exp": NOW + 60, "iat": NOW, "nbf": NOW}


@attrs.define
class Webservice:
    """One authenticator in the store: its variables, and a count that rises with each change of them."""

    variables: dict[str, Sealed | None] = attrs.Factory(dict)
    changes: int = 0


@implementer(IAuthenticatorReadings)
class Readings:
    """A store of one account, ``acme``, with a vault beside it."""

    def __init__(self, vault: Vault) -> None:
        self.vault = vault
        self.webservices: dict[str, Webservice] = {}
        self.annotations: dict[RoleName, dict[str, str]] = {}
        self.permitted: set[RoleName] = set()
        self.asked: list[str] = []
        self.before_applicant: Callable[[], None] = lambda: None
        self.webservice_missing = False
        self.down = False

    def set(self, branch: str, **variables: str | None) -> None:
        """Declare variables, and set those that aren't ``None``; underscores stand for dashes."""
        webservice = self.webservices.setdefault(branch, Webservice())
        for key, value in variables.items():
            name = key.replace("_", "-")
            full = f"acme:variable:{branch}/{name}"
            webservice.variables[name] = None if value is None else self.vault.seal(full, value.encode("utf-8"))
            webservice.changes += 1

    def unset(self, branch: str, *names: str) -> None:
        """Remove declarations."""
        for name in names:
            del self.webservices[branch].variables[name]
            self.webservices[branch].changes += 1

    def _edition(self, account: str, branch: str) -> str:
        found = self.webservices.get(branch) if account == "acme" else None
        return "none" if found is None else str(found.changes)

    async def settings(self, account: str, branch: str, names: Sequence[str]) -> AuthenticatorSettings:
        """The variables."""
        self.asked.append("settings")
        if self.down:
            raise StoreUnavailable("down")
        found = self.webservices.get(branch) if account == "acme" else None
        variables = {} if found is None else {name: found.variables[name] for name in names if name in found.variables}
        return AuthenticatorSettings(self._edition(account, branch), variables)

    async def applicant(self, role: RoleName, branch: str, names: Sequence[str]) -> Applicant:
        """All the rest."""
        self.asked.append(f"applicant {role}")
        self.before_applicant()
        if self.down:
            raise StoreUnavailable("down")
        known = role.account == "acme"
        prefix = branch.partition("/")[2] + "/"
        annotations = self.annotations.get(role, {})
        return Applicant(
            edition=self._edition(role.account, branch),
            account_exists=known,
            role_exists=role in self.annotations,
            webservice_exists=known and branch in self.webservices and not self.webservice_missing,
            may_authenticate=role in self.permitted,
            annotations={name: value for name, value in annotations.items() if name.startswith(prefix)},
            signing_key="signing-key" if known else None,
        )


@implementer(IProviderKeys)
class Provider:
    """A provider whose keys change when a test says so. ``refused`` is why it can't be asked, if it can't."""

    def __init__(self) -> None:
        self.cached: dict[str, KeySet] = {}
        self.published: dict[str, bytes] = {URI: jwks()}
        self.refused: str | None = None
        self.fetches = 0

    def _fetch(self, uri: str) -> KeySet:
        if self.refused is not None or uri not in self.published:
            raise KeysUnavailable(self.refused or f"{uri}: nobody there")
        self.fetches += 1
        self.cached[uri] = parse_key_set(self.published[uri])
        return self.cached[uri]

    async def current(self, uri: str) -> KeySet:
        """The set at hand."""
        return self.cached.get(uri) or self._fetch(uri)

    async def newer(self, uri: str, seen: KeySet) -> KeySet:
        """Another set."""
        return self._fetch(uri)


class Case(SynchronousTestCase):
    """An authenticator ``ci`` that takes the identity from the claim ``app``, and one host it admits."""

    dialect: Dialect = NATIVE

    def setUp(self) -> None:
        """A world in which ``token(CLAIMS)`` admits ``HOST``."""
        self.branch = f"{self.dialect.prefix}/authn-jwt/ci"
        self.vault = Vault(bytes(32))
        self.readings = Readings(self.vault)
        self.provider = Provider()
        self.clock = Clock()
        self.clock.advance(NOW)
        self.readings.set(self.branch, jwks_uri=URI, issuer=ISSUER, token_app_property="app", identity_path="/jwt-apps")
        self.readings.annotations[HOST] = {"authn-jwt/ci/repo": "org/app", "description": "builds"}
        self.readings.permitted.add(HOST)
        self.authenticator = self.made()

    def made(self, **options: Any) -> JwtAuthenticator:
        """An authenticator on the same world."""
        defaults = {"clock_skew": 0.0, "token_limit": 16_384, "ignore_missing_issuer": False}
        enabled = frozenset({"authn-jwt/ci", "authn-jwt/bare"})
        return JwtAuthenticator(
            self.readings, self.provider, self.vault, self.clock, self.dialect, enabled, **{**defaults, **options}
        )

    def attempt(
        self, evidence: bytes, login: str | None = None, service: str | None = "ci", account: str = "acme"
    ) -> Admitted | Refused:
        """Try to log in."""
        attempt = Attempt(account, login, evidence, "192.0.2.1", service)
        decision: Admitted | Refused = self.successResultOf(Deferred.fromCoroutine(self.authenticator.authenticate(attempt)))
        return decision

    def assert_admitted(self, evidence: bytes, role: RoleName = HOST, **options: Any) -> None:
        """The token admits the role."""
        self.assertEqual(self.attempt(evidence, **options), Admitted(role, "signing-key"))

    def refusal(self, reason: Reason, evidence: bytes, status: int = 401, **options: Any) -> Refused:
        """The refusal for this reason, which has no part of the token in its detail."""
        refused = self.attempt(evidence, **options)
        assert isinstance(refused, Refused), refused
        self.assertEqual((refused.reason, refused.status), (reason, status), refused.detail)
        self.assertTrue(refused.detail.isprintable(), refused.detail)
        for part in evidence.split(b"."):
            if len(part) > 20:
                self.assertNotIn(part.decode("latin-1"), refused.detail)
        return refused

    def claims(self, **changes: object) -> bytes:
        """A good token with other claims; those that are ``...`` are left out."""
        return token({name: value for name, value in {**CLAIMS, **changes}.items() if value is not ...})


class AdmissionTests(Case):
    """Who is admitted, in both dialects."""

    def test_provides_the_interfaces(self) -> None:
        """The authenticator, and the fakes of these tests, are what they say."""
        verifyObject(IAuthenticator, self.authenticator)
        verifyObject(IAuthenticatorReadings, self.readings)
        verifyObject(IProviderKeys, self.provider)

    def test_a_good_token(self) -> None:
        """A token that fits in every respect admits its host, with the key to sign for it."""
        self.assert_admitted(token(CLAIMS))

    def test_blanks_around_the_token(self) -> None:
        """Blanks and line ends around a token, as files have them, are no part of it."""
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
        """Annotations for other services, or for the authenticator in general, are not compared."""
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

    def test_bad_times(self) -> None:
        """Times that aren't finite numbers are refused."""
        for name in ("exp", "nbf", "iat"):
            for value in (None, True, "1800000000", [1], {"a": 1}):
                self.refusal(Reason.TIME_CLAIM_INVALID, self.claims(**{name: value}))
        for spelling in (b"1e400", b"-1e400", b"1" + b"0" * 400):
            self.refusal(Reason.TIME_CLAIM_INVALID, token(b'{"exp":' + spelling + b"}"))

    def test_clock_skew(self) -> None:
        """The configured difference of clocks is granted, for all three times alike."""
        self.authenticator = self.made(clock_skew=5.0)
        self.assert_admitted(self.claims(exp=NOW - 4, nbf=NOW + 5, iat=NOW + 5))
        self.refusal(Reason.TOKEN_EXPIRED, self.claims(exp=NOW - 5))
        self.refusal(Reason.TOKEN_NOT_YET_VALID, self.claims(nbf=NOW + 6))
        self.refusal(Reason.TOKEN_NOT_YET_VALID, self.claims(iat=NOW + 6))

    def test_wrong_issuer(self) -> None:
        """A token by another issuer is refused, whoever else it looks like."""
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
        """Token and path may not both name the host, even when they agree."""
        self.refusal(Reason.IDENTITY_AMBIGUOUS, token(CLAIMS), login="host/jwt-apps/build")

    def test_identity_from_neither(self) -> None:
        """One of token and path must name the host."""
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
        refused = self.refusal(Reason.PRIVILEGE_MISSING, token(CLAIMS), self.dialect.privilege_missing_status)
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
        """An authenticator that isn't listed admits nobody, and the store isn't asked."""
        self.readings.webservices[f"{self.dialect.prefix}/authn-jwt/off"] = self.readings.webservices[self.branch]
        for service in ("off", "", "CI", "ci/", "\n", None):
            self.refusal(Reason.AUTHENTICATOR_NOT_ENABLED, token(CLAIMS), service=service)
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

    def test_what_does_not_exist_is_not_remembered(self) -> None:
        """Accounts and policies that don't exist are asked for each time, so that they fill no memory."""
        for _ in range(3):
            self.refusal(Reason.ACCOUNT_UNKNOWN, token(CLAIMS), account="other")
            self.refusal(Reason.WEBSERVICE_UNKNOWN, token(CLAIMS), service="bare")
        self.assertEqual(self.readings.asked.count("settings"), 6)

    def test_store_unavailable(self) -> None:
        """While the store can't be asked nobody is admitted or refused."""
        self.readings.down = True
        attempt = Attempt("acme", None, token(CLAIMS), "192.0.2.1", "ci")
        self.failureResultOf(Deferred.fromCoroutine(self.authenticator.authenticate(attempt)), StoreUnavailable)
        self.readings.down = False
        self.assert_admitted(token(CLAIMS))


class SameWorkTests(Case):
    """Note [Same work], in both dialects."""

    def trips(self, evidence: bytes, **options: Any) -> list[str]:
        """What the store is asked for one attempt with settings at hand."""
        self.assert_admitted(token(CLAIMS))
        self.readings.asked.clear()
        self.attempt(evidence, **options)
        return [asked.partition(" ")[0] for asked in self.readings.asked]

    def test_one_round_trip(self) -> None:
        """An admission and every sort of refusal cost one reading each."""
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

    def test_nobody(self) -> None:
        """Where no role is known, the reading is for one that can't exist."""
        self.refusal(Reason.TOKEN_EXPIRED, self.claims(exp=NOW))
        self.assertEqual(self.readings.asked[-1], "applicant acme:host:")

    def test_refusals_look_alike(self) -> None:
        """Unknown host, wrong claim and expired token have one status."""
        for evidence in (self.claims(app="unknown"), self.claims(repo="other"), self.claims(exp=NOW), b"x"):
            refused = self.attempt(evidence)
            assert isinstance(refused, Refused)
            self.assertEqual(refused.status, 401)


class SettingsTests(Case):
    """Note [Optimistic settings], in both dialects."""

    def test_settings_are_read_once(self) -> None:
        """As long as nothing changes, the settings are read for the first login alone."""
        for _ in range(5):
            self.assert_admitted(token(CLAIMS))
        self.assertEqual(self.readings.asked, ["settings", *[f"applicant {HOST}"] * 5])

    def test_a_change_takes_effect_at_once(self) -> None:
        """The first login after a change is decided with it, when it locks out and when it lets in."""
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
        """Settings that change while a login is decided decide it."""
        self.assert_admitted(token(CLAIMS))

        def change() -> None:
            self.readings.before_applicant = lambda: None
            self.readings.set(self.branch, audience="svc")

        self.readings.before_applicant = change
        self.refusal(Reason.AUDIENCE_MISSING, token(CLAIMS))

    def test_changes_without_end(self) -> None:
        """A login whose settings change at every look is neither admitted nor refused."""
        self.readings.before_applicant = lambda: self.readings.set(self.branch, issuer=ISSUER)
        attempt = Attempt("acme", None, token(CLAIMS), "192.0.2.1", "ci")
        self.failureResultOf(Deferred.fromCoroutine(self.authenticator.authenticate(attempt)), StoreUnavailable)
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
        """Tokens without key id are good again when the provider is back to one key."""
        self.provider.published[URI] = jwks(jwk("k1"), jwk("k2"))
        self.refusal(Reason.KEY_ID_MISSING, token(CLAIMS, kid=None))
        self.provider.published[URI] = jwks(jwk("k2"))
        self.assert_admitted(token(CLAIMS, "k2", kid=None))

    def test_what_no_key_can_mend_fetches_none(self) -> None:
        """Expired, malformed and misdirected tokens never make keys be fetched."""
        self.assert_admitted(token(CLAIMS))
        for evidence in (self.claims(exp=NOW), token(b"[]"), b"a.b.c", self.claims(iss="x"), self.claims(app="unknown")):
            self.attempt(evidence)
        self.assertEqual(self.provider.fetches, 1)

    def test_inside_the_interval(self) -> None:
        """When keys may not be fetched again yet, the refusal says what is wrong with the token, and that."""
        self.assert_admitted(token(CLAIMS))
        self.provider.refused = "was asked a moment ago"
        refused = self.refusal(Reason.KEY_UNKNOWN, token(CLAIMS, "k2"))
        self.assertIn("no newer keys: was asked a moment ago", refused.detail)
        self.refusal(Reason.SIGNATURE_WRONG, token(CLAIMS, "k2", kid="k1"))
        self.assert_admitted(token(CLAIMS))

    def test_no_keys(self) -> None:
        """Without keys nobody is admitted."""
        self.provider.refused = "no route"
        self.assertEqual(self.refusal(Reason.KEYS_UNAVAILABLE, token(CLAIMS)).detail, "no route")


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


class NativeTests(Case):
    """What holds in the service's own dialect alone."""

    def test_privilege_missing(self) -> None:
        """A missing privilege looks like every refusal."""
        self.readings.permitted.clear()
        self.refusal(Reason.PRIVILEGE_MISSING, token(CLAIMS), 401)

    def test_missing_issuer(self) -> None:
        """A token may be without issuer, even when one is configured."""
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

    def test_missing_issuer(self) -> None:
        """A token must have an issuer, unless the configuration forgives it."""
        self.refusal(Reason.ISSUER_MISSING, self.claims(iss=...))
        self.authenticator = self.made(ignore_missing_issuer=True)
        self.assert_admitted(self.claims(iss=...))

    def test_a_wrong_issuer_is_never_forgiven(self) -> None:
        """To forgive missing issuers forgives no wrong one."""
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


class ConfigurationTests(SynchronousTestCase):
    """``configuration_of``."""

    def faults(self, dialect: Dialect = NATIVE, /, **values: str | None) -> tuple[str, ...]:
        """What is wrong with the variables."""
        understood = configuration_of("1", {name.replace("_", "-"): text for name, text in values.items()}, dialect)
        return understood.faults if isinstance(understood, Misconfiguration) else ()

    def good(self, dialect: Dialect = NATIVE, /, **values: str | None) -> Configuration:
        """What the variables mean."""
        understood = configuration_of("1", {name.replace("_", "-"): text for name, text in values.items()}, dialect)
        assert isinstance(understood, Configuration), understood
        return understood

    def test_everything(self) -> None:
        """Every variable has its place."""
        understood = self.good(jwks_uri=URI, issuer="i", audience="a", token_app_property="c", identity_path="/p")
        self.assertEqual(understood, Configuration("1", URI, "i", "a", "c", "/p"))

    def test_one_source_of_keys(self) -> None:
        """Exactly one of the two sources must be declared."""
        self.assertEqual(self.faults(), ("exactly one of the variables jwks-uri and public-keys must be declared",))
        keys = json.dumps({"type": "jwks", "value": json.loads(jwks())})
        self.assertEqual(len(self.faults(jwks_uri=URI, public_keys=keys, issuer="i")), 1)
        self.assertEqual(len(self.faults(jwks_uri=URI, public_keys=None, issuer="i")), 2)

    def test_public_keys_need_an_issuer(self) -> None:
        """Keys in a variable say nothing about who issues tokens."""
        keys = json.dumps({"type": "jwks", "value": json.loads(jwks())})
        for dialect in (NATIVE, CONJUR):
            self.assertEqual(
                self.faults(dialect, public_keys=keys), ("the variable public-keys needs the variable issuer beside it",)
            )
            self.assertIsInstance(self.good(dialect, public_keys=keys, issuer="i").keys, KeySet)

    def test_malformed_public_keys(self) -> None:
        """Keys in a variable are as strictly read as fetched ones, and must hold a usable one."""
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
            self.assertIn("the variable public-keys is", fault)

    def test_declared_but_unset(self) -> None:
        """A variable that is declared must be set, and not to blanks."""
        for name in ("audience", "issuer", "token_app_property"):
            (fault,) = self.faults(jwks_uri=URI, **{name: None})
            self.assertIn("is declared and has no value", fault)
            (fault,) = self.faults(jwks_uri=URI, **{name: " \n"})
            self.assertIn("is blank", fault)
        self.assertEqual(self.faults(jwks_uri=None), ("the variable jwks-uri is declared and has no value",))

    def test_identity_path(self) -> None:
        """The identity path matters only beside token-app-property."""
        for value in (None, " ", "p"):
            self.assertEqual(self.good(jwks_uri=URI, identity_path=value).identity_path, "")
        self.assertEqual(len(self.faults(jwks_uri=URI, identity_path=None, token_app_property="a")), 1)

    def test_not_supported_yet(self) -> None:
        """A variable that isn't read yet is a fault once it is declared, set or not."""
        for name in ("provider_uri", "ca_cert", "enforced_claims", "claim_aliases", "mapping_claims"):
            for value in (None, "x"):
                (fault,) = self.faults(jwks_uri=URI, **{name: value})
                self.assertEqual(fault, f"the variable {name.replace('_', '-')} is not supported yet")

    def test_all_faults_at_once(self) -> None:
        """Several faults are told together."""
        self.assertEqual(len(self.faults(ca_cert="x", audience=None, token_app_property="a b")), 4)

    def test_every_variable_is_asked_for(self) -> None:
        """All ten variables and the old name of one are among those read."""
        self.assertEqual(len(set(VARIABLES)), 11)

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
        self.assertEqual(self.good(CONJUR, jwks_uri="idp.example", issuer="i").issuer, "i")
