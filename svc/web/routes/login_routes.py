"""The two routes of a login: evidence is exchanged for an access token, or for one and values of secrets.

Logins with a request that a workload has signed for a third party (``SignedAuthn``) differ by their names alone.
"""

from __future__ import annotations

import base64
import functools
import inspect
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

import attrs

from svc.model.authentication import LoginRequest
from svc.model.errors import AuthenticationRefused
from svc.services.login import LoginService
from svc.services.secret_batches import BatchService
from svc.web.http.declarations import Answer, Body, Parameter
from svc.web.http.messages import Response
from svc.web.http.routing import PUBLIC, Call, Handler, Routes
from svc.web.http.shapes import TEXT, object_shape, raw_shape
from svc.web.routes import audit_events
from svc.web.routes.secret_values import (
    REQUESTED_SECRETS,
    VALUE_ERRORS,
    WITH_VALUES,
    authenticated_and_fetched,
    log_in_with_values,
)

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
    return Response(200, token, "application/json")


_M = TypeVar("_M", bound=Callable[..., LoginRequest])


class _Logins(Protocol):
    """An object with routes of logins."""

    @property
    def login(self) -> LoginService:
        """The use case of logins."""

    @property
    def batches(self) -> BatchService:
        """The use case of reading values with the login."""


def add_login_routes(
    routes: Routes,
    path: str,
    *,
    evidence: str,
    rule: str,
    body: Body,
    privileges: str,
    headers: tuple[Parameter[Any], ...] = (),
    serves_stale: bool = True,
    name: str = "authenticate",
) -> Callable[[_M], _M]:
    """Declare both routes by the decorated method, which makes the request of a login from the values of path and body.

    :param evidence: what is exchanged, in words; ``rule`` is the one of the specification for that.
    :param privileges: what the role needs for an access token, as of ``Routes.add``.
    :param name: the name of the route that answers with an access token alone.
    """

    def declare(make_request: _M) -> _M:
        async def authenticate(self: _Logins, call: Call, *, accept_encoding: str | None, **given: Any) -> Response:
            token = await self.login.authenticate(make_request(self, call, **given), call)
            return token_response(token, accept_encoding)

        async def authenticate_and_read(
            self: _Logins, call: Call, *, accept_encoding: str | None, wanted: tuple[list[str], bool], **given: Any
        ) -> Response:
            request = make_request(self, call, **given)
            return await log_in_with_values(call, self.login, self.batches, request, wanted, accept_encoding)

        def describe(handler: Handler, name: str, text: str, *fields: str) -> Handler:
            """Give a handler the name, the docstring and the signature by which the route is declared and documented."""
            made = inspect.signature(make_request)
            more = [inspect.Parameter(field, inspect.Parameter.KEYWORD_ONLY) for field in fields]
            handler.__name__, handler.__doc__ = name, text
            handler.__qualname__ = f"{make_request.__qualname__.rpartition('.')[0]}.{name}"
            handler.__signature__ = made.replace(  # type: ignore[attr-defined] # of functions
                parameters=[*made.parameters.values(), *more], return_annotation=Response
            )
            return handler

        add = functools.partial(
            routes.add,
            "POST",
            path,
            caller=PUBLIC,
            headers=(*headers, ENCODING),
            body=body,
            writes=False,
            serves_stale=serves_stale,
        )
        add(
            answers=ISSUED,
            errors=(AuthenticationRefused,),
            privileges=privileges,
            audit=audit_events.authenticated,
        )(describe(authenticate, name, f"Exchange {evidence} for an access token ({rule}).", "accept_encoding"))
        text = f"Exchange {evidence} for an access token and the values of secrets (SEC-43)."
        add(
            when="secrets",
            query=(REQUESTED_SECRETS,),
            answers=WITH_VALUES,
            errors=(AuthenticationRefused, *VALUE_ERRORS),
            privileges=f"{privileges.removeprefix('none: ')}, and execute on each secret",
            audit=authenticated_and_fetched,
        )(describe(authenticate_and_read, "authenticate_and_read", text, "accept_encoding", "wanted"))
        return make_request

    return declare


SIGNED_BODY: Final = Body("the signed headers, in JSON", ("application/json",))


@attrs.frozen
class SignedAuthn:
    """The routes of logging in with a signed request, at ``<name>/<service id>``."""

    declared = Routes()

    name: str
    login: LoginService
    batches: BatchService

    @property
    def routes(self) -> Routes:
        """The declared routes, under the name."""
        return self.declared.with_prefix(self.name)

    @add_login_routes(
        declared,
        "/<service_id>/<flat:account>/<optional:login>/authenticate",
        evidence="a signed request",
        rule="AWS-2",
        body=SIGNED_BODY,
        privileges="the role that the signature proves has authenticate on the authenticator",
    )
    def make_request(self, call: Call, service_id: str, account: str, login: str | None) -> LoginRequest:
        """Return the request of a login with a signed request."""
        call.add_audit_facts(authenticator=self.name)
        return LoginRequest(account, login, call.body, call.client_ip, service_id)
