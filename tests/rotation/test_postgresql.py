"""Tests of ``svc.rotation.postgresql`` and ``wire`` that take no server: addresses, passwords, and servers that lie."""

from __future__ import annotations

import struct
from ipaddress import ip_network
from typing import Any

from OpenSSL import SSL
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import ITCPTransport
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import alsoProvides
from zope.interface.verify import verifyObject

from svc.model.expiration import IRotator, Rotation, RotationFailed
from svc.net.lookup import HostResolver
from svc.net.trust import client_tls
from svc.rotation.postgres_connection import READ_LIMIT, PasswordRefused, PostgresConnection
from svc.rotation.postgresql import LENGTH_ANNOTATION, DatabaseAddress, PostgresPasswordRotator
from tests.authn.providers.names import Names


def message(kind: bytes, body: bytes) -> bytes:
    """A message of PostgreSQL's."""
    return kind + struct.pack("!i", len(body) + 4) + body


def authentication(number: int, more: bytes = b"") -> bytes:
    """A message about a login."""
    return message(b"R", struct.pack("!i", number) + more)


class PlaceTests(SynchronousTestCase):
    """What ``url`` may be."""

    def test_forms(self) -> None:
        """A url names host, port, database and how TLS is used; what it doesn't name is as usual (SEC-33)."""
        for url, place in (
            (
                "postgresql://db.example:5433/app?sslmode=verify-full",
                DatabaseAddress("db.example", 5433, "app", "verify-full"),
            ),
            ("postgres://db.example/app", DatabaseAddress("db.example", 5432, "app", "prefer")),
            ("db.example", DatabaseAddress("db.example", 5432, "", "prefer")),
            ("db:6000/a%20b\n", DatabaseAddress("db", 6000, "a b", "prefer")),
            ("postgresql://[2001:db8::1]/x?sslmode=disable", DatabaseAddress("2001:db8::1", 5432, "x", "disable")),
        ):
            self.assertEqual(DatabaseAddress.parse(url), place)

    def test_what_leads_elsewhere(self) -> None:
        """Sockets, files, services, settings, users and several hosts have no place in a url; nor is a bad one repeated
        (SEC-33).
        """
        for url in (
            *("", "/tmp", "postgresql:///app", "postgresql://%2Ftmp/app", "@abstract", "host=/tmp dbname=x", "service=x"),
            *("postgresql://u:hidden@db/app", "postgresql://db/app?sslkey=/etc/passwd", "postgresql://db/app?host=/tmp"),
            *(
                "postgresql://db/app?sslmode=require&passfile=/x",
                "postgresql://db/app?sslmode=hidden",
                "a,b",
                "http://db/app",
            ),
            *(
                "db:0",
                "db:65536",
                "db:x",
                "postgresql://db/a b",
                "postgresql://db/app#x",
                "db/" + "x" * 64,
                "db/a%00",
                "x" * 3000,
            ),
        ):
            with self.assertRaises(RotationFailed, msg=url) as caught:
                DatabaseAddress.parse(url)
            self.assertNotIn("hidden", caught.exception.why)


