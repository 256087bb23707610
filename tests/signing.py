"""An identity provider on paper: its keys, key sets and tokens, good and bad."""

from __future__ import annotations

import base64
import json
import math
import secrets
from collections.abc import Mapping

from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, SECP384R1, SECP521R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ec import generate_private_key as generate_elliptic_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS, PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256, SHA384, SHA512

Json = Mapping[str, object]

DIGESTS = {"256": SHA256(), "384": SHA384(), "512": SHA512()}

#: The curve of each algorithm that has one, by its name in keys, and the octets of a coordinate.
CURVES = {
    "ES256": ("P-256", SECP256R1(), 32),
    "ES384": ("P-384", SECP384R1(), 48),
    "ES512": ("P-521", SECP521R1(), 66),
}

#: The product of the first 126 primes, the last of which is 701.
PRIMORIAL = math.prod(n for n in range(2, 702) if all(n % d for d in range(2, math.isqrt(n) + 1)))

_made: dict[tuple[str, int], RSAPrivateKey] = {}
_made_elliptic: dict[tuple[str, str], EllipticCurvePrivateKey] = {}
_made_edwards: dict[str, Ed25519PrivateKey] = {}


def private_key(name: str = "k1", bits: int = 2048) -> RSAPrivateKey:
    """The private key of that name, made once per run."""
    if (name, bits) not in _made:
        _made[name, bits] = generate_private_key(65537, bits)
    return _made[name, bits]


def elliptic_key(name: str = "k1", algorithm: str = "ES256") -> EllipticCurvePrivateKey:
    """The private key of that name for one of ``CURVES``, made once per run."""
    if (name, algorithm) not in _made_elliptic:
        _made_elliptic[name, algorithm] = generate_elliptic_key(CURVES[algorithm][1])
    return _made_elliptic[name, algorithm]


def edwards_key(name: str = "k1") -> Ed25519PrivateKey:
    """The private key of that name for EdDSA, made once per run."""
    return _made_edwards.setdefault(name, Ed25519PrivateKey.generate())


def roca_prime() -> int:
    """A prime of 1024 bits as a broken library makes them: ``k * M + (65537 ** a mod M)`` (``svc.crypto.key_sets``)."""
    least, most = (3 << 1022) // PRIMORIAL + 1, (1 << 1024) // PRIMORIAL - 1
    while True:
        k, a = least + secrets.randbelow(most - least), secrets.randbelow(PRIMORIAL)
        candidate = k * PRIMORIAL + pow(65537, a, PRIMORIAL)
        if all(pow(base, candidate - 1, candidate) == 1 for base in (2, 3, 5)):
            return candidate


def base64url(octets: bytes) -> str:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode("ascii")


def number(value: int) -> str:
    """A ``Base64urlUInt``."""
    return base64url(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def jwk(name: str = "k1", bits: int = 2048, **members: object) -> dict[str, object]:
    """The public key of that name as a JWK; ``members`` are added, and left out where they are ``None``."""
    numbers = private_key(name, bits).public_key().public_numbers()
    entry = {"kty": "RSA", "kid": name, "n": number(numbers.n), "e": number(numbers.e), **members}
    return {member: value for member, value in entry.items() if value is not None}


def jwk_for(algorithm: str, name: str = "k1", **members: object) -> dict[str, object]:
    """The public key of that name with which this algorithm verifies, as :func:`jwk` tells it; it names no algorithm."""
    if algorithm == "EdDSA":
        entry = {
            "kty": "OKP",
            "crv": "Ed25519",
            "kid": name,
            "x": base64url(edwards_key(name).public_key().public_bytes_raw()),
        }
    elif algorithm in CURVES:
        curve, _, size = CURVES[algorithm]
        point = elliptic_key(name, algorithm).public_key().public_numbers()
        x, y = (base64url(coordinate.to_bytes(size, "big")) for coordinate in (point.x, point.y))
        entry = {"kty": "EC", "crv": curve, "kid": name, "x": x, "y": y}
    else:
        return jwk(name, 2048, **members)
    return {member: value for member, value in {**entry, **members}.items() if value is not None}


def jwks(*entries: object) -> bytes:
    """A document that holds the keys, ``k1`` alone if none are given."""
    return json.dumps({"keys": list(entries) or [jwk()]}).encode("utf-8")


def signed(header: Json | bytes, payload: Json | bytes, key: str = "k1", algorithm: str = "RS256") -> bytes:
    """A compact JWS with a right signature, whatever its header says."""
    parts = [part if isinstance(part, bytes) else json.dumps(part).encode("utf-8") for part in (header, payload)]
    return sign(".".join(map(base64url, parts)).encode("ascii"), key, algorithm)


def sign(signing_input: bytes, key: str = "k1", algorithm: str = "RS256") -> bytes:
    """Sign two parts that are encoded already."""
    return signing_input + b"." + base64url(signature(signing_input, key, algorithm)).encode("ascii")


def signature(signing_input: bytes, key: str = "k1", algorithm: str = "RS256") -> bytes:
    """The signature by the key of that name for the algorithm."""
    if algorithm == "EdDSA":
        return edwards_key(key).sign(signing_input)
    digest = DIGESTS[algorithm[2:]]
    if algorithm in CURVES:
        return raw(elliptic_key(key, algorithm).sign(signing_input, ECDSA(digest)), CURVES[algorithm][2])
    padding = PSS(MGF1(digest), digest.digest_size) if algorithm.startswith("PS") else PKCS1v15()
    return private_key(key).sign(signing_input, padding, digest)


def raw(der: bytes, size: int) -> bytes:
    """A signature by ECDSA as JOSE writes it: two numbers of so many octets (RFC 7518 3.4)."""
    return b"".join(part.to_bytes(size, "big") for part in decode_dss_signature(der))


def token(claims: Json | bytes, key: str = "k1", algorithm: str = "RS256", **header: object) -> bytes:
    """A good token. ``header`` is added to it, and left out where it is ``None``."""
    members = {"alg": algorithm, "typ": "JWT", "kid": key, **header}
    return signed({name: value for name, value in members.items() if value is not None}, claims, key, algorithm)


def decoded(text: bytes) -> bytes:
    """The octets of base64url without padding."""
    return base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4))
