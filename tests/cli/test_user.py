"""Tests of ``svc.cli.user``, and of ``svc login`` as far as it takes passwords."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from twisted.trial.unittest import SynchronousTestCase

from svc.cli import connection, login
from svc.cli.connection import ApiAnswer, ApiConnection
from svc.cli.main import main
from svc.workload.evidence import ApiKey
from svc.workload.faults import LoginRefused
from svc.workload.watching import TokenSource
from tests.cli.completing import complete

NEW = "New-Password-12"

#: A new API key.
KEY = "2new" + "0" * 44


class OneLogin:
    """A login that gives one token, as a ``TokenSource``."""

    def __init__(self, server: Server, own: ApiKey) -> None:
        self._server, self._own = server, own

    async def access_token(self) -> str:
        """Return it."""
        return await self._server.authenticate(self._own.role, self._own.api_key)

    def refused(self, token: str) -> None:
        """Keep it."""


class Server(ApiConnection):
    """A connection whose requests are kept, and answered with what a test has for them."""

    asked: list[tuple[str, str, bytes | None, str]]
    answer: ApiAnswer

    async def request(self, method: str, path: str, body: bytes | None = None, **headers: Any) -> ApiAnswer:
        """Answer."""
        self.asked.append((method, path, body, headers["Authorization"]))
        return self.answer

    def login_by(self, own: ApiKey) -> TokenSource:
        """Log in."""
        return OneLogin(self, own)

    async def authenticate(self, login: str, api_key: str) -> str:
        """Make a token of the key."""
        payload = base64.b64encode(json.dumps({"iat": 1, "exp": 481}).encode()).decode()
        return base64.b64encode(json.dumps({"payload": payload, "key": api_key}).encode()).decode()


class UserTests(SynchronousTestCase):
    """Commands, from the command line to the request and from the answer to what is said."""

    def run_command(
        self, *arguments: str, status: int, answer: bytes = b"", given: str = "", code: int = 0, key: str = ""
    ) -> Result:
        """Run a command at a server that gives this answer; it must end with this exit code.

        With a ``key``, it is Alice's, from the environment.
        """
        self.asked: list[tuple[str, str, bytes | None, str]] = []

        def connected(*fields: Any) -> Server:
            server = Server(*fields)
            server.__dict__.update(asked=self.asked, answer=ApiAnswer(status, answer, {"x-request-id": "r-1"}))
            return server

        self.patch(connection, "run_asyncio", complete)
        self.patch(connection, "ApiConnection", connected)
        who = {"SVC_LOGIN": "alice" if key else None, "SVC_API_KEY": key or None}
        environ = {"SVC_ACCOUNT": "a/b", "SVC_URL": "http://127.0.0.1:1", **who}
        outcome = CliRunner().invoke(main, arguments, input=given, env=environ)
        self.assertEqual(outcome.exit_code, code, outcome.output)
        return outcome

    @staticmethod
    def basic(text: str) -> str:
        """The header of HTTP Basic credentials."""
        return "Basic " + base64.b64encode(text.encode()).decode()

    def test_change_password(self) -> None:
        """The login, the present secret and the new password come from standard input, a line each; nothing is shown
        (CLI-16).
        """
        outcome = self.run_command("user", "change-password", status=204, given=f"alice\nold: one\n{NEW}\n")
        self.assertEqual((outcome.stdout, outcome.stderr), ("", "The password of alice is changed.\n"))
        self.assertEqual(self.asked, [("PUT", "/authn/a%2Fb/password", NEW.encode(), self.basic("alice:old: one"))])

    def test_change_password_by_environment_and_file(self) -> None:
        """SVC_LOGIN, SVC_API_KEY and a file save the questions; a line end that ends the file is not of the password
        (CLI-16).
        """
        for end in ("", "\n", "\r\n"):
            file = Path(self.mktemp())
            file.write_bytes(f"{NEW} {end}".encode())
            self.run_command("user", "change-password", "--new-password-file", str(file), status=204, key="1key")
            self.assertEqual(self.asked, [("PUT", "/authn/a%2Fb/password", f"{NEW} ".encode(), self.basic("alice:1key"))])

    def test_password_not_changed(self) -> None:
        """Why a password isn't changed is told; without a new one nothing is asked, and none goes on the command line."""
        given = f"alice\nold\n{NEW}\n"
        rules = json.dumps({"error": {"code": "validation_failed", "message": "password CONJ00046E the rules"}}).encode()
        for status, answer, said in (
            (401, b"", "refused"),
            (403, b"", "only users"),
            (422, rules, "the rules"),
            (429, b"", "wait"),
        ):
            outcome = self.run_command("user", "change-password", status=status, answer=answer, given=given, code=1)
            self.assertIn(said, f"{outcome.stderr}{outcome.exception}")
            self.assertNotIn(NEW, outcome.output)
        self.assertIn(
            "no New password", self.run_command("user", "change-password", status=204, given="a\nb\n", code=1).stderr
        )
        self.assertEqual(self.asked, [])
        self.run_command("user", "change-password", "--new-password", NEW, status=204, given=given, code=2)

    def test_rotate_ones_own(self) -> None:
        """One's own key is rotated with a key or password, and printed alone on standard output (CLI-16)."""
        outcome = self.run_command("user", "rotate-api-key", status=200, answer=KEY.encode(), given="alice\nsecret\n")
        self.assertEqual(outcome.stdout, f"{KEY}\n")
        self.assertIn("the API key of alice", outcome.stderr)
        self.assertEqual(self.asked, [("PUT", "/authn/a%2Fb/api_key", None, self.basic("alice:secret"))])

    def test_rotate_anothers(self) -> None:
        """Another's key is rotated with the caller's access token."""
        outcome = self.run_command(
            "user", "rotate-api-key", "--role", "host:ci/1", status=200, answer=KEY.encode(), key="1key"
        )
        self.assertEqual(outcome.stdout, f"{KEY}\n")
        [(method, path, body, header)] = self.asked
        self.assertEqual((method, path, body), ("PUT", "/authn/a%2Fb/api_key?role=host%3Aci%2F1", None))
        self.assertTrue(header.startswith('Token token="'))
        weak = b'{"error":{"code":"unauthorized","message":"Credential strength is insufficient"}}'
        line = ("user", "rotate-api-key", "--role", "user:alice")
        self.assertIn("leave --role out", self.run_command(*line, status=401, answer=weak, code=1, key="1key").stderr)
        self.assertIn("not permitted", self.run_command(*line, status=403, code=1, key="1key").stderr)

    def test_no_api_key(self) -> None:
        """A body that hasn't the form of an API key isn't printed as one, or logged in with (CLI-7, CLI-16)."""
        for answer in (b"<html>login</html>", b"", KEY.upper().encode(), f"{KEY}\nmore".encode(), b"{}"):
            for command in (("user", "rotate-api-key"), ("login",)):
                outcome = self.run_command(*command, status=200, answer=answer, given="alice\nsecret\n", code=1)
                self.assertEqual(outcome.stdout, "")
                self.assertIn("is not an API key; is this the address of the service?", outcome.stderr)

    def test_log_in(self) -> None:
        """``svc login`` has the server tell the API key for a password or key, and keeps a token for that (CLI-7)."""
        kept: list[tuple[str, str, str]] = []

        def keep(url: str, account: str, token: str) -> Path:
            kept.append((url, account, token))
            return Path("tokens")

        self.patch(login, "save_login", keep)
        outcome = self.run_command("login", status=200, answer=KEY.encode(), given="alice\nMy password\n")
        self.assertEqual(outcome.stdout, "Logged in as alice for 480 seconds; the token is in tokens\n")
        self.assertEqual(self.asked, [("GET", "/authn/a%2Fb/login", None, self.basic("alice:My password"))])
        [(url, account, token)] = kept
        self.assertEqual((url, account), ("http://127.0.0.1:1", "a/b"))
        self.assertEqual(json.loads(base64.b64decode(token))["key"], KEY)
        refused = self.run_command("login", status=401, given="alice\nsecret\n", code=1)
        self.assertIsInstance(refused.exception, LoginRefused)
        self.assertIn("refused the API key or password of alice", str(refused.exception))
        self.assertNotIn("secret", str(refused.exception))
        key_alone = self.run_command("login", status=401, given="1key", code=1)
        self.assertIn("first the login, such as admin, then its API key or password", key_alone.stderr)
        self.assertNotIn("1key", key_alone.output)
