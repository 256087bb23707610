"""The use cases of finding out who can do what, and why."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import attrs

from svc.model.access import (
    AccessCheckResult,
    AccessPath,
    AccessTarget,
    DirectAccess,
    HoldersCursor,
    HoldersPage,
    PathStep,
    PrivilegeHolder,
    ReachableResource,
    ReachableResourcesPage,
    StepKind,
)
from svc.model.authorization import Allowed, decide_privilege, require_role_visible, require_visible
from svc.model.dialect import Dialect
from svc.model.errors import InvalidParameter
from svc.model.names import ResourceName, RoleName
from svc.model.query_results import ResourcesQuery
from svc.services.access_paths import HolderWalk, PrivilegeHolderLevels, RoleClosure, WalkBounds, find_far_path, find_path
from svc.services.invocation import Invocation
from svc.storage.access import AccessStore
from svc.storage.resources import ResourceStore
from svc.storage.roles import RoleStore

#: The most items that a page has, and the default.
PAGE_MOST: Final = 1000
PAGE: Final = 100

#: The privileges by which a role reaches a resource, unless the request names others.
REACH_PRIVILEGES: Final = ("read", "execute", "update")

#: The most privileges in one query.
PRIVILEGES_MOST: Final = 10

#: How many roles are named that would give a missing privilege.
MISSING_MOST: Final = 100

#: How many resources are examined for one page; and how many of them one by one, for a role that holds many others.
EXAMINED_MOST: Final = 3000
FAR_MOST: Final = 10


@attrs.frozen
class AccessService:
    """The use cases of finding out who can do what.

    On ways, the roles that the caller doesn't see are not named, except for the first one.

    :raises Forbidden: by all methods: the caller's role is gone, or it may not see a role and gets that answer.
    :raises NotFound: by all methods: there is no such resource or role, or the caller may not see it.
    """

    store: AccessStore
    roles: RoleStore
    resources: ResourceStore
    dialect: Dialect
    bounds: WalkBounds = attrs.field(factory=WalkBounds)

    async def filter_visible(self, invocation: Invocation, names: Collection[str]) -> frozenset[str]:
        """Return those of the full ids whose resources the caller sees."""
        return await self.store.filter_visible(invocation.caller.role, names) if names else frozenset()

    async def list_holders(
        self,
        invocation: Invocation,
        name: ResourceName,
        privilege: str,
        *,
        direct: bool = False,
        limit: int = PAGE,
        after: HoldersCursor | None = None,
    ) -> HoldersPage:
        """Return the roles that have a privilege on a resource, those with the shortest ways first.

        :param direct: only the owner, and the roles that the privilege is permitted to themselves.
        :param limit: the most that are returned; there may be fewer although the list goes on.
        :raises TooManyRoles: their ways are too long.
        """
        require_visible(await self.roles.access_facts(invocation.caller, name), name)
        levels = await PrivilegeHolderLevels.read(self.store, AccessTarget(name, (privilege,)), self.bounds)
        walk = HolderWalk(self.store, levels, self.bounds)
        ways, position = await walk.read_page(limit, after or HoldersCursor(), direct=direct)
        redacted = await self._redact_paths(invocation, ways)
        return HoldersPage(tuple(PrivilegeHolder(way[0].role or "", way) for way in redacted), position)

    async def count_holders(
        self, invocation: Invocation, name: ResourceName, privilege: str, *, direct: bool = False
    ) -> int:
        """Return how many roles have a privilege on a resource."""
        require_visible(await self.roles.access_facts(invocation.caller, name), name)
        return await self.store.count_holders(AccessTarget(name, (privilege,)), direct=direct)

    async def check_privilege(
        self, invocation: Invocation, name: ResourceName, privilege: str, role: RoleName
    ) -> AccessCheckResult:
        """Return whether a role has a privilege on a resource, and why, or what is missing."""
        require_visible(await self.roles.access_facts(invocation.caller, name), name)
        await self._require_visible_role(invocation, role)
        target = AccessTarget(name, (privilege,))
        # A short way is found soon; the facts about a role that holds a million may take seconds.
        found = await find_path(self.store, str(role), target, self.bounds)
        if found.path is None:
            access_facts = await self.roles.access_facts(role, name)
            if decide_privilege(access_facts, privilege) != Allowed():
                privileges = tuple(sorted(access_facts.privileges))
                return AccessCheckResult(False, None, await self._list_missing_steps(invocation, target), privileges)
            found = await find_far_path(self.store, str(role), target, self.bounds)
        redacted = [] if found.path is None else await self._redact_paths(invocation, [found.path])
        return AccessCheckResult(True, next(iter(redacted), None))

    async def list_reachable_resources(
        self,
        invocation: Invocation,
        role: RoleName,
        privileges: Sequence[str] = REACH_PRIVILEGES,
        *,
        limit: int = PAGE,
        after: str | None = None,
    ) -> ReachableResourcesPage:
        """Return the resources on which a role has one of the privileges, as far as the caller sees them, ordered by id.

        :param limit: the most that are returned; there may be fewer although the list goes on.
        :raises InvalidParameter: they are too many privileges.
        """
        await self._require_visible_role(invocation, role)
        privileges = tuple(dict.fromkeys(privileges))
        if len(privileges) > PRIVILEGES_MOST:
            raise InvalidParameter("privilege", f"'privilege' may be given {PRIVILEGES_MOST} times")
        reaching = _ReachQuery(
            self, invocation, role, privileges, await RoleClosure.read(self.store, str(role), self.bounds)
        )
        return await reaching.read_page(limit, after)

    async def _require_visible_role(self, invocation: Invocation, role: RoleName) -> None:
        """Return if the caller sees the role, or holds it: a caller may do whatever the roles that it holds may."""
        access_facts = await self.roles.access_facts(invocation.caller, role.resource)
        if not (access_facts.caller_exists and access_facts.holds):
            require_role_visible(access_facts, role, invocation.caller.role, self.dialect)

    async def _list_missing_steps(self, invocation: Invocation, target: AccessTarget) -> tuple[PathStep, ...]:
        steps = await self.store.list_direct_holders(target, "", MISSING_MOST)
        seen = await self.store.filter_visible(
            invocation.caller.role, {step.role for step in steps if step.role is not None}
        )
        return tuple(step for step in steps if step.role in seen)

    async def _redact_paths(self, invocation: Invocation, ways: Sequence[AccessPath]) -> list[AccessPath]:
        """Return ways without the names of the roles that the caller doesn't see, except for the first of each."""
        others = {step.role for way in ways for step in way[1:] if step.role is not None}
        seen = await self.store.filter_visible(invocation.caller.role, others) if others else frozenset()
        return [_redact_path(way, seen) for way in ways]


