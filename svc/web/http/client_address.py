"""The address that a request comes from (WIRE-32).

Note [Loopback]. Unless the setting names others, loopback is trusted, where a proxy of this machine is. A program there that
passes bytes on, such as a tunnel, lets its clients choose their address by that; so the setting replaces the default.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final

import attrs
from twisted.logger import Logger

from svc.model.query_results import Network, is_within

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

#: How many entries of a header are looked at, from the right; no chain of proxies is longer.
_MAX_HOPS: Final = 32

#: The networks that are trusted by default (Note [Loopback]); of 127.0.0.0/8 proxies use no other address.
LOOPBACK: Final[tuple[Network, ...]] = (ipaddress.ip_network("127.0.0.1/32"), ipaddress.ip_network("::1/128"))

_log = Logger()


@attrs.define
class TrustedProxies:
    """The networks whose ``X-Forwarded-For`` is believed; ``None`` is loopback."""

    _configured: tuple[Network, ...] | None = None
    _networks: tuple[Network, ...] = attrs.field(
        init=False,
        default=attrs.Factory(lambda self: LOOPBACK if self._configured is None else self._configured, takes_self=True),
    )
    _warned: bool = attrs.field(init=False, default=False)

    def client_ip(self, peer: str, forwarded: Sequence[bytes]) -> str:
        """Return the client's address: the peer's own, in :func:`canonical_address` form, unless the peer is trusted and
        names another.

        Then it is the right-most address of the headers that is not trusted itself, or the left-most when all are. Entries
        left of one that is no address (``unknown``, ``unix:``) may be forged, and are ignored.
        """
        address = _parse_address(peer) if forwarded else None
        if address is None:
            return peer
        if not self._is_trusted(address):
            self._warn_untrusted(address)
            return peer
        for entry in reversed(b",".join(forwarded).rsplit(b",", _MAX_HOPS)[-_MAX_HOPS:]):
            text = entry.decode("latin-1").strip()
            if not text:  # elements of lists may be empty (RFC 9110 5.6.1)
                continue
            named = _parse_address(_strip_port(text))
            if named is None:
                break
            address = named
            if not self._is_trusted(named):
                break
        return str(address)

    def is_shared(self, peer: str) -> bool:
        """Return whether an address, in :func:`canonical_address` form, is that of a trusted proxy or of this machine."""
        return is_within(peer, (*LOOPBACK, *self._networks))

    def _is_trusted(self, address: _Address) -> bool:
        return any(address in network for network in self._networks)

    def _warn_untrusted(self, address: _Address) -> None:
        if self._warned or not any(address in network for network in LOOPBACK):
            return
        self._warned = True
        message = (
            "X-Forwarded-For of a request from {address} isn't believed, since trusted_proxies lacks it: the client"
            " counts as {address}. If a proxy of this machine sets the header, add 127.0.0.1 and ::1"
        )
        _log.warn(message, address=str(address))


def canonical_address(host: str) -> str:
    """Return an address in its canonical form; an IPv4 one that a socket for both families shows as IPv6 is IPv4."""
    address = _parse_address(host)
    return host if address is None else str(address)


def _strip_port(entry: str) -> str:
    """Return an entry without the port that some proxies add: ``1.2.3.4:80``, ``[::1]:80``."""
    if entry.startswith("["):
        inside, bracket, _ = entry[1:].partition("]")
        return inside if bracket else entry
    host, colon, _ = entry.partition(":")
    return host if colon and "." in host else entry


def _parse_address(text: str) -> _Address | None:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
