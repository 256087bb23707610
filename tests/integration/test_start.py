"""Starting and stopping, as a user does it: processes, exit codes, what they print and what they leave on the disk."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import os
import signal
import stat
from pathlib import Path
from typing import Any

import treq
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from twisted.internet import error
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP4ServerEndpoint, connectProtocol
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.ssl import Certificate, trustRootFromCertificates
from twisted.web.client import Agent, BrowserLikePolicyForHTTPS

from svc.crypto.vault import new_data_key
from tests.integration.postgres import PostgresTestCase
from tests.integration.process import DATA_KEY, ServerProcess, ServerTestCase, beat

reactor: Any = installed_reactor


class Client(Protocol):
    """A connection on which the test writes bytes; ``heard`` is what came back."""

    def __init__(self) -> None:
        self.heard = b""
        self.closed: Deferred[None] = Deferred()

    def dataReceived(self, data: bytes) -> None:
        """Keep it."""
        self.heard += data

    def connectionLost(self, reason: Any = None) -> None:
        """Report it."""
        self.closed.callback(None)

    def say(self, data: bytes) -> None:
        """Write."""
        assert self.transport is not None
        self.transport.write(data)


class StartTestCase(PostgresTestCase, ServerTestCase):
    """A test with a PostgreSQL, on which it starts servers."""

    async def health(self, url: str) -> int:
        """The status of ``/health``."""
        # treq takes no IPv6 address.
        response = await Agent(reactor).request(b"GET", f"{url}/health".encode("ascii"))
        await treq.content(response)
        return int(response.code)

    async def assert_healthy(self, url: str) -> None:
        """Its health is 200, if not in the first round: a check may be late on a busy machine."""
        while (status := await self.health(url)) != 200:
            self.assertEqual(status, 502)
            await beat()


class ReadyTests(StartTestCase):
    """The ready line, and what is true when it is there."""

    async def test_every_endpoint(self) -> None:
        """The ready line has a URL for each endpoint: a wildcard is shown as 127.0.0.1, IPv6 in brackets (CFG-12)."""
        server = self.serve("--listen", "tcp:0", listen="tcp:0:interface=\\:\\:1", database_url=await self.create_database())
        urls = await server.urls()
        self.assertRegex(" ".join(urls), r"\Ahttp://\[::1\]:[0-9]+ http://127\.0\.0\.1:[0-9]+\Z")
        for url in urls:
            await self.assert_healthy(url)

    async def test_tls(self) -> None:
        """An ``ssl:`` endpoint serves TLS, and its URL says https (CFG-7)."""
        key, certificate = _certificate(Path(self.mktemp()))
        server = self.serve(
            listen=f"ssl:0:privateKey={key}:certKey={certificate}:interface=127.0.0.1",
            database_url=await self.create_database(),
        )
        url = await server.ready()
        self.assertTrue(url.startswith("https://127.0.0.1:"), url)
        trusted = trustRootFromCertificates([Certificate.loadPEM(certificate.read_bytes())])
        agent = Agent(reactor, BrowserLikePolicyForHTTPS(trusted))
        response = await treq.client.HTTPClient(agent).get(f"{url}/livez")
        await response.content()
        self.assertEqual(response.code, 200)

    async def test_settings_from_everywhere(self) -> None:
        """Settings come from the file that the environment names; variables that name none are reported in the log."""
        path = Path(self.mktemp()).resolve()
        path.write_text('account = "from-file"\nhealth_interval = 0.5\n')
        server = self.serve(
            database_url=await self.create_database(), environ={"SERVICE_CONFIG": str(path), "SERVICE_LISTN": "tcp:1"}
        )
        await server.ready()
        self.assertTrue(server.admin_key())
        self.assertIn(b"SERVICE_LISTN names no setting", server.stdout)


class AccountTests(StartTestCase):
    """The account that ``--account`` makes."""

    async def test_foreground(self) -> None:
        """In the foreground the admin's key is printed, bare, on standard output, and it logs in. That happens once
        (NAME-29).
        """
        dsn = await self.create_database()
        lives = ("--user-token-ttl", "100", "--host-token-ttl", "200")
        server = self.serve("--account", "acme", *lives, database_url=dsn)
        url = await server.ready()
        response = await treq.post(f"{url}/authn/acme/admin/authenticate", server.admin_key().encode(), persistent=False)
        claims = json.loads(base64.urlsafe_b64decode((await response.json())["payload"]))
        self.assertEqual((response.code, claims["exp"] - claims["iat"]), (200, 100))
        self.assertFalse((server.data_dir / "admin-key-acme").exists())
        await server.stop()
        second = self.serve("--account", "acme", database_url=dsn)
        await second.ready()
        self.assertNotIn(b"API key", second.stdout)


class DaemonTests(StartTestCase):
    """Servers in the background."""

    async def daemon(self, *options: str, **given: Any) -> tuple[ServerProcess, int]:
        """Start a daemon; return its launcher, which has succeeded, and its process id."""
        launcher = self.serve(*options, daemon=True, **given)
        self.addCleanup(self.end_daemon, launcher.directory)
        self.assertEqual(await launcher.ended(), 0, launcher.said)
        return launcher, int((launcher.directory / "twistd.pid").read_text())

    async def end_daemon(self, directory: Path) -> None:
        """Stop a daemon, if it is still there."""
        try:
            pid = int((directory / "twistd.pid").read_text())
            os.kill(pid, signal.SIGTERM)
        except (FileNotFoundError, ProcessLookupError):
            return
        await self.gone(pid)

    async def gone(self, pid: int) -> None:
        """Wait until a process that isn't ours has ended."""
        while Path(f"/proc/{pid}").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text():
            await beat()

    async def test_daemon(self) -> None:
        """``twistd svc`` returns with 0 when the server is ready; the ready line, pid file and log are those of twistd
        (CFG-13).
        """
        launcher, pid = await self.daemon(database_url=await self.create_database())
        await self.assert_healthy(await launcher.ready())
        log = launcher.directory / "twistd.log"
        self.assertIn("The server is ready", log.read_text())
        os.kill(pid, signal.SIGTERM)
        await self.gone(pid)
        self.assertIn("Server Shut Down", log.read_text())
        self.assertFalse((launcher.directory / "twistd.pid").exists())

    async def test_admin_key(self) -> None:
        """A daemon leaves the admin's key in a file of mode 0600 and says so in the log; the key itself is in neither
        (NAME-29).
        """
        launcher, _ = await self.daemon("--account", "acme", database_url=await self.create_database())
        path = launcher.data_dir / "admin-key-acme"
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
        key = path.read_text().strip()
        log = (launcher.directory / "twistd.log").read_text()
        self.assertIn(str(path), log)
        self.assertNotIn(key, log + launcher.said)
        url = await launcher.ready()
        response = await treq.post(f"{url}/authn/acme/admin/authenticate", key.encode(), persistent=False)
        await response.content()
        self.assertEqual(response.code, 200)
        # Nobody reads what a daemon prints.
        audit = launcher.data_dir / "audit.log"
        self.assertIn("acme:user:admin successfully authenticated", audit.read_text())
        self.assertIn(f"Audit records are appended to {audit}", (launcher.directory / "twistd.log").read_text())

    async def test_terminal_closed(self) -> None:
        """A server in the foreground stops in order when its terminal is closed, and its PostgreSQL with it (CFG-17)."""
        server = self.serve("--account=acme", terminal=True)
        await server.says("svc ready: ")
        [pid] = (server.data_dir / "cluster" / "postmaster.pid").read_text().split("\n")[:1]
        assert server.transport is not None
        server.transport.loseConnection()
        self.assertEqual(await server.ended(), 0, server.said)
        self.assertFalse(Path("/proc", pid).exists())

    async def test_hangup_without_terminal(self) -> None:
        """SIGHUP ends no server that has no terminal, whatever its settings (CFG-17)."""
        server = self.serve("--account=acme", database_url=await self.create_database(migrated=False))
        await server.ready()
        server.signal(signal.SIGHUP)
        await beat()
        self.assertEqual(await server.stop(), 0, server.said)

    async def test_log_is_opened_anew(self) -> None:
        """A daemon's log and audit that were moved away are begun again when it gets SIGHUP (CFG-17)."""
        launcher, pid = await self.daemon(database_url=await self.create_database())
        files = [launcher.directory / "twistd.log", launcher.data_dir / "audit.log"]
        for file in files:
            file.rename(file.with_suffix(".1"))
        os.kill(pid, signal.SIGHUP)
        while not all(file.exists() for file in files):
            await beat()
        os.kill(pid, signal.SIGTERM)
        await self.gone(pid)
        self.assertIn("Server Shut Down", files[0].read_text())
        self.assertNotIn("Server Shut Down", files[0].with_suffix(".1").read_text())

    async def test_refused(self) -> None:
        """A daemon that can't start makes its launcher end with 1 and the reason on standard error, and nothing stays
        (CFG-13).
        """
        dsn = await self.create_database()
        first = self.serve(database_url=dsn)
        await first.ready()
        await first.stop()
        launcher = self.serve(database_url=dsn, data_key=new_data_key(), daemon=True)
        self.addCleanup(self.end_daemon, launcher.directory)
        self.assertIn("the data key does not fit this database", await self.refused(launcher))
        self.assertIn("the data key does not fit", (launcher.directory / "twistd.log").read_text())
        self.assertFalse((launcher.directory / "twistd.pid").exists())

    async def test_stopped_while_it_waits(self) -> None:
        """A daemon that is stopped before it is ready makes its launcher end with 1, too: there is no server."""
        launcher = self.serve("--database-wait", "3600", database_url="host=127.0.0.1 port=1 dbname=svc", daemon=True)
        self.addCleanup(self.end_daemon, launcher.directory)
        log = launcher.directory / "twistd.log"
        while not log.exists() or "The database cannot be reached" not in log.read_text():
            await beat()
        os.kill(int((launcher.directory / "twistd.pid").read_text()), signal.SIGTERM)
        self.assertIn("stopped before it was ready", await self.refused(launcher))
        self.assertFalse((launcher.directory / "twistd.pid").exists())

    async def test_refused_early(self) -> None:
        """What is wrong with the settings alone is found before there is a daemon."""
        launcher = self.serve("--user-token-ttl", "0", daemon=True)
        self.assertIn("--user-token-ttl must be a whole number", await self.refused(launcher))
        self.assertEqual(list(launcher.directory.iterdir()), [])


