"""A world for the authenticator of OpenID Connect: a provider that gives id tokens for codes, and one user."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from twisted.internet.defer import Deferred

from svc.authn.evaluation import AuthenticatorKind, FederatedAuthenticator
from svc.authn.oidc import OidcKinds, make_oidc_kinds
from svc.authn.oidc_settings import NAME
from svc.authn.providers.oidc_endpoints import OidcEndpoints
from svc.model.authentication import Admitted, Refused
from svc.model.listed_authenticators import ListedAuthenticators
from svc.model.names import RoleName
from svc.model.oidc import ClientRefusal, CodeLogin, OidcClient, OidcIssuer, OidcMetadata, ProviderUnavailable
from svc.model.reasons import Reason
from tests.authn.world import ALICE, CREATION, NOW, PROVIDER, Case
from tests.signing import token
from tests.statuses import refusal_status

CLIENT: Final = "svc-client"
SECRET: Final = "the-client-secret"
NONCE: Final = "n-0S6_WzA2Mj"

CLAIMS: Final[Mapping[str, object]] = {
    "iss": PROVIDER,
    "sub": "248289761001",
    "aud": CLIENT,
    "nonce": NONCE,
    "preferred_username": "alice",
    "exp": NOW + 60,
    "iat": NOW,
}

METADATA: Final = OidcMetadata(f"{PROVIDER}/authorize", f"{PROVIDER}/token")


class Providers(OidcEndpoints):
    """A provider that gives an id token of ``claims`` for any code; ``wrong`` is raised in place of that."""

    def __init__(self) -> None:
        self.token = token(CLAIMS)
        self.wrong: Exception | None = None
        self.unlisted: str | None = None
        self.refusals: dict[OidcClient, ClientRefusal] = {}
        self.known = METADATA
        self.asked: list[tuple[OidcClient, CodeLogin]] = []
        self.meanwhile: Callable[[], object] = lambda: None

    async def read_metadata(self, issuer: OidcIssuer) -> OidcMetadata:
        """Its endpoints."""
        if self.wrong is not None:
            raise self.wrong
        return self.known

    async def check_endpoints(self, issuer: OidcIssuer) -> None:
        """They may be asked, unless ``unlisted`` says why not."""
        await self.read_metadata(issuer)
        if self.unlisted is not None:
            raise ProviderUnavailable(self.unlisted)

    def find_client_refusal(self, client: OidcClient) -> ClientRefusal | None:
        """Whether it takes no codes of a client."""
        return self.refusals.get(client)

    async def exchange_code(self, client: OidcClient, login: CodeLogin) -> bytes:
        """An id token."""
        self.asked.append((client, login))
        self.meanwhile()
        if self.wrong is not None:
            raise self.wrong
        return self.token


class OidcCase(Case):
    """An authenticator ``corp`` that takes codes and id tokens, and ``alice``, who may log in there."""

    by_code = True

    def setUp(self) -> None:
        """A world in which a code admits ``ALICE``."""
        self.providers = Providers()
        super().setUp()
        self.branch = f"{self.dialect.prefix}/{NAME}/corp"
        self.readings.set(
            self.branch,
            provider_uri=PROVIDER,
            client_id=CLIENT,
            client_secret=SECRET,
            claim_mapping="preferred_username",
            id_token_user_property="preferred_username",
        )
        self.readings.annotations[ALICE] = {}
        self.readings.permitted.add(ALICE)

    @property
    def kinds(self) -> OidcKinds:
        """The kinds of this world."""
        return make_oidc_kinds(self.providers, self.dialect)

    @property
    def of_form(self) -> AuthenticatorKind:
        """The kind of the form that is tested."""
        return self.kinds.code if self.by_code else self.kinds.token

    def made(self, **options: Any) -> FederatedAuthenticator:
        """An authenticator on the same world."""
        kind = options.pop("kind", None) or self.of_form
        enabled = ListedAuthenticators([f"{NAME}/corp", f"{NAME}/bare"])
        limits = {"clock_skew": 0.0, "token_limit": 16_384, "ignore_missing_issuer": False, **options}
        return FederatedAuthenticator(
            kind, self.readings, self.provider, self.vault, self.clock, self.dialect, enabled, **limits
        )

    def login(self, code: str = "c0de", nonce: str = NONCE, service: str = "corp", **more: Any) -> CodeLogin:
        """A login with a code."""
        account, client_ip = more.pop("account", "acme"), more.pop("client_ip", "192.0.2.1")
        return CodeLogin(account, None, code.encode(), client_ip, service, **{"nonce": nonce, **more})

    def decided(self, login: CodeLogin) -> Admitted | Refused:
        """The decision on a login with a code."""
        decision: Admitted | Refused = self.successResultOf(Deferred.fromCoroutine(self.authenticator.authenticate(login)))
        return decision

    def tried(self, evidence: bytes, **options: Any) -> Admitted | Refused:
        """The decision on an id token: what a code is exchanged for, or what a client brings."""
        if not self.by_code:
            return self.attempt(evidence, **{"service": "corp", **options})
        self.providers.token = evidence
        return self.decided(self.login(**options))

    def assert_user(self, evidence: bytes, role: RoleName = ALICE, **options: Any) -> None:
        """The id token admits the user."""
        lifetime = 3600 if self.by_code else None
        self.assertEqual(self.tried(evidence, **options), Admitted(role, "signing-key", CREATION, lifetime=lifetime))

    def assert_refused(self, reason: Reason, evidence: bytes, status: int = 401, **options: Any) -> Refused:
        """The id token is refused for this reason; nothing of it, of code or secret is told."""
        refused = self.tried(evidence, **options)
        assert isinstance(refused, Refused), refused
        self.assertEqual((refused.reason, refusal_status(refused)), (reason, status), refused.detail)
        self.assert_fit(refused.detail, evidence)
        for secret in (SECRET, "c0de", NONCE):
            self.assertNotIn(secret, refused.detail)
        return refused

    def claims(self, **changes: object) -> bytes:
        """A good id token with other claims; those that are ``...`` are left out."""
        return token({name: value for name, value in {**CLAIMS, **changes}.items() if value is not ...})
