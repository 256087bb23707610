"""Tests of ``svc.cli.connection``."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner
from klein import Klein
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.resource import IResource
from twisted.web.server import Request

from svc.cli import connection, saved_login
from svc.cli.cluster import health
from svc.cli.connection import ApiAnswer, ApiConnection, OutcomeUncertain
from svc.cli.login import whoami
from svc.web.http import refusal_responses
from svc.workload.faults import NoEvidence, Unreachable
from svc.workload.replies import Reply
from svc.workload.requester import SharedResult
from tests.walls import Wall
from tests.workload.wire import NOW, Wire, exchange_of


def token(issued_at: float, ends_at: float) -> str:
    """An access token, as far as its claims."""
    claims = base64.b64encode(json.dumps({"iat": issued_at, "exp": ends_at}).encode()).decode()
    return base64.b64encode(json.dumps({"payload": claims}).encode()).decode()


def refusing() -> IResource:
    """A server that takes no token."""
    app = Klein()

    @app.route("/", branch=True)
    def refuse(request: Request) -> bytes:
        request.setResponseCode(401)
        request.setHeader(b"x-request-id", b"r-1")
        request.setHeader(b"content-type", b"text/plain")
        return b"Unauthorized: Invalid token"

    resource: IResource = app.resource()
    return resource


class AnswerTests(SynchronousTestCase):
    """What a command makes of an answer."""

    def test_expected(self) -> None:
        """An answer of an expected status is returned."""
        answer = ApiAnswer(201, b"{}")
        self.assertIs(answer.expect(200, 201), answer)
        self.assertEqual(answer.json(), {})

    def test_unexpected(self) -> None:
        """Any other is a fault with the message of the server, without the codes of another vendor, and what to do (CLI-2,
        CLI-71).
        """
        body = json.dumps({"error": {"message": "'limit' is no number"}}).encode()
        for status, answer, said in (
            (422, body, "'limit' is no number"),
            (401, b"Unauthorized: Invalid token", "svc login"),
            (403, b"", "lacks the privilege"),
            (405, b'{"error":{"code":405,"message":"Write operations are not allowed"}}', "the primary takes changes"),
            (405, b'{"error":{"message":"a group has no API key"}}', "not possible (status 405): a group"),
            (503, b'{"error":{"message":"no audit"}}', "try again (status 503): no audit"),
            (503, b'{"error":{"code":"outcome_unknown","message":"ask"}}', "done, or not done (status 503): ask"),
            (418, b"\xff short and stout", "short and stout"),
            (404, b'{"error":{"message":"CONJ00123E Role a is not found"}}', "(status 404): Role a is not found"),
        ):
            refused = ApiAnswer(status, answer, {"x-request-id": "r-1"})
            fault = self.assertRaises(click.ClickException, refused.expect, 200)
            self.assertIn(said, fault.message)
            self.assertIn(str(status), fault.message)

    def test_unreadable(self) -> None:
        """An answer of the server to what it can't read as a request has no id, and is known by its code (WIRE-34)."""
        for response in (*refusal_responses.UNREADABLE.values(), refusal_responses.TOO_SLOW):
            answer = ApiAnswer(response.status, response.body, {"content-type": "application/json"}, "it may be: `svc x`")
            self.assertTrue(answer.is_from_service)
            self.assertNotIn("svc x", self.assertRaises(click.ClickException, answer.expect, 200).message)

    def test_not_ours(self) -> None:
        """An answer with neither the id of its request nor the code of a refusal is said to be that of something in front
        of the server, whatever its status; after a change, 408 and 500 and above say that it may have been made, and what
        shows that (CLI-50).
        """
        html, ours = {"content-type": "text/html"}, {"x-request-id": "r-1"}
        made = '{"error":{"code":"gateway_timeout","message":"late"}}'
        front, doubt = "something in front of the server answered", "it may or may not have been made: see `svc x`"
        table: tuple[tuple[ApiAnswer, bool, bool], ...] = (
            (ApiAnswer(413, b"<html>413</html>", html), True, False),
            (ApiAnswer(413, b'{"error":{"code":"too_large","message":"too long"}}'), False, False),
            (ApiAnswer(413, b"", ours), False, False),
            (ApiAnswer(413, b""), True, False),
            (ApiAnswer(403, b"<html>", html | ours), True, False),
            (ApiAnswer(403, b""), True, False),
            (ApiAnswer(403, b"", ours), False, False),
            (ApiAnswer(401, b""), True, False),
            (ApiAnswer(401, b"", ours), False, False),
            (ApiAnswer(401, b"Unauthorized: Invalid token"), True, False),
            (ApiAnswer(401, b"Unauthorized: Invalid token", ours), False, False),
            (ApiAnswer(431, b"Request Header Fields Too Large"), True, False),
            (ApiAnswer(400, b'{"error":"bad"}'), True, False),
            (ApiAnswer(400, b'{"error":"bad"}', ours), False, False),
            (ApiAnswer(400, b'{"error":{"message":7}}'), True, False),
            (ApiAnswer(400, b'{"error":{"message":"bad"}}'), True, False),
            (ApiAnswer(503, b'{"error":{"code":503,"message":"bad"}}', {}, doubt), True, True),
            (ApiAnswer(500, b'{"error":"gateway says no"}', {}, doubt), True, True),
            (ApiAnswer(413, b'{"error":"gateway says no"}', {}, doubt), True, False),
            (ApiAnswer(500, b"", {}, doubt), True, True),
            (ApiAnswer(503, b"", {}, doubt), True, True),
            (ApiAnswer(408, b"", {}, doubt), True, True),
            (ApiAnswer(408, b"", ours, doubt), False, False),
            (ApiAnswer(403, b"", {}, doubt), True, False),
            (ApiAnswer(500, b"", ours, doubt), False, False),
            (ApiAnswer(504, b"<html>", html), True, False),
            (ApiAnswer(504, b"<html>", html, doubt), True, True),
            (ApiAnswer(502, b"upstream", {}, doubt), True, True),
            (ApiAnswer(504, made.encode(), {}, doubt), False, True),
            (ApiAnswer(503, b"<html>", html, doubt), True, True),
            (ApiAnswer(500, b"<html>", html, doubt), True, True),
            (ApiAnswer(503, b'{"error":{"code":"unavailable","message":"no audit"}}', {}, doubt), False, False),
            (ApiAnswer(413, b"<html>", html, doubt), True, False),
            (ApiAnswer(502, b"{}", html, doubt), True, True),
        )
        for answer, by_another, uncertain in table:
            fault = self.assertRaises(click.ClickException, answer.expect, 200, 502)
            self.assertEqual((front in fault.message, doubt in fault.message), (by_another, uncertain), answer)
            self.assertFalse(by_another and "the server refused" in fault.message)
            self.assertEqual(fault.exit_code, 1)

    def test_marks(self) -> None:
        """What the answer says and what is to be done are divided by one mark."""
        answer = ApiAnswer(502, b'{"error":{"code":"bad_gateway","message":"no response."}}', {}, "see `svc x`")
        message = self.assertRaises(click.ClickException, answer.expect, 200).message
        self.assertEqual(message, "the server refused (status 502): no response; see `svc x`")

    def test_not_json(self) -> None:
        """What is no JSON hardly comes from the service, and the fault says so."""
        for body in (b"<html>", b"[" * 100_000):
            fault = self.assertRaises(click.ClickException, ApiAnswer(200, body).json)
            self.assertIn("is this the address of the service?", fault.message)

    def test_request(self) -> None:
        """It names the request by the id that the server's log and audit have, if that can be shown (CLI-2)."""
        for said, shown in (("id-1", " (request id-1)"), ("\x1b[31m", ""), ("", "")):
            fault = self.assertRaises(click.ClickException, ApiAnswer(403, b"", {"x-request-id": said}).expect, 200)
            self.assertEqual(fault.message.partition("(status 403)")[2], shown)


