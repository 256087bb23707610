"""A client in memory: requests go as bytes through the whole of ``web.http`` and the router, and nothing waits for anything.

``Client(noun, …)`` serves nouns; ``client.get("/whoami", role=ALICE)`` asks, and returns the answer. A route that waits for
something is asked with ``client.begin(…)``, which returns the connection: later ``connection.answer()`` has the answer, and
``connection.leave()`` is a client that doesn't stay for it. ``client.connect()`` is for raw bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import attrs
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IPushProducer, ITransport
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from zope.interface import implementer

from svc.model.dialect import NATIVE, Dialect
from svc.model.errors import BearerRefused, Refusal
from svc.model.limits import Limits
from svc.model.names import RoleName
from svc.model.query_results import Caller
from svc.model.versions import StateVersion
from svc.web.http.client_address import TrustedProxies
from svc.web.http.connection import Channel
from svc.web.http.console import IConsole
from svc.web.http.messages import HttpConfig, IncomingRequest, Response
from svc.web.http.router import Router
from svc.web.http.routing import ResourceRoutes, Route
from svc.web.http.site import Site
from tests.chronicle import Chronicle
from tests.web.declared import undeclared

#: What the clock shows when a client is made; also the issue time of every token.
NOW: Final = 1_700_000_000

#: The address of a client that says nothing else.
PEER: Final = "192.0.2.7"

#: A code of the installed base (FAIL-40).
CODE: Final = re.compile(r"CONJ[0-9]{5}[EWI]")


@attrs.frozen
class Answer:
    """One answer as it was read off the wire; ``headers`` by their names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON; the answer must say that it is."""
        assert self.headers["content-type"] == "application/json", self.headers
        return json.loads(self.body)


def read_answers(raw: bytes, *, head: bool = False) -> list[Answer]:
    """Read all answers in ``raw``, which must end with the last one; with ``head``, none of them has a body."""
    answers = []
    while raw:
        block, end, raw = raw.partition(b"\r\n\r\n")
        assert end, f"no end of headers in {block!r}"
        line, *lines = block.decode("ascii").split("\r\n")
        version, status = line.split(" ", 2)[:2]
        assert version == "HTTP/1.1", line
        headers = dict(line.split(": ", 1) for line in lines)
        headers = {name.lower(): value for name, value in headers.items()}
        assert len(headers) == len(lines), f"a header twice in {lines}"
        if headers.get("transfer-encoding") == "chunked" and not head:
            assert "content-length" not in headers, headers
            body, raw = _unchunked(raw)
            answers.append(Answer(int(status), headers, body))
            continue
        length = 0 if head else int(headers.get("content-length", 0))
        assert len(raw) >= length, f"a body of {length} bytes was cut off: {raw!r}"
        answers.append(Answer(int(status), headers, raw[:length]))
        raw = raw[length:]
    return answers


def _unchunked(raw: bytes) -> tuple[bytes, bytes]:
    """The body that begins ``raw`` in chunks, and what follows it; the last chunk must be there."""
    body = b""
    while True:
        size, end, raw = raw.partition(b"\r\n")
        assert end, "the last chunk is missing"
        length = int(size, 16)
        assert raw[length : length + 2] == b"\r\n", "a chunk was cut off"
        body, raw = body + raw[:length], raw[length + 2 :]
        if not length:
            return body, raw


@implementer(ITransport, IPushProducer)
class Wire:
    """The server's end of a connection in memory; while it is ``stalled``, the client takes nothing."""

    disconnecting = False

    def __init__(self, peer: str) -> None:
        self.written = b""
        self.stalled = False
        self.reading = True
        self.protocol: Channel | None = None
        self._peer = peer
        self._producer: IPushProducer | None = None

    def write(self, data: bytes) -> None:
        """Keep what the server sends; a client that takes nothing has it hold back at once."""
        self.written += data
        if self.stalled and self._producer is not None:
            self._producer.pauseProducing()

    def writeSequence(self, data: Iterable[bytes]) -> None:
        """Keep what the server sends."""
        self.write(b"".join(data))

    def resume(self) -> None:
        """Take what is sent, again."""
        self.stalled = False
        if self._producer is not None:
            self._producer.resumeProducing()

    def loseConnection(self) -> None:
        """Close, once the client has taken what was sent."""
        self.disconnecting = True
        if not self.stalled:
            self.abortConnection()

    def abortConnection(self) -> None:
        """Close at once."""
        protocol, self.protocol = self.protocol, None
        self._producer = None
        if protocol is not None:
            protocol.connectionLost(Failure(ConnectionDone()))

    def getPeer(self) -> IPv4Address:
        """The client's address."""
        return IPv4Address("TCP", self._peer, 54321)

    def getHost(self) -> IPv4Address:
        """The server's address."""
        return IPv4Address("TCP", "127.0.0.1", 8080)

    def registerProducer(self, producer: IPushProducer, streaming: bool) -> None:
        """Note whom to tell to hold back."""
        self._producer = producer

    def unregisterProducer(self) -> None:
        """Tell nobody any more."""
        self._producer = None

    def pauseProducing(self) -> None:
        """Read no more."""
        self.reading = False

    def resumeProducing(self) -> None:
        """Read on."""
        self.reading = True

    def stopProducing(self) -> None:
        """Nothing is produced."""


