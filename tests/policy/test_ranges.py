"""Ranges of addresses."""

from __future__ import annotations

import ipaddress

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.model.query_results import is_within
from svc.policy.ranges import normalize_cidr


class RangeTests(SynchronousTestCase):
    """Core 1.3: ``restricted_to``."""

    def told(self, text: str) -> str:
        """How a text is refused."""
        return str(self.assertRaises(ValueError, normalize_cidr, text))

    def test_masks_are_always_written(self) -> None:
        """An address is the range of itself; ranges are written in one spelling (POL-14)."""
        for text, expected in (
            ("1.2.3.4", "1.2.3.4/32"),
            ("1.2.3.4/32", "1.2.3.4/32"),
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("::1", "::1/128"),
            ("::/0", "::/0"),
            ("2001:DB8:0::/32", "2001:db8::/32"),
            ("::ffff:1.2.3.4", "1.2.3.4/32"),
            ("::FFFF:102:304", "1.2.3.4/32"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:0:0/96", "0.0.0.0/0"),
            ("::fffe:0:0/95", "::fffe:0:0/95"),
        ):
            self.assertEqual(normalize_cidr(text), expected)

    def test_bits_beyond_the_mask(self) -> None:
        """A range with bits beyond its mask is refused, and the one that may be meant is named (POL-14)."""
        for text, meant in (
            ("10.0.0.1/24", "10.0.0.0/24"),
            ("1.2.3.4/0", "0.0.0.0/0"),
            ("2001:db8::1/32", "2001:db8::/32"),
            ("::ffff:1.2.3.4/120", "1.2.3.0/24"),
        ):
            expected = (
                f"Invalid IP address or CIDR range '{text}': Value has bits set to right of mask. Did you mean '{meant}'?"
            )
            self.assertEqual(self.told(text), expected)

    def test_zones(self) -> None:
        """Where zones aren't taken, an address with one is refused for it (POL-14)."""
        for text in ("fe80::1%eth0", "fe80::%2/64"):
            self.assertEqual(self.told(text), f"Invalid IP address or CIDR range '{text}': An address has no zone here")

    def test_other_texts(self) -> None:
        """Names, masks of addresses, zones of IPv4, blanks, other digits and odd numbers are no ranges (POL-14)."""
        for text in (
            "",
            "localhost",
            "10.0.0",
            "10.0.0.256",
            "10.0.0.01",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/08",
            "10.0.0.0/-1",
            "10.0.0.0/255.0.0.0",
            "10.0.0.0/8/8",
            "::/129",
            ":::",
            "10.0.0.1%eth0",
            "fe80::1%",
            " 1.2.3.4",
            "1.2.3.4\n",
            "\uff11.2.3.4",
            "1.2.3.4, 5.6.7.8",
        ):
            self.assertEqual(self.told(text), f"Invalid IP address or CIDR range '{text}'")
        self.assertLess(len(self.told("1" * 100_000)), 400)

    @given(st.one_of(st.ip_addresses(), st.ip_addresses(network="::ffff:0:0/96")), st.integers(0, 128))
    def test_ranges_are_themselves(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address, prefix: int) -> None:
        """The written range contains the clients that the range contains, and reads as it is written."""
        network = ipaddress.ip_network((address, min(prefix, address.max_prefixlen)), strict=False)
        written = normalize_cidr(f"{network.network_address}/{network.prefixlen}")
        mapped = network.network_address.ipv4_mapped if isinstance(network, ipaddress.IPv6Network) else None
        expected = network if mapped is None else ipaddress.ip_network(f"{mapped}/{network.prefixlen - 96}")
        self.assertEqual(ipaddress.ip_network(written), expected)
        if mapped is not None:
            self.assertTrue(is_within(str(network.network_address), [ipaddress.ip_network(written)]))
        self.assertEqual(normalize_cidr(written), written)

    @given(st.text("0123456789abcdefABCDEF.:/", max_size=24))
    def test_any_text(self, text: str) -> None:
        """Any text is a range or refused, with a message."""
        try:
            self.assertEqual(normalize_cidr(normalize_cidr(text)), normalize_cidr(text))
        except ValueError as error:
            self.assertTrue(str(error).startswith("Invalid IP address or CIDR range"))
