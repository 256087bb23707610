"""Inspection: auditors may look at what they don't own, by the privilege ``inspect`` on a policy (INS-1 to INS-4)."""

from __future__ import annotations

from svc.model.authorization import INSPECT, require_ownership
from svc.model.names import ResourceName, root_policy
from svc.model.query_results import Caller
from svc.storage.roles import RoleStore


async def can_read_all(roles: RoleStore, caller: Caller) -> bool:
    """Return whether a caller may look at all of its account: it owns the root policy, or inspects it."""
    facts = await roles.access_facts(caller, root_policy(caller.role.account).resource)
    return facts.owns or INSPECT in facts.privileges


async def require_inspection(roles: RoleStore, caller: Caller, name: ResourceName) -> None:
    """Return if a caller owns a resource or inspects it.

    :raises Forbidden: the caller only sees it, or the caller's own role is gone.
    :raises NotFound: it doesn't exist, or the caller may not see it.
    """
    facts = await roles.access_facts(caller, name)
    if facts.exists and (facts.inspects or (facts.privileges and await roles.can_inspect(caller.role, name))):
        return
    require_ownership(facts, name)
