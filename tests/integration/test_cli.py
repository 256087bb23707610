"""The ``svc`` command as its users run it: a process of its own, beside a server."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ServerEndpoint
from twisted.internet.error import ProcessDone, ProcessTerminated
from twisted.internet.protocol import Factory, ProcessProtocol, Protocol, connectionDone
from twisted.python.failure import Failure

import svc
from tests.integration.client import POLICY, Api, KeySetSite, workload_token
from tests.integration.postgres import PostgresTestCase, unavailable
from tests.integration.process import DATA_KEY, ServerTestCase, spawn


@attrs.frozen
class Outcome:
    """How a command ended, and what it said."""

    exit_code: int
    stdout: str
    stderr: str


class Command(ProcessProtocol):
    """One run of ``svc``; what is given to it arrives on its standard input, which then ends."""

    def __init__(self, given: bytes) -> None:
        self.given = given
        self.stdout = b""
        self.stderr = b""
        self.ended: Deferred[Outcome] = Deferred()
        self.on_output: Deferred[None] = Deferred()
        self.awaited = b"\0"
        self.on_error: Deferred[None] = Deferred()
        self.awaited_error = b"\0"

    def connectionMade(self) -> None:
        """Give it its input."""
        transport: Any = self.transport
        transport.write(self.given)
        transport.closeStdin()

    def outReceived(self, data: bytes) -> None:
        """Keep what it says."""
        self.stdout += data
        if self.awaited in self.stdout and not self.on_output.called:
            self.on_output.callback(None)

    def errReceived(self, data: bytes) -> None:
        """Keep what it says on standard error."""
        self.stderr += data
        if self.awaited_error in self.stderr and not self.on_error.called:
            self.on_error.callback(None)

    def processEnded(self, reason: Failure) -> None:
        """Report how it ended."""
        ended = reason.value
        assert isinstance(ended, ProcessTerminated | ProcessDone)
        code = -ended.signal if ended.signal else ended.exitCode
        self.ended.callback(Outcome(code or 0, self.stdout.decode(errors="replace"), self.stderr.decode()))


class CommandTestCase(ServerTestCase):
    """A test that runs ``svc``."""

    timeout = 600
    skip = unavailable()

    def start(
        self, *arguments: str, given: bytes = b"", environ: Mapping[str, str] | None = None, awaited: bytes = b"\0"
    ) -> Command:
        """Start a command; ``on_output`` fires when it has said what is ``awaited``."""
        self.home = getattr(self, "home", None) or Path(self.mktemp()).resolve()
        self.home.mkdir(parents=True, exist_ok=True)
        command = Command(given)
        command.awaited = awaited
        surroundings = {
            "PYTHONPATH": str(Path(svc.__file__).resolve().parent.parent),
            "PATH": os.defpath,
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            **(environ or {}),
        }
        script = Path(sys.executable).with_name("svc")
        program = [str(script)] if script.exists() else [sys.executable, "-m", "svc"]
        spawn(self, command, [*program, *arguments], surroundings, self.home)
        return command

    async def svc(
        self, *arguments: str, given: bytes = b"", environ: Mapping[str, str] | None = None, code: int | None = 0
    ) -> Outcome:
        """Run a command, which must end with this exit code, or with any for None."""
        outcome = await self.start(*arguments, given=given, environ=environ).ended
        if code is not None:
            self.assertEqual(outcome.exit_code, code, outcome)
        self.assertNotIn("Traceback", outcome.stderr)
        return outcome


class ClientTests(CommandTestCase, PostgresTestCase):
    """The commands that speak HTTP, and those that administer, on one server."""

    async def test_a_day_with_svc(self) -> None:
        """An account is made beside the running server; its admin logs in, loads policy, sets and reads a secret (CLI-5,
        CLI-10, CLI-24).
        """
        url = await self.create_database(migrated=False)
        server = self.serve(
            "--authenticators=authn,authn-jwt/ci",
            database_url=url,
            environ={"SERVICE_ALLOW_HTTP_PROVIDERS": "yes", "SERVICE_ALLOW_PRIVATE_PROVIDERS": "127.0.0.0/8"},
        )
        base = await server.ready()
        at_server = {"SERVICE_DATABASE_URL": url, "SERVICE_DATA_KEY": DATA_KEY}

        made = json.loads((await self.svc("account", "create", "acme", "--json", environ=at_server)).stdout)
        self.assertEqual((made["account"], made["admin"]), ("acme", "acme:user:admin"))
        again = await self.svc("account", "create", "acme", environ=at_server, code=1)
        self.assertIn("already exists", again.stderr)
        bad = await self.svc("account", "create", "a name!", environ=at_server, code=1)
        self.assertRegex(bad.stderr, r"\AError: an account name is ")
        self.assertEqual((await self.svc("account", "list", environ=at_server)).stdout, "acme\n")

        client = {"SVC_URL": base, "SVC_ACCOUNT": "acme"}
        nobody = await self.svc("whoami", environ=client, code=1)
        self.assertIn("svc login", nobody.stderr)
        wrong = await self.svc("login", environ={**client, "SVC_LOGIN": "admin", "SVC_API_KEY": "wrong"}, code=1)
        self.assertIn("refused", wrong.stderr)
        await self.svc("login", given=f"admin\n{made['api_key']}\n".encode(), environ=client)
        [kept] = list(self.home.rglob("tokens.json"))
        self.assertEqual(kept.stat().st_mode & 0o777, 0o600)
        self.assertEqual(json.loads((await self.svc("whoami", environ=client)).stdout)["username"], "admin")

        loaded = await self.svc("policy", "load", "root", "-", given=POLICY.format(prefix="svc").encode(), environ=client)
        self.assertIn("acme:host:apps/shop\tAPI key: ", loaded.stdout)
        self.assertIn("version 1", loaded.stderr)
        bad = await self.svc("policy", "replace", "root", "-", given=b"- !nonsense", environ=client, code=1)
        self.assertIn("line 1, column 3", bad.stderr)

        value = b"\x00exact\xff bytes\n"
        await self.svc("variable", "set", "apps/password", given=value, environ=client)
        got = self.start("variable", "get", "apps/password", environ=client)
        self.assertEqual((await got.ended).exit_code, 0)
        self.assertEqual(got.stdout, value)
        missing = await self.svc("variable", "get", "apps/none", environ=client, code=1)
        self.assertIn("is empty or not found", missing.stderr)
        tag = (await self.svc("variable", "get", "apps/password", "--tag", environ=client)).stdout.strip()
        self.assertRegex(tag, r'\A"1-[0-9a-f]+"\Z')
        await self.svc("variable", "set", "apps/password", "--create-only", given=b"x", environ=client, code=1)
        await self.svc("variable", "set", "apps/password", "--if-match", tag, given=b"second", environ=client)
        late = await self.svc("variable", "set", "apps/password", "--if-match", tag, given=b"third", environ=client, code=1)
        self.assertIn("412", late.stderr)
        file = self.home / "value"
        file.write_text("older")
        await self.svc("variable", "get", "apps/password", "--output", str(file), environ=client)
        self.assertEqual((file.read_bytes(), file.stat().st_mode & 0o777), (b"second", 0o600))
        await self.svc("variable", "get", "apps/password", "--version", "1", "--output", str(file), environ=client)
        self.assertEqual(file.read_bytes(), value)
        nowhere = await self.svc("variable", "get", "apps/password", "--output", "/nowhere/x", environ=client, code=1)
        self.assertIn("cannot be written", nowhere.stderr)
        await self.svc("variable", "set", "apps/password", "--file", str(file), environ=client)
        refused = await self.svc("variable", "rotate", "apps/password", environ=client, code=1)
        self.assertIn("there are: postgresql/password", refused.stderr)
        self.assertNotIn("due", refused.stderr)
        await self.svc("variable", "expire", "apps/password", "--never", environ=client)

        members = await self.svc("role", "members", "group:apps/all", "--kind", "host", environ=client)
        self.assertEqual(members.stdout, "host:apps/bare\nhost:apps/shop\n")
        narrowed = ("--search", "shop", "--limit", "1", "--all-pages")
        found = await self.svc("role", "members", "group:apps/all", *narrowed, "--transitive", "--json", environ=client)
        self.assertEqual([row["member"] for row in json.loads(found.stdout)], ["acme:host:apps/shop"])
        everyone = await self.svc("role", "members", "group:apps/all", "--limit", "1", "--all-pages", environ=client)
        self.assertEqual(len(everyone.stdout.splitlines()), 3)
        memberships = await self.svc("role", "memberships", "host:apps/shop", "--kind", "group", environ=client)
        self.assertIn("group:apps/all\n", memberships.stdout)
        shown = await self.svc("role", "show", "group:apps/all", environ=client)
        self.assertRegex(shown.stdout, r"role\tgroup:apps/all\ncreated at\t20\S+\npolicy\tpolicy:root\nmember\t")
        graph = await self.svc("role", "graph", "group:apps/all", "--dot", environ=client)
        self.assertRegex(graph.stdout, r'(?s)\Adigraph roles \{.*"group:apps/all" -> "host:apps/shop";.*\}\n\Z')
        listed = await self.svc("list", "--kind", "host", environ=client)
        rows = [line.split("\t") for line in listed.stdout.splitlines()]
        self.assertEqual(rows, [[f"host:apps/{name}", "policy:apps"] for name in ("bare", "outsider", "shop")])
        [found] = json.loads((await self.svc("list", "--search", "password", "--json", environ=client)).stdout)
        self.assertEqual((found["id"], len(found["secrets"])), ("acme:variable:apps/password", 3))
        counted = await self.svc("list", "--count", "--role", "host:apps/bare", "--kind", "variable", environ=client)
        self.assertEqual(counted.stdout, "0\n")
        may = await self.svc("check", "variable:apps/password", "execute", environ=client)
        self.assertEqual(may.stdout, "yes\n")
        may_not = await self.svc(
            "check", "variable:apps/password", "update", "--role", "host:apps/shop", environ=client, code=1
        )
        self.assertEqual((may_not.stdout, may_not.stderr), ("no\n", ""))
        unseen = await self.svc("check", "variable:apps/none", "execute", environ=client, code=1)
        self.assertIn("'apps/none' not found", unseen.stderr)

        holders = await self.svc("who-can", "execute", "variable:apps/password", environ=client)
        self.assertIn("user:admin\tis a member of policy:apps, which owns it\n", holders.stdout)
        paged = await self.svc("who-can", "execute", "variable:apps/password", "--limit", "1", "--all-pages", environ=client)
        self.assertEqual(paged.stdout, holders.stdout)
        number = await self.svc("who-can", "execute", "variable:apps/password", "--count", environ=client)
        self.assertEqual(int(number.stdout), len(holders.stdout.splitlines()))
        why_not = await self.svc("can", "host:apps/shop", "update", "variable:apps/password", environ=client, code=1)
        self.assertRegex(why_not.stdout, r"\Ano: host:apps/shop has no update .*\nit has: .*execute")
        reached = await self.svc("reach", "host:apps/shop", environ=client)
        self.assertIn("variable:apps/password\t", reached.stdout)
        while not json.loads((asked := await self.svc("health", environ=client, code=None)).stdout)["ok"]:
            self.assertEqual(asked.exit_code, 1)  # a check that a busy machine made too slow
        self.assertEqual(asked.exit_code, 0)

        provider = KeySetSite(self)
        api = Api.of(self, base)
        await api.set_values(await api.authenticate("admin", made["api_key"]), provider.uri)
        token = (await self.svc("authenticate", "jwt", "ci", given=workload_token(), environ=client)).stdout.strip()
        self.assertTrue(token)
        refused = await self.svc("authenticate", "jwt", "ci", given=workload_token(app="none"), environ=client, code=1)
        self.assertIn("refused this token", refused.stderr)

        await self.svc("account", "rotate-signing-key", "acme", environ=at_server)
        self.assertEqual(json.loads((await self.svc("whoami", environ=client)).stdout)["username"], "admin")
        self.assertIn(
            "no account other", (await self.svc("account", "rotate-signing-key", "other", environ=at_server, code=1)).stderr
        )

    async def test_machines_and_operators(self) -> None:
        """A machine makes a host of itself with a token and logs in as it; an operator makes and deletes an account."""
        url = await self.create_database(migrated=False)
        server = self.serve("--account=acme", database_url=url)
        base = await server.ready()
        at_server = {"SERVICE_DATABASE_URL": url, "SERVICE_DATA_KEY": DATA_KEY}
        admin = {"SVC_URL": base, "SVC_ACCOUNT": "acme", "SVC_LOGIN": "admin", "SVC_API_KEY": server.admin_key()}
        policy = b"- !layer web\n- !host-factory { id: fleet, layers: [ !layer web ] }\n"
        await self.svc("policy", "load", "root", "-", given=policy, environ=admin)

        made = await self.svc("hostfactory", "tokens", "create", "fleet", "--cidr", "127.0.0.1", environ=admin)
        token = made.stdout.strip()
        self.assertRegex(made.stderr, r"\AGood until 20\S+Z, from 127\.0\.0\.1/32\.\n\Z")
        machine = {"SVC_URL": base, "SVC_HOST_FACTORY_TOKEN": token}
        host = await self.svc("hostfactory", "hosts", "create", "web/1", "--annotation", "a=b", environ=machine)
        as_host = {**admin, "SVC_LOGIN": "host/web/1", "SVC_API_KEY": host.stdout.strip()}
        self.assertEqual(json.loads((await self.svc("whoami", environ=as_host)).stdout)["username"], "host/web/1")
        members = await self.svc("role", "members", "layer:web", environ=admin)
        self.assertIn("host:web/1\n", members.stdout)
        await self.svc("hostfactory", "tokens", "revoke", given=token.encode(), environ=admin)
        refused = await self.svc("hostfactory", "hosts", "create", "web/2", environ=machine, code=1)
        self.assertIn("refused this token", refused.stderr)

        api = Api.of(self, base, "!")
        operator = json.loads((await self.svc("account", "create", "!", "--json", environ=at_server)).stdout)
        access = await api.authenticate("admin", operator["api_key"])
        self.assertEqual((await api.ask("POST", "/accounts", b"id=new", access)).status, 201)
        self.assertEqual((await api.ask("GET", "/accounts", None, access)).json(), ["acme", "new"])
        self.assertEqual((await self.svc("account", "list", environ=at_server)).stdout, "acme\nnew\n")
        self.assertEqual((await api.ask("DELETE", "/accounts/new", None, access)).status, 204)
        self.assertEqual((await api.ask("GET", "/accounts", None, access)).json(), ["acme"])
        info = (await api.ask("GET", "/info", None, access)).json()
        self.assertEqual((info["role"], info["configuration"]), ("primary", {"svc": {"account": "!"}}))
        self.assertIn(b"is running!", (await api.ask("GET", "/")).body)
        self.assertEqual((await api.ask("GET", "/public_keys/acme/user/admin")).body, b"\n")
        await api.tells("/health", 200)
        self.assertNotIn(token, server.said)

    async def test_a_lost_key(self) -> None:
        """An admin who stays logged in is given another key on the server's machine, which ends the session; then all tokens
        of the account end. The server tells of it (CLI-29, CLI-30, CLI-31, CLI-32, AUD-32).
        """
        url = await self.create_database(migrated=False)
        server = self.serve("--account=acme", "--user-token-ttl=1", database_url=url)
        client = {"SVC_URL": await server.ready(), "SVC_ACCOUNT": "acme"}
        at_server = {"SERVICE_DATABASE_URL": url, "SERVICE_DATA_KEY": DATA_KEY}
        lost = server.admin_key()
        too_long = await self.svc("login", "--for", "2d", given=f"admin\n{lost}\n".encode(), environ=client, code=1)
        self.assertIn("43200 seconds at most", too_long.stderr)
        said = await self.svc("login", "--for", "8h", given=f"admin\n{lost}\n".encode(), environ=client)
        self.assertRegex(said.stdout, r"\ALogged in as admin until 20\S+Z; ")
        issued: set[str] = set()
        while len(issued) < 3:  # the session has renewed its token twice
            seen = json.loads((await self.svc("whoami", environ=client)).stdout)
            self.assertEqual(seen["username"], "admin")
            issued.add(seen["token_issued_at"])
        [listed] = json.loads((await self.svc("sessions", "list", "--json", environ=client)).stdout)
        self.assertEqual(listed["used_from"], "127.0.0.1")

        found = (await self.svc("account", "recover", "acme", environ=at_server)).stdout
        self.assertRegex(found, r"\AAPI key for admin: [0-9a-z]+\n\Z")
        ended = await self.svc("whoami", environ=client, code=None)
        while ended.exit_code == 0:  # with the token it had, which lives for a second
            ended = await self.svc("whoami", environ=client, code=None)
        self.assertIn("has ended: run `svc login` again", ended.stderr)
        self.assertIn("no account none", (await self.svc("account", "recover", "none", environ=at_server, code=1)).stderr)
        admin = {**client, "SVC_LOGIN": "admin", "SVC_API_KEY": found.split()[-1]}
        self.assertEqual((await self.svc("sessions", "list", environ=admin)).stdout, "")
        await self.svc("whoami", environ={**admin, "SVC_API_KEY": lost}, code=1)
        await self.svc("account", "revoke-tokens", "acme", environ=at_server)
        searched = await self.svc("audit", "search", "--changes", "--json", environ=admin)
        operations = [event["sdata"]["action@43868"]["operation"] for event in json.loads(searched.stdout)]
        self.assertEqual(operations[:3], ["revoke-tokens", "recover", "open"])
        await server.says("The admin of the account acme was given another API key on a server's machine")

    async def test_policy_is_tried_and_shown(self) -> None:
        """A dry run tells what would be lost, and what is wrong; loading what ``show`` prints changes nothing."""
        server = self.serve("--account=acme", database_url=await self.create_database(migrated=False))
        client = {
            "SVC_URL": await server.ready(),
            "SVC_ACCOUNT": "acme",
            "SVC_LOGIN": "admin",
            "SVC_API_KEY": server.admin_key(),
        }
        await self.svc("policy", "load", "root", "-", given=POLICY.format(prefix="svc").encode(), environ=client)
        tried = await self.svc("policy", "replace", "root", "-", "--dry-run", given=b"- !user alice", environ=client)
        self.assertIn("variable apps/password and its values will be deleted\n", tried.stdout)
        self.assertNotIn("\x1b", tried.stdout + tried.stderr)
        bad = await self.svc("policy", "load", "root", "-", "--dry-run", given=b"- !nonsense", environ=client, code=1)
        self.assertIn("line 1, column 3", bad.stderr)
        shown = (await self.svc("policy", "show", "root", environ=client)).stdout
        self.assertIn("- !policy\n  id: apps\n  body:\n", shown)
        again = await self.svc("policy", "replace", "root", "-", "--dry-run", given=shown.encode(), environ=client)
        self.assertIn("Nothing would change", again.stdout)
        as_json = await self.svc("policy", "show", "apps", "--json", "--depth", "1", environ=client)
        self.assertEqual(json.loads(as_json.stdout)[0]["policy"]["id"], "apps")

    async def test_servers_that_are_not_there(self) -> None:
        """A server or a data key that isn't there ends a command with 1, and the reason (CLI-1)."""
        away = await self.svc("health", "--url", "http://127.0.0.1:1", code=1)
        self.assertIn("cannot reach http://127.0.0.1:1", away.stderr)
        no_key = await self.svc("account", "list", environ={"SERVICE_DATABASE_URL": "postgresql:///x"}, code=1)
        self.assertIn("SERVICE_DATA_KEY", no_key.stderr)


