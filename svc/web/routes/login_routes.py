"""The two routes of a login: evidence is exchanged for an access token, or for one and values of secrets."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from svc.model.authentication import LoginRequest
from svc.model.errors import AuthenticationRefused
from svc.services.login import LoginService
from svc.services.secret_batches import BatchService
from svc.web.http.declarations import Body, Parameter
from svc.web.http.response import Response
from svc.web.http.routing import PUBLIC, Call, Handler, Routes
from svc.web.routes import audit_events, secret_events
from svc.web.routes.issued_tokens import ENCODING, ISSUED, token_response
from svc.web.routes.secret_values import REQUESTED_SECRETS, VALUE_ERRORS, WITH_VALUES, log_in_with_values

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
    outlives: bool = True,
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
            outlives=outlives,
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
            audit=secret_events.authenticated_and_fetched,
        )(describe(authenticate_and_read, "authenticate_and_read", text, "accept_encoding", "wanted"))
        return make_request

    return declare
