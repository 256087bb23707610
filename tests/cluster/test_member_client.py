"""One question to a member, on a memory reactor."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectError, ConnectionLost
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.audit.record_files import RecordQuery
from svc.audit.record_search import RecordsPage, RecordsQuestion
from svc.cluster.member_client import ANSWER_LIMIT, CLAIM_DEADLINE, DEADLINE, SEARCH_DEADLINE, MemberClient, load_trust
from svc.cluster.peer_claims import PeerClaims
from svc.cluster.record_questions import RecordQuestions
from svc.cluster.reports import INVALID, UNREACHABLE, ProbeReply
from svc.crypto.vault import Vault
from svc.model.databases import ClusterMember, DatabaseIdentity
from svc.model.errors import ConfigurationInvalid
from tests.authn.providers.authority import Authority

REPORT = b'{"ok": true}'
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n" + REPORT


class InquiryTests(SynchronousTestCase):
    """How a member is asked, and what is made of its answers."""

    def setUp(self) -> None:
        """Nothing has happened."""
        self.reactor: Any = MemoryReactorClock()

    def ask(self, url: str = "http://127.0.0.1:8080") -> Deferred[ProbeReply]:
        """Ask."""
        return Deferred.fromCoroutine(MemberClient(self.reactor, ClusterMember("b", url)).fetch_health())

    def connect(self) -> tuple[Any, StringTransport]:
        """Let the connection be made; return its protocol and transport."""
        host, _, factory, _, _ = self.reactor.tcpClients[-1]
        protocol = factory.buildProtocol(IPv4Address("TCP", host, 1))
        transport = StringTransport()
        protocol.makeConnection(transport)
        return protocol, transport

    def answered(self, *pieces: bytes, lost: bool = False) -> ProbeReply:
        """Return the reply that is made of this answer."""
        asked = self.ask()
        protocol, transport = self.connect()
        for piece in pieces:
            protocol.dataReceived(piece)
        if lost:
            protocol.connectionLost(Failure(ConnectionLost()))
        answer = self.successResultOf(asked)
        self.assertTrue(lost or transport.disconnected)
        self.assertEqual(self.reactor.getDelayedCalls(), [])
        return answer

    def test_question(self) -> None:
        """It is one GET of the member's health, below the path of its address, with nothing of the client's in it."""
        self.ask("http://127.0.0.1:8080/svc/b")
        self.assertEqual(self.reactor.tcpClients[0][:2], ("127.0.0.1", 8080))
        _, transport = self.connect()
        lines = transport.value().split(b"\r\n")
        self.assertEqual(lines[0], b"GET /svc/b/health HTTP/1.1")
        expected = [b"Accept-Encoding: identity", b"Accept: application/json", b"Connection: close"]
        self.assertEqual(sorted(lines[1:-2]), [*expected, b"Host: 127.0.0.1:8080", b"User-Agent: svc"])

    def test_records(self) -> None:
        """A member's page is taken if a server of the cluster gave it, or says why there is none (AUD-63, AUD-64)."""
        asking, member = RecordQuestions(Vault(bytes(32)), self.reactor), RecordQuestions(Vault(bytes(32)), self.reactor)
        question, page = RecordsQuestion(RecordQuery(), "acme", 9), RecordsPage(faults=("a fault",))
        client = MemberClient(self.reactor, ClusterMember("b", "http://127.0.0.1:8080"))
        cases = {200: "a fault", 503: "other searches", 404: "status 404", 0: "none of a server", 1: "within 75 seconds"}
        for status, words in cases.items():
            asked = Deferred.fromCoroutine(client.fetch_records(asking, question))
            protocol, transport = self.connect()
            [query] = re.findall(rb"GET /cluster/records\?question=(\S+)&challenge=(\S+)&code=(\S+) ", transport.value())
            read = member.read_question(*(text.decode() for text in query))
            assert read is not None
            body = member.seal_page(read[1], page) if status else b"x" * 40
            if status == 1:
                self.reactor.advance(SEARCH_DEADLINE)
            else:
                head = f"HTTP/1.1 {status or 200} OK\r\nContent-Length: {len(body)}\r\n\r\n"
                protocol.dataReceived(head.encode() + body)
            found = self.successResultOf(asked)
            self.assertEqual((found.lines, len(found.faults)), ((), 1))
            self.assertIn(words, found.faults[0])

    def test_ports(self) -> None:
        """Without a port it is that of the scheme."""
        for url, port in (("http://127.0.0.1", 80), ("https://127.0.0.1", 443), ("https://127.0.0.1:1", 1)):
            self.ask(url)
            self.assertEqual(self.reactor.tcpClients[-1][1], port)

    def test_report(self) -> None:
        """A health report is the answer, in one piece or byte by byte."""
        self.assertEqual(self.answered(ANSWER).body, REPORT)
        self.assertEqual(self.answered(*(bytes([byte]) for byte in ANSWER)).body, REPORT)
        self.assertTrue(self.answered(ANSWER).ok)

    def test_redirects(self) -> None:
        """A redirect is no report, and isn't followed (HEALTH-19)."""
        head = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n"
        self.assertEqual(self.answered(head).fault, INVALID)
        self.assertEqual(len(self.reactor.tcpClients), 1)

    def test_long_answers(self) -> None:
        """An answer that is longer than 64 KiB is none, be it its headers or its body, counted or chunked or neither
        (HEALTH-19, NET-17).
        """
        flood = b" " * (ANSWER_LIMIT + 1)
        for head in (
            b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n",
        ):
            self.assertIn("longer than 65536", self.answered(head, flood, lost=True).why)
        headers = (b"X-%d: %s\r\n" % (number, b"x" * 1000) for number in range(70))
        self.assertEqual(self.answered(b"HTTP/1.1 200 OK\r\n", *headers, lost=True).fault, UNREACHABLE)

    def test_compressed_answers(self) -> None:
        """A compressed answer isn't unpacked (HEALTH-19)."""
        head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 12\r\n\r\n"
        self.assertEqual(self.answered(head + REPORT).fault, UNREACHABLE)

    def test_broken_answers(self) -> None:
        """A text that isn't HTTP, or breaks off, is no answer."""
        self.assertEqual(self.answered(b"SSH-2.0-OpenSSH_9.2\r\n\r\n", lost=True).fault, UNREACHABLE)
        self.assertEqual(self.answered(ANSWER[:-1], lost=True).fault, UNREACHABLE)
        self.assertEqual(self.answered(lost=True).fault, UNREACHABLE)

    def test_no_connection(self) -> None:
        """Where nobody listens there is no answer."""
        asked = self.ask()
        factory = self.reactor.tcpClients[-1][2]
        factory.clientConnectionFailed(self.reactor.connectors[-1], Failure(ConnectError()))
        self.reactor.advance(1)
        answer = self.successResultOf(asked)
        self.assertEqual((answer.fault, answer.ok), (UNREACHABLE, False))

    def test_no_host_of_certificates(self) -> None:
        """Over TLS, a name that no certificate can be for is told, and nothing is connected to (HEALTH-22)."""
        answer = self.successResultOf(self.ask("https://my_host:8443"))
        self.assertEqual((answer.fault, answer.why), (UNREACHABLE, "no certificate can be for a host of that name"))
        self.assertEqual(self.reactor.tcpClients, [])

    def test_deadline(self) -> None:
        """All of it may take five seconds: a connection that hangs, and an answer that drips, end then
        (HEALTH-19, NET-17).
        """
        connecting = self.ask()
        dripping = self.ask()
        protocol, transport = self.connect()
        for byte in ANSWER[:10]:
            protocol.dataReceived(bytes([byte]))
            self.reactor.advance(DEADLINE / 10)
        for asked in (connecting, dripping):
            answer = self.successResultOf(asked)
            self.assertEqual(answer.fault, UNREACHABLE)
        self.assertIn("within 5 seconds", answer.why)
        self.assertTrue(transport.disconnected)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_database(self) -> None:
        """What a member says of its database counts when it answers this very question, in time, and knows the data key
        (CLU-21).
        """
        claims, member, identity = (
            PeerClaims(Vault(bytes(32))),
            PeerClaims(Vault(bytes(32))),
            DatabaseIdentity(1, 2, 3, False),
        )

        def asked(answering: PeerClaims, status: bytes = b"200 OK", late: bool = False) -> object:
            asking = Deferred.fromCoroutine(
                MemberClient(self.reactor, ClusterMember("b", "http://127.0.0.1:1/b")).fetch_database_identity(claims)
            )
            protocol, transport = self.connect()
            line = re.match(rb"GET /b/cluster/database\?challenge=([0-9a-f]{32})&code=([0-9a-f]{64}) ", transport.value())
            assert line is not None
            challenge, code = (part.decode() for part in line.groups())
            self.assertTrue(member.is_peer_challenge(challenge, code))
            body = json.dumps(answering.sign_answer(challenge, code, identity)).encode()
            if late:
                self.reactor.advance(CLAIM_DEADLINE)
            else:
                protocol.dataReceived(b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))
            return self.successResultOf(asking)

        self.assertEqual(asked(member), identity)
        self.assertIsNone(asked(PeerClaims(Vault(bytes([1] * 32)))))
        self.assertIsNone(asked(member, b"404 Not Found"))
        self.assertIsNone(asked(member, late=True))


class TrustTests(SynchronousTestCase):
    """The authorities of members' certificates."""

    def file(self, text: str) -> Path:
        """Write a file."""
        path = Path(self.mktemp())
        path.write_text(text)
        return path

    def test_authorities(self) -> None:
        """A file of certificates is trusted; one that can't be read or holds none is refused under the setting's name
        (HEALTH-22).
        """
        load_trust(self.file(Authority().pem), "--cluster-ca")
        for path in (self.file("nonsense"), self.file(Authority().pem[:-40]), Path("/nonexistent"), Path("/")):
            refusal = self.assertRaises(ConfigurationInvalid, load_trust, path, "--cluster-ca")
            self.assertEqual(refusal.key, "--cluster-ca")
            self.assertIn(str(path), refusal.message)
