"""Access tokens as logins answer them."""

from __future__ import annotations

import base64
from typing import Final

from svc.web.http.declarations import Answer, Parameter
from svc.web.http.response import Response
from svc.web.http.shapes import TEXT, object_shape, raw_shape

_TEXT: Final = raw_shape("text/plain; charset=utf-8")

ISSUED: Final = (
    Answer(200, "an access token", object_shape({"protected": TEXT, "payload": TEXT, "signature": TEXT})),
    Answer(200, "an access token in base64, where Accept-Encoding asks for that", _TEXT, ("Content-Encoding",)),
)
ENCODING: Final = Parameter.header("Accept-Encoding", "base64, for an access token that can stand in a header")


def token_response(token: bytes, accept_encoding: str | None) -> Response:
    """Return an access token, in base64 where that is asked for (TOK-5)."""
    if accept_encoding and any(item.strip().lower() == "base64" for item in accept_encoding.split(",")):
        return Response.content(base64.b64encode(token), _TEXT.media_type, headers=(("Content-Encoding", "base64"),))
    return Response.content(token, "application/json")
