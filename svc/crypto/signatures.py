"""Signatures of third parties' tokens (RFC 7518 3, RFC 8037 3.1).

Note [Verified claims]. Nothing of a payload is read before its signature has been verified: ``UnverifiedToken`` has no
claims, and only :func:`verify_token` makes ``SignedClaims``.
"""

from __future__ import annotations

from typing import Final

import jwt

from svc.model.key_sets import ALGORITHMS, KeySet, ProviderKey
from svc.model.reasons import Reason
from svc.model.signed_claims import EvidenceRefused, SignedClaims, UnverifiedToken
from svc.model.strict_json import Malformed, parse_json_object
from svc.model.text import quote_text

#: How the names of the algorithms begin that need an RSA key (RFC 7518 3.1).
_RSA: Final = ("RS", "PS")

_VERIFIERS: Final = {name: jwt.get_algorithm_by_name(name) for name in ALGORITHMS}


def verify_token(keys: KeySet, token: UnverifiedToken, distrusted: frozenset[str] = frozenset()) -> SignedClaims:
    """Verify the signature and return the claims, whose values are not yet checked for anything.

    A key verifies nothing when its thumbprint, one of its ids, or the one by which the token calls it is ``distrusted``.
    That is looked at last: a wrong signature under a distrusted key may be a right one by the key that took its place.

    :raises EvidenceRefused: no key of the set verifies the token, or its payload is no JSON object.
    """
    key = choose_key(keys, token)
    if token.algorithm not in key.algorithms:
        why = f"the key is for {', '.join(sorted(key.algorithms))}, not {token.algorithm}"
        raise EvidenceRefused(Reason.ALGORITHM_REFUSED, why)
    right = _VERIFIERS[token.algorithm].verify(token.signing_input, key.public, token.signature)
    if not right or not _has_full_length(key, token):
        raise EvidenceRefused(Reason.SIGNATURE_WRONG, f"the signature is not by the key {describe_key(key.key_id)}")
    names = {other.key_id for other in keys.keys if other.thumbprint == key.thumbprint} if distrusted else ()
    for name in (key.thumbprint, token.key_id, *names):
        if name in distrusted:
            raise EvidenceRefused(Reason.KEY_DISTRUSTED, f"the key {describe_key(name)} is distrusted here")
    try:
        return SignedClaims(parse_json_object(token.payload))
    except Malformed as error:
        raise EvidenceRefused(Reason.TOKEN_MALFORMED, f"the token's payload is unusable: {error}") from None


def _has_full_length(key: ProviderKey, token: UnverifiedToken) -> bool:
    """Return whether an RSA signature has its key's length (RFC 8017 8.1.2): OpenSSL takes PSS without leading zeros."""
    return not token.algorithm.startswith(_RSA) or len(token.signature) == (key.public.key_size + 7) // 8


def choose_key(keys: KeySet, token: UnverifiedToken) -> ProviderKey:
    """Return the one key that the token can be signed with; a missing id on either side is no hindrance in a set of one.

    Among keys of one id the token's algorithm chooses.

    :raises EvidenceRefused: there is none, or the token doesn't say which.
    """
    key = keys.by_use.get((token.key_id, token.algorithm))
    if key is not None:
        return key
    called = [key for key in keys.keys if key.key_id == token.key_id]
    if called:
        algorithms = sorted({name for key in called for name in key.algorithms})
        raise EvidenceRefused(Reason.ALGORITHM_REFUSED, f"the key is for {', '.join(algorithms)}, not {token.algorithm}")
    if len(keys.keys) == 1 and None in {token.key_id, keys.keys[0].key_id}:
        return keys.keys[0]
    if token.key_id is None:
        why = f"the token names no key, and there are {len(keys.keys)} to choose from"
        raise EvidenceRefused(Reason.KEY_ID_MISSING, why)
    known = ", ".join(describe_key(key.key_id) for key in keys.keys[:5])
    raise EvidenceRefused(
        Reason.KEY_UNKNOWN, f"the token names the key {quote_text(token.key_id)}; usable are {known or 'none'}"
    )


def describe_key(key_id: str | None) -> str:
    """Return what a message calls a key."""
    return "without id" if key_id is None else quote_text(key_id)
