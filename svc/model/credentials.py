"""Values and port of the credentials of users and hosts; API keys are made and compared here."""

from __future__ import annotations

import hmac
import os
import struct
from typing import Final

import attrs
from zope.interface import Interface

from svc.model.events import EventBatch
from svc.model.names import RoleName
from svc.model.query_results import Network, Sealed

_CROCKFORD: Final = "0123456789abcdefghjkmnpqrstvwxyz"


@attrs.frozen
class Credential:
    """The credential of a role, with what else bears on admitting it, read in one round trip.

    ``signing_key``: id of the account's newest signing key. ``password``: the hash of the one that a user chose.
    ``expires_at``: from when on the API key proves nothing, in seconds since the epoch; ``None`` means never.
    ``restrictions``: from where the role may authenticate, as far as ``RESTRICTIONS_LIMIT``; empty means from everywhere.
    """

    account_exists: bool
    role_exists: bool
    api_key: Sealed | None = attrs.field(default=None, repr=False)
    signing_key: str | None = None
    password: Sealed | None = attrs.field(default=None, repr=False)
    expires_at: float | None = None
    restrictions: tuple[Network, ...] = ()
    #: The role's (see ``records.Caller``). Not compared: no two stores make the same.
    creation: int = attrs.field(default=0, eq=False)

    def is_expired(self, now: float) -> bool:
        """Return whether the API key proves nothing any more, at a moment in seconds since the epoch."""
        return self.expires_at is not None and self.expires_at <= now


class ICredentials(Interface):
    """The store of credentials. Users and hosts have them, each from the moment on at which it is made.

    Every method may raise ``StoreUnavailable``, and those that write ``StoreReadOnly``, as in ``interfaces``; so ``trail``.
    """

    async def credential(role: RoleName) -> Credential:
        """Return the credential of a role; an unknown role or account has an empty one."""

    async def set_api_key(role: RoleName, api_key: Sealed, trail: EventBatch | None = None) -> None:
        """Replace the API key of a role, and note when; one that expires, expires when it did.

        :raises NotFound: there is no such role.
        """

    async def rotated_at(role: RoleName) -> float | None:
        """Return when the API key was last replaced, in seconds since the epoch; ``None`` when it never was."""

    async def set_password(
        role: RoleName, password: Sealed, instead_of: Sealed | None = None, trail: EventBatch | None = None
    ) -> bool:
        """Set the hash of a role's password: whatever stands there, or ``instead_of`` alone; return whether it was set.

        A role that is unknown, or has no API key, can have no password.
        """

    def renew_password(role: RoleName, password: Sealed, instead_of: Sealed) -> None:
        """Begin to set the hash of a role's password, as above, for a login, which doesn't wait for a write.

        Where that can't be done now, it isn't.
        """


def new_api_key() -> str:
    """Make an API key: 32 random bytes as eight big-endian integers, each in Crockford's base32, lower case, unpadded.

    It has at most 56 characters, and 50 to 56 nearly always (TOK-7).
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
    """Return whether two keys are equal, in a time that tells nothing but whether their lengths are."""
    return hmac.compare_digest(a, b)
