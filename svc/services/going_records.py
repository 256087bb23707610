"""The records that go with a load, as its summary has them: found before the changes are made, and compared after.

Note [Candidates]. The database deletes what belongs to a deleted record, and doesn't say what that was. So the ids of all
that may go are read before, and those that are there no longer are counted. The schema's rules may leave some of them: a
superset is enough. Whether the caller sees a record can be asked only while it is there: so that is asked of the first
candidates of each kind, which are more than are named, and of no more, however many there are.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final

import attrs

from svc.model.policy_loads import SUMMARY_NAMES, Changes, Load
from svc.policy.change_summary import LoadEffects
from svc.policy.resolved_policy import ResolvedPolicy
from svc.storage.policies import PolicyTransaction

#: Of how many records of each kind is looked whether the caller sees them. Some of these may stay.
_EXAMINED: Final = 5 * SUMMARY_NAMES


@attrs.frozen
class GoingRecords:
    """The records that may go with a load (Note [Candidates]).

    ``hidden`` are those of them, and of records whose annotations change, that the document doesn't mention and of which it
    isn't known that the caller sees them.
    """

    candidates: frozenset[str] = frozenset()
    hidden: frozenset[str] = frozenset()


async def read_going_records(
    transaction: PolicyTransaction, load: Load, resolved: ResolvedPolicy, changes: Changes
) -> GoingRecords:
    """Return the records that may go, before the changes are made.

    Those that the document mentions are known to the caller, who has authority over what it deletes.
    """
    candidates = await transaction.filter_existing(sorted(await _list_cascade(transaction, load, changes)))
    # A document that replaces a policy removes annotations that it doesn't mention, of records that it may not mention.
    unnamed = candidates.union(row.resource for row in changes.delete.annotations)
    unnamed -= {row.resource for row in resolved.declared.resources}
    unnamed -= set(resolved.removals.resources)
    if not unnamed:
        return GoingRecords(candidates)
    examined = _first_of_each_kind(unnamed)
    return GoingRecords(candidates, unnamed - await transaction.filter_visible(load.caller.role, examined))


async def _list_cascade(transaction: PolicyTransaction, load: Load, changes: Changes) -> set[str]:
    """Return the ids of all that may go: also with records that the load gives to one that goes."""
    found, coming = set[str](), {row.resource for row in changes.delete.resources}
    while coming:
        found |= await transaction.list_cascading_ids(load.policy, sorted(coming))
        given = (row for rows in (changes.create, changes.update) for row in rows.resources if row.owner in found)
        coming = {row.resource for row in given} - found
    return found


def _first_of_each_kind(names: Set[str]) -> list[str]:
    by_kind: dict[str, list[str]] = {}
    for name in sorted(names):
        of_kind = by_kind.setdefault(name.split(":", 2)[1], [])
        if len(of_kind) < _EXAMINED:
            of_kind.append(name)
    return [name for of_kind in by_kind.values() for name in of_kind]


async def find_effects(
    transaction: PolicyTransaction, going: GoingRecords, changes: Changes, rekeyed: frozenset[str]
) -> LoadEffects:
    """Return the effects of changes that were made."""
    if not going.candidates:
        return LoadEffects(rekeyed=rekeyed, hidden=going.hidden)
    created = frozenset(row.resource for row in changes.create.resources)
    existing = await transaction.filter_existing(sorted(going.candidates | created))
    return LoadEffects(going.candidates - existing, created - existing, rekeyed, going.hidden)
