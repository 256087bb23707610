"""The context of a use case: caller, client and audit."""

from __future__ import annotations

from typing import Protocol

import attrs

from svc.model.events import EventBatch
from svc.model.query_results import Caller
from svc.model.text import escape_unprintable


class Recorder(Protocol):
    """A recorder of facts for the audit."""

    def add_audit_facts(self, **facts: object) -> None:
        """Record facts about the act, as soon as they are known; never a secret."""

    @property
    def event_batch(self) -> EventBatch | None:
        """The events as known so far, for the transaction of the change; ``None`` where nothing is recorded."""


@attrs.frozen
class NullRecorder:
    """A recorder that keeps nothing, for commands and tests."""

    def add_audit_facts(self, **facts: object) -> None:
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
