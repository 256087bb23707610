"""Limits of what one record carries (``limits.RecordLimits``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import attrs

from svc.model.errors import PolicyInvalid
from svc.model.limits import RecordLimits
from svc.model.names import RESOURCE_KINDS
from svc.model.policy_loads import Changes, RecordLimit, Rows
from svc.policy.ids import PUBLIC_KEY
from svc.policy.resolve import describe_id

#: How many kinds the policies of an account may make up together (LIM-24), so that work for each kind stays quick.
OTHER_KINDS_MOST: Final = 100

#: For each limit, the things that it counts, and a remedy.
_REMEDIES: Final[Mapping[RecordLimit, tuple[str, str]]] = {
    RecordLimit.ANNOTATIONS: ("annotations", "put them on several records"),
    RecordLimit.ANNOTATION_BYTES: ("bytes of annotations", "put them on several records, or long texts into variables"),
    RecordLimit.PERMISSIONS: (
        "permissions, each privilege counted for each role",
        "permit a group or layer, and grant it to the roles",
    ),
    RecordLimit.RESTRICTIONS: ("networks in restricted_to", "name larger networks"),
    RecordLimit.PUBLIC_KEYS: ("public keys", "delete those that are no longer used"),
    RecordLimit.LAYERS: ("layers", "put its hosts into one layer, and grant that what the others have"),
}


def count_by_limit(rows: Rows) -> Mapping[RecordLimit, Counter[str]]:
    """Return the amount in the rows for each limit, by the full id of the record that carries it."""
    sizes = Counter[str]()
    for resource, name, value in rows.annotations:
        sizes[resource] += _byte_length(name) + _byte_length(value)
    return {
        RecordLimit.ANNOTATIONS: Counter(row.resource for row in rows.annotations),
        RecordLimit.ANNOTATION_BYTES: sizes,
        RecordLimit.PERMISSIONS: Counter(row.resource for row in rows.permissions),
        RecordLimit.RESTRICTIONS: Counter(row.role for row in rows.restrictions),
        RecordLimit.PUBLIC_KEYS: Counter(user for row in rows.resources for user in _user_of(row.resource)),
        RecordLimit.LAYERS: Counter(
            row.member
            for row in rows.memberships
            if not row.ownership and _kind_of(row.member) == "host_factory" and _kind_of(row.role) == "layer"
        ),
    }


def refuse_excess(rows: Rows, limits: RecordLimits) -> None:
    """Refuse rows of a document that by themselves make a record carry more than it may.

    :raises PolicyInvalid: they do.
    """
    for refusal in find_excess(rows, limits):
        raise refusal


def find_excess(rows: Rows, limits: RecordLimits) -> Iterator[PolicyInvalid]:
    """Return a refusal for each record, and each limit, of which rows of a document by themselves exceed it."""
    for limit, numbers in count_by_limit(rows).items():
        most = limit_value(limit, limits)
        for record, number in numbers.items():
            if number > most:
                yield excess_refusal(limit, record, number, most)


def find_grown_records(changes: Changes) -> Mapping[RecordLimit, tuple[str, ...]]:
    """Return the records that existed before a load and carry more after it; new ones have all from its document."""
    new = {row.resource for row in changes.create.resources}
    annotations = tuple([row for row in changes.create.annotations if row.resource not in new])
    added, changed = count_by_limit(attrs.evolve(changes.create, annotations=annotations)), count_by_limit(changes.update)
    records = {limit: [*added[limit]] for limit in RecordLimit}
    records[RecordLimit.ANNOTATION_BYTES] += changed[RecordLimit.ANNOTATION_BYTES]
    return {limit: found for limit in RecordLimit if (found := tuple(set(records[limit]).difference(new)))}


def limit_value(limit: RecordLimit, limits: RecordLimits) -> int:
    """Return how much one record may carry."""
    most = getattr(limits, limit.value)
    assert isinstance(most, int)
    return most


def excess_refusal(limit: RecordLimit, record: str, number: int, most: int) -> PolicyInvalid:
    """Return the refusal of a record that would carry more than it may."""
    what, remedy = _REMEDIES[limit]
    return PolicyInvalid(f"{describe_id(record)} would have {number} {what}; a record may have {most}: {remedy}")


def has_other_kinds(rows: Rows) -> bool:
    """Return whether there are records of kinds that policies make up."""
    return any(_kind_of(row.resource) not in RESOURCE_KINDS for row in rows.resources)


def refuse_too_many_kinds(kinds: Iterable[str]) -> None:
    """Refuse more kinds of an account's records than its policies may make up.

    :raises PolicyInvalid: there are more.
    """
    number = len({*kinds}.difference(RESOURCE_KINDS))
    if number > OTHER_KINDS_MOST:
        message = f"The account would have {number} kinds of its own; it may have {OTHER_KINDS_MOST}"
        raise PolicyInvalid(f"{message}: give several records one kind")


def _byte_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8"))


def _kind_of(full: str) -> str:
    return full.split(":", 2)[1]


def _user_of(resource: str) -> Iterator[str]:
    """Return the user of a public key; nothing for another resource."""
    account, kind, identifier = resource.split(":", 2)
    if kind == PUBLIC_KEY:
        _, user, _ = identifier.split("/", 2)
        yield f"{account}:user:{user}"
