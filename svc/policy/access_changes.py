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

from svc.model.access import AccessPath, PathStep, StepKind
from svc.model.policy_loads import AccessChange, NameSample
from svc.policy.access_edges import Edge, Hop, MemberGraph

#: How many changes that differ only in their roles and resources are reported one by one.
SEPARATE_MOST: Final = 10
#: How many names of roles, and of resources, a change has.
NAMES_MOST: Final = 5


class GainedAccess(NamedTuple):
    """The privileges gained, and how: ``through`` is the next role on the way to ``base``, which has them itself.

    With ``owner`` these are all privileges except those ``excepted``, which the roles had before.
    """

    privileges: tuple[str, ...]
    owner: bool
    excepted: tuple[str, ...]
    through: str | None
    base: str


#: The access from before, by resources and roles.
AccessBefore = Mapping[str, Mapping[str, Sequence[Edge]]]


@attrs.frozen(eq=False)
class PossiblyHeldRoles:
    """The ``roles``, of those that had something before, that others may have held, unless it is known that they did."""

    roles: AbstractSet[str]
    _access_before: AccessBefore
    _edges: dict[str, list[Edge]] = attrs.field(factory=dict)

    def edges_to(self, resource: str) -> Sequence[Edge]:
        """Return the access that these had to a resource."""
        if resource not in self._edges:
            of_resource = self._access_before.get(resource, {})
            self._edges[resource] = [edge for role in _intersect(of_resource, self.roles) for edge in of_resource[role]]
        return self._edges[resource]


@attrs.define
class RoleClass:
    """Roles that all reach the same ``bases`` by the same hops, and held the same of the roles that had something before."""

    bases: Mapping[str, Hop]
    held: frozenset[str]
    #: The others that had something before, for which it isn't known whether these roles held them.
    uncertain: PossiblyHeldRoles
    roles: list[str] = attrs.field(factory=list)

    def compute_gains(
        self, grants: Mapping[str, Sequence[Edge]], stood: AccessBefore
    ) -> tuple[dict[GainedAccess, list[str]], set[str], int]:
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
        gained: dict[GainedAccess, list[str]] = {}
        unsettled: set[str] = set()
        lookups = 0
        for resource, privileges in ways.items():
            before, doubtful = stood.get(resource, {}), self.uncertain.edges_to(resource)
            lookups += min(len(before), len(self.held)) + len(doubtful)
            had = {edge.label for role in _intersect(before, self.held) for edge in before[role]}
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
            for manner in self._group_by_base({each: privileges[each] for each in wanted}, had):
                gained.setdefault(manner, []).append(resource)
        return gained, unsettled, lookups

    def _group_by_base(
        self, privileges: Mapping[str | None, tuple[int, str]], had: Collection[str | bool | None]
    ) -> Iterator[GainedAccess]:
        if None in privileges:
            _, base = privileges[None]
            yield GainedAccess((), True, tuple(sorted(map(str, had))), self.bases[base].next, base)
            return
        by_base: dict[str, list[str]] = {}
        for privilege, (_, base) in privileges.items():
            by_base.setdefault(base, []).append(str(privilege))
        for base, several in by_base.items():
            yield GainedAccess(tuple(sorted(several)), False, (), self.bases[base].next, base)


def _intersect(some: Collection[str], others: Collection[str]) -> list[str]:
    """Return the intersection, at the cost of the smaller."""
    if len(some) > len(others):
        some, others = others, some
    return [each for each in some if each in others]


class _ChangeKey(NamedTuple):
    """The fields that summed changes have in common."""

    role_kind: str
    role_differs: bool
    resource_kind: str
    resource_differs: bool
    privileges: tuple[str, ...]
    owner: bool
    excepted: tuple[str, ...]


@attrs.frozen(eq=False)
class _RoleSample:
    """Roles of one class and kind in a change: how many they are, and the first of them, in order."""

    count: int
    first: tuple[str, ...]


@attrs.frozen
class _SummedChange:
    key: _ChangeKey
    through: str | None
    base: str  #: empty where each role has it itself
    roles: frozenset[_RoleSample]
    resources: frozenset[str]
    pairs: int

    @property
    def first_role(self) -> str:
        """The first of the roles."""
        return min(roles.first[0] for roles in self.roles)


