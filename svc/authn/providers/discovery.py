"""Key sets that identity providers publish at an address, or at the one that their discovery document names.

The ``issuer`` of the document (OpenID Connect Discovery 1.0) must be the requested provider, so that one provider can't hand
out the keys of another (4.3 there; AUTH-50). Its text goes with the keys: tokens have it as ``iss`` (AUTH-21).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import attrs

from svc.crypto.key_sets import parse_key_set
from svc.model.authentication import KeySource
from svc.model.errors import DOCUMENT_UNUSABLE, ISSUER_DIFFERS, KeysUnavailable
from svc.model.key_sets import TOKEN, TOKEN_LIMIT, KeySet
from svc.model.strict_json import Malformed, drop_absent_members, parse_json_object
from svc.model.text import quote_text
from svc.model.web_address import is_same_provider, provider_fault, secure_origin
from svc.net.fetch import GuardedClient

_WELL_KNOWN: Final = "/.well-known/openid-configuration"


def discovery_uri(provider: str) -> str:
    """Return the address of a provider's discovery document; one final slash of the provider's is dropped (AUTH-50).

    :raises KeysUnavailable: the provider's address is none, or has a query, so that nothing can be added to its path.
    """
    if (fault := provider_fault(provider)) is not None:
        raise KeysUnavailable(fault)
    return provider.removesuffix("/") + _WELL_KNOWN


def parse_discovery(document: bytes, provider: str) -> Mapping[str, object]:
    """Return the members of a provider's discovery document that are neither null nor empty.

    :raises Malformed: it is no discovery document, or that of another provider (``is_same_provider``).
    """
    members = drop_absent_members(parse_json_object(document))
    issuer = members.get("issuer")
    if not isinstance(issuer, str):
        raise Malformed("it names no issuer")
    if not is_same_provider(issuer, provider):
        raise Malformed(f"{ISSUER_DIFFERS}{quote_text(issuer)}, not {quote_text(provider)}")
    return members


def read_address(members: Mapping[str, object], name: str, demand: Callable[[str], object]) -> str:
    """Return the address that a member of a discovery document has.

    :param demand: raises ``KeysUnavailable`` for an address that may not be asked.
    :raises Malformed: there is none, or it may not be asked.
    """
    uri = members.get(name)
    if not isinstance(uri, str):
        raise Malformed(f"it names no {name}")
    try:
        demand(uri)
    except KeysUnavailable as error:
        raise Malformed(f"its {name} {error.why}") from None
    return uri


@attrs.frozen
class KeySetFetcher:
    """The key sets that providers publish, read through the guarded client.

    ``token_files``: files of bearer tokens, by the origin (``secure_origin``) where each is shown.
    """

    _client: GuardedClient
    _token_files: Mapping[str, Path] = attrs.Factory(dict)

    async def fetch_key_set(self, source: KeySource) -> KeySet:
        """Fetch the key set of a source. Discovery and all lookups of names share one deadline (NET-15).

        :raises KeysUnavailable: it can't be had, or has no usable key.
        """
        deadline = self._client.new_deadline()
        uri, issuer = source.uri, None
        if source.discovered:
            about = discovery_uri(source.uri)
            document = await self._fetch_document(about, source, deadline)
            try:
                members = parse_discovery(document, source.uri)
                issuer, uri = str(members["issuer"]), read_address(members, "jwks_uri", self._client.demand_address)
            except Malformed as error:
                raise KeysUnavailable(f"{about}: {DOCUMENT_UNUSABLE}{error}") from None
        document = await self._fetch_document(uri, source, deadline)
        try:
            keys = parse_key_set(document, source.algorithms)
        except Malformed as error:
            raise KeysUnavailable(f"{uri}: the answer is not usable: {error}") from None
        if not keys.keys:
            why = f"{uri}: the answer is not usable: {keys.why_unusable}"
            raise KeysUnavailable(why, problems=keys.problems, unused=keys.unused)
        return attrs.evolve(keys, document=document, issuer=issuer)

    async def _fetch_document(self, uri: str, source: KeySource, deadline: float) -> bytes:
        """Fetch a document of the source, with the token that is for the address, if there is one (AUTH-68)."""
        token, withheld = self._select_token(uri, source)
        try:
            return await self._client.fetch(uri, source.ca_cert, deadline, token)
        except KeysUnavailable as error:
            if not withheld:
                raise
            raise KeysUnavailable(f"{error.why}; jwks-token was not shown there, but only where provider-uri is") from None

    def _select_token(self, uri: str, source: KeySource) -> tuple[str | None, bool]:
        """Return the token to show at an address, and whether the source has one that isn't for that.

        :raises KeysUnavailable: the file that holds it can't be used.
        """
        origin = secure_origin(uri)
        if source.token is not None and origin is not None and origin == secure_origin(source.uri):
            return source.token, False
        file = None if origin is None else self._token_files.get(origin)
        return None if file is None else read_token(file, uri), source.token is not None and file is None


def read_token(file: Path, uri: str) -> str:
    """Return the bearer token that a file holds now, for the fetch of ``uri``; the path of the file isn't revealed.

    :raises KeysUnavailable: it holds none, or can't be read.
    """
    try:
        with file.open("rb") as opened:
            text = opened.read(TOKEN_LIMIT + 2).decode("ascii", "replace").strip()
    except OSError as error:
        raise KeysUnavailable(f"{uri}: the file of jwks-token-files for it cannot be read: {error.strerror}") from None
    if len(text) > TOKEN_LIMIT or not TOKEN.fullmatch(text):
        raise KeysUnavailable(f"{uri}: the file of jwks-token-files for it holds no bearer token")
    return text
