"""Tests of ``svc.cli.offboard``."""

from __future__ import annotations

import json
from typing import Any, Final

import click
from click.testing import CliRunner, Result
from twisted.trial.unittest import SynchronousTestCase

from svc.cli import connection, offboard
from svc.cli.main import main
from tests.cli.completing import complete
from tests.cli.test_access import Answering

PLAN: Final[dict[str, Any]] = {
    "user": "acme:user:leo",
    "sessions": 2,
    "policies": [
        {
            "policy": "acme:policy:root",
            "may_update": True,
            "revoked": [
                {"role": "acme:group:desk", "admin_option": False},
                {"role": "acme:group:ops", "admin_option": True},
            ],
            "document": "---\n- !revoke\n  role: !group /desk\n  member: !user /leo\n",
        }
    ],
    "owns": ["acme:policy:mine"],
    "variables": {"ids": ["acme:variable:shop/password"], "complete": False},
}
READ: Final[dict[str, Any]] = {
    "variables": [{"variable": "acme:variable:shop/key", "last_read": "2026-11-28", "count": 3}],
    "since": "2026-08-31",
    "complete": True,
    "hidden": False,
    "certain": True,
    "kept_since": "2026-01-02T03:04:05.000Z",
    "missing": [],
}
DONE: Final = {**PLAN, "remaining": {"ids": ["acme:variable:own"], "complete": True}}
PATH: Final = "/offboarding/acme/user/leo"


