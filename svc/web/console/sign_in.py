"""The pages to sign in and out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from svc.model.authentication import LoginRequest
from svc.model.errors import AuthenticationRefused, CredentialImpossible, Forbidden, PasswordsBusy, RecordNotFound
from svc.model.events import Event
from svc.model.oidc import OidcOffer
from svc.services.console_sessions import ConsoleSessionService
from svc.services.oidc import OidcService
from svc.services.revocation import RevocationService
from svc.web.console import links, pages
from svc.web.console.rendering import Rendering
from svc.web.http.declarations import Parameter, Source, Unaudited
from svc.web.http.response import Response
from svc.web.http.routing import VISITOR, Call, Routes
from svc.web.http.shapes import TEXT
from svc.web.routes import audit_events


def _field(name: str, description: str, field: str = "") -> Parameter[str]:
    def read(source: Source) -> str:
        return source.form().text(name) or ""

    return Parameter(name, read, TEXT, description, field=field or name)


ACCOUNT: Final = _field("account", "the account")
LOGIN: Final = _field("login", "the login: a user's name, or host/ and a host's")
EVIDENCE: Final = _field("evidence", "the API key, or a user's password")
BACK: Final = _field("to", "the page to go on with", "back")
TO: Final = Parameter.text("to", "the page to go on with", field="back")
OF_ACCOUNT: Final = Parameter.text("account", "the account whose providers are shown", field="account")
OUT: Final = Parameter.flag("out", "whether somebody has signed out just now")


def signed_in(call: Call) -> list[Event]:
    """A role signed in: what a login and the exchange of its API key leave."""
    return [*audit_events.logged_in(call), *(audit_events.authenticated(call) if call.facts.get("proven") else ())]


@attrs.frozen
class SignIn:
    """The pages to sign in and out."""

    routes = Routes()

    rendering: Rendering
    sessions: ConsoleSessionService
    revocation: RevocationService
    offered: OidcService

    @pages.shown(
        routes,
        links.SIGN_IN,
        caller=VISITOR,
        query=(TO, OUT, OF_ACCOUNT),
        errors=(),
        privileges="none",
        audit=Unaudited("it is a form that anybody may fill in"),
    )
    async def form(self, call: Call, *, back: str | None, out: bool, account: str | None) -> Response:
        """Return the form to sign in, and the providers of an account (CON-60)."""
        told, account = "You are signed out in this browser." if out else "", (account or "").strip()
        begun = await self.offered.list_logins(account) if account else []
        providers = [each.offer for each in begun if each.url is not None]
        if account and not providers:
            told = "This account has no provider at which people can sign in now."
        return self._form(call, links.come_back(back or ""), told, account, providers)

    @pages.pressed(
        routes,
        links.SIGN_IN,
        caller=VISITOR,
        body=pages.form(ACCOUNT, LOGIN, EVIDENCE, BACK),
        answers=(pages.GO_ON,),
        errors=(AuthenticationRefused, PasswordsBusy),
        privileges="none: the role's API key or password proves it",
        writes=False,
        audit=signed_in,
    )
    async def begin(self, call: Call, *, account: str, login: str, evidence: str, back: str) -> Response:
        """Begin a session of the role that an API key or a password proves (CON-3)."""
        # Names of roles and passwords may begin and end with blanks; those of accounts have none.
        request = LoginRequest(account.strip(), login, evidence.encode("utf-8"), call.client_ip)
        back = links.come_back(back)
        call.visit.tried = request, back
        call.add_audit_facts(account=request.account)
        call.visit.session = await self.sessions.begin_session(request, call)
        return Response.empty(303, (("Location", back),))

    @pages.pressed(
        routes,
        "/ui/sign-out",
        answers=(pages.GO_ON,),
        errors=(),
        privileges="none",
        writes=False,
        audit=Unaudited("nothing but the browser's own cookie changes"),
    )
    async def end(self, call: Call) -> Response:
        """End the session in this browser."""
        call.visit.ended = True
        return Response.empty(303, (("Location", f"{links.SIGN_IN}?out"),))

    @pages.pressed(
        routes,
        "/ui/sign-out-everywhere",
        answers=(pages.GO_ON,),
        errors=(Forbidden, RecordNotFound, CredentialImpossible),
        privileges="none: one's own",
        audit=audit_events.tokens_revoked,
    )
    async def end_all(self, call: Call) -> Response:
        """End all sessions and access tokens of the role, in all browsers and programs (TOK-36)."""
        await self.revocation.revoke_role_tokens(call.invocation, lambda: None)
        call.visit.ended = True
        return Response.empty(303, (("Location", f"{links.SIGN_IN}?out"),))

    def _form(self, call: Call, back: str, told: str, account: str, providers: Sequence[OidcOffer]) -> Response:
        return self.rendering.page(
            call.visit,
            "sign_in.html",
            title="Sign in",
            account=account,
            login="",
            back=back,
            told=told,
            is_fault=False,
            request_id=None,
            providers=providers,
        )
