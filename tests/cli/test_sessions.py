"""Tests of ``svc login --for``, ``svc sessions`` and ``svc role revoke-tokens``, and of how commands renew a session."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner, Result
from klein import Klein
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.server import Request

from svc.cli import connection, saved_login
from svc.cli.connection import ApiAnswer, ApiConnection
from svc.cli.main import main
from svc.cli.saved_login import SavedSession, load_saved_session, load_saved_token, save_login
from svc.workload.faults import LoginRefused, NoEvidence
from tests.cli.completing import Nowhere, complete
from tests.cli.test_connection import token
from tests.cli.test_user import KEY
from tests.walls import Wall
from tests.workload.wire import NOW, Wire, exchange_of

URL, ACCOUNT = "http://127.0.0.1:1", "acme"


class Server:
    """A server with a session of Alice, whose access tokens live for 480 seconds; ``status`` is what renewals get."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.status = 200
        self.generation = 0
        self.asked: list[tuple[str, str, bytes]] = []
        self.revoked = False
        #: The statuses of the next changes.
        self.changes: list[int] = []
        app = Klein()

        @app.route("/authn/acme/alice/renew", methods=["POST"])
        def renew(request: Request) -> bytes:
            return self.renewed(request)

        @app.route("/", branch=True)
        def other(request: Request) -> bytes:
            return self.other(request)

        self.wire = Wire(app.resource())

    def opened(self) -> bytes:
        """A session with the next tokens."""
        self.generation += 1
        now = self.clock.seconds()
        tokens = {"access_token": self.access_token(now), "refresh_token": f"refresh-{self.generation}"}
        return json.dumps({"id": "5d0c", "ends_at": "2023-11-15T06:13:20Z", **tokens}).encode()

    def access_token(self, now: float) -> str:
        """An access token, which ends some time."""
        return token(NOW + now, NOW + now + 480)

    def note(self, request: Request) -> bytes:
        """Note a request, and return its body."""
        assert request.content is not None
        body = bytes(request.content.read())
        self.asked.append((request.method.decode(), request.uri.decode(), body))
        return body

    def renewed(self, request: Request) -> bytes:
        """Answer a renewal."""
        body = self.note(request)
        if self.status == 200 and body != f"refresh-{self.generation}".encode():
            request.setResponseCode(401)
            return b""
        request.setResponseCode(self.status)
        if self.status == 200:
            return self.opened()
        return b"" if self.status == 401 else b'{"error": {"code": "unavailable", "message": "ask the primary"}}'

    def other(self, request: Request) -> bytes:
        """Answer other requests: with whether the token is alive."""
        self.note(request)
        header = request.getHeader("authorization") or ""
        claims = json.loads(base64.b64decode(json.loads(base64.b64decode(header[13:-1]))["payload"]))
        if self.changes and request.method == b"POST":
            request.setResponseCode(self.changes.pop(0))
            return b""
        if self.revoked or claims["exp"] <= NOW + self.clock.seconds():
            self.revoked = False
            request.setResponseCode(401)
            return b"Unauthorized: Invalid token"
        return b"value"


