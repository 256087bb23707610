"""The effect on others of clients that send thousands of requests at once, and what those leave behind.

``python -m bench.pipelining HOST PORT READS`` is these clients: ``PIPELINING_CONNECTIONS`` connections, on each of which
``PIPELINED_BYTES`` of requests are sent at once, and again when all of them are answered, until its standard input is
closed. With ``deaf`` for READS they take no answers, and send as much as the server reads.
"""

from __future__ import annotations

import selectors
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

import attrs

from bench import settings
from bench.load import Request
from bench.loop import BLOCKED_MOST, Lateness, Watched
from bench.probe import Line, Probe, Waits, prepared
from bench.processes import memory
from bench.report import Figure, Part
from bench.server import Server, say

#: The longest that 99 of 100 questions of somebody else may wait, in milliseconds.
OTHERS_MOST: Final = 50

#: How much the server may have grown when these clients have left, in megabytes.
MEGABYTES_MOST: Final = 20

_LIVE: Final = Request("GET", "/livez")
_HEALTH: Final = Request("GET", "/health")
_PIPELINED: Final = Request("GET", "/")

#: Questions before the first that is measured, and bytes that are received or sent at a time.
_WARMING: Final = 200
_PIECE: Final = 1 << 18

#: How each answer begins; none of these has it anywhere else.
_BEGINNING: Final = b"HTTP/1.1 "


@attrs.frozen
class Asked:
    """How long somebody else waited for two sorts of answers, and how late the server's loop was meanwhile."""

    live: Waits
    health: Waits
    loop: Lateness

    @classmethod
    def of(cls, loop: Watched) -> Self:
        """Ask for some seconds."""
        probes = [Probe(loop.url, request, settings.PROBE_SECONDS, "due") for request in (_LIVE, _HEALTH)]

        def ask() -> None:
            with probes[0], probes[1]:
                time.sleep(settings.PIPELINING_SECONDS)

        lateness = Lateness.during(loop, ask)
        live, health = (Waits.of(probe.spans) for probe in probes)
        return cls(live, health, lateness)


def measure(folder: Path) -> Part:
    """Ask without these clients, beside some that take their answers, and beside some that don't."""
    say("pipelining: a server …")
    server = Server.started(folder / "pipelining", watched=True)
    try:
        loop, line = Watched(server.url, server.loop_record), Line.to(server.url)
        for _ in range(_WARMING):
            line.span(prepared(_HEALTH))
        line.close()
        time.sleep(settings.IDLE_SECONDS)
        before = memory(server.process.pid, "VmRSS")
        say("pipelining: nobody else")
        alone, found = Asked.of(loop), dict[str, Asked]()
        for reads in ("reading", "deaf"):
            say(f"pipelining: {settings.PIPELINING_CONNECTIONS} connections, {reads}")
            with Pipelining(server.url, reads):
                found[reads] = Asked.of(loop)
        time.sleep(settings.IDLE_SECONDS)
        after, peak = (memory(server.process.pid, field) for field in ("VmRSS", "VmHWM"))
    finally:
        server.stop()
    size = f"{before:.0f} MB before, {after:.0f} MB after, {peak:.0f} MB at most"
    figures = [figure for reads, asked in found.items() for figure in _figures(reads, asked, alone)]
    figures.append(Figure("RSS grown by them", after - before, "MB", MEGABYTES_MOST, size))
    details = {name: attrs.asdict(asked) for name, asked in {"alone": alone, **found}.items()}
    return Part.of(figures, {**details, "megabytes": [before, after, peak]})


def _figures(reads: str, asked: Asked, alone: Asked) -> list[Figure]:
    waits = [
        Figure(
            f"p99 of `{request.path}` beside clients that pipeline, {reads}",
            others.p99,
            "ms",
            OTHERS_MOST,
            f"p50 {others.p50:.1f} ms, longest {others.longest:.0f} ms; alone p50 {quiet.p50:.1f}, p99 {quiet.p99:.1f} ms",
        )
        for request, others, quiet in ((_LIVE, asked.live, alone.live), (_HEALTH, asked.health, alone.health))
    ]
    origin = f"{asked.loop.late:.0f} ms late; alone {alone.loop.blocked:.0f} of {alone.loop.late:.0f} ms"
    return [
        *waits,
        Figure(f"loop blocked by clients that pipeline, {reads}", asked.loop.blocked, "ms", BLOCKED_MOST, origin),
    ]


class Pipelining:
    """The clients, in a process of their own, while a ``with`` block runs."""

    def __init__(self, url: str, reads: str) -> None:
        parts = urlsplit(url)
        command = [sys.executable, "-m", "bench.pipelining", str(parts.hostname), str(parts.port), reads]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        self._process.stdout.readline()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.communicate()
        if self._process.returncode:
            raise SystemExit("the clients that pipeline gave up")


class _Client:
    """One connection: ``unsent`` is what is still to be sent of the requests, ``_missing`` how many answers are to come."""

    def __init__(self, host: str, port: int, requests: bytes, count: int, *, takes: bool) -> None:
        self.socket = socket.create_connection((host, port), 60)
        self.socket.setblocking(False)
        self.unsent = self._requests = memoryview(requests)
        self._missing = self._count = count
        self._takes = takes
        self._rest = b""

    @property
    def wants(self) -> int:
        """Which events it waits for."""
        return (selectors.EVENT_WRITE if self.unsent else 0) | (selectors.EVENT_READ if self._takes else 0)

    def send(self) -> None:
        """Send what the connection takes; a client that takes no answers begins again at once."""
        self.unsent = self.unsent[self.socket.send(self.unsent[:_PIECE]) :]
        if not self.unsent and not self._takes:
            self.unsent = self._requests

    def receive(self) -> None:
        """Take answers; when all are there, begin again."""
        received = self.socket.recv(_PIECE)
        if not received:
            raise SystemExit("the server closed a connection that takes its answers")
        seen = self._rest + received
        self._missing -= seen.count(_BEGINNING)
        self._rest = seen[-len(_BEGINNING) + 1 :]
        if not self._missing:
            self.unsent, self._missing = self._requests, self._count


def main(host: str, port: str, reads: str) -> None:
    """Be these clients until standard input is closed."""
    request = prepared(_PIPELINED)
    count = settings.PIPELINED_BYTES // len(request)
    selector = selectors.DefaultSelector()
    selector.register(sys.stdin, selectors.EVENT_READ)
    for _ in range(settings.PIPELINING_CONNECTIONS):
        client = _Client(host, int(port), request * count, count, takes=reads == "reading")
        selector.register(client.socket, client.wants, client)
    print("asking", flush=True)
    while True:
        for key, events in selector.select():
            if key.data is None:
                return
            client = key.data
            if events & selectors.EVENT_WRITE:
                client.send()
            if events & selectors.EVENT_READ:
                client.receive()
            if client.wants != key.events:
                selector.modify(client.socket, client.wants, client)


if __name__ == "__main__":
    main(*sys.argv[1:])
