"""The cost of refused logins, and whether timing reveals existing roles, with and without the read cache. Needs ``wrk``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs

from bench import settings
from bench.load import demand_wrk, run, write_requests
from bench.report import Figure, Part
from bench.server import Server
from bench.stopwatch import Stopwatch
from bench.turns import Turns
from bench.world import World

#: The most CPU time that a refused login may take, server and database, beside one that succeeds.
REFUSAL_RATIO: Final = 1.0

#: Options of both servers: a client that guesses isn't slowed down.
UNTHROTTLED: Final = "--login-throttle=off"


def measure(folder: Path) -> Part:
    """Measure a server with the read cache, and one without.

    :raises SystemExit: there is no ``wrk``.
    """
    demand_wrk()
    world = World.laid(folder / "server")
    figures, details = list[Figure](), dict[str, Any]()
    ways = {"": (), ", nothing remembered": ("--memory-lag=0",)}
    for way, options in ways.items():
        # The stopwatch comes first, while the server knows nobody.
        with Server.running(folder / "server", UNTHROTTLED, *options) as server:
            stopwatch = Stopwatch.held(server, world)
            turns = _turns(folder, server, world)
        figures += [_figure(name + way, each) for name, each in turns.items()]
        figures += [each.figure(name + way) for name, each in stopwatch.items()]
        details[way or "remembered"] = {
            "turns": {name: attrs.asdict(each) for name, each in turns.items()},
            "stopwatch": {name: attrs.asdict(each) for name, each in stopwatch.items()},
        }
    return Part.of(figures, details)


def _turns(folder: Path, server: Server, world: World) -> dict[str, Turns]:
    """Each refusal in turns with a login that succeeds."""
    found, process = {}, server.process.pid
    for route, refusals in world.refused.items():
        accepted = partial(run, server.url, write_requests(folder, "accepted", world.requests[route]), process)
        accepted(seconds=settings.WARM_SECONDS)
        for why, requests in refusals.items():
            refused = partial(run, server.url, write_requests(folder, "refused", requests), process, refused=True)
            found[f"{route} refused, {why}"] = Turns.taken(f"{route} refused, {why}", refused, accepted)
    return found


def _figure(name: str, turns: Turns) -> Figure:
    ours, theirs = turns.median, turns.beside
    origin = f"{ours.cpu:.0f} µs, {theirs.cpu:.0f} µs if accepted; {ours.rate:.0f} and {theirs.rate:.0f} requests/s"
    return Figure(f"{name}: CPU, of one accepted", turns.ratio("cpu"), "times", REFUSAL_RATIO, origin)
