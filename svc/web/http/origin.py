"""Where a request comes from (WIRE-32)."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final

import attrs

from svc.model.query_results import Network, is_within

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

#: How many entries of a header are looked at, from the right; no chain of proxies is longer.
_HOPS: Final = 32

#: Always trusted: a program of this machine could do worse than forge an address.
_LOOPBACK: Final = (ipaddress.ip_network("127.0.0.1/32"), ipaddress.ip_network("::1/128"))


@attrs.frozen
class TrustedProxies:
    """The networks whose ``X-Forwarded-For`` is believed; loopback is always one of them."""

    networks: tuple[Network, ...] = ()

    def client_ip(self, peer: str, forwarded: Sequence[bytes]) -> str:
        """Return the client's address: the peer's own, in :func:`plain` form, unless the peer is trusted and names another.

        Then it is the right-most address of the headers that is not trusted itself, or the left-most when all are. What
        stands left of an entry that is no address (``unknown``, ``unix:``) may be forged, and is not looked at.
        """
        address = _address(peer) if forwarded else None
        if address is None or not self._trusts(address):
            return peer
        for entry in reversed(b",".join(forwarded).rsplit(b",", _HOPS)[-_HOPS:]):
            text = entry.decode("latin-1").strip()
            if not text:  # elements of lists may be empty (RFC 9110 5.6.1)
                continue
            named = _address(_bare(text))
            if named is None:
                break
            address = named
            if not self._trusts(named):
                break
        return str(address)

    def trust(self, peer: str) -> bool:
        """Return whether an address, in :func:`plain` form, is that of a proxy or of this machine."""
        return is_within(peer, (*_LOOPBACK, *self.networks))

    def _trusts(self, address: _Address) -> bool:
        return any(address in network for network in (*_LOOPBACK, *self.networks))


def plain(host: str) -> str:
    """Return an address in its canonical form; an IPv4 one that a socket for both families shows as IPv6 is IPv4."""
    address = _address(host)
    return host if address is None else str(address)


def _bare(entry: str) -> str:
    """Return an entry without the port that some proxies add: ``1.2.3.4:80``, ``[::1]:80``."""
    if entry.startswith("["):
        inside, bracket, _ = entry[1:].partition("]")
        return inside if bracket else entry
    host, colon, _ = entry.partition(":")
    return host if colon and "." in host else entry


def _address(text: str) -> _Address | None:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