class Silent(Protocol):
    """Takes a request, which it answers with what its server has for it."""

    factory: SilentServer

    def dataReceived(self, data: bytes) -> None:
        """Report that one is there, and answer its beginning; its body comes by itself."""
        if self.factory.asked.called:
            return
        self.factory.asked.callback(data)
        assert self.transport is not None
        self.transport.write(self.factory.answer)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Report that nobody waits any more."""
        self.factory.left.callback(None)


class SilentServer(Factory):
    """A server that is asked once; ``asked`` is what with, and ``left`` fires when who asked has gone."""

    protocol = Silent  # type: ignore[assignment] # Twisted wants one that takes any factory

    def __init__(self, answer: bytes = b"") -> None:
        self.answer = answer
        self.asked: Deferred[bytes] = Deferred()
        self.left: Deferred[None] = Deferred()


class InterruptedTests(CommandTestCase):
    """Commands that a signal ends."""

    async def listening(self, server: SilentServer) -> str:
        """Let a server listen until the test ends; return its address."""
        port: Any = await TCP4ServerEndpoint(installed_reactor, 0, interface="127.0.0.1").listen(server)
        self.addCleanup(port.stopListening)
        return f"http://127.0.0.1:{port.getHost().port}"

    async def test_work_that_was_not_done(self) -> None:
        """A command that is ended by a signal while it waits for an answer says so by its exit code (CLI-1)."""
        for number in (signal.SIGTERM, signal.SIGINT):
            server = SilentServer()
            command = self.start("health", "--url", await self.listening(server))
            self.assertIn(b"GET /health", await server.asked)
            assert command.transport is not None
            os.kill(command.transport.pid, number)
            self.assertEqual(await command.ended, Outcome(128 + number, "", ""))

    async def test_a_pause(self) -> None:
        """So does one that waits until the server wants to be asked again."""
        server = SilentServer(b"HTTP/1.1 503 Wait\r\nRetry-After: 300\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        url = await self.listening(server)
        who = {"SVC_URL": url, "SVC_ACCOUNT": "a", "SVC_LOGIN": "b", "SVC_API_KEY": "c"}
        command = self.start("variable", "get", "d", environ=who)
        await server.left
        assert command.transport is not None
        os.kill(command.transport.pid, signal.SIGTERM)
        self.assertEqual(await command.ended, Outcome(128 + signal.SIGTERM, "", ""))


class EmbeddedTests(CommandTestCase):
    """Administration of a server with the embedded PostgreSQL."""

    async def test_alone_and_beside_the_server(self) -> None:
        """Without a server a command runs PostgreSQL for its own duration; beside one it joins that one's (CLI-23)."""
        data_dir = Path(self.mktemp()).resolve()
        created = await self.svc("account", "create", "acme", "--data-dir", str(data_dir))
        self.assertRegex(created.stdout, r"\AAPI key for admin: \S+\n\Z")
        server = self.serve("--account=other", data_dir=data_dir)
        await server.ready()
        listed = await self.svc("account", "list", "--data-dir", str(data_dir))
        self.assertEqual(listed.stdout, "acme\nother\n")
        self.assertEqual(await server.stop(), 0)


