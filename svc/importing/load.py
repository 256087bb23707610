"""The load of a plan into a target: policies, records, memberships, permissions, values, owners, authenticators.

Note [Again]. Every step may be repeated: a document that is loaded twice changes nothing, and a value that is set twice
makes no new version. A load of policy is done completely or not at all, and a value is set whole. So however a load ends,
the same command goes on with what is missing.

Note [Refused]. A document that the target refuses is halved, until the statements that it refuses are found; they are
listed, and everything else is loaded.

Note [Clashes of values]. Versions are compared by digests. A target that has the beginning of a source's versions, in their
order, gets the rest; one whose newest versions are others is left as it is, and listed.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Final, Protocol

import attrs

from svc.importing.conjur_session import Server, read_json
from svc.importing.conjur_values import ConjurValues
from svc.importing.documents import Piece, Statement, cut_pieces, declare, find_place, grant_membership, permit
from svc.importing.inventory import Authenticator, Note, NoteKind, Progress, Record, RecordId, Values, Version
from svc.importing.plan import Plan
from svc.importing.windows import work_through
from svc.workload.address import encode_path
from svc.workload.replies import Reply

#: Values that are set at once, and variables whose values are read for one another.
WIDTH: Final = 12
CHUNK: Final = 2000


class Target(Server, Protocol):
    """A server that is loaded into."""

    async def load_policy(self, method: str, path: str, body: bytes) -> Reply:
        """Send a document, again while the answer is lost, and return the answer, of whatever status."""

    async def set_value(self, path: str, body: bytes) -> Reply:
        """Set a value, again while the answer is lost, and return the answer, of whatever status."""

    async def switch(self, path: str, body: bytes) -> Reply:
        """Switch an authenticator, and return the answer, of whatever status."""


class ValueSource(Protocol):
    """The values of a source."""

    def read_values(self, variables: Iterable[Record]) -> AsyncIterator[Values]:
        """Read the values of some variables; see ``svc.importing.inventory``."""


@attrs.define
class Load:
    """One run of a load. ``take_keys`` is called with the new API keys of a piece before the next piece is loaded."""

    plan: Plan
    source: ValueSource
    target: Target
    #: The ids in the source by those in the target.
    source_ids: Mapping[RecordId, RecordId]
    progress: Progress
    take_keys: Callable[[Mapping[RecordId, str]], None]
    expect_keys: Callable[[Sequence[RecordId]], None]
    notes: list[Note] = attrs.field(factory=list, init=False)
    #: How much has been done: statements, versions set, variables that were equal.
    loaded: int = attrs.field(default=0, init=False)
    versions_set: int = attrs.field(default=0, init=False)
    equal_values: int = attrs.field(default=0, init=False)
    #: The texts that name what wasn't done.
    _failed: list[str] = attrs.field(factory=list, init=False)

    async def run(self) -> None:
        """Do all of it.

        :raises SourceStopped: the source can't be read on; everything before was done.
        """
        plan = self.plan
        await self._load_policies()
        await self._load("records", self._declare(plan.records), "POST")
        await self._load("memberships", (grant_membership(each, plan.policies) for each in plan.grants), "POST")
        await self._load("permissions", (permit(each, plan.policies) for each in plan.permissions), "POST")
        await self._set_values()
        # Owners of policies last, the innermost first: each is changed by a load into the policy around it.
        things = [each for each in plan.owners if each.id.kind != "policy"]
        around = [each for each in plan.owners if each.id.kind == "policy"]
        around.sort(key=lambda each: -len(each.id.identifier))
        await self._load("owners", self._declare(things), "PATCH")
        for each in around:
            await self._load("owners of policies", self._declare([each]), "PATCH")
        await self._switch_authenticators()

    # Policy

    async def _load_policies(self) -> None:
        """Make policies, those first that others need: each document has policies that need none of the same document."""
        level: list[Record] = []
        for each in self.plan.made_policies:
            needed = {find_place(each, self.plan.policies)[0], each.owner.identifier if each.owner is not None else ""}
            if needed & {other.id.identifier for other in level}:
                await self._load("policies", self._declare(level), "POST")
                level = []
            level.append(each)
        await self._load("policies", self._declare(level), "POST")

    def _declare(self, records: Iterable[Record]) -> Iterator[Statement]:
        return (declare(each, self.plan.policies) for each in records)

    async def _load(self, what: str, statements: Iterable[Statement], method: str) -> None:
        listed = list(statements)
        done = 0
        for piece in cut_pieces(listed):
            await self._load_piece(piece, method)
            done += len(piece.statements)
            self.progress(what, done, len(listed))

    async def _load_piece(self, piece: Piece, method: str) -> None:
        path = encode_path("policies", self.target.account, "policy", piece.branch)
        actors = [each.actor for each in piece.statements if each.actor is not None]
        if actors and method == "POST":
            self.expect_keys(actors)
        reply = await self.target.load_policy(method, path, piece.text.encode())
        if reply.status in {200, 201}:
            self.loaded += len(piece.statements)
            self._take_keys(reply)
            return
        if reply.status in {403, 404, 413, 422} and len(piece.statements) > 1:
            for half in piece.halves():
                await self._load_piece(half, method)
            return
        about = piece.statements[0].about
        why = f"the target refused it (status {reply.status}): {reply.error_message}"
        self.notes.append(Note(NoteKind.LEFT_OUT, about, why, "mend that, and run the same command again"))
        self._failed.append(about)

    def _take_keys(self, reply: Reply) -> None:
        roles = read_json(self.target, "a load of policy", attrs.evolve(reply, status=200), dict).get("created_roles", {})
        keys: dict[RecordId, str] = {}
        for full, made in roles.items():
            _, kind, name = full.split(":", 2)
            if made.get("api_key") is not None:
                keys[RecordId(kind, name)] = made["api_key"]
        self.take_keys(keys)

    # Values

    async def _set_values(self) -> None:
        """Set the values that are missing, a few variables at once, each one's versions in their order."""
        total, done = len(self.plan.values), 0
        pairs = deque(self.plan.values)
        while pairs:
            chunk = [pairs.popleft() for _ in range(min(CHUNK, len(pairs)))]
            there = await self._read_there([(each, count) for each, count in chunk if count])
            by_source = {self.source_ids.get(each.id, each.id): each for each, _ in chunk}
            asked = [attrs.evolve(each, id=name) for name, each in by_source.items()]

            async def set_one(
                values: Values,
                by_source: Mapping[RecordId, Record] = by_source,
                there: Mapping[RecordId, Sequence[bytes]] = there,
            ) -> None:
                nonlocal done
                name = by_source[values.variable].id
                await self._set_versions(name, values, there.get(name, ()))
                done += 1
                self.progress("variables", done, total)

            await work_through(aiter(self.source.read_values(asked)), set_one, WIDTH)

    async def _read_there(self, chunk: Sequence[tuple[Record, int]]) -> dict[RecordId, tuple[bytes, ...]]:
        """Return the digests of the versions that variables have in the target, oldest first."""
        if not chunk:
            return {}
        listed = [attrs.evolve(each, versions=await self._numbers(each.id)) for each, _ in chunk]
        found: dict[RecordId, tuple[bytes, ...]] = {}
        async for values in ConjurValues(self.target).read_values(listed):
            found[values.variable] = tuple(map(digest, values.versions))
            self.notes += values.notes
        return found

    async def _numbers(self, name: RecordId) -> tuple[int, ...]:
        reply = await self.target.ask(encode_path("resources", self.target.account, name.kind, name.identifier))
        item = read_json(self.target, str(name), reply, dict)
        return tuple(sorted(each["version"] for each in item.get("secrets", [])))

    async def _set_versions(self, name: RecordId, values: Values, there: Sequence[bytes]) -> None:
        self.notes += values.notes
        if not values.complete:
            self._failed.append(str(name))
        versions = fold_equal(values.versions)
        if len(versions) < len(values.versions):
            why = "the same value again makes no new version here"
            self.notes.append(Note(NoteKind.TO_KNOW, f"{len(values.versions) - len(versions)} versions of {name}", why))
        missing = find_missing_versions(versions, there)
        if missing is None:
            why = "it has other values here than in the source"
            remedy = "nothing was set: see both, and set the right one with `svc variable set`"
            self.notes.append(Note(NoteKind.LEFT_OUT, str(name), why, remedy))
            self._failed.append(str(name))
            return
        if not missing:
            self.equal_values += 1
        path = encode_path("secrets", self.target.account, name.kind, name.identifier)
        for version in missing:
            reply = await self.target.set_value(path, version.value)
            if reply.status not in {200, 201}:
                why = f"the target refused it (status {reply.status}): {reply.error_message}"
                self.notes.append(Note(NoteKind.LEFT_OUT, f"version {version.number} of {name}", why))
                self._failed.append(str(name))
                return
            self.versions_set += 1

    # Authenticators

    async def _switch_authenticators(self) -> None:
        for each in self.plan.authenticators:
            if (failed := self._find_failed(each)) is not None:
                why = f"not all of it is here: {failed}"
                remedy = f"mend that, then run the same command again, or enable {each.name} here"
                self.notes.append(Note(NoteKind.LEFT_OUT, f"state of {each.name}", why, remedy))
                continue
            names = (each.type,) if each.service_id is None else (each.type, each.service_id)
            reply = await self.target.switch(encode_path(*names, self.target.account), b"enabled=true")
            if reply.status != 204:
                why = f"the target didn't enable it (status {reply.status}): {reply.error_message}"
                self.notes.append(Note(NoteKind.LEFT_OUT, f"state of {each.name}", why, f"enable {each.name} here"))

    def _find_failed(self, authenticator: Authenticator) -> str | None:
        """Return what of an authenticator wasn't done, ``None`` for nothing: in part it isn't enabled."""
        if authenticator.webservice is None:
            return None
        place = re.compile(f":{re.escape(authenticator.webservice.identifier)}(?:[/ ]|$)")
        return next((each for each in self._failed if place.search(each)), None)


def digest(version: Version) -> bytes:
    """Return the digest by which values are compared."""
    return sha256(version.value).digest()


def fold_equal(versions: Sequence[Version]) -> list[Version]:
    """Return versions without those that equal the one before (MOVE-43)."""
    return [each for place, each in enumerate(versions) if not place or each.value != versions[place - 1].value]


def find_missing_versions(versions: Sequence[Version], there: Sequence[bytes]) -> list[Version] | None:
    """Return the versions that a target lacks whose digests are these; ``None`` if its newest are none of the source's.

    The source may have lost its oldest versions since, and the target may have none of the newest.
    """
    if not there:
        return list(versions)
    found = list(map(digest, versions))
    for size in range(min(len(found), len(there)), 0, -1):
        if list(there[-size:]) == found[:size]:
            return list(versions[size:])
    return None
