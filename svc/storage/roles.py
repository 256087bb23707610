"""The store of roles on PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Final

import attrs

from svc.model.errors import CallerReplaced, InvalidParameter, RecordNotFound
from svc.model.events import EventBatch
from svc.model.limits import RECORD_LIMITS
from svc.model.names import ResourceName, RoleName
from svc.model.policy_loads import RecordLimit
from svc.model.query_results import (
    AccessFacts,
    Caller,
    CallerOrRole,
    EffectiveMembers,
    MemberChangeFacts,
    Membership,
    MembersQuery,
    RoleReading,
)
from svc.storage import memberships
from svc.storage.driver.columns import to_array
from svc.storage.driver.connection import Fetched
from svc.storage.driver.failures import ForeignKeyViolation
from svc.storage.driver.statements import CachedReading, NamedAnswer, Statement, Statements, Transaction
from svc.storage.events import record_events
from svc.storage.sql import membership_graph
from svc.storage.sql.access_facts import (
    CURRENT,
    WITH_ACCESS_FACTS,
    Fetch,
    access_facts_of,
    add_inspection,
    caller_parameters,
    filter_inspected,
    mark_inspected,
    needs_no_inspection,
    read_with_inspection,
)
from svc.storage.sql.dependencies import CALLER_NAMES, HELD_NAMES, cached_statement, name_array
from svc.storage.sql.mapped_memberships import UNMAP
from svc.storage.sql.record_limits import list_exceeding

_ACCESS_FACTS: Final = Statement("access_facts", f"{WITH_ACCESS_FACTS} SELECT * FROM access_facts")
_CACHED_FACTS: Final = cached_statement(
    "standing",
    lambda more: f"{WITH_ACCESS_FACTS} SELECT *{more} FROM access_facts",
    HELD_NAMES,
    CALLER_NAMES,
    name_array(("r", "$2")),
    known="caller_current IS NOT NULL AND resource_exists",
)
_EXISTS: Final = Statement("role_exists", "SELECT EXISTS (SELECT FROM roles WHERE role_id = $1::text)")
_PRESENT: Final = cached_statement(
    "role_present",
    lambda more: (
        f"SELECT current{more} FROM (SELECT {CURRENT.format(numbers='$2', caller='$1::text')} AS current) AS caller"
    ),
    CALLER_NAMES,
    known="current IS NOT NULL",
)

# Owners have the admin option, by which they are found among a million members.
_ROLE: Final = Statement.with_name("role")("""
    SELECT extract(epoch FROM created_at)::double precision, role.policy_id,
        role.role_id, member_id, admin_option, ownership, owner.policy_id
    FROM roles AS role LEFT JOIN LATERAL (
        SELECT member_id, admin_option, ownership, policy_id FROM memberships
        WHERE memberships.role_id = role.role_id AND admin_option AND ownership OFFSET 0
    ) AS owner ON true
    WHERE role.role_id = $1::text
    ORDER BY member_id
""")
_ADD: Final = Statement.with_name("member_add")("""
    INSERT INTO memberships (role_id, member_id, ownership, admin_option) VALUES ($1::text, $2::text, false, false)
    ON CONFLICT DO NOTHING RETURNING role_id
""")
_REMOVE: Final = Statement.with_name("member_remove")(
    "DELETE FROM memberships WHERE role_id = $1::text AND member_id = $2::text AND NOT ownership RETURNING role_id"
)

Decide = Callable[[MemberChangeFacts], None]


async def access_facts(fetch: Fetch, caller: CallerOrRole, resource: str) -> AccessFacts:
    """Return a caller's access facts towards a resource, given by its full id; be it within a transaction.

    :raises CallerReplaced: see ``access_facts``, Note [The caller of a token].
    """
    found = await held_facts(fetch, caller, resource)
    return (await add_inspection(fetch, caller, {resource: found}))[resource]


async def held_facts(fetch: Fetch, caller: CallerOrRole, resource: str) -> AccessFacts:
    """Return what ``access_facts`` does, where it doesn't matter whether the caller sees the resource; raises the same."""
    role, numbers = caller_parameters(caller)
    (row,) = await fetch(_ACCESS_FACTS, role, resource, numbers)
    return access_facts_of(row)


