"""A provider of OpenID Connect in memory, and the routes of people who sign in there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from twisted.internet.task import Clock
from zope.interface import implementer

from svc.authn.evaluation import Kind
from svc.authn.federated import FederatedAuthenticator
from svc.authn.oidc import oidc
from svc.authn.oidc_offered import OidcSettingsReader
from svc.authn.providers.oidc_offers import OidcOffers
from svc.authn.throttling import Throttle, ThrottledAuthenticator
from svc.crypto.vault import Vault
from svc.model.authentication import IProviderKeys
from svc.model.dialect import Dialect
from svc.model.oidc import (
    ClientRefusal,
    ClientRefused,
    CodeLogin,
    CodeRefused,
    IOidcProviders,
    OidcClient,
    OidcIssuer,
    OidcMetadata,
    ProviderUnavailable,
)
from svc.services.batches import BatchService
from svc.services.login import LoginService
from svc.services.oidc import OidcService
from svc.web.routes.oidc import OidcAuthn
from tests.memory import Memory, MemoryAuthenticatorReadings, MemoryAuthenticators
from tests.signing import token

ISSUER: Final = "https://oidc.example"
CLIENT: Final = "svc-client"

#: The authenticators in the configuration.
LISTED: Final = frozenset({"authn-oidc/corp", "authn-oidc/device", "authn-oidc/away"})

#: An authenticator, to be filled with the prefix of the dialect, its service id, and more variables.
POLICY: Final = """
- !policy
  id: {prefix}/authn-oidc/{service}
  body:
    - !webservice
    - !webservice status
    - !variable provider-uri
    - !variable client-id
    {more}
"""


@implementer(IOidcProviders)
class OidcProvider:
    """Providers that know ``codes``, each for the claims of an id token, and exchange each once; ``down`` are away."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.codes: dict[str, Mapping[str, object]] = {}
        self.down: set[str] = set()
        self.metadata_of: dict[str, OidcMetadata] = {}
        self.exchanged: list[tuple[OidcClient, CodeLogin]] = []
        self.asked = 0
        self.client_refused: ClientRefusal | None = None

    def client_refusal(self, client: OidcClient) -> ClientRefusal | None:
        """Whether it takes codes of the client."""
        return self.client_refused

    def claims(self, nonce: str, **changes: object) -> dict[str, object]:
        """The claims of a good id token."""
        now = self._clock.seconds()
        claims = {"iss": ISSUER, "aud": CLIENT, "nonce": nonce, "iat": now, "exp": now + 60, "name": "alice", **changes}
        return {name: value for name, value in claims.items() if value is not ...}

    async def metadata(self, issuer: OidcIssuer) -> OidcMetadata:
        """What the provider says of itself."""
        self.asked += 1
        if issuer.uri in self.down:
            raise ProviderUnavailable(f"{issuer.uri}: nobody there", 3)
        usual = OidcMetadata(f"{issuer.uri}/authorize", f"{issuer.uri}/token", device_endpoint=f"{issuer.uri}/device")
        return self.metadata_of.get(issuer.uri, usual)

    async def exchange(self, client: OidcClient, login: CodeLogin) -> bytes:
        """The id token of a code."""
        self.exchanged.append((client, login))
        await self.metadata(client.issuer)
        if self.client_refused is not None:
            raise ClientRefused(self.client_refused.why)
        claims = self.codes.pop(login.evidence.decode("utf-8"), None)
        if claims is None:
            raise CodeRefused("the answer is 'invalid_grant'")
        return token(claims)


def oidc_routes(
    memory: Memory,
    vault: Vault,
    clock: Clock,
    dialect: Dialect,
    keys: IProviderKeys,
    provider: OidcProvider,
    login: LoginService,
    throttle: Throttle,
    batches: BatchService,
) -> OidcAuthn:
    """The routes; ``login`` has the tokens that are issued, and what is told of them."""
    readings = MemoryAuthenticatorReadings(memory)
    kinds = oidc(provider, dialect)

    def logins(kind: Kind) -> LoginService:
        common: tuple[Any, ...] = (readings, keys, vault, clock, dialect, LISTED)
        made = FederatedAuthenticator(kind, *common, clock_skew=0.0, token_limit=16384, ignore_missing_issuer=False)
        return LoginService(ThrottledAuthenticator(made, throttle), login.tokens, login.noted, by_token=True)

    reader = OidcSettingsReader(readings, MemoryAuthenticators(memory), vault, dialect, LISTED)
    service = OidcService(OidcOffers(reader, provider, clock))
    return OidcAuthn(service, logins(kinds.code), logins(kinds.token), dialect.tells_devices, batches)
