"""Every rule that the cloud authenticator keeps, in both dialects: each test names its code in
the installed base where it has one.
"""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import Deferred

from svc.authn.cloud import make_cloud_kind
from svc.model.authentication import ANNOTATIONS_LIMIT, KeySource, Refused
from svc.model.dialect import CONJUR
from svc.model.errors import StoreUnavailable
from svc.model.names import RoleName
from svc.model.reasons import Reason
from svc.model.text import quote_text
from tests.authn.shapes import GROUP, SHAPES, SLOT, SUBSCRIPTION
from tests.authn.tenant import ASSIGNED, CLAIMS, HOST, MACHINE, OID, TENANT, CloudCase
from tests.authn.world import ALICE, NOW, Webservice
from tests.signing import base64url, jwk, jwk_for, jwks, signed, token
from tests.statuses import privilege_missing_status, refusal_status

BOUND = {"subscription-id": SUBSCRIPTION, "resource-group": GROUP}
SHARED = "user-assigned-identity"
SOLE = "system-assigned-identity"


class AdmissionTests(CloudCase):
    """Who is admitted."""

    def test_every_workload(self) -> None:
        """A token of each kind of workload admits the host that is bound to its group, and no more need be said."""
        for shape in SHAPES:
            self.assert_admitted(self.claims(xms_mirid=shape.text))

    def test_every_workload_by_itself(self) -> None:
        """A host that is bound to an identity admits each kind of workload that has it, its own or an assigned one."""
        for shape in SHAPES:
            name = shape.text.rpartition("/")[2]
            self.annotate({**BOUND, SHARED: name} if shape.shared else {**BOUND, SOLE: OID})
            self.assert_admitted(self.claims(xms_mirid=shape.text))

    def test_users(self) -> None:
        """The path may name a user, too."""
        self.readings.annotations[ALICE] = self.readings.annotations[HOST]
        self.readings.permitted.add(ALICE)
        for login in ("alice", "user/alice"):
            self.assert_admitted(token(CLAIMS), role=ALICE, login=login)

    def test_every_algorithm(self) -> None:
        """RS256, RS384 and RS512 are good."""
        for algorithm in ("RS256", "RS384", "RS512"):
            self.assert_admitted(token(CLAIMS, algorithm=algorithm))

    def test_optional_claims(self) -> None:
        """``nbf``, ``iat`` and, unless it is asked for, ``aud`` may be absent."""
        self.assert_admitted(self.claims(nbf=..., iat=..., aud=...))

    def test_first_slash(self) -> None:
        """The resource id may lack its first slash."""
        self.assert_admitted(self.claims(xms_mirid=MACHINE[1:]))

    def test_odd_group_names(self) -> None:
        """A resource group may be called like a keyword, or contain one."""
        for group in ("providers", "subscriptions", "my-providers-rg", "resourcegroups"):
            self.annotate({**BOUND, "resource-group": group})
            self.assert_admitted(self.claims(xms_mirid=MACHINE.replace(GROUP, group)))
            self.row("resource", Reason.CLAIM_MISMATCH)

    def test_case_of_keywords(self) -> None:
        """Keywords and the namespace compare without case."""
        self.assert_admitted(self.claims(xms_mirid=MACHINE.replace("resourcegroups", "resourceGroups")))
        self.annotate({**BOUND, SHARED: "web"})
        self.assert_admitted(self.claims(xms_mirid=ASSIGNED.replace("Microsoft.M", "microsoft.m")))

    def test_restricted(self) -> None:
        """A host that is restricted to networks logs in from there."""
        self.readings.restrictions[HOST] = ("198.51.100.0/24",)
        self.assert_admitted(token(CLAIMS), client_ip="198.51.100.9")


