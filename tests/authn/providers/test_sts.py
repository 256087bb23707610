"""Tests of ``svc.authn.providers.sts`` without a network: the service fails in every way that it can."""

from __future__ import annotations

from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectError, ConnectionDone, ConnectionLost
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.authn.providers.sts import ANSWER_LIMIT, SecurityTokenService, StsAddress
from svc.model.aws import SignedRequest, StsRefused, StsUnavailable
from svc.model.caller_identity import CallerIdentity
from svc.net.trust import client_tls
from tests.authn.providers.names import Names
from tests.aws import ACCOUNT, KEYS, answer, error, signed
from tests.model.test_caller_identity import BOMB

REGION = "sts.eu-west-1.amazonaws.com"


def response(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    """An answer over HTTP."""
    lines = [f"HTTP/1.1 {status}", "Content-Type: text/xml", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


class _Transport(StringTransport):
    """A transport of TLS, too."""

    def setTcpNoDelay(self, enabled: bool) -> None:
        """Do nothing."""


class StsCase(SynchronousTestCase):
    """A client on a memory reactor, which asks a stand-in in plain, unless it is to ask the host itself."""

    def setUp(self) -> None:
        """No time has passed and nobody was asked."""
        self.reactor: Any = MemoryReactorClock()
        self.names = Names(["10.0.0.7"])
        self.service = self.made(StsAddress(False, "stand-in.example", 8080))

    def made(self, instead: StsAddress | None, **more: Any) -> SecurityTokenService:
        """A client."""
        return SecurityTokenService(self.reactor, self.names, client_tls, instead, **more)

    def request(self, host: str = REGION) -> SignedRequest:
        """A signed request."""
        headers = signed(0, host=host)
        del headers["host"]
        return SignedRequest(host, KEYS.key_id, headers, "0" * 64, 0.0)

    def ask(self, host: str = REGION) -> Deferred[CallerIdentity]:
        """Begin to ask who has signed."""
        return Deferred.fromCoroutine(self.service.identify_caller(self.request(host)))

    def connect(self, number: int = -1) -> tuple[Any, StringTransport]:
        """Let a connection be made; return its protocol and transport."""
        host, port, factory, _, _ = self.reactor.tcpClients[number]
        protocol = factory.buildProtocol(IPv4Address("TCP", host, port))
        transport = _Transport()
        protocol.makeConnection(transport)
        return protocol, transport

    def answered(self, octets: bytes) -> Deferred[CallerIdentity]:
        """Ask, and be answered so."""
        asked = self.ask()
        protocol, _ = self.connect()
        protocol.dataReceived(octets)
        return asked

    def assert_unavailable(self, asked: Deferred[Any], why: str, *, answered: bool = False) -> None:
        """The question ended without a verdict, says why, and left nothing behind."""
        error = self.failureResultOf(asked, StsUnavailable).value
        self.assertIn(why, error.why)
        self.assertEqual(error.answered, answered)
        self.assertEqual(self.reactor.getDelayedCalls(), [])


class QuestionTests(StsCase):
    """What is asked, and of whom."""

    def test_question(self) -> None:
        """It is always the same question, to the host that was signed for, with the signed headers, and XML is wanted
        (AWS-5).
        """
        asked = self.ask()
        protocol, transport = self.connect()
        head, _, rest = transport.value().partition(b"\r\n\r\n")
        line, *headers = head.decode().split("\r\n")
        self.assertEqual((line, rest), ("GET /?Action=GetCallerIdentity&Version=2011-06-15 HTTP/1.1", b""))
        sent = {name.lower(): value for name, _, value in (header.partition(": ") for header in headers)}
        wanted = {**self.request().headers, "host": REGION, "accept": "text/xml", "accept-encoding": "identity"}
        self.assertEqual({name: sent.get(name) for name in wanted}, wanted)
        self.assertEqual(set(sent) - set(wanted), {"user-agent", "connection"} & set(sent))
        protocol.dataReceived(response(answer()))
        self.assertEqual(self.successResultOf(asked), CallerIdentity(KEYS.arn, ACCOUNT))
        self.assertEqual(self.names.asked, ["stand-in.example"])
        self.assertTrue(transport.disconnecting or transport.disconnected)

    def test_by_name(self) -> None:
        """Without a stand-in the host itself is asked over TLS, also at a private address (AWS-5, AWS-12)."""
        self.service = self.made(None)
        self.ask()
        self.assertEqual(self.names.asked, [REGION])
        self.assertEqual(self.reactor.tcpClients[0][:2], ("10.0.0.7", 443))
        _, transport = self.connect()
        self.assertEqual(transport.value()[:1], b"\x16")  # a handshake
        self.assertIn(REGION.encode(), transport.value())
        self.assertNotIn(KEYS.key_id.encode(), transport.value())

    def test_next_address(self) -> None:
        """An address that doesn't accept the connection is followed by the next (AWS-12, NET-16)."""
        self.names.answers = [["10.0.0.7", "10.0.0.8"]]
        asked = self.ask()
        self.refuse()
        self.assertEqual([client[0] for client in self.reactor.tcpClients], ["10.0.0.7", "10.0.0.8"])
        self.refuse()
        self.assert_unavailable(asked, "no connection to 10.0.0.8 port 8080")

    def refuse(self) -> None:
        """Let the newest connection be refused."""
        _, _, factory, _, _ = self.reactor.tcpClients[-1]
        factory.clientConnectionFailed(self.reactor.connectors[-1], Failure(ConnectError()))

    def test_turns(self) -> None:
        """So many questions are asked at a time; others wait for their turn, and for no longer than for an answer
        (AWS-12).
        """
        self.service = self.made(StsAddress(False, "stand-in.example", 8080), at_once=1)
        first, second, third = self.ask(), self.ask(), self.ask()
        self.assertEqual(len(self.reactor.tcpClients), 1)
        protocol, _ = self.connect()
        protocol.dataReceived(response(answer()))
        self.successResultOf(first)
        self.assertEqual(len(self.reactor.tcpClients), 2)
        self.reactor.advance(5)
        self.failureResultOf(second, StsUnavailable)
        self.assert_unavailable(third, "within 5 seconds")
        fourth = self.ask()
        protocol, _ = self.connect()
        protocol.dataReceived(response(answer()))
        self.successResultOf(fourth)

    def test_cancelled(self) -> None:
        """A client that leaves ends its question, and gives its turn back."""
        self.service = self.made(StsAddress(False, "stand-in.example", 8080), at_once=1)
        asked = self.ask()
        _, transport = self.connect()
        asked.cancel()
        self.failureResultOf(asked)
        self.assertTrue(transport.disconnecting or transport.disconnected)
        self.ask()
        self.assertEqual(len(self.reactor.tcpClients), 2)

    def test_reach(self) -> None:
        """Whether it can be asked is asked without a signature, at the global host, or where it was asked last (AWS-14)."""
        for host in ("sts.amazonaws.com", REGION):
            asked = Deferred.fromCoroutine(self.service.check_reachable())
            protocol, transport = self.connect()
            self.assertIn(f"Host: {host}\r\n".encode(), transport.value())
            self.assertNotIn(b"uthorization", transport.value())
            protocol.dataReceived(response(error("MissingAuthenticationToken"), "403 Forbidden"))
            self.assertIsNone(self.successResultOf(asked))
            self.failureResultOf(self.answered(response(error("ExpiredToken"), "403 Forbidden")), StsRefused)
        asked = Deferred.fromCoroutine(self.service.check_reachable())
        protocol, _ = self.connect()
        protocol.dataReceived(response(b"<html/>", "403 Forbidden"))
        self.assert_unavailable(asked, "status 403", answered=True)


class AnswerTests(StsCase):
    """In which ways it answers, and doesn't."""

    def test_refused(self) -> None:
        """Its own error with 400 or 403 refuses the signature, and only its code is told (AWS-13)."""
        for code, status in (
            ("SignatureDoesNotMatch", "403 Forbidden"),
            ("InvalidClientTokenId", "403 Forbidden"),
            ("ExpiredToken", "403 Forbidden"),
            ("RegionDisabledException", "403 Forbidden"),
            ("IncompleteSignature", "400 Bad Request"),
        ):
            asked = self.answered(response(error(code, "The canonical string is x-amz-security-token:secret"), status))
            refusal = self.failureResultOf(asked, StsRefused).value
            self.assertEqual(refusal.code, code)
            self.assertNotIn("secret", str(refusal))

    def test_busy(self) -> None:
        """Being asked too often, and failures of its own, say nothing of the signature (AWS-13)."""
        for code, status in (
            ("Throttling", "400 Bad Request"),
            ("ThrottlingException", "400 Bad Request"),
            ("RequestLimitExceeded", "403 Forbidden"),
            ("Throttling", "429 Too Many Requests"),
            ("InternalFailure", "500 Internal Server Error"),
            ("ServiceUnavailable", "503 Service Unavailable"),
            ("SignatureDoesNotMatch", "404 Not Found"),
            ("SignatureDoesNotMatch", "401 Unauthorized"),
        ):
            self.assert_unavailable(self.answered(response(error(code), status)), code)

    def test_others(self) -> None:
        """A page of something else between, with whatever status, says nothing of it either (AWS-13)."""
        for status in ("200 OK", "400 Bad Request", "403 Forbidden", "404 Not Found", "500 Oops", "503 Oops"):
            for page in (b"<html>Forbidden</html>", b"{}", b"", BOMB.encode() + error("SignatureDoesNotMatch")):
                self.assert_unavailable(self.answered(response(page, status)), status[:3], answered=True)
        self.assert_unavailable(self.answered(response(error("ExpiredToken"))), "status 200", answered=True)

    def test_redirects(self) -> None:
        """No redirect is followed, to wherever (AWS-13, NET-14)."""
        for status in ("301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"):
            for place in ("https://evil.example/", "https://sts.us-east-1.amazonaws.com/", "/other"):
                asked = self.answered(response(answer(), status, f"Location: {place}"))
                self.assert_unavailable(asked, status[:3], answered=True)
        self.assertEqual(set(self.names.asked), {"stand-in.example"})

    def test_bad_xml(self) -> None:
        """An answer that can't be read proves nobody, an entity bomb least of all (AWS-13)."""
        for document in (b"", b"x", answer()[:-9], BOMB.encode() + answer(), answer() * 2, answer().replace(b"Arn", b"arn")):
            self.assert_unavailable(self.answered(response(document)), "is not usable", answered=True)

    def test_endless(self) -> None:
        """An answer without end is given up at its limit (AWS-12)."""
        asked = self.ask()
        protocol, transport = self.connect()
        protocol.dataReceived(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(ANSWER_LIMIT // 1024):
            protocol.dataReceived(b"<a>" * 341 + b"<")
        self.assertTrue(transport.disconnecting or transport.disconnected)
        protocol.connectionLost(Failure(ConnectionLost()))
        self.assert_unavailable(asked, f"longer than {ANSWER_LIMIT} bytes")

    def test_slow(self) -> None:
        """A name, a connection and an answer, however slow each, have 5 s together (AWS-12)."""
        asked = self.ask()
        protocol, _ = self.connect()
        for octet in response(answer())[:4]:
            self.reactor.advance(1)
            protocol.dataReceived(bytes([octet]))
        self.assertNoResult(asked)
        self.reactor.advance(1)
        self.assert_unavailable(asked, "within 5 seconds")
        asked = self.ask()
        self.reactor.advance(5)
        self.assert_unavailable(asked, "")
        self.names.answers = [None]
        asked = self.ask()
        self.reactor.advance(5)
        self.assert_unavailable(asked, "within 5 seconds")

    def test_broken_off(self) -> None:
        """A connection that ends too early, and what isn't HTTP, is no answer (AWS-13)."""
        for octets in (b"", response(answer())[:-1], b"HTTP/1.1 200 OK\r\n"):
            asked = self.ask()
            protocol, _ = self.connect()
            protocol.dataReceived(octets)
            protocol.connectionLost(Failure(ConnectionDone()))
            self.assert_unavailable(asked, "the connection was closed before the answer had ended")
        asked = self.ask()
        protocol, _ = self.connect()
        protocol.dataReceived(b"SSH-2.0-x\r\n\r\n")
        self.assert_unavailable(asked, "not HTTP")

    def test_compressed(self) -> None:
        """No compressed answer is taken: a few bytes can become a gigabyte (NET-14)."""
        self.assert_unavailable(self.answered(response(b"x", "200 OK", "Content-Encoding: gzip")), "compressed")

    def test_no_name(self) -> None:
        """A name that has no address can't be asked (AWS-13)."""
        self.names.answers = [[]]
        self.assert_unavailable(self.ask(), "the name has no address")
