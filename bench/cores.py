"""The gain of a second process of the server on two cores, which the load shares with it. Needs ``wrk``."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

from bench import settings
from bench.load import Figures, demand_wrk, run, write_requests
from bench.report import Figure, Part
from bench.server import Server, say
from bench.world import JWT, SECRET, World

#: The least rate of two processes, in that of one.
TWO_LEAST: Final = 1.6

ROUTES: Final = (JWT, SECRET)


def measure(folder: Path) -> Part:
    """Start a server of one process and one of two, in turns.

    :raises SystemExit: there is no ``wrk``.
    """
    demand_wrk()
    place = folder / "server"
    world = World.laid(place)
    requests = {name: write_requests(folder, name.replace(" ", "-"), world.requests[name]) for name in ROUTES}
    ones, twos = list[dict[str, Figures]](), list[dict[str, Figures]]()
    for number in range(settings.RUNS):
        say(f"processes: run {number + 1} of {settings.RUNS}")
        ones.append(_run(place, requests))
        twos.append(_run(place, requests, "--processes=2"))
    figures = [_figure(name, [one[name] for one in ones], [two[name] for two in twos]) for name in ROUTES]
    runs = {"one": ones, "two": twos}
    return Part.of(
        figures, {of: [{n: attrs.asdict(f) for n, f in each.items()} for each in found] for of, found in runs.items()}
    )


def _run(place: Path, requests: dict[str, Path], *options: str) -> dict[str, Figures]:
    """Each route at a server of its own, which has answered the same requests for a while."""
    found = {}
    with Server.running(place, *options) as server:
        for name, path in requests.items():
            # Each process fills its own read cache, and which of them gets a request is chance.
            for seconds in (settings.WARM_SECONDS * (3 if options else 1), settings.SECONDS):
                process, connections = server.process.pid, settings.PROCESSES_CONNECTIONS
                found[name] = run(server.url, path, process, seconds=seconds, connections=connections)
    return found


def _figure(name: str, ones: Sequence[Figures], twos: Sequence[Figures]) -> Figure:
    ratio = statistics.median(two.rate / one.rate for one, two in zip(ones, twos, strict=True))
    origin = "; ".join(_told(Figures.median(runs)) for runs in (twos, ones))
    return Figure(f"{name}: two processes, of one", ratio, "times", least=TWO_LEAST, origin=origin)


def _told(figures: Figures) -> str:
    load = figures.load_cpu * figures.rate / 1e6
    cost = f"{figures.rate:.0f} requests/s of {figures.cpu:.0f} µs, p99 {figures.p99:.1f} ms"
    return f"{cost}, beside a load that takes {load:.2f} of a core"
