"""The gains and losses of access by a load: a comparison of who can do what, before it and after it (POL-82 to POL-88).

Note [What can differ]. A role that gains something has it by a way with an edge that the load made. So the roles in question
are those below the new edges, and all that they may gain is granted to the roles above them. Of all that they reach there,
what they had before is no gain. Losses are the gains of the reverse load.

Note [Two ends]. Whether a role had something is known as soon as either all roles that it held were read, or all roles that
held those to which it was granted. An administrator holds a million roles, and a group has a million members, but seldom are
both in question for one pair. So at first neither end is followed through names with very many rows; then pairs that are
still in doubt are followed further. Pairs that stay in doubt are not reported, only that there may be more.

Note [Rows at hand]. After the load, the database has the new state. The state before differs by the rows that the dry run
has read at both moments anyway; all rows of records that the load creates or deletes are among these.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import attrs

from svc.model.policy_loads import Rows, Side
from svc.policy.access_changes import ChangeSummary, GainedAccess, PossiblyHeldRoles, RoleClass
from svc.policy.access_edges import (
    AccessSnapshot,
    Edge,
    Hop,
    Index,
    MemberGraph,
    group_by_near_end,
    index_edges,
    resource_edges,
    role_edges,
)
from svc.storage.policies import PolicyTransaction

#: How many rows are read at most at each step: the roles in question, those above, the grants of these, who else has those,
#: and each end of the earlier state.
READ_MOST: Final = 200_000
#: How many steps from role to member are taken at most for either, and how many grants are compared.
STEPS_MOST: Final = 1_000_000
LOOKUPS_MOST: Final = 1_000_000
#: A name with more rows than these is followed only if nothing else settles the question (Note [Two ends]).
ROWS_FEW: Final = 1000
#: How many names one query has.
_NAMES_BATCH: Final = 5000


@attrs.define
class AccessGains:
    """The gains of roles: each class of them with the resources; ``complete``: none is missing. ``graph`` has their ways."""

    classes: list[tuple[list[str], dict[GainedAccess, list[str]]]] = attrs.field(factory=list)
    graph: MemberGraph = attrs.field(factory=lambda: MemberGraph(STEPS_MOST))
    complete: bool = True

    def mentioned_names(self) -> set[str]:
        """Return all names that may be reported."""
        bases, names = set[str](), set[str]()
        for roles, gained in self.classes:
            if gained:
                names.update(roles, *gained.values())
                bases.update(manner.base for manner in gained)
        return names | (self.graph.all_holders(bases) & self.graph.all_held(names))

    def make_summary(self, differing: Collection[str], visible: frozenset[str] | None) -> ChangeSummary:
        """Return the sums that a caller may know who sees what is ``visible``, or all."""
        summary = ChangeSummary(differing, visible)
        for roles, gained in self.classes:
            summary.add_gains(roles, gained)
        return summary


class AccessEdges:
    """The edges around those that a load changed; ``differing`` are the things that it created or deleted."""

    def __init__(self, transaction: PolicyTransaction, before: Rows, after: Rows) -> None:
        self._transaction = transaction
        self.differing = {row.resource for row in before.resources} ^ {row.resource for row in after.resources}
        old_links, old_grants, new_links, new_grants = (
            role_edges(before),
            resource_edges(before),
            role_edges(after),
            resource_edges(after),
        )
        self._lost = old_links - new_links, old_grants - new_grants
        self._added = new_links - old_links, new_grants - old_grants
        self._changed = sum(map(len, (*self._lost, *self._added)))
        at_hand = index_edges(new_links, new_grants)
        #: The edges that were read, and for each name the number of rows up to which they are complete; ``None``: all.
        self._edges: dict[Side, dict[str, list[Edge]]] = {
            side: {name: list(at_hand[side].get(name, ())) for name in self.differing} for side in Side
        }
        self._extent: dict[Side, dict[str, int | None]] = {side: dict.fromkeys(self.differing) for side in Side}
        self._left = 0

    async def find_gains(self) -> AccessGains:
        """Return the gains of roles."""
        made, lost = index_edges(*self._added), index_edges(*self._lost)
        return await _GainFinder(
            self, self._make_moment(made, lost), self._make_moment(lost, made), *self._added
        ).find_gains()

    async def find_losses(self) -> AccessGains:
        """Return the losses of roles."""
        made, lost = index_edges(*self._added), index_edges(*self._lost)
        return await _GainFinder(
            self, self._make_moment(lost, made), self._make_moment(made, lost), *self._lost
        ).find_gains()

    def reset_budget(self) -> None:
        """Reset the number of rows that one part of a question may read."""
        self._left = READ_MOST

    def _make_moment(self, plus: Index, minus: Index) -> AccessSnapshot:
        return AccessSnapshot(self._edges, plus, minus)

    def incomplete_names(self, side: Side, names: Iterable[str]) -> set[str]:
        """Return those of the names whose edges may not all have been read."""
        extent = self._extent[side]
        return {name for name in names if extent.get(name, 0) is not None}

    async def read_edges(self, side: Side, names: Iterable[str], each: int = READ_MOST) -> None:
        """Read the edges that lead on from names, at most about ``each`` of one name."""
        extent = self._extent[side]
        due = sorted(name for name in names if (known := extent.get(name, 0)) is not None and known < each)
        # Edges that the load made don't count: before it there may have been few.
        rows_each = each + self._changed + 1
        for start in range(0, len(due), _NAMES_BATCH):
            if self._left <= 0:
                return
            some = due[start : start + _NAMES_BATCH]
            rows = await self._transaction.read_adjacent_rows(side, some, rows_each, self._left)
            cut = max(len(rows.resources), len(rows.memberships), len(rows.permissions)) >= self._left
            self._left -= len(rows.resources) + len(rows.memberships) + len(rows.permissions)
            found = group_by_near_end(side, role_edges(rows) if rows.memberships else resource_edges(rows))
            for name in some:
                edges = self._edges[side][name] = found.get(name, [])
                extent[name] = each if cut or len(edges) >= rows_each else None

    async def read_closure(
        self, moment: AccessSnapshot, side: Side, names: Collection[str], each: int = READ_MOST
    ) -> set[str]:
        """Read the edges from names, from the names at their ends, and so on; return all names found, these included."""
        found = set(names)
        level = set(names)
        while level:
            await self.read_edges(side, level, each)
            level = {name for known in level for name in moment.names_from(side, known)} - found
            found |= level
        return found


@attrs.define
class _GainFinder:
    """Finds the access that roles have at ``then``, by new ``links`` and ``grants``, and hadn't at the moment ``first``."""

    _edges: AccessEdges
    _then: AccessSnapshot
    _first: AccessSnapshot
    _links: set[Edge]
    _grants: set[Edge]
    _found: AccessGains = attrs.field(factory=AccessGains)
    _grants_before: dict[str, dict[str, list[Edge]]] = attrs.field(factory=dict)
    _bases: dict[str, list[Edge]] = attrs.field(factory=dict)
    #: The roles that were followed at the other moment.
    _followed: dict[Side, set[str]] = attrs.field(factory=lambda: {Side.MEMBERS: set(), Side.HELD: set()})

    async def find_gains(self) -> AccessGains:
        """Return the gains."""
        self._edges.reset_budget()
        below = await self._find_candidates()
        if not self._bases:
            return self._found
        self._edges.reset_budget()
        resources = {grant.upper for grants in self._bases.values() for grant in grants}
        await self._edges.read_edges(Side.GIVEN, resources)
        if parts := self._edges.incomplete_names(Side.GIVEN, resources):
            self._note_completeness(False)
            self._bases = {
                base: [edge for edge in several if edge.upper not in parts] for base, several in self._bases.items()
            }
        for resource in resources - parts:
            self._grants_before[resource] = group_by_near_end(Side.GRANTED, self._first.edges_from(Side.GIVEN, resource))
        reached = self._find_reached(below)
        roles: Collection[str] = reached
        bases: Collection[str] = set[str]().union(*self._grants_before.values())
        sides = (Side.HELD, Side.MEMBERS) if len(roles) < len(bases) else (Side.MEMBERS, Side.HELD)
        for side, each in ((side, each) for each in (ROWS_FEW, READ_MOST) for side in sides):
            self._edges.reset_budget()
            names = await self._edges.read_closure(self._first, side, bases if side is Side.MEMBERS else roles, each)
            self._followed[side] |= names
            roles, bases = self._evaluate_classes(reached)
            if not bases:
                break
        self._note_completeness(not bases)
        return self._found

    def _note_completeness(self, whole: bool) -> None:
        self._found.complete = self._found.complete and whole

    async def _find_candidates(self) -> set[str]:
        """Return the roles that may gain something, and read the grants and ways that it takes (Note [What can differ])."""
        lowest = {edge.lower for edge in (*self._links, *self._grants)}
        below = await self._edges.read_closure(self._then, Side.MEMBERS, lowest)
        self._edges.reset_budget()
        above = await self._edges.read_closure(self._then, Side.HELD, {edge.upper for edge in self._links})
        self._edges.reset_budget()
        await self._edges.read_edges(Side.GRANTED, above)
        for side, names in ((Side.MEMBERS, below), (Side.HELD, above), (Side.GRANTED, above)):
            self._note_completeness(not self._edges.incomplete_names(side, names))
        grants = {grant for role in above for grant in self._then.edges_from(Side.GRANTED, role)} | self._grants
        # If there are too many grants, those of the last roles in the order are left out.
        lookups = LOOKUPS_MOST
        for base, several in sorted(group_by_near_end(Side.GRANTED, grants).items()):
            lookups -= len(several)
            if lookups < 0:
                self._note_completeness(False)
                break
            self._bases[base] = several
        graph = self._found.graph
        graph.add_memberships(self._then, Side.MEMBERS, below)
        graph.add_memberships(self._then, Side.HELD, above)
        graph.add_edges(self._links)
        return below

    def _find_reached(self, below: set[str]) -> dict[str, dict[str, Hop]]:
        """Return the bases that each role reaches, for those that reach any."""
        graph = self._found.graph
        reached: dict[str, dict[str, Hop]] = {}
        if len(below) < len(self._bases):
            for role in sorted(below):
                hops = graph.hops_from(role)
                if bases := hops.keys() & self._bases.keys():
                    reached[role] = {base: hops[base] for base in sorted(bases)}
        else:
            for base in self._bases:
                hops = graph.hops_to(base)
                for role in hops.keys() & below:
                    reached.setdefault(role, {})[base] = hops[role]
        self._note_completeness(graph.steps > 0)
        return reached

    def _find_held(
        self, graph: MemberGraph, roles: Collection[str], bases: Collection[str]
    ) -> tuple[dict[str, set[str]], set[str], set[str]]:
        """Return which bases each role held, and the bases and roles for which that may be incomplete, for want of steps."""
        held: dict[str, set[str]] = {}
        if len(roles) < len(bases):
            left = set[str]()
            for role in sorted(roles):
                held[role] = graph.hops_from(role).keys() & bases
                left |= {role} if graph.steps <= 0 else set()
            return held, set(), left
        left = set()
        for base in sorted(bases):
            for role in graph.hops_to(base).keys() & roles:
                held.setdefault(role, set()).add(base)
            left |= {base} if graph.steps <= 0 else set()
        return held, left, set()

    def _unfollowed_names(self, side: Side, names: set[str]) -> set[str]:
        """Return those of the names that weren't followed along all their edges, even if these had been read already."""
        return self._edges.incomplete_names(side, names) | (names - self._followed[side])

    def _evaluate_classes(self, reached: Mapping[str, Mapping[str, Hop]]) -> tuple[set[str], set[str]]:
        """Determine what each class gains; return the roles, and those that stood before, for which it is not known."""
        graph = MemberGraph(STEPS_MOST)
        for side, names in self._followed.items():
            graph.add_memberships(self._first, side, names)
        followed = self._followed[Side.MEMBERS] | self._followed[Side.HELD]
        standing = set[str]().union(*self._grants_before.values())
        open_roles = graph.all_holders(self._unfollowed_names(Side.HELD, followed | reached.keys()))
        open_bases = standing & graph.all_held(self._unfollowed_names(Side.MEMBERS, followed | standing))
        held, left_bases, left_roles = self._find_held(graph, reached.keys(), standing)
        of_all, of_open, of_others = (
            PossiblyHeldRoles(names, self._grants_before) for names in (standing, left_bases | open_bases, left_bases)
        )
        classes: dict[tuple[object, ...], RoleClass] = {}
        for role in sorted(reached):
            before = frozenset(held.get(role, ()))
            doubt = of_all if role in left_roles else of_open if role in open_roles else of_others
            key = tuple(reached[role].items()), before, doubt
            classes.setdefault(key, RoleClass(reached[role], before, doubt)).roles.append(role)
        self._found.classes = []
        roles, bases = set[str](), set[str]()
        lookups = LOOKUPS_MOST
        for alike in classes.values():
            lookups -= sum(len(self._bases[base]) for base in alike.bases)
            if lookups < 0:
                self._note_completeness(False)
                break
            gained, unsettled, taken = alike.compute_gains(self._bases, self._grants_before)
            lookups -= taken
            self._found.classes.append((alike.roles, gained))
            if unsettled:
                roles.update(alike.roles)
                bases |= unsettled
        return roles, bases
