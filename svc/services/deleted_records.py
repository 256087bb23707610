"""The use cases of records that policy deleted: they are listed, restored, or purged for good (DEL-6 to DEL-24).

Note [Whose it is]. A kept record belongs to the policy that had recorded it, as long as that is the same policy. It may be
restored by callers that could delete it if it existed: those that have ``update`` on the policy, where the policy owns it or
the caller holds its owner. Owners are looked up as they were: an owner that was deleted too is followed to its own owner,
and the next role of an owner's name is a stranger.

Note [Who may read]. A variable that was declared again may have been opened to others while it was empty, for somebody else
to fill. So values are restored only if all roles that are permitted to read it were so before.

Note [As a load]. Restoring a record is loading it: it requires the same authority, and keeps to the same limits. Rows that a
load would refuse are left out here: grants and permissions for which the caller lacks authority, or whose other end isn't
the role that it was.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

import attrs

from svc.model.authorization import require_privilege
from svc.model.deleted_records import DeletedRecord, DeletedRecordOwner, PresentRecord, RoleIdentity
from svc.model.limits import RECORD_LIMITS, RecordLimits
from svc.model.names import RoleName, is_role_kind
from svc.model.ownership import Ownership
from svc.model.policy_loads import Changes, MembershipRow, PermissionRow, RecordedOwner, ResourceRow, Rows
from svc.policy.authority import AffectedRecords, compute_required_authority
from svc.policy.ids import USER_KINDS
from svc.policy.load_events import make_load_events
from svc.policy.record_limits import refuse_excess
from svc.services.invocation import Invocation
from svc.services.policy_loads import find_lacking_authority, refuse_grown
from svc.storage.deleted_records import DeletedStore, DeletedTransaction

#: How many records are restored, or purged by their numbers, at once: that takes a process a moment.
BATCH_MOST: Final = 100


class RestoreObstacle(enum.StrEnum):
    """Why something isn't restored."""

    NOT_KEPT = "not-kept"  # or not the caller's to restore
    OWNER_GONE = "owner-gone"
    OTHER_OWNER = "other-owner"
    RECORD_MISSING = "record-missing"
    RECORD_EXISTS = "record-exists"
    OTHER_RECORD = "other-record"
    OTHER_READERS = "other-readers"
    NEWER_VALUES = "newer-values"
    FORBIDDEN = "forbidden"
    TOO_MUCH = "too-much"  # for one request


@attrs.frozen
class Restored:
    """The outcome: the restored records, and by number why others weren't restored.

    ``skipped_rows``: how many grants and permissions of these weren't restored with them.
    """

    records: Sequence[DeletedRecord]
    skipped: Mapping[int, RestoreObstacle]
    skipped_rows: int


