"""The cluster's health over HTTP, which asks only the servers that the settings list."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from html import escape
from typing import Final

import attrs

from svc.cluster.overview import ClusterOverview
from svc.cluster.peer_claims import PeerClaims
from svc.cluster.reports import INVALID, UNREACHABLE, MemberHealth, ProbeReply
from svc.cluster.succession import describe_succession, differing_versions, find_successor
from svc.health.checks_loop import HealthReport
from svc.model.clocks import iso_seconds
from svc.model.databases import DatabaseIdentity
from svc.model.errors import RouteNotFound
from svc.model.readings import ReadingBatch
from svc.web.http.declarations import Answer, Parameter, Unaudited
from svc.web.http.messages import Response
from svc.web.http.routing import PUBLIC, Call, Routes
from svc.web.http.shapes import BOOLEAN, INTEGER, NUMBER, TEXT, array_shape, mapping_shape, object_shape, raw_shape
from svc.web.routes.health_json import REPORT

_VARIES: Final = (("Vary", "Accept"),)

CHALLENGE: Final = Parameter.text("challenge", "random digits that the answer is bound to", required=True)
CODE: Final = Parameter.text("code", "what proves that a server of the cluster asks", required=True)
SOURCE: Final = Parameter.text("source", "the server whose counts were added last")
CONFIRMED: Final = Parameter.natural("confirmed", "the number of its counts that were added last")
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


@attrs.frozen
class ClusterReadings:
    """The route by which a server that can't write hands out its counts; ``hand_out`` is as in ``SharedParts``."""

    routes = Routes()

    claims: PeerClaims
    hand_out: Callable[[str, int], Awaitable[ReadingBatch]]

    @routes.add(
        "GET",
        "/cluster/readings",
        caller=PUBLIC,
        query=(CHALLENGE, CODE, SOURCE, CONFIRMED),
        answers=(Answer(200, "counts of reads, sealed", object_shape({"readings": TEXT})),),
        errors=(RouteNotFound,),
        privileges="knows the data key",
        audit=Unaudited("servers ask each other every minute"),
    )
    async def deliver(
        self, call: Call, *, challenge: str | None, code: str | None, source: str | None, confirmed: int | None
    ) -> Response:
        """Return this server's next counts of reads to another server of the cluster; to others it is 404 (READ-7)."""
        last = source or "", confirmed or 0
        if challenge is None or not self.claims.is_readings_question(challenge, code, *last):
            raise call.route_not_found()
        return Response.json({"readings": self.claims.seal_readings(challenge, await self.hand_out(*last))})


#: Seconds after which a browser asks again.
REFRESH_SECONDS: Final = 10

#: An answer that is older than this is shown with its age, in seconds.
_RECENT_SECONDS: Final = 15.0

