"""The cost of loading a large policy document, and its effect on others."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs

from bench import settings
from bench.client import Client
from bench.floor import Scratch, document, reading_span
from bench.load import Request
from bench.loop import Blocking, Watched
from bench.probe import Probe, Waits, lengths
from bench.processes import Sampling, sizes
from bench.report import Figure, Part
from bench.server import ACCOUNT, Server, say

#: How many times the floor the first load may take, and the same document once more.
FIRST_MOST: Final = 2.5
AGAIN_MOST: Final = 3

#: How large the server and its children but PostgreSQL may become, in megabytes.
MEGABYTES_MOST: Final = 250

#: How many times their 99th percentile before a load readers may wait during it.
READERS_MOST: Final = 3

_SECRET: Final = "read-meanwhile"


@attrs.frozen
class Run:
    """The document three times into one new policy, and its floor: how many seconds it took, and the largest sizes in
    megabytes.
    """

    reading: float
    copying: float
    first: float
    posted_again: float
    put_again: float
    megabytes: float
    database_megabytes: float

    @property
    def floor(self) -> float:
        """The least time of any load, in seconds."""
        return self.reading + self.copying


@attrs.frozen
class Readers:
    """The waits of a reader of one secret, before a load and during it."""

    before: Waits
    during: Waits


@attrs.frozen
class Large:
    """The large document at a server of its own, whose event loop is watched."""

    server: Server
    admin: Client
    path: Path
    text: bytes

    @classmethod
    def at(cls, server: Server, folder: Path) -> Large:
        """Make a secret to be read, and the document."""
        admin, text = server.admin(), document().encode()
        path = folder / "large.yml"
        path.write_bytes(text)
        admin.ask("POST", f"/policies/{ACCOUNT}/policy/root", f"- !variable {_SECRET}\n".encode())
        admin.ask("POST", f"/secrets/{ACCOUNT}/variable/{_SECRET}", b"s" * 32)
        return cls(server, admin, path, text)

    def policy(self, name: str) -> str:
        """The path of a new, empty policy."""
        self.admin.ask("POST", f"/policies/{ACCOUNT}/policy/root", f"- !policy {name}\n".encode())
        return f"/policies/{ACCOUNT}/policy/{name}"

    def run(self, name: str, scratch: Scratch) -> Run:
        """Load it three times with nothing beside it, and measure the floor."""
        policy = self.policy(name)
        floor = [reading_span(self.path), scratch.copying_span(name)]
        with Sampling(self.server.process.pid) as sampling:
            loads = [self.admin.span(method, policy, self.text) for method in ("POST", "POST", "PUT")]
        reading, copying, first, posted, put = lengths([*floor, *loads])
        return Run(reading, copying, first, posted, put, sampling.peak, sampling.database_peak)

    def readers(self, name: str) -> Readers:
        """Load it beside a reader."""
        policy = self.policy(name)
        request = Request("GET", f"/secrets/{ACCOUNT}/variable/{_SECRET}", self.admin.header)
        with Probe(self.server.url, request, settings.READ_SECONDS, "due") as before:
            time.sleep(settings.QUIET_SECONDS)
        with Probe(self.server.url, request, settings.READ_SECONDS, "due") as during:
            self.admin.ask("POST", policy, self.text)
        return Readers(*(Waits.of(probe.spans) for probe in (before, during)))

    def blocking(self, name: str) -> dict[str, Blocking]:
        """Rehearse it, load it, and read it back, with an eye on the loop."""
        policy = self.policy(name)
        actions: dict[str, Callable[[], object]] = {
            "dry run of the document": lambda: self.admin.ask("POST", f"{policy}?dryRun=true", self.text),
            "load of the document": lambda: self.admin.ask("POST", policy, self.text),
            "effective policy of the document": lambda: self.admin.ask("GET", policy),
        }
        loop = Watched(self.server.url, self.server.loop_record)
        return {action: Blocking.by(loop, ask) for action, ask in actions.items()}


def measure(folder: Path) -> Part:
    """Load the large document again and again."""
    say("policy: a server …")
    server = Server.started(folder / "policy", watched=True)
    try:
        return _measured(Large.at(server, folder))
    finally:
        server.stop()


def _measured(large: Large) -> Part:
    scratch = Scratch.beside(large.server.database)
    idle, _ = sizes(large.server.process.pid)
    runs, readers, blockings = list[Run](), list[Readers](), list[dict[str, Blocking]]()
    for number in range(settings.LARGE_RUNS):
        say(f"policy: run {number + 1} of {settings.LARGE_RUNS}")
        runs.append(large.run(f"alone-{number}", scratch))
        readers.append(large.readers(f"read-{number}"))
        blockings.append(large.blocking(f"watched-{number}"))
    details = {
        "document_bytes": len(large.text),
        "idle_megabytes": idle,
        "runs": [attrs.asdict(run) for run in runs],
        "readers": [attrs.asdict(reader) for reader in readers],
        "loop": [{name: attrs.asdict(blocking) for name, blocking in run.items()} for run in blockings],
    }
    return Part.of([*_costs(runs), *_sizes(runs), *_readers(readers), *_blocked(blockings)], details)


def _costs(runs: list[Run]) -> list[Figure]:
    floor = f"{_seconds(runs, 'reading')} s to read YAML, {_seconds(runs, 'copying')} s to copy rows"
    loads = {
        "first": ("first load", FIRST_MOST),
        "posted_again": ("the same, POST", AGAIN_MOST),
        "put_again": ("the same, PUT", AGAIN_MOST),
    }
    return [
        Figure(
            f"{name}, of its floor",
            statistics.median(getattr(run, load) / run.floor for run in runs),
            "times",
            most,
            f"{_seconds(runs, load)} s; the floor: {floor}",
        )
        for load, (name, most) in loads.items()
    ]


def _sizes(runs: list[Run]) -> list[Figure]:
    ours, database = (statistics.median(getattr(run, of) for run in runs) for of in ("megabytes", "database_megabytes"))
    return [Figure("largest RSS, children counted", ours, "MB", MEGABYTES_MOST, f"PostgreSQL beside it: {database:.0f} MB")]


def _readers(readers: list[Readers]) -> list[Figure]:
    ratio = statistics.median(reader.during.p99 / reader.before.p99 for reader in readers)
    before, during = (statistics.median(getattr(reader, when).p99 for reader in readers) for when in ("before", "during"))
    origin = f"{during:.1f} ms, and {before:.1f} ms before"
    return [Figure("readers' p99 during a load", ratio, "times", READERS_MOST, origin)]


def _blocked(runs: list[dict[str, Blocking]]) -> list[Figure]:
    return [Blocking.figure(name, [run[name] for run in runs]) for name in runs[0]]


def _seconds(runs: list[Run], of: str) -> str:
    return f"{statistics.median(getattr(run, of) for run in runs):.2f}"
