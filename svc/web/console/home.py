"""The first page: the health of the cluster, upcoming expirations, recent refusals, and the last changes."""

from __future__ import annotations

from typing import Final

import attrs

from svc.cluster.overview import ClusterOverview
from svc.cluster.succession import describe_succession, differing_versions, find_successor
from svc.model.clocks import WallClock
from svc.model.databases import Ages
from svc.model.errors import Forbidden, StoreUnavailable
from svc.model.events import Event, EventsQuery
from svc.services.audit_events import AuditService
from svc.services.invocation import can_read_all
from svc.services.login import AccessTokenService
from svc.services.refusals import RefusalService
from svc.services.upcoming_expirations import UpcomingExpirationService, UpcomingExpirationsQuery
from svc.storage.database_state import DatabaseState
from svc.storage.roles import RoleStore
from svc.web.console import links, pages
from svc.web.console.expirations import ExpirationView
from svc.web.console.rendering import PageRenderer
from svc.web.http.messages import Response
from svc.web.http.routing import Call, Routes
from svc.web.routes.audit import audit_read
from svc.web.routes.expirations import DEFAULT_AGE, DEFAULT_WITHIN, expirations_listed
from svc.web.routes.refusals import refusals_read

#: How many changes, expirations, and sorts of refusals are shown.
MAX_CHANGES: Final = 20
MAX_EXPIRATIONS: Final = 10
MAX_REFUSAL_SORTS: Final = 10

#: How far ahead, in days.
WITHIN_DAYS: Final = DEFAULT_WITHIN // 86_400


def describe_backup(ages: Ages | None, now: float) -> str:
    """Return the sentence on the newest backup that was verified; ``None``: the database is unavailable."""
    if ages is None:
        return "Whether a backup was verified isn't known now."
    if ages.verified is None:
        return "No backup of this database was verified."
    hours = max(0.0, now - ages.verified.dumped) / 3600
    age = f"{hours:.0f} hours" if hours < 2 * 24 else f"{hours / 24:.0f} days"
    beside = " It was on the database's own disk." if ages.verified.beside else ""
    return f"The newest backup that was verified is {age} old.{beside}"


def home_events(call: Call) -> list[Event]:
    """The first page was opened; a caller that may read the audit read it, and the refusals."""
    more = (*refusals_read(call), *audit_read(call)) if call.audit_facts.get("read") else ()
    return [*expirations_listed(call), *more]


@attrs.frozen
class HomePage:
    """The first page."""

    routes = Routes()

    renderer: PageRenderer
    overview: ClusterOverview
    audit: AuditService
    roles: RoleStore
    tokens: AccessTokenService
    expirations: UpcomingExpirationService
    refusals: RefusalService
    wall: WallClock
    state: DatabaseState

    @pages.declare_page(
        routes,
        links.HOME,
        errors=(Forbidden,),
        privileges="a role that exists; changes and refusals are for those who read the whole audit",
        audit=home_events,
    )
    async def show(self, call: Call) -> Response:
        """Return the health of the cluster, upcoming expirations, recent refusals, and the last changes (CON-19)."""
        await self.tokens.check_caller(call.caller)
        ending = await self.expirations.list_expirations(
            call.invocation, UpcomingExpirationsQuery(DEFAULT_WITHIN, DEFAULT_AGE, limit=MAX_EXPIRATIONS)
        )
        changes, refused, backups = None, None, None
        if await can_read_all(self.roles, call.caller):
            call.add_audit_facts(read=True)
            refused = await self.refusals.list_recent(call.invocation, limit=1)
            changes = await self.audit.list_all_events(
                call.invocation, EventsQuery(call.caller.role.account, limit=MAX_CHANGES)
            )
            backups = describe_backup(await self._backup_ages(), self.wall.seconds())
        servers = await self.overview.list_servers()
        return self.renderer.render_page(
            call.visit,
            "home.html",
            title="Home",
            account=call.caller.role.account,
            servers=servers,
            succession=describe_succession(find_successor(servers)) if len(servers) > 1 else None,
            versions=differing_versions(servers),
            backups=backups,
            expirations=[ExpirationView.from_expiration(each, self.wall.seconds()) for each in ending.expirations],
            ends_on=ending.after is not None,
            within=WITHIN_DAYS,
            refused=refused,
            sorts=MAX_REFUSAL_SORTS,
            changes=changes,
            most=MAX_CHANGES,
        )

    async def _backup_ages(self) -> Ages | None:
        try:
            return await self.state.read_ages()
        except StoreUnavailable:
            return None
