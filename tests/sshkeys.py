"""Public keys for SSH."""

from __future__ import annotations

import base64


def encoded(*fields: bytes) -> str:
    """The second word of a key: its fields, each after its length."""
    return base64.b64encode(b"".join(len(field).to_bytes(4) + field for field in fields)).decode("ascii")


def ssh_key(number: int) -> str:
    """A key without a comment; each number gives another."""
    return f"ssh-ed25519 {encoded(b'ssh-ed25519', bytes([number] * 32))}"


#: Three keys without comments.
ONE, TWO, THREE = map(ssh_key, (1, 2, 3))

#: One whose text ends with padding.
RSA = f"ssh-rsa {encoded(b'ssh-rsa', bytes([1, 0, 1]), bytes([0, *[170] * 255]))}"
