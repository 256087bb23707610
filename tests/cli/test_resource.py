"""Tests of ``svc.cli.resource`` and of how ``svc.cli.variable`` reads ids."""

from __future__ import annotations

from typing import Any

from click.testing import CliRunner, Result
from twisted.trial.unittest import SynchronousTestCase

from svc.cli import connection
from svc.cli.connection import ApiAnswer
from svc.cli.main import main
from tests.cli.completing import complete
from tests.cli.test_user import Server


class IdsTests(SynchronousTestCase):
    """The arguments that name resources."""

    def run_command(self, *arguments: str, answer: ApiAnswer, code: int = 0) -> Result:
        """Run a command at a server that gives this answer; it must end with this exit code."""
        self.asked: list[Any] = []

        def connected(*fields: Any) -> Server:
            server = Server(*fields)
            server.__dict__.update(asked=self.asked, answer=answer)
            return server

        self.patch(connection, "run_asyncio", complete)
        self.patch(connection, "ApiConnection", connected)
        environ = {"SVC_ACCOUNT": "acme", "SVC_URL": "http://127.0.0.1:1", "SVC_LOGIN": "alice", "SVC_API_KEY": "key"}
        outcome = CliRunner().invoke(main, arguments, env=environ, input="value")
        self.assertEqual(outcome.exit_code, code, outcome.output)
        return outcome

    def test_order(self) -> None:
        """``svc check`` takes the privilege and the resource in either order: the resource has the colon (CLI-60)."""
        for arguments in (("execute", "variable:db/pw:1"), ("variable:db/pw:1", "execute")):
            outcome = self.run_command("check", *arguments, answer=ApiAnswer(204, b""))
            self.assertEqual(outcome.stdout, "yes\n")
            [(method, path, *_)] = self.asked
            self.assertEqual((method, path), ("GET", "/resources/acme/variable/db%2Fpw%3A1?check=true&privilege=execute"))
        self.assertEqual(self.run_command("check", "read", "group:ops", answer=ApiAnswer(404, b""), code=1).stdout, "no\n")

    def test_no_order(self) -> None:
        """Where both or neither have a colon, that is a usage error in words, and nothing is asked (CLI-60)."""
        for arguments, message in (
            (("user:alice", "variable:x"), "svc can ROLE PRIVILEGE RESOURCE"),
            (("execute", "x"), "a resource is written KIND:ID"),
            (("execute", ":x"), "a resource is written KIND:ID"),
        ):
            outcome = self.run_command("check", *arguments, answer=ApiAnswer(204, b""), code=2)
            self.assertIn(message, " ".join(outcome.output.split()))
            self.assertEqual(self.asked, [])

    def test_kinds(self) -> None:
        """The commands of variables take an id with its kind or without; any other colon is part of the id (CLI-61)."""
        path = "/secrets/acme/variable/"
        for given, identifier in (
            ("db/pw", "db%2Fpw"),
            ("variable:db/pw", "db%2Fpw"),
            ("variable:variable:x", "variable%3Ax"),
            ("host:x", "host%3Ax"),
        ):
            for command, status, end in (
                (["get", "--tag"], 200, ""),
                (["set"], 201, ""),
                (["rotate"], 201, "?rotation"),
                (["expire", "--never"], 204, "?expirations"),
            ):
                self.run_command("variable", *command, given, answer=ApiAnswer(status, b"", {"etag": '"1"'}))
                self.assertEqual(self.asked[-1][1], f"{path}{identifier}{end}")
        self.run_command("variable", "set", "variable:", answer=ApiAnswer(201, b""), code=2)
