"""How long it takes to search and to verify the audit files of a server: a million records, half of them compressed."""

from __future__ import annotations

import gzip
import time
from pathlib import Path
from typing import Final

from bench import settings
from bench.report import Figure, Part
from bench.server import say
from svc.audit.record import Chain, RecordFormatter
from svc.audit.record_files import RecordQuery, search_files
from svc.audit.verification import verify_files
from svc.model.clocks import MachineClock
from svc.model.events import AuditContext, Event, EventSource, Outcome

#: The most seconds of one core that searching a million records may take (AUD-40), and verifying them.
SEARCH_MOST: Final = 10.0
VERIFY_MOST: Final = 20.0

_KEY: Final = bytes(32)

#: The searches: without a filter; by fields that most records match; by fields that few match.
_QUERIES: Final = {
    "no filter": RecordQuery(),
    "who, what and outcome": RecordQuery(user="acme:host:web", what="fetch", outcome="success"),
    "a variable": RecordQuery(what="variable:db7/password"),
    "a request": RecordQuery(request="absent"),
}


def measure(folder: Path) -> Part:
    """Measure a search by each sort of filter, and the verification."""
    say(f"writing {settings.SEARCHED_RECORDS} records")
    paths = _written(folder)
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
    return Part.of(figures, {"audit-search": details})


def _written(folder: Path) -> list[Path]:
    """Write the files: the older half compressed."""
    records, chain = RecordFormatter(EventSource("vault1", "svc"), MachineClock()), Chain(_KEY)
    chain.resume_chain(None)
    context = AuditContext(EventSource("vault1", "svc"), "acme:host:web", "192.0.2.7", "0123456789abcdef0123456789abcdef")
    names = [f"acme:variable:db{number}/password" for number in range(1000)]
    events = [
        Event("fetch", "fetch", (("resource", name), ("version", "3")), f"fetched {name}", f"fetch {name}") for name in names
    ]
    paths = [folder / "audit.log.1.gz", folder / "audit.log"]
    half = settings.SEARCHED_RECORDS // 2
    for path in paths:
        with gzip.open(path, "wb", 6) if path.suffix == ".gz" else path.open("wb") as file:
            for _ in range(half // len(events)):
                lines = chain.stamp_records(records.format_events(context, events, Outcome()))
                chain.advance_end(len(lines))
                file.write(b"\n".join([*lines, b""]))
    return paths
