"""What roles prove themselves with: API keys."""

from __future__ import annotations

import hmac
import os
import struct
from typing import Final

_CROCKFORD: Final = "0123456789abcdefghjkmnpqrstvwxyz"


def new_api_key() -> str:
    """Make an API key: 32 random bytes as eight big-endian integers, each in Crockford's base32, lower case, unpadded.

    It has at most 56 characters, and 50 to 56 nearly always (wire facts, authn 1.4).
    """
    return "".join(map(_base32, struct.unpack(">8I", os.urandom(32))))


def _base32(number: int) -> str:
    digits = ""
    while True:
        number, digit = divmod(number, 32)
        digits = _CROCKFORD[digit] + digits
        if not number:
            return digits


def same_key(a: bytes, b: bytes) -> bool:
    """Whether two keys are equal, in a time that tells nothing but whether their lengths are."""
    return hmac.compare_digest(a, b)
