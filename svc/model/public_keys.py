"""Public keys of users, as SSH takes them.

A key is one line, ``algorithm key comment``, as in an ``authorized_keys`` file (sshd(8)). The second word is the base64 of
fields, each preceded by its length in four bytes; the first field names the algorithm again (RFC 4253 6.6). So a key that
was cut off, or confused with another or with a private one, can be told from a good one, whose numbers are not checked.
"""

from __future__ import annotations

import base64
from typing import Final

#: How many fields the key of an algorithm has (RFC 4253 6.6, RFC 5656 3.1, RFC 8709 4; OpenSSH, PROTOCOL.u2f).
_FIELDS: Final = {
    "ssh-rsa": 3,
    "ssh-dss": 5,
    "ssh-ed25519": 2,
    "ecdsa-sha2-nistp256": 3,
    "ecdsa-sha2-nistp384": 3,
    "ecdsa-sha2-nistp521": 3,
    "sk-ssh-ed25519@openssh.com": 3,
    "sk-ecdsa-sha2-nistp256@openssh.com": 4,
}

#: The longest key, in characters; one of RSA with 16,384 bits has some 2,800.
KEY_LIMIT: Final = 8192

#: Most keys of a user that are returned, since anybody may ask.
KEYS_LIMIT: Final = 1000


def parse_public_key(text: str) -> str:
    """Return a public key as it is stored, one line.

    :raises ValueError: it is none that SSH takes; the message, which doesn't repeat it, says so.
    """
    line = normalize_key_line(text)
    if not is_public_key(line):
        raise ValueError("Invalid public key format")
    return line


def normalize_key_line(text: str) -> str:
    """Return a text that may be a public key as it is stored: its words parted by single blanks.

    :raises ValueError: it is longer than any key, or has characters that can't be printed, several lines among them.
    """
    if len(text) > KEY_LIMIT or not text.strip().isprintable():
        raise ValueError("Invalid public key format")
    return " ".join(text.split())


def is_public_key(line: str) -> bool:
    """Return whether a line is a public key that SSH takes."""
    algorithm, encoded = [*line.split(), "", ""][:2]
    try:
        data = base64.b64decode(encoded.encode("ascii"), validate=True)
    except ValueError:
        return False
    if base64.b64encode(data).decode("ascii") != encoded:
        return False
    fields = []
    while data:
        length = int.from_bytes(data[:4])
        field, data = data[4 : 4 + length], data[4 + length :]
        if not field or len(field) < length:
            return False
        fields.append(field)
    return len(fields) == _FIELDS.get(algorithm) and fields[0] == algorithm.encode("ascii")
