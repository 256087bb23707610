"""The AWS authenticator, in both dialects: each test names its code in the installed base where it has one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred

from svc.authn.evaluation import FederatedAuthenticator
from svc.authn.iam import NAME, make_iam_kind
from svc.authn.used_signatures import UsedSignatures
from svc.model.authentication import Admitted, LoginRequest, Refused
from svc.model.aws import StsUnavailable
from svc.model.dialect import CONJUR
from svc.model.errors import StoreUnavailable
from svc.model.listed_authenticators import ListedAuthenticators
from svc.model.names import RoleName
from svc.model.reasons import Reason
from tests.authn.world import CREATION, NOW, Case, Webservice
from tests.aws import ACCOUNT, KEYS, Keys, Sts, body, date, signed
from tests.statuses import privilege_missing_status, refusal_status

HOST = RoleName("acme", "host", f"aws-apps/{ACCOUNT}/web")
SERVER = "svc.example.org"
NAMED = f"{SERVER}/acme"


class AwsCase(Case):
    """An authenticator ``prod``, and one host that a role of AWS may be; its server has a name in either dialect."""

    server_id: str | None = SERVER

    def setUp(self) -> None:
        """A world in which ``login()`` admits ``HOST``."""
        self.sts, self.most = Sts(), 3
        super().setUp()
        self.branch = f"{self.dialect.prefix}/{NAME}/prod"
        self.readings.webservices[self.branch] = Webservice()
        if self.server_id is not None:
            self.readings.set(self.branch, server_id=self.server_id)
        self.readings.annotations[HOST] = {}
        self.readings.permitted.add(HOST)

    def made(self, **options: Any) -> FederatedAuthenticator:
        """An authenticator on the same world."""
        defaults = {"clock_skew": 0.0, "token_limit": 16_384, "ignore_missing_issuer": False}
        enabled = ListedAuthenticators([f"{NAME}/prod", f"{NAME}/bare"])
        self.kind = make_iam_kind(self.sts, UsedSignatures(self.clock, self.most), ("xx-test-1",))
        common = self.readings, self.provider, self.vault, self.clock, self.dialect, enabled
        return FederatedAuthenticator(self.kind, *common, **{**defaults, **options})

    def trying(
        self,
        evidence: bytes,
        login: str | None = HOST.login,
        service: str | None = "prod",
        account: str = "acme",
        client_ip: str = "192.0.2.1",
        fault: tuple[Reason, str] | None = None,
    ) -> LoginRequest:
        """An attempt."""
        return LoginRequest(account, login, evidence, client_ip, service, fault)

    def headers(self, keys: Keys = KEYS, at: float = NOW, named: str | None = NAMED, **more: str) -> dict[str, str]:
        """Good headers, which name this server unless they are to name none."""
        return signed(at, keys, **({} if named is None else {"x_svc_server_id": named}), **more)

    def assert_admitted(self, evidence: bytes, role: RoleName = HOST, **options: Any) -> None:
        """The request admits the role."""
        self.assertEqual(self.attempt(evidence, **options), Admitted(role, "signing-key", CREATION))

    def row(self, check: str, reason: Reason, evidence: bytes | None = None, status: int = 401, **options: Any) -> str:
        """The request, a good one unless another is given, is refused by this check for this reason, in these words.

        Decisions and explanations agree, and no part of what was signed is told.
        """
        evidence = body(self.headers()) if evidence is None else evidence
        decision = self.attempt(evidence, **options)
        assert isinstance(decision, Refused), "it was admitted"
        self.assertEqual((decision.reason, refusal_status(decision)), (reason, status), decision.detail)
        failed = self.failed(evidence, **options)
        assert failed is not None
        self.assertEqual((failed.check, failed.reason, failed.detail), (check, reason, decision.detail))
        for secret in (KEYS.session or "", KEYS.secret, "Signature="):
            self.assertNotIn(secret, decision.detail)
        self.assertTrue(decision.detail.isprintable())
        return decision.detail


class AdmissionTests(AwsCase):
    """Who is admitted."""

    def test_admitted(self) -> None:
        """A role that AWS names is admitted as the host that ends in its account and name (AWS-8, AWS-9)."""
        self.assert_admitted(body(self.headers()))
        (asked,) = self.sts.asked
        self.assertEqual((asked.host, asked.key_id), ("sts.eu-west-1.amazonaws.com", KEYS.key_id))

    def test_spellings(self) -> None:
        """Names of headers have any case; what isn't signed is neither looked at nor sent (AWS-4)."""
        headers = {name.title(): value for name, value in self.headers().items()}
        self.assert_admitted(body({**headers, "X-Other": "y", "Accept": "application/json", "number": 1, "none": None}))
        (asked,) = self.sts.asked
        names = {"authorization", "x-amz-date", "x-amz-security-token", "x-svc-server-id"}
        self.assertEqual(set(asked.headers), names)

    def test_hosts(self) -> None:
        """The global host and those of regions are asked, also of a region that an operator lists (AWS-5)."""
        regions = ("us-gov-west-1", "ap-southeast-7", "xx-test-1")
        for number, host in enumerate(("sts.amazonaws.com", *(f"sts.{region}.amazonaws.com" for region in regions))):
            self.authenticator = self.made()
            self.assert_admitted(body(self.headers(host=host, named=f"{NAMED}/{number}")))

    def test_optional_headers(self) -> None:
        """Headers that the variable lists may be signed, too (AWS-1, AWS-4)."""
        evidence = body(self.headers(x_other="y", x_amz_content_sha256="0" * 64))
        self.row("request", Reason.SIGNED_REQUEST_MALFORMED, evidence)
        self.readings.set(self.branch, optional_signed_headers=" X-Other ; X-More;")
        self.assert_admitted(evidence)

    def test_long_term_keys(self) -> None:
        """Whether keys have a session token is AWS's affair; the ARN says who they are."""
        keys = attrs.evolve(KEYS, session=None)
        self.sts.keys = [keys]
        self.assert_admitted(body(self.headers(keys)))

    def test_other_logins(self) -> None:
        """A host may stand at the root, below any policy, and be a user below one (AWS-8)."""
        for login in (f"host/{ACCOUNT}/web", f"host/a/b/c/{ACCOUNT}/web", f"people/{ACCOUNT}/web"):
            role = RoleName.from_login("acme", login)
            self.readings.annotations[role] = {}
            self.readings.permitted.add(role)
            self.authenticator = self.made()
            self.assert_admitted(body(self.headers()), role, login=login)

    def test_session_and_partition(self) -> None:
        """The session's name means nothing, and the partition of GovCloud is one like the usual one (AWS-9)."""
        for arn in (
            f"arn:aws:sts::{ACCOUNT}:assumed-role/web/admin",
            f"arn:aws:sts::{ACCOUNT}:assumed-role/web/a@b.example,x=y+z_w-v",
            f"arn:aws-us-gov:sts::{ACCOUNT}:assumed-role/web/i-1",
        ):
            self.authenticator = self.made()
            self.sts.keys = [attrs.evolve(KEYS, arn=arn)]
            self.assert_admitted(body(self.headers()))

    def test_restricted(self) -> None:
        """A host that is restricted to networks logs in from there, and from nowhere else."""
        self.readings.restrictions[HOST] = ("198.51.100.0/24",)
        self.row("origin", Reason.ORIGIN_REFUSED)
        self.assert_admitted(body(self.headers()), client_ip="198.51.100.9")

    def test_explained(self) -> None:
        """Of a login that would be admitted every check has passed, it's said what was compared, and nothing is used up."""
        evidence = body(self.headers())
        explanation = self.explained(evidence)
        self.assertEqual((explanation.admitted, explanation.role), (True, str(HOST)))
        told = {step.check: step.detail for step in explanation.steps}
        self.assertNotIn("", told.values())
        self.assertEqual(told["request"], "it is a signed GetCallerIdentity for sts.eu-west-1.amazonaws.com")
        self.assertEqual(told["signature"], f"AWS says that it is by '{KEYS.arn}'")
        self.assert_admitted(evidence)

    def test_status(self) -> None:
        """The status asks AWS, and says what is wrong there or with the variables (AWS-14)."""
        status = self.status(service="prod")
        self.assertEqual((status.problems, status.source, status.algorithms), ((), None, ("AWS4-HMAC-SHA256",)))
        self.sts.away = StsUnavailable("no route")
        (problem,) = self.status(service="prod").problems
        self.assertEqual(problem.what, "The Security Token Service can't be asked: no route.")
        self.assertEqual(problem.remedy, "Mend what lies between this server and AWS.")
        self.readings.set(self.branch, server_id=None)
        (problem,) = self.status(service="prod").problems
        self.assertEqual(problem.what, "The variable server-id is declared and has no value.")


