"""The names of an inventory in the words of a target: reserved ids and annotations have another prefix in ``native``.

Note [Switched off]. Rotation is moved switched off in both dialects: two servers that rotate one password lock each other
out (MOVE-58). So the annotation that names the rotator gets another name, under which it does nothing.

Note [Two with one name]. A record whose name in the target another one has is left out, with all that names it: otherwise
its members, permissions and what it owns would become the other one's. So is one that would be an authenticator's in the
target and was nothing of that kind in the source: its owner could choose the keys of an authenticator.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Final

import attrs

from svc.importing.documents import ROOT
from svc.importing.inventory import Authenticator, Grant, Inventory, Note, NoteKind, Permission, Record, RecordId
from svc.model.dialect import CONJUR, NATIVE, Dialect

#: The annotations that the policy language makes of attributes, below the dialect's prefix.
_ATTRIBUTES: Final = ("mime_type", "kind", "uidnumber", "gidnumber")

#: The annotation by which a variable is rotated, and its name while that is off.
ROTATOR: Final = "rotation/rotator"
ROTATOR_OFF: Final = "moved/rotation/rotator"


@attrs.frozen
class Rule:
    """A line of the table: what begins so, or is this, is called so in the target."""

    what: str
    before: str
    after: str

    def apply(self, text: str) -> str | None:
        """Return the name in the target; ``None`` where the rule doesn't apply."""
        if self.before.endswith("/"):
            return self.after + text.removeprefix(self.before) if text.startswith(self.before) else None
        return self.after if text == self.before else None


def _rules(source: Dialect, target: Dialect) -> tuple[Rule, ...]:
    old, new = source.prefix, target.prefix
    if old == new:
        return ()
    clouds = (Rule("id", f"{old}/{source.cloud}/", f"{new}/{target.cloud}/"),)
    whole = (Rule("id", f"{old}/{source.cloud}", f"{new}/{target.cloud}"),)
    return (
        *clouds,
        *whole,
        Rule("id", f"{old}/", f"{new}/"),
        Rule("id", old, new),
        *(Rule("annotation", f"{old}/{name}", f"{new}/{name}") for name in _ATTRIBUTES),
        Rule("annotation", f"{source.cloud}/", f"{target.cloud}/"),
    )


