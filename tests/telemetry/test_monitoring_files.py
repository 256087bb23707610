"""``etc/prometheus/alerts.yml`` and ``etc/grafana/svc.json``: their form, and that each alert fires when it should.

That a running server has every metric and label that they name is for ``tests/integration/test_monitoring.py``. What judges
queries and rules is Prometheus's own ``promtool``.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml
from twisted.trial.unittest import SynchronousTestCase

from tests.programs import require_programs
from tests.telemetry.promql import names

ROOT: Final = Path(__file__).resolve().parents[2]
ALERTS: Final = ROOT / "etc" / "prometheus" / "alerts.yml"
DASHBOARD: Final = ROOT / "etc" / "grafana" / "svc.json"

#: What Grafana puts in the place of its variables.
VARIABLES: Final = {"$__rate_interval": "5m", "$instance": ".*"}

_BASE: Final = 'job="svc",instance="a:8447"'
_DAY: Final = 86400

#: For each alert the series that make it fire, an hour of them by the minute, and their labels beside job and instance; and
#: the same when all is well. ``a+bxN`` begins with a, and grows by b so many times (promtool's notation).
CASES: Final[dict[str, tuple[dict[str, str], dict[str, str]]]] = {
    "SvcDown": ({"up{}": "0x60"}, {"up{}": "1x60"}),
    "SvcCheckFailed": ({'svc_probe_ok{service="core"}': "0x60"}, {'svc_probe_ok{service="core"}': "1x60"}),
    "SvcTwoPrimaries": (
        {'svc_other_primaries{timeline="newer"}': "1x60", 'svc_other_primaries{timeline="same"}': "0x60"},
        {'svc_other_primaries{timeline="newer"}': "0x60"},
    ),
    "SvcErrors": (
        {'svc_requests_total{status="200"}': "0+98x60", 'svc_requests_total{status="503"}': "0+2x60"},
        {'svc_requests_total{status="200"}': "0+98x60", 'svc_requests_total{status="401"}': "0+20x60"},
    ),
    "SvcSlow": (
        {'svc_request_seconds_bucket{le="1"}': "0+90x60", 'svc_request_seconds_bucket{le="2.5"}': "0+100x60",
         'svc_request_seconds_bucket{le="+Inf"}': "0+100x60"},
        {'svc_request_seconds_bucket{le="1"}': "0+100x60", 'svc_request_seconds_bucket{le="2.5"}': "0+100x60",
         'svc_request_seconds_bucket{le="+Inf"}': "0+100x60"},
    ),
    "SvcStale": ({"svc_memory_stale_total{}": "0+1x60"}, {"svc_memory_stale_total{}": "7x60"}),
    "SvcFollowerLags": ({"svc_replication_lag_seconds{}": "31x60"}, {"svc_replication_lag_seconds{}": "1.5x60"}),
    "SvcAuditRecordsLost": (
        {"svc_audit_records_lost_total{}": "0+1x60"}, {"svc_audit_records_lost_total{}": "9x60"},
    ),
    "SvcAuditWaits": (
        {'svc_audit_records_waiting{sink="/a"}': "501x60"}, {'svc_audit_records_waiting{sink="/a"}': "50x60"},
    ),
    "SvcCertificateExpires": (
        {'svc_certificate_expiry_timestamp_seconds{name="ssl:1"}': f"{13 * _DAY}x60"},
        {'svc_certificate_expiry_timestamp_seconds{name="ssl:1"}': f"{15 * _DAY}x60"},
    ),
    "SvcCertificateExpired": (
        {'svc_certificate_expiry_timestamp_seconds{name="ssl:1"}': "100x60"},
        {'svc_certificate_expiry_timestamp_seconds{name="ssl:1"}': f"{2 * _DAY}x60"},
    ),
    "SvcSigningKeyOld": (
        {"svc_signing_key_oldest_seconds{}": f"{401 * _DAY}x60"}, {"svc_signing_key_oldest_seconds{}": f"{300 * _DAY}x60"},
    ),
    "SvcBackupOld": ({"svc_backup_age_seconds{}": f"{3 * _DAY}x60"}, {"svc_backup_age_seconds{}": f"{_DAY}x60"}),
    "SvcLoginsRefused": (
        {'svc_authentications_total{outcome="refused",reason="credentials-wrong"}': "0+120x60"},
        {'svc_authentications_total{outcome="refused"}': "0+30x60",
         'svc_authentications_total{outcome="admitted"}': "0+900x60"},
    ),
    "SvcLoginsUndecided": (
        {'svc_authentications_total{outcome="undecided",authenticator="authn-jwt",reason="keys-unavailable"}': "0+12x60"},
        {'svc_authentications_total{outcome="admitted",authenticator="authn-jwt",reason=""}': "0+900x60"},
    ),
    "SvcDatabaseBusy": (
        {"svc_database_wait_seconds_total{}": "0+90x60"}, {"svc_database_wait_seconds_total{}": "0+5x60"},
    ),
    "SvcPasswordsBusy": (
        {"svc_passwords_pending{}": "30x60", "svc_passwords_places{}": "36x60"},
        {"svc_passwords_pending{}": "3x60", "svc_passwords_places{}": "36x60"},
    ),
    "SvcEventLoopLate": (
        {"svc_reactor_lag_seconds_sum{}": "0+50x60", "svc_reactor_lag_seconds_count{}": "0+240x60"},
        {"svc_reactor_lag_seconds_sum{}": "0+1x60", "svc_reactor_lag_seconds_count{}": "0+240x60"},
    ),
    "SvcMemoryTooSmall": (
        {"svc_memory_evicted_total{}": "0+90x90", "svc_memory_misses_total{}": "0+100x90"},
        {"svc_memory_evicted_total{}": "0+90x90", "svc_memory_misses_total{}": "0+2000x90"},
    ),
    "SvcWorkersDie": (
        {"svc_worker_replacements_total{}": "0+1x60"}, {"svc_worker_replacements_total{}": "3x60"},
    ),
    "SvcRestarts": ({"process_start_time_seconds{}": "0+60x60"}, {"process_start_time_seconds{}": "60x60"}),
    "SvcConnectionsFull": (
        {"svc_connections_overflowed_total{}": "0+1x60"}, {"svc_connections_overflowed_total{}": "3x60"},
    ),
    "SvcFilesRunOut": (
        {"process_open_fds{}": "90x60", "process_max_fds{}": "100x60"},
        {"process_open_fds{}": "50x60", "process_max_fds{}": "100x60"},
    ),
    "SvcVersionsDiffer": (
        {'svc_build_info{version="1"}': "1x1600", 'svc_build_info{version="2",instance="b:8447"}': "1x1600"},
        {'svc_build_info{version="2"}': "1x1600", 'svc_build_info{version="2",instance="b:8447"}': "1x1600"},
    ),
}  # fmt: skip

#: Minutes after which it is looked, where an hour isn't enough.
LATER: Final = {"SvcMemoryTooSmall": 80, "SvcVersionsDiffer": 1500}


def alerts() -> list[dict[str, Any]]:
    """Return the rules."""
    (group,) = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def dashboard_queries() -> Iterator[str]:
    """Return the queries of all panels and annotations, as Prometheus gets them."""
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    queries += [annotation["expr"] for annotation in board["annotations"]["list"]]
    for query in queries:
        for variable, value in VARIABLES.items():
            query = query.replace(variable, value)  # noqa: PLW2901
        yield query


def every_query() -> dict[str, str]:
    """Return all queries of both files, by a name."""
    found = {rule["alert"]: rule["expr"] for rule in alerts()}
    return found | {f"query{number}": query for number, query in enumerate(dashboard_queries())}


class NamesTests(SynchronousTestCase):
    """How names are found."""

    def test_names(self) -> None:
        """Metrics and labels are told from functions, keywords, texts and ranges."""
        query = (
            'sum by (a, le) (rate(m_total{b=~"c{d}",e!="f"}[5m])) > 0.01 * n and on (g) max(o offset 5m) unless q == bool 1'
        )
        self.assertEqual(names(query), ({"m_total", "n", "o", "q"}, {"a", "le", "b", "e", "g"}))


class FilesTests(SynchronousTestCase):
    """Both files."""

    def setUp(self) -> None:
        """Make a folder."""
        self.folder = Path(self.mktemp())
        self.folder.mkdir()

    def promtool(self, *words: str) -> None:
        """Have it look at something, without a complaint."""
        require_programs("promtool")
        done = subprocess.run(["promtool", *words], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_alerts(self) -> None:
        """Each alert has a name of its own, how urgent it is, and what to do; the page lists it."""
        rules = alerts()
        self.assertEqual(len({rule["alert"] for rule in rules}), len(rules))
        page = (ROOT / "docs" / "operations" / "monitoring.md").read_text(encoding="utf-8")
        for rule in rules:
            self.assertIn(rule["labels"]["severity"], {"page", "ticket"}, rule)
            self.assertEqual(set(rule["annotations"]), {"summary", "action"}, rule)
            self.assertIn(f"`{rule['alert']}`", page)

    def test_dashboard(self) -> None:
        """Each panel has its place, a title of its own and a query that asks for the chosen servers."""
        board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
        panels = [panel for panel in board["panels"] if panel["type"] != "row"]
        self.assertEqual(len({panel["title"] for panel in panels}), len(panels))
        self.assertEqual(len({panel["id"] for panel in board["panels"]}), len(board["panels"]))
        taken: set[tuple[int, int]] = set()
        for panel in board["panels"]:
            place = panel["gridPos"]
            rows, columns = range(place["y"], place["y"] + place["h"]), range(place["x"], place["x"] + place["w"])
            cells = {(x, y) for x in columns for y in rows}
            self.assertFalse(cells & taken, panel["title"])
            taken |= cells
        for panel in panels:
            for target in panel["targets"]:
                self.assertIn('{instance=~"$instance"', target["expr"])

    def test_rules_are_sound(self) -> None:
        """Prometheus reads the alerts, and every query of the dashboard."""
        self.promtool("check", "rules", str(ALERTS))
        rules = [{"record": f"svc:{name}", "expr": query} for name, query in every_query().items()]
        file = self.folder / "queries.yml"
        file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
        self.promtool("check", "rules", str(file))

    def test_alerts_fire(self) -> None:
        """Each alert fires on what it is for, and on nothing that is well.

        Each is alone in its file of rules, since promtool evaluates all that a test names at each minute of the test.
        """
        rules = {rule["alert"]: rule for rule in alerts()}
        self.assertEqual(set(CASES), set(rules))
        files = []
        for alert, series in CASES.items():
            minutes, tests = LATER.get(alert, 50), []
            for fires, given in zip((True, False), series, strict=True):
                made = [{"series": _labelled(name), "values": values} for name, values in given.items()]
                query = {
                    "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) > bool 0',
                    "eval_time": f"{minutes}m",
                    "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
                }
                tests.append(
                    {"interval": "1m", "name": f"{alert} {fires}", "input_series": made, "promql_expr_test": [query]}
                )
            rule_file, test_file = self.folder / f"{alert}.yml", self.folder / f"{alert}-tests.yml"
            rule_file.write_text(yaml.safe_dump({"groups": [{"name": "svc", "rules": [rules[alert]]}]}))
            given_rules = {"rule_files": [rule_file.name], "evaluation_interval": "1m", "tests": tests}
            test_file.write_text(yaml.safe_dump(given_rules))
            files.append(str(test_file))
        self.promtool("test", "rules", *files)


def _labelled(series: str) -> str:
    """The series with the labels that Prometheus adds to all."""
    name, _, labels = series.partition("{")
    own = _BASE if "instance=" not in labels else _BASE.partition(",")[0]
    return f"{name}{{{own}{',' if labels != '}' else ''}{labels}"
