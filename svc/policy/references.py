"""References of a document to what it doesn't declare, and so must exist."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from svc.model.errors import InvalidParameter, PolicyInvalid
from svc.model.policy_loads import LoadMode
from svc.model.policy_rows import Present
from svc.policy.meaning import Resolved
from svc.policy.resolve import described


def refuse_deletions(mode: LoadMode, resolved: Resolved) -> None:
    """Refuse with ``InvalidParameter`` to take anything away by ``APPEND`` (POL-42)."""
    if mode is LoadMode.APPEND and resolved.deletes:
        raise InvalidParameter("policy_text", "may not contain deletion statements", "validation_failed")


def missing(resolved: Resolved, existing: Container[str]) -> Iterator[PolicyInvalid]:
    """Return a refusal for each reference to what doesn't exist, in the order of the document."""
    return _not_found(resolved, (full for full in resolved.references if full not in existing))


def dropped(mode: LoadMode, resolved: Resolved, present: Present) -> Iterator[PolicyInvalid]:
    """Return a refusal for each reference to what won't exist after the load, since it replaces the policy without it."""
    if mode is not LoadMode.REPLACE:
        return iter(())
    declared = {row.resource for row in resolved.declared.resources}
    going = {row.resource for row in present.own.resources}.difference(declared)
    return _not_found(resolved, (full for full in resolved.references if full in going))


def _not_found(resolved: Resolved, references: Iterable[str]) -> Iterator[PolicyInvalid]:
    for full in references:
        message = f"{described(full)} not found in account '{resolved.policy.account}'"
        yield PolicyInvalid(message, *resolved.references[full], bare=True)
