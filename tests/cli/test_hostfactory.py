"""Tests of ``svc.cli.hostfactory``: what is asked of the server, and what is said of its answers."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from click.testing import CliRunner, Result
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.cli import connection
from svc.cli.connection import ApiAnswer, ApiConnection
from svc.cli.main import main
from tests.cli.completing import complete

MADE: list[dict[str, Any]] = [
    {"expiration": "2023-11-14T23:13:20Z", "cidr": [], "token": token} for token in ("1one", "2two")
]
IDENTIFIED = {"x-request-id": "r-1"}
HOST = {"id": "acme:host:web/1", "owner": "acme:host_factory:f", "api_key": "3key"}


class Server:
    """What a command sees of a connection: it keeps what was asked, and gives the same answer to everything."""

    account = "a/b"
    encode_path = staticmethod(ApiConnection.encode_path)

    def __init__(self, status: int, answer: object = None) -> None:
        self.asked: list[tuple[str, str, list[tuple[str, str]], Mapping[str, str]]] = []
        self._answer = ApiAnswer(status, b"" if answer is None else json.dumps(answer).encode(), IDENTIFIED)
        self.later: list[object] = []
        self.wall = Clock()
        self.wall.advance(1_700_000_000)

    async def request_with_token(self, method: str, path: str, body: bytes | None = None, **headers: str) -> ApiAnswer:
        """Answer."""
        headers.pop("shows", None)
        fields = parse_qsl((body or b"").decode(), keep_blank_values=True, strict_parsing=bool(body))
        self.asked.append((method, path, fields, headers))
        answer = self._answer
        if self.later:
            self._answer = ApiAnswer(200, json.dumps(self.later.pop(0)).encode())
        return answer

    request = request_with_token

    async def send_change(self, send: Callable[..., Awaitable[ApiAnswer]], *request: Any, **named: str) -> ApiAnswer:
        """Send it."""
        return await send(*request, **named)


class HostFactoryTests(SynchronousTestCase):
    """Commands, from the command line to the request and from the answer to what is said."""

    def run_command(
        self, server: Server, *arguments: str, code: int = 0, given: str = "", token: str | None = None
    ) -> Result:
        """Run a command, which must end with this exit code."""
        self.patch(connection, "run_asyncio", complete)
        self.patch(connection, "ApiConnection", lambda *_: server)
        line = ["hostfactory", *arguments, "--url", "http://127.0.0.1:1"]
        environ = {"SVC_ACCOUNT": "a/b", "SVC_HOST_FACTORY_TOKEN": token}
        outcome = CliRunner().invoke(main, line, input=given, env=environ)
        self.assertEqual(outcome.exit_code, code, outcome.output)
        return outcome

    def test_tokens(self) -> None:
        """Tokens come one a line on standard output, and how long they are good on standard error (CLI-2, CLI-15)."""
        server = Server(200, MADE)
        line = ["tokens", "create", "web/f", "--count", "2", "--expires-in", "90m", "--cidr", "::1", "--cidr", "10.0.0.0/8"]
        outcome = self.run_command(server, *line)
        self.assertEqual(outcome.stdout, "1one\n2two\n")
        self.assertEqual(outcome.stderr, "Good until 2023-11-14T23:13:20Z, from everywhere.\n")
        [(method, path, fields, headers)] = server.asked
        self.assertEqual((method, path, headers), ("POST", "/host_factory_tokens", {}))
        self.assertEqual(
            fields,
            [
                ("host_factory", "a/b:host_factory:web/f"),
                ("expiration", "2023-11-14T23:43:20+00:00"),
                ("count", "2"),
                ("cidr[]", "::1"),
                ("cidr[]", "10.0.0.0/8"),
            ],
        )
        self.assertEqual(json.loads(self.run_command(server, *line, "--json").stdout), MADE)

    def test_lifetimes(self) -> None:
        """A lifetime has a number and a unit; what hasn't is a usage error, and nothing is asked."""
        for text, until in (("1m", "22:14:20"), ("12h", "10:13:20"), ("7d", "22:13:20")):
            server = Server(200, MADE)
            self.run_command(server, "tokens", "create", "f", "--expires-in", text)
            self.assertIn(until, server.asked[0][2][1][1])
        for text in ("", "0h", "1", "h", "1.5h", "-1h", "1w", "9999999d"):
            server = Server(200, MADE)
            self.run_command(server, "tokens", "create", "f", "--expires-in", text, code=2)
            self.assertEqual(server.asked, [])

    def test_no_tokens(self) -> None:
        """A refusal is told with what the server says, and exit code 1."""
        refusal = {"error": {"code": "argument_error", "message": "Invalid resource kind: group"}}
        self.assertIn(
            "Invalid resource kind", self.run_command(Server(422, refusal), "tokens", "create", "f", code=1).stderr
        )

    def test_revoke(self) -> None:
        """A token to be revoked comes from the environment or standard input, and never from the command line (CLI-4,
        CLI-15).
        """
        for token, given in (("1/one", ""), (None, "1/one\n")):
            server = Server(204)
            outcome = self.run_command(server, "tokens", "revoke", token=token, given=given)
            self.assertEqual(outcome.stderr, "The token is revoked.\n")
            self.assertEqual(server.asked, [("DELETE", "/host_factory_tokens/1%2Fone", [], {})])
        server = Server(204)
        self.assertIn("SVC_HOST_FACTORY_TOKEN", self.run_command(server, "tokens", "revoke", "--token", "x", code=2).stderr)
        self.run_command(server, "tokens", "revoke", code=2)
        self.assertEqual(server.asked, [])
        self.assertIn("not found", self.run_command(Server(404), "tokens", "revoke", token="x", code=1).stderr)

    def test_list(self) -> None:
        """Tokens are listed by their ids, page by page (CLI-15)."""
        token = {"id": "sha256:0123456789ab", "expiration": "2023-11-14T23:13:20Z", "cidr": []}
        other = {**token, "id": "sha256:ffffffffffff", "cidr": ["10.0.0.0/8", "::1/128"]}
        server = Server(200, [token, other])
        outcome = self.run_command(server, "tokens", "list", "web/f")
        line = "\t2023-11-14T23:13:20Z\t"
        self.assertEqual(
            outcome.stdout,
            f"sha256:0123456789ab{line}everywhere\nsha256:ffffffffffff{line}10.0.0.0/8, ::1/128\n",
        )
        path = "/host_factory_tokens?host_factory=a%2Fb%3Ahost_factory%3Aweb%2Ff&limit=1000&offset=0"
        self.assertEqual(server.asked, [("GET", path, [], {})])
        self.assertEqual(json.loads(self.run_command(server, "tokens", "list", "f", "--json").stdout), [token, other])
        self.assertEqual(self.run_command(Server(200, []), "tokens", "list", "f").stdout, "")
        self.assertIn("not found", self.run_command(Server(404), "tokens", "list", "f", code=1).stderr)
        pages = Server(200, [token] * 1000)
        pages.later = [[token] * 1000, [other]]
        listed = self.run_command(pages, "tokens", "list", "f", "--json")
        self.assertEqual(len(json.loads(listed.stdout)), 2001)
        self.assertEqual([asked[1].rpartition("=")[2] for asked in pages.asked], ["0", "1000", "2000"])

    def test_revoke_by_id(self) -> None:
        """A token is revoked by its id, which may stand on the command line, and no token is read (CLI-15, HF-29)."""
        server = Server(204)
        outcome = self.run_command(server, "tokens", "revoke", "--id", "sha256:0123456789ab", token="1one")
        self.assertEqual(outcome.stderr, "The token is revoked.\n")
        self.assertEqual(server.asked, [("DELETE", "/host_factory_tokens/sha256%3A0123456789ab", [], {})])
        for text in ("1one", "sha256:0123", "sha256:0123456789AB", ""):
            self.assertIn("an id is written", self.run_command(server, "tokens", "revoke", "--id", text, code=2).stderr)

    def test_host(self) -> None:
        """A host is made with the token alone; its API key comes on standard output (CLI-15)."""
        for token, given in (("1one", ""), (None, " 1one \n")):
            server = Server(201, HOST)
            line = ["hosts", "create", "web/1", "--annotation", "a=b=c", "--annotation", "n="]
            outcome = self.run_command(server, *line, token=token, given=given)
            self.assertEqual(outcome.stdout, "3key\n")
            self.assertEqual(outcome.stderr, "This is the API key of acme:host:web/1; it is not shown again.\n")
            fields = [("id", "web/1"), ("annotations[a]", "b=c"), ("annotations[n]", "")]
            headers = {"Authorization": 'Token token="1one"'}
            self.assertEqual(server.asked, [("POST", "/host_factories/hosts", fields, headers)])
        self.assertEqual(json.loads(self.run_command(server, *line, "--json", token="1one").stdout), HOST)

    def test_host_without_key(self) -> None:
        """Of a host that has no API key that is said, and nothing is printed (TOK-53)."""
        server = Server(201, {**HOST, "api_key": None})
        outcome = self.run_command(server, "hosts", "create", "web/1", token="1one")
        self.assertEqual(outcome.stdout, "")
        self.assertEqual(outcome.stderr, "acme:host:web/1 has no API key: its annotation authn/api-key is false.\n")

    def test_no_host(self) -> None:
        """Why there is no host is told in words that fit; a bad annotation is a usage error."""
        for status, said in ((401, "refused this token"), (403, "may not make"), (422, "cannot use this")):
            outcome = self.run_command(Server(status), "hosts", "create", "h", token="1secret", code=1)
            self.assertIn(said, outcome.stderr)
            self.assertNotIn("1secret", outcome.output)
        self.run_command(Server(201, HOST), "hosts", "create", "h", "--annotation", "a", token="x", code=2)
