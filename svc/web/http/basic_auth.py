"""HTTP Basic credentials, as routes that take them read them (RFC 7617)."""

from __future__ import annotations

import base64
from typing import Final

from svc.model.errors import AuthenticationRefused
from svc.model.reasons import Reason
from svc.web.http.declarations import Parameter, ParameterSource
from svc.web.http.shapes import TEXT


def read_basic_credentials(source: ParameterSource) -> tuple[str, bytes]:
    """Return the login and the password's bytes of the header ``Authorization``."""
    scheme, _, encoded = (source.header("Authorization") or "").partition(" ")
    try:
        if scheme.lower() != "basic":
            raise ValueError("another scheme")
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        if not colon or not name or b"\x00" in name:
            raise ValueError("no login")
        return name.decode("utf-8"), password
    except ValueError:
        raise AuthenticationRefused(Reason.CREDENTIALS_MISSING) from None


#: Late, since a client with an access token sends no credentials, and the audit needs to know the request.
BASIC: Final = Parameter(
    "Authorization",
    read_basic_credentials,
    TEXT,
    "HTTP Basic: a login, and its password or API key",
    late=True,
    required=True,
    scheme="basic",
)
