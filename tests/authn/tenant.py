"""A world for the cloud authenticator: a tenant whose tokens are accepted, and one host that is admitted with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from svc.authn.cloud import make_cloud_kind
from svc.authn.evaluation import FederatedAuthenticator
from svc.model.authentication import Admitted, LoginRequest, Refused
from svc.model.listed_authenticators import ListedAuthenticators
from svc.model.names import RoleName
from svc.model.reasons import Reason
from tests.authn.shapes import GROUP, SHAPES, SUBSCRIPTION
from tests.authn.world import CREATION, NOW, Case
from tests.signing import jwks, token
from tests.statuses import refusal_status

TENANT = "https://sts.platform.example/99999999-0000-1111-2222-333333333333/"
OID = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
HOST = RoleName("acme", "host", "cloud-apps/web")

#: The resource ids of a virtual machine, and of an identity that is assigned to it.
MACHINE, ASSIGNED = (shape.text for shape in SHAPES[:2])

CLAIMS: Mapping[str, object] = {
    "aud": "https://management.platform.example/",
    "iss": TENANT,
    "iat": NOW,
    "nbf": NOW,
    "exp": NOW + 60,
    "oid": OID,
    "sub": OID,
    "xms_mirid": MACHINE,
}


class CloudCase(Case):
    """An authenticator ``prod`` for the tenant, and one host that is bound to a subscription and a resource group."""

    def setUp(self) -> None:
        """A world in which ``token(CLAIMS)`` admits ``HOST``."""
        super().setUp()
        self.name = self.dialect.cloud
        self.branch = f"{self.dialect.prefix}/{self.name}/prod"
        self.readings.set(self.branch, provider_uri=TENANT)
        self.provider.published[TENANT] = jwks()
        self.annotate({"subscription-id": SUBSCRIPTION, "resource-group": GROUP})
        self.readings.permitted.add(HOST)

    def made(self, **options: Any) -> FederatedAuthenticator:
        """An authenticator on the same world."""
        defaults = {"clock_skew": 0.0, "token_limit": 16_384, "ignore_missing_issuer": False}
        kind = make_cloud_kind(self.dialect)
        enabled = ListedAuthenticators([f"{kind.name}/{service}" for service in ("prod", "test", "bare", "a/b")])
        return FederatedAuthenticator(
            kind, self.readings, self.provider, self.vault, self.clock, self.dialect, enabled, **{**defaults, **options}
        )

    def annotate(self, annotations: Mapping[str, str]) -> None:
        """Give the host these annotations, by what their names have after that of the authenticator, and no others."""
        self.readings.annotations[HOST] = {f"{self.name}/{name}": value for name, value in annotations.items()}

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

    def assert_admitted(self, evidence: bytes, role: RoleName = HOST, **options: Any) -> None:
        """The token admits the role."""
        self.assertEqual(self.attempt(evidence, **options), Admitted(role, "signing-key", CREATION))

    def claims(self, **changes: object) -> bytes:
        """A good token with other claims; those that are ``...`` are left out."""
        return token({name: value for name, value in {**CLAIMS, **changes}.items() if value is not ...})

    def row(self, check: str, reason: Reason, evidence: bytes | None = None, status: int = 401, **options: Any) -> str:
        """The token, a good one unless another is given, is refused by this check for this reason, in these words.

        Decisions and explanations agree.
        """
        evidence = token(CLAIMS) if evidence is None else evidence
        decision = self.attempt(evidence, **options)
        assert isinstance(decision, Refused), "it was admitted"
        self.assertEqual((decision.reason, refusal_status(decision)), (reason, status), decision.detail)
        failed = self.failed(evidence, **options)
        assert failed is not None
        self.assertEqual((failed.check, failed.reason, failed.detail), (check, reason, decision.detail))
        self.assert_fit(decision.detail, evidence)
        return decision.detail
