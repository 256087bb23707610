"""The use case of a leaver: a user's logins end, and memberships are taken away by the policies that recorded them.

Note [What stays]. The user stays, with its history in the audit. So do the permissions that are its own, and the things that
it owns, since only a document can say who shall have them. They are reported, because a directory or a provider of OpenID
Connect may still let the user in.

Note [What to rotate]. A user knows the values that it has read, which the counts of reads have (``services.readers``). Where
these aren't certain it may also know whatever it could read.

Note [By the policy that made it]. A load of a policy makes again whatever its document has and the database lacks. So each
membership is revoked in the policy that recorded it, as a version of that policy, whose document is returned: it belongs in
the repository from which the policy is loaded. A membership that no policy recorded is revoked in the policy of its role.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs
from twisted.logger import Logger

from svc.crypto.vault import Vault, api_key_name
from svc.model.authentication import DAY
from svc.model.authorization import Allowed, decide_privilege, require_privilege
from svc.model.clocks import WallClock
from svc.model.credentials import new_api_key
from svc.model.errors import Forbidden, PolicyConflict, PolicyInvalid
from svc.model.names import RoleName, root_policy
from svc.model.policy_loads import Changes, MembershipRow, Rows
from svc.model.query_results import Membership, MembersQuery
from svc.policy.effective_policy import absolute_reference
from svc.policy.statement_writer import Tagged, write_yaml
from svc.services.access import PAGE_MOST, AccessService
from svc.services.invocation import Invocation, printable_facts
from svc.services.policy_edits import Edit, PolicyEdits
from svc.services.readers import ReaderService, RoleReads
from svc.storage.roles import RoleStore
from svc.storage.sessions import SessionStore

#: How many memberships a user may have, with those in the roles that it owns.
MEMBERSHIPS_MOST: Final = 10_000

#: How far back reads count for what is to be rotated.
ROTATION_SECONDS: Final = 90 * DAY

_log = Logger()


@attrs.frozen
class RevokedGrants:
    """The memberships that are revoked in one policy; ``permitted``: the caller may update it."""

    policy: RoleName
    memberships: tuple[Membership, ...]
    permitted: bool

    def statements(self) -> list[Tagged]:
        """Return the statements of policy that revoke them."""
        return [
            Tagged("revoke", {"role": absolute_reference(row.role), "member": absolute_reference(row.member)})
            for row in self.memberships
        ]

    @property
    def document(self) -> str:
        """Return these statements in YAML."""
        return "".join(write_yaml(self.statements()))


@attrs.frozen
class ReachableNames:
    """The full ids of resources, in order; ``complete``: there are no more."""

    names: tuple[str, ...]
    complete: bool


@attrs.frozen
class Offboarding:
    """All that ends and changes when a user is offboarded, or that has. ``sessions`` counts those that can be renewed.

    ``variables`` are those that the user could read before, ``read`` those that it has read. ``owned`` are the roles that
    the user owns, which stay so.
    """

    user: RoleName
    sessions: int
    grants: tuple[RevokedGrants, ...]
    owned: tuple[str, ...]
    variables: ReachableNames
    read: RoleReads


@attrs.frozen
class OffboardingService:
    """The use case of offboarding a user."""

    edits: PolicyEdits
    roles: RoleStore
    sessions: SessionStore
    access: AccessService
    readers: ReaderService
    vault: Vault
    wall: WallClock

    async def plan(self, invocation: Invocation, user: RoleName) -> Offboarding:
        """Return what ``offboard`` would do.

        :raises Forbidden: the caller sees the user, and lacks ``update`` on it, or is the user.
        :raises RecordNotFound: there is no such user, or the caller doesn't see it.
        :raises PolicyInvalid: the user has too many memberships.
        """
        invocation.recorder.add_audit_facts(target=str(user))
        require_privilege(await self.roles.access_facts(invocation.caller, user.resource), "update", user.resource)
        if user == invocation.caller.role:
            raise Forbidden(f"{user} is the caller", "you can't offboard yourself: somebody who stays does that")
        rows = await self.roles.list_memberships(MembersQuery(user, limit=MEMBERSHIPS_MOST + 1))
        if len(rows) > MEMBERSHIPS_MOST:
            raise PolicyInvalid(f"{user} has more than {MEMBERSHIPS_MOST} memberships: revoke most of them before")
        return Offboarding(
            user,
            len(await self.sessions.list_sessions(user, self.wall.seconds())),
            await self._group_grants(invocation, [row for row in rows if not row.ownership]),
            tuple(row.role for row in rows if row.ownership),
            await self._list_readable(invocation, user),
            await self.readers.list_variables_read(invocation, user, ROTATION_SECONDS),
        )

    async def offboard(self, invocation: Invocation, user: RoleName) -> Offboarding:
        """End all logins of a user, and revoke its memberships, all at once or not at all; return what was done.

        :raises Forbidden: as by ``plan``, as are ``RecordNotFound`` and ``PolicyInvalid``; or the caller may not update one
            of the policies, or may not revoke a membership there.
        :raises PolicyConflict: one of the policies is being loaded, or the memberships change.
        """
        planned = await self.plan(invocation, user)  # afterwards, nothing of this could be found out
        sealed = self.vault.seal(api_key_name(user), new_api_key().encode("ascii"))  # which nobody knows

        async def apply_edit(edit: Edit) -> None:
            for each in planned.grants:
                if (
                    decide_privilege(await edit.transaction.access_facts(invocation.caller, each.policy), "update")
                    != Allowed()
                ):
                    raise Forbidden(f"may not update {each.policy}, which made {user} a member")
                await edit.transaction.lock_policy(each.policy)
            present = {(row.role, row.admin_option, row.policy) for row in await edit.transaction.list_grants(user)}
            if present != {(row.role, row.admin_option, row.policy) for each in planned.grants for row in each.memberships}:
                raise PolicyConflict
            for each in planned.grants:
                await _revoke_grants(edit, each, user)
            await edit.transaction.end_logins(user, sealed)

        await self.edits.make_edit(invocation, apply_edit)
        facts = printable_facts(caller=invocation.caller.role, user=user, client_ip=invocation.client_ip)
        _log.warn("{caller} offboarded {user}, from {client_ip}", **facts)
        return planned

    async def list_remaining(self, invocation: Invocation, user: RoleName) -> ReachableNames:
        """Return the resources that a user can read, execute or update, as far as the caller sees them."""
        page = await self.access.list_reachable_resources(invocation, user, limit=PAGE_MOST)
        return ReachableNames(tuple(each.resource for each in page.resources), page.after is None)

    async def _list_readable(self, invocation: Invocation, user: RoleName) -> ReachableNames:
        """Return the variables that a user can read, as far as the caller sees them."""
        page = await self.access.list_reachable_resources(invocation, user, ("execute",), limit=PAGE_MOST)
        found = (each.resource for each in page.resources)
        return ReachableNames(tuple(name for name in found if name.split(":", 2)[1] == "variable"), page.after is None)

    async def _group_grants(self, invocation: Invocation, rows: Sequence[Membership]) -> tuple[RevokedGrants, ...]:
        """Return memberships by the policies in which they are revoked (Note [By the policy that made it])."""
        found: dict[str, list[Membership]] = {}
        for row in rows:
            policy = row.policy
            if policy is None:
                reading = await self.roles.read_role(RoleName.parse(row.role))
                policy = (reading and reading.policy) or str(root_policy(invocation.caller.role.account))
            found.setdefault(policy, []).append(row)
        grants = list[RevokedGrants]()
        for full in sorted(found, key=str.encode):
            policy_role = RoleName.parse(full)
            facts = await self.roles.access_facts(invocation.caller, policy_role.resource)
            grants.append(RevokedGrants(policy_role, tuple(found[full]), decide_privilege(facts, "update") == Allowed()))
        return tuple(grants)


async def _revoke_grants(edit: Edit, grants: RevokedGrants, user: RoleName) -> None:
    """Revoke memberships as a load of the policy would (``services.policy_edits``, Note [As a load])."""
    await edit.authorize(grants.policy, granted=[row.role for row in grants.memberships])
    for row in grants.memberships:
        await edit.transaction.remove_grant(RoleName.parse(row.role), user)
    gone = tuple(MembershipRow(row.role, row.member, False, row.admin_option) for row in grants.memberships)
    await edit.record_history(grants.policy, grants.statements(), Changes(delete=Rows(memberships=gone)))
