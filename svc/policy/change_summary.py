"""The summary of a load: what it created, changed, deleted and left as it was, and what it removes that wasn't there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from heapq import nsmallest
from typing import Any, Final, TypeVar

import attrs

from svc.model.names import kind_sort_key
from svc.model.policy_loads import (
    SUMMARY_NAMES,
    Changes,
    ChangeSummary,
    KindCount,
    MembershipRow,
    PresentRows,
    RowCounts,
)
from svc.policy.resolved_policy import ResolvedPolicy

_Row = TypeVar("_Row", bound=tuple[Any, ...])

_NONE: Final = frozenset[str]()

#: The fields of a grant, and of a permission, that are full ids.
_GRANT_ENDS: Final = slice(0, 2)
_PERMISSION_ENDS: Final = slice(0, 3, 2)


@attrs.frozen
class LoadEffects:
    """The effects of changes that their plan doesn't show.

    ``deleted`` are the records that are gone, ``undone`` those that were created and went with a deleted one, ``rekeyed``
    the public keys that got another text, ``hidden`` the records that the caller may not know.
    """

    deleted: Set[str] = _NONE
    undone: Set[str] = _NONE
    rekeyed: Set[str] = _NONE
    hidden: Set[str] = _NONE


def summarize_load(
    resolved: ResolvedPolicy, present: PresentRows, changes: Changes, effects: LoadEffects = LoadEffects()
) -> ChangeSummary:
    """Return the summary of a load whose changes are made (POL-98 to POL-101)."""
    create, update, delete, removals = changes.create, changes.update, changes.delete, resolved.removals
    gone = effects.deleted | effects.undone
    created = {row.resource for row in create.resources}
    changed = {*effects.rekeyed, *_altered_records(changes)} - created - gone
    there = {row.resource for rows in (present.own, present.foreign) for row in rows.resources}
    kept = there - created - changed - gone
    granted = _grants_of(create.memberships)
    stored = present.own.merge_with(present.foreign) if resolved.deletes or gone else None
    return ChangeSummary(
        created=RowCounts(
            count_by_kind(created - effects.undone),
            len(_lasting_rows(granted, _GRANT_ENDS, gone)),
            len(_lasting_rows(create.permissions, _PERMISSION_ENDS, gone)),
        ),
        changed=RowCounts(
            count_by_kind(changed, effects.hidden), len(_lasting_rows(_grants_of(update.memberships), _GRANT_ENDS, gone))
        ),
        deleted=RowCounts(
            count_by_kind(effects.deleted, effects.hidden), len(_grants_of(delete.memberships)), len(delete.permissions)
        ),
        unchanged=RowCounts(
            count_by_kind(row.resource for row in resolved.declared.resources if row.resource in kept),
            _count_kept(
                _lasting_rows(_grants_of(resolved.rows.memberships), _GRANT_ENDS, gone),
                [*granted, *_grants_of(update.memberships)],
                delete.memberships,
                None if stored is None else stored.memberships,
            ),
            _count_kept(
                _lasting_rows(resolved.rows.permissions, _PERMISSION_ENDS, gone),
                create.permissions,
                delete.permissions,
                None if stored is None else stored.permissions,
            ),
        ),
        absent=RowCounts(
            count_by_kind(name for name in removals.resources if name not in there),
            len(set(removals.memberships).difference(row[:2] for row in _grants_of(present.own.memberships))),
            len(set(removals.permissions).difference(present.own.permissions)),
        ),
    )


def count_by_kind(names: Iterable[str], hidden: Set[str] = _NONE) -> tuple[KindCount, ...]:
    """Return how many records there are of each kind, and the first of them that aren't hidden."""
    by_kind: dict[str, list[str]] = {}
    for name in names:
        by_kind.setdefault(name.split(":", 2)[1], []).append(name)
    return tuple(
        KindCount(kind, len(by_kind[kind]), tuple(nsmallest(SUMMARY_NAMES, set(by_kind[kind]) - hidden)))
        for kind in sorted(by_kind, key=kind_sort_key)
    )


def _altered_records(changes: Changes) -> Iterator[str]:
    """Return the records of which a row is created, updated or deleted."""
    yield from (row.resource for row in changes.update.resources)
    for rows in (changes.create, changes.update, changes.delete):
        yield from (row.resource for row in rows.annotations)
        yield from (row.role for row in rows.restrictions)


def _grants_of(memberships: Sequence[MembershipRow]) -> list[MembershipRow]:
    """Return the memberships that don't follow from owners."""
    return [row for row in memberships if not row.ownership]


def _lasting_rows(rows: Sequence[_Row], ends: slice, gone: Set[str]) -> Sequence[_Row]:
    """Return the rows that name no record which is gone."""
    return [row for row in rows if gone.isdisjoint(row[ends])] if gone else rows


def _count_kept(wanted: Sequence[_Row], made: Sequence[_Row], removed: Sequence[_Row], stored: Sequence[_Row] | None) -> int:
    """Return how many wanted rows were there before and stay as they were; ``made`` are created or updated.

    Without ``stored``, the document removes nothing that it states: then all but those that were made are.
    """
    if stored is None:
        return len(wanted) - len(made)
    keys = {row[:3] for row in stored}.difference((row[:3] for row in made), (row[:3] for row in removed))
    return sum(row[:3] in keys for row in wanted)
