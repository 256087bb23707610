"""RSA public keys that are too weak, or cost too much to be used.

Note [Fingerprint]. A widely used library for chips made its primes as ``k * M + (65537 ** a mod M)``, where ``M`` is the
product of the first primes, at least 71 for a key of 992 bits, so that the private key can be computed (CVE-2017-15361,
"ROCA"; Nemec and others, "The Return of Coppersmith's Attack", 2017). The product of two of these primes is a power of 65537
modulo each prime that divides ``M``. For each of the first 71 primes that happens to 1 in 2 ** 80 of all other moduli.
"""

from __future__ import annotations

import math
from typing import Final

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


def find_fault(exponent: int, modulus: int) -> str | None:
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
