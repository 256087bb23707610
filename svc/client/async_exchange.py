"""Requests by ``httpx`` in a program on asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, Generic, TypeVar

import attrs
import httpx

from svc.client.httpx_common import build_request, fault_from_error, late_answer_fault, read_headers
from svc.client.tls import client_context
from svc.model.clocks import steady_seconds
from svc.workload.address import public_origin
from svc.workload.faults import TooLong, Unreachable
from svc.workload.replies import Reply
from svc.workload.requester import OpenStream, SharedResult
from svc.workload.versions import Versions

T = TypeVar("T")

#: The longest body of an answer that refuses a stream, in bytes.
_REFUSAL = 64 * 1024


def async_transport(ca_file: Path | None = None) -> httpx.AsyncBaseTransport:
    """Return what connects, without a proxy.

    :raises NoEvidence: the file can't be read, or holds anything else than certificates.
    """
    return httpx.AsyncHTTPTransport(verify=client_context(ca_file), trust_env=False)


@attrs.frozen
class AsyncExchange:
    """Sends requests by asyncio, as a ``StreamRequester``. ``limit`` is the largest answer that is taken, in bytes.

    With ``versions``, the versions in answers are noted there, and requests ask for those that are.
    """

    transport: httpx.AsyncBaseTransport
    limit: int
    versions: Versions | None = None

    async def ask(
        self, method: str, url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None, *, within: float
    ) -> Reply:
        """See ``Requester``."""
        request = build_request(method, url, body, headers, self.versions, within=within)
        try:
            async with asyncio.timeout(within):
                response = await self.transport.handle_async_request(request)
                body = await _read_body(_byte_stream(response), url, self.limit)
                return Reply(response.status_code, body, read_headers(response, self.versions))
        except TimeoutError:
            raise late_answer_fault(url, within) from None
        except httpx.HTTPError as error:
            raise fault_from_error(url, error, within) from None

    async def open(self, url: str, headers: Mapping[str, str], *, within: float, idle: float) -> OpenStream:
        """See ``StreamRequester``."""
        request = build_request("GET", url, None, headers, self.versions, within=within, idle=idle)
        try:
            async with asyncio.timeout(within):
                response = await self.transport.handle_async_request(request)
                stream = _byte_stream(response)
                body = b"" if response.status_code == 200 else await _read_body(stream, url, _REFUSAL)
        except TimeoutError:
            raise late_answer_fault(url, within) from None
        except httpx.HTTPError as error:
            raise fault_from_error(url, error, within) from None
        return _AsyncStream(Reply(response.status_code, body, read_headers(response, self.versions)), stream, url, idle)

    def seconds(self) -> float:
        """See ``Requester``."""
        return steady_seconds()

    async def sleep(self, seconds: float) -> None:
        """See ``Requester``."""
        await asyncio.sleep(seconds)

    def shared(self, work: Callable[[], Coroutine[Any, Any, T]]) -> SharedResult[T]:
        """See ``Requester``."""
        return _SharedTask(work)

    async def close(self) -> None:
        """Close all connections."""
        await self.transport.aclose()


class _AsyncStream:
    """An answer that goes on."""

    def __init__(self, reply: Reply, stream: httpx.AsyncByteStream, url: str, idle: float) -> None:
        self.reply, self._stream, self._url, self._idle = reply, stream, url, idle
        self._pieces: AsyncIterator[bytes] = aiter(stream)

    async def piece(self) -> bytes:
        """See ``OpenStream``."""
        try:
            return await anext(self._pieces, b"")
        except httpx.TimeoutException:
            raise Unreachable(public_origin(self._url), f"nothing came for {self._idle:g} seconds") from None
        except httpx.HTTPError as error:
            raise fault_from_error(self._url, error, self._idle) from None

    async def close(self) -> None:
        """See ``OpenStream``."""
        await self._stream.aclose()


class _SharedTask(Generic[T]):
    """Work as a task, which goes on when one of those that wait for it is cancelled."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._work = work
        self._task: asyncio.Task[T] | None = None

    async def result(self) -> T:
        """See ``SharedResult``."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())
            self._task.add_done_callback(self._forget_task)
        return await asyncio.shield(self._task)

    def _forget_task(self, task: asyncio.Task[T]) -> None:
        self._task = None
        if not task.cancelled():
            task.exception()  # it is raised in those that wait; asyncio would log it if there are none


def _byte_stream(response: httpx.Response) -> httpx.AsyncByteStream:
    """Return the bytes as they come; ``httpx`` itself would decompress them."""
    assert isinstance(response.stream, httpx.AsyncByteStream)
    return response.stream


async def _read_body(stream: httpx.AsyncByteStream, url: str, limit: int) -> bytes:
    body = bytearray()
    async with aclosing(stream):
        async for piece in stream:
            body += piece
            if len(body) > limit:
                raise TooLong(public_origin(url), limit)
    return bytes(body)
