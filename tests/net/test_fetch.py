"""Tests of ``svc.net.fetch`` without a network: what is asked, of whom, and for how long.

A memory reactor records connections; a test plays the server by writing into the protocol that the client would have used.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_network
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectError, ConnectionDone
from twisted.internet.interfaces import IHostnameResolver
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from svc.model.errors import KeysUnavailable
from svc.model.query_results import Network
from svc.model.web_address import secure_origin
from svc.net.fetch import GuardedClient
from svc.net.trust import client_tls
from tests.authn.providers.names import Names


class Case(SynchronousTestCase):
    """A client on a memory reactor."""

    def setUp(self) -> None:
        """No time has passed and nobody was asked."""
        self.reactor: Any = MemoryReactorClock()

    def client(self, names: Names | None = None, allow_http: bool = True, networks: Sequence[Network] = ()) -> GuardedClient:
        """A client; its host is public unless said otherwise."""
        self.names = names or Names(["93.184.216.34"])
        return GuardedClient(
            self.reactor,
            self.names,
            client_tls,
            allow_http=allow_http,
            private_networks=networks,
            deadline=5.0,
            limit=1000,
        )

    def fetch(self, uri: str = "http://idp.example/keys", client: GuardedClient | None = None) -> Deferred[bytes]:
        """Begin to fetch."""
        return Deferred.fromCoroutine((client or self.client()).fetch(uri))

    def assert_refused(self, asked: Deferred[bytes], why: str) -> None:
        """The fetch ended in a refusal that says why, and left nothing behind."""
        self.assertIn(why, self.failureResultOf(asked, KeysUnavailable).value.why)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def connect(self) -> tuple[Any, StringTransport]:
        """Let the newest connection be made; return its protocol and transport."""
        host, port, factory, _, _ = self.reactor.tcpClients[-1]
        protocol = factory.buildProtocol(IPv4Address("TCP", host, port))
        transport = StringTransport()
        protocol.makeConnection(transport)
        return protocol, transport

    def refuse(self) -> None:
        """Let the newest connection be refused."""
        _, _, factory, _, _ = self.reactor.tcpClients[-1]
        factory.clientConnectionFailed(self.reactor.connectors[-1], Failure(ConnectError()))


class AddressTests(Case):
    """What may be asked at all."""

    def test_names_are_a_name_service(self) -> None:
        """The name service of these tests is one."""
        verifyObject(IHostnameResolver, Names([]))

    def test_malformed_addresses(self) -> None:
        """Anything but a plain http or https address is refused before a name is looked up (NET-12)."""
        for uri in (
            *("", "idp.example/keys", "//idp.example", "ftp://idp.example/", "file:///etc/passwd"),
            *("http://", "http:///keys", "http://:80/", "http://idp.example:/", "http://idp.example:port/", "http://idp_/ "),
            *("http://user@idp.example/", "http://user:secret@idp.example/", "http://idp.example@evil.example/"),
            *(
                "http://idp.example\\@evil.example/",
                "http://idp.example/#part",
                "http://idp.example/a b",
                "http://i\u00e4.example/",
            ),
            *("http://idp.example/\r\nHost: evil", "http://idp.example/%zz", "http://idp.example./", "http://-idp.example/"),
            *("http://idp..example/", f"http://{'a' * 64}.example/", "http://[::1/", "http://::1/", "http://[v1.x]/"),
            *("http://idp.example/" + "a" * 3000, "http://idp.example:80:80/", "http://idp.example?\u2028"),
        ):
            self.assert_refused(self.fetch(uri), "is no address of the form")
        self.assertEqual(self.names.asked, [])

    def test_impossible_ports_and_names(self) -> None:
        """Port 0, ports above 65535 and names of more than 253 characters don't exist (NET-12)."""
        for uri in (
            "http://idp.example:0/",
            "http://idp.example:65536/",
            "http://" + "a." * 130 + "example/",
            "http://[1::2::3]/",
        ):
            self.failureResultOf(self.fetch(uri), KeysUnavailable)
        self.assertEqual(self.reactor.tcpClients, [])

    @given(st.text(max_size=40) | st.text(":/@[]?#.%a0\\", max_size=30).map("http://{}".format))
    def test_any_address_is_fetched_or_refused(self, uri: str) -> None:
        """Whatever text an operator sets, the outcome is a connection or a refusal."""
        self.reactor.tcpClients.clear()
        asked = self.fetch(uri)
        if not self.reactor.tcpClients:
            self.failureResultOf(asked, KeysUnavailable)
        else:
            asked.cancel()
            self.failureResultOf(asked)

    def test_http_is_off(self) -> None:
        """Without ``allow_http`` only https is spoken (NET-12)."""
        self.assert_refused(self.fetch(client=self.client(allow_http=False)), "allow_http_providers is off")
        self.assertEqual(self.names.asked, [])

    def test_forbidden_addresses(self) -> None:
        """A name with a forbidden address is refused whole, whatever other addresses it has (NET-10)."""
        for addresses in (["127.0.0.1"], ["93.184.216.34", "169.254.169.254"], ["2606:4700::1", "::1"], ["::ffff:10.0.0.1"]):
            self.assert_refused(self.fetch(client=self.client(Names(addresses))), "allow_private_providers doesn't list it")
        self.assertEqual(self.reactor.tcpClients, [])

    def test_addresses_of_names_are_not_told(self) -> None:
        """The refusal of a name says of what kind its address is, and not which; the log does (NET-11)."""
        refusal = self.failureResultOf(self.fetch(client=self.client(Names(["10.20.30.40"]))), KeysUnavailable).value
        self.assertIn("its address is private", refusal.why)
        self.assertNotIn("10.20.30.40", refusal.why)

    def test_forbidden_addresses_in_place_of_names(self) -> None:
        """A number in place of a name is checked the same, and odd ways to write one are names to look up."""
        for uri in ("http://127.0.0.1/", "http://[::1]/", "http://[::ffff:7f00:1]/", "http://10.0.0.1:8080/"):
            self.assert_refused(self.fetch(uri), "allow_private_providers doesn't list it")
            self.assertEqual(self.names.asked, [])
        for uri in ("http://127.1/", "http://2130706433/", "http://0x7f000001/", "http://0177.0.0.1/"):
            self.assert_refused(self.fetch(uri, self.client(Names(["127.0.0.1"]))), "is loopback")

    def test_allowed_networks(self) -> None:
        """An address in a listed network is connected to."""
        self.fetch("http://127.0.0.1:8080/keys", self.client(networks=[ip_network("127.0.0.0/8")]))
        self.assertEqual(self.reactor.tcpClients[0][:2], ("127.0.0.1", 8080))

    def test_unknown_names(self) -> None:
        """A name without addresses is refused."""
        self.assert_refused(self.fetch(client=self.client(Names([]))), "the name has no address")

    def test_names_that_no_certificate_has(self) -> None:
        """Over TLS, a name that isn't one of the DNS is refused."""
        self.assert_refused(self.fetch("https://my_idp.example/"), "no certificate can be for a host of that name")


