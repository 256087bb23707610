"""Ed25519 public keys that prove nothing, because no or any signature is theirs (RFC 8032 5.1).

Note [Small orders]. Eight points have an order of 1, 2, 4 or 8. Under a key that is one of these anybody can write
signatures, and libraries take them. Their ``y`` is 1, -1, 0, or a root of ``d*y^4 + 2*y^2 - 1``, the double having ``y`` 0.
"""

from __future__ import annotations

from typing import Final

KEY_BYTES: Final = 32

_P: Final = 2**255 - 19
_D: Final = -121665 * pow(121666, -1, _P) % _P
_SIGN: Final = 1 << 255


def find_fault(octets: bytes) -> str | None:
    """Return what is wrong with a public key, in words that can stand after "it is refused:"; ``None`` when nothing is."""
    number = int.from_bytes(octets, "little")
    y = number % _SIGN
    square = (y * y - 1) * (_D * y * y + 1) % _P  # of x, times a square
    if y >= _P or pow(square, (_P - 1) // 2, _P) == _P - 1 or (number >= _SIGN and not square):
        return "it is no point of its curve"
    if not square or not y or not (_D * y**4 + 2 * y * y - 1) % _P:
        return "its point is of a small order, so that anybody could sign for it"
    return None
