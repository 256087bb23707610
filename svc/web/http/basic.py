"""HTTP Basic credentials, as routes that take them read them (RFC 7617)."""

from __future__ import annotations

import base64

from svc.model.errors import AuthenticationRefused
from svc.model.reasons import Reason


def basic(header: str | None) -> tuple[str, bytes]:
    """Read an ``Authorization`` header: the login, and the password's bytes.

    :raises AuthenticationRefused: it has no such credentials, or they don't decode.
    """
    scheme, _, encoded = (header or "").partition(" ")
    try:
        if scheme.lower() != "basic":
            raise ValueError("another scheme")
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        if not colon or not name or b"\x00" in name:
            raise ValueError("no login")
        return name.decode("utf-8"), password
    except ValueError:
        raise AuthenticationRefused(Reason.CREDENTIALS_MISSING) from None