class OrderTests(CloudCase):
    """In which order failures count."""

    def test_checks_have_names(self) -> None:
        """Every check has a name of its own, of a fixed list, in the order of AUTH-9 (see ``make_cloud_kind``'s first note)
        (AUTH-9).
        """
        self.assertEqual(
            " ".join(check.name for check in make_cloud_kind(self.dialect).checks),
            "enabled account token webservice configuration keys signature expiry not-before issuer issued-at audience "
            "identity-claims identity role privilege origin annotations-extent required-annotations permitted-annotations "
            "exclusive-annotations resource-id resource",
        )

    def test_one_after_the_other(self) -> None:
        """Of everything that is wrong at once, what comes first is told; each time that it is mended, the next (AUTH-9)."""
        wrong: dict[str, object] = {"exp": ..., "nbf": NOW + 9, "iss": "x", "iat": NOW + 9, "aud": "x", "oid": ...}
        bad = self.claims(**wrong, xms_mirid="x")
        missing = RoleName("acme", "host", "cloud-apps/other")
        self.readings.restrictions[HOST] = ("198.51.100.0/24",)
        self.readings.permitted.clear()
        self.annotate({"x": "y"})
        self.readings.set(self.branch, provider_uri=None, audience="svc")
        self.row("enabled", Reason.AUTHENTICATOR_NOT_ENABLED, b"", account="other", service="off")
        self.row("account", Reason.ACCOUNT_UNKNOWN, b"", account="other")
        self.row("token", Reason.TOKEN_MALFORMED, b"x", login=None)
        self.readings.webservice_missing = True
        self.row("webservice", Reason.WEBSERVICE_UNKNOWN, bad, login=None)
        self.readings.webservice_missing = False
        self.row("configuration", Reason.CONFIGURATION_INVALID, bad, login=None)
        self.readings.set(self.branch, provider_uri=TENANT)
        self.provider.refused = "no route"
        self.row("keys", Reason.KEYS_UNAVAILABLE, bad, 503, login=None)
        self.provider.refused = None
        self.row("signature", Reason.KEY_UNKNOWN, token(CLAIMS, "k2"), login=None)
        for check, reason, name, right in (
            ("expiry", Reason.EXPIRY_MISSING, "exp", NOW + 60),
            ("not-before", Reason.TOKEN_NOT_YET_VALID, "nbf", NOW),
            ("issuer", Reason.ISSUER_WRONG, "iss", TENANT),
            ("issued-at", Reason.TOKEN_NOT_YET_VALID, "iat", NOW),
            ("audience", Reason.AUDIENCE_WRONG, "aud", "svc"),
            ("identity-claims", Reason.IDENTITY_CLAIM_MISSING, "oid", OID),
        ):
            self.row(check, reason, bad, login=None)
            wrong[name] = right
            bad = self.claims(**wrong, xms_mirid="x")
        self.row("identity", Reason.IDENTITY_AMBIGUOUS, bad, login=None)
        self.row("role", Reason.ROLE_UNKNOWN, bad, login=missing.login)
        self.row("privilege", Reason.PRIVILEGE_MISSING, bad, privilege_missing_status(self.dialect))
        self.readings.permitted.add(HOST)
        self.row("origin", Reason.ORIGIN_REFUSED, bad)
        del self.readings.restrictions[HOST]
        self.annotate({str(number): "x" for number in range(ANNOTATIONS_LIMIT + 1)})
        self.row("annotations-extent", Reason.ANNOTATIONS_EXCESSIVE, bad)
        self.annotate({"x": "y"})
        self.row("required-annotations", Reason.ANNOTATION_REQUIRED, bad)
        self.annotate({**BOUND, SHARED: "web", SOLE: OID, "x": "y"})
        self.row("permitted-annotations", Reason.ANNOTATION_UNSUPPORTED, bad)
        self.annotate({**BOUND, SHARED: "web", SOLE: OID})
        self.row("exclusive-annotations", Reason.ANNOTATIONS_EXCLUSIVE, bad)
        self.annotate({**BOUND, SHARED: "web"})
        self.row("resource-id", Reason.RESOURCE_ID_MALFORMED, bad)
        self.row("resource", Reason.IDENTITY_KIND_MISMATCH, self.claims(aud="svc"))
        self.assert_admitted(self.claims(aud="svc", xms_mirid=ASSIGNED))


