"""Addresses that the service refuses to connect to, although policy names them.

Users who may set a variable choose what this server fetches, from inside its network. Hence only public addresses are
connected to, and networks that the configuration lists (NET-9). The tables follow the IANA special-purpose registries
(RFC 6890), and list what they refuse rather than trust a library's idea of "private".
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_network
from typing import Final

from svc.model.query_results import Network

Address = IPv4Address | IPv6Address

_SPECIAL: Final[tuple[tuple[Network, str], ...]] = tuple(
    (ip_network(text), what)
    for text, what in (
        ("0.0.0.0/8", "of this network"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "shared behind a carrier's NAT"),
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "a cloud platform's own"),  # a public number, answered by the machine's host
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved for protocols"),
        ("192.0.2.0/24", "for documentation"),
        ("192.88.99.0/24", "a 6to4 relay"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "for benchmarks"),
        ("198.51.100.0/24", "for documentation"),
        ("203.0.113.0/24", "for documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("2001::/23", "reserved for protocols"),
        ("2001:db8::/32", "for documentation"),
        ("2002::/16", "6to4"),
        ("3fff::/20", "for documentation"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("ff00::/8", "multicast"),
    )
)

_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")  # the only part of IPv6 that is given out as public addresses
_NAT64: Final = IPv6Network("64:ff9b::/96")  # where a gateway answers for the whole of IPv4 (RFC 6052 2.1)


def find_objection(address: Address, allowed: Iterable[Network]) -> str | None:
    """Return what speaks against connecting to ``address``, outside ``allowed`` networks: "loopback"; ``None`` for nothing.

    One that stands for an IPv4 address, mapped or behind NAT64, is checked as that.
    """
    allowed = tuple(allowed)
    if any(address in network for network in allowed):
        return None
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return find_objection(address.ipv4_mapped, allowed)
        if address in _NAT64:
            return find_objection(IPv4Address(int(address) & 0xFFFFFFFF), allowed)
    reserved = isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST
    return next((what for network, what in _SPECIAL if address in network), "reserved" if reserved else None)
