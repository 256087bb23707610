"""Mappings of LDAP authenticators in memory: the fake of ``LdapMappingStore`` (see ``memory``)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeVar

from svc.model.ldap_directories import (
    DirectoryName,
    LdapMapping,
    MappedRole,
    MappingDifference,
    MappingEventsOf,
    MappingPreview,
)
from svc.model.names import ResourceName, RoleName
from svc.storage.ldap_mappings import LdapMappingStore, MappingTransaction
from tests.memory import MemoryStore
from tests.memory_policies import MemoryPolicyTransaction, transacted

T = TypeVar("T")


class MemoryLdapMappings(MemoryStore, LdapMappingStore):
    """A fake of ``LdapMappingStore``."""

    async def transact(self, work: Callable[[MappingTransaction], Awaitable[T]]) -> T:
        """See ``LdapMappingStore``."""
        return await transacted(MemoryMappingTransaction(self.memory), work)

    async def read_mapping(self, webservice: ResourceName, name: DirectoryName) -> LdapMapping | None:
        """See ``LdapMappingStore``."""
        self.memory.ask()
        found = {key[3]: said for key, said in self.memory.mappings.items() if key[:3] == (str(webservice), *_key(name))}
        return LdapMapping(next(iter(found.values())), tuple(sorted(found))) if found else None

    async def list_names(self, webservice: ResourceName, kind: str) -> list[str]:
        """See ``LdapMappingStore``."""
        self.memory.ask()
        found = {key[2]: said for key, said in self.memory.mappings.items() if key[:2] == (str(webservice), kind)}
        return [found[key] for key in sorted(found, key=str.encode)]

    async def list_kinds(self, webservice: ResourceName) -> frozenset[str]:
        """See ``LdapMappingStore``."""
        self.memory.ask()
        return frozenset(key[1] for key in self.memory.mappings if key[0] == str(webservice))

    async def preview_changes(
        self, webservice: ResourceName, member: RoleName, names: Sequence[DirectoryName]
    ) -> MappingPreview:
        """See ``LdapMappingStore``."""
        self.memory.ask()
        rows = self._standing(webservice, member, names)
        difference, before = MappingDifference.from_rows(rows), self.memory.copied()
        self._change(webservice, member, difference)
        may = self._may_authenticate(webservice, member)
        self.memory.restore(before)
        return MappingPreview(difference, tuple(sorted({row.name for row in rows if row.given})), may)

    async def apply_mappings(
        self, webservice: ResourceName, member: RoleName, names: Sequence[DirectoryName], trail: MappingEventsOf
    ) -> tuple[MappingDifference, bool]:
        """See ``LdapMappingStore``."""
        self.memory.write()
        difference = MappingDifference()
        if str(member) in self.memory.roles:
            difference = MappingDifference.from_rows(self._standing(webservice, member, names))
            self._change(webservice, member, difference)
            self.memory.record(trail(difference))
        return difference, self._may_authenticate(webservice, member)

    def _standing(self, webservice: ResourceName, member: RoleName, names: Sequence[DirectoryName]) -> list[MappedRole]:
        memory, service = self.memory, str(webservice)
        given = {key for key in memory.mappings if key[0] == service and DirectoryName(key[1], key[2]) in names}
        made = {mark[:4] for mark in memory.mapped if (mark[0], mark[4]) == (service, str(member))}
        return [
            MappedRole(
                DirectoryName(key[1], key[2]),
                key[3],
                key in given,
                key in made,
                (key[3], str(member), False) in memory.memberships,
                memory.is_mapped(key[3], str(member)),
                any(mark[3:] == (key[3], str(member)) and mark[0] != service for mark in memory.mapped),
            )
            for key in sorted(given | made)
        ]

    def _change(self, webservice: ResourceName, member: RoleName, difference: MappingDifference) -> None:
        memory = self.memory
        for role in difference.gains:
            memory.memberships[role, str(member), False] = (False, None)
        for name, role in difference.begins:
            memory.mapped[str(webservice), name.kind, name.key, role, str(member)] = None
        for name, role in difference.ceases:
            del memory.mapped[str(webservice), name.kind, name.key, role, str(member)]
        for role in difference.loses:
            del memory.memberships[role, str(member), False]

    def _may_authenticate(self, webservice: ResourceName, member: RoleName) -> bool:
        facts = self.memory.access_facts(str(member), str(webservice))
        return facts.owns or "authenticate" in facts.privileges


class MemoryMappingTransaction(MemoryPolicyTransaction, MappingTransaction):
    """A fake of ``MappingTransaction``."""

    async def lock_mappings(self, webservice: ResourceName) -> None:
        """See ``MappingTransaction``."""

    async def read_mapping(self, webservice: ResourceName, name: DirectoryName) -> LdapMapping | None:
        """See ``MappingTransaction``."""
        return await MemoryLdapMappings(self.memory).read_mapping(webservice, name)

    async def count_names(self, webservice: ResourceName, kind: str) -> int:
        """See ``MappingTransaction``."""
        return len(await MemoryLdapMappings(self.memory).list_names(webservice, kind))

    async def set_mapping(self, webservice: ResourceName, name: DirectoryName, said: str, roles: Sequence[str]) -> None:
        """See ``MappingTransaction``."""
        self.memory.write()
        for key in [key for key in self.memory.mappings if key[:3] == (str(webservice), *_key(name))]:
            del self.memory.mappings[key]
        for role in roles:
            self.memory.mappings[str(webservice), name.kind, name.key, role] = said
        self.memory.follow_mappings()

    async def list_lost_memberships(
        self, webservice: ResourceName, name: DirectoryName, roles: Collection[str]
    ) -> list[tuple[str, str]]:
        """See ``MappingTransaction``."""
        marks = self.memory.mapped
        of_name = [mark for mark in marks if mark[:3] == (str(webservice), *_key(name)) and mark[3] in roles]
        return sorted(
            (mark[3], mark[4])
            for mark in of_name
            if not any(other[3:] == mark[3:] and other[:3] != mark[:3] for other in marks)
        )


def _key(name: DirectoryName) -> tuple[str, str]:
    return name.kind, name.key
