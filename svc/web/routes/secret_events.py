"""The audit events of requests for many secrets (SEC-42, SEC-46)."""

from __future__ import annotations

from collections.abc import Sequence

from svc.model.events import Event
from svc.web.http.routing import Call
from svc.web.routes.audit_events import authenticated, value_fetched


def batch_fetched(call: Call) -> list[Event]:
    """Values of several resources were read: an event for each, and one for the batch; only this for one that was known."""
    return batch_events(call, None) or [value_fetched("-", None)]


def authenticated_and_fetched(call: Call) -> Sequence[Event]:
    """A role logged in, and read secrets: an event for each, as soon as it was admitted."""
    login = authenticated(call)
    return [*login, *batch_events(call, login[0].user)] if "resources" in call.audit_facts else login


def secrets_watched(call: Call) -> list[Event]:
    """Secrets were watched from now on: an event for each."""
    return [
        Event("watch", "watch", (("resource", name),), f"began to watch {name}", f"watch {name}")
        for name in call.audit_facts.get("resources") or ("-",)
    ]


def batch_events(call: Call, user: str | None) -> list[Event]:
    """Return the events of a batch that ``user`` reads, the caller if that is ``None``."""
    facts = call.audit_facts
    refused, batch, count = facts.get("refused", {}), facts.get("batch"), str(facts.get("count"))
    events = [value_fetched(name, None, user, refused.get(name)) for name in facts.get("resources", ())]
    if batch is not None:
        subject, words = (("batch", batch), ("count", count)), f"the batch {batch} of {count} secrets"
        if facts.get("known"):
            return [Event("fetch", "confirm", subject, f"confirmed {words}", f"confirm {words}", user)]
        events.append(Event("fetch", "batch", subject, f"fetched {words}", f"fetch {words}", user))
    return events
