"""Tests of ``svc.cli.explain_request``: what is asked, and what is said of what is found."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from click.testing import CliRunner, Result
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.audit.record import RecordFormatter
from svc.cli import connection
from svc.cli.connection import ApiAnswer, ApiConnection
from svc.cli.main import main
from svc.cli.reason import explain_all_reasons
from svc.model.events import AuditContext, Event, EventSource, Outcome
from tests.cli.completing import complete

IDENTIFIED = {"x-request-id": "r-1"}
REFUSED: Final[dict[str, Any]] = {
    "at": "2026-01-01T00:00:00.000+00:00",
    "request": "r-1",
    "client_ip": "192.0.2.7",
    "route": "POST /authn-jwt/<service_id>/<flat:account>/authenticate",
    "reason": "claim-mismatch",
    "detail": "the claim \x1b[2J'ref' is 'dev'",
    "authenticator": "authn-jwt",
    "service": "ci",
    "role": "acme:host:web",
}
FORBIDDEN: Final = {
    **REFUSED,
    "route": "GET /secrets/<flat:account>/variable/<tail:identifier>",
    "reason": "hidden",
    "detail": "there is no acme:variable:x that the caller may see",
    "authenticator": None,
    "service": None,
}
EVENT: Final = {
    "timestamp": "2026-01-01T00:00:00.000+00:00",
    "procid": "r-1",
    "msgid": "update",
    "sdata": {"action@43868": {"result": "success", "operation": "update"}},
    "message": "acme:user:admin updated acme:variable:x",
}


class Answering:
    """What a command sees of a connection: it has refusals and events."""

    account = "acme"
    encode_path = staticmethod(ApiConnection.encode_path)

    def __init__(
        self, refusals: Sequence[dict[str, Any]] = (), events: Sequence[dict[str, Any]] = (), status: int = 200
    ) -> None:
        self.refusals, self.events, self.status = list(refusals), list(events), status
        self.asked: list[str] = []

    async def request_with_token(self, method: str, path: str, body: bytes | None = None) -> ApiAnswer:
        """Answer."""
        self.asked.append(f"{method} {path}")
        if path.startswith("/refusals"):
            told = {"server": "one", "since": "2026-01-01T00:00:00.000+00:00", "refusals": self.refusals}
            return ApiAnswer(self.status, json.dumps(told).encode() if self.status == 200 else b"", IDENTIFIED)
        return ApiAnswer(200 if self.events else 404, json.dumps(self.events).encode(), IDENTIFIED)


class ExplainRequestTests(SynchronousTestCase):
    """The command."""

    def run_command(self, server: Answering, *arguments: str, code: int = 0) -> Result:
        """Run it, and see that it ends so, and shows no character that a terminal obeys."""
        self.patch(connection, "run_asyncio", complete)
        self.patch(connection, "ApiConnection", lambda *_: server)
        line = ["explain-request", *arguments, "--url", "http://127.0.0.1:1", "--account-name", "acme"]
        outcome = CliRunner().invoke(main, line)
        self.assertEqual(outcome.exit_code, code, outcome.output)
        self.assertTrue(outcome.output.replace("\n", "").isprintable())
        return outcome

    def test_a_login(self) -> None:
        """A refused login is told with its check and what to do; nothing else is asked (REF-16)."""
        server = Answering([REFUSED])
        output = self.run_command(server, "r 1").output
        self.assertEqual(server.asked, ["GET /refusals?request=r+1&limit=100"])
        self.assertIn("POST /authn-jwt/<service_id>/<flat:account>/authenticate, from 192.0.2.7, by acme:host:web", output)
        self.assertIn("refused at authn-jwt/ci, claim-mismatch: the claim \\x1b[2J'ref' is 'dev'", output)
        self.assertIn(explain_all_reasons()["claim-mismatch"], output)

    def test_a_request(self) -> None:
        """So is a request that was hidden something (REF-16)."""
        output = self.run_command(Answering([FORBIDDEN]), "r-1").output
        self.assertIn("refused, hidden: there is no acme:variable:x that the caller may see", output)
        self.assertIn(explain_all_reasons()["hidden"], output)

    def test_an_event(self) -> None:
        """What isn't refused is looked for in the database (REF-16)."""
        server = Answering(events=[EVENT])
        output = self.run_command(server, "r-1").output
        self.assertEqual(server.asked[1:], ["GET /audit?procid=r-1&limit=100"])
        self.assertIn("update update  success: acme:user:admin updated acme:variable:x", output)
        self.assertIn("It was not refused.", output)

    def test_nothing(self) -> None:
        """What is found nowhere is a fault that says where else to look (REF-16)."""
        output = self.run_command(Answering(), "r-1", code=1).output
        self.assertIn("the server one knows of no request r-1 to the account acme since 2026-01-01", output)
        self.assertIn("compare the account in the client's message", output)
        self.assertIn("--file", output)

    def test_not_permitted(self) -> None:
        """Who may not look at all of the account is told so."""
        self.assertIn("not permitted", self.run_command(Answering(status=403), "r-1", code=1).output)

    def test_json(self) -> None:
        """With --json all that was found is printed (REF-16)."""
        found = json.loads(self.run_command(Answering([REFUSED]), "r-1", "--json").output)
        self.assertEqual(found, {"request": "r-1", "refusals": [REFUSED], "events": []})