@attrs.frozen
class DeletedService:
    """The use cases of deleted records.

    :raises NotFound: by all methods: there is no such policy, or the caller may not see it.
    :raises Forbidden: by all methods: the caller lacks ``update`` on it, and for listing ``inspect``, too.
    """

    store: DeletedStore
    limits: RecordLimits = RECORD_LIMITS

    async def list_records(self, invocation: Invocation, policy: RoleName, limit: int, offset: int) -> list[DeletedRecord]:
        """Return the policy's kept records that the caller may restore, or inspects (INS-1), the newest first."""

        async def read_records(transaction: DeletedTransaction) -> list[DeletedRecord]:
            return await transaction.list_records(
                policy, await _visible_owners(transaction, invocation, policy), limit, offset
            )

        return await self.store.transact_read_only(read_records)

    async def restore_records(self, invocation: Invocation, policy: RoleName, numbers: Sequence[int]) -> Restored:
        """Restore records and values, as far as possible.

        :raises PolicyConflict: the policy is being loaded.
        :raises PolicyInvalid: a record would carry more than it may.
        """
        return await self.store.transact(functools.partial(self._restore_records, invocation, policy, numbers))

    async def purge_records(self, invocation: Invocation, policy: RoleName, numbers: Sequence[int] | None) -> list[str]:
        """Purge the records kept under these numbers, or all that ``list_records`` returns; return the full id of each."""

        async def purge_and_audit(transaction: DeletedTransaction) -> list[str]:
            owners = await _disposable_owners(transaction, invocation, policy)
            purged = await transaction.purge_records(policy, owners, numbers)
            invocation.recorder.add_audit_facts(purged=purged)
            if purged and (trail := invocation.recorder.event_batch) is not None:
                await transaction.write_events(trail)
            return purged

        return await self.store.transact(purge_and_audit)

    async def _restore_records(
        self, invocation: Invocation, policy: RoleName, numbers: Sequence[int], transaction: DeletedTransaction
    ) -> Restored:
        # Strangers must not take the lock: meanwhile others would get a conflict.
        await _require_update(transaction, invocation, policy)
        await transaction.lock_policy(policy)
        disposable = await _disposable_owners(transaction, invocation, policy)
        asked = await transaction.lock_records(policy, disposable, numbers)
        found = frozenset(record.number for record in asked)
        left = {number: RestoreObstacle.NOT_KEPT for number in numbers if number not in found}
        left |= {record.number: RestoreObstacle.TOO_MUCH for record in asked if not record.whole}
        asked = [record for record in asked if record.whole]
        standings = await transaction.read_present_records({record.resource for record in asked})
        coming = [record for record in asked if not record.overwritten and record.resource not in standings]
        making = _RestorePlan(policy, coming, await transaction.read_creations(_mentioned_roles(coming)))
        await making.authorize(transaction, invocation.caller.role)
        left |= making.skipped
        rows = await making.read_rows(transaction)
        changes = Changes(create=rows)
        if making.restorable:
            refuse_excess(rows, self.limits)
            await transaction.apply_changes(policy, changes, {})
            await refuse_grown(transaction, changes, self.limits)
        filled = _find_fillable(policy, asked, making.restorable, standings, left)
        made = tuple(making.restorable.values())
        await transaction.restore_records(made, filled)
        back = {record.number for record in (*made, *filled)}
        restored = [record for record in asked if record.number in back]
        events = [event._replace(policy=None) for event in make_load_events(policy, 0, changes)]
        invocation.recorder.add_audit_facts(
            restored=[(record.resource, record.versions) for record in restored], rows=events
        )
        if restored and (trail := invocation.recorder.event_batch) is not None:
            await transaction.write_events(trail)
        return Restored(restored, left, making.skipped_rows)


async def _require_update(transaction: DeletedTransaction, invocation: Invocation, policy: RoleName) -> None:
    require_privilege(await transaction.access_facts(invocation.caller, policy), "update", policy.resource)


async def _disposable_owners(
    transaction: DeletedTransaction, invocation: Invocation, policy: RoleName
) -> list[RoleIdentity]:
    """Return the owners whose records of the policy the caller may restore or purge (Note [Whose it is])."""
    await _require_update(transaction, invocation, policy)
    return await _list_owners(transaction, policy, functools.partial(transaction.filter_held, invocation.caller.role))


async def _visible_owners(transaction: DeletedTransaction, invocation: Invocation, policy: RoleName) -> list[RoleIdentity]:
    """Return the owners whose records of the policy the caller may restore or purge, or inspects."""
    role, facts = invocation.caller.role, await transaction.access_facts(invocation.caller, policy)
    if not (facts.inspects or (facts.privileges and await transaction.filter_inspected(role, [str(policy)]))):
        return await _disposable_owners(transaction, invocation, policy)

    async def open_to(roles: Sequence[str]) -> frozenset[str]:
        return await transaction.filter_held(role, roles) | await transaction.filter_inspected(role, roles)

    return await _list_owners(transaction, policy, open_to)


async def _list_owners(
    transaction: DeletedTransaction, policy: RoleName, open_to: Callable[[Sequence[str]], Awaitable[frozenset[str]]]
) -> list[RoleIdentity]:
    """Return the owners of records that the policy owns, and those that lead to a role that is ``open_to`` the caller."""
    owners = {owner.identity: owner for owner in await transaction.list_owners(policy)}
    there = [owner.identity.role for owner in owners.values() if owner.exists]
    held = await open_to(there)
    found = await transaction.read_ownership([str(policy), *there], ())
    kept = {
        _owner_key(owner): RecordedOwner(_owner_key(owners[owner.owner]), None)
        for owner in owners.values()
        if owner.owner is not None
    }
    owned = {f"\0{_owner_key(owner)}": RecordedOwner(_owner_key(owner), None) for owner in owners.values()}
    ownership = Ownership({**found.records, **kept, **owned}, {})
    return [
        identity
        for identity, owner in owners.items()
        if ownership.owns(str(policy), f"\0{_owner_key(owner)}") or _first_existing_owner(owner, owners) in held
    ]