class RefusalTests(StartTestCase):
    """Starts that can't succeed: the reason on standard error, exit code 1, and no ready line."""

    async def test_unknown_key_of_the_file(self) -> None:
        """A key of the file that names no setting."""
        path = Path(self.mktemp()).resolve()
        path.write_text("listn = []\n")
        refusal = await self.refused(self.serve("--config", str(path)))
        self.assertIn(f"svc did not start: listn is no setting (in {path})", refusal)

    async def test_no_database_url(self) -> None:
        """A database URL that is none; it isn't repeated, since it may hold a password."""
        refusal = await self.refused(self.serve(database_url="postgresql://u:hunter2@[x/"))
        self.assertIn("--database-url is neither", refusal)
        self.assertNotIn("hunter2", refusal)

    async def test_wrong_data_key(self) -> None:
        """Another data key than that of the database: found at the start, not at the first read (DATA-8)."""
        dsn = await self.create_database()
        first = self.serve(database_url=dsn)
        await first.ready()
        self.assertEqual(await first.stop(), 0)
        second = self.serve(database_url=dsn, data_key=new_data_key())
        self.assertIn("svc did not start: the data key does not fit this database", await self.refused(second))

    async def test_port_in_use(self) -> None:
        """A port that another process has (CFG-16)."""
        port = await TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(Factory.forProtocol(Protocol))
        self.addCleanup(port.stopListening)
        listen = f"tcp:{port.getHost().port}:interface=127.0.0.1"
        refusal = await self.refused(self.serve(listen=listen, database_url=await self.create_database()))
        self.assertIn(f"svc did not start: it cannot listen at {listen}", refusal)
        self.assertIn("Address already in use", refusal)

    async def test_newer_schema(self) -> None:
        """A schema that a newer program has made (CFG-15)."""
        dsn = await self.create_database()
        name = dsn.rpartition("=")[2]
        self.server.command("INSERT INTO schema_versions (version, name, sha256) VALUES (9999, 'x', 'x')", name)
        self.assertIn("newer program", await self.refused(self.serve(database_url=dsn)))

    async def test_data_dir_in_the_way(self) -> None:
        """A data directory that can't be made."""
        path = Path(self.mktemp()).resolve()
        path.write_text("a file")
        self.assertIn(str(path), await self.refused(self.serve(data_dir=path / "data")))