class FileTests(SynchronousTestCase):
    """The command, on files."""

    def setUp(self) -> None:
        """Write a file, and one that is compressed."""
        self.folder = Path(self.mktemp())
        self.folder.mkdir(parents=True)
        self.server = EventSource("one", "svc")
        nasty = 'x"] [action@43868 result="success" operation="forged"] r-1 \n'
        lines = [
            *self.record("r-1", "fetch", nasty, "forbidden"),
            *self.record("r-2", "fetch", "r-1", None),
            *self.record("r-1 ", "fetch", "y", "error"),
        ]
        (self.folder / "audit.log").write_bytes(b"\n".join(lines) + b"\n" + lines[0][:-20])
        compressed = b"\n".join(self.record("r-3", "check", "z", "http-404")) + b"\n"
        (self.folder / "audit.log.1.gz").write_bytes(gzip.compress(compressed))

    def record(self, request: str, msgid: str, name: str, reason: str | None) -> list[bytes]:
        """A record as a server writes it."""
        origin = AuditContext(self.server, "acme:host:web", "192.0.2.7", request)
        event = Event(msgid, msgid, (("resource", name),), f"did {name}", f"do {name}")
        return RecordFormatter(self.server, Clock()).format_events(origin, [event], Outcome(reason))

    def run_command(self, *arguments: str, code: int = 0) -> str:
        """Run it, without a server."""
        files = [argument for path in sorted(self.folder.iterdir()) for argument in ("--file", str(path))]
        outcome = CliRunner().invoke(main, ["explain-request", *arguments, *files])
        self.assertEqual(outcome.exit_code, code, outcome.output)
        self.assertTrue(outcome.output.replace("\n", "").isprintable())
        return outcome.output

    def test_found(self) -> None:
        """A record is found by its request alone, also in a compressed file, whatever stands in its values (REF-16)."""
        (event,) = json.loads(self.run_command("r-1", "--json"))["events"][:1]
        self.assertEqual((event["result"], event["reason"], event["what"]), ("failure", "forbidden", "fetch fetch"))
        self.assertIn(explain_all_reasons()["forbidden"], self.run_command("r-1"))
        self.assertIn("did r-1", self.run_command("r-2"))
        self.assertIn(explain_all_reasons()["http-status"], self.run_command("r-3"))

    def test_not_found(self) -> None:
        """What no file names is a fault, and so is a file that can't be read (REF-16)."""
        self.assertIn("the files name no request r-9", self.run_command("r-9", code=1))
        self.assertIn("the files name no request", self.run_command("", code=1))
        (self.folder / "b.gz").write_bytes(gzip.compress(b"x" * 10_000)[:30])
        self.assertIn("can't be read", self.run_command("r-1", code=1))


class ReasonsTests(SynchronousTestCase):
    """Codes of requests."""

    def test_every_code(self) -> None:
        """Each code of the audit and of recent refusals has its cause and remedy (FAIL-23, REF-16)."""
        spec = Path(__file__).resolve().parents[2] / "docs" / "spec"
        (rule,) = (text for text in (spec / "audit.md").read_text("utf-8").split("\n\n") if text.startswith("**AUD-12.**"))
        (kept,) = (text for text in (spec / "refusals.md").read_text("utf-8").split("\n\n") if text.startswith("**REF-1.**"))
        codes = {word.strip("`") for word in f"{rule} {kept}".replace("\n", " ").split("`") if "-" in word or word.islower()}
        known = explain_all_reasons()
        wanted = {code.replace("http-<status>", "http-status") for code in codes if code and " " not in code}
        self.assertLessEqual(wanted - {"result", "reason", "success", "failure", "unknown"}, known.keys())
