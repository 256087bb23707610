"""Routes are declared whole, checked before anything runs, and refuse in one way."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, cast

import attrs
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import ILogObserver, LogEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from svc.model.dialect import NATIVE
from svc.model.errors import (
    ConfigurationInvalid,
    Forbidden,
    InvalidParameter,
    RouteNotFound,
    StoreUnavailable,
    WrongDataKey,
)
from svc.model.limits import Limits
from svc.model.names import RoleName
from svc.model.query_results import Caller
from svc.web.http.client_address import TrustedProxies
from svc.web.http.declarations import Body, BodySize
from svc.web.http.messages import IncomingRequest, Response
from svc.web.http.router import Router
from svc.web.http.routing import OPTIONAL, PUBLIC, REQUIRED, Call, Routes
from tests.chronicle import Chronicle
from tests.web.support import NOW, PEER, Client, primary, reached, token

ALICE = RoleName("acct", "user", "alice")


@attrs.define
class Echo:
    """A noun that tells what it was called with, and does what its test wants."""

    routes = Routes()

    trouble: BaseException | None = None
    waiting: Deferred[None] | None = None
    calls: list[Call] = attrs.field(factory=list)

    @routes.add("GET", "/things/<flat:account>/<kind>/<tail:identifier>", caller=REQUIRED)
    async def show(self, call: Call, account: str, kind: str, identifier: str) -> Response:
        """Return the values of the path."""
        self.calls.append(call)
        return Response.json([account, kind, identifier])

    @routes.add("POST", "/things", caller=PUBLIC)
    @routes.add("PUT", "/other", caller=PUBLIC)
    async def take(self, call: Call) -> Response:
        """Return the body."""
        self.calls.append(call)
        return Response.content(call.body, "application/octet-stream")

    @routes.add("PUT", "/large", caller=REQUIRED, body=Body("text", size=BodySize.POLICY))
    async def take_large(self, call: Call) -> Response:
        """Return the length of the body."""
        return Response.json(len(call.body))

    @routes.add("GET", "/optional", caller=OPTIONAL)
    async def greet(self, call: Call) -> Response:
        """Return the caller, if there is one."""
        return Response.json(str(call.caller_if_any.role) if call.caller_if_any else None)

    @routes.add("GET", "/trouble", caller=PUBLIC)
    async def fail(self, call: Call) -> Response:
        """Wait for what the test has, then fail with what it has."""
        self.calls.append(call)
        if self.waiting is not None:
            await self.waiting
        if self.trouble is not None:
            raise self.trouble
        return Response.json(str(call.caller.role))

    @routes.add("DELETE", "/nothing", caller=PUBLIC)
    async def forget(self, call: Call) -> Any:
        """Return no response, as no route may."""
        self.calls.append(call)


class DeclarationTests(SynchronousTestCase):
    """``Routes`` and the composition of a ``Router``."""

    def test_caller_has_no_default(self) -> None:
        """A route that doesn't say who may call it isn't one."""
        self.assertRaises(TypeError, Routes().add, "GET", "/")

    def test_caller_is_an_admission(self) -> None:
        """Nothing but an admission says who may call."""

        async def show(self: object, call: Call) -> Response:
            return Response.empty()

        for caller in (None, False, "public"):
            self.assertRaises(TypeError, Routes().add("GET", "/", caller=caller), show)  # type: ignore[arg-type]

    def test_parameters_fit_the_path(self) -> None:
        """A coroutine takes what its path gives, under the names there."""

        async def show(self: object, call: Call, other: str) -> Response:
            return Response.empty()

        self.assertRaises(TypeError, Routes().add("GET", "/<name>", caller=PUBLIC), show)
        self.assertRaises(TypeError, Routes().add("GET", "/", caller=PUBLIC), show)

    def test_coroutines_only(self) -> None:
        """What is no coroutine is no route."""

        def show(self: object, call: Call) -> Awaitable[Response]:
            raise AssertionError

        self.assertRaises(TypeError, Routes().add("GET", "/", caller=PUBLIC), show)

    def test_methods(self) -> None:
        """A route has one of the methods that the service knows; HEAD comes with GET."""

        async def show(self: object, call: Call) -> Response:
            return Response.empty()

        for method in ("HEAD", "get", "TRACE", ""):
            self.assertRaises(ValueError, Routes().add(method, "/", caller=PUBLIC), show)

    def test_twice(self) -> None:
        """Two routes that match the same requests stop the start."""
        self.assertRaises(ValueError, Client, Echo(), Echo())

    def test_unknown_value(self) -> None:
        """A pattern with a sort of value that there isn't stops the start."""

        class Wrong:
            routes = Routes()

            @routes.add("GET", "/<strange:name>", caller=PUBLIC)
            async def show(self, call: Call, name: str) -> Response:
                """Never run."""
                return Response.empty()

        self.assertRaises(LookupError, Client, Wrong())

    def test_under_a_name(self) -> None:
        """Routes may be served under several names, each by an object of its own; of one name they are always the same."""

        @attrs.frozen
        class Named:
            declared = Routes()
            name: str

            @property
            def routes(self) -> Routes:
                return self.declared.with_prefix(self.name)

            @declared.add("GET", "/<kind>", caller=PUBLIC)
            async def show(self, call: Call, kind: str) -> Response:
                return Response.json([self.name, kind])

        client = Client(Named("one"), Named("two"))
        for name in ("one", "two"):
            self.assertEqual(client.get(f"/{name}/x").json(), [name, "x"])
        self.assertEqual(client.get("/x").status, 404)
        self.assertEqual(client.get("/three/x").status, 404)
        self.assertIs(Named("one").routes, Named("one").routes)
        self.assertRaises(ValueError, Client, Named("one"), Named("one"))


