"""What was deleted, in memory: the fake of ``DeletedStore`` (see ``memory``)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import attrs

from svc.model.deleted_records import (
    FACTS_MOST,
    DeletedRecord,
    DeletedRecordOwner,
    PresentRecord,
    RetainedTotals,
    RoleIdentity,
)
from svc.model.names import ACTOR_KINDS, RoleName, is_role_kind
from svc.storage.deleted_records import DeletedStore, DeletedTransaction
from svc.storage.policies import PolicyTransaction
from tests.memory import KeptRow, MemoryStore, kind_of
from tests.memory_policies import MemoryPolicies, MemoryPolicyTransaction

T = TypeVar("T")


class MemoryDeleted(MemoryStore, DeletedStore):
    """A fake of ``DeletedStore``."""

    async def transact_read_only(self, work: Callable[[DeletedTransaction], Awaitable[T]]) -> T:
        """See ``DeletedStore``."""
        self.memory.ask()
        return await work(MemoryDeletedTransaction(self.memory))

    async def transact(self, work: Callable[[DeletedTransaction], Awaitable[T]]) -> T:
        """See ``DeletedStore``."""

        async def run(transaction: PolicyTransaction) -> T:
            assert isinstance(transaction, MemoryPolicyTransaction)
            self.memory.write()
            return await work(MemoryDeletedTransaction(self.memory, transaction.locks))

        return await MemoryPolicies(self.memory).transact(run)

    async def purge_old(self) -> int:
        """See ``DeletedStore``."""
        self.memory.write()
        old = [number for number, row in self.memory.deleted.items() if not self._is_kept(row)]
        for number in old:
            del self.memory.deleted[number]
        return len(old)

    async def enforce_limits(self) -> dict[str, int]:
        """See ``DeletedStore``."""
        self.memory.write()
        accounts = sorted({row.account for row in self.memory.deleted.values()})
        return {account: count for account in accounts if (count := self.memory.bound_deleted(account))}

    async def read_usage(self) -> RetainedTotals:
        """See ``DeletedStore``."""
        self.memory.ask()
        rows = self.memory.deleted.values()
        return RetainedTotals(len(rows), sum(row.bytes for row in rows))

    def _is_kept(self, row: KeptRow) -> bool:
        return row.record.deleted_at > self.memory.now - self.memory.keeping.seconds


class MemoryDeletedTransaction(MemoryPolicyTransaction, DeletedTransaction):
    """A fake of ``DeletedTransaction``."""

    async def list_owners(self, policy: RoleName) -> list[DeletedRecordOwner]:
        """See ``DeletedTransaction``."""
        coming = [record.owner for record in self._of(policy)]
        found: dict[RoleIdentity, DeletedRecordOwner] = {}
        while coming:
            asked = coming.pop()
            if asked in found:
                continue
            there = self._is_there(asked)
            owner = (
                None
                if there
                else next((self._above(record) for record in self._roles() if self._own(record) == asked), None)
            )
            found[asked] = DeletedRecordOwner(asked, there, owner)
            coming += [] if owner is None else [owner]
        return list(found.values())

    async def filter_inspected(self, caller: RoleName, resources: Iterable[str]) -> frozenset[str]:
        """See ``DeletedTransaction``."""
        return frozenset(full for full in resources if self.memory.inspects(str(caller), full))

    async def list_records(
        self, policy: RoleName, owners: Iterable[RoleIdentity], limit: int, offset: int
    ) -> list[DeletedRecord]:
        """See ``DeletedTransaction``."""
        known = set(owners)
        return [record for record in self._of(policy) if record.owner in known][offset : offset + limit]

    async def lock_records(
        self, policy: RoleName, owners: Iterable[RoleIdentity], numbers: Sequence[int]
    ) -> list[DeletedRecord]:
        """See ``DeletedTransaction``."""
        known = set(owners)
        found = {each.number: each for each in self._of(policy) if each.owner in known and each.number in numbers}
        whole, size = set[int](), 0
        for number in filter(found.__contains__, numbers):
            size += sum(len(str(row)) for row in (*found[number].annotations, *found[number].permissions))
            whole |= {number} if not whole or size <= FACTS_MOST else set()
        return [attrs.evolve(record, whole=number in whole) for number, record in found.items()]

    async def read_present_records(self, resources: Iterable[str]) -> dict[str, PresentRecord]:
        """See ``DeletedTransaction``."""
        memory, found = self.memory, {}
        for name in set(resources) & memory.resources.keys():
            owner, policy = memory.resources[name]
            readers = frozenset(memory.identity(key[2]) for key in memory.permissions if key[:2] == (name, "execute"))
            newest = max(memory.secrets.get(name, {}), default=None)
            found[name] = PresentRecord(memory.identity(owner), policy, memory.made[name], readers, newest)
        return found

    async def read_creations(self, roles: Iterable[str]) -> dict[str, int]:
        """See ``DeletedTransaction``."""
        return {role: self.memory.creations.get(role, 0) for role in roles if role in self.memory.roles}

    async def restore_records(self, made: Sequence[DeletedRecord], filled: Sequence[DeletedRecord]) -> None:
        """See ``DeletedTransaction``."""
        memory = self.memory
        for row in (memory.deleted[record.number] for record in made):
            record, name = row.record, row.record.resource
            memory.made[name] = record.made_at
            if record.creation is not None and kind_of(name) not in ACTOR_KINDS:
                memory.creations[name] = record.creation
            elif record.creation is not None:
                self._follow(RoleIdentity(name, record.creation), memory.identity(name))
            if row.enabled is not None:
                memory.switches[name] = row.enabled
            memory.distrusted |= {(name, key): told for key, told in row.distrusted.items()}
        for row in (memory.deleted[record.number] for record in filled):
            name = row.record.resource
            for version, (sealed, life) in row.values.items():
                memory.serial += 1
                memory.secrets.setdefault(name, {})[version] = (memory.serial, sealed)
                memory.lives[name, version] = life
            if (due := memory.expirations.get(name)) is not None:
                memory.expirations[name] = attrs.evolve(due, due_at=float("-inf"), settled=None, edition=due.edition + 1)
        for number in {record.number for record in (*made, *filled)}:
            del memory.deleted[number]

    async def purge_records(
        self, policy: RoleName, owners: Iterable[RoleIdentity], numbers: Sequence[int] | None
    ) -> list[str]:
        """See ``DeletedTransaction``."""
        known = set(owners)
        gone = [
            record for record in self._of(policy) if record.owner in known and (numbers is None or record.number in numbers)
        ]
        for record in gone:
            del self.memory.deleted[record.number]
        return sorted(record.resource for record in gone)

    def _follow(self, before: RoleIdentity, now: RoleIdentity) -> None:
        rows: Mapping[int, KeptRow] = self.memory.deleted
        for number, row in rows.items():
            if row.record.owner == before:
                self.memory.deleted[number] = attrs.evolve(row, record=attrs.evolve(row.record, owner=now))

    def _of(self, policy: RoleName) -> list[DeletedRecord]:
        """What is kept of a policy, the newest first."""
        known = self.memory.identity(str(policy))
        return [record for record in self._records() if self.memory.deleted[record.number].policy == known]

    def _records(self) -> Iterator[DeletedRecord]:
        keeping = self.memory.keeping
        for _, row in sorted(self.memory.deleted.items(), reverse=True):
            if row.record.deleted_at > self.memory.now - keeping.seconds:
                yield attrs.evolve(row.record, until=row.record.deleted_at + keeping.seconds)

    def _roles(self) -> Iterator[DeletedRecord]:
        return (record for record in self._records() if is_role_kind(kind_of(record.resource)))

    def _above(self, record: DeletedRecord) -> RoleIdentity:
        """The owner, and of a policy that owns itself the recorder."""
        return record.owner if record.owner.role != record.resource else self.memory.deleted[record.number].policy

    def _own(self, record: DeletedRecord) -> RoleIdentity:
        return RoleIdentity(record.resource, record.creation or 0)

    def _is_there(self, identity: RoleIdentity) -> bool:
        return identity.role in self.memory.roles and self.memory.identity(identity.role) == identity
