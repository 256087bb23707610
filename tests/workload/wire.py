"""Requests in memory, to a web application of the test's, and the service in small."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any, Final
from urllib.parse import unquote

from klein import Klein
from treq.testing import StubTreq
from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import Clock
from twisted.web.resource import IResource, Resource, getChildForRequest
from twisted.web.server import Request

from svc.cli.platform import ResponseBody
from svc.workload.calls import ANSWER_LIMIT
from svc.workload.exchange import Exchange

#: What clocks show when a test begins.
NOW: Final = 1_700_000_000.0


class Identified(Resource):
    """A web application whose answers have the id of their request, and are no pages, unless it says otherwise."""

    isLeaf = True

    def __init__(self, inner: IResource) -> None:
        super().__init__()
        self._inner = inner

    def render(self, request: Request) -> Any:
        """Answer."""
        request.setHeader(b"x-request-id", b"r-1")
        request.setHeader(b"content-type", b"application/octet-stream")
        return getChildForRequest(self._inner, request).render(request)


class Wire:
    """What an exchange sends requests by. ``faults`` come before answers, one for each request; ``asked`` counts them."""

    def __init__(self, resource: IResource) -> None:
        self.faults: list[Exception] = []
        self.asked = 0
        self._treq: Any = StubTreq(Identified(resource))

    def request(self, method: str, url: str, **more: Any) -> Deferred[Any]:
        """Ask."""
        self.asked += 1
        if self.faults:
            return fail(self.faults.pop(0))
        answer: Deferred[Any] = self._treq.request(method, url, **more)
        self.flush()
        return answer

    def flush(self) -> None:
        """Have what was answered meanwhile arrive."""
        self._treq.flush()


class Service:
    """The service as a workload sees it: logins, whose tokens live for ``life`` seconds, and ``values`` by full id.

    It answers with ``troubles`` first, each a status and what ``Retry-After`` says. ``logins`` and ``reads`` are what was
    asked, ``asked`` the ids of batches. ``valid`` are the tokens that it takes; a test may take some away. ``held`` is
    awaited by each login.
    """

    def __init__(self, clock: IReactorTime, values: dict[str, bytes], life: int = 480) -> None:
        self.clock = clock
        self.values = values
        self.life = life
        self.troubles: list[tuple[int, str | None]] = []
        self.logins: list[tuple[str, bytes]] = []
        self.reads: list[str] = []
        self.asked: list[list[str]] = []
        self.valid: dict[str, float] = {}
        self.refused = False
        self.held: Deferred[None] | None = None

    def site(self) -> Klein:
        """The web application."""
        app = Klein()

        @app.route("/<path:where>", methods=["POST"], branch=True)
        def login(request: Request, where: str) -> ResponseBody:
            return self._read(request) if request.path == b"/secrets/batch" else self._log_in(request)

        @app.route("/<path:where>", methods=["GET"], branch=True)
        def read(request: Request, where: str) -> ResponseBody:
            return self._read(request)

        return app

    def _trouble(self, request: Request) -> bool:
        if not self.troubles:
            return False
        status, retry_after = self.troubles.pop(0)
        request.setResponseCode(status)
        if retry_after is not None:
            request.setHeader(b"retry-after", retry_after.encode())
        return True

    def _log_in(self, request: Request) -> ResponseBody:
        self.logins.append((request.uri.decode("ascii"), request.content.read() if request.content else b""))
        if self._trouble(request):
            return b""
        if self.refused:
            request.setResponseCode(401)
            return b""
        now = int(self.clock.seconds())
        claims = {"iat": now, "exp": now + self.life, "sub": f"number {len(self.logins)}"}
        parts = {"protected": "", "payload": base64.b64encode(json.dumps(claims).encode()).decode(), "signature": ""}
        token = base64.b64encode(json.dumps(parts).encode())
        self.valid[token.decode("ascii")] = now + self.life
        request.setHeader(b"content-encoding", b"base64")
        return token if self.held is None else self.held.addCallback(lambda _: token)

    def _read(self, request: Request) -> bytes:
        self.reads.append(request.uri.decode("ascii"))
        if self._trouble(request):
            return b'{"error": {"message": "so the test wants it"}}'
        token = str(request.getHeader("authorization")).removeprefix('Token token="').removesuffix('"')
        if self.valid.get(token, 0) <= self.clock.seconds():
            request.setResponseCode(401)
            return b"Unauthorized: Invalid token"
        if request.content is not None and request.path == b"/secrets/batch":
            return self._batch(request, json.loads(request.content.read()))
        value = self.values.get("acme:variable:" + unquote(request.path.decode("ascii").rpartition("/")[2]))
        if value is None:
            request.setResponseCode(404)
            return b'{"error": {"message": "it is empty or not found"}}'
        return value

    def _batch(self, request: Request, asked: dict[str, Any]) -> bytes:
        """Answer as SEC-37 to SEC-40; the tag is made of the values, which is good enough here."""
        self.asked.append(asked["variable_ids"])
        there = {name: self.values[name] for name in asked["variable_ids"] if name in self.values}
        missing = [name for name in asked["variable_ids"] if name not in there]
        if missing and not asked.get("partial"):
            request.setResponseCode(404)
            return b'{"error": {"message": "it is empty or not found"}}'
        if not missing:
            tag = f'W/"{hashlib.sha256(repr(there).encode()).hexdigest()}"'
            request.setHeader(b"etag", tag.encode())
            if request.getHeader("if-none-match") == tag:
                request.setResponseCode(304)
                return b""
        document: dict[str, Any] = {"values": {name: base64.encodebytes(value).decode() for name, value in there.items()}}
        if asked.get("partial"):
            document["errors"] = {name: {"code": "not_found", "message": "it is empty or not found"} for name in missing}
        if "base64" in request.requestHeaders.getRawHeaders("accept-encoding", []):
            request.setHeader(b"content-encoding", b"base64")
        return json.dumps(document).encode()


def exchange_of(wire: Any, clock: Clock | None = None, limit: int = ANSWER_LIMIT) -> Exchange:
    """What asks by a wire."""
    return Exchange(wire, clock or Clock(), limit)


def clock() -> Clock:
    """A clock that shows :data:`NOW`."""
    made = Clock()
    made.advance(NOW)
    return made
