"""Refresh tokens: how they are made, known again, and kept.

Note [What a token is]. A token has the id of its session, 256 bits that nobody can guess, and a code (HMAC-SHA-256) over
both and the role, in base64url. The code distinguishes tokens that this service issued from guesses, without a query to the
store: so a guess is refused as one, and a token that was used before is known again, though only the last two are kept.

Note [Kept]. The store keeps of a token a keyed digest alone. Keys are derived from the data key, for each purpose one, and
while that is rotated from the old one, which every server knows. A reader of the database can use none of it; all sessions
end when the old data key is retired.

Note [The next one]. The next token is derived, under a key, from the one that is presented and from a random seed, which
the store keeps. So a client whose answer was lost, or two commands that renew at the same moment, are given the same one.
"""

from __future__ import annotations

import base64
import hmac
import os
from typing import Final

import attrs

from svc.crypto.vault import Vault
from svc.model.names import RoleName

_ID_BYTES: Final = 16
_SECRET_BYTES: Final = 32
_CODE_BYTES: Final = 16
#: A token's text: 64 bytes, whose base64 ends with two characters of padding, left out.
_TEXT_BYTES: Final = 86

SEED_BYTES: Final = 32


def new_session_id() -> str:
    """Make the id of a session, which is no secret: 32 hexadecimal digits."""
    return os.urandom(_ID_BYTES).hex()


_PURPOSE: Final = b"svc: refresh tokens of sessions, "


@attrs.frozen(eq=False, repr=False)
class RefreshTokens:
    """Makes refresh tokens under the data key of a vault, and knows them again (Note [What a token is])."""

    _vault: Vault

    def first_token(self, role: RoleName, session_id: str) -> str:
        """Make the first token of a session."""
        return self._encode_token(role, session_id, os.urandom(_SECRET_BYTES))

    def next_token(self, role: RoleName, session_id: str, token: bytes, seed: bytes) -> str:
        """Return the token that follows one, by a seed (Note [The next one])."""
        return self._encode_token(role, session_id, hmac.digest(self._derive_key(b"next"), seed + token, "sha256"))

    def find_session(self, role: RoleName, token: bytes) -> str | None:
        """Return the session that a token was given out for, ``None`` for a text that never was a token of this role."""
        if len(token) != _TEXT_BYTES:
            return None
        try:
            found = base64.urlsafe_b64decode(token + b"==")
        except ValueError:
            return None
        session_id, secret = found[:_ID_BYTES].hex(), found[_ID_BYTES:-_CODE_BYTES]
        known = self._encode_token(role, session_id, secret).encode("ascii")
        return session_id if hmac.compare_digest(token, known) else None

    def digest_token(self, token: bytes) -> bytes:
        """Return the digest of a token, as it is kept."""
        return hmac.digest(self._derive_key(b"digests"), token, "sha256")

    def _derive_key(self, purpose: bytes) -> bytes:
        return self._vault.derive_keys(_PURPOSE + purpose).own

    def _encode_token(self, role: RoleName, session_id: str, secret: bytes) -> str:
        plain = bytes.fromhex(session_id) + secret
        code = hmac.digest(self._derive_key(b"codes"), plain + str(role).encode("utf-8"), "sha256")[:_CODE_BYTES]
        return base64.urlsafe_b64encode(plain + code).rstrip(b"=").decode("ascii")