class WaitTests(StartTestCase):
    """Databases that aren't there yet, or not any more."""

    async def test_never_there(self) -> None:
        """A database that isn't there within ``--database-wait`` ends the start, with the reason (LIM-21)."""
        server = self.serve("--database-wait", "3", database_url="host=127.0.0.1 port=1 dbname=svc")
        refusal = await self.refused(server)
        self.assertIn("svc did not start: the database was not there within 3 seconds: Connection refused", refusal)

    async def test_comes_up(self) -> None:
        """A database that comes up within that time is used (CFG-15)."""
        dsn = await self.create_database()
        await self.server.stop()
        server = self.serve("--database-wait", "60", database_url=dsn)
        await server.says("The database cannot be reached")
        await self.server.start()
        await self.assert_healthy(await server.ready())

    async def test_comes_back(self) -> None:
        """A database that has been there may go away for longer than that, and is used when it is back (LIM-21)."""
        dsn = await self.create_database()
        server = self.serve("--database-wait", "1", "--health-interval", "0.2", database_url=dsn)
        url = await server.ready()
        await self.server.kill()
        while await self.health(url) != 502:
            await beat()
        for _ in range(40):
            self.assertIsNone(server.exit_code, server.said)
            await beat()
        await self.server.start()
        while await self.health(url) != 200:
            await beat()
        self.assertEqual(await server.stop(), 0)


