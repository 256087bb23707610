"""How much the rows of a document make each record carry, and what is refused for it (``limits.RecordLimits``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from svc.model.errors import PolicyInvalid
from svc.model.limits import RecordLimits
from svc.model.policy_rows import Burden, Changes, Rows
from svc.policy.ids import PUBLIC_KEY
from svc.policy.resolve import described

#: How a burden is called, and what to do instead.
_REMEDIES: Final[Mapping[Burden, tuple[str, str]]] = {
    Burden.ANNOTATIONS: ("annotations", "put them on several records"),
    Burden.ANNOTATION_BYTES: (
        "bytes of annotations",
        "put them on several records, or long texts into variables",
    ),
    Burden.PERMISSIONS: (
        "permissions, each privilege counted for each role",
        "permit a group or layer, and grant it to the roles",
    ),
    Burden.RESTRICTIONS: ("networks in restricted_to", "name larger networks"),
    Burden.PUBLIC_KEYS: ("public keys", "delete those that are no longer used"),
    Burden.LAYERS: ("layers", "put its hosts into one layer, and grant that what the others have"),
}


def burdens(rows: Rows) -> Mapping[Burden, Counter[str]]:
    """How much of each burden the rows are, by the full id of the record that carries them."""
    sizes = Counter[str]()
    for resource, name, value in rows.annotations:
        sizes[resource] += _bytes(name) + _bytes(value)
    return {
        Burden.ANNOTATIONS: Counter(row.resource for row in rows.annotations),
        Burden.ANNOTATION_BYTES: sizes,
        Burden.PERMISSIONS: Counter(row.resource for row in rows.permissions),
        Burden.RESTRICTIONS: Counter(row.role for row in rows.restrictions),
        Burden.PUBLIC_KEYS: Counter(user for row in rows.resources for user in _user_of(row.resource)),
        Burden.LAYERS: Counter(
            row.member
            for row in rows.memberships
            if not row.ownership and _kind_of(row.member) == "host_factory" and _kind_of(row.role) == "layer"
        ),
    }


def refuse_burdens(rows: Rows, limits: RecordLimits) -> None:
    """Refuse what is too much by itself, whatever is there already.

    :raises PolicyInvalid: the rows of a document make a record carry more than it may.
    """
    for burden, carried in burdens(rows).items():
        most = most_of(burden, limits)
        for record, number in carried.items():
            if number > most:
                raise too_heavy(burden, record, number, most)


def grown(changes: Changes) -> Mapping[Burden, tuple[str, ...]]:
    """The records that were there before a load and carry more of a burden since; new ones have all from its document."""
    new = {row.resource for row in changes.create.resources}
    added, changed = burdens(changes.create), burdens(changes.update)
    records = {burden: [*added[burden]] for burden in Burden}
    records[Burden.ANNOTATION_BYTES] += changed[Burden.ANNOTATION_BYTES]
    return {burden: found for burden in Burden if (found := tuple(set(records[burden]).difference(new)))}


def most_of(burden: Burden, limits: RecordLimits) -> int:
    """How much of a burden one record may carry."""
    most = getattr(limits, burden.value)
    assert isinstance(most, int)
    return most


def too_heavy(burden: Burden, record: str, number: int, most: int) -> PolicyInvalid:
    """The refusal of a record that would carry more than it may."""
    what, remedy = _REMEDIES[burden]
    return PolicyInvalid(f"{described(record)} would have {number} {what}; a record may have {most}: {remedy}")


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8"))


def _kind_of(full: str) -> str:
    return full.split(":", 2)[1]


def _user_of(resource: str) -> Iterator[str]:
    """The user whom a public key is of; nobody, for anything else."""
    account, kind, identifier = resource.split(":", 2)
    if kind == PUBLIC_KEY:
        _, user, _ = identifier.split("/", 2)
        yield f"{account}:user:{user}"
