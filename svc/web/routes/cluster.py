"""The cluster's health over HTTP, which asks only the servers that the settings list."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import attrs

from svc.cluster.overview import ClusterOverview
from svc.cluster.peer_claims import PeerClaims
from svc.cluster.reports import ProbeReply
from svc.cluster.succession import differing_versions, find_successor
from svc.health.checks_loop import HealthReport
from svc.model.databases import DatabaseIdentity
from svc.model.errors import RouteNotFound
from svc.web.http.declarations import Answer, Parameter, Unaudited
from svc.web.http.response import Response
from svc.web.http.routing import PUBLIC, Call, Routes
from svc.web.http.shapes import BOOLEAN, INTEGER, NUMBER, TEXT, array_shape, mapping_shape, object_shape, raw_shape
from svc.web.routes.cluster_page import PAGE_HEADERS, render_page
from svc.web.routes.health_json import REPORT

_VARIES: Final = (("Vary", "Accept"),)

CHALLENGE: Final = Parameter.text("challenge", "random digits that the answer is bound to", required=True)
CODE: Final = Parameter.text("code", "what proves that a server of the cluster asks", required=True)
ACCEPT: Final = Parameter.header("Accept", "JSON for the same in JSON", field="accept")

_PAGE: Final = "text/html; charset=utf-8"
_DATABASE: Final = object_shape(
    {
        **dict.fromkeys(("system", "timeline", "started"), INTEGER),
        "standby": BOOLEAN,
        "code": TEXT,
        "data_keys": array_shape(TEXT),
        "data_keys_code": TEXT,
    }
)
_STANDBY: Final = object_shape(
    {
        **dict.fromkeys(("name", "state", "sync"), TEXT),
        **dict.fromkeys(("lag_bytes", "lag_seconds"), NUMBER.or_null()),
        "since": NUMBER,
    }
)
_MEMBER: Final = object_shape(
    {
        **dict.fromkeys(("name", "word", "database", "role", "primaries", "version", "release"), TEXT),
        **dict.fromkeys(("here", "ok", "reachable"), BOOLEAN),
        **dict.fromkeys(
            ("lag_seconds", "lag_bytes", "changed", "since", "timeline", "schema", "position"), NUMBER.or_null()
        ),
        "standbys": array_shape(_STANDBY).or_null(),
        "services": mapping_shape(TEXT),
        "age": NUMBER,
    }
)
_CLUSTER: Final = object_shape(
    {
        "ok": BOOLEAN,
        "servers": array_shape(_MEMBER),
        "successor": object_shape({"name": TEXT, "complete": BOOLEAN}).or_null(),
        "versions": mapping_shape(array_shape(TEXT)),
    }
)
_FAULT: Final = object_shape({"error": object_shape({"code": TEXT, "message": TEXT})})
_UNAUDITED: Final = Unaudited("anybody may ask, and nothing is secret")


@attrs.frozen
class Cluster:
    """The health of other servers, and of all at once."""

    routes = Routes()

    overview: ClusterOverview
    claims: PeerClaims
    #: Asks the database for its identity, for the answer to a challenge; ``None`` where this server has asked it itself.
    identity: Callable[[str], Awaitable[DatabaseIdentity | None]]

    @routes.add(
        "GET",
        "/cluster/database",
        caller=PUBLIC,
        query=(CHALLENGE, CODE),
        answers=(Answer(200, "the database, with a code that nobody else can make", _DATABASE),),
        errors=(RouteNotFound,),
        privileges="knows the data key",
        audit=Unaudited("servers ask each other every few seconds"),
    )
    async def tell(self, call: Call, *, challenge: str | None, code: str | None) -> Response:
        """Return this server's database to another server of the cluster (``svc.cluster.peer_claims``); to others it is
        404.
        """
        if challenge is None or not self.claims.is_peer_challenge(challenge, code):
            raise call.route_not_found()
        identity = await self.identity(challenge)
        if identity is None:
            raise call.route_not_found()
        return Response.json(self.claims.sign_answer(challenge, code, identity))

    @routes.add(
        "GET",
        "/remote_health/<raw:server>",
        caller=PUBLIC,
        query=None,
        answers=(
            Answer(200, "the member's report, which says that it is well", raw_shape("application/json")),
            Answer(502, "the member's report, which says that it is not well", raw_shape("application/json")),
            Answer(502, "a report on a member that gave none", REPORT),
            Answer(404, "there is no member of that name", _FAULT),
        ),
        privileges="none",
        audit=_UNAUDITED,
    )
    async def show(self, call: Call, server: str) -> Response:  # noqa: ARG002 (every route takes its call)
        """Return the health of a member as it reports it, or 502 when it gives no report (HEALTH-18, HEALTH-20)."""
        reply = await self.overview.members.fetch_health(server)
        if reply is None:
            message = "This server's configuration lists no server of that name under cluster"
            return Response.json({"error": {"code": "not_found", "message": message}}, 404)
        if reply.fault:
            return Response.json_with_floats(self._report_without_answer(reply).document(), 502)
        return Response.content(reply.body, "application/json", 200 if reply.ok else 502)

    @routes.add(
        "GET",
        "/ui/health",
        caller=PUBLIC,
        query=None,
        headers=(ACCEPT,),
        answers=(
            Answer(200, "a page that renews itself", raw_shape(_PAGE), ("Vary", "Content-Security-Policy")),
            Answer(200, "the same in JSON", _CLUSTER, ("Vary",)),
        ),
        privileges="none",
        audit=_UNAUDITED,
    )
    async def view(self, call: Call, *, accept: str | None) -> Response:  # noqa: ARG002 (every route takes its call)
        """Return this server and all members, as they are at one moment."""
        servers = await self.overview.list_servers()
        if "json" in (accept or "").lower():
            first = find_successor(servers)
            document = {
                "ok": all(each.ok for each in servers),
                "servers": [each.document() for each in servers],
                "successor": None if first is None else first.document(),
                "versions": differing_versions(servers),
            }
            return Response.json_with_floats(document, headers=_VARIES)
        return Response.content(
            render_page(servers, self.overview.checks.now()).encode("utf-8"), _PAGE, headers=PAGE_HEADERS
        )

    def _report_without_answer(self, reply: ProbeReply) -> HealthReport:
        """Return the report on a server that gave none: of the same shape, with one word for everything."""
        own, fault = self.overview.checks.last_report(self.overview.dialect), reply.fault
        primaries = None if own.primaries is None else fault
        return HealthReport(self.overview.dialect, dict.fromkeys(own.services, fault), fault, None, primaries=primaries)