@attrs.define
class ChangeSummary:
    """Gains or losses, summed as a caller may know them who sees what is ``visible``, or all.

    ``differing`` are the things that the load creates or deletes. ``hidden``: whether there are unreported ones among them;
    ``hidden_same``: among others.
    """

    differing: Collection[str]
    visible: frozenset[str] | None
    hidden: bool = False
    hidden_same: bool = False
    _found: dict[tuple[_ChangeKey, str | None, str, frozenset[str]], set[_RoleSample]] = attrs.field(factory=dict)

    def add_gains(self, roles: Iterable[str], gained: Mapping[GainedAccess, Sequence[str]]) -> None:
        """Add the gains of each of these roles; none of them was added before."""
        parts = [
            (kind, differs, self._sample_roles(several), len(several)) for kind, differs, several in self._group_names(roles)
        ]
        for manner, resources in gained.items():
            for resource_kind, resource_differs, all_on in self._group_names(resources):
                on = self._visible_among(all_on)
                for role_kind, role_differs, of, all_of in parts:
                    if of.count < all_of or len(on) < len(all_on):
                        if role_differs or resource_differs:
                            self.hidden = True
                        else:
                            self.hidden_same = True
                    if of.count and on:
                        change_key = _ChangeKey(role_kind, role_differs, resource_kind, resource_differs, *manner[:3])
                        base = "" if manner.through is None else manner.base
                        key = change_key, self._visible_or_none(manner.through), base, on
                        self._found.setdefault(key, set()).add(of)

    def list_changes(self, graph: MemberGraph) -> list[AccessChange]:
        """Return the sums, those about things that existed and stay first; ``graph`` has the ways."""
        found = [
            _SummedChange(
                change_key, through, base, frozenset(roles), resources, sum(each.count for each in roles) * len(resources)
            )
            for (change_key, through, base, resources), roles in self._found.items()
        ]
        found = _combine_common(found, lambda change: (change.key, change.through is None, change.through))
        found = _combine_common(found, lambda change: change.key)
        found.sort(key=_sort_key)
        return [self._to_access_change(change, graph) for change in found]

    def _group_names(self, names: Iterable[str]) -> Iterator[tuple[str, bool, list[str]]]:
        """Divide names by kind, and by whether they differ."""

        def kind_and_difference(name: str) -> tuple[str, bool]:
            return name.split(":", 2)[1], name in self.differing

        for (kind, differs), several in groupby(sorted(names, key=kind_and_difference), kind_and_difference):
            yield kind, differs, list(several)

    def _visible_among(self, names: Iterable[str]) -> frozenset[str]:
        return frozenset(names) if self.visible is None else self.visible.intersection(names)

    def _sample_roles(self, roles: Iterable[str]) -> _RoleSample:
        seen = self._visible_among(roles)
        return _RoleSample(len(seen), tuple(nsmallest(max(1, NAMES_MOST), seen)))

    def _visible_or_none(self, name: str | None) -> str | None:
        return name if self.visible is None or name in self.visible else None

    def _to_access_change(self, change: _SummedChange, graph: MemberGraph) -> AccessChange:
        change_key = change.key
        count, resources = sum(roles.count for roles in change.roles), sorted(change.resources)
        roles = nsmallest(NAMES_MOST, chain.from_iterable(roles.first for roles in change.roles))
        return AccessChange(
            NameSample(change_key.role_kind, count, tuple(roles), change_key.role_differs),
            NameSample(change_key.resource_kind, len(resources), tuple(resources[:NAMES_MOST]), change_key.resource_differs),
            change_key.privileges,
            change_key.owner,
            change_key.excepted,
            change.through,
            change.pairs,
            self._build_path(
                graph.find_path(change.first_role, change.base or change.first_role),
                StepKind.OWNER if change_key.owner else StepKind.PERMITTED,
            ),
        )

    def _build_path(self, roles: Sequence[str] | None, last: StepKind) -> AccessPath | None:
        """Return a way, with the roles in a row that are not seen as one step."""
        if roles is None:
            return None
        steps = list[PathStep]()
        for number, role in enumerate(roles, 1):
            step = PathStep(self._visible_or_none(role), StepKind.MEMBER if number < len(roles) else last)
            if step.role is None and steps and steps[-1].role is None:
                steps.pop()
            steps.append(step)
        return tuple(steps)


def _combine_common(
    changes: Sequence[_SummedChange], common: Callable[[_SummedChange], tuple[object, ...]]
) -> list[_SummedChange]:
    """Return changes, where too many that have the same in common are combined to one."""
    groups: dict[tuple[object, ...], list[_SummedChange]] = {}
    for change in changes:
        groups.setdefault(common(change), []).append(change)
    return [
        change for group in groups.values() for change in (group if len(group) <= SEPARATE_MOST else [_merge_group(group)])
    ]


def _merge_group(group: Sequence[_SummedChange]) -> _SummedChange:
    first = min(group, key=lambda change: (change.first_role, change.base))
    throughs = {change.through for change in group}
    return attrs.evolve(
        first,
        through=first.through if len(throughs) == 1 else None,
        roles=frozenset[_RoleSample]().union(*(change.roles for change in group)),
        resources=frozenset[str]().union(*(change.resources for change in group)),
        pairs=sum(change.pairs for change in group),
    )


def _sort_key(change: _SummedChange) -> tuple[object, ...]:
    differs = change.key.role_differs or change.key.resource_differs
    return differs, -change.pairs, change.first_role, min(change.resources), change.key, change.base
