"""Tests of ``svc.cli.oidc_login``: what a person's browser may bring, and logins on another device, in memory."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import click
import httpx
from klein import Klein
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectError, ConnectionLost
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.client import ResponseNeverReceived
from twisted.web.server import Request

from svc.cli.connection import ApiConnection
from svc.cli.oidc_callback import CallbackHandler, RedirectUri, listen_for_code, render_page
from svc.cli.oidc_login import sign_in
from tests.workload.wire import Wire, exchange_of

URL, ACCOUNT = "http://127.0.0.1:1", "acme"
ISSUER = "https://idp.example"
CALLBACK = "http://127.0.0.1:8888/callback"


def began(redirect_uri: str = CALLBACK) -> str:
    """The address at which a browser begins, for a provider that sends it there."""
    return f"{ISSUER}/authorize?" + urlencode({"client_id": "svc", "redirect_uri": redirect_uri})


class CallbackTests(SynchronousTestCase):
    """Where the browser comes back."""

    def test_here(self) -> None:
        """A callback is on this machine, at the port that its address says (OIDC-31)."""
        for address, host, port, path in (
            (CALLBACK, "127.0.0.1", 8888, "/callback"),
            ("http://localhost:8888/callback", "localhost", 8888, "/callback"),
            ("http://[::1]:9/cb", "::1", 9, "/cb"),
            ("http://127.0.0.1/callback", "127.0.0.1", 80, "/callback"),
        ):
            self.assertEqual(RedirectUri.from_login_url(began(address)), RedirectUri(host, port, path))

    def test_elsewhere(self) -> None:
        """One on any other machine, or none, is refused, and what to do is said (OIDC-31)."""
        for address in (
            *("", "https://127.0.0.1:8888/callback", "http://svc.example/callback", "http://10.0.0.1:8888/callback"),
            *(
                "http://127.0.0.1.evil.example/",
                "http://localhost.evil.example/",
                "http://0.0.0.0/",
                "urn:ietf:wg:oauth:2.0:oob",
            ),
            *("http://127.0.0.1:x/", "http://127.0.0.1:8888/callback?x=1", "http://[::1/"),
        ):
            fault = self.assertRaises(click.ClickException, RedirectUri.from_login_url, began(address))
            self.assertIn("redirect-uri", fault.message)


class ListenerTests(SynchronousTestCase):
    """What is taken there."""

    def setUp(self) -> None:
        """Nobody has come yet."""
        self.listener = CallbackHandler(RedirectUri.from_login_url(began()), "the-state", ISSUER)

    def come(self, query: str, url: str = CALLBACK, method: str = "GET") -> tuple[int, str]:
        """Have a browser come."""
        parts = urlsplit(url)
        status, told = self.listener.handle_request(method, parts.netloc, f"{parts.path}?{query}")
        head, _, text = render_page(status, told).decode().partition("\r\n\r\n")
        self.assertIn(f"HTTP/1.1 {status} ", head)
        for line in ("Referrer-Policy: no-referrer", "Content-Security-Policy: default-src 'none'"):
            self.assertIn(line, head)
        return status, text

    def test_taken(self) -> None:
        """An answer with the state brings its code, once (OIDC-32)."""
        self.assertEqual(self.come("code=a%2Bb+c&state=the-state")[0], 200)
        self.assertEqual(self.listener.outcome, "a+b c")
        self.assertEqual(self.come("code=other&state=the-state")[0], 400)

    def test_strays(self) -> None:
        """What has another state, address, method or host changes nothing: the person's own answer counts (OIDC-32)."""
        for query, url, method, status in (
            ("code=x", CALLBACK, "GET", 400),
            ("code=x&state=", CALLBACK, "GET", 400),
            ("code=x&state=other", CALLBACK, "GET", 400),
            ("code=x&state=other&state=the-state", CALLBACK, "GET", 400),
            ("error=access_denied&state=other", CALLBACK, "GET", 400),
            ("code=x&state=the-state", "http://127.0.0.1:8888/", "GET", 404),
            ("code=x&state=the-state", "http://127.0.0.1:8888/callback/", "GET", 404),
            ("code=x&state=the-state", CALLBACK, "POST", 404),
            ("code=x&state=the-state", "http://evil.example:8888/callback", "GET", 404),
            ("code=x&state=the-state", "http://127.0.0.1:8889/callback", "GET", 404),
        ):
            with self.subTest(query=query, url=url):
                self.assertEqual(self.come(query, url, method)[0], status)
                self.assertIsNone(self.listener.outcome)
        self.come(f"code=mine&state=the-state&iss={ISSUER}")
        self.assertEqual(self.listener.outcome, "mine")

    def test_refused(self) -> None:
        """An error, and another provider's answer, end the login; nothing of them is markup or moves a cursor (OIDC-32)."""
        for query, said in (
            ("error=access_denied&error_description=<b>No%1b[2J&state=the-state", "access_denied <b>No\\x1b[2J"),
            ("state=the-state", "no code"),
            ("code=&state=the-state", "no code"),
            ("code=a&code=b&state=the-state", "no code"),
            (
                "code=a&iss=https://evil.example&state=the-state",
                f"the answer is from https://evil.example, and not from {ISSUER}: this may be an attack",
            ),
            (f"code=a&iss={ISSUER}/&state=the-state", f"and not from {ISSUER}: an operator sets provider-uri to {ISSUER}/"),
        ):
            self.setUp()
            status, page = self.come(query)
            self.assertEqual(status, 400)
            self.assertNotIn("<b>", page)
            assert isinstance(self.listener.outcome, click.ClickException)
            self.assertIn(said, self.listener.outcome.message)


