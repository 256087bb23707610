"""The health of all servers of the cluster, this one first, at one moment."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from svc.cluster.members import IMembers
from svc.cluster.reports import MemberHealth, member_health
from svc.health.checks_loop import IHealth
from svc.model.dialect import Dialect


@attrs.frozen
class ClusterOverview:
    """The health of all servers; ``conflicting_members`` are the members that have two primaries between them, by name."""

    checks: IHealth
    dialect: Dialect
    members: IMembers
    conflicting_members: Callable[[], frozenset[str]]

    async def list_servers(self) -> list[MemberHealth]:
        """Return this server and all members, as they are now or last reported."""
        conflicting = self.conflicting_members()
        return [self._own_health(), *(_mark_conflicting(each, conflicting) for each in await self.members.list_health())]

    def _own_health(self) -> MemberHealth:
        report = self.checks.last_report(self.dialect)
        age = 0.0 if report.moment is None else max(0.0, self.checks.now() - report.moment)
        document = report.document()
        document["cluster"] = {**document.get("cluster", {}), "node": report.node_document()}
        # A server doesn't know its own name.
        return member_health("this server", document, here=True, changed=max(report.changed.values()), age=age)


def _mark_conflicting(each: MemberHealth, conflicting: frozenset[str]) -> MemberHealth:
    if each.name not in conflicting:
        return each
    return attrs.evolve(each, word="failed" if each.is_reachable else each.word, primaries="two")
