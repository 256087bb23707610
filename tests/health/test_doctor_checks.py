"""Tests of ``svc.health.doctor_checks``: each finding, caused by one fact that changes in a sound installation."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import attrs
from twisted.trial.unittest import SynchronousTestCase

from svc.health.doctor_checks import (
    CORES,
    END_OF_LIFE,
    EVICTIONS,
    ROOM,
    UNROTATED,
    AuditFacts,
    CertificateFacts,
    DiskFacts,
    Facts,
    FileFacts,
    PortFacts,
    ServerFacts,
    find_risks,
)
from svc.model.databases import Ages, DatabaseFacts, VerifiedBackup

NOW: Final = 1_795_000_000.0
DAY: Final = 86400.0

VERIFIED: Final = VerifiedBackup(NOW - DAY / 2, 1000, "/elsewhere/svc.dump", False)

DATABASE: Final = DatabaseFacts(
    schema_behind=0,
    server_version=180003,
    listens="10.0.0.1,localhost",
    open_rules=0,
    most_connections=100,
    connections=20,
    durable=True,
    superuser=False,
    archived=None,
    password_expires_at=NOW + 15 * DAY,
    ages=Ages(NOW - 10 * DAY, NOW - DAY / 2, VERIFIED),
    lag=0.4,
)
AUDIT: Final = AuditFacts("/var/log/svc/audit.log", None, 1000, False, 10 * ROOM)
SERVER: Final = ServerFacts(version="1.2", lags=[("b", 0.5)], evicted=EVICTIONS * 2.0, misses=1e6)
WELL: Final = Facts(
    now=NOW,
    version="1.2",
    ports=[PortFacts("listen", "ssl:8443", True, ""), PortFacts("metrics_listen", "tcp:1", False, "127.0.0.1")],
    listen_given=True,
    trusts_loopback=False,
    processes=4,
    cores=4,
    audit=AUDIT,
    certificates=[CertificateFacts("ssl:8443", NOW + 60 * DAY)],
    files=[],
    admin_keys=[],
    database=DATABASE,
    database_fault=None,
    skew=0.1,
    remote=True,
    verified=True,
    ldap_failures=3,
    server=SERVER,
)


def database(**changes: Any) -> dict[str, Any]:
    """The change of a fact of the database."""
    return {"database": attrs.evolve(DATABASE, **changes)}


def audit(**changes: Any) -> dict[str, Any]:
    """The change of a fact of the audit."""
    return {"audit": attrs.evolve(AUDIT, **changes)}


def server(**changes: Any) -> dict[str, Any]:
    """The change of what the server says."""
    return {"server": attrs.evolve(SERVER, **changes)}


def port(setting: str, host: str | None, *, tls: bool = False, headed: bool = False, trusts: bool = False) -> dict[str, Any]:
    """The only port."""
    return {"ports": [PortFacts(setting, "tcp:1", tls, host, headed)], "trusts_loopback": trusts}


#: What changes, and what is found then, with a mark for notes.
CASES: Final[tuple[tuple[dict[str, Any], str], ...]] = (
    ({"listen_given": False}, "note listen-default"),
    ({"ldap_failures": 0}, "ldap-unlimited"),
    (port("listen", ""), "listen-plain"),
    (port("listen", "::"), "listen-plain"),
    (port("listen", "svc.example"), "listen-plain"),
    (port("listen", "", trusts=True), "listen-plain"),
    (port("metrics_listen", ""), "metrics-exposed"),
    (port("listen", "127.0.0.1", trusts=True), "loopback-trusted"),
    (port("listen", "::1", tls=True, trusts=True), "loopback-trusted"),
    (port("listen", "", tls=True, headed=True), "proxy-header-exposed"),
    (port("listen", "0.0.0.0", tls=True, headed=True, trusts=True), "proxy-header-exposed"),
    (port("listen", "10.0.0.1", headed=True), "listen-plain"),
    ({"audit": AuditFacts(None)}, "audit-output"),
    (audit(fault="can't be written"), "audit-file"),
    (audit(continues=True), "audit-continue"),
    (audit(size=UNROTATED + 1), "audit-rotation"),
    (audit(room=ROOM - 1), "audit-room"),
    ({"certificates": [CertificateFacts("a", NOW + 13 * DAY)]}, "certificate-expires"),
    ({"certificates": [CertificateFacts("a", NOW - 1)]}, "certificate-expires"),
    ({"certificates": [CertificateFacts("a", None, "it is broken")]}, "certificate-unusable"),
    ({"files": [FileFacts("/a", 0o644, 0o600)]}, "file-mode"),
    ({"admin_keys": ["/a/admin-key-acme"]}, "note admin-key-file"),
    ({"database": None, "database_fault": "it is away", "skew": None}, "database-away"),
    (database(schema_behind=2), "note schema-behind"),
    (database(lag=31.0), "replication-lag"),
    (database(durable=False), "not-durable"),
    (database(connections=81), "connections-few"),
    (database(server_version=130020), "postgresql-old"),
    (database(server_version=90624), "postgresql-old"),
    (database(server_version=140023), "postgresql-old"),
    (database(password_expires_at=NOW + 13 * DAY), "database-password-expires"),
    (database(password_expires_at=NOW - DAY), "database-password-expires"),
    ({"verified": False}, "database-unverified"),
    ({"disk": DiskFacts("/pg", ROOM - 1)}, "database-room"),
    ({"disk": DiskFacts("/pg", None, "it is elsewhere")}, "note database-disk-unknown"),
    ({"unlisted": ["authn-jwt/ci"]}, "note authenticators-unlisted"),
    ({"differing": ["--memory-lag"]}, "note settings-differ"),
    ({"settings_fault": "it can't be read"}, "note settings-unknown"),
    (database(listens="*", open_rules=1), "database-exposed"),
    (database(listens="10.0.0.1, ::", open_rules=None), "database-exposed"),
    (database(superuser=True), "database-superuser"),
    (database(ages=Ages(NOW, None)), "no-backup"),
    (database(ages=Ages(NOW, NOW - 3 * DAY, VERIFIED)), "no-backup"),
    (database(ages=Ages(NOW, NOW)), "backup-unverified"),
    (database(ages=Ages(NOW, NOW, attrs.evolve(VERIFIED, dumped=NOW - 3 * DAY))), "backup-unverified"),
    (database(ages=Ages(NOW, NOW, attrs.evolve(VERIFIED, beside=True))), "backup-beside"),
    (database(ages=Ages(NOW - 401 * DAY, NOW, VERIFIED)), "signing-key-old"),
    ({"skew": -2.1}, "clock-skew"),
    ({"skew": 2.1}, "clock-skew"),
    ({"server": None}, "note server-not-asked"),
    (server(fault="no connection"), "server-away"),
    (server(failing=["core failed"]), "unhealthy"),
    (server(version="1.1"), "old-version"),
    (server(lags=[("b", 0.5), ("c", 31.0)]), "replication-lag"),
    (server(evicted=2e5), "memory-small"),
    (server(has_metrics=False), "note no-metrics"),
    ({"processes": 1, "cores": CORES}, "note one-process"),
)

#: What changes, and isn't found.
NOTHING: Final[tuple[dict[str, Any], ...]] = (
    {},
    port("listen", "127.0.0.1"),
    port("listen", "::1"),
    port("listen", "localhost"),
    port("listen", None),
    port("listen", None, trusts=True),
    port("listen", "127.0.0.1", headed=True, trusts=True),
    port("listen", "10.0.0.1", tls=True, headed=True),
    port("listen", "", tls=True, trusts=True),
    port("metrics_listen", "127.0.0.1", trusts=True),
    audit(size=UNROTATED + 1, rotated=True),
    database(listens="*", open_rules=0),
    database(ages=Ages(None, None), archived=NOW - 60),
    {"remote": False, "verified": False},
    server(evicted=EVICTIONS - 1.0, misses=0.0),
    server(version=None),
    {"processes": 1, "cores": CORES - 1},
    {"disk": DiskFacts("/pg", ROOM)},
)


class RisksTests(SynchronousTestCase):
    """What is found, and what isn't."""

    def test_each_is_found(self) -> None:
        """Each finding comes from its cause alone, and says what was found and what to do (CLI-40, CLI-82, CLI-83)."""
        for changes, expected in CASES:
            found = find_risks(attrs.evolve(WELL, **changes))
            self.assertEqual([f"{'' if risk.severe else 'note '}{risk.name}" for risk in found], [expected], changes)
            self.assertTrue(all(risk.found and risk.action for risk in found))

    def test_well(self) -> None:
        """Nothing is found where nothing is risky (CLI-40)."""
        for changes in NOTHING:
            self.assertEqual(find_risks(attrs.evolve(WELL, **changes)), [], changes)

    def test_order(self) -> None:
        """Risks come before notes."""
        found = find_risks(attrs.evolve(WELL, listen_given=False, skew=9.0))
        self.assertEqual([risk.name for risk in found], ["clock-skew", "listen-default"])

    def test_ports(self) -> None:
        """A port for PROXY headers is risky on all interfaces; the default of listen gives notes alone (CLI-40)."""
        exposed = find_risks(attrs.evolve(WELL, **port("listen", "", headed=True)))
        self.assertEqual(
            [(risk.name, risk.severe) for risk in exposed], [("listen-plain", True), ("proxy-header-exposed", True)]
        )
        usual = find_risks(attrs.evolve(WELL, listen_given=False, **port("listen", "127.0.0.1", trusts=True)))
        self.assertEqual(
            [(risk.name, risk.severe) for risk in usual], [("listen-default", False), ("loopback-trusted", False)]
        )

    def test_versions(self) -> None:
        """Each version of PostgreSQL that is known gets corrections for a year longer than the one before."""
        ends = list(END_OF_LIFE.values())
        self.assertTrue(all(340 * DAY < after - before < 390 * DAY for before, after in pairwise(ends)))
