"""How long it takes to search and to verify the audit files of a server: a million records, half of them compressed.

The searches over HTTP are those of a server that does nothing else. Records count from the making of their account on: so
the server makes the account first, and then the files are put beside its own as if they had been rotated.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

from bench import settings
from bench.loop import Blocking, Watched
from bench.report import Figure, Part
from bench.server import ACCOUNT, Server, say
from svc.audit.record import Chain, RecordFormatter
from svc.audit.record_files import RecordQuery, search_files
from svc.audit.record_search import RecordsQuestion, SearchTask
from svc.audit.record_searcher import make_command
from svc.audit.verification import verify_files
from svc.model.clocks import MachineClock
from svc.model.events import AuditContext, Event, EventSource, Outcome
from svc.model.pickled_messages import encode_message

#: The most seconds of one core that searching a million records may take (AUD-40), and verifying them.
SEARCH_MOST: Final = 10.0
VERIFY_MOST: Final = 20.0

#: The most seconds that a search over HTTP may take on an idle server, milliseconds that it may block the loop, and
#: megabytes that its process may have (AUD-62).
HTTP_MOST: Final = 5.0
BLOCKED_MOST: Final = 20.0
MEMORY_MOST: Final = 100.0

_KEY: Final = bytes(32)

#: The searches: without a filter; by fields that most records match; by fields that few match.
_QUERIES: Final = {
    "no filter": RecordQuery(),
    "who, what and outcome": RecordQuery(user=f"{ACCOUNT}:host:web", what="fetch", outcome="success"),
    "a variable": RecordQuery(what="variable:db7/password"),
    "a request": RecordQuery(request="absent"),
}

#: The searches over HTTP: without a filter, by fields that most records match, and by one that few match.
_QUESTIONS: Final = {
    "no filter": "limit=100",
    "who, what and outcome": f"limit=100&user={ACCOUNT}:host:web&what=fetch&outcome=success",
    "a variable": "limit=100&what=variable:db7/password",
}


def measure(folder: Path) -> Part:
    """Measure a search by each sort of filter, and the verification."""
    say(f"writing {settings.SEARCHED_RECORDS} records")
    paths = _written([folder / "audit.log.1.gz", folder / "audit.log"])
    size = sum(path.stat().st_size for path in paths) / 1e6
    figures, details = [], dict[str, float]()
    for name, query in _QUERIES.items():
        say(f"searching by {name}")
        begun = time.process_time()
        found = search_files(paths, query, 100)
        details[name] = time.process_time() - begun
        origin = f"{found.count} records found in {size:.0f} MB on disk"
        figures.append(Figure(f"search of a million records: {name}", details[name], "s", SEARCH_MOST, origin))
    say("verifying")
    begun = time.process_time()
    verdict = verify_files(paths, _KEY)
    details["verify"] = time.process_time() - begun
    assert verdict.is_intact
    figures.append(
        Figure("verification of a million records", details["verify"], "s", VERIFY_MOST, f"{size:.0f} MB on disk")
    )
    served, more = _measure_server(folder)
    figures += [*_measure_process(paths[-1], details), *served]
    return Part.of(figures, {"audit-search": details, "loop": more})


def _measure_process(path: Path, details: dict[str, float]) -> Sequence[Figure]:
    """Measure the search process by itself: its CPU time and its memory."""
    figures = []
    for name, query in _QUERIES.items():
        say(f"searching in a process by {name}")
        task = SearchTask(str(path.absolute()), RecordsQuestion(query, ACCOUNT, 100), 60)
        with subprocess.Popen(make_command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={}) as process:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(b"".join(encode_message(task)))
            process.stdin.flush()
            size = len(process.stdout.read())
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        cpu, memory = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000
        details[f"process: {name}"] = cpu
        details[f"memory: {name}"] = memory
        figures.append(Figure(f"search process: {name}", cpu, "s of CPU", HTTP_MOST, f"its page has {size} bytes"))
        figures.append(Figure(f"memory of the search process: {name}", memory, "MB", MEMORY_MOST))
    return figures


def _measure_server(folder: Path) -> tuple[Sequence[Figure], dict[str, list[dict[str, object]]]]:
    """Measure searches over HTTP: how long one takes, and how long it blocks the loop."""
    server = Server.started(folder / "server", watched=True)
    try:
        say(f"writing {settings.SEARCHED_RECORDS} records beside those of a server")
        _written([Path(f"{server.folder}.audit.2.gz"), Path(f"{server.folder}.audit.1")])
        admin, loop = server.admin(), Watched(server.url, server.loop_record)
        figures, details = [], dict[str, list[dict[str, object]]]()
        for name, query in _QUESTIONS.items():
            say(f"searching over HTTP by {name}")
            spans: list[float] = []

            def ask(path: str = f"/audit/records?{query}", spans: list[float] = spans) -> None:
                begin, end = admin.span("GET", path)
                spans.append(end - begin)

            runs = [Blocking.by(loop, ask) for _ in range(settings.LOOP_RUNS)]
            details[name] = [attrs.asdict(run) for run in runs]
            figures.append(Figure(f"search over HTTP: {name}", min(spans), "s", HTTP_MOST, f"the best of {len(spans)}"))
            figures.append(attrs.evolve(Blocking.figure(f"search over HTTP: {name}", runs), most=BLOCKED_MOST))
        return figures, details
    finally:
        server.stop()


def _written(paths: Sequence[Path]) -> Sequence[Path]:
    """Write the files: the older half, which is compressed, and the newer."""
    records, chain = RecordFormatter(EventSource("vault1", "svc"), MachineClock()), Chain(_KEY)
    chain.resume_chain(None)
    context = AuditContext(
        EventSource("vault1", "svc"), f"{ACCOUNT}:host:web", "192.0.2.7", "0123456789abcdef0123456789abcdef"
    )
    names = [f"{ACCOUNT}:variable:db{number}/password" for number in range(1000)]
    events = [
        Event("fetch", "fetch", (("resource", name), ("version", "3")), f"fetched {name}", f"fetch {name}") for name in names
    ]
    half = settings.SEARCHED_RECORDS // 2
    for path in paths:
        with gzip.open(path, "wb", 6) if path.suffix == ".gz" else path.open("wb") as file:
            for _ in range(half // len(events)):
                lines = chain.stamp_records(records.format_events(context, events, Outcome()))
                chain.advance_end(len(lines))
                file.write(b"\n".join([*lines, b""]))
    return paths
