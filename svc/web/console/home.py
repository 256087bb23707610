"""The first page: the health of the cluster, upcoming expirations, recent refusals, and the last changes."""

from __future__ import annotations

from typing import Final

import attrs

from svc.cluster.overview import Overview
from svc.cluster.succession import succession, successor, versions
from svc.model.clocks import WallClock
from svc.model.databases import Ages
from svc.model.errors import Forbidden, StoreUnavailable
from svc.model.events import Event, EventsQuery
from svc.model.ports import IDatabaseState, IRoles
from svc.services.audit_events import AuditService
from svc.services.inspection import can_read_all
from svc.services.login import AccessTokenService
from svc.services.refusals import RefusalService
from svc.services.upcoming_expirations import UpcomingExpirationService, UpcomingExpirationsQuery
from svc.web.console import links, pages
from svc.web.console.endings import ShownEnding
from svc.web.console.rendering import Rendering
from svc.web.http.response import Response
from svc.web.http.routing import Call, Routes
from svc.web.routes import audit_events
from svc.web.routes.expiring import AGE, WITHIN

#: How many changes, expirations, and sorts of refusals are shown.
CHANGES: Final = 20
ENDINGS: Final = 10
SORTS: Final = 10

#: How far ahead, in days.
WITHIN_DAYS: Final = WITHIN // 86_400


def backed_up(ages: Ages | None, now: float) -> str:
    """Return the sentence on the newest backup that was verified; ``None``: the database is unavailable."""
    if ages is None:
        return "Whether a backup was verified isn't known now."
    if ages.verified is None:
        return "No backup of this database was verified."
    hours = max(0.0, now - ages.verified.dumped) / 3600
    age = f"{hours:.0f} hours" if hours < 2 * 24 else f"{hours / 24:.0f} days"
    beside = " It was on the database's own disk." if ages.verified.beside else ""
    return f"The newest backup that was verified is {age} old.{beside}"


def opened(call: Call) -> list[Event]:
    """The first page was opened; a caller that may read the audit read it, and the refusals."""
    more = (*audit_events.refusals_read(call), *audit_events.audit_read(call)) if call.facts.get("read") else ()
    return [*audit_events.endings_listed(call), *more]


@attrs.frozen
class Home:
    """The first page."""

    routes = Routes()

    rendering: Rendering
    overview: Overview
    audit: AuditService
    roles: IRoles
    tokens: AccessTokenService
    endings: UpcomingExpirationService
    refusals: RefusalService
    wall: WallClock
    state: IDatabaseState

    @pages.shown(
        routes,
        links.HOME,
        errors=(Forbidden,),
        privileges="a role that exists; changes and refusals are for those who read the whole audit",
        audit=opened,
    )
    async def show(self, call: Call) -> Response:
        """Return the health of the cluster, upcoming expirations, recent refusals, and the last changes (CON-19)."""
        await self.tokens.check_caller(call.caller)
        ending = await self.endings.list_expirations(call.invocation, UpcomingExpirationsQuery(WITHIN, AGE, limit=ENDINGS))
        changes, refused, backups = None, None, None
        if await can_read_all(self.roles, call.caller):
            call.add_audit_facts(read=True)
            refused = await self.refusals.list_recent(call.invocation, limit=1)
            changes = await self.audit.list_all_events(call.invocation, EventsQuery(call.caller.role.account, limit=CHANGES))
            backups = backed_up(await self._ages(), self.wall.seconds())
        servers = await self.overview.servers()
        return self.rendering.page(
            call.visit,
            "home.html",
            title="Home",
            account=call.caller.role.account,
            servers=servers,
            succession=succession(successor(servers)) if len(servers) > 1 else None,
            versions=versions(servers),
            backups=backups,
            endings=[ShownEnding.of(each, self.wall.seconds()) for each in ending.expirations],
            ends_on=ending.after is not None,
            within=WITHIN_DAYS,
            refused=refused,
            sorts=SORTS,
            changes=changes,
            most=CHANGES,
        )

    async def _ages(self) -> Ages | None:
        try:
            return await self.state.read_ages()
        except StoreUnavailable:
            return None
