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
    PasswordsBusy,
    WrongDataKey,
)
from svc.model.events import Event
from svc.model.query_results import Caller
from svc.services.credentials import CredentialService
from svc.web.http.basic_auth import BASIC
from svc.web.http.declarations import NO_BODY, Answer, Body
from svc.web.http.messages import Response
from svc.web.http.routing import OPTIONAL, AuditEventsFunction, Call, Routes
from svc.web.http.shapes import TEXT, object_shape, raw_shape
from svc.web.routes.authn import NOT_FOUND, claimed_role
from svc.web.routes.idempotency import IDEMPOTENCY_ERRORS, IDEMPOTENCY_KEY, unless_repeated
from svc.web.routes.named_role import ROLE, named_role

_REFUSALS: Final = (AuthenticationRefused, CredentialInsufficient, CredentialUnknown, Forbidden, PasswordsBusy)
_OWN_OR_UPDATE: Final = "none for one's own, by password or API key; update on another role, by an access token"


def _credential_events(msgid: str, operation: str, did: str, does: str, own: str, another: str) -> AuditEventsFunction:
    """Return the function for the credential of the role that acts, or of ``another``."""

    def events(call: Call) -> list[Event]:
        user, role = _acting_and_claimed_role(call)
        target = call.audit_facts.get("target", role)
        words = own if target == role else another.format(target)
        return [Event(msgid, operation, (("role", target),), f"{did} {words}", f"{does} {words}", user)]

    return events


password_changed = _credential_events("password", "change", "changed", "change", "its password", "")
api_key_rotated = _credential_events("api-key", "rotate", "rotated", "rotate", "its API key", "the API key of {}")
rotation_time_read = _credential_events("api-key", "show", "read", "read", *["when the API key of {} was rotated"] * 2)


def _acting_and_claimed_role(call: Call) -> tuple[str, str]:
    """Return who acts, by an access token or by HTTP Basic, and the role that the request claims."""
    if call.caller_if_any is not None:
        return str(call.caller.role), str(call.caller.role)
    role = call.audit_facts.get("role") or claimed_role(call.values["account"], call.audit_facts.get("login"))
    return NOT_FOUND if call.audit_facts.get("unknown") else role, role


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
        audit=password_changed,
    )
    async def change_password(self, call: Call, account: str) -> Response:
        """Make the raw body the caller's password. Access tokens, and the API key, stay as they are."""
        caller, named = _caller_or_login(call, account), named_role(call, account)
        await self.credentials.change_password(caller, named, call.body, call.client_ip, call)
        return Response.empty()

    @routes.add(
        "PUT",
        "/authn/<flat:account>/api_key",
        caller=OPTIONAL,
        query=(ROLE,),
        headers=(BASIC, IDEMPOTENCY_KEY),
        body=NO_BODY,
        answers=(Answer(200, "the new API key", raw_shape("text/plain; charset=utf-8")),),
        errors=(*_REFUSALS, *IDEMPOTENCY_ERRORS, CredentialImpossible, WrongDataKey),
        privileges=_OWN_OR_UPDATE,
        audit=unless_repeated(api_key_rotated),
    )
    async def rotate_api_key(self, call: Call, account: str, *, key: str | None) -> Response:
        """Give the caller, or the role ``role``, another API key, and return it; the old one proves nothing any more."""
        api_key = await self.credentials.rotate_api_key(
            _caller_or_login(call, account), named_role(call, account), call.client_ip, call, call.request_key(key)
        )
        return Response.content(api_key.encode("ascii"), "text/plain; charset=utf-8")

    @routes.add(
        "GET",
        "/authn/<flat:account>/api_key",
        caller=OPTIONAL,
        query=(ROLE,),
        headers=(BASIC,),
        answers=(
            Answer(200, "when it was rotated; empty when it never was", object_shape({"role": TEXT, "timestamp": TEXT})),
        ),
        errors=(*_REFUSALS, CredentialImpossible),
        privileges=_OWN_OR_UPDATE,
        audit=rotation_time_read,
    )
    async def tell_rotation(self, call: Call, account: str) -> Response:
        """Return when an API key was rotated, to those who may do that."""
        rotation = await self.credentials.read_rotation(_caller_or_login(call, account), named_role(call, account), call)
        timestamp = "" if rotation.at is None else iso_seconds(rotation.at)
        return Response.json({"role": str(rotation.role), "timestamp": timestamp})


def _caller_or_login(call: Call, account: str) -> Caller | LoginRequest:
    """Return the caller by the access token, or else what HTTP Basic says."""
    return call.caller_if_any or LoginRequest(account, *call.read_late(BASIC), call.client_ip)
