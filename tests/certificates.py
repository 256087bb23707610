"""Certificate chains that a server may show, good and bad, in one table; every client of TLS is tried with all of them.

A :class:`Chain` is what a server shows whose host is ``HOST``. Authorities, and the keys of all certificates, are made once.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any, Final

import attrs
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA1, SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID, NameOID
from OpenSSL import SSL

#: The host that all clients ask for, below ``example``, which nobody owns (RFC 2606).
HOST: Final = "svc.team.example"

_START: Final = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
_AGE: Final = datetime.timedelta(days=36_500)
_PAST: Final = (_START, _START + datetime.timedelta(days=1))
_FUTURE: Final = (_START + _AGE - datetime.timedelta(days=1), _START + _AGE)

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
Extension = tuple[x509.ExtensionType, bool]

_KEYS: Final = [ec.generate_private_key(ec.SECP256R1()) for _ in range(4)]
_ROOT_KEY, _MIDDLE_KEY, LEAF_KEY, STRANGERS_KEY = _KEYS
_RSA_KEY: Final = rsa.generate_private_key(65537, 2048)
_WEAK_KEY: Final = rsa.generate_private_key(65537, 1024)

_CA: Final = (x509.BasicConstraints(ca=True, path_length=None), True)
_NO_CA: Final = (x509.BasicConstraints(ca=False, path_length=None), True)


@attrs.frozen
class Chain:
    """The certificates that a server shows, its own first, and its key. ``why`` says of a bad one what is wrong with it.

    With ``weak`` the server's own library has to be told to show it; without certificates it shows none.
    """

    name: str
    certificates: Sequence[x509.Certificate]
    good: bool = False
    key: Key = LEAF_KEY
    weak: bool = False

    def context(self) -> SSL.Context:
        """What a server shows it by."""
        context = SSL.Context(SSL.TLS_SERVER_METHOD)
        context.set_cipher_list(b"ALL:@SECLEVEL=0" if self.weak else b"ECDHE+AESGCM")
        if not self.certificates:
            context.set_max_proto_version(SSL.TLS1_2_VERSION)
            context.set_cipher_list(b"aNULL:@SECLEVEL=0")
            return context
        context.use_certificate(self.certificates[0])
        context.use_privatekey(self.key)
        for certificate in self.certificates[1:]:
            context.add_extra_chain_cert(certificate)
        return context


def name(text: str) -> x509.Name:
    """A subject."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def hosts(*names: str) -> Extension:
    """A ``subjectAltName`` of DNS names, and of IP addresses where one is written so: ``IP:127.0.0.1``."""
    return x509.SubjectAlternativeName([_general(each) for each in names]), False


def _general(text: str) -> x509.GeneralName:
    kind, _, rest = text.partition(":")
    match kind:
        case "IP":
            return x509.IPAddress(ip_address(rest))
        case "URI":
            return x509.UniformResourceIdentifier(rest)
        case "email":
            return x509.RFC822Name(rest)
    return x509.DNSName(text)


