"""What a document rests on without declaring it: things that must exist, and things that take more authority."""

from __future__ import annotations

import attrs

from svc.errors import PolicyInvalid
from svc.policy.ids import inside
from svc.policy.resolve import Resolved, described
from svc.records import LoadMode, Present


@attrs.frozen
class Claims:
    """Full ids of what a document disposes of although it lies outside of the policy (rulings 2.13).

    The caller must be entitled to grant the ``roles``, and to permit what is done with the ``resources``.
    """

    roles: tuple[str, ...]
    resources: tuple[str, ...]


def missing(mode: LoadMode, resolved: Resolved, present: Present) -> list[PolicyInvalid]:
    """A refusal for each reference to what doesn't exist, or won't after the load, in the order of the document."""
    going = set()
    if mode is LoadMode.REPLACE:
        going = {row.resource for row in present.own.resources}.difference(row.resource for row in resolved.rows.resources)
    return [
        PolicyInvalid(f"{described(full)} not found in account '{resolved.policy.account}'", *place, bare=True)
        for full, place in resolved.references.items()
        if full not in present.known or full in going
    ]


def claims(resolved: Resolved, present: Present) -> Claims:
    """What the document disposes of outside of its policy.

    Names alone don't tell (``ids.inside``): what the policy itself has recorded, or what this load creates, isn't outside.
    But to declare what stands there already, and isn't the policy's by its name, claims it: ``bob@a-b`` may be another's
    user, for whom the rest of the document would do what it means for its own.
    """
    left_alone = {row.resource for row in present.foreign.resources}
    at_hand = {row.resource for row in present.own.resources}
    at_hand.update(row.resource for row in resolved.rows.resources if row.resource not in left_alone)
    taken = [row.resource for row in resolved.rows.resources if row.resource in left_alone]
    strangers = [full for full in taken if not inside(resolved.policy, *full.split(":", 2)[1:])]
    permitted = [resource for resource in resolved.resources_permitted if resource not in at_hand]
    return Claims(
        tuple(role for role in resolved.roles_granted if role not in at_hand),
        tuple(dict.fromkeys(permitted + strangers)),
    )
