"""The faults of a document, which are collected so that one answer has them all (POL-105).

Note [Follow-on faults]. A statement that can't be read is left out, and the rest is read on. If it may have declared a
record, a reference to that would look wrong: so what is missing is reported only if no declaration was lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from svc.model.errors import DocumentFault, PolicyInvalid
from svc.policy.advice import advise_on_fault

#: How many faults of a document are collected.
FAULTS_MOST: Final = 20


@attrs.define
class FaultCollector:
    """The faults that were found, at most ``most``; with none allowed, the first is raised.

    ``loses_declarations``: something that was left out may have declared a record (Note [Follow-on faults]).
    """

    most: int = FAULTS_MOST
    found: list[PolicyInvalid] = attrs.field(factory=list)
    loses_declarations: bool = False

    def add_fault(self, fault: PolicyInvalid) -> None:
        """Add a fault.

        :raises PolicyInvalid: there is no room for it, so that nothing needs to be read on.
        """
        if len(self.found) >= self.most:
            raise fault
        self.found.append(fault)

    def end_with(self, fault: PolicyInvalid) -> None:
        """Add the fault that ends the reading, as far as there is room.

        :raises PolicyInvalid: no fault is to be collected.
        """
        self.loses_declarations = True
        if not self.most:
            raise fault
        self.found = [*self.found, fault][: self.most]

    def add_loss(self, fault: PolicyInvalid) -> None:
        """Add a fault by which a declaration may be lost.

        :raises PolicyInvalid: as :meth:`add_fault`.
        """
        self.loses_declarations = True
        self.add_fault(fault)


def describe_faults(policy_id: str, faults: Iterable[PolicyInvalid]) -> tuple[DocumentFault, ...]:
    """Return faults of a document for a policy as answers have them."""
    return tuple(
        DocumentFault(policy_id, fault.message, advise_on_fault(fault), fault.line, fault.column) for fault in faults
    )


def refuse_faults(policy_id: str, faults: Iterable[PolicyInvalid]) -> PolicyInvalid:
    """Return the refusal for the first of some faults, with all of them as far as they are few enough (POL-105)."""
    found = list(faults)
    return attrs.evolve(found[0], faults=describe_faults(policy_id, found[:FAULTS_MOST]))