class RenewalTests(SynchronousTestCase):
    """A command with a kept session."""

    def setUp(self) -> None:
        """Log in."""
        self.path = Path(self.mktemp()) / "state" / "tokens.json"
        self.patch(saved_login, "token_file", lambda: self.path)
        self.clock = Clock()
        self.server = Server(self.clock)
        self.at = self.connection()
        opened = json.loads(self.server.opened())
        save_login(URL, ACCOUNT, opened["access_token"], SavedSession("alice", opened["refresh_token"]))

    def connection(self) -> ApiConnection:
        """A connection of one command."""
        wall = Wall(self.clock, NOW)
        return ApiConnection(URL, ACCOUNT, None, None, exchange_of(self.server.wire, self.clock), wall)

    def call(self) -> int:
        """Ask for something, and return the status."""
        return self.successResultOf(Deferred.fromCoroutine(self.at.request_with_token("GET", "/whoami"))).status

    def paths(self) -> list[str]:
        """What the server was asked, which is forgotten."""
        asked, self.server.asked = self.server.asked, []
        return [path for _, path, _ in asked]

    def test_renewed(self) -> None:
        """A token that has ended is renewed before it is used, and what comes is kept for later commands (CLI-29)."""
        for _ in range(3):
            self.assertEqual((self.call(), self.paths()), (200, ["/whoami"]))
            self.clock.advance(480)
            self.assertEqual((self.call(), self.paths()), (200, ["/authn/acme/alice/renew", "/whoami"]))
        self.assertEqual(load_saved_session(URL, ACCOUNT), SavedSession("alice", "refresh-4"))
        self.assertEqual(self.path.stat().st_mode & 0o777, 0o600)
        self.assertNotIn("refresh-4", repr(load_saved_session(URL, ACCOUNT)))

    def test_refused(self) -> None:
        """A token that the server refuses is renewed too, and the request sent again, once (CLI-29)."""
        self.server.revoked = True
        self.assertEqual((self.call(), self.paths()), (200, ["/whoami", "/authn/acme/alice/renew", "/whoami"]))

    def test_renewed_by_another(self) -> None:
        """What another command has renewed meanwhile is used, and the session isn't renewed again (CLI-29)."""
        self.clock.advance(480)
        self.call()
        self.paths()
        renewed = load_saved_token(URL, ACCOUNT)
        ended = token(NOW, NOW + 480)
        again = self.successResultOf(Deferred.fromCoroutine(self.at._renew_token(ended)))
        self.assertEqual((again, self.paths()), (renewed, []))

    def test_reading(self) -> None:
        """A command that reads secrets renews the session first (CLI-29)."""
        self.clock.advance(480)
        workload = self.successResultOf(Deferred.fromCoroutine(self.at.workload_client()))
        value = self.successResultOf(Deferred.fromCoroutine(workload.secret("x")))
        self.assertEqual((value, self.paths()), (b"value", ["/authn/acme/alice/renew", "/secrets/acme/variable/x"]))
        self.server.revoked = True
        self.assertIn("svc login", str(self.failureResultOf(Deferred.fromCoroutine(workload.secret("x")), NoEvidence).value))

    def test_ended(self) -> None:
        """When the session has ended, the message says so, and what to do; when it can't be renewed now, that (CLI-29)."""
        self.clock.advance(480)
        for status, said in ((401, "has ended: run `svc login` again"), (503, "ask the primary")):
            self.server.status = status
            fault = self.failureResultOf(
                Deferred.fromCoroutine(self.at.request_with_token("GET", "/whoami")), click.ClickException
            ).value
            self.assertIn(said, fault.message)
            self.assertNotIn("refresh-", fault.message)
        self.assertEqual(load_saved_session(URL, ACCOUNT), SavedSession("alice", "refresh-1"), "it may yet be renewed")

    def change(self, clock_steps: int) -> Deferred[ApiAnswer]:
        """Make a change whose first answer is lost, in the last second of the token, and let a minute pass some times."""
        self.clock.advance(479)
        self.server.changes = [504, 201]
        sending = Deferred.fromCoroutine(self.at.send_change(self.at.request_with_token, "POST", "/x", b"", shows="svc x"))
        self.clock.pump([60.0] * clock_steps)
        return sending

    def test_renewed_for_a_change(self) -> None:
        """A change that is sent again when the token has ended waits until the session can be renewed (CLI-49)."""
        self.server.status = 502
        sending = self.change(4)
        self.assertNoResult(sending)
        self.server.status = 200
        self.clock.advance(60)
        self.assertEqual(self.successResultOf(sending).status, 201)
        self.assertEqual(self.paths()[-2:], ["/authn/acme/alice/renew", "/x"])

    def test_a_change_whose_login_ends(self) -> None:
        """Where the login can't be renewed for all that time, has ended, or is refused, the message says that the change
        may have been made (CLI-49, CLI-50).
        """
        for status, steps, said in ((502, 12, "status 502"), (401, 1, "run `svc login` again"), (500, 12, "status 500")):
            self.setUp()
            self.server.status = status
            message = self.failureResultOf(self.change(steps), click.ClickException).value.message
            self.assertIn(said, message)
            self.assertEqual(message.count("it may or may not have been made: see `svc x`"), 1, message)
        self.setUp()
        sending = self.change(0)
        self.server.changes = [401, 401]
        self.clock.advance(60)
        refused = self.assertRaises(click.ClickException, self.successResultOf(sending).expect, 201)
        self.assertIn("it may or may not have been made", refused.message)

    def test_forgotten(self) -> None:
        """A login for one access token forgets the session, of this server and account alone (CLI-29)."""
        save_login("http://b", ACCOUNT, "b", SavedSession("bob the second", "refresh-b"))
        save_login(URL, ACCOUNT, "one")
        self.assertIsNone(load_saved_session(URL, ACCOUNT))
        self.assertEqual(load_saved_token(URL, ACCOUNT), "one")
        self.assertEqual(load_saved_session("http://b", ACCOUNT), SavedSession("bob the second", "refresh-b"))