class OffboardTests(SynchronousTestCase):
    """From the command line to requests, and from answers to text."""

    def run_command(self, *arguments: str, answers: tuple[Any, ...] = (PLAN,), code: int = 0) -> Result:
        """Run the command at a server that gives these answers; it must end with this exit code."""
        self.asked: list[Any] = []

        def connected(*fields: Any) -> Answering:
            server = Answering(*fields)
            server.__dict__.update(asked=self.asked, answers=[*answers])
            return server

        self.patch(connection, "run_asyncio", complete)
        self.patch(connection, "ApiConnection", connected)
        environ = {"SVC_ACCOUNT": "acme", "SVC_URL": "http://127.0.0.1:1", "SVC_LOGIN": "alice", "SVC_API_KEY": "key"}
        outcome = CliRunner().invoke(main, ["offboard", *arguments], env=environ)
        self.assertEqual(outcome.exit_code, code, outcome.output)
        return outcome

    @property
    def requests(self) -> list[tuple[str, str]]:
        """The requests that were sent."""
        return [(method, path) for method, path, *_ in self.asked]

    def test_shown(self) -> None:
        """It shows what would end and change; with ``--dry-run`` that is all, and off a terminal without ``--yes`` nothing
        is changed, with exit code 1 (CLI-66).
        """
        shown = self.run_command("user:leo", "--dry-run").stdout.splitlines()
        self.assertEqual(
            shown,
            [
                "user:leo: all access tokens, 2 sessions, the API key and the password end.",
                "In policy:root these memberships are revoked:",
                "  group:desk",
                "  group:ops (may grant it)",
                "What user:leo owns stays so; give it to somebody else by policy:",
                "  policy:mine",
                "These variables could be read; rotate those whose values may be known:",
                "  variable:shop/password",
                "  … and more: `svc reach` has all",
            ],
        )
        outcome = self.run_command("leo", code=1)
        self.assertIn("nothing was changed", outcome.stderr)
        self.assertEqual(self.requests, [("GET", PATH)])

    def test_read(self) -> None:
        """What was read is to be rotated; what could be read is printed besides where it isn't certain what was, with the
        reason (CLI-84).
        """
        since = "2026-08-31"
        read = [f"These variables were read since {since}; rotate them:", "  variable:shop/key"]
        could = [
            "These variables could be read; rotate those whose values may be known:",
            "  variable:shop/password",
            "  … and more: `svc reach` has all",
        ]
        missing = "That is uncertain: counts of these servers are missing: west."
        hidden = "Others were read, which you neither own nor inspect."
        recent = "That is uncertain: reads are known since 2026-01-02, and some may not have been counted."
        nothing: dict[str, Any] = {"variables": []}
        for changes, expected in (
            ({}, read),
            (nothing, [f"No variable was read since {since}."]),
            ({"certain": False}, [*read, recent, *could]),
            ({"certain": False, "missing": ["west"]}, [*read, missing, *could]),
            ({"certain": False, "hidden": True}, [*read, hidden, *could]),
            ({"certain": False, "hidden": True, "missing": ["west"]}, [*read, hidden, missing, *could]),
            ({"certain": False, "complete": False}, [*read, "  … and more than are listed", recent, *could]),
            ({"certain": False, **nothing}, [f"No variable is known to have been read since {since}.", recent, *could]),
        ):
            plan = {**PLAN, "owns": [], "read": {**READ, **changes}}
            shown = self.run_command("leo", "--dry-run", answers=(plan,)).stdout.splitlines()
            self.assertEqual(shown[4:], expected, changes)
        both = {"ids": ["acme:variable:shop/key", "acme:variable:shop/other"], "complete": True}
        plan = {**PLAN, "owns": [], "variables": both, "read": {**READ, "certain": False}}
        shown = self.run_command("leo", "--dry-run", answers=(plan,)).stdout.splitlines()
        self.assertEqual(shown[4:], [*read, recent, could[0], "  variable:shop/other"])

    def test_done(self) -> None:
        """With ``--yes``, or after a confirmation, it is done, and the new policy is printed (CLI-66, CLI-68)."""
        outcome = self.run_command("leo", "--yes", answers=(PLAN, DONE))
        self.assertEqual(self.requests, [("GET", PATH), ("POST", PATH)])
        self.assertIn("user:leo is offboarded", outcome.stdout)
        self.assertIn("    - !revoke\n      role: !group /desk\n      member: !user /leo\n", outcome.stdout)
        self.assertTrue(outcome.stdout.endswith("let it in:\n  variable:own\n"), outcome.stdout)

    def test_confirmed(self) -> None:
        """On a terminal it asks, and no is exit code 1 without a change (CLI-66)."""
        self.patch(offboard, "_on_terminal", lambda: True)
        for says, code, sent in ((True, 0, 2), (False, 1, 1)):
            self.patch(click, "confirm", lambda *_, says=says, **__: says)
            self.run_command("leo", answers=(PLAN, DONE), code=code)
            self.assertEqual(len(self.requests), sent)

    def test_json(self) -> None:
        """The server's document is printed whole; ``--json`` doesn't ask (CLI-66)."""
        self.assertEqual(json.loads(self.run_command("leo", "--json", "--dry-run").stdout), PLAN)
        self.assertEqual(json.loads(self.run_command("leo", "--json", "--yes", answers=(DONE,)).stdout), DONE)
        self.assertEqual(self.requests, [("POST", PATH)])
        self.run_command("leo", "--json", code=2)
        self.run_command("leo", "--yes", "--dry-run", code=2)

    def test_denied(self) -> None:
        """Where a policy may not be updated, that is reported and nothing is sent (CLI-69)."""
        denied = {**PLAN, "policies": [{**PLAN["policies"][0], "may_update": False}]}
        outcome = self.run_command("leo", "--yes", answers=(denied,), code=1)
        self.assertIn("In policy:root (which you may not update)", outcome.stdout)
        self.assertIn("you may not update policy:root: nothing was changed", outcome.stderr)
        self.assertEqual(self.requests, [("GET", PATH)])

    def test_nothing(self) -> None:
        """Someone without memberships and things has lines for neither."""
        plan = {**PLAN, "sessions": 0, "policies": [], "owns": [], "variables": {"ids": [], "complete": True}}
        shown = self.run_command("leo", "--dry-run", answers=(plan,)).stdout
        self.assertEqual(shown.splitlines()[1:], ["It is a member of nothing."])
        self.assertIn("no session", shown)
