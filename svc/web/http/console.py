"""The console's interface to the router: the visitor, whether a form is genuine, and refusals as pages.

A route whose ``caller`` is ``SESSION`` or ``VISITOR`` is a page of the console. It is declared and audited as any other;
what differs is here, so that no page can forget it. The ``Authorization`` header proves nothing on a page, a cookie nothing
elsewhere (CON-6).
"""

from __future__ import annotations

from typing import Protocol

import attrs

from svc.crypto.console_cookies import ConsoleSession
from svc.model.authentication import LoginRequest
from svc.model.errors import Refusal
from svc.model.query_results import Caller
from svc.web.http.messages import IncomingRequest, Response


@attrs.define
class Visit:
    """A request to a page, as the console knows it.

    ``session`` is the one that the browser has, and of ``caller``; ``None`` before it has signed in. ``secret`` is what the
    forms of the answer are bound to. A page that begins or ends a session says so here.
    """

    secret: str = attrs.field(repr=False)
    session: ConsoleSession | None = None
    caller: Caller | None = None
    #: Whether the browser hasn't got the secret yet, and whether it is to drop its session.
    new_secret: bool = False
    ended: bool = False
    #: The attempted sign-in, and the path of the page that required it.
    attempted_login: tuple[LoginRequest, str] | None = attrs.field(default=None, repr=False)
    #: The cookie of a sign-in that the browser has begun elsewhere, and the one that it is to have.
    pending_cookie: str | None = attrs.field(default=None, repr=False)
    new_pending_cookie: str | None = attrs.field(default=None, repr=False)


class IConsole(Protocol):
    """The interface that all pages of the console share."""

    async def admit_visit(self, incoming: IncomingRequest, *, signed_in: bool) -> Visit:
        """Return the visit of a request.

        :raises BearerRefused: it must be ``signed_in``, and has no session, or one that is over.
        """

    def check_form(self, visit: Visit, incoming: IncomingRequest, body: bytes) -> None:
        """Return when a form was made for this browser, and sent from a page of this server's.

        :raises FormRefused: it wasn't.
        :raises BadRequest: it is no form.
        """

    def refusal_page(self, incoming: IncomingRequest, refusal: Refusal, response: Response) -> Response:
        """Return the page in place of the response that the refusal would have elsewhere."""

    def failure_page(self, incoming: IncomingRequest, incident: str) -> Response:
        """Return the page that is answered when there was a bug, which the log has under this id."""

    def finish_page(self, incoming: IncomingRequest, response: Response) -> Response:
        """Return a page with the headers that all pages have, and the cookie that it sets, if it does."""

    def missing_page(self, path: str) -> Response | None:
        """Return the page for a path below the console's that has no route; ``None`` for other paths."""