class OrderTests(AwsCase):
    """In which order failures count."""

    def test_checks_have_names(self) -> None:
        """Every check has a name of its own, of a fixed list, in the order of AWS-3 (AWS-3)."""
        self.assertEqual(
            " ".join(check.name for check in self.kind.checks),
            "enabled account webservice configuration request key age server identity first-use signature caller role "
            "privilege origin",
        )

    def test_one_after_the_other(self) -> None:
        """Of everything that is wrong at once, what comes first is told; each time that it is mended, the next (AWS-3)."""
        self.readings.restrictions[HOST] = ("198.51.100.0/24",)
        self.readings.permitted.clear()
        self.readings.tell(self.branch, distrusted=frozenset({KEYS.key_id}))
        self.readings.set(self.branch, server_id=" ")
        self.sts.away = StsUnavailable("no route")
        self.sts.keys = [attrs.evolve(KEYS, arn=f"arn:aws:iam::{ACCOUNT}:user/web")]
        old, now = self.headers(at=NOW - 900, named="x"), self.headers(named="x")
        self.row("enabled", Reason.AUTHENTICATOR_NOT_ENABLED, b"", account="other", service="off")
        self.row("account", Reason.ACCOUNT_UNKNOWN, b"", account="other")
        self.readings.webservice_missing = True
        self.row("webservice", Reason.WEBSERVICE_UNKNOWN, b"")
        self.readings.webservice_missing = False
        self.row("configuration", Reason.CONFIGURATION_INVALID, b"")
        self.readings.set(self.branch, server_id=SERVER)
        self.row("request", Reason.SIGNED_REQUEST_MALFORMED, b"")
        self.row("key", Reason.KEY_DISTRUSTED, body(old), login=None)
        self.readings.tell(self.branch, distrusted=frozenset())
        self.row("age", Reason.SIGNATURE_AGE_REFUSED, body(old), login=None)
        self.row("server", Reason.SERVER_NOT_NAMED, body(now), login=None)
        good = body(self.headers())
        self.row("identity", Reason.IDENTITY_AMBIGUOUS, good, login=None)
        self.row("signature", Reason.STS_UNAVAILABLE, good, 503, login=f"host/no/{ACCOUNT}/web")
        self.sts.away = None
        self.row("caller", Reason.IDENTITY_KIND_MISMATCH, good, login=f"host/no/{ACCOUNT}/web")
        self.sts.keys = [KEYS]
        self.row("role", Reason.ROLE_UNKNOWN, good, login=f"host/no/{ACCOUNT}/web")
        self.row("privilege", Reason.PRIVILEGE_MISSING, good, privilege_missing_status(self.dialect))
        self.readings.permitted.add(HOST)
        self.row("origin", Reason.ORIGIN_REFUSED, good)
        del self.readings.restrictions[HOST]
        self.assert_admitted(good)
        self.row("first-use", Reason.SIGNATURE_REUSED, good)


