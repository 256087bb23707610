"""The gain of followers for the rate of reads, with each server pinned to a core. Needs ``wrk``, and two cores.

Two cores can't run three servers beside each other. So there are two figures. *At once*: a primary and a follower, each on a
core of its own, which it shares with its load, beside one server that shares a core with its load in the same way. *In
turns*: each of the three servers has one core, its load the other, while the other two are there and idle; their rates
together, beside that of a single server. The second is the rate of three machines, less the time that followers spend on the
changes of a primary.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from bench import settings
from bench.client import Client
from bench.load import demand_wrk, run, write_requests
from bench.report import Figure, Part
from bench.server import Server, say
from bench.world import JWT, SECRET, World
from svc.storage.embedded import cluster
from svc.storage.embedded.directory import DataDirectory

ROUTES: Final = (JWT, SECRET)
FOLLOWERS: Final = 2

#: Seconds until a follower must have what the primary wrote.
PATIENCE: Final = 60


def measure(folder: Path) -> Part:
    """Start one server, then a primary and two followers, in turns.

    :raises SystemExit: there is no ``wrk``, or one core only.
    """
    demand_wrk()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise SystemExit("followers need two cores: one for a server, one for its load")
    first, second = cores[:2]
    primary = folder / "server"
    world = World.laid(primary)
    requests = {name: write_requests(folder, name.replace(" ", "-"), world.requests[name]) for name in ROUTES}
    places = [primary, *(_copied(primary, folder / f"follower-{number}") for number in range(1, FOLLOWERS + 1))]
    at_once, in_turns = {name: list[float]() for name in ROUTES}, {name: list[float]() for name in ROUTES}
    alone = {name: list[float]() for name in ROUTES}
    for number in range(settings.FOLLOWERS_RUNS):
        say(f"followers: run {number + 1} of {settings.FOLLOWERS_RUNS}")
        with _running(places[:1], [first]) as servers:
            for name, path in requests.items():
                apart, beside = _rate(servers[0], path, second), _rate(servers[0], path, first)
                alone[name].append(apart)
                in_turns[name].append(apart)
                at_once[name].append(beside)
        with _running(places, [first] * len(places)) as servers:
            for name, path in requests.items():
                in_turns[name][-1] = sum(_rate(each, path, second) for each in servers) / in_turns[name][-1]
        with _running(places[:2], [first, second]) as servers, ThreadPoolExecutor(2) as both:
            for name, path in requests.items():
                rates = both.map(lambda server, core, path=path: _rate(server, path, core), servers, (first, second))
                at_once[name][-1] = sum(rates) / at_once[name][-1]
    figures = [
        Figure(f"{name}: {what}, of one", statistics.median(found[name]), "times", origin=_told(alone[name]))
        for what, found in (
            ("a primary and a follower at once", at_once),
            ("a primary and two followers in turns", in_turns),
        )
        for name in ROUTES
    ]
    return Part.of(figures, {"at once": at_once, "in turns": in_turns, "alone": alone})


def _copied(primary: Path, place: Path) -> Path:
    """A data directory with a copy of the primary's stopped database, which is to be its standby, and its data key."""
    place.mkdir(0o711)
    shutil.copy2(primary / "data-key", place / "data-key")
    data, origin = DataDirectory(place).cluster, DataDirectory(primary).cluster
    shutil.copytree(origin, data)
    owner = origin.stat()
    with (data / "postgresql.auto.conf").open("a") as file:
        address = f"host={origin} port={cluster.SETTINGS['port']} user={cluster.SUPERUSER} application_name={place.name}"
        file.write(f"primary_conninfo = '{address}'\n")
    (data / "standby.signal").touch()
    for found in (data, *data.rglob("*")):
        os.chown(found, owner.st_uid, owner.st_gid)
    return place


@contextmanager
def _running(places: Sequence[Path], cores: Sequence[int]) -> Iterator[list[Server]]:
    """Start a server at each place, with its database, on these cores: child processes inherit them."""
    with ExitStack() as stack:
        servers = []
        for place, core in zip(places, cores, strict=True):
            with _pinned(core):
                servers.append(stack.enter_context(Server.running(place)))
            if place == places[0]:
                _admit_standbys(DataDirectory(place).cluster)
        for server in servers[1:]:
            _await_stream(server)
        yield servers


def _admit_standbys(data: Path) -> None:
    """Have a PostgreSQL that runs let standbys connect, which that of a single server doesn't: until its next start."""
    with (data / "pg_hba.conf").open("a") as file:
        file.write("local replication all trust\n")
    os.kill(int((data / "postmaster.pid").read_text().split()[0]), signal.SIGHUP)


def _await_stream(server: Server) -> None:
    """Return when the primary's heartbeats arrive."""
    for _ in range(PATIENCE):
        status = json.loads(Client(server.url).ask("GET", "/health"))["database"]["replication_status"]
        if status["lag_seconds"] is not None and status["lag_seconds"] < settings.FOLLOWERS_LAG:
            return
        time.sleep(1)
    raise SystemExit(f"{server.folder.name} does not follow the primary: see {server.folder}/postgres.log")


def _rate(server: Server, requests: Path, core: int) -> float:
    """Requests a second, after a while of the same, with the load on this core."""
    with _pinned(core):
        run(server.url, requests, server.process.pid)
        return run(server.url, requests, server.process.pid).rate


@contextmanager
def _pinned(core: int) -> Iterator[None]:
    """Have this thread, and what it starts, use one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _told(rates: Sequence[float]) -> str:
    return f"one server alone, on a core of its own: {statistics.median(rates):.0f} requests/s"
