"""The context of a use case: caller, client and audit; and ``inspect``, the privilege of auditors (INS-1 to INS-4)."""

from __future__ import annotations

from typing import Protocol, Unpack

import attrs

from svc.model.authorization import INSPECT, require_ownership
from svc.model.events import AuditFacts, EventBatch
from svc.model.names import ResourceName, root_policy
from svc.model.query_results import Caller
from svc.model.text import escape_unprintable
from svc.storage.roles import RoleStore


class Recorder(Protocol):
    """A recorder of facts for the audit."""

    def add_audit_facts(self, **facts: Unpack[AuditFacts]) -> None:
        """Record facts about the act, as soon as they are known; never a secret."""

    @property
    def event_batch(self) -> EventBatch | None:
        """The events as known so far, for the transaction of the change; ``None`` where nothing is recorded."""


@attrs.frozen
class NullRecorder:
    """A recorder that keeps nothing, for commands and tests."""

    def add_audit_facts(self, **facts: Unpack[AuditFacts]) -> None:
        """Keep nothing."""

    @property
    def event_batch(self) -> EventBatch | None:
        """Return ``None``."""
        return None


@attrs.frozen
class Invocation:
    """The caller, the client's address, as a trusted proxy or the socket reports it, and the recorder of the audit."""

    caller: Caller
    client_ip: str
    recorder: Recorder


def printable_facts(**facts: object) -> dict[str, str]:
    """Return facts in printable form for the log, since clients choose names."""
    return {name: escape_unprintable(str(fact)) for name, fact in facts.items()}


async def can_read_all(roles: RoleStore, caller: Caller) -> bool:
    """Return whether a caller may look at all of its account: it owns the root policy, or inspects it."""
    facts = await roles.access_facts(caller, root_policy(caller.role.account).resource)
    return facts.owns or INSPECT in facts.privileges


async def require_inspection(roles: RoleStore, caller: Caller, name: ResourceName) -> None:
    """Return if a caller owns a resource or inspects it.

    :raises Forbidden: the caller only sees it, or the caller's own role is gone.
    :raises NotFound: it doesn't exist, or the caller may not see it.
    """
    facts = await roles.access_facts(caller, name)
    if facts.exists and (facts.inspects or (facts.privileges and await roles.can_inspect(caller.role, name))):
        return
    require_ownership(facts, name)
