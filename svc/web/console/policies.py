"""The tree of policies, with what is beneath each, and the search."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import attrs

from svc.model.errors import Forbidden, InvalidName, InvalidParameter
from svc.model.events import Event
from svc.model.names import RESOURCE_KINDS, ResourceName, is_other_kind, root_policy
from svc.model.query_results import ResourcesQuery, Search
from svc.services.access import AccessService
from svc.services.resources import ResourceService
from svc.web.console import links, pages
from svc.web.console.rendering import PageRenderer
from svc.web.http.declarations import Parameter, ParameterSource
from svc.web.http.messages import Response
from svc.web.http.routing import Call, Routes
from svc.web.http.shapes import TEXT
from svc.web.routes.listing import OFFSET, SEARCH
from svc.web.routes.resources import resources_listed_event

#: The kinds in the order in which they are offered.
KINDS: Final = ("policy", "variable", "host", "layer", "user", "group", "webservice", "host_factory", "public_key")


def _read_kind(source: ParameterSource) -> str | None:
    text = source.query.text("kind")
    if text and not (text in RESOURCE_KINDS or (source.dialect.lenient_policy and is_other_kind(text))):
        raise InvalidParameter("kind", "'kind' is none that there is")
    return text or None


def _read_after(source: ParameterSource) -> str | None:
    text = source.query.text("after")
    try:
        return str(ResourceName.parse(text)) if text else None
    except InvalidName as refusal:
        raise InvalidParameter("after", f"'after' is no full id: {refusal.message}") from None


KIND: Final = Parameter("kind", _read_kind, TEXT, "the kind of what is listed")
AFTER: Final = Parameter("after", _read_after, TEXT, "the full id behind which the list goes on")


def list_events(call: Call) -> list[Event]:
    """Resources were listed, as by the routes of resources."""
    return [resources_listed_event(call.audit_facts["listed"])] if "listed" in call.audit_facts else []


@attrs.frozen
class PolicyTree:
    """The tree of policies, and the search."""

    routes = Routes()
    _list_page = partial(pages.declare_page, routes, audit=list_events)

    renderer: PageRenderer
    resources: ResourceService
    access: AccessService

    @_list_page(links.POLICIES, query=(KIND, AFTER), privileges="a role that exists; what it sees is listed")
    async def list_policies(self, call: Call, *, kind: str | None, after: str | None) -> Response:
        """Return the policies of the account, or what there is of another kind."""
        return await self._render_list(call, None, kind or "policy", after)

    @_list_page(f"{links.POLICIES}/<tail:name>", query=(KIND, AFTER), privileges="sees the policy; what it sees is listed")
    async def list_below(self, call: Call, name: str, *, kind: str | None, after: str | None) -> Response:
        """Return the policies beneath one, or what there is of another kind."""
        return await self._render_list(call, pages.parse_full_id(name, "policy"), kind or "policy", after)

    @_list_page(
        links.SEARCH,
        query=(SEARCH, KIND, OFFSET),
        errors=(Forbidden,),
        privileges="a role that exists; what it sees is found",
    )
    async def search(self, call: Call, *, search: Search | None, kind: str | None, offset: int | None) -> Response:
        """Return what is found by its words: in ids, and in annotations."""
        account = call.caller.role.account
        asked, start, text = (("account", account), ("kind", kind)), offset or 0, "" if search is None else search.text
        found: Sequence[str] = ()
        if text.strip():
            query = ResourcesQuery(call.caller.role, account, (kind,) if kind else (), None, search, pages.ROWS + 1, start)
            _record_listing(call, (*asked, ("search", text), ("limit", query.limit), ("offset", start or None)))
            found = await self.resources.list_names(call.invocation, query)
        more = links.with_query(links.SEARCH, (("search", text), ("kind", kind), ("offset", start + pages.ROWS)))
        return self.renderer.render_page(
            call.visit,
            "search.html",
            title=f"Search: {text}" if text else "Search",
            text=text,
            kind=kind,
            kinds=KINDS,
            start=start,
            found=found[: pages.ROWS],
            more=more if len(found) > pages.ROWS else None,
        )

    async def _render_list(self, call: Call, policy: ResourceName | None, kind: str, after: str | None) -> Response:
        account = call.caller.role.account if policy is None else policy.account
        query = ResourcesQuery(call.caller.role, account, (kind,), limit=pages.ROWS + 1, after=after)
        _record_listing(call, (("account", account), ("kind", kind), ("limit", query.limit)))
        found = await self.resources.list_names(call.invocation, query, policy)
        path = links.POLICIES if policy is None else links.policy(str(policy))
        rows = found[: pages.ROWS]
        more = links.with_query(path, (("kind", kind), ("after", rows[-1]))) if len(found) > len(rows) else None
        return self.renderer.render_page(
            call.visit,
            "policies.html",
            title="Policies" if policy is None else policy.identifier,
            policy=None if policy is None else str(policy),
            above=() if policy is None else await enclosing_policies(self.access, call, policy),
            account=account,
            path=path,
            kind=kind,
            kinds=KINDS,
            after=after,
            rows=[(row, _relative_depth(row, policy)) for row in rows],
            more=more,
        )


async def enclosing_policies(access: AccessService, call: Call, name: ResourceName) -> list[tuple[str, bool]]:
    """Return the full ids that policies around a name would have, the outermost first, with whether the caller sees one."""
    parts = name.identifier.split("/")
    around = ["/".join(parts[:end]) for end in range(1, len(parts))]
    names = [str(ResourceName(name.account, "policy", identifier)) for identifier in around if identifier]
    seen = await access.filter_visible(call.invocation, names)
    return [(each, each in seen) for each in names]


def _relative_depth(full_id: str, policy: ResourceName | None) -> int:
    """Return how many levels a name lies below another, as far as they are shown."""
    outer = 0 if policy is None or policy == root_policy(policy.account).resource else policy.identifier.count("/") + 1
    return min(max(full_id.count("/") - outer, 0), 6)


def _record_listing(call: Call, asked: Sequence[tuple[str, Any]]) -> None:
    """Record what is listed, as for the routes of resources."""
    call.add_audit_facts(listed=tuple((name, str(value)) for name, value in asked if value is not None))
