"""The cost of rotating the data key: how fast values are sealed again, and the effect on readers.

Needs ``wrk``.
"""

from __future__ import annotations

import base64
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import psycopg2

from bench import settings
from bench.load import Figures, Request, demand_wrk, run, write_requests
from bench.report import Figure, Part
from bench.server import ACCOUNT, Server, say
from svc.crypto.vault import Vault

#: The pace by default, and one that nothing holds back, in values a second.
USUAL: Final = 500
UNBOUND: Final = 100_000

_POLICY: Final = "- !variable { id: v%d }\n"


@attrs.frozen
class Rotation:
    """One rotation: how many values were sealed again, in how many seconds; how fast readers read before and meanwhile."""

    values: int
    seconds: float
    before: Figures
    meanwhile: Figures


def measure(folder: Path) -> Part:
    """Measure rotations at either pace.

    :raises SystemExit: there is no ``wrk``.
    """
    demand_wrk()
    usual, unbound = (_rotation(folder / f"server-{pace}", pace) for pace in (USUAL, UNBOUND))
    ratio, fastest = (each.meanwhile.cpu / each.before.cpu for each in (usual, unbound))
    figures = [
        Figure("sealed again by default", usual.values / usual.seconds, "values/s", USUAL, _origin(usual)),
        Figure("CPU of a read meanwhile, of that before", ratio, "times", origin=_read(usual)),
        Figure("sealed again at any pace", unbound.values / unbound.seconds, "values/s", origin=_origin(unbound)),
        Figure("CPU of a read meanwhile, of that before", fastest, "times", origin=_read(unbound)),
    ]
    return Part.of(figures, {"usual": attrs.asdict(usual), "unbound": attrs.asdict(unbound)})


def _rotation(place: Path, pace: int) -> Rotation:
    say(f"resealing: {settings.RESEALED} values, at most {pace} a second")
    with Server.running(place, f"--data-key-pace={pace}") as server:
        admin = server.admin()
        policy = "".join(_POLICY % number for number in range(settings.RESEALED_READ))
        admin.ask("POST", f"/policies/{ACCOUNT}/policy/root", policy.encode())
        _fill(server)
        paths = (f"/secrets/{ACCOUNT}/variable/v{number}" for number in range(settings.RESEALED_READ))
        requests = write_requests(place.parent, place.name, [Request("GET", path, admin.header) for path in paths])
        run(server.url, requests, server.process.pid)
        before = run(server.url, requests, server.process.pid)
        _command(server, "rotate")
        with psycopg2.connect(server.database) as connection:
            connection.autocommit = True
            cursor: Any = connection.cursor()
            _until(cursor, "SELECT FROM data_key_progress WHERE resealed > 0")
            begun, (first,) = time.monotonic(), _resealed(cursor)
            meanwhile = run(server.url, requests, server.process.pid, seconds=settings.RESEALED_SECONDS)
            _until(cursor, "SELECT FROM data_key_progress WHERE target = 'secrets.sealed' AND passed")
            seconds, (last,) = time.monotonic() - begun, _resealed(cursor)
            _until(cursor, "SELECT FROM data_keys WHERE retired_at IS NOT NULL")
        connection.close()
    return Rotation(last - first, seconds, before, meanwhile)


def _fill(server: Server) -> None:
    """Write values as the server does, each variable's the same number."""
    vault = Vault(base64.b64decode((server.folder / "data-key").read_text()))

    def rows() -> Iterator[tuple[str, int, bytes]]:
        for number in range(settings.RESEALED):
            name = f"{ACCOUNT}:variable:v{number % settings.RESEALED_READ}"
            yield name, number // settings.RESEALED_READ + 1, vault.seal(name, b"s" * 32)

    with psycopg2.connect(server.database) as connection:
        cursor: Any = connection.cursor()
        cursor.executemany("INSERT INTO secrets (resource_id, version, sealed) VALUES (%s, %s, %s)", rows())
    connection.close()


def _command(server: Server, name: str) -> None:
    command = [
        sys.executable,
        "-c",
        "from svc.cli.main import main; main()",
        "data-key",
        name,
        f"--data-dir={server.folder}",
    ]
    subprocess.run(command, check=True, capture_output=True)


def _until(cursor: Any, sql: str) -> None:
    while True:
        cursor.execute(sql)
        if cursor.rowcount:
            return
        time.sleep(0.05)


def _resealed(cursor: Any) -> tuple[int]:
    cursor.execute("SELECT sum(resealed)::bigint FROM data_key_progress")
    found: tuple[int] = cursor.fetchone()
    return found


def _origin(rotation: Rotation) -> str:
    return f"{rotation.values} values in {rotation.seconds:.1f} s, with readers beside"


def _read(rotation: Rotation) -> str:
    before, meanwhile = rotation.before, rotation.meanwhile
    return (
        f"{before.cpu:.0f} µs, {meanwhile.cpu:.0f} µs; {before.rate:.0f}/s, {meanwhile.rate:.0f}/s;"
        f" p99 {before.p99:.1f} ms, {meanwhile.p99:.1f} ms;"
        f" {settings.RESEALED_READ} variables with {settings.RESEALED // settings.RESEALED_READ} versions each"
    )
