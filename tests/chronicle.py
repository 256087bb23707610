"""A journal in memory, for tests of those who record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from twisted.internet.defer import Deferred
from zope.interface import implementer

from svc.model.errors import AuditUnavailable
from svc.model.events import AuditContext, Event, EventSource, IJournal, Outcome

SERVER: Final = EventSource("machine", "svc")


@implementer(IJournal)
class Chronicle:
    """Keeps what is recorded. ``away`` refuses everything; ``wait`` is what every taking waits for, once it is given."""

    server = SERVER

    def __init__(self) -> None:
        self.taken: list[tuple[AuditContext, Event, Outcome]] = []
        self.away = False
        self.wait: Deferred[None] | None = None

    def require_available(self) -> None:
        """See ``IJournal``."""
        if self.away:
            raise AuditUnavailable("it is away")

    async def record_events(self, origin: AuditContext, events: Sequence[Event], outcome: Outcome) -> None:
        """See ``IJournal``."""
        self.require_available()
        self.taken += [(origin, event, outcome) for event in events]
        if self.wait is not None:
            await self.wait

    def told(self) -> list[tuple[str, str, dict[str, str], str | None]]:
        """Message id, operation, subject and reason of all that was taken, which is forgotten."""
        taken, self.taken = self.taken, []
        return [(event.msgid, event.operation, dict(event.subject), outcome.reason) for _, event, outcome in taken]
