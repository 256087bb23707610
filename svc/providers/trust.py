"""Whose certificates are trusted: those of the platform's authorities, or of a provider's own."""

from __future__ import annotations

import re
from typing import Final

from OpenSSL import SSL, crypto
from service_identity import VerificationError
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator
from twisted.internet.ssl import Certificate, optionsForClientTLS, trustRootFromCertificates

from svc.errors import KeysUnavailable

_BEGIN: Final = "-----BEGIN "
_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]*-----END CERTIFICATE-----", re.ASCII)


def client_tls(host: str, ca_cert: str | None, variable: str = "ca-cert") -> IOpenSSLClientConnectionCreator:
    """Make the TLS of a connection to the host of that name.

    ``ca_cert`` has the certificates of the only authorities to trust; ``None`` stands for the platform's. ``variable`` is
    what an operator knows it by.

    :raises KeysUnavailable: these are no certificates.
    """
    if ca_cert is None:
        return optionsForClientTLS(host)
    return optionsForClientTLS(host, trustRootFromCertificates(certificates(ca_cert, variable)))


def certificates(text: str, variable: str = "ca-cert") -> list[Certificate]:
    """Read the certificates of a text in PEM (RFC 7468), in which what stands between them is a comment.

    :raises KeysUnavailable: there is none, or one is broken, or the text holds something else than certificates.
    """
    found = _CERTIFICATE.findall(text)
    if not found:
        raise KeysUnavailable(f"{variable} holds no whole certificate in PEM, from BEGIN CERTIFICATE to END CERTIFICATE")
    if len(found) != text.count(_BEGIN):
        raise KeysUnavailable(f"{variable} holds a broken certificate, or something else than certificates")
    read: list[Certificate] = []
    for number, pem in enumerate(found, 1):
        try:
            read.append(Certificate.loadPEM(pem.encode("ascii")))
        except crypto.Error:
            raise KeysUnavailable(f"{variable} is not usable: certificate {number} of {len(found)} is broken") from None
    return read


def tls_fault(cause: BaseException) -> str | None:
    """What was wrong with the other side's TLS or certificate, if that is why a connection ended."""
    if isinstance(cause, VerificationError):
        return "the certificate is for another host"
    if isinstance(cause, SSL.Error) and cause.args and isinstance(cause.args[0], list):
        return "TLS failed: " + ", ".join(reason for _, _, reason in cause.args[0])
    return None
