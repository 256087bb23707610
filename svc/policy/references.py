"""What a document rests on without declaring it: things that must exist, and things that take more authority."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Final

import attrs

from svc.errors import InvalidParameter, PolicyInvalid
from svc.names import admin_of
from svc.policy.ids import inside
from svc.policy.meaning import Resolved
from svc.policy.resolve import described
from svc.rows import LoadMode, Present

#: How many records are named that a load leaves alone.
WARNINGS_MOST: Final = 100


@attrs.frozen
class Claims:
    """Full ids of what a document disposes of although it lies outside of the policy (rulings 2.13).

    The caller must be entitled to grant the ``roles``, and to permit what is done with the ``resources``: as much is asked
    to revoke, and to deny or delete.
    """

    roles: tuple[str, ...]
    resources: tuple[str, ...]


def refuse_deletions(mode: LoadMode, resolved: Resolved) -> None:
    """Refuse to take anything away by ``APPEND`` (wire facts, core 1.8).

    :raises InvalidParameter: the document would.
    """
    if mode is LoadMode.APPEND and resolved.deletes:
        raise InvalidParameter("policy_text", "may not contain deletion statements", "validation_failed")


def missing(resolved: Resolved, existing: Container[str]) -> Iterator[PolicyInvalid]:
    """A refusal for each reference to what doesn't exist, in the order of the document."""
    return _not_found(resolved, (full for full in resolved.references if full not in existing))


def dropped(mode: LoadMode, resolved: Resolved, present: Present) -> Iterator[PolicyInvalid]:
    """A refusal for each reference to what won't exist after the load, since it replaces the policy without it."""
    if mode is not LoadMode.REPLACE:
        return iter(())
    declared = {row.resource for row in resolved.declared.resources}
    going = {row.resource for row in present.own.resources}.difference(declared)
    return _not_found(resolved, (full for full in resolved.references if full in going))


def claims(resolved: Resolved, present: Present) -> Claims:
    """What the document disposes of outside of its policy.

    Names alone don't tell (``ids.inside``): what the policy itself has recorded, or what this load creates, isn't outside.
    But to declare what stands there already, and isn't the policy's by its name, claims it: ``bob@a-b`` may be another's
    user, for whom the rest of the document would do what it means for its own.
    """
    left_alone = {row.resource for row in present.foreign.resources}
    at_hand = {row.resource for row in present.own.resources}
    at_hand.update(row.resource for row in resolved.declared.resources if row.resource not in left_alone)
    taken = [row.resource for row in resolved.declared.resources if row.resource in left_alone]
    strangers = [full for full in taken if not inside(resolved.policy, *full.split(":", 2)[1:])]
    permitted = [resource for resource in resolved.resources_permitted if resource not in at_hand]
    return Claims(
        tuple(role for role in resolved.roles_granted if role not in at_hand),
        tuple(dict.fromkeys(permitted + strangers)),
    )


def left_alone(resolved: Resolved, present: Present) -> tuple[str, ...]:
    """Warnings of records that the document declares and that stay as they are, since the policy did not record them.

    Whoever relies on such a record relies on whoever did: a user of that name may be somebody else's.
    """
    own = {str(resolved.policy), str(admin_of(resolved.policy.account))}
    foreign = [row.resource for row in present.foreign.resources if row.resource not in own]
    declared = {row.resource for row in resolved.declared.resources}
    names = [described(full) for full in sorted(declared.intersection(foreign))]
    warnings = [f"{name} was not recorded by this policy, and is left as it is." for name in names[:WARNINGS_MOST]]
    if len(names) > WARNINGS_MOST:
        warnings.append(f"So are {len(names) - WARNINGS_MOST} other records.")
    return tuple(warnings)


def _not_found(resolved: Resolved, references: Iterable[str]) -> Iterator[PolicyInvalid]:
    for full in references:
        message = f"{described(full)} not found in account '{resolved.policy.account}'"
        yield PolicyInvalid(message, *resolved.references[full], bare=True)
