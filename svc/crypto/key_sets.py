"""Key sets of identity providers, read strictly (RFC 7517, 7518 6).

``crypto.compact``, Note [What is ours], holds here too.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Final

import attrs
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers

from svc.crypto.compact import base64url
from svc.crypto.rsakeys import fault_of
from svc.crypto.signatures import named
from svc.model.key_sets import KeySet, ProviderKey
from svc.model.strict_json import Malformed, json_object

#: Most keys in a set. Providers publish a few; each costs time when the set is read.
KEYS_LIMIT: Final = 256

_ALGORITHMS: Final = ("RS256", "RS384", "RS512")

#: Members that only a private or symmetric key has (RFC 7518 6.3.2, 6.4).
_SECRET_MEMBERS: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})


def parse_key_set(document: bytes) -> KeySet:
    """Read a JWK set (RFC 7517 5), as a provider publishes it.

    :raises Malformed: it is no JWK set. A set of which no key is usable is one.
    """
    return key_set(json_object(document))


def key_set(members: Mapping[str, object]) -> KeySet:
    """Make a set of the members of a JWK set.

    Keys of other types and uses are skipped. Private, symmetric, weak and malformed keys are left out and reported, and so
    are all that share an id without being the same key (rulings 2.5).

    :raises Malformed: it has no list of keys, or too long a one.
    """
    entries = members.get("keys")
    if not isinstance(entries, list):
        raise Malformed("it is no JWK set: it has no list of keys")
    if len(entries) > KEYS_LIMIT:
        raise Malformed(f"it has {len(entries)} keys, {KEYS_LIMIT} are allowed")
    problems = []
    found: dict[str | None, list[ProviderKey]] = {}
    for number, entry in enumerate(entries, 1):
        try:
            key = _verification_key(entry)
        except Malformed as error:
            label = named(entry.get("kid")) if isinstance(entry, dict) and isinstance(entry.get("kid"), str) else ""
            problems.append(f"key {number} {label}".rstrip() + f" is refused: {error}")
            continue
        if key is not None:
            found.setdefault(key.key_id, []).append(key)
    nameless = found.pop(None, [])
    usable: list[ProviderKey] = []
    for key_id, keys in found.items():
        if len({key.thumbprint for key in keys}) == 1:
            usable.append(attrs.evolve(keys[0], algorithms=frozenset().union(*(key.algorithms for key in keys))))
        else:
            problems.append(f"{len(keys)} different keys are refused: they share the id {named(key_id)}")
    if len(nameless) == 1 and not found:
        usable = nameless
    elif nameless:
        problems.append(f"{len(nameless)} keys without id are refused: the set holds others")
    return KeySet(tuple(usable), tuple(problems))


def _verification_key(entry: object) -> ProviderKey | None:
    """Read one JWK; ``None`` for one that verifies nothing here.

    :raises Malformed: it has no place in a set of public keys, or is too weak, too large, or not well formed.
    """
    if not isinstance(entry, dict):
        raise Malformed("it is no JSON object")
    if entry.get("kty") == "oct" or not _SECRET_MEMBERS.isdisjoint(entry):
        raise Malformed("it is symmetric or holds private parts")
    if not isinstance(entry.get("kty"), str):
        raise Malformed("it has no type")
    algorithms = frozenset(algorithm for algorithm in _ALGORITHMS if entry.get("alg", algorithm) == algorithm)
    operations = entry.get("key_ops", ["verify"])
    verifies = entry.get("use", "sig") == "sig" and isinstance(operations, list) and "verify" in operations
    if entry["kty"] != "RSA" or not algorithms or not verifies:
        return None
    key_id = entry.get("kid")
    if not (isinstance(key_id, str) or (key_id is None and "kid" not in entry)):
        raise Malformed("its id is no text")
    exponent, modulus = _number(entry, "e"), _number(entry, "n")
    fault = fault_of(exponent, modulus)
    if fault is not None:
        raise Malformed(fault)
    return ProviderKey(key_id, _thumbprint(exponent, modulus), algorithms, RSAPublicNumbers(exponent, modulus).public_key())


def _number(entry: Mapping[str, object], member: str) -> int:
    """A ``Base64urlUInt`` (RFC 7518 2). Leading zero octets, which some providers write, change nothing."""
    text = entry.get(member)
    if not isinstance(text, str) or not text.isascii():
        raise Malformed(f"it has no {member!r}")
    return int.from_bytes(base64url(text.encode("ascii")), "big")


def _thumbprint(exponent: int, modulus: int) -> str:
    e, n = (_url_text(number.to_bytes((number.bit_length() + 7) // 8, "big")) for number in (exponent, modulus))
    return _url_text(hashlib.sha256(f'{{"e":"{e}","kty":"RSA","n":"{n}"}}'.encode("ascii")).digest())


def _url_text(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode("ascii")
