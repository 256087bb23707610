"""The plan of an import: what of a source's inventory is missing in a target, and what can't be moved.

Records that are in the target and equal are skipped, so that a load that was interrupted goes on where it was. A record that
is there and other is a clash: it is listed, and left as it is.

Note [Owners last]. Records are made with an owner that is a policy, and get any other owner after all values are set. Until
then everything belongs to the role that loads, by the policies, so that any order of steps has the authority that it needs;
and nobody has more than in the end, but that role.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import attrs

from svc.importing.documents import ROOT, default_owner, find_place
from svc.importing.inventory import (
    Authenticator,
    Grant,
    Inventory,
    Note,
    NoteKind,
    Permission,
    Record,
    RecordId,
)
from svc.model.dialect import Dialect
from svc.model.names import IDENTIFIER_LIMIT, is_kind

#: The records of every account.
_ALWAYS: Final = frozenset({RecordId("user", "admin"), RecordId("policy", ROOT)})


@attrs.frozen
class Plan:
    """The steps, in this order. ``equal`` counts what is there already."""

    source: str
    #: Policies to make, those around others first; ``policies`` has the ids of all, also of those that are there.
    made_policies: tuple[Record, ...]
    policies: frozenset[str]
    records: tuple[Record, ...]
    grants: tuple[Grant, ...]
    permissions: tuple[Permission, ...]
    #: Variables with values, and how many versions each has in the target.
    values: tuple[tuple[Record, int], ...]
    #: Records that get their owner in the end (Note [Owners last]).
    owners: tuple[Record, ...]
    authenticators: tuple[Authenticator, ...]
    equal: int
    notes: tuple[Note, ...]
    clashes: tuple[Note, ...]
    #: Users and hosts that had an API key, and are in the target or will be.
    keyed: tuple[RecordId, ...]

    def counts(self) -> list[tuple[str, int]]:
        """Return what will be made, by kind, for a person."""
        kinds = Counter(each.id.kind for each in (*self.made_policies, *self.records))
        rows = sorted(kinds.items())
        rows.append(("membership", len(self.grants)))
        rows.append(("permission", len(self.permissions)))
        rows.append(("variable with values", sum(1 for _, there in self.values if not there)))
        rows.append(("variable whose values are compared first", sum(1 for _, there in self.values if there)))
        rows.append(("owner set in the end", len(self.owners)))
        rows.append(("authenticator to enable", len(self.authenticators)))
        return [(name, count) for name, count in rows if count]

    @property
    def is_empty(self) -> bool:
        """Return whether nothing is left to do but to compare values."""
        parts = (self.made_policies, self.records, self.grants, self.permissions, self.owners, self.authenticators)
        return not any(parts) and all(there for _, there in self.values)


def make_plan(source: Inventory, target: Inventory, dialect: Dialect) -> Plan:
    """Return the plan for an inventory in the target's words (``translation``), and for what the target holds."""
    notes, clashes = list(source.notes), list[Note]()
    there = {each.id: each for each in target.records}
    movable = _find_movable(source.records, dialect, notes)
    policies = frozenset({each.identifier for each in (*movable, *there) if each.kind == "policy"} | {ROOT})
    ids = movable.keys() | there.keys() | _ALWAYS
    made, owners = list[Record](), list[Record]()
    equal = 0
    for record in movable.values():
        if record.id in _ALWAYS:
            continue
        owner = _find_owner(record, ids, dialect, notes)
        wanted = attrs.evolve(record, owner=owner)
        known = there.get(record.id)
        if known is None:
            default = default_owner(find_place(record, policies)[0])
            at_once = owner is None or owner == default or (owner.kind == "policy" and owner != record.id)
            made.append(wanted if at_once else attrs.evolve(record, owner=None))
            if not at_once:
                owners.append(wanted)
            continue
        differing = [word for name, word in _COMPARED.items() if getattr(known, name) != getattr(record, name)]
        if differing:
            clashes.append(_clash(record.id, f"it is here already with other {', '.join(differing)}"))
        elif owner is not None and known.owner != owner:
            # An interrupted load leaves the owner that the language gives.
            if known.owner == default_owner(known.policy or ROOT):
                owners.append(wanted)
            else:
                clashes.append(_clash(record.id, f"its owner is {known.owner}, and there {owner}"))
        equal += 1
    grants, known_grants = _find_missing_grants(source, target, ids, notes, clashes)
    permissions, known_permissions = _find_missing_permissions(source, target, ids, dialect, notes)
    values = tuple(
        (each, len(there[each.id].versions) if each.id in there else 0)
        for each in movable.values()
        if each.id.kind == "variable" and each.versions
    )
    _note_versions(values, notes)
    switches = _find_switches(source, target, dialect, notes)
    return Plan(
        source=source.source,
        made_policies=_order_policies((each for each in made if each.id.kind == "policy"), policies),
        policies=policies,
        records=tuple(sorted((each for each in made if each.id.kind != "policy"), key=_load_order)),
        grants=grants,
        permissions=permissions,
        values=values,
        owners=tuple(owners),
        authenticators=switches,
        equal=equal + known_grants + known_permissions,
        notes=tuple(sorted(set(notes))),
        clashes=tuple(clashes),
        keyed=tuple(each.id for each in movable.values() if each.had_api_key and each.id not in _ALWAYS),
    )


