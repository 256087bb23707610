"""A process that sends one request again and again over one connection, and reports how long the answers took.

``python -m bench.probe HOST PORT SECONDS WAITS`` reads the request from its standard input, a line with its length before
it, and asks until that is closed, a question every so many seconds. A wait goes until the answer was read: with ``asked``
for WAITS from before the request is sent, and with ``due`` from when its turn was, though the answer before it hadn't come
yet. Without that a server that is silent for seconds would be counted as one long wait among many short ones.
"""

from __future__ import annotations

import json
import math
import select
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence, Set
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

import attrs

from bench.load import Request

#: The statuses that count as an answer. The second is that of a reported fault, which only health has.
_ANSWERS: Final = {200, 502}

#: From when until when, by the monotonic clock, in seconds.
Span = tuple[float, float]


def lengths(spans: Sequence[Span]) -> list[float]:
    """How long each was, in seconds."""
    return [end - begin for begin, end in spans]


@attrs.frozen
class Waits:
    """How many waits there were, and how long in milliseconds: half of them at most, all but a hundredth, the longest."""

    count: int
    p50: float
    p99: float
    longest: float

    @classmethod
    def of(cls, spans: Sequence[Span]) -> Self:
        """Summarize waits, of which there must be two."""
        waits = [seconds * 1000 for seconds in lengths(spans)]
        parts = statistics.quantiles(waits, n=100, method="inclusive")
        return cls(len(waits), parts[49], parts[98], max(waits))


class Line:
    """One connection that stays open, on which prepared requests are answered with a ``Content-Length``."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), 60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @classmethod
    def to(cls, url: str) -> Self:
        """A connection to the service at ``url``."""
        parts = urlsplit(url)
        assert parts.hostname
        assert parts.port
        return cls(parts.hostname, parts.port)

    def span(self, request: bytes, statuses: Set[int] = _ANSWERS) -> Span:
        """From when until when a request is answered, which must be with one of these statuses."""
        begin = time.monotonic()
        self.status(request, statuses)
        return begin, time.monotonic()

    def status(self, request: bytes, statuses: Set[int] = _ANSWERS) -> int:
        """The status of the answer to a request: 200, or that of trouble, unless others are expected."""
        self._socket.sendall(request)
        head, _, body = self._received().partition(b"\r\n\r\n")
        missing = int(head.lower().partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0]) - len(body)
        while missing > 0:
            missing -= len(self._received())
        status = int(head.split(b" ", 2)[1])
        if status not in statuses:
            raise SystemExit(f"{request.partition(b' HTTP')[0].decode()}: {head.decode()}")
        return status

    def fileno(self) -> int:
        """The number of its socket, which is readable between two requests only if the server has closed it."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def _received(self) -> bytes:
        received = self._socket.recv(256 * 1024)
        if not received:
            raise SystemExit("the server closed the connection")
        return received


class Probe:
    """The process, which asks while a ``with`` block runs; the ``spans`` of the waits are there when that has ended.

    :param every: seconds between the questions.
    :param waits: from when waits count, ``asked`` or ``due``.
    """

    spans: list[Span]

    def __init__(self, url: str, request: Request, every: float, waits: str) -> None:
        parts = urlsplit(url)
        command = [sys.executable, "-m", "bench.probe", str(parts.hostname), str(parts.port), str(every), waits]
        self._request = prepared(request)
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Self:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"%d\n%b" % (len(self._request), self._request))
        self._process.stdin.flush()
        self._process.stdout.readline()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        said, _ = self._process.communicate()
        if self._process.returncode:
            raise SystemExit("a probe gave up")
        self.spans = [(begin, end) for begin, end in json.loads(said)]


def prepared(request: Request) -> bytes:
    """A request as it goes over the line."""
    name, value = request.header
    header = f"{name}: {value}\r\n" if name else ""
    body = f"Content-Length: {len(request.body.encode())}\r\n" if request.body else ""
    return f"{request.method} {request.path} HTTP/1.1\r\nHost: bench\r\n{header}{body}\r\n{request.body}".encode()


def main(host: str, port: str, every: str, waits: str) -> None:
    """Ask until standard input is closed and nothing is due, and print the spans."""
    request = sys.stdin.buffer.read(int(sys.stdin.buffer.readline()))
    line, pause = Line(host, int(port)), float(every)
    spans = [line.span(request), line.span(request)]
    print("asking", flush=True)
    due, end = time.monotonic(), math.inf
    while due < end:
        # The end of standard input makes it readable.
        if end == math.inf and select.select([sys.stdin], [], [], max(0, due - time.monotonic()))[0]:
            end = time.monotonic()
            continue
        began, answered = line.span(request)
        spans.append((due if waits == "due" else began, answered))
        due = (due if waits == "due" else began) + pause
    print(json.dumps(spans))


if __name__ == "__main__":
    main(*sys.argv[1:])
