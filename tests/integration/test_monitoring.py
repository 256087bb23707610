"""What a running server tells monitoring, against what the shipped alerts and the shipped dashboard ask for."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.certificates import LEAF_KEY, chain, pem
from tests.integration.client import Api
from tests.integration.postgres import PostgresTestCase
from tests.integration.process import ServerTestCase
from tests.server.test_endpoints import key_pem
from tests.telemetry.promql import OWN_LABELS, OWN_METRICS, names
from tests.telemetry.test_monitoring_files import every_query

#: Metrics that only a follower has samples of; they have no labels.
FOLLOWERS = {"svc_replication_lag_seconds", "svc_replication_lag_bytes"}

#: Those that have samples only where the server keeps the data key, or has made a backup.
SOMETIMES = {"svc_backup_age_seconds", "svc_backup_verified_age_seconds"}


class MonitoringTests(PostgresTestCase, ServerTestCase):
    """A server of two processes that serve, with TLS."""

    async def test_every_query_has_its_metrics(self) -> None:
        """Each metric and label of each alert and panel is what the server really tells (HEALTH-26, HEALTH-28)."""
        folder = Path(self.mktemp()).resolve()
        folder.mkdir(parents=True)
        (folder / "cert.pem").write_text(pem(*chain("the host's name").certificates))
        (folder / "key.pem").write_text(key_pem(LEAF_KEY))
        tls = f"ssl:0:interface=127.0.0.1:privateKey={folder}/key.pem:certKey={folder}/cert.pem"
        server = self.serve(
            "--account=acme",
            "--processes=2",
            "--cluster=b.example=http://127.0.0.1:9",
            "--metrics-listen=tcp:0:interface=127.0.0.1",
            "--listen=tcp:0:interface=127.0.0.1",
            f"--listen={tls}",
            f"--audit-file={folder}/audit.log",
            database_url=await self.create_database(migrated=False),
        )
        api = Api.of(self, await server.ready())
        self.assertEqual((await api.ask("POST", "/authn/acme/nobody/authenticate", b"x" * 40)).status, 401)
        counters = "http://" + server.stdout.decode().partition("Metrics are served at http://")[2].split()[0]
        text = ""
        while "svc_certificate_expiry" not in text:  # a process that is slow to tell its counters is left out of an answer
            text = (await Api.of(self, counters).ask("GET", "/metrics")).body.decode()
        found: dict[str, set[str]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
            if family.name in FOLLOWERS | SOMETIMES:
                found.setdefault(family.name, set())
        self.assertEqual(found["svc_certificate_expiry_timestamp_seconds"], {"setting", "name"}, text)
        self.assertIn('svc_build_info{python="', text)
        for name, query in every_query().items():
            metrics, labels = names(query)
            self.assertTrue(metrics, name)
            self.assertEqual(metrics - found.keys() - OWN_METRICS, set(), name)
            known = set().union(*(found.get(metric, set()) for metric in metrics))
            self.assertEqual(labels - known - OWN_LABELS, set(), name)
