"""Tests of ``svc.crypto.key_sets``: which public keys prove nothing."""

from __future__ import annotations

import math
import secrets

from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.crypto.key_sets import find_rsa_fault, has_fingerprint
from tests.signing import PRIMORIAL as M
from tests.signing import roca_prime

E = 65537

#: The primes below 752.
PRIMES = [n for n in range(2, 752) if all(n % d for d in range(2, math.isqrt(n) + 1))]

#: The modulus of a key that a library of this kind made, as published beside a detector of them.
KNOWN = int(
    "9dcd7420e420c270a68060eb8b5aa7457a9f6648f86fafed2775cc1f79ae962f1e63f1b9e51c55f9ea6fdc7332e9b0058c9ff2eb1fc89855"
    "029cf6aafe21e689feb38ac9ffb12f1ce371bb5d0e9aae64161abce74b4244bf68f1edb4411f756a097c8929c14740245ea355f8332d1aa3"
    "6bb50c7dcb4505da8de02e4e53d38f8df06097da7524df0df93db48eac8cc4af2d3a16257eb2b2adca6ba464e5974fa92550d31b1babf161"
    "e7692d00b86e3dd886ecab4abfbe1a8f8cc263ff4af55cdb45f4249a5193925f5e983d762f0b6800943eb0267b08f42ed311ce1f5c86eacb"
    "c8ce4d3cb7a2fee1ef5641423a1cf4114e5ecf50034a60a412523af9e6f4aa11",
    16,
)


def without_factor(bits: int) -> int:
    """An odd number of so many bits, at random, that no prime below 752 divides, as any modulus is."""
    while True:
        number = secrets.randbits(bits) | 1 << bits - 1 | 1
        if all(number % prime for prime in PRIMES):
            return number


class FaultTests(SynchronousTestCase):
    """``find_rsa_fault``."""

    def setUp(self) -> None:
        """A modulus like any other."""
        self.modulus = without_factor(2048)

    def test_sound(self) -> None:
        """Nothing is wrong with a key of 2048 to 8192 bits."""
        for bits in (2048, 3072, 4096, 8192):
            self.assertIsNone(find_rsa_fault(E, without_factor(bits)))

    def test_faults(self) -> None:
        """Each kind of weak or costly key is refused in words of its own (AUTH-40)."""
        for exponent, modulus, words in (
            (E, without_factor(2047), "it has 2047 bits; 2048 to 8192 are allowed"),
            (E, without_factor(8193), "it has 8193 bits; 2048 to 8192 are allowed"),
            (E, 0, "it has 0 bits"),
            *((exponent, self.modulus, "its exponent is not an odd number") for exponent in (0, 1, 2, 3, 65535, 65538)),
            (1 << 32 | 1, self.modulus, "its exponent is not an odd number"),
            (E, self.modulus + 1, "its modulus is even"),
            *((E, without_factor(2048) * prime, "a prime factor below 752") for prime in PRIMES[1:]),
            (E, roca_prime() * roca_prime(), "CVE-2017-15361"),
            (E, KNOWN, "CVE-2017-15361"),
        ):
            self.assertIn(words, find_rsa_fault(exponent, modulus) or "nothing", modulus)


class FingerprintTests(SynchronousTestCase):
    """``has_fingerprint``."""

    def test_ordinary_keys(self) -> None:
        """Not one of many keys that were made otherwise has the fingerprint."""
        made = [generate_private_key(E, 1024).public_key().public_numbers().n for _ in range(40)]
        others = [without_factor(1024) * without_factor(1024) for _ in range(400)]
        self.assertEqual([modulus for modulus in made + others if has_fingerprint(modulus)], [])

    @given(st.integers(0, M), st.integers(0, M), st.integers(1, 1 << 60), st.integers(1, 1 << 60))
    def test_every_key_of_the_form(self, a: int, b: int, k: int, m: int) -> None:
        """Whatever the secrets of a key of that form are, it has the fingerprint; one half of that form isn't enough."""
        p, q = k * M + pow(E, a, M), m * M + pow(E, b, M)
        self.assertTrue(has_fingerprint(p * q))
        self.assertFalse(has_fingerprint(p * without_factor(1024)))