class Connection:
    """The client's end of a connection."""

    def __init__(
        self, site: Site, clock: Clock, peer: str = PEER, check: Callable[[Answer, bool], object] = lambda *_: None
    ) -> None:
        channel = site.buildProtocol(None)
        assert channel is not None, "the site takes no connections any more"
        self._clock = clock
        self._check = check
        self._wire = Wire(peer)
        self._wire.protocol = channel
        channel.makeConnection(self._wire)

    @property
    def open(self) -> bool:
        """Whether the server keeps the connection open."""
        return self._wire.protocol is not None

    def send(self, *pieces: bytes) -> Connection:
        """Send bytes, each piece in a packet of its own, as long as the server reads."""
        for piece in pieces:
            self.settle()
            if self._wire.protocol is not None:
                assert self._wire.reading, "the server doesn't read now"
                self._wire.protocol.dataReceived(piece)
        return self

    def send_at_once(self, data: bytes) -> None:
        """Send bytes in one packet, while no turn of the reactor passes."""
        assert self._wire.protocol is not None
        self._wire.protocol.dataReceived(data)

    @property
    def far_end(self) -> object:
        """The server's end."""
        return self._wire.protocol

    @property
    def sent(self) -> bytes:
        """What the server has sent so far, and nobody has taken."""
        return self._wire.written

    @property
    def read_from(self) -> bool:
        """Whether the server reads what is sent."""
        return self._wire.reading

    def settle(self) -> None:
        """Let as many turns of the reactor pass as anybody waits for."""
        self._clock.advance(0)

    def leave(self) -> None:
        """Close without a word."""
        self._wire.abortConnection()

    def stall(self) -> None:
        """Take nothing any more of what the server sends."""
        self._wire.stalled = True

    def resume(self) -> None:
        """Take again what the server sends."""
        self._wire.resume()

    def received(self) -> bytes:
        """Take what the server has sent, once it has nothing more to do."""
        self.settle()
        written, self._wire.written = self._wire.written, b""
        return written

    def answers(self, *, head: bool = False) -> list[Answer]:
        """Take all answers."""
        found = read_answers(self.received(), head=head)
        for answer in found:
            self._check(answer, head)
        return found

    def answer(self, *, head: bool = False) -> Answer:
        """Take the one answer that must be there."""
        [answer] = self.answers(head=head)
        return answer


async def caller(authorization: bytes | None) -> Caller:
    """Verify a token of :func:`token`: a role that is named, and its numbers, are believed."""
    if authorization is None:
        raise BearerRefused("Authorization missing")
    text = authorization.decode("ascii")
    if not text.startswith('Token token="') or not text.endswith('"'):
        raise BearerRefused("Unauthorized: Invalid token")
    role, bar, numbers = text[13:-1].rpartition("|")
    creation, epoch = map(int, numbers.split(",")) if bar else (0, 0)
    return Caller(RoleName.parse(role if bar else numbers), NOW, creation, epoch)


async def primary() -> None:
    """Say that the server may write."""


async def reached(versions: Sequence[StateVersion], role: RoleName) -> None:
    """Say that what is read is as new as wanted."""


def token(role: RoleName, creation: int = 0, epoch: int = 0) -> str:
    """The ``Authorization`` header of a role; ``creation`` and ``epoch`` are as in ``Caller``."""
    return f'Token token="{role}|{creation},{epoch}"' if creation or epoch else f'Token token="{role}"'


