"""The decision on other primaries (split brain) in a process that doesn't poll for them: the last one received.

Note [Doubt here]. This process may be the first to lose the database, which may come back as another. From then on no write
begins here before the polling process has polled again: as where one process does all. It is asked for that at once, and
again with each decision that arrives, so that this process knows also if nobody writes.

Note [An old decision]. Where there are other servers, a decision that is too old counts as none: the polling process may
hang, and each write asks it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from svc.cluster.split_brain import INTERVALS_RETAINED, LONGEST_INTERVAL, WriteDecision
from svc.model.background import run_in_background
from svc.model.errors import PrimaryContested, StoreUnavailable

#: For how many seconds a decision is valid without another one (Note [An old decision]).
VALID_SECONDS: Final = INTERVALS_RETAINED * LONGEST_INTERVAL

_log = Logger()


class IWriteGate(Protocol):
    """The decision on writes, for those that are about to write."""

    @property
    def is_writable(self) -> bool:
        """Whether no other primary forbids writes, and no poll is pending."""

    @property
    def conflicting_members(self) -> frozenset[str]:
        """See ``SplitBrainDetector.conflicting_members``."""

    async def wait_until_writable(self) -> None:
        """Return when a write may begin, or raise as ``SplitBrainDetector.wait_until_writable``."""


class SupervisorWriteGate:
    """The last decision received.

    ``wait_until_writable`` asks the process that decides, which returns when a write may begin, or raises as
    ``SplitBrainDetector.wait_until_writable``; it is given whether the database was away (Note [Doubt here]).
    """

    def __init__(self, clock: IReactorTime, decision: WriteDecision, demand: Callable[[bool], Awaitable[object]]) -> None:
        self._clock, self._decision, self._wait_remotely = clock, decision, demand
        self._received_at = clock.seconds()
        #: How often the database was away, of how many of these times the other process knows, and how many it has resolved.
        self._outages = self._reported_outages = self._resolved_outages = 0
        self._asking = False

    def receive_decision(self, decision: WriteDecision) -> None:
        """Keep a decision."""
        self._decision, self._received_at = decision, self._clock.seconds()
        self._resolve_outages()

    def require_poll(self) -> None:
        """Let no write begin until the other process has polled again: this process's database was away."""
        self._outages += 1
        self._resolve_outages()

    @property
    def is_writable(self) -> bool:
        """Whether no other primary forbids writes, and no poll is pending."""
        return self._is_certain and self._decision.refusal is None

    @property
    def conflicting_members(self) -> frozenset[str]:
        """See ``SplitBrainDetector.conflicting_members``."""
        return self._decision.conflicting_members

    async def wait_until_writable(self) -> None:
        """Return when a write may begin; raises as ``SplitBrainDetector.wait_until_writable``."""
        if not self._is_certain:
            await self._ask_supervisor()
        elif self._decision.refusal is not None:
            raise self._decision.refusal

    async def _ask_supervisor(self) -> None:
        doubts, reported, self._reported_outages = self._outages, self._reported_outages, self._outages
        try:
            await self._wait_remotely(doubts != reported)
        except PrimaryContested as refusal:
            # The next decision that arrives says so too, but a write may come before it.
            self._decision = attrs.evolve(self._decision, refusal=refusal)
            self._resolved_outages = max(self._resolved_outages, doubts)
            raise
        self._resolved_outages = max(self._resolved_outages, doubts)

    def _resolve_outages(self) -> None:
        """Ask about doubts, if there are any, and nobody asks."""
        if self._outages != self._resolved_outages and not self._asking:
            self._asking = True
            run_in_background(self._try_supervisor(), _log, "The check for other primaries met a bug")

    async def _try_supervisor(self) -> None:
        try:
            await self._ask_supervisor()
        except (PrimaryContested, StoreUnavailable):
            """A write is refused for it, and the next decision is a reason to ask again."""
        finally:
            self._asking = False

    @property
    def _is_certain(self) -> bool:
        known = self._decision.alone or self._clock.seconds() - self._received_at < VALID_SECONDS
        return known and self._decision.certain and self._outages == self._resolved_outages