class SettingsTests(AwsCase):
    """The variables ``server-id`` and ``optional-signed-headers``."""

    def test_server_id(self) -> None:
        """``native`` needs the name of this server; ``conjur``, whose clients sign none, does without (AWS-1)."""
        self.readings.webservices[f"{self.dialect.prefix}/{NAME}/bare"] = Webservice()
        evidence = body(self.headers(named=None))
        if self.dialect.signed_server:
            self.assertIn("server", self.row("configuration", Reason.CONFIGURATION_INVALID, evidence, service="bare"))
        else:
            self.assert_admitted(evidence, service="bare")
        self.row("server", Reason.SERVER_NOT_NAMED, evidence)

    def test_faults(self) -> None:
        """A variable that is declared must have a value that can be used (AWS-1)."""
        for name, value in (
            *(("server_id", value) for value in (None, " ", f"{SERVER} ", "a b", "\u00e4.example", "x" * 256)),
            *(("optional_signed_headers", value) for value in (None, " ", "x y", "x:y", "\u00e4", "x_y", "Host2;a,b")),
            *(
                ("optional_signed_headers", value)
                for value in ("accept", "Transfer-Encoding", "x;CONNECTION", "authorization")
            ),
        ):
            self.readings.set(self.branch, server_id=SERVER, optional_signed_headers="x-other")
            self.readings.set(self.branch, **{name: value})
            self.assertIn(name.replace("_", "-"), self.row("configuration", Reason.CONFIGURATION_INVALID))
        self.readings.set(self.branch, server_id=SERVER, optional_signed_headers="x-other")
        self.assert_admitted(body(self.headers()))

    def test_distrusted(self) -> None:
        """An access key that an operator distrusts admits nobody, and AWS isn't asked about it (AWS-11)."""
        self.readings.tell(self.branch, distrusted=frozenset({KEYS.key_id}))
        self.row("key", Reason.KEY_DISTRUSTED)
        self.assertEqual(self.sts.asked, [])


