"""Tests of ``svc.workload.address``."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.trial.unittest import SynchronousTestCase

from svc.workload.address import check_address
from svc.workload.exchange import Exchange, http_client
from svc.workload.faults import BadAddress, Fault


class AddressTests(SynchronousTestCase):
    """Which addresses are ones."""

    def test_good(self) -> None:
        """A name, an IPv4 address or an IPv6 address in brackets, with a port and a path or without (NET-29)."""
        for url in (
            "https://svc.example.org",
            "http://127.0.0.1:8080/",
            "HTTPS://svc/a/b%20c",
            "http://b\u00fccher.example",
            "http://[::1]",
            "https://[2001:db8::1]:8443/a/b%20c",
        ):
            check_address(url, "it")

    def test_bad(self) -> None:
        """Anything else is refused by its name alone, with what it should be; users and queries may be secrets."""
        for rest in (
            "",
            ":x",
            ":0x1",
            ":99999",
            "@svc",
            ":hunter2@svc",
            "?hunter2",
            "#a",
            "_b",
            "/\n?",
            "..a",
            "\udcff",
            " ",
        ):
            said = str(self.assertRaises(BadAddress, check_address, f"https://hunter2{rest or '@'}", "SVC_URL"))
            self.assertIn("SVC_URL must have the form https://", said)
            self.assertNotIn("hunter2", said)
        for url in ("", "svc.example.org", "//svc", "ftp://svc", "https://", "https:///a", "http://[", "\0"):
            self.assertRaises(BadAddress, check_address, url, "it")
        for url in ("http://::1", "http://[::1]x", "http://[1.2.3.4]", "http://[v1.x]", "http://[::1", "http://[:::]"):
            self.assertRaises(BadAddress, check_address, url, "it")

    def test_zones(self) -> None:
        """A zone of IPv6 is refused by name (NET-29)."""
        for url in ("https://[fe80::1%eth0]:8443", "https://[fe80::1%25eth0]"):
            refusal = self.assertRaises(BadAddress, check_address, url, "SVC_URL")
            self.assertIn("no zone of IPv6", str(refusal))

    def test_sent(self) -> None:
        """A number of IPv6 is sent as it is, in brackets where a port may follow; the path is encoded (NET-29)."""
        for url, host in (
            ("http://[2001:db8::1]:8080/a b", b"[2001:db8::1]:8080"),
            ("http://[::1]/a b", b"[::1]"),
            ("http://b\u00fccher.example/a b", b"xn--bcher-kva.example"),
        ):
            reactor: Any = MemoryReactorClock()
            Deferred.fromCoroutine(Exchange(http_client(reactor), reactor, 1).ask("GET", url, within=1))
            protocol = reactor.tcpClients[0][2].buildProtocol(None)
            protocol.makeConnection(transport := StringTransport())
            head = transport.value().split(b"\r\n")
            self.assertEqual((head[0], head[-3]), (b"GET /a%20b HTTP/1.1", b"Host: " + host))

    @given(st.text() | st.text().map("http://{}".format) | st.text().map("https://a.example/{}".format))
    def test_anything(self, url: str) -> None:
        """Whatever is taken for an address can be asked, and told."""
        reactor: Any = MemoryReactorClock()
        try:
            check_address(url, "it")
        except BadAddress:
            return
        Deferred.fromCoroutine(Exchange(http_client(reactor), reactor, 1).ask("GET", url, within=1)).addErrback(
            lambda failure: failure.trap(Fault)
        )
        reactor.advance(1)
