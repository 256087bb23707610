"""Logging in over HTTP; a refused login has an empty body (FAIL-3).

A login has two routes: evidence is exchanged for an access token, or for one and values of secrets. Logins with a request
that a workload has signed for a third party (``SignedAuthn``) differ by their names alone.
"""

from __future__ import annotations

import base64
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

import attrs

from svc.model.authentication import LoginRequest
from svc.model.clocks import iso_milliseconds
from svc.model.dialect import SINGLE_TYPES
from svc.model.errors import (
    AuthenticationRefused,
    BadRequest,
    Forbidden,
    InvalidParameter,
    PasswordsBusy,
    RecordNotFound,
    TooLarge,
    WrongDataKey,
)
from svc.model.events import AUTH, Event
from svc.model.reasons import Reason
from svc.services.login import AccessTokenService, ApiKeyService, LoginService
from svc.services.secret_batches import BatchService
from svc.web.http.basic_auth import BASIC
from svc.web.http.declarations import Answer, Body, Parameter, ParameterSource, Unaudited
from svc.web.http.messages import Response
from svc.web.http.query import Form
from svc.web.http.routing import OPTIONAL, PUBLIC, REQUIRED, AuditEventsFunction, Call, Handler, Routes
from svc.web.http.shapes import TEXT, array_shape, object_shape, raw_shape
from svc.web.routes.secret_values import (
    REQUESTED_SECRETS,
    VALUE_ERRORS,
    WITH_VALUES,
    batch_events,
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


#: The user of an event where no login was given, and where there is no such role (AUD-11).
_MISSING: Final = "USERNAME_MISSING"
NOT_FOUND: Final = "not-found"


def _authentication_events(operation: str, did: str, does: str) -> AuditEventsFunction:
    def events(call: Call) -> list[Event]:
        facts, account = call.audit_facts, call.values.get("account") or call.audit_facts.get("account", "-")
        name = facts.get("authenticator", "authn")
        role = facts.get("role") or claimed_role(account, facts.get("login") or call.values.get("login"))
        service_id = call.values.get("service_id") or facts.get("service_id")
        service = None if service_id is None else f"{name}/{service_id}"
        where = f" with authenticator {name}" + ("" if service is None else f" service {service}")
        user, tried = (NOT_FOUND, f"be {role}, to {does}") if facts.get("unknown") else (role, does)
        subject = (("role", role),)
        return [Event("authn", operation, subject, did + where, tried + where, user, authenticator=name, service=service)]

    return events


logged_in = _authentication_events("login", "successfully logged in", "log in")
authenticated = _authentication_events("authenticate", "successfully authenticated", "authenticate")


def claimed_role(account: str, login: str | None) -> str:
    """Return the full id of the role that a login means, whether there is one or not.

    A colon in the account's name, which no account has, becomes a slash, which none has either: so the id is of no account.
    """
    account = account.replace(":", "/")
    kind, slash, rest = (login or _MISSING).partition("/")
    return f"{account}:{kind}:{rest}" if slash and kind in {"user", "host"} else f"{account}:user:{login or _MISSING}"


def authenticated_and_fetched(call: Call) -> Sequence[Event]:
    """A role logged in, and read secrets: an event for each, as soon as it was admitted."""
    login = authenticated(call)
    return [*login, *batch_events(call, login[0].user)] if "resources" in call.audit_facts else login


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
            audit=authenticated,
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


_API_KEY: Final = (Answer(200, "the role's API key", _TEXT),)
_KEY: Final = object_shape(dict.fromkeys(("kty", "crv", "x", "y", "kid", "alg", "use"), TEXT))
_CALLER: Final = object_shape(
    dict.fromkeys(("client_ip", "account", "username", "token_issued_at"), TEXT), {"user_agent": TEXT}
)


def _read_evidence(source: ParameterSource) -> tuple[str, tuple[Reason, str] | None]:
    """Read the field ``jwt`` of a form: the token, and why there is none that can be read."""
    try:
        return (Form.parse(source.body).text("jwt") or "").strip(), None
    except (BadRequest, InvalidParameter) as refusal:
        return "", (Reason.REQUEST_MALFORMED, refusal.message)
    except TooLarge as refusal:
        return "", (Reason.TOKEN_TOO_LARGE, f"{refusal.what} may have at most {refusal.limit} bytes")


JWT: Final = Parameter("jwt", _read_evidence, TEXT, "a token that the provider signed", field="evidence", required=True)

KEY_BODY: Final = Body("an API key, as it is", ("text/plain",))
TOKEN_BODY: Final = Body("a form with a token", ("application/x-www-form-urlencoded",), fields=(JWT,))
SIGNED_BODY: Final = Body("the signed headers, in JSON", ("application/json",))
PASSWORD_BODY: Final = Body("an API key or a password, as it is", ("text/plain",))


def identity_checked(call: Call) -> list[Event]:
    """A role asked who it is."""
    subject = (("role", str(call.caller.role)),)
    return [Event("identity-check", "check", subject, "checked its identity", "check its identity", facility=AUTH)]


@attrs.frozen
class Authn:
    """The routes of logging in by API key, and of what access tokens say."""

    routes = Routes()

    login: LoginService
    api_keys: ApiKeyService
    tokens: AccessTokenService
    batches: BatchService

    @routes.add(
        "GET",
        "/authn/<flat:account>/login",
        caller=OPTIONAL,
        headers=(BASIC,),
        answers=_API_KEY,
        errors=(AuthenticationRefused, PasswordsBusy),
        privileges="none: the role's password or API key proves it",
        audit=logged_in,
    )
    async def tell_api_key(self, call: Call, account: str) -> Response:
        """Return the API key of the role that HTTP Basic credentials prove (TOK-2)."""
        name, password = call.read_late(BASIC)
        request = LoginRequest(account, name, password, call.client_ip)
        return Response.content(await self.api_keys.read_api_key(request, call), _TEXT.media_type)

    @add_login_routes(
        routes,
        "/authn/<flat:account>/<tail:login>/authenticate",
        evidence="an API key",
        rule="TOK-4",
        body=KEY_BODY,
        privileges="none: the role's API key proves it",
        name="authenticate_by_api_key",
    )
    def make_request(self, call: Call, account: str, login: str) -> LoginRequest:
        """Return the request of a login by API key."""
        return LoginRequest(account, login, call.body, call.client_ip)

    @routes.add(
        "GET",
        "/authn/<flat:account>/.well-known/jwks.json",
        caller=PUBLIC,
        answers=(Answer(200, "a JWK set", object_shape({"keys": array_shape(_KEY)})),),
        errors=(RecordNotFound, WrongDataKey),
        privileges="none",
        audit=Unaudited("the keys are public"),
    )
    async def publish_keys(self, call: Call, account: str) -> Response:  # noqa: ARG002 (every route takes its call)
        """Return the keys that verify the account's access tokens, as a JWK set (TOK-33)."""
        keys = await self.tokens.list_public_keys(account)
        return attrs.evolve(Response.json({"keys": keys}), cache_control="public, max-age=60")

    @routes.add(
        "GET",
        "/whoami",
        caller=REQUIRED,
        headers=(Parameter.header("User-Agent", "the client, which is in the answer"),),
        answers=(Answer(200, "the caller", _CALLER),),
        errors=(Forbidden,),
        privileges="none: the role is there still",
        audit=identity_checked,
    )
    async def tell_caller(self, call: Call, *, user_agent: str | None) -> Response:
        """Return what the service knows of the caller (WIRE-51)."""
        role = call.caller.role
        await self.tokens.check_caller(call.caller)
        members = {
            "client_ip": call.client_ip,
            "user_agent": user_agent,
            "account": role.account,
            "username": role.login,
            "token_issued_at": iso_milliseconds(call.caller.issued_at),
        }
        return Response.json({name: value for name, value in members.items() if value is not None})


@attrs.frozen
class FederatedAuthn:
    """The route of logging in with a third party's token, at the authenticators ``<name>/<service id>``.

    Where ``name`` is of a type that has one for each account, the path has no service id, and the token names the role.
    """

    declared = Routes()

    name: str
    login: LoginService
    batches: BatchService

    @property
    def routes(self) -> Routes:
        """The declared routes, under the name."""
        return self.declared.with_prefix(self.name, *(("service_id", "login") if self.name in SINGLE_TYPES else ()))

    @add_login_routes(
        declared,
        "/<service_id>/<flat:account>/<optional:login>/authenticate",
        evidence="a token",
        rule="AUTH-7",
        body=TOKEN_BODY,
        privileges="the role that the token proves has authenticate on the authenticator",
    )
    def make_request(
        self,
        call: Call,
        service_id: str | None,
        account: str,
        login: str | None,
        *,
        evidence: tuple[str, tuple[Reason, str] | None],
    ) -> LoginRequest:
        """Return the request of a login with a third party's token."""
        call.audit_facts["authenticator"] = self.name
        token, fault = evidence
        return LoginRequest(account, login, token.encode("utf-8"), call.client_ip, service_id, fault)


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


@attrs.frozen
class LdapAuthn:
    """The routes of logging in with a password that an LDAP directory takes, at ``authn-ldap/<service id>``."""

    routes = Routes()

    login: LoginService
    api_keys: ApiKeyService
    batches: BatchService

    @routes.add(
        "GET",
        "/authn-ldap/<service_id>/<flat:account>/login",
        caller=OPTIONAL,
        headers=(BASIC,),
        answers=_API_KEY,
        errors=(AuthenticationRefused,),
        privileges="the role that the password proves has authenticate on the authenticator",
        audit=logged_in,
    )
    async def tell_api_key(self, call: Call, service_id: str, account: str) -> Response:
        """Return the API key of the role that HTTP Basic credentials prove (AUTH-52)."""
        call.add_audit_facts(authenticator="authn-ldap")
        name, password = call.read_late(BASIC)
        request = LoginRequest(account, name, password, call.client_ip, service_id, origin=call.origin)
        return Response.content(await self.api_keys.read_api_key(request, call), _TEXT.media_type)

    @add_login_routes(
        routes,
        "/authn-ldap/<service_id>/<flat:account>/<tail:login>/authenticate",
        evidence="an API key or a password",
        rule="AUTH-52",
        body=PASSWORD_BODY,
        privileges="the role that the password proves has authenticate on the authenticator",
        serves_stale=False,
    )
    def make_request(self, call: Call, service_id: str, account: str, login: str) -> LoginRequest:
        """Return the request of a login with an API key or a password."""
        call.add_audit_facts(authenticator="authn-ldap")
        return LoginRequest(account, login, call.body, call.client_ip, service_id, origin=call.origin)
