"""The comparison of two servers: what both hold, what both decide, and what both keep.

Note [Decisions]. Both are asked for the closure of each role's memberships, and for who has a privilege. A server decides
the latter by a resource's owner, its permissions and the closures alone, so resources that have the same of these on both
sides are one group, and one of each group is asked about. Owners and permissions are compared of every resource.

Note [Not compared]. A role that a server hides, a value that it doesn't give and whatever a sample leaves out are counted:
then the end is not "0 differences" alone (MOVE-76).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Final
from urllib.parse import quote

import attrs

from svc.importing.conjur_session import Server, bad_answer, read_json
from svc.importing.conjur_values import ConjurValues
from svc.importing.inventory import Inventory, NoteKind, Progress, Record, RecordId
from svc.importing.load import ValueSource, digest, fold_equal
from svc.importing.windows import run_window
from svc.model.names import THING_KINDS
from svc.workload.address import encode_path
from svc.workload.replies import Reply

WIDTH: Final = 8
CHUNK: Final = 2000

#: The privilege that is asked for beside those that occur: without a permission its holders are the owners.
_USUAL: Final = "execute"


@attrs.frozen(order=True)
class Difference:
    """Something that is another way in the target."""

    what: str
    there: str
    here: str

    def __str__(self) -> str:
        return f"{self.what}: there {self.there}, here {self.here}"


@attrs.define
class Verification:
    """One comparison. ``source`` is in the target's words; ``source_ids`` has its own ids by these.

    ``sample``: how many roles, and variables, are asked about; ``None`` for all.
    """

    source: Inventory
    target: Inventory
    source_server: Server | None
    target_server: Server
    source_values: ValueSource
    source_ids: Mapping[RecordId, RecordId]
    progress: Progress
    sample: int | None = None
    _target_ids: Mapping[RecordId, RecordId] = attrs.field(
        default=attrs.Factory(lambda self: {there: here for here, there in self.source_ids.items()}, takes_self=True),
        init=False,
    )
    differences: list[Difference] = attrs.field(factory=list, init=False)
    #: A line for each thing that wasn't compared, and how much was.
    unseen: list[str] = attrs.field(factory=list, init=False)
    compared: dict[str, int] = attrs.field(factory=dict, init=False)

    async def run(self) -> None:
        """Compare everything.

        :raises SourceStopped: one of both can't be read on.
        """
        for inventory, side in ((self.source, "there"), (self.target, "here")):
            self.unseen += [f"{note} ({side})" for note in inventory.notes if note.kind is NoteKind.UNSEEN]
        self._compare_records()
        self._compare_edges()
        self._compare_authenticators()
        await self._compare_closures()
        await self._compare_holders()
        await self._compare_values()
        self.differences.sort()

    # Records and edges of both

    def _compare_records(self) -> None:
        here = {each.id: each for each in self.target.records}
        for record in self.source.records:
            known = here.get(record.id)
            if known is None:
                self.differences.append(Difference(str(record.id), "is", "missing"))
                continue
            for name in ("owner", "restricted_to", "public_keys", "layers"):
                self._compare(f"{name} of {record.id}", getattr(record, name), getattr(known, name))
            for name in sorted(record.annotations.keys() | known.annotations.keys()):
                ours, theirs = known.annotations.get(name), record.annotations.get(name)
                self._compare(f"annotation {name} of {record.id}", theirs, ours)
        self.compared["records"] = len(self.source.records)

    def _compare_edges(self) -> None:
        """Compare grants and permissions of what both hold."""
        ids = self._common_ids()
        there = {(each.role, each.member): each.admin for each in self.source.grants}
        here = {(each.role, each.member): each.admin for each in self.target.grants}
        for role, member in sorted(there.keys() | here.keys()):
            if role in ids and member in ids:
                words = [_ADMIN[side.get((role, member))] for side in (there, here)]
                self._compare(f"membership of {member} in {role}", words[0], words[1])
        ours, theirs = set(self.target.permissions), set(self.source.permissions)
        for each in sorted(ours ^ theirs):
            if each.role in ids and each.resource in ids:
                what = f"{each.privilege!r} of {each.role} on {each.resource}"
                self._compare(what, "permitted" if each in theirs else "not", "permitted" if each in ours else "not")
        self.compared["memberships"], self.compared["permissions"] = len(there), len(theirs)

    def _compare_authenticators(self) -> None:
        here = {each.name: each for each in self.target.authenticators}
        for each in self.source.authenticators:
            known = here.get(each.name)
            if known is not None and None not in {each.enabled, known.enabled}:
                words = ["enabled" if state else "not enabled" for state in (each.enabled, known.enabled)]
                self._compare(f"authenticator {each.name}", words[0], words[1])
        self.compared["authenticators"] = len(self.source.authenticators)

    def _common_ids(self) -> set[RecordId]:
        return {each.id for each in self.source.records} & {each.id for each in self.target.records}

    def _compare(self, what: str, there: object, here: object) -> None:
        if there != here:
            self.differences.append(Difference(what, _describe(there), _describe(here)))

    # Decisions of both (Note [Decisions])

    async def _compare_closures(self) -> None:
        if self.source_server is None:
            return
        common = self._common_ids()
        roles = self._take_sample(sorted(name for name in common if name.kind not in THING_KINDS), "roles' closures")
        done = 0
        async for name, there, here in run_window(roles, self._ask_closures, WIDTH):
            done += 1
            self.progress("closures", done, len(roles))
            self._compare_sets(f"roles that {name} holds", there, here)
        self.compared["closures of memberships"] = done

    async def _ask_closures(self, name: RecordId) -> tuple[RecordId, set[RecordId] | None, set[RecordId] | None]:
        assert self.source_server is not None
        there = await self._ask_source("roles", name, "?all=true")
        return name, there, await self._ask_target("roles", name, "?all=true")

    async def _compare_holders(self) -> None:
        if self.source_server is None:
            return
        questions = list(self._group_resources())
        done = 0

        async def ask(question: tuple[RecordId, str, int]) -> None:
            name, privilege, many = question
            query = f"?permitted_roles=true&privilege={quote(privilege, safe='')}"
            there, here = await self._ask_source("resources", name, query), await self._ask_target("resources", name, query)
            more = f" and {many - 1} like it" if many > 1 else ""
            self._compare_sets(f"roles with {privilege!r} on {name}{more}", there, here)

        async for _ in run_window(questions, ask, WIDTH):
            done += 1
            self.progress("holders of privileges", done, len(questions))
        self.compared["questions who has a privilege"] = done
        self.compared["resources that these are about"] = len(self._common_ids())

    def _group_resources(self) -> Iterator[tuple[RecordId, str, int]]:
        """Return one resource of each group, with each privilege to ask about, and the size of the group."""
        sides = (self.source, self.target)
        permitted: list[dict[RecordId, set[tuple[RecordId, str]]]] = [defaultdict(set), defaultdict(set)]
        for side, found in zip(sides, permitted, strict=True):
            for each in side.permissions:
                found[each.resource].add((each.role, each.privilege))
        owners = [{each.id: each.owner for each in side.records} for side in sides]
        groups: dict[object, list[RecordId]] = defaultdict(list)
        for name in sorted(self._common_ids()):
            parts = [(own[name], frozenset(found[name])) for own, found in zip(owners, permitted, strict=True)]
            groups[tuple(parts)].append(name)
        for members in groups.values():
            first = members[0]
            privileges = {privilege for found in permitted for _, privilege in found[first]} | {_USUAL}
            for privilege in sorted(privileges):
                yield first, privilege, len(members)

    async def _ask_source(self, route: str, name: RecordId, query: str) -> set[RecordId] | None:
        assert self.source_server is not None
        own = self.source_ids.get(name, name)
        found = await _ask_ids(self.source_server, route, own, query)
        if found is None:
            self.unseen.append(f"{name}: the source doesn't answer that question of it")
            return None
        return {self._target_ids.get(each, each) for each in found}

    async def _ask_target(self, route: str, name: RecordId, query: str) -> set[RecordId] | None:
        found = await _ask_ids(self.target_server, route, name, query)
        if found is None:
            self.unseen.append(f"{name}: the target doesn't answer that question of it")
        return found

    def _compare_sets(self, what: str, there: set[RecordId] | None, here: set[RecordId] | None) -> None:
        if there is not None and here is not None and there != here:
            parts = (sorted(there - here), sorted(here - there))
            self.differences.append(Difference(what, _describe_more(parts[0]), _describe_more(parts[1])))

    # Values of both

    async def _compare_values(self) -> None:
        here = {each.id: each for each in self.target.records}
        variables = [each for each in self.source.records if each.id.kind == "variable" and each.id in here]
        for each in variables:
            if bool(each.versions) != bool(here[each.id].versions):
                words = ["a value" if record.versions else "none" for record in (each, here[each.id])]
                self._compare(f"value of {each.id}", words[0], words[1])
        both = [each for each in variables if each.versions and here[each.id].versions]
        chosen = set(self._take_sample([each.id for each in both], "variables' values"))
        both = [each for each in both if each.id in chosen]
        for start in range(0, len(both), CHUNK):
            chunk = both[start : start + CHUNK]
            asked = {self.source_ids.get(each.id, each.id): each.id for each in chunk}
            theirs = await self._read_digests(
                self.source_values, [attrs.evolve(each, id=own) for own, each in zip(asked, chunk, strict=True)], asked
            )
            ours = await self._read_digests(
                ConjurValues(self.target_server), [here[each.id] for each in chunk], {each.id: each.id for each in chunk}
            )
            for each in chunk:
                self._compare_versions(each.id, theirs.get(each.id), ours.get(each.id))
            self.progress("values", start + len(chunk), len(both))
        self.compared["variables' values"] = len(both)

    async def _read_digests(
        self, source: ValueSource, variables: Sequence[Record], names: Mapping[RecordId, RecordId]
    ) -> dict[RecordId, list[bytes]]:
        found: dict[RecordId, list[bytes]] = {}
        async for values in source.read_values(variables):
            self.unseen += [str(note) for note in values.notes]
            if values.versions:
                found[names[values.variable]] = list(map(digest, fold_equal(values.versions)))
        return found

    def _compare_versions(self, name: RecordId, there: Sequence[bytes] | None, here: Sequence[bytes] | None) -> None:
        """Compare versions by their places, the newest with the newest: the source may have lost older ones since."""
        if there is None or here is None:
            self.unseen.append(f"values of {name}: one of both doesn't give them")
        elif list(here[-len(there) :]) != list(there):
            same = there[-1] == here[-1]
            what = "older versions" if same else "newest value"
            words = [f"{len(each)} version{'' if len(each) == 1 else 's'}" for each in (there, here)]
            self.differences.append(Difference(f"{what} of {name} (by SHA-256)", words[0], words[1]))

    def _take_sample(self, names: Sequence[RecordId], what: str) -> list[RecordId]:
        """Return the names to ask about: with a sample those whose digests come first, the same ones each time."""
        if self.sample is None or self.sample >= len(names):
            return list(names)
        self.unseen.append(f"{len(names) - self.sample} of {len(names)} {what}: the sample has {self.sample}")
        return sorted(sorted(names, key=lambda each: sha256(str(each).encode()).digest())[: self.sample])


_ADMIN: Final = {None: "none", False: "without admin option", True: "with admin option"}


async def _ask_ids(server: Server, route: str, name: RecordId, query: str) -> set[RecordId] | None:
    """Return the ids that a server answers; ``None`` where it doesn't see what it is asked about (MOVE-72)."""
    reply: Reply = await server.ask(encode_path(route, server.account, name.kind, name.identifier) + query)
    if reply.status in {403, 404, 422}:
        return None
    found: set[RecordId] = set()
    for text in read_json(server, str(name), reply, list):
        parts = text.split(":", 2) if isinstance(text, str) else []
        if len(parts) != 3:
            raise bad_answer(server.place, str(name), reply.status)
        found.add(RecordId(parts[1], parts[2]))
    return found


def _describe(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, str | RecordId):
        return str(value)
    assert isinstance(value, Collection)
    return ", ".join(map(_describe_part, value)) or "none"


def _describe_part(value: object) -> str:
    return str(value[0]) if isinstance(value, tuple) else str(value)


def _describe_more(names: Iterable[RecordId]) -> str:
    listed = list(map(str, names))
    more = f" and {len(listed) - 5} more" if len(listed) > 5 else ""
    return f"also {', '.join(listed[:5])}{more}" if listed else "no more"
