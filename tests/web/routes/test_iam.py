"""The routes of the AWS authenticator: logging in, and what operators ask."""

from __future__ import annotations

from svc.authn.iam import NAME
from svc.model.aws import StsUnavailable
from svc.model.dialect import CONJUR
from svc.services.authenticators import FederatedService
from svc.web.routes.authenticators import FederatedAuthenticators
from tests.aws import ACCOUNT, body, signed
from tests.memory import MemoryAuthenticators, MemoryRoles
from tests.statuses import privilege_missing_status
from tests.web.support import NOW, Answer, Client
from tests.web.world import ADMIN, LISTED, WorldCase, user

POLICY = """
- !policy
  id: {prefix}/authn-iam/prod
  body:
    - !webservice
    - !webservice status
    - !variable server-id
    - !group apps
    - !permit {{ role: !group apps, privileges: [ read, authenticate ], resource: !webservice }}
    - !permit {{ role: !user /olivia, privilege: read, resource: !webservice status }}
- !host aws/{account}/web
- !host strangers/{account}/web
- !grant {{ role: !group {prefix}/authn-iam/prod/apps, member: !host aws/{account}/web }}
"""

PATH = "/authn-iam/prod/acme"
LOGIN = f"host%2Faws%2F{ACCOUNT}%2Fweb"
OLIVIA = user("olivia")


class IamRoutesTests(WorldCase):
    """The routes of signed requests."""

    def setUp(self) -> None:
        """Load a policy, with Olivia as operator."""
        super().setUp()
        self.load("- !user olivia\n")
        self.load(POLICY.format(prefix=self.dialect.prefix, account=ACCOUNT))
        self.set_value(f"{self.dialect.prefix}/authn-iam/prod/server-id", b"svc.example.org")
        service = FederatedService(
            name=NAME,
            explainer=self.federated_authenticators[NAME],
            store=MemoryAuthenticators(self.memory),
            roles=MemoryRoles(self.memory),
            listed=LISTED,
            dialect=self.dialect,
            token_limit=16_384,
            clock=self.clock,
            wall=self.clock,
        )
        self.operators = Client(FederatedAuthenticators(service), journal=self.journal, dialect=self.dialect)

    def signed(self, nonce: str = "1") -> bytes:
        """A good request."""
        return body(signed(NOW, x_svc_server_id=f"svc.example.org/acme/{nonce}"))

    def login(self, evidence: bytes, login: str = LOGIN, **more: object) -> Answer:
        """Log in."""
        return self.client.post(f"{PATH}/{login}/authenticate", evidence, **more)

    def test_login(self) -> None:
        """A signed request becomes an access token, whatever its content type; the audit says so, without it (AWS-2,
        AUD-3).
        """
        for number, content_type in enumerate(("application/json", "text/plain", "application/x-www-form-urlencoded")):
            answer = self.login(self.signed(str(number)), headers=[("Content-Type", content_type)])
            self.assertEqual((answer.status, list(answer.json())), (200, ["protected", "payload", "signature"]))
        self.assertEqual(self.login(self.signed("raw"), f"host/aws/{ACCOUNT}/web").status, 200)
        _, event, _ = self.journal.taken[-1]
        self.assertEqual((event.authenticator, event.service), (NAME, f"{NAME}/prod"))
        self.assertIn(("role", f"acme:host:aws/{ACCOUNT}/web"), event.subject)
        self.assertNotIn("Signature", str(self.journal.taken))

    def test_refused(self) -> None:
        """A refusal is empty: 401, 413 for a body that is too long, 503 while AWS is away, and for a missing privilege as
        the dialect has it (AWS-4, AWS-13, AUTH-12).
        """
        strangers = f"host%2Fstrangers%2F{ACCOUNT}%2Fweb"
        for evidence, login, status in (
            (b"", LOGIN, 401),
            (b"x", LOGIN, 401),
            (b"jwt=x", LOGIN, 401),
            (b"{" + b" " * 20_000 + b"}", LOGIN, 413),
            (self.signed(), f"host%2Fno%2F{ACCOUNT}%2Fweb", 401),
            (self.signed(), "host%2Fweb", 401),
            (self.signed(), strangers, privilege_missing_status(self.dialect)),
        ):
            answer = self.login(evidence, login)
            self.assertEqual((answer.status, answer.body), (status, b""))
        self.assertEqual(self.client.post(f"{PATH}/authenticate", self.signed()).status, 401)
        self.sts.away = StsUnavailable("no route")
        answer = self.login(self.signed())
        self.assertEqual((answer.status, answer.body, "retry-after" in answer.headers), (503, b"", True))
        self.sts.away = None
        self.assertEqual(self.login(self.signed()).status, 200)
        self.assertEqual(self.login(self.signed()).status, 401)

    def test_throttled(self) -> None:
        """Failures are slowed down: after ten of a role in a minute, another is answered late, and a good one at once
        (AWS-14, TOK-21).
        """
        for _ in range(10):
            self.assertEqual(self.login(b"x").status, 401)
        late = self.client.begin("POST", f"{PATH}/{LOGIN}/authenticate", body=b"x")
        self.assertEqual(late.answers(), [])
        self.assertEqual(self.login(self.signed()).status, 200)
        self.clock.advance(1)
        self.assertEqual(late.answer().status, 401)

    def test_operators(self) -> None:
        """Operators get its status, and have a request explained from the form field ``jwt`` (AWS-2, AWS-14)."""
        answer = self.operators.get(f"{PATH}/status", role=OLIVIA)
        self.assertEqual((answer.status, answer.json()["algorithms"]), (200, ["AWS4-HMAC-SHA256"]))
        self.sts.away = StsUnavailable("no route")
        answer = self.operators.get(f"{PATH}/status", role=OLIVIA)
        self.assertEqual((answer.status, len(answer.json()["problems"])), (500, 1))
        self.sts.away = None
        form = b"jwt=" + self.signed().replace(b"+", b"%2B").replace(b"=", b"%3D")
        explained = self.operators.post(f"{PATH}/{LOGIN}/explain", form, role=OLIVIA).json()
        self.assertEqual((explained["admitted"], explained["role"]), (True, f"acme:host:aws/{ACCOUNT}/web"))
        self.assertEqual(self.operators.get(f"{PATH}/status", role=user("olivia2")).status, 403)

    def test_distrusted(self) -> None:
        """An access key is distrusted by its id (AWS-11)."""
        path = f"{PATH}/distrusted-keys/ASIAIOSFODNN7EXAMPLE"
        self.assertEqual(self.operators.request("PUT", path, role=ADMIN).status, 204)
        self.assertEqual(self.login(self.signed()).status, 401)
        self.assertEqual(self.operators.request("DELETE", path, role=ADMIN).status, 204)
        self.assertEqual(self.login(self.signed()).status, 200)


class ConjurIamRoutesTests(IamRoutesTests):
    """The same in the dialect of the installed base."""

    dialect = CONJUR
