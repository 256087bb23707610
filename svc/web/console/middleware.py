"""The parts that all pages of the console share: the session, the forms, the headers, and refusals in words.

Note [Whose forms]. A form is accepted with a token that was made for this browser (``svc.crypto.console_cookies``, Note
[Forms]), and if the browser says that a page of this server sent it: by ``Sec-Fetch-Site``, or where it has no header of
that name by ``Origin``. With ``Referrer-Policy: no-referrer`` browsers send ``Origin: null`` with forms; those that do so
know the other header. Proxies may change ``Host``, so ``Origin`` isn't compared where ``Sec-Fetch-Site`` has decided.

Note [Names of cookies]. A name that begins with ``__Secure-`` can't be set but over TLS. Browsers treat a server on their
own machine as if it had TLS, and keep ``Secure`` cookies of it, but perhaps not under that name: there it has no prefix. The
address that browsers use is the one in the header ``Host``, unless a setting has it (``ConsoleAddress``). Of two cookies of
one name, one was set by somebody else: neither counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import attrs

from svc.crypto.console_cookies import ConsoleCookies, is_form_secret, new_form_secret
from svc.model.errors import (
    AuthenticationRefused,
    BearerRefused,
    CallerReplaced,
    CredentialImpossible,
    Forbidden,
    FormRefused,
    InvalidName,
    InvalidParameter,
    PasswordsBusy,
    PolicyInvalid,
    Refusal,
)
from svc.model.oidc import CodeLogin
from svc.model.reasons import Reason
from svc.model.text import quote_text
from svc.services.console_sessions import ConsoleSessionService, caller_of
from svc.web.console import links
from svc.web.console.rendering import PageRenderer
from svc.web.http.console import Visit
from svc.web.http.messages import IncomingRequest, Response
from svc.web.http.query import Form

_SESSION_COOKIE: Final = "svc-console"
_SECRET_COOKIE: Final = "svc-console-form"
_PENDING_COOKIE: Final = "svc-console-provider"
_PREFIX: Final = "__Secure-"
_ATTRIBUTES: Final = "; Path=/ui; Secure; HttpOnly; SameSite=Strict"
#: Of the sign-in that was begun at a provider, from which the browser comes back: a strict one would not come along.
_PENDING_ATTRIBUTES: Final = f"; Path={links.CALLBACK}; Secure; HttpOnly; SameSite=Lax; Max-Age=300"

#: This machine's own names, as browsers know them, in the header ``Host``.
_LOOPBACK: Final = re.compile(r"(?:localhost|127\.\d{1,3}\.\d{1,3}\.\d{1,3}|\[::1\])(?::\d+)?", re.ASCII)

#: The title and the text for refusals, by status.
_REFUSAL_TEXTS: Final[Mapping[int, tuple[str, str]]] = {
    400: ("That can't be read", "The request is not one that a page of the console makes."),
    403: ("You may not do that", "Your role lacks the privilege. Who owns the thing, or the policy around it, can give it."),
    404: ("Nothing here", "There is nothing of this name, or nothing that your role may see."),
    405: ("Not on this server", "It is a follower, and changes nothing. Do this at the primary."),
    409: ("Not at the same time", "Another load of this policy is under way. Wait a moment, then try again."),
    413: ("Too long", "What was sent is longer than is taken."),
    422: ("That can't be looked for", "A part of the address, or a field, has a value that isn't one."),
    429: ("Too often", "Wait a minute, then try again."),
    503: ("Not now", "The server can't answer this at the moment. Try again in some seconds."),
}
_FOREIGN_FORM: Final = (
    "This form is not taken",
    "It is too old, or wasn't sent from a page of this console. Open the page again, and send it from there.",
)
_NO_LOGINS: Final = ("Nothing to revoke", "Roles of this kind don't log in, and have no tokens.")
_UNEXPECTED: Final = ("That didn't work", "Go back, and try again.")

#: The text for sign-ins that fail, by status; it never says which part was wrong.
_LOGIN_FAILURE_TEXTS: Final[Mapping[int, str]] = {
    401: "Account, login, and API key or password don't fit together, or may not be used from your address.",
    429: "There were too many failures from your address. Wait a minute, then try again.",
    503: "Nobody can sign in at the moment. Try again in some seconds.",
}
_PROVIDER_LOGIN_FAILED: Final = (
    "You have not been signed in. Nobody here goes by the name that the provider says, or may not sign in so or from your"
    " address; or the sign-in took too long."
)
_ANOTHER_ISSUER: Final = (
    "You have not been signed in. The provider calls itself by another name than the one that it has here. If you went there"
    " from this page, an operator compares the two; if you came by a link, somebody may have tried to deceive you."
)
_PROVIDER_FAULTY: Final = (
    "You have not been signed in. The provider, or this server's settings for it, are at fault, or there is too much to do."
    " Try again in some seconds; if that doesn't help, an operator finds out why."
)


@attrs.frozen
class ConsoleAddress:
    """The address of this server as browsers know it: ``public`` if it is set, otherwise what they say in ``Host``."""

    public: str | None = None

    def base_url(self, host: str | None) -> str:
        """Return it; sessions take TLS but on this machine."""
        if self.public is not None:
            return self.public
        return f"{'http' if _LOOPBACK.fullmatch(host or '') else 'https'}://{host or ''}"

    def is_origin(self, origin: str | None, host: str | None) -> bool:
        """Return whether a page of this server sends ``origin``."""
        return origin in ({f"http://{host}", f"https://{host}"} if self.public is None else {self.public})

    def cookie_name(self, cookie: str, incoming: IncomingRequest) -> str:
        """Return the whole name of a cookie (Note [Names of cookies])."""
        return cookie if self.base_url(incoming.header(b"host")).startswith("http:") else f"{_PREFIX}{cookie}"


@attrs.frozen(eq=False)
class ConsoleMiddleware:
    """Provides ``IConsole``."""

    _sessions: ConsoleSessionService
    _cookies: ConsoleCookies
    _renderer: PageRenderer
    _address: ConsoleAddress

    async def admit_visit(self, incoming: IncomingRequest, *, signed_in: bool) -> Visit:
        """See ``IConsole``."""
        if not signed_in:
            secret = self._single_cookie(incoming, _SECRET_COOKIE) or ""
            known = is_form_secret(secret)
            return Visit(
                secret if known else new_form_secret(),
                new_secret=not known,
                pending_cookie=self._single_cookie(incoming, _PENDING_COOKIE),
            )
        text = self._single_cookie(incoming, _SESSION_COOKIE)
        if text is None:
            raise BearerRefused("there is no session")
        session = await self._sessions.resume_session(text, incoming.client_ip)
        return Visit(session.id, session, caller_of(session))

    def check_form(self, visit: Visit, incoming: IncomingRequest, body: bytes) -> None:
        """See ``IConsole`` (Note [Whose forms])."""
        site, origin, host = (incoming.header(name) for name in (b"sec-fetch-site", b"origin", b"host"))
        same = self._address.is_origin(origin, host) if site is None else site == "same-origin"
        if not same:
            raise FormRefused(f"the browser says that it comes from {quote_text(origin or '-')}, {quote_text(site or '-')}")
        token = Form.parse(body).text("token")
        if token is None or not self._cookies.is_form_token(visit.secret, token):
            raise FormRefused("its token is not that of this browser's session")

    def refusal_page(self, incoming: IncomingRequest, refusal: Refusal, response: Response) -> Response:
        """See ``IConsole``."""
        visit = incoming.visit if isinstance(incoming.visit, Visit) else None
        if isinstance(refusal, BearerRefused | CallerReplaced):
            if visit is not None:
                visit.ended = True
            return Response.empty(303, (("Location", links.sign_in(incoming.target)),))
        retry = tuple(header for header in response.headers if header[0] == "Retry-After")
        if (
            visit is not None
            and visit.attempted_login is not None
            and isinstance(refusal, AuthenticationRefused | PasswordsBusy)
        ):
            notice = _LOGIN_FAILURE_TEXTS.get(response.status, _LOGIN_FAILURE_TEXTS[401])
            request, back = visit.attempted_login
            if isinstance(request, CodeLogin):
                notice = _provider_failure_text(refusal, response.status) or notice
            page = self._renderer.render_page(
                visit,
                "sign_in.html",
                title="Sign in",
                status=response.status,
                account=request.account,
                login=request.login or "",
                back=back,
                notice=notice,
                is_fault=True,
                providers=(),
                request_id=incoming.request_id,
            )
        else:
            title, notice = _REFUSAL_TEXTS.get(response.status, _UNEXPECTED)
            if isinstance(refusal, FormRefused):
                title, notice = _FOREIGN_FORM
            elif isinstance(refusal, CredentialImpossible):
                title, notice = _NO_LOGINS
            elif isinstance(refusal, InvalidName | InvalidParameter | PolicyInvalid):
                notice = refusal.message
            elif isinstance(refusal, Forbidden) and refusal.client_message is not None:
                notice = refusal.client_message
            page = self._render_refusal(visit, title, response.status, notice, incoming.request_id)
        return attrs.evolve(page, headers=retry)

    def failure_page(self, incoming: IncomingRequest, incident: str) -> Response:
        """See ``IConsole``."""
        visit = incoming.visit if isinstance(incoming.visit, Visit) else None
        notice = f"This is a fault of the server. Its log has it as incident {incident}."
        return self._render_refusal(visit, "An internal error", 500, notice, incoming.request_id)

    def _render_refusal(self, visit: Visit | None, title: str, status: int, notice: str, request_id: str | None) -> Response:
        return self._renderer.render_page(
            visit, "refusal.html", title=title, status=status, notice=notice, request_id=request_id
        )

    def finish_page(self, incoming: IncomingRequest, response: Response) -> Response:
        """See ``IConsole``."""
        visit = incoming.visit if isinstance(incoming.visit, Visit) else None
        headers = (*response.headers, *self._renderer.headers)
        if visit is not None and visit.new_pending_cookie is not None:
            cookie = (
                f"{self._address.cookie_name(_PENDING_COOKIE, incoming)}={visit.new_pending_cookie}{_PENDING_ATTRIBUTES}"
            )
            return attrs.evolve(response, headers=(*headers, ("Set-Cookie", cookie)))
        set_to: tuple[str, str] | None = None
        if visit is None:
            # A link from another site comes without the session that there is: it isn't ended by that.
            over = response.status == 303 and self._cookie_values(incoming, _SESSION_COOKIE)
            set_to = (_SESSION_COOKIE, "; Max-Age=0") if over else None
        elif visit.ended:
            set_to = (_SESSION_COOKIE, "; Max-Age=0")
        elif visit.session is not None:
            set_to = (_SESSION_COOKIE, self._cookies.seal_session(visit.session))
        else:
            set_to = (_SECRET_COOKIE, visit.secret) if visit.new_secret else None
        if set_to is not None:
            name, value = set_to
            headers = (*headers, ("Set-Cookie", f"{self._address.cookie_name(name, incoming)}={value}{_ATTRIBUTES}"))
        return attrs.evolve(response, headers=headers)

    def missing_page(self, path: str) -> Response | None:
        """See ``IConsole``."""
        if path != links.HOME and not path.startswith(f"{links.HOME}/"):
            return None
        title, notice = _REFUSAL_TEXTS[404]
        page = self._render_refusal(None, title, 404, notice, None)
        return attrs.evolve(page, headers=self._renderer.headers)

    def _single_cookie(self, incoming: IncomingRequest, name: str) -> str | None:
        """Return the value of a cookie; ``None`` where there is none, or more than one."""
        found = self._cookie_values(incoming, name)
        return found[0] if len(found) == 1 else None

    def _cookie_values(self, incoming: IncomingRequest, name: str) -> list[str]:
        """Return the values of all cookies of a name."""
        wanted = self._address.cookie_name(name, incoming)
        lines = b";".join(incoming.headers.get(b"cookie", ())).decode("latin-1").split(";")
        return [value.strip() for given, _, value in (line.partition("=") for line in lines) if given.strip() == wanted]


def _provider_failure_text(refusal: Refusal, status: int) -> str | None:
    """Return the text for a failed sign-in at a provider; ``None`` for the general one."""
    error = refusal.client_message if isinstance(refusal, AuthenticationRefused) else None
    if status == 503:
        return _PROVIDER_FAULTY if error is None else f"{_PROVIDER_FAULTY} {error}"
    if error is not None:
        return error
    if status not in {400, 401, 403}:
        return None
    # That is about the provider alone, and says nothing of who has tried.
    is_another = isinstance(refusal, AuthenticationRefused) and refusal.reason is Reason.ISSUER_WRONG
    return _ANOTHER_ISSUER if is_another else _PROVIDER_LOGIN_FAILED
