"""Key sets that identity providers publish at an address, or at the one that their discovery document names.

The ``issuer`` of the document (OpenID Connect Discovery 1.0) must be the provider that was asked, so that one provider can't
hand out the keys of another (4.3 there; AUTH-50).
"""

from __future__ import annotations

from typing import Final

import attrs

from svc.crypto.key_sets import parse_key_set
from svc.model.authentication import KeySource
from svc.model.errors import KeysUnavailable
from svc.model.key_sets import KeySet
from svc.model.strict_json import Malformed, json_object
from svc.model.text import shown
from svc.net.fetch import GuardedClient

_WELL_KNOWN: Final = "/.well-known/openid-configuration"


def document_uri(provider: str) -> str:
    """Return the address of a provider's discovery document; one final slash of the provider's is dropped (AUTH-50).

    :raises KeysUnavailable: the provider's address has a query, so that nothing can be added to its path.
    """
    if "?" in provider:
        raise KeysUnavailable(f"{shown(provider)} is no address of a provider: it has a query")
    return provider.removesuffix("/") + _WELL_KNOWN


def jwks_uri(document: bytes, provider: str) -> str:
    """Return the address, unchecked, of the JWK set that a discovery document names.

    :raises Malformed: it is no discovery document, or that of another provider; a final slash makes no other.
    """
    members = json_object(document)
    issuer, uri = members.get("issuer"), members.get("jwks_uri")
    if not isinstance(issuer, str):
        raise Malformed("it names no issuer")
    if issuer.removesuffix("/") != provider.removesuffix("/"):
        raise Malformed(f"its issuer is {shown(issuer)}, not {shown(provider)}")
    if not isinstance(uri, str):
        raise Malformed("it names no jwks_uri")
    return uri


@attrs.frozen
class Publications:
    """The key sets that providers publish, read through the guarded client."""

    _client: GuardedClient

    async def key_set(self, source: KeySource) -> KeySet:
        """Fetch the key set of a source. Discovery and all look-ups of names share one deadline (NET-15).

        :raises KeysUnavailable: it can't be had, or has no usable key.
        """
        deadline = self._client.deadline()
        uri = source.uri
        if source.discovered:
            about = document_uri(source.uri)
            document = await self._client.fetch(about, source.ca_cert, deadline)
            try:
                uri = jwks_uri(document, source.uri)
            except Malformed as error:
                raise KeysUnavailable(f"{about}: the discovery document is not usable: {error}") from None
        document = await self._client.fetch(uri, source.ca_cert, deadline)
        try:
            keys = parse_key_set(document, source.algorithms)
        except Malformed as error:
            raise KeysUnavailable(f"{uri}: the answer is not usable: {error}") from None
        if not keys.keys:
            raise KeysUnavailable(f"{uri}: the answer is not usable: {keys.why_unusable}")
        return keys