class RoutingTests(SynchronousTestCase):
    """What a request meets on its way to a route and back."""

    def setUp(self) -> None:
        """Serve one noun."""
        self.echo = Echo()
        self.client = Client(self.echo, limits=Limits(body=100, policy_body=1000, identifier=50))

    def failures(self) -> list[str]:
        """What was logged as a bug."""
        return [str(failure.value) for failure in self.flushLoggedErrors()]

    def test_values(self) -> None:
        """A route gets the path's values decoded, each in its place."""
        answer = self.client.get("/things/acct/a%2Fb/c/d%2Fe+f/", role=ALICE)
        self.assertEqual(answer.json(), ["acct", "a/b", "c/d/e+f"])

    @given(st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="#"), min_size=1))
    def test_any_path(self, rest: str) -> None:
        """No path and query makes anything but an answer or a refusal."""
        answer = self.client.get(f"/things/acct/{rest}", role=ALICE)
        self.assertIn(answer.status, {200, 404, 422})

    def test_call(self) -> None:
        """A call tells the query, headers, caller, address and id of its request."""
        headers = [("X-Request-Id", "abc-1"), ("X-Some", "a"), ("X-Some", "b")]
        self.client.get("/things/a/b/c?x=1&flag", role=ALICE, headers=headers)
        [call] = self.echo.calls
        self.assertEqual((call.query.text("x"), call.query.has_flag("flag")), ("1", True))
        self.assertEqual((call.header("x-some"), call.header("x-none")), ("a, b", None))
        self.assertEqual(call.caller, Caller(ALICE, NOW))
        self.assertEqual((call.client_ip, call.origin.request_id), (PEER, "abc-1"))

    def test_call_keeps_quiet(self) -> None:
        """A call that is logged shows neither its body nor its headers."""
        self.client.post("/things", b"hunter2", headers=[("Authorization", "Basic hunter3")])
        self.assertNotIn("hunter", repr(self.echo.calls))

    def test_two_paths(self) -> None:
        """One coroutine may have two paths."""
        self.assertEqual(self.client.post("/things", b"x").body, b"x")
        self.assertEqual(self.client.put("/other", b"y").body, b"y")

    def test_form(self) -> None:
        """A body is read as a form when a route asks, whatever its type (WIRE-24)."""
        self.client.post("/things", b"jwt=a%2Bb", headers=[("Content-Type", "text/plain")])
        self.assertEqual(self.echo.calls[0].parse_form().text("jwt"), "a+b")

    def test_head(self) -> None:
        """HEAD is GET without the body, statuses and lengths included (WIRE-17)."""
        for target, role in (("/things/a/b/c", ALICE), ("/things/a/b/c", None), ("/nowhere", None)):
            full, head = self.client.get(target, role=role), self.client.head(target, role=role)
            self.assertEqual((head.status, head.body), (full.status, b""))
            self.assertEqual(head.headers["content-length"], full.headers["content-length"])

    def test_unknown_route(self) -> None:
        """An unknown path, and a known one with another method, is 404 in JSON, with a token or without
        (WIRE-16, FAIL-21).
        """
        for method, target in (
            ("GET", "/"),
            ("GET", "/nowhere"),
            ("GET", "//things/a/b/c"),
            ("GET", "/things/a%2Fb/c/d"),
            ("GET", "/things//b/c"),
            ("POST", "/things/a/b/c"),
            ("get", "/things/a/b/c"),
            ("OPTIONS", "*"),
            ("OPTIONS", "/things"),
            ("TRACE", "/things"),
            ("X-Y", "/things"),
            ("GET", "things"),
        ):
            for role in (None, ALICE):
                answer = self.client.request(method, target, role=role)
                self.assertEqual(answer.status, 404, (method, target))
                self.assertEqual(answer.json()["error"]["code"], "not_found")

    def test_connect(self) -> None:
        """CONNECT is refused, and nothing that follows is read: a proxy may take it for something else (WIRE-1)."""
        connection = self.client.begin("CONNECT", "svc.example:443", role=ALICE)
        self.assertEqual((connection.answer().status, self.client.get("/things/a/b/c", role=ALICE).status), (400, 200))
        self.assertEqual(connection.send(b"GET /things/a/b/c HTTP/1.1\r\nHost: h\r\n\r\n").received(), b"")

    def test_absolute_target(self) -> None:
        """A target with an origin is read without it (WIRE-7)."""
        self.assertEqual(self.client.post("http://svc.example/things", b"x").body, b"x")

    def test_required(self) -> None:
        """A route that requires a caller refuses before it runs, and before it looks at names and query (WIRE-18)."""
        for target in ("/things/a/b/c", "/things/a/b/%ff", "/things/a/b/c?%ff"):
            answer = self.client.get(target)
            self.assertEqual((answer.status, answer.body), (401, b"Authorization missing"))
            answer = self.client.get(target, headers=[("Authorization", "Basic YTpi")])
            self.assertEqual((answer.status, answer.body), (401, b"Unauthorized: Invalid token"))
        self.assertEqual(self.echo.calls, [])

    def test_one_authorization(self) -> None:
        """Two tokens in one request are none (WIRE-30)."""
        answer = self.client.get("/things/a/b/c", headers=[("Authorization", token(ALICE))] * 2)
        self.assertEqual((answer.status, answer.body), (401, b"Malformed authorization token"))

    def test_optional(self) -> None:
        """Where a token is optional, it must be valid if there is one; other schemes are no token (WIRE-29)."""
        self.assertEqual(self.client.get("/optional").json(), None)
        self.assertEqual(self.client.get("/optional", role=ALICE).json(), "acct:user:alice")
        self.assertEqual(self.client.get("/optional", headers=[("Authorization", "Basic YTpi")]).json(), None)
        self.assertEqual(self.client.get("/optional", headers=[("Authorization", "Token x")]).status, 401)

    def test_public(self) -> None:
        """A public route has no caller: one that counts on a caller refuses (WIRE-29)."""
        answer = self.client.get("/trouble", role=ALICE)
        self.assertEqual((answer.status, answer.body), (401, b"Authorization missing"))

    def test_wrong_names(self) -> None:
        """A name in the path that doesn't decode, or is too long, is refused by its name; so is a query (WIRE-12)."""
        for target, parameter in (
            ("/things/%zz/b/c", "account"),
            ("/things/a/%ff/c", "kind"),
            ("/things/a/b/%00", "identifier"),
            (f"/things/a/b/{'x' * 51}", "identifier"),
            ("/things/a/b/c?search=%ff", "search"),
        ):
            error = self.client.get(target, role=ALICE)
            self.assertEqual(error.status, 422)
            self.assertIn(parameter, error.json()["error"]["message"])
        self.assertEqual(self.echo.calls, [])

    def test_body_limits(self) -> None:
        """A body may have as many bytes as the route's limit says."""
        self.assertEqual(self.client.post("/things", b"x" * 100).status, 200)
        self.assertEqual(self.client.post("/things", b"x" * 101).status, 413)
        self.assertEqual(self.client.put("/large", b"x" * 1000, role=ALICE).json(), 1000)
        self.assertEqual(self.client.put("/large", b"x" * 1001, role=ALICE).status, 413)
        self.assertEqual(self.client.put("/large", b"x" * 1001).status, 401)

    def test_refusal(self) -> None:
        """What a route refuses with is answered by the table, and logged only where an operator needs it."""
        for trouble, status in (
            (InvalidParameter("x", "x"), 422),
            (RouteNotFound("GET", "/x"), 404),
            (Forbidden("because"), 403),
            (StoreUnavailable("gone"), 503),
            (WrongDataKey("acct:variable:v"), 422),
        ):
            self.echo.trouble = trouble
            self.assertEqual(self.client.get("/trouble").status, status)
        self.assertEqual(self.failures(), [])

    def test_bug(self) -> None:
        """A bug is an opaque 500 with an incident id, under which the log has it (FAIL-8)."""
        for trouble in (KeyError("hunter2"), ConfigurationInvalid("k", "a refusal that belongs elsewhere")):
            self.echo.trouble = trouble
            answer = self.client.get("/trouble")
            self.assertEqual(answer.status, 500)
            self.assertRegex(answer.json()["error"]["message"], "incident id-[0-9]+$")
            self.assertNotIn(b"hunter2", answer.body)
            self.assertEqual(self.failures(), [str(trouble)])

    def test_no_response(self) -> None:
        """A route that returns no response has a bug."""
        self.assertEqual(self.client.request("DELETE", "/nothing").status, 500)
        self.assertEqual(self.failures(), ["the route returned no response"])

    def test_reasons_are_fit_for_the_log(self) -> None:
        """What a refusal names is on one line of the log, whatever the name is made of (FAIL-22)."""
        self.echo.trouble = Forbidden("may not see x\n2026-11-21 FORGED\x1b[2J")
        observed: list[LogEvent] = []
        observer = cast(ILogObserver, observed.append)
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        self.assertEqual(self.client.get("/trouble").status, 403)
        self.assertIn("may not see x\\n2026-11-21 FORGED\\x1b[2J", [event.get("why") for event in observed])

    def test_client_leaves(self) -> None:
        """A route whose client left is cancelled, and nobody hears of it (WIRE-44)."""
        cancelled: list[object] = []
        self.echo.waiting = Deferred(cancelled.append)
        self.client.begin("GET", "/trouble").leave()
        self.assertEqual(cancelled, [self.echo.waiting])
        self.assertEqual(self.failures(), [])

    def test_client_leaves_a_route_that_goes_on(self) -> None:
        """A route that a leaving client can't stop may end as it likes; a bug in it is still logged."""
        for trouble in (None, StoreUnavailable("gone"), KeyError("a bug")):
            self.echo.waiting = Deferred(lambda deferred: deferred.callback(None))
            self.echo.trouble = trouble
            connection = self.client.begin("GET", "/trouble")
            connection.leave()
            self.assertEqual(connection.received(), b"")
            self.assertEqual(self.failures(), ["'a bug'"] if isinstance(trouble, KeyError) else [])

    def test_cancelled_by_itself(self) -> None:
        """A route that is cancelled while its client waits has a bug."""
        self.echo.waiting = Deferred()
        connection = self.client.begin("GET", "/trouble")
        self.echo.waiting.cancel()
        self.assertEqual(connection.answer().status, 500)
        self.assertEqual(len(self.failures()), 1)

    def test_forwarded(self) -> None:
        """A trusted proxy tells the client's address, nobody else does."""
        forwarded = [("X-Forwarded-For", "203.0.113.9")]
        client = Client(self.echo, proxies=TrustedProxies())
        client.post("/things", peer="127.0.0.1", headers=forwarded)
        client.post("/things", peer="192.0.2.1", headers=forwarded)
        self.assertEqual([call.client_ip for call in self.echo.calls], ["203.0.113.9", "192.0.2.1"])


class FailClosedTests(SynchronousTestCase):
    """A verifier that is wired wrongly lets nobody in."""

    def test_no_caller(self) -> None:
        """Whatever the verifier returns that is no caller, the route isn't run."""

        async def broken(_: bytes | None) -> Any:
            return None

        echo = Echo()
        router = Router(
            [echo],
            caller=broken,
            ensure_writable=primary,
            reached=reached,
            limits=Limits(),
            new_id=lambda: "i",
            journal=Chronicle(),
            dialect=NATIVE,
            clock=Clock(),
        )
        request = IncomingRequest("GET", "/things/a/b/c", {}, PEER, "r", 0, 10)
        request.end_body()
        response = self.successResultOf(router.respond(request))
        self.assertEqual((response.status, echo.calls), (500, []))
        self.assertEqual(len(self.flushLoggedErrors(TypeError)), 1)
