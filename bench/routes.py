"""The cost of each route beside its reference, and how large and how soon ready the server is. Needs ``wrk``."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import attrs

from bench import settings
from bench.load import Figures, demand_wrk, run, write_requests
from bench.processes import memory, share
from bench.report import Figure, Part
from bench.server import Server, say
from bench.turns import Turns
from bench.world import API_KEY, BATCH, CLOUD, HEALTH, JWT, MEMBERS_ALL, MEMBERS_PART, SECRET, WHOAMI, World


@attrs.frozen
class Promise:
    """The reference that a route is measured against, the least rate in that of the reference, and the most CPU time of a
    request in microseconds: of server and database, of the database, of the server.
    """

    reference: str
    ratio: float | None = None
    cpu: float | None = None
    database_cpu: float | None = None
    server_cpu: float | None = None

    def figures(self, route: str, turns: Turns) -> Iterator[Figure]:
        """The promised figures, as measured."""
        if self.ratio is not None:
            yield Figure(f"{route}, of `{self.reference}`", turns.ratio(), "times", least=self.ratio)
        names = {
            "cpu": "CPU of server and database",
            "database_cpu": "CPU of the database",
            "server_cpu": "CPU of the server",
        }
        for name, text in names.items():
            if (most := getattr(self, name)) is not None:
                yield Figure(f"{route}, {text}", getattr(turns.median, name), "µs", most)


#: The promises for each route.
PROMISES: Final = {
    JWT: Promise("limit", 1.0, cpu=350, database_cpu=10),
    CLOUD: Promise("limit", 0.45),
    API_KEY: Promise("limit", 1.3),
    SECRET: Promise("bare", 0.6, cpu=180),
    MEMBERS_PART: Promise("bare", 0.4),
    MEMBERS_ALL: Promise("bare", server_cpu=1500),
    WHOAMI: Promise("bare", 0.8),
    HEALTH: Promise("bare", 1.2),
}

#: The most that a batch of secrets may cost, in single reads; the millions of secrets a minute that batches return.
BATCH_COST: Final = 12.0
MILLIONS_A_MINUTE: Final = 6.0

IDLE_MEGABYTES: Final = 75
READY_SECONDS: Final = 3


def start_reference(name: str, *arguments: str) -> tuple[subprocess.Popen[str], str]:
    """The process of a reference, and its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.references", name, *arguments], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def measure(folder: Path) -> Part:
    """Measure every route.

    :raises SystemExit: there is no ``wrk``.
    """
    demand_wrk()
    world = World.laid(folder / "server")
    (folder / "provider.pem").write_bytes(world.provider.public_pem())
    start = _start(folder / "server")
    server = Server.started(folder / "server")
    time.sleep(settings.IDLE_SECONDS)
    idle = memory(server.process.pid, "VmRSS")
    references = {"bare": start_reference("bare"), "limit": start_reference("limit", str(folder / "provider.pem"))}
    routes, first = dict[str, Turns](), dict[str, Figures]()
    for name, promise in PROMISES.items():
        reference, url = references[promise.reference]
        requests = write_requests(folder, "ours", world.requests[name])
        against = write_requests(folder, "theirs", world.requests[JWT if promise.reference == "limit" else name])
        say(f"{name}: every host for the first time")
        first[name] = run(server.url, requests, server.process.pid, seconds=settings.WARM_SECONDS)
        routes[name] = Turns.taken(
            name, partial(run, server.url, requests, server.process.pid), partial(run, url, against, reference.pid)
        )
    batch, single = (write_requests(folder, name, world.requests[name]) for name in (BATCH, SECRET))
    routes[BATCH] = Turns.taken(
        BATCH, partial(run, server.url, batch, server.process.pid), partial(run, server.url, single, server.process.pid)
    )
    peak = memory(server.process.pid, "VmHWM")
    server.stop()
    for reference, _ in references.values():
        reference.kill()
    figures = [figure for name, promise in PROMISES.items() for figure in promise.figures(name, routes[name])]
    figures += [Figure(f"{name}, the first of each host: CPU", first[name].cpu, "µs") for name in (JWT, CLOUD, API_KEY)]
    size = Figure("RSS of the idle server", idle, "MB", IDLE_MEGABYTES, f"{peak:.0f} MB at its peak under load")
    part = Part.of(
        [*figures, *_batch(routes[BATCH]), size, start], {"routes": {n: attrs.asdict(r) for n, r in routes.items()}}
    )
    policy = f"A policy of {settings.HOSTS} hosts loaded in {world.policy_seconds:.1f} s."
    return attrs.evolve(part, table=f"{_table(routes)}\n\n{part.table}\n\n{policy}")


def _start(folder: Path) -> Figure:
    """The median seconds from start to ready, of the service and of the ``bare`` reference, started in turns; and the
    median share of a core that the machine gave to a process between them.
    """
    ours, theirs, shares = [], [], []
    for number in range(settings.RUNS):
        say(f"start: run {number + 1} of {settings.RUNS}")
        shares.append(share())
        server = Server.started(folder)
        ours.append(server.ready_seconds)
        server.stop()
        started = time.perf_counter()
        process, _ = start_reference("bare")
        theirs.append(time.perf_counter() - started)
        process.kill()
        process.wait()
    given = f"a process was given {statistics.median(shares):.0%} of a core"
    origin = f"on an initialised embedded database; `bare` after {statistics.median(theirs):.1f} s; {given}"
    return Figure("`svc ready` after", statistics.median(ours), "s", READY_SECONDS, origin)


def _batch(turns: Turns) -> list[Figure]:
    """The cost of a batch of secrets: how many single reads take as long."""
    millions = turns.median.rate * settings.VARIABLES * 60 / 1e6
    cost, cpu = (1 / turns.ratio(), turns.ratio("cpu"))
    return [
        Figure(f"{BATCH}, of a single read", cost, "times", BATCH_COST, f"{cpu:.1f} times by CPU time"),
        Figure(f"{BATCH}, secrets a minute", millions, "million", least=MILLIONS_A_MINUTE),
    ]


def _table(routes: dict[str, Turns]) -> str:
    lines = [
        "| route | requests/s | p50 ms | p99 ms | server CPU µs | database CPU µs "
        "| in turns with | its requests/s | its CPU µs | ratio |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, turns in routes.items():
        ours, theirs = turns.median, turns.beside
        beside = f"`{PROMISES[name].reference}`" if name in PROMISES else SECRET
        lines.append(
            f"| {name} | {ours.rate:.0f} | {ours.p50:.1f} | {ours.p99:.1f} | {ours.server_cpu:.0f} "
            f"| {ours.database_cpu:.0f} | {beside} | {theirs.rate:.0f} | {theirs.cpu:.0f} | **{turns.ratio():.2f}** |"
        )
    return "\n".join(lines)