class QuickstartTests(CommandTestCase):
    """The README's first command."""

    async def test_twice_in_one_directory(self) -> None:
        """``svc quickstart --once`` gets every expected answer, the second time on what the first has kept, too (CLI-26).

        With ``--cloud`` it shows the path of a virtual machine as well.
        """
        for versions, options in (((1,), ()), ((2, 3), ("--cloud",))):
            outcome = await self.svc("quickstart", "--once", "--data-dir", "kept", *options)
            self.assertIn("Every answer was the expected one.", outcome.stdout)
            for version in versions:
                self.assertIn(f'"version": {version}', outcome.stdout)
            self.assertEqual(outcome.stdout.count("claim-mismatch"), len(versions))
            self.assertEqual(outcome.stdout.count("TOKEN=$(curl"), 1 + len(versions))
        self.assertIn("A stand-in for a cloud platform", outcome.stdout)

    async def test_goes_on_until_ctrl_c(self) -> None:
        """Without ``--once`` it serves until Ctrl-C, then leaves nothing behind."""
        command = self.start("quickstart", awaited=b"Ctrl-C stops it", environ={"TMPDIR": "/tmp"})
        await command.on_output
        place = command.stdout.partition(b"log are in ")[2].partition(b" ")[0].decode()
        self.assertTrue(Path(place).exists())
        assert command.transport is not None
        os.kill(command.transport.pid, signal.SIGINT)
        outcome = await command.ended
        self.assertEqual(outcome.exit_code, 0)
        self.assertNotIn("Traceback", outcome.stderr)
        self.assertFalse(Path(place).exists())


