"""The changes of a load, from wanted rows and present rows (POL-42 to POL-49).

Note [Order of changes]. Stores create first, then update, then delete: a thing may pass from an owner that is deleted to a
new one, and the store deletes what a deleted role owns.

Note [Foreign records]. A record that another policy recorded, or that none did, is left alone, with its owner and its
restrictions: otherwise declaring a thing would seize it, or lock a foreign host out. The document's other statements about
it (grants, permissions, annotations of new names) are recorded here.

Note [Deletions win]. If a document deletes or revokes something, its other statements about that are ignored, and so are
those about anything that would belong to a deleted record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import attrs

from svc.model.credentials import forbids_api_key
from svc.model.names import ACTOR_KINDS, is_role_kind
from svc.model.policy_loads import Changes, LoadMode, MembershipRow, PresentRows, Removals, ResourceRow, RestrictionRow, Rows

_Row = TypeVar("_Row", bound=tuple[Any, ...])

# How many of a row's first fields are its key; the rest is its value.
_RESOURCE_KEY = 1
_MEMBERSHIP_KEY = _PERMISSION_KEY = 3
_ANNOTATION_KEY = _RESTRICTION_KEY = 2

_NOTHING = Removals()


def plan_changes(mode: LoadMode, wanted: Rows, present: PresentRows, removals: Removals = _NOTHING) -> Changes:
    """Plan how the rows that a policy recorded become those that its document wants.

    ``APPEND`` creates what is new; ``UPDATE`` also changes what differs; ``REPLACE`` also deletes what is not wanted.
    Both also remove what the document names for removal. A deleted row may be one that the deletion of another cascades to.
    """
    own, foreign = present.own, present.foreign
    changing = mode is not LoadMode.APPEND
    left_alone = {row.resource for row in foreign.resources}
    if removals != _NOTHING:
        wanted = _drop_removed(removals, wanted, left_alone)
    memberships = _wanted_memberships(wanted.memberships, present, changing)
    new_resources, moved = _new_and_changed(wanted.resources, own.resources, foreign.resources, _RESOURCE_KEY)
    new_memberships, turned = _new_and_changed(memberships, own.memberships, foreign.memberships, _MEMBERSHIP_KEY)
    new_permissions, _ = _new_and_changed(wanted.permissions, own.permissions, foreign.permissions, _PERMISSION_KEY)
    new_annotations, reworded = _new_and_changed(wanted.annotations, own.annotations, foreign.annotations, _ANNOTATION_KEY)
    restrictions = tuple(row for row in wanted.restrictions if row.role not in left_alone)
    new_restrictions, _ = _new_and_changed(restrictions, own.restrictions, (), _RESTRICTION_KEY)
    create = Rows(new_resources, new_memberships, new_permissions, new_annotations, new_restrictions)
    if not changing:
        return Changes(create=create)
    update = Rows(moved, turned, (), reworded)
    lost = _ended_ownerships(moved, own.resources)
    lifted = _surplus_rows(own.restrictions, restrictions, _RESTRICTION_KEY)
    if mode is LoadMode.UPDATE:
        return Changes(create, update, _deleted_by_update(removals, present, lost, lifted))
    return Changes(
        create, update, _deleted_by_replace(removals, attrs.evolve(wanted, memberships=memberships), present, lost, lifted)
    )


def plan_after_deletions(wanted: Rows, present: PresentRows, removals: Removals) -> Rows:
    """Return the wanted rows to create once the deletions of a load are done (POL-94).

    Another policy had recorded them, so that :func:`plan_changes` skipped them, and they were deleted with that policy.
    Records that were deleted so aren't among them: the load is refused (``resolve.find_lost``).
    """
    create = plan_changes(LoadMode.APPEND, wanted, present, removals).create
    memberships = tuple(row for row in create.memberships if not row.ownership)
    return Rows((), memberships, create.permissions, create.annotations)


def _deleted_by_update(
    removals: Removals, present: PresentRows, lost: tuple[MembershipRow, ...], lifted: tuple[RestrictionRow, ...]
) -> Rows:
    """Return the rows that ``UPDATE`` deletes."""
    own, foreign = present.own, present.foreign
    gone, revoked, denied = set(removals.resources), set(removals.memberships), set(removals.permissions)
    return Rows(
        tuple(row for row in (*own.resources, *foreign.resources) if row.resource in gone),
        (*lost, *(row for row in own.memberships if not row.ownership and row[:2] in revoked)),
        tuple(row for row in own.permissions if row in denied),
        (),
        lifted,
    )


def _deleted_by_replace(
    removals: Removals,
    wanted: Rows,
    present: PresentRows,
    lost: tuple[MembershipRow, ...],
    lifted: tuple[RestrictionRow, ...],
) -> Rows:
    """Return the rows that ``REPLACE`` deletes."""
    own, gone = present.own, set(removals.resources)
    unwanted = _surplus_rows(own.memberships, wanted.memberships, _MEMBERSHIP_KEY)
    return Rows(
        (
            *_surplus_rows(own.resources, wanted.resources, _RESOURCE_KEY),
            *(row for row in present.foreign.resources if row.resource in gone),
        ),
        (*unwanted, *_surplus_rows(lost, unwanted, _MEMBERSHIP_KEY)),
        _surplus_rows(own.permissions, wanted.permissions, _PERMISSION_KEY),
        _surplus_rows(own.annotations, wanted.annotations, _ANNOTATION_KEY),
        lifted,
    )


def find_new_actors(changes: Changes) -> dict[str, bool]:
    """Return the full ids of the new users and hosts, each with whether it has an API key (TOK-53)."""
    keyless = {row.resource for row in changes.create.annotations if forbids_api_key(row.name, row.value)}
    return {row.resource: row.resource not in keyless for row in changes.create.resources if _kind_of(row) in ACTOR_KINDS}


def select_public_keys(public_keys: Mapping[str, str], present: PresentRows, changes: Changes) -> dict[str, str]:
    """Return the public keys whose resources the policy has recorded, or now does: foreign ones are left alone."""
    if not public_keys:
        return {}
    recorded = {row.resource for row in (*present.own.resources, *changes.create.resources)}
    gone = {row.resource for row in changes.delete.resources}
    return {name: line for name, line in public_keys.items() if name in recorded and name not in gone}


def _drop_removed(removals: Removals, wanted: Rows, left_alone: set[str]) -> Rows:
    """Return the wanted rows without those that are removed (Note [Deletions win])."""
    gone = _removed_resources(removals, wanted.resources, left_alone)
    revoked, denied = set(removals.memberships), set(removals.permissions)
    kept = (row for row in wanted.memberships if gone.isdisjoint(row[:2]))
    return Rows(
        tuple(row for row in wanted.resources if row.resource not in gone),
        tuple(row for row in kept if row.ownership or row[:2] not in revoked),
        tuple(row for row in wanted.permissions if gone.isdisjoint((row.resource, row.role)) and row not in denied),
        tuple(row for row in wanted.annotations if row.resource not in gone),
        tuple(row for row in wanted.restrictions if row.role not in gone),
    )


def _removed_resources(removals: Removals, wanted: Iterable[ResourceRow], left_alone: set[str]) -> set[str]:
    """Return the removed resources, with those that would belong to them."""
    owned: dict[str, list[str]] = {}
    for resource, owner in wanted:
        if resource not in left_alone:
            owned.setdefault(owner, []).append(resource)
    gone, coming = set(removals.resources), list(removals.resources)
    while coming:
        new = set(owned.get(coming.pop(), ())) - gone
        gone |= new
        coming += new
    return gone


def _wanted_memberships(
    memberships: Iterable[MembershipRow], present: PresentRows, changing: bool
) -> tuple[MembershipRow, ...]:
    """Return the memberships without the ownerships that aren't made: of foreign records, and where the owner stays."""
    left_alone = {row.resource for row in present.foreign.resources}
    owners = {} if changing else dict(present.own.resources)
    return tuple(
        row
        for row in memberships
        if not row.ownership or (row.role not in left_alone and owners.get(row.role, row.member) == row.member)
    )


