"""TLS to other machines: the one place where their certificates are verified (``tests/test_architecture.py`` proves it).

Note [Known before a word]. Twisted compares a certificate's names in a callback of OpenSSL's, in which it catches one of the
exceptions that this raises, logs the others and goes on: a certificate of a trusted authority that names no host passes for
any. Here no Python runs in callbacks. OpenSSL verifies the chain. The names are compared at the end of the handshake, before
a byte of content is sent or taken; after any exception there, nothing goes over the connection.

Note [OpenSSL's own words]. All faults of a chain are one error to OpenSSL, "certificate verify failed". Which one it was is
the result of the verification, which pyOpenSSL gives to nobody but a callback; so it is read from the library below.

Note [Names]. A name of a host must be among the certificate's DNS names, and a number among its IP addresses (RFC 9525 6). A
wildcard is a whole label, the first of three at least, and stands for one that isn't international. Nothing else, the common
name either, is a name of a host; a malformed name is none, and doesn't spoil the others.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any, Final, Self

import attrs
import idna
from cryptography.x509 import Certificate, DNSName, ExtensionNotFound, IPAddress, SubjectAlternativeName
from OpenSSL import SSL, crypto
from OpenSSL._util import ffi, lib
from service_identity import CertificateError
from service_identity.hazmat import DNS_ID, CertificatePattern, DNSPattern, IPAddress_ID, IPAddressPattern
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator
from zope.interface import implementer

from svc.model.errors import KeysUnavailable

_BEGIN: Final = "-----BEGIN "
_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]*)-----END CERTIFICATE-----", re.ASCII)

#: Key exchange with forward secrecy first, encryption that authenticates first. Level 2 of OpenSSL refuses keys and
#: signatures of less than 112 bits, such as RSA below 2048 and SHA-1, in every certificate of a chain.
_CIPHERS: Final = (
    b"ECDHE+AESGCM:ECDHE+CHACHA20:DHE+AESGCM:DHE+CHACHA20:ECDHE+AES:DHE+AES:RSA+AESGCM:RSA+AES:!aNULL:!MD5:!DSS:@SECLEVEL=2"
)

#: Another certificate in the middle of a connection would go unchecked.
_OPTIONS: Final = SSL.OP_NO_COMPRESSION | SSL.OP_NO_TICKET | SSL.OP_NO_RENEGOTIATION


#: OpenSSL's error for every chain that it doesn't accept.
_UNVERIFIED: Final = "certificate verify failed"


class Unproven(SSL.Error):
    """The other side has not proved to be the requested host; ``why`` is for operators."""

    def __init__(self, why: str) -> None:
        super().__init__([("svc", "trust", why)])  # as OpenSSL's own errors are, which is how Twisted reads them
        self.why = why

    def __str__(self) -> str:
        return self.why


@attrs.frozen
class Trust:
    """The authorities whose certificates are trusted, ``None`` for the platform's, and the certificate to show, if any."""

    authorities: tuple[crypto.X509, ...] | None = None
    own: tuple[Certificate, Any] | None = attrs.field(default=None, repr=False)

    @classmethod
    def from_pem(cls, text: str) -> Self:
        """Trust the certificates of a text alone; raises as :func:`parse_certificates` does."""
        return cls(tuple(parse_certificates(text)))

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Trust the certificates of a file alone; raises ``OSError``, and as :func:`parse_certificates` does."""
        return cls.from_pem(path.read_text(encoding="ascii", errors="replace"))

    def connection_creator(self, host: str, protocol: bytes | None = None) -> IOpenSSLClientConnectionCreator:
        """Make the TLS of one connection to the host of that name or number; ``protocol`` is offered to it (RFC 7301).

        :raises UnicodeError: no certificate can be for a host of that name.
        """
        try:
            return _VerifiedContext(self, IPAddress_ID(ip_address(host)), None, protocol)
        except ValueError:
            name = idna.encode(host).lower()
        try:
            return _VerifiedContext(self, DNS_ID(name.decode("ascii")), name, protocol)
        except ValueError as error:
            raise UnicodeError(str(error)) from None


@implementer(IOpenSSLClientConnectionCreator)
@attrs.frozen
class _VerifiedContext:
    """Makes connections to one host; ``server_name`` is sent to it (RFC 6066 3), and never a number."""

    trust: Trust
    wanted: DNS_ID | IPAddress_ID
    server_name: bytes | None
    protocol: bytes | None = None

    def clientConnectionForTLS(self, tlsProtocol: object) -> SSL.Connection:  # noqa: N802, N803, ARG002 - Twisted's
        """Make a connection."""
        context = _make_context()
        context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT)
        context.set_verify_depth(9)
        if self.trust.authorities is None:
            context.set_default_verify_paths()
        else:
            store = context.get_cert_store()
            assert store is not None
            for authority in self.trust.authorities:
                store.add_cert(authority)
        if self.trust.own is not None:
            certificate, key = self.trust.own
            context.use_certificate(certificate)
            context.use_privatekey(key)
        connection = _Connection(context, self.wanted)
        if self.server_name is not None:
            connection.set_tlsext_host_name(self.server_name)
        if self.protocol is not None:
            connection.set_alpn_protos([self.protocol])
        return connection


@implementer(IOpenSSLClientConnectionCreator)
class EncryptedOnly:
    """TLS with any machine that answers: safe from listeners, not from a man in the middle; for ``sslmode=require``."""

    def clientConnectionForTLS(self, tlsProtocol: object) -> SSL.Connection:  # noqa: N802, N803, ARG002 - Twisted's
        """Make a connection."""
        return SSL.Connection(_make_context())


class _Connection(SSL.Connection):
    """A connection that carries nothing before the other side is proven (Note [Known before a word])."""

    def __init__(self, context: SSL.Context, wanted: DNS_ID | IPAddress_ID) -> None:
        super().__init__(context)
        self._wanted = wanted
        self._proven = False

    def do_handshake(self) -> None:
        """Go on with the handshake; return when it has ended and the other side is proven."""
        if self._proven:
            return
        try:
            super().do_handshake()
        except SSL.Error as error:
            if _UNVERIFIED in _error_reasons(error):
                raise Unproven(f"TLS failed: {_UNVERIFIED}: {self._verification_error()}") from None
            raise
        try:
            _demand_host(self.get_verified_chain(as_cryptography=True), self._wanted)
        except Unproven:
            raise
        except Exception as error:
            raise Unproven(f"the certificate can't be judged ({type(error).__name__})") from None
        self._proven = True

    def _verification_error(self) -> str:
        """Return why the chain isn't accepted (Note [OpenSSL's own words])."""
        result = lib.SSL_get_verify_result(self._ssl)
        words: bytes = ffi.string(lib.X509_verify_cert_error_string(result))
        return words.decode("ascii", "replace")

    def send(self, buf: Any, flags: int = 0) -> int:
        self.do_handshake()
        return super().send(buf, flags)

    def recv(self, bufsiz: int, flags: int | None = None) -> bytes:
        self.do_handshake()
        return super().recv(bufsiz, flags)

    def sendall(self, buf: Any, flags: int = 0) -> int:
        self.do_handshake()
        return super().sendall(buf, flags)

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int | None = None) -> int:
        self.do_handshake()
        return super().recv_into(buffer, nbytes, flags)

    write, read = send, recv  # second names, which the base class has for its own


def _make_context() -> SSL.Context:
    context = SSL.Context(SSL.TLS_CLIENT_METHOD)
    context.set_min_proto_version(SSL.TLS1_2_VERSION)
    context.set_options(_OPTIONS)
    context.set_mode(SSL.MODE_RELEASE_BUFFERS)
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_cipher_list(_CIPHERS)
    return context


def _demand_host(chain: list[Certificate] | None, wanted: DNS_ID | IPAddress_ID) -> None:
    """Return when the first of the certificates is for the host wanted, or raise ``Unproven``."""
    if not chain:
        raise Unproven("there is no certificate that was verified")
    patterns = list(_host_patterns(chain[0]))
    if not patterns:
        raise Unproven("the certificate is for no host: it has no subjectAltName with a DNS name or an IP address")
    if not any(map(wanted.verify, patterns)):
        raise Unproven("the certificate is for another host")


def _host_patterns(certificate: Certificate) -> Iterator[CertificatePattern]:
    """Yield the names of hosts in a certificate (Note [Names])."""
    try:
        names = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
    except ExtensionNotFound:
        return
    for name in names.get_values_for_type(DNSName):
        try:
            yield DNSPattern.from_bytes(name.encode("ascii"))
        except (CertificateError, UnicodeError):
            continue
    for number in names.get_values_for_type(IPAddress):
        if isinstance(number, IPv4Address | IPv6Address):
            yield IPAddressPattern(number)


def parse_certificates(text: str) -> list[crypto.X509]:
    """Read the certificates of a text in PEM (RFC 7468), in which what stands between them is a comment.

    Blanks in the place of ends of lines are read too, as environments and forms of one line make them.

    :raises ValueError: there is none, or a broken one, or something else; the message follows the name of the text.
    """
    found = _CERTIFICATE.findall(text)
    if not found:
        raise ValueError("holds no whole certificate in PEM, from BEGIN CERTIFICATE to END CERTIFICATE")
    if len(found) != text.count(_BEGIN):
        raise ValueError("holds a broken certificate, or something else than certificates")
    read: list[crypto.X509] = []
    for number, encoded in enumerate(found, 1):
        try:
            octets = base64.b64decode("".join(encoded.split()), validate=True)
            read.append(crypto.load_certificate(crypto.FILETYPE_ASN1, octets))
        except (ValueError, crypto.Error):
            raise ValueError(f"is not usable: certificate {number} of {len(found)} is broken") from None
    return read


def client_tls(
    host: str, ca_cert: str | None, variable: str = "ca-cert", protocol: bytes | None = None
) -> IOpenSSLClientConnectionCreator:
    """Make the TLS of a connection to the host of that name.

    ``ca_cert``: PEM of the only authorities to trust, ``None`` for the platform's; ``variable``: its name for operators;
    ``protocol``: as in ``Trust.connection_creator``.

    :raises KeysUnavailable: these are no certificates.
    """
    try:
        trust = Trust() if ca_cert is None else Trust.from_pem(ca_cert)
    except ValueError as error:
        raise KeysUnavailable(f"{variable} {error}") from None
    return trust.connection_creator(host, protocol)


def web_tls(host: str, ca_cert: str | None) -> IOpenSSLClientConnectionCreator:
    """Make the TLS of a connection that speaks HTTP/1.1: a server that doesn't ends the handshake, instead of a riddle."""
    return client_tls(host, ca_cert, protocol=b"http/1.1")


def tls_fault(cause: BaseException | None) -> str | None:
    """Return what was wrong with the other side's TLS or certificate, if that is why a connection ended."""
    match cause:
        case Unproven(why=why):
            return why
        case SSL.Error():
            reasons = _error_reasons(cause)
            return f"TLS failed: {', '.join(reasons)}" if reasons else "TLS failed"
    return None


def _error_reasons(error: SSL.Error) -> list[str]:
    """Return the words of OpenSSL's errors."""
    match error.args:
        case ([*errors],):
            return [str(reason) for *_, reason in errors]
    return []
