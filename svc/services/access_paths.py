"""The roles that have a privilege, one page after the other, each by a shortest way.

Note [Levels]

The roles with ways of one length are a level: the owner and the roles permitted are the first, and the members of one level
that are in none before are the next. A role has many ways; the one that counts goes through the first role, by id, of the
level before. So each role "hangs on" one other, its parent, and a list need not store what it has returned: it goes through
the levels, and leaves out, of the members of a role, those that don't hang on it.

Levels are read whole, and kept for the request, as long as they have few roles together. The last of these is the *base*:
the roles in the levels up to it are known, and all others are placed by their distance from it. From there on a level may
have a million roles. It is walked by key: the members of each role of the level before, from the ids in the cursor on. So
a page costs what it reads, and whether a role hangs on another is found from below: most roles hold few, and the base is a
few steps away. The walk through a level goes through all levels between the base and itself, though, and each level is
walked on its own, since a level's roles come in one order and those of the next in that of their ways.

Note [Pages that are not full]

A level beyond the base may have few roles that hang on a million: the hosts of a group and the policy that owns them. So a
request reads ``READ_MOST`` memberships, and its page may have fewer roles than were asked for, even none, and go on.

Note [Cursors]

A cursor is the ids to begin with, one for each level from the base on, of which each counts if the ones before are found.
None of them is trusted: the roles that they lead to are read and checked as if the walk had come there by itself, so that a
forged cursor leads only to holders. Changes may move the base; then a level may begin again, but nothing is skipped.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Final

import attrs

from svc.model.access import AccessPath, AccessTarget, HoldersCursor, PathStep, SearchFrontier, StepKind
from svc.model.errors import TooManyRoles
from svc.storage.access import AccessStore

#: How many roles, and how many memberships between them, are kept for a request.
ROLES_LIMIT: Final = 500
EDGES_LIMIT: Final = 2000

#: How many memberships are read at once: about 5 ms of the reactor.
BATCH: Final = 1000

#: About how many memberships one request reads.
READ_MOST: Final = 10_000

#: About how many steps the ways on one page have together.
STEPS_MOST: Final = 4000

#: How many characters the ids of a cursor have together.
POSITION_MOST: Final = 16_000

#: How many levels beyond the base there may be.
DEPTH_MOST: Final = 64

#: Ids from the base's level on.
Chain = tuple[str, ...]


def text_after(text: str) -> str:
    """Return the first text after another one, in the order of bytes: none has a NUL."""
    return f"{text}\x01"


@attrs.define
class WalkBounds:
    """The limits on what one request may read and keep."""

    roles: int = ROLES_LIMIT
    edges: int = EDGES_LIMIT
    batch: int = BATCH
    read: int = READ_MOST


@attrs.frozen
class PrivilegeHolderLevels:
    """The first levels, as far as they are kept: ``whole`` when these are all. Each role has its parent, or ``""``."""

    target: AccessTarget
    loaded: Sequence[dict[str, str]]
    by: dict[str, StepKind]
    whole: bool
    #: The lengths of the ways of the roles that are kept.
    lengths: dict[str, int] = attrs.field(init=False, repr=False)

    @lengths.default
    def _default_lengths(self) -> dict[str, int]:
        return {role: number for number, level in enumerate(self.loaded, 1) for role in level}

    @classmethod
    async def read(cls, store: AccessStore, target: AccessTarget, bounds: WalkBounds) -> PrivilegeHolderLevels:
        """Read the levels of a target."""
        first = await store.list_direct_holders(target, "", bounds.roles + 1)
        if len(first) > bounds.roles:
            return cls(target, (), {}, whole=False)
        by = {step.role: step.kind for step in first if step.role is not None}
        kept = [dict.fromkeys(by, "")]
        known, edges = set(by), 0
        while kept[-1]:
            level = sorted(kept[-1])
            found: dict[str, str] = {}
            asked = [(role, "") for role in level]
            while asked:
                limit = min(bounds.batch, bounds.edges + 1 - edges, bounds.roles + 1)
                if limit <= 0 or len(known) + len(found) > bounds.roles:
                    return cls(target, kept, by, whole=False)
                rows = await store.list_direct_members(asked, limit)
                edges += len(rows)
                for role, member in rows:
                    if member not in known:
                        found.setdefault(member, role)
                asked = remaining_requests(asked, rows, limit)
            if len(known) + len(found) > bounds.roles:
                return cls(target, kept, by, whole=False)
            kept.append(found)
            known |= found.keys()
        return cls(target, kept[:-1], by, whole=True)

    @property
    def frontier_length(self) -> int:
        """Return the number of the base's level."""
        return len(self.loaded) or 1

    @property
    def frontier(self) -> SearchFrontier:
        """Return the base."""
        return SearchFrontier(self.target, frozenset(self.loaded[-1]) if self.loaded else None)

    def access_path(self, role: str) -> AccessPath:
        """Return the way of a role that is kept."""
        steps = list[PathStep]()
        for level in reversed(self.loaded[: self.lengths[role]]):
            parent = level[role]
            steps.append(PathStep(role, StepKind.MEMBER if parent else self.by[role]))
            role = parent
        return tuple(steps)


