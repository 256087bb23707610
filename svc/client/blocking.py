"""Requests by ``httpx`` in a program of threads: coroutines that never suspend, since what they wait for blocks.

Note [Deadlines]. ``httpx`` bounds each reading of a socket, and a server may send a byte before each bound. So connections
are made here, by an interface of ``httpcore``, and none of what they do lasts beyond the end of the question. Only the
system's lookup of a name has bounds of its own. A host's addresses are tried one by one.

Note [Forks]. A process that was forked has connections of its own: two that write to one would mix what they say. A thread
with an event loop would be simpler than blocking, and would hang in every program that forks.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import closing, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Generic, TypeVar

import attrs
import httpcore
import httpx

from svc.client.httpx_common import build_request, fault_from_error, read_headers
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

#: When the question of this thread ends, by the steady clock.
_DEADLINE: ContextVar[float] = ContextVar("_ENDS")


def run_coroutine(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never suspends.

    :raises RuntimeError: it does, for something that only an event loop could bring.
    """
    try:
        work.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    work.close()
    raise RuntimeError("what proves the identity has to be awaited: use AsyncClient, or give what returns it at once")


class BlockingTransport(httpx.HTTPTransport):
    """Connects without a proxy, within the time of each question (Note [Deadlines])."""

    def __init__(self, ca_file: Path | None = None) -> None:
        context = client_context(ca_file)
        super().__init__(verify=context, trust_env=False)
        # The pool takes what makes connections, and httpx passes none on: see tests/test_leanings.py.
        self._pool = httpcore.ConnectionPool(ssl_context=context, keepalive_expiry=5.0, network_backend=_BoundedBackend())


class BlockingExchange:
    """Sends requests, as a ``StreamRequester``; ``make`` makes a transport. ``limit`` is the largest answer, in bytes.

    With ``versions``, the versions in answers are noted there, and requests ask for those that are. Many threads may ask.
    """

    def __init__(self, make: Callable[[], httpx.BaseTransport], limit: int, versions: Versions | None = None) -> None:
        self._make, self._limit, self._versions = make, limit, versions
        self._transport, self._pid = make(), os.getpid()

    async def ask(
        self, method: str, url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None, *, within: float
    ) -> Reply:
        """See ``Requester``."""
        request = build_request(method, url, body, headers, self._versions, within=within)
        with _time_limit(within):
            try:
                response = self._current_transport().handle_request(request)
                whole = _read_body(_byte_stream(response), url, self._limit)
            except httpx.HTTPError as error:
                raise fault_from_error(url, error, within) from None
        return Reply(response.status_code, whole, read_headers(response, self._versions))

    async def open(self, url: str, headers: Mapping[str, str], *, within: float, idle: float) -> OpenStream:
        """See ``StreamRequester``."""
        request = build_request("GET", url, None, headers, self._versions, within=within, idle=idle)
        with _time_limit(within):
            try:
                response = self._current_transport().handle_request(request)
                stream = _byte_stream(response)
                body = b"" if response.status_code == 200 else _read_body(stream, url, _REFUSAL)
            except httpx.HTTPError as error:
                raise fault_from_error(url, error, within) from None
        reply = Reply(response.status_code, body, read_headers(response, self._versions))
        return _BlockingStream(reply, stream, url, idle)

    def seconds(self) -> float:
        """See ``Requester``."""
        return steady_seconds()

    async def sleep(self, seconds: float) -> None:
        """See ``Requester``."""
        time.sleep(seconds)

    def shared(self, work: Callable[[], Coroutine[Any, Any, T]]) -> SharedResult[T]:
        """See ``Requester``."""
        return _SharedRun(work)

    def close(self) -> None:
        """Close all connections."""
        if self._pid == os.getpid():
            self._transport.close()

    def _current_transport(self) -> httpx.BaseTransport:
        if self._pid != os.getpid():
            self._transport, self._pid = self._make(), os.getpid()
        return self._transport


