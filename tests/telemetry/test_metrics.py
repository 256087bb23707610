"""Counters and their endpoint."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import attrs
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.model.authentication import Admitted, LoginRequest, Refused
from svc.model.counts import ConnectionCounts, PoolCounts
from svc.model.databases import Ages, ReplicationPosition, VerifiedBackup
from svc.model.names import RoleName
from svc.model.query_results import CheckResult
from svc.model.reasons import Reason, RefusalKind
from svc.telemetry.exposition import SCRAPES, metrics_site
from svc.telemetry.metrics import LAG_INTERVAL, Metrics, ProcessUsage, ReactorLag

ADMITTED = Admitted(RoleName("acct", "host", "web"), "key")


@attrs.frozen
class Decided:
    """Decides on every attempt alike."""

    decision: Admitted | Refused

    async def authenticate(self, request: LoginRequest) -> Admitted | Refused:
        """The decision."""
        return self.decision


class MetricsTests(SynchronousTestCase):
    """Counters of authentications."""

    def setUp(self) -> None:
        """Start from nothing."""
        self.metrics = Metrics()

    def decide(self, decision: Admitted | Refused, name: str = "authn-jwt", text: str = "ci") -> None:
        """Let an authenticator decide, having seen that the decision comes through."""
        authenticate = self.metrics.count_decisions(Decided(decision).authenticate, name)
        request = LoginRequest(text, text, text.encode("utf-8", "surrogatepass"), text, text)
        self.assertIs(self.successResultOf(Deferred.fromCoroutine(authenticate(request))), decision)

    def counted(self, *labels: str) -> float | None:
        """Return how often there was an authentication of these labels."""
        named = dict(zip(("authenticator", "outcome", "reason"), labels, strict=True))
        return self.metrics.registry.get_sample_value("svc_authentications_total", named)

    def test_decisions_are_counted(self) -> None:
        """Each decision counts once, by authenticator, outcome and reason; who can't be judged is not refused
        (HEALTH-26).
        """
        for _ in range(2):
            self.decide(ADMITTED)
            self.decide(Refused(Reason.CLAIM_MISMATCH, "detail"))
            self.decide(Refused(Reason.KEYS_UNAVAILABLE, "detail", None, RefusalKind.POSTPONED, 1))
            self.decide(Refused.for_reason(Reason.LDAP_UNAVAILABLE, "detail"), "authn-ldap")
        self.decide(Refused(Reason.CREDENTIALS_WRONG, "detail"), "authn")
        self.assertEqual(self.counted("authn-jwt", "admitted", ""), 2)
        self.assertEqual(self.counted("authn-jwt", "refused", "claim-mismatch"), 2)
        self.assertEqual(self.counted("authn-jwt", "undecided", "keys-unavailable"), 2)
        self.assertEqual(self.counted("authn-ldap", "undecided", "ldap-unavailable"), 2)
        self.assertEqual(self.counted("authn", "refused", "credentials-wrong"), 1)
        self.assertIsNone(self.counted("authn", "admitted", ""))

    def test_servers_count_for_themselves(self) -> None:
        """Two servers in one process share no counter."""
        self.decide(ADMITTED)
        self.metrics = Metrics()
        self.assertIsNone(self.counted("authn-jwt", "admitted", ""))

    def test_connections_are_told(self) -> None:
        """How many connections there are is read when somebody asks (HEALTH-26)."""
        for counts in (ConnectionCounts(3, 2, 1), ConnectionCounts(0, 7, 5)):
            metrics = Metrics()
            metrics.watch_connections(lambda counts=counts: counts)  # type: ignore[misc]  # bound for this turn
            names = ("svc_connections", "svc_connections_evicted_total", "svc_connections_overflowed_total")
            told = tuple(metrics.registry.get_sample_value(name) for name in names)
            self.assertEqual(told, attrs.astuple(counts))

    def test_few_connections(self) -> None:
        """Counters are read on a few connections: more are turned away until one of these closes."""
        site = metrics_site(self.metrics.registry)
        taken = []
        for _ in range(SCRAPES):
            protocol = site.buildProtocol(IPv4Address("TCP", "127.0.0.1", 1))
            assert protocol is not None
            protocol.makeConnection(StringTransport())
            taken.append(protocol)
        self.assertIsNone(site.buildProtocol(IPv4Address("TCP", "127.0.0.1", 1)))
        for protocol in taken:
            protocol.connectionLost(Failure(ConnectionDone()))
        self.assertIsNotNone(site.buildProtocol(IPv4Address("TCP", "127.0.0.1", 1)))

    def test_lost_records_are_counted(self) -> None:
        """Audit records that were lost are counted, from none on (HEALTH-26)."""
        for lost, count in ((0, 0.0), (3, 3.0), (2, 5.0)):
            self.metrics.count_lost_records(lost)
            self.assertEqual(self.metrics.registry.get_sample_value("svc_audit_records_lost_total"), count)

    @given(st.text(min_size=1))
    def test_labels_are_bounded(self, text: str) -> None:
        """Nothing that is sent becomes a label (HEALTH-27)."""
        self.metrics = Metrics()
        self.decide(ADMITTED)
        self.decide(Refused(Reason.ROLE_UNKNOWN, "detail", "role"))
        before = _series(self.metrics)
        self.decide(ADMITTED, text=text)
        self.decide(Refused(Reason.ROLE_UNKNOWN, text, text), text=text)
        self.assertEqual(_series(self.metrics), before)

    def test_requests_are_counted(self) -> None:
        """Each request counts once, by route and status, and takes its time (HEALTH-26)."""
        for status, seconds in (("200", 0.01), ("200", 0.03), ("404", 2.0)):
            self.metrics.count_request("GET /health", status, seconds)
        sample = self.metrics.registry.get_sample_value
        self.assertEqual(sample("svc_requests_total", {"operation": "GET /health", "status": "200"}), 2)
        self.assertEqual(sample("svc_requests_total", {"operation": "GET /health", "status": "404"}), 1)
        self.assertAlmostEqual(sample("svc_request_seconds_sum", {"operation": "GET /health"}) or 0.0, 2.04)

    def test_what_is_watched(self) -> None:
        """Checks, key sets and sessions are read when somebody asks, each time again (HEALTH-26)."""
        findings, ages, census = (
            [CheckResult("core", "ok", 0.25), CheckResult("ldap", "starting", None)],
            [3.0, 40.5],
            [PoolCounts(4, 3, 2, 7, 1.5)],
        )
        self.metrics.watch_checks(lambda: findings)
        self.metrics.watch_key_sets(lambda: ages)
        self.metrics.watch_sessions(lambda: census[-1])
        self.metrics.watch_backlogs(lambda: [("/a", len(ages))])
        self.metrics.watch_other_primaries(lambda: {"newer": 1, "same": 0})
        sample = self.metrics.registry.get_sample_value
        self.assertEqual([sample("svc_probe_ok", {"service": name}) for name in ("core", "ldap")], [1.0, 0.0])
        self.assertEqual([sample("svc_probe_seconds", {"service": name}) for name in ("core", "ldap")], [0.25, None])
        self.assertEqual((sample("svc_key_sets"), sample("svc_key_set_oldest_seconds")), (2, 40.5))
        stock = [sample(f"svc_database_{name}") for name in ("sessions", "sessions_lent", "waiting")]
        self.assertEqual(stock, [4, 3, 2])
        self.assertEqual((sample("svc_database_waits_total"), sample("svc_database_wait_seconds_total")), (7, 1.5))
        self.assertEqual(sample("svc_audit_records_waiting", {"sink": "/a"}), 2)
        rivals = [sample("svc_other_primaries", {"timeline": timeline}) for timeline in ("newer", "same", "older")]
        self.assertEqual(rivals, [1, 0, None])
        findings[0] = CheckResult("core", "failed", 2.0)
        ages.clear()
        census.append(PoolCounts(0, 0, 9, 16, 2.0))
        self.assertEqual((sample("svc_probe_ok", {"service": "core"}), sample("svc_key_set_oldest_seconds")), (0.0, 0.0))
        self.assertIn(b"svc_database_waits_total 16.0", generate_latest(self.metrics.registry))

    def test_the_process(self) -> None:
        """The program, and what its process uses, are told; without ``/proc`` what is known else (HEALTH-28)."""
        self.metrics.watch_process("1.2", "3.11.7", 1000.5)
        sample = self.metrics.registry.get_sample_value
        self.assertEqual(sample("svc_build_info", {"version": "1.2", "python": "3.11.7"}), 1.0)
        self.assertEqual(sample("process_start_time_seconds"), 1000.5)
        before = sample("process_cpu_seconds_total") or 0.0
        self.assertEqual(sample("process_max_fds"), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        if Path("/proc/self/statm").exists():
            open_files = sample("process_open_fds") or 0.0
            with open(os.devnull, "rb"):
                self.assertEqual(sample("process_open_fds"), open_files + 1)
            self.assertGreater(sample("process_resident_memory_bytes") or 0.0, 5e6)
        self.assertGreaterEqual(sample("process_cpu_seconds_total") or 0.0, before)
        nothing = ProcessUsage(Path(self.mktemp()))
        self.assertEqual((nothing.open_files, nothing.memory_bytes), (None, None))

    def test_replication(self) -> None:
        """A standby has a lag, a primary has none, and what isn't known isn't told (HEALTH-28)."""
        known: list[ReplicationPosition | None] = [None]
        self.metrics.watch_replication(lambda: known[-1])
        sample = self.metrics.registry.get_sample_value
        names = [f"svc_{name}" for name in ("database_standby", "replication_position_bytes")]
        names += [f"svc_replication_lag_{unit}" for unit in ("bytes", "seconds")]
        for position, expected in (
            (None, [None] * 4),
            (ReplicationPosition("0/A", 10, False), [0.0, 10.0, None, None]),
            (ReplicationPosition("0/A", 10, True, 7, 0.5), [1.0, 10.0, 7.0, 0.5]),
            (ReplicationPosition("0/A", 10, True), [1.0, 10.0, None, None]),
        ):
            known.append(position)
            self.assertEqual([sample(name) for name in names], expected)

    def test_ages(self) -> None:
        """Keys and the last backup have an age where it is known, never a negative one (HEALTH-28)."""
        known: list[Ages | None] = [None]
        self.metrics.watch_ages(lambda: known[-1], lambda: 1000.0)
        names = ("svc_signing_key_oldest_seconds", "svc_backup_age_seconds", "svc_backup_verified_age_seconds")
        verified = VerifiedBackup(900.0, 1, "/svc.dump", None)
        for ages, expected in (
            (None, [None] * 3),
            (Ages(400.0, 990.0), [600.0, 10.0, None]),
            (Ages(2000.0, 990.0, verified), [0.0, 10.0, 100.0]),
        ):
            known.append(ages)
            self.assertEqual([self.metrics.registry.get_sample_value(name) for name in names], expected)

    def test_passwords(self) -> None:
        """How many passwords wait is read when somebody asks (HEALTH-28)."""
        self.metrics.watch_passwords(lambda: 3, 36)
        sample = self.metrics.registry.get_sample_value
        self.assertEqual((sample("svc_passwords_pending"), sample("svc_passwords_places")), (3, 36))


class ReactorLagTests(SynchronousTestCase):
    """How late the event loop is."""

    def test_lag(self) -> None:
        """It is what passes beyond the time at which a call was due; none is negative, and none comes after the end
        (HEALTH-26).
        """
        clock, late = Clock(), list[float]()
        lag = ReactorLag(clock, late.append)
        lag.startService()
        for passed in (LAG_INTERVAL, LAG_INTERVAL + 0.5, LAG_INTERVAL):
            clock.advance(passed)
        self.assertEqual(late, [0.0, 0.5, 0.0])
        lag.stopService()
        clock.advance(10)
        self.assertEqual((len(late), clock.getDelayedCalls()), (3, []))


def _series(metrics: Metrics) -> list[bytes]:
    """The names and labels of all counters, without their values."""
    return [line.rpartition(b" ")[0] for line in generate_latest(metrics.registry).splitlines()]
