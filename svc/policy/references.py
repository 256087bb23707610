"""References of a document to records that it doesn't declare, and that so must exist."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from svc.model.errors import InvalidParameter, PolicyInvalid
from svc.model.policy_loads import LoadMode
from svc.model.policy_rows import Present
from svc.policy.meaning import Resolved
from svc.policy.resolve import described


def refuse_deletions(mode: LoadMode, resolved: Resolved) -> None:
    """Refuse with ``InvalidParameter`` to remove anything by ``APPEND`` (POL-42)."""
    if mode is LoadMode.APPEND and resolved.deletes:
        raise InvalidParameter("policy_text", "may not contain deletion statements", "validation_failed")


def missing(resolved: Resolved, existing: Container[str]) -> Iterator[PolicyInvalid]:
    """Return a refusal for each reference to what doesn't exist, in the order of the document."""
    return _not_found(resolved, (full for full in resolved.references if full not in existing))


def kept(mode: LoadMode, resolved: Resolved, present: Present) -> list[str]:
    """Return what must exist after a load that replaces a policy: its references, and records that may be deleted."""
    if mode is not LoadMode.REPLACE:
        return []
    return [*resolved.references, *_declared(resolved, present)]


def lost(resolved: Resolved, present: Present, existing: Container[str]) -> Iterator[PolicyInvalid]:
    """Return a refusal for each record that must be kept and is gone after the load: deleted with one that is left out."""
    yield from missing(resolved, existing)
    for full in _declared(resolved, present):
        if full not in existing:
            yield PolicyInvalid(f"{described(full)} would be deleted with its owner or its policy, which the document drops")


def _declared(resolved: Resolved, present: Present) -> Iterator[str]:
    """Return the records that the document declares and doesn't delete, but that may be deleted with those it leaves out:
    those that another policy recorded, and policies that own themselves.
    """
    declared = {row.resource for row in resolved.declared.resources}.difference(resolved.removals.resources)
    foreign = (row.resource for row in present.foreign.resources)
    own = (row.resource for row in resolved.declared.resources if row.owner == row.resource)
    return (full for full in dict.fromkeys((*foreign, *own)) if full in declared)


def _not_found(resolved: Resolved, references: Iterable[str]) -> Iterator[PolicyInvalid]:
    for full in references:
        message = f"{described(full)} not found in account '{resolved.policy.account}'"
        yield PolicyInvalid(message, *resolved.references[full], bare=True)