class PlaceTests(CloudCase):
    """The authenticator, the account, and the host."""

    def test_not_enabled(self) -> None:
        """CONJ00004E: the authenticator must be enabled, by its name in this dialect; without service id there is none."""
        self.readings.webservices[f"{self.dialect.prefix}/{self.name}/off"] = self.readings.webservices[self.branch]
        for service in ("off", "", "PROD", None):
            self.row("enabled", Reason.AUTHENTICATOR_NOT_ENABLED, service=service)

    def test_unknown_account(self) -> None:
        """CONJ00008E: the account must exist."""
        for account in ("other", "a b"):
            self.row("account", Reason.ACCOUNT_UNKNOWN, account=account)

    def test_host_in_the_path(self) -> None:
        """The path must name the host: no token does."""
        self.row("identity", Reason.IDENTITY_AMBIGUOUS, login=None)

    def test_unknown_role(self) -> None:
        """CONJ00007E: the role must exist."""
        for login in ("host/cloud-apps/other", "host/", "", "x" * 2000, "host/\x00"):
            self.refusal(Reason.ROLE_UNKNOWN, token(CLAIMS), login=login)
        self.row("role", Reason.ROLE_UNKNOWN, login="host/cloud-apps/other")

    def test_unknown_webservice(self) -> None:
        """CONJ00005E: policy must define the webservice."""
        self.row("webservice", Reason.WEBSERVICE_UNKNOWN, service="bare")

    def test_privilege(self) -> None:
        """CONJ00006E: the role must have the privilege; the status is that of the dialect, for proven identities alone
        (AUTH-12).
        """
        self.readings.permitted.clear()
        self.row("privilege", Reason.PRIVILEGE_MISSING, None, privilege_missing_status(self.dialect))
        self.row("expiry", Reason.TOKEN_EXPIRED, self.claims(exp=NOW))

    def test_origin(self) -> None:
        """CONJ00003E: the request must come from where the role may log in from."""
        self.readings.restrictions[HOST] = ("198.51.100.0/24",)
        self.row("origin", Reason.ORIGIN_REFUSED)

    def test_no_token(self) -> None:
        """CONJ00009E: a request without token is a bad one, for any role, so that it tells nothing of hosts."""
        for login in (HOST.login, "host/nobody"):
            for evidence in (b"", b" \r\n"):
                self.row("token", Reason.TOKEN_MISSING, evidence, 400, login=login)
        refused = self.refusal(Reason.REQUEST_MALFORMED, b"", 400, fault=(Reason.REQUEST_MALFORMED, "so it is"))
        self.assertEqual(refused.detail, "so it is")

    def test_no_jwt(self) -> None:
        """CONJ00077E: what isn't a JWT is refused, and what is too large for one is told so."""
        for evidence in (b"x", b"a.b", b"a.b.c", b"a.b.c.d"):
            self.row("token", Reason.TOKEN_MALFORMED, evidence)
        self.row("token", Reason.TOKEN_TOO_LARGE, b"x" * (1 << 20), 413)

    def test_several_services(self) -> None:
        """Authenticators for several tenants stand side by side, each with its provider and its webservice."""
        other = TENANT.replace("9", "8")
        self.readings.set(f"{self.dialect.prefix}/{self.name}/test", provider_uri=other)
        self.provider.published[other] = jwks(jwk("k2"))
        self.assert_admitted(token(CLAIMS))
        self.assert_admitted(token({**CLAIMS, "iss": other}, "k2"), service="test")
        self.row("signature", Reason.KEY_UNKNOWN, service="test")
        self.row("signature", Reason.KEY_UNKNOWN, token({**CLAIMS, "iss": other}, "k2"))

    def test_tenants_with_one_key(self) -> None:
        """Where the platform signs for every tenant with one key, the issuer keeps their tokens apart."""
        other = TENANT.replace("9", "8")
        self.readings.set(f"{self.dialect.prefix}/{self.name}/test", provider_uri=other)
        self.provider.published[other] = jwks()
        self.row("issuer", Reason.ISSUER_WRONG, service="test")
        self.row("issuer", Reason.ISSUER_WRONG, self.claims(iss=other))


