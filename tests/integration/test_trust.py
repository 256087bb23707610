"""Everybody who connects over TLS, at a server on this machine that shows every chain of certificates of the table.

A good chain must be taken: the server hears what is said. With a bad one it hears nothing, and who asked is told why.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from ldaptor.protocols import pureldap
from OpenSSL import SSL
from twisted.internet import reactor as installed_reactor
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator
from twisted.internet.protocol import Factory, Protocol
from twisted.trial.unittest import TestCase
from zope.interface import implementer

from svc.authn.ldap.client import DirectoryClient
from svc.authn.ldap.refused_binds import RefusedBinds
from svc.cli.connection import ANSWER_LIMIT, ApiConnection
from svc.cluster.member_client import MemberClient, load_trust
from svc.model.databases import ClusterMember
from svc.model.errors import KeysUnavailable
from svc.model.expiration import Rotation, RotationFailed
from svc.model.ldap_directories import DirectoryRefused, LdapServer, Security
from svc.model.reasons import Reason
from svc.net.fetch import GuardedClient
from svc.net.lookup import HostResolver
from svc.net.trust import client_tls
from svc.rotation.postgresql import PostgresPasswordRotator
from svc.workload.client import Client
from svc.workload.evidence import ApiKey
from svc.workload.exchange import Exchange, http_client
from svc.workload.faults import Fault, LoginRefused, Untrusted
from tests.authn.ldap.directory import message
from tests.authn.providers.names import Names
from tests.certificates import CHAINS, HOST, TRUSTED, Chain, chain
from tests.integration.test_cli import CommandTestCase

reactor: Any = installed_reactor

LOOPBACK = [ip_network("127.0.0.0/8")]

#: What a server says before TLS, to whatever it is asked: PostgreSQL and directories.
POSTGRESQL = b"S"
DIRECTORY = message(1, pureldap.LDAPExtendedResponse(resultCode=0))

REFUSAL = b"HTTP/1.1 401 Unauthorized\r\nX-Request-Id: r-1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Listener(Protocol):
    """One connection of the server's."""

    factory: Server
    transport: Any
    secure = False

    def connectionMade(self) -> None:
        """Begin TLS, unless something is to be said before."""
        if not self.factory.prelude:
            self._begin()

    def dataReceived(self, data: bytes) -> None:
        """Say that, and begin TLS; or hear what came within it, and refuse it."""
        if self.secure:
            self.factory.heard += data
            self.transport.write(REFUSAL)
            self.transport.loseConnection()
        else:
            self.transport.write(self.factory.prelude)
            self._begin()

    def _begin(self) -> None:
        self.secure = True
        self.transport.startTLS(self.factory)


@implementer(IOpenSSLServerConnectionCreator)
class Server(Factory):
    """Shows a chain, and keeps what it ``heard`` within TLS."""

    noisy = False
    protocol = Listener  # type: ignore[assignment] # its factory is narrower

    def __init__(self, case: TestCase) -> None:
        self.prelude = b""
        self.chain: Chain = CHAINS[0]
        self.heard = b""
        listening = reactor.listenTCP(0, self, interface="127.0.0.1")
        case.addCleanup(listening.stopListening)
        self.port: int = listening.getHost().port

    def serverConnectionForTLS(self, tlsProtocol: object) -> SSL.Connection:  # noqa: N803 - Twisted's
        """Show it."""
        return SSL.Connection(self.chain.context())


#: Asks, and returns why there was no answer.
Ask = Callable[[], Awaitable[str]]


