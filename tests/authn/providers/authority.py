"""A certificate authority, for providers with TLS."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from twisted.internet.ssl import Certificate, PrivateCertificate

_START = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)


class Authority:
    """A certificate authority that a client may trust or not."""

    def __init__(self, name: str = "authority") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)  # it signs certificates
        builder = self._builder(self.name, self.key, 36_500).add_extension(constraints, critical=True)
        signed = builder.add_extension(usage, critical=True).sign(self.key, SHA256())
        self.pem = signed.public_bytes(Encoding.PEM).decode("ascii")
        self.certificate = Certificate.loadPEM(self.pem.encode("ascii"))

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, days: int) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(_START)
            .not_valid_after(_START + datetime.timedelta(days=days))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(self._identifier, critical=False)
        )

    def issue(
        self, host: str, days: int = 36_500, *, also: Sequence[str] = (), common_name_alone: bool = False
    ) -> PrivateCertificate:
        """A certificate for hosts, by name or number, with its key; a common name alone is for nobody."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        builder = self._builder(subject, key, days)
        if not common_name_alone:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_general(each) for each in (host, *also)]), critical=False
            )
        pem = builder.sign(self.key, SHA256()).public_bytes(Encoding.PEM)
        pem += key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        issued: PrivateCertificate = PrivateCertificate.loadPEM(pem)
        return issued


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
