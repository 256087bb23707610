"""Credentials over HTTP: passwords are changed, and API keys rotated (TOK-9 to TOK-14).

HTTP Basic is for one's own, an access token for others' API keys.
"""

from __future__ import annotations

from typing import Final

import attrs

from svc.model.authentication import LoginRequest
from svc.model.clocks import iso_seconds
from svc.model.errors import (
    AuthenticationRefused,
    CredentialImpossible,
    CredentialInsufficient,
    CredentialUnknown,
    Forbidden,
    InvalidName,
    InvalidParameter,
    PasswordsBusy,
)
from svc.model.names import ROLE_KINDS, RoleName
from svc.model.query_results import Caller
from svc.services.credentials import CredentialService, Named
from svc.web.http.basic import BASIC
from svc.web.http.declarations import NO_BODY, Answer, Body, Parameter
from svc.web.http.response import Response
from svc.web.http.routing import OPTIONAL, Call, Routes
from svc.web.http.shapes import TEXT, obj, raw
from svc.web.routes import audit_events

ROLE: Final = Parameter.text("role", "the role, kind:id or account:kind:id; without it, the caller", late=True)

_REFUSALS: Final = (AuthenticationRefused, CredentialInsufficient, CredentialUnknown, Forbidden, PasswordsBusy)
_OWN_OR_UPDATE: Final = "none for one's own, by password or API key; update on another role, by an access token"


@attrs.frozen
class Credentials:
    """The routes of passwords and API keys."""

    routes = Routes()

    credentials: CredentialService

    @routes.add(
        "PUT",
        "/authn/<flat:account>/password",
        caller=OPTIONAL,
        query=(ROLE,),
        headers=(BASIC,),
        body=Body("the new password, as it is", ("text/plain",)),
        answers=(Answer(204, "the password is changed"),),
        errors=_REFUSALS,
        privileges="none: one's own, by password or API key",
        audit=audit_events.password_changed,
    )
    async def change_password(self, call: Call, account: str) -> Response:
        """Make the raw body the caller's password. Access tokens, and the API key, stay as they are."""
        caller, named = _caller(call, account), _named(call, account)
        await self.credentials.change_password(caller, named, call.body, call.client_ip, call)
        return Response.empty()

    @routes.add(
        "PUT",
        "/authn/<flat:account>/api_key",
        caller=OPTIONAL,
        query=(ROLE,),
        headers=(BASIC,),
        body=NO_BODY,
        answers=(Answer(200, "the new API key", raw("text/plain; charset=utf-8")),),
        errors=(*_REFUSALS, CredentialImpossible),
        privileges=_OWN_OR_UPDATE,
        audit=audit_events.api_key_rotated,
    )
    async def rotate_api_key(self, call: Call, account: str) -> Response:
        """Give the caller, or the role ``role``, another API key, and return it; the old one proves nothing any more."""
        api_key = await self.credentials.rotate_api_key(_caller(call, account), _named(call, account), call.client_ip, call)
        return Response.content(api_key.encode("ascii"), "text/plain; charset=utf-8")

    @routes.add(
        "GET",
        "/authn/<flat:account>/api_key",
        caller=OPTIONAL,
        query=(ROLE,),
        headers=(BASIC,),
        answers=(Answer(200, "when it was rotated; empty when it never was", obj({"role": TEXT, "timestamp": TEXT})),),
        errors=(*_REFUSALS, CredentialImpossible),
        privileges=_OWN_OR_UPDATE,
        audit=audit_events.rotation_asked,
    )
    async def tell_rotation(self, call: Call, account: str) -> Response:
        """Return when an API key was rotated, to those who may do that."""
        rotation = await self.credentials.rotation(_caller(call, account), _named(call, account), call)
        timestamp = "" if rotation.at is None else iso_seconds(rotation.at)
        return Response.json({"role": str(rotation.role), "timestamp": timestamp})


def _caller(call: Call, account: str) -> Caller | LoginRequest:
    """Return the caller by the access token, or else what HTTP Basic says."""
    return call.caller_if_any or LoginRequest(account, *call.late(BASIC), call.client_ip)


def _named(call: Call, account: str) -> Named:
    """Return what reads the role that the query names, ``kind:id`` or ``account:kind:id``."""

    def named() -> RoleName | None:
        text = call.late(ROLE)
        if not text:
            return None
        first, colon, rest = text.partition(":")
        if not colon:
            raise InvalidParameter("role", "'role' has the form kind:id or account:kind:id")
        kind, inner, identifier = rest.partition(":")
        with_account = inner and (kind in ROLE_KINDS or first not in ROLE_KINDS)
        full = (first, kind, identifier) if with_account else (account, first, rest)
        if full[1] not in ROLE_KINDS:
            raise CredentialUnknown(":".join(full))
        try:
            return RoleName.of(*full)
        except InvalidName as refusal:
            raise InvalidParameter("role", f"'role': {refusal.message}") from None

    return named
