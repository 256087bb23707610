"""Whether a server can write, and when that is found out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from twisted.application.service import MultiService
from twisted.internet.task import Clock
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from svc.cluster.split_brain import SplitBrainDetector, primaries_of
from svc.health.liveness import TICK
from svc.model.counts import PoolCounts
from svc.model.dialect import CONJUR, NATIVE, Dialect
from svc.server.first_account import compare_dialect
from svc.server.foundation import Foundation
from tests.memory import MemoryAuthenticators
from tests.walls import Wall
from tests.web.world import WorldCase


class CountedPlace:
    """A database with sessions for readings, and for writes."""

    def __init__(self) -> None:
        self.for_readings = self.for_writes = 2

    def count_read_sessions(self) -> PoolCounts:
        """Count those for readings."""
        return PoolCounts(self.for_readings, 0, 0, 0, 0.0)

    def count_write_sessions(self) -> PoolCounts:
        """Count those for both."""
        return PoolCounts(min(self.for_readings, self.for_writes), 0, 0, 0, 0.0)

    async def check_connection(self) -> None:
        """Answer."""


class PulsesTests(SynchronousTestCase):
    """The liveness of a primary and of a standby that is read from, or of one database for both."""

    def setUp(self) -> None:
        """Begin with both."""
        self.clock, self.server = Clock(), MultiService()
        self.primary, self.read_from = CountedPlace(), CountedPlace()
        self.told: list[str] = []
        self.server.startService()
        self.addCleanup(self.server.stopService)

    def begin(self, *, splits: bool) -> Any:
        """Begin."""
        foundation: Any = SimpleNamespace(
            reactor=self.clock,
            settings=SimpleNamespace(reads_from_standby=splits),
            installation=SimpleNamespace(database=self.primary, state=self.primary),
            state=self.read_from,
            read_source=self.read_from,
        )
        liveness = Foundation.make_liveness(
            cast(Foundation, foundation), lambda: self.told.append("written"), lambda: self.told.append("read")
        )
        liveness.start(self.server)
        self.clock.advance(0)
        return liveness

    def became(self) -> list[str]:
        """What was told since this was asked last."""
        self.clock.pump([TICK] * 4)
        told, self.told = self.told, []
        return told

    def test_apart(self) -> None:
        """When there is a primary to write to again checks begin at once, since they are what makes a server ready to write;
        there is one only where there are sessions for writes, too (CLU-42, HEALTH-11).
        """
        liveness = self.begin(splits=True)
        self.assertEqual((liveness.writes.is_alive, liveness.reads.is_alive, self.became()), (True, True, []))
        self.primary.for_readings = self.primary.for_writes = 0
        self.assertEqual(self.became(), ["written", "read"])
        self.primary.for_readings = 2
        self.assertEqual((self.became(), liveness.writes.is_alive, liveness.reads.is_alive), ([], False, True))
        self.primary.for_writes = 1
        self.assertEqual((self.became(), liveness.writes.is_alive), (["written", "read"], True))
        self.read_from.for_readings = 0
        self.assertEqual((self.became(), liveness.writes.is_alive, liveness.reads.is_alive), (["read"], True, False))

    def test_one(self) -> None:
        """Where readings and writes go to one database, both come and go with it."""
        liveness = self.begin(splits=False)
        self.assertIs(liveness.writes, liveness.reads)
        self.primary.for_readings = 0
        self.assertEqual(self.became(), ["written", "read"])


class PrimariesTests(SynchronousTestCase):
    """The word for primaries in health reports."""

    def test_hosts(self) -> None:
        """While two hosts of the own database are primaries it is ``two``, without other servers too, since the first report
        of that; else it is that of the other servers (HEALTH-7).
        """
        clock, contested, rivals = Clock(), [False], SimpleNamespace(status=None, changed_at=7.0)
        primaries = primaries_of(cast(SplitBrainDetector, rivals), lambda: contested[0], Wall(clock, 100.0))
        self.assertIsNone(primaries())
        for word in (None, "ok"):
            rivals.status, contested[0] = word, True
            began = 100.0 + clock.seconds()
            for _ in range(2):
                self.assertEqual(primaries(), ("two", began))
                clock.advance(5.0)
            contested[0] = False
            self.assertEqual(primaries(), word and (word, 7.0))


class DialectTests(WorldCase):
    """Policy in the names of the other dialect."""

    def warnings(self, dialect: Dialect) -> list[tuple[str, str]]:
        """Which authenticator a start in a dialect warns of, and which dialect that is of."""
        with capturedLogs() as logs:
            self.result_of(compare_dialect(MemoryAuthenticators(self.memory), dialect))
        return [(event["what"], event["other"]) for event in logs if "other" in event]

    def test_other(self) -> None:
        """A start warns of authenticators in the other dialect's names, where there are none in its own (CFG-27)."""
        self.load("- !policy { id: svc/tools, body: [ !webservice ] }\n", method="PATCH")
        self.assertEqual(self.warnings(CONJUR), [])
        self.load("- !policy { id: svc/authn-jwt/ci, body: [ !webservice ] }\n", method="PATCH")
        self.assertEqual(self.warnings(NATIVE), [])
        self.assertEqual(self.warnings(CONJUR), [("acme:webservice:svc/authn-jwt/ci", "native")])
        self.load("- !policy { id: conjur/authn-oidc/corp, body: [ !webservice ] }\n", method="PATCH")
        self.assertEqual((self.warnings(NATIVE), self.warnings(CONJUR)), ([], []))
        for name in ("authn-jwt/ci", "tools"):
            self.load(f"- !delete {{ record: !webservice svc/{name} }}\n", method="PATCH")
        self.assertEqual(self.warnings(NATIVE), [("acme:webservice:conjur/authn-oidc/corp", "conjur")])
