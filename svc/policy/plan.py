"""What a load has to do: wanted rows and present rows to changes (wire facts, core 1.8).

Note [Order of changes]. Whoever applies changes creates first, then updates, then deletes: a thing may pass from an owner
that goes to one that comes, and the store deletes what a deleted role owns.

Note [Foreign records]. A record that another policy recorded, or that none did, is left alone: its resource, and also the
ownership that its declaration here would give away. Otherwise to declare a thing would be to seize it. What the document
says beyond the record itself (grants, permissions, annotations of new names) is recorded here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from svc.names import ACTOR_KINDS, ROLE_KINDS
from svc.records import Changes, LoadMode, MembershipRow, Present, ResourceRow, Rows

_Row = TypeVar("_Row", bound=tuple[Any, ...])

# How many of a row's first fields tell it from others of its sort; the rest is its value.
_RESOURCE_KEY = 1
_MEMBERSHIP_KEY = 3
_PERMISSION_KEY = 3
_ANNOTATION_KEY = 2


def plan(mode: LoadMode, wanted: Rows, present: Present) -> Changes:
    """Plan how the rows that a policy recorded become those that its document wants.

    ``APPEND`` creates what is new; ``UPDATE`` also changes what differs; ``REPLACE`` also deletes what is not wanted.
    Planned again on the outcome, the same document asks for no changes. A row that is deleted may be one that the deletion
    of another takes along.
    """
    own, foreign = present.own, present.foreign
    changing, replacing = mode is not LoadMode.APPEND, mode is LoadMode.REPLACE
    memberships = _due(wanted.memberships, present, changing)
    new_resources, moved = _differing(wanted.resources, own.resources, foreign.resources, _RESOURCE_KEY)
    new_memberships, turned = _differing(memberships, own.memberships, foreign.memberships, _MEMBERSHIP_KEY)
    new_permissions, _ = _differing(wanted.permissions, own.permissions, foreign.permissions, _PERMISSION_KEY)
    new_annotations, reworded = _differing(wanted.annotations, own.annotations, foreign.annotations, _ANNOTATION_KEY)
    create = Rows(new_resources, new_memberships, new_permissions, new_annotations)
    if not changing:
        return Changes(create=create)
    update = Rows(moved, turned, (), reworded)
    lost = _lost(moved, own.resources)
    if not replacing:
        return Changes(create, update, Rows(memberships=lost))
    unwanted = _surplus(own.memberships, memberships, _MEMBERSHIP_KEY)
    delete = Rows(
        _surplus(own.resources, wanted.resources, _RESOURCE_KEY),
        (*unwanted, *_surplus(lost, unwanted, _MEMBERSHIP_KEY)),
        _surplus(own.permissions, wanted.permissions, _PERMISSION_KEY),
        _surplus(own.annotations, wanted.annotations, _ANNOTATION_KEY),
    )
    return Changes(create, update, delete)


def new_actors(changes: Changes) -> list[str]:
    """The full ids of the users and hosts that come to be, who need an API key each."""
    return [row.resource for row in changes.create.resources if _kind(row) in ACTOR_KINDS]


def _due(memberships: Iterable[MembershipRow], present: Present, changing: bool) -> tuple[MembershipRow, ...]:
    """The memberships without the ownerships that don't come about: of foreign records, and where the owner stays."""
    left_alone = {row.resource for row in present.foreign.resources}
    owners = {} if changing else dict(present.own.resources)
    return tuple(
        row
        for row in memberships
        if not row.ownership or (row.role not in left_alone and owners.get(row.role, row.member) == row.member)
    )


def _lost(moved: Iterable[ResourceRow], own: Iterable[ResourceRow]) -> tuple[MembershipRow, ...]:
    """The ownerships that end because another owner takes over."""
    owners = dict(own)
    return tuple(MembershipRow(row.resource, owners[row.resource], True, True) for row in moved if _kind(row) in ROLE_KINDS)


def _differing(
    wanted: Sequence[_Row], own: Sequence[_Row], foreign: Sequence[_Row], width: int
) -> tuple[tuple[_Row, ...], tuple[_Row, ...]]:
    """The wanted rows whose key is new, and those whose key is there with another value, but for those of foreign keys."""
    difference = set(wanted).difference(own)
    if not difference:
        return (), ()
    keys = {row[:width] for row in own}
    barred = {row[:width] for row in foreign}
    rows = [row for row in wanted if row in difference and row[:width] not in barred]
    return tuple(row for row in rows if row[:width] not in keys), tuple(row for row in rows if row[:width] in keys)


def _surplus(present: Iterable[_Row], wanted: Iterable[_Row], width: int) -> tuple[_Row, ...]:
    keys = {row[:width] for row in wanted}
    return tuple(row for row in present if row[:width] not in keys)


def _kind(row: ResourceRow) -> str:
    return row.resource.split(":", 2)[1]
