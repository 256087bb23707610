"""Counters of several processes, added up."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.test.requesthelper import DummyRequest

from svc.model.counts import ConnectionCounts
from svc.telemetry.exposition import AggregatedMetrics, _GatheringResource
from svc.telemetry.metrics import Metrics


class SumsTests(SynchronousTestCase):
    """The counters of a process that supervises and of two that serve."""

    def setUp(self) -> None:
        """Make them."""
        self.own, self.others = Metrics(), [Metrics(), Metrics()]
        for each in self.others:
            each.watch_connections(lambda: ConnectionCounts(3, 2, 1))
        self.sums = AggregatedMetrics(self.own)

    def count(self, *numbers: int) -> None:
        """Count requests of processes, and have them told."""
        for number, count in enumerate(numbers):
            for _ in range(count):
                self.others[number].count_request("GET /whoami", "200", 0.004)
            self.sums.update_process(number + 1, self.others[number].collect_families())

    def samples(self) -> dict[str, float]:
        """The samples of all, by name, labels left out but for the bounds of histograms."""
        return {
            sample.name + sample.labels.get("le", ""): sample.value
            for family in self.sums.collect()
            for sample in family.samples
        }

    def test_sums(self) -> None:
        """Counters, histograms and what there is at the moment are added up (CFG-36)."""
        self.count(2, 3)
        found = self.samples()
        self.assertEqual(found["svc_requests_total"], 5)
        self.assertEqual((found["svc_request_seconds_bucket0.0025"], found["svc_request_seconds_bucket0.005"]), (0, 5))
        self.assertEqual((found["svc_connections"], found["svc_connections_evicted_total"]), (6, 4))

    def test_the_dead(self) -> None:
        """What a process has counted goes on counting when it has died; its connections don't (CFG-36)."""
        self.count(2, 3)
        self.sums.retire_process(1)
        found = self.samples()
        self.assertEqual((found["svc_requests_total"], found["svc_connections"]), (5, 3))
        self.assertEqual(found["svc_connections_evicted_total"], 4)
        self.others[0] = Metrics()
        self.count(1, 0)
        self.sums.retire_process(1)
        self.sums.retire_process(7)
        self.assertEqual(self.samples()["svc_requests_total"], 6)

    def test_ages(self) -> None:
        """Of ages the oldest counts, and of moments at which counting began the first (CFG-36)."""
        self.own.watch_key_sets(lambda: [5.0])
        self.others[0].watch_key_sets(lambda: [7.0, 1.0])
        self.count(1, 1)
        found = self.samples()
        self.assertEqual((found["svc_key_sets"], found["svc_key_set_oldest_seconds"]), (3, 7.0))
        for each, started in ((self.own, 50.0), (self.others[0], 70.0)):
            each.watch_process("1.2", "3.11", started)
            each.watch_certificates(lambda end=started: [("listen", "ssl:1", end)])  # type: ignore[misc]  # bound for this turn
        self.count(1, 1)
        found = self.samples()
        self.assertEqual((found["svc_build_info"], found["process_start_time_seconds"]), (1.0, 50.0))
        self.assertEqual(found["svc_certificate_expiry_timestamp_seconds"], 50.0)
        self.assertGreater(found["process_resident_memory_bytes"], 2 * 1024 * 1024)
        began = [
            value
            for each in self.others
            for family in each.collect_families()
            for key, value in family.samples.items()
            if key[0] == "svc_requests_created"
        ]
        self.assertEqual(found["svc_requests_created"], min(began))

    def test_gathered(self) -> None:
        """The counters are gathered before they are told, and for a client that leaves nothing is."""
        gathered: list[Deferred[None]] = []

        async def gather() -> None:
            gathered.append(Deferred())
            await gathered[-1]

        class Shown:
            """A resource that tells how often it was asked."""

            isLeaf = True

            def render(self, request: Any) -> bytes:
                return b"counters"

        shown: Any = Shown()
        resource = _GatheringResource(shown, gather)
        request: Any = DummyRequest([b""])
        resource.render(request)
        self.assertEqual(request.written, [])
        gathered[0].callback(None)
        self.assertEqual((b"".join(request.written), request.finished), (b"counters", 1))
        left: Any = DummyRequest([b""])
        resource.render(left)
        left.processingFailed(Failure(ConnectionError()))
        gathered[1].addErrback(lambda _: None)
        self.assertEqual(left.written, [])
