"""The page that shows how a login by an API key or a password would be evaluated."""

from __future__ import annotations

from typing import Final

import attrs

from svc.model.authentication import Explanation
from svc.model.errors import (
    AuthenticationRefused,
    BadRequest,
    Forbidden,
    InvalidName,
    InvalidParameter,
    PasswordsBusy,
    RecordNotFound,
)
from svc.services.login import AccessTokenService
from svc.services.login_explanations import KeyExplanations, LoginAttempt
from svc.web.console import links, pages
from svc.web.console.rendering import PageRenderer
from svc.web.http.declarations import Parameter, ParameterSource, Unaudited
from svc.web.http.messages import Response
from svc.web.http.routing import Call, Routes
from svc.web.http.shapes import TEXT
from svc.web.routes import authenticator_events
from svc.web.routes.login_explanations import ADDRESS


def _read_login(source: ParameterSource) -> str:
    return source.parse_form().text("login") or ""


def _read_evidence(source: ParameterSource) -> bytes | None:
    text = source.parse_form().text("evidence") or ""
    return text.encode("utf-8", "surrogatepass") or None


def _read_address(source: ParameterSource) -> str | None:
    return ADDRESS.read(source) if (source.parse_form().text("address") or "").strip() else None


LOGIN: Final = Parameter("login", _read_login, TEXT, "the login: a user's name, or host/ and a host's")
EVIDENCE: Final = Parameter("evidence", _read_evidence, TEXT, "an API key or a password to try; without it none is tried")
FORM_ADDRESS: Final = Parameter(
    "address", _read_address, TEXT, "where the login is to come from; the caller's address if empty"
)
PREFILLED_LOGIN: Final = Parameter.text("login", "the login that stands in the form")


@attrs.frozen
class LoginExplanationPage:
    """The page that explains logins."""

    routes = Routes()

    renderer: PageRenderer
    explanations: KeyExplanations
    tokens: AccessTokenService

    @pages.declare_page(
        routes,
        links.LOGIN_EXPLAINED,
        query=(PREFILLED_LOGIN,),
        errors=(Forbidden,),
        privileges="a role that exists",
        audit=Unaudited("it is an empty form"),
    )
    async def show(self, call: Call, *, login: str | None) -> Response:
        """Return the form."""
        await self.tokens.check_caller(call.caller)
        return self._render_page(call, login or "", "", None)

    @pages.declare_form_post(
        routes,
        links.LOGIN_EXPLAINED,
        body=pages.form_body(LOGIN, EVIDENCE, FORM_ADDRESS),
        errors=(AuthenticationRefused, BadRequest, Forbidden, InvalidName, InvalidParameter, PasswordsBusy, RecordNotFound),
        privileges="owns the role, or the root policy, or has read on the webservice authn/status",
        writes=False,
        audit=authenticator_events.login_explained,
    )
    async def explain_login(self, call: Call, *, login: str, evidence: bytes | None, address: str | None) -> Response:
        """Return each check of a login; a key that is tried counts as a login, and isn't shown again (CON-50)."""
        tried = LoginAttempt(evidence, address)
        found = await self.explanations.explain_login(call.invocation, call.caller.role.account, None, login, tried)
        return self._render_page(call, login, address or "", found)

    def _render_page(self, call: Call, login: str, address: str, explanation: Explanation | None) -> Response:
        return self.renderer.render_page(
            call.visit,
            "login.html",
            title="Why can't one log in?",
            explanation=explanation,
            login=login,
            address=address,
        )
