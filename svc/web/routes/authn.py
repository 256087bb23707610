"""Logging in: API keys and others' tokens become access tokens; who the caller is; the keys that verify access tokens."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Mapping
from typing import Final

import attrs
from twisted.logger import Logger

from svc.crypto.keyring import AccessTokens, AccountKeys
from svc.model.authentication import IAuthenticator, ILogin, LoginRequest, Refused, moment
from svc.model.errors import AuthenticationRefused, BadRequest, Forbidden, InvalidName, NotFound, TooLarge, WrongDataKey
from svc.model.names import account_name
from svc.model.ports import IRoles
from svc.model.reasons import Reason, RefusalKind
from svc.web.http.basic import basic
from svc.web.http.response import Response
from svc.web.http.routing import OPTIONAL, PUBLIC, REQUIRED, Call, Routes
from svc.web.routes import auditing

#: What LDAP authenticators are called in the audit.
_LDAP: Final = "authn-ldap"

_log = Logger()


@attrs.frozen
class Authn:
    """The routes of logging in by API key, and of what access tokens say.

    ``by_api_key`` decides, ``login`` tells a role its own API key. A refusal has an empty body (rulings 2.10): its reason
    was logged by whoever wraps the authenticator.
    """

    routes = Routes()

    by_api_key: IAuthenticator
    login: ILogin
    tokens: AccessTokens
    keys: AccountKeys
    roles: IRoles

    @routes.add("GET", "/authn/<flat:account>/login", caller=OPTIONAL, audit=auditing.logged_in)
    async def tell_api_key(self, call: Call, account: str) -> Response:
        """Tell the API key of the role that HTTP Basic credentials prove (wire facts, authn 1.2)."""
        name, password = basic(call.header("Authorization"))
        return await _told(call, self.login, LoginRequest(account, name, password, call.client_ip))

    @routes.add(
        "POST",
        "/authn/<flat:account>/<tail:login>/authenticate",
        caller=PUBLIC,
        writes=False,
        audit=auditing.authenticated,
    )
    async def authenticate_by_api_key(self, call: Call, account: str, login: str) -> Response:
        """Exchange an API key, the raw body, for an access token (wire facts, authn 1.3)."""
        request = LoginRequest(account, login, call.body, call.client_ip)
        return await _exchanged(call, self.by_api_key, request, self.tokens)

    @routes.add("GET", "/authn/<flat:account>/.well-known/jwks.json", caller=PUBLIC)
    async def publish_keys(self, call: Call, account: str) -> Response:  # noqa: ARG002 (every route takes its call)
        """Publish the keys that verify the account's access tokens, as a JWK set (rulings 3)."""
        keys = await self.keys.public_keys(_existing(account))
        if not keys:
            raise NotFound(account, "account", account)
        return attrs.evolve(Response.json({"keys": keys}), cache_control="public, max-age=60")

    @routes.add("GET", "/whoami", caller=REQUIRED, audit=auditing.identity_checked)
    async def tell_caller(self, call: Call) -> Response:
        """Tell what the service knows of the caller (wire facts, authn 1.8)."""
        role = call.caller.role
        if not await self.roles.remains(call.caller):
            raise Forbidden("the token's role no longer exists")
        issued = datetime.datetime.fromtimestamp(call.caller.issued_at, datetime.UTC)
        told: Mapping[str, object] = {
            "client_ip": call.client_ip,
            "user_agent": call.header("User-Agent"),
            "account": role.account,
            "username": role.login,
            "token_issued_at": issued.isoformat(timespec="milliseconds"),
        }
        return Response.json({name: value for name, value in told.items() if value is not None})


@attrs.frozen
class FederatedAuthn:
    """The route of logging in with a third party's token, at the authenticators ``<name>/<service id>``."""

    declared = Routes()

    name: str
    authenticator: IAuthenticator
    tokens: AccessTokens

    @property
    def routes(self) -> Routes:
        """Those that are declared, under the name."""
        return self.declared.under(self.name)

    @declared.add(
        "POST",
        "/<service_id>/<flat:account>/<optional:login>/authenticate",
        caller=PUBLIC,
        writes=False,
        audit=auditing.authenticated,
    )
    async def authenticate(self, call: Call, service_id: str, account: str, login: str | None) -> Response:
        """Exchange a token, the form's field ``jwt``, for an access token (source document, endpoints 1 and 2)."""
        call.tell(authenticator=self.name)
        token, fault = "", None
        try:
            token = (call.form().text("jwt") or "").strip()
        except BadRequest as refusal:
            fault = (Reason.REQUEST_MALFORMED, refusal.message)
        except TooLarge as refusal:
            fault = (Reason.TOKEN_TOO_LARGE, f"{refusal.what} may have at most {refusal.limit} bytes")
        request = LoginRequest(account, login, token.encode("utf-8"), call.client_ip, service_id, fault)
        return await _exchanged(call, self.authenticator, request, self.tokens)


