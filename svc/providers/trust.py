"""Whose certificates are trusted: those of the platform's authorities, or of a provider's own."""

from __future__ import annotations

from twisted.internet.interfaces import IOpenSSLClientConnectionCreator
from twisted.internet.ssl import Certificate, optionsForClientTLS, trustRootFromCertificates

from svc import outgoing
from svc.errors import KeysUnavailable


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
    try:
        return outgoing.certificates(text)
    except ValueError as error:
        raise KeysUnavailable(f"{variable} {error}") from None
