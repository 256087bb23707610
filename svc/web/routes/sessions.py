"""Sessions over HTTP: opened, renewed, listed and revoked (TOK-40 to TOK-51)."""

from __future__ import annotations

import base64
from functools import partial
from typing import Final

import attrs

from svc.model.authentication import LoginRequest
from svc.model.clocks import iso_seconds
from svc.model.errors import (
    AuthenticationRefused,
    CredentialImpossible,
    CredentialUnknown,
    Forbidden,
    RecordNotFound,
    RenewalElsewhere,
)
from svc.model.events import Event
from svc.services.sessions import OpenSession, SessionService
from svc.web.http.declarations import NO_BODY, Answer, Body, Parameter
from svc.web.http.messages import Response
from svc.web.http.routing import PUBLIC, REQUIRED, AuditEventsFunction, Call, Routes
from svc.web.http.shapes import TEXT, array_shape, object_shape
from svc.web.routes.authn import NOT_FOUND, claimed_role
from svc.web.routes.named_role import ROLE, named_role

LIFETIME: Final = Parameter.positive_integer("lifetime", "how many seconds the session is to last; else as long as it may")

_OPEN_SESSION: Final = object_shape({"id": TEXT, "ends_at": TEXT, "refresh_token": TEXT, "access_token": TEXT})
_LISTED: Final = array_shape(object_shape(dict.fromkeys(("id", "created_at", "ends_at", "used_at", "used_from"), TEXT)))


def _session_events(operation: str, did: str, does: str) -> AuditEventsFunction:
    """Return the function for a session that its user opens or renews."""

    def events(call: Call) -> list[Event]:
        facts = call.audit_facts
        role = facts.get("role") or claimed_role(call.values["account"], call.values["login"])
        user, tried = (NOT_FOUND, f"be {role}, to {does}") if facts.get("unknown") else (role, does)
        more = (("session", facts["session"]),) if "session" in facts else ()
        return [Event("session", operation, (("role", role), *more), did, tried, user)]

    return events


session_opened = _session_events("open", "opened a session", "open a session")
session_renewed = _session_events("renew", "renewed a session", "renew a session")


def sessions_listed(call: Call) -> list[Event]:
    """The sessions of a role were listed."""
    target = call.audit_facts.get("target", "-")
    words = f"the sessions of {target}"
    return [Event("session", "list", (("role", target),), f"listed {words}", f"list {words}")]


def sessions_revoked(call: Call) -> list[Event]:
    """A session of a role was ended, or all."""
    target, session = call.audit_facts.get("target", "-"), call.values.get("session_id", "all")
    words = f"all sessions of {target}" if session == "all" else f"the session {session} of {target}"
    return [Event("session", "revoke", (("role", target), ("session", session)), f"revoked {words}", f"revoke {words}")]


@attrs.frozen
class Sessions:
    """The routes of sessions."""

    routes = Routes()
    _role_route = partial(
        routes.add,
        caller=REQUIRED,
        query=(ROLE,),
        errors=(Forbidden, RecordNotFound, CredentialUnknown, CredentialImpossible),
        privileges="none for one's own; update on another role",
    )

    sessions: SessionService

    @routes.add(
        "POST",
        "/authn/<flat:account>/<tail:login>/sessions",
        caller=PUBLIC,
        query=(LIFETIME,),
        body=Body("an API key, as it is", ("text/plain",)),
        answers=(Answer(201, "the session, an access token for a header, and a refresh token", _OPEN_SESSION),),
        errors=(AuthenticationRefused, Forbidden),
        privileges="none: the user's API key proves it",
        audit=session_opened,
    )
    async def open(self, call: Call, account: str, login: str, *, lifetime: int | None) -> Response:
        """Open a session of a user (TOK-40)."""
        request = LoginRequest(account, login, call.body, call.client_ip)
        return _session_response(await self.sessions.open_session(request, lifetime, call.require_primary, call), 201)

    @routes.add(
        "POST",
        "/authn/<flat:account>/<tail:login>/renew",
        caller=PUBLIC,
        body=Body("a refresh token, as it is", ("text/plain",)),
        answers=(Answer(200, "the session, an access token for a header, and the next refresh token", _OPEN_SESSION),),
        errors=(AuthenticationRefused, RenewalElsewhere),
        privileges="none: the refresh token proves the user",
        audit=session_renewed,
    )
    async def renew(self, call: Call, account: str, login: str) -> Response:
        """Exchange a refresh token for an access token and the next refresh token (TOK-43)."""
        call.add_audit_facts(authenticator="session")
        request = LoginRequest(account, login, call.body, call.client_ip)
        return _session_response(await self.sessions.renew_session(request, call.require_primary, call), 200)

    @_role_route(
        "GET",
        "/authn/<flat:account>/sessions",
        answers=(Answer(200, "the sessions, the one that was used last first", _LISTED),),
        audit=sessions_listed,
    )
    async def show(self, call: Call, account: str) -> Response:
        """Return the sessions of the caller, or of the role ``role``, with where each was used last (TOK-49)."""
        found = await self.sessions.list_sessions(call.invocation, named_role(call, account))
        return Response.json(
            [
                {
                    "id": session.id,
                    "created_at": iso_seconds(session.created_at),
                    "ends_at": iso_seconds(session.expires_at),
                    "used_at": iso_seconds(session.used_at),
                    "used_from": session.used_from,
                }
                for session in found
            ]
        )

    @_role_route(
        "DELETE",
        "/authn/<flat:account>/sessions",
        body=NO_BODY,
        answers=(Answer(204, "all sessions have ended"),),
        audit=sessions_revoked,
    )
    async def end_all(self, call: Call, account: str) -> Response:
        """End all sessions of the caller, or of the role ``role`` (TOK-50)."""
        await self.sessions.end_sessions(call.invocation, named_role(call, account))
        return Response.empty()

    @_role_route(
        "DELETE",
        "/authn/<flat:account>/sessions/<session_id>",
        body=NO_BODY,
        answers=(Answer(204, "the session has ended"),),
        audit=sessions_revoked,
    )
    async def end(self, call: Call, account: str, session_id: str) -> Response:
        """End a session of the caller, or of the role ``role`` (TOK-50)."""
        await self.sessions.end_sessions(call.invocation, named_role(call, account), session_id)
        return Response.empty()


def _session_response(session: OpenSession, status: int) -> Response:
    return Response.json(
        {
            "id": session.id,
            "ends_at": iso_seconds(session.ends_at),
            "refresh_token": session.refresh_token,
            "access_token": base64.b64encode(session.access_token).decode("ascii"),
        },
        status,
    )
