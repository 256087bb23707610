"""The page of upcoming expirations, of values, tokens, keys and certificates; and that of users and hosts that have not
logged in for long.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from svc.model.authentication import IDLE_ROLES_START, IdleRolesCursor
from svc.model.clocks import WallClock
from svc.model.errors import Forbidden, InvalidName
from svc.model.expiration import EXPIRATIONS_START, ExpirationCursor, ExpirationKind, UpcomingExpiration
from svc.model.names import ResourceName, is_role_kind
from svc.services.inactive_roles import InactiveRoleService, InactiveRolesQuery
from svc.services.upcoming_expirations import UpcomingExpirationService, UpcomingExpirationsQuery
from svc.web.console import links, pages
from svc.web.console.rendering import PageRenderer
from svc.web.http.messages import Response
from svc.web.http.routing import Call, Routes
from svc.web.routes.expirations import (
    AFTER_EXPIRATION,
    AFTER_INACTIVE_ROLE,
    DEFAULT_AGE,
    KIND,
    SINCE_SECONDS,
    WITHIN_SECONDS,
    encode_cursor,
    expirations_listed,
    inactive_roles_listed,
)

#: The name of each kind, and the words for its expiration.
KIND_LABELS: Final[Mapping[ExpirationKind, tuple[str, str]]] = {
    ExpirationKind.VALUE: ("value", "ends"),
    ExpirationKind.ROTATION: ("rotation", "is due"),
    ExpirationKind.API_KEY: ("API key", "ends"),
    ExpirationKind.HOST_FACTORY_TOKEN: ("host factory token", "ends"),
    ExpirationKind.SIGNING_KEY: ("signing key", "retires"),
    ExpirationKind.PROVIDER_KEYS: ("keys of a provider", "are dropped"),
    ExpirationKind.CERTIFICATE: ("certificate", "ends"),
}

#: The times that are offered, in days.
_OFFERED_DAYS: Final = (7, 30, 90, 365)
_DAY: Final = 86_400

#: The times without a login that are offered, in days.
_IDLE_DAYS: Final = (30, 90, 180, 365)


@attrs.frozen
class ExpirationView:
    """An expiration: its kind, why it is listed, and whether its time has passed; ``link`` is that of its page."""

    ending: UpcomingExpiration
    kind: str
    why: str
    is_over: bool
    link: str | None

    @classmethod
    def from_expiration(cls, ending: UpcomingExpiration, now: float) -> ExpirationView:
        """Return it as a page shows it at a moment, in epoch seconds."""
        kind, does = KIND_LABELS[ending.kind]
        over = ending.at <= now
        why = ("is old" if over else "grows old") if ending.by_age else does
        if ending.failures:
            why += f", after {ending.failures} {'failure' if ending.failures == 1 else 'failures'}"
        return cls(ending, kind, why, over, _page_path(ending.id))


@attrs.frozen
class ExpirationsPage:
    """The page of expirations."""

    routes = Routes()

    renderer: PageRenderer
    expirations: UpcomingExpirationService
    wall: WallClock

    @pages.declare_page(
        routes,
        links.EXPIRING,
        query=(WITHIN_SECONDS, KIND, AFTER_EXPIRATION),
        errors=(Forbidden,),
        privileges="sees the resource; certificates, signing keys and keys of providers: reads the whole audit",
        audit=expirations_listed,
    )
    async def show(self, call: Call, *, within: int, kinds: frozenset[ExpirationKind], after: ExpirationCursor) -> Response:
        """Return the expirations in the account that are near (CON-45)."""
        page = await self.expirations.list_expirations(
            call.invocation, UpcomingExpirationsQuery(within, DEFAULT_AGE, kinds, pages.ROWS, after)
        )
        now, chosen = self.wall.seconds(), sorted(kind.value for kind in kinds)
        asked = (("within", within), *(("kind", kind) for kind in chosen))
        more = (
            None if page.after is None else links.with_query(links.EXPIRING, (*asked, ("after", encode_cursor(page.after))))
        )
        return self.renderer.render_page(
            call.visit,
            "expirations.html",
            title="What ends",
            expirations=[ExpirationView.from_expiration(each, now) for each in page.expirations],
            days=[(days, links.with_query(links.EXPIRING, (("within", days * _DAY), *asked[1:]))) for days in _OFFERED_DAYS],
            within=within,
            day=_DAY,
            kinds=[
                (KIND_LABELS[kind][0], links.with_query(links.EXPIRING, (asked[0], ("kind", kind)))) for kind in KIND_LABELS
            ],
            chosen=[KIND_LABELS[kind][0] for kind in KIND_LABELS if kind in kinds],
            every=links.with_query(links.EXPIRING, asked[:1]),
            start=links.with_query(links.EXPIRING, asked) if after != EXPIRATIONS_START else None,
            more=more,
        )


def _page_path(full_id: str) -> str | None:
    """Return the path of the page of what an id names; ``None`` for what has none, such as a certificate."""
    try:
        name = ResourceName.parse(full_id)
    except InvalidName:
        return None
    is_role = is_role_kind(name.kind) and name.kind not in {"policy", "host_factory"}
    return links.role(full_id) if is_role else links.resource(full_id)


@attrs.frozen
class InactiveRolesPage:
    """The page of roles that don't log in any more."""

    routes = Routes()

    renderer: PageRenderer
    inactive_roles: InactiveRoleService

    @pages.declare_page(
        routes,
        links.UNUSED,
        query=(SINCE_SECONDS, AFTER_INACTIVE_ROLE),
        errors=(Forbidden,),
        privileges="sees the role",
        audit=inactive_roles_listed,
    )
    async def show(self, call: Call, *, since: int, after: IdleRolesCursor) -> Response:
        """Return the users and hosts of the account without a login for so long (CON-49)."""
        page = await self.inactive_roles.list_inactive(call.invocation, InactiveRolesQuery(since, pages.ROWS, after))
        asked = (("since", since),)
        more = None if page.after is None else links.with_query(links.UNUSED, (*asked, ("after", encode_cursor(page.after))))
        return self.renderer.render_page(
            call.visit,
            "unused.html",
            title="Who hasn't logged in",
            page=page,
            days=[(days, links.with_query(links.UNUSED, (("since", days * _DAY),))) for days in _IDLE_DAYS],
            since=since,
            day=_DAY,
            start=links.with_query(links.UNUSED, asked) if after != IDLE_ROLES_START else None,
            more=more,
        )
