"""Expiration on real servers: passwords of PostgreSQL, conditional writers, and a server that takes another's place."""

from __future__ import annotations

import base64
import secrets
import socket
from ipaddress import ip_network
from typing import Any

import psycopg2
import psycopg2.extensions
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import gatherResults
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import deferLater
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from svc.model.dialect import NATIVE
from svc.model.errors import PreconditionFailed
from svc.model.expiration import Rotation, RotationFailed
from svc.model.query_results import Sealed, SecretReading
from svc.net.lookup import HostResolver
from svc.net.trust import client_tls
from svc.rotation.postgresql import PostgresPasswordRotator
from svc.rotation.scram import make_verifier
from svc.storage.secrets import SecretStore
from tests.authn.providers.authority import Authority
from tests.contracts.base import ADMIN, Draft, load, resource, scenario
from tests.integration.client import Api
from tests.integration.postgres import PostgresTestCase, Server, unavailable
from tests.integration.process import ServerTestCase, beat
from tests.integration.stores import InPostgres, begun

reactor: Any = installed_reactor

POLICY = """
- !policy
  id: db
  body:
  - !variable url
  - !variable username
  - !variable { id: password, annotations: { rotation/rotator: postgresql/password, rotation/ttl: PT1S } }
  - !variable { id: short, annotations: { expiration/ttl: PT1S } }
"""

#: Passwords with a soft hyphen, with spaces and letters that have a plain form, with what may not be, what isn't assigned or
#: wasn't when the tables were made, and with text from right to left.
UNUSUAL = (
    "soft\u00adhyphen",
    "no\u00a0break and\u3000wide",
    "zero\u200bwidth",
    "\ufb01ne \u2168",
    "e\u0301 and \u00e9",
    "private \ue000\u00a0",
    "control \u0085\u00a0",
    "unassigned \u0378\u00a0",
    "new \U0001fae0\u00a0",
    "\u00ad",
    "\u05d0\u05d1",
    "\ufb2a",
    "both \u05d0 ways",
)

LOOPBACK = [ip_network("127.0.0.0/8")]


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def admits(port: int, password: str, role: str = "app") -> bool:
    """Whether PostgreSQL admits the role with a password, asked with its own client."""
    try:
        psycopg2.connect(f"host=127.0.0.1 port={port} user={role} dbname=postgres password={password}").close()
    except psycopg2.OperationalError as error:
        assert "authentication failed" in str(error), error
        return False
    return True


class Wrapped(Protocol):
    """TLS before a PostgreSQL that has none: answers the request for it, and passes on what comes after."""

    def __init__(self, certificate: Any, port: int) -> None:
        self.certificate, self.port = certificate, port
        self.inner: Protocol | None = None
        self.waiting = b""
        self.secure = False

    def dataReceived(self, data: bytes) -> None:
        """Begin TLS, connect, or pass on."""
        transport: Any = self.transport
        if not self.secure:
            self.secure = True
            transport.write(b"S")
            transport.startTLS(self.certificate.options())
            outer = transport

            class Inner(Protocol):
                def dataReceived(self, data: bytes) -> None:
                    outer.write(data)

            endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", self.port)
            connectProtocol(endpoint, Inner()).addCallback(self._connected)
        elif self.inner is None:
            self.waiting += data
        else:
            self.inner.transport.write(data)  # type: ignore[union-attr] # it is connected

    def _connected(self, inner: Protocol) -> None:
        self.inner = inner
        self.dataReceived(self.waiting)

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override] # as Twisted calls it
        """Hang up."""
        if self.inner is not None and self.inner.transport is not None:
            self.inner.transport.loseConnection()