class TrustTests(TestCase):
    """The users of TLS, each with all chains."""

    timeout = 240

    def setUp(self) -> None:
        """Start the server, to which all names lead."""
        self.server = Server(self)
        self.addCleanup(reactor.installNameResolver, reactor.installNameResolver(Names(["127.0.0.1"])))
        self.url = f"https://{HOST}:{self.server.port}"
        self.look_ups = HostResolver(reactor, reactor.nameResolver, LOOPBACK)
        self.ca_file = Path(self.mktemp())
        self.ca_file.write_text(TRUSTED)

    async def assert_trusts(self, ask: Ask, prelude: bytes = b"") -> None:
        """Who asks so takes the good chains and no other."""
        self.server.prelude = prelude
        for shown in CHAINS:
            self.server.chain, self.server.heard = shown, b""
            why = await ask()
            self.assertEqual(bool(self.server.heard), shown.good, f"{shown.name}: {why}")
            if not shown.good:
                self.assertRegex(why, "TLS failed|the certificate (is for|can't be judged)", shown.name)

    async def test_provider(self) -> None:
        """Keys of identity providers are fetched (NET-1)."""
        client = GuardedClient(reactor, reactor.nameResolver, client_tls, private_networks=LOOPBACK)

        async def ask() -> str:
            with self.assertRaises(KeysUnavailable) as caught:
                await client.fetch(f"{self.url}/keys", TRUSTED)
            return str(caught.exception.why)

        await self.assert_trusts(ask)

    async def test_cluster(self) -> None:
        """Other servers of the cluster are asked for their health (NET-1)."""
        trust = load_trust(self.ca_file, "cluster_ca")
        inquiry = MemberClient(reactor, ClusterMember("b", self.url), lambda: trust)

        async def ask() -> str:
            return (await inquiry.fetch_health()).why

        await self.assert_trusts(ask)

    async def assert_directory_trusted(self, security: Security, prelude: bytes) -> None:
        """Directories that are to be trusted are, and no other is asked anything."""
        server = LdapServer(HOST, self.server.port, security, "dc=example", "(uid=%s)", "cn=svc", b"password", TRUSTED)

        async def ask() -> str:
            # A directory that has refused a while ago isn't spared, and one that hangs has its turns to itself.
            guard = RefusedBinds(reactor, reactor, 0, 900.0).make_guard(b"key")
            directories = DirectoryClient(reactor, self.look_ups, client_tls, guard=guard)
            with self.assertRaises(DirectoryRefused) as caught:
                await directories.verify_password(server, "alice", b"secret")
            if not self.server.heard:
                self.assertEqual(caught.exception.reason, Reason.LDAP_TLS_FAILED)
            return str(caught.exception.detail)

        await self.assert_trusts(ask, prelude)

    async def test_directory(self) -> None:
        """Directories are asked over LDAPS (NET-1)."""
        await self.assert_directory_trusted(Security.TLS, b"")

    async def test_directory_after_start_tls(self) -> None:
        """Directories are asked after StartTLS."""
        await self.assert_directory_trusted(Security.START_TLS, DIRECTORY)

    async def test_rotation(self) -> None:
        """Passwords are replaced in databases; a ``ca-cert`` has them verified whatever else the url says (NET-7)."""
        rotator = PostgresPasswordRotator(reactor, self.look_ups, client_tls)
        for mode in ("?sslmode=verify-full", ""):
            siblings = {"url": f"{HOST}:{self.server.port}/app{mode}", "username": "app", "ca-cert": TRUSTED}

            async def ask(siblings: dict[str, str] = siblings) -> str:
                with self.assertRaises(RotationFailed) as caught:
                    await rotator.rotate(Rotation(b"old", b"new", siblings))
                return str(caught.exception.why)

            await self.assert_trusts(ask, POSTGRESQL)

    async def test_command(self) -> None:
        """Commands send API keys (NET-1)."""
        exchange = Exchange(http_client(reactor, self.ca_file), reactor, ANSWER_LIMIT)
        connection = ApiConnection(self.url, "acme", "admin", "the API key", exchange)
        await self.assert_trusts(lambda: self.fault(connection.request_with_token("GET", "/whoami")))

    async def test_workload(self) -> None:
        """Workloads send theirs (NET-1)."""
        evidence = ApiKey("host/app", "the API key")
        client = Client.of(reactor, self.url, "acme", evidence, ca_file=self.ca_file)
        await self.assert_trusts(lambda: self.fault(client.secret("password")))

    async def fault(self, asked: Awaitable[object]) -> str:
        """Why a client of the service has no answer: it is refused, where the server heard it, or trusts nobody there."""
        with self.assertRaises(Fault) as caught:
            await asked
        self.assertIsInstance(caught.exception, LoginRefused if self.server.heard else Untrusted)
        return str(caught.exception)


class PrinterTests(CommandTestCase):
    """A server with a certificate of the right authority, and of an old printer's."""

    skip = None

    async def test_api_key(self) -> None:
        """The command ``svc`` doesn't send an API key there, and says why; where the certificate is right it does."""
        server = Server(self)
        ca_file = Path(self.mktemp()).resolve()
        ca_file.write_text(TRUSTED)
        environ = {
            "SVC_URL": f"https://127.0.0.1:{server.port}",
            "SVC_ACCOUNT": "acme",
            "SVC_CA_FILE": str(ca_file),
            "SVC_LOGIN": "admin",
            "SVC_API_KEY": "the API key",
        }
        for name, told, heard in (
            ("no name, and an old printer's", "its certificate is not to be trusted (IP address mismatch", b""),
            ("the host's name as common name alone", "its certificate is not to be trusted", b""),
            (
                "the IP address that the name stands for",
                "the server refused the API key",
                b"POST /authn/acme/admin/authenticate ",
            ),
        ):
            server.chain = chain(name)
            outcome = await self.start("whoami", environ=environ).ended
            self.assertEqual(outcome.exit_code, 1)
            self.assertIn(told, outcome.stderr)
            self.assertEqual(server.heard[: len(heard)], heard)
            self.assertEqual(bool(heard), bool(server.heard))
