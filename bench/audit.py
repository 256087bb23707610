"""The cost of the audit: the service with its audit in a file, in turns with itself while it records nothing.

Needs ``wrk``.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Final

import attrs

from bench import settings
from bench.load import Figures, demand_wrk, run, write_requests
from bench.report import Figure, Part
from bench.server import Server, say
from bench.world import World

#: The routes that are compared, each of which is audited with one record, and how much of the throughput of each the audit
#: may cost, in percent.
COST_MOST: Final = {"secret read": 15, "JWT authenticate": 5, "API key authenticate": 15, "whoami": 10}


def measure(folder: Path) -> Part:
    """Measure what recording costs.

    :raises SystemExit: there is no ``wrk``.
    """
    demand_wrk()
    world = World.laid(folder / "server")
    server = Server.started(folder / "server", switched=True)
    runs: dict[str, list[tuple[Figures, Figures]]] = {name: [] for name in COST_MOST}
    try:
        for name in COST_MOST:
            requests = write_requests(folder, name.replace(" ", "-"), world.requests[name])
            for number in range(settings.AUDIT_RUNS):
                say(f"{name}, with the audit and without: run {number + 1} of {settings.AUDIT_RUNS}")
                first = _run(server, requests)
                server.switch()
                second = _run(server, requests)
                # The next run begins as this one ends, so that neither is always the later.
                runs[name].append((second, first) if number % 2 else (first, second))
    finally:
        server.stop()
    details = {
        name: [{"on": attrs.asdict(on), "off": attrs.asdict(off)} for on, off in pairs] for name, pairs in runs.items()
    }
    return Part.of([_figure(name, pairs) for name, pairs in runs.items()], {"audit": details})


def _run(server: Server, requests: Path) -> Figures:
    return run(server.url, requests, server.process.pid, seconds=settings.AUDIT_SECONDS)


def _figure(name: str, pairs: list[tuple[Figures, Figures]]) -> Figure:
    """By how much less the throughput is with the audit, in percent; the median of the runs' ratios."""
    cost = 100 * (1 - statistics.median(on.rate / off.rate for on, off in pairs))
    rates = [statistics.median(pair[place].rate for pair in pairs) for place in (0, 1)]
    cpu = [statistics.median(pair[place].server_cpu for pair in pairs) for place in (0, 1)]
    origin = f"{rates[0]:.0f} and {rates[1]:.0f} requests/s; {cpu[0]:.0f} and {cpu[1]:.0f} µs of the server's CPU"
    return Figure(f"throughput lost to the audit: {name}", max(cost, 0.0), "%", COST_MOST[name], origin)