def _ended_ownerships(moved: Iterable[ResourceRow], own: Iterable[ResourceRow]) -> tuple[MembershipRow, ...]:
    """Return the ownerships that end because another owner takes over."""
    owners = dict(own)
    return tuple(
        MembershipRow(row.resource, owners[row.resource], True, True) for row in moved if is_role_kind(_kind_of(row))
    )


def _new_and_changed(
    wanted: Sequence[_Row], own: Sequence[_Row], foreign: Sequence[_Row], width: int
) -> tuple[tuple[_Row, ...], tuple[_Row, ...]]:
    """Return the wanted rows of new keys, and those of other values, but for those of foreign keys."""
    difference = set(wanted).difference(own)
    if not difference:
        return (), ()
    keys = {row[:width] for row in own}
    barred = {row[:width] for row in foreign}
    rows = [row for row in wanted if row in difference and row[:width] not in barred]
    return tuple(row for row in rows if row[:width] not in keys), tuple(row for row in rows if row[:width] in keys)


def _surplus_rows(present: Iterable[_Row], wanted: Iterable[_Row], width: int) -> tuple[_Row, ...]:
    keys = {row[:width] for row in wanted}
    return tuple(row for row in present if row[:width] not in keys)


def _kind_of(row: ResourceRow) -> str:
    return row.resource.split(":", 2)[1]
