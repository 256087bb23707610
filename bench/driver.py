"""A read of one row through the service's sessions, beside the same read through txpostgres's own pool and cursors.

``python -m bench.driver DSN`` asks in turns, in one process, and prints the times of every round as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any, Final

import psycopg2
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import react
from txpostgres.txpostgres import ConnectionPool

from bench import settings
from bench.report import Figure, Part
from bench.server import ACCOUNT, Server, say
from svc.storage.driver.database import Database
from svc.storage.driver.statements import Statement

_READ: Final = "SELECT role_id FROM roles WHERE role_id = {}"
_STATEMENT: Final = Statement("bench_read", _READ.format("$1"))
_ROLE: Final = f"{ACCOUNT}:user:admin"

#: A read of one row.
Read = Callable[[], Awaitable[Any]]
#: Seconds that a round took by the clock, and of the processor.
Round = tuple[float, float]


def measure(folder: Path) -> Part:
    """Measure the three ways side by side."""
    say("driver: one row, through three ways to PostgreSQL")
    server = Server.started(folder / "server")
    try:
        command = [sys.executable, "-m", "bench.driver", server.database]
        rounds = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    finally:
        server.stop()
    figures = [
        _figure(noun, index, ways, other, connections)
        for connections, ways in rounds.items()
        for other in ways
        for index, noun in enumerate(("time", "processor time"))
        if other != "fetch"
    ]
    return Part.of(figures, {"rounds": rounds})


def _figure(noun: str, index: int, ways: dict[str, list[Round]], other: str, connections: str) -> Figure:
    """Return the median ratio of a fetch to another way, of the ``index``-th time of each round."""
    ratio = median(ours[index] / theirs[index] for ours, theirs in zip(ways["fetch"], ways[other], strict=True))
    micro = [median(each[index] for each in ways[way]) / settings.DRIVER_READS * 1e6 for way in ("fetch", other)]
    name = f"{noun} of a fetch to that of {other}, {connections} in flight"
    promised = settings.DRIVER_RATIO if (noun, other) == ("processor time", "runQuery") else None
    return Figure(name, ratio, "times", promised, f"{micro[0]:.0f} µs, {micro[1]:.0f} µs")


async def _round(read: Read, in_flight: int) -> Round:
    """Read the row ``DRIVER_READS`` times, so many at a time."""

    async def ask() -> None:
        for _ in range(settings.DRIVER_READS // in_flight):
            rows = await read()
            assert rows == [(_ROLE,)], rows

    began, worked = time.perf_counter(), time.process_time()
    await gatherResults([Deferred.fromCoroutine(ask()) for _ in range(in_flight)])
    return time.perf_counter() - began, time.process_time() - worked


async def _rounds(reactor: Any, dsn: str, connections: int) -> dict[str, list[Round]]:
    database = Database(reactor, dsn, pool_size=connections, writers=1, statement_timeout=5.0, first_wait=10.0)
    database.startService()
    await database.wait_until_connected()
    pool = ConnectionPool(None, min=connections, **psycopg2.extensions.parse_dsn(dsn))
    await pool.start()
    for connection in pool.connections:
        await connection.runOperation(_STATEMENT.preparation)
    ways: dict[str, Read] = {
        "fetch": lambda: database.fetch(_STATEMENT, _ROLE),
        "runQuery": lambda: pool.runQuery(_READ.format("%s"), (_ROLE,)),
        "runQuery, prepared": lambda: pool.runQuery(_STATEMENT.execution, (_ROLE,)),
    }
    if connections == 1:
        (alone,) = pool.connections
        ways["runQuery, prepared, without its pool"] = lambda: alone.runQuery(_STATEMENT.execution, (_ROLE,))
    found: dict[str, list[Round]] = {way: [] for way in ways}
    for number in range(settings.DRIVER_ROUNDS + 1):
        for way, read in ways.items():
            result = await _round(read, connections)
            if number:  # the first is for warming up
                found[way].append(result)
    pool.close()
    await database.stopService()
    return found


async def _main(reactor: Any, dsn: str) -> None:
    rounds = {str(connections): await _rounds(reactor, dsn, connections) for connections in settings.DRIVER_CONNECTIONS}
    print(json.dumps(rounds))


if __name__ == "__main__":
    react(lambda reactor: Deferred.fromCoroutine(_main(reactor, sys.argv[1])))
