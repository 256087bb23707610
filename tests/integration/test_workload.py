"""A workload with the client, and with ``svc run``: the whole way, over sockets, with TLS."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import gatherResults
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from svc.workload.client import Client
from svc.workload.evidence import ApiKey, Evidence, Jwt
from svc.workload.faults import LoginRefused, NotFound, NotPermitted, Unreachable, Untrusted
from tests.authn.providers.authority import Authority
from tests.integration.client import Api, KeySetSite, workload_token
from tests.integration.postgres import PostgresTestCase
from tests.integration.stores import begun
from tests.integration.test_cli import CommandTestCase

OPTIONS = (
    "--account=acme",
    "--authenticators=authn,authn-jwt/ci",
    "--allow-http-providers",
    "--allow-private-providers=127.0.0.0/8",
    "--jwks-refetch-interval=0",
    "--host-token-ttl=3",
)

#: A workload with an API key, what it and ``apps/shop`` may read besides, and what they only see.
MORE = """
- !host keyed
- !group workloads
- !grant { role: !group workloads, members: [ !host keyed, !host shop ] }
- !variable key
- !variable seen
- !variable odd
- !permit
  role: !group workloads
  privileges: [ read, execute ]
  resources: [ !variable key, !variable password, !variable odd ]
- !permit { role: !group workloads, privileges: [ read ], resource: !variable seen }
"""

BINARY = bytes(range(1, 256)) + b"\n"


class WorkloadCase(CommandTestCase, PostgresTestCase):
    """A server with TLS, and a provider beside it."""

    async def prepare(self) -> None:
        """Start both, load policy, and set secrets."""
        await super().prepare()
        self.provider = KeySetSite(self)
        plain = "tcp:0:interface=127.0.0.1"
        folder = Path(self.mktemp()).resolve()
        folder.mkdir()
        authority = Authority()
        issued = authority.issue("127.0.0.1")
        self.ca_file, certificate, private_key = folder / "ca.pem", folder / "cert.pem", folder / "key.pem"
        self.ca_file.write_text(authority.pem)
        certificate.write_bytes(issued.dumpPEM())
        key = issued.privateKey.original.to_cryptography_key()
        private_key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        tls = f"ssl:0:privateKey={private_key}:certKey={certificate}:interface=127.0.0.1"
        process = self.serve(
            *OPTIONS, "--listen", tls, database_url=await self.create_database(migrated=False), listen=plain
        )
        plain_url, self.url = await process.urls()
        api = Api.of(self, plain_url)
        admin = await api.set_up(process.admin_key(), self.provider.uri)
        loaded = await api.ask("POST", "/policies/acme/policy/apps", MORE.encode(), admin)
        self.assertEqual(loaded.status, 201, loaded)
        self.api_key = loaded.json()["created_roles"]["acme:host:apps/keyed"]["api_key"]
        for name, value in (("apps/key", BINARY), ("apps/seen", b"x"), ("apps/odd", b"x\0y")):
            self.assertEqual((await api.ask("POST", api.variable(name), value, admin)).status, 201)
        self.process = process
        self.environ = {
            "SVC_URL": self.url,
            "SVC_ACCOUNT": "acme",
            "SVC_CA_FILE": str(self.ca_file),
            "SVC_LOGIN": "host/apps/keyed",
            "SVC_API_KEY": self.api_key,
        }

    def client(self, evidence: Evidence) -> Client:
        """A client that trusts the server's authority."""
        return Client.of(installed_reactor, self.url, "acme", evidence, ca_file=self.ca_file, deadline=60)


class ClientTests(WorkloadCase):
    """The client, against a server."""

    async def test_reading(self) -> None:
        """With an API key and with a JWT alike a workload reads one secret, a version of it, and several, byte for byte."""
        tokens = [workload_token()]
        for evidence in (ApiKey("host/apps/keyed", self.api_key), Jwt("ci", lambda: tokens[0])):
            client = self.client(evidence)
            self.assertEqual(await client.secret("apps/key"), BINARY)
            self.assertEqual(await client.secret("apps/password", version=1), b"s3cret")
            several = await client.secrets(["apps/password", "apps/key", "apps/odd"])
            self.assertEqual(several, {"apps/password": b"s3cret", "apps/key": BINARY, "apps/odd": b"x\0y"})
            with self.assertRaises(NotPermitted):
                await client.secret("apps/seen")
            with self.assertRaises(NotPermitted):
                await client.secrets(["apps/none", "apps/seen"])
            for variables in (["apps/none"], ["apps/password", "apps/none"]):
                with self.assertRaises(NotFound) as caught:
                    await client.secrets(variables)
                self.assertIn("apps/none is empty or not found", str(caught.exception))

    async def test_staying_logged_in(self) -> None:
        """Reads go on through the ends of tokens, many at once, each with a JWT that is read for it."""
        path = Path(self.mktemp())
        client = self.client(Jwt("ci", path))
        seen = set()
        for _ in range(6):
            path.write_bytes(workload_token())
            values = await gatherResults([begun(client.secret("apps/password")) for _ in range(5)])
            self.assertEqual(values, [b"s3cret"] * 5)
            seen.add(await client.access_token())
            await deferLater(IReactorTime(installed_reactor), 1)
        self.assertGreater(len(seen), 1)

    async def test_faults(self) -> None:
        """A refused login, a certificate that nobody vouches for, and a server that isn't there are faults of their own."""
        with self.assertRaises(LoginRefused) as refused:
            await self.client(ApiKey("host/apps/keyed", "wrong")).secret("apps/key")
        self.assertNotIn("wrong", str(refused.exception))
        key = ApiKey("host/apps/keyed", self.api_key)
        with self.assertRaises(Untrusted):
            await Client.of(installed_reactor, self.url, "acme", key).secret("apps/key")
        await self.process.stop()
        with self.assertRaises(Unreachable):
            await self.client(key).secret("apps/key")


