"""Single changes of policy in memory: the fake of ``PolicyEditStore`` (see ``memory``)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from svc.model.errors import RecordNotFound
from svc.model.names import RoleName
from svc.model.policy_loads import AnnotationRow
from svc.model.query_results import Membership, Sealed
from svc.storage.policy_edits import EditTransaction, PolicyEditStore
from tests.memory import MemoryStore, kind_of
from tests.memory_policies import MemoryPolicyTransaction, transacted

T = TypeVar("T")


class MemoryEditTransaction(MemoryPolicyTransaction, EditTransaction):
    """A fake of ``EditTransaction``."""

    async def list_beneath(self, policy: RoleName, most: int) -> list[str] | None:
        """See ``EditTransaction``."""
        found = [
            name
            for name in self.memory.resources
            for account, kind, identifier in [name.split(":", 2)]
            if account == policy.account
            and kind not in {"user", "public_key"}
            and f"{identifier}/".startswith(f"{policy.identifier}/")
        ]
        return None if len(found) > most else sorted(found, key=str.encode)

    async def remove_grant(self, role: RoleName, member: RoleName) -> bool:
        """See ``EditTransaction``."""
        self.memory.write()
        removed = self.memory.memberships.pop((str(role), str(member), False), None) is not None
        self.memory.follow_mappings()
        return removed

    async def list_grants(self, member: RoleName) -> list[Membership]:
        """See ``EditTransaction``."""
        self.memory.ask()
        rows = [
            Membership(role, name, admin, ownership, policy)
            for (role, name, ownership), (admin, policy) in self.memory.memberships.items()
            if name == str(member) and not ownership
        ]
        return sorted(rows, key=lambda row: row.role.encode())

    async def end_logins(self, role: RoleName, api_key: Sealed) -> None:
        """See ``EditTransaction``."""
        self.memory.write()
        name = str(role)
        if name not in self.memory.roles:
            raise RecordNotFound.for_name(role)
        self.memory.epochs[name] = self.memory.epochs.get(name, 0) + 1
        if name in self.memory.credentials:
            self.memory.credentials[name] = api_key
            self.memory.editions[name] = self.memory.editions.get(name, 0) + 1
            self.memory.rotations[name] = self.memory.made_at
            self.memory.passwords.pop(name, None)
        for key in [key for key in self.memory.sessions if key[0] == name]:
            del self.memory.sessions[key]

    async def set_annotations(self, policy: RoleName, rows: Sequence[AnnotationRow]) -> None:
        """See ``EditTransaction``."""
        self.memory.write()
        for row in rows:
            _, recorder = self.memory.annotations.get(row[:2], ("", str(policy)))
            self.memory.annotations[row[:2]] = (row.value, recorder)

    async def remove_annotation(self, resource: str, name: str) -> bool:
        """See ``EditTransaction``."""
        self.memory.write()
        return self.memory.annotations.pop((resource, name), None) is not None

    async def switch_authenticator(self, webservice: str, on: bool) -> None:
        """See ``EditTransaction``."""
        self.memory.write()
        assert webservice in self.memory.resources
        self.memory.switches[webservice] = on


class MemoryPolicyEdits(MemoryStore, PolicyEditStore):
    """A fake of ``PolicyEditStore``."""

    async def transact(self, work: Callable[[EditTransaction], Awaitable[T]]) -> T:
        """See ``PolicyEditStore``."""
        return await transacted(MemoryEditTransaction(self.memory), work)

    async def filter_readable(self, viewer: RoleName, resources: Sequence[str]) -> list[str]:
        """See ``PolicyEditStore``."""
        self.memory.ask()
        return sorted((name for name in resources if self._reads(str(viewer), name)), key=str.encode)

    async def filter_existing(self, resources: Sequence[str]) -> frozenset[str]:
        """See ``PolicyEditStore``."""
        self.memory.ask()
        return frozenset(self.memory.resources.keys() & set(resources))

    async def read_switches(self, webservices: Sequence[str]) -> dict[str, bool]:
        """See ``PolicyEditStore``."""
        self.memory.ask()
        return {name: self.memory.switches[name] for name in webservices if name in self.memory.switches}

    def _reads(self, viewer: str, name: str) -> bool:
        facts = self.memory.access_facts(viewer, name)
        inspects = kind_of(name) == "policy" and "inspect" in facts.privileges
        return facts.exists and (facts.owns or "read" in facts.privileges or inspects or self.memory.inspects(viewer, name))
