"""Tests of ``svc.crypto.key_sets``: which public keys prove nothing."""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.crypto.key_sets import ED25519_BYTES, find_ed25519_fault

P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P
SIGN = 1 << 255

#: The ``y`` of the points of order 8, as published beside other libraries.
EIGHTH = int.from_bytes(bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"), "little") % SIGN


def encoded(number: int) -> bytes:
    """A number as a key."""
    return number.to_bytes(ED25519_BYTES, "little")


class FaultTests(SynchronousTestCase):
    """``find_ed25519_fault``."""

    @given(st.binary(min_size=32, max_size=32))
    def test_made_keys_are_sound(self, seed: bytes) -> None:
        """Nothing is wrong with a key that was made as keys are made."""
        self.assertIsNone(find_ed25519_fault(Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()))

    def test_small_orders(self) -> None:
        """The eight points of a small order are refused, and there are no others."""
        small = [1, P - 1, 0, SIGN, *(y + sign for y in (EIGHTH, P - EIGHTH) for sign in (0, SIGN))]
        for number in small:
            self.assertIn("small order", str(find_ed25519_fault(encoded(number))), hex(number))
        self.assertEqual(len({encoded(number) for number in small}), 8)

    def test_small_orders_are_small(self) -> None:
        """The double of a point of order 8 has the ``y`` of one of order 4, which is 0."""
        square = (EIGHTH**2 - 1) * pow(D * EIGHTH**2 + 1, -1, P) % P
        self.assertEqual((EIGHTH**2 + square) % P, 0)

    def test_second_spellings(self) -> None:
        """A ``y`` beyond the field, and a sign where ``x`` is 0, spell no key (RFC 8032 5.1.3)."""
        for number in (P, P + 1, P + 18, SIGN - 1, SIGN + P, 2 * SIGN - 1, SIGN + 1, SIGN + P - 1):
            self.assertEqual(find_ed25519_fault(encoded(number)), "it is no point of its curve", hex(number))

    @given(st.integers(0, 2**256 - 1).map(encoded))
    def test_half_of_all_texts_are_no_points(self, octets: bytes) -> None:
        """Any octets are a key or are not; of what isn't one the library takes no signature."""
        if find_ed25519_fault(octets) == "it is no point of its curve":
            self.assertRaises(InvalidSignature, Ed25519PublicKey.from_public_bytes(octets).verify, bytes(64), b"")