#: The attributes of a record that must be equal, and their words.
_COMPARED: Final[Mapping[str, str]] = {
    "annotations": "annotations",
    "restricted_to": "networks that it is restricted to",
    "public_keys": "public keys",
    "layers": "layers",
}


def _clash(name: RecordId, why: str) -> Note:
    return Note(NoteKind.LEFT_OUT, str(name), why, "nothing of it is changed: make them equal by hand, or delete it here")


def _load_order(record: Record) -> tuple[bool, RecordId]:
    """Return a key that sorts host factories last: their layers must be there."""
    return record.id.kind == "host_factory", record.id


def _order_policies(made: Iterable[Record], policies: Collection[str]) -> tuple[Record, ...]:
    """Return policies in an order in which each comes after the one that it is loaded into, and after its owner."""
    waiting = {each.id.identifier: each for each in made}
    ordered: list[Record] = []

    def needed(record: Record) -> set[str]:
        owner = {record.owner.identifier} if record.owner is not None and record.owner.kind == "policy" else set[str]()
        return {find_place(record, policies)[0], *owner}

    while waiting:
        ready = [each for each in waiting.values() if not needed(each) & waiting.keys()]
        # Policies that own each other have no order: the target refuses them.
        for each in ready or list(waiting.values()):
            ordered.append(waiting.pop(each.id.identifier))
    return tuple(ordered)


def _find_movable(records: Iterable[Record], dialect: Dialect, notes: list[Note]) -> dict[RecordId, Record]:
    """Return what can be declared in the target, by its ids; the rest is noted."""
    found: dict[RecordId, Record] = {}
    for record in records:
        refusal = _find_refusal(record, dialect)
        if refusal is not None:
            notes.append(Note(NoteKind.LEFT_OUT, str(record.id), *refusal))
            continue
        annotations = dict(record.annotations)
        for name, value in record.annotations.items():
            if "/../" in value or value.startswith("../") or value.endswith("/.."):
                del annotations[name]
                why = "policy would resolve the '..' in its value as a path"
                notes.append(Note(NoteKind.LEFT_OUT, f"annotation {name} of {record.id}", why, "set another value here"))
        found[record.id] = attrs.evolve(record, annotations=annotations)
    # A factory needs its layers, and is nothing without them.
    for record in [each for each in found.values() if not all(layer in found for layer in each.layers)]:
        del found[record.id]
        notes.append(Note(NoteKind.LEFT_OUT, str(record.id), "not all of its layers can be moved", "declare it here"))
    return found


def _find_refusal(record: Record, dialect: Dialect) -> tuple[str, str] | None:
    """Return why policy can't declare a record in the target, and what to do; ``None`` if it can."""
    kind, name = record.id.kind, record.id.identifier
    size = len(name.encode("utf-8", "surrogatepass"))
    rename = "give it another id there, or load it here by hand under another one"
    if size > IDENTIFIER_LIMIT:
        return f"its id has {size} bytes, and {IDENTIFIER_LIMIT} is the limit here", rename
    if "\x00" in name or any("\ud800" <= char <= "\udfff" for char in name):
        return "its id has characters that no id has here", rename
    if name.startswith("/"):
        return "its id begins with a slash", rename
    if kind == "user" and "/" in name:
        return "policy makes the id of a user with a slash another one", rename
    if kind in {"public_key", "configuration"} or not is_kind(kind):
        return f"no policy here declares a {kind}", "it has no counterpart"
    if kind not in _DECLARED and not dialect.lenient_policy:
        return f"the kind {kind} is one that policies made up, which only the dialect conjur takes", "move it to conjur"
    if kind == "host_factory" and not record.layers and not dialect.lenient_policy:
        return "a host factory without layers is refused in native", "give it a layer there"
    return None


