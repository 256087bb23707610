"""The Google authenticator, in both dialects: each test names its code in the installed base where it has one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from svc.authn.evaluation import FederatedAuthenticator
from svc.authn.gcp import NAME, make_gcp_kind
from svc.model.authentication import ANNOTATIONS_LIMIT, Admitted, KeySource, LoginRequest, Refused
from svc.model.dialect import CONJUR
from svc.model.errors import InvalidName
from svc.model.listed_authenticators import ListedAuthenticators
from svc.model.names import RoleName
from svc.model.reasons import Reason
from tests.authn.world import ALICE, CREATION, NOW, Case
from tests.signing import base64url, jwk, jwk_for, jwks, signed, token
from tests.statuses import privilege_missing_status, refusal_status

GOOGLE = "https://accounts.google.com"
HOST = RoleName("acme", "host", "google-apps/web")
EMAIL = "web@shop.iam.gserviceaccount.com"
SUBJECT = "107517467455664443765"

#: What Google adds where the format ``full`` is asked for, on a machine.
FULL: Mapping[str, object] = {
    "google": {
        "compute_engine": {
            "project_id": "shop",
            "project_number": 739419398126,
            "zone": "europe-west1-b",
            "instance_id": "152986662232938449",
            "instance_name": "web-1",
            "instance_creation_timestamp": 1496952205,
        }
    }
}

CLAIMS: Mapping[str, object] = {
    "iss": GOOGLE,
    "iat": NOW,
    "exp": NOW + 60,
    "sub": SUBJECT,
    "azp": SUBJECT,
    "email": EMAIL,
    "email_verified": True,
    **FULL,
}


class GoogleCase(Case):
    """The authenticator of the account, and one host that is bound to a project."""

    def setUp(self) -> None:
        """A world in which ``claims()`` admits ``HOST``."""
        super().setUp()
        self.branch = f"{self.dialect.prefix}/{NAME}"
        self.readings.set(self.branch)
        self.provider.published[GOOGLE] = jwks()
        self.annotate({"project-id": "shop"})
        self.readings.permitted.add(HOST)
        self.audience = f"{self.dialect.prefix}/acme/{HOST.login}"

    def made(self, **options: Any) -> FederatedAuthenticator:
        """An authenticator on the same world."""
        defaults = {"clock_skew": 0.0, "token_limit": 16_384, "ignore_missing_issuer": False}
        common = self.readings, self.provider, self.vault, self.clock, self.dialect, ListedAuthenticators([NAME])
        return FederatedAuthenticator(make_gcp_kind(GOOGLE), *common, **{**defaults, **options})

    def annotate(self, annotations: Mapping[str, str], role: RoleName = HOST) -> None:
        """Give the role these annotations for the authenticator, and no others."""
        self.readings.annotations[role] = {f"{NAME}/{name}": value for name, value in annotations.items()}

    def trying(
        self,
        evidence: bytes,
        login: str | None = None,
        service: str | None = None,
        account: str = "acme",
        client_ip: str = "192.0.2.1",
        fault: tuple[Reason, str] | None = None,
    ) -> LoginRequest:
        """An attempt."""
        return LoginRequest(account, login, evidence, client_ip, service, fault)

    def assert_admitted(self, evidence: bytes, role: RoleName = HOST, **options: Any) -> None:
        """The token admits the role."""
        self.assertEqual(self.attempt(evidence, **options), Admitted(role, "signing-key", CREATION))

    def claims(self, **changes: object) -> bytes:
        """A good token with other claims; those that are ``...`` are left out."""
        claims = {"aud": self.audience, **CLAIMS, **changes}
        return token({name: value for name, value in claims.items() if value is not ...})

    def row(self, check: str, reason: Reason, evidence: bytes | None = None, status: int = 401, **options: Any) -> str:
        """The token, a good one unless another is given, is refused by this check for this reason, in these words.

        Decisions and explanations agree.
        """
        evidence = self.claims() if evidence is None else evidence
        decision = self.attempt(evidence, **options)
        assert isinstance(decision, Refused), "it was admitted"
        self.assertEqual((decision.reason, refusal_status(decision)), (reason, status), decision.detail)
        failed = self.failed(evidence, **options)
        assert failed is not None
        self.assertEqual((failed.check, failed.reason, failed.detail), (check, reason, decision.detail))
        self.assert_fit(decision.detail, evidence)
        return decision.detail


class AdmissionTests(GoogleCase):
    """Who is admitted."""

    def test_each_annotation(self) -> None:
        """Each annotation is compared with its claim, alone or with the others (GCP-7)."""
        all_four = {
            "project-id": "shop",
            "instance-name": "web-1",
            "service-account-id": SUBJECT,
            "service-account-email": EMAIL,
        }
        self.annotate(all_four)
        self.assert_admitted(self.claims())
        for name in ("project-id", "service-account-id", "service-account-email"):
            self.annotate({name: all_four[name]})
            self.assert_admitted(self.claims())

    def test_formats(self) -> None:
        """A token in the format ``standard`` has only the service account's id, and a function's its e-mail address too
        (GCP-7).
        """
        self.annotate({"service-account-id": SUBJECT})
        self.assert_admitted(self.claims(google=..., email=..., email_verified=...))
        self.annotate({"service-account-id": SUBJECT, "service-account-email": EMAIL})
        self.assert_admitted(self.claims(google=...))
        self.assert_admitted(self.claims(google=..., email_verified=...))

    def test_users(self) -> None:
        """The audience may name a user, too, whose own annotations count (GCP-8)."""
        self.annotate({"service-account-id": SUBJECT}, ALICE)
        self.readings.permitted.add(ALICE)
        for login in ("alice", "user/alice"):
            self.assert_admitted(self.claims(aud=f"{self.dialect.prefix}/acme/{login}"), role=ALICE)
        self.annotate({"service-account-id": "other"}, ALICE)
        self.row("claims", Reason.CLAIM_MISMATCH, self.claims(aud=f"{self.dialect.prefix}/acme/alice"))

    def test_optional_claims(self) -> None:
        """``nbf`` and ``iat`` may be absent, and unknown ones present."""
        self.assert_admitted(self.claims(iat=..., azp=..., nbf=NOW, other=[1]))

    def test_restricted(self) -> None:
        """A host that is restricted to networks logs in from there, and from nowhere else."""
        self.readings.restrictions[HOST] = ("198.51.100.0/24",)
        self.assert_admitted(self.claims(), client_ip="198.51.100.9")
        self.row("origin", Reason.ORIGIN_REFUSED)

    def test_rotation(self) -> None:
        """The request that makes keys be fetched again is decided with the new ones (AUTH-44)."""
        self.assert_admitted(self.claims())
        self.provider.published[GOOGLE] = jwks(jwk("k2"))
        self.assert_admitted(token({"aud": self.audience, **CLAIMS}, "k2"))
        self.row("signature", Reason.KEY_UNKNOWN)


class OrderTests(GoogleCase):
    """In which order failures count."""

    def test_checks_have_names(self) -> None:
        """Every check has a name of its own, of a fixed list, in the order of GCP-3 (GCP-3)."""
        self.assertEqual(
            " ".join(check.name for check in make_gcp_kind(GOOGLE).checks),
            "enabled account token webservice configuration keys signature expiry not-before issuer issued-at subject "
            "audience role privilege origin annotations-extent required-annotations permitted-annotations claims",
        )

    def test_one_after_the_other(self) -> None:
        """Of everything that is wrong at once, what comes first is told; each time that it is mended, the next (GCP-3)."""
        wrong: dict[str, object] = {"exp": ..., "nbf": NOW + 9, "iss": "x", "iat": NOW + 9, "sub": ..., "aud": "x"}
        self.readings.restrictions[HOST] = ("198.51.100.0/24",)
        self.readings.permitted.clear()
        self.annotate({"x": "y"})
        self.row("enabled", Reason.AUTHENTICATOR_NOT_ENABLED, b"", account="other", service="ci")
        self.row("account", Reason.ACCOUNT_UNKNOWN, b"", account="other")
        self.row("token", Reason.TOKEN_MALFORMED, b"x")
        self.readings.webservice_missing = True
        self.row("webservice", Reason.WEBSERVICE_UNKNOWN, self.claims(**wrong))
        self.readings.webservice_missing = False
        self.provider.cached.clear()
        self.provider.refused = "no route"
        self.row("keys", Reason.KEYS_UNAVAILABLE, self.claims(**wrong), 503)
        self.provider.refused = None
        self.row("signature", Reason.KEY_UNKNOWN, token(CLAIMS, "k2"))
        for check, reason, name, right in (
            ("expiry", Reason.EXPIRY_MISSING, "exp", NOW + 60),
            ("not-before", Reason.TOKEN_NOT_YET_VALID, "nbf", NOW),
            ("issuer", Reason.ISSUER_WRONG, "iss", GOOGLE),
            ("issued-at", Reason.TOKEN_NOT_YET_VALID, "iat", NOW),
            ("subject", Reason.IDENTITY_CLAIM_MISSING, "sub", SUBJECT),
            ("audience", Reason.AUDIENCE_WRONG, "aud", f"{self.dialect.prefix}/acme/host/other"),
            ("role", Reason.ROLE_UNKNOWN, "aud", self.audience),
        ):
            self.row(check, reason, self.claims(**wrong))
            wrong[name] = right
        bad = self.claims(email="other")
        self.row("privilege", Reason.PRIVILEGE_MISSING, bad, privilege_missing_status(self.dialect))
        self.readings.permitted.add(HOST)
        self.row("origin", Reason.ORIGIN_REFUSED, bad)
        del self.readings.restrictions[HOST]
        self.annotate({str(number): "x" for number in range(ANNOTATIONS_LIMIT + 1)})
        self.row("annotations-extent", Reason.ANNOTATIONS_EXCESSIVE, bad)
        self.annotate({"x": "y", "instance-name": "web-1"})
        self.row("required-annotations", Reason.ANNOTATION_REQUIRED, bad)
        self.annotate({"x": "y", "service-account-email": EMAIL})
        self.row("permitted-annotations", Reason.ANNOTATION_UNSUPPORTED, bad)
        self.annotate({"service-account-email": EMAIL})
        self.row("claims", Reason.CLAIM_MISMATCH, bad)
        self.assert_admitted(self.claims())


class PlaceTests(GoogleCase):
    """The authenticator, and the account."""

    def test_not_enabled(self) -> None:
        """CONJ00004E: it must be enabled; there is none with a service id (GCP-1)."""
        self.assert_admitted(self.claims())
        self.readings.webservices[f"{self.branch}/ci"] = self.readings.webservices[self.branch]
        for service in ("ci", "", "status"):
            self.row("enabled", Reason.AUTHENTICATOR_NOT_ENABLED, service=service)
        common = (
            self.readings,
            self.provider,
            self.vault,
            self.clock,
            self.dialect,
            ListedAuthenticators([f"{NAME}/ci", "authn"]),
        )
        self.authenticator = FederatedAuthenticator(
            make_gcp_kind(GOOGLE), *common, clock_skew=0.0, token_limit=16_384, ignore_missing_issuer=False
        )
        for other in (None, "ci"):
            self.row("enabled", Reason.AUTHENTICATOR_NOT_ENABLED, service=other)

    def test_switched(self) -> None:
        """It is switched off, and in ``conjur`` on, like any other (AUTH-2, GCP-1)."""
        self.readings.tell(self.branch, switched=False)
        if self.dialect.switch_enables:
            self.assert_admitted(self.claims())
        else:
            self.row("enabled", Reason.AUTHENTICATOR_NOT_ENABLED)

    def test_unknown_account(self) -> None:
        """CONJ00008E: the account must exist."""
        for account in ("other", "a b"):
            self.row("account", Reason.ACCOUNT_UNKNOWN, account=account)

    def test_privilege(self) -> None:
        """CONJ00006E: the role must have the privilege; the status is that of the dialect, for proven identities alone
        (AUTH-12).
        """
        self.readings.permitted.clear()
        self.row("privilege", Reason.PRIVILEGE_MISSING, None, privilege_missing_status(self.dialect))
        self.row("expiry", Reason.TOKEN_EXPIRED, self.claims(exp=NOW))

    def test_no_token(self) -> None:
        """CONJ00009E: a request without token is a bad one (FAIL-14)."""
        for evidence in (b"", b" \r\n"):
            self.row("token", Reason.TOKEN_MISSING, evidence, 400)
        self.refusal(Reason.REQUEST_MALFORMED, b"", 400, fault=(Reason.REQUEST_MALFORMED, "so it is"))

    def test_no_jwt(self) -> None:
        """CONJ00077E: what isn't a JWT is refused, and what is too large for one is told so."""
        for evidence in (b"x", b"a.b", b"a.b.c", b"a.b.c.d"):
            self.row("token", Reason.TOKEN_MALFORMED, evidence)
        self.row("token", Reason.TOKEN_TOO_LARGE, b"x" * (1 << 20), 413)

    def test_status(self) -> None:
        """Its status has Google's keys, or says why there are none; it has no variables."""
        status = self.status(service=None)
        self.assertEqual((status.problems, status.source, status.uri), ((), "provider-uri", GOOGLE))
        self.assertEqual([key_id for key_id, _ in status.keys.keys], ["k1"])
        self.assertEqual(list(self.provider.cached), [KeySource(GOOGLE, discovered=True)])
        self.provider.cached.clear()
        self.provider.refused = "no route"
        (problem,) = self.status(service=None).problems
        self.assertEqual(problem.what, "There are no keys: no route.")

    def test_explained(self) -> None:
        """Of a login that would be admitted every check has passed, and it's said what was compared."""
        explanation = self.explained(self.claims())
        self.assertEqual((explanation.admitted, explanation.role), (True, str(HOST)))
        told = {step.check: step.detail for step in explanation.steps}
        self.assertNotIn("", told.values())
        for check, text in (
            ("enabled", "'authn-gcp' is listed in the configuration"),
            ("keys", f"from '{GOOGLE}': 'k1'"),
            ("subject", f"'sub' is '{SUBJECT}'"),
            ("audience", f"'aud' names '{HOST}'"),
            ("required-annotations", "'project-id' is 'shop'"),
        ):
            self.assertEqual(told[check], text)


