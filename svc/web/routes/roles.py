"""Roles over HTTP: members, memberships, all roles that one holds, and the graph around one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import lru_cache, partial
from typing import Final
from urllib.parse import quote

import attrs

from svc.model.authentication import iso_day
from svc.model.clocks import iso_milliseconds
from svc.model.errors import Forbidden, InvalidName, InvalidParameter, RecordNotFound, TooManyRoles
from svc.model.events import Event, Subject
from svc.model.names import ROLE_KINDS, RoleName
from svc.model.query_results import EffectiveMembers, ListingKey, Membership, MembersQuery, Search
from svc.services.access import REACH_PRIVILEGES, AccessService
from svc.services.membership_lists import BATCH, in_batches
from svc.services.roles import RoleService
from svc.web.http.declarations import NO_BODY, Answer, Parameter, ParameterSource, PathName
from svc.web.http.messages import HeaderPairs, Json, Response
from svc.web.http.routing import REQUIRED, AuditEventsFunction, Call, Routes
from svc.web.http.shapes import BOOLEAN, TEXT, array_shape, object_shape
from svc.web.routes.access import AFTER_RESOURCE, PAGE_LIMIT, PRIVILEGES, REACH_SHAPE, reach_json
from svc.web.routes.listing import (
    COUNT,
    COUNT_SHAPE,
    CURSOR,
    KIND,
    LIMIT,
    OFFSET,
    PART_PARAMETERS,
    SEARCH,
    count_response,
    next_page_link,
    refuse_parts,
)

#: How many members a page has when ``offset`` is given without ``limit`` (ROLE-19).
DEFAULT_PAGE: Final = 10


#: Parsed names are cached, this many: the same roles are asked about again and again.
_NAME: Final = PathName("role", lru_cache(1024)(RoleName.from_parts))


def _read_member(source: ParameterSource) -> RoleName:
    text = source.query.text("member")
    if text is None:
        raise InvalidParameter("member", "member")
    try:
        return RoleName.parse(text)
    except InvalidName as refusal:
        raise InvalidParameter("member", f"'member': {refusal.message}") from None


TRANSITIVE: Final = Parameter.boolean("transitive", "whether members of members are members, too")
FILTER: Final = Parameter.texts("filter", "full ids of roles, which may leave out the account", field="wanted")
MEMBER: Final = Parameter("member", _read_member, TEXT, "the full id of a role of the same account", required=True)


def _read_filter(source: ParameterSource) -> tuple[str, ...]:
    refuse_parts(source.query, "all", *PART_PARAMETERS)
    return source.query.texts("filter")


ALL: Final = Parameter.combine("wanted", _read_filter, FILTER)

_RECORD: Final = object_shape(
    {"admin_option": BOOLEAN, "ownership": BOOLEAN, "role": TEXT, "member": TEXT}, {"policy": TEXT}
)
_WAY: Final = object_shape({"role": TEXT, "member": TEXT, "path": array_shape(TEXT)})
_EDGE: Final = object_shape({"parent": TEXT, "child": TEXT})
_LAST_LOGIN: Final = object_shape({"day": TEXT.or_null(), "kept_since": TEXT})
_ROLE: Final = object_shape(
    {"created_at": TEXT, "id": TEXT, "members": array_shape(_RECORD)}, {"policy": TEXT, "last_login": _LAST_LOGIN}
)
_COUNTED: Final = Answer(200, "how many they are, with count", COUNT_SHAPE)


_ROLE_READ_WORDS: Final = {
    "graph": "the graph of ",
    "all": "all roles of ",
    "memberships": "the memberships of ",
    "reach": "what is reached by ",
}


def role_queried(call: Call) -> list[Event]:
    """A role was shown, or its members, or its memberships or rights."""
    name = call.path_full_id()
    operation = call.route.when or "show"
    if operation != "members":
        return [role_read(name, operation)]
    return [members_listed(name, call.asked_values("account", "count", "kind", "search", "limit", "offset"))]


def role_read(name: str, operation: str) -> Event:
    """A role was read: by itself (``show``), or its ``graph``, its ``memberships``, ``all`` that it holds, its ``reach``."""
    words = _ROLE_READ_WORDS.get(operation, "")
    return Event("role", operation, (("role", name),), f"read {words}{name}", f"read {words}{name}")


def members_listed(name: str, asked: Subject) -> Event:
    """Members of a role were listed; ``asked`` are the parameters."""
    return Event("members", "list", (*asked, ("role", name)), f"listed members of {name}", f"list members of {name}")


def _membership_events(operation: str, did: str, does: str, preposition: str) -> AuditEventsFunction:
    def events(call: Call) -> list[Event]:
        role, member = call.path_full_id(), call.asked_value("member") or "-"
        subject, words = (("role", role), ("member", member)), f"{member} {preposition} {role}"
        event = Event("membership", operation, subject, f"{did} {words}", f"{does} {words}")
        return [] if call.audit_facts.get("unchanged") else [event]

    return events


member_added = _membership_events("add", "added", "add", "to")
member_removed = _membership_events("remove", "removed", "remove", "from")


@attrs.frozen
class Roles:
    """The routes of roles (ROLE-9 to ROLE-39)."""

    routes = Routes()
    _role_route = partial(
        routes.add,
        path="/roles/<flat:account>/<kind>/<tail:identifier>",
        kinds=ROLE_KINDS,
        name=_NAME,
        caller=REQUIRED,
        errors=(RecordNotFound, Forbidden),
    )
    _read_route = partial(_role_route, "GET", privileges="sees the role", audit=role_queried)
    _change_route = partial(_role_route, when="members", query=(MEMBER,), body=NO_BODY)

    roles: RoleService
    access: AccessService

    @_read_route(
        when="graph",
        answers=(Answer(200, "pairs of a role and a member of it, ordered by id", array_shape(_EDGE)),),
        errors=(RecordNotFound, Forbidden, TooManyRoles),
        privileges="sees the role; pairs are those of which it sees the first",
    )
    async def graph(self, call: Call, role: RoleName) -> Response:
        """Return the memberships around a role, as far as the caller may see them."""
        refuse_parts(call.query, "graph", "count", *PART_PARAMETERS)
        pairs = await self.roles.stream_graph(call.invocation, role)
        edges = ([{"parent": parent, "child": child} for parent, child in batch] async for batch in pairs)
        return await Response.json_array(edges)

    @_read_route(
        when="all",
        query=(ALL, COUNT),
        answers=(Answer(200, "full ids of roles, in order", array_shape(TEXT)), _COUNTED),
        errors=(RecordNotFound, Forbidden, TooManyRoles),
    )
    async def all_roles(self, call: Call, role: RoleName, *, wanted: tuple[str, ...], count: bool) -> Response:
        """Return the ids of all roles that a role holds, itself included, or of those in ``filter``; or how many."""
        held = await self.roles.list_held_roles(call.invocation, role, _full_ids(wanted, role))
        return count_response(len(held)) if count else await Response.json_array(in_batches(held))

    @_read_route(
        when="memberships",
        query=(LIMIT, OFFSET, CURSOR, SEARCH, KIND, COUNT, FILTER),
        answers=(Answer(200, "memberships, ordered by role", array_shape(_RECORD)), _COUNTED),
    )
    async def memberships(
        self,
        call: Call,
        role: RoleName,
        *,
        limit: int | None,
        offset: int | None,
        after: ListingKey | None,
        search: Search | None,
        kinds: tuple[str, ...],
        count: bool,
        wanted: tuple[str, ...],
    ) -> Response:
        """Return the memberships that a role has in others, with a ``Link`` to the next page; or how many (ROLE-28)."""
        if limit is None and offset is not None:
            limit = DEFAULT_PAGE
        # Of the members that ``filter`` names only the role itself has any here.
        query, members = MembersQuery(role, kinds, limit, offset or 0, search, after), _full_ids(wanted, role)
        if count:
            return count_response(await self.roles.count_memberships(call.invocation, query, members))
        page = await self.roles.list_memberships(call.invocation, query, members)
        return await Response.json_array(_memberships_json(page.batches), _next_page_link(call, role, page.last, limit))

    @_read_route(
        when="members",
        query=(LIMIT, OFFSET, CURSOR, SEARCH, KIND, COUNT, TRANSITIVE),
        answers=(
            Answer(200, "members, ordered by id", array_shape(_RECORD)),
            Answer(200, "effective members, ordered by id, each with a shortest path, with transitive", array_shape(_WAY)),
            _COUNTED,
        ),
        errors=(RecordNotFound, Forbidden, TooManyRoles),
    )
    async def members(
        self,
        call: Call,
        role: RoleName,
        *,
        limit: int | None,
        offset: int | None,
        after: ListingKey | None,
        search: Search | None,
        kinds: tuple[str, ...],
        count: bool,
        transitive: bool,
    ) -> Response:
        """Return the direct members of a role, or all effective ones, with a ``Link`` to the next page; or their number."""
        if limit is None and offset is not None:
            limit = DEFAULT_PAGE
        query = MembersQuery(role, kinds, limit, offset or 0, search, after)
        if transitive:
            if count:
                return count_response(await self.roles.count_effective_members(call.invocation, query))
            effective = await self.roles.list_effective_members(call.invocation, query)
            ways = _effective_members_json(effective.found, effective.members)
            return await Response.json_array(ways, _next_page_link(call, role, effective.last, limit))
        if count:
            return count_response(await self.roles.count_members(call.invocation, query))
        page = await self.roles.list_members(call.invocation, query)
        return await Response.json_array(_memberships_json(page.batches), _next_page_link(call, role, page.last, limit))

    @_read_route(
        when="reach",
        query=(PRIVILEGES, PAGE_LIMIT, AFTER_RESOURCE),
        answers=(Answer(200, "resources, ordered by id, each with privileges and a way", REACH_SHAPE),),
        privileges="sees the role, or holds it; resources are those that it sees",
    )
    async def reach(
        self, call: Call, role: RoleName, *, privileges: tuple[str, ...], limit: int, after: str | None
    ) -> Response:
        """Return what a role can do with which resources (ACC-12)."""
        page = await self.access.list_reachable_resources(
            call.invocation, role, privileges or REACH_PRIVILEGES, limit=limit, after=after
        )
        return Response.json(reach_json(page))

    @_read_route(answers=(Answer(200, "the role with its direct members, owners first", _ROLE),))
    async def show(self, call: Call, role: RoleName) -> Response:
        """Return the role with its direct members."""
        shown = await self.roles.read_role(call.invocation, role)
        reading = shown.role
        about: dict[str, Json] = {"created_at": iso_milliseconds(reading.created_at), "id": str(role)}
        if reading.policy:
            about["policy"] = reading.policy
        if (last := shown.last_login) is not None:
            day = None if last.day is None else iso_day(last.day)
            about["last_login"] = {"day": day, "kept_since": iso_milliseconds(last.kept_since)}
        head = Response.json(about).body[:-1] + b',"members":['
        return await Response.json_array(_memberships_json(shown.members), head=head, tail=b"]}")

    @_change_route(
        "POST",
        answers=(Answer(204, "the member is one now, if it wasn't before"),),
        privileges="create on the policy that recorded the role",
        audit=member_added,
    )
    async def grant(self, call: Call, role: RoleName, *, member: RoleName) -> Response:
        """Make ``member`` a member of the role."""
        await self.roles.add_member(call.invocation, role, member)
        return Response.empty()

    @_change_route(
        "DELETE",
        answers=(Answer(204, "the member is none any more"),),
        privileges="update on the policy that recorded the role",
        audit=member_removed,
    )
    async def revoke(self, call: Call, role: RoleName, *, member: RoleName) -> Response:
        """Remove ``member`` from the role."""
        await self.roles.remove_member(call.invocation, role, member)
        return Response.empty()


def _full_ids(texts: tuple[str, ...], role: RoleName) -> frozenset[str]:
    """Return the full ids that elements of ``filter`` mean, which may leave out the account (ROLE-29)."""
    for text in texts:
        if ":" not in text:
            raise InvalidParameter("filter", f"'filter': Expected at least 2 tokens in {text[:100]}")
    return frozenset(text if text.count(":") > 1 else f"{role.account}:{text}" for text in texts)


def _next_page_link(call: Call, role: RoleName, last: ListingKey | None, limit: int | None) -> HeaderPairs:
    """Return the header with the link to the page after ``last``; none where there is no such page."""
    if last is None:
        return ()
    path = "/".join(quote(part, safe="") for part in (role.account, role.kind, role.identifier))
    return next_page_link(f"{call.path_prefix}/roles/{path}", last, limit, call.query)


async def _effective_members_json(found: EffectiveMembers, members: Sequence[str]) -> AsyncIterator[Sequence[Json]]:
    """Return effective members, each with its path, in batches of about ``BATCH`` ids."""
    batch, ids = list[Json](), 0
    for member in members:
        path = found.shortest_path(member)
        batch.append({"role": found.role, "member": member, "path": path})
        ids += len(path)
        if ids >= BATCH:
            yield batch
            batch, ids = [], 0
    yield batch


async def _memberships_json(batches: AsyncIterator[Sequence[Membership]]) -> AsyncIterator[Sequence[Json]]:
    """Return memberships in JSON; a row that no policy made has no ``policy`` (ROLE-15)."""
    async for batch in batches:
        records = list[Json]()
        for role, member, admin_option, ownership, policy, _ in batch:
            record: dict[str, Json] = {"admin_option": admin_option, "ownership": ownership, "role": role, "member": member}
            if policy is not None:
                record["policy"] = policy
            records.append(record)
        yield records