@attrs.frozen
class LdapAuthn:
    """The routes of logging in with a password that an LDAP directory takes, at ``authn-ldap/<service id>``.

    ``by_password`` decides, ``login`` tells a role its own API key; a refusal has an empty body.
    """

    routes = Routes()

    by_password: IAuthenticator
    login: ILogin
    tokens: AccessTokens

    @routes.add("GET", "/authn-ldap/<service_id>/<flat:account>/login", caller=OPTIONAL, audit=auditing.logged_in)
    async def tell_api_key(self, call: Call, service_id: str, account: str) -> Response:
        """Tell the API key of the role that HTTP Basic credentials prove (wire facts, authn 1.2 and 6)."""
        call.tell(authenticator=_LDAP)
        name, password = basic(call.header("Authorization"))
        return await _told(call, self.login, LoginRequest(account, name, password, call.client_ip, service_id))

    @routes.add(
        "POST",
        "/authn-ldap/<service_id>/<flat:account>/<tail:login>/authenticate",
        caller=PUBLIC,
        writes=False,
        audit=auditing.authenticated,
    )
    async def authenticate(self, call: Call, service_id: str, account: str, login: str) -> Response:
        """Exchange an API key or a password, the raw body, for an access token (wire facts, authn 6)."""
        call.tell(authenticator=_LDAP)
        request = LoginRequest(account, login, call.body, call.client_ip, service_id)
        return await _exchanged(call, self.by_password, request, self.tokens)

    @routes.add("GET", "/authn-ldap/<service_id>/<flat:account>/status", caller=REQUIRED, audit=auditing.status_validated)
    async def no_status(self, call: Call, service_id: str, account: str) -> Response:  # noqa: ARG002 (every route takes its values)
        """Tell that there is no status: the type has none (wire facts, authn 5)."""
        call.tell(authenticator=_LDAP)
        return Response.json({"status": "error", "error": "CONJ00056E Status check is not supported for authn-ldap"}, 501)


async def _told(call: Call, login: ILogin, request: LoginRequest) -> Response:
    call.tell(login=request.login)
    told = await login.api_key(request)
    if isinstance(told, Refused):
        call.tell(role=told.role, unknown=told.reason is Reason.ROLE_UNKNOWN)
        raise AuthenticationRefused(told.reason, told.kind, told.retry_after)
    return Response.content(told, "text/plain; charset=utf-8")


async def _exchanged(call: Call, authenticator: IAuthenticator, request: LoginRequest, tokens: AccessTokens) -> Response:
    decision = await authenticator.authenticate(request)
    call.tell(role=None if decision.role is None else str(decision.role))
    if isinstance(decision, Refused):
        call.tell(unknown=decision.reason is Reason.ROLE_UNKNOWN)
        raise AuthenticationRefused(decision.reason, decision.kind, decision.retry_after)
    try:
        token = await tokens.issue(decision)
    except WrongDataKey as refusal:
        _log.error(
            "No access token for {role}: the signing key {name} doesn't open", role=str(decision.role), name=refusal.name
        )
        raise AuthenticationRefused(Reason.SIGNING_KEY_UNUSABLE, RefusalKind.POSTPONED, moment()) from None
    accepted = (call.header("Accept-Encoding") or "").split(",")
    if any(item.strip().lower() == "base64" for item in accepted):
        encoded = base64.b64encode(token)
        return Response.content(encoded, "text/plain; charset=utf-8", headers=(("Content-Encoding", "base64"),))
    return Response.content(token, "application/json")


def _existing(account: str) -> str:
    try:
        return account_name(account)
    except InvalidName:
        raise NotFound(account, "account", account) from None
