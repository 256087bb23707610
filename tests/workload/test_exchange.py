"""Tests of ``svc.workload.exchange``."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from OpenSSL.SSL import Error as TLSError
from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.error import ConnectionDone
from twisted.internet.error import ConnectionRefusedError as Refused
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.client import ResponseDone, ResponseFailed, ResponseNeverReceived
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent
from zope.interface import implementer

from svc.workload.exchange import Exchange, UncompressedAgent, http_client
from svc.workload.faults import NoEvidence, TooLong, Unreachable, Untrusted
from svc.workload.replies import Reply
from tests.authn.providers.authority import Authority


class Line:
    """The connection of an answer; ``open`` until somebody hangs up."""

    open = True

    def loseConnection(self) -> None:
        """Hang up."""
        self.open = False


class Response:
    """An answer that arrives as the test has it arrive."""

    code = 200
    headers = Headers({"X-One": ["a", "b"]})

    def __init__(self) -> None:
        self.line = Line()
        self.body: Any = None

    def deliverBody(self, body: Any) -> None:
        """Begin to deliver."""
        self.body = body
        body.makeConnection(self.line)


class Http:
    """What an exchange sends requests by; it answers with ``answer``."""

    def __init__(self, answer: Deferred[Any]) -> None:
        self.answer = answer

    def request(self, *_: object, **__: object) -> Deferred[Any]:
        """Answer."""
        return self.answer


class UntrustedTests(SynchronousTestCase):
    """The sentence of a fault of TLS."""

    def test_sentence(self) -> None:
        """A port that doesn't speak TLS has no certificate that could be trusted, and the sentence says so."""
        for why in ("TLS failed: wrong version number", "TLS failed: packet length too long"):
            sentence = str(Untrusted("https://svc.example", why))
            self.assertIn("https://svc.example: it doesn't speak TLS", sentence)
            self.assertNotIn("trust", sentence)
        for why in ("TLS failed: certificate verify failed: certificate has expired", "self-signed certificate"):
            self.assertIn("its certificate is not to be trusted", str(Untrusted("https://svc.example", why)))


class ExchangeTests(SynchronousTestCase):
    """One request."""

    def ask(self, answer: Deferred[Any], limit: int = 100) -> Deferred[Reply]:
        """Send it."""
        self.clock = Clock()
        http: Any = Http(answer)
        exchange = Exchange(http, self.clock, limit)
        return Deferred.fromCoroutine(exchange.ask("GET", "https://me:key@svc.example:8443/a?b=c", within=10))

    def test_whole(self) -> None:
        """An answer is whole when its end says so, and also where its length wasn't told and the connection's end is all."""
        for end in (ResponseDone(), PotentialDataLoss()):
            response = Response()
            waiting = self.ask(succeed(response))
            response.body.dataReceived(b"part")
            response.body.dataReceived(b"s")
            response.body.connectionLost(Failure(end))
            self.assertEqual(self.successResultOf(waiting), Reply(200, b"parts", {"x-one": "b"}))

    def test_cut_off(self) -> None:
        """An answer that was cut off is none."""
        response = Response()
        waiting = self.ask(succeed(response))
        response.body.dataReceived(b"part")
        response.body.connectionLost(Failure(ResponseFailed([Failure(Refused())])))
        self.failureResultOf(waiting, Unreachable)

    def test_too_long(self) -> None:
        """At the limit it hangs up, and what comes after that is nothing (NET-22)."""
        response = Response()
        waiting = self.ask(succeed(response), limit=3)
        for _ in range(3):
            response.body.dataReceived(b"ab")
        self.failureResultOf(waiting, TooLong)
        self.assertFalse(response.line.open)
        self.assertEqual(response.body._pieces, [])

    def test_late(self) -> None:
        """At the deadline it hangs up, whether an answer has begun or not; the fault tells no more than the place
        (NET-22).
        """
        response = Response()
        for answer in (Deferred[Any](), succeed(response)):
            waiting = self.ask(answer)
            self.clock.advance(10)
            said = str(self.failureResultOf(waiting, Unreachable).value)
            self.assertEqual(said, "no answer from https://svc.example:8443: there was no complete answer within 10 seconds")
        self.assertFalse(response.line.open)

    def test_cancelled(self) -> None:
        """Who doesn't wait any longer is told nothing else."""
        waiting = self.ask(Deferred(lambda d: d.errback(ResponseNeverReceived([Failure(CancelledError())]))))
        waiting.cancel()
        self.failureResultOf(waiting, CancelledError)

    def test_refused(self) -> None:
        """A connection that doesn't come about differs from one that broke."""
        self.assertIn("cannot reach", str(self.failureResultOf(self.ask(fail(Refused())), Unreachable).value))
        broken = self.failureResultOf(self.ask(fail(ResponseNeverReceived([Failure(Refused())]))), Unreachable)
        self.assertIn("no answer from", str(broken.value))
        closed = self.failureResultOf(self.ask(fail(ResponseNeverReceived([Failure(ConnectionDone())]))), Unreachable)
        self.assertIn("one side speaks https", str(closed.value))

    def test_certificates(self) -> None:
        """A certificate that isn't trusted is a fault of its own, which says how to trust it."""
        fault = self.failureResultOf(self.ask(fail(ResponseNeverReceived([Failure(TLSError("bad"))]))), Untrusted)
        self.assertIn("--ca-file", str(fault.value))
        failed = TLSError([("SSL routines", "", "certificate verify failed"), ("STORE", "", "unregistered scheme")])
        fault = self.failureResultOf(self.ask(fail(ResponseNeverReceived([Failure(failed)]))), Untrusted)
        self.assertIn("certificate verify failed, unregistered scheme", str(fault.value))
        self.assertNotIn("SSL routines", str(fault.value))

    def test_retry_after(self) -> None:
        """When to come again is a number of seconds, or not told."""
        for text, seconds in (("0", 0.0), (" 120 ", 120.0), ("", None), ("-1", None), ("1.5", None), ("Wed, 1 Jan", None)):
            self.assertEqual(Reply(503, b"", {"retry-after": text}).retry_after, seconds)
        self.assertIsNone(Reply(503, b"").retry_after)