_DECLARED: Final = frozenset({"policy", "user", "host", "group", "layer", "variable", "webservice", "host_factory"})


def _find_owner(record: Record, ids: Collection[RecordId], dialect: Dialect, notes: list[Note]) -> RecordId | None:
    """Return the owner that the record gets, ``None`` for the default where its own can't be stated."""
    owner = record.owner
    if owner is None:
        return None
    why = None
    if owner not in ids:
        why = f"its owner {owner} isn't moved"
    elif _has_dots(owner):
        why = f"policy can't name its owner {owner}"
    elif owner == record.id and not (dialect.lenient_policy and owner.kind == "policy"):
        why = "it owns itself"
    if why is None:
        return owner
    notes.append(
        Note(NoteKind.CHANGED, str(record.id), f"{why}: the policy around it owns it here", "give it an owner here")
    )
    return None


def _has_dots(name: RecordId) -> bool:
    return ".." in name.identifier.split("/")


def _find_missing_grants(
    source: Inventory, target: Inventory, ids: Collection[RecordId], notes: list[Note], clashes: list[Note]
) -> tuple[tuple[Grant, ...], int]:
    known = {(each.role, each.member): each.admin for each in target.grants}
    missing: list[Grant] = []
    equal = 0
    for grant in source.grants:
        admin = known.get((grant.role, grant.member))
        what = f"membership of {grant.member} in {grant.role}"
        if admin is not None:
            equal += 1
            if admin != grant.admin:
                has = "with" if admin else "without"
                clashes.append(Note(NoteKind.LEFT_OUT, what, f"it is here already {has} the admin option", "grant it anew"))
        elif grant.role not in ids or grant.member not in ids:
            notes.append(Note(NoteKind.LEFT_OUT, what, "one of them isn't moved", "grant it here once both are there"))
        elif _has_dots(grant.member) or _has_dots(grant.role):
            notes.append(Note(NoteKind.LEFT_OUT, what, "policy can't name an id with '..'", "svc role grants it by hand"))
        else:
            missing.append(grant)
    return tuple(missing), equal


def _find_missing_permissions(
    source: Inventory, target: Inventory, ids: Collection[RecordId], dialect: Dialect, notes: list[Note]
) -> tuple[tuple[Permission, ...], int]:
    known = set(target.permissions)
    missing: list[Permission] = []
    equal = 0
    for each in source.permissions:
        what = f"{each.privilege!r} of {each.role} on {each.resource}"
        if each in known:
            equal += 1
        elif each.role not in ids or each.resource not in ids:
            notes.append(Note(NoteKind.LEFT_OUT, what, "one of them isn't moved", "permit it here once both are there"))
        elif _has_dots(each.role):
            notes.append(Note(NoteKind.LEFT_OUT, what, "policy can't name a role with '..'", "rename the role there"))
        elif (not dialect.lenient_policy and each.privilege.strip() != each.privilege) or not each.privilege:
            notes.append(Note(NoteKind.LEFT_OUT, what, "a privilege with blanks at its ends is refused here", "rename it"))
        else:
            missing.append(each)
    return tuple(missing), equal


def _note_versions(values: Iterable[tuple[Record, int]], notes: list[Note]) -> None:
    old = [each for each, _ in values if each.versions[0] > 1]
    if old:
        why = f"their oldest versions are gone in the source; the first is {old[0].id}, from version {old[0].versions[0]}"
        notes.append(Note(NoteKind.LEFT_OUT, f"{len(old)} variables", why, "versions count from 1 here"))


def _find_switches(source: Inventory, target: Inventory, dialect: Dialect, notes: list[Note]) -> tuple[Authenticator, ...]:
    """Return the authenticators to enable; where only configuration enables, that is noted."""
    enabled = {each.name for each in target.authenticators if each.enabled}
    wanted = [each for each in source.authenticators if each.enabled and each.name not in enabled]
    if not wanted or dialect.switch_enables:
        return tuple(wanted)
    names = ", ".join(each.name for each in wanted)
    why = "in native the configuration of the server enables authenticators"
    notes.append(Note(NoteKind.TO_KNOW, f"authenticators {names}", why, "list them in `authenticators` of its settings"))
    return ()
