"""The health of all servers of the cluster, this one first, at one moment."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from svc.cluster.members import IMembers
from svc.cluster.reports import MemberHealth, member_health
from svc.health.checks_loop import IHealth
from svc.model.dialect import Dialect


@attrs.frozen
class Overview:
    """The health of all servers; ``contenders`` are the members that have two primaries between them, by name."""

    checks: IHealth
    dialect: Dialect
    members: IMembers
    contenders: Callable[[], frozenset[str]]

    async def servers(self) -> list[MemberHealth]:
        """Return this server and all members, as they are now or last reported."""
        contenders = self.contenders()
        return [self._own(), *(_contended(each, contenders) for each in await self.members.overview())]

    def _own(self) -> MemberHealth:
        report = self.checks.report(self.dialect)
        age = 0.0 if report.moment is None else max(0.0, self.checks.now() - report.moment)
        document = report.document()
        document["cluster"] = {**document.get("cluster", {}), "node": report.node()}
        # A server doesn't know its own name.
        return member_health("this server", document, here=True, changed=max(report.changed.values()), age=age)


def _contended(each: MemberHealth, contenders: frozenset[str]) -> MemberHealth:
    if each.name not in contenders:
        return each
    return attrs.evolve(each, word="failed" if each.reachable else each.word, primaries="two")
