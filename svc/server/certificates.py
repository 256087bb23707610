"""The certificates that this server shows to others, and when they expire, for metrics, ``svc doctor`` and ``svc expiring``.

For a port it is the one in force, which may be older than its file. The certificates presented to a syslog receiver or to
the database are read from their files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import attrs
from cryptography.x509 import load_pem_x509_certificate

from svc.server.endpoints import client_certificate, parse_port
from svc.server.listening import Endpoint
from svc.settings.config import Settings
from svc.storage.driver.location import dsn_parameters

#: The setting that names a certificate, what it is for, and when it ends, in epoch seconds.
Certificate: TypeAlias = tuple[str, str, float]


@attrs.frozen
class PresentedCertificate:
    """A certificate: the setting that names it, the endpoint or the file, and when it expires, in epoch seconds."""

    setting: str
    name: str
    expires: float


def list_port_certificates(endpoints: Sequence[Endpoint]) -> Iterator[PresentedCertificate]:
    """Return the certificates in force of those endpoints that speak TLS, but for those whose key has a password."""
    for endpoint in endpoints:
        if endpoint.certificate is not None:
            certificate = endpoint.certificate.current.tls.certificate.to_cryptography()
            yield PresentedCertificate("listen", endpoint.text, certificate.not_valid_after_utc.timestamp())


def describe_certificates(certificates: Iterable[PresentedCertificate], settings: Settings) -> Iterator[Certificate]:
    """Return of each certificate its setting, its port or the name of its file, and when it ends: no path, and no key's."""
    for each in certificates:
        place = parse_port(each.name)
        if each.setting == "listen":
            setting = "metrics_listen" if each.name == settings.metrics_listen else "listen"
            yield setting, "" if place is None else f"port {place.port}", each.expires
        else:
            yield each.setting, Path(each.name).name, each.expires


def client_files(settings: Settings) -> dict[str, Path]:
    """Return the files of certificates that are shown to servers, by the setting that names each."""
    syslog, url = settings.audit_syslog, settings.database_url
    found = {
        "audit_syslog": None if syslog is None else client_certificate(syslog),
        "database_url": None if url is None else dsn_parameters(url).get("sslcert"),
    }
    return {setting: Path(path) for setting, path in found.items() if path is not None}


def read_file_certificates(files: dict[str, Path]) -> Iterator[PresentedCertificate]:
    """Return the first certificate of each file that can be read."""
    for setting, path in files.items():
        try:
            certificate = load_pem_x509_certificate(path.read_bytes())
        except (OSError, ValueError):
            continue
        yield PresentedCertificate(setting, str(path), certificate.not_valid_after_utc.timestamp())


@attrs.frozen(eq=False)
class ServerCertificates:
    """The certificates that a process shows: those of its ports to clients, and those of the settings to servers."""

    endpoints: Sequence[Endpoint]
    settings: Settings

    def read_all(self) -> Iterator[PresentedCertificate]:
        """Return those of the ports, and read the others from their files."""
        yield from list_port_certificates(self.endpoints)
        yield from read_file_certificates(client_files(self.settings))

    def describe_ports(self) -> list[Certificate]:
        """Return those of the ports."""
        return list(describe_certificates(list_port_certificates(self.endpoints), self.settings))

    def describe_all(self) -> list[Certificate]:
        """Return those of the ports and those of the files."""
        return list(describe_certificates(self.read_all(), self.settings))
