"""Policy loads in memory: the fake of ``PolicyStore`` (see ``memory``)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import attrs

from svc.model.deleted_records import DeletedRecord, RoleIdentity
from svc.model.errors import PolicyConflict
from svc.model.events import EventBatch
from svc.model.idempotency import RequestKey, StoredAnswer
from svc.model.names import RoleName, is_role_kind, kind_sort_key
from svc.model.ownership import Ownership
from svc.model.policy_loads import (
    AnnotationRow,
    Changes,
    MembershipRow,
    PermissionRow,
    PolicyVersion,
    PresentRows,
    RecordedOwner,
    RecordLimit,
    ResourceRow,
    RestrictionRow,
    RowKeys,
    Rows,
    Side,
    Surroundings,
)
from svc.model.query_results import AccessFacts, CallerOrRole, Sealed
from svc.storage.policies import PolicyStore, PolicyTransaction
from tests.memory import KEPT, KeptRow, Memory, MemoryStore, kind_of, remove

T = TypeVar("T")
X = TypeVar("X", bound="MemoryPolicyTransaction")


def kept_row(tables: Mapping[str, Any], name: str) -> list[KeptRow]:
    """Return what is kept of a resource of these tables, nothing of what no policy recorded, and of public keys."""
    owner, policy = tables["resources"][name]
    if policy is None or kind_of(name) == "public_key":
        return []
    creations: Mapping[str, int] = tables["creations"]

    def identity(role: str) -> RoleIdentity:
        return RoleIdentity(role, creations.get(role, 0))

    grants = [
        MembershipRow(key[0], key[1], key[2], admin)
        for key, (admin, by) in tables["memberships"].items()
        if by == policy and not key[2] and name in key[:2]
    ]
    permissions = [PermissionRow(*key) for key, by in tables["permissions"].items() if by == policy and name in key[::2]]
    named = {role for row in grants for role in row[:2]} | {row.role for row in permissions}
    readers = [key[2] for key in tables["permissions"] if key[:2] == (name, "execute") and kind_of(name) == "variable"]
    values = tables["secrets"].get(name, {})
    record = DeletedRecord(
        0,
        name,
        identity(owner),
        creations.get(name, 0) if is_role_kind(kind_of(name)) else None,
        overwritten=False,
        made_at=tables["made"][name],
        deleted_at=0.0,
        until=0.0,
        readers=frozenset(map(identity, readers)),
        versions=tuple(sorted(values)),
        annotations=tuple(
            AnnotationRow(key[0], key[1], value)
            for key, (value, by) in tables["annotations"].items()
            if key[0] == name and by == policy
        ),
        restrictions=tuple(RestrictionRow(*key) for key in tables["restrictions"] if key[0] == name),
        grants=tuple(grants),
        permissions=tuple(permissions),
        creations={role: creations.get(role, 0) for role in named},
    )
    kept = {version: (sealed, tables["lives"][name, version]) for version, (_, sealed) in values.items()}
    distrusted = {key: told for (thing, key), told in tables["distrusted"].items() if thing == name}
    return [KeptRow(record, identity(policy), kept, tables["switches"].get(name), distrusted)]


async def transacted(transaction: X, work: Callable[[X], Awaitable[T]]) -> T:
    """What ``work`` returns, in one transaction."""
    memory = transaction.memory
    memory.ask()
    before = memory.copied()
    try:
        return await work(transaction)
    except BaseException:
        memory.restore(before)
        raise
    finally:
        memory.locked -= transaction.locks


class MemoryPolicies(MemoryStore, PolicyStore):
    """A fake of ``PolicyStore``."""

    async def transact(self, work: Callable[[PolicyTransaction], Awaitable[T]]) -> T:
        """See ``PolicyStore``."""
        return await transacted(MemoryPolicyTransaction(self.memory), work)


class MemoryPolicyTransaction(MemoryStore, PolicyTransaction):
    """A fake of ``PolicyTransaction``; ``locks`` are the policies that it keeps others out of."""

    def __init__(self, memory: Memory, locks: set[str] | None = None) -> None:
        super().__init__(memory)
        self.locks = set[str]() if locks is None else locks

    async def claim_request_key(self, request: RequestKey) -> StoredAnswer | None:
        """See ``PolicyTransaction``."""
        return self.memory.claim(request)

    async def keep_answer(self, request: RequestKey, pieces: Sequence[Sealed]) -> None:
        """See ``PolicyTransaction``."""
        self.memory.keep_answer(request, pieces)

    async def lock_policy(self, policy: RoleName) -> None:
        """See ``PolicyTransaction``."""
        if str(policy) in self.memory.locked - self.locks:
            raise PolicyConflict
        self.memory.locked.add(str(policy))
        self.locks.add(str(policy))

    async def access_facts(self, caller: CallerOrRole, policy: RoleName) -> AccessFacts:
        """See ``PolicyTransaction``."""
        return self.memory.access_facts(caller, str(policy))

    async def owners_denying(self, caller: RoleName, policy: RoleName) -> list[str]:
        """See ``PolicyTransaction``."""
        denying = {
            owner
            for resource, (owner, recorder) in self.memory.resources.items()
            for account, kind, identifier in [resource.split(":", 2)]
            if account == policy.account
            and identifier.startswith(policy.identifier + "/")
            and not (kind == "host" and recorder is None)
            and not self._updatable(str(caller), resource)
        }
        return sorted(denying)

    async def filter_held(self, caller: RoleName, roles: Iterable[str]) -> frozenset[str]:
        """See ``PolicyTransaction``."""
        return frozenset(roles) & self.memory.held(str(caller))

    async def filter_existing(self, resources: Sequence[str]) -> frozenset[str]:
        """See ``PolicyTransaction``."""
        return frozenset(resources) & self.memory.resources.keys()

    async def has_more_rows(self, policy: RoleName, most: int) -> bool:
        """See ``PolicyTransaction``."""
        own = (await self.read_present_rows(policy, Rows(), ())).own
        return any(len(rows) > most for rows in attrs.astuple(own, recurse=False))

    async def read_present_rows(self, policy: RoleName, wanted: Rows, deleted: Sequence[str]) -> PresentRows:
        """See ``PolicyTransaction``."""
        stored = self._stored()
        asked = (wanted.resources, wanted.memberships, wanted.permissions, wanted.annotations)
        keys = [{row[:length] for row in rows} for rows, length in zip(asked, (1, 3, 3, 2), strict=True)]
        keys[0] |= {(resource,) for resource in deleted}
        restrictable = {row.resource for row in wanted.resources if self.memory.roles.get(row.resource) == str(policy)}
        restrictions = tuple(RestrictionRow(*key) for key in self.memory.restrictions if key[0] in restrictable)
        own = (tuple(row for row, by in rows if by == str(policy)) for rows in stored)
        foreign = (
            tuple(row for row, by in rows if by != str(policy) and row[:length] in wanted_keys)
            for rows, wanted_keys, length in zip(stored, keys, (1, 3, 3, 2), strict=True)
        )
        return PresentRows(attrs.evolve(Rows(*own), restrictions=restrictions), Rows(*foreign))

    async def read_rows_by_key(self, policy: RoleName, keys: RowKeys) -> PresentRows:
        """See ``PolicyTransaction``."""
        asked: tuple[set[tuple[object, ...]], ...] = (
            {(resource,) for resource in keys.resources},
            set(keys.memberships),
            set(keys.permissions),
            set(keys.annotations),
        )
        own, foreign = (
            Rows(
                *(
                    tuple(row for row, by in rows if (by == str(policy)) is is_own and row[:length] in wanted)
                    for rows, wanted, length in zip(self._stored(), asked, (1, 3, 3, 2), strict=True)
                )
            )
            for is_own in (True, False)
        )
        restricted = {role for role in keys.restricted if self.memory.roles.get(role) == str(policy)}
        restrictions = tuple(RestrictionRow(*key) for key in self.memory.restrictions if key[0] in restricted)
        return PresentRows(attrs.evolve(own, restrictions=restrictions), foreign)

    def _stored(self) -> list[list[tuple[Any, str | None]]]:
        return [
            [(ResourceRow(key, owner), by) for key, (owner, by) in self.memory.resources.items()],
            [
                (MembershipRow(*key, admin), by)
                for key, (admin, by) in self.memory.memberships.items()
                if not self.memory.is_mapped(*key)
            ],
            [(PermissionRow(*key), by) for key, by in self.memory.permissions.items()],
            [(AnnotationRow(*key, value), by) for key, (value, by) in self.memory.annotations.items()],
        ]

    async def read_ownership(self, records: Sequence[str], placed: Sequence[str]) -> Ownership:
        """See ``PolicyTransaction``."""
        return self.memory.ownership(placed)

    async def not_grantable(self, caller: RoleName, roles: Sequence[str]) -> list[str]:
        """See ``PolicyTransaction``."""
        held = self.memory.held(str(caller))
        administered = {
            role for (role, member, _), (admin, _) in self.memory.memberships.items() if admin and member in held
        }
        return sorted((self.memory.roles.keys() & set(roles)) - administered)

    async def not_permittable(self, caller: RoleName, resources: Sequence[str]) -> list[str]:
        """See ``PolicyTransaction``."""
        existing = self.memory.resources.keys() & set(resources)
        return sorted(resource for resource in existing if not self.memory.access_facts(str(caller), resource).owns)

    async def not_updatable(self, caller: RoleName, resources: Sequence[str]) -> list[str]:
        """See ``PolicyTransaction``."""
        existing = self.memory.resources.keys() & set(resources)
        return sorted(resource for resource in existing if not self._updatable(str(caller), resource))

    async def apply_changes(self, policy: RoleName, changes: Changes, api_keys: Mapping[str, Sealed]) -> int:
        """See ``PolicyTransaction``."""
        self.memory.write()
        before = self.memory.copied()
        by = str(policy)
        self.memory.add(changes.create, by, api_keys)
        update, delete = changes.update, changes.delete
        for row in update.resources:
            if self.memory.resources.get(row.resource, ("", None))[1] == by:
                self.memory.resources[row.resource] = (row.owner, by)
        for membership in update.memberships:
            if self.memory.memberships.get(membership[:3], (False, None))[1] == by:
                self.memory.memberships[membership[:3]] = (membership.admin_option, by)
        for annotation in update.annotations:
            if self.memory.annotations.get(annotation[:2], ("", None))[1] == by:
                self.memory.annotations[annotation[:2]] = (annotation.value, by)
        remove(self.memory.restrictions, lambda key, _: key in delete.restrictions and self.memory.roles[key[0]] == by)
        annotations = {row[:2] for row in delete.annotations}
        memberships = {row[:3] for row in delete.memberships}
        remove(self.memory.annotations, lambda key, value: key in annotations and value[1] == by)
        remove(self.memory.permissions, lambda key, recorder: key in delete.permissions and recorder == by)
        remove(self.memory.memberships, lambda key, value: key in memberships and value[1] == by)
        self.memory.delete_resources((row.resource for row in delete.resources), by)
        self.memory.delete_roles((row.resource for row in delete.resources), by)
        gone = [name for name in sorted(before["resources"]) if name not in self.memory.resources]
        rows = [row for name in gone for row in kept_row(before, name)] if self.memory.keeping.is_enabled else []
        for kept in rows:
            self.memory.keep(kept)
        return self.memory.bound_deleted(policy.account) if rows else 0

    async def list_exceeding(self, limit: RecordLimit, records: Sequence[str], most: int) -> list[tuple[str, int]]:
        """See ``PolicyTransaction``."""
        counted = ((record, self.memory.carried(limit, record)) for record in sorted(records))
        return [(record, number) for record, number in counted if number > most]

    async def list_kinds(self, account: str) -> list[str]:
        """See ``PolicyTransaction``."""
        names = (name.split(":", 2) for name in self.memory.resources)
        return sorted({kind for its_account, kind, _ in names if its_account == account}, key=kind_sort_key)

    async def read_sealed_values(self, resources: Sequence[str]) -> dict[str, Sealed]:
        """See ``PolicyTransaction``."""
        stored = {resource: self.memory.secrets.get(resource) for resource in resources}
        return {resource: versions[max(versions)][1] for resource, versions in stored.items() if versions}

    async def set_values(self, values: Mapping[str, Sealed]) -> None:
        """See ``PolicyTransaction``."""
        self.memory.write()
        for resource in values.keys() & self.memory.resources.keys():
            self.memory.add_value(resource, values[resource])

    async def read_version(self, policy: RoleName) -> int:
        """See ``PolicyTransaction``."""
        return max(self.memory.versions.get(str(policy), {}), default=0)

    async def record_version(self, version: PolicyVersion) -> int:
        """See ``PolicyTransaction``."""
        self.memory.write()
        history = self.memory.versions.setdefault(str(version.policy), {})
        number = max(history, default=0) + 1
        history[number] = version
        history.pop(number - KEPT, None)
        return number

    async def write_events(self, trail: EventBatch) -> tuple[int, int]:
        """See ``PolicyTransaction``."""
        self.memory.write()
        return self.memory.record(trail)

    async def list_cascading_ids(self, policy: RoleName, resources: Sequence[str]) -> frozenset[str]:
        """See ``PolicyTransaction``."""
        gone, coming = set(resources), list(resources)
        while coming:
            going = coming.pop()
            owned = {name for name, value in self.memory.resources.items() if going in value}
            if kind_of(going) == "user":
                keys = going.replace(":user:", ":public_key:user/", 1) + "/"
                owned |= {name for name in self.memory.resources if name.startswith(keys)}
            owned |= self.memory.own_within({going}, str(policy))
            new = (owned | {name for name, by in self.memory.roles.items() if by == going}) - gone
            gone |= new
            coming += new
        return frozenset(gone)

    async def read_deletion_cascade(self, policy: RoleName, resources: Sequence[str], most: int) -> Rows | None:
        """See ``PolicyTransaction``."""
        gone = await self.list_cascading_ids(policy, resources)
        rows = Rows(
            tuple(ResourceRow(key, owner) for key, (owner, _) in self.memory.resources.items() if key in gone),
            tuple(
                MembershipRow(*key, admin)
                for key, (admin, by) in self.memory.memberships.items()
                if gone.intersection((*key[:2], by))
            ),
            tuple(
                PermissionRow(*key) for key, by in self.memory.permissions.items() if gone.intersection((key[0], key[2], by))
            ),
            tuple(
                AnnotationRow(*key, value)
                for key, (value, by) in self.memory.annotations.items()
                if gone.intersection((key[0], by))
            ),
        )
        counts = [len(sort) for sort in attrs.astuple(rows, recurse=False)]
        return rows if sum(counts) <= most and len(gone) <= most else None

    async def read_stored_rows(self, rows: Rows) -> Rows:
        """See ``PolicyTransaction``."""
        memory = self.memory
        memberships = {row[:3] for row in rows.memberships} & memory.memberships.keys()
        annotations = {row[:2] for row in rows.annotations} & memory.annotations.keys()
        return Rows(
            tuple(ResourceRow(key, memory.resources[key][0]) for key, _ in rows.resources if key in memory.resources),
            tuple(MembershipRow(*key, memory.memberships[key][0]) for key in memberships if not memory.is_mapped(*key)),
            tuple(row for row in rows.permissions if row in memory.permissions),
            tuple(AnnotationRow(*key, memory.annotations[key][0]) for key in annotations),
            tuple(RestrictionRow(*key) for key in memory.restrictions if key[0] in {row.resource for row in rows.resources}),
        )

    async def read_surroundings(self, resources: Sequence[str], each: int) -> Surroundings:
        """See ``PolicyTransaction``."""
        memory = self.memory
        memberships = [MembershipRow(*key, admin) for key, (admin, _) in memory.memberships.items()]
        permissions = [PermissionRow(*key) for key in memory.permissions]
        annotations = [AnnotationRow(*key, value) for key, (value, _) in memory.annotations.items()]
        sampled: list[list[Any]] = [[], [], []]
        for name in resources:
            sampled[0] += [row for row in memberships if row.role == name][:each]
            sampled[0] += [row for row in memberships if row.member == name][:each]
            sampled[1] += [row for row in permissions if row.resource == name][:each]
            sampled[1] += [row for row in permissions if row.role == name][:each]
            sampled[2] += [row for row in annotations if row.resource == name][:each]
        seen = {name: RecordedOwner(*memory.resources[name]) for name in resources if name in memory.resources}
        return Surroundings(seen, Rows((), *(tuple(dict.fromkeys(rows)) for rows in sampled)))

    async def read_adjacent_rows(self, side: Side, names: Sequence[str], each: int, most: int) -> Rows:
        """See ``PolicyTransaction``."""
        memory, asked = self.memory, set(names)
        end = {Side.MEMBERS: 0, Side.HELD: 1, Side.GRANTED: 1, Side.GIVEN: 0}[side]
        rows = Rows(tuple(ResourceRow(name, owner) for name, (owner, _) in memory.resources.items()))
        if side in {Side.MEMBERS, Side.HELD}:
            rows = Rows((), tuple(MembershipRow(*key, admin) for key, (admin, _) in memory.memberships.items()))
        else:
            rows = attrs.evolve(rows, permissions=tuple(PermissionRow(*key) for key in memory.permissions))
        found: list[list[Any]] = []
        for sort, place in ((rows.resources, end), (rows.memberships, end), (rows.permissions, 2 * end)):
            by_name: dict[str, list[Any]] = {}
            for row in sort:
                if (name := str(row[place])) in asked:
                    by_name.setdefault(name, []).append(row)
            found.append([row for several in by_name.values() for row in several[:each]][:most])
        return Rows(*map(tuple, found))

    async def filter_visible(self, caller: RoleName, resources: Sequence[str]) -> frozenset[str]:
        """See ``PolicyTransaction``."""
        access_facts_of_all = {name: self.memory.access_facts(str(caller), name) for name in resources}
        return frozenset(
            name
            for name, found in access_facts_of_all.items()
            if found.exists and (found.owns or found.privileges or found.inspects)
        )

    def _updatable(self, caller: str, resource: str) -> bool:
        """Whether ``caller`` has ``update`` on ``resource``."""
        access_facts = self.memory.access_facts(caller, resource)
        return access_facts.owns or "update" in access_facts.privileges
