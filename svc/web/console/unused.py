"""The page of users and hosts that have not logged in for long."""

from __future__ import annotations

from typing import Final

import attrs

from svc.model.errors import Forbidden
from svc.model.last_logins import BEGINNING, IdlePlace
from svc.services.unused import UnusedQuery, UnusedService
from svc.web.console import links, pages
from svc.web.console.rendering import Rendering
from svc.web.http.response import Response
from svc.web.http.routing import Call, Routes
from svc.web.routes import audit_events
from svc.web.routes.expiring import AFTER_IDLE, HOW_LONG, cursor_of

#: The times that are offered, in days.
_DAYS: Final = (30, 90, 180, 365)
_DAY: Final = 86_400


@attrs.frozen
class IdleRolesPage:
    """The page of roles that don't log in any more."""

    routes = Routes()

    rendering: Rendering
    idle: UnusedService

    @pages.shown(
        routes,
        links.UNUSED,
        query=(HOW_LONG, AFTER_IDLE),
        errors=(Forbidden,),
        privileges="sees the role",
        audit=audit_events.unused_listed,
    )
    async def show(self, call: Call, *, since: int, after: IdlePlace) -> Response:
        """Return the users and hosts of the account without a login for so long (CON-49)."""
        page = await self.idle.unused(call.invocation, UnusedQuery(since, pages.ROWS, after))
        asked = (("since", since),)
        more = None if page.after is None else links.with_query(links.UNUSED, (*asked, ("after", cursor_of(page.after))))
        return self.rendering.page(
            call.visit,
            "unused.html",
            title="Who hasn't logged in",
            page=page,
            days=[(days, links.with_query(links.UNUSED, (("since", days * _DAY),))) for days in _DAYS],
            since=since,
            day=_DAY,
            start=links.with_query(links.UNUSED, asked) if after != BEGINNING else None,
            more=more,
        )
