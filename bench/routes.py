"""What each route costs beside its reference, and how large and how soon ready the server is. Needs ``wrk``."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import attrs

from bench import settings
from bench.load import Figures, demand_wrk, run, write_requests
from bench.processes import descendants, memory, share
from bench.report import Part
from bench.server import Server, say
from bench.world import BATCH, Provider, World, build

#: The reference that each route is measured against, and the ratio that it must reach, if one was promised.
REFERENCES: Final = {
    "JWT authenticate": ("limit", 0.45),
    "Cloud authenticate": ("limit", 0.45),
    "API key authenticate": ("limit", None),
    "secret read": ("bare", 0.15),
    "role members (10)": ("bare", None),
    "whoami": ("bare", None),
    "health": ("bare", 0.35),
}

#: The most that a batch of secrets may cost, in single reads.
BATCH_COST: Final = 12.0

#: The most CPU time that a refused login may take, beside one that succeeds.
REFUSAL_RATIO: Final = 1.0

IDLE_MEGABYTES: Final = 80
READY_SECONDS: Final = 3


def start_reference(name: str, *arguments: str) -> tuple[subprocess.Popen[str], str]:
    """The process of a reference, and its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.references", name, *arguments], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def _starts(folder: Path) -> tuple[float, float, float]:
    """The median seconds from start to ready, of the service and of the ``bare`` reference, started in turns; and the
    median share of a core that the machine gave to a process between them.
    """
    ours, theirs, shares = [], [], []
    for number in range(settings.RUNS):
        say(f"start: run {number + 1} of {settings.RUNS}")
        shares.append(share())
        server = Server.started(folder)
        ours.append(server.ready_seconds)
        server.stop()
        started = time.perf_counter()
        process, _ = start_reference("bare")
        theirs.append(time.perf_counter() - started)
        process.kill()
        process.wait()
    return statistics.median(ours), statistics.median(theirs), statistics.median(shares)


def _median(runs: list[Figures]) -> Figures:
    return Figures(
        **{field.name: statistics.median(getattr(r, field.name) for r in runs) for field in attrs.fields(Figures)}
    )


def measure(folder: Path) -> Part:
    """Measure every route.

    :raises SystemExit: there is no ``wrk``.
    """
    demand_wrk()
    report = _measured(folder)
    reached = all(not r["promised"] or r["ratio"] >= r["promised"] for r in report["routes"].values())
    reached &= all(r["cpu_ratio"] <= REFUSAL_RATIO for r in report["refusals"].values())
    reached &= report["batch"]["cost"] <= BATCH_COST
    modest = report["idle_megabytes"] < IDLE_MEGABYTES and report["ready_seconds"] < READY_SECONDS
    return Part(_table(report), reached and modest, report)


def _measured(folder: Path) -> dict[str, Any]:
    say("Making the provider, its tokens, and a server with its policy …")
    provider = Provider()
    tokens = provider.tokens()
    (folder / "provider.pem").write_bytes(provider.public_pem())
    server = Server.started(folder / "server")
    world = build(server, provider, tokens)
    server.stop()
    ready_seconds, reference_ready_seconds, ready_share = _starts(folder / "server")

    server = Server.started(folder / "server")
    time.sleep(settings.IDLE_SECONDS)
    report: dict[str, Any] = {
        "policy": {"hosts": settings.HOSTS, "seconds": world.policy_seconds},
        "ready_seconds": ready_seconds,
        "reference_ready_seconds": reference_ready_seconds,
        "ready_share": ready_share,
        "idle_megabytes": memory(server.process.pid, "VmRSS"),
        "routes": {},
    }
    references = {"bare": start_reference("bare"), "limit": start_reference("limit", str(folder / "provider.pem"))}
    for name, (reference, promised) in REFERENCES.items():
        requests = write_requests(folder, name.replace(" ", "-"), world.requests[name])
        against = write_requests(
            folder, f"{reference}-reference", world.requests["JWT authenticate" if reference == "limit" else name]
        )
        ours: list[Figures] = []
        theirs: list[Figures] = []
        for number in range(settings.RUNS):
            say(f"{name}: run {number + 1} of {settings.RUNS}")
            process, url = references[reference]
            theirs.append(run(url, against, [process.pid], []))
            database = descendants(server.process.pid)
            ours.append(run(server.url, requests, [server.process.pid], database))
        report["routes"][name] = {
            **attrs.asdict(_median(ours)),
            "reference": reference,
            "reference_rate": _median(theirs).rate,
            "reference_cpu": _median(theirs).server_cpu,
            "ratio": statistics.median(o.rate / t.rate for o, t in zip(ours, theirs, strict=True)),
            "promised": promised,
        }
    report["batch"] = _batch(folder, server, world)
    report["refusals"] = _refusals(folder, server, world)
    report["peak_megabytes"] = memory(server.process.pid, "VmHWM")
    server.stop()
    for process, _ in references.values():
        process.kill()
    return report