class ListeningTests(SynchronousTestCase):
    """The port where it is taken."""

    def test_a_browser(self) -> None:
        """Browsers are answered until the right one comes; then nobody listens any more (OIDC-32)."""

        async def work() -> tuple[list[int], str]:
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            callback = RedirectUri("127.0.0.1", port, "/callback")
            url = f"http://127.0.0.1:{port}/callback?code=mine&state="
            async with listen_for_code(callback, CallbackHandler(callback, "right", None)) as code:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"\x16\x03\x01 no HTTP\r\n\r\n")
                self.assertEqual(await reader.read(), b"")
                writer.close()
                async with httpx.AsyncClient(trust_env=False) as browser:
                    answers = [await browser.get(url + state) for state in ("wrong", "right")]
                with self.assertRaises(click.ClickException) as taken:
                    async with listen_for_code(callback, CallbackHandler(callback, "right", None)):
                        pass
                self.assertIn(f"the browser can't come back to port {port}", taken.exception.message)
                found = await code
            with self.assertRaises(OSError):
                await asyncio.open_connection("127.0.0.1", port)
            return [answer.status_code for answer in answers], found

        self.assertEqual(asyncio.run(work()), ([400, 200], "mine"))


class Service:
    """The server, and a provider, whose answers for devices come in turn from ``polls``."""

    def __init__(self, entry: dict[str, object]) -> None:
        self.entry = entry
        self.polls: list[object] = []
        self.begun: dict[str, object] = {
            "device_code": "d",
            "user_code": "ABCD-EFGH",
            "verification_uri": f"{ISSUER}/device",
            "expires_in": 600,
            "interval": 2,
        }
        self.document: dict[str, object] = {
            "issuer": ISSUER,
            "device_authorization_endpoint": f"{ISSUER}/da",
            "token_endpoint": f"{ISSUER}/token",
        }
        self.asked: list[tuple[str, dict[str, list[str]]]] = []
        self.status = 200
        self.request_id: str | None = None
        app = Klein()

        @app.route("/", branch=True)
        def any_path(request: Request) -> bytes:
            return self.answer(request)

        self.wire = Wire(app.resource())

    def answer(self, request: Request) -> bytes:
        """Answer a request."""
        assert request.content is not None
        path = request.path.decode()
        self.asked.append((path, parse_qs(request.content.read().decode())))
        if path == "/authn-oidc/acme/providers":
            return json.dumps([self.entry]).encode()
        if path.startswith("/authn-oidc/"):
            request.setResponseCode(self.status)
            if self.request_id is not None:
                request.setHeader("X-Request-Id", self.request_id)
            return base64.b64encode(b"{}") if self.status == 200 else b""
        answers: dict[str, Callable[[], object]] = {
            "/.well-known/openid-configuration": lambda: self.document,
            "/da": lambda: self.begun,
            "/token": lambda: self.polls.pop(0),
        }
        answer = answers[path]()
        if isinstance(answer, tuple):
            status, answer = answer
            request.setResponseCode(status)
        return answer if isinstance(answer, bytes) else json.dumps(answer).encode()


