"""The report in the form of the IETF's draft."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.health.checks_loop import HealthReport
from svc.model.clocks import iso_seconds
from svc.model.databases import ReplicationPosition
from svc.model.dialect import CONJUR, NATIVE
from svc.web.routes.health_json import health_json

POSITION = ReplicationPosition("0/16B3748", 23803720, False)
WORDS = st.sampled_from(["ok", "failed", "stale", "starting"])


class DraftTests(SynchronousTestCase):
    """What ``/health`` tells, in other words."""

    def test_passing(self) -> None:
        """A healthy server passes, each service under its name with the word of the report and the time of the round
        (HEALTH-8).
        """
        document = health_json(HealthReport(NATIVE, {"core": "ok"}, "ok", POSITION, 1_700_000_000.9))
        time = "2023-11-14T22:13:20Z"
        datastore = {"componentType": "datastore", "status": "pass", "time": time}
        self.assertEqual(
            document,
            {
                "status": "pass",
                "checks": {
                    "core:state": [{"componentType": "component", "observedValue": "ok", "status": "pass", "time": time}],
                    "database:main": [{"observedValue": "ok", **datastore}],
                    "database:db_current_xlog_location": [{"observedValue": "0/16B3748", **datastore}],
                    "database:db_current_xlog_location_bytes": [
                        {"observedValue": 23803720, "observedUnit": "bytes", **datastore}
                    ],
                },
            },
        )

    def test_two_primaries(self) -> None:
        """That there is another primary is a check of the system, and fails."""
        document = health_json(HealthReport(NATIVE, {}, "ok", POSITION, 0.0, primaries="two"))
        self.assertEqual(document["status"], "fail")
        expected = {"componentType": "system", "observedValue": "two", "status": "fail"}
        self.assertEqual(document["checks"]["cluster:primaries"], [expected])

    def test_before_the_first_round(self) -> None:
        """Before the first round has ended nothing passes, and nothing has a time (HEALTH-8)."""
        document = health_json(HealthReport(CONJUR, {"core": "starting"}, "starting", None))
        self.assertEqual(document["status"], "fail")
        self.assertEqual(set(document["checks"]), {"core:state", "database:main"})
        self.assertNotIn("time", json.dumps(document))

    @given(st.dictionaries(st.sampled_from(["core", "authn", "pubkeys", "host-factory"]), WORDS), WORDS)
    def test_same_report(self, services: dict[str, str], database: str) -> None:
        """It passes when ``/health`` is ok, check by check and on the whole, and tells no value that is not in there
        (HEALTH-8).
        """
        report = HealthReport(NATIVE, services, database, POSITION if database == "ok" else None, 0.0)
        document, plain = health_json(report), json.dumps(report.document())
        self.assertEqual(document["status"] == "pass", report.ok)
        for name, word in services.items():
            self.assertEqual(document["checks"][f"{name}:state"][0]["status"] == "pass", word == "ok")
        for (check,) in document["checks"].values():
            self.assertIn(json.dumps(check["observedValue"]), plain)

    def test_iso_seconds(self) -> None:
        """Moments are written in UTC, to the second that has begun."""
        self.assertEqual(iso_seconds(0.999), "1970-01-01T00:00:00Z")
