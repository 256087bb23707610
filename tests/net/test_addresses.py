"""Tests of ``svc.net.addresses``: the service connects to public addresses, and to those it was told it may."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.net.addresses import find_objection

LOCAL = (ip_network("127.0.0.0/8"), ip_network("fd00::/8"))


class ObjectionTests(SynchronousTestCase):
    """``find_objection``."""

    def assert_refused(self, what: str, *addresses: str) -> None:
        """Each address is refused for being what is said."""
        for text in addresses:
            self.assertEqual(find_objection(ip_address(text), ()), what, text)

    def test_public_addresses(self) -> None:
        """Nothing speaks against the addresses of the open internet (NET-9)."""
        for text in ("1.1.1.1", "8.8.8.8", "172.15.0.1", "172.32.0.1", "100.63.0.1", "2606:4700::1111", "2a00::1"):
            self.assertIsNone(find_objection(ip_address(text), ()), text)

    def test_the_machine_itself(self) -> None:
        """Loopback and unspecified addresses reach this machine (NET-9)."""
        self.assert_refused("loopback", "127.0.0.1", "127.255.255.254", "::1")
        self.assert_refused("of this network", "0.0.0.0", "0.1.2.3")
        self.assert_refused("unspecified", "::")

    def test_the_network_around(self) -> None:
        """Private and link-local addresses, and those behind a carrier's NAT, reach what stands around this machine
        (NET-9).
        """
        self.assert_refused("private", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "fc00::1", "fd12::1")
        self.assert_refused("link-local", "169.254.0.1", "fe80::1", "febf::1", "fe80::1%eth0")
        self.assert_refused("shared behind a carrier's NAT", "100.64.0.1", "100.127.255.255")

    def test_metadata_of_clouds(self) -> None:
        """The addresses under which clouds give out credentials are among those refused (NET-9)."""
        for text in ("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "192.0.0.192", "168.63.129.16"):
            self.assertIsNotNone(find_objection(ip_address(text), ()), text)

    def test_what_is_no_host(self) -> None:
        """Multicast, broadcast, documentation, benchmark and reserved ranges are refused (NET-9)."""
        self.assert_refused("multicast", "224.0.0.1", "239.255.255.255", "ff02::1")
        self.assert_refused("reserved", "240.0.0.1", "255.255.255.255", "100::1", "4000::1", "fec0::1", "::127.0.0.1")
        self.assert_refused("for documentation", "192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1")
        self.assert_refused("for benchmarks", "198.18.0.1", "198.19.255.255")

    def test_addresses_within_addresses(self) -> None:
        """IPv4 in the clothes of IPv6 is judged as IPv4; 6to4, Teredo and local NAT64 aren't spoken at all (NET-9)."""
        self.assert_refused("loopback", "::ffff:127.0.0.1", "64:ff9b::127.0.0.1")
        self.assert_refused("private", "::ffff:10.0.0.1", "64:ff9b::a00:1")
        self.assert_refused("6to4", "2002:7f00:1::1", "2002:808:808::1")
        self.assert_refused("reserved for protocols", "2001::1", "2001:10::1")
        self.assert_refused("reserved", "64:ff9b:1::1")
        self.assertIsNone(find_objection(ip_address("::ffff:8.8.8.8"), ()))
        self.assertIsNone(find_objection(ip_address("64:ff9b::808:808"), ()))

    def test_allowed_networks(self) -> None:
        """A network that the configuration lists is spoken to, and nothing beside it (NET-9)."""
        for text in ("127.0.0.1", "::ffff:127.0.0.1", "fd12::1"):
            self.assertIsNone(find_objection(ip_address(text), LOCAL), text)
        for text in ("10.0.0.1", "::1", "fc00::1", "169.254.169.254"):
            self.assertIsNotNone(find_objection(ip_address(text), LOCAL), text)

    @given(st.ip_addresses(v=4), st.sampled_from([0xFFFF << 32, 0x64FF9B << 96]))
    def test_disguise_changes_nothing(self, address: IPv4Address, prefix: int) -> None:
        """An IPv4 address is judged the same, mapped and behind NAT64."""
        self.assertEqual(find_objection(IPv6Address(prefix | int(address)), ()), find_objection(address, ()))

    @given(st.ip_addresses())
    def test_never_kinder_than_the_standard_library(self, address: IPv4Address | IPv6Address) -> None:
        """What Python knows not to be global is refused."""
        disguised = isinstance(address, IPv6Address) and address in ip_network("64:ff9b::/96")
        if not address.is_global and not disguised:
            self.assertIsNotNone(find_objection(address, ()), str(address))