@attrs.define
class HolderWalk:
    """One request's walk through the levels."""

    store: AccessStore
    levels: PrivilegeHolderLevels
    bounds: WalkBounds
    _spent: int = 0
    #: By the number of a level: the roles that were found there with their parents; and for others, a role on which they
    #: don't hang, nor on any after it.
    _accepted: dict[int, dict[str, str]] = attrs.field(factory=dict)
    _rejected: dict[int, dict[str, str]] = attrs.field(factory=dict)
    #: How roles of a first level that is not kept have the privilege: by ownership or permission.
    _by: dict[str, StepKind] = attrs.field(factory=dict)

    async def read_page(
        self, limit: int, position: HoldersCursor, *, direct: bool
    ) -> tuple[list[AccessPath], HoldersCursor | None]:
        """Return ways from a position on, ``limit`` at most, and the position after them if there may be more.

        :raises TooManyRoles: they are too long.
        """
        ways: list[AccessPath] = []
        full: HoldersCursor | None = None
        steps = 0
        while not direct or position.length == 1:
            length, start = position.length, position.start
            if length > self.levels.frontier_length + DEPTH_MOST:
                raise TooManyRoles(ROLES_LIMIT)
            start = start if len(start) == self._chain_size(length) else ()
            async for found, resume in self._read_level(length, start, limit + 1 - len(ways)):
                if full is not None and found:
                    return ways, full
                taken = 0
                while taken < len(found) and len(ways) < limit and steps < STEPS_MOST:
                    ways.append(self._access_path(length, found[taken]))
                    steps += length
                    taken += 1
                position = _make_position(length, position.found or taken > 0, resume)
                if taken and (len(ways) == limit or steps >= STEPS_MOST):
                    last = found[taken - 1]
                    full = _make_position(length, True, (*last[:-1], text_after(last[-1])))
                    if taken < len(found):
                        return ways, full
                if self._spent >= self.bounds.read:
                    return ways, full or position
            if not position.found or (self.levels.whole and length >= len(self.levels.loaded)):
                break
            position = HoldersCursor(length + 1)
        return ways, None

    def _chain_size(self, length: int) -> int:
        """Return how many ids a chain of a level has: in a kept one a parent's and its own, in the base only its own."""
        kept = len(self.levels.loaded)
        return 2 if length < kept or (length == kept and self.levels.whole) else length - self.levels.frontier_length + 1

    def _access_path(self, length: int, chain: Chain) -> AccessPath:
        if length <= len(self.levels.loaded):
            return self.levels.access_path(chain[-1])
        if not self.levels.loaded:
            return (
                *(PathStep(role, StepKind.MEMBER) for role in reversed(chain[1:])),
                PathStep(chain[0], self._by[chain[0]]),
            )
        return (*(PathStep(role, StepKind.MEMBER) for role in reversed(chain[1:])), *self.levels.access_path(chain[0]))

    async def _read_level(self, length: int, start: Chain, wanted: int) -> AsyncIterator[tuple[list[Chain], Chain]]:
        """Return the chains of a level, from the ids ``start`` on, in batches, each with the ids at which it continues."""
        kept = self.levels.loaded
        if length <= len(kept):
            own = [(parent, role)[-self._chain_size(length) :] for role, parent in kept[length - 1].items()]
            found = sorted(chain for chain in own if chain >= start)
            for begin in range(0, len(found), self.bounds.batch):
                part = found[begin : begin + self.bounds.batch]
                yield part, (*part[-1][:-1], text_after(part[-1][-1]))
        elif length == 1:
            async for batch in self._read_first_level(start[0] if start else "", wanted):
                yield batch
        else:
            async for prefixes, resume in self._read_level(length - 1, start[:-1], wanted):
                led = {prefix[-1]: prefix for prefix in prefixes}
                asked = [(role, start[-1] if start and prefix == start[:-1] else "") for role, prefix in led.items()]
                while asked:
                    limit = self._batch_size(wanted)
                    rows = await self.store.list_direct_members(asked, limit)
                    self._spent += len(rows)
                    asked = remaining_requests(asked, rows, limit)
                    accepted = await self._filter_accepted(length, rows)
                    chains = [(*led[role], member) for role, member in accepted]
                    yield chains, (*led[asked[0][0]], asked[0][1]) if asked else (*resume, "")
                if not led:
                    yield [], (*resume, "")

    async def _read_first_level(self, start: str, wanted: int) -> AsyncIterator[tuple[list[Chain], Chain]]:
        """Return the first level, which is not kept."""
        while True:
            limit = self._batch_size(wanted)
            steps = await self.store.list_direct_holders(self.levels.target, start, limit)
            self._spent += len(steps)
            roles = [step.role for step in steps if step.role is not None]
            self._by.update((step.role, step.kind) for step in steps if step.role is not None)
            if roles:
                start = text_after(roles[-1])
                yield [(role,) for role in roles], (start,)
            if len(steps) < limit:
                return

    def _batch_size(self, wanted: int) -> int:
        """Return how many rows to read at once: for a page that is not full yet, about as many as it lacks."""
        return min(self.bounds.batch, max(2 * wanted, 50))

    async def _filter_accepted(self, length: int, rows: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return those of pairs of a role and a member of it of which the member hangs on the role."""
        accepted, rejected = self._accepted.setdefault(length, {}), self._rejected.setdefault(length, {})
        asked: dict[str, str] = {}
        for role, member in rows:
            known = rejected.get(member)
            if not (member in accepted or (known is not None and known <= role) or member in self.levels.lengths):
                asked[member] = min(role, asked.get(member, role))
        if asked:
            steps = length - self.levels.frontier_length - 1
            earlier = await self.store.filter_reached_earlier(tuple(asked.items()), self.levels.frontier, steps)
            rejected.update((member, role) for member, role in asked.items() if member in earlier)
            accepted.update((member, role) for member, role in asked.items() if member not in earlier)
        return [(role, member) for role, member in dict.fromkeys(rows) if accepted.get(member) == role]


def _make_position(length: int, found: bool, start: Chain) -> HoldersCursor:
    if sum(map(len, start)) > POSITION_MOST:
        raise TooManyRoles(ROLES_LIMIT)
    return HoldersCursor(length, found, start)


def remaining_requests(
    asked: Sequence[tuple[str, str]], rows: Sequence[tuple[str, str]], limit: int
) -> list[tuple[str, str]]:
    """Return what remains to be requested after reading these rows, of ``limit`` at most."""
    if len(rows) < limit:
        return []
    role, last = rows[-1]
    place = next(number for number, (name, _) in enumerate(asked) if name == role)
    return [(role, text_after(last)), *asked[place + 1 :]]


@attrs.frozen
class PathSearch:
    """A shortest way of a role to a target; without one, ``certain`` means that there is none."""

    path: AccessPath | None
    certain: bool


async def find_path(store: AccessStore, role: str, target: AccessTarget, bounds: WalkBounds) -> PathSearch:
    """Return the way of a role to the target, if that is found soon."""
    above = await RoleClosure.read(store, role, bounds)
    found = await store.filter_direct_holders(target, above.roles)
    if found:
        return PathSearch(above.access_path(min(found, key=above.sort_key)), certain=True)
    return PathSearch(None, certain=True) if above.whole else await find_far_path(store, role, target, bounds, 1)


async def find_far_path(
    store: AccessStore, role: str, target: AccessTarget, bounds: WalkBounds, most: int = DEPTH_MOST
) -> PathSearch:
    """Return the way of a role that holds many others: from the resource, as far as that is kept, then from the role.

    :param most: how many memberships there may be between the levels that are kept and the role.
    """
    levels = await PrivilegeHolderLevels.read(store, target, bounds)
    if role in levels.lengths:
        return PathSearch(levels.access_path(role), certain=True)
    if levels.whole:
        return PathSearch(None, certain=True)
    base, way, here = levels.frontier, [PathStep(role, StepKind.MEMBER)], role
    for far in range(most):
        if (there := await store.find_nearest_role(role, base, far)) is None:
            continue
        for steps in range(far, -1, -1):
            if steps < far:
                there = await store.find_nearest_role(here, base, steps)
            if there is None:
                break  # It was revoked meanwhile.
            here = there
            way += [PathStep(here, StepKind.MEMBER)] if steps else []
        else:
            rest = levels.access_path(here) if levels.loaded else tuple(await store.filter_direct_holders(target, [here]))
            return PathSearch((*way, *rest), certain=True)
        break
    return PathSearch(None, certain=False)


@attrs.frozen
class RoleClosure:
    """The roles that a role holds, level by level, as far as they are few: ``whole`` when these are all."""

    levels: Sequence[dict[str, str]]
    whole: bool
    #: How many memberships away each of them is.
    distances: dict[str, int] = attrs.field(init=False, repr=False)

    @distances.default
    def _default_distances(self) -> dict[str, int]:
        return {role: number for number, level in enumerate(self.levels) for role in level}

    @classmethod
    async def read(cls, store: AccessStore, role: str, bounds: WalkBounds) -> RoleClosure:
        """Read them."""
        levels, known, edges = [{role: ""}], {role}, 0
        while levels[-1]:
            found: dict[str, str] = {}
            asked = [(name, "") for name in sorted(levels[-1])]
            while asked:
                limit = min(bounds.batch, bounds.edges + 1 - edges, bounds.roles + 1)
                if limit <= 0 or len(known) + len(found) > bounds.roles:
                    return cls(levels, whole=False)
                rows = await store.list_direct_memberships(asked, limit)
                edges += len(rows)
                for name, held in rows:
                    if held not in known:
                        found.setdefault(held, name)
                asked = remaining_requests(asked, rows, limit)
            if len(known) + len(found) > bounds.roles:
                return cls(levels, whole=False)
            levels.append(found)
            known |= found.keys()
        return cls(levels[:-1], whole=True)

    @property
    def roles(self) -> Collection[str]:
        """Return them all."""
        return self.distances

    def sort_key(self, step: PathStep) -> tuple[int, bool, str]:
        """Return the place of a last step among others: near ones first, of these owners, then by id."""
        role = step.role or ""
        return self.distances[role], step.kind is not StepKind.OWNER, role

    def access_path(self, last: PathStep) -> AccessPath:
        """Return the way that ends with this step."""
        length, _, role = self.sort_key(last)
        steps = [last]
        for level in reversed(self.levels[1 : length + 1]):
            role = level[role]
            steps.append(PathStep(role, StepKind.MEMBER))
        return tuple(reversed(steps))
