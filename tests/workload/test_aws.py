"""Tests of ``svc.workload.aws``, and of logging in with signed requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.resource import Resource
from twisted.web.server import Request

from svc.workload.aws import MARGIN, AwsCredentials, AwsKeys, signed_headers
from svc.workload.client import Client
from svc.workload.evidence import AwsRole
from svc.workload.exchange import Exchange
from svc.workload.faults import BadAddress, NoIdentity, PlatformUnavailable
from svc.workload.platform_service import ANSWER_LIMIT, PlatformService
from tests.aws import ACCOUNT, KEYS, answer, signed, verified
from tests.walls import Wall
from tests.workload.wire import NOW, Service, Wire, clock

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": KEYS.key_id,
    "AWS_SECRET_ACCESS_KEY": KEYS.secret,
    "AWS_SESSION_TOKEN": f"{KEYS.session}",
}


class Platform(Resource):
    """What a workload asks on AWS: by path, answers with a status; a machine wants the token of a session."""

    isLeaf = True

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Request] = []
        credentials = {
            "Code": "Success",
            "AccessKeyId": KEYS.key_id,
            "SecretAccessKey": KEYS.secret,
            "Token": KEYS.session,
            "Expiration": "2023-11-14T23:13:20Z",
        }
        self.answers: dict[str, tuple[int, Any]] = {
            "/latest/api/token": (200, b"session-token=="),
            "/latest/meta-data/placement/region": (200, b"eu-west-1"),
            "/latest/meta-data/iam/security-credentials/": (200, b"web\n"),
            "/latest/meta-data/iam/security-credentials/web": (200, credentials),
            "/v2/credentials/1": (200, credentials),
            "/": (200, answer()),
        }

    def render(self, request: Request) -> bytes:
        """Answer."""
        self.asked.append(request)
        status, body = self.answers.get(request.path.decode(), (404, b""))
        if (
            request.path.startswith(b"/latest/meta-data")
            and request.getHeader("x-aws-ec2-metadata-token") != "session-token=="
        ):
            status = 401
        request.setResponseCode(status)
        return body if isinstance(body, bytes) else json.dumps(body).encode()


class AwsCase(SynchronousTestCase):
    """A workload on AWS."""

    def setUp(self) -> None:
        """Make the platform."""
        self.clock = clock()
        self.platform = Platform()

    def made(self, surroundings: dict[str, str] | None = None, **more: Any) -> AwsCredentials:
        """A source of signed requests."""
        http: Any = Wire(self.platform)
        service = PlatformService(Exchange(http, self.clock, ANSWER_LIMIT), chance=lambda: 0.0)
        return AwsCredentials(service, surroundings or {}, **{"wall": Wall(self.clock), **more})

    def headers(self, source: AwsCredentials, **more: str) -> dict[str, str]:
        """Signed headers that are there at once."""
        return self.successResultOf(Deferred.fromCoroutine(source.signed(more)))

    def refusal(self, source: AwsCredentials, kind: type[Exception] = NoIdentity) -> str:
        """What is said where there are none."""
        return str(self.failureResultOf(Deferred.fromCoroutine(source.signed({})), kind).value)


class SignatureTests(SynchronousTestCase):
    """How a request is signed."""

    def test_signature(self) -> None:
        """It is signed as AWS's documents say: a service that signs by itself finds the same (AWS-16)."""
        credentials = AwsKeys(KEYS.key_id, KEYS.secret, KEYS.session)
        more = {"x-svc-server-id": "svc.example.org/acme/1"}
        self.assertEqual(
            signed_headers(credentials, "eu-west-1", NOW, more), signed(NOW, x_svc_server_id="svc.example.org/acme/1")
        )
        plain = signed_headers(AwsKeys(KEYS.key_id, KEYS.secret), "us-east-1", NOW, {})
        self.assertTrue(verified(plain, KEYS))
        self.assertNotIn("x-amz-security-token", plain)
        self.assertNotIn(KEYS.secret, repr(credentials) + json.dumps(plain))


