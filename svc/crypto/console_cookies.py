"""The state that the console keeps in a browser: sessions and pending sign-ins, sealed, and the tokens of its forms.

Note [Sealed in the browser]. The server keeps nothing of a session of the console. All of it is in a cookie, encrypted and
authenticated (AES-256-GCM) under a key that is derived from the data key. So every process and every server of a cluster
reads it, a follower too, and nobody else can read or change it. While the data key is rotated all seal under the old one,
which all know; when that is retired, sessions end.

Note [Forms]. A form carries a code (HMAC-SHA-256) over a secret of the browser that it was made for: the random id of the
session, or before there is one a random text in a cookie of its own. A page of another site can't have it.
"""

from __future__ import annotations

import base64
import hmac
import json
import os
import re
from typing import Final

import attrs
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from svc.crypto.vault import Vault
from svc.model.errors import InvalidName
from svc.model.names import RoleName

_SESSIONS: Final = b"svc: sessions of the console, 1"
_SIGN_INS: Final = b"svc: sign-ins of the console, 1"
_FORMS: Final = b"svc: forms of the console"

_NONCE_BYTES: Final = 12
_SECRET_BYTES: Final = 16

#: The longest text that is looked at; browsers keep no longer cookies.
_TEXT_LIMIT: Final = 4096

_SECRET: Final = re.compile(f"[0-9a-f]{{{2 * _SECRET_BYTES}}}", re.ASCII)


def new_form_secret() -> str:
    """Make what the forms of one browser are bound to: 32 random hexadecimal digits."""
    return os.urandom(_SECRET_BYTES).hex()


def is_form_secret(text: str) -> bool:
    """Return whether a text may have been made by :func:`new_form_secret`."""
    return _SECRET.fullmatch(text) is not None


@attrs.frozen
class ConsoleSession:
    """A session of the console: its role as it was proven (see ``Admitted``), when that was, and when it was used last.

    Moments are in whole seconds since 1970. ``id`` is random, and another one after each sign-in; forms are bound to it.
    """

    role: RoleName
    creation: int
    epoch: int
    credential_version: int
    began_at: int
    used_at: int
    id: str = attrs.field(factory=new_form_secret, repr=False)


@attrs.frozen
class PendingSignIn:
    """A sign-in at a provider of OpenID Connect that a browser has begun, and the page that it is to go on with.

    ``issuer`` is the provider, which ``names_issuer`` if its answer has ``iss``. ``began_at`` is in seconds since 1970.
    """

    account: str
    service_id: str
    issuer: str
    names_issuer: bool
    state: str = attrs.field(repr=False)
    nonce: str = attrs.field(repr=False)
    verifier: str = attrs.field(repr=False)
    redirect_uri: str
    return_to: str
    began_at: int


@attrs.frozen(eq=False, repr=False)
class ConsoleCookies:
    """Seals and opens sessions, and makes the tokens of forms, under the data key of a vault."""

    _vault: Vault

    def seal_session(self, session: ConsoleSession) -> str:
        """Return a session as the text of a cookie (Note [Sealed in the browser]); two of one session differ."""
        numbers = (session.creation, session.epoch, session.credential_version, session.began_at, session.used_at)
        return self._seal_values(_SESSIONS, [str(session.role), *numbers, session.id])

    def open_session(self, text: str) -> ConsoleSession | None:
        """Return the session in the text of a cookie; ``None`` for a text that no server of the cluster has made."""
        plain = self._open_text(_SESSIONS, text)
        return None if plain is None else _parse_session(plain)

    def seal_sign_in(self, begun: PendingSignIn) -> str:
        """Return a sign-in that was begun as the text of a cookie."""
        return self._seal_values(_SIGN_INS, list(attrs.astuple(begun)))

    def open_sign_in(self, text: str) -> PendingSignIn | None:
        """Return the sign-in in the text of a cookie; ``None`` for a text that no server of the cluster has made."""
        plain = self._open_text(_SIGN_INS, text)
        try:
            return None if plain is None else PendingSignIn(*json.loads(plain))
        except (ValueError, TypeError):  # another version of the program wrote it
            return None

    def _seal_values(self, what: bytes, values: list[object]) -> str:
        nonce, plain = os.urandom(_NONCE_BYTES), json.dumps(values, ensure_ascii=False).encode("utf-8")
        sealed = AESGCM(self._vault.derive_keys(what).own).encrypt(nonce, plain, what)
        return base64.urlsafe_b64encode(nonce + sealed).rstrip(b"=").decode("ascii")

    def _open_text(self, what: bytes, text: str) -> bytes | None:
        if len(text) > _TEXT_LIMIT or not text.isascii():
            return None
        try:
            sealed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        except ValueError:
            return None
        for key in self._vault.derive_keys(what).accepted:
            try:
                return AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], what)
            except (InvalidTag, ValueError):
                continue
        return None

    def form_token(self, secret: str) -> str:
        """Return the token of the forms of a browser with this secret (Note [Forms])."""
        return _form_code(self._vault.derive_keys(_FORMS).own, secret)

    def is_form_token(self, secret: str, token: str) -> bool:
        """Return whether a form with this token was made for a browser with this secret."""
        codes = (_form_code(key, secret) for key in self._vault.derive_keys(_FORMS).accepted)
        return any(hmac.compare_digest(code.encode("ascii"), token.encode("utf-8", "replace")) for code in codes)


def _parse_session(plain: bytes) -> ConsoleSession | None:
    try:
        role, *rest = json.loads(plain)
        return ConsoleSession(RoleName.parse(role), *rest)
    except (ValueError, TypeError, InvalidName):  # another version of the program wrote it
        return None


def _form_code(key: bytes, secret: str) -> str:
    return hmac.digest(key, secret.encode("ascii"), "sha256").hex()