def _owner_key(owner: DeletedRecordOwner) -> str:
    """Return the key of an owner among the owners of others; for one that is gone, a key that no id can equal."""
    return owner.identity.role if owner.exists else f"{owner.identity.role}\0{owner.identity.creation}"


def _first_existing_owner(owner: DeletedRecordOwner, owners: Mapping[RoleIdentity, DeletedRecordOwner]) -> str | None:
    """Return the first owner in the chain of owners that exists."""
    seen = set[RoleIdentity]()
    while not owner.exists:
        if owner.owner is None or owner.identity in seen:
            return None
        seen.add(owner.identity)
        owner = owners[owner.owner]
    return owner.identity.role


def _mentioned_roles(records: Iterable[DeletedRecord]) -> set[str]:
    return {role for record in records for role in (record.owner.role, *record.creations)}


class _RestorePlan:
    """Records that are made again: ``restorable`` by full ids, as far as they can be, and why others are ``skipped``.

    For each id the newest of ``records`` is made again whose owner exists, or is made again. ``creations`` are those of the
    roles that they name, as far as these exist.
    """

    def __init__(self, policy: RoleName, records: Iterable[DeletedRecord], creations: Mapping[str, int]) -> None:
        self.skipped: dict[int, RestoreObstacle] = {}
        self.skipped_rows = 0
        self._policy = policy
        self._creations = creations
        self._grants: list[MembershipRow] = []
        self._permissions: list[PermissionRow] = []
        older: dict[str, list[DeletedRecord]] = {}
        for record in sorted(records, key=lambda record: record.number):
            older.setdefault(record.resource, []).append(record)
        self.restorable: dict[str, DeletedRecord] = {full: found.pop() for full, found in older.items()}
        self._all = frozenset(older)
        while self._skip_orphans():
            self.restorable |= {full: found.pop() for full, found in older.items() if found and full not in self.restorable}

    async def authorize(self, transaction: DeletedTransaction, caller: RoleName) -> None:
        """Leave out what requires authority that the caller lacks (Note [As a load])."""
        coming, policy = self.restorable, str(self._policy)
        grants = {row for record in coming.values() for row in record.grants if self._has_same_roles(record, row[:2])}
        permissions = {
            row for record in coming.values() for row in record.permissions if self._has_same_roles(record, (row.role,))
        }
        granted = {row.role for row in grants}.difference(coming)
        things = {row.resource for row in permissions}.difference(coming)
        things = set(await transaction.filter_existing(tuple(things)))
        permissions = {row for row in permissions if row.resource in things or row.resource in coming}
        made = [full for full in coming if full.split(":", 2)[1] not in USER_KINDS]
        ownership = await transaction.read_ownership([policy, *granted, *things], made)
        own = frozenset(full for full, seen in ownership.records.items() if seen.policy == policy)
        disposed = AffectedRecords(self._policy, sorted(granted), sorted(things), (), (), made, own, ())
        denied = set(await find_lacking_authority(transaction, caller, compute_required_authority(disposed, ownership)))
        for full in made:
            around = ownership.enclosing_policies[full]
            if ("permit", around) in denied and around != policy and not ownership.owns(policy, around):
                self._skip_record(full, RestoreObstacle.FORBIDDEN)
        self._skip_orphans()
        self._grants = [row for row in grants if ("grant", row.role) not in denied]
        self._permissions = [row for row in permissions if ("permit", row.resource) not in denied]

    async def read_rows(self, transaction: DeletedTransaction) -> Rows:
        """Return the rows of the records that are made again, without those that exist."""
        records = self.restorable.values()
        wanted = Rows(memberships=tuple(sorted(self._grants)), permissions=tuple(sorted(self._permissions)))
        stored = await transaction.read_stored_rows(wanted)
        there = {row[:3] for row in (*stored.memberships, *stored.permissions)}
        grants = [row for row in wanted.memberships if self._is_restored_row(row.role, row.member)]
        permissions = [row for row in wanted.permissions if self._is_restored_row(row.resource, row.role)]
        asked = {row for record in records for row in (*record.grants, *record.permissions)}
        self.skipped_rows = len(asked) - len(grants) - len(permissions)
        ownerships = (
            MembershipRow(record.resource, record.owner.role, ownership=True, admin_option=True)
            for record in records
            if is_role_kind(record.resource.split(":", 2)[1])
        )
        return Rows(
            tuple(ResourceRow(record.resource, record.owner.role) for record in records),
            (*ownerships, *(row for row in grants if row[:3] not in there)),
            tuple(row for row in permissions if row[:3] not in there),
            tuple(row for record in records for row in record.annotations),
            tuple(row for record in records for row in record.restrictions),
        )

    def _is_restored_row(self, *ends: str) -> bool:
        """Return whether a row still concerns records that are made again, and none that was left out since."""
        left = {full for full in ends if full in self._all and full not in self.restorable}
        return not left and any(full in self.restorable for full in ends)

    def _has_same_roles(self, record: DeletedRecord, roles: Iterable[str]) -> bool:
        """Return whether roles are the same that a record's rows meant."""
        return all(self._role_exists(RoleIdentity(role, record.creations[role])) for role in roles)

    def _role_exists(self, identity: RoleIdentity) -> bool:
        """Return whether a role exists, or is made again."""
        role, creation = identity
        if role in self.restorable:
            return self.restorable[role].creation == creation
        return self._creations.get(role) == creation

    def _skip_orphans(self) -> bool:
        """Leave out records whose owner neither exists nor is made again, and return whether there were any."""
        left = len(self.skipped)
        while orphans := [full for full, record in self.restorable.items() if not self._role_exists(record.owner)]:
            for full in orphans:
                self._skip_record(full, RestoreObstacle.OWNER_GONE)
        return len(self.skipped) > left

    def _skip_record(self, full: str, why: RestoreObstacle) -> None:
        self.skipped[self.restorable.pop(full).number] = why


