"""Third parties' compact tokens, read strictly (RFC 7515 7.1, 7519).

Note [What is ours]. The reading of tokens and of key sets is ours, the cryptography is the libraries'. JOSE libraries are
lenient: PyJWT 2.15, for one, takes padding, members named twice, NaN, and keys that carry private parts. Here a text has one
reading or none, and what is accepted is listed. A header names its algorithm and key; it can't bring a key, name a place to
fetch one, or change what a signature means. No message repeats more of a token than these two names.
"""

from __future__ import annotations

import binascii
import functools
from typing import Final

from svc.model.key_sets import DEFAULT_ALGORITHMS, SYNONYMS
from svc.model.reasons import Reason
from svc.model.signed_claims import EvidenceRefused, UnverifiedToken
from svc.model.strict_json import Malformed, parse_json_object
from svc.model.text import quote_text

TOKEN_LIMIT: Final = 16 * 1024  #: longest token, in bytes, unless the caller says otherwise (LIM-5)

#: Header parameters and their types (RFC 7515 4.1). Apart from ``kid`` nothing here reads them.
_TYPES: Final = {"jwk": dict, "x5c": list} | dict.fromkeys(("kid", "typ", "cty", "jku", "x5u", "x5t", "x5t#S256"), str)

_URL_ALPHABET: Final = bytes.maketrans(b"-_+/=", b"+/!!!")
_NEEDLESS_BITS: Final = {2: b"AQgw", 3: b"AEIMQUYcgkosw048"}


def parse_compact(
    token: bytes, limit: int = TOKEN_LIMIT, algorithms: tuple[str, ...] = DEFAULT_ALGORITHMS
) -> UnverifiedToken:
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
    return UnverifiedToken(algorithm, key_id, token[: -len(parts[2]) - 1], payload, signature)


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
