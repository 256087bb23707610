"""Third parties' compact tokens, read strictly, and their signatures (RFC 7515 7.1, 7518 3, 7519, 8037 3.1).

Note [What is ours]. The reading of tokens and of key sets is ours, the cryptography is the libraries'. JOSE libraries are
lenient: PyJWT 2.15, for one, takes padding, members named twice, NaN, and keys that carry private parts. Here a text has one
reading or none, and what is accepted is listed. A header names its algorithm and key; it can't bring a key, name a place to
fetch one, or change what a signature means. No message repeats more of a token than these two names.

Note [Verified claims]. Nothing of a payload is read before its signature has been verified: ``UnverifiedJws`` has no
claims, and only :func:`verify_token` makes ``SignedClaims``.

The algorithms are listed in ``model/key_sets.py``, how keys of each are read in ``crypto/key_sets.py``.
"""

from __future__ import annotations

import binascii
import functools
from typing import Final

import jwt

from svc.model.key_sets import (
    ALGORITHMS,
    DEFAULT_ALGORITHMS,
    SYNONYMS,
    EvidenceRefused,
    KeySet,
    ProviderKey,
    SignedClaims,
    UnverifiedJws,
)
from svc.model.reasons import Reason
from svc.model.strict_json import Malformed, parse_json_object
from svc.model.text import quote_text

TOKEN_LIMIT: Final = 16 * 1024  #: longest token, in bytes, unless the caller says otherwise (LIM-5)

#: Header parameters and their types (RFC 7515 4.1). Apart from ``kid`` nothing here reads them.
_TYPES: Final = {"jwk": dict, "x5c": list} | dict.fromkeys(("kid", "typ", "cty", "jku", "x5u", "x5t", "x5t#S256"), str)

_URL_ALPHABET: Final = bytes.maketrans(b"-_+/=", b"+/!!!")
_NEEDLESS_BITS: Final = {2: b"AQgw", 3: b"AEIMQUYcgkosw048"}


def parse_compact(token: bytes, limit: int = TOKEN_LIMIT, algorithms: tuple[str, ...] = DEFAULT_ALGORITHMS) -> UnverifiedJws:
    """Take a compact JWS apart: three parts in base64url, the first a JSON header that is wholly understood.

    :raises EvidenceRefused: the token is longer than ``limit`` bytes, malformed, unsigned, of none of the ``algorithms``, or
        has header parameters that change the meaning of the signature.
    """
    if len(token) > limit:
        raise EvidenceRefused(Reason.TOKEN_TOO_LARGE, f"the token has {len(token)} bytes, {limit} are allowed")
    parts = token.split(b".", 3)
    if len(parts) != 3:
        raise EvidenceRefused(Reason.TOKEN_MALFORMED, "the token does not have three parts separated by dots")
    if not parts[0] or not parts[1]:
        raise EvidenceRefused(Reason.TOKEN_MALFORMED, "the token has an empty part")
    if not parts[2]:
        raise EvidenceRefused(Reason.TOKEN_UNSIGNED, "the token has no signature")
    algorithm, key_id = _read_header(parts[0], algorithms)
    try:
        payload, signature = decode_base64url(parts[1]), decode_base64url(parts[2])
    except Malformed as error:
        raise EvidenceRefused(Reason.TOKEN_MALFORMED, f"a part of the token is unusable: {error}") from None
    return UnverifiedJws(algorithm, key_id, token[: -len(parts[2]) - 1], payload, signature)


@functools.lru_cache(maxsize=64)  # the tokens of one provider and key begin with the same bytes
def _read_header(part: bytes, algorithms: tuple[str, ...]) -> tuple[str, str | None]:
    """Return the algorithm and the key id; whatever else is well formed is ignored, ``jwk`` and ``jku`` above all."""
    try:
        header = parse_json_object(decode_base64url(part))
    except Malformed as error:
        raise EvidenceRefused(Reason.TOKEN_MALFORMED, f"the token's header is unusable: {error}") from None
    algorithm = header.get("alg")
    if not isinstance(algorithm, str):
        raise EvidenceRefused(Reason.TOKEN_MALFORMED, "the token's header names no algorithm")
    if algorithm.lower() == "none":
        raise EvidenceRefused(Reason.TOKEN_UNSIGNED, f"the token's algorithm is {quote_text(algorithm)}")
    meant = SYNONYMS.get(algorithm, algorithm)
    if meant not in algorithms:
        raise EvidenceRefused(
            Reason.ALGORITHM_REFUSED, f"the algorithm is {quote_text(algorithm)}, not {join_algorithms(algorithms)}"
        )
    for name in ("crit", "b64"):
        if name in header:
            raise EvidenceRefused(Reason.CRITICAL_HEADER, f"the token's header has {name!r}, which nothing here understands")
    for name, kind in _TYPES.items():
        if not isinstance(header.get(name, kind()), kind):
            raise EvidenceRefused(Reason.TOKEN_MALFORMED, f"the token's header has {name!r} of the wrong type")
    key_id = header.get("kid")
    return meant, key_id if isinstance(key_id, str) else None


def join_algorithms(algorithms: tuple[str, ...]) -> str:
    """Name algorithms as a sentence does: "RS256, RS384 or RS512"."""
    return " or ".join(filter(None, (", ".join(algorithms[:-1]), algorithms[-1])))


def decode_base64url(text: bytes) -> bytes:
    """Decode base64url without padding, in its one canonical spelling (RFC 7515 2, RFC 4648 3.5).

    :raises Malformed: a foreign character, padding, an impossible length, or bits set where none belong.
    """
    rest = len(text) % 4
    if rest and text[-1] not in _NEEDLESS_BITS.get(rest, b""):
        raise Malformed("it is not canonical base64url")
    try:
        return binascii.a2b_base64(text.translate(_URL_ALPHABET) + b"=" * (-rest % 4), strict_mode=True)
    except binascii.Error:
        raise Malformed("it is not base64url without padding") from None


#: How the names of the algorithms begin that need an RSA key (RFC 7518 3.1).
_RSA: Final = ("RS", "PS")

_VERIFIERS: Final = {name: jwt.get_algorithm_by_name(name) for name in ALGORITHMS}


def verify_token(keys: KeySet, token: UnverifiedJws, distrusted: frozenset[str] = frozenset()) -> SignedClaims:
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
    # An RSA signature has its key's length (RFC 8017 8.1.2): OpenSSL takes PSS without leading zeros.
    if not right or (token.algorithm.startswith(_RSA) and len(token.signature) != (key.public.key_size + 7) // 8):
        raise EvidenceRefused(Reason.SIGNATURE_WRONG, f"the signature is not by the key {describe_key(key.key_id)}")
    names = {other.key_id for other in keys.keys if other.thumbprint == key.thumbprint} if distrusted else ()
    for name in (key.thumbprint, token.key_id, *names):
        if name in distrusted:
            raise EvidenceRefused(Reason.KEY_DISTRUSTED, f"the key {describe_key(name)} is distrusted here")
    try:
        return SignedClaims(parse_json_object(token.payload))
    except Malformed as error:
        raise EvidenceRefused(Reason.TOKEN_MALFORMED, f"the token's payload is unusable: {error}") from None


def choose_key(keys: KeySet, token: UnverifiedJws) -> ProviderKey:
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
