"""Who would take over, and which versions differ."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.cluster.reports import MemberHealth
from svc.cluster.succession import Successor, describe_succession, differing_versions, find_successor
from svc.model.databases import AttachedStandby


def standby(name: str, sync: str = "async", lag: int | None = 0, state: str = "streaming") -> AttachedStandby:
    """A standby as its primary sees it."""
    return AttachedStandby(name, state, sync, lag, None, 1.0)


def server(name: str, role: str, **known: Any) -> MemberHealth:
    """A server that answers."""
    return MemberHealth(name=name, here=False, word="ok", role=role, **known)


class SuccessionTests(SynchronousTestCase):
    """The successor of a primary."""

    def test_by_the_primary(self) -> None:
        """A standby that changes wait for comes first, and has every confirmed change; then the one that lags least. One
        that doesn't stream is none (OPS-5).
        """
        for standbys, wanted in (
            ([], None),
            ([standby("a", lag=9), standby("b", lag=3), standby("c", lag=None)], Successor("b", False)),
            ([standby("a"), standby("b", "sync", 99)], Successor("b", True)),
            ([standby("a", "potential"), standby("b", "sync", 99)], Successor("b", True)),
            ([standby("b", "quorum", 2), standby("a", "quorum", 3), standby("c")], Successor("b", False)),
            ([standby("b"), standby("a")], Successor("a", False)),
            ([standby("a", "sync", state="catchup"), standby("b")], Successor("b", False)),
            ([standby("a", state="catchup")], None),
        ):
            servers = [server("p", "primary", standbys=standbys), server("x", "follower", position=7.0)]
            self.assertEqual(find_successor(servers), wanted, standbys)

    def test_by_the_members(self) -> None:
        """Where the primary is gone, or isn't told of its standbys, it is the follower that has received most of the newest
        timeline (OPS-5).
        """
        followers = [
            server("a", "follower", timeline=2.0, position=50.0, lag_bytes=5.0),
            server("b", "follower", timeline=2.0, position=40.0, lag_bytes=20.0),
            server("c", "follower", timeline=1.0, position=90.0),
            server("d", "follower"),
        ]
        self.assertEqual(find_successor(followers), Successor("b", False))
        self.assertEqual(find_successor([server("p", "primary"), *followers[:1]]), Successor("a", False))
        self.assertIsNone(find_successor([server("p", "primary"), followers[3]]))
        self.assertIsNone(find_successor([server("p", "primary", primaries="two"), *followers]))

    def test_sentences(self) -> None:
        """It is said whether the successor has every confirmed change."""
        self.assertIn("nobody could", describe_succession(None))
        self.assertIn("two would take over: it has every", describe_succession(Successor("two", True)))
        self.assertIn("two would take over: it may lack", describe_succession(Successor("two", False)))

    def test_versions(self) -> None:
        """Versions that differ are named, and those of servers that tell none don't count (OPS-5)."""
        same = {"version": "1.2", "release": "18.1", "schema": 15}
        one = server("a", "primary", **same)
        self.assertEqual(differing_versions([one, server("b", "follower", **same), server("c", "")]), {})
        found = differing_versions([one, server("b", "follower", version="1.3", release="18.2", schema=9)])
        self.assertEqual(found, {"svc": ["1.2", "1.3"], "PostgreSQL": ["18.1", "18.2"], "schema": ["15", "9"]})
