"""The use cases of members of groups in the newer interface (NEWER-20 to NEWER-24)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import attrs

from svc.model.authorization import Allowed, decide_visibility
from svc.model.errors import Conflict, Forbidden, RecordNotFound, Unprocessable
from svc.model.names import RoleName
from svc.model.policy_loads import Changes, MembershipRow, Rows
from svc.model.query_results import ListingKey, Membership, MembersQuery
from svc.policy.effective_policy import absolute_reference
from svc.policy.statement_writer import Tagged, Value
from svc.services.branch_rules import MEMBERS, branch_around, relative_id
from svc.services.branches import BranchEntries, require_privilege
from svc.services.invocation import Invocation
from svc.services.membership_lists import MembershipList, first_batch_query
from svc.services.policy_edits import Edit, PolicyEdits
from svc.storage.roles import RoleStore

#: Returns the member that a request names; called once the caller may know; it may raise ``Unprocessable``.
Named = Callable[[], RoleName]


@attrs.frozen
class MembersPage:
    """Some members of a group, and how many it has."""

    members: Sequence[RoleName]
    count: int


class _LockedGroup(NamedTuple):
    """A group that a request changes, the branch that holds it, and the policy that recorded it."""

    branch: RoleName
    group: RoleName
    recorder: str | None


@attrs.frozen
class GroupMemberService:
    """The use cases of members of groups; ``groups`` are those of groups themselves."""

    edits: PolicyEdits
    groups: BranchEntries
    roles: RoleStore

    async def read_page(self, invocation: Invocation, group: RoleName, limit: int, offset: int) -> MembersPage:
        """Return members of a group that the caller may read, in the order of their ids (NEWER-45).

        :raises RecordNotFound: as ``BranchEntries.read_entry``.
        """
        await self.groups.read_entry(invocation, group)
        query = MembersQuery(group, MEMBERS)
        reading = await self.roles.read_role(group)
        owners = () if reading is None else reading.owners
        count = await self.roles.count_members(query) - sum(_kind_of(row.member) in MEMBERS for row in owners)
        page = await MembershipList(self.roles.list_members, _member_key).read_page(
            query, await self.roles.list_members(first_batch_query(query))
        )
        members: list[RoleName] = []
        async for batch in page.batches:
            members += [RoleName.parse(row.member) for row in batch if not row.ownership]
            skipped = min(offset, len(members))
            offset, members = offset - skipped, members[skipped:]
            if len(members) >= limit:
                break
        return MembersPage(members[:limit], count)

    async def add_member(self, invocation: Invocation, group: RoleName, named: Named) -> RoleName:
        """Make a role a member, as a load into the branch that holds the group would; takes ``create`` on that.

        :raises RecordNotFound: the caller lacks that, or there is no such branch or group.
        :raises Unprocessable: there is no such member, or it is the group itself.
        :raises Conflict: it is a member already.
        :raises Forbidden: the group isn't the branch's to grant, nor the caller's.
        """

        async def apply_edit(edit: Edit) -> RoleName:
            branch = branch_around(group.account, group.identifier)
            await require_privilege(edit, branch, "create")
            member = named()
            if member == group:
                message = "The value in the Member ID parameter is not valid. Error: a group can't be its own member"
                raise Unprocessable(message, "CONJ00191W")
            found = await self._lock_group(edit, branch, group, member)
            row = MembershipRow(str(group), str(member), False, False)
            if (await edit.transaction.read_stored_rows(Rows(memberships=(row,)))).memberships:
                message = f"'/{member.identifier}' (kind='{member.kind}') is already a member of '{group}'"
                raise Conflict("member", str(member), message, "CONJ00180W")
            statement = Tagged("grant", self._make_attributes(found, member))
            await edit.apply_changes(branch, [statement], Changes(Rows(memberships=(row,))), found.recorder)
            return member

        return await self.edits.make_edit(invocation, apply_edit)

    async def remove_member(self, invocation: Invocation, group: RoleName, named: Named) -> None:
        """Remove a member, whatever policy recorded the grant; takes ``update`` on the branch that holds the group.

        :raises RecordNotFound: as ``add_member``; or the role is no member.
        :raises Unprocessable: there is no such role.
        :raises Forbidden: as ``add_member``.
        """

        async def apply_edit(edit: Edit) -> None:
            branch = branch_around(group.account, group.identifier)
            await require_privilege(edit, branch, "update")
            member = named()
            found = await self._lock_group(edit, branch, group, member)
            if not await edit.transaction.remove_grant(group, member):
                raise RecordNotFound(group.account, "member", f"{member.kind}/{member.identifier}")
            row = MembershipRow(str(group), str(member), False, False)
            await edit.record_history(
                branch, [Tagged("revoke", self._make_attributes(found, member))], Changes(delete=Rows(memberships=(row,)))
            )

        await self.edits.make_edit(invocation, apply_edit)

    async def _lock_group(self, edit: Edit, branch: RoleName, group: RoleName, member: RoleName) -> _LockedGroup:
        """Lock the branch, and return the group, once the caller sees both and may control the group."""
        if not await _can_see(edit, group):
            raise RecordNotFound.for_name(group)
        if not await _can_see(edit, member):
            message = f"{member.kind.capitalize()} '{member.identifier}' not found in account '{member.account}'"
            raise Unprocessable(message)
        await edit.transaction.lock_policy(branch)
        await edit.authorize(branch, granted=[str(group)])
        owned = (await edit.transaction.read_ownership([str(group)], ())).records.get(str(group))
        if owned is None:
            # It was deleted since it was seen, by a load into a policy above, which doesn't lock this one, or before the
            # lock.
            raise RecordNotFound.for_name(group)
        return _LockedGroup(branch, group, owned.policy)

    def _make_attributes(self, found: _LockedGroup, member: RoleName) -> dict[str, Value]:
        role = Tagged("group", {"id": relative_id(found.branch, found.group.identifier)})
        return {"role": role, "member": absolute_reference(str(member))}


async def _can_see(edit: Edit, role: RoleName) -> bool:
    facts = await edit.transaction.access_facts(edit.invocation.caller, role)
    if not facts.caller_exists:
        raise Forbidden("role of the token no longer exists")
    return decide_visibility(facts) == Allowed()


def _kind_of(full: str) -> str:
    return full.split(":", 2)[1]


def _member_key(row: Membership) -> ListingKey:
    return ListingKey(row.member, row.ownership, row.rank)