_STYLE: Final = """
:root { color-scheme: light dark; --ground: #f6f7f9; --card: #ffffff; --ink: #1c1e21; --quiet: #555b64; --line: #d9dde3;
  --well: #17663a; --well-ground: #e3f4ea; --ill: #a3201a; --ill-ground: #fdeae8; }
@media (prefers-color-scheme: dark) { :root { --ground: #14161a; --card: #1d2026; --ink: #e9ebee; --quiet: #a9b0ba;
  --line: #363b44; --well: #86dba8; --well-ground: #173626; --ill: #ffa59d; --ill-ground: #4a1d1b; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 1rem/1.5 system-ui, sans-serif;
  overflow-wrap: break-word; }
header, main, footer { max-width: 76rem; margin: 0 auto; padding: 0 1.25rem; }
header { padding-top: 2rem; }
h1 { font-size: 1.5rem; margin: 0; }
header p { margin: .25rem 0 1.25rem; font-size: 1.1rem; }
footer { padding-top: 1rem; padding-bottom: 2rem; color: var(--quiet); font-size: .875rem; }
table { width: 100%; border-collapse: collapse; background: var(--card); border: 1px solid var(--line); }
caption { text-align: left; color: var(--quiet); font-size: .875rem; padding-bottom: .5rem; }
th, td { padding: .7rem .8rem; text-align: left; vertical-align: top; border-top: 1px solid var(--line); }
thead th { font-size: .8125rem; font-weight: 600; color: var(--quiet); border-top: 0; white-space: nowrap; }
th, td { overflow-wrap: anywhere; min-width: 6.5rem; } tbody th { min-width: 11rem; }
small { display: block; font-size: .8125rem; font-weight: 400; color: var(--quiet); }
.word { display: inline-block; padding: .05rem .55rem; border-radius: 1rem; font-weight: 600; white-space: nowrap; }
.well .word { color: var(--well); background: var(--well-ground); }
.ill .word { color: var(--ill); background: var(--ill-ground); }
ul { list-style: none; margin: 0; padding: 0; display: flex; flex-wrap: wrap; gap: .15rem .9rem; min-width: 14rem; }
li { font-size: .9375rem; }
li b { font-weight: 600; }
li.well b { color: var(--well); } li.ill b { color: var(--ill); }
td.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
@media (max-width: 66rem) {
  table, tbody, tr, th, td { display: block; } thead { display: none; }
  caption { display: block; }
  table { background: none; border: 0; }
  tr { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; margin: .9rem 0; padding: .4rem 0; }
  th, td, tbody th { border: 0; padding: .25rem .9rem; min-width: 0; }
  tbody th { font-size: 1.1rem; }
  td { display: grid; grid-template-columns: 7rem minmax(0, 1fr); }
  td.number { white-space: normal; } ul { min-width: 0; }
  td::before { content: attr(data-label); color: var(--quiet); }
}
"""

_DIGEST: Final = base64.b64encode(hashlib.sha256(_STYLE.encode("utf-8")).digest()).decode("ascii")

