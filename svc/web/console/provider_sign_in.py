"""The pages by which people sign in at a provider of OpenID Connect.

Note [There and back]. A press begins: state, nonce and verifier are in a sealed cookie of a few minutes, and the browser is
led to the provider by a page, since ``form-action`` holds for redirects after a form too. It comes back by a link from
another site, with which a strict cookie isn't sent; so that cookie is lax, and does nothing but finish this sign-in. The
session that comes of it is strict as ever, and the browser goes on by another page, since a redirect would still count as
the other site's.

Note [One's own sign-in]. A code is accepted only in the browser that has begun, with its state: a link can't sign a person
in as somebody else. Beginning requires a form of this browser's.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Sequence
from typing import Final

import attrs

from svc.crypto.console_cookies import ConsoleCookies, PendingSignIn
from svc.model.authentication import spread_retry_after
from svc.model.clocks import WallClock
from svc.model.errors import AuthenticationRefused, RecordNotFound
from svc.model.events import Event
from svc.model.oidc import PROVIDER_ERRORS, CodeLogin
from svc.model.reasons import Reason, RefusalKind
from svc.model.text import quote_text
from svc.services.console_sessions import ConsoleSessionService
from svc.services.oidc import OidcService
from svc.web.console import links, pages
from svc.web.console.middleware import ConsoleAddress
from svc.web.console.rendering import PageRenderer
from svc.web.http.declarations import Parameter, ParameterSource, Unaudited
from svc.web.http.messages import Response
from svc.web.http.routing import VISITOR, Call, Routes
from svc.web.http.shapes import TEXT
from svc.web.routes.authn import authenticated

#: Seconds within which a browser must come back.
SIGN_IN_SECONDS: Final = 300


def _form_field(name: str, description: str, field: str = "") -> Parameter[str]:
    def read(source: ParameterSource) -> str:
        return source.parse_form().text(name) or ""

    return Parameter(name, read, TEXT, description, field=field or name)


ACCOUNT: Final = _form_field("account", "the account")
SERVICE: Final = _form_field("service_id", "the provider")
BACK: Final = _form_field("to", "the page to go on with", "back")
HOST: Final = Parameter.header("Host", "this server, as the browser knows it")
CODE: Final = Parameter.text("code", "the provider's code")
STATE: Final = Parameter.text("state", "what this browser began with")
ISSUER: Final = Parameter.text("iss", "the provider (RFC 9207)", field="issuer")
ERROR: Final = Parameter.text("error", "why the provider gives no code (RFC 6749 4.1.2.1)")
DESCRIPTION: Final = Parameter.text("error_description", "the same in words", field="description")

#: The error of a provider where the person, or the provider, says no.
_DENIED: Final = "access_denied"


def sign_in_events(call: Call) -> Sequence[Event]:
    """A person was signed in by a provider, or not; there is no event for a visitor who hasn't begun."""
    return [] if call.visit.attempted_login is None else authenticated(call)