class AttackTests(GoogleCase):
    """Tokens of Google's other customers, and of other services, and what is nearly right: all have a right signature."""

    def test_audience(self) -> None:
        """CONJ00067E, CONJ00070E: the audience is a text of three parts for this service and account; nothing that holds,
        begins or resembles it will do (GCP-4).
        """
        prefix = self.dialect.prefix
        for audience in (
            *("conjur" if prefix == "svc" else "svc", prefix, f"{prefix}/", f"{prefix}/acme", f"{prefix}/acme/"),
            *(f"{prefix}/other/{HOST.login}", f"{prefix}/acme2/{HOST.login}", f"{prefix}//{HOST.login}"),
            *(f"/{self.audience}", f"https://{self.audience}", f" {self.audience}", self.audience.upper()),
            *(self.audience.replace("/", "%2F"), self.audience.replace("/", "\\"), HOST.login, str(HOST)),
            *(f"x{prefix}/acme/{HOST.login}", f"{prefix}/acme:{HOST.login}", "https://svc.example.org"),
            f"{'conjur' if prefix == 'svc' else 'svc'}/acme/{HOST.login}",
            *([self.audience], [self.audience, "x"], [], {self.audience: True}, 1, True, 1.5),
        ):
            self.row("audience", Reason.AUDIENCE_WRONG, self.claims(aud=audience))
        for missing in (..., None, ""):
            self.row("audience", Reason.AUDIENCE_MISSING, self.claims(aud=missing))

    def test_other_roles(self) -> None:
        """The login in the audience is taken as it is: no dots, blanks, case or encoding lead to another role (GCP-4)."""
        for login in (
            *(
                "host/google-apps/web/",
                "host/google-apps//web",
                "host//google-apps/web",
                "host/google-apps/../google-apps/web",
            ),
            *("host/google-apps/WEB", "host/google-apps/web ", "host/google-apps%2Fweb", "host/google-apps/web\n"),
            *("host/", "host/\x00", "google-apps/web", "user/google-apps/web", "acme:host:google-apps/web", "x" * 2000),
        ):
            self.row(
                "role" if self.names_a_role(login) else "audience",
                Reason.ROLE_UNKNOWN,
                self.claims(aud=f"{self.dialect.prefix}/acme/{login}"),
            )

    def names_a_role(self, login: str) -> bool:
        """Whether a role can have this login."""
        try:
            RoleName.from_login("acme", login)
        except InvalidName:
            return False
        return True

    def test_another_customer(self) -> None:
        """Anybody may ask Google for this audience; their project and service account are others (GCP-6, GCP-7). A claim
        is shown as JSON has it (REF-15).
        """
        other = {"google": {"compute_engine": {"project_id": "evil", "instance_name": "web-1"}}}
        self.row("claims", Reason.CLAIM_MISMATCH, self.claims(**other))
        self.annotate({"service-account-id": SUBJECT})
        self.row("claims", Reason.CLAIM_MISMATCH, self.claims(sub="1"))
        self.annotate({"service-account-email": EMAIL})
        for email in ("web@evil.iam.gserviceaccount.com", EMAIL.upper(), f" {EMAIL}", f"{EMAIL}.evil.example", ""):
            self.row("claims", Reason.CLAIM_MISMATCH, self.claims(email=email))
        for verified in (False, None, "true", 1, 0, [True]):
            detail = self.row("claims", Reason.CLAIM_MISMATCH, self.claims(email_verified=verified))
            self.assertIn(f"'email_verified' is {json.dumps(verified).replace(chr(34), chr(39))}", detail)

    def test_instance_name_alone(self) -> None:
        """CONJ00069E: names of machines are anybody's, so one alone binds nobody; an empty annotation is none (GCP-6)."""
        machine, empty = {"instance-name": "web-1"}, {"project-id": ""}
        for written in ({}, machine, empty, {**machine, **empty}):
            self.annotate(written)
            detail = self.row("required-annotations", Reason.ANNOTATION_REQUIRED)
            self.assertIn("project-id, service-account-id, service-account-email", detail)

    def test_unknown_annotations(self) -> None:
        """CONJ00050E: an annotation of any other name is refused, also one for a service id; other types' count for
        nothing (GCP-6).
        """
        for name in ("zone", "Project-Id", "ci/project-id", "", "project-id/", "sub", "email", "google/compute_engine/zone"):
            self.annotate({"project-id": "shop", name: "x"})
            self.row("permitted-annotations", Reason.ANNOTATION_UNSUPPORTED)
        self.annotate({"project-id": "shop", "zone": ""})
        self.readings.annotations[HOST] |= {"authn-gcp2/x": "y", "authn-gcp": "x", "authn-jwt/ci/x": "y", "description": "x"}
        self.assert_admitted(self.claims())

    def test_claims_that_are_absent(self) -> None:
        """CONJ00068E: a claim that an annotation is compared with must be there, where Google puts it (GCP-7)."""
        absent: tuple[object, ...] = (
            *(..., None, {}, [], "shop", {"compute_engine": None}, {"compute_engine": {}}),
            *({"compute_engine": ["project_id"]}, {"compute_engine": {"project_id": None}}),
            *({"project_id": "shop"}, {"compute_engine": {"Project_id": "shop"}}),
        )
        for google in absent:
            self.row("claims", Reason.CLAIM_MISSING, self.claims(google=google, project_id="shop"))
        self.annotate({"service-account-email": EMAIL})
        self.row("claims", Reason.CLAIM_MISSING, self.claims(email=...))

    def test_claims_of_another_type(self) -> None:
        """A number, boolean, array or object never equals the text that it would be written as (GCP-7)."""
        for wanted, value, reason in (
            ("1", 1, Reason.CLAIM_IS_NUMBER),
            ("True", True, Reason.CLAIM_IS_BOOLEAN),
            ("['shop']", ["shop"], Reason.CLAIM_IS_ARRAY),
            ("{}", {}, Reason.CLAIM_IS_OBJECT),
        ):
            self.annotate({"project-id": wanted})
            self.row("claims", reason, self.claims(google={"compute_engine": {"project_id": value}}))
        for subject in (1, ["x"], {"a": 1}, True):
            self.row("subject", Reason.IDENTITY_CLAIM_INVALID, self.claims(sub=subject))

    def test_values_that_look_alike(self) -> None:
        """Values are compared exactly: no case, blank, pattern or part is overlooked (GCP-7)."""
        for wanted in ("SHOP", "shop ", " shop", "sho", "shop2", "shop/", "*", "sh?p", "\uff53hop", "shop\u200b"):
            self.annotate({"project-id": wanted})
            self.row("claims", Reason.CLAIM_MISMATCH)
        self.annotate({"project-id": " "})
        self.row("claims", Reason.ANNOTATION_EMPTY)

    def test_issuer(self) -> None:
        """The issuer is Google, exactly, and always required (GCP-5)."""
        for issuer in (
            *("accounts.google.com", f"{GOOGLE}/", "http://accounts.google.com", GOOGLE.upper(), f"{GOOGLE}.evil.example"),
            *("https://securetoken.google.com/shop", "", [GOOGLE], None, 1),
        ):
            self.row("issuer", Reason.ISSUER_WRONG, self.claims(iss=issuer))
        self.authenticator = self.made(ignore_missing_issuer=True)
        self.row("issuer", Reason.ISSUER_MISSING, self.claims(iss=...))

    def test_times(self) -> None:
        """``exp`` is required and counts to the second, ``iat`` and ``nbf`` may not lie ahead; all are numbers (AUTH-19)."""
        self.row("expiry", Reason.EXPIRY_MISSING, self.claims(exp=...))
        self.row("expiry", Reason.TOKEN_EXPIRED, self.claims(exp=NOW))
        for value in ("2000000000", True, None, [NOW + 60]):
            self.row("expiry", Reason.TIME_CLAIM_INVALID, self.claims(exp=value))
        self.row("not-before", Reason.TOKEN_NOT_YET_VALID, self.claims(nbf=NOW + 1))
        self.row("issued-at", Reason.TOKEN_NOT_YET_VALID, self.claims(iat=NOW + 1))
        self.authenticator = self.made(clock_skew=5.0)
        self.assert_admitted(self.claims(exp=NOW - 4, iat=NOW + 5))

    def test_signatures(self) -> None:
        """Only RS256, RS384 and RS512 by a key of Google's are good, whatever the header says (GCP-5)."""
        claims = {"aud": self.audience, **CLAIMS}
        for algorithm in ("RS256", "RS384", "RS512"):
            self.assert_admitted(token(claims, algorithm=algorithm))
        for algorithm in ("none", "HS256", "ES256", "PS256", "EdDSA", "rs256"):
            evidence = signed({"alg": algorithm, "kid": "k1"}, claims)
            self.row("token", Reason.TOKEN_UNSIGNED if algorithm == "none" else Reason.ALGORITHM_REFUSED, evidence)
        self.provider.published[GOOGLE] = jwks(jwk(), jwk_for("ES256", "e1"))
        self.row("token", Reason.ALGORITHM_REFUSED, token(claims, "e1", "ES256"))
        self.row("signature", Reason.SIGNATURE_WRONG, token(claims, "k2", kid="k1"))
        head, _, signature = token(claims).split(b".")
        body = base64url(json.dumps({**claims, "sub": "1"}).encode()).encode()
        self.row("signature", Reason.SIGNATURE_WRONG, b".".join((head, body, signature)))
        for header in ({"jku": "https://evil.example"}, {"jwk": jwk("k2")}, {"x5c": ["AAAA"]}):
            self.row("signature", Reason.SIGNATURE_WRONG, token(claims, "k2", kid="k1", **header))
        self.row("token", Reason.CRITICAL_HEADER, token(claims, crit=["exp"]))
        self.readings.tell(self.branch, distrusted=frozenset({"k1"}))
        self.row("signature", Reason.KEY_DISTRUSTED)

    def test_token_for_another_authenticator(self) -> None:
        """A login in the path means nothing: the token alone names the role (GCP-2)."""
        other = RoleName("acme", "host", "google-apps/other")
        self.annotate({"project-id": "shop"}, other)
        self.readings.permitted.add(other)
        self.assert_admitted(self.claims(), login=other.login)


