"""Secrets over HTTP: the values of variables, set and read (wire facts, core 4)."""

from __future__ import annotations

import binascii
import re
from typing import Final

import attrs

from svc.model.errors import InvalidParameter, NotText, RouteNotFound
from svc.model.names import ResourceName
from svc.services.secrets import SecretService
from svc.web.http.preconditions import Preconditions, tagged
from svc.web.http.response import Response
from svc.web.http.routing import REQUIRED, Call, Routes
from svc.web.routes import auditing

#: The content type of a secret whose variable doesn't say another.
_ANY: Final = "application/octet-stream"

#: What a content type may be (RFC 9110 8.3.1): policy may say anything, and browsers make something of anything.
_TOKEN: Final = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_TYPE: Final = re.compile(rf'{_TOKEN}/{_TOKEN}(?:[ \t]*;[ \t]*{_TOKEN}=(?:{_TOKEN}|"[ !\x23-\x5b\x5d-\x7e]*"))*')
_TYPE_LIMIT: Final = 255

#: How many bytes stand in a line of base64: 60 characters (wire facts, core 4).
_LINE: Final = 45


@attrs.frozen
class Secrets:
    """The routes of secrets."""

    routes = Routes()

    secrets: SecretService

    @routes.add("GET", "/secrets/<flat:account>/variable/<tail:identifier>", caller=REQUIRED, audit=auditing.fetched)
    async def read(self, call: Call, account: str, identifier: str) -> Response:
        """Return a value: the newest, or the one of ``version``. Who knows it already, by its tag, is told so."""
        variable = ResourceName.of(account, "variable", identifier)
        version, preconditions = call.query.integer("version"), Preconditions.of(call)
        secret = await self.secrets.read(call.invocation, variable, version, preconditions.fresh)
        if secret.value is None:
            return Response.empty(304, tagged(secret.tag))
        headers = (("Content-Disposition", "attachment"), *tagged(secret.tag))
        return Response.content(secret.value, _content_type(secret.mime_type), headers=headers)

    @routes.add("GET", "/secrets", caller=REQUIRED, audit=auditing.fetched_several)
    async def read_several(self, call: Call) -> Response:
        """Return the newest values of several resources by their full ids. An id that is repeated counts once."""
        values = await self.secrets.read_several(call.invocation, _ids(call.query.text("variable_ids")))
        if (call.header("Accept-Encoding") or "").strip().lower() == "base64":
            encoded = {text: _in_lines(value) for text, value in values.items()}
            return Response.json(encoded, headers=(("Content-Encoding", "base64"),))
        return Response.json({text: _text(text, value) for text, value in values.items()})

    @routes.add("POST", "/secrets/<flat:account>/variable/<tail:identifier>", caller=REQUIRED, audit=auditing.updated)
    async def write(self, call: Call, account: str, identifier: str) -> Response:
        """Set the value, which is the raw body; with ``expirations`` no value is set, and none ends any more."""
        if call.query.flag("expirations"):
            return await self.clear_expirations(call, account, "variable", identifier)
        variable = ResourceName.of(account, "variable", identifier)
        tag = await self.secrets.write(call.invocation, variable, call.body, Preconditions.of(call).demand)
        return Response.empty(201, tagged(tag) if tag else ())

    @routes.add(
        "POST", "/secrets/<flat:account>/<kind>/<tail:identifier>", caller=REQUIRED, audit=auditing.expirations_cleared
    )
    async def clear_expirations(self, call: Call, account: str, kind: str, identifier: str) -> Response:
        """Have no value end, and what is rotated be rotated soon; only variables have such values."""
        if not call.query.flag("expirations"):
            raise RouteNotFound("POST", f"/secrets/{account}/{kind}/{identifier}")
        if kind != "variable":
            raise InvalidParameter("kind", f"Invalid secret kind: {kind[:40]}")
        await self.secrets.clear_expirations(call.invocation, ResourceName.of(account, kind, identifier))
        return Response.empty(201)


def _content_type(annotated: str | None) -> str:
    """Return the content type that policy gives, if it is one; no header can be forged with what isn't."""
    fits = annotated is not None and len(annotated) <= _TYPE_LIMIT and _TYPE.fullmatch(annotated)
    return annotated if annotated is not None and fits else _ANY


def _ids(listed: str | None) -> list[str]:
    """Return the full ids of a list that commas separate, each once; commas at the end don't count."""
    ids = (listed or "").rstrip(",").split(",")
    if not all(text.strip() for text in ids):
        raise InvalidParameter("variable_ids", "variable_ids")
    return list(dict.fromkeys(ids))


def _in_lines(value: bytes) -> str:
    pieces = (value[start : start + _LINE] for start in range(0, len(value), _LINE))
    return b"".join(map(binascii.b2a_base64, pieces)).decode("ascii")


def _text(name: str, value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise NotText(name) from None