class _BlockingStream:
    """An answer that goes on."""

    def __init__(self, reply: Reply, stream: httpx.SyncByteStream, url: str, idle: float) -> None:
        self.reply, self._stream, self._url, self._idle = reply, stream, url, idle
        self._pieces: Iterator[bytes] = iter(stream)

    async def piece(self) -> bytes:
        """See ``OpenStream``."""
        with _time_limit(self._idle):
            try:
                return next(self._pieces, b"")
            except httpx.TimeoutException:
                raise Unreachable(public_origin(self._url), f"nothing came for {self._idle:g} seconds") from None
            except httpx.HTTPError as error:
                raise fault_from_error(self._url, error, self._idle) from None

    async def close(self) -> None:
        """See ``OpenStream``."""
        self._stream.close()


class _SharedRun(Generic[T]):
    """Work that one thread does while others wait; when that one is interrupted, another does it."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._run: tuple[int, Future[T]] | None = None

    async def result(self) -> T:
        """See ``SharedResult``."""
        while True:
            with self._lock:
                # In a process that was forked meanwhile, nobody does it.
                mine = self._run is None or self._run[0] != os.getpid()
                if self._run is None or mine:
                    self._run = (os.getpid(), Future())
                run = self._run[1]
            if mine:
                return await self._run_work(run)
            try:
                return run.result()
            except CancelledError:
                continue

    async def _run_work(self, run: Future[T]) -> T:
        try:
            result = await self._work()
        except BaseException as error:
            self._run = None
            if isinstance(error, Exception):
                run.set_exception(error)
            else:
                run.cancel()
            raise
        self._run = None
        run.set_result(result)
        return result


@attrs.frozen
class _BoundedConnection(httpcore.NetworkStream):
    """A connection that is bounded by the question's end (Note [Deadlines])."""

    connection: httpcore.NetworkStream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self.connection.read(max_bytes, _remaining_seconds(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        # A part at a time, each of which is bounded by what is left.
        view = memoryview(buffer)
        for start in range(0, len(view), 65536):
            self.connection.write(bytes(view[start : start + 65536]), _remaining_seconds(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self.connection.close()

    def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left = _remaining_seconds(timeout, httpcore.ConnectTimeout)
        return _BoundedConnection(self.connection.start_tls(ssl_context, server_hostname, left))

    def get_extra_info(self, info: str) -> Any:
        return self.connection.get_extra_info(info)


class _BoundedBackend(httpcore.NetworkBackend):
    """Makes connections that are bounded by the question's end."""

    def __init__(self) -> None:
        self._backend = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        fault: Exception = httpcore.ConnectError("the name has no address")
        for address in dict.fromkeys(str(each[4][0]) for each in found):
            left = _remaining_seconds(timeout, httpcore.ConnectTimeout)
            try:
                return _BoundedConnection(self._backend.connect_tcp(address, port, left, local_address, socket_options))
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                fault = error
        raise fault


@contextmanager
def _time_limit(seconds: float) -> Generator[None, None, None]:
    before = _DEADLINE.set(steady_seconds() + seconds)
    try:
        yield
    finally:
        _DEADLINE.reset(before)


def _remaining_seconds(timeout: float | None, late: type[Exception]) -> float | None:
    """Return how long something may last.

    :raises late: no longer.
    """
    ends = _DEADLINE.get(None)
    if ends is None:
        return timeout
    left = ends - steady_seconds()
    if left <= 0:
        raise late("the time is over")
    return left if timeout is None else min(timeout, left)


def _byte_stream(response: httpx.Response) -> httpx.SyncByteStream:
    """Return the bytes as they come; ``httpx`` itself would decompress them."""
    assert isinstance(response.stream, httpx.SyncByteStream)
    return response.stream


def _read_body(stream: httpx.SyncByteStream, url: str, limit: int) -> bytes:
    body = bytearray()
    with closing(stream):
        for piece in stream:
            body += piece
            if len(body) > limit:
                raise TooLong(public_origin(url), limit)
    return bytes(body)
