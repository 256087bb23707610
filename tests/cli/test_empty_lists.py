"""Tests of lists that are empty, and of the headings of lists."""

from __future__ import annotations

import json
import sys
from typing import Any, Final

from click.testing import CliRunner, Result
from twisted.trial.unittest import SynchronousTestCase

from svc.cli import connection
from svc.cli.main import main
from svc.cli.table import print_table
from tests.cli.completing import complete
from tests.cli.test_access import Answering

#: The commands that list something, each with the answers of a server that has none, and what is said of that.
LISTS: Final[tuple[tuple[str, list[Any], str], ...]] = (
    ("list", [[]], "You see no resource."),
    ("list --kind host", [[]], "You see no such resource."),
    ("who-can read variable:x", [{"holders": [], "after": None}], "You see nobody who has read on variable:x."),
    ("reach user:x", [{"resources": [], "after": None}], "There is nothing that you see and user:x can read, execute or"),
    ("role members group:x", [[]], "It has no such member."),
    ("role members group:x --transitive", [[]], "Nobody holds it."),
    ("role memberships user:x", [[]], "It is a member of no such role."),
    ("role graph user:x", [[]], "You see no members or memberships of it."),
    ("sessions list", [[]], "There is no session that can be renewed"),
    ("authenticator mappings authn-ldap/corp", [{"keys": []}, {"keys": []}], "authn-ldap/corp maps nothing."),
    ("deleted list root", [[]], "Nothing that root deleted can be restored."),
    ("hostfactory tokens list web", [[]], "web has no token."),
    ("expiring", [{"expiring": [], "after": None}], "You see nothing that ends so soon."),
    (
        "unused",
        [{"unused": [], "after": None, "kept_since": "2026-01-01T00:00:00.000+00:00", "followers": []}],
        "All users and hosts that you see have logged in, or were made, since.",
    ),
    (
        "unused --secrets",
        [{"unused": [], "after": None, "kept_since": "2026-01-01T00:00:00.000+00:00", "missing": []}],
        "All variables that you own or inspect were read, or made, since.",
    ),
    ("readers db/password", [{"readers": [], "after": None, "certain": True}], "Nobody is known to have read it."),
    ("audit search", [{"records": [], "after": None, "servers": []}], "Nothing was found."),
    ("audit search --changes", [[]], "Nothing was found."),
)


class EmptyListTests(SynchronousTestCase):
    """Lists of a server that has none."""

    def run_command(self, *arguments: str, answers: list[Any]) -> Result:
        """Run a command at a server that gives these answers."""

        def connected(*fields: Any) -> Answering:
            server = Answering(*fields)
            server.__dict__.update(asked=[], answers=[*answers])
            return server

        self.patch(connection, "run_asyncio", complete)
        self.patch(connection, "ApiConnection", connected)
        environ = {"SVC_ACCOUNT": "acme", "SVC_URL": "http://127.0.0.1:1", "SVC_LOGIN": "alice", "SVC_API_KEY": "key"}
        outcome = CliRunner().invoke(main, arguments, env=environ)
        self.assertEqual(outcome.exit_code, 0, outcome.output)
        return outcome

    def test_sentences(self) -> None:
        """Each says so in a sentence on standard error, and writes nothing to standard output (CLI-64)."""
        for line, answers, sentence in LISTS:
            outcome = self.run_command(*line.split(), answers=answers)
            self.assertEqual(outcome.stdout, "", line)
            self.assertIn(sentence, outcome.stderr.splitlines()[0], line)

    def test_json(self) -> None:
        """JSON is an empty list, or the server's object, and there is no sentence (CLI-64)."""
        for line, answers, _ in LISTS:
            if "mappings" not in line:
                outcome = self.run_command(*line.split(), "--json", answers=answers)
                document = json.loads(outcome.stdout)
                self.assertFalse(document if isinstance(document, list) else next(iter(document.values())), line)
                self.assertEqual(outcome.stderr, "", line)

    def test_headings(self) -> None:
        """On a terminal a list has a heading, and none otherwise; the sentence has none either (CLI-65)."""
        for terminal, heading in ((True, "NAME\n"), (False, "")):
            runner = CliRunner()
            with runner.isolation() as (out, err, _):
                self.patch(sys.stdout, "isatty", lambda terminal=terminal: terminal)
                print_table(("NAME",), [("a",)])
                print_table(("NAME",), [], "None.")
                self.assertEqual((out.getvalue().decode(), err.getvalue().decode()), (f"{heading}a\n", "None.\n"))