class CredentialsTests(AwsCase):
    """Where credentials come from."""

    def test_environment(self) -> None:
        """Those of the environment are used as they are, and nobody is asked (AWS-15)."""
        headers = self.headers(self.made({**ENVIRONMENT, "AWS_REGION": "eu-west-1"}))
        self.assertEqual(headers, signed(NOW))
        self.assertEqual(self.platform.asked, [])
        self.assertEqual(self.headers(self.made(ENVIRONMENT))["host"], "sts.us-east-1.amazonaws.com")
        self.assertEqual(self.headers(self.made(ENVIRONMENT, region="sa-east-1"))["host"], "sts.sa-east-1.amazonaws.com")

    def test_machine(self) -> None:
        """A machine asks with the token of a session, and learns its role, and its region unless that is told (AWS-15)."""
        self.assertEqual(self.headers(self.made()), signed(NOW))
        first, *others = self.platform.asked
        self.assertEqual((first.method, first.getHeader("x-aws-ec2-metadata-token-ttl-seconds")), (b"PUT", "21600"))
        self.assertEqual({request.method for request in others}, {b"GET"})
        self.assertEqual({request.getHeader("host") for request in self.platform.asked}, {"169.254.169.254"})
        count = len(self.platform.asked)
        self.headers(self.made({"AWS_DEFAULT_REGION": "eu-west-1"}))
        self.assertEqual(len(self.platform.asked), 2 * count - 1)

    def test_container(self) -> None:
        """A container asks where the environment says, with the authorization that it names (AWS-15)."""
        file = Path(self.mktemp())
        file.write_text("from-file\n")
        for surroundings, place, authorization in (
            ({"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/v2/credentials/1"}, "169.254.170.2", None),
            (
                {
                    "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://169.254.170.23/v2/credentials/1",
                    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(file),
                },
                "169.254.170.23",
                "from-file",
            ),
            (
                {
                    "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1:81/v2/credentials/1",
                    "AWS_CONTAINER_AUTHORIZATION_TOKEN": "told",
                },
                "127.0.0.1:81",
                "told",
            ),
        ):
            self.headers(self.made({**surroundings, "AWS_REGION": "eu-west-1"}))
            request = self.platform.asked[-1]
            self.assertEqual((request.getHeader("host"), request.getHeader("authorization")), (place, authorization))

    def test_far_away(self) -> None:
        """No address elsewhere is asked in plain, and a file that isn't there is named (AWS-15)."""
        name = "AWS_CONTAINER_CREDENTIALS_FULL_URI"
        for url in ("http://evil.example/", "http://169.254.169.254/x", "http://10.0.0.1/", "ftp://127.0.0.1/", "x"):
            self.refusal(self.made({name: url}), BadAddress)
        self.assertEqual(self.platform.asked, [])
        said = self.refusal(self.made({name: "http://127.0.0.1/x", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": "/no/file"}))
        self.assertIn("/no/file cannot be read", said)

    def test_kept(self) -> None:
        """Credentials are kept until five minutes before they expire; each request is signed afresh (AWS-15, AWS-16)."""
        source = self.made()
        first = self.headers(source)
        count = len(self.platform.asked)
        self.clock.advance(60)
        self.assertNotEqual(self.headers(source), first)
        self.assertEqual(len(self.platform.asked), count)
        self.clock.advance(3600 - MARGIN - 60)
        self.headers(source)
        self.assertGreater(len(self.platform.asked), count)

    def test_no_role(self) -> None:
        """What is final says what to do, and no secret is in it (AWS-15)."""
        for path, bad in (
            ("/latest/api/token", (403, b"")),
            ("/latest/api/token", (200, b"x\r\ny")),
            ("/latest/meta-data/placement/region", (200, b"evil.example/")),
            ("/latest/meta-data/iam/security-credentials/", (404, b"")),
            ("/latest/meta-data/iam/security-credentials/", (200, b"<html>")),
            ("/latest/meta-data/iam/security-credentials/web", (200, b"<html>")),
            ("/latest/meta-data/iam/security-credentials/web", (200, {"Code": "Failed"})),
            ("/latest/meta-data/iam/security-credentials/web", (200, {"AccessKeyId": 1, "SecretAccessKey": KEYS.secret})),
        ):
            before, self.platform.answers[path] = self.platform.answers[path], bad
            said = self.refusal(self.made())
            self.assertIn("has a role", said)
            self.assertNotIn(KEYS.secret, said)
            self.platform.answers[path] = before
        self.platform.answers["/latest/api/token"] = (500, b"")
        asked = Deferred.fromCoroutine(self.made().signed({}))
        self.clock.pump([1.0] * 20)
        self.failureResultOf(asked, PlatformUnavailable)

    def test_caller(self) -> None:
        """AWS is asked who this is, with what is signed (AWS-9)."""
        source = self.made({**ENVIRONMENT, "AWS_REGION": "eu-west-1"})
        caller = self.successResultOf(Deferred.fromCoroutine(source.caller()))
        self.assertEqual((caller.account, caller.assumed_role), (ACCOUNT, "web"))
        [request] = self.platform.asked
        self.assertEqual(request.uri, b"/?Action=GetCallerIdentity&Version=2011-06-15")
        sent = {name: f"{request.getHeader(name)}" for name in (*signed(NOW),)}
        self.assertTrue(verified(sent, KEYS))
        for bad in ((403, b""), (200, b"<html>"), (200, b"")):
            self.platform.answers["/"] = bad
            self.failureResultOf(Deferred.fromCoroutine(source.caller()), NoIdentity)


class EvidenceTests(AwsCase):
    """The login."""

    def test_login(self) -> None:
        """The signed header names server and account, and makes each request another (AWS-2, AWS-6, AWS-16)."""
        evidence = AwsRole("prod", f"host/aws/{ACCOUNT}/web", self.made(ENVIRONMENT), "svc.example.org")
        seen = set()
        for _ in range(2):
            login = self.successResultOf(Deferred.fromCoroutine(evidence.login("acme")))
            self.assertEqual(login.segments, ("authn-iam", "prod", "acme", f"host/aws/{ACCOUNT}/web", "authenticate"))
            headers = json.loads(login.body)
            self.assertRegex(headers["x-svc-server-id"], r"^svc\.example\.org/acme/[A-Za-z0-9_-]{16}$")
            self.assertTrue(verified(headers, KEYS))
            seen.add(login.body)
            self.assertNotIn(headers["authorization"], repr(login) + repr(evidence) + evidence.what)
        self.assertEqual(len(seen), 2)
        evidence = AwsRole("prod", "host/x", self.made(ENVIRONMENT), None)
        login = self.successResultOf(Deferred.fromCoroutine(evidence.login("acme")))
        self.assertNotIn("x-svc-server-id", json.loads(login.body))

    def test_tried_again(self) -> None:
        """A login that is tried again is signed again: the first may have admitted somebody (AWS-16)."""
        service = Service(self.clock, {})
        service.troubles = [(503, "0")]
        http: Any = Wire(service.site().resource())
        evidence = AwsRole("prod", "host/x", self.made(ENVIRONMENT), "svc.example.org")
        exchange = Exchange(http, self.clock, ANSWER_LIMIT)
        client = Client("https://svc.example.org", "acme", evidence, exchange, chance=lambda: 0.0)
        asked = Deferred.fromCoroutine(client.access_token())
        self.clock.advance(1)
        http.flush()
        self.successResultOf(asked)
        bodies = [body for _, body in service.logins]
        self.assertEqual(len(set(bodies)), len(bodies))
