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
from svc.web.console.rendering import PageRenderer
from svc.web.http.declarations import Parameter, ParameterSource, Unaudited
from svc.web.http.messages import Response
from svc.web.http.routing import VISITOR, Call, Routes
from svc.web.http.shapes import TEXT
from svc.web.routes.authn import authenticated, logged_in
from svc.web.routes.revocation import tokens_revoked


def _form_field(name: str, description: str, field: str = "") -> Parameter[str]:
    def read(source: ParameterSource) -> str:
        return source.parse_form().text(name) or ""

    return Parameter(name, read, TEXT, description, field=field or name)


ACCOUNT: Final = _form_field("account", "the account")
LOGIN: Final = _form_field("login", "the login: a user's name, or host/ and a host's")
EVIDENCE: Final = _form_field("evidence", "the API key, or a user's password")
BACK: Final = _form_field("to", "the page to go on with", "back")
RETURN_TO: Final = Parameter.text("to", "the page to go on with", field="back")
PROVIDERS_OF: Final = Parameter.text("account", "the account whose providers are shown", field="account")
SIGNED_OUT: Final = Parameter.flag("out", "whether somebody has signed out just now")


def sign_in_events(call: Call) -> list[Event]:
    """A role signed in: what a login and the exchange of its API key leave."""
    return [*logged_in(call), *(authenticated(call) if call.audit_facts.get("proven") else ())]


@attrs.frozen
class SignIn:
    """The pages to sign in and out."""

    routes = Routes()

    renderer: PageRenderer
    sessions: ConsoleSessionService
    revocation: RevocationService
    oidc: OidcService

    @pages.declare_page(
        routes,
        links.SIGN_IN,
        caller=VISITOR,
        query=(RETURN_TO, SIGNED_OUT, PROVIDERS_OF),
        errors=(),
        privileges="none",
        audit=Unaudited("it is a form that anybody may fill in"),
    )
    async def show_form(self, call: Call, *, back: str | None, out: bool, account: str | None) -> Response:
        """Return the form to sign in, and the providers of an account (CON-60)."""
        notice, account = "You are signed out in this browser." if out else "", (account or "").strip()
        begun = await self.oidc.list_logins(account) if account else []
        providers = [each.offer for each in begun if each.url is not None]
        if account and not providers:
            notice = "This account has no provider at which people can sign in now."
        return self._render_form(call, links.return_path(back or ""), notice, account, providers)

    @pages.declare_form_post(
        routes,
        links.SIGN_IN,
        caller=VISITOR,
        body=pages.form_body(ACCOUNT, LOGIN, EVIDENCE, BACK),
        answers=(pages.SEE_OTHER,),
        errors=(AuthenticationRefused, PasswordsBusy),
        privileges="none: the role's API key or password proves it",
        writes=False,
        audit=sign_in_events,
    )
    async def begin_session(self, call: Call, *, account: str, login: str, evidence: str, back: str) -> Response:
        """Begin a session of the role that an API key or a password proves (CON-3)."""
        # Names of roles and passwords may begin and end with blanks; those of accounts have none.
        request = LoginRequest(account.strip(), login, evidence.encode("utf-8"), call.client_ip)
        back = links.return_path(back)
        call.visit.attempted_login = request, back
        call.add_audit_facts(account=request.account)
        call.visit.session = await self.sessions.begin_session(request, call)
        return Response.empty(303, (("Location", back),))

    @pages.declare_form_post(
        routes,
        "/ui/sign-out",
        answers=(pages.SEE_OTHER,),
        errors=(),
        privileges="none",
        writes=False,
        audit=Unaudited("nothing but the browser's own cookie changes"),
    )
    async def end_session(self, call: Call) -> Response:
        """End the session in this browser."""
        call.visit.ended = True
        return Response.empty(303, (("Location", f"{links.SIGN_IN}?out"),))

    @pages.declare_form_post(
        routes,
        "/ui/sign-out-everywhere",
        answers=(pages.SEE_OTHER,),
        errors=(Forbidden, RecordNotFound, CredentialImpossible),
        privileges="none: one's own",
        audit=tokens_revoked,
    )
    async def end_all_sessions(self, call: Call) -> Response:
        """End all sessions and access tokens of the role, in all browsers and programs (TOK-36)."""
        await self.revocation.revoke_role_tokens(call.invocation, lambda: None)
        call.visit.ended = True
        return Response.empty(303, (("Location", f"{links.SIGN_IN}?out"),))

    def _render_form(self, call: Call, back: str, notice: str, account: str, providers: Sequence[OidcOffer]) -> Response:
        return self.renderer.render_page(
            call.visit,
            "sign_in.html",
            title="Sign in",
            account=account,
            login="",
            back=back,
            notice=notice,
            is_fault=False,
            request_id=None,
            providers=providers,
        )
