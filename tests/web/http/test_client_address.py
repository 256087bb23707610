"""Where a request comes from, as far as it can be believed."""

from __future__ import annotations

import ipaddress

from hypothesis import given
from hypothesis import strategies as st
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from svc.web.http.client_address import LOOPBACK, TrustedProxies, canonical_address

LOOPBACK_ONLY = TrustedProxies()
NOBODY = TrustedProxies(())
WITH_PROXIES = TrustedProxies((ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("2001:db8::/32")))


class TrustedProxiesTests(SynchronousTestCase):
    """``TrustedProxies``."""

    def test_stranger(self) -> None:
        """A peer that isn't trusted is the client, whatever it says (WIRE-32)."""
        self.assertEqual(LOOPBACK_ONLY.client_ip("192.0.2.1", [b"127.0.0.1"]), "192.0.2.1")
        self.assertEqual(LOOPBACK_ONLY.client_ip("10.0.0.1", [b"192.0.2.9"]), "10.0.0.1")

    def test_loopback_is_trusted(self) -> None:
        """A peer on loopback may speak for another (WIRE-32)."""
        for peer in ("127.0.0.1", "::1"):
            self.assertEqual(LOOPBACK_ONLY.client_ip(peer, [b"192.0.2.9"]), "192.0.2.9")
            self.assertEqual(LOOPBACK_ONLY.client_ip(peer, ()), peer)

    def test_right_most_untrusted(self) -> None:
        """The right-most entry that isn't trusted counts; those left of it may be forged (WIRE-32)."""
        forwarded = [b"203.0.113.1, 192.0.2.9", b"10.1.1.1,10.2.2.2"]
        self.assertEqual(WITH_PROXIES.client_ip("10.9.9.9", forwarded), "192.0.2.9")

    def test_all_trusted(self) -> None:
        """When all entries are trusted, the left-most is the client (WIRE-32)."""
        self.assertEqual(WITH_PROXIES.client_ip("10.9.9.9", [b"10.1.1.1, 2001:db8::1"]), "10.1.1.1")

    def test_replaced(self) -> None:
        """Networks that are set take the place of loopback, and none is nobody (WIRE-32)."""
        for proxies in (WITH_PROXIES, NOBODY):
            for peer in ("127.0.0.1", "::1"):
                self.assertEqual(proxies.client_ip(peer, [b"192.0.2.9"]), peer)
        self.assertEqual(WITH_PROXIES.client_ip("10.9.9.9", [b"192.0.2.9, 127.0.0.1"]), "127.0.0.1")
        self.assertEqual(NOBODY.client_ip("10.9.9.9", [b"192.0.2.9"]), "10.9.9.9")
        self.assertEqual(TrustedProxies(LOOPBACK).client_ip("::1", [b"192.0.2.9"]), "192.0.2.9")

    def test_shared(self) -> None:
        """Trusted proxies have no limit of connections of their own, nor has loopback, whatever the setting is (LIM-8)."""
        for peer, shared in (("127.0.0.1", True), ("::1", True), ("10.9.9.9", False), ("192.0.2.1", False)):
            self.assertEqual(NOBODY.is_shared(peer), shared)
        self.assertTrue(WITH_PROXIES.is_shared("10.9.9.9"))

    def test_warned(self) -> None:
        """The log warns once of a forwarded request from loopback that isn't believed, and of no other (WIRE-32)."""
        for proxies, warned in (
            (TrustedProxies((ipaddress.ip_network("10.0.0.0/8"),)), 1),
            (TrustedProxies(()), 1),
            (TrustedProxies(LOOPBACK), 0),
            (TrustedProxies(), 0),
        ):
            with capturedLogs() as events:
                proxies.client_ip("127.0.0.1", ())
                proxies.client_ip("192.0.2.1", [b"192.0.2.9"])
                self.assertEqual(len(events), 0)
                for peer in ("127.0.0.1", "::1", "127.0.0.1"):
                    proxies.client_ip(peer, [b"192.0.2.9"])
            self.assertEqual(len(events), warned)
            self.assertTrue(all(event["address"] == "127.0.0.1" for event in events))

    def test_no_address(self) -> None:
        """An entry that is no address hides who wrote what stands left of it, which is not believed (WIRE-32)."""
        for entry in (b"unknown", b"unix:", b"192.0.2.999", b"\xff", b"[::1", b"_hidden"):
            self.assertEqual(WITH_PROXIES.client_ip("10.9.9.9", [b"192.0.2.9, " + entry + b", 10.1.1.1"]), "10.1.1.1")
            self.assertEqual(LOOPBACK_ONLY.client_ip("127.0.0.1", [b"192.0.2.9, " + entry]), "127.0.0.1")
            self.assertEqual(LOOPBACK_ONLY.client_ip("127.0.0.1", [entry, b"192.0.2.9"]), "192.0.2.9")

    def test_empty(self) -> None:
        """An empty element is none."""
        for forwarded in ([b"192.0.2.9, "], [b"192.0.2.9", b"", b" , ,"], [b",192.0.2.9"]):
            self.assertEqual(LOOPBACK_ONLY.client_ip("127.0.0.1", forwarded), "192.0.2.9")

    def test_ports_and_scopes(self) -> None:
        """Ports and scopes that proxies add are dropped (WIRE-32)."""
        for entry, address in (
            (b"192.0.2.9:8080", "192.0.2.9"),
            (b"[2001:db9::1]:8080", "2001:db9::1"),
            (b"[2001:db9::1]", "2001:db9::1"),
            (b"fe80::1%eth0", "fe80::1"),
            (b"::ffff:192.0.2.9", "192.0.2.9"),
        ):
            self.assertEqual(LOOPBACK_ONLY.client_ip("127.0.0.1", [entry]), address)

    def test_long_chains(self) -> None:
        """Of a header that goes on for ever only the end is looked at."""
        forwarded = [b"192.0.2.9" + b",127.0.0.1" * 3000]
        self.assertEqual(LOOPBACK_ONLY.client_ip("127.0.0.1", forwarded), "127.0.0.1")

    @given(st.lists(st.binary()))
    def test_total(self, forwarded: list[bytes]) -> None:
        """No header makes it fail, and what it tells is an address."""
        ipaddress.ip_address(LOOPBACK_ONLY.client_ip("::1", forwarded))

    def test_plain(self) -> None:
        """A socket for both families shows IPv4 addresses as IPv6; here they are IPv4."""
        for host, address in (("::ffff:10.0.0.1", "10.0.0.1"), ("::1", "::1"), ("0:0::1", "::1"), ("x", "x")):
            self.assertEqual(canonical_address(host), address)
