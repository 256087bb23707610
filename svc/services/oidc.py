"""The use cases of signing in at a provider of OpenID Connect: which authenticators offer it, and the redirect there."""

from __future__ import annotations

import base64
import hashlib
import secrets
from typing import Final
from urllib.parse import quote

import attrs

from svc.authn.providers.oidc_endpoints import OidcOffers
from svc.model.errors import RecordNotFound
from svc.model.oidc import OidcClient, OidcOffer

#: Bytes of a nonce, and of a verifier, which are written in hexadecimal digits: RFC 7636 demands 43 characters.
_BYTES: Final = 25


@attrs.frozen
class PreparedLogin:
    """A login that a browser can begin at ``url``; the nonce and the verifier are random, and aren't stored here.

    There is no ``url`` where no code is taken.
    """

    offer: OidcOffer
    nonce: str = attrs.field(repr=False)
    verifier: str = attrs.field(repr=False)
    url: str | None = attrs.field(repr=False)


@attrs.frozen
class OidcService:
    """The use cases of the authenticators ``authn-oidc/<service id>`` that are open to anyone."""

    offered: OidcOffers

    async def list_logins(self, account: str) -> list[PreparedLogin]:
        """Return a login for each provider of an account; none for an account that doesn't exist (OIDC-8)."""
        return [_prepare_login(offer, offer.client) for offer in await self.offered.list_offers(account)]

    async def begin_login(self, account: str, service_id: str, redirect_uri: str, state: str) -> PreparedLogin:
        """Return a login whose browser comes back to ``redirect_uri``, with ``state``.

        :raises RecordNotFound: no authenticator of this id takes codes now.
        """
        for offer in await self.offered.list_offers(account):
            if offer.service_id == service_id and offer.client is not None:
                return _prepare_login(offer, attrs.evolve(offer.client, redirect_uri=redirect_uri), state)
        raise RecordNotFound(account, "webservice", service_id)


def _prepare_login(offer: OidcOffer, client: OidcClient | None, state: str | None = None) -> PreparedLogin:
    nonce, verifier = secrets.token_hex(_BYTES), secrets.token_hex(_BYTES)
    if client is None:
        return PreparedLogin(offer, nonce, verifier, None)
    digest = hashlib.sha256(verifier.encode("ascii")).digest()
    fields = {
        "client_id": client.id,
        "response_type": "code",
        "scope": client.scope,
        "nonce": nonce,
        "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii"),
        "code_challenge_method": "S256",
        "redirect_uri": client.redirect_uri,
        "state": state,
    }
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in fields.items() if value is not None)
    endpoint = offer.metadata.authorization_endpoint
    return PreparedLogin(offer, nonce, verifier, f"{endpoint}{'&' if '?' in endpoint else '?'}{query}")