@attrs.frozen
class RoleStore:
    """Roles, their access facts and their members."""

    _database: Statements

    async def access_facts(self, caller: CallerOrRole, resource: ResourceName) -> AccessFacts:
        """Return the access facts of ``caller`` and ``resource``."""
        return await access_facts(self._database.fetch_uncached, caller, str(resource))

    async def holds_role(self, caller: Caller, role: RoleName) -> bool:
        """Return whether the role exists and the caller holds it."""
        return (await held_facts(self._database.fetch_uncached, caller, str(role))).holds

    async def can_inspect(self, caller: RoleName, resource: ResourceName) -> bool:
        """Return whether the role inspects a resource, whatever else it may do with it (INS-1)."""
        return bool(await filter_inspected(self._database.fetch_uncached, caller, [str(resource)]))

    async def cached_access_facts(self, caller: CallerOrRole, resource: ResourceName) -> AccessFacts:
        """Return the access facts, for a decision on them alone: they may come from the read cache (CLU-31)."""
        role, numbers = caller_parameters(caller)
        full = str(resource)
        parameters = role, full, numbers
        (row,) = await self._database.fetch(_CACHED_FACTS, *parameters)
        if needs_no_inspection(found := access_facts_of(row)):
            return found

        def facts_by_resource(rows: Fetched) -> dict[str, AccessFacts]:
            return {full: access_facts_of(rows[0])}

        rows, inspected = await read_with_inspection(self._database, _CACHED_FACTS, parameters, caller, facts_by_resource)
        return mark_inspected(facts_by_resource(rows), inspected)[full]

    async def caller_exists(self, caller: Caller) -> bool:
        """Return whether there is a role of the caller's name, where nothing else is read from the store."""
        ((current,),) = await self._database.fetch(_PRESENT, *caller_parameters(caller))
        if current is False:
            raise CallerReplaced
        return current is not None

    async def read_role(self, role: RoleName) -> RoleReading | None:
        """Return the role by itself; ``None`` when there is none."""
        if not (rows := await self._database.fetch(_ROLE, str(role))):
            return None
        created_at, policy = rows[0][:2]
        return RoleReading(created_at, policy, tuple(Membership(*row[2:]) for row in rows if row[3] is not None))

    async def list_members(self, query: MembersQuery) -> list[Membership]:
        """Return the direct members of a role, by class for a search by class, by id, then grants before ownership."""
        return await memberships.MEMBERS.read_page(self._database, query)

    async def list_members_with_facts(
        self, caller: CallerOrRole, query: MembersQuery, *, whole: bool = False
    ) -> tuple[AccessFacts, list[Membership]]:
        """Return the access facts about the role's resource, and ``list_members``, in one round trip.

        ``whole``: nothing else is read of the list, so that it may come from the read cache (CLU-34).

        There are no members for a caller that neither owns nor holds the role, nor has any privilege on its resource.
        """
        found = await memberships.MEMBERS_WITH_FACTS.read_page(self._database, caller, query, whole=whole)
        if found is None:
            return await self.access_facts(caller, query.role.resource), []
        if needs_no_inspection(found[0]):
            return found
        return await self._database.read(
            CachedReading(("members_inspected", caller, query), partial(_read_with_inspection, caller, query))
        )

    async def count_members(self, query: MembersQuery) -> int:
        """Return how many members the query matches, whatever its ``limit``, ``offset`` and ``after``."""
        return await memberships.MEMBERS.count_rows(self._database, query)

    async def list_memberships(self, query: MembersQuery) -> list[Membership]:
        """Return the memberships that the role itself has in others, ordered by id; otherwise like ``list_members``."""
        return await memberships.MEMBERSHIPS.read_page(self._database, query)

    async def count_memberships(self, query: MembersQuery) -> int:
        """Return how many memberships the query matches; otherwise like ``count_members``."""
        return await memberships.MEMBERSHIPS.count_rows(self._database, query)

    async def list_effective_members(self, query: MembersQuery) -> EffectiveMembers:
        """Return all that hold the role, directly or through others, each once; otherwise like ``list_members``.

        The role itself is among them where its memberships make a circle. ``after`` has no ``ownership``.

        :raises TooManyRoles: they are too many, or too far away, to be followed.
        """
        return await membership_graph.list_effective_members(self._database, query)

    async def list_held_roles(self, role: RoleName) -> list[str]:
        """Return the full ids of all roles that the role holds, directly or through others, and its own, in order.

        :raises TooManyRoles: they are too many to be followed.
        """
        return await membership_graph.list_held_roles(self._database, role)

    def stream_graph(self, caller: RoleName, role: RoleName) -> AsyncIterator[Sequence[tuple[str, str]]]:
        """Return the memberships of a role, of those that it holds, and of those that hold it, in order and in batches.

        They are pairs of a role, whose resource the caller sees, and a direct member of it, each once (ROLE-31).

        :raises TooManyRoles: they are too many to be followed; before the first batch.
        """
        return membership_graph.stream_graph(self._database, caller, role)

    async def add_member(
        self, caller: CallerOrRole, role: RoleName, member: RoleName, decide: Decide, trail: EventBatch | None = None
    ) -> bool:
        """Let ``decide`` check, then grant the role to the member, without admin option, as recorded by no policy.

        An existing grant stays as it is; return whether there was none. ``decide`` may be called again when the transaction
        conflicted with another. An exception from it ends the transaction.

        :raises NotFound: the role or the member went meanwhile.
        :raises InvalidParameter: the member is a host factory that has as many layers as a record may have.
        """

        async def apply_change(transaction: Transaction) -> bool:
            decide(await _read_member_facts(transaction, caller, role, member))
            added = bool(await transaction.fetch(_ADD, str(role), str(member)))
            if not added:
                # A mapping may have made the membership, even just now: the statement before has waited for that.
                await transaction.fetch(UNMAP, to_array([str(role)]), to_array([str(member)]))
                added = bool(await transaction.fetch(_ADD, str(role), str(member)))
            if added and member.kind == "host_factory":
                await _check_layers(transaction, member)
            await record_events(transaction, trail if added else None)
            return added

        try:
            return await self._database.transact(apply_change)
        except ForeignKeyViolation:
            ((there,),) = await self._database.fetch(_EXISTS, str(member))
            raise RecordNotFound.for_name(role if there else member) from None

    async def remove_member(
        self, caller: CallerOrRole, role: RoleName, member: RoleName, decide: Decide, trail: EventBatch | None = None
    ) -> bool:
        """Let ``decide`` check, as in ``add_member``, then remove the grant of any recorder; return if there was one."""

        async def apply_change(transaction: Transaction) -> bool:
            decide(await _read_member_facts(transaction, caller, role, member))
            removed = bool(await transaction.fetch(_REMOVE, str(role), str(member)))
            await record_events(transaction, trail if removed else None)
            return removed

        return await self._database.transact(apply_change)


