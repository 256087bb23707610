"""Roles: who belongs to them, and what they belong to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from typing import Final

import attrs

from svc.model.authorization import demand, see_role
from svc.model.dialect import Dialect
from svc.model.errors import Forbidden, InvalidName, InvalidParameter, NotFound, RouteNotFound
from svc.model.names import ROLE_KINDS, ResourceName, RoleName
from svc.model.ports import IRoles
from svc.model.query_results import EffectiveMembers, MemberReading, Membership, MembersQuery, Place
from svc.web.http.query import Query
from svc.web.http.response import Response
from svc.web.http.routing import REQUIRED, Call, Routes
from svc.web.routes import auditing
from svc.web.routes.listing import BATCH, Listed, counted, in_batches, link, members_query

_PATH: Final = "/roles/<flat:account>/<kind>/<tail:identifier>"


@attrs.frozen
class Roles:
    """The routes of roles (source document, endpoint 6; wire facts, core 2)."""

    routes = Routes()

    store: IRoles
    dialect: Dialect

    @routes.add("GET", _PATH, caller=REQUIRED, audit=auditing.role_asked)
    async def ask(self, call: Call, account: str, kind: str, identifier: str) -> Response:
        """Answer the first of the questions that the query has; without any, show the role."""
        role = _role("GET", account, kind, identifier)
        if call.query.flag("graph"):
            return await self._graph(call, role)
        if call.query.flag("all"):
            return await self._all(call, role)
        if call.query.flag("memberships"):
            return await self._memberships(call, role)
        if call.query.flag("members"):
            return await self._members(call, role)
        return await self._show(call, role)

    @routes.add("POST", _PATH, caller=REQUIRED, audit=auditing.member_added)
    async def grant(self, call: Call, account: str, kind: str, identifier: str) -> Response:
        """Make ``member`` a member of the role; the caller needs ``create`` on the policy that recorded it."""
        role, member = _grant("POST", call.query, account, kind, identifier)
        decide = self._decide(call, role, member, "create")
        call.tell(unchanged=not await self.store.add_member(call.caller, role, member, decide, call.trail))
        return Response.empty()

    @routes.add("DELETE", _PATH, caller=REQUIRED, audit=auditing.member_removed)
    async def revoke(self, call: Call, account: str, kind: str, identifier: str) -> Response:
        """Take the role back from ``member``; the caller needs ``update`` on the policy that recorded it."""
        role, member = _grant("DELETE", call.query, account, kind, identifier)
        decide = self._decide(call, role, member, "update")
        if not await self.store.remove_member(call.caller, role, member, decide, call.trail):
            raise NotFound.of(member)
        return Response.empty()

    async def _see(self, call: Call, role: RoleName) -> None:
        caller = call.caller.role
        see_role(await self.store.standing(call.caller, role.resource), role, caller, self.dialect)

    async def _show(self, call: Call, role: RoleName) -> Response:
        """The role with its direct members, its owner first."""
        await self._see(call, role)
        reading = await self.store.role(role)
        if reading is None:
            raise NotFound.of(role)
        created_at = datetime.fromtimestamp(reading.created_at, UTC).isoformat(timespec="milliseconds")
        shown = {"created_at": created_at, "id": str(role)} | ({"policy": reading.policy} if reading.policy else {})
        listed = Listed(self.store.members, _place, _record)

        async def members() -> AsyncIterator[Sequence[object]]:
            yield [_record(owner) for owner in reading.owners]
            async for batch in listed.batches(MembersQuery(role)):
                yield [_record(row) for row in batch if not row.ownership]

        head = Response.json(shown).body[:-1] + b',"members":['
        return await Response.json_array(members(), head=head, tail=b"]}")

    async def _members(self, call: Call, role: RoleName) -> Response:
        """The direct members, or all effective ones; or how many there are."""
        query, count = members_query(call.query, role, self.dialect), counted(call.query, self.dialect)
        transitive = call.query.boolean("transitive")
        await self._see(call, role)
        if transitive:
            if count:
                return _count(len((await self.store.effective_members(_unpaged(query))).members))
            return await self._effective(call, query)
        if count:
            return _count(await self.store.count_members(query))
        return await Listed(self.store.members, _place, _record).answer(query, call.query)

    async def _effective(self, call: Call, query: MembersQuery) -> Response:
        # They are no more than can be held, but more than can be followed again for each batch.
        limit = query.limit
        found = await self.store.effective_members(attrs.evolve(query, limit=None if limit is None else limit + 1))
        last = None if limit is None or len(found.members) <= limit else found.place(found.members[limit - 1])
        return await Response.json_array(_ways(found, found.members[:limit]), link(last, query, call.query))

    async def _memberships(self, call: Call, role: RoleName) -> Response:
        """The memberships that the role has in others, or how many; they have no pages (wire facts, core 2).

        ``filter`` tells of which member they may be, which is always the role itself.
        """
        query, count = _unpaged(members_query(call.query, role, self.dialect)), counted(call.query, self.dialect)
        asked = {_full_id(text, role.account) for text in call.query.texts("filter")}
        await self._see(call, role)
        if asked and str(role) not in asked:
            return _count(0) if count else Response.json([])
        if count:
            return _count(await self.store.count_memberships(query))
        return await Listed(self.store.memberships, _granted_place, _record).answer(query, call.query)

    async def _all(self, call: Call, role: RoleName) -> Response:
        """The ids of all roles that the role holds, itself included, or of those in ``filter``; or how many."""
        asked, count = call.query.texts("filter"), counted(call.query, self.dialect)
        wanted = {_full_id(text, role.account) for text in asked}
        await self._see(call, role)
        held = [name for name in await self.store.held(role) if not asked or name in wanted]
        return _count(len(held)) if count else await Response.json_array(in_batches(held))

    async def _graph(self, call: Call, role: RoleName) -> Response:
        """The memberships around the role, as far as the caller may see them."""
        await self._see(call, role)

        async def edges() -> AsyncIterator[Sequence[object]]:
            async for batch in self.store.graph(call.caller.role, role):
                yield [{"parent": parent, "child": child} for parent, child in batch]

        return await Response.json_array(edges())

    def _decide(self, call: Call, role: RoleName, member: RoleName, privilege: str) -> Callable[[MemberReading], None]:
        caller = call.caller.role

        def decide(reading: MemberReading) -> None:
            see_role(reading.standing, role, caller, self.dialect)
            if reading.over_policy is None or reading.standing.recorded_by is None:
                raise Forbidden(f"{role} is of no policy, so that nobody has {privilege} on that")
            try:
                demand(reading.over_policy, privilege, ResourceName.parse(reading.standing.recorded_by))
            except NotFound:
                raise Forbidden(f"may not see the policy of {role}") from None
            if not reading.member_exists:
                raise NotFound.of(member)

        return decide


def _role(method: str, account: str, kind: str, identifier: str) -> RoleName:
    if kind not in ROLE_KINDS:
        raise RouteNotFound(method, f"/roles/{account}/{kind}/{identifier}")
    return RoleName.of(account, kind, identifier)


def _grant(method: str, query: Query, account: str, kind: str, identifier: str) -> tuple[RoleName, RoleName]:
    """The role that a request to change members names, and the member.

    :raises RouteNotFound: the query has no ``members``.
    :raises InvalidParameter: ``member`` is missing, or no full id of a role in the same account.
    """
    role = _role(method, account, kind, identifier)
    if not query.flag("members"):
        raise RouteNotFound(method, f"/roles/{account}/{kind}/{identifier}")
    text = query.text("member")
    if text is None:
        raise InvalidParameter("member", "member")
    try:
        member = RoleName.parse(text)
    except InvalidName as refusal:
        raise InvalidParameter("member", f"'member': {refusal.message}") from None
    if member.account != role.account:
        raise InvalidParameter("member", "'member' must be of the role's own account")
    return role, member


def _full_id(text: str, account: str) -> str:
    """The full id that an element of ``filter`` means, which may leave out the account (wire facts, core 2).

    :raises InvalidParameter: it is none.
    """
    parts = text.count(":")
    if not parts:
        raise InvalidParameter("filter", f"'filter': Expected at least 2 tokens in {text[:100]}")
    return text if parts > 1 else f"{account}:{text}"


def _unpaged(query: MembersQuery) -> MembersQuery:
    return attrs.evolve(query, limit=None, offset=0, after=None)


def _count(count: int) -> Response:
    return Response.json({"count": count})


async def _ways(found: EffectiveMembers, members: Sequence[str]) -> AsyncIterator[Sequence[object]]:
    """Effective members as they are told, each with its path, in batches of about ``BATCH`` ids."""
    batch, ids = list[object](), 0
    for member in members:
        path = found.path(member)
        batch.append({"role": found.role, "member": member, "path": path})
        ids += len(path)
        if ids >= BATCH:
            yield batch
            batch, ids = [], 0
    yield batch


def _place(row: Membership) -> Place:
    return Place(row.member, row.ownership, row.rank)


def _granted_place(row: Membership) -> Place:
    return Place(row.role, row.ownership, row.rank)


def _record(row: Membership) -> dict[str, object]:
    """A membership as the source document shows it; a row that no policy made has no ``policy`` (wire facts, core 0.4)."""
    record: dict[str, object] = {
        "admin_option": row.admin_option,
        "ownership": row.ownership,
        "role": row.role,
        "member": row.member,
    }
    return record if row.policy is None else record | {"policy": row.policy}
