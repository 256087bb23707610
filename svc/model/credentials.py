"""Values of the credentials of users and hosts: API keys, made and compared here, and public keys as SSH takes them."""

from __future__ import annotations

import base64
import codecs
import hmac
import os
import re
import struct
from typing import Final

import attrs

from svc.model.query_results import Network, Sealed

#: The annotation of a user or host that says ``false`` where the role has no API key (TOK-52).
API_KEY_ANNOTATION: Final = "authn/api-key"

_CROCKFORD: Final = "0123456789abcdefghjkmnpqrstvwxyz"

#: Eight numbers of 32 bits: of seven digits, of which the first is small, or of fewer.
_KEY_FORM: Final = re.compile(
    rb"(?=.{44,56}\Z)(?:[1-3][%(digit)b]{6}|[%(first)b][%(digit)b]{0,5}|0){8}"
    % {b"digit": _CROCKFORD.encode(), b"first": _CROCKFORD[1:].encode()}
)

#: A key as programs pass it on: in quotation marks, or with the padding that other kinds of base32 have.
_PASSED_ON: Final = re.compile(rb"([\"']?)([0-9A-Za-z]+)={0,6}\1")


@attrs.frozen
class Credential:
    """The credential of a role, with all other facts for admitting it, read in one round trip.

    ``signing_key``: id of the account's newest signing key. ``password``: the hash of the one that a user chose.
    ``expires_at``: from when on the API key proves nothing, in seconds since the epoch; ``None`` means never.
    ``restrictions``: from where the role may authenticate, as far as ``RESTRICTIONS_LIMIT``; empty means from everywhere.
    ``api_key_off``: its annotation forbids API keys, so that one that is stored proves nothing. ``missing_from``: the full
    id of the LDAP authenticator in whose directory the user has no usable entry any more, so that the API key proves
    nothing; empty if only one round has found that.
    """

    account_exists: bool
    role_exists: bool
    api_key: Sealed | None = attrs.field(default=None, repr=False)
    signing_key: str | None = None
    password: Sealed | None = attrs.field(default=None, repr=False)
    expires_at: float | None = None
    restrictions: tuple[Network, ...] = ()
    #: The role's (see ``Caller``). Not compared: no two stores make the same.
    creation: int = attrs.field(default=0, eq=False)
    epoch: int = attrs.field(default=0, eq=False)
    #: How often the API key or the password was replaced by another one.
    version: int = attrs.field(default=0, eq=False)
    api_key_off: bool = False
    missing_from: str | None = None

    def is_expired(self, now: float) -> bool:
        """Return whether the API key proves nothing any more, at a moment in seconds since the epoch."""
        return self.expires_at is not None and self.expires_at <= now


def forbids_api_key(name: str, value: str) -> bool:
    """Return whether an annotation says that its user or host has no API key (TOK-52)."""
    return name == API_KEY_ANNOTATION and value.strip(" \t\r\n").lower() == "false"


def new_api_key() -> str:
    """Make an API key: 32 random bytes as eight big-endian integers, each in Crockford's base32, lower case (TOK-7)."""
    return "".join(map(_encode_base32, struct.unpack(">8I", os.urandom(32))))


def has_key_form(evidence: bytes) -> bool:
    """Return whether evidence is written as API keys are: also in quotation marks, in capitals or with padding behind it.

    Blanks and line ends around it don't count, nor does a byte order mark before it. Only one in many billions of keys is
    too short for this check; people's passwords may be that short.
    """
    passed_on = _PASSED_ON.fullmatch(evidence.strip().removeprefix(codecs.BOM_UTF8).strip())
    if passed_on is None:
        return False
    key = passed_on[2]
    return _KEY_FORM.fullmatch(key.lower() if key.isupper() else key) is not None


def _encode_base32(number: int) -> str:
    rest, digit = divmod(number, 32)
    return (_encode_base32(rest) if rest else "") + _CROCKFORD[digit]


def is_same_key(a: bytes, b: bytes) -> bool:
    """Return whether two keys are equal, in a time that reveals nothing except whether their lengths are."""
    return hmac.compare_digest(a, b)


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