@attrs.frozen
class Translation:
    """The table for one target, to be printed and applied: the first rule that applies to a name counts."""

    target: Dialect
    rules: tuple[Rule, ...]

    @classmethod
    def to_dialect(cls, target: Dialect) -> Translation:
        """Return the translation of a source's names, which are those of ``conjur``."""
        return cls(target, _rules(CONJUR, target))

    def table(self) -> list[tuple[str, str, str]]:
        """Return the rows to print: of what, the name there, the name here; rotation's has no prefix and stands last."""
        rows = [(rule.what, _wildcard(rule.before), _wildcard(rule.after)) for rule in self.rules]
        return [*rows, ("annotation", ROTATOR, ROTATOR_OFF)]

    def translate(self, inventory: Inventory) -> Inventory:
        """Return an inventory in the target's words, with notes on what is other than it was."""
        notes = list(inventory.notes)
        records: dict[RecordId, Record] = {}
        dropped: set[RecordId] = set()
        for each in inventory.records:
            made = self.translate_id(each.id)
            if self.rules and each.id.identifier.startswith(f"{self.target.prefix}/authn"):
                why = f"ids that begin with {self.target.prefix}/authn are those of authenticators here, and weren't there"
            elif made in records:
                why = f"its name here is {made}, which another record has already"
            else:
                records[made] = each
                continue
            dropped.add(each.id)
            notes.append(Note(NoteKind.LEFT_OUT, str(each.id), why, "rename it there"))
        inventory = _drop(inventory, records.values(), dropped, notes)
        return attrs.evolve(
            inventory,
            records=tuple(
                sorted((self._translate_record(each, notes) for each in inventory.records), key=lambda each: each.id)
            ),
            grants=tuple(sorted(map(self._translate_grant, inventory.grants))),
            permissions=tuple(sorted(map(self._translate_permission, inventory.permissions))),
            authenticators=tuple(map(self._translate_authenticator, inventory.authenticators)),
            notes=tuple(sorted(set(notes))),
        )

    @staticmethod
    def ignore_rotation(target: Inventory) -> Inventory:
        """Return a target's inventory with rotation switched off: that it is on again here is no difference."""

        def rename(record: Record) -> Record:
            if ROTATOR not in record.annotations:
                return record
            names = {ROTATOR_OFF if name == ROTATOR else name: value for name, value in record.annotations.items()}
            return attrs.evolve(record, annotations=names)

        return attrs.evolve(target, records=tuple(map(rename, target.records)))

    def source_ids(self, inventory: Inventory) -> dict[RecordId, RecordId]:
        """Return the ids in the source by those in the target, for reading values there."""
        pairs: dict[RecordId, RecordId] = {}
        for each in inventory.records:
            pairs.setdefault(self.translate_id(each.id), each.id)
        return pairs

    def translate_id(self, name: RecordId) -> RecordId:
        """Return an id in the target's words."""
        return RecordId(name.kind, self._rename("id", name.identifier))

    def _rename(self, what: str, text: str) -> str:
        for rule in self.rules:
            if rule.what == what and (renamed := rule.apply(text)) is not None:
                return renamed
        return text

    def _translate_record(self, record: Record, notes: list[Note]) -> Record:
        annotations: dict[str, str] = {}
        for name, value in record.annotations.items():
            renamed = ROTATOR_OFF if name == ROTATOR else self._rename("annotation", name)
            annotations[renamed] = value
        if ROTATOR in record.annotations:
            why = f"its rotation is moved switched off, as the annotation {ROTATOR_OFF}"
            remedy = f"switch it off there, then rename the annotation to {ROTATOR} here"
            notes.append(Note(NoteKind.CHANGED, str(record.id), why, remedy))
        if not self.target.nested_claims:
            nested = [name for name in record.annotations if name.startswith("authn-jwt/") and name.count("/") > 2]
            notes += [
                Note(
                    NoteKind.CHANGED,
                    f"annotation {name} of {record.id}",
                    "a slash in the name of a claim doesn't lead into nested claims in native",
                    "compare the login with `svc authenticator explain` before the host is moved",
                )
                for name in nested
            ]
        return attrs.evolve(
            record,
            id=self.translate_id(record.id),
            owner=None if record.owner is None else self.translate_id(record.owner),
            policy=None if record.policy is None else self._rename("id", record.policy),
            annotations=annotations,
            layers=tuple(map(self.translate_id, record.layers)),
        )

    def _translate_grant(self, grant: Grant) -> Grant:
        role, member = self.translate_id(grant.role), self.translate_id(grant.member)
        return Grant(role, member, grant.admin, self._translate_policy(grant.policy))

    def _translate_permission(self, each: Permission) -> Permission:
        role, resource = self.translate_id(each.role), self.translate_id(each.resource)
        return Permission(role, each.privilege, resource, self._translate_policy(each.policy))

    def _translate_policy(self, policy: str | None) -> str | None:
        return None if policy is None else self._rename("id", policy)

    def _translate_authenticator(self, each: Authenticator) -> Authenticator:
        kind = self.target.cloud if each.type == CONJUR.cloud else each.type
        webservice = None if each.webservice is None else self.translate_id(each.webservice)
        return Authenticator(kind, each.service_id, each.enabled, webservice)


def _drop(inventory: Inventory, kept: Iterable[Record], dropped: AbstractSet[RecordId], notes: list[Note]) -> Inventory:
    """Return an inventory of some records, without anything that names the others (Note [Two with one name])."""
    if not dropped:
        return inventory
    records: list[Record] = []
    for each in kept:
        if not dropped.isdisjoint(each.layers):
            notes.append(Note(NoteKind.LEFT_OUT, str(each.id), "not all of its layers can be moved", "declare it here"))
            continue
        if each.owner in dropped:
            why = f"its owner {each.owner} isn't moved: the policy around it owns it here"
            notes.append(Note(NoteKind.CHANGED, str(each.id), why, "give it an owner here"))
        records.append(
            attrs.evolve(
                each,
                owner=None if each.owner in dropped else each.owner,
                policy=ROOT if each.policy is not None and RecordId("policy", each.policy) in dropped else each.policy,
            )
        )
    why, grants, permissions = "one of them isn't moved", list[Grant](), list[Permission]()
    for grant in inventory.grants:
        if grant.role in dropped or grant.member in dropped:
            what = f"membership of {grant.member} in {grant.role}"
            notes.append(Note(NoteKind.LEFT_OUT, what, why, "grant it here once both are there"))
        else:
            grants.append(grant)
    for permission in inventory.permissions:
        if permission.role in dropped or permission.resource in dropped:
            what = f"{permission.privilege!r} of {permission.role} on {permission.resource}"
            notes.append(Note(NoteKind.LEFT_OUT, what, why, "permit it here once both are there"))
        else:
            permissions.append(permission)
    return attrs.evolve(inventory, records=tuple(records), grants=tuple(grants), permissions=tuple(permissions))


def _wildcard(text: str) -> str:
    return f"{text}…" if text.endswith("/") else text


def find_target_dialect(info: Iterable[str]) -> Dialect:
    """Return the dialect of a server by the names of the services in its ``GET /info``."""
    return CONJUR if CONJUR.service in set(info) else NATIVE