class DeclaredRouter(Router):
    """A router whose answers are held against the declarations of their routes, by the ids of their requests.

    Routes that declare no answers are those of tests.
    """

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._is_native = more["dialect"] is NATIVE
        self._answered: dict[str, tuple[Route, Refusal | None]] = {}
        self._refusals: dict[str, Refusal] = {}

    def respond(self, incoming: IncomingRequest) -> Deferred[Response]:
        """Answer a request, and remember its route."""
        self._answered.pop(incoming.request_id, None)
        self._refusals.pop(incoming.request_id, None)

        def answered(response: Response) -> Response:
            if isinstance(incoming.route, Route):
                self._answered[incoming.request_id] = incoming.route, self._refusals.get(incoming.request_id)
            return response

        return super().respond(incoming).addCallback(answered)

    def _refusal_response(self, route: Route, incoming: IncomingRequest, refusal: Refusal) -> Response:
        self._refusals[incoming.request_id] = refusal
        return super()._refusal_response(route, incoming, refusal)

    def check(self, answer: Answer, head: bool) -> None:
        """Fail unless the route of the request declares this answer, or the refusal that it comes from; and in ``native``
        where it has a code of the installed base (FAIL-40).
        """
        codes = CODE.search(answer.body.decode("latin-1")) if self._is_native else None
        assert codes is None, f"{codes} in {answer.body!r}"
        route, refusal = self._answered.get(answer.headers.get("x-request-id", ""), (None, None))
        if route is not None and route.answers:
            fault = undeclared(route, refusal, answer.status, answer.headers, None if head else answer.body)
            assert fault is None, f"{route}, with {route.when}: {fault}"


class Client:
    """A server of some nouns, and a client that talks to it, in one."""

    def __init__(
        self,
        *nouns: ResourceRoutes,
        limits: Limits | None = None,
        proxies: TrustedProxies | None = None,
        ensure_writable: Callable[[], Awaitable[None]] = primary,
        reached: Callable[[Sequence[StateVersion], RoleName], Awaitable[None]] = reached,
        journal: Chronicle | None = None,
        dialect: Dialect = NATIVE,
        console: IConsole | None = None,
        refused: Callable[[IncomingRequest, Mapping[str, str], Refusal], object] = lambda *_: None,
        clock: Clock | None = None,
    ) -> None:
        limits = limits or Limits()
        self.clock = clock or Clock()
        self.clock.advance(NOW - self.clock.seconds())
        self._ids = 0
        self.journal = journal or Chronicle()
        self.router = DeclaredRouter(
            nouns,
            caller=caller,
            ensure_writable=ensure_writable,
            reached=reached,
            limits=limits,
            new_id=self._new_id,
            journal=self.journal,
            dialect=dialect,
            clock=self.clock,
            console=console,
            refused=refused,
        )
        self.site = Site(
            HttpConfig(
                respond=self.router.respond,
                limits=limits,
                clock=self.clock,
                wall=self.clock,
                new_id=self._new_id,
                proxies=proxies or TrustedProxies(),
            )
        )

    def _new_id(self) -> str:
        self._ids += 1
        return f"id-{self._ids}"

    def connect(self, peer: str = PEER) -> Connection:
        """Open a connection."""
        return Connection(self.site, self.clock, peer, self.router.check)

    def begin(
        self,
        method: str,
        target: str,
        *,
        body: bytes = b"",
        headers: Iterable[tuple[str, str]] = (),
        role: RoleName | None = None,
        peer: str = PEER,
    ) -> Connection:
        """Send a request on a new connection, with the token of ``role``, and return the connection."""
        lines = [f"{method} {target} HTTP/1.1", "Host: svc.example"]
        lines.extend(f"{name}: {value}" for name, value in headers)
        if role is not None:
            lines.append(f"Authorization: {token(role)}")
        if body:
            lines.append(f"Content-Length: {len(body)}")
        return self.connect(peer).send("\r\n".join([*lines, "", ""]).encode("utf-8") + body)

    def request(self, method: str, target: str, **more: Any) -> Answer:
        """Send a request, as :meth:`begin` does, return its answer, and close the connection."""
        connection = self.begin(method, target, **more)
        answer = connection.answer(head=method == "HEAD")
        connection.leave()
        return answer

    def get(self, target: str, **more: Any) -> Answer:
        """Send a ``GET``."""
        return self.request("GET", target, **more)

    def head(self, target: str, **more: Any) -> Answer:
        """Send a ``HEAD``."""
        return self.request("HEAD", target, **more)

    def post(self, target: str, body: bytes = b"", **more: Any) -> Answer:
        """Send a ``POST``."""
        return self.request("POST", target, body=body, **more)

    def put(self, target: str, body: bytes = b"", **more: Any) -> Answer:
        """Send a ``PUT``."""
        return self.request("PUT", target, body=body, **more)

    def patch(self, target: str, body: bytes = b"", **more: Any) -> Answer:
        """Send a ``PATCH``."""
        return self.request("PATCH", target, body=body, **more)

    def delete(self, target: str, **more: Any) -> Answer:
        """Send a ``DELETE``."""
        return self.request("DELETE", target, **more)