def certificate(
    subject: str,
    *extensions: Extension,
    key: Key = LEAF_KEY,
    issuer: str = "root",
    signer: Key = _ROOT_KEY,
    valid: tuple[datetime.datetime, datetime.datetime] = (_START, _START + _AGE),
) -> x509.Certificate:
    """Make a certificate; without more it is one of the trusted authority's."""
    builder = (
        x509.CertificateBuilder()
        .subject_name(name(subject))
        .issuer_name(name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(valid[0])
        .not_valid_after(valid[1])
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    return builder.sign(signer, SHA256())


def pem(*certificates: x509.Certificate) -> str:
    """Certificates as text."""
    return "".join(each.public_bytes(Encoding.PEM).decode("ascii") for each in certificates)


#: The authorities that are trusted: one, and another that has a key of RSA.
TRUSTED: Final = pem(
    certificate("root", _CA, key=_ROOT_KEY), certificate("rsa", _CA, key=_RSA_KEY, issuer="rsa", signer=_RSA_KEY)
)


def _leaf(*extensions: Extension, **given: Any) -> x509.Certificate:
    """A certificate for the host in all but what is told otherwise."""
    return certificate("some-old-printer", *(extensions or (hosts(HOST),)), **given)


def _middle(*extensions: Extension, **given: Any) -> x509.Certificate:
    """An authority between the trusted one and the host."""
    return certificate("middle", *(extensions or (_CA,)), key=_MIDDLE_KEY, **given)


def _below(*extensions: Extension) -> x509.Certificate:
    """The host's certificate from that authority."""
    return _leaf(*(extensions or (hosts(HOST),)), issuer="middle", signer=_MIDDLE_KEY)


def named(*names: str) -> list[x509.Certificate]:
    """A chain of one certificate with these names."""
    return [_leaf(hosts(*names))]


def _usage(*, signs: bool) -> Extension:
    return x509.KeyUsage(
        True, False, False, False, False, signs, False, False, False
    ), True  # the first is digital_signature


def _purpose(*purposes: x509.ObjectIdentifier) -> Extension:
    return x509.ExtendedKeyUsage(purposes), False


def _raw_names(octets: bytes) -> Extension:
    return x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, octets), False


def _constrained(**given: Sequence[x509.GeneralName] | None) -> Extension:
    return x509.NameConstraints(**{"permitted_subtrees": None, "excluded_subtrees": None, **given}), True


def _broken(whole: x509.Certificate) -> x509.Certificate:
    """The certificate with another signature."""
    octets = bytearray(whole.public_bytes(Encoding.DER))
    octets[-1] ^= 1
    return x509.load_der_x509_certificate(bytes(octets))


def _weak_middle() -> x509.Certificate:
    return certificate("weak", _CA, key=_WEAK_KEY)


def _weakly_issued() -> x509.Certificate:
    return _leaf(issuer="weak", signer=_WEAK_KEY)


def _by_sha1() -> x509.Certificate:
    """A certificate that the trusted authority with an RSA key has signed by way of SHA-1, which libraries refuse."""
    issued = _leaf(issuer="rsa", signer=_RSA_KEY)
    signed, sha256, sha1 = (
        issued.tbs_certificate_bytes,
        bytes.fromhex("2a864886f70d01010b"),
        bytes.fromhex("2a864886f70d010105"),
    )
    weak = signed.replace(sha256, sha1)
    octets = issued.public_bytes(Encoding.DER).replace(sha256, sha1)
    return x509.load_der_x509_certificate(octets.replace(issued.signature, _RSA_KEY.sign(weak, PKCS1v15(), SHA1())))


def _good() -> dict[str, Sequence[x509.Certificate]]:
    return {
        "the host's name": named(HOST),
        "the host's name in capitals": named(HOST.upper()),
        "among other names": named("a.example", HOST, "IP:192.0.2.1", "email:root@svc.example"),
        "a wildcard for one label": named("*.team.example"),
        "beside names that are none": named("127.0.0.1", "*", "x\0y", "URI:urn:uuid:1:2", HOST),
        "an authority between": [_below(), _middle()],
        "an authority with a key of RSA": [_leaf(issuer="rsa", signer=_RSA_KEY)],
        "for servers": [_leaf(hosts(HOST), _purpose(ExtendedKeyUsageOID.SERVER_AUTH), _NO_CA, _usage(signs=False))],
    }


def _bad() -> dict[str, Sequence[x509.Certificate]]:
    anywhere = hosts(HOST)
    return {
        "another host": named("other.example"),
        "the host's name as common name alone": [certificate(HOST, _NO_CA)],
        "no name, and an old printer's": [_leaf(_NO_CA)],
        "an e-mail address": named("email:root@svc.team.example"),
        "a directory name": [_leaf((x509.SubjectAlternativeName([x509.DirectoryName(name(HOST))]), False))],
        "an address on the web": named(f"URI:https://{HOST}/"),
        "an IP address as DNS name": named("127.0.0.1"),
        "the IP address that the name stands for": named("IP:127.0.0.1"),
        "a wildcard for all": named("*"),
        "a wildcard for a top-level domain": named("*.example"),
        "a wildcard of two labels": named("*.*.example"),
        "a wildcard in the middle": named("svc.*.example"),
        "a wildcard in a label": named("s*.team.example"),
        "a wildcard below the host": named(f"*.{HOST}"),
        "a NUL after the name": named(f"{HOST}\0.other.example"),
        "a NUL before the name": named(f"\0{HOST}"),
        "a dot after the name": named(f"{HOST}."),
        "a dot before the name": named(".team.example"),
        "a host below": named(f"a.{HOST}"),
        "the domain above": named("team.example"),
        "no names in the list of names": [_leaf(_raw_names(b"\x30\x00"))],
        "names that can't be read": [_leaf(_raw_names(b"\x30\x7f nonsense"))],
        "an IP address of three bytes": [_leaf(_raw_names(b"\x30\x05\x87\x03\x7f\x00\x01"))],
        "expired": [_leaf(valid=_PAST)],
        "not yet valid": [_leaf(valid=_FUTURE)],
        "signed by itself": [_leaf(issuer="some-old-printer", signer=LEAF_KEY)],
        "an unknown authority": [_leaf(issuer="other", signer=STRANGERS_KEY)],
        "an unknown authority of the same name": [_leaf(signer=STRANGERS_KEY)],
        "an unknown authority that is sent along": [
            _leaf(issuer="other", signer=STRANGERS_KEY),
            certificate("other", _CA, key=STRANGERS_KEY, issuer="other", signer=STRANGERS_KEY),
        ],
        "a broken signature": [_broken(_leaf())],
        "the authority between isn't sent": [_below()],
        "the authority between is none": [_below(), _middle(_NO_CA)],
        "the authority between has no constraints": [_below(), _middle(_usage(signs=True))],
        "the authority between may not sign": [_below(), _middle(_CA, _usage(signs=False))],
        "the authority between has expired": [_below(), _middle(_CA, valid=_PAST)],
        "a chain that is too long": [
            _below(),
            certificate("middle", _CA, key=_MIDDLE_KEY, issuer="upper", signer=STRANGERS_KEY),
            certificate("upper", (x509.BasicConstraints(ca=True, path_length=0), True), key=STRANGERS_KEY),
        ],
        "outside what the authority may name": [
            _below(),
            _middle(_CA, _constrained(permitted_subtrees=[x509.DNSName("a.example")])),
        ],
        "within what the authority may not name": [
            _below(),
            _middle(_CA, _constrained(excluded_subtrees=[x509.DNSName("example")])),
        ],
        "for clients": [_leaf(anywhere, _purpose(ExtendedKeyUsageOID.CLIENT_AUTH))],
        "for signing code": [_leaf(anywhere, _purpose(ExtendedKeyUsageOID.CODE_SIGNING))],
        "an unknown critical extension": [
            _leaf(anywhere, (x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"x"), True))
        ],
        "no certificate": [],
    }


CHAINS: Final[Sequence[Chain]] = [
    *(Chain(each, shown, good=True) for each, shown in _good().items()),
    *(Chain(each, shown) for each, shown in _bad().items()),
    Chain("a key of 1024 bits", [_leaf(key=_WEAK_KEY)], key=_WEAK_KEY, weak=True),
    Chain("an authority with a key of 1024 bits", [_weakly_issued(), _weak_middle()], weak=True),
    Chain("signed by way of SHA-1", [_by_sha1()], weak=True),
]


def chain(name: str) -> Chain:
    """The chain of that name."""
    (found,) = (each for each in CHAINS if each.name == name)
    return found
