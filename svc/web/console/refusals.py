"""The page of recent refusals: the requests that this server refused in the last hour, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from svc.model.errors import Forbidden
from svc.model.reasons import explain_code
from svc.model.refusals import RefusalCount, RefusalGroup, RefusalsFound
from svc.services.refusals import RefusalService
from svc.web.console import links, pages
from svc.web.console.rendering import PageRenderer
from svc.web.http.declarations import Parameter
from svc.web.http.messages import Response
from svc.web.http.routing import Call, Routes
from svc.web.routes.refusals import AFTER, REQUEST, refusals_read

REASON: Final = Parameter.text("reason", "only those of this reason, at this authenticator")
AUTHENTICATOR: Final = Parameter.text("authenticator", "the type of the authenticator; none for what was no login")
SERVICE: Final = Parameter.text("service", "the service id of the authenticator")


def sums_of_authenticator(found: RefusalsFound, name: str) -> list[RefusalCount]:
    """Return the sums of the refusals at one authenticator, by its name: its type and service id."""
    kind, _, service_id = name.partition("/")
    wanted = kind, service_id or None
    return [each for each in found.counts if (each.group.authenticator, each.group.service_id) == wanted]


@attrs.frozen
class RefusalsPage:
    """The page of recent refusals."""

    routes = Routes()

    renderer: PageRenderer
    refusals: RefusalService

    @pages.declare_page(
        routes,
        links.REFUSALS,
        query=(REQUEST, REASON, AUTHENTICATOR, SERVICE, AFTER),
        errors=(Forbidden,),
        privileges="owns or inspects the root policy",
        audit=refusals_read,
    )
    async def show(
        self,
        call: Call,
        *,
        request: str | None,
        reason: str | None,
        authenticator: str | None,
        service: str | None,
        after: int | None,
    ) -> Response:
        """Return refusals of the account, the newest first, and how many there are of each sort (CON-46)."""
        sort = RefusalGroup(reason, authenticator or None, service or None) if reason else None
        found = await self.refusals.list_recent(call.invocation, request or None, after, pages.ROWS, sort=sort)
        given = {"request": request, "reason": reason, "authenticator": authenticator, "service": service}
        filters: Mapping[str, str] = {name: value for name, value in given.items() if value}
        more = links.with_query(links.REFUSALS, (*filters.items(), ("after", found.before)))
        reasons = dict.fromkeys(each.reason for each in found.refusals) if request or sort else ()
        return self.renderer.render_page(
            call.visit,
            "refusals.html",
            title="Refusals",
            found=found,
            server=call.origin.server.hostname,
            request=request or "",
            sort=sort,
            meanings=[(reason, explain_code(reason)) for reason in reasons],
            is_continued=after is not None,
            first=links.with_query(links.REFUSALS, filters.items()),
            more=more if found.before is not None else None,
        )