class AddressTests(SynchronousTestCase):
    """The address of the server."""

    def test_refused(self) -> None:
        """What is no address, or has a password in it, is refused before anything else, and not repeated (CLI-9)."""
        for url in ("hunter2", "ftp://hunter2", "https://hunter2:x", "https://me:hunter2@svc.example", "http://hunter_2"):
            done = CliRunner().invoke(health, ["--url", url])
            self.assertEqual(done.exit_code, 2)
            self.assertIn("must have the form https://svc.example.org", " ".join(done.output.split()))
            self.assertNotIn("hunter", done.output)


class ClearTests(SynchronousTestCase):
    """Tokens that anybody on the way can read."""

    def test_which(self) -> None:
        """They go in the clear over http, but for addresses of this machine (CLI-8)."""
        for url in ("http://svc.example", "http://10.0.0.1:80", "HTTP://svc/", "http://localhost.example"):
            self.assertTrue(connection.is_unencrypted(url), url)
        for url in (
            "https://svc.example",
            "http://127.0.0.1:1",
            "http://127.9.9.9",
            "http://localhost",
            "http://a.localhost:80",
        ):
            self.assertFalse(connection.is_unencrypted(url), url)

    def test_warned(self) -> None:
        """A command that sends one warns of it once, on standard error, and goes on; one that sends none doesn't (CLI-8)."""
        begun: list[object] = []
        self.patch(connection, "run_asyncio", begun.append)
        options = ("--url", "http://svc.example")
        warned = CliRunner().invoke(whoami, [*options, "--account-name", "acme"])
        self.assertEqual((warned.exit_code, warned.stdout, warned.stderr.count("use https")), (0, "", 1))
        for command, arguments in ((health, options), (whoami, ("--url", "https://svc.example", "--account-name", "acme"))):
            self.assertEqual(CliRunner().invoke(command, arguments).output, "")
        self.assertEqual(len(begun), 3)