class PostgresPasswordTests(TestCase):
    """``PostgresPasswordRotator`` and a PostgreSQL that asks for passwords."""

    skip = unavailable()
    timeout = 240

    async def setUp(self) -> None:  # type: ignore[override] # trial awaits what setUp returns
        """Start a server with a role."""
        self.port = free_port()
        self.server = Server(port=self.port)
        self.addCleanup(self.server.destroy)
        await self.server.start()
        self.server.command("CREATE ROLE app LOGIN PASSWORD 'old password'")
        self.server.command("ALTER SYSTEM SET log_statement = 'all'")
        self.server.command("SELECT pg_reload_conf()")
        look_ups = HostResolver(reactor, reactor.nameResolver, LOOPBACK)
        self.rotator = PostgresPasswordRotator(reactor, look_ups, client_tls)

    async def rotate(self, current: bytes, candidate: bytes, url: str = "", **siblings: str) -> None:
        """Rotate."""
        url = url or f"postgresql://127.0.0.1:{self.port}/postgres"
        await self.rotator.rotate(Rotation(current, candidate, {"url": url, "username": "app", **siblings}))

    async def failed(self, current: bytes, candidate: bytes, url: str = "", **siblings: str) -> str:
        """Why a rotation fails."""
        with self.assertRaises(RotationFailed) as caught:
            await self.rotate(current, candidate, url, **siblings)
        return str(caught.exception.why)

    async def test_rotation(self) -> None:
        """The new password is in force and the old one isn't, and neither is ever in the server's log (SEC-32, SEC-35)."""
        new = self.rotator.new_value({})
        await self.rotate(b"old password", new)
        self.assertTrue(admits(self.port, new.decode()))
        self.assertFalse(admits(self.port, "'old password'"))
        log = self.server.log.read_text()
        self.assertIn("ALTER ROLE CURRENT_USER PASSWORD", log)
        self.assertNotIn(new.decode(), log)

    async def test_in_force_already(self) -> None:
        """A new password that an attempt before put in force is found there, by itself and again after the next (SEC-31)."""
        await self.rotate(b"old password", b"one")
        await self.rotate(b"old password", b"one")
        self.assertTrue(admits(self.port, "one"))
        await self.rotate(b"one", b"two")
        self.assertTrue(admits(self.port, "two"))

    async def test_neither(self) -> None:
        """When neither password is in force, nothing is changed, and the reason told."""
        self.assertIn("28P01", await self.failed(b"wrong", b"new"))
        self.assertTrue(admits(self.port, "'old password'"))
        self.assertIn("28P01", await self.failed(b"wrong", b"new", username="nobody"))

    async def test_characters(self) -> None:
        """Passwords of whatever characters are rotated, and let in with PostgreSQL's own client before and after."""
        for password in UNUSUAL:
            quoted = password.replace("'", "''")
            self.server.command(f"ALTER ROLE app PASSWORD '{quoted}'")
            await self.rotate(password.encode(), b"between")
            await self.rotate(b"between", password.encode())
            self.assertTrue(admits(self.port, f"'{password}'"), ascii(password))

    async def test_preparation(self) -> None:
        """A password is hashed as PostgreSQL's own client hashes it, with any character alone and within others."""
        client = psycopg2.connect(self.server.dsn())
        self.addCleanup(client.close)
        client.autocommit = True
        client.cursor().execute("SET scram_iterations = 1")  # the form is what is compared
        for shape in ("{}", "a{}b", "\u0627{}\u0628"):
            for code in (*range(0xA0, 0xD7F0, 7), *range(0xE000, 0x30000, 61), *range(0xE0000, 0xE0200)):
                password = shape.format(chr(code + secrets.randbelow(7)))
                theirs = psycopg2.extensions.encrypt_password(password, "app", client, "scram-sha-256")
                salt = base64.b64decode(theirs.split("$")[1].partition(":")[2])
                self.assertEqual(make_verifier(password.encode(), salt, 1), theirs, ascii(password))

    async def test_a_server_that_is_away(self) -> None:
        """A server that is away is told as that, and so is one that lacks the database, or may not be written to."""
        self.assertIn("3D000", await self.failed(b"old password", b"new", f"127.0.0.1:{self.port}/none"))
        self.assertIn("nothing answers", await self.failed(b"old password", b"new", f"127.0.0.1:{free_port()}"))
        self.server.command("ALTER ROLE app SET default_transaction_read_only = on")
        self.assertIn("25006", await self.failed(b"old password", b"new"))
        self.assertTrue(admits(self.port, "'old password'"))

    async def test_without_tls(self) -> None:
        """A url that asks for TLS isn't served without, nor is a ``ca-cert``; a url that doesn't care is (SEC-33)."""
        for mode in ("require", "verify-full"):
            self.assertIn("has no TLS", await self.failed(b"old password", b"new", f"127.0.0.1:{self.port}?sslmode={mode}"))
        for mode in ("disable", "prefer"):
            await self.rotate(b"old password", b"old password", f"127.0.0.1:{self.port}/postgres?sslmode={mode}")
        for mode, told in (("disable", "take one of them away"), ("prefer", "has no TLS"), ("require", "has no TLS")):
            url, given = f"127.0.0.1:{self.port}/postgres?sslmode={mode}", {"ca-cert": Authority().pem}
            self.assertIn(told, await self.failed(b"old password", b"new", url, **given))

    async def test_tls(self) -> None:
        """TLS is begun where there is any; its certificate is verified where the url or a ``ca-cert`` asks for that
        (SEC-33).
        """
        authority = Authority()
        factory = Factory()
        certificate = authority.issue("127.0.0.1")
        factory.buildProtocol = lambda _: Wrapped(certificate, self.port)  # type: ignore[method-assign, assignment]
        listening = reactor.listenTCP(0, factory, interface="127.0.0.1")
        self.addCleanup(listening.stopListening)
        url = f"127.0.0.1:{listening.getHost().port}/postgres?sslmode="
        await self.rotate(b"old password", b"one", url + "require")
        await self.rotate(b"one", b"two", url + "verify-full", **{"ca-cert": authority.pem})
        self.assertTrue(admits(self.port, "two"))
        for given in ({"ca-cert": Authority().pem}, {}):
            await self.failed(b"two", b"three", url + "verify-full", **given)
        for mode in ("prefer", "require", "verify-ca"):
            self.assertIn("TLS failed", await self.failed(b"two", b"three", url + mode, **{"ca-cert": Authority().pem}))
        self.assertIn("ca-cert", await self.failed(b"two", b"three", url + "verify-full", **{"ca-cert": "nonsense"}))
        self.assertTrue(admits(self.port, "two"))


