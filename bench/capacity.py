"""The capacity that a machine needs: bytes of the database for each host, variable and version, of the audit for each
record, and of memory for each process. Needs no ``wrk``.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

import psycopg2

from bench import settings
from bench.processes import descendants, is_postgres, memory
from bench.report import Figure, Part
from bench.server import ACCOUNT, Server, say

#: How many of each are made: hosts, of which each is in a layer, variables, and versions of so many bytes.
HOSTS: Final = 10_000
VARIABLES: Final = 10_000
VERSIONS: Final = 1_000
VALUE: Final = 100


def measure(folder: Path) -> Part:
    """Fill a server, and see what grows by how much."""
    with Server.running(folder / "server", "--processes=1") as server:
        figures = list(_filled(server, Path(f"{folder / 'server'}.audit")))
    with Server.running(folder / "several", "--processes=2") as server:
        figures += _processes(server)
    return Part.of(figures, {})


def _filled(server: Server, audit: Path) -> list[Figure]:
    admin = server.admin()
    figures = [Figure("RSS of an idle server of one process", _rss(server)[0], "MB")]
    empty = size = _size(server)
    figures.append(Figure("an empty database", empty / 2**20, "MB"))

    def grown(name: str, count: int) -> None:
        nonlocal size
        before, size = size, _size(server)
        figures.append(Figure(f"database, for each {name}", (size - before) / count, "bytes", origin=f"{count}"))

    say("capacity: hosts, variables, versions …")
    admin.ask("POST", f"/policies/{ACCOUNT}/policy/root", b"- !policy hosts\n- !policy variables\n")
    size = _size(server)
    hosts = "- !layer all\n" + "".join(
        f"- !host h{number}\n- !grant\n  role: !layer all\n  member: !host h{number}\n" for number in range(HOSTS)
    )
    admin.ask("POST", f"/policies/{ACCOUNT}/policy/hosts", hosts.encode())
    grown("host in a layer, with its API key", HOSTS)
    variables = "".join(f"- !variable v{number}\n" for number in range(VARIABLES))
    admin.ask("POST", f"/policies/{ACCOUNT}/policy/variables", variables.encode())
    grown("variable without a value", VARIABLES)
    for number in range(VERSIONS):
        admin.ask("POST", f"/secrets/{ACCOUNT}/variable/variables%2Fv{number}", bytes(VALUE))
    grown(f"value of {VALUE} bytes, with the event of the change", VERSIONS)
    ((events, kept),) = _asked(server, "SELECT pg_total_relation_size('audit_events'), count(*) FROM audit_events")
    figures.append(Figure("database, of these for each event of a change", events / kept, "bytes", origin=f"{kept}"))
    before = audit.stat().st_size
    for number in range(VERSIONS):
        admin.ask("GET", f"/secrets/{ACCOUNT}/variable/variables%2Fv{number}")
    figures.append(Figure("audit file, for each read", (audit.stat().st_size - before) / VERSIONS, "bytes"))
    before = audit.stat().st_size
    for number in range(VERSIONS):
        admin.ask("POST", f"/secrets/{ACCOUNT}/variable/variables%2Fv{number}", bytes(VALUE))
    figures.append(Figure("audit file, for each change", (audit.stat().st_size - before) / VERSIONS, "bytes"))
    figures.append(Figure("audit file rotated, by gzip", 100 * _packed(audit), "percent"))
    figures.append(Figure("RSS of that server after all this", _rss(server)[0], "MB"))
    return figures


def _packed(audit: Path) -> float:
    packed = subprocess.run(["gzip", "--stdout", str(audit)], capture_output=True, check=True).stdout
    return len(packed) / audit.stat().st_size


def _processes(server: Server) -> list[Figure]:
    supervisor, *workers = _rss(server)
    sessions = _asked(server, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'svc'")[0][0]
    return [
        Figure("RSS of the process that supervises", supervisor, "MB"),
        Figure("RSS of a process that serves, or stands by", sum(workers) / len(workers), "MB", origin=f"{len(workers)}"),
        Figure("database sessions of a server of two", float(sessions), ""),
    ]


def _rss(server: Server) -> list[float]:
    """The RSS of the server's process, then of those below it that aren't PostgreSQL's, in MB."""
    below = [process for process in descendants(server.process.pid) if not is_postgres(process)]
    return [memory(process, "VmRSS") for process in (server.process.pid, *below)]


def _asked(server: Server, sql: str) -> list[tuple[int, ...]]:
    connection = psycopg2.connect(server.database, application_name=settings.__name__)
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute(sql)
        rows: list[tuple[int, ...]] = cursor.fetchall() if cursor.description else []
    connection.close()
    return rows


def _size(server: Server) -> int:
    _asked(server, "VACUUM")
    return _asked(server, "SELECT pg_database_size(current_database())")[0][0]
