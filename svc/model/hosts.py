"""Patterns of hosts, in addresses and settings."""

from __future__ import annotations

from typing import Final

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
