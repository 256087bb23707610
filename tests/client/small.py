"""The service in small, behind transports of ``httpx``, and both clients of it; nothing waits by the clock."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs
import httpx
from twisted.trial.unittest import SynchronousTestCase

from svc.client import ApiKey, AsyncClient, Client, Evidence, Fault, WatchEvent
from svc.client.async_exchange import AsyncExchange
from svc.client.blocking import BlockingExchange
from svc.workload.versions import Versions

KEY: Final = ApiKey("host/shop", "the-api-key")

#: The longest answer that clients take here, in bytes.
LIMIT: Final = 100_000

#: Answers a request, or raises an error of ``httpx``.
Answers = Callable[[httpx.Request], httpx.Response]


def token(number: int, life: int = 480) -> str:
    """An access token, as far as its claims."""
    claims = base64.b64encode(json.dumps({"iat": 1000, "exp": 1000 + life, "sub": str(number)}).encode()).decode()
    return base64.b64encode(json.dumps({"payload": claims}).encode()).decode()


def in_base64(document: object, **headers: str) -> httpx.Response:
    """An answer whose values are in base64."""
    return httpx.Response(200, json=document, headers={"content-encoding": "base64", **headers})


def encoded(values: Mapping[str, bytes]) -> dict[str, str]:
    """Values as the service writes them."""
    return {f"acme:variable:{name}": base64.encodebytes(value).decode() for name, value in values.items()}


@attrs.define
class SmallService:
    """It logs everybody in, and gives the ``answers`` in their order, or raises them; ``requests`` are those that it had.

    ``refused``: how many tokens it takes no more. ``troubles`` come before logins.
    """

    answers: list[httpx.Response | Exception | Answers] = attrs.field(factory=list)
    requests: list[httpx.Request] = attrs.field(factory=list)
    logins: int = 0
    refused: int = 0
    troubles: list[httpx.Response] = attrs.field(factory=list)

    def answer(self, request: httpx.Request) -> httpx.Response:
        """Answer a request; its id is in each answer that is no page."""
        answer = self._answer(request)
        if "html" not in answer.headers.get("content-type", ""):
            answer.headers.setdefault("x-request-id", "r-1")
        return answer

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/authenticate") and not request.url.query:
            if self.troubles:
                return self.troubles.pop(0)
            self.logins += 1
            return httpx.Response(200, text=token(self.logins), headers={"content-encoding": "base64"})
        self.requests.append(request)
        if request.headers.get("authorization") in {f'Token token="{token(number + 1)}"' for number in range(self.refused)}:
            return httpx.Response(401)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, httpx.Response) else answer(request)

    def asked(self) -> list[str]:
        """What it was asked for, without the origin."""
        return [f"{request.method} {request.url.raw_path.decode()}" for request in self.requests]


class Pieces(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that comes in pieces, and may break off."""

    def __init__(self, pieces: Sequence[bytes | Exception]) -> None:
        self.pieces = pieces
        self.closed = False

    def __iter__(self) -> Iterator[bytes]:
        for piece in self.pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self:
            yield piece

    def close(self) -> None:
        """End it."""
        self.closed = True

    async def aclose(self) -> None:
        """End it."""
        self.closed = True


class WaitlessAsync(AsyncExchange):
    """One that notes how long it would sleep."""

    slept: list[float]

    async def sleep(self, seconds: float) -> None:
        """Note it."""
        self.slept.append(seconds)


class WaitlessBlocking(BlockingExchange):
    """One that notes how long it would sleep."""

    slept: list[float]

    async def sleep(self, seconds: float) -> None:
        """Note it."""
        self.slept.append(seconds)


class EitherClient(SynchronousTestCase):
    """A service, and a client of it, which tests call without knowing which."""

    def setUp(self) -> None:
        """Make the service."""
        self.service = SmallService()
        self.slept: list[float] = []
        self.versions = Versions(lambda: 0.0)

    def call(self, method: str, *arguments: Any, evidence: Evidence = KEY, times: int = 1, **more: Any) -> Any:
        """Call a method of a new client, and return the result of the last time."""
        raise NotImplementedError

    def events(self, count: int, lost: Callable[[Fault], object] | None = None, **more: Any) -> list[WatchEvent]:
        """The first events of a watch of ``a`` and ``b``."""
        raise NotImplementedError

    def fault(self, kind: type[Fault], method: str, *arguments: Any, **more: Any) -> Any:
        """The fault of a call."""
        return self.assertRaises(kind, self.call, method, *arguments, **more)


class OfAsyncio(EitherClient):
    """The client on asyncio."""

    def client(self, evidence: Evidence = KEY, limit: int = LIMIT) -> AsyncClient:
        """Make one."""
        exchange = WaitlessAsync(httpx.MockTransport(self.service.answer), limit, self.versions)
        object.__setattr__(exchange, "slept", self.slept)
        return AsyncClient("https://svc.example/", "acme", evidence, requester=exchange, chance=lambda: 0.0)

    def call(self, method: str, *arguments: Any, evidence: Evidence = KEY, times: int = 1, **more: Any) -> Any:
        """See ``EitherClient``."""

        async def work() -> Any:
            async with self.client(evidence) as client:
                for _ in range(times):
                    result = await getattr(client, method)(*arguments, **more)
                return result

        return asyncio.run(work())

    def events(self, count: int, lost: Callable[[Fault], object] | None = None, **more: Any) -> list[WatchEvent]:
        """See ``EitherClient``."""

        async def work() -> list[WatchEvent]:
            async with self.client() as client, client.watch(["a", "b"], lost=lost, **more) as events:
                return [await anext(events) for _ in range(count)]

        return asyncio.run(work())


class OfThreads(EitherClient):
    """The client for programs of threads."""

    def client(self, evidence: Evidence = KEY, limit: int = LIMIT) -> Client:
        """Make one."""
        exchange = WaitlessBlocking(lambda: httpx.MockTransport(self.service.answer), limit, self.versions)
        exchange.slept = self.slept
        return Client("https://svc.example/", "acme", evidence, requester=exchange, chance=lambda: 0.0)

    def call(self, method: str, *arguments: Any, evidence: Evidence = KEY, times: int = 1, **more: Any) -> Any:
        """See ``EitherClient``."""
        with self.client(evidence) as client:
            for _ in range(times):
                result = getattr(client, method)(*arguments, **more)
            return result

    def events(self, count: int, lost: Callable[[Fault], object] | None = None, **more: Any) -> list[WatchEvent]:
        """See ``EitherClient``."""
        with self.client() as client, client.watch(["a", "b"], lost=lost, **more) as events:
            return [next(events) for _ in range(count)]
