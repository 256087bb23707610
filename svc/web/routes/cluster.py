"""The routes of the cluster's health, which anyone may ask, and which ask only the servers that the settings list.

And one by which these servers find out whether they have two primaries, which nobody else may ask.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import attrs

from svc.cluster.claims import Claims
from svc.cluster.members import Members
from svc.cluster.reports import Sight, Told, sight
from svc.health.checks_loop import HealthReport, Rounds
from svc.model.dialect import Dialect
from svc.model.errors import RouteNotFound
from svc.model.query_results import DatabaseIdentity
from svc.web.http.response import Response
from svc.web.http.routing import PUBLIC, Call, Routes
from svc.web.routes.clusterpage import PAGE_HEADERS, page

#: How this server is called in a look at all of them: it isn't told its own name.
_HERE: Final = "this server"

_VARIES: Final = (("Vary", "Accept"),)


@attrs.frozen
class Cluster:
    """The health of other servers, and of all at once."""

    routes = Routes()

    rounds: Rounds
    dialect: Dialect
    members: Members
    #: The members that have two primaries between them, by name.
    crowd: Callable[[], frozenset[str]]
    claims: Claims
    #: What this server's database is, asked of it now.
    identity: Callable[[], Awaitable[DatabaseIdentity]]

    @routes.add("GET", "/cluster/database", caller=PUBLIC)
    async def tell(self, call: Call) -> Response:
        """Tell another server of the cluster what this one's database is (``svc.cluster.claims``); to others it is 404."""
        challenge, code = call.query.text("challenge"), call.query.text("code")
        if challenge is None or not self.claims.is_asked(challenge, code):
            raise RouteNotFound("GET", "/cluster/database")
        return Response.json(self.claims.answer(challenge, await self.identity()))

    @routes.add("GET", "/remote_health/<raw:server>", caller=PUBLIC, query=None)
    async def show(self, call: Call, server: str) -> Response:  # noqa: ARG002 (every route takes its call)
        """Tell the health of a member as it tells it, or 502 when it gives no report (source document, endpoint 5).

        Names have no character that needs an escape, so the path is compared as it stands; any other name is 404.
        """
        told = await self.members.answer(server)
        if told is None:
            message = "This server's configuration lists no server of that name under cluster"
            return Response.json({"error": {"code": "not_found", "message": message}}, 404)
        if told.fault:
            return Response.json(self._without(told).document(), 502)
        return Response.content(told.body, "application/json", told.status)

    @routes.add("GET", "/ui/health", caller=PUBLIC, query=None)
    async def view(self, call: Call) -> Response:
        """Show this server and all members: as JSON to whom accepts JSON, as a page to others."""
        crowd = self.crowd()
        members = [_crowded(each) if each.name in crowd else each for each in await self.members.glance()]
        sights = [self._own(), *members]
        if "json" in (call.header("Accept") or "").lower():
            ok = all(each.ok for each in sights)
            return Response.json({"ok": ok, "servers": [each.document() for each in sights]}, headers=_VARIES)
        text = page(sights, self.rounds.now())
        return Response.content(text.encode("utf-8"), "text/html; charset=utf-8", headers=PAGE_HEADERS)

    def _own(self) -> Sight:
        report = self.rounds.report(self.dialect)
        age = 0.0 if report.moment is None else max(0.0, self.rounds.now() - report.moment)
        return sight(_HERE, report.document(), here=True, changed=max(report.changed.values()), age=age)

    def _without(self, told: Told) -> HealthReport:
        """The report on a server that gave none: of the same shape, with one word for everything."""
        own, fault = self.rounds.report(self.dialect), told.fault
        primaries = None if own.primaries is None else fault
        return HealthReport(self.dialect, dict.fromkeys(own.services, fault), fault, None, primaries=primaries)


def _crowded(each: Sight) -> Sight:
    """One of two primaries that may not know of each other."""
    return attrs.evolve(each, word="failed" if each.reachable else each.word, primaries="two")
