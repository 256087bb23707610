"""TLS to the service by the standard library, as strict as ``svc.net.trust`` is for the server and for Twisted.

Note [Names]. OpenSSL compares the certificate's names while it shakes hands, before anything is sent: a name of a host with
the DNS names, a number with the IP addresses, the common name with nothing. A wildcard is a whole label, the first of three
at least.
"""

from __future__ import annotations

import base64
import re
import ssl
from pathlib import Path
from typing import Final

from svc.workload.faults import NoEvidence

_BEGIN: Final = "-----BEGIN "
_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]*)-----END CERTIFICATE-----", re.ASCII)

#: Those of ``svc.net.trust``: forward secrecy first, and nothing of less than 112 bits in any certificate of a chain.
_CIPHERS: Final = (
    "ECDHE+AESGCM:ECDHE+CHACHA20:DHE+AESGCM:DHE+CHACHA20:ECDHE+AES:DHE+AES:RSA+AESGCM:RSA+AES:!aNULL:!MD5:!DSS:@SECLEVEL=2"
)


def client_context(ca_file: Path | None = None) -> ssl.SSLContext:
    """Return what verifies servers: by the system's authorities, or those alone that a PEM file holds.

    The environment has no say, but for ``SSL_CERT_FILE`` and ``SSL_CERT_DIR``, which say where OpenSSL finds the system's.

    :raises NoEvidence: the file can't be read, or holds anything else than certificates.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    context.hostname_checks_common_name = False
    context.set_ciphers(_CIPHERS)
    if ca_file is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        return context
    try:
        certificates = _parse_certificates(ca_file.read_text(encoding="ascii", errors="replace"))
    except OSError as error:
        raise NoEvidence(f"{ca_file} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise NoEvidence(f"{ca_file} {error}") from None
    for number, certificate in enumerate(certificates, 1):
        try:
            context.load_verify_locations(cadata=certificate)
        except (ValueError, ssl.SSLError):
            raise NoEvidence(f"{ca_file} is not usable: certificate {number} of {len(certificates)} is broken") from None
    return context


def _parse_certificates(text: str) -> list[bytes]:
    """Read the certificates of a text in PEM (RFC 7468), in which what stands between them is a comment.

    :raises ValueError: there is none, or something else.
    """
    found = _CERTIFICATE.findall(text)
    if not found:
        raise ValueError("holds no whole certificate in PEM, from BEGIN CERTIFICATE to END CERTIFICATE")
    if len(found) != text.count(_BEGIN):
        raise ValueError("holds a broken certificate, or something else than certificates")
    try:
        return [base64.b64decode("".join(encoded.split()), validate=True) for encoded in found]
    except ValueError:
        raise ValueError("is not usable: one of its certificates is broken") from None


def tls_fault(error: BaseException | None) -> str | None:
    """Return what was wrong with the other side's TLS or certificate, if that is behind an error."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, ssl.SSLCertVerificationError):
            return error.verify_message
        if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            return f"TLS failed: {(getattr(error, 'reason', None) or 'unknown').lower().replace('_', ' ')}"
        error = error.__cause__ or error.__context__
    return None
