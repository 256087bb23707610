"""The read cache: its hit rate, the cost of others' changes, how soon it is filled, and its size.

Needs ``wrk``.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote

import attrs

from bench import settings
from bench.churn import Churn, Others
from bench.client import Client
from bench.counters import BYTES, ENTRIES, REQUESTS, Counting, Load, read
from bench.load import Figures, Request, demand_wrk, run, write_requests
from bench.processes import memory
from bench.report import Figure, Part
from bench.server import ACCOUNT, Server, say
from bench.world import API_KEY, BATCH, JWT, MEMBERS_PART, SECRET, WHOAMI, World

#: The loads that are counted, and those that go on while others change.
LOADS: Final = (JWT, API_KEY, SECRET, BATCH, MEMBERS_PART, WHOAMI)
CHURNED: Final = (JWT, SECRET)

#: After how many seconds a server that was started again answers at 0.9 of its steady rate.
RESTART_MOST: Final = 5
STEADY: Final = 0.9

#: How large the server may be with its read cache full, in megabytes.
FULL_MOST: Final = 150

#: Options of a server that exposes its counters, and of one without the read cache.
COUNTED: Final = ("--metrics-listen=tcp:0:interface=127.0.0.1",)
FORGETFUL: Final = ("--memory-lag=0",)


@attrs.frozen
class Restart:
    """The seconds until a server answers at ``STEADY`` of its steady rate, and that rate, in requests a second."""

    seconds: float
    steady: float

    @classmethod
    def run(cls, folder: Path, requests: Path) -> Self:
        """Start it, and ask from when it is ready; the end of the first second in which the rate is reached counts."""
        with Server.running(folder, *COUNTED) as server:
            ready = time.monotonic()
            with Counting(server.counters) as counting:
                run(server.url, requests, server.process.pid, seconds=settings.RESTART_SECONDS)
        # The last reading is from after the load.
        taken, window = [(at, counters.get(REQUESTS, 0)) for at, counters in counting.read[:-1]], settings.COUNTS_A_SECOND
        rates = [
            (at, (count - before) / (at - since))
            for (since, before), (at, count) in zip(taken, taken[window:], strict=False)
        ]
        steady = statistics.median(rate for _, rate in rates[len(rates) // 2 :])
        return cls(next(at for at, rate in rates if rate >= STEADY * steady) - ready, steady)


@attrs.frozen
class Full:
    """A server from which many hosts read many secrets: its size before and after, and at most, in megabytes; and the size
    of its read cache by its own count.
    """

    before: float
    after: float
    peak: float
    remembered: float
    entries: float

    @classmethod
    def run(cls, folder: Path, server: Server, world: World) -> Self:
        """Read until the cache grows no more."""
        say(f"memory: {settings.FILL_HOSTS} hosts that may read {settings.FILL_VARIABLES} secrets each")
        before, process = memory(server.process.pid, "VmRSS"), server.process.pid
        requests = write_requests(folder, "fill", _reads(server, world))
        for _ in range(settings.FILL_RUNS):
            run(server.url, requests, process, seconds=settings.FILL_SECONDS)
            counters = read(server.counters)
            remembered = counters[BYTES] / 1e6
            say(f"memory: {remembered:.1f} MB are remembered, and the server has {memory(process, 'VmRSS'):.0f} MB")
            if not remembered < settings.FILL_MEGABYTES:
                break
        after, peak = memory(process, "VmRSS"), memory(process, "VmHWM")
        return cls(before, after, peak, remembered, counters[ENTRIES])


def measure(folder: Path) -> Part:
    """Measure a server with the read cache, and one without.

    :raises SystemExit: there is no ``wrk``.
    """
    demand_wrk()
    place = folder / "server"
    world = World.laid(place)
    requests = {name: write_requests(folder, f"load-{number}", world.requests[name]) for number, name in enumerate(LOADS)}
    some = write_requests(folder, "some", world.requests[JWT][: settings.RESTART_ROLES])
    with Server.running(place, *COUNTED) as server:
        loads = _loads(server, requests)
        others, churns = Others.introduced(server.admin(world.api_key)), dict[str, list[Churn]]()
        for name in CHURNED:
            say(f"memory: {name} while others change, {settings.RUNS} runs")
            churns[name] = [Churn.run(server, requests[name], others) for _ in range(settings.RUNS)]
    say(f"memory: {settings.RUNS} restarts")
    restarts = [Restart.run(place, some) for _ in range(settings.RUNS)]
    with Server.running(place, *COUNTED) as server:
        full = Full.run(folder, server, world)
    with Server.running(place, *COUNTED, *FORGETFUL) as server:
        forgetful = _loads(server, requests)
    figures = [_load(name, runs, forgetful[name]) for name, runs in loads.items()]
    figures += [Churn.figure(name, runs) for name, runs in churns.items()]
    details = {
        "loads": {name: [attrs.asdict(run) for run in runs] for name, runs in loads.items()},
        "forgetful": {name: [attrs.asdict(run) for run in runs] for name, runs in forgetful.items()},
        "churn": {name: [attrs.asdict(run) for run in runs] for name, runs in churns.items()},
        "restarts": [attrs.asdict(restart) for restart in restarts],
        "full": attrs.asdict(full),
    }
    return Part.of([*figures, _restart(restarts), _full(full)], details)


def _loads(server: Server, requests: Mapping[str, Path]) -> dict[str, list[Load]]:
    """Run each load again and again."""
    found: dict[str, list[Load]] = {}
    for name, path in requests.items():
        say(f"memory: {name}, {settings.RUNS} runs")
        run(server.url, path, server.process.pid, seconds=settings.WARM_SECONDS)
        found[name] = [Load.run(server, path) for _ in range(settings.RUNS)]
    return found


def _load(name: str, runs: Sequence[Load], forgetful: Sequence[Load]) -> Figure:
    """The cost of a request, relative to one to a server without the read cache."""
    ours = Figures.median([load.figures for load in runs]).cpu
    without = Figures.median([load.figures for load in forgetful]).cpu
    origin = f"{ours:.0f} µs, {without:.0f} µs without; {Load.told(runs)}"
    return Figure(f"{name}: CPU, of that without memory", ours / without, "times", origin=origin)


def _restart(restarts: Sequence[Restart]) -> Figure:
    seconds, steady = (statistics.median(getattr(each, of) for each in restarts) for of in ("seconds", "steady"))
    name = f"after a restart, under load of {settings.RESTART_ROLES} roles: until {STEADY:g} of the steady rate"
    return Figure(name, seconds, "s", RESTART_MOST, f"{steady:.0f} requests/s")


def _full(full: Full) -> Figure:
    origin = (
        f"{full.before:.0f} MB before, {full.peak:.0f} MB at most; {full.remembered:.1f} MB are remembered in"
        f" {full.entries:.0f} entries"
    )
    return Figure("RSS with the memory full", full.after, "MB", FULL_MOST, origin)


def _reads(server: Server, world: World) -> list[Request]:
    """The reads of many hosts: each of them every secret, by itself and in a batch: single answers may fill only part of the
    cache.
    """
    admin, names = server.admin(world.api_key), [f"common/secret-{number}" for number in range(settings.FILL_VARIABLES)]
    listed = ", ".join(f"!variable {name}" for name in names)
    policy = "".join(f"- !variable {name}\n" for name in names)
    policy += f"- !permit {{role: !group apps/all, privileges: [read, execute], resources: [{listed}]}}\n"
    admin.ask("POST", f"/policies/{ACCOUNT}/policy/root", policy.encode())
    paths = [f"/secrets/{ACCOUNT}/variable/{quote(name, safe='')}" for name in names]
    for path in paths:
        admin.ask("POST", path, b"s" * 32)
    ids = [quote(f"{ACCOUNT}:variable:{name}", safe="") for name in names]
    some = range(0, len(ids), settings.FILL_BATCH)
    paths += [f"/secrets?variable_ids={','.join(ids[first : first + settings.FILL_BATCH])}" for first in some]
    requests = []
    for login in world.requests[JWT][: settings.FILL_HOSTS]:
        host = Client(server.url).logged_in(login.path, login.body.encode())
        requests += [Request("GET", path, host.header) for path in paths]
    return requests
