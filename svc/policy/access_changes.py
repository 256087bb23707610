"""The gains of access by a load, or the losses, which are the gains of undoing it; and how they are summed.

Note [All alike]. Roles that reach the same by the same next steps, and that had the same, are a class, and evaluated once.
The gains of a class are reported for all of its roles: so a layer with a hundred thousand hosts costs what one with a few
does. Sums have classes, too, which have no role in common.

Note [Sums]. All that the same roles gain on the same resources by the same way is one change. If many changes differ only in
their roles and resources, they are combined to one too, which has the number of pairs of a role and a resource in it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from heapq import nsmallest
from itertools import chain, groupby
from typing import Final, NamedTuple

import attrs

from svc.model.access import By, Way, WayStep
from svc.model.policy_loads import AccessChange, NamesOf
from svc.policy.access_edges import Edge, Hop, MemberGraph

#: How many changes that differ only in their roles and resources are reported one by one.
APART_MOST: Final = 10
#: How many names of roles, and of resources, a change has.
NAMES_MOST: Final = 5


class Manner(NamedTuple):
    """The privileges gained, and how: ``through`` is the next role on the way to ``base``, which has them itself.

    With ``owner`` these are all privileges except those ``excepted``, which the roles had before.
    """

    privileges: tuple[str, ...]
    owner: bool
    excepted: tuple[str, ...]
    through: str | None
    base: str


#: The access from before, by resources and roles.
Stood = Mapping[str, Mapping[str, Sequence[Edge]]]


@attrs.frozen(eq=False)
class Doubt:
    """The ``roles``, of those that had something before, that others may have held, unless it is known that they did."""

    roles: AbstractSet[str]
    _stood: Stood
    _edges: dict[str, list[Edge]] = attrs.field(factory=dict)

    def edges(self, resource: str) -> Sequence[Edge]:
        """Return the access that these had to a resource."""
        if resource not in self._edges:
            of_resource = self._stood.get(resource, {})
            self._edges[resource] = [edge for role in _both(of_resource, self.roles) for edge in of_resource[role]]
        return self._edges[resource]


@attrs.define
class Alike:
    """Roles that all reach the same ``bases`` by the same hops, and held the same of the roles that had something before."""

    bases: Mapping[str, Hop]
    held: frozenset[str]
    #: The others that had something before, for which it isn't known whether these roles held them.
    doubt: Doubt
    roles: list[str] = attrs.field(factory=list)

    def gains(self, grants: Mapping[str, Sequence[Edge]], stood: Stood) -> tuple[dict[Manner, list[str]], set[str], int]:
        """Return the resources on which they gain, the doubtful roles that prevent reporting others, and the number of
        comparisons.

        :param grants: the access after the load, by roles.
        """
        ways: dict[str, dict[str | None, tuple[int, str]]] = {}
        for base, hop in self.bases.items():
            for grant in grants[base]:
                assert not isinstance(grant.label, bool)
                of_resource = ways.setdefault(grant.upper, {})
                of_resource[grant.label] = min(of_resource.get(grant.label, (hop.distance, base)), (hop.distance, base))
        gained: dict[Manner, list[str]] = {}
        unsettled: set[str] = set()
        looks = 0
        for resource, privileges in ways.items():
            before, doubtful = stood.get(resource, {}), self.doubt.edges(resource)
            looks += min(len(before), len(self.held)) + len(doubtful)
            had = {edge.label for role in _both(before, self.held) for edge in before[role]}
            wanted = {None} if None in privileges else privileges.keys() - had
            if None in had or not wanted:
                continue
            if doubts := {
                edge.lower
                for edge in doubtful
                if edge.lower not in self.held and (edge.label is None or None in wanted or edge.label in wanted)
            }:
                unsettled |= doubts
                continue
            for manner in self._manners({each: privileges[each] for each in wanted}, had):
                gained.setdefault(manner, []).append(resource)
        return gained, unsettled, looks

    def _manners(
        self, privileges: Mapping[str | None, tuple[int, str]], had: Collection[str | bool | None]
    ) -> Iterator[Manner]:
        if None in privileges:
            _, base = privileges[None]
            yield Manner((), True, tuple(sorted(map(str, had))), self.bases[base].next, base)
            return
        by_base: dict[str, list[str]] = {}
        for privilege, (_, base) in privileges.items():
            by_base.setdefault(base, []).append(str(privilege))
        for base, several in by_base.items():
            yield Manner(tuple(sorted(several)), False, (), self.bases[base].next, base)


def _both(some: Collection[str], others: Collection[str]) -> list[str]:
    """Return the intersection, at the cost of the smaller."""
    if len(some) > len(others):
        some, others = others, some
    return [each for each in some if each in others]


class _Told(NamedTuple):
    """The fields that summed changes have in common."""

    role_kind: str
    role_differs: bool
    resource_kind: str
    resource_differs: bool
    privileges: tuple[str, ...]
    owner: bool
    excepted: tuple[str, ...]


@attrs.frozen(eq=False)
class _Roles:
    """Roles of one class and kind in a change: how many they are, and the first of them, in order."""

    count: int
    first: tuple[str, ...]


@attrs.frozen
class _Change:
    told: _Told
    through: str | None
    base: str  #: empty where each role has it itself
    roles: frozenset[_Roles]
    resources: frozenset[str]
    pairs: int

    @property
    def first(self) -> str:
        """The first of the roles."""
        return min(roles.first[0] for roles in self.roles)


@attrs.define
class Summary:
    """Gains or losses, summed as a caller may know them who sees what is ``visible``, or all.

    ``differing`` are the things that the load creates or deletes. ``hidden``: whether there are unreported ones among them;
    ``hidden_same``: among others.
    """

    differing: Collection[str]
    visible: frozenset[str] | None
    hidden: bool = False
    hidden_same: bool = False
    _found: dict[tuple[_Told, str | None, str, frozenset[str]], set[_Roles]] = attrs.field(factory=dict)

    def add(self, roles: Iterable[str], gained: Mapping[Manner, Sequence[str]]) -> None:
        """Add the gains of each of these roles; none of them was added before."""
        parts = [(kind, differs, self._told(several), len(several)) for kind, differs, several in self._parts(roles)]
        for manner, resources in gained.items():
            for resource_kind, resource_differs, all_on in self._parts(resources):
                on = self._seen(all_on)
                for role_kind, role_differs, of, all_of in parts:
                    if of.count < all_of or len(on) < len(all_on):
                        if role_differs or resource_differs:
                            self.hidden = True
                        else:
                            self.hidden_same = True
                    if of.count and on:
                        told = _Told(role_kind, role_differs, resource_kind, resource_differs, *manner[:3])
                        base = "" if manner.through is None else manner.base
                        key = told, self._shown(manner.through), base, on
                        self._found.setdefault(key, set()).add(of)

    def changes(self, graph: MemberGraph) -> list[AccessChange]:
        """Return the sums, those about things that existed and stay first; ``graph`` has the ways."""
        found = [
            _Change(told, through, base, frozenset(roles), resources, sum(each.count for each in roles) * len(resources))
            for (told, through, base, resources), roles in self._found.items()
        ]
        found = _summed(found, lambda change: (change.told, change.through is None, change.through))
        found = _summed(found, lambda change: change.told)
        found.sort(key=_place)
        return [self._change(change, graph) for change in found]

    def _parts(self, names: Iterable[str]) -> Iterator[tuple[str, bool, list[str]]]:
        """Divide names by kind, and by whether they differ."""

        def part(name: str) -> tuple[str, bool]:
            return name.split(":", 2)[1], name in self.differing

        for (kind, differs), several in groupby(sorted(names, key=part), part):
            yield kind, differs, list(several)

    def _seen(self, names: Iterable[str]) -> frozenset[str]:
        return frozenset(names) if self.visible is None else self.visible.intersection(names)

    def _told(self, roles: Iterable[str]) -> _Roles:
        seen = self._seen(roles)
        return _Roles(len(seen), tuple(nsmallest(max(1, NAMES_MOST), seen)))

    def _shown(self, name: str | None) -> str | None:
        return name if self.visible is None or name in self.visible else None

    def _change(self, change: _Change, graph: MemberGraph) -> AccessChange:
        told = change.told
        count, resources = sum(roles.count for roles in change.roles), sorted(change.resources)
        roles = nsmallest(NAMES_MOST, chain.from_iterable(roles.first for roles in change.roles))
        return AccessChange(
            NamesOf(told.role_kind, count, tuple(roles), told.role_differs),
            NamesOf(told.resource_kind, len(resources), tuple(resources[:NAMES_MOST]), told.resource_differs),
            told.privileges,
            told.owner,
            told.excepted,
            change.through,
            change.pairs,
            self._way(graph.way(change.first, change.base or change.first), By.OWNER if told.owner else By.PERMITTED),
        )

    def _way(self, roles: Sequence[str] | None, last: By) -> Way | None:
        """Return a way, with the roles in a row that are not seen as one step."""
        if roles is None:
            return None
        steps = list[WayStep]()
        for number, role in enumerate(roles, 1):
            step = WayStep(self._shown(role), By.MEMBER if number < len(roles) else last)
            if step.role is None and steps and steps[-1].role is None:
                steps.pop()
            steps.append(step)
        return tuple(steps)


def _summed(changes: Sequence[_Change], common: Callable[[_Change], tuple[object, ...]]) -> list[_Change]:
    """Return changes, where too many that have the same in common are combined to one."""
    groups: dict[tuple[object, ...], list[_Change]] = {}
    for change in changes:
        groups.setdefault(common(change), []).append(change)
    return [change for group in groups.values() for change in (group if len(group) <= APART_MOST else [_merged(group)])]


def _merged(group: Sequence[_Change]) -> _Change:
    first = min(group, key=lambda change: (change.first, change.base))
    throughs = {change.through for change in group}
    return attrs.evolve(
        first,
        through=first.through if len(throughs) == 1 else None,
        roles=frozenset[_Roles]().union(*(change.roles for change in group)),
        resources=frozenset[str]().union(*(change.resources for change in group)),
        pairs=sum(change.pairs for change in group),
    )


def _place(change: _Change) -> tuple[object, ...]:
    differs = change.told.role_differs or change.told.resource_differs
    return differs, -change.pairs, change.first, min(change.resources), change.told, change.base
