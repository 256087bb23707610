"""The audit events of the newer interface: one for each request, and one for each row that it changed (NEWER-8)."""

from __future__ import annotations

from svc.model.events import NOTICE, Event
from svc.web.http.routing import AuditEventsFunction, Call
from svc.web.routes.audit_events import value_fetched


def entry_events(msgid: str, operation: str, did: str, does: str) -> AuditEventsFunction:
    """Return the function for requests about a branch or a group, whose id is in the path, or recorded as ``name``."""

    def events(call: Call) -> list[Event]:
        name = call.audit_facts.get("name") or call.values.get("identifier")
        kind = "policy" if msgid == "branch" else msgid
        subject = (("account", call.values["account"]),)
        if name is not None:
            subject = (("resource", f"{call.values['account']}:{kind}:{name}"),)
        words = f"{msgid}es" if name is None and msgid == "branch" else f"{msgid}s" if name is None else f"{msgid} {name}"
        own = Event(msgid, operation, subject, f"successfully {did} {words}", f"{does} {words}", severity=NOTICE)
        return [own, *call.audit_facts.get("rows", ())]

    return events


def membership_events(operation: str, did: str, does: str, preposition: str) -> AuditEventsFunction:
    """Return the function for requests that change a member of a group."""

    def events(call: Call) -> list[Event]:
        account = call.values["account"]
        role = f"{account}:group:{call.values['identifier']}"
        member = call.audit_facts.get("member", "-")
        subject, words = (("role", role), ("member", member)), f"{member} {preposition} {role}"
        own = Event("membership", operation, subject, f"successfully {did} {words}", f"{does} {words}", severity=NOTICE)
        return [own, *call.audit_facts.get("rows", ())]

    return events


def authenticator_events(operation: str, did: str, does: str) -> AuditEventsFunction:
    """Return the function for requests about authenticators; each value that is returned is an event, as reading it is."""

    def events(call: Call) -> list[Event]:
        values, facts = call.values, call.audit_facts
        kind, name = facts.get("kind") or values.get("kind"), facts.get("name") or values.get("name")
        service = None if kind is None else f"authn-{kind}" + ("" if name is None else f"/{name}")
        words = "authenticators" if service is None else f"the authenticator {service}"
        words += {None: "", True: " on", False: " off"}[facts.get("enabled")]
        subject = (("account", values["account"]), *((("authenticator", service),) if service is not None else ()))
        own = Event("authenticator", operation, subject, f"successfully {did} {words}", f"{does} {words}", severity=NOTICE)
        fetched = [value_fetched(full, None) for full in facts.get("fetched", ())]
        return [own, *facts.get("rows", ()), *fetched]

    return events


members_listed = entry_events("group", "members", "listed the members of", "list the members of")
member_added = membership_events("add", "added", "add", "to")
member_removed = membership_events("remove", "removed", "remove", "from")
authenticator_created = authenticator_events("create", "created", "create")
authenticators_listed = authenticator_events("list", "listed", "list")
authenticator_read = authenticator_events("get", "retrieved", "retrieve")
authenticator_switched = authenticator_events("update", "switched", "switch")
authenticator_deleted = authenticator_events("delete", "deleted", "delete")