class ProviderTests(CommandTestCase, PostgresTestCase):
    """``svc provider``, beside a server."""

    async def test_walkthrough(self) -> None:
        """What the first steps tell to do with a provider on one's own machine leads from a JWT to a secret."""
        walkthrough = (Path(__file__).resolve().parents[2] / "docs" / "start" / "first-steps.md").read_text(encoding="utf-8")
        policy = re.search(r"```yaml\n(.*?)```", walkthrough, re.DOTALL)
        assert policy is not None
        provider = self.start("provider", "serve", "--port", "0", awaited=b"issuer: ")
        await provider.on_output
        variables = dict(line.split(": ", 1) for line in provider.stdout.decode().splitlines())
        url = await self.create_database(migrated=False)
        server = self.serve(
            "--account=acme",
            "--authenticators=authn,authn-jwt/ci",
            "--allow-http-providers",
            "--allow-private-providers=127.0.0.0/8",
            database_url=url,
        )
        client = {"SVC_URL": await server.ready(), "SVC_ACCOUNT": "acme"}
        admin = {**client, "SVC_LOGIN": "admin", "SVC_API_KEY": server.admin_key()}
        await self.svc("policy", "load", "root", "-", given=policy[1].encode(), environ=admin)
        variables |= {"token-app-property": "workload", "identity-path": "ci"}
        for name, value in variables.items():
            await self.svc("variable", "set", f"svc/authn-jwt/ci/{name}", given=value.encode(), environ=admin)
        await self.svc("variable", "set", "ci/database/password", given=b"s3cret", environ=admin)

        said = ("provider", "token", "--issuer", variables["issuer"], "--claim", "workload=deployer")
        jwt = self.home / "jwt"
        jwt.write_text((await self.svc(*said, "--claim", "project=acme/shop")).stdout)
        mapping = self.home / "secrets.yml"
        mapping.write_text("DB_PASSWORD: ci/database/password\n")
        run = ("run", "-f", str(mapping), "--jwt-file", str(jwt), "--service-id", "ci", "--", "printenv")
        secret = {"SERVICE_DATA_KEY": "not for commands", "SVC_HOST_FACTORY_TOKEN": "nor this"}
        shown = (await self.svc(*run, environ={**client, **secret})).stdout.splitlines()
        self.assertIn("DB_PASSWORD=s3cret", shown)
        self.assertEqual([line for line in shown if line.partition("=")[0] in secret], [])

        jwt.write_text((await self.svc(*said, "--claim", "project=acme/other")).stdout)
        refused = await self.svc(*run, environ=client, code=1)
        self.assertRegex(
            refused.stderr, r"its log and its audit say why: an operator learns it with `svc explain-request [0-9a-f-]+`"
        )
        explained = await self.svc("authenticator", "explain", "ci", "--jwt", str(jwt), environ=admin, code=1)
        reason = re.search(r"what to do: svc explain-reason (\S+)", explained.stdout)
        assert reason is not None, explained
        self.assertIn("Remedy. ", (await self.svc("explain-reason", reason[1])).stdout)
        assert provider.transport is not None
        os.kill(provider.transport.pid, signal.SIGINT)
        self.assertEqual((await provider.ended).exit_code, 0)
