"""Key sets of identity providers, read strictly (RFC 7517, 7518 6; ``crypto.compact``, Note [What is ours])."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs
import jwt

from svc.crypto import ed25519keys, rsakeys
from svc.crypto.compact import decode_base64url, join_algorithms
from svc.crypto.signatures import describe_key
from svc.model.key_sets import ALGORITHMS, DEFAULT_ALGORITHMS, SYNONYMS, KeySet, ProviderKey
from svc.model.strict_json import Malformed, drop_absent_members, parse_json_object
from svc.model.text import quote_text

KEYS_LIMIT: Final = 256  #: most keys in a set: each costs time when the set is read

#: The algorithms of a key by its type and curve (RFC 7518 3.1, RFC 8037 3.1).
_ALGORITHMS: Final[Mapping[tuple[str, str], frozenset[str]]] = {
    ("RSA", ""): frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}),
    ("EC", "P-256"): frozenset({"ES256"}),
    ("EC", "P-384"): frozenset({"ES384"}),
    ("EC", "P-521"): frozenset({"ES512"}),
    ("OKP", "Ed25519"): frozenset({"EdDSA"}),
}

#: How many octets a coordinate has, and the prime that it is less than (SP 800-186 3.2.1); libraries reduce what is more.
_FIELDS: Final = {
    "P-256": (32, 2**256 - 2**224 + 2**192 + 2**96 - 1),
    "P-384": (48, 2**384 - 2**128 - 2**96 + 2**32 - 1),
    "P-521": (66, 2**521 - 1),
}
#: The fault of a key that must not be known to others.
PRIVATE: Final = "it is symmetric or holds private parts"

_NO_POINT: Final = "it is no point of its curve"

_SECRET_MEMBERS: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})  # RFC 7518 6.3.2, 6.4


@attrs.frozen(str=False)
class _UnusedKey(Exception):
    """A key is for something else; ``wanted`` are the algorithms of which one would have to be allowed for it."""

    why: str
    wanted: tuple[str, ...] = ()


def parse_key_set(document: bytes, algorithms: tuple[str, ...] = DEFAULT_ALGORITHMS) -> KeySet:
    """Parse a provider's JWK set (RFC 7517 5); raises as :func:`build_key_set` and ``parse_json_object`` do."""
    return build_key_set(parse_json_object(document), algorithms)


def build_key_set(members: Mapping[str, object], algorithms: tuple[str, ...] = DEFAULT_ALGORITHMS) -> KeySet:
    """Make a set of the members of a JWK set.

    Keys of other types, uses and algorithms are ``unused``. Private, symmetric, weak and malformed keys are ``problems``,
    and so are all that share an id without being the same key (AUTH-40).

    :raises Malformed: it has no list of keys, or too long a one.
    """
    entries = members.get("keys")
    if not isinstance(entries, list):
        raise Malformed("it is no JWK set: it has no list of keys")
    if len(entries) > KEYS_LIMIT:
        raise Malformed(f"it has {len(entries)} keys, {KEYS_LIMIT} are allowed")
    problems, unused = [], []
    wanted: set[str] = set()
    found: dict[str | None, list[ProviderKey]] = {}
    for number, entry in enumerate(entries, 1):
        try:
            key = _read_key(entry, algorithms)
        except Malformed as error:
            problems.append(f"{_key_label(number, entry)} is refused: {error}")
        except _UnusedKey as error:
            unused.append(f"{_key_label(number, entry)} is not used: {error.why}")
            wanted.update(error.wanted)
        else:
            found.setdefault(key.key_id, []).append(key)
    usable = _distinct_keys(found, problems)
    return KeySet(usable, tuple(problems), tuple(unused), _sort_algorithms(wanted))


def _sort_algorithms(algorithms: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in ALGORITHMS if name in algorithms)


def _key_label(number: int, entry: object) -> str:
    key_id = entry.get("kid") if isinstance(entry, dict) else None
    return f"key {number} {describe_key(key_id)}" if isinstance(key_id, str) and key_id else f"key {number}"


def _distinct_keys(found: dict[str | None, list[ProviderKey]], problems: list[str]) -> tuple[ProviderKey, ...]:
    """Return the keys that an id, or its absence, identifies uniquely."""
    nameless = found.pop(None, [])
    usable: list[ProviderKey] = []
    for key_id, keys in found.items():
        different: dict[str, ProviderKey] = {}
        for key in keys:
            same = different.setdefault(key.thumbprint, key)
            different[key.thumbprint] = attrs.evolve(same, algorithms=same.algorithms | key.algorithms)
        if len(frozenset().union(*(key.algorithms for key in different.values()))) == sum(
            len(key.algorithms) for key in different.values()
        ):
            usable += different.values()
        else:
            problems.append(
                f"{len(keys)} different keys are refused: they share the id {describe_key(key_id)} and an algorithm"
            )
    if len(nameless) == 1 and not found:
        return tuple(nameless)
    if nameless:
        problems.append(f"{len(nameless)} keys without id are refused: the set holds others")
    return tuple(usable)


