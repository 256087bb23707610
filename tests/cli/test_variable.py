"""Tests of ``svc.cli.variable``: what is asked of the server, and what is said of its answers."""

from __future__ import annotations

from click.testing import CliRunner, Result
from twisted.trial.unittest import SynchronousTestCase

from svc.cli import connection
from svc.cli.main import main
from tests.cli.completing import complete
from tests.cli.test_authenticator import Server

_REFUSAL = {"error": {"code": "argument_error", "message": "it has no annotation; there are: postgresql/password"}}


class ExpirationCommandsTests(SynchronousTestCase):
    """Commands that have a value be rotated, or never expire."""

    def run_command(self, server: Server, *arguments: str, code: int = 0) -> Result:
        """Run a command, which must end with this exit code."""
        self.patch(connection, "run_asyncio", complete)
        self.patch(connection, "ApiConnection", lambda *_: server)
        line = ["variable", *arguments, "--url", "http://127.0.0.1:1", "--account-name", "a/b"]
        outcome = CliRunner().invoke(main, line)
        self.assertEqual(outcome.exit_code, code, outcome.output)
        return outcome

    def test_rotate(self) -> None:
        """A rotation is announced once the server has taken it, and a refusal is the server's text alone (CLI-56)."""
        server = Server(201)
        self.assertEqual(self.run_command(server, "rotate", "db/key").stderr, "db/key is due to be rotated.\n")
        self.assertEqual(server.asked[-1], ("POST", "/secrets/a%2Fb/variable/db%2Fkey?rotation", None))
        said = self.run_command(Server(422, _REFUSAL), "rotate", "db/key", code=1).stderr
        self.assertIn("there are: postgresql/password", said)
        self.assertNotIn("is due", said)

    def test_expire(self) -> None:
        """Expirations are removed with --never alone, and nothing is said to be due (CLI-57)."""
        server = Server(204)
        said = self.run_command(server, "expire", "db/key", "--never").stderr
        self.assertEqual(said, "The values of db/key that there are don't expire any more.\n")
        self.assertEqual(server.asked, [("DELETE", "/secrets/a%2Fb/variable/db%2Fkey?expirations", None)])
        self.assertIn("expiration/ttl", self.run_command(server, "expire", "db/key", code=2).stderr)
        self.assertEqual(len(server.asked), 1)
        self.run_command(Server(422, _REFUSAL), "expire", "db/key", "--never", code=1)
