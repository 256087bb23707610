"""Sealing and opening what the database must not reveal: secret values, API keys, signing keys.

Note [Names]. A value opens only under the name that it was sealed under, so that a writer to the database can't make one
variable answer with another's value, or a secret with an API key. A secret's name is the full id of its variable. All
other purposes have names from below, with a word before a slash, with which no full id begins: an account has no slash.

Note [Random nonces]. Nonces are 96 random bits. NIST SP 800-38D 8.3 allows 2**32 sealings under one key that way; at one
hundred per second that lasts for over a year, beyond which a new data key is due.
"""

from __future__ import annotations

import base64
import hashlib
import os
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from svc.model.errors import ConfigurationInvalid, WrongDataKey
from svc.model.names import RoleName
from svc.model.query_results import Sealed

#: The names of the value by which a start knows the right data key, and of one that stands in for a missing one.
CANARY: Final = "canary/"
DECOY: Final = "decoy/"

DATA_KEY_BYTES: Final = 32
_FORMAT: Final = b"\x01"
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16


def api_key_name(role: RoleName) -> str:
    """Return the name under which the API key of ``role`` is sealed."""
    return f"api-key/{role}"


def password_name(role: RoleName) -> str:
    """Return the name under which the hash of the password of ``role`` is sealed."""
    return f"password/{role}"


def signing_key_name(account: str, key_id: str) -> str:
    """Return the name under which a signing key is sealed: a key that is moved to another account doesn't open there."""
    return f"signing-key/{account}/{key_id}"


def new_data_key() -> str:
    """Make a data key, as the text that :func:`parse_data_key` reads."""
    return base64.b64encode(os.urandom(DATA_KEY_BYTES)).decode("ascii")


def parse_data_key(text: str) -> bytes:
    """Read a data key: standard base64, padded and without blanks, of 32 bytes.

    :raises ConfigurationInvalid: it is anything else. The message doesn't repeat it.
    """
    try:
        key = base64.b64decode(text, validate=True)
    except ValueError:
        key = b""
    if len(key) != DATA_KEY_BYTES or base64.b64encode(key).decode("ascii") != text:
        message = f"must be the base64 text of {DATA_KEY_BYTES} bytes; `svc data-key generate` makes one"
        raise ConfigurationInvalid("SERVICE_DATA_KEY", message)
    return key


class Vault:
    """AES-256-GCM under the data key, over format byte, nonce, ciphertext and tag; format and name are authenticated too."""

    __slots__ = ("_cipher",)

    def __init__(self, data_key: bytes) -> None:
        if len(data_key) != DATA_KEY_BYTES:
            raise ValueError(f"a data key has {DATA_KEY_BYTES} bytes")
        self._cipher = AESGCM(data_key)

    def seal(self, name: str, plain: bytes) -> Sealed:
        """Encrypt ``plain`` so that it opens under ``name`` only (Note [Names]); two sealings of one value differ."""
        nonce = os.urandom(_NONCE_BYTES)
        return Sealed(_FORMAT + nonce + self._cipher.encrypt(nonce, plain, _FORMAT + name.encode("utf-8")))

    @staticmethod
    def fingerprint(sealed: Sealed) -> str:
        """Return a short text that no two sealings share, not even of one value, and that reveals nothing else."""
        return hashlib.sha256(sealed[: 1 + _NONCE_BYTES] + sealed[-_TAG_BYTES:]).hexdigest()[:24]

    def open(self, name: str, sealed: Sealed) -> bytes:
        """Return what was sealed under ``name``.

        :raises WrongDataKey: it was sealed under another key or name, was altered or cut, or has a format of the future.
        """
        nonce, ciphertext = sealed[1 : 1 + _NONCE_BYTES], sealed[1 + _NONCE_BYTES :]
        if sealed[:1] != _FORMAT or len(ciphertext) < _TAG_BYTES:
            raise WrongDataKey(name)
        try:
            return self._cipher.decrypt(nonce, ciphertext, _FORMAT + name.encode("utf-8"))
        except InvalidTag:
            raise WrongDataKey(name) from None
