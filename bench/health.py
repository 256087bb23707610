"""The cost of a server's health route, also while its database hangs, and of idle connections.

Needs ``wrk``. The database hangs because PostgreSQL's processes are stopped (SIGSTOP): sessions stay, and nothing answers.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import attrs

from bench import settings
from bench.load import Request, demand_wrk, run, write_requests
from bench.probe import Line, prepared
from bench.processes import descendants, is_postgres, memory
from bench.report import Figure, Part
from bench.routes import start_reference
from bench.server import Server, say
from bench.turns import Turns

#: The least rate, in that of ``bare``, and when the database hangs.
BARE_LEAST: Final = 1.2
HUNG_LEAST: Final = 0.35

#: How much the server may grow by connections that are open and idle, in megabytes.
MEGABYTES_MOST: Final = 40

_HEALTH: Final = Request("GET", "/health")

#: Questions before the first that is measured, and seconds that health has to notice that the database hangs, or is back.
_WARMING: Final = 200
_PATIENCE: Final = 60.0

#: Files that a server keeps for all but connections, as ``svc.settings.config`` has it, and then some.
_FILES: Final = 600


def measure(folder: Path) -> Part:
    """Measure idle connections first, while the server is as small as it ever is, then rates.

    :raises SystemExit: there is no ``wrk``, or PostgreSQL can't be stopped.
    """
    demand_wrk()
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(files, settings.IDLE_CONNECTIONS + _FILES), most))
    say("health: a server …")
    server, (bare, url) = Server.started(folder / "health"), start_reference("bare")
    try:
        before, after = _idle(server)
        requests = write_requests(folder, "health", [_HEALTH])

        def turns(name: str, *, refused: bool) -> Turns:
            """Runs of the service and of ``bare``."""
            ours = partial(run, server.url, requests, server.process.pid, refused=refused)
            return Turns.taken(name, ours, partial(run, url, requests, bare.pid))

        well = turns("health", refused=False)
        with _hung(server):
            _await(server, 502)
            hung = turns("health while the database hangs", refused=True)
        _await(server, 200)
    finally:
        bare.kill()
        server.stop()
    size = f"{before:.0f} MB before, {after:.0f} MB with them"
    figures = [
        _figure("health", well, BARE_LEAST),
        _figure("health while the database hangs", hung, HUNG_LEAST),
        Figure(f"RSS grown by {settings.IDLE_CONNECTIONS} idle connections", after - before, "MB", MEGABYTES_MOST, size),
    ]
    details = {"well": attrs.asdict(well), "hung": attrs.asdict(hung), "megabytes": [before, after]}
    return Part.of(figures, details)


def _figure(name: str, turns: Turns, least: float) -> Figure:
    ours, bare = turns.median, turns.beside
    origin = f"{ours.rate:.0f} requests/s, p99 {ours.p99:.1f} ms; `bare`: {bare.rate:.0f} requests/s"
    return Figure(f"{name}, of `bare`", turns.ratio(), "times", least=least, origin=origin)


def _idle(server: Server) -> tuple[float, float]:
    """The server's RSS, and that with many connections on each of which one question was answered."""
    say(f"health: {settings.IDLE_CONNECTIONS} idle connections")
    question, first = prepared(_HEALTH), Line.to(server.url)
    for _ in range(_WARMING):
        first.span(question)
    time.sleep(settings.IDLE_SECONDS)
    before = memory(server.process.pid, "VmRSS")
    lines = [Line.to(server.url) for _ in range(settings.IDLE_CONNECTIONS)]
    for line in lines:
        line.span(question)
    time.sleep(settings.IDLE_SECONDS)
    after = memory(server.process.pid, "VmRSS")
    readable = select.poll()
    for line in lines:
        readable.register(line, select.POLLIN)
    if closed := readable.poll(0):
        raise SystemExit(f"the server closed {len(closed)} idle connections")
    for line in (first, *lines):
        line.close()
    return before, after


@contextmanager
def _hung(server: Server) -> Iterator[None]:
    """Stop the processes of the server's PostgreSQL meanwhile."""
    stopped = [each for each in descendants(server.process.pid) if is_postgres(each)]
    if not stopped:
        raise SystemExit("no process of PostgreSQL was found below the server")
    for process in stopped:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in stopped:
            os.kill(process, signal.SIGCONT)


def _await(server: Server, status: int) -> None:
    """Wait until health has that status."""
    line, end = Line.to(server.url), time.monotonic() + _PATIENCE
    while line.status(prepared(_HEALTH)) != status:
        if time.monotonic() > end:
            raise SystemExit(f"health was not {status} within {_PATIENCE:g} s")
        time.sleep(0.2)
    line.close()