class SettingsTests(CloudCase):
    """The variables ``provider-uri`` and ``audience``."""

    def test_undeclared(self) -> None:
        """CONJ00036E: provider-uri must be declared (AUTH-36)."""
        self.readings.webservices[f"{self.dialect.prefix}/{self.name}/bare"] = Webservice()
        self.assertIn("tenant", self.row("configuration", Reason.CONFIGURATION_INVALID, service="bare"))
        (problem,) = self.status(service="bare").problems
        self.assertEqual(problem.remedy, "Declare and set the variable provider-uri.")

    def test_unset(self) -> None:
        """CONJ00037E: both variables must be set where they are declared, and not be blank or padded."""
        for name in ("provider_uri", "audience"):
            for value in (None, " ", f"{TENANT} ", f"{TENANT}\n"):
                self.readings.set(self.branch, provider_uri=TENANT, audience="svc")
                self.readings.set(self.branch, **{name: value})
                detail = self.row("configuration", Reason.CONFIGURATION_INVALID)
                self.assertIn(name.replace("_", "-"), detail)

    def test_final_slash(self) -> None:
        """``provider-uri`` has a final slash or not: the issuer is as the tenant's document has it (AUTH-36)."""
        for written in (TENANT, TENANT[:-1]):
            self.readings.set(self.branch, provider_uri=written)
            self.assert_admitted(token(CLAIMS))
            for issuer in (TENANT[:-1], f"{TENANT}/", TENANT.upper(), f"{TENANT}v2.0"):
                self.row("issuer", Reason.ISSUER_WRONG, self.claims(iss=issuer))
        self.assertEqual(list(self.provider.cached), [KeySource(TENANT, discovered=True)])
        self.readings.set(self.branch, provider_uri=f"{TENANT}/")
        self.provider.published[f"{TENANT}/"] = jwks()
        self.row("issuer", Reason.ISSUER_WRONG)
        self.assert_admitted(self.claims(iss=f"{TENANT}/"))

    def test_another_version(self) -> None:
        """A tenant whose document has no final slash, as that of version 2.0, admits by that text alone (AUTH-36)."""
        issuer = f"{TENANT}v2.0"
        self.provider.published[f"{issuer}/"] = jwks()
        self.provider.issuers[f"{issuer}/"] = issuer
        self.readings.set(self.branch, provider_uri=issuer)
        self.assert_admitted(self.claims(iss=issuer))
        self.row("issuer", Reason.ISSUER_WRONG, self.claims(iss=f"{issuer}/"))
        self.row("issuer", Reason.ISSUER_WRONG)
        self.assertEqual(self.status(service="prod").problems, ())

    def test_other_variables(self) -> None:
        """Other variables mean nothing here, set or not: keys come from the provider, with the system's authorities
        (AUTH-36).
        """
        self.readings.set(self.branch, jwks_uri="https://evil.example", issuer="x", ca_cert="x", token_app_property=None)
        self.assert_admitted(token(CLAIMS))

    def test_a_change_takes_effect_at_once(self) -> None:
        """The first login after a change of tenant is decided with it."""
        self.assert_admitted(token(CLAIMS))
        other = TENANT.replace("9", "8")
        self.provider.published[other] = jwks()
        self.readings.set(self.branch, provider_uri=other)
        self.row("issuer", Reason.ISSUER_WRONG)
        self.readings.before_candidate = lambda: self.readings.set(self.branch, provider_uri=TENANT)
        request = self.trying(token(CLAIMS))
        self.failureResultOf(Deferred.fromCoroutine(self.authenticator.authenticate(request)), StoreUnavailable)

    def test_status(self) -> None:
        """The status of one that is well has the tenant and its keys; what is wrong has a remedy."""
        status = self.status(service="prod")
        self.assertEqual((status.problems, status.source, status.uri), ((), "provider-uri", TENANT))
        self.assertEqual([key_id for key_id, _ in status.keys.keys], ["k1"])
        self.readings.set(self.branch, audience=None)
        status = self.status(service="prod")
        (problem,) = status.problems
        self.assertEqual(problem.what, "The variable audience is declared and has no value.")
        self.assertEqual((status.source, len(status.keys.keys)), ("provider-uri", 1))

    def test_status_without_provider(self) -> None:
        """CONJ00011E: when discovery fails the status says so."""
        self.provider.refused = "no route"
        (problem,) = self.status(service="prod").problems
        self.assertEqual(problem.what, "There are no keys: no route.")


class KeyTests(CloudCase):
    """Signatures, and where keys come from."""

    def test_keys(self) -> None:
        """CONJ00010E to CONJ00012E: there must be keys, which discovery leads to."""
        self.provider.refused = "no route"
        self.assertEqual(self.row("keys", Reason.KEYS_UNAVAILABLE, status=503), "no route")

    def test_old_keys(self) -> None:
        """While the provider is down, keys that are at hand are good."""
        self.assert_admitted(token(CLAIMS))
        self.provider.refused = "no route"
        self.assert_admitted(token(CLAIMS))

    def test_algorithms(self) -> None:
        """No other algorithm is good, whatever discovery lists (AUTH-17)."""
        for algorithm in ("none", "HS256", "ES256", "PS256", "EdDSA", "rs256"):
            evidence = signed({"alg": algorithm, "kid": "k1"}, CLAIMS)
            self.row("token", Reason.TOKEN_UNSIGNED if algorithm == "none" else Reason.ALGORITHM_REFUSED, evidence)

    def test_algorithms_are_no_variable(self) -> None:
        """No variable allows another algorithm either: the one of JWT authenticators means nothing here."""
        self.provider.published[TENANT] = jwks(jwk(), jwk_for("ES256", "e1"))
        self.readings.set(self.branch, algorithms="ES256")
        self.row("token", Reason.ALGORITHM_REFUSED, token(CLAIMS, "e1", "ES256"))
        self.assert_admitted(token(CLAIMS))

    def test_rotation(self) -> None:
        """The request that makes keys be fetched again is decided with the new ones."""
        self.assert_admitted(token(CLAIMS))
        self.provider.published[TENANT] = jwks(jwk("k2"))
        self.assert_admitted(token(CLAIMS, "k2"))
        self.row("signature", Reason.KEY_UNKNOWN)

    def test_signature(self) -> None:
        """CONJ00035E: the signature must be by the key that is named."""
        self.row("signature", Reason.SIGNATURE_WRONG, token(CLAIMS, "k2", kid="k1"))
        head, _, signature = token(CLAIMS).split(b".")
        body = base64url(json.dumps({**CLAIMS, "xms_mirid": ASSIGNED}).encode()).encode()
        self.row("signature", Reason.SIGNATURE_WRONG, b".".join((head, body, signature)))

    def test_distrusted(self) -> None:
        """A key that an operator distrusts verifies nothing."""
        self.readings.tell(self.branch, distrusted=frozenset({"k1"}))
        self.row("signature", Reason.KEY_DISTRUSTED)


