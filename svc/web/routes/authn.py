"""Logging in over HTTP; a refused login has an empty body (FAIL-3)."""

from __future__ import annotations

from typing import Final

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
from svc.model.reasons import Reason
from svc.services.login import AccessTokenService, ApiKeyService, LoginService
from svc.services.secret_batches import BatchService
from svc.web.http.basic_auth import BASIC
from svc.web.http.declarations import Answer, Body, Parameter, ParameterSource, Unaudited
from svc.web.http.messages import Response
from svc.web.http.query import Form
from svc.web.http.routing import OPTIONAL, PUBLIC, REQUIRED, Call, Routes
from svc.web.http.shapes import TEXT, array_shape, object_shape, raw_shape
from svc.web.routes import audit_events
from svc.web.routes.login_routes import add_login_routes

_TEXT: Final = raw_shape("text/plain; charset=utf-8")
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
PASSWORD_BODY: Final = Body("an API key or a password, as it is", ("text/plain",))


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
        audit=audit_events.logged_in,
    )
    async def tell_api_key(self, call: Call, account: str) -> Response:
        """Return the API key of the role that HTTP Basic credentials prove (TOK-2)."""
        name, password = call.read_late(BASIC)
        request = LoginRequest(account, name, password, call.incoming.client_ip)
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
        return LoginRequest(account, login, call.body, call.incoming.client_ip)

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
        audit=audit_events.identity_checked,
    )
    async def tell_caller(self, call: Call, *, user_agent: str | None) -> Response:
        """Return what the service knows of the caller (WIRE-51)."""
        role = call.caller.role
        await self.tokens.check_caller(call.caller)
        members = {
            "client_ip": call.incoming.client_ip,
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
        return LoginRequest(account, login, token.encode("utf-8"), call.incoming.client_ip, service_id, fault)


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
        audit=audit_events.logged_in,
    )
    async def tell_api_key(self, call: Call, service_id: str, account: str) -> Response:
        """Return the API key of the role that HTTP Basic credentials prove (AUTH-52)."""
        call.add_audit_facts(authenticator="authn-ldap")
        name, password = call.read_late(BASIC)
        request = LoginRequest(account, name, password, call.incoming.client_ip, service_id, origin=call.origin)
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
        return LoginRequest(account, login, call.body, call.incoming.client_ip, service_id, origin=call.origin)
