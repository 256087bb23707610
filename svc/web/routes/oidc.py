"""Signing in at a provider of OpenID Connect, over HTTP; a refused login has an empty body (FAIL-3)."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

import attrs

from svc.model.authentication import LoginRequest
from svc.model.errors import AuthenticationRefused, BadRequest, InvalidParameter, TooLarge
from svc.model.oidc import CodeLogin
from svc.model.reasons import Reason
from svc.services.login import LoginService
from svc.services.oidc import OidcService, PreparedLogin
from svc.services.secret_batches import BatchService
from svc.web.http.declarations import Answer, Body, Parameter, ParameterSource, Unaudited
from svc.web.http.messages import Json, Response
from svc.web.http.routing import PUBLIC, Call, Routes
from svc.web.http.shapes import TEXT, array_shape, object_shape, string_shape
from svc.web.routes.authn import ENCODING, ISSUED, add_login_routes, authenticated, token_response

_NAME: Final = "authn-oidc"
_BEARER: Final = "bearer "

_PROVIDER: Final = object_shape(
    {"service_id": TEXT, "type": string_shape(_NAME), "name": TEXT},
    dict.fromkeys(("nonce", "code_verifier", "redirect_uri", "issuer", "client_id", "scope", "device_endpoint"), TEXT),
)


def _read_id_token(source: ParameterSource) -> tuple[str, tuple[Reason, str] | None]:
    """Read the field ``id_token`` of a form, or what is in the header in its place, and why there is none."""
    try:
        token = (source.parse_form().text("id_token") or "").strip()
    except (BadRequest, InvalidParameter) as refusal:
        return "", (Reason.REQUEST_MALFORMED, refusal.message)
    except TooLarge as refusal:
        return "", (Reason.TOKEN_TOO_LARGE, f"{refusal.what} may have at most {refusal.limit} bytes")
    header = source.header("Authorization") or ""
    if not token and header.lower().startswith(_BEARER):
        token = unquote(header[len(_BEARER) :]).strip()
    return token, None


ID_TOKEN: Final = Parameter("id_token", _read_id_token, TEXT, "an id token of the provider", field="evidence")
BEARER: Final = Parameter.header(
    "Authorization", "Bearer and an id token, in place of the form", scheme="id_token"
).as_ignored
TOKEN_BODY: Final = Body("a form with an id token", ("application/x-www-form-urlencoded",), fields=(ID_TOKEN,))
CODE: Final = Parameter.text("code", "the authorization code")
NONCE: Final = Parameter.text("nonce", "what the login was begun with")
VERIFIER: Final = Parameter.text("code_verifier", "the verifier of the login's challenge (RFC 7636)")


@attrs.frozen
class OidcAuthn:
    """The routes of people who sign in at a provider, at the authenticators ``authn-oidc/<service id>``.

    ``by_code`` takes codes, and ``login`` id tokens. ``devices``: the list has what clients need to get id tokens.
    """

    routes = Routes()

    oidc: OidcService
    by_code: LoginService
    login: LoginService
    devices: bool
    batches: BatchService

    @routes.add(
        "GET",
        "/authn-oidc/<flat:account>/providers",
        caller=PUBLIC,
        answers=(Answer(200, "a login at each provider, that a browser can begin", array_shape(_PROVIDER)),),
        privileges="none",
        audit=Unaudited("anyone may know where people sign in"),
    )
    async def providers(self, call: Call, account: str) -> Response:  # noqa: ARG002 (every route takes its call)
        """Return a login of its own at each provider of an account (OIDC-8)."""
        return Response.json_with_floats([self._provider_json(begun) for begun in await self.oidc.list_logins(account)])

    @routes.add(
        "GET",
        "/authn-oidc/<service_id>/<flat:account>/authenticate",
        caller=PUBLIC,
        query=(CODE, NONCE, VERIFIER),
        headers=(ENCODING,),
        answers=ISSUED,
        errors=(AuthenticationRefused,),
        privileges="the user whom the provider names has authenticate on the authenticator",
        audit=authenticated,
    )
    async def authenticate_by_code(
        self,
        call: Call,
        service_id: str,
        account: str,
        *,
        code: str | None,
        nonce: str | None,
        code_verifier: str | None,
        accept_encoding: str | None,
    ) -> Response:
        """Exchange an authorization code for an access token (OIDC-11)."""
        call.add_audit_facts(authenticator=_NAME)
        evidence = (code or "").encode("utf-8")
        request = CodeLogin(account, None, evidence, call.client_ip, service_id, nonce=nonce or "", verifier=code_verifier)
        return token_response(await self.by_code.authenticate(request, call), accept_encoding)

    @add_login_routes(
        routes,
        "/authn-oidc/<service_id>/<flat:account>/authenticate",
        evidence="an id token",
        rule="OIDC-21",
        body=TOKEN_BODY,
        privileges="the user whom the token names has authenticate on the authenticator",
        headers=(BEARER,),
        serves_stale=False,
        name="authenticate_by_token",
    )
    def make_request(
        self, call: Call, service_id: str, account: str, *, evidence: tuple[str, tuple[Reason, str] | None]
    ) -> LoginRequest:
        """Return the request of a login with an id token."""
        call.add_audit_facts(authenticator=_NAME)
        token, fault = evidence
        return LoginRequest(account, None, token.encode("utf-8"), call.client_ip, service_id, fault)

    def _provider_json(self, begun: PreparedLogin) -> dict[str, Json]:
        offer = begun.offer
        members: dict[str, Json] = {"service_id": offer.service_id, "type": _NAME, "name": offer.name}
        if begun.url is not None:
            members |= {"nonce": begun.nonce, "code_verifier": begun.verifier, "redirect_uri": begun.url}
        if self.devices:
            members |= {"issuer": offer.declared_issuer, "client_id": offer.client_id, "scope": offer.scope}
            if offer.takes_tokens and offer.metadata.device_endpoint is not None:
                members["device_endpoint"] = offer.metadata.device_endpoint
        return members
