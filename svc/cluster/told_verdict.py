"""The decision on other primaries (split brain) in a process that doesn't poll for them: the last one received.

Note [Doubt here]. This process may be the first to lose the database, which may come back as another. From then on no write
begins here before the polling process has polled again: as where one process does all. It is asked for that at once, and
again with each verdict that arrives, so that this process knows also if nobody writes.

Note [An old verdict]. Where there are other servers, a verdict that is too old counts as none: the polling process may hang,
and each write asks it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from svc.cluster.rival_primaries import INTERVALS_REMEMBERED, LONGEST_INTERVAL, Verdict
from svc.model.errors import PrimaryContested, StoreUnavailable

#: For how many seconds a verdict is valid without another one (Note [An old verdict]).
KNOWN: Final = INTERVALS_REMEMBERED * LONGEST_INTERVAL

_log = Logger()


class IVerdict(Protocol):
    """The decision on writes, for those that are about to write."""

    @property
    def writable(self) -> bool:
        """Whether no other primary forbids writes, and no poll is pending."""

    @property
    def contenders(self) -> frozenset[str]:
        """See ``Rivals.contenders``."""

    async def demand(self) -> None:
        """Return when a write may begin, or raise as ``Rivals.demand``."""


class ToldVerdict:
    """The last verdict received.

    ``demand`` asks the process that decides, which returns when a write may begin, or raises as ``Rivals.demand``; it is
    given whether the database was away (Note [Doubt here]).
    """

    def __init__(self, clock: IReactorTime, verdict: Verdict, demand: Callable[[bool], Awaitable[object]]) -> None:
        self._clock, self._verdict, self._demand = clock, verdict, demand
        self._heard = clock.seconds()
        #: How often the database was away, of how many of these times the other process knows, and how many it has resolved.
        self._doubts = self._told = self._resolved = 0
        self._asking = False

    def hear(self, verdict: Verdict) -> None:
        """Keep a verdict."""
        self._verdict, self._heard = verdict, self._clock.seconds()
        self._settle()

    def doubt(self) -> None:
        """Let no write begin until the other process has polled again: this process's database was away."""
        self._doubts += 1
        self._settle()

    @property
    def writable(self) -> bool:
        """Whether no other primary forbids writes, and no poll is pending."""
        return self._certain and self._verdict.refusal is None

    @property
    def contenders(self) -> frozenset[str]:
        """See ``Rivals.contenders``."""
        return self._verdict.contenders

    async def demand(self) -> None:
        """Return when a write may begin; raises as ``Rivals.demand``."""
        if not self._certain:
            await self._decided()
        elif self._verdict.refusal is not None:
            raise self._verdict.refusal

    async def _decided(self) -> None:
        doubts, told, self._told = self._doubts, self._told, self._doubts
        try:
            await self._demand(doubts != told)
        except PrimaryContested as refusal:
            # The next verdict that arrives says so too, but a write may come before it.
            self._verdict = attrs.evolve(self._verdict, refusal=refusal)
            self._resolved = max(self._resolved, doubts)
            raise
        self._resolved = max(self._resolved, doubts)

    def _settle(self) -> None:
        """Ask about doubts, if there are any, and nobody asks."""
        if self._doubts != self._resolved and not self._asking:
            self._asking = True
            Deferred.fromCoroutine(self._settled()).addErrback(_log_bug)

    async def _settled(self) -> None:
        try:
            await self._decided()
        except (PrimaryContested, StoreUnavailable):
            """A write is refused for it, and the next verdict is a reason to ask again."""
        finally:
            self._asking = False

    @property
    def _certain(self) -> bool:
        known = self._verdict.alone or self._clock.seconds() - self._heard < KNOWN
        return known and self._verdict.certain and self._doubts == self._resolved


def _log_bug(failure: Failure) -> None:
    _log.failure("Rivals could not be asked about", failure)