class ClaimTests(CloudCase):
    """What the token must say."""

    def test_expiry(self) -> None:
        """``exp`` is required (AUTH-19), and counts to the second."""
        self.row("expiry", Reason.EXPIRY_MISSING, self.claims(exp=...))
        self.row("expiry", Reason.TOKEN_EXPIRED, self.claims(exp=NOW))
        self.row("expiry", Reason.TIME_CLAIM_INVALID, self.claims(exp="1800000000"))

    def test_times(self) -> None:
        """``nbf`` and ``iat`` may not lie ahead where they are."""
        self.row("not-before", Reason.TOKEN_NOT_YET_VALID, self.claims(nbf=NOW + 1))
        self.row("issued-at", Reason.TOKEN_NOT_YET_VALID, self.claims(iat=NOW + 1))
        self.row("issued-at", Reason.TIME_CLAIM_INVALID, self.claims(iat="now"))

    def test_clock_skew(self) -> None:
        """The configured difference of clocks is granted."""
        self.authenticator = self.made(clock_skew=5.0)
        self.assert_admitted(self.claims(exp=NOW - 4, nbf=NOW + 5, iat=NOW + 5))

    def test_issuer(self) -> None:
        """``iss`` is exactly the tenant, and is always required: it alone tells tenants apart (AUTH-22)."""
        for issuer in ("https://sts.platform.example/", [TENANT], None, 1):
            self.row("issuer", Reason.ISSUER_WRONG, self.claims(iss=issuer))
        self.row("issuer", Reason.ISSUER_MISSING, self.claims(iss=...))
        self.authenticator = self.made(ignore_missing_issuer=True)
        self.row("issuer", Reason.ISSUER_MISSING, self.claims(iss=...))

    def test_audience(self) -> None:
        """Where the variable audience is declared, tokens that were made for others are worth nothing."""
        self.readings.set(self.branch, audience="https://svc.example")
        for audience in ("https://svc.example", ["x", "https://svc.example"]):
            self.assert_admitted(self.claims(aud=audience))
        for other in ("https://management.platform.example/", "https://svc.example/", ["x"], [], 1):
            self.row("audience", Reason.AUDIENCE_WRONG, self.claims(aud=other))
        self.row("audience", Reason.AUDIENCE_MISSING, self.claims(aud=...))

    def test_needed_claims(self) -> None:
        """CONJ00051E: ``xms_mirid`` and ``oid`` must be there and be text."""
        for name in ("xms_mirid", "oid"):
            for value in (..., None, ""):
                self.row("identity-claims", Reason.IDENTITY_CLAIM_MISSING, self.claims(**{name: value}))
            for other in (1, True, [MACHINE], {"a": OID}):
                self.row("identity-claims", Reason.IDENTITY_CLAIM_INVALID, self.claims(**{name: other}))

    def test_own_audience(self) -> None:
        """A token without ``xms_mirid`` is refused with its audience as a cause, unless it is Microsoft's own (AUTH-38)."""
        refused = self.refusal(Reason.IDENTITY_CLAIM_MISSING, self.claims(xms_mirid=..., aud="api://svc.example"))
        self.assertIn("'aud' is 'api://svc.example'", refused.detail)
        for audience in ("https://management.azure.com/", "https://management.azure.com", "https://vault.azure.net"):
            refused = self.refusal(Reason.IDENTITY_CLAIM_MISSING, self.claims(xms_mirid=..., aud=audience))
            self.assertEqual(refused.detail, "the token has no claim 'xms_mirid'; it is not of a workload's identity")

    def test_resource_id(self) -> None:
        """CONJ00052E to CONJ00054E: the resource id must be one, of a resource that is in no other."""
        for text in ("x", MACHINE + "/", "/" + MACHINE, MACHINE.rpartition("/")[0], SLOT, MACHINE.replace("/providers", "")):
            self.row("resource-id", Reason.RESOURCE_ID_MALFORMED, self.claims(xms_mirid=text))

    def test_repeated_keyword(self) -> None:
        """A keyword can't be said twice to have the last one count (AUTH-37)."""
        for text in (
            f"/subscriptions/evil{MACHINE}",
            f"/subscriptions/evil/resourcegroups/evil{MACHINE}",
            f"/subscriptions/{SUBSCRIPTION}/resourcegroups/evil/resourcegroups/{GROUP}/providers/N/t/n",
        ):
            self.row("resource-id", Reason.RESOURCE_ID_MALFORMED, self.claims(xms_mirid=text))


