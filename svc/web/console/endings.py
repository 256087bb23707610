"""The page of upcoming expirations, of values, tokens, keys and certificates; and that of users and hosts that have not
logged in for long.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from svc.model.clocks import WallClock
from svc.model.endings import START, Ending, EndingKind, EndingPlace
from svc.model.errors import Forbidden, InvalidName
from svc.model.last_logins import BEGINNING, IdlePlace
from svc.model.names import ResourceName, is_role_kind
from svc.services.inactive_roles import InactiveRoleService, InactiveRolesQuery
from svc.services.upcoming_expirations import UpcomingExpirationService, UpcomingExpirationsQuery
from svc.web.console import links, pages
from svc.web.console.rendering import Rendering
from svc.web.http.response import Response
from svc.web.http.routing import Call, Routes
from svc.web.routes import audit_events
from svc.web.routes.expiring import AFTER_ENDING, AFTER_IDLE, AGE, HOW_FAR, HOW_LONG, KIND, cursor_of

#: The name of each kind, and the words for its expiration.
WORDS: Final[Mapping[EndingKind, tuple[str, str]]] = {
    EndingKind.VALUE: ("value", "ends"),
    EndingKind.ROTATION: ("rotation", "is due"),
    EndingKind.API_KEY: ("API key", "ends"),
    EndingKind.HOST_FACTORY_TOKEN: ("host factory token", "ends"),
    EndingKind.SIGNING_KEY: ("signing key", "retires"),
    EndingKind.PROVIDER_KEYS: ("keys of a provider", "are dropped"),
    EndingKind.CERTIFICATE: ("certificate", "ends"),
}

#: The times that are offered, in days.
_DAYS: Final = (7, 30, 90, 365)
_DAY: Final = 86_400

#: The times without a login that are offered, in days.
_IDLE_DAYS: Final = (30, 90, 180, 365)


@attrs.frozen
class ShownEnding:
    """An expiration: its kind, why it is listed, and whether its time has passed; ``link`` is that of its page."""

    ending: Ending
    kind: str
    why: str
    is_over: bool
    link: str | None

    @classmethod
    def of(cls, ending: Ending, now: float) -> ShownEnding:
        """Return it as a page shows it at a moment, in epoch seconds."""
        kind, does = WORDS[ending.kind]
        over = ending.at <= now
        why = ("is old" if over else "grows old") if ending.by_age else does
        if ending.failures:
            why += f", after {ending.failures} {'failure' if ending.failures == 1 else 'failures'}"
        return cls(ending, kind, why, over, _page_of(ending.id))


@attrs.frozen
class ExpiringPage:
    """The page of expirations."""

    routes = Routes()

    rendering: Rendering
    endings: UpcomingExpirationService
    wall: WallClock

    @pages.shown(
        routes,
        links.EXPIRING,
        query=(HOW_FAR, KIND, AFTER_ENDING),
        errors=(Forbidden,),
        privileges="sees the resource; certificates, signing keys and keys of providers: reads the whole audit",
        audit=audit_events.endings_listed,
    )
    async def show(self, call: Call, *, within: int, kinds: frozenset[EndingKind], after: EndingPlace) -> Response:
        """Return the expirations in the account that are near (CON-45)."""
        page = await self.endings.list_expirations(
            call.invocation, UpcomingExpirationsQuery(within, AGE, kinds, pages.ROWS, after)
        )
        now, chosen = self.wall.seconds(), sorted(kind.value for kind in kinds)
        asked = (("within", within), *(("kind", kind) for kind in chosen))
        more = None if page.after is None else links.with_query(links.EXPIRING, (*asked, ("after", cursor_of(page.after))))
        return self.rendering.page(
            call.visit,
            "endings.html",
            title="What ends",
            endings=[ShownEnding.of(each, now) for each in page.expirations],
            days=[(days, links.with_query(links.EXPIRING, (("within", days * _DAY), *asked[1:]))) for days in _DAYS],
            within=within,
            day=_DAY,
            kinds=[(WORDS[kind][0], links.with_query(links.EXPIRING, (asked[0], ("kind", kind)))) for kind in WORDS],
            chosen=[WORDS[kind][0] for kind in WORDS if kind in kinds],
            every=links.with_query(links.EXPIRING, asked[:1]),
            start=links.with_query(links.EXPIRING, asked) if after != START else None,
            more=more,
        )


def _page_of(full_id: str) -> str | None:
    """Return the path of the page of what an id names; ``None`` for what has none, such as a certificate."""
    try:
        name = ResourceName.parse(full_id)
    except InvalidName:
        return None
    is_role = is_role_kind(name.kind) and name.kind not in {"policy", "host_factory"}
    return links.role(full_id) if is_role else links.resource(full_id)


@attrs.frozen
class IdleRolesPage:
    """The page of roles that don't log in any more."""

    routes = Routes()

    rendering: Rendering
    idle: InactiveRoleService

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
        page = await self.idle.list_inactive(call.invocation, InactiveRolesQuery(since, pages.ROWS, after))
        asked = (("since", since),)
        more = None if page.after is None else links.with_query(links.UNUSED, (*asked, ("after", cursor_of(page.after))))
        return self.rendering.page(
            call.visit,
            "unused.html",
            title="Who hasn't logged in",
            page=page,
            days=[(days, links.with_query(links.UNUSED, (("since", days * _DAY),))) for days in _IDLE_DAYS],
            since=since,
            day=_DAY,
            start=links.with_query(links.UNUSED, asked) if after != BEGINNING else None,
            more=more,
        )
