"""Key sets of identity providers, read strictly (RFC 7517, 7518 6; ``crypto.jws``, Note [What is ours]).

Note [Fingerprint]. A widely used library for chips made its primes as ``k * M + (65537 ** a mod M)``, where ``M`` is the
product of the first primes, at least 71 for a key of 992 bits, so that the private key can be computed (CVE-2017-15361,
"ROCA"; Nemec and others, "The Return of Coppersmith's Attack", 2017). The product of two of these primes is a power of 65537
modulo each prime that divides ``M``. For each of the first 71 primes that happens to 1 in 2 ** 80 of all other moduli.

Note [Small orders]. Eight points have an order of 1, 2, 4 or 8. Under a key that is one of these anybody can write
signatures, and libraries take them. Their ``y`` is 1, -1, 0, or a root of ``d*y^4 + 2*y^2 - 1``, the double having ``y`` 0.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs
import jwt

from svc.crypto.jws import decode_base64url, describe_key, join_algorithms
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
    if (fault := find_rsa_fault(exponent, modulus)) is not None:
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
    point = _read_octets(members, "x", ED25519_BYTES)
    if (fault := find_ed25519_fault(point)) is not None:
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


#: Bits of a modulus. Below, a key is weak (NIST SP 800-131A, RFC 7518 3.3); above, a verification takes too long.
MODULUS_BITS: Final = range(2048, 8192 + 1)

#: Public exponents: at least 65537 (FIPS 186-5 A.1.1), of 32 bits at most, since a long one makes verification slow.
EXPONENTS: Final = range(65537, 1 << 32)

_FACTORS_BELOW: Final = 752  # no prime below divides a modulus (NIST SP 800-89, 5.3.3)
_PRIMES: Final = tuple(n for n in range(3, _FACTORS_BELOW, 2) if all(n % d for d in range(3, math.isqrt(n) + 1, 2)))
_PRODUCT: Final = math.prod(_PRIMES)


def _powers_modulo(prime: int) -> frozenset[int]:
    """Return the powers of 65537 modulo a prime."""
    powers, power = set[int](), 1
    while power not in powers:
        powers.add(power)
        power = power * 65537 % prime
    return frozenset(powers)


# Of the first 71 primes, the last of which is 353; 2 says nothing.
_FINGERPRINT: Final = tuple((prime, _powers_modulo(prime)) for prime in _PRIMES if prime <= 353)


def find_rsa_fault(exponent: int, modulus: int) -> str | None:
    """Return what is wrong with a public key, in words that can stand after "it is refused:"; ``None`` when nothing is."""
    if modulus.bit_length() not in MODULUS_BITS:
        return f"it has {modulus.bit_length()} bits; {MODULUS_BITS[0]} to {MODULUS_BITS[-1]} are allowed"
    if exponent not in EXPONENTS or not exponent % 2:
        return f"its exponent is not an odd number from {EXPONENTS[0]} to {EXPONENTS[-1]}"
    if not modulus % 2:
        return "its modulus is even"
    if math.gcd(modulus, _PRODUCT) != 1:
        return f"its modulus has a prime factor below {_FACTORS_BELOW}"
    if has_fingerprint(modulus):
        return "it was made by a library whose keys can be broken (CVE-2017-15361); have the provider make another"
    return None


def has_fingerprint(modulus: int) -> bool:
    """Return whether a modulus, of 992 bits or more, looks like those of Note [Fingerprint]."""
    return all(modulus % prime in powers for prime, powers in _FINGERPRINT)


ED25519_BYTES: Final = 32

_P: Final = 2**255 - 19
_D: Final = -121665 * pow(121666, -1, _P) % _P
_SIGN: Final = 1 << 255


def find_ed25519_fault(octets: bytes) -> str | None:
    """Return what is wrong with a public key, in words that can stand after "it is refused:"; ``None`` when nothing is."""
    number = int.from_bytes(octets, "little")
    y = number % _SIGN
    square = (y * y - 1) * (_D * y * y + 1) % _P  # of x, times a square
    if y >= _P or pow(square, (_P - 1) // 2, _P) == _P - 1 or (number >= _SIGN and not square):
        return "it is no point of its curve"
    if not square or not y or not (_D * y**4 + 2 * y * y - 1) % _P:
        return "its point is of a small order, so that anybody could sign for it"
    return None
