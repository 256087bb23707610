"""Sealing and opening what the database must not reveal: secret values, API keys, signing keys.

Note [Names]. A value opens only under the name that it was sealed under, so that a writer to the database can't make one
variable answer with another's value, or a secret with an API key. A secret's name is the full id of its variable. All
other purposes have names from below, with a word before a slash, with which no full id begins: an account has no slash.

Note [Random nonces]. Nonces are 96 random bits. NIST SP 800-38D 8.3 allows 2**32 sealings under one key that way; at one
hundred per second that lasts for over a year, beyond which a new data key is due.

Note [Which key]. Sealed data names its key, unless that is the first one of the database: until the first rotation, earlier
versions of the program can open everything. A key is named by an id that is computed with it, and reveals nothing of it. The
database says which key seals, and which are retired: a retired one opens nothing, even where it is still given.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Collection, Sequence
from typing import Final

import attrs
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from svc.model.data_keys import StoredDataKey
from svc.model.errors import ConfigurationInvalid, WrongDataKey
from svc.model.names import RoleName
from svc.model.query_results import Sealed

#: The names of the value by which a start knows the right data key, and of one that stands in for a missing one.
CANARY: Final = "canary/"
DECOY: Final = "decoy/"

#: The name of the key of the audit's digests.
AUDIT_KEY: Final = "audit-key/"

DATA_KEY_BYTES: Final = 32
KEYS_LIMIT: Final = 8  #: most data keys that are given at a time
_FIRST: Final = b"\x01"  # the header of what is sealed under the first key
_NAMED: Final = b"\x02"  # before the id of another one
_ID_BYTES: Final = 8
_HEADER_LENGTHS: Final = {_FIRST: 1}  # all others have an id
_ID_PURPOSE: Final = b"svc: the id of a data key"
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


def stored_answer_name(caller: str, key: str, piece: int) -> str:
    """Return the name under which a piece of a kept answer is sealed; neither keys nor numbers have blanks."""
    return f"kept-answer/{caller} {key} {piece}"


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


def parse_data_keys(text: str) -> tuple[bytes, ...]:
    """Read data keys, the newest first, with blanks or line ends between them: one, or during a rotation several.

    :raises ConfigurationInvalid: there is none, one of them is none, one stands there twice, or there are too many.
    """
    keys = tuple(map(parse_data_key, text.split() or [text]))
    if len(set(keys)) < len(keys):
        raise ConfigurationInvalid("SERVICE_DATA_KEY", "has the same key twice")
    if len(keys) > KEYS_LIMIT:
        raise ConfigurationInvalid("SERVICE_DATA_KEY", f"has {len(keys)} keys, {KEYS_LIMIT} are allowed")
    return keys


def data_key_id(key: bytes) -> str:
    """Return the id of a data key, 16 hexadecimal digits, which reveals nothing of it."""
    return hmac.digest(key, _ID_PURPOSE, "sha256")[:_ID_BYTES].hex()


@attrs.frozen
class DerivedKeys:
    """Keys for one purpose, each made of a data key: the one to speak under, those to believe, and those to answer."""

    own: bytes = attrs.field(repr=False)
    accepted: Sequence[bytes] = attrs.field(repr=False)
    answered: Sequence[bytes] = attrs.field(repr=False)


class Vault:
    """AES-256-GCM under data keys, over header, nonce, ciphertext and tag; header and name are authenticated too.

    It has the keys that are given, the newest first, and seals with the one that the database names (Note [Which key]);
    before :meth:`use_stored_keys` with the first of those that are given, as the first key of a database.
    """

    __slots__ = ("_ciphers", "_forgotten", "_given", "_sealing", "stored")

    def __init__(self, *data_keys: bytes) -> None:
        self.stored: Sequence[StoredDataKey] = ()
        self._forgotten: Collection[str] = ()
        self.set_keys(data_keys)

    def set_keys(self, data_keys: Sequence[bytes]) -> None:
        """Have these keys from now on, instead of earlier ones."""
        if not data_keys or any(len(key) != DATA_KEY_BYTES for key in data_keys):
            raise ValueError(f"a data key has {DATA_KEY_BYTES} bytes")
        self._given = {data_key_id(key): key for key in data_keys}
        self._prepare_ciphers()

    def use_stored_keys(self, stored: Sequence[StoredDataKey], forgotten: Collection[str] | None = None) -> None:
        """Go by the keys of the database. ``forgotten``: the ids of those that open nothing; when left out, the retired."""
        before = self.stored, self._forgotten
        self.stored = stored
        self._forgotten = {each.key_id for each in stored if each.retired} if forgotten is None else forgotten
        if before != (self.stored, self._forgotten):
            self._prepare_ciphers()

    def _prepare_ciphers(self) -> None:
        order = [each.key_id for each in self.stored] or [next(iter(self._given))]
        self._ciphers = {
            _FIRST if key_id == order[0] else _NAMED + bytes.fromhex(key_id): AESGCM(key)
            for key_id, key in self._given.items()
            if key_id not in self._forgotten
        }
        header = _FIRST if len(order) == 1 else _NAMED + bytes.fromhex(order[-1])
        self._sealing = header, self._ciphers.get(header)

    @property
    def given_keys(self) -> tuple[bytes, ...]:
        """The keys that were given."""
        return tuple(self._given.values())

    @property
    def given_ids(self) -> tuple[str, ...]:
        """The ids of these."""
        return tuple(self._given)

    @property
    def current_id(self) -> str:
        """The id of the key that seals, which may be one that wasn't given."""
        return self.stored[-1].key_id if self.stored else next(iter(self._given))

    @property
    def needed_ids(self) -> tuple[str, ...]:
        """The ids of the keys that values are sealed under: during a rotation more than one, the current one last."""
        return tuple(each.key_id for each in self.stored if not each.retired) or (self.current_id,)

    @property
    def missing_ids(self) -> tuple[str, ...]:
        """Those of the needed ones that weren't given."""
        return tuple(key_id for key_id in self.needed_ids if key_id not in self._given)

    def seal(self, name: str, plain: bytes) -> Sealed:
        """Encrypt ``plain`` so that it opens under ``name`` only (Note [Names]); two sealings of one value differ.

        :raises WrongDataKey: the key that seals was not given.
        """
        header, cipher = self._sealing
        if cipher is None:
            raise WrongDataKey(name)
        nonce = os.urandom(_NONCE_BYTES)
        return Sealed(header + nonce + cipher.encrypt(nonce, plain, header + name.encode("utf-8")))

    def seal_next(self, key: bytes, name: str, plain: bytes) -> Sealed:
        """Encrypt as :meth:`seal` will when the database has gone over to another key."""
        header = _NAMED + bytes.fromhex(data_key_id(key))
        nonce = os.urandom(_NONCE_BYTES)
        return Sealed(header + nonce + AESGCM(key).encrypt(nonce, plain, header + name.encode("utf-8")))

    @staticmethod
    def fingerprint(sealed: Sealed) -> str:
        """Return a short text that no two sealings share, not even of one value, and that reveals nothing else."""
        header = _HEADER_LENGTHS.get(sealed[:1], 1 + _ID_BYTES)
        return hashlib.sha256(_FIRST + sealed[header : header + _NONCE_BYTES] + sealed[-_TAG_BYTES:]).hexdigest()[:24]

    def open(self, name: str, sealed: Sealed) -> bytes:
        """Return what was sealed under ``name``.

        :raises WrongDataKey: it was sealed under a key that wasn't given or is retired, or under another name, was altered
            or cut, or has a format of the future.
        """
        length = _HEADER_LENGTHS.get(sealed[:1], 1 + _ID_BYTES)
        header, ciphertext = sealed[:length], sealed[length + _NONCE_BYTES :]
        cipher = self._ciphers.get(header)
        if cipher is None or len(ciphertext) < _TAG_BYTES:
            raise WrongDataKey(name)
        try:
            return cipher.decrypt(sealed[length : length + _NONCE_BYTES], ciphertext, header + name.encode("utf-8"))
        except InvalidTag:
            raise WrongDataKey(name) from None

    def reseal(self, name: str, sealed: Sealed) -> Sealed | None:
        """Seal again, under the key that seals now, what was sealed under ``name``; ``None`` when it doesn't open."""
        try:
            return self.seal(name, self.open(name, sealed))
        except WrongDataKey:
            return None

    def derive_keys(self, purpose: bytes) -> DerivedKeys:
        """Return keys for a purpose, for messages between parties that know the data key.

        During a rotation all use the old key, which all know. Messages under retired keys are not trusted. They are
        answered, as long as the keys are given: their sender doesn't know yet.
        """
        needed = [key_id for key_id in self.needed_ids if key_id in self._given]
        retired = {each.key_id for each in self.stored if each.retired}
        made = {key_id: hmac.digest(key, purpose, "sha256") for key_id, key in self._given.items()}
        believed = [key for key_id, key in made.items() if key_id not in retired]
        own = made[needed[0]] if needed else next(iter(made.values()))
        return DerivedKeys(own, believed, list(made.values()))


class Decoy:
    """A sealed value that is none, to open where there is no other: that takes as long."""

    def __init__(self, vault: Vault, plain: bytes) -> None:
        self._vault, self._plain = vault, plain
        self._seal_plain()

    def open(self) -> bytes:
        """Open it; sealed again first where the key that seals has changed."""
        if self._current != self._vault.current_id:
            self._seal_plain()
        return self._vault.open(DECOY, self._sealed)

    def _seal_plain(self) -> None:
        self._current, self._sealed = self._vault.current_id, self._vault.seal(DECOY, self._plain)
