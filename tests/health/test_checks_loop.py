"""Rounds of checks and their report, on a clock that the tests turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.logger import ILogObserver, LogEvent, LogLevel, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer, provider
from zope.interface.verify import verifyObject

from svc._version import VERSION
from svc.health.checks_loop import EAGER_ROUNDS, NEEDED_TO_SERVE, ChecksLoop, HealthReport
from svc.health.probes import DatabaseProbe
from svc.model.databases import ReplicationPosition
from svc.model.dialect import CONJUR, NATIVE
from svc.model.errors import StoreUnavailable
from svc.model.probes import IProbe
from tests.health.fakes import FakeState, nothing
from tests.walls import Wall


def _told(report: HealthReport) -> dict[str, Any]:
    """What a report tells of the cluster, without the node that this server is."""
    return {name: value for name, value in report.document()["cluster"].items() if name != "node"}


REFUSED = StoreUnavailable("connection refused")


@implementer(IProbe)
@attrs.define
class FakeProbe:
    """Does what its test says at each check, and counts them."""

    service: str
    work: Callable[[], Any] = nothing
    checks: int = 0

    async def check(self) -> None:
        """Count, and do what the test says."""
        self.checks += 1
        await self.work()


async def _fail() -> None:
    raise REFUSED


class RoundsTests(SynchronousTestCase):
    """Rounds with the interval of the default configuration, 5 s, and so with deadlines of 2 s."""

    def setUp(self) -> None:
        """Prepare two services and a database, all well."""
        self.clock = Clock()
        self.wall = Wall(self.clock)
        self.core = FakeProbe("core")
        self.authn = FakeProbe("authn")
        self.state = FakeState()
        self.events: list[LogEvent] = []

        @provider(ILogObserver)
        def observer(event: LogEvent) -> None:
            self.events.append(event)

        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)

    def rounds(self, interval: float = 5.0) -> ChecksLoop:
        """Start rounds that end with the test."""
        rounds = self.new_rounds(interval)
        rounds.startService()
        self.addCleanup(rounds.stopService)
        return rounds

    def new_rounds(self, interval: float = 5.0) -> ChecksLoop:
        """Make rounds that haven't been started."""
        return ChecksLoop(self.clock, self.wall, [self.core, self.authn], DatabaseProbe(self.state), interval)

    def logged(self, level: Any) -> list[str]:
        """The reasons, or services, that were logged at a level."""
        return [
            f"{e['service']}: {e.get('reason', 'well')}" for e in self.events if e["log_level"] is level and "service" in e
        ]

    def test_fake(self) -> None:
        """The fake provides the interface."""
        verifyObject(IProbe, self.core)

    def test_all_well(self) -> None:
        """When every check succeeds, every value is ok, and so is the server (HEALTH-2)."""
        report = self.rounds().last_report(NATIVE)
        self.assertEqual(
            report.document(),
            {
                "services": {"core": "ok", "authn": "ok", "ok": True},
                "database": {
                    "ok": True,
                    "connect": {"main": "ok"},
                    "replication_status": {
                        "db_current_xlog_location": "0/16B3748",
                        "db_current_xlog_location_bytes": 23803720,
                    },
                },
                "ok": True,
            },
        )
        self.assertEqual(report.ok, True)

    def test_lag(self) -> None:
        """Of a standby it is told how far it lags behind, also when that isn't known; of a primary, nothing of the kind
        (HEALTH-6).
        """
        for lag, told in (((0, 0.51237), (0, 0.512)), ((None, 3600.0), (None, 3600.0)), ((7, None), (7, None))):
            position = ReplicationPosition("0/16B3748", 23803720, True, *lag)
            for dialect, prefix in ((NATIVE, "db_"), (CONJUR, "pg_")):
                report = HealthReport(dialect, {}, "ok", position)
                self.assertTrue(report.ok)
                self.assertEqual(
                    report.document()["database"]["replication_status"],
                    {
                        f"{prefix}current_xlog_location": "0/16B3748",
                        f"{prefix}current_xlog_location_bytes": 23803720,
                        "lag_bytes": told[0],
                        "lag_seconds": told[1],
                    },
                )

    def test_dialect_names_the_fields(self) -> None:
        """The dialect decides how the names of the replication fields begin (HEALTH-5)."""
        document = self.rounds().last_report(CONJUR).document()
        self.assertEqual(
            document["database"]["replication_status"],
            {"pg_current_xlog_location": "0/16B3748", "pg_current_xlog_location_bytes": 23803720},
        )

    def test_every_interval(self) -> None:
        """The first round begins with the service, the next ones at the interval (HEALTH-14)."""
        self.rounds()
        self.assertEqual(self.core.checks, 1)
        self.clock.advance(4.9)
        self.assertEqual(self.core.checks, 1)
        self.clock.advance(0.1)
        self.assertEqual((self.core.checks, self.authn.checks), (2, 2))

    def test_failed_service(self) -> None:
        """One failed service makes the services and the server fail, and not the database or its neighbours (HEALTH-4)."""
        self.core.work = _fail
        report = self.rounds().last_report(NATIVE)
        document = report.document()
        self.assertEqual(document["services"], {"core": "failed", "authn": "ok", "ok": False})
        self.assertEqual((document["database"]["ok"], document["ok"], report.ok), (True, False, False))

    def test_failed_database(self) -> None:
        """A database that doesn't answer has no position, and the server fails (HEALTH-4)."""
        self.state.work["connected"] = _fail
        report = self.rounds().last_report(NATIVE)
        document = report.document()
        self.assertEqual(
            document["database"],
            {
                "ok": False,
                "connect": {"main": "failed"},
                "replication_status": {"db_current_xlog_location": None, "db_current_xlog_location_bytes": None},
            },
        )
        self.assertEqual((document["services"]["ok"], document["ok"], report.ok), (True, False, False))

    def test_reason_is_not_public(self) -> None:
        """The reason of a failure is in the log and not in the report (HEALTH-3)."""
        self.core.work = _fail
        report = self.rounds().last_report(NATIVE)
        self.assertNotIn("refused", str(report.document()))
        self.assertEqual(self.logged(LogLevel.warn), [f"core: {REFUSED}"])

    def test_only_changes_are_logged(self) -> None:
        """A failure is logged once however long it lasts, and its end once; a good start isn't news (HEALTH-3)."""
        rounds = self.rounds()
        self.assertEqual(self.logged(LogLevel.info), [])
        self.core.work = _fail
        self.clock.pump([5.0] * 4)
        self.assertEqual(self.logged(LogLevel.warn), [f"core: {REFUSED}"])
        self.core.work = nothing
        self.clock.pump([5.0] * 2)
        self.assertEqual(self.logged(LogLevel.info), ["core: well"])
        self.assertTrue(rounds.last_report(NATIVE).ok)

    def test_unexpected_exception(self) -> None:
        """A check that raises what it shouldn't has failed, and the log has the traceback."""

        async def broken() -> None:
            raise LookupError("no such thing")

        self.core.work = broken
        self.assertEqual(self.rounds().last_report(NATIVE).services["core"], "failed")
        self.assertEqual(self.logged(LogLevel.warn), ["core: LookupError: no such thing"])
        self.assertEqual(len(self.flushLoggedErrors(LookupError)), 1)

    def test_starting(self) -> None:
        """Before the first round has ended every value is starting, and the server isn't ok (HEALTH-3)."""
        self.core.work = Deferred
        before = self.new_rounds()
        self.assertEqual(
            before.last_report(NATIVE), HealthReport(NATIVE, {"core": "starting", "authn": "starting"}, "starting", None)
        )
        report = self.rounds().last_report(NATIVE)
        self.assertEqual((report.services["core"], report.ok), ("starting", False))

    def test_never_waits(self) -> None:
        """While a check hangs, the report answers at once, from the last round (HEALTH-1)."""
        rounds = self.rounds()
        self.core.work = Deferred
        self.clock.advance(5)
        self.assertTrue(rounds.last_report(NATIVE).ok)

    def test_first_round(self) -> None:
        """All that wait for the first round hear of it when its last check has ended or is overdue."""
        self.core.work = Deferred
        waiting = Deferred.fromCoroutine(self.rounds().first_round())
        self.clock.advance(1.9)
        self.assertNoResult(waiting)
        self.clock.advance(0.1)
        self.successResultOf(waiting)

    def test_deadline(self) -> None:
        """A check that takes 2 s has failed; the others of its round have their own time (HEALTH-14, HEALTH-17)."""
        hanging: Deferred[None] = Deferred()
        self.core.work = lambda: hanging
        rounds = self.rounds()
        self.assertEqual(rounds.last_report(NATIVE).services["authn"], "ok")
        self.clock.advance(2)
        self.assertEqual(rounds.last_report(NATIVE).services, {"core": "failed", "authn": "ok"})
        self.assertEqual(self.logged(LogLevel.warn), ["core: no answer within 2 s"])

    def test_deadline_of_short_intervals(self) -> None:
        """With an interval of 1 s the deadline is half of it (HEALTH-14)."""
        self.core.work = Deferred
        rounds = self.rounds(interval=1.0)
        self.clock.advance(0.5)
        self.assertEqual(rounds.last_report(NATIVE).services["core"], "failed")

    def test_overdue_check_is_cancelled(self) -> None:
        """A check is cancelled at its deadline, and the next round begins it again (HEALTH-14)."""
        cancelled: list[object] = []
        self.core.work = lambda: Deferred(cancelled.append)
        rounds = self.rounds()
        self.clock.advance(2)
        self.assertEqual(len(cancelled), 1)
        self.core.work = nothing
        self.clock.advance(3)
        self.assertTrue(rounds.last_report(NATIVE).ok)

    def test_stubborn_check_runs_once(self) -> None:
        """A check that goes on though cancelled isn't started again beside itself, and counts as failed until it ends
        (HEALTH-14).
        """
        last: Deferred[None] = Deferred()

        async def stubborn() -> None:
            try:
                await Deferred()
            except CancelledError:
                await last

        self.core.work = stubborn
        rounds = self.rounds()
        self.clock.pump([1.0] * 15)
        self.assertEqual(self.core.checks, 1)
        self.assertEqual(rounds.last_report(NATIVE).services, {"core": "failed", "authn": "ok"})
        self.core.work = nothing
        last.callback(None)
        self.assertEqual(rounds.last_report(NATIVE).services["core"], "failed")
        self.clock.advance(5)
        self.assertTrue(rounds.last_report(NATIVE).ok)

    def test_hanging_check_does_not_stop_the_loop(self) -> None:
        """Rounds go on at their pace while one service hangs (HEALTH-14)."""
        self.core.work = Deferred
        rounds = self.rounds()
        self.clock.pump([1.0] * 50)
        self.assertEqual(self.authn.checks, 11)
        self.assertEqual(rounds.last_report(NATIVE).services, {"core": "failed", "authn": "ok"})

    def test_stale(self) -> None:
        """When the last round is older than three intervals, everything is stale, and the server isn't ok (HEALTH-3)."""
        rounds = self.rounds()
        rounds.stopService()
        self.clock.advance(15)
        self.assertTrue(rounds.last_report(NATIVE).ok)
        self.clock.advance(0.1)
        report = rounds.last_report(NATIVE)
        self.assertEqual(report, HealthReport(NATIVE, {"core": "stale", "authn": "stale"}, "stale", None))
        self.assertEqual((report.document()["ok"], report.ok), (False, False))

    def test_clock_set(self) -> None:
        """A machine's clock that is set, by however much, makes nothing stale and stops no round; reports tell its time
        (HEALTH-3).
        """
        self.clock.advance(7200)
        rounds = self.rounds()
        for ahead in (-3600.0, 3600.0):
            self.wall.ahead = ahead
            self.assertTrue(rounds.last_report(NATIVE).ok)
            checks = self.core.checks
            self.clock.advance(5)
            report = rounds.last_report(NATIVE)
            self.assertEqual((report.ok, self.core.checks - checks), (True, 1))
            self.assertEqual((report.moment, rounds.now()), (self.clock.seconds() + ahead,) * 2)

    def test_stop(self) -> None:
        """Stopping ends the loop and the checks that run, leaves nothing on the clock, and reports no failure."""
        self.core.work = Deferred
        rounds = self.new_rounds()
        rounds.startService()
        rounds.stopService()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.clock.advance(5)
        self.assertEqual(self.core.checks, 1)
        self.assertEqual(self.logged(LogLevel.warn), [])

    def test_last_change(self) -> None:
        """A report tells when each value became what it is, however many rounds have confirmed it since."""
        self.clock.advance(1000)
        rounds = self.rounds()
        self.assertEqual(rounds.last_report(NATIVE).changed, {"core": 1000.0, "authn": 1000.0, "database": 1000.0})
        self.clock.pump([5.0] * 3)
        self.core.work = _fail
        self.clock.pump([5.0] * 3)
        report = rounds.last_report(NATIVE)
        self.assertEqual(report.changed, {"core": 1020.0, "authn": 1000.0, "database": 1000.0})
        self.assertEqual(report.moment, 1030.0)

    def test_last_change_of_what_is_stale(self) -> None:
        """A stale word changed when the last round had become too old."""
        rounds = self.rounds()
        rounds.stopService()
        self.clock.advance(100)
        self.assertEqual(set(rounds.last_report(NATIVE).changed.values()), {15.0})
        self.wall.ahead = 1000.0
        self.assertEqual(set(rounds.last_report(NATIVE).changed.values()), {1015.0})

    def test_ready(self) -> None:
        """A server is ready while the database, core, authn and authz are ok, whatever the rest does, and not before
        (HEALTH-10).
        """
        self.assertFalse(self.new_rounds().last_report(NATIVE).is_ready)
        for broken, ready in (("core", False), ("authn", False), ("authz", False), ("ldap", True), ("audit", True)):
            probes = [FakeProbe(name, _fail if name == broken else nothing) for name in ("core", "authz", "ldap", broken)]
            rounds = ChecksLoop(self.clock, self.clock, probes, DatabaseProbe(self.state), 5.0)
            rounds.startService()
            self.addCleanup(rounds.stopService)
            report = rounds.last_report(NATIVE)
            self.assertEqual((report.is_ready, report.is_ready_to_write, report.ok), (ready, ready, False), broken)
        self.state.work["connected"] = _fail
        report = self.rounds().last_report(NATIVE)
        self.assertEqual((report.is_ready, report.is_ready_to_write), (False, False))

    def test_no_writes(self) -> None:
        """A database that commits nothing fails core, in the report and in the metrics; the server is ready but to write
        (HEALTH-12).
        """
        rounds = self.rounds()
        self.assertEqual((rounds.last_report(NATIVE).is_ready, rounds.last_report(NATIVE).is_ready_to_write), (True, True))
        self.state.work["transaction"] = Deferred
        self.clock.pump([1.0] * 7)
        report = rounds.last_report(NATIVE)
        self.assertEqual(report.services, {"core": "failed", "authn": "ok"})
        self.assertEqual((report.ok, report.is_ready, report.is_ready_to_write), (False, True, False))
        self.assertEqual(report.changed, {"core": 7.0, "authn": 0.0, "database": 0.0})
        self.assertEqual([found.value for found in rounds.list_findings()], ["failed", "ok", "ok"])
        self.assertEqual(self.logged(LogLevel.warn), ["core (writing): no answer within 2 s"])
        # What reads may fail beside it.
        self.core.work = _fail
        self.clock.advance(3)
        report = rounds.last_report(NATIVE)
        self.assertEqual((report.services["core"], report.is_ready), ("failed", False))

    def test_hastened(self) -> None:
        """When something has changed a round begins at once, or when the one under way has ended; then at the interval
        (HEALTH-11).
        """
        rounds = self.rounds()
        self.clock.advance(1)
        rounds.check_soon()
        self.assertEqual(self.core.checks, 2)
        self.clock.advance(4.9)
        self.assertEqual(self.core.checks, 2)
        hanging: Deferred[None] = Deferred()
        self.core.work = lambda: hanging
        self.clock.advance(0.1)
        self.assertEqual(self.core.checks, 3)
        for _ in range(3):
            rounds.check_soon()
        self.assertEqual(self.core.checks, 3)
        self.core.work = nothing
        hanging.callback(None)
        self.assertEqual(self.core.checks, 4)
        self.clock.advance(5)
        self.assertEqual(self.core.checks, 5)

    def test_hastened_again(self) -> None:
        """While what is needed fails after that, rounds follow a second apart, though not for ever (HEALTH-11)."""
        rounds = self.rounds()
        self.authn.work = _fail
        rounds.check_soon()
        self.clock.pump([0.1] * 25)
        self.assertEqual(self.core.checks, 4)
        self.authn.work = nothing
        self.clock.advance(1)
        self.assertEqual((self.core.checks, rounds.last_report(NATIVE).is_ready), (5, True))
        self.clock.pump([0.1] * 49)
        self.assertEqual(self.core.checks, 5)
        self.state.work["transaction"] = _fail
        rounds.check_soon()
        self.clock.pump([0.1] * (10 * EAGER_ROUNDS + 5))
        self.assertEqual(self.core.checks, 6 + EAGER_ROUNDS)
        self.clock.pump([0.1] * 42)
        self.assertEqual(self.core.checks, 6 + EAGER_ROUNDS)
        rounds.check_soon()
        rounds.stopService()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_hastened_late(self) -> None:
        """Nothing begins in a loop that has ended, or has not begun."""
        rounds = self.new_rounds()
        rounds.check_soon()
        rounds.startService()
        rounds.stopService()
        rounds.check_soon()
        self.assertEqual(self.core.checks, 1)

    def test_ready_with_the_audit(self) -> None:
        """Where requests are refused while the audit takes no records, a server isn't ready then (HEALTH-10)."""
        for needed, ready in ((NEEDED_TO_SERVE, True), (NEEDED_TO_SERVE | {"audit"}, False)):
            rounds = ChecksLoop(self.clock, self.wall, [FakeProbe("audit", _fail)], DatabaseProbe(self.state), 5.0, needed)
            rounds.startService()
            self.addCleanup(rounds.stopService)
            self.assertEqual(
                (rounds.last_report(NATIVE).services["audit"], rounds.last_report(NATIVE).is_ready), ("failed", ready)
            )

    def test_two_primaries(self) -> None:
        """Where other servers are known it is told whether there is another primary; then a server isn't well, but ready
        (HEALTH-4, HEALTH-7).
        """
        word = "ok"
        rounds = ChecksLoop(
            self.clock, self.clock, [self.core], DatabaseProbe(self.state), 5.0, primaries=lambda: (word, 7.0)
        )
        rounds.startService()
        self.addCleanup(rounds.stopService)
        report = rounds.last_report(NATIVE)
        node = report.document()["cluster"]["node"]
        self.assertEqual((node["version"], node["changed"], node["timeline"]), (VERSION, 7.0, None))
        self.assertEqual((report.ok, _told(report)), (True, {"ok": True, "primaries": "ok"}))
        word = "two"
        report = rounds.last_report(NATIVE)
        document = report.document()
        self.assertEqual((report.ok, document["ok"], _told(report)), (False, False, {"ok": False, "primaries": "two"}))
        self.assertEqual((document["services"]["ok"], document["database"]["ok"], report.is_ready), (True, True, True))
        self.assertEqual(report.changed["primaries"], 7.0)
        self.assertNotIn("cluster", self.rounds().last_report(NATIVE).document())

    def test_findings(self) -> None:
        """Each check tells how long it took; one that was given up took as long as it may."""
        slow: Deferred[None] = Deferred()
        self.core.work = lambda: slow
        self.authn.work = Deferred
        rounds = self.new_rounds()
        self.assertEqual({finding.seconds for finding in rounds.list_findings()}, {None})
        rounds.startService()
        self.addCleanup(rounds.stopService)
        self.clock.advance(0.5)
        slow.callback(None)
        self.clock.advance(1.5)
        found = [(finding.name, finding.value, finding.seconds) for finding in rounds.list_findings()]
        self.assertEqual(found, [("core", "ok", 0.5), ("authn", "failed", 2.0), ("database", "ok", 0.0)])