@attrs.define
class _ReachQuery:
    """One query for the resources that a role reaches; ``closure`` are the roles that it holds, as far as they are few.

    For a role that holds few roles, the resources that it sees are listed as for itself. For one that holds many, all
    resources of the account are walked through, and a search from the resource's end finds out whether the role sees it.
    """

    service: AccessService
    invocation: Invocation
    role: RoleName
    privileges: tuple[str, ...]
    closure: RoleClosure
    _far_searches: int = 0

    async def read_page(self, limit: int, after: str | None) -> ReachableResourcesPage:
        """Return a page that begins after an id."""
        found: list[ReachableResource] = []
        looked = 0
        while looked < EXAMINED_MOST:
            window = min(max(2 * (limit + 1 - len(found)), 50), PAGE_MOST)
            ids = await self._read_next_ids(window, after)
            looked += len(ids)
            reached = await self._list_visible_rights(ids)
            for name in ids:
                if name in reached and (len(found) == limit or self._far_searches >= FAR_MOST):
                    return await self._make_page(found, after)
                if name in reached:
                    found += await self._describe_reached(name, reached[name])
                after = name
            if len(ids) < window:
                return await self._make_page(found, None)
        return await self._make_page(found, after)

    async def _read_next_ids(self, window: int, after: str | None) -> list[str]:
        if not self.closure.whole:
            return await self.service.store.list_resources(self.role.account, after or "", window)
        query = ResourcesQuery(self.role, self.role.account, limit=window, after=after)
        return await self.service.resources.list_visible(query)

    async def _list_visible_rights(self, ids: Sequence[str]) -> dict[str, list[DirectAccess]]:
        """Return the rights of the roles above on those of the resources that the caller sees, and that may be reached."""
        store, asked = self.service.store, list(ids)
        # For a role with few roles, the list already has only resources that it sees.
        viewers = {self.invocation.caller.role, self.role} - ({self.role} if self.closure.whole else set())
        for viewer in viewers:
            seen = await store.filter_visible(viewer, asked)
            asked = [name for name in asked if name in seen]
        found: dict[str, list[DirectAccess]] = {} if self.closure.whole else {name: [] for name in asked}
        if asked:
            for given in await store.list_rights(asked, self.privileges, self.closure.roles):
                found.setdefault(given.resource, []).append(given)
        return found

    async def _describe_reached(self, name: str, given: Sequence[DirectAccess]) -> list[ReachableResource]:
        """Return a resource as it is reached, or nothing if it isn't."""
        owned = any(each.privilege is None for each in given)
        privileges: Collection[str] = self.privileges if owned else {each.privilege for each in given if each.privilege}
        steps = [PathStep(each.role, StepKind.OWNER if each.privilege is None else StepKind.PERMITTED) for each in given]
        way = self.closure.access_path(min(steps, key=self.closure.sort_key)) if steps else None
        if not (owned or self.closure.whole):
            privileges, farther = await self._find_far_privileges(ResourceName.parse(name), privileges)
            way = way or farther
        if not privileges:
            return []
        return [ReachableResource(name, tuple(each for each in self.privileges if each in privileges), way)]

    async def _find_far_privileges(
        self, name: ResourceName, known: Collection[str]
    ) -> tuple[Collection[str], AccessPath | None]:
        """Return the privileges of a role that holds many others, of which some are ``known``, and a shortest way to one of
        those that aren't.
        """
        self._far_searches += 1
        service, role, ways, settled = self.service, str(self.role), dict[str, AccessPath](), True
        for privilege in self.privileges:
            if privilege not in known:
                found = await find_far_path(service.store, role, AccessTarget(name, (privilege,)), service.bounds, 1)
                settled &= found.certain
                if found.path is not None:
                    ways[privilege] = found.path
        if settled:
            return {*known, *ways}, min(ways.values(), key=len, default=None)
        access_facts = await service.roles.access_facts(self.role, name)
        privileges = self.privileges if access_facts.owns else access_facts.privileges
        farther = None
        if not known and set(privileges) & set(self.privileges):
            farther = (await find_far_path(service.store, role, AccessTarget(name, self.privileges), service.bounds)).path
        return privileges, farther or min(ways.values(), key=len, default=None)

    async def _make_page(self, found: Sequence[ReachableResource], after: str | None) -> ReachableResourcesPage:
        ways = [each.path for each in found if each.path is not None]
        redacted = iter(await self.service._redact_paths(self.invocation, ways))
        shown = (each if each.path is None else attrs.evolve(each, path=next(redacted)) for each in found)
        return ReachableResourcesPage(tuple(shown), after)


def _redact_path(way: AccessPath, seen: Collection[str]) -> AccessPath:
    """Return a way without the names of roles that are not ``seen``, except the first; several in a row are one step."""
    steps = list(way[:1])
    for step in way[1:]:
        hidden = PathStep(step.role if step.role in seen else None, step.kind)
        if hidden.role is None and len(steps) > 1 and steps[-1].role is None:
            steps.pop()
        steps.append(hidden)
    return tuple(steps)
