"""Dry runs, which report the changes that a load would make (POL-68 to POL-74, POL-82 to POL-88).

Note [The load itself]. A dry run is the load, in its transaction, which an exception rolls back. The rows that may change
are read before and after.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from svc.model.errors import InvalidParameter, PolicyInvalid
from svc.model.names import RoleName, root_policy
from svc.model.policy_loads import (
    Batches,
    Changes,
    DocumentFault,
    DocumentFaults,
    DryRun,
    Rows,
    Surroundings,
    UnreportedChanges,
)
from svc.policy.advice import advise_on_fault
from svc.policy.differences import LoadImpact, compute_differences, find_impact, list_mentioned
from svc.services.access_changes import AccessEdges
from svc.storage.policies import PolicyTransaction

#: How many rows a dry run may touch.
ROWS_MOST: Final = 200_000
#: How many unchanged rows items list, in all, and at most for one item and one list.
UNCHANGED_MOST: Final = 50_000
UNCHANGED_PER_RECORD: Final = 1000


class DryRunFinished(Exception):
    """The end of a dry run, with its outcome."""

    def __init__(self, outcome: DryRun | DocumentFaults) -> None:
        super().__init__()
        self.outcome = outcome


def finish_with_faults(faults: Iterable[PolicyInvalid]) -> DryRunFinished:
    """Return the end of the dry run of a document with faults."""
    found = (DocumentFault(fault.message, advise_on_fault(fault), fault.line, fault.column) for fault in faults)
    return DryRunFinished(DocumentFaults(Batches.from_values(found)))


@attrs.define
class Comparison:
    """The rows that a load touches, read by :meth:`begin` before its changes are applied, and compared by :meth:`end`."""

    _transaction: PolicyTransaction
    _caller: RoleName
    _policy: RoleName
    _reports_owners: bool
    _touched: LoadImpact = attrs.field(init=False)
    _before: Rows = attrs.field(init=False)
    _surroundings: Surroundings = attrs.field(init=False)
    _visible: frozenset[str] | None = attrs.field(init=False)

    async def begin(self, changes: Changes) -> None:
        """Read the rows that the changes may affect; ``InvalidParameter`` when they are too many to report."""
        # A role that is created may have left memberships from before, and then loses them.
        going = [row.resource for rows in (changes.delete, changes.create) for row in rows.resources]
        deleted_with = await self._transaction.read_deletion_cascade(self._policy, going, ROWS_MOST)
        if deleted_with is None:
            raise _too_many_rows()
        self._touched = find_impact(changes, deleted_with, self._reports_owners)
        if sum(len(rows) for rows in attrs.astuple(self._touched.rows, recurse=False)) > ROWS_MOST:
            raise _too_many_rows()
        concerned = self._touched.concerned
        each = max(1, min(UNCHANGED_PER_RECORD, UNCHANGED_MOST // max(1, len(concerned))))
        self._before = await self._transaction.read_stored_rows(self._touched.rows)
        self._surroundings = await self._transaction.read_surroundings(concerned, each)
        # An owner of the root holds all roles of the account, which are too many to list.
        root = await self._transaction.access_facts(self._caller, root_policy(self._policy.account))
        self._visible = None if root.owns else await self._read_visible_names()

    async def end(self, warnings: tuple[str, ...]) -> DryRun:
        """Read it again, and return what differs."""
        after = await self._transaction.read_stored_rows(self._touched.rows)
        visible = None if self._visible is None else self._visible | await self._read_visible_names()
        found = compute_differences(str(self._policy), self._touched, self._surroundings, self._before, after, visible)
        return await self._add_access_changes(attrs.evolve(found, warnings=warnings), after, visible)

    async def _add_access_changes(self, found: DryRun, after: Rows, visible: frozenset[str] | None) -> DryRun:
        """Return the differences with the gains and losses of access by them."""
        reading = AccessEdges(self._transaction, self._before, after)
        gains, losses = await reading.find_gains(), await reading.find_losses()
        if visible is not None:
            names = sorted((gains.mentioned_names() | losses.mentioned_names()) - visible)
            visible |= await self._transaction.filter_visible(self._caller, names)
        gained, lost = (gains.make_summary(reading.differing, visible), losses.make_summary(reading.differing, visible))
        untold = UnreportedChanges(
            gained.hidden_same, gained.hidden, lost.hidden or lost.hidden_same, gains.complete and losses.complete
        )
        return attrs.evolve(
            found,
            gains=Batches.from_values(gained.list_changes(gains.graph)),
            losses=Batches.from_values(lost.list_changes(losses.graph)),
            unreported=untold,
        )

    async def _read_visible_names(self) -> frozenset[str]:
        names = list_mentioned(str(self._policy), self._touched, self._surroundings)
        return await self._transaction.filter_visible(self._caller, names)


def _too_many_rows() -> InvalidParameter:
    message = f"the load would touch more than {ROWS_MOST} rows, more than a dry run tells"
    return InvalidParameter("dryRun", message, "unprocessable_entity")