class AnnotationTests(CloudCase):
    """What the host must say, and how it is compared."""

    def test_required(self) -> None:
        """CONJ00057E: subscription-id and resource-group must be there; all that is missing is told (AUTH-38)."""
        self.annotate({"resource-group": GROUP})
        detail = self.row("required-annotations", Reason.ANNOTATION_REQUIRED)
        self.assertEqual(detail, "the host has no annotation subscription-id")
        self.annotate({SHARED: "web"})
        detail = self.row("required-annotations", Reason.ANNOTATION_REQUIRED)
        self.assertEqual(detail, "the host has no annotation subscription-id and no resource-group")
        self.readings.annotations[HOST] = {}
        self.row("required-annotations", Reason.ANNOTATION_REQUIRED)

    def test_permitted(self) -> None:
        """CONJ00050E: any other name is refused, general or of this service (AUTH-38)."""
        for name in ("tenant-id", "Subscription-Id", "prod", "", "prod/tenant-id", "prod/"):
            self.annotate({**BOUND, name: "x"})
            self.row("permitted-annotations", Reason.ANNOTATION_UNSUPPORTED)

    def test_exclusive(self) -> None:
        """CONJ00055E: a host is bound to one identity at most, however that is said (AUTH-38)."""
        for both in ({SHARED: "web", SOLE: OID}, {SHARED: "web", f"prod/{SOLE}": OID}):
            self.annotate({**BOUND, **both})
            self.row("exclusive-annotations", Reason.ANNOTATIONS_EXCLUSIVE)

    def test_specific_over_general(self) -> None:
        """What is said for this service overrides what is said in general, name by name, in whatever order they stand
        (AUTH-38).
        """
        annotations = {"subscription-id": "x", "prod/subscription-id": SUBSCRIPTION, "resource-group": GROUP}
        for written in (annotations, dict(reversed(annotations.items()))):
            self.annotate(written)
            self.assert_admitted(token(CLAIMS))
        self.annotate({**BOUND, "prod/resource-group": "other"})
        self.row("resource", Reason.CLAIM_MISMATCH)

    def test_specific_alone(self) -> None:
        """All may be said for this service alone."""
        self.annotate({f"prod/{name}": value for name, value in BOUND.items()})
        self.assert_admitted(token(CLAIMS))

    def test_other_services(self) -> None:
        """What is said for other services, of ids within or around this one too, counts for nothing."""
        others = ("test/subscription-id", "prod/x/subscription-id", "prod2/tenant-id", "pro/resource-group", "PROD/x")
        self.annotate({**BOUND, **dict.fromkeys(others, "x")})
        self.assert_admitted(token(CLAIMS))
        self.annotate(
            {"test/subscription-id": SUBSCRIPTION, "prod/x/subscription-id": SUBSCRIPTION, "resource-group": GROUP}
        )
        self.row("required-annotations", Reason.ANNOTATION_REQUIRED)

    def test_service_of_two_parts(self) -> None:
        """A service id may have a slash; what is said for the service of its first part isn't said for it (AUTH-1)."""
        self.readings.set(f"{self.dialect.prefix}/{self.name}/a/b", provider_uri=TENANT)
        self.annotate({**BOUND, "a/subscription-id": "x", "a/x": "y"})
        self.assert_admitted(token(CLAIMS), service="a/b")
        self.annotate({**BOUND, "a/b/subscription-id": "x"})
        self.row("resource", Reason.CLAIM_MISMATCH, service="a/b")

    def test_other_authenticators(self) -> None:
        """Annotations for other authenticators, or for none, count for nothing."""
        self.readings.annotations[HOST] |= {
            "authn-jwt/prod/x": "y",
            "description": "x",
            f"{self.name}2/x": "y",
            self.name: "x",
        }
        self.assert_admitted(token(CLAIMS))

    def test_empty(self) -> None:
        """An annotation without value says nothing: neither overrides, nor binds, nor is unsupported (AUTH-38)."""
        self.annotate({**BOUND, "prod/subscription-id": "", SHARED: "", SOLE: "", "x": "", "prod/y": ""})
        self.assert_admitted(token(CLAIMS))
        self.annotate({**BOUND, "resource-group": ""})
        self.row("required-annotations", Reason.ANNOTATION_REQUIRED)

    def test_mismatch(self) -> None:
        """CONJ00049E: subscription, group and identity must be exactly those of the token (AUTH-39)."""
        for name, value, resource in (
            ("subscription-id", SUBSCRIPTION[:-1], MACHINE),
            ("subscription-id", f"{SUBSCRIPTION} ", MACHINE),
            ("resource-group", "staging", MACHINE),
            ("resource-group", f"{GROUP}/", MACHINE),
            (SHARED, "other", ASSIGNED),
            (SOLE, "other", MACHINE),
            (SOLE, "web-1", MACHINE),
        ):
            self.annotate({**BOUND, name: value})
            detail = self.row("resource", Reason.CLAIM_MISMATCH, self.claims(xms_mirid=resource))
            self.assertIn(name, detail)
            self.assertIn(repr(value), detail)

    def test_case_alone(self) -> None:
        """A difference in case alone is refused too, for a reason of its own (AUTH-39)."""
        upper = MACHINE.replace(SUBSCRIPTION, "ABCDEF").replace("web", "WEB")
        for name, value, evidence in (
            ("subscription-id", "abcdef", self.claims(xms_mirid=upper)),
            ("resource-group", "Production", self.claims()),
            (SHARED, "Web", self.claims(xms_mirid=ASSIGNED)),
            (SOLE, OID.upper(), self.claims()),
        ):
            self.annotate({**BOUND, name: value})
            self.assertIn("in case alone", self.row("resource", Reason.CLAIM_CASE_MISMATCH, evidence))

    def test_kinds_of_identity(self) -> None:
        """CONJ00049E: an assigned identity isn't taken for a workload's own, nor the other way round, by whatever name
        (AUTH-39).
        """
        self.annotate({**BOUND, SHARED: "web-1"})
        self.row("resource", Reason.IDENTITY_KIND_MISMATCH)
        self.annotate({**BOUND, SOLE: OID})
        self.row("resource", Reason.IDENTITY_KIND_MISMATCH, self.claims(xms_mirid=ASSIGNED))

    def test_namespaces(self) -> None:
        """The namespace alone tells which sort of identity a token is of: not the type, not the name, not the object id
        (AUTH-39).

        An identity that was assigned is compared by its name, and a workload's own by its object id; neither passes for the
        other, though the name or the object id be the right one.
        """
        for kind, shared in (
            ("Microsoft.ManagedIdentity/userAssignedIdentities", True),
            ("microsoft.managedidentity/USERASSIGNEDIDENTITIES", True),
            ("Microsoft.ManagedIdentity/identities", True),
            ("Microsoft.ManagedIdentity/virtualMachines", True),
            ("Microsoft.Compute/virtualMachines", False),
            ("Microsoft.Compute/userAssignedIdentities", False),
            ("Microsoft.Web/sites", False),
            ("Microsoft.ManagedIdentity2/userAssignedIdentities", False),
            ("ManagedIdentity/userAssignedIdentities", False),
            ("userAssignedIdentities/Microsoft.ManagedIdentity", False),
        ):
            resource = MACHINE.replace("Microsoft.Compute/virtualMachines/web-1", f"{kind}/VM1")
            for oid in (OID, "VM1"):
                evidence = self.claims(xms_mirid=resource, oid=oid)
                for name, value, own in ((SHARED, "VM1", True), (SOLE, oid, False)):
                    self.annotate({**BOUND, name: value})
                    if own is shared:
                        self.assert_admitted(evidence)
                    else:
                        self.row("resource", Reason.IDENTITY_KIND_MISMATCH, evidence)

    def test_names_of_resources(self) -> None:
        """A machine that is called like the namespace of identities is a machine."""
        self.annotate({**BOUND, SHARED: "Microsoft.ManagedIdentity"})
        resource = MACHINE.replace("web-1", "Microsoft.ManagedIdentity")
        self.row("resource", Reason.IDENTITY_KIND_MISMATCH, self.claims(xms_mirid=resource))


