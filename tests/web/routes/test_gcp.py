"""The routes of the Google authenticator, which has no service id: logging in, and what operators ask and change."""

from __future__ import annotations

from collections.abc import Mapping

from svc.authn.gcp import NAME
from svc.model.dialect import CONJUR
from svc.services.authenticators import FederatedService
from svc.web.routes.authenticators import FederatedAuthenticators
from tests.memory import MemoryAuthenticators, MemoryRoles
from tests.signing import token
from tests.statuses import privilege_missing_status
from tests.web.support import NOW, Answer, Client
from tests.web.world import ADMIN, GOOGLE, LISTED, WorldCase, user

POLICY = """
- !policy
  id: {prefix}/authn-gcp
  body:
    - !webservice
    - !webservice status
    - !group apps
    - !permit {{ role: !group apps, privileges: [ read, authenticate ], resource: !webservice }}
    - !permit {{ role: !user /olivia, privilege: read, resource: !webservice status }}
- !host
  id: shop/web
  annotations: {{ authn-gcp/service-account-id: "42" }}
- !grant {{ role: !group {prefix}/authn-gcp/apps, member: !host shop/web }}
- !host
  id: shop/stranger
  annotations: {{ authn-gcp/service-account-id: "42" }}
"""

PATH = "/authn-gcp/acme"
OLIVIA = user("olivia")


class GcpRoutesTests(WorldCase):
    """The routes of an account's only authenticator of a type."""

    def setUp(self) -> None:
        """Load its policy, with Olivia as operator."""
        super().setUp()
        self.load("- !user olivia\n")
        self.load(POLICY.format(prefix=self.dialect.prefix))
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

    def token(self, host: str = "shop/web", **changes: object) -> bytes:
        """A good token, with other claims."""
        audience = f"{self.dialect.prefix}/acme/host/{host}"
        claims: Mapping[str, object] = {"iss": GOOGLE, "sub": "42", "aud": audience, "iat": NOW, "exp": NOW + 60}
        return token({**claims, **changes})

    def login(self, evidence: bytes, path: str = f"{PATH}/authenticate") -> Answer:
        """Log in with a token."""
        return self.client.post(path, b"jwt=" + evidence)

    def test_login(self) -> None:
        """A token becomes an access token of the host that it names; the audit says so (GCP-2, AUD-3)."""
        answer = self.login(self.token())
        self.assertEqual((answer.status, list(answer.json())), (200, ["protected", "payload", "signature"]))
        _, event, _ = self.journal.taken[-1]
        self.assertEqual((event.authenticator, event.service), (NAME, None))
        self.assertIn(("role", "acme:host:shop/web"), event.subject)

    def test_refused(self) -> None:
        """A refusal is empty: 401, 400 without a token, 413 for one that is too long, and for a missing privilege as the
        dialect has it (FAIL-14, AUTH-12).
        """
        for evidence, status in (
            (self.token(sub="43"), 401),
            (self.token("nobody"), 401),
            (self.token(exp=NOW), 401),
            (b"", 400),
            (b"x", 401),
            (b"x" * 20_000, 413),
            (self.token("shop/stranger"), privilege_missing_status(self.dialect)),
        ):
            answer = self.login(evidence)
            self.assertEqual((answer.status, answer.body), (status, b""))
        self.assertEqual(self.login(self.token(), "/authn-gcp/other/authenticate").status, 401)
        self.provider.down = True
        self.assertEqual(self.login(self.token()).status, 503)

    def test_no_other_paths(self) -> None:
        """A login or a service id in the path is no route (GCP-2)."""
        for path in (
            *("/authn-gcp/acme/host%2Fshop%2Fweb/authenticate", "/authn-gcp/acme/host/shop/web/authenticate"),
            *("/authn-gcp/acme//authenticate", "/authn-gcp//acme/authenticate", "/authn-gcp/authenticate"),
        ):
            answer = self.login(self.token(), path)
            self.assertEqual((answer.status, b"there is no route" in answer.body), (404, True), path)
        self.assertEqual(self.client.get(f"{PATH}/authenticate", role=ADMIN).status, 404)

    def test_status(self) -> None:
        """Its status takes ``read`` on ``<prefix>/authn-gcp/status``, and a token of the account (GCP-2, AUTH-59)."""
        answer = self.operators.get(f"{PATH}/status", role=OLIVIA)
        self.assertEqual((answer.status, answer.json()["status"], answer.json()["listed"]), (200, "ok", True))
        self.assertEqual(answer.json()["keys"]["uri"], GOOGLE)
        self.assertEqual(self.operators.get(f"{PATH}/status").status, 401)
        self.assertEqual(self.operators.get("/authn-gcp/other/status", role=OLIVIA).status, 404)
        self.load("- !user max\n")
        self.assertEqual(self.operators.get(f"{PATH}/status", role=user("max")).status, 403)

    def test_explain(self) -> None:
        """A token is explained to operators, and agrees with the login (GCP-2, AUTH-62)."""
        explained = self.operators.post(f"{PATH}/explain", b"jwt=" + self.token(), role=OLIVIA).json()
        self.assertEqual((explained["admitted"], explained["role"]), (True, "acme:host:shop/web"))
        refused = self.operators.post(f"{PATH}/explain", b"jwt=" + self.token(sub="43"), role=OLIVIA).json()
        self.assertEqual([step["check"] for step in refused["steps"] if step["outcome"] == "failed"], ["claims"])
        self.assertEqual(self.operators.post(f"{PATH}/explain", b"jwt=x").status, 401)

    def test_keys(self) -> None:
        """Keys are refreshed and distrusted at paths without a service id (GCP-2, AUTH-63, AUTH-64)."""
        self.assertEqual(self.operators.post(f"{PATH}/refresh-keys", role=OLIVIA).status, 200)
        self.assertEqual(self.operators.request("PUT", f"{PATH}/distrusted-keys/k1", role=OLIVIA).status, 404)
        self.assertEqual(self.operators.request("PUT", f"{PATH}/distrusted-keys/k1", role=ADMIN).status, 204)
        self.assertEqual(self.login(self.token()).status, 401)
        self.assertEqual(self.operators.request("DELETE", f"{PATH}/distrusted-keys/k1", role=ADMIN).status, 204)
        self.assertEqual(self.login(self.token()).status, 200)

    def test_listed_and_switched(self) -> None:
        """It is among those that are configured and enabled, without its ``status``, and can be switched off, which its
        ``status`` can't (GCP-1, AUTH-4 to AUTH-6).
        """
        known = self.client.get("/authenticators").json()
        self.assertIn(NAME, known["installed"])
        self.assertEqual([name for name in known["configured"] if name.startswith(NAME)], [NAME])
        self.assertIn(NAME, known["enabled"])
        self.assertEqual(self.client.patch("/authn-gcp/status/acme", b"enabled=true", role=ADMIN).status, 401)
        self.assertEqual(self.client.patch(PATH, b"enabled=false", role=OLIVIA).status, 403)
        self.assertEqual(self.client.patch(PATH, b"enabled=false", role=ADMIN).status, 204)
        self.assertEqual(self.login(self.token()).status, 200 if self.dialect.switch_enables else 401)


class ConjurGcpRoutesTests(GcpRoutesTests):
    """The same in the dialect of the installed base."""

    dialect = CONJUR