class RunTests(WorkloadCase):
    """``svc run`` and ``svc variable get``, as processes."""

    def mapping(self, text: str) -> str:
        """The path of a mapping file."""
        path = Path(self.mktemp()).resolve()
        path.write_text(text)
        return str(path)

    async def test_running(self) -> None:
        """A command has its secrets in the environment, byte for byte, and all else but the API key; its exit counts
        (CLI-21).
        """
        mapping = self.mapping("DB_PASSWORD: apps/password\nKEY: apps/key\nSVC_LOGIN: apps/password\n")
        program = (
            "import json, os, sys; names = (b'DB_PASSWORD', b'KEY', b'SVC_LOGIN', b'SVC_URL', b'SVC_API_KEY');"
            "print(json.dumps([list(os.environb.get(name, b'')) for name in names] + sys.argv[1:])); sys.exit(7)"
        )
        python = ("python3", "-c", program, "--json", "-f")
        environ = {**self.environ, "PATH": os.environ["PATH"]}
        done = await self.svc("run", "-f", mapping, "--", *python, environ=environ, code=7)
        password = list(b"s3cret")
        self.assertEqual(
            json.loads(done.stdout), [password, list(BINARY), password, list(self.url.encode()), [], "--json", "-f"]
        )
        self.assertEqual(done.stderr, "")
        got = self.start("variable", "get", "apps/key", environ=self.environ)
        self.assertEqual((await got.ended).exit_code, 0)
        self.assertEqual(got.stdout, BINARY)

    async def test_signals(self) -> None:
        """The command is the process: signals reach it, those included that Python ignores, and their exit is its own
        (CLI-20).
        """
        mapping = self.mapping("A: apps/password")
        command = self.start(
            "run", "-f", mapping, "sh", "-c", "echo $A; exec sleep 600", environ=self.environ, awaited=b"s3cret"
        )
        await command.on_output
        assert command.transport is not None
        os.kill(command.transport.pid, signal.SIGTERM)
        self.assertEqual((await command.ended).exit_code, -signal.SIGTERM)
        piped = ("run", "-f", mapping, "sh", "-c", "kill -PIPE $$; echo survived")
        self.assertEqual((await self.svc(*piped, environ=self.environ, code=-signal.SIGPIPE)).stdout, "")

    async def test_logging_in_with_a_jwt(self) -> None:
        """A JWT in a file logs the command's workload in (CLI-22)."""
        token = self.mapping(workload_token().decode())
        environ = {name: self.environ[name] for name in ("SVC_URL", "SVC_ACCOUNT", "SVC_CA_FILE")}
        mapping = self.mapping("A: apps/password")
        with_jwt = ("run", "-f", mapping, "--jwt-file", token, "--service-id", "ci", "--", "printenv", "A")
        self.assertEqual((await self.svc(*with_jwt, environ=environ)).stdout, "s3cret\n")
        as_json = await self.svc("authenticate", "jwt", "ci", "--jwt", token, "--json", environ=environ)
        self.assertEqual(json.loads(as_json.stdout).keys(), {"protected", "payload", "signature"})
        printed = await self.svc("authenticate", "jwt", "ci", "--jwt", token, environ=environ)
        self.assertRegex(printed.stdout, r"\A[A-Za-z0-9+/]+=*\n\Z")

    async def test_nothing_is_started(self) -> None:
        """Unless all secrets are there and fit an environment, nothing is started, and the message says why (CLI-19)."""
        for text, told in (
            ("A: apps/password\nB: apps/none", "apps/none is empty or not found"),
            ("A: apps/password\nB: apps/seen", "lacks the privilege execute"),
            ("A: apps/odd", "holds a NUL byte"),
            ("A: apps/password\nA: apps/key", "line 2: A stands there twice"),
        ):
            done = await self.svc("run", "-f", self.mapping(text), "echo", "started", environ=self.environ, code=1)
            self.assertEqual(done.stdout, "")
            self.assertIn(told, done.stderr)
        good = self.mapping("A: apps/password")
        for arguments, told, code in (
            (("--cloud", "--service-id", "prod"), "--host says which host", 2),
            (("--cloud", "--service-id", "prod"), "--platform kubernetes", 2),
            (("--service-id", "prod"), "belong to --jwt-file or --cloud", 2),
            (("--jwt-file", good), "--service-id says which", 2),
            (("--jwt-file", good, "--cloud"), "exclude each other", 2),
            (("--jwt-file", good, "--service-id", "ci"), "refused this token", 1),
            (("--jwt-file", "/none", "--service-id", "ci"), "/none cannot be read", 1),
            (("--url", "https://127.0.0.1:1"), "cannot reach https://127.0.0.1:1", 1),
        ):
            done = await self.svc("run", "-f", good, *arguments, "echo", "started", environ=self.environ, code=code)
            self.assertEqual(done.stdout, "")
            self.assertIn(told, done.stderr)
        unknown = await self.svc("run", "-f", good, "no-such-command", environ=self.environ, code=127)
        self.assertIn("cannot start no-such-command", unknown.stderr)