class SameWorkTests(CloudCase):
    """Note [Same work] of ``evaluation``."""

    def trips(self, evidence: bytes, **options: Any) -> list[str]:
        """What the store is asked for one attempt with settings at hand."""
        self.assert_admitted(token(CLAIMS))
        self.readings.asked.clear()
        self.attempt(evidence, **options)
        return self.readings.asked

    def test_one_round_trip(self) -> None:
        """An admission and every sort of refusal cost one reading each, of the role that the path names once it is proven
        (AUTH-11).

        A client that proves nothing has a role read that can't exist, and not the host of its choice.
        """
        for evidence in (token(CLAIMS), self.claims(xms_mirid="x")):
            self.assertEqual(self.trips(evidence), [f"applicant {HOST}"], evidence)
        for evidence in (self.claims(exp=NOW), self.claims(oid=...), token(CLAIMS, "k2", kid="k1")):
            self.assertEqual(self.trips(evidence), ["applicant acme:host:"], evidence)
        self.assertEqual(self.trips(token(CLAIMS), login="host/nobody"), ["applicant acme:host:nobody"])
        for evidence, login in ((b"", HOST.login), (b"a.b.c", HOST.login), (token(CLAIMS), None), (token(CLAIMS), "host/")):
            self.assertEqual(self.trips(evidence, login=login), ["applicant acme:host:"])

    def test_refusals_look_alike(self) -> None:
        """Unknown host, wrong claim and expired token have one status, and so has an unknown host with any of them
        (FAIL-17).
        """
        bad = (self.claims(exp=NOW), self.claims(xms_mirid=ASSIGNED.upper()), self.claims(oid=...), b"x")
        known, unknown = [(each, HOST.login) for each in bad], [(each, "host/no") for each in (token(CLAIMS), *bad)]
        for evidence, login in (*known, *unknown):
            refused = self.attempt(evidence, login=login)
            assert isinstance(refused, Refused)
            self.assertEqual(refusal_status(refused), 401)

    def test_who_cannot_be_judged_looks_alike(self) -> None:
        """Without keys everybody is put off, whatever the host, claims and signature, at the cost of a reading of nobody
        (FAIL-19).

        What is no token is refused, as ever (``evaluation``, Note [Undecided logins]).
        """
        tokens = (token(CLAIMS), self.claims(exp=NOW), self.claims(oid=...), token(CLAIMS, "k2"), token(CLAIMS, kid=None))
        self.assert_admitted(token(CLAIMS))
        self.provider.cached.clear()
        self.provider.refused = "no route"
        for login in (HOST.login, "host/nobody", "host/", None):
            for evidence in tokens:
                self.readings.asked.clear()
                refused = self.refusal(Reason.KEYS_UNAVAILABLE, evidence, 503, login=login)
                self.assertEqual((refused.retry_after, refused.role), (7, None))
                self.assertEqual(self.readings.asked, ["applicant acme:host:"])
            self.refusal(Reason.TOKEN_MALFORMED, b"x", login=login)


