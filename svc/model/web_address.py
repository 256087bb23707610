"""Web addresses that operators and providers give (NET-12): which texts are valid, and how they are compared."""

from __future__ import annotations

import re
from ipaddress import IPv6Address
from typing import Final, Self

import attrs

from svc.model.strict_json import Malformed
from svc.model.text import quote_address

#: Most characters of a name (RFC 1035 2.3.4).
HOST_LIMIT: Final = 253


def _name_pattern(edge: str) -> str:
    label = rf"{edge}(?:[A-Za-z0-9_-]{{0,61}}{edge})?"
    return rf"{label}(?:\.{label})*"


#: A name, for regular expressions, and one whose labels may begin and end with an underscore, as those of containers do.
DNS_NAME: Final = _name_pattern("[A-Za-z0-9]")
HOST_NAME: Final = _name_pattern("[A-Za-z0-9_]")

#: A host in an address: an IPv6 address in brackets, only its characters checked, or a name or other address.
IPV6: Final = r"\[[0-9A-Fa-f:.]{2,45}\]"
HOST: Final = f"{IPV6}|{HOST_NAME}"

_LIMIT: Final = 2048
_CHARACTER: Final = r"[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2}"
_ADDRESS: Final = re.compile(
    rf"(?P<scheme>[Hh][Tt][Tt][Pp][Ss]?)://(?P<host>{HOST})(?::(?P<port>[0-9]{{1,5}}))?"
    rf"(?P<rest>(?:/(?:{_CHARACTER})*)?(?:\?(?:{_CHARACTER}|\?)*)?)"
)

#: The form of an address, in words, and the remedy for a variable that has another.
FORM: Final = "https://host[:port]/path"
REMEDY: Final = (
    f"Set it to an address of the form {FORM}; write blanks and letters beyond ASCII percent-encoded,"
    " as the provider's own issuer has them."
)


@attrs.frozen
class WebAddress:
    """An address to which requests may be sent, judging by its text.

    ``url`` is as it was written, with a path, and with the scheme in small letters: its case means nothing (RFC 3986 3.1).
    """

    url: str
    secure: bool
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read an http or https address, of plain ASCII and without user, password and fragment.

        :raises Malformed: it is anything else; the message needs no subject.
        """
        match = _ADDRESS.fullmatch(text) if len(text) <= _LIMIT else None
        if match is None:
            raise Malformed(f"{quote_address(text)} is no address of the form {FORM}")
        scheme, host = match["scheme"].lower(), match["host"]
        port = int(match["port"] or (443 if scheme == "https" else 80))
        if port not in range(1, 1 << 16) or len(host.strip("[]")) > HOST_LIMIT or (":" in host and not _is_ipv6(host)):
            raise Malformed(f"{quote_address(text)} has an impossible port or host")
        rest = match["rest"] if match["rest"].startswith("/") else "/" + match["rest"]
        given = "" if match["port"] is None else f":{match['port']}"
        return cls(f"{scheme}://{host}{given}{rest}", scheme == "https", host.strip("[]"), port)

    @property
    def origin(self) -> str:
        """Return scheme, host and port in one form."""
        return f"{'https' if self.secure else 'http'}://{self.host.lower()}:{self.port}"


def _is_ipv6(host: str) -> bool:
    try:
        IPv6Address(host.strip("[]"))
    except ValueError:
        return False
    return True


def secure_origin(text: str) -> str | None:
    """Return the origin of an https address; ``None`` for every other text."""
    try:
        address = WebAddress.parse(text)
    except Malformed:
        return None
    return address.origin if address.secure else None


def provider_fault(text: str) -> str | None:
    """Return what is wrong with the address of a provider, below which its document lies; ``None`` when nothing is."""
    if (fault := address_fault(text)) is None and "?" in text:
        return f"{quote_address(text)} is no address of a provider: it has a query"
    return fault


def address_fault(text: str) -> str | None:
    """Return what is wrong with an address, ``None`` when nothing is."""
    try:
        WebAddress.parse(text)
    except Malformed as error:
        return error.why
    return None


def is_same_provider(one: str, other: str) -> bool:
    """Return whether two texts name one provider: the scheme's case and one final slash make no difference (AUTH-50)."""
    return _normalize_provider(one) == _normalize_provider(other)


def _normalize_provider(text: str) -> str:
    scheme, colon, rest = text.removesuffix("/").partition(":")
    return f"{scheme.lower() if scheme.lower() in {'http', 'https'} else scheme}{colon}{rest}"