async def _read_with_inspection(
    caller: CallerOrRole, query: MembersQuery, transaction: Transaction
) -> NamedAnswer[tuple[AccessFacts, list[Membership]]]:
    """Return what ``judged_members`` does, where the caller may inspect the role; the answer is not cached."""
    facts = await access_facts(transaction.fetch, caller, str(query.role))
    known = facts.owns or facts.holds or facts.privileges or facts.inspects
    return NamedAnswer((facts, await memberships.MEMBERS.read_page(transaction, query) if known else []), None)


async def _check_layers(transaction: Transaction, factory: RoleName) -> None:
    """Refuse more layers than a host factory may have."""
    most = RECORD_LIMITS.layers
    if await list_exceeding(transaction, RecordLimit.LAYERS, [str(factory)], most):
        raise InvalidParameter("member", f"'member': {factory} has {most} layers, and no record may have more")


async def _read_member_facts(
    transaction: Transaction, caller: CallerOrRole, role: RoleName, member: RoleName
) -> MemberChangeFacts:
    towards_role = await access_facts(transaction.fetch, caller, str(role))
    policy = towards_role.recorded_by
    over_policy = None if policy is None else await access_facts(transaction.fetch, caller, policy)
    ((exists,),) = await transaction.fetch(_EXISTS, str(member))
    return MemberChangeFacts(towards_role, over_policy, exists)