def _batch(folder: Path, server: Server, world: World) -> dict[str, Any]:
    """What a batch of secrets costs, in turns with a single read: ``cost`` is how many of these take as long."""
    single = write_requests(folder, "secret-read", world.requests["secret read"])
    batch = write_requests(folder, "batch", world.requests[BATCH])
    singles: list[Figures] = []
    batches: list[Figures] = []
    for number in range(settings.RUNS):
        say(f"{BATCH}: run {number + 1} of {settings.RUNS}")
        charged = [server.process.pid], descendants(server.process.pid)
        singles.append(run(server.url, single, *charged))
        batches.append(run(server.url, batch, *charged))
    return {
        **attrs.asdict(_median(batches)),
        "secrets_a_minute": _median(batches).rate * settings.VARIABLES * 60,
        "cost": statistics.median(s.rate / b.rate for s, b in zip(singles, batches, strict=True)),
        "cpu_cost": statistics.median(_cpu(b) / _cpu(s) for s, b in zip(singles, batches, strict=True)),
    }


def _refusals(folder: Path, server: Server, world: World) -> dict[str, Any]:
    """What a refused login costs, in turns with one that succeeds; ``cpu_ratio`` is of all CPU time, the database's too."""
    success = write_requests(folder, "JWT-authenticate", world.requests["JWT authenticate"])
    measured = {}
    for why, refused in world.refused.items():
        requests = write_requests(folder, f"refused-{why.replace(' ', '-')}", refused)
        ours: list[Figures] = []
        successes: list[Figures] = []
        for number in range(settings.RUNS):
            say(f"JWT refused, {why}: run {number + 1} of {settings.RUNS}")
            charged = [server.process.pid], descendants(server.process.pid)
            successes.append(run(server.url, success, *charged))
            ours.append(run(server.url, requests, *charged, refused=True))
        measured[why] = {
            **attrs.asdict(_median(ours)),
            "cpu_ratio": statistics.median(_cpu(o) / _cpu(s) for o, s in zip(ours, successes, strict=True)),
            "ratio": statistics.median(o.rate / s.rate for o, s in zip(ours, successes, strict=True)),
        }
    return measured


def _cpu(figures: Figures) -> float:
    return figures.server_cpu + figures.database_cpu


def _table(report: dict[str, Any]) -> str:
    batch = report["batch"]
    lines = [
        "| route | requests/s | p50 ms | p99 ms | server CPU µs | database CPU µs "
        "| reference | its requests/s | ratio | promised |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, r in report["routes"].items():
        promised = f"{r['promised']:.2f}" if r["promised"] else ""
        lines.append(
            f"| {name} | {r['rate']:.0f} | {r['p50']:.1f} | {r['p99']:.1f} | {r['server_cpu']:.0f} "
            f"| {r['database_cpu']:.0f} | `{r['reference']}` | {r['reference_rate']:.0f} "
            f"| **{r['ratio']:.2f}** | {promised} |"
        )
    lines += [
        "",
        "| JWT refused | requests/s | server CPU µs | database CPU µs | rate / success | CPU / success | promised |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {why} | {r['rate']:.0f} | {r['server_cpu']:.0f} | {r['database_cpu']:.0f} "
            f"| {r['ratio']:.2f} | **{r['cpu_ratio']:.2f}** | {REFUSAL_RATIO} |"
            for why, r in report["refusals"].items()
        ),
        "",
        f"A {BATCH} secrets costs as much as **{batch['cost']:.1f}** single reads (promised: {BATCH_COST:g}; "
        f"{batch['cpu_cost']:.1f} by CPU time): {batch['rate']:.0f} requests/s, p50 {batch['p50']:.1f} ms, "
        f"{batch['secrets_a_minute'] / 1e6:.2f} million secrets a minute from one server.",
        "",
        f"Idle server process: {report['idle_megabytes']:.0f} MB RSS (promised: under {IDLE_MEGABYTES}); "
        f"at its peak under load: {report['peak_megabytes']:.0f} MB.",
        f"`svc ready` after {report['ready_seconds']:.1f} s on an initialised embedded database "
        f"(promised: {READY_SECONDS}); the bare reference, after {report['reference_ready_seconds']:.1f} s; "
        f"meanwhile the machine gave a process {report['ready_share']:.0%} of a core.",
        f"A policy of {report['policy']['hosts']} hosts loaded in {report['policy']['seconds']:.1f} s.",
    ]
    return "\n".join(lines)
