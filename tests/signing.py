"""An identity provider on paper: its keys, key sets and tokens, good and bad."""

from __future__ import annotations

import base64
import json
import math
import secrets
from collections.abc import Mapping

from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256, SHA384, SHA512

Json = Mapping[str, object]

_DIGESTS = {"RS256": SHA256(), "RS384": SHA384(), "RS512": SHA512()}


#: The product of the first 126 primes, the last of which is 701.
PRIMORIAL = math.prod(n for n in range(2, 702) if all(n % d for d in range(2, math.isqrt(n) + 1)))

_made: dict[tuple[str, int], RSAPrivateKey] = {}


def private_key(name: str = "k1", bits: int = 2048) -> RSAPrivateKey:
    """The private key of that name, made once per run."""
    if (name, bits) not in _made:
        _made[name, bits] = generate_private_key(65537, bits)
    return _made[name, bits]


def roca_prime() -> int:
    """A prime of 1024 bits as a broken library makes them: ``k * M + (65537 ** a mod M)`` (``svc.crypto.rsakeys``)."""
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


def jwks(*entries: object) -> bytes:
    """A document that holds the keys, ``k1`` alone if none are given."""
    return json.dumps({"keys": list(entries) or [jwk()]}).encode("utf-8")


def signed(header: Json | bytes, payload: Json | bytes, key: str = "k1", algorithm: str = "RS256") -> bytes:
    """A compact JWS with a right signature, whatever its header says."""
    parts = [part if isinstance(part, bytes) else json.dumps(part).encode("utf-8") for part in (header, payload)]
    return sign(".".join(map(base64url, parts)).encode("ascii"), key, algorithm)


def sign(signing_input: bytes, key: str = "k1", algorithm: str = "RS256") -> bytes:
    """Sign two parts that are encoded already."""
    signature = private_key(key).sign(signing_input, PKCS1v15(), _DIGESTS[algorithm])
    return signing_input + b"." + base64url(signature).encode("ascii")


def token(claims: Json | bytes, key: str = "k1", algorithm: str = "RS256", **header: object) -> bytes:
    """A good token. ``header`` is added to it, and left out where it is ``None``."""
    members = {"alg": algorithm, "typ": "JWT", "kid": key, **header}
    return signed({name: value for name, value in members.items() if value is not None}, claims, key, algorithm)
