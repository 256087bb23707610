"""Tests of ``svc.cli.cluster``: what is asked, what is printed, and which exit code says that all is well."""

from __future__ import annotations

import json
from typing import Any, Final

from click.testing import CliRunner, Result
from twisted.trial.unittest import SynchronousTestCase

from svc.cli import connection
from svc.cli.main import main
from tests.cli.completing import complete
from tests.cli.test_hostfactory import Server

URL: Final = "http://127.0.0.1:1"

HERE: Final = {
    "name": "this server",
    "here": True,
    "ok": True,
    "reachable": True,
    "word": "ok",
    "services": {"core": "ok"},
    "database": "ok",
    "role": "primary",
    "lag_seconds": None,
    "lag_bytes": None,
    "changed": 1.0,
    "age": 0.0,
}
B: Final = HERE | {"name": "b", "here": False, "role": "follower", "lag_seconds": 0.5, "lag_bytes": 96}
ILL: Final = B | {"name": "c\x1b[31m", "ok": False, "word": "failed", "services": {"core": "ok", "ldap": "failed"}}
GONE: Final = B | {"name": "d", "ok": False, "word": "unreachable", "services": {}, "role": "", "database": ""}


class HealthTests(SynchronousTestCase):
    """``svc health``."""

    def run_command(self, server: Server, *arguments: str, code: int = 0) -> Result:
        """Run the command, which must end with this exit code."""
        self.patch(connection, "run_asyncio", complete)
        self.patch(connection, "ApiConnection", lambda *_: server)
        server.url = URL  # type: ignore[attr-defined] # what Connection has
        outcome = CliRunner().invoke(main, ["health", *arguments, "--url", URL])
        self.assertEqual(outcome.exit_code, code, outcome.output)
        return outcome

    def view(self, *servers: dict[str, Any]) -> Server:
        """A server that sees these."""
        return Server(200, {"ok": all(each["ok"] for each in servers), "servers": servers})

    def test_one(self) -> None:
        """Without --all it is the server's own report, and exit code 1 when that isn't ok (CLI-14)."""
        self.assertEqual(json.loads(self.run_command(Server(200, {"ok": True})).stdout), {"ok": True})
        outcome = self.run_command(Server(502, {"ok": False}), code=1)
        self.assertEqual(json.loads(outcome.stdout), {"ok": False})
        self.assertIn("is not healthy", outcome.stderr)

    def test_all_well(self) -> None:
        """With --all each server is a line, and the exit code is 0 when all are well."""
        server = self.view(HERE, B)
        outcome = self.run_command(server, "--all")
        lines = outcome.stdout.splitlines()
        self.assertEqual(lines, ["this server\tok\tprimary\tok", "b\tok\tfollower\tok\t0.5 s, 96 bytes"])
        self.assertEqual(server.asked, [("GET", "/ui/health", [], {"Accept": "application/json"})])

    def test_not_all_well(self) -> None:
        """With one server that isn't well, or gives no answer, the exit code is 1; what fails stands in the table
        (CLI-14).
        """
        outcome = self.run_command(self.view(HERE, ILL, GONE), "--all", code=1)
        self.assertIn("c\\x1b[31m\tfailed\tfollower\tok\t0.5 s, 96 bytes\tldap failed", outcome.stdout)
        self.assertIn("d\tunreachable\tunknown\tunknown", outcome.stdout)
        self.assertIn("not healthy: c\\x1b[31m, d", outcome.stderr)

    def test_two_primaries(self) -> None:
        """That there is another primary stands beside what fails, or alone."""
        for server, told in ((ILL, "ldap failed, primaries two"), (HERE | {"ok": False}, "primaries two")):
            outcome = self.run_command(self.view(server | {"primaries": "two"}), "--all", code=1)
            self.assertEqual(outcome.stdout.rstrip("\n").split("\t")[-1], told)
        self.run_command(self.view(HERE | {"primaries": ["two"]}), "--all")
        self.assertNotIn("primaries", self.run_command(self.view(HERE | {"primaries": "ok"}), "--all").stdout)

    def test_json(self) -> None:
        """--json prints what the server answers, with the same exit code; alone it is a mistake of use (CLI-14)."""
        outcome = self.run_command(self.view(HERE, GONE), "--all", "--json", code=1)
        self.assertEqual(json.loads(outcome.stdout)["servers"], [HERE, GONE])
        self.run_command(self.view(HERE), "--all", "--json")
        self.assertIn("--all", self.run_command(self.view(HERE), "--json", code=2).stderr)

    def test_something_else(self) -> None:
        """An answer that lists no servers comes from something else."""
        answers: tuple[object, ...] = (
            {},
            [],
            {"servers": 1},
            {"servers": [1]},
            {"servers": [{}]},
            {"servers": [{"name": "b"}]},
        )
        for answer in answers:
            self.assertIn("is this the address", self.run_command(Server(200, answer), "--all", code=1).stderr)
