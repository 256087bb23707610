"""Tests of ``svc.workload.address``."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from svc.workload.address import check_address
from svc.workload.exchange import Exchange, http_client
from svc.workload.faults import BadAddress, Fault


class AddressTests(SynchronousTestCase):
    """Which addresses are ones."""

    def test_good(self) -> None:
        """A name or an IPv4 address, with a port and a path or without."""
        for url in (
            "https://svc.example.org",
            "http://127.0.0.1:8080/",
            "HTTPS://svc/a/b%20c",
            "http://b\u00fccher.example",
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
        for url in ("", "svc.example.org", "//svc", "ftp://svc", "https://", "https:///a", "http://[::1]", "http://[", "\0"):
            self.assertRaises(BadAddress, check_address, url, "it")

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