class ExplainTests(CloudCase):
    """What operators are told."""

    def test_admitted(self) -> None:
        """Of a login that would be admitted every check has passed, and it's said what was compared."""
        self.readings.set(self.branch, audience="svc")
        self.annotate({**BOUND, f"prod/{SHARED}": "web"})
        explanation = self.explained(self.claims(aud="svc", xms_mirid=ASSIGNED))
        self.assertTrue(explanation.admitted)
        self.assertEqual(explanation.role, str(HOST))
        told = {step.check: step.detail for step in explanation.steps}
        self.assertNotIn("", told.values())
        for check, text in (
            ("enabled", f"'{self.name}/prod' is listed in the configuration"),
            ("identity", f"the path names '{HOST}'"),
            ("keys", f"from '{TENANT}': 'k1'"),
            ("issuer", f"'iss' is or holds '{TENANT}'"),
            ("identity-claims", f"'xms_mirid' is {quote_text(ASSIGNED)}; 'oid' is '{OID}'"),
            (
                "required-annotations",
                f"subscription-id is '{SUBSCRIPTION}'; resource-group is '{GROUP}'; user-assigned-identity is 'web'",
            ),
            (
                "resource-id",
                f"subscription '{SUBSCRIPTION}', resource group '{GROUP}', "
                "'Microsoft.ManagedIdentity' 'userAssignedIdentities' 'web'",
            ),
        ):
            self.assertEqual(told[check], text)

    def test_refused(self) -> None:
        """The check that refuses a login has failed, those before it have passed, and those after it weren't reached."""
        steps = self.explained(self.claims(iss="x")).steps
        at = [step.check for step in steps].index("issuer")
        self.assertEqual({step.outcome for step in steps[:at]}, {"passed"})
        self.assertEqual(steps[at].outcome, "failed")
        self.assertEqual({(step.outcome, step.detail) for step in steps[at + 1 :]}, {("not reached", "")})


class ConjurAdmissionTests(AdmissionTests):
    """The same in the dialect of the installed base."""

    dialect = CONJUR


class ConjurOrderTests(OrderTests):
    """The same in the dialect of the installed base."""

    dialect = CONJUR


class ConjurPlaceTests(PlaceTests):
    """The same in the dialect of the installed base."""

    dialect = CONJUR


class ConjurSettingsTests(SettingsTests):
    """The same in the dialect of the installed base."""

    dialect = CONJUR


class ConjurKeyTests(KeyTests):
    """The same in the dialect of the installed base."""

    dialect = CONJUR


class ConjurClaimTests(ClaimTests):
    """The same in the dialect of the installed base."""

    dialect = CONJUR


class ConjurAnnotationTests(AnnotationTests):
    """The same in the dialect of the installed base."""

    dialect = CONJUR


class ConjurSameWorkTests(SameWorkTests):
    """The same in the dialect of the installed base."""

    dialect = CONJUR


class ConjurExplainTests(ExplainTests):
    """The same in the dialect of the installed base."""

    dialect = CONJUR