class AttackTests(AwsCase):
    """Requests that strangers send, and those of other roles, services and times."""

    def malformed(self, evidence: bytes) -> None:
        """The evidence is no signed request, and AWS isn't asked."""
        self.row("request", Reason.SIGNED_REQUEST_MALFORMED, evidence)
        self.assertEqual(self.sts.asked, [])

    def test_no_json(self) -> None:
        """CONJ00018E: the body is one strict JSON object (AWS-4)."""
        for evidence in (
            *(b"", b" ", b"x", b"[]", b"null", b'"x"', b"1", b"{}", b"{", b'{"host": "x"', b"\xff", b"jwt=x"),
            *(b'{"host": NaN}', b'{"a": 1, "a": 2}', body(self.headers()) + b"x", body(self.headers()) * 2),
            *(b"[" + body(self.headers()) + b"]", b'{"a":' * 100 + b"1" + b"}" * 100),
        ):
            self.malformed(evidence)

    def test_too_large(self) -> None:
        """A body beyond the limit of tokens is told so (AWS-4)."""
        self.row("request", Reason.TOKEN_TOO_LARGE, body({**self.headers(), "x": "y" * 20_000}), 413)

    def test_missing_headers(self) -> None:
        """CONJ00018E: each signed header, and those that are needed, must be there and be signed (AWS-4)."""
        for name in self.headers():
            headers = self.headers()
            del headers[name]
            self.malformed(body(headers))
            for value in (None, 1, True, [self.headers()[name]], {"a": "b"}, "", " ", f" {self.headers()[name]}"):
                self.malformed(body({**headers, name: value}))
        for name in ("host", "x-amz-date"):
            headers = self.headers()
            headers["authorization"] = headers["authorization"].replace(f"{name};", "")
            self.malformed(body(headers))

    def test_twice(self) -> None:
        """A header that is there in two spellings has no reading, and neither has one that is signed twice (AWS-4)."""
        for name, value in self.headers().items():
            self.malformed(body({**self.headers(), name.upper(): value}))
        headers = self.headers()
        headers["authorization"] = headers["authorization"].replace("host;", "host;host;")
        self.malformed(body(headers))

    def test_injection(self) -> None:
        """No value can end a line of the request that is sent, or hold what isn't printed (AWS-4)."""
        for bad in ("x\r\nHost: evil.example", "x\ny", "x\x00", "x\x7f", "\u00e9", "x\ty", "x\u2028y"):
            for name in self.headers():
                self.malformed(body({**self.headers(), name: bad}))
                self.malformed(body({**self.headers(), name: self.headers()[name] + bad}))

    def test_unexpected_headers(self) -> None:
        """CONJ00018E: no other header may be signed, above all none that changes what is asked (AWS-4)."""
        for name in ("accept", "x_forwarded_host", "content_type", "x_amz_target", "range", "cookie", "x_other"):
            more: dict[str, Any] = {name: "y"}
            self.malformed(body(self.headers(**more)))

    def test_hosts(self) -> None:
        """CONJ00018E: no other host is asked, however it resembles one of AWS's (AWS-5)."""
        for host in (
            *("evil.example", "sts.amazonaws.com.evil.example", "evil-sts.amazonaws.com", "xsts.amazonaws.com", "localhost"),
            *("sts.evil.amazonaws.com", "sts.eu-west-1.evil.amazonaws.com", "s3.amazonaws.com", "bucket.s3.amazonaws.com"),
            *("sts.xx-west-1.amazonaws.com", "sts.eu-west-99.amazonaws.com", "sts.cn-north-1.amazonaws.com.cn"),
            *(
                "STS.amazonaws.com",
                "sts.EU-WEST-1.amazonaws.com",
                "sts.amazonaws.com.",
                "sts.amazonaws.com:443",
                ".amazonaws.com",
            ),
            *(
                "sts.amazonaws.com@evil.example",
                "evil.example/sts.amazonaws.com",
                "sts.amazonaws.com#",
                "127.0.0.1",
                "[::1]",
            ),
            *(
                "sts.us-iso-east-1.c2s.ic.gov",
                "sts..amazonaws.com",
                "sts.eu-west-1..amazonaws.com",
                "sts.eu-west-1/.amazonaws.com",
            ),
        ):
            self.malformed(body(self.headers(host=host)))

    def test_authorization(self) -> None:
        """CONJ00018E: the signature is of version 4 with a digest, for STS, and written in one way (AWS-4)."""
        good = self.headers()["authorization"]
        for bad in (
            *("", "x", good.replace("AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256"), good.replace("AWS4", "AWS3")),
            *(good.replace("/sts/", "/s3/"), good.replace("aws4_request", "aws4_x"), good.replace("eu-west-1", "eu west")),
            *(good.replace("Credential=", "credential="), good.replace("SignedHeaders=", "Signedheaders="), good + ", x=y"),
            *(good[:-1], good + "0", good[:-64] + good[-64:].upper().replace("0", "A"), good[:-1] + "g", f"x {good}"),
            *(good.replace(KEYS.key_id, "short"), good.replace(KEYS.key_id, f"{KEYS.key_id}/x"), good.replace(", ", "; ")),
            *(good.replace("host;", "Host;"), good.replace("host;", ""), good.replace("host;", "host;;"), f"{good}, {good}"),
        ):
            self.malformed(body({**self.headers(), "authorization": bad}))

    def test_dates(self) -> None:
        """A date has one form, and is one (AWS-4)."""
        nonsense = ("20231314T221320Z", "20230230T000000Z", "20231114T221360Z")
        for bad in ("20231114T221320", "2023-11-14T22:13:20Z", "1700000000", *nonsense):
            self.malformed(body({**self.headers(), "x-amz-date": bad}))

    def test_age(self) -> None:
        """A request is good for 15 minutes to the second, and not ahead of its time; AWS isn't asked beyond (AWS-7)."""
        for at in (NOW - 900, NOW - 901, NOW - 10 * 86_400, NOW + 1, NOW + 300, NOW + 86_400):
            self.row("age", Reason.SIGNATURE_AGE_REFUSED, body(self.headers(at=at)))
        self.assertEqual(self.sts.asked, [])
        self.assert_admitted(body(self.headers(at=NOW - 899)))
        self.authenticator = self.made(clock_skew=5.0)
        for at in (NOW - 904, NOW + 5):
            self.assert_admitted(body(self.headers(at=at)))
        for at in (NOW - 905, NOW + 6):
            self.row("age", Reason.SIGNATURE_AGE_REFUSED, body(self.headers(at=at)))

    def test_another_server(self) -> None:
        """A request that was signed for another service or account is worth nothing here, and AWS isn't asked (AWS-6)."""
        for named in (
            *(None, SERVER, f"{SERVER}/", f"{SERVER}/other", f"{SERVER}/acme2", f"{SERVER}/acm", f"evil.example/{NAMED}"),
            *(f"{NAMED}/", f"{NAMED}/a/b", f"{NAMED}/a b", f"{NAMED}.x", f"{NAMED}x", f"{NAMED}/{'x' * 65}", NAMED.upper()),
            *(f"{NAMED}, {NAMED}", f"x/acme, {NAMED}", "acme", f"https://{NAMED}", f"{SERVER}.evil.example/acme"),
        ):
            self.row("server", Reason.SERVER_NOT_NAMED, body(self.headers(named=named)))
        unsigned = {**self.headers(named=None), "x-svc-server-id": NAMED}
        self.row("server", Reason.SERVER_NOT_NAMED, body(unsigned))
        self.assertEqual(self.sts.asked, [])
        for nonce in ("/a", f"/{'x' * 64}", "/A-z_9"):
            self.authenticator = self.made()
            self.assert_admitted(body(self.headers(named=NAMED + nonce)))

    def test_altered(self) -> None:
        """CONJ00018E: what was altered after it was signed is refused by AWS (AWS-13)."""
        for name, value in (
            ("x-amz-date", date(NOW - 1)),
            ("x-amz-security-token", "another"),
            ("x-svc-server-id", f"{NAMED}/other"),
            ("host", "sts.us-east-1.amazonaws.com"),
        ):
            self.row("signature", Reason.STS_REFUSED, body({**self.headers(), name: value}))
        other = Keys(secret="x" * 40)
        detail = self.row("signature", Reason.STS_REFUSED, body(self.headers(other)))
        self.assertEqual(detail, "AWS doesn't take the signature: SignatureDoesNotMatch")

    def test_other_callers(self) -> None:
        """Only the very role of the very account is admitted: no user, no federated user, no other role (AWS-9)."""
        for arn, account, reason in (
            (f"arn:aws:iam::{ACCOUNT}:user/web", ACCOUNT, Reason.IDENTITY_KIND_MISMATCH),
            (f"arn:aws:iam::{ACCOUNT}:role/web", ACCOUNT, Reason.IDENTITY_KIND_MISMATCH),
            (f"arn:aws:sts::{ACCOUNT}:federated-user/web", ACCOUNT, Reason.IDENTITY_KIND_MISMATCH),
            (f"arn:aws:iam::{ACCOUNT}:root", ACCOUNT, Reason.IDENTITY_KIND_MISMATCH),
            (f"arn:aws:iam::{ACCOUNT}:assumed-role/web/x", ACCOUNT, Reason.IDENTITY_KIND_MISMATCH),
            (f"arn:aws:sts::{ACCOUNT}:assumed-role/web", ACCOUNT, Reason.IDENTITY_KIND_MISMATCH),
            (f"arn:aws:sts::{ACCOUNT}:assumed-role/path/web/x", ACCOUNT, Reason.IDENTITY_KIND_MISMATCH),
            (f"arn:aws-cn:sts::{ACCOUNT}:assumed-role/web/xx", ACCOUNT, Reason.IDENTITY_KIND_MISMATCH),
            (f"arn:aws:sts::{ACCOUNT}:assumed-role/web/xx", "210987654321", Reason.IDENTITY_KIND_MISMATCH),
            ("arn:aws:sts::210987654321:assumed-role/web/xx", "210987654321", Reason.CLAIM_MISMATCH),
            (f"arn:aws:sts::{ACCOUNT}:assumed-role/other/web", ACCOUNT, Reason.CLAIM_MISMATCH),
            (f"arn:aws:sts::{ACCOUNT}:assumed-role/web2/xx", ACCOUNT, Reason.CLAIM_MISMATCH),
            (f"arn:aws:sts::{ACCOUNT}:assumed-role/Web/xx", ACCOUNT, Reason.CLAIM_CASE_MISMATCH),
        ):
            self.sts.keys = [attrs.evolve(KEYS, arn=arn, account=account)]
            self.row("caller", reason)

    def test_logins(self) -> None:
        """A login that doesn't end in an account and a role is refused before AWS is asked (AWS-8)."""
        for login in (
            *(
                "",
                "alice",
                "host/web",
                "host/aws-apps/web",
                f"{ACCOUNT}/web",
                f"host/{ACCOUNT}",
                f"host/{ACCOUNT}/",
                f"host//{ACCOUNT}",
            ),
            *(f"host/{ACCOUNT}/web/", f"host/{ACCOUNT}/we b", f"host/{ACCOUNT}/web\n", f"host/{ACCOUNT}/{'x' * 65}"),
            *(f"host/{ACCOUNT[:-1]}/web", f"host/{ACCOUNT}0/web", "host/12345678901\u0662/web", f"host/\n/{ACCOUNT}/web"),
        ):
            self.row("identity", Reason.AWS_LOGIN_INVALID, login=login)
        self.row("identity", Reason.IDENTITY_AMBIGUOUS, login=None)
        self.assertEqual(self.sts.asked, [])

    def test_away(self) -> None:
        """While AWS can't be asked, everybody is put off, whatever host is named (AWS-13, FAIL-19)."""
        for answered, reason in ((False, Reason.STS_UNAVAILABLE), (True, Reason.STS_ANSWER_MALFORMED)):
            self.sts.away = StsUnavailable("no route", answered)
            for login in (HOST.login, f"host/no/{ACCOUNT}/web"):
                refused = self.refusal_of(body(self.headers()), login)
                role = f"acme:{login.replace('/', ':', 1)}"
                self.assertEqual((refused.reason, refusal_status(refused), refused.role), (reason, 503, role))
                self.assertIsNotNone(refused.retry_after)
        self.sts.away = None
        self.assert_admitted(body(self.headers()))

    def refusal_of(self, evidence: bytes, login: str) -> Refused:
        """The refusal of a login."""
        refused = self.attempt(evidence, login=login)
        assert isinstance(refused, Refused)
        return refused

    def test_same_work(self) -> None:
        """AWS is asked, and the store once, about a role that exists and one that doesn't, permitted or not (FAIL-18)."""
        self.assert_admitted(body(self.headers()))
        self.readings.permitted.clear()
        for number, login in enumerate((HOST.login, f"host/no/{ACCOUNT}/web")):
            self.readings.asked.clear()
            self.sts.asked.clear()
            self.refusal_of(body(self.headers(named=f"{NAMED}/{number}")), login)
            self.assertEqual((len(self.sts.asked), len(self.readings.asked)), (1, 1))