def _read_key(entry: object, allowed: tuple[str, ...]) -> ProviderKey:
    """Read one JWK; raise ``_UnusedKey`` for one that verifies nothing here."""
    kind, members = _public_members(entry)
    algorithms = _usable_algorithms(kind, members, allowed)
    key_id = members.get("kid")
    if not isinstance(key_id, str) and key_id is not None:
        raise Malformed("its id is no text")
    required = {"kty": kind, **_READERS[kind](members)}
    try:
        public = jwt.PyJWK(required, min(algorithms)).key
    except (jwt.PyJWTError, ValueError):  # that of cryptography, which PyJWT 2.10 lets through
        raise Malformed(_NO_POINT if kind == "EC" else "its numbers make no key") from None
    document = json.dumps(required, sort_keys=True, separators=(",", ":")).encode("ascii")
    return ProviderKey(key_id, _encode_octets(hashlib.sha256(document).digest()), algorithms, public)


def _public_members(entry: object) -> tuple[str, Mapping[str, Any]]:
    """Return the type of a key and the members that are there (``drop_absent_members``)."""
    if not isinstance(entry, dict):
        raise Malformed("it is no JSON object")
    members = drop_absent_members(entry)
    kind = members.get("kty")
    if kind == "oct" or any(not isinstance(members[name], int | float) for name in _SECRET_MEMBERS & members.keys()):
        raise Malformed(PRIVATE)
    if not isinstance(kind, str):
        raise Malformed("it has no type")
    return kind, members


def _usable_algorithms(kind: str, members: Mapping[str, object], allowed: tuple[str, ...]) -> frozenset[str]:
    """Return those of the allowed algorithms that type, curve and ``alg`` of a key are for.

    :raises _Unused: there are none, or it isn't for signatures, or not for verifying them.
    """
    curve = "" if kind == "RSA" else members.get("crv")
    fitting = _ALGORITHMS.get((kind, curve)) if isinstance(curve, str) else None
    if fitting is None:
        on = f" on the curve {quote_text(curve)}" if isinstance(curve, str) else ""
        raise _UnusedKey(f"keys of the type {quote_text(kind)}{on} verify nothing here")
    use, operations, name = members.get("use", "sig"), members.get("key_ops", ["verify"]), members.get("alg")
    if use != "sig":
        raise _UnusedKey(f"its 'use' is {quote_text(str(use))}, not 'sig'")
    if not isinstance(operations, list) or "verify" not in operations:
        raise _UnusedKey("its 'key_ops' is no list with 'verify'")
    if name is not None:
        fitting = fitting & {SYNONYMS.get(name, name) if isinstance(name, str) else ""}
        if not fitting:
            raise _UnusedKey(
                f"its 'alg' is {quote_text(str(name))}, which is no signature that a key of its kind verifies here"
            )
    usable = fitting.intersection(allowed)
    if not usable:
        wanted = _sort_algorithms(fitting)
        raise _UnusedKey(f"it is for {join_algorithms(wanted)}, not for {join_algorithms(allowed)}", wanted)
    return usable


# Each returns the members that make a key, apart from its type, in the one spelling that thumbprints have (RFC 7638 3.2).


def _rsa_members(members: Mapping[str, object]) -> dict[str, str]:
    # Numbers (RFC 7518 2): leading zero octets, which some providers write, change nothing.
    exponent, modulus = (int.from_bytes(_read_octets(members, name), "big") for name in ("e", "n"))
    if (fault := rsakeys.find_fault(exponent, modulus)) is not None:
        raise Malformed(fault)
    return {"e": _encode_number(exponent), "n": _encode_number(modulus)}


def _ec_members(members: Mapping[str, Any]) -> dict[str, str]:
    curve = members["crv"]
    size, prime = _FIELDS[curve]
    x, y = (_read_octets(members, name, size) for name in ("x", "y"))
    if max(int.from_bytes(x, "big"), int.from_bytes(y, "big")) >= prime:
        raise Malformed(_NO_POINT)
    return {"crv": curve, "x": _encode_octets(x), "y": _encode_octets(y)}


def _okp_members(members: Mapping[str, Any]) -> dict[str, str]:
    point = _read_octets(members, "x", ed25519keys.KEY_BYTES)
    if (fault := ed25519keys.find_fault(point)) is not None:
        raise Malformed(fault)
    return {"crv": members["crv"], "x": _encode_octets(point)}


_READERS: Final = {"RSA": _rsa_members, "EC": _ec_members, "OKP": _okp_members}


def _read_octets(members: Mapping[str, object], name: str, size: int | None = None) -> bytes:
    text = members.get(name)
    if text is None:
        raise Malformed(f"it has no {name!r}")
    if not isinstance(text, str):
        raise Malformed(f"its {name!r} is no text in base64url")
    try:
        octets = decode_base64url(text.encode("ascii", "replace"))
    except Malformed as fault:
        raise Malformed(f"its {name!r} is refused: {fault.why}") from None
    if size is not None and len(octets) != size:
        raise Malformed(f"its {name!r} has {len(octets)} octets, not {size}")
    return octets


def _encode_number(number: int) -> str:
    return _encode_octets(number.to_bytes((number.bit_length() + 7) // 8, "big"))


def _encode_octets(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode("ascii")