class ExchangeTests(Case):
    """How it is asked."""

    def test_asks_the_checked_address(self) -> None:
        """The name is looked up once, and the connection goes to the address that was checked (NET-10)."""
        asked = self.fetch("http://idp.example:8080/keys?v=1&w")
        self.assertEqual(self.reactor.tcpClients[0][:2], ("93.184.216.34", 8080))
        protocol, transport = self.connect()
        lines = transport.value().split(b"\r\n")
        self.assertEqual(lines[0], b"GET /keys?v=1&w HTTP/1.1")
        self.assertEqual(
            sorted(lines[1:-2]),
            [
                b"Accept-Encoding: identity",
                b"Accept: application/jwk-set+json, application/json, */*;q=0.1",
                b"Connection: close",
                b"Host: idp.example:8080",
                b"User-Agent: svc",
            ],
        )
        protocol.dataReceived(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        self.assertEqual(self.successResultOf(asked), b"{}")
        self.assertEqual(self.names.asked, ["idp.example"])
        self.assertTrue(transport.disconnected)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_speaks_ipv6(self) -> None:
        """IPv6 addresses are connected to as IPv6."""
        self.fetch("http://[2606:4700::1111]/keys")
        self.assertEqual(self.reactor.tcpClients[0][:2], ("2606:4700::1111", 80))
        _, transport = self.connect()
        self.assertIn(b"\r\nHost: [2606:4700::1111]\r\n", transport.value())

    def test_asks_names_outside_the_dns(self) -> None:
        """Without TLS, a name with an underscore, as containers have, is as good as any."""
        self.fetch("http://my_idp/keys", self.client(networks=[ip_network("10.0.0.0/8")], names=Names(["10.0.0.1"])))
        _, transport = self.connect()
        self.assertIn(b"\r\nHost: my_idp\r\n", transport.value())

    def test_asks_for_the_path_as_written(self) -> None:
        """Nothing of path and query is rewritten (NET-13)."""
        for rest in (
            "/",
            "//a",
            "//a:b@c",
            "/a//b/../c",
            "/%2f%41;v=1,2/~a!$&'()*+:@",
            "/?a=b=c&d&&e=%26+?/",
            "/?",
            "/a;",
            "/;?x",
        ):
            self.fetch(f"http://idp.example{rest}")
            _, transport = self.connect()
            self.assertEqual(transport.value().split(b" ")[1].decode("ascii"), rest)

    def test_tries_the_next_address(self) -> None:
        """When an address doesn't answer the next one is tried, with its share of the time; four at most (NET-16)."""
        asked = self.fetch(client=self.client(Names([f"93.184.216.{number}" for number in range(9)])))
        self.assertEqual(self.reactor.tcpClients[-1][3], 1.25)
        for _ in range(4):
            self.refuse()
        self.assert_refused(asked, "no connection to 93.184.216.0 port 80")
        self.assertEqual(len(self.reactor.tcpClients), 4)

    def test_an_address_that_answers_is_the_last(self) -> None:
        """A bad answer isn't asked for again elsewhere (NET-16)."""
        asked = self.fetch(client=self.client(Names(["93.184.216.1", "93.184.216.2"])))
        protocol, _ = self.connect()
        protocol.dataReceived(b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n")
        self.assert_refused(asked, "the answer has status 500")
        self.assertEqual(len(self.reactor.tcpClients), 1)

    def test_redirects_are_not_followed(self) -> None:
        """A redirect is an answer that isn't a success, and where it leads is shown (NET-14)."""
        for location, told in (
            (b"Location: http://169.254.169.254/\r\n", "redirects are not followed; it leads to 'http://169.254.169.254/'"),
            (b"Location: /\x1b[2J\xff\r\n", "redirects are not followed; it leads to '/\\x1b[2J\ufffd'"),
            (
                b"Location: https://u:secret@idp.example/k4?token=abc\r\n",
                "redirects are not followed; it leads to 'https://…@idp.example/k4?…'",
            ),
            (b"", "redirects are not followed"),
        ):
            self.reactor.tcpClients.clear()
            asked = self.fetch()
            protocol, _ = self.connect()
            protocol.dataReceived(b"HTTP/1.1 302 Found\r\n%sContent-Length: 0\r\n\r\n" % location)
            self.assert_refused(asked, f"http://idp.example/keys: the answer has status 302, and {told}")
            self.assertEqual(len(self.reactor.tcpClients), 1)

    def test_other_statuses(self) -> None:
        """Only of a redirect it is said that none is followed, and 406 says what was asked for (NET-14)."""
        for status, told in (
            (304, "the answer has status 304"),
            (400, "the answer has status 400"),
            (404, "the answer has status 404"),
            (503, "the answer has status 503"),
            (
                406,
                "the answer has status 406: nothing there is of the types that were asked for (application/jwk-set+json, ",
            ),
        ):
            asked = self.fetch()
            protocol, _ = self.connect()
            protocol.dataReceived(b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % status)
            why = self.failureResultOf(asked, KeysUnavailable).value.why
            self.assertTrue(why.startswith(f"http://idp.example/keys: {told}"), why)
            self.assertNotIn("redirects", why)
            self.assertEqual(why.endswith(told), status != 406)

    def test_a_token_is_asked_for(self) -> None:
        """Where a token is or may be wanted, the refusal says the status, and that none was shown (AUTH-70)."""
        for status, told in ((401, "no token was shown"), (403, "perhaps a token is wanted, and none was shown")):
            asked = self.fetch()
            protocol, transport = self.connect()
            self.assertNotIn(b"Authorization", transport.value())
            protocol.dataReceived(b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % status)
            self.assert_refused(asked, f"http://idp.example/keys: the answer has status {status}: {told} (jwks-token)")

    def test_no_token_in_the_clear(self) -> None:
        """A token is shown over https alone, even where http is allowed (AUTH-67)."""
        asked = Deferred.fromCoroutine(self.client().fetch("http://idp.example/keys", token="secret"))
        self.assert_refused(asked, "it is not https, and a token is shown over https alone")
        self.assertEqual(self.reactor.tcpClients, [])

    def test_origins(self) -> None:
        """An origin is scheme, host and port of an https address in one form; nothing else has one (AUTH-67)."""
        for uri in ("https://a.example", "https://A.example/x?y", "https://a.example:443/"):
            self.assertEqual(secure_origin(uri), "https://a.example:443")
        self.assertEqual(secure_origin("https://[::1]:8443/x"), "https://::1:8443")
        for uri in ("http://a.example", "https://a@b.example", "https://a.example:0", "a.example", "", "https://a\\@b"):
            self.assertIsNone(secure_origin(uri))

    def test_compressed_answers_are_refused(self) -> None:
        """An answer that would have to be unpacked isn't (NET-14)."""
        asked = self.fetch()
        protocol, _ = self.connect()
        protocol.dataReceived(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}")
        self.assert_refused(asked, "the answer is compressed")

    def test_answers_are_bounded(self) -> None:
        """Headers, chunks and bodies together may have so many bytes, and the connection ends with the one too many
        (NET-15).
        """
        for answer in (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" + b"x" * 2000,
            b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 2000,
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 2000,
            b"HTTP/1.1 200 OK\r\n" + b"X-Pad: x\r\n" * 2000,
            b"HTTP/1.1 100 Continue\r\n\r\n" * 2000,
        ):
            asked = self.fetch()
            protocol, transport = self.connect()
            for start in range(0, len(answer), 100):
                if not transport.disconnected:
                    protocol.dataReceived(answer[start : start + 100])
            self.assertTrue(transport.disconnected)
            protocol.connectionLost(Failure(ConnectionDone()))
            self.assert_refused(asked, "the answer is longer than 1000 bytes")

    def test_broken_answers(self) -> None:
        """An answer that is no HTTP, or breaks off, is refused with what was wrong."""
        for answer, why in (
            (b"", ""),
            (b"SSH-2.0-OpenSSH\r\n", ""),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", ""),
        ):
            asked = self.fetch()
            protocol, _ = self.connect()
            protocol.dataReceived(answer)
            protocol.connectionLost(Failure(ConnectionDone()))
            self.assert_refused(asked, why)


class DeadlineTests(Case):
    """How long it takes at most."""

    def assert_late(self, asked: Deferred[bytes], after: float = 5.0) -> None:
        """The fetch goes on until the deadline, and no longer."""
        self.reactor.advance(after - 0.01)
        self.assertNoResult(asked)
        self.reactor.advance(0.01)
        self.assert_refused(asked, "no complete answer within 5 seconds")

    def test_a_name_service_that_hangs(self) -> None:
        """The look-up of the name counts, and one that ends later is nobody's business."""
        names = Names(None)
        self.assert_late(self.fetch(client=self.client(names)))
        names.waiting[0].resolutionComplete()

    def test_a_connection_that_hangs(self) -> None:
        """A connection that isn't made is given up."""
        asked = self.fetch()
        self.reactor.advance(5)
        self.assert_refused(asked, "no complete answer within 5 seconds")
        self.assertTrue(self.reactor.connectors[0].stoppedConnecting)

    def test_a_server_that_hangs(self) -> None:
        """A server that says nothing is hung up on."""
        asked = self.fetch()
        _, transport = self.connect()
        self.assert_late(asked)
        self.assertTrue(transport.disconnected)

    def test_a_server_that_drips(self) -> None:
        """A byte now and then buys no time, in headers or in the body (NET-15)."""
        for beginning in (b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\n\r\n"):
            asked = self.fetch()
            protocol, transport = self.connect()
            protocol.dataReceived(beginning)
            for _ in range(4):
                self.reactor.advance(1)
                protocol.dataReceived(b"x")
            self.assert_late(asked, 1)
            self.assertTrue(transport.disconnected)

    def test_all_steps_share_one_deadline(self) -> None:
        """Time that the look-up took is not there for the answer (NET-15)."""
        names = Names(None)
        asked = self.fetch(client=self.client(names))
        self.reactor.advance(3)
        names.waiting[0].addressResolved(IPv4Address("TCP", "93.184.216.34", 80))
        names.waiting[0].resolutionComplete()
        self.assertEqual(self.reactor.tcpClients[0][3], 2.0)
        self.connect()
        self.assert_late(asked, 2)

    def test_who_gives_up_hangs_up(self) -> None:
        """A fetch that is cancelled leaves no connection and no timer (NET-13)."""
        asked = self.fetch()
        _, transport = self.connect()
        asked.cancel()
        self.failureResultOf(asked)
        self.assertTrue(transport.disconnected)
        self.assertEqual(self.reactor.getDelayedCalls(), [])
