"""Access as a graph, of which a load changes some edges: before it, after it, and the edges of both.

An *edge* leads from a member to its role, or from a role to a resource that it owns or is permitted a privilege on. A role
has the privileges to which edges lead from it, one after the other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

import attrs

from svc.model.policy_loads import Rows, Side


class Edge(NamedTuple):
    """An edge: its upper end, its lower end, and a label that distinguishes it from others between the two.

    The label of a membership is whether it is by ownership; on a resource, the privilege, ``None`` for the owner's: all.
    """

    upper: str
    lower: str
    label: str | bool | None


Index = Mapping[Side, Mapping[str, Sequence[Edge]]]

#: How many roles a way has at most.
PATH_MOST: Final = 64

#: The sides that lead up from names.
_UP: Final = {Side.HELD, Side.GRANTED}


def role_edges(rows: Rows) -> set[Edge]:
    """Return the edges between roles."""
    return {Edge(row.role, row.member, row.ownership) for row in rows.memberships}


def resource_edges(rows: Rows) -> set[Edge]:
    """Return the edges between roles and resources."""
    owned = (Edge(row.resource, row.owner, None) for row in rows.resources)
    return {*owned, *(Edge(row.resource, row.role, row.privilege) for row in rows.permissions)}


def near_end(side: Side, edge: Edge) -> str:
    """Return the end of an edge at which a side begins."""
    return edge.lower if side in _UP else edge.upper


def far_end(side: Side, edge: Edge) -> str:
    """Return the end of an edge to which a side leads."""
    return edge.upper if side in _UP else edge.lower


def group_by_near_end(side: Side, edges: Iterable[Edge]) -> dict[str, list[Edge]]:
    """Return edges by the names at which the side begins."""
    found: dict[str, list[Edge]] = {}
    for edge in edges:
        found.setdefault(near_end(side, edge), []).append(edge)
    return found


def index_edges(links: Iterable[Edge], grants: Iterable[Edge]) -> Index:
    """Return edges by side and name."""
    links, grants = tuple(links), tuple(grants)
    return {side: group_by_near_end(side, links if side in {Side.MEMBERS, Side.HELD} else grants) for side in Side}


@attrs.frozen
class AccessSnapshot:
    """The edges before a load or after it: those that were read (``known``), without ``removed``, with ``added``."""

    known: Mapping[Side, Mapping[str, Sequence[Edge]]]
    added: Index
    removed: Index

    def edges_from(self, side: Side, name: str) -> Iterator[Edge]:
        """Return the edges that lead on from a name, as far as they were read, some twice."""
        minus = self.removed[side].get(name, ())
        gone = set(minus) if minus else minus
        return chain((edge for edge in self.known[side].get(name, ()) if edge not in gone), self.added[side].get(name, ()))

    def names_from(self, side: Side, name: str) -> Iterator[str]:
        """Return the names to which these edges lead."""
        return (far_end(side, edge) for edge in self.edges_from(side, name))


class Hop(NamedTuple):
    """The distance of a role from another, in memberships, and the next role on a shortest way there."""

    distance: int
    next: str | None


class MemberGraph:
    """Roles and their direct members. ``steps``: how many more all walks may take, except those for ways, which have as many
    of their own.
    """

    def __init__(self, steps: int) -> None:
        self.steps = self._path_steps = steps
        self._trees: dict[str, dict[str, str]] = {}
        self._members: dict[str, set[str]] = {}
        self._held: dict[str, set[str]] = {}

    def add_memberships(self, moment: AccessSnapshot, side: Side, names: Iterable[str]) -> None:
        """Add the memberships that a moment has on a side, ``MEMBERS`` or ``HELD``, of these roles."""
        for name in names:
            self.add_edges(moment.edges_from(side, name))

    def add_edges(self, edges: Iterable[Edge]) -> None:
        """Add memberships."""
        for edge in edges:
            self._members.setdefault(edge.upper, set()).add(edge.lower)
            self._held.setdefault(edge.lower, set()).add(edge.upper)

    def all_holders(self, roles: Iterable[str]) -> set[str]:
        """Return the roles, and all that hold any of them."""
        return _collect_reachable(roles, self._members)

    def all_held(self, roles: Iterable[str]) -> set[str]:
        """Return the roles, and all that any of them holds."""
        return _collect_reachable(roles, self._held)

    def hops_to(self, role: str) -> dict[str, Hop]:
        """Return all that hold a role, itself among them, with their hops to it; fewer when no steps are left."""
        found = {role: Hop(0, None)}
        level = [role]
        while level and self.steps > 0:
            coming = []
            for upper in level:
                hop = Hop(found[upper].distance + 1, upper)
                for member in self._follow_edges(upper, self._members):
                    if member not in found:
                        found[member] = hop
                        coming.append(member)
            # The next role is the first by id: a report is the same each time.
            level = sorted(coming)
        return found

    def hops_from(self, role: str) -> dict[str, Hop]:
        """Return all that a role holds, itself among them, with its hops to each; fewer when no steps are left."""
        found = {role: Hop(0, None)}
        level = [role]
        while level and self.steps > 0:
            coming = []
            for lower in level:
                distance, first = found[lower]
                for upper in self._follow_edges(lower, self._held):
                    hop = Hop(distance + 1, upper if first is None else first)
                    if upper not in found or found[upper] > hop:
                        coming += [upper] * (upper not in found)
                        found[upper] = hop
            level = coming
        return found

    def find_path(self, role: str, base: str) -> list[str] | None:
        """Return the roles on a shortest way from one role to another that it holds, both among them.

        The second is the role to which the first role's hop leads. ``None``: it is longer than ``PATH_MOST``, or no steps
        are left to find it.
        """
        before = self._trees[role] if role in self._trees else self._trees.setdefault(role, self._search_tree(role))
        if base not in before:
            return None
        roles = [base]
        while roles[-1] != role:
            roles.append(before[roles[-1]])
        return roles[::-1]

    def _search_tree(self, role: str) -> dict[str, str]:
        """Return all that a role holds within ``PATH_MOST`` roles, each with the one before it on the way there."""
        before = {role: role}
        level = [role]
        for _ in range(PATH_MOST - 1):
            coming = []
            for lower in level:
                if self._path_steps <= 0:
                    return before
                uppers = self._held.get(lower, ())
                self._path_steps -= 1 + len(uppers)
                for upper in sorted(uppers):
                    if upper not in before:
                        before[upper] = lower
                        coming.append(upper)
            level = coming
        return before

    def _follow_edges(self, role: str, edges: Mapping[str, set[str]]) -> Collection[str]:
        following = edges.get(role, ())
        self.steps -= 1 + len(following)
        return following


def _collect_reachable(roles: Iterable[str], edges: Mapping[str, set[str]]) -> set[str]:
    found = set(roles)
    coming = list(found)
    while coming:
        new = edges.get(coming.pop(), set()) - found
        found |= new
        coming += new
    return found