class PasswordTests(SynchronousTestCase):
    """What passwords are made, and where they are taken."""

    def setUp(self) -> None:
        """Make the rotator, with names of its own."""
        self.reactor: Any = MemoryReactorClock()
        self.names = Names(["93.184.216.34"])
        look_ups = HostResolver(self.reactor, self.names, [ip_network("192.168.7.0/24")])
        self.rotator = PostgresPasswordRotator(self.reactor, look_ups, client_tls)

    def rotate(self, url: str, username: str = "app") -> Deferred[None]:
        """Begin a rotation."""
        rotation = Rotation(b"old", b"new", {"url": url, "username": username})
        return Deferred.fromCoroutine(self.rotator.rotate(rotation))

    def why(self, url: str, username: str = "app") -> str:
        """Why a rotation fails at once."""
        failure = self.failureResultOf(self.rotate(url, username), RotationFailed)
        return str(failure.value)

    def test_provides(self) -> None:
        """It is a rotator."""
        verifyObject(IRotator, self.rotator)

    def test_passwords(self) -> None:
        """Passwords are random, as long as policy says, of characters that need no quoting anywhere (SEC-32)."""
        for length in (16, 32, 128):
            password = self.rotator.new_value({LENGTH_ANNOTATION: str(length)})
            self.assertRegex(password.decode(), rf"\A[1-9A-HJ-NP-Za-km-z]{{{length}}}\Z")
        self.assertEqual(len(self.rotator.new_value({})), 32)
        self.assertNotEqual(self.rotator.new_value({}), self.rotator.new_value({}))

    def test_lengths(self) -> None:
        """A length that is too short, too long or no number is objected to (SEC-32)."""
        for text in ("16", "128"):
            self.assertIsNone(self.rotator.find_annotation_fault({LENGTH_ANNOTATION: text}))
        for text in ("", "15", "129", "-20", "20.0", "٢٠", "9" * 30, "twenty"):
            self.assertIn(LENGTH_ANNOTATION, self.rotator.find_annotation_fault({LENGTH_ANNOTATION: text}) or "")
        self.assertIsNone(self.rotator.find_annotation_fault({}))

    def test_addresses(self) -> None:
        """Nothing is connected to that is inside, by number or by name, unless the network is listed (SEC-34, NET-9)."""
        self.names.answers = [["93.184.216.34", "10.0.0.7"]]
        for url in ("127.0.0.1", "10.0.0.7:5432", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254", "db.example", "0.0.0.0"):
            self.assertIn("allow_private_providers", self.why(url), url)
        self.assertNotIn("10.0.0.7", self.why("db.example"))
        self.assertEqual(self.reactor.tcpClients, [])
        self.names.answers = [["93.184.216.34"]]
        for url, host in (("192.168.7.9:5433/x", "192.168.7.9"), ("db.example", "93.184.216.34")):
            self.rotate(url)
            self.assertEqual(self.reactor.tcpClients[-1][0], host)

    def test_long_passwords(self) -> None:
        """A stored password that is too long to be hashed at once is refused before anything is connected."""
        rotation = Rotation(b"x" * 5000, b"new", {"url": "db.example", "username": "app"})
        refused = self.failureResultOf(Deferred.fromCoroutine(self.rotator.rotate(rotation)), RotationFailed)
        self.assertIn("longer than 4096 bytes", str(refused.value))
        self.assertEqual(self.reactor.tcpClients, [])

    def test_usernames(self) -> None:
        """A username that PostgreSQL can't have is refused before anything is connected."""
        for username in ("", "\n", "a\0b", "x" * 64):
            self.why("db.example", username)
        self.assertEqual(self.reactor.tcpClients, [])


class WireTests(SynchronousTestCase):
    """What servers say."""

    def setUp(self) -> None:
        """Connect to nobody."""
        self.wire = PostgresConnection()
        self.transport = StringTransport()
        alsoProvides(self.transport, ITCPTransport)
        self.wire.makeConnection(self.transport)

    def log_in(self, *said: bytes) -> RotationFailed:
        """Why a login fails when a server says this."""
        login = Deferred.fromCoroutine(self.wire.log_in("app", "db", b"the password"))
        for data in said:
            self.wire.dataReceived(data)
        failed = self.failureResultOf(login, RotationFailed).value
        assert isinstance(failed, RotationFailed)
        self.assertNotIn(b"the password", self.transport.value())
        return failed

    def test_other_ways_to_log_in(self) -> None:
        """A server that asks for the password, for its MD5 or for another proof, or for none, is turned away (SEC-35)."""
        for number in (0, 2, 3, 5, 7, 9):
            self.setUp()
            self.assertIn("SCRAM-SHA-256", self.log_in(authentication(number, b"salt")).why)
        self.setUp()
        self.assertIn("doesn't offer", self.log_in(authentication(10, b"SCRAM-SHA-1\0\0")).why)

    def test_a_server_without_the_password(self) -> None:
        """A server that lets anybody in, without knowing the password, is not believed (SEC-35)."""
        self.setUp()
        login = Deferred.fromCoroutine(self.wire.log_in("app", "db", b"the password"))
        self.wire.dataReceived(authentication(10, b"SCRAM-SHA-256\0\0"))
        nonce = self.transport.value().rpartition(b"r=")[2]
        self.wire.dataReceived(authentication(11, b"r=%sx,s=c2FsdA==,i=4096" % nonce))
        self.wire.dataReceived(authentication(12, b"v=" + b"A" * 43 + b"=") + authentication(0) + message(b"Z", b"I"))
        self.assertIn("prove", self.failureResultOf(login, RotationFailed).value.why)

    def test_errors(self) -> None:
        """Of an error its code is told, and nothing that a stranger may have written; a wrong password is told apart."""
        error = message(b"E", b"SFATAL\0C%s\0Mhidden\0\0")
        self.assertEqual(self.log_in(error.replace(b"%s", b"3D")).why, "the server refused (SQLSTATE none)")
        self.setUp()
        body = b"SFATAL\0C28P01\0Mhidden\0\0"
        failed = self.log_in(message(b"E", body))
        self.assertIsInstance(failed, PasswordRefused)
        self.assertNotIn("hidden", failed.why)
        self.setUp()
        failed = self.log_in(message(b"N", b"notice\0"), message(b"E", b"C3D000\0\0"))
        self.assertNotIsInstance(failed, PasswordRefused)
        self.assertIn("3D000", failed.why)

    def test_other_protocols(self) -> None:
        """What isn't PostgreSQL is turned away, at once or when it goes on too long."""
        for said in (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            b"SSH-2.0-OpenSSH\r\n",
            b"R\0\0\0\0",
            b"R\xff\xff\xff\xff",
            b"R\0\0\0\5x",
        ):
            self.setUp()
            self.log_in(said)
        self.setUp()
        self.assertIn(str(READ_LIMIT), self.log_in(message(b"N", bytes(READ_LIMIT - 10)) * 2).why)
        self.assertTrue(self.transport.disconnected)

    def test_the_end(self) -> None:
        """A connection that closes ends the wait, also one that begins afterwards."""
        login = Deferred.fromCoroutine(self.wire.log_in("app", "db", b"x"))
        self.wire.connectionLost(Failure(ConnectionDone()))
        self.assertIn("closed", self.failureResultOf(login, RotationFailed).value.why)
        self.assertIn("closed", self.log_in().why)
        self.setUp()
        login = Deferred.fromCoroutine(self.wire.log_in("app", "db", b"x"))
        self.wire.connectionLost(Failure(SSL.Error([("", "", "certificate verify failed")])))
        self.assertIn("TLS failed", self.failureResultOf(login, RotationFailed).value.why)

    def test_tls(self) -> None:
        """What comes before the handshake is not taken for what comes after it; a server may have no TLS."""
        for said, secured in ((b"N", False), (b"SX", None), (b"NX", None), (b"E", None)):
            self.setUp()
            asked = Deferred.fromCoroutine(self.wire.start_tls(client_tls("db.example", None)))
            self.assertEqual(self.transport.value(), struct.pack("!ii", 8, 80877103))
            self.wire.dataReceived(said)
            if secured is None:
                self.failureResultOf(asked, RotationFailed)
            else:
                self.assertEqual(self.successResultOf(asked), secured)

    def test_commands(self) -> None:
        """A command is done when the server is ready for another; an error is told by its code."""
        done = Deferred.fromCoroutine(self.wire.run_command("ALTER ROLE"))
        self.wire.dataReceived(message(b"S", b"x\0y\0") + message(b"C", b"ALTER ROLE\0"))
        self.assertNoResult(done)
        self.wire.dataReceived(message(b"Z", b"I"))
        self.successResultOf(done)
        failed = Deferred.fromCoroutine(self.wire.run_command("ALTER ROLE"))
        self.wire.dataReceived(message(b"E", b"C25006\0Mhidden\0\0"))
        self.assertIn("25006", self.failureResultOf(failed, RotationFailed).value.why)