class ConditionalWritersTests(InPostgres):
    """Writers that come at once."""

    @scenario
    async def test_one_wins(self) -> None:
        """Of writers who each demand the value that they know, one replaces it, and all others are turned away (SEC-18)."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("variable:v"))
        variable = resource("variable:v")
        secrets = SecretStore(self.database, NATIVE)
        for known in (None, 1):

            async def attempt(number: int, known: int | None = known) -> int | None:
                def decide(reading: SecretReading) -> Sealed:
                    if reading.version != known:
                        raise PreconditionFailed("If-Match", None)
                    return Sealed(b"%d" % number)

                try:
                    return await secrets.write_value(ADMIN, variable, decide)
                except PreconditionFailed:
                    return None

            outcomes = await gatherResults([begun(attempt(number)) for number in range(4)])
            self.assertEqual([outcome for outcome in outcomes if outcome], [(known or 0) + 1])


class ClusterTests(ServerTestCase, PostgresTestCase):
    """Servers as processes, on one database."""

    async def test_takeover(self) -> None:
        """One server of two rotates; when it is killed the other goes on, and what it left unfinished is finished (SEC-29,
        SEC-31).
        """
        port = free_port()
        target = Server(port=port)
        self.addCleanup(target.destroy)
        await target.start()
        target.command("CREATE ROLE app LOGIN PASSWORD 'first'")
        dsn = await self.create_database(migrated=False)
        options = ("--account", "acme", "--expiration-interval", "0.2", "--allow-private-providers", "127.0.0.0/8")
        first = self.serve(*options, database_url=dsn)
        client = Api.of(self, await first.ready())
        token = await client.authenticate("admin", first.admin_key())
        loaded = await client.ask("POST", "/policies/acme/policy/root", POLICY.encode(), token)
        self.assertEqual(loaded.status, 201, loaded)
        values = {"url": f"127.0.0.1:{port}/postgres", "username": "app", "password": "first", "short": "x"}
        for name, value in values.items():
            answer = await client.ask("POST", client.variable(f"db/{name}"), value.encode(), token)
            self.assertEqual(answer.status, 201)

        async def password(client: Api) -> str:
            return (await client.ask("GET", client.variable("db/password"), token=token)).body.decode()

        async def changed(client: Api, before: str) -> str:
            while (now := await password(client)) == before:
                await beat()
            return now

        rotated = await changed(client, "first")
        while (answer := await client.ask("GET", client.variable("db/short"), token=token)).status == 200:
            await beat()
        self.assertIn("expired", answer.json()["error"]["message"])
        second = self.serve(*options, database_url=dsn)
        other = Api.of(self, await second.ready())
        await first.says("svc saw the value of acme:variable:db/short expire\n")
        await first.kill()
        before = await password(other)
        await changed(other, await changed(other, before))
        self.assertNotEqual(rotated, await password(other))
        self.assertIn(b"rotated acme:variable:db/password", second.stdout)
        recorded = (await other.ask("GET", "/audit/resources/acme:variable:db%2Fpassword", token=token)).json()
        self.assertEqual({event["sdata"]["action@43868"]["operation"] for event in recorded}, {"add", "update", "rotate"})
        await second.says('operation="rotate"] svc rotated acme:variable:db/password by postgresql/password\n')
        path = "/policies/acme/policy/root"
        await other.ask("PATCH", path, b"- !variable { id: db/password, annotations: { rotation/ttl: P1D } }", token)
        await deferLater(reactor, 2.0)
        self.assertTrue(admits(port, await password(other)))
        self.assertEqual(await second.stop(), 0)
