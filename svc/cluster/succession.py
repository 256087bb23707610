"""The standby that would take over if the primary were lost, as far as PostgreSQL and the members report.

An operator decides, or a program such as Patroni. Both rely on this: a synchronous standby has all confirmed changes; of the
others, even the one that lags least may lack the last of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import attrs

from svc.cluster.reports import MemberHealth
from svc.model.databases import AttachedStandby

#: PostgreSQL's words for a standby that changes wait for; with ``quorum`` they wait for some of several.
_SYNCHRONOUS: Final = frozenset({"sync", "quorum"})
_STREAMING: Final = "streaming"


@attrs.frozen
class Successor:
    """A standby, by the name that its primary or the settings give it; ``complete``: it has all that was confirmed."""

    name: str
    complete: bool

    def document(self) -> dict[str, Any]:
        """Return the same as JSON has it."""
        return attrs.asdict(self)


def find_successor(servers: Sequence[MemberHealth]) -> Successor | None:
    """Return the standby that would take over; ``None`` if there is none, or more than one primary."""
    if any(each.primaries == "two" for each in servers):
        return None
    standbys = next((each.standbys for each in servers if each.role == "primary" and each.standbys is not None), None)
    if standbys is not None:
        return _best_standby(standbys)
    return _best_follower([each for each in servers if each.role == "follower" and each.position is not None])


def describe_succession(first: Successor | None) -> str:
    """Return a sentence about the standby that would take over."""
    if first is None:
        return "If the primary were lost, nobody could take over."
    has = "it has every confirmed change" if first.complete else "it may lack the last changes"
    return f"If the primary were lost, {first.name} would take over: {has}."


def differing_versions(servers: Sequence[MemberHealth]) -> dict[str, list[str]]:
    """Return what differs of the versions of programs, PostgreSQL and schema, by kind: all that there are, in order."""
    known = {
        "svc": {each.version for each in servers if each.version},
        "PostgreSQL": {each.release for each in servers if each.release},
        "schema": {f"{each.schema:.0f}" for each in servers if each.schema is not None},
    }
    return {kind: sorted(found) for kind, found in known.items() if len(found) > 1}


def _best_standby(standbys: Sequence[AttachedStandby]) -> Successor | None:
    def rank(each: AttachedStandby) -> tuple[bool, bool, float, str]:
        return each.sync not in _SYNCHRONOUS, each.lag_bytes is None, each.lag_bytes or 0, each.name

    first = min((each for each in standbys if each.state == _STREAMING), key=rank, default=None)
    return None if first is None else Successor(first.name, first.sync == "sync")


def _best_follower(followers: Sequence[MemberHealth]) -> Successor | None:
    def rank(each: MemberHealth) -> tuple[float, float, str]:
        assert each.position is not None
        return -(each.timeline or 0), -(each.position + (each.lag_bytes or 0)), each.name

    first = min(followers, key=rank, default=None)
    return None if first is None else Successor(first.name, complete=False)
