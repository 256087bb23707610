"""Tests of ``svc.web.http.router``: versions of the state that requests tell and ask for."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import Conflict, ReadOnlyStandby, StoreBehind
from svc.model.names import RoleName
from svc.model.request_notes import request_notes
from svc.model.versions import StateVersion
from svc.web.http.messages import Response
from svc.web.http.routing import OPTIONAL, PUBLIC, REQUIRED, Call, Routes
from tests.web.support import Client, Connection

ALICE = RoleName.from_parts("acme", "user", "alice")
AT_LEAST = [("Svc-At-Least", "a.1.7, b.2.1")]


class Things:
    """Routes that note what they are asked to, as the store does."""

    routes = Routes()

    def __init__(self) -> None:
        self.held: Deferred[None] | None = None
        self.ran: list[str] = []

    async def _note(self, call: Call) -> None:
        """Note the version in the body, as a transaction does that was begun for the request."""

        async def transaction() -> None:
            notes = request_notes()
            assert notes is not None
            if self.held is not None:
                await self.held
            notes.version = call.body.decode() or None

        self.ran.append(call.body.decode())
        await Deferred.fromCoroutine(transaction())

    @routes.add("POST", "/things", caller=REQUIRED)
    async def add(self, call: Call) -> Response:
        """Write."""
        await self._note(call)
        return Response.empty(201, (("X-One", "1"),))

    @routes.add("PUT", "/things", caller=REQUIRED, errors=(Conflict,))
    async def fail(self, call: Call) -> Response:
        """Write, then refuse."""
        await self._note(call)
        raise Conflict("thing", "it", "exists")

    @routes.add("GET", "/things", caller=REQUIRED)
    async def read(self, call: Call) -> Response:
        """Read."""
        await self._note(call)
        return Response.text("things")

    @routes.add("GET", "/public", caller=PUBLIC)
    async def public(self, call: Call) -> Response:
        """Read, for anyone."""
        await self._note(call)
        return Response.text("things")

    @routes.add("GET", "/optional", caller=OPTIONAL)
    async def optional(self, call: Call) -> Response:
        """Read, for anyone, and for those with a token."""
        await self._note(call)
        return Response.text("things")


class VersionTests(SynchronousTestCase):
    """The two headers."""

    def setUp(self) -> None:
        """Have waits that a test decides on."""
        self.things = Things()
        self.waits: list[tuple[Sequence[StateVersion], RoleName, Deferred[None]]] = []
        self.primary: ReadOnlyStandby | None = None

        async def reached(versions: Sequence[StateVersion], role: RoleName) -> None:
            waiting: Deferred[None] = Deferred()
            self.waits.append((versions, role, waiting))
            await waiting

        async def ensure_writable() -> None:
            if self.primary is not None:
                raise self.primary

        self.client = Client(self.things, reached=reached, ensure_writable=ensure_writable)

    def begin(self, method: str = "GET", target: str = "/things", role: RoleName | None = ALICE) -> Connection:
        """Ask for two versions."""
        return self.client.begin(method, target, role=role, headers=AT_LEAST)

    def test_told(self) -> None:
        """The answer to a change tells its version, also where it is a refusal, and no other answer does (CLU-27)."""
        for method, status in (("POST", 201), ("PUT", 409)):
            answer = self.client.request(method, "/things", body=b"a.1.7", role=ALICE)
            self.assertEqual((answer.status, answer.headers["svc-version"]), (status, "a.1.7"))
        self.assertEqual(self.client.post("/things", b"a.1.8", role=ALICE).headers["x-one"], "1")
        self.assertNotIn("svc-version", self.client.get("/things", role=ALICE).headers)
        self.assertNotIn("svc-version", self.client.post("/things", role=ALICE).headers)

    def test_own(self) -> None:
        """Requests that are answered at the same time tell each its own version, and nothing is left of it (CLU-27)."""
        self.things.held = Deferred()
        asked = [self.client.begin("POST", "/things", body=f"a.1.{n}".encode(), role=ALICE) for n in range(1, 4)]
        self.things.held.callback(None)
        self.assertEqual([each.answer().headers["svc-version"] for each in asked], ["a.1.1", "a.1.2", "a.1.3"])
        self.assertIsNone(request_notes())

    def test_waits(self) -> None:
        """A request runs when the state has come that it asks for, which is asked for in its caller's name (CLU-28)."""
        connection = self.begin()
        ((versions, role, waiting),) = self.waits
        self.assertEqual((list(map(str, versions)), role), (["a.1.7", "b.2.1"], ALICE))
        self.assertEqual((self.things.ran, connection.answers()), ([], []))
        waiting.callback(None)
        self.assertEqual((connection.answer().status, len(self.things.ran)), (200, 1))

    def test_refused(self) -> None:
        """Where it doesn't come the request is 503, is to be sent again, and wasn't run (CLU-28, WIRE-47)."""
        connection = self.begin()
        self.waits[0][2].errback(StoreBehind("it has not arrived"))
        answer = connection.answer()
        self.assertEqual((answer.status, answer.headers["retry-after"], self.things.ran), (503, "1", []))
        self.assertEqual(answer.json(), {"error": {"code": "unavailable", "message": "it has not arrived"}})

    def test_left(self) -> None:
        """The wait ends with the client (CLU-28)."""
        connection = self.begin()
        self.assertFalse(self.waits[0][2].called)
        connection.leave()
        self.assertEqual((self.waits[0][2].called, self.things.ran), (True, []))

    def test_order(self) -> None:
        """Nobody waits whose request is refused for its token, its header or as a write on a follower (WIRE-18, WIRE-52)."""
        headers = [("Svc-At-Least", "a.1.7; b.2.1")]
        self.assertEqual(self.client.get("/things", headers=headers).status, 401)
        answer = self.client.get("/things", headers=headers, role=ALICE)
        self.assertEqual((answer.status, answer.json()["error"]["code"]), (422, "argument_error"))
        self.assertIn("Svc-At-Least", answer.json()["error"]["message"])
        self.primary = ReadOnlyStandby()
        self.assertEqual(self.begin("POST").answer().status, 405)
        self.assertEqual(self.waits, [])

    def test_strangers(self) -> None:
        """Without a verified token the header is ignored, whatever it says (CLU-30)."""
        for target in ("/public", "/optional"):
            for value in ("a.1.7", "nonsense"):
                answer = self.client.get(target, headers=[("Svc-At-Least", value)])
                self.assertEqual(answer.status, 200, target)
        self.assertEqual(self.client.get("/public", headers=AT_LEAST, role=ALICE).status, 200)
        self.assertEqual(self.waits, [])
        self.begin(target="/optional")
        self.assertEqual(len(self.waits), 1)
