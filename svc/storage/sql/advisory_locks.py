"""The numbers of advisory locks on what people name: policies, keys of requests, mappings of authenticators.

Note [Names apart]. PostgreSQL knows an advisory lock by 64 bits. Its hashes of texts can be inverted: a name can be chosen
that has the number of any other lock, and keeps others out. So the bits are the beginning of a SHA-256. They are given as
two integers of 32 bits, which PostgreSQL keeps apart from one integer of 64 bits; this program's constants are of that kind.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Final

#: The upper half of all numbers of this program that are constants: ``svc`` and a blank in ASCII.
CONSTANTS: Final = 0x73766320


def lock_numbers(purpose: str, *names: str) -> tuple[int, int]:
    """Return the two numbers of the lock for a purpose on what has these names, which have no NUL."""
    first, second = struct.unpack_from(">ii", hashlib.sha256("\0".join((purpose, *names)).encode("utf-8")).digest())
    return first, second
