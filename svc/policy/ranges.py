"""Ranges of addresses, from which users and hosts may be restricted to log in (POL-14)."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from svc.policy.document import shorten_text

# No masks of addresses (10.0.0.0/255.0.0.0), which mean two things.
_RANGE: Final = re.compile(r"([0-9A-Fa-f:.]+)(%[0-9A-Za-z._~-]{1,32})?(?:/(?:0|[1-9][0-9]{0,2}))?")
#: The length of the prefix of IPv4 addresses in IPv6.
_MAPPED: Final = 96


def normalize_cidr(text: str, zoned: bool = False) -> str:
    """Write an IPv4 or IPv6 address or range as it is stored: in one spelling, and always with its mask. A range of IPv4 in
    IPv6 (``::ffff:10.0.0.0/104``) is written as that of IPv4, since addresses of clients are.

    ``zoned``: an address of IPv6 may have a zone (``fe80::1%eth0``), which is kept.

    :raises ValueError: it is none, or has bits beyond its mask, or a zone that isn't taken; the message is that of POL-14.
    """
    message = f"Invalid IP address or CIDR range '{shorten_text(text)}'"
    matched = _RANGE.fullmatch(text)
    try:
        if matched is None:
            raise ValueError
        zone = matched[2] or ""
        network = ipaddress.ip_network(text.replace(zone, "") if zone else text, strict=False)
        if zone and network.version == 4:
            raise ValueError
        address = ipaddress.ip_address(matched[1])
    except ValueError:
        raise ValueError(message) from None
    if zone and not zoned:
        raise ValueError(f"{message}: An address has no zone here")
    first = network.network_address
    mapped = first.ipv4_mapped if isinstance(first, ipaddress.IPv6Address) else None
    written = str(network)
    if mapped is not None:
        # Pythons differ in how they write an IPv4 address in IPv6.
        written = f"::ffff:{mapped}/{network.prefixlen}" if zone else f"{mapped}/{network.prefixlen - _MAPPED}"
    if address != first:
        raise ValueError(f"{message}: Value has bits set to right of mask. Did you mean '{written}'?")
    return written.replace("/", f"{zone}/") if zone else written