def _find_fillable(
    policy: RoleName,
    asked: Sequence[DeletedRecord],
    made: Mapping[str, DeletedRecord],
    standings: Mapping[str, PresentRecord],
    left: dict[int, RestoreObstacle],
) -> list[DeletedRecord]:
    """Return the records whose values are put back, and note in ``left`` why others are not.

    Existing values stay, and the newest of them stays the newest.
    """
    filled = []
    now = dict(standings)
    for full, record in made.items():
        now[full] = PresentRecord(
            record.owner, str(policy), record.made_at, record.readers, max(record.versions, default=None)
        )
        filled += [record] if record.versions else []
    done = {record.number for record in made.values()}
    for record in sorted(asked, key=lambda record: (record.overwritten, -record.number)):
        if record.number in left or record.number in done:
            continue
        why = _find_obstacle(policy, record, now.get(record.resource))
        if why is not None:
            left[record.number] = why
            continue
        filled.append(record)
        standing = now[record.resource]
        now[record.resource] = attrs.evolve(standing, newest=max(standing.newest or 0, record.versions[-1]))
    return filled


def _find_obstacle(policy: RoleName, record: DeletedRecord, standing: PresentRecord | None) -> RestoreObstacle | None:
    """Return why a record's values can't be put back into the existing one; ``None`` if they can."""
    if standing is None:
        return RestoreObstacle.RECORD_MISSING
    if standing.owner != record.owner or standing.policy != str(policy):
        return RestoreObstacle.OTHER_OWNER
    if not record.versions:
        return RestoreObstacle.RECORD_EXISTS
    if record.overwritten and standing.made_at != record.made_at:
        return RestoreObstacle.OTHER_RECORD
    if not standing.readers <= record.readers:
        return RestoreObstacle.OTHER_READERS
    # A variable never reuses a version's number: values that were pushed out find their places free, below the newest.
    return None if record.overwritten or standing.newest is None else RestoreObstacle.NEWER_VALUES
