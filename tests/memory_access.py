"""Access in memory: the fake of ``AccessStore`` (see ``memory``)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from svc.model.access import AccessTarget, DirectAccess, PathStep, SearchFrontier, StepKind
from svc.model.names import RoleName
from svc.storage.access import AccessStore
from tests.memory import MemoryStore


class MemoryAccess(MemoryStore, AccessStore):
    """A fake of ``AccessStore``."""

    async def list_direct_holders(self, target: AccessTarget, start: str, limit: int) -> list[PathStep]:
        """See ``AccessStore``."""
        self.memory.ask()
        found = self._direct(target)
        return [PathStep(role, found[role]) for role in _ordered(found) if role.encode() >= start.encode()][:limit]

    async def filter_direct_holders(self, target: AccessTarget, roles: Collection[str]) -> list[PathStep]:
        """See ``AccessStore``."""
        self.memory.ask()
        found = self._direct(target)
        return [PathStep(role, found[role]) for role in _ordered(found.keys() & set(roles))]

    async def list_direct_members(self, asked: Sequence[tuple[str, str]], limit: int) -> list[tuple[str, str]]:
        """See ``AccessStore``."""
        return self._listed([(role, member) for role, member, _ in self.memory.memberships], asked, limit)

    async def list_direct_memberships(self, asked: Sequence[tuple[str, str]], limit: int) -> list[tuple[str, str]]:
        """See ``AccessStore``."""
        return self._listed([(member, role) for role, member, _ in self.memory.memberships], asked, limit)

    async def filter_reached_earlier(
        self, candidates: Sequence[tuple[str, str]], base: SearchFrontier, steps: int
    ) -> frozenset[str]:
        """See ``AccessStore``."""
        self.memory.ask()
        near = self._near(base, steps)
        found = set()
        for role, parent in candidates:
            before = {each for each in self._parents(role) if each.encode() < parent.encode()}
            if role in near or before & near:
                found.add(role)
        return frozenset(found)

    async def find_nearest_role(self, role: str, base: SearchFrontier, steps: int) -> str | None:
        """See ``AccessStore``."""
        self.memory.ask()
        return next(iter(_ordered(self._parents(role) & self._near(base, steps))), None)

    async def count_holders(self, target: AccessTarget, *, direct: bool) -> int:
        """See ``AccessStore``."""
        self.memory.ask()
        found = set(self._direct(target))
        return len(found) if direct else sum(bool(self.memory.held(role) & found) for role in self.memory.roles)

    async def list_rights(
        self, resources: Sequence[str], privileges: Sequence[str], roles: Collection[str]
    ) -> list[DirectAccess]:
        """See ``AccessStore``."""
        self.memory.ask()
        owned = [
            DirectAccess(name, self.memory.resources[name][0], None) for name in resources if name in self.memory.resources
        ]
        given = [
            DirectAccess(name, role, privilege) for name, privilege, role in self.memory.permissions if name in resources
        ]
        return [each for each in owned + given if each.role in roles and each.privilege in {None, *privileges}]

    async def list_resources(self, account: str, after: str, limit: int) -> list[str]:
        """See ``AccessStore``."""
        self.memory.ask()
        own = [name for name in self.memory.resources if name.startswith(f"{account}:")]
        return [name for name in _ordered(own) if name.encode() > after.encode()][:limit]

    async def filter_visible(self, caller: RoleName, resources: Collection[str]) -> frozenset[str]:
        """See ``AccessStore``."""
        self.memory.ask()
        facts = {name: self.memory.access_facts(caller, name) for name in resources}
        return frozenset(name for name, of in facts.items() if of.exists and (of.owns or of.privileges))

    def _direct(self, target: AccessTarget) -> dict[str, StepKind]:
        name = str(target.resource)
        found = {
            role: StepKind.PERMITTED
            for thing, privilege, role in self.memory.permissions
            if thing == name and privilege in target.privileges
        }
        if name in self.memory.resources:
            found[self.memory.resources[name][0]] = StepKind.OWNER
        return found

    def _parents(self, role: str) -> set[str]:
        return {name for name, member, _ in self.memory.memberships if member == role}

    def _near(self, base: SearchFrontier, steps: int) -> set[str]:
        """The roles at most so many memberships from the base."""
        near = set(self._direct(base.target) if base.roles is None else base.roles)
        for _ in range(steps):
            near |= {member for role, member, _ in self.memory.memberships if role in near}
        return near

    def _listed(
        self, pairs: Sequence[tuple[str, str]], asked: Sequence[tuple[str, str]], limit: int
    ) -> list[tuple[str, str]]:
        self.memory.ask()
        rows = [
            (own, other)
            for own, start in asked
            for other in sorted((other for role, other in pairs if role == own), key=str.encode)
            if other.encode() >= start.encode()
        ]
        return rows[:limit]


def _ordered(names: Iterable[str]) -> list[str]:
    return sorted(names, key=str.encode)
