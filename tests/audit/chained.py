"""Files with the records of a server, made as it makes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from svc.audit.record import Chain, RecordFormatter
from svc.model.events import AuditContext, Event, EventSource, Outcome

KEY = bytes(range(32))


class Ticking:
    """A wall clock that goes on by a second each time it is looked at."""

    def __init__(self, now: float = 1_700_000_000.25) -> None:
        self.now = now

    def seconds(self) -> float:
        """See ``WallClock``."""
        self.now += 1
        return self.now


def fetched(name: str) -> Event:
    """A value was read."""
    return Event("fetch", "fetch", (("resource", name),), f"fetched {name}", f"fetch {name}")


class Writer:
    """What a server does: records, and their chain."""

    def __init__(
        self,
        hostname: str = "vault1",
        saved: Path | None = None,
        audit: Path | None = None,
        wall: Ticking | None = None,
    ) -> None:
        self.records = RecordFormatter(EventSource(hostname, "svc"), wall or Ticking())
        self.chain = Chain(KEY, saved=saved)
        self.chain.resume_chain(audit)

    def lines(
        self,
        count: int,
        user: str = "acme:host:web",
        reason: str | None = None,
        events: Sequence[Event] | None = None,
        request: str = "r-1",
    ) -> list[bytes]:
        """So many records, as lines with their ends."""
        made: list[bytes] = []
        for number in range(count):
            context = AuditContext(EventSource("-", "svc"), user, "192.0.2.7", request)
            made += self.records.format_events(context, events or [fetched(f"acme:variable:v{number}")], Outcome(reason))
        stamped = self.chain.stamp_records(made)
        self.chain.advance_end(len(stamped))
        return [line + b"\n" for line in stamped]