class TokenTests(SynchronousTestCase):
    """The token that is kept between commands."""

    def setUp(self) -> None:
        """Keep tokens in a folder of the test's."""
        self.path = Path(self.mktemp()) / "state" / "tokens.json"
        self.patch(saved_login, "token_file", lambda: self.path)

    def test_kept(self) -> None:
        """Tokens are kept by server and account, in a file that nobody else reads (CLI-7)."""
        saved_login.save_login("http://a", "acme", "one")
        saved_login.save_login("http://b", "acme", "two")
        saved_login.save_login("http://a", "acme", "three")
        self.assertEqual(saved_login.load_saved_token("http://a", "acme"), "three")
        self.assertEqual(saved_login.load_saved_token("http://b", "acme"), "two")
        self.assertEqual(self.path.stat().st_mode & 0o777, 0o600)
        self.assertEqual(self.path.parent.stat().st_mode & 0o777, 0o700)

    def test_missing(self) -> None:
        """Without one, the fault says how to get one; a damaged file counts as none."""
        for prepare in (lambda: None, lambda: self._write("no json"), lambda: self._write("[]")):
            prepare()
            fault = self.assertRaises(click.ClickException, saved_login.load_saved_token, "http://a", "acme")
            self.assertIn("svc login", fault.message)

    def test_expired(self) -> None:
        """Where the server refuses a kept token that has ended, the fault says so, since when, and what to do (CLI-7)."""
        clock = Clock()
        wall = Wall(clock, NOW + 480)
        saved_login.save_login("http://a", "acme", token(NOW, NOW + 480))
        at = ApiConnection("http://a", "acme", None, None, exchange_of(Wire(refusing()), clock), wall)
        fault = self.failureResultOf(
            Deferred.fromCoroutine(at.request_with_token("GET", "/whoami")), click.ClickException
        ).value
        self.assertRegex(fault.message, r"at http://a has expired, at \S+ \S+: run `svc login` again \(request r-1\)\Z")
        workload = self.successResultOf(Deferred.fromCoroutine(at.workload_client()))
        unread = self.failureResultOf(Deferred.fromCoroutine(workload.secret("x")), NoEvidence).value
        self.assertIn("has expired", str(unread))
        wall.ahead -= 1
        answer = self.successResultOf(Deferred.fromCoroutine(at.request_with_token("GET", "/whoami")))
        self.assertEqual(answer.error_message, "Unauthorized: Invalid token", "it has not ended: the reason is another one")

    def test_half_a_login(self) -> None:
        """A login without a key, or a key without a login, is refused with a sentence, whatever token is kept (CLI-6)."""
        saved_login.save_login("http://a", "acme", "kept")
        wire = Wire(refusing())
        for login, key, said in (("nobody", None, "no API key for nobody"), (None, "s3cret", "set SVC_LOGIN too")):
            at = ApiConnection("http://a", "acme", login, key, exchange_of(wire))
            fault = self.failureResultOf(
                Deferred.fromCoroutine(at.request_with_token("GET", "/whoami")), click.UsageError
            ).value
            self.assertIn(said, fault.message)
            self.assertNotIn("s3cret", fault.message)
            again = self.failureResultOf(Deferred.fromCoroutine(at.workload_client()), click.UsageError).value
            self.assertEqual(again.message, fault.message)
        self.assertEqual(wire.asked, 0)

    def _write(self, text: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(text)


class Upstream:
    """A ``Requester`` with answers in turn, each a status with a body and a ``Retry-After``, or a fault, after ``lasts``."""

    def __init__(self, *script: tuple[int, bytes, str] | Exception, lasts: float = 0.0) -> None:
        self.script, self.lasts, self.now = [*script], lasts, 1000.0
        self.keys: list[str | None] = []
        self.within = 0.0
        self.slept: list[float] = []

    async def ask(
        self, method: str, url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None, *, within: float
    ) -> Reply:
        """See ``Requester``."""
        self.keys.append((headers or {}).get("Idempotency-Key"))
        self.within = within
        self.now += self.lasts
        step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(step, Exception):
            raise step
        status, answer, retry_after = step
        html = {"content-type": "text/html"} if answer.startswith(b"<") else {"x-request-id": "r-1"}
        return Reply(status, answer, html | ({"retry-after": retry_after} if retry_after else {}))

    def seconds(self) -> float:
        """See ``Requester``."""
        return self.now

    async def sleep(self, seconds: float) -> None:
        """See ``Requester``."""
        self.slept.append(seconds)
        self.now += seconds

    def shared(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> SharedResult[Any]:
        """See ``Requester``."""
        raise NotImplementedError


class Fixed(Upstream):
    """One with the same answer to everything."""

    def __init__(self, reply: Reply) -> None:
        super().__init__()
        self.reply = reply

    async def ask(
        self, method: str, url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None, *, within: float
    ) -> Reply:
        """See ``Requester``."""
        return self.reply


ACCOUNT = "acme"
RUNNING = (409, b'{"error":{"code":"in_progress","message":"under way"}}', "3")
DONE = (201, b"{}", "")
LATE = (504, b"<html>", "")
CLOSED = Unreachable("http://svc", "Server disconnected without sending a response.")
AWAY = Unreachable("http://svc", "refused", connected=False)


class OnceTests(SynchronousTestCase):
    """Changes that are sent under a key of their own."""

    def send(self, upstream: Upstream) -> ApiAnswer:
        """Send one."""
        at = ApiConnection("http://svc", "acme", None, None, upstream)
        sending = Deferred.fromCoroutine(at.send_change(at.request, "POST", "/x", b"body", shows="svc x"))
        return self.successResultOf(sending)

    def test_repeated(self) -> None:
        """After 502, 504 or a lost connection, and while the change is under way, the same request is sent again under the
        same key, as ``Retry-After`` says, or after pauses that grow; each change has a key of its own (CLI-49).
        """
        bad = (502, b"<html>", "7")
        upstream = Upstream(bad, RUNNING, CLOSED, AWAY, LATE, RUNNING, DONE)
        self.assertEqual(self.send(upstream).status, 201)
        self.assertEqual(upstream.slept, [7.0, 3.0, 2.0, 4.0, 8.0, 3.0])
        self.assertEqual((len(upstream.keys), len(set(upstream.keys))), (7, 1))
        other = Upstream(DONE)
        self.send(other)
        self.assertRegex(str(other.keys[0]), '^"[0-9a-f-]{36}"$')
        self.assertNotEqual(other.keys[0], upstream.keys[0])

    def test_final(self) -> None:
        """Any other answer is final, another conflict and an unknown outcome among them (CLI-49)."""
        conflict = b'{"error":{"code":"policy_conflict","message":"busy"}}'
        unknown = b'{"error":{"code":"outcome_unknown","message":"ask"}}'
        for step in (DONE, (409, conflict, "1"), (503, unknown, ""), (422, b"", ""), (500, b"", "")):
            upstream = Upstream(step)
            self.assertEqual((self.send(upstream).status, upstream.slept), (step[0], []))

    def test_pauses(self) -> None:
        """The pauses grow to half a minute (CLI-49)."""
        upstream = Upstream(*[LATE] * 7, DONE)
        self.send(upstream)
        self.assertEqual(upstream.slept, [2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0])

    def test_one_login(self) -> None:
        """What is sent again, and what follows, has the token of the first login, until that ends or is refused (CLI-49)."""
        login = f"/authn/{ACCOUNT}/host%2Fshop/authenticate"
        clock, asked, valid = Clock(), list[str](), set[str]()
        status = 504
        app = Klein()

        @app.route("/", branch=True)
        def answer(request: Request) -> bytes:
            asked.append(request.path.decode())
            if request.path == login.encode():
                text = token(0, 480 + len(asked))
                valid.add(f'Token token="{text}"')
                request.setHeader(b"content-encoding", b"base64")
                return text.encode()
            known = request.getHeader("authorization") in valid
            request.setResponseCode(status if known else 401)
            return b""

        at = ApiConnection("http://svc", ACCOUNT, "host/shop", "key", exchange_of(Wire(app.resource()), clock))
        sending = Deferred.fromCoroutine(at.send_change(at.request_with_token, "POST", "/x", b"", shows="svc x"))
        clock.pump([2.0, 4.0, 8.0])
        status = 201
        clock.advance(16.0)
        self.assertEqual(self.successResultOf(sending).status, 201)
        self.assertEqual(asked, [login, *["/x"] * 5])
        valid.clear()
        self.assertEqual(self.successResultOf(Deferred.fromCoroutine(at.request_with_token("POST", "/y"))).status, 201)
        self.assertEqual(asked[6:], ["/y", login, "/y"])
        clock.advance(480)
        self.successResultOf(Deferred.fromCoroutine(at.request_with_token("POST", "/z")))
        self.assertEqual(asked[9:], [login, "/z"])

    def test_front(self) -> None:
        """An answer of something in front of the server is none to a command, whatever its status: it is not given, nothing
        in it is shown, and a change may have been made unless it is turned away (CLI-50).
        """
        html, page = {"content-type": "text/html; charset=utf-8"}, b"<html>login</html>"
        location = {"location": "https://me:pw@login.example/in?state=hunter2#x"}
        answered, redirects = "something in front of the server answered", "something in front of the server redirects to "
        table: tuple[tuple[int, bytes, dict[str, str], str, bool], ...] = (
            (200, page, html, answered, True),
            (200, page, {**html, "x-request-id": "r-1"}, answered, True),
            (200, b"hunter2", {}, answered, True),
            (201, b"{}", {"content-type": "application/json"}, answered, True),
            (204, b"", {}, answered, True),
            (302, b"hunter2", location, f"{redirects}https://login.example/in (status 302)", False),
            (307, page, {"location": "/in?hunter2"}, f"{redirects}/in (status 307)", False),
            (301, page, {"location": "https://[/"}, answered, False),
            (300, b"", {"x-request-id": "r-1"}, answered, False),
            (401, page, html, answered, False),
            (403, page, html, answered, False),
            (404, b"404 page not found", {"content-type": "text/plain"}, f"{answered} (status 404): 404 page not", False),
            (500, page, html, answered, True),
            (503, page, html, answered, True),
            (500, b"", {}, answered, True),
            (503, b"", {}, answered, True),
            (408, b"", {}, answered, True),
            (403, b"", {}, answered, False),
            (500, b'{"error":"gateway says no"}', {}, f"{answered} (status 500): gateway says no", True),
        )
        for status, body, headers, said, uncertain in table:
            for shows in ("svc x", ""):
                at = ApiConnection("http://svc", ACCOUNT, None, None, Fixed(Reply(status, body, headers)))
                asking = Deferred.fromCoroutine(at.request("POST", "/x", b"", shows=shows))
                message = self.failureResultOf(asking, click.ClickException).value.message
                self.assertIn(said, message)
                doubt = "; it may or may not have been made: see `svc x`" in message
                self.assertEqual(doubt, uncertain and bool(shows), (status, headers))
                for never in ("hunter2", "login<", "pw", "): ;", "(status 200): "):
                    self.assertNotIn(never, message)
        value = {**html, "x-request-id": "r-1", "content-disposition": "attachment"}
        for headers in ({"x-request-id": "r-1"}, value):
            at = ApiConnection("http://svc", ACCOUNT, None, None, Fixed(Reply(200, page, headers)))
            self.assertEqual(self.successResultOf(Deferred.fromCoroutine(at.request("GET", "/x"))).body, page)

    def test_given_up(self) -> None:
        """After eleven minutes the last word counts, which says that the change may have been made; what can't have arrived
        isn't repeated (CLI-49, CLI-50).
        """
        upstream = Upstream(CLOSED, lasts=35.0)
        at = ApiConnection("http://svc", "acme", None, None, upstream)
        sending = Deferred.fromCoroutine(at.send_change(at.request, "PUT", "/x", shows="svc x"))
        fault = self.failureResultOf(sending, OutcomeUncertain).value
        self.assertIn("without sending a response; it may or may not have been made: see `svc x`", fault.message)
        self.assertTrue(600 < upstream.now - 1000 <= 700, upstream.now)
        self.assertTrue(0 < upstream.within < 60, upstream.within)
        late = Upstream(LATE, lasts=35.0)
        message = self.assertRaises(click.ClickException, self.send(late).expect, 201).message
        self.assertIn("it may or may not have been made: see `svc x`", message)
        away = Upstream(AWAY)
        at = ApiConnection("http://svc", "acme", None, None, away)
        self.failureResultOf(Deferred.fromCoroutine(at.send_change(at.request, "PUT", "/x", shows="svc x")), Unreachable)
        self.assertEqual(away.slept, [])

    def test_no_changes(self) -> None:
        """What only reads, or logs in, is no change: a lost connection is told as it is (CLI-50)."""
        for method, changes in (("GET", False), ("HEAD", False), ("POST", False), ("PUT", True), ("DELETE", True)):
            at = ApiConnection("http://svc", "acme", None, None, Upstream(CLOSED))
            kind = OutcomeUncertain if changes else Unreachable
            self.failureResultOf(Deferred.fromCoroutine(at.request(method, "/x")), kind)
            dry = at.request(method, "/x?dryRun=true", shows="")
            self.failureResultOf(Deferred.fromCoroutine(dry), Unreachable)
