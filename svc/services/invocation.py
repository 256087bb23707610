"""Who asks for a use case, from where, and what records it."""

from __future__ import annotations

from typing import Protocol

import attrs

from svc.model.events import EventBatch
from svc.model.query_results import Caller


class Recorder(Protocol):
    """What a use case tells the audit."""

    def tell(self, **facts: object) -> None:
        """Record facts of what is done, as soon as they are known; never a secret."""

    @property
    def trail(self) -> EventBatch | None:
        """The events as known so far, for the transaction of the change; ``None`` where nothing is recorded."""


@attrs.frozen
class Unrecorded:
    """A recorder that keeps nothing, for commands and tests."""

    def tell(self, **facts: object) -> None:
        """Keep nothing."""

    @property
    def trail(self) -> EventBatch | None:
        """Return ``None``."""
        return None


@attrs.frozen
class Invocation:
    """Who asks for a use case, from where, and what records it.

    ``client_ip``: the address of the client, as a trusted proxy or the socket tells it.
    """

    caller: Caller
    client_ip: str
    recorder: Recorder
