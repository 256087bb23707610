"""Identities of a Vault: entities with their aliases, and groups, which give policies besides those of a login.

Note [Whose identity]. An entity whose alias is a role of AppRole or a user with a password is that host or user here.
Another one that has policies or groups of its own becomes a host without a key: which evidence it shows is for somebody to
write. Names that were made by a first login say nothing, and are replaced by mount and alias.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs

from svc.importing.inventory import Grant, NoteKind, RecordId
from svc.importing.vault_access import Holder, PolicyKey, iterate_keys
from svc.importing.vault_http import Found, VaultConnection
from svc.importing.vault_json import Json, object_of, texts_of
from svc.importing.vault_logins import LoginRole
from svc.importing.vault_names import Records

#: The names that a first login gives.
_GENERATED: Final = re.compile(r"entity_[0-9a-f]{8}(\..*)?")

#: The methods whose logins become records of their own.
_MOVED: Final = frozenset({"approle", "userpass"})


@attrs.frozen
class Alias:
    """A name of an entity in a method of login."""

    mount_path: str
    mount_type: str
    name: str
    values: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen
class Entity:
    """Somebody who logs in, in one way or several."""

    id: str
    namespace: str
    name: str
    policies: frozenset[PolicyKey]
    metadata: Mapping[str, str]
    disabled: bool
    aliases: tuple[Alias, ...]
    direct_groups: frozenset[str]
    groups: frozenset[str]

    def values(self, group_names: Mapping[str, str]) -> dict[str, str]:
        """Return what templates of policies stand for."""
        values = {"identity.entity.id": self.id, "identity.entity.name": self.name}
        values |= {f"identity.entity.metadata.{name}": value for name, value in self.metadata.items()}
        for alias in self.aliases:
            values |= alias.values
        for group in self.groups & group_names.keys():
            values[f"identity.groups.ids.{group}.name"] = group_names[group]
            values[f"identity.groups.names.{group_names[group]}.id"] = group
        return values


def read_entity(data: Mapping[str, Json], namespace: str) -> Entity:
    """Return an entity.

    :raises ValueError: it has another shape.
    """
    aliases = []
    for each in _list_of(data.get("aliases")):
        described = object_of(each)
        accessor, name = _text(described.get("mount_accessor")), _text(described.get("name"))
        begin = f"identity.entity.aliases.{accessor}"
        values = {f"{begin}.id": _text(described.get("id")), f"{begin}.name": name}
        for kind in ("metadata", "custom_metadata"):
            values |= {f"{begin}.{kind}.{key}": value for key, value in _texts(described.get(kind)).items()}
        aliases.append(Alias(_text(described.get("mount_path")), _text(described.get("mount_type")), name, values))
    return Entity(
        id=_text(data.get("id")),
        namespace=namespace,
        name=_text(data.get("name")),
        policies=frozenset(iterate_keys(namespace, texts_of(data.get("policies")))),
        metadata=_texts(data.get("metadata")),
        disabled=data.get("disabled") is True,
        aliases=tuple(aliases),
        direct_groups=frozenset(texts_of(data.get("direct_group_ids"))),
        groups=frozenset({*texts_of(data.get("group_ids")), *texts_of(data.get("direct_group_ids"))}),
    )


def _list_of(value: Json) -> list[Json]:
    if not isinstance(value, list | None):
        raise ValueError("not a list")
    return value or []


def _text(value: Json) -> str:
    if not isinstance(value, str | None):
        raise ValueError("not a text")
    return value or ""


def _texts(value: Json) -> dict[str, str]:
    return {name: each for name, each in object_of(value).items() if isinstance(each, str)}


@attrs.define
class IdentityReader:
    """Reads the identities of namespaces."""

    connection: VaultConnection
    records: Records
    grants: list[Grant] = attrs.field(factory=list, init=False)
    group_policies: dict[RecordId, frozenset[PolicyKey]] = attrs.field(factory=dict, init=False)
    _entities: list[Entity] = attrs.field(factory=list, init=False)
    _groups: dict[str, RecordId] = attrs.field(factory=dict, init=False)
    _group_names: dict[str, str] = attrs.field(factory=dict, init=False)
    _members: list[tuple[str, str]] = attrs.field(factory=list, init=False)

    async def read_namespace(self, namespace: str) -> None:
        """Read the groups and entities of one."""
        for name in await self._list(namespace, "group"):
            if (data := await self._read(namespace, f"group/id/{name}")) is not None:
                self._add_group(namespace, name, data)
        for name in await self._list(namespace, "entity"):
            if (data := await self._read(namespace, f"entity/id/{name}")) is not None:
                try:
                    self._entities.append(read_entity(data, namespace))
                except ValueError as fault:
                    raise self.connection.strange(f"{namespace}identity/entity/id/{name}", str(fault)) from None

    async def _list(self, namespace: str, kind: str) -> tuple[str, ...]:
        path = f"identity/{kind}/id"
        names = await self.connection.list_names(path, namespace)
        if isinstance(names, tuple):
            return names
        self.records.note(NoteKind.UNSEEN, f"{namespace}{path}", "it may not be listed", "give the token list there")
        return ()

    async def _read(self, namespace: str, path: str) -> dict[str, Json] | None:
        found = await self.connection.read(f"identity/{path}", namespace)
        if isinstance(found, Found):
            return found.data
        what = f"{namespace}identity/{path}"
        self.records.note(NoteKind.UNSEEN, what, "it may not be read", "give the token read there")
        return None

    def _add_group(self, namespace: str, identifier: str, data: Mapping[str, Json]) -> None:
        try:
            name, policies = _text(data.get("name")) or identifier, texts_of(data.get("policies"))
            inner, annotations = texts_of(data.get("member_group_ids")), _texts(data.get("metadata"))
        except ValueError as fault:
            raise self.connection.strange(f"{namespace}identity/group/id/{identifier}", str(fault)) from None
        origin = f"group {name} of {namespace}identity"
        record = self.records.add("group", f"{namespace}identity/group/", name, origin, annotations=annotations)
        if record is None:
            return
        self._groups[identifier], self._group_names[identifier] = record, name
        self.group_policies[record] = frozenset(iterate_keys(namespace, policies))
        self._members += [(identifier, each) for each in inner]
        if data.get("type") == "external":
            why = "who belongs to it comes with each login there"
            self.records.note(NoteKind.LEFT_OUT, f"members of {origin}", why, "grant it to hosts, by the claim that says it")

    def build_holders(self, roles: Sequence[LoginRole]) -> list[Holder]:
        """Return all who have policies, after everything was read: logins, and identities of their own."""
        for outer, inner in self._members:
            if outer in self._groups and inner in self._groups:
                branch = self.records[self._groups[outer]].policy
                self.grants.append(Grant(self._groups[outer], self._groups[inner], policy=branch))
        aliases: dict[tuple[str, str], Entity] = {
            (f"{entity.namespace}{alias.mount_path}", alias.name): entity
            for entity in self._entities
            for alias in entity.aliases
        }
        holders = []
        for role in roles:
            entity = None
            if role.mount.type in _MOVED:
                entity = aliases.get((f"{role.mount.namespace}auth/{role.mount.path}", role.alias))
            if entity is not None and entity.disabled:
                self.records.change(role.record, had_api_key=False)
                why = "its entity is disabled there"
                self.records.note(
                    NoteKind.CHANGED, role.origin, why, "it gets no key while it has the annotation authn/api-key: false"
                )
            holders.append(self._hold(role.record, role.origin, role.policies, entity))
        moved = {f"{role.mount.namespace}auth/{role.mount.path}" for role in roles if role.mount.type in _MOVED}
        holders += [holder for entity in self._entities for holder in self._hold_alone(entity, moved)]
        return holders

    def _hold(self, record: RecordId, origin: str, policies: frozenset[PolicyKey], entity: Entity | None) -> Holder:
        if entity is None:
            return Holder(record, origin, policies)
        return Holder(
            record,
            origin,
            policies | entity.policies,
            self._records_of(entity.groups),
            self._records_of(entity.direct_groups),
            entity.values(self._group_names).get,
        )

    def _records_of(self, groups: Iterable[str]) -> frozenset[RecordId]:
        return frozenset(self._groups[each] for each in groups if each in self._groups)

    def _hold_alone(self, entity: Entity, moved: set[str]) -> list[Holder]:
        """Return an entity that is no host or user yet as a host, if it has anything of its own."""
        if any(f"{entity.namespace}{alias.mount_path}" in moved for alias in entity.aliases):
            return []
        if not entity.policies and not self._records_of(entity.groups):
            return []
        where = f"{entity.namespace}identity/entity/"
        origin = f"entity {entity.name} of {entity.namespace}identity"
        name = entity.name
        if _GENERATED.fullmatch(entity.name) and entity.aliases:
            alias = entity.aliases[0]
            where, name = f"{entity.namespace}{alias.mount_path}", alias.name
            origin = f"entity {alias.name} of {where}"
        record = self.records.add("host", where, name, origin, annotations=entity.metadata)
        if record is None:
            return []
        ways = ", ".join(sorted({alias.mount_type for alias in entity.aliases})) or "nothing"
        disabled = ", and is disabled" if entity.disabled else ""
        why = f"it logs in by {ways} there{disabled}; what its role gives besides is that role's"
        self.records.note(NoteKind.TO_KNOW, origin, why, f"write annotations of {record}, if it is to log in")
        return [self._hold(record, origin, frozenset(), entity)]
