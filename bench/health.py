"""What it costs to ask for a server's health, also while its database hangs, and to hold connections that ask for nothing.

Needs ``wrk``. The database hangs because PostgreSQL's processes are stopped (SIGSTOP): sessions stay, and nothing answers.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs

from bench import settings
from bench.load import Figures, Request, demand_wrk, run, write_requests
from bench.probe import Line, prepared
from bench.processes import descendants, memory
from bench.report import Figure, Part
from bench.routes import start_reference
from bench.server import Server, say

#: The least rate, in that of ``bare``; the same when the database hangs.
BARE_LEAST: Final = 0.35

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

        def turns(name: str, *, refused: bool) -> list[Turn]:
            """Runs of ``bare`` and of the service, alternating."""
            found = []
            for number in range(settings.RUNS):
                say(f"{name}: run {number + 1} of {settings.RUNS}")
                theirs, charged = run(url, requests, [bare.pid], []), descendants(server.process.pid)
                found.append(Turn(theirs, run(server.url, requests, [server.process.pid], charged, refused=refused)))
            return found

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
        _figure("health", well),
        _figure("health while the database hangs", hung),
        Figure(f"RSS grown by {settings.IDLE_CONNECTIONS} idle connections", after - before, "MB", MEGABYTES_MOST, size),
    ]
    details = {name: [attrs.asdict(turn) for turn in found] for name, found in (("well", well), ("hung", hung))}
    return Part.of(figures, {**details, "megabytes": [before, after]})


@attrs.frozen
class Turn:
    """One run of ``bare``, and one of the service after it."""

    bare: Figures
    service: Figures


def _figure(name: str, turns: Sequence[Turn]) -> Figure:
    ratio = statistics.median(turn.service.rate / turn.bare.rate for turn in turns)
    ours, bare, p99 = (
        statistics.median(values)
        for values in zip(*((turn.service.rate, turn.bare.rate, turn.service.p99) for turn in turns), strict=True)
    )
    origin = f"{ours:.0f} requests/s, p99 {p99:.1f} ms; `bare`: {bare:.0f} requests/s"
    return Figure(f"{name}, of `bare`", ratio, "times", least=BARE_LEAST, origin=origin)


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
    stopped = [each for each in descendants(server.process.pid) if _is_postgres(each)]
    if not stopped:
        raise SystemExit("no process of PostgreSQL was found below the server")
    for process in stopped:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in stopped:
            os.kill(process, signal.SIGCONT)


def _is_postgres(process: int) -> bool:
    return Path(f"/proc/{process}/comm").read_text().strip() == "postgres"


def _await(server: Server, status: int) -> None:
    """Wait until health has that status."""
    line, end = Line.to(server.url), time.monotonic() + _PATIENCE
    while line.status(prepared(_HEALTH)) != status:
        if time.monotonic() > end:
            raise SystemExit(f"health was not {status} within {_PATIENCE:g} s")
        time.sleep(0.2)
    line.close()