class DeviceTests(SynchronousTestCase):
    """Logins on another device."""

    def setUp(self) -> None:
        """A server and a provider."""
        self.clock = Clock()
        self.server = Service(
            {
                "service_id": "corp",
                "type": "authn-oidc",
                "issuer": ISSUER,
                "client_id": "svc-device",
                "scope": "openid email",
                "device_endpoint": f"{ISSUER}/da",
            }
        )

    def begin(self, *, device: bool = False, name: str = "corp", browser: bool = True) -> Deferred[str]:
        """Begin a login."""
        connection = ApiConnection(URL, ACCOUNT, None, None, exchange_of(self.server.wire, self.clock))
        return Deferred.fromCoroutine(sign_in(connection, name, device=device, is_browser_here=lambda: browser))

    def paths(self) -> list[str]:
        """What was asked, which is forgotten."""
        asked, self.server.asked = self.server.asked, []
        return [path for path, _ in asked]

    def test_signed_in(self) -> None:
        """The provider is asked at its pace until there is an id token, which the server is sent (OIDC-34)."""
        self.server.polls = [{"error": "authorization_pending"}, {"error": "slow_down"}, {"id_token": "x.y.z"}]
        waiting = self.begin()
        self.assertEqual(self.paths(), ["/authn-oidc/acme/providers", "/.well-known/openid-configuration", "/da"])
        for seconds, asked in ((1.9, 0), (0.2, 1), (2, 1), (6.9, 0), (0.2, 1)):
            self.clock.advance(seconds)
            self.assertEqual(self.paths().count("/token"), asked)
        self.assertEqual(base64.b64decode(self.successResultOf(waiting)), b"{}")

    def test_public_client(self) -> None:
        """The client says its id and no secret, and sends the token to nobody but the server (OIDC-34)."""
        self.server.polls = [{"id_token": "x.y.z", "access_token": "at"}]
        waiting = self.begin()
        self.clock.advance(2)
        self.successResultOf(waiting)
        asked = dict(self.server.asked)
        self.assertEqual(asked["/da"], {"client_id": ["svc-device"], "scope": ["openid email"]})
        grant = "urn:ietf:params:oauth:grant-type:device_code"
        self.assertEqual(asked["/token"], {"client_id": ["svc-device"], "grant_type": [grant], "device_code": ["d"]})
        self.assertEqual(asked["/authn-oidc/corp/acme/authenticate"], {"id_token": ["x.y.z"]})

    def refused(self, why: str, **options: Any) -> None:
        """The login ends, and it is said why."""
        waiting = self.begin(**options)
        self.clock.pump([2.0] * 3)
        self.assertIn(why, self.failureResultOf(waiting, click.ClickException).value.message)

    def test_refusals(self) -> None:
        """A provider that refuses, or says what can't be, ends the login (OIDC-34)."""
        for member, value, why in (
            ("error", "access_denied", "access_denied"),
            ("error", "expired_token", "expired_token"),
            ("access_token", "at", "no id token"),
        ):
            self.server.polls = [{member: value}]
            self.refused(why)
        wrong: list[tuple[str, object, str]] = [
            ("issuer", "https://evil.example", "says that it is https://evil.example"),
            ("token_endpoint", "http://idp.example/token", "token_endpoint is no address that can be trusted"),
            ("token_endpoint", "", "the provider names no token_endpoint, without which"),
            ("device_authorization_endpoint", None, "the provider names no device_authorization_endpoint, without which"),
            ("device_authorization_endpoint", "file:///x", "_endpoint is no address that can be trusted: file:///x"),
        ]
        for name, odd, why in wrong:
            document, self.server.document = self.server.document, {**self.server.document, name: odd}
            self.refused(why)
            self.server.document = document
        self.server.entry["issuer"] = "http://idp.example"
        self.refused("no address that can be trusted")

    def test_older_names(self) -> None:
        """The address for the person may have the name that Google gives it; one that there is not is named (OIDC-34)."""
        url = self.server.begun.pop("verification_uri")
        for more, said in (
            ({}, "gives no verification_uri"),
            ({"error": "invalid_client"}, "verification_uri: invalid_client"),
        ):
            begun, self.server.begun = self.server.begun, {**self.server.begun, **more}
            message = self.failureResultOf(self.begin(), click.ClickException).value.message
            self.assertTrue(message.endswith(said), message)
            self.server.begun = begun
        self.server.begun["verification_url"] = url
        self.server.polls = [{"id_token": "x.y.z"}]
        waiting = self.begin()
        self.clock.advance(2)
        self.successResultOf(waiting)

    def test_patience(self) -> None:
        """A code that isn't used in time ends the login; a provider can't make it endless, or the client hasty (OIDC-34)."""
        for changes in ({"expires_in": 60}, {"expires_in": 1e9, "interval": 600}, {"expires_in": "x", "interval": 600}):
            self.server.begun.update(changes)
            self.server.polls = [{"error": "authorization_pending"}] * 100
            waiting = self.begin()
            self.clock.pump([10.0] * 180)
            self.assertIn("in time", self.failureResultOf(waiting, click.ClickException).value.message)
        for interval in (0, -1, 1e-9, True, "fast", None, float("inf")):
            self.server.begun.update({"expires_in": 60, "interval": interval})
            self.server.polls = [{"id_token": "x.y.z"}]
            waiting = self.begin()
            self.clock.advance(4.9)
            self.assertNoResult(waiting)
            self.clock.advance(0.2)
            self.successResultOf(waiting)

    def test_failed_polls(self) -> None:
        """A poll that the provider can't answer is made again, each time 5 s later, until there is an id token (OIDC-34)."""
        failed = [(503, b"<html>"), (500, {"error": "server_error"}), (429, {}), (408, b""), (502, {"error": "x"})]
        pending = [(429, {"error": "authorization_pending"})]
        self.server.polls = [*failed, *pending, {"id_token": "x.y.z"}]
        waiting = self.begin()
        for number in range(len(failed)):
            self.clock.advance(2 + 5 * number - 0.1)
            self.assertEqual(len(self.server.polls), len(failed) - number + 2)
            self.clock.advance(0.1)
        self.clock.pump([27.0] * 2)
        self.assertEqual(base64.b64decode(self.successResultOf(waiting)), b"{}")

    def test_failing_polls(self) -> None:
        """A login that ends with a poll that failed says how; an answer that is none, without such a status, ends it at once
        (OIDC-34).
        """
        self.server.begun["expires_in"] = 60
        failing: list[tuple[int, object]] = [(503, b"<html>"), (500, {})]
        for answer in failing:
            self.server.polls = [answer] * 9
            waiting = self.begin()
            self.clock.pump([1.0] * 60)
            why = self.failureResultOf(waiting, click.ClickException).value.message
            self.assertEqual(why, f"nobody signed in in time: the answer of {ISSUER}/token has status {answer[0]}")
        for status, body in ((200, b"<html>"), (400, b"")):
            self.server.polls = [(status, body)]
            self.refused("is no JSON object")

    def test_lost_polls(self) -> None:
        """A poll whose connection is lost is made again, too (OIDC-34)."""
        self.server.polls = [{"id_token": "x.y.z"}]
        waiting = self.begin()
        self.server.wire.faults = [ResponseNeverReceived([Failure(ConnectionLost())]), ConnectError()]
        self.clock.pump([1.0] * (2 + 7 + 12))
        self.assertEqual(base64.b64decode(self.successResultOf(waiting)), b"{}")
        self.server.begun["expires_in"] = 60
        waiting = self.begin()
        self.server.wire.faults = [ConnectError("refused")] * 9
        self.clock.pump([1.0] * 60)
        why = self.failureResultOf(waiting, click.ClickException).value.message
        self.assertTrue(why.startswith(f"nobody signed in in time: cannot reach {ISSUER}"), why)

    def test_server_refuses(self) -> None:
        """A refusal of the server says where the reason is, and who may be at fault where it can't judge (OIDC-36)."""
        self.server.status = 401
        self.server.polls = [{"id_token": "x.y.z"}]
        self.refused("its log and its audit say why")
        self.server.status, self.server.request_id = 503, "id-1"
        self.server.polls = [{"id_token": "x.y.z"}]
        self.refused("an operator finds out by `svc explain-request id-1`")

    def test_choices(self) -> None:
        """Where there is nothing to choose from, that is said; without a browser a device is taken (OIDC-33)."""
        self.refused("it offers: corp", name="other")
        self.server.entry |= {"redirect_uri": began("https://elsewhere.example/"), "nonce": "n", "code_verifier": "v"}
        self.refused("not to this machine")
        self.server.polls = [{"error": "access_denied"}] * 2
        self.refused("access_denied", browser=False)
        self.refused("access_denied", device=True)
        del self.server.entry["device_endpoint"]
        self.refused("leave out --device", device=True)
        browser = self.server.entry.pop("redirect_uri")
        del self.server.document["device_authorization_endpoint"]
        self.refused("the provider names no device_authorization_endpoint", device=True)
        self.refused("the provider names no device_authorization_endpoint")
        self.server.entry["redirect_uri"] = browser
        self.refused("not to this machine", browser=False)