class CommandTests(SynchronousTestCase):
    """Commands, from the command line to the requests and from the answers to what is said."""

    def setUp(self) -> None:
        """Keep tokens in a folder of the test's."""
        self.path = Path(self.mktemp()) / "state" / "tokens.json"
        self.patch(saved_login, "token_file", lambda: self.path)
        self.patch(connection, "run_asyncio", complete)
        self.asked: list[tuple[str, str, bytes | None]] = []

    def run_command(self, *arguments: str, answers: dict[str, tuple[int, Any]], given: str = "", code: int = 0) -> Result:
        """Run a command at a server with an answer for each path; it must end with this exit code."""

        def respond(request: Request) -> bytes:
            assert request.content is not None
            path = request.uri.decode()
            self.asked.append((request.method.decode(), path, bytes(request.content.read()) or None))
            status, answer = answers[path.partition("?")[0]]
            request.setResponseCode(status)
            return answer if isinstance(answer, bytes) else json.dumps(answer).encode()

        app = Klein()
        app.route("/", branch=True)(respond)
        self.patch(Nowhere, "make_requester", lambda *_: exchange_of(Wire(app.resource())))
        outcome = CliRunner().invoke(main, arguments, input=given, env={"SVC_ACCOUNT": ACCOUNT, "SVC_URL": URL})
        self.assertEqual(outcome.exit_code, code, outcome.output)
        return outcome

    def test_login(self) -> None:
        """``svc login --for`` opens a session by the API key that the server tells for a password, and keeps both tokens
        (CLI-29).
        """
        opened = {"id": "5d0c", "ends_at": "2030-01-01T08:00:00Z", "refresh_token": "r1", "access_token": "a1"}
        answers = {"/authn/acme/login": (200, KEY.encode()), "/authn/acme/alice/sessions": (201, opened)}
        outcome = self.run_command("login", "--for", "8h", answers=answers, given="alice\nMy password\n")
        self.assertEqual(outcome.stdout, f"Logged in as alice until 2030-01-01T08:00:00Z; the tokens are in {self.path}\n")
        self.assertEqual(self.asked[1:], [("POST", "/authn/acme/alice/sessions?lifetime=28800", KEY.encode())])
        self.assertEqual(
            (load_saved_token(URL, ACCOUNT), load_saved_session(URL, ACCOUNT)), ("a1", SavedSession("alice", "r1"))
        )

    def test_login_refused(self) -> None:
        """Why there is no session is said, and nothing is kept (CLI-29)."""
        told = {"error": {"code": "forbidden", "message": "this server has no sessions: --user-session-max is 0"}}
        follower = {"error": {"code": 405, "message": "Write operations are not allowed"}}
        cases = ((403, told, "has no sessions"), (401, b"", "refused"), (405, follower, "the primary"))
        for status, answer, said in cases:
            answers = {"/authn/acme/login": (200, KEY.encode()), "/authn/acme/alice/sessions": (status, answer)}
            outcome = self.run_command("login", "--for", "8h", answers=answers, given="alice\npw\n", code=1)
            self.assertIn(said, f"{outcome.stderr}{outcome.exception}")
            self.assertEqual(isinstance(outcome.exception, LoginRefused), status == 401)
        self.assertFalse(self.path.exists())
        self.assertIn("30m, 12h or 7d", self.run_command("login", "--for", "8", answers={}, code=2).stderr)

    def test_logout(self) -> None:
        """The kept session ends at the server, and nothing is kept; another login stays. Whoever isn't logged in gets a
        sentence, and nothing is sent (CLI-63).
        """
        save_login("http://b", ACCOUNT, "b", SavedSession("bob", "refresh-b", "77"))
        save_login(URL, ACCOUNT, token(NOW, 4_102_444_800), SavedSession("alice", "r1", "5d0c"))
        for status in (204, 404):
            answers = {"/authn/acme/sessions/5d0c": (status, b"")}
            outcome = self.run_command("logout", answers=answers)
            self.assertIn("the session has ended; the access token ends at 2100-01-01T00:00:00Z", outcome.stderr)
            self.assertEqual(self.asked, [("DELETE", "/authn/acme/sessions/5d0c", None)])
            self.assertEqual(outcome.stdout, "")
            self.asked.clear()
            self.assertIn("Nobody is logged in", self.run_command("logout", answers={}).stderr)
            self.assertEqual(self.asked, [])
            self.assertEqual(load_saved_session("http://b", ACCOUNT), SavedSession("bob", "refresh-b"))
            self.assertEqual(self.path.stat().st_mode & 0o777, 0o600)
            save_login(URL, ACCOUNT, token(NOW, 4_102_444_800), SavedSession("alice", "r1", "5d0c"))

    def test_logout_without_session(self) -> None:
        """A login for one access token is removed, and when that ends is said; ``--everywhere`` ends it (CLI-63)."""
        for arguments, requests in (
            (["logout"], []),
            (["logout", "--everywhere"], [("DELETE", "/authn/acme/tokens", None)]),
        ):
            save_login(URL, ACCOUNT, token(NOW, 4_102_444_800))
            outcome = self.run_command(*arguments, answers={"/authn/acme/tokens": (204, b"")})
            self.assertEqual(self.asked, requests)
            self.assertEqual("ends at 2100-01-01" in outcome.stderr, not requests, outcome.stderr)
            self.assertFalse(self.path.exists())

    def test_logout_of_an_earlier_session(self) -> None:
        """A session whose id an earlier release didn't keep is renewed once, whose answer has the id (CLI-63)."""
        save_login(URL, ACCOUNT, token(NOW, 4_102_444_800), SavedSession("alice", "r1"))
        opened = {"id": "5d0c", "ends_at": "t", "refresh_token": "r2", "access_token": token(NOW, 4_102_444_800)}
        answers = {"/authn/acme/alice/renew": (200, opened), "/authn/acme/sessions/5d0c": (204, b"")}
        self.run_command("logout", answers=answers)
        self.assertEqual([path for _, path, _ in self.asked], ["/authn/acme/alice/renew", "/authn/acme/sessions/5d0c"])
        self.assertFalse(self.path.exists())

    def test_logout_at_a_server_that_refuses(self) -> None:
        """What is kept is removed even then, with exit code 1; a session that has ended already is no fault (CLI-63)."""
        unavailable = (503, b'{"error":{"code":"unavailable","message":"no database"}}')
        for session, answers, code in (
            ("5d0c", {"/authn/acme/sessions/5d0c": unavailable}, 1),
            ("", {"/authn/acme/alice/renew": unavailable}, 1),
            ("", {"/authn/acme/alice/renew": (401, b"")}, 0),
        ):
            save_login(URL, ACCOUNT, token(NOW, 4_102_444_800), SavedSession("alice", "r1", session))
            outcome = self.run_command("logout", answers=answers, code=code)
            self.assertEqual("goes on at the server" in outcome.stderr, code == 1, outcome.stderr)
            self.assertFalse(self.path.exists())

    def test_list(self) -> None:
        """Sessions are listed one per line, one's own or another's (CLI-30)."""
        save_login(URL, ACCOUNT, "a1")
        columns = ("id", "created_at", "ends_at", "used_at", "used_from")
        session = dict(zip(columns, ("5d0c", "t1", "t2", "t3", "192.0.2.7"), strict=True))
        answers = {"/authn/acme/sessions": (200, [session])}
        self.assertEqual(self.run_command("sessions", "list", answers=answers).stdout, "5d0c\tt1\tt2\tt3\t192.0.2.7\n")
        as_json = self.run_command("sessions", "list", "--role", "user:bob", "--json", answers=answers)
        self.assertEqual(json.loads(as_json.stdout), [session])
        self.assertEqual(
            [path for _, path, _ in self.asked], ["/authn/acme/sessions", "/authn/acme/sessions?role=user%3Abob"]
        )

    def test_revoke(self) -> None:
        """A session is revoked by its id, or all are; one of the two must be said (CLI-30)."""
        save_login(URL, ACCOUNT, "a1")
        answers: dict[str, tuple[int, Any]] = {"/authn/acme/sessions/5d0c": (204, b""), "/authn/acme/sessions": (204, b"")}
        self.assertIn("5d0c has ended", self.run_command("sessions", "revoke", "5d0c", answers=answers).stderr)
        self.run_command("sessions", "revoke", "--all", "--role", "user:bob", answers=answers)
        expected = [("DELETE", "/authn/acme/sessions/5d0c", None), ("DELETE", "/authn/acme/sessions?role=user%3Abob", None)]
        self.assertEqual(self.asked, expected)
        for arguments in ((), ("5d0c", "--all")):
            self.assertIn("or --all", self.run_command("sessions", "revoke", *arguments, answers={}, code=2).stderr)

    def test_revoke_tokens(self) -> None:
        """Tokens of a role or of the whole account are revoked; one of the two must be said (CLI-32)."""
        save_login(URL, ACCOUNT, "a1")
        answers: dict[str, tuple[int, Any]] = {"/authn/acme/tokens": (204, b""), "/accounts/acme/tokens": (204, b"")}
        said = self.run_command("role", "revoke-tokens", "host:ci/runner", answers=answers).stderr
        self.assertIn("The access tokens of host:ci/runner are revoked", said)
        self.run_command("role", "revoke-tokens", "--whole-account", answers=answers)
        expected = [
            ("DELETE", "/authn/acme/tokens?role=host%3Aci%2Frunner", None),
            ("DELETE", "/accounts/acme/tokens", None),
        ]
        self.assertEqual(self.asked, expected)
        for arguments in ((), ("user:alice", "--whole-account")):
            self.assertIn("say whose", self.run_command("role", "revoke-tokens", *arguments, answers={}, code=2).stderr)
        refused = {"/authn/acme/tokens": (403, b'{"error":{"code":"forbidden","message":"no"}}')}
        self.assertIn("not permitted", self.run_command("role", "revoke-tokens", "user:bob", answers=refused, code=1).stderr)
