"""Whose certificates are trusted: those of the platform's authorities, or of a provider's own."""

from __future__ import annotations

from twisted.internet.interfaces import IOpenSSLClientConnectionCreator

from svc.model.errors import KeysUnavailable
from svc.net.trust import Trust


def client_tls(host: str, ca_cert: str | None, variable: str = "ca-cert") -> IOpenSSLClientConnectionCreator:
    """Make the TLS of a connection to the host of that name.

    ``ca_cert`` has the certificates of the only authorities to trust; ``None`` stands for the platform's. ``variable`` is
    what an operator knows it by.

    :raises KeysUnavailable: these are no certificates.
    """
    if ca_cert is None:
        return Trust().client(host)
    try:
        trust = Trust.of(ca_cert)
    except ValueError as error:
        raise KeysUnavailable(f"{variable} {error}") from None
    return trust.client(host)