PAGE_HEADERS: Final = (
    ("Vary", "Accept"),
    (
        "Content-Security-Policy",
        f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("Referrer-Policy", "no-referrer"),
    ("X-Frame-Options", "DENY"),
)

_COLUMNS: Final = ("Server", "State", "Role", "Database", "Lag", "Last change", "Services")

_WORD_EXPLANATIONS: Final = {UNREACHABLE: "it gives no answer", INVALID: "its answer is no health report"}

_UNKNOWN: Final = "unknown"


def render_page(servers: Sequence[MemberHealth], now: float) -> str:
    """Return the page, of servers as they are at this moment, in epoch seconds."""
    title, summary = _summarize(servers)
    heads = "".join(f'<th role="columnheader" scope="col">{name}</th>' for name in _COLUMNS)
    rows = "\n".join(_render_row(each, now) for each in servers)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<meta http-equiv="refresh" content="{REFRESH_SECONDS}">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<header>
<h1>Health of the cluster</h1>
<p role="status">{escape(summary)}</p>
{"".join(f"<p>{escape(each)}</p>" for each in _cluster_remarks(servers))}</header>
<main>
<table role="table">
<caption>State of each server at {_render_time(now, iso_seconds(now).replace("T", " ").replace("Z", " UTC"))}</caption>
<thead role="rowgroup"><tr role="row">{heads}</tr></thead>
<tbody role="rowgroup">
{rows}
</tbody>
</table>
</main>
<footer>This page renews itself every {REFRESH_SECONDS} seconds. A server's own log says why a service fails.</footer>
</body>
</html>
"""


def _summarize(servers: Sequence[MemberHealth]) -> tuple[str, str]:
    """Return the title and the sentence for the whole."""
    ill = [each.name for each in servers if not each.ok]
    if not ill:
        return "ok: cluster", "This server is well." if len(servers) == 1 else f"All {len(servers)} servers are well."
    names = ", ".join(ill)
    return f"{len(ill)} not ok: cluster", f"{len(ill)} of {len(servers)} servers not well: {names}."


def _cluster_remarks(servers: Sequence[MemberHealth]) -> Iterator[str]:
    """Yield sentences about the cluster as a whole, where there is one."""
    if len(servers) > 1:
        yield describe_succession(find_successor(servers))
    for kind, found in differing_versions(servers).items():
        yield f"Versions of {kind} differ: {', '.join(found)}."


def _render_row(each: MemberHealth, now: float) -> str:
    cells = (
        _render_cell("State", _render_state(each), "well" if each.ok else "ill"),
        _render_cell("Role", _render_role(each, now)),
        _render_cell("Database", _with_note(each.database or _UNKNOWN, _version_text(each))),
        _render_cell("Lag", _render_lag(each), "number"),
        _render_cell("Last change", _render_last_change(each, now), "number"),
        _render_cell("Services", _render_services(each)),
    )
    name = escape(each.name)
    return f'<tr role="row"><th role="rowheader" scope="row">{name}</th>{"".join(cells)}</tr>'


def _with_note(text: str, note: str) -> str:
    return escape(text) + (f"<small>{escape(note)}</small>" if note else "")


def _render_role(each: MemberHealth, now: float) -> str:
    since = (
        ""
        if each.since is None
        else f"since {_render_time(each.since, f'{_format_duration(max(0.0, now - each.since))} ago')}"
    )
    notes = [note for note in (since, "" if each.timeline is None else f"timeline {each.timeline:.0f}") if note]
    return escape(each.role or _UNKNOWN) + (f"<small>{', '.join(notes)}</small>" if notes else "")


def _version_text(each: MemberHealth) -> str:
    release, program = f"PostgreSQL {each.release}" if each.release else "", f"svc {each.version}" if each.version else ""
    return ", ".join(filter(None, (release, "" if each.schema is None else f"schema {each.schema:.0f}", program)))


def _render_cell(label: str, content: str, style: str = "") -> str:
    styled = f' class="{style}"' if style else ""
    return f'<td role="cell" data-label="{label}"{styled}><div>{content}</div></td>'


def _render_state(each: MemberHealth) -> str:
    mark = "\u2713" if each.ok else "\u2715"
    remarks = []
    if each.word in _WORD_EXPLANATIONS:
        remarks.append(_WORD_EXPLANATIONS[each.word])
    if each.primaries == "two":
        remarks.append("there is another primary")
    if each.age > _RECENT_SECONDS:
        remarks.append(f"as of {_format_duration(each.age)} ago")
    remark = f"<small>{escape(', '.join(remarks))}</small>" if remarks else ""
    return f'<span class="word"><span aria-hidden="true">{mark} </span>{escape(each.word)}</span>{remark}'


def _render_services(each: MemberHealth) -> str:
    items = (
        f'<li class="{"well" if word == "ok" else "ill"}">{escape(name)} <b>{escape(word)}</b></li>'
        for name, word in each.services.items()
    )
    return f'<ul role="list">{"".join(items)}</ul>' if each.services else _UNKNOWN


def _render_lag(each: MemberHealth) -> str:
    seconds = "" if each.lag_seconds is None else f"{each.lag_seconds:,.1f} s"
    size = "" if each.lag_bytes is None else f"{each.lag_bytes:,.0f} bytes"
    if seconds and size:
        return f"{seconds}<small>{size}</small>"
    return seconds or size or ("none" if each.role == "primary" else _UNKNOWN)


def _render_last_change(each: MemberHealth, now: float) -> str:
    changed = each.changed
    return "none seen" if changed is None else _render_time(changed, f"{_format_duration(max(0.0, now - changed))} ago")


def _render_time(moment: float, text: str) -> str:
    return f'<time datetime="{iso_seconds(moment)}">{escape(text)}</time>'


def _format_duration(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}" if seconds >= 10 * size else f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