class SameWorkTests(GoogleCase):
    """Note [Same work] of ``evaluation``."""

    def test_one_round_trip(self) -> None:
        """An admission and every sort of refusal cost one reading each, of a role that can't exist where none is proven
        (AUTH-11, FAIL-18).
        """
        self.assert_admitted(self.claims())
        nobody = f"{self.dialect.prefix}/acme/host/nobody"
        for evidence, role in (
            (self.claims(), str(HOST)),
            (self.claims(google=...), str(HOST)),
            (self.claims(aud=nobody), "acme:host:nobody"),
            (self.claims(exp=NOW), "acme:host:"),
            (self.claims(aud="x"), "acme:host:"),
            (token(CLAIMS, "k2", kid="k1"), "acme:host:"),
            (b"", "acme:host:"),
        ):
            self.readings.asked.clear()
            self.attempt(evidence)
            self.assertEqual(self.readings.asked, [f"applicant {role}"], evidence)

    def test_refusals_look_alike(self) -> None:
        """Unknown host, wrong claim and expired token have one status (FAIL-17); without keys everybody is put off
        (FAIL-19).
        """
        nobody = f"{self.dialect.prefix}/acme/host/nobody"
        tokens = (self.claims(exp=NOW), self.claims(sub=...), self.claims(google=...), self.claims(aud=nobody))
        for evidence in tokens:
            refused = self.attempt(evidence)
            assert isinstance(refused, Refused)
            self.assertEqual(refusal_status(refused), 401)
        self.provider.cached.clear()
        self.provider.refused = "no route"
        for evidence in (*tokens, self.claims()):
            self.refusal(Reason.KEYS_UNAVAILABLE, evidence, 503)


class ConjurAdmissionTests(AdmissionTests):
    """The same in the dialect of the installed base."""

    dialect = CONJUR


class ConjurOrderTests(OrderTests):
    """The same in the dialect of the installed base."""

    dialect = CONJUR


class ConjurPlaceTests(PlaceTests):
    """The same in the dialect of the installed base."""

    dialect = CONJUR


class ConjurAttackTests(AttackTests):
    """The same in the dialect of the installed base."""

    dialect = CONJUR


class ConjurSameWorkTests(SameWorkTests):
    """The same in the dialect of the installed base."""

    dialect = CONJUR
