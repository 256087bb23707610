"""SCRAM-SHA-256 from the client's side (RFC 5802, RFC 7677), and the verifier that a server keeps of a password.

The server never gets the password, neither at the login nor when it is changed, and must prove that it knows the old one: a
stranger's server gains nothing, and can't pretend that anything was changed there.

Note [Prepared as by libpq]. PostgreSQL hashes a password in the form of SASLprep (RFC 4013) where it has one, and else as it
is. It checks characters before they are normalised, and libraries of SASLprep afterwards: with them logins fail for dozens
of characters. libpq offers the form only within a hash with a salt of its own. So the steps are taken here in PostgreSQL's
order, by the tables of Python's ``stringprep``; a test compares them with libpq.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import stringprep
import unicodedata
from typing import Final

import attrs

#: The iterations that a server may ask for: with fewer a password is guessed too cheaply, more hold up the reactor.
MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 30_000

MECHANISM: Final = "SCRAM-SHA-256"

#: Without channel binding, and without a name, which PostgreSQL takes from the start-up message.
_HEADER: Final = b"n,,"
_FIRST: Final = re.compile(rb"r=([\x21-\x2b\x2d-\x7e]{1,256}),s=([A-Za-z0-9+/=]{1,256}),i=([0-9]{1,9})")

#: Characters that no prepared password has (RFC 4013 2.3, 2.5).
_PROHIBITED: Final = tuple(
    getattr(stringprep, f"in_table_{table}") for table in ("a1", "c12", "c21_c22", "c3", "c4", "c5", "c6", "c7", "c8", "c9")
)


class ScramFailed(Exception):
    """The server doesn't support SCRAM, or doesn't know the password; the text says which."""


@attrs.define
class ScramExchange:
    """One login: ``first_message`` is sent, its answer passed to ``final_message``, that is sent, and its answer passed to
    ``verify_server``.

    The latter two raise ``ScramFailed``: an answer is malformed, or doesn't prove that the server knows the password.
    """

    _password: bytes = attrs.field(repr=False)
    _nonce: bytes = attrs.field(factory=lambda: base64.b64encode(os.urandom(18)))
    _signature: bytes = attrs.field(default=b"", init=False, repr=False)

    def first_message(self) -> bytes:
        """Return the client's first message."""
        return _HEADER + b"n=,r=" + self._nonce

    def final_message(self, server_first: bytes) -> bytes:
        """Return the client's final message."""
        match = _FIRST.fullmatch(server_first)
        if match is None or not match[1].startswith(self._nonce) or len(match[1]) == len(self._nonce):
            raise ScramFailed("the server's first message of SCRAM is malformed")
        iterations = int(match[3])
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise ScramFailed(f"the server asks for fewer than {MIN_ITERATIONS} or more than {MAX_ITERATIONS} iterations")
        try:
            salt = base64.b64decode(match[2], validate=True)
        except ValueError:
            raise ScramFailed("the server's first message of SCRAM is malformed") from None
        client_key, server_key = _derive_keys(self._password, salt, iterations)
        without_proof = b"c=" + base64.b64encode(_HEADER) + b",r=" + match[1]
        message = b",".join((b"n=,r=" + self._nonce, server_first, without_proof))
        signature = _hmac(hashlib.sha256(client_key).digest(), message)
        proof = bytes(key ^ sign for key, sign in zip(client_key, signature, strict=True))
        self._signature = _hmac(server_key, message)
        return without_proof + b",p=" + base64.b64encode(proof)

    def verify_server(self, server_final: bytes) -> None:
        """Check that the server knows the password."""
        if not self._signature or not hmac.compare_digest(server_final, b"v=" + base64.b64encode(self._signature)):
            raise ScramFailed("the server doesn't prove that it knows the password")


def make_verifier(password: bytes, salt: bytes | None = None, iterations: int = MIN_ITERATIONS) -> str:
    """Return the verifier that PostgreSQL keeps of a password (``pg_authid.rolpassword``)."""
    salt = os.urandom(16) if salt is None else salt
    client_key, server_key = _derive_keys(password, salt, iterations)
    stored = hashlib.sha256(client_key).digest()
    encoded = [base64.b64encode(part).decode("ascii") for part in (salt, stored, server_key)]
    return f"{MECHANISM}${iterations}:{encoded[0]}${encoded[1]}:{encoded[2]}"


def _derive_keys(password: bytes, salt: bytes, iterations: int) -> tuple[bytes, bytes]:
    salted = hashlib.pbkdf2_hmac("sha256", prepare_password(password), salt, iterations)
    return _hmac(salted, b"Client Key"), _hmac(salted, b"Server Key")


def prepare_password(password: bytes) -> bytes:
    """Return a password as PostgreSQL hashes it (Note [Prepared as by libpq])."""
    try:
        text = password.decode("utf-8")
    except UnicodeDecodeError:
        return password
    if text.isascii():
        return password
    # RFC 4013 2.1; both tables have U+200B, which is a space to PostgreSQL.
    mapped = "".join(" " if stringprep.in_table_c12(char) else "" if stringprep.in_table_b1(char) else char for char in text)
    if not mapped or any(prohibited(char) for char in mapped for prohibited in _PROHIBITED) or not _is_one_direction(mapped):
        return password
    return unicodedata.normalize("NFKC", mapped).encode("utf-8")


def _is_one_direction(text: str) -> bool:
    """Return whether text from right to left, if there is any, stands alone and at both ends (RFC 3454 6)."""
    right_to_left, left_to_right = stringprep.in_table_d1, stringprep.in_table_d2
    if not any(map(right_to_left, text)):
        return True
    return right_to_left(text[0]) and right_to_left(text[-1]) and not any(map(left_to_right, text))


def _hmac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")