@attrs.frozen
class ProviderSignIn:
    """The pages to sign in at a provider, and to come back from there."""

    routes = Routes()

    renderer: PageRenderer
    sessions: ConsoleSessionService
    oidc: OidcService
    cookies: ConsoleCookies
    wall: WallClock
    address: ConsoleAddress

    @pages.declare_form_post(
        routes,
        links.PROVIDER,
        caller=VISITOR,
        headers=(HOST,),
        body=pages.form_body(ACCOUNT, SERVICE, BACK),
        errors=(RecordNotFound,),
        privileges="none",
        writes=False,
        audit=Unaudited("nobody has proven anything yet"),
    )
    async def begin_sign_in(self, call: Call, *, host: str | None, account: str, service_id: str, back: str) -> Response:
        """Lead the browser to a provider (Note [There and back])."""
        state, redirect_uri = secrets.token_urlsafe(24), self.address.base_url(host) + links.CALLBACK
        begun = await self.oidc.begin_login(account, service_id, redirect_uri, state)
        offer = begun.offer
        call.visit.new_pending_cookie = self.cookies.seal_sign_in(
            PendingSignIn(
                account,
                service_id,
                issuer=offer.declared_issuer,
                names_issuer=offer.metadata.names_issuer,
                state=state,
                nonce=begun.nonce,
                verifier=begun.verifier,
                redirect_uri=redirect_uri,
                return_to=links.return_path(back),
                began_at=int(self.wall.seconds()),
            )
        )
        return self._redirect_page(call, begun.url or "", "Sign in with a provider", f"Go on to {offer.name}")

    @pages.declare_page(
        routes,
        links.CALLBACK,
        caller=VISITOR,
        query=(CODE, STATE, ISSUER, ERROR, DESCRIPTION),
        answers=(pages.PAGE, pages.SEE_OTHER),
        errors=(AuthenticationRefused,),
        privileges="none: the provider's code proves the user",
        audit=sign_in_events,
    )
    async def finish_sign_in(
        self,
        call: Call,
        *,
        code: str | None,
        state: str | None,
        issuer: str | None,
        error: str | None,
        description: str | None,
    ) -> Response:
        """Begin a session of the user whom the provider names (CON-62, Note [One's own sign-in])."""
        begun = None if call.visit.pending_cookie is None else self.cookies.open_sign_in(call.visit.pending_cookie)
        if begun is None or not hmac.compare_digest((state or "").encode("utf-8"), begun.state.encode("utf-8")):
            return Response.empty(303, (("Location", links.SIGN_IN),))
        request = CodeLogin(
            begun.account,
            None,
            (code or "").encode("utf-8"),
            call.client_ip,
            begun.service_id,
            nonce=begun.nonce,
            verifier=begun.verifier,
            redirect_uri=begun.redirect_uri,
        )
        call.visit.attempted_login = request, begun.return_to
        call.add_audit_facts(account=begun.account, authenticator="authn-oidc", service_id=begun.service_id)
        late = self.wall.seconds() - begun.began_at > SIGN_IN_SECONDS
        if not late and issuer != begun.issuer and (issuer is not None or begun.names_issuer):
            stated = "no 'iss'" if issuer is None else f"the 'iss' {quote_text(issuer)}"
            why = f"the answer that the browser brings has {stated}; it must be {quote_text(begun.issuer)}"
            raise await self._count_refusal(call, request, begun, AuthenticationRefused(Reason.ISSUER_WRONG, detail=why))
        if error and not late:
            raise await self._count_refusal(call, request, begun, _refuse_by_error(error, description))
        if late or not code:
            why = "it took too long" if late else "the provider gave no code"
            raise await self._count_refusal(call, request, begun, AuthenticationRefused(Reason.CODE_MISSING, detail=why))
        call.visit.session = await self.sessions.begin_by_code(request, call)
        return self._redirect_page(call, begun.return_to, "You are signed in", "Go on")

    async def _count_refusal(
        self, call: Call, request: CodeLogin, begun: PendingSignIn, refusal: AuthenticationRefused
    ) -> AuthenticationRefused:
        """Return the refusal when the login has refused the request for it, as any other: counted, slowed down and logged.

        :raises AuthenticationRefused: the login refuses for another reason, as after too many failures.
        """
        evidence = request.evidence or begun.state.encode("utf-8")  # each sign-in counts on its own
        try:
            await self.sessions.begin_by_code(
                attrs.evolve(request, evidence=evidence, fault=(refusal.reason, refusal.detail)), call
            )
        except AuthenticationRefused as refused:
            if refused.reason is not refusal.reason:
                raise
        return refusal

    def _redirect_page(self, call: Call, address: str, title: str, words: str) -> Response:
        refresh = f"0;url={address}"
        return self.renderer.render_page(
            call.visit, "go_on.html", title=title, words=words, address=address, refresh=refresh
        )


def _refuse_by_error(error: str, description: str | None) -> AuthenticationRefused:
    """Return the refusal of a sign-in for which the provider gives an error in the place of a code (CON-63)."""
    shown = quote_text(error)
    why = f"the provider gave no code, but the error {shown}"
    if description:
        why += f": {quote_text(description)}"
    if error in PROVIDER_ERRORS:
        notice = f"The provider answers {shown}."
        kind, retry_after = RefusalKind.POSTPONED, spread_retry_after()
        return AuthenticationRefused(Reason.OIDC_UNAVAILABLE, kind, retry_after, why, client_message=notice)
    notice = "The sign-in was cancelled, or denied," if error == _DENIED else "The sign-in was refused"
    notice = f"You have not been signed in. {notice} at the provider, which answers {shown}."
    return AuthenticationRefused(Reason.OIDC_SIGN_IN_REFUSED, RefusalKind.UNPROVEN, detail=why, client_message=notice)
