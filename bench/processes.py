"""The kernel's figures of processes: their CPU time and their memory. Sizes are in megabytes."""

from __future__ import annotations

import os
import re
import threading
import time
from pathlib import Path
from typing import Final

from bench import settings
from bench.meanwhile import Meanwhile

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGES: Final = 1024 * 1024 / os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(server: int) -> tuple[float, float]:
    """User and system time so far of a server with its children, those that have ended counted: of all that are not
    PostgreSQL, and of PostgreSQL.
    """
    ours = database = 0
    for process in (server, *descendants(server)):
        try:
            # Its own, and those of children that it has waited for.
            ticks = sum(map(int, Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:15]))
            if is_postgres(process):
                database += ticks
            else:
                ours += ticks
        except (FileNotFoundError, ProcessLookupError):
            continue
    return ours / _TICKS, database / _TICKS


def is_postgres(process: int) -> bool:
    """Whether it is one of PostgreSQL's."""
    return Path(f"/proc/{process}/comm").read_text().strip() == "postgres"


def share() -> float:
    """The share of one core that this process gets while it asks for all of it: less than 1 on a machine that is busy, or
    whose host is.

    A loop that only reads the clock sees no time pass between two readings; when it does, somebody else had the core.
    """
    began = last = time.perf_counter()
    lost = 0.0
    while last - began < settings.SHARE_SECONDS:
        now = time.perf_counter()
        if now - last > settings.SHARE_GAP_SECONDS:
            lost += now - last
        last = now
    return 1 - lost / (last - began)


def descendants(process: int) -> list[int]:
    """The process's children, and theirs; one that has ended has none."""
    children: list[int] = []
    try:
        for task in Path(f"/proc/{process}/task").iterdir():
            children += map(int, (task / "children").read_text().split())
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [found for child in children for found in (child, *descendants(child))]


def memory(process: int, field: str) -> float:
    """A size of the process: ``VmRSS`` now, ``VmHWM`` at its peak."""
    status = Path(f"/proc/{process}/status").read_text()
    found = re.search(rf"{field}:\s+(\d+) kB", status)
    assert found
    return int(found[1]) / 1024


def sizes(server: int) -> tuple[float, float]:
    """The resident memory now: of the server with all its children that are not PostgreSQL, and of PostgreSQL.

    Shared memory counts for each process.
    """
    ours = database = 0.0
    for process in (server, *descendants(server)):
        try:
            resident = int(Path(f"/proc/{process}/statm").read_text().split()[1]) / _PAGES
            if is_postgres(process):
                database += resident
            else:
                ours += resident
        except (FileNotFoundError, ProcessLookupError):
            continue
    return ours, database


class Sampling(Meanwhile):
    """The largest :func:`sizes` during its ``with`` block, read every ``SAMPLE_SECONDS``: ``peak`` and ``database_peak``."""

    def __init__(self, server: int) -> None:
        super().__init__([self._sample])
        self._server = server
        self.peak, self.database_peak = sizes(server)

    def _sample(self, ended: threading.Event) -> None:
        while not ended.wait(settings.SAMPLE_SECONDS):
            ours, database = sizes(self._server)
            self.peak, self.database_peak = max(self.peak, ours), max(self.database_peak, database)
