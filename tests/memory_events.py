"""The events of ``tests.memory``, as they are listed."""

from __future__ import annotations

import math

from svc.model.events import AuditContext, Event, EventsQuery, StoredEvent
from svc.storage.events import EventStore
from tests.memory import MemoryStore

SUBJECTS = ("role", "resource", "member")


class MemoryEvents(MemoryStore, EventStore):
    """A fake of ``EventStore``; every event was at ``Memory.made_at``."""

    async def list_events(self, query: EventsQuery) -> list[StoredEvent]:
        """See ``EventStore``."""
        self.memory.ask()
        since = self.memory.since.get(query.account)
        stored = [self._stored(number, *found) for number, found in sorted(self.memory.events.items(), reverse=True)]
        policy, version = query.load or ("", 0)
        if since is None or (query.load is not None and version not in self.memory.versions.get(policy, ())):
            return []
        matching = [event for event in stored if event.number > since and _matches(event, query)]
        return matching[query.offset : query.offset + query.limit]

    async def list_events_after(self, number: int, last: int, origin: AuditContext, limit: int) -> list[tuple[int, Event]]:
        """See ``EventStore``."""
        self.memory.ask()
        found = [
            (each, event._replace(user=event.user or origin.user))
            for each, (recorded, event) in sorted(self.memory.events.items())
            if number < each <= last and recorded == origin
        ]
        return found[:limit]

    async def account_began(self, account: str) -> float | None:
        """See ``EventStore``."""
        self.memory.ask()
        return self.memory.made_at if account in self.memory.since else None

    async def purge_before(self, before: float) -> int:
        """See ``EventStore``."""
        self.memory.write()
        old = list(self.memory.events) if self.memory.made_at < before else []
        for number in old:
            del self.memory.events[number]
        return len(old)

    def _stored(self, number: int, origin: AuditContext, event: Event) -> StoredEvent:
        user = event.user or origin.user or "-"
        auth = {"user": user, "authenticator": event.authenticator, "service": event.service}
        data = {
            "subject": dict(event.subject),
            "auth": {key: value for key, value in auth.items() if value is not None},
            "client": {"ip": origin.client_ip},
            "action": {"result": "success", "operation": event.operation},
        }
        if event.policy is not None:
            data["policy"] = {"id": event.policy[0], "version": str(event.policy[1])}
        return StoredEvent(
            number,
            self.memory.made_at,
            event.facility,
            event.severity,
            origin.server.hostname,
            origin.server.appname,
            origin.request_id,
            event.msgid,
            data,
            f"{user} {event.did}",
        )


def _matches(event: StoredEvent, query: EventsQuery) -> bool:
    user = event.data["auth"]["user"]
    if (user if ":" in user else event.data["subject"]["resource"]).partition(":")[0] != query.account:
        return False
    if query.about is not None and query.about not in [event.data["subject"].get(name) for name in SUBJECTS]:
        return False
    for name in ("facility", "severity", "hostname", "appname", "procid", "msgid"):
        if getattr(query, name) not in {None, getattr(event, name)}:
            return False
    if query.what not in {None, event.msgid, event.data["action"]["operation"]}:
        return False
    if query.load is not None and event.data.get("policy") != {"id": query.load[0], "version": str(query.load[1])}:
        return False
    if not (query.since or 0) <= event.at < (query.until or math.inf):
        return False
    return all(event.data.get(name, {}).get(key) == value for name, key, value in query.data)
