"""The counters of a server, read from its ``--metrics-listen``."""

from __future__ import annotations

import statistics
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import attrs

from bench import settings
from bench.load import Figures, run
from bench.meanwhile import Meanwhile
from bench.server import Server

#: Of the read cache: hits, misses, entries that changes dropped, invalidation polls; its size; and the seconds since it was
#: last confirmed.
HITS: Final = "svc_memory_hits_total"
MISSES: Final = "svc_memory_misses_total"
DROPPED: Final = "svc_memory_dropped_total"
LOOKS: Final = "svc_memory_looks_total"
BYTES: Final = "svc_memory_bytes"
ENTRIES: Final = "svc_memory_entries"
AGE: Final = "svc_memory_age_seconds"

#: Answered requests.
REQUESTS: Final = "svc_requests_total"

_SECONDS: Final = 10


def read(url: str) -> dict[str, float]:
    """Each counter by its name: the sum of its series, of ages the highest."""
    found: dict[str, list[float]] = defaultdict(list)
    with urllib.request.urlopen(url, timeout=_SECONDS) as answer:
        for line in answer.read().decode().splitlines():
            if not line.startswith("#"):
                series, value = line.rsplit(" ", 1)
                found[series.partition("{")[0]].append(float(value))
    return {name: max(values) if name == AGE else sum(values) for name, values in found.items()}


class Counting(Meanwhile):
    """Reads the counters ``COUNTS_A_SECOND`` times a second in a ``with`` block: ``read`` has when, and what they were."""

    def __init__(self, url: str) -> None:
        super().__init__([self._count])
        self.read: list[tuple[float, dict[str, float]]] = []
        self._url = url

    def __enter__(self) -> Self:
        self._take()
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, traceback)
        self._take()

    def grown(self, name: str) -> float:
        """By how much a counter has grown; one that the server hasn't counts as zero."""
        (_, first), (_, last) = self.read[0], self.read[-1]
        return last.get(name, 0.0) - first.get(name, 0.0)

    def highest(self, name: str) -> float:
        """The highest that it was, but for the first reading and the last, when there are no requests."""
        return max(counters.get(name, 0.0) for _, counters in self.read[1:-1])

    def _count(self, ended: threading.Event) -> None:
        while not ended.wait(1 / settings.COUNTS_A_SECOND):
            self._take()

    def _take(self) -> None:
        self.read.append((time.monotonic(), read(self._url)))


@attrs.frozen
class Load:
    """One load: its cost, by how much each counter grew, and the seconds since the oldest confirmation."""

    figures: Figures
    counts: Mapping[str, float]
    age: float

    @classmethod
    def run(cls, server: Server, requests: Path) -> Self:
        """Run it, and read the counters meanwhile."""
        with Counting(server.counters) as counting:
            figures = run(server.url, requests, server.process.pid)
        return cls(figures, {name: counting.grown(name) for name in (HITS, MISSES, DROPPED, LOOKS)}, counting.highest(AGE))

    @classmethod
    def told(cls, loads: Sequence[Self]) -> str:
        """The medians of what was counted for a request, and the oldest confirmation of all."""
        ours = Figures.median([load.figures for load in loads])
        count = {name: statistics.median(load.counts[name] for load in loads) / ours.requests for name in loads[0].counts}
        return (
            f"a request: {count[HITS]:.3f} hits, {count[MISSES]:.3f} misses, {count[DROPPED]:.3f} dropped;"
            f" {count[LOOKS] * ours.rate:.1f} looks/s, the oldest confirmation {max(load.age for load in loads):.2f} s ago"
        )