class ReplayTests(AwsCase):
    """A request that somebody else has got hold of."""

    def test_once(self) -> None:
        """A signature admits once, from any address, for any host, in any spelling; AWS isn't asked again (AWS-10)."""
        headers = self.headers()
        self.assert_admitted(body(headers))
        self.sts.asked.clear()
        loud = {name.upper(): value for name, value in headers.items()}
        for evidence in (body(headers), body(loud), json.dumps(headers, indent=1).encode()):
            for address in ("192.0.2.1", "192.0.2.2"):
                self.row("first-use", Reason.SIGNATURE_REUSED, evidence, client_ip=address)
        self.assertEqual(self.sts.asked, [])
        self.assert_admitted(body(self.headers(named=f"{NAMED}/other")))

    def test_refused_uses_nothing(self) -> None:
        """A login that is refused or put off doesn't use its signature up (AWS-10)."""
        evidence = body(self.headers())
        self.sts.away = StsUnavailable("no route")
        self.row("signature", Reason.STS_UNAVAILABLE, evidence, 503)
        self.sts.away = None
        self.row("role", Reason.ROLE_UNKNOWN, evidence, login=f"host/no/{ACCOUNT}/web")
        self.assert_admitted(evidence)

    def test_remembered_for_its_life(self) -> None:
        """A signature is remembered for as long as it could be used (AWS-10)."""
        evidence = body(self.headers())
        self.assert_admitted(evidence)
        self.clock.advance(899)
        self.row("first-use", Reason.SIGNATURE_REUSED, evidence)
        self.clock.advance(1)
        self.row("age", Reason.SIGNATURE_AGE_REFUSED, evidence)

    def test_no_room(self) -> None:
        """While so many are remembered as there is room for, logins are put off, until the oldest are forgotten (AWS-10)."""
        for number in range(self.most):
            self.assert_admitted(body(self.headers(named=f"{NAMED}/{number}")))
        request = self.trying(body(self.headers(named=f"{NAMED}/more")))
        self.failureResultOf(Deferred.fromCoroutine(self.authenticator.authenticate(request)), StoreUnavailable)
        self.clock.advance(900)
        self.assert_admitted(body(self.headers(at=NOW + 900, named=f"{NAMED}/more")))

    def test_two_at_once(self) -> None:
        """Of two requests with one signature that come together, one is admitted (AWS-10)."""
        self.assert_admitted(body(self.headers(named=f"{NAMED}/first")))
        waiting: list[Deferred[None]] = []
        reach = self.sts.check_reachable

        async def wait() -> None:
            waiting.append(Deferred())
            await waiting[-1]

        self.sts.check_reachable = wait  # type: ignore[method-assign] # it takes its time
        request = self.trying(body(self.headers()))
        both = [Deferred.fromCoroutine(self.authenticator.authenticate(request)) for _ in range(2)]
        for each in waiting:
            each.callback(None)
        self.sts.check_reachable = reach  # type: ignore[method-assign] # as it was
        first, second = (self.successResultOf(each) for each in both)
        assert isinstance(first, Admitted)
        assert isinstance(second, Refused)
        self.assertEqual(second.reason, Reason.SIGNATURE_REUSED)