class StopTests(StartTestCase):
    """Ends that were asked for."""

    async def test_signals(self) -> None:
        """SIGTERM and SIGINT end the server with exit code 0, with or without clients, and remove the pid file (CFG-14).

        It has listened at the port that the system chose, which the ready line told, and has told nobody a secret.
        """
        dsn = await self.create_database(migrated=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            server = self.serve(database_url=f"{dsn} password=hunter2-of-the-database")
            url = await server.ready()
            self.assertRegex(url, r"\Ahttp://127\.0\.0\.1:[1-9][0-9]+\Z")
            await self.assert_healthy(url)
            idle = await connectProtocol(TCP4ClientEndpoint(reactor, "127.0.0.1", int(url.rpartition(":")[2])), Client())
            await beat()
            server.signal(number)
            self.assertEqual(await server.ended(), 0, server.said)
            await idle.closed
            self.assertFalse((server.directory / "twistd.pid").exists())
            self.assertEqual(server.stderr, b"")
            for secret in ("hunter2", DATA_KEY):
                self.assertNotIn(secret, server.said)

    async def test_drains(self) -> None:
        """A request that is still coming in when the server is told to stop is answered; no other is accepted meanwhile."""
        server = self.serve("--account", "acme", database_url=await self.create_database())
        url = await server.ready()
        key = server.admin_key().encode()
        endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", int(url.rpartition(":")[2]))
        client = await connectProtocol(endpoint, Client())
        client.say(b"POST /authn/acme/admin/authenticate HTTP/1.1\r\nHost: svc\r\nContent-Length: %d\r\n\r\n" % len(key))
        client.say(key[:10])
        await beat()
        server.signal(signal.SIGTERM)
        await server.says("Port")
        while await _connects(endpoint):
            await beat()
        self.assertIsNone(server.exit_code)
        client.say(key[10:])
        await client.closed
        self.assertTrue(client.heard.startswith(b"HTTP/1.1 200 "), client.heard)
        self.assertEqual(await server.ended(), 0, server.said)

    async def test_stopped_while_it_waits(self) -> None:
        """A server that is told to stop while it waits for its database does so at once (CFG-14)."""
        server = self.serve("--database-wait", "3600", database_url="host=127.0.0.1 port=1 dbname=svc")
        await server.says("The database cannot be reached")
        self.assertEqual(await server.stop(), 0, server.said)
        self.assertIn(b"stopped before it was ready", server.stderr)


class EmbeddedTests(StartTestCase):
    """Servers with the embedded PostgreSQL."""

    async def test_data_key(self) -> None:
        """The first start makes a data key of mode 0600 and announces it; the next one uses it; without it there is none
        (DATA-1, DATA-9, CFG-18).
        """
        first = self.serve("--account", "acme")
        url = await first.ready()
        self.assertEqual(await self.health(url), 200)
        path = first.data_dir / "data-key"
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
        self.assertEqual(len(base64.b64decode(path.read_text(), validate=False)), 32)
        self.assertIn(str(path).encode(), first.stdout)
        self.assertEqual(await first.stop(), 0)

        second = self.serve(data_dir=first.data_dir)
        await second.ready()
        self.assertNotIn(b"data key was made", second.stdout)
        self.assertEqual(await second.stop(), 0)

        kept = path.read_text()
        path.unlink()
        third = self.serve(data_dir=first.data_dir)
        self.assertIn(f"{path} is missing", await self.refused(third))
        self.assertFalse(path.exists())

        fourth = self.serve(data_dir=first.data_dir, environ={"SERVICE_DATA_KEY": kept.strip()})
        await fourth.ready()
        self.assertFalse(path.exists())

    async def test_data_key_stays_with_the_server(self) -> None:
        """The data key of the environment isn't handed on to PostgreSQL, which may run as another user (CFG-19)."""
        server = self.serve(environ={"SERVICE_DATA_KEY": DATA_KEY})
        await server.ready()
        children = [
            int(path.parent.name)
            for path in Path("/proc").glob("[0-9]*/stat")
            if path.read_text().rpartition(")")[2].split()[1] == str(server.pid)
        ]
        self.assertTrue(children)
        for child in children:
            self.assertNotIn(DATA_KEY.encode(), Path(f"/proc/{child}/environ").read_bytes())

    async def test_directory_in_use(self) -> None:
        """A second server on the same data directory is refused, and the first goes on (DATA-23)."""
        first = self.serve()
        url = await first.ready()
        self.assertIn("in use by another svc", await self.refused(self.serve(data_dir=first.data_dir)))
        self.assertEqual(await self.health(url), 200)


async def _connects(endpoint: TCP4ClientEndpoint) -> bool:
    try:
        client = await connectProtocol(endpoint, Client())
    except error.ConnectionRefusedError:
        return False
    client.transport.abortConnection()
    await client.closed
    return True


def _certificate(directory: Path) -> tuple[Path, Path]:
    """Make a key and a certificate for 127.0.0.1 that signs itself; their files."""
    directory.mkdir()
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "svc")])
    today = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(today)
        .not_valid_after(today + datetime.timedelta(days=36500))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    key_file, certificate_file = directory / "key.pem", directory / "cert.pem"
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return key_file.resolve(), certificate_file.resolve()
