"""Tests of ``svc.server.certificates``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from svc.server.certificates import (
    PresentedCertificate,
    client_files,
    describe_certificates,
    list_port_certificates,
    read_file_certificates,
)
from svc.server.endpoints import listening_endpoint
from svc.settings.config import Settings
from tests.certificates import LEAF_KEY, chain, pem
from tests.server.test_endpoints import key_pem


class CertificatesTests(SynchronousTestCase):
    """What expires when."""

    def setUp(self) -> None:
        """Write a certificate and its key."""
        self.folder = Path(self.mktemp()).resolve()
        self.folder.mkdir()
        self.leaf = chain("the host's name").certificates[0]
        (self.folder / "cert.pem").write_text(pem(*chain("the host's name").certificates))
        (self.folder / "key.pem").write_text(key_pem(LEAF_KEY))

    def test_ports(self) -> None:
        """The end of a port's certificate is that of the one in force; a port without TLS has none (HEALTH-28)."""
        reactor: Any = MemoryReactorClock()
        text = f"ssl:8443:privateKey={self.folder}/key.pem:certKey={self.folder}/cert.pem"
        ports = [listening_endpoint(reactor, each) for each in ("tcp:8080", text)]
        expected = [PresentedCertificate("listen", text, self.leaf.not_valid_after_utc.timestamp())]
        self.assertEqual(list(list_port_certificates(ports)), expected)
        (self.folder / "cert.pem").unlink()
        self.assertEqual(list(list_port_certificates(ports)), expected)

    def test_named(self) -> None:
        """In the list of what ends a certificate has its setting, and its port or the name of its file, no path (END-4)."""
        text = "ssl:8443:privateKey=/etc/secret/key.pem:certKey=/etc/secret/cert.pem"
        shown = [
            PresentedCertificate("listen", text, 1.0),
            PresentedCertificate("listen", text.replace("8443", "9100"), 2.0),
            PresentedCertificate("listen", "systemd:INET:0", 3.0),
            PresentedCertificate("audit_syslog", "/etc/secret/client.pem", 4.0),
        ]
        settings = Settings(metrics_listen=shown[1].name)
        self.assertEqual(
            list(describe_certificates(shown, settings)),
            [
                ("listen", "port 8443", 1.0),
                ("metrics_listen", "port 9100", 2.0),
                ("listen", "", 3.0),
                ("audit_syslog", "client.pem", 4.0),
            ],
        )

    def test_clients(self) -> None:
        """So are those of certificates that are shown to syslog and the database; what can't be read is left out."""
        file = self.folder / "cert.pem"
        for syslog, url, expected in (
            (None, None, {}),
            ("tcp:logs.example:601", "host=db.example", {}),
            (f"tls:logs.example:6514:certificate={file}", None, {"audit_syslog": file}),
            (None, f"postgresql://db.example/svc?sslcert={file}", {"database_url": file}),
        ):
            files = client_files(Settings(audit_syslog=syslog, database_url=url))
            self.assertEqual(files, expected)
            end = self.leaf.not_valid_after_utc.timestamp()
            shown = [PresentedCertificate(setting, str(file), end) for setting in expected]
            self.assertEqual(list(read_file_certificates(files)), shown)
        broken = self.folder / "broken.pem"
        broken.write_text("nothing")
        self.assertEqual(list(read_file_certificates({"a": broken, "b": self.folder / "gone.pem"})), [])