class SaidTests(SynchronousTestCase):
    """What servers say."""

    def test_said(self) -> None:
        """The message in a refusal is repeated, or the beginning of what stands in its place."""
        for body, said in (
            (b'{"error": {"message": "no such thing"}}', "no such thing"),
            (b"Not Found\n", "Not Found"),
            (b'{"error": {"message": 5}}', ""),
            (b'{"status": "error", "error": "no such thing"}', "no such thing"),
            (b'{"error": 5}', '{"error": 5}'),
            (b"", ""),
            (b"\xff", "\ufffd"),
            (b"[" * 100_000, "[" * 300),
        ):
            self.assertEqual(Reply(400, body).error_message, said)
        page = {"content-type": "text/html; charset=utf-8"}
        self.assertEqual(Reply(503, b"<html><h1>Service Unavailable</h1>", page).error_message, "")

    def test_terminals(self) -> None:
        """Nothing that a server says moves a cursor, or fills a screen (CLI-3)."""
        for body in (b"\x1b[2Jgone\r\n\x9b", b'{"error": {"message": "\\u001b[2Jgone\\ud800\\u202e"}}'):
            self.assertEqual(Reply(400, body).error_message, "[2Jgone" if b"u001b" in body else "[2Jgone  \ufffd")
        self.assertEqual(len(Reply(400, json.dumps({"error": {"message": "x" * 5000}}).encode()).error_message), 300)

    @given(st.binary() | st.text().map(lambda text: json.dumps({"error": {"message": text}}).encode()))
    def test_anything(self, body: bytes) -> None:
        """Whatever it is, it can be printed."""
        said = Reply(400, body).error_message
        self.assertTrue(said.isprintable() and len(said) <= 300)


class HttpClientTests(SynchronousTestCase):
    """What requests go through."""

    def test_no_compression(self) -> None:
        """Nothing compressed is asked for; base64 is, alone."""
        asked: list[Headers] = []

        @implementer(IAgent)
        class Agent:
            def request(self, method: bytes, uri: bytes, headers: Any = None, bodyProducer: Any = None) -> Deferred[Any]:
                asked.append(headers)
                return Deferred()

        for wanted, sent in ((None, b"identity"), (["gzip"], b"identity"), (["base64", "gzip"], b"base64")):
            headers = None if wanted is None else Headers({"Accept-Encoding": wanted})
            UncompressedAgent(Agent()).request(b"GET", b"http://svc.example/", headers)
            self.assertEqual(asked[-1].getRawHeaders(b"accept-encoding"), [sent])

    def test_never_through_a_proxy(self) -> None:
        """Proxies that the environment names are not used (NET-22)."""
        reactor: Any = MemoryReactorClock()
        proxy = "http://192.0.2.9:3128"
        self.patch(os, "environ", {"HTTP_PROXY": proxy, "http_proxy": proxy, "ALL_PROXY": proxy})
        http_client(reactor).request("GET", "http://192.0.2.1:80/", reactor=reactor)
        self.assertEqual([port for _, port, *_ in reactor.tcpClients], [80])

    def test_no_host_of_certificates(self) -> None:
        """Over TLS, a name that no certificate can be for is a fault like a certificate that isn't trusted."""
        reactor: Any = MemoryReactorClock()
        exchange = Exchange(http_client(reactor), reactor, 100)
        asked = Deferred.fromCoroutine(exchange.ask("GET", "https://1234/", within=5))
        self.assertIn("no certificate can be for", str(self.failureResultOf(asked, Untrusted).value))

    def test_authorities(self) -> None:
        """A file of authorities must be there, and hold a certificate."""
        path = Path(self.mktemp())
        good = Authority().pem
        self.assertIn("cannot be read", str(self.assertRaises(NoEvidence, http_client, Clock(), path)))
        for text in ("", "-----BEGIN CERTIFICATE-----\nnone\n-----END CERTIFICATE-----", good[:100]):
            path.write_text(text)
            self.assertIn(f"{path} ", str(self.assertRaises(NoEvidence, http_client, Clock(), path)))
        path.write_text(f"some words\n{good}{good}")
        http_client(Clock(), path)
