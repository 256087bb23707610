"""A provider of OpenID Connect in memory, and the routes of people who sign in there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from twisted.internet.task import Clock

from svc.authn.providers.oidc_endpoints import OidcEndpoints
from svc.model.oidc import (
    ClientRefusal,
    ClientRefused,
    CodeLogin,
    CodeRefused,
    OidcClient,
    OidcIssuer,
    OidcMetadata,
    ProviderUnavailable,
)
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


class OidcProvider(OidcEndpoints):
    """Providers that know ``codes``, each for the claims of an id token, and exchange each once; ``down`` are away."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.codes: dict[str, Mapping[str, object]] = {}
        self.down: set[str] = set()
        self.metadata_of: dict[str, OidcMetadata] = {}
        self.exchanged: list[tuple[OidcClient, CodeLogin]] = []
        self.asked = 0
        self.client_refused: ClientRefusal | None = None

    def find_client_refusal(self, client: OidcClient) -> ClientRefusal | None:
        """Whether it takes codes of the client."""
        return self.client_refused

    def claims(self, nonce: str, **changes: object) -> dict[str, object]:
        """The claims of a good id token."""
        now = self._clock.seconds()
        claims = {"iss": ISSUER, "aud": CLIENT, "nonce": nonce, "iat": now, "exp": now + 60, "name": "alice", **changes}
        return {name: value for name, value in claims.items() if value is not ...}

    async def read_metadata(self, issuer: OidcIssuer) -> OidcMetadata:
        """What the provider says of itself."""
        self.asked += 1
        if issuer.uri in self.down:
            raise ProviderUnavailable(f"{issuer.uri}: nobody there", 3)
        usual = OidcMetadata(f"{issuer.uri}/authorize", f"{issuer.uri}/token", device_endpoint=f"{issuer.uri}/device")
        return self.metadata_of.get(issuer.uri, usual)

    async def check_endpoints(self, issuer: OidcIssuer) -> None:
        """All its endpoints may be asked."""
        await self.read_metadata(issuer)

    async def exchange_code(self, client: OidcClient, login: CodeLogin) -> bytes:
        """The id token of a code."""
        self.exchanged.append((client, login))
        await self.read_metadata(client.issuer)
        if self.client_refused is not None:
            raise ClientRefused(self.client_refused.why)
        claims = self.codes.pop(login.evidence.decode("utf-8"), None)
        if claims is None:
            raise CodeRefused("the answer is 'invalid_grant'")
        return token(claims)
