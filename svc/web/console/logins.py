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
from svc.web.console.rendering import Rendering
from svc.web.http.declarations import Parameter, Source, Unaudited
from svc.web.http.response import Response
from svc.web.http.routing import Call, Routes
from svc.web.http.shapes import TEXT
from svc.web.routes import authenticator_events
from svc.web.routes.explanations import ADDRESS


def _login(source: Source) -> str:
    return source.form().text("login") or ""


def _evidence(source: Source) -> bytes | None:
    text = source.form().text("evidence") or ""
    return text.encode("utf-8", "surrogatepass") or None


def _from(source: Source) -> str | None:
    return ADDRESS.read(source) if (source.form().text("address") or "").strip() else None


LOGIN: Final = Parameter("login", _login, TEXT, "the login: a user's name, or host/ and a host's")
EVIDENCE: Final = Parameter("evidence", _evidence, TEXT, "an API key or a password to try; without it none is tried")
FROM: Final = Parameter("address", _from, TEXT, "where the login is to come from; the caller's address if empty")
OF: Final = Parameter.text("login", "the login that stands in the form")


@attrs.frozen
class LoginExplained:
    """The page that explains logins."""

    routes = Routes()

    rendering: Rendering
    explanations: KeyExplanations
    tokens: AccessTokenService

    @pages.shown(
        routes,
        links.LOGIN_EXPLAINED,
        query=(OF,),
        errors=(Forbidden,),
        privileges="a role that exists",
        audit=Unaudited("it is an empty form"),
    )
    async def show(self, call: Call, *, login: str | None) -> Response:
        """Return the form."""
        await self.tokens.check_caller(call.caller)
        return self._page(call, login or "", "", None)

    @pages.pressed(
        routes,
        links.LOGIN_EXPLAINED,
        body=pages.form(LOGIN, EVIDENCE, FROM),
        errors=(AuthenticationRefused, BadRequest, Forbidden, InvalidName, InvalidParameter, PasswordsBusy, RecordNotFound),
        privileges="owns the role, or the root policy, or has read on the webservice authn/status",
        writes=False,
        audit=authenticator_events.login_explained,
    )
    async def explain(self, call: Call, *, login: str, evidence: bytes | None, address: str | None) -> Response:
        """Return each check of a login; a key that is tried counts as a login, and isn't shown again (CON-50)."""
        tried = LoginAttempt(evidence, address)
        found = await self.explanations.explain_login(call.invocation, call.caller.role.account, None, login, tried)
        return self._page(call, login, address or "", found)

    def _page(self, call: Call, login: str, address: str, explanation: Explanation | None) -> Response:
        return self.rendering.page(
            call.visit,
            "login.html",
            title="Why can't one log in?",
            explanation=explanation,
            login=login,
            address=address,
        )