class AnythingTests(AwsCase):
    """What is no signed request."""

    @given(st.binary(max_size=200) | st.dictionaries(st.text(max_size=20), st.text(max_size=50), max_size=6).map(body))
    def test_anything(self, evidence: bytes) -> None:
        """Whatever a stranger sends, it is refused, and AWS isn't asked (AWS-4)."""
        decision = self.attempt(evidence)
        assert isinstance(decision, Refused)
        self.assertEqual((refusal_status(decision), self.sts.asked), (401, []))


class ConjurAdmissionTests(AdmissionTests):
    """The same in the dialect of the installed base."""

    dialect = CONJUR


class ConjurOrderTests(OrderTests):
    """The same in the dialect of the installed base."""

    dialect = CONJUR


class ConjurSettingsTests(SettingsTests):
    """The same in the dialect of the installed base."""

    dialect = CONJUR


class ConjurAttackTests(AttackTests):
    """The same in the dialect of the installed base."""

    dialect = CONJUR


class ConjurReplayTests(ReplayTests):
    """The same in the dialect of the installed base."""

    dialect = CONJUR


class PlainClientTests(AwsCase):
    """Clients of the installed base, which sign for AWS alone."""

    dialect = CONJUR
    server_id = None

    def test_go(self) -> None:
        """The headers of a published client, as its signer set them, are enough (AWS-4)."""
        headers: Mapping[str, str] = {name.title(): value for name, value in self.headers(named=None).items()}
        self.assert_admitted(body(headers))

    def test_equal_requests(self) -> None:
        """Two clients of one machine that start within one second sign the same: both are admitted, from that address, for
        some seconds (AWS-10).
        """
        evidence = body(self.headers(named=None))
        for _ in range(2):
            self.assert_admitted(evidence)
        self.row("first-use", Reason.SIGNATURE_REUSED, evidence, client_ip="192.0.2.2")
        self.clock.advance(5)
        self.row("first-use", Reason.SIGNATURE_REUSED, evidence)
