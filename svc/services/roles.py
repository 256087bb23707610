"""The use cases of roles: list members and memberships, and change members."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence

import attrs

from svc.model.authentication import LastLogin
from svc.model.authorization import require_privilege, require_role_visible
from svc.model.dialect import Dialect
from svc.model.errors import Forbidden, InvalidParameter, RecordNotFound
from svc.model.names import ACTOR_KINDS, ResourceName, RoleName
from svc.model.query_results import EffectiveMembers, ListingKey, MemberChangeFacts, Membership, MembersQuery, RoleReading
from svc.services.invocation import Invocation
from svc.services.membership_lists import USUAL, MembershipList, Page, first_batch_query, in_batches
from svc.storage.last_logins import LastLoginStore
from svc.storage.roles import RoleStore


@attrs.frozen
class RoleDetails:
    """A role with its direct members in batches, owners first, and a user's or host's last login, where that is shown."""

    role: RoleReading
    members: AsyncIterator[Sequence[Membership]]
    last_login: LastLogin | None


@attrs.frozen
class EffectivePage:
    """A page of the effective members of a role: ``members`` of those in ``found``; ``last`` is as in ``Page``."""

    found: EffectiveMembers
    members: Sequence[str]
    last: ListingKey | None


@attrs.frozen
class RoleService:
    """The use cases of roles. A role is seen as its resource is (``model.authorization.require_role_visible``).

    :raises Forbidden: by all methods: the caller's role is gone, or it may not see the role and gets that answer.
    :raises NotFound: by all methods: there is no such role, or the caller may not see it.
    :raises TooManyRoles: by those that follow roles (effective members, all roles, graph): they are too many.
    """

    store: RoleStore
    dialect: Dialect
    last_logins: LastLoginStore

    async def list_members(self, invocation: Invocation, query: MembersQuery) -> Page[Membership]:
        """Return the direct members of a role, ordered by id."""
        # Few forms of requests for a page are usual, and only those are cached: a short one, and the whole list. A list in
        # several batches is never read from the cache: permission and members never come from two states.
        asked, usual = first_batch_query(query), not query.offset and (query.limit is None or query.limit <= USUAL)
        access_facts, first = await self.store.list_members_with_facts(invocation.caller, asked, whole=usual)
        if usual and query.limit is None and len(first) == asked.limit:
            access_facts, first = await self.store.list_members_with_facts(invocation.caller, asked)
        require_role_visible(access_facts, query.role, invocation.caller.role, self.dialect)
        return await MembershipList(self.store.list_members, _member_key).read_page(query, first)

    async def count_members(self, invocation: Invocation, query: MembersQuery) -> int:
        """Return how many direct members of a role the query matches."""
        await self._require_visible(invocation, query.role)
        return await self.store.count_members(query)

    async def list_effective_members(self, invocation: Invocation, query: MembersQuery) -> EffectivePage:
        """Return the roles that hold a role, directly or through others, ordered by id, at once: following is done once."""
        await self._require_visible(invocation, query.role)
        limit = query.limit
        found = await self.store.list_effective_members(attrs.evolve(query, limit=None if limit is None else limit + 1))
        last = None if limit is None or len(found.members) <= limit else found.listing_key(found.members[limit - 1])
        return EffectivePage(found, found.members[:limit], last)

    async def count_effective_members(self, invocation: Invocation, query: MembersQuery) -> int:
        """Return how many hold a role, directly or through others, of those that the query matches."""
        await self._require_visible(invocation, query.role)
        return len((await self.store.list_effective_members(_without_paging(query))).members)

    async def list_memberships(self, invocation: Invocation, query: MembersQuery, of: Collection[str]) -> Page[Membership]:
        """Return the memberships that a role has in others, ordered by id; none when ``of`` has ids, and not the role's."""
        await self._require_visible(invocation, query.role)
        if of and str(query.role) not in of:
            return Page(in_batches([]), None)
        memberships = MembershipList(self.store.list_memberships, lambda row: ListingKey(row.role, row.ownership, row.rank))
        return await memberships.read_page(query, await self.store.list_memberships(first_batch_query(query)))

    async def count_memberships(self, invocation: Invocation, query: MembersQuery, of: Collection[str]) -> int:
        """Return how many memberships ``list_memberships`` has."""
        await self._require_visible(invocation, query.role)
        return 0 if of and str(query.role) not in of else await self.store.count_memberships(_without_paging(query))

    async def list_held_roles(self, invocation: Invocation, role: RoleName, wanted: Collection[str]) -> list[str]:
        """Return the full ids of all roles that a role holds, itself included, or of those in ``wanted``, in order."""
        await self._require_visible(invocation, role)
        return [name for name in await self.store.list_held_roles(role) if not wanted or name in wanted]

    async def stream_graph(self, invocation: Invocation, role: RoleName) -> AsyncIterator[Sequence[tuple[str, str]]]:
        """Return the memberships around a role that the caller may see, as pairs of a role and a member, in batches."""
        await self._require_visible(invocation, role)
        return self.store.stream_graph(invocation.caller.role, role)

    async def read_role(self, invocation: Invocation, role: RoleName) -> RoleDetails:
        """Return a role with its direct members."""
        query = MembersQuery(role)
        access_facts, first = await self.store.list_members_with_facts(invocation.caller, first_batch_query(query))
        require_role_visible(access_facts, role, invocation.caller.role, self.dialect)
        reading = await self.store.read_role(role)
        if reading is None:
            raise RecordNotFound.for_name(role)

        async def stream_members() -> AsyncIterator[Sequence[Membership]]:
            owners = reading.owners
            async for batch in MembershipList(self.store.list_members, _member_key).read_batches(query, first):
                yield [*owners, *(row for row in batch if not row.ownership)]
                owners = ()
            yield owners

        shows_login = self.dialect.shows_last_login and role.kind in ACTOR_KINDS
        return RoleDetails(reading, stream_members(), await self.last_logins.read_last_login(role) if shows_login else None)

    async def read_last_login(self, invocation: Invocation, role: RoleName) -> LastLogin:
        """Return the last login of a user or host."""
        await self._require_visible(invocation, role)
        return await self.last_logins.read_last_login(role)

    async def add_member(self, invocation: Invocation, role: RoleName, member: RoleName) -> None:
        """Make ``member`` a member of the role; requires ``create`` on the policy that recorded it.

        :raises InvalidParameter: the member is of another account, or can't have another role.
        """
        decide = self._make_decision(invocation, role, member, "create")
        recorder = invocation.recorder
        added = await self.store.add_member(invocation.caller, role, member, decide, recorder.event_batch)
        recorder.add_audit_facts(unchanged=not added)

    async def remove_member(self, invocation: Invocation, role: RoleName, member: RoleName) -> None:
        """Remove ``member`` from the role; requires ``update`` on the policy that recorded it.

        :raises InvalidParameter: the member is of another account.
        :raises NotFound: it was no member.
        """
        decide = self._make_decision(invocation, role, member, "update")
        if not await self.store.remove_member(invocation.caller, role, member, decide, invocation.recorder.event_batch):
            raise RecordNotFound.for_name(member)

    async def _require_visible(self, invocation: Invocation, role: RoleName) -> None:
        access_facts = await self.store.access_facts(invocation.caller, role.resource)
        require_role_visible(access_facts, role, invocation.caller.role, self.dialect)

    def _make_decision(
        self, invocation: Invocation, role: RoleName, member: RoleName, privilege: str
    ) -> Callable[[MemberChangeFacts], None]:
        if member.account != role.account:
            raise InvalidParameter("member", "'member' must be of the role's own account")
        caller = invocation.caller.role

        def check_reading(reading: MemberChangeFacts) -> None:
            require_role_visible(reading.access_facts, role, caller, self.dialect)
            if reading.over_policy is None or reading.access_facts.recorded_by is None:
                raise Forbidden(f"{role} is of no policy, so that nobody has {privilege} on that")
            try:
                require_privilege(reading.over_policy, privilege, ResourceName.parse(reading.access_facts.recorded_by))
            except RecordNotFound:
                raise Forbidden(f"may not see the policy of {role}") from None
            if not reading.member_exists:
                raise RecordNotFound.for_name(member)

        return check_reading


def _without_paging(query: MembersQuery) -> MembersQuery:
    return attrs.evolve(query, limit=None, offset=0, after=None)


def _member_key(row: Membership) -> ListingKey:
    return ListingKey(row.member, row.ownership, row.rank)
