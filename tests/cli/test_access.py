"""Tests of ``svc.cli.access``."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner, Result
from twisted.trial.unittest import SynchronousTestCase

from svc.cli import connection
from svc.cli.connection import ApiAnswer
from svc.cli.main import main
from tests.cli.completing import complete
from tests.cli.test_user import Server

WAY = [{"role": "acme:user:ann", "by": "member"}, {"role": "acme:group:ops", "by": "permitted"}]
V = "/resources/acme/variable/db%2Fpw"


class Answering(Server):
    """A server with an answer for each request in turn."""

    answers: list[Any]

    async def request(self, method: str, path: str, body: bytes | None = None, **headers: Any) -> ApiAnswer:
        """Answer with the next one."""
        self.asked.append((method, path, body, headers["Authorization"]))
        return ApiAnswer(200, json.dumps(self.answers.pop(0)).encode())


class AccessCommandsTests(SynchronousTestCase):
    """From the command line to requests, and from answers to what is said."""

    def run_command(self, *arguments: str, answers: list[Any], code: int = 0) -> Result:
        """Run a command at a server that gives these answers; it must end with this exit code."""
        self.asked: list[Any] = []

        def connected(*fields: Any) -> Answering:
            server = Answering(*fields)
            server.__dict__.update(asked=self.asked, answers=answers)
            return server

        self.patch(connection, "run_asyncio", complete)
        self.patch(connection, "ApiConnection", connected)
        environ = {"SVC_ACCOUNT": "acme", "SVC_URL": "http://127.0.0.1:1", "SVC_LOGIN": "alice", "SVC_API_KEY": "key"}
        outcome = CliRunner().invoke(main, arguments, env=environ)
        self.assertEqual(outcome.exit_code, code, outcome.output)
        return outcome

    @property
    def paths(self) -> list[str]:
        """What was asked for."""
        return [path for _, path, *_ in self.asked]

    def test_who_can(self) -> None:
        """Holders are listed with their ways in words; a page that goes on says how, on the other stream."""
        page = {"holders": [{"role": "acme:user:ann", "way": WAY}], "after": "abc"}
        outcome = self.run_command("who-can", "execute", "variable:db/pw", "--direct", "--limit", "1", answers=[page])
        self.assertEqual(outcome.stdout, "user:ann\tis a member of group:ops, which is permitted it\n")
        self.assertIn("--after abc", outcome.stderr)
        self.assertEqual(self.paths, [f"{V}?who_can=true&privilege=execute&direct=true&limit=1"])

    def test_pages(self) -> None:
        """All pages are one list, and a page that has nothing and goes on is followed by the next."""
        pages = [{"holders": [], "after": "a"}, {"holders": [{"role": "acme:user:ann", "way": WAY}], "after": "b"}]
        outcome = self.run_command("who-can", "read", "variable:db/pw", "--json", answers=list(pages))
        self.assertEqual(json.loads(outcome.stdout), pages[1])
        outcome = self.run_command(
            "who-can", "read", "variable:db/pw", "--all-pages", answers=[*pages, {"holders": [], "after": None}]
        )
        self.assertEqual((outcome.stdout.count("\n"), outcome.stderr), (1, ""))
        self.assertEqual(self.paths[-1], f"{V}?who_can=true&privilege=read&limit=1000&after=b")

    def test_count(self) -> None:
        """The count is printed by itself, or as JSON."""
        command = ("who-can", "read", "variable:db/pw", "--count")
        self.assertEqual(self.run_command(*command, answers=[{"count": 7}]).stdout, "7\n")
        self.assertEqual(json.loads(self.run_command(*command, "--json", answers=[{"count": 7}]).stdout), {"count": 7})

    def test_can(self) -> None:
        """Yes comes with the way, no with exit code 1 and what is missing; what doesn't print is spelt out."""
        yes = {"can": True, "way": WAY, "missing": [], "privileges": []}
        outcome = self.run_command("can", "user:ann", "execute", "variable:db/pw", answers=[yes])
        self.assertEqual(outcome.stdout, "yes: user:ann is a member of group:ops, which is permitted it\n")
        self.assertEqual(self.paths, [f"{V}?can=true&privilege=execute&role=acme%3Auser%3Aann"])
        far = yes | {"way": None}
        outcome = self.run_command("can", "acme:user:ann", "execute", "variable:db/pw", answers=[far])
        self.assertEqual(outcome.stdout, "yes: user:ann has it by a way that is too long to be found\n")
        missing = [{"role": "acme:group:a\nb", "by": "permitted"}, {"role": "acme:policy:db", "by": "owner"}]
        no = {"can": False, "way": None, "missing": missing, "privileges": ["read"]}
        outcome = self.run_command("can", "user:ann", "execute", "variable:db/pw", answers=[no], code=1)
        self.assertEqual(
            outcome.stdout.splitlines(),
            [
                "no: user:ann has no execute on variable:db/pw, and neither has a role that it holds",
                "it has: read",
                "as a member of group:a\\nb, which is permitted execute, it could",
                "as a member of policy:db, which owns it, it could",
            ],
        )
        bare = no | {"missing": [], "privileges": []}
        outcome = self.run_command("can", "user:ann", "execute", "variable:db/pw", answers=[bare], code=1)
        self.assertEqual(outcome.stdout.splitlines()[1:], ["you see no role that has execute on it"])
        outcome = self.run_command("can", "user:ann", "execute", "variable:db/pw", "--json", answers=[no], code=1)
        self.assertEqual(json.loads(outcome.stdout), no)

    def test_reach(self) -> None:
        """Resources are listed with privileges and ways, roles that aren't told as such."""
        way = [WAY[0], {"role": None, "by": "owner"}]
        page = {"resources": [{"resource": "acme:variable:v", "privileges": ["read", "update"], "way": way}], "after": None}
        outcome = self.run_command("reach", "user:ann", "--privilege", "read", "--privilege", "update", answers=[page])
        why = "is a member of roles that you don't see, which own it"
        self.assertEqual((outcome.stdout, outcome.stderr), (f"variable:v\tread, update\t{why}\n", ""))
        self.assertEqual(self.paths, ["/roles/acme/user/ann?reach=true&privilege=read&privilege=update"])

    def test_names(self) -> None:
        """What is no id is a wrong command line."""
        for arguments in (
            ("who-can", "read", "x"),
            ("can", "user:a", "read", "x"),
            ("reach", "x"),
            ("reach", "user:"),
            ("who-can", "read", ":x"),
        ):
            self.assertIn("KIND:ID", self.run_command(*arguments, answers=[], code=2).stderr)
