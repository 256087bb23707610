"""The audit events of a policy load: one for each row, but rows deleted with a resource have none (AUD-5)."""

from __future__ import annotations

from collections.abc import Iterator

from svc.model.events import NOTICE, Event, Subject
from svc.model.names import RoleName, is_role_kind
from svc.model.policy_loads import Changes, Rows

_WORDS = {"add": ("added", "add"), "change": ("changed", "change"), "remove": ("removed", "remove")}


def make_load_events(policy: RoleName, version: int, changes: Changes) -> Iterator[Event]:
    """Return the events of a load that made this version of the policy."""
    for operation, rows in (("add", changes.create), ("change", changes.update), ("remove", changes.delete)):
        did, does = _WORDS[operation]
        for subject, what in _describe_rows(rows, operation):
            texts = f"{did} {what}", f"{does} {what}"
            yield Event("policy", operation, subject, *texts, policy=(str(policy), version), severity=NOTICE)


def _describe_rows(rows: Rows, operation: str) -> Iterator[tuple[Subject, str]]:
    for resource, owner in rows.resources:
        if operation != "change" and is_role_kind(resource.split(":", 2)[1]):
            yield (("role", resource),), f"role {resource}"
        yield (("resource", resource), ("owner", owner)), f"resource {resource}"
    for role, member, ownership, admin in rows.memberships:
        if ownership:
            yield (("role", role), ("owner", member)), f"ownership of {member} in {role}"
        else:
            shown = (("role", role), ("member", member), *((("admin", "true"),) if admin else ()))
            yield shown, f"membership of {member} in {role}"
    for resource, privilege, role in rows.permissions:
        shown = (("resource", resource), ("role", role), ("privilege", privilege))
        yield shown, f"permission of {role} to {privilege} on {resource}"
    for resource, name, _ in rows.annotations:
        yield (("resource", resource), ("annotation", name)), f"annotation {name} on {resource}"
    for role, cidr in rows.restrictions:
        yield (("role", role), ("cidr", cidr)), f"restriction of {role} to {cidr}"
