"""Authenticators that a source and a target have both, and have otherwise: none of these is moved in part.

Note [All or nothing]. An authenticator is its webservice, its settings and the groups of those who may log in by it. With
the keys of one server and the hosts of another, people whom neither of them knows log in. So where any part is here and
other than there, nothing of it is moved: no record, no membership or permission that names it, and no annotation by which a
new host logs in with it. The same holds for records below an authenticator that is the target's alone.

Values count, too, so that settings that both have are read of both before anything is changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import attrs

from svc.importing.conjur_session import Server
from svc.importing.conjur_values import ConjurValues
from svc.importing.documents import ROOT, default_owner
from svc.importing.inventory import Grant, Inventory, Note, NoteKind, Permission, Record, RecordId, Values
from svc.importing.load import ValueSource, digest, find_missing_versions, fold_equal
from svc.importing.plan import Plan, make_plan
from svc.model.dialect import Dialect

#: The kinds of which an authenticator is made.
_PARTS: Final = frozenset({"policy", "webservice", "group", "layer", "variable"})

_REMEDY: Final = "nothing of it is moved: make both equal by hand, or delete it here, then run the same command again"


@attrs.frozen
class _Branches:
    """The branches of authenticators, by their ids."""

    identifiers: Collection[str]

    def find(self, identifier: str) -> str | None:
        """Return the branch that an id is or is in, ``None`` for none of these."""
        parts = identifier.split("/", 3)
        return next((each for end in (3, 2) if (each := "/".join(parts[:end])) in self.identifiers), None)

    def find_of(self, record: Record) -> str | None:
        """Return the branch of a record; a user's id has its policy otherwise."""
        found = self.find(record.id.identifier)
        return self.find(record.policy) if found is None and record.policy is not None else found

    def group(self, records: Iterable[Record]) -> dict[str, dict[RecordId, Record]]:
        """Return the records of each branch."""
        grouped: dict[str, dict[RecordId, Record]] = {}
        for record in records:
            if (branch := self.find_of(record)) is not None:
                grouped.setdefault(branch, {})[record.id] = record
        return grouped


@attrs.frozen
class Planner:
    """Makes the plan of an import. ``source`` and ``target`` are in the target's words, ``source_ids`` the ids there."""

    source: Inventory
    target: Inventory
    values: ValueSource
    server: Server
    source_ids: Mapping[RecordId, RecordId]

    async def make_plan(self, dialect: Dialect) -> Plan:
        """Return the plan, without authenticators that clash (Note [All or nothing]); these are among its clashes.

        :raises SourceStopped: one of both can't be read on.
        """
        clashing = await self.find_clashing()
        plan = make_plan(self._withhold(clashing), self.target, dialect)
        notes = [
            Note(NoteKind.LEFT_OUT, f"authenticator {_name_of(branch)}", why, _REMEDY) for branch, why in clashing.items()
        ]
        return attrs.evolve(plan, clashes=(*notes, *plan.clashes))

    async def find_clashing(self) -> dict[str, str]:
        """Return the branches of authenticators that are other ones here and there, with the reasons."""
        services = (each.webservice for each in (*self.source.authenticators, *self.target.authenticators))
        branches = _Branches(frozenset(each.identifier for each in services if each is not None))
        theirs, ours = branches.group(self.source.records), branches.group(self.target.records)
        clashing: dict[str, str] = {}
        for branch in sorted(theirs.keys() & ours.keys()):
            why = _find_difference(branch, theirs[branch], ours[branch])
            why = why or await self._find_other_value(theirs[branch], ours[branch])
            if why:
                clashing[branch] = why
        return clashing

    async def _find_other_value(self, theirs: Mapping[RecordId, Record], ours: Mapping[RecordId, Record]) -> str:
        """Return which setting has other values here, empty for none; one without a value there is for people to set."""
        both = [
            name
            for name, record in sorted(theirs.items())
            if name.kind == "variable" and name in ours and record.versions and ours[name].versions
        ]
        there = await _read(self.values, [attrs.evolve(theirs[each], id=self._source_id(each)) for each in both])
        here = await _read(ConjurValues(self.server), [ours[each] for each in both])
        for name in both:
            wanted, known = there.get(self._source_id(name)), here.get(name)
            if wanted is None or known is None or not (wanted.complete and known.complete):
                return f"{name} can't be read of both, and may be other than here"
            if find_missing_versions(fold_equal(wanted.versions), tuple(map(digest, known.versions))) is None:
                return f"{name} has other values here"
        return ""

    def _source_id(self, name: RecordId) -> RecordId:
        return self.source_ids.get(name, name)

    def _withhold(self, clashing: Mapping[str, str]) -> Inventory:
        """Return the source without some authenticators."""
        if not clashing:
            return self.source
        branches = _Branches(clashing.keys())
        here = {each.id for each in self.target.records}
        dropped = {each.id for each in self.source.records if branches.find_of(each) is not None}
        prefixes = tuple(f"{_name_of(branch)}/" for branch in clashing)
        notes = list(self.source.notes)
        records: list[Record] = []
        for record in self.source.records:
            if record.id in dropped:
                continue
            kept = {name: value for name, value in record.annotations.items() if not name.startswith(prefixes)}
            if record.id not in here and len(kept) < len(record.annotations):
                why = "its authenticator isn't moved, and neither are the annotations for it"
                notes.append(Note(NoteKind.CHANGED, str(record.id), why, "write them once the authenticator is right"))
                record = attrs.evolve(record, annotations=kept)  # noqa: PLW2901
            if record.owner in dropped:
                why = f"its owner {record.owner} isn't moved: the policy around it owns it here"
                notes.append(Note(NoteKind.CHANGED, str(record.id), why, "give it an owner here"))
                record = attrs.evolve(record, owner=None)  # noqa: PLW2901
            records.append(record)

        def is_kept(each: Grant | Permission) -> bool:
            names = (each.role, each.member if isinstance(each, Grant) else each.resource)
            return dropped.isdisjoint(names) and all(branches.find(name.identifier) is None for name in names)

        return attrs.evolve(
            self.source,
            records=tuple(records),
            grants=tuple(filter(is_kept, self.source.grants)),
            permissions=tuple(filter(is_kept, self.source.permissions)),
            authenticators=tuple(
                each
                for each in self.source.authenticators
                if each.webservice is None or each.webservice.identifier not in clashing
            ),
            notes=tuple(sorted(set(notes))),
        )


def _find_difference(branch: str, theirs: Mapping[RecordId, Record], ours: Mapping[RecordId, Record]) -> str:
    """Return how an authenticator differs, but for values; empty where it doesn't, or has less here."""
    for name in sorted(ours.keys() - theirs.keys()):
        if name.kind == "variable" or name == RecordId("webservice", branch):
            return f"{name} is here and not there"
    for name in sorted(theirs.keys() & ours.keys()):
        there, here = theirs[name], ours[name]
        if name.kind not in _PARTS:
            continue
        if there.annotations != here.annotations:
            return f"{name} is here already with other annotations"
        # An interrupted load leaves the owner that the language gives.
        if there.owner is not None and here.owner not in {there.owner, default_owner(here.policy or ROOT)}:
            return f"the owner of {name} is {here.owner}, and there {there.owner}"
    return ""


def _name_of(branch: str) -> str:
    return branch.partition("/")[2]


async def _read(source: ValueSource, records: Iterable[Record]) -> dict[RecordId, Values]:
    return {each.variable: each async for each in source.read_values(records)}
