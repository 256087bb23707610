"""Whether the database answers now, known between two rounds of checks, for readiness.

Note [Lost or hanging]. A session that ends is noticed at once, and a server without any can't serve. A database that hangs
ends none: so a trivial query is sent twice a second, and it counts as hanging from when no answer has come for a while until
one comes. The while is counted in beats, in each of which the reactor has turned: a process that was itself suspended
doesn't take a waiting answer for late. While others give sessions back, the question waits for its turn, and nothing hangs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import attrs
from twisted.application.service import MultiService
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from svc.model.background import PeriodicService, run_in_background
from svc.model.counts import PoolCounts
from svc.model.errors import StoreUnavailable

#: Seconds from one beat to the next, beats from one question to the next, and beats until an answer is late.
TICK: Final = 0.25
TICKS_BETWEEN: Final = 2
TICKS_UNTIL_LATE: Final = 5

_log = Logger()
_FAILED: Final = "A part of the pulse met a bug"


class DatabaseLiveness(PeriodicService):
    """Asks the database: ``ask`` returns when it has answered, and ``changed`` is called when it has gone or come back.

    ``serves`` is what it is needed for.
    """

    name = "liveness"

    def __init__(
        self,
        clock: IReactorTime,
        ask: Callable[[], Awaitable[object]],
        count_sessions: Callable[[], PoolCounts],
        changed: Callable[[], object],
        *,
        serves: str = "requests",
    ) -> None:
        super().__init__(clock, TICK, self._tick, _log, _FAILED)
        self._ask, self._census, self._changed, self._serves = ask, count_sessions, changed, serves
        self._question: Deferred[None] | None = None
        self._ticks = self._returned = 0
        self._asking = self._hangs = False
        self._last_known = True

    def startService(self) -> None:
        """Begin with a question at once."""
        self._ticks = TICKS_BETWEEN
        super().startService()

    def stopService(self) -> None:
        """End; a question that is under way is given up."""
        super().stopService()
        if self._question is not None:
            self._question.cancel()

    @property
    def is_alive(self) -> bool:
        """Return whether the database is available, as far as is known now (Note [Lost or hanging])."""
        return not self._hangs and self._census().sessions > 0

    def _tick(self) -> None:
        self._ticks += 1
        if self._asking:
            returned = self._census().returned
            if returned != self._returned:
                self._ticks, self._returned = 0, returned
            elif self._ticks >= TICKS_UNTIL_LATE and not self._hangs:
                _log.warn("The database hangs: this server takes no {what} until it answers", what=self._serves)
                self._hangs = True
        elif self._ticks >= TICKS_BETWEEN:
            self._ticks, self._returned = 0, self._census().returned
            self._question = run_in_background(self._query_database(), _log, _FAILED)
        self._report_change()

    async def _query_database(self) -> None:
        self._asking = True
        try:
            await self._ask()
        except StoreUnavailable:
            pass  # The pool says so in the log.
        else:
            if self._hangs:
                _log.info("The database answers again")
            self._hangs = False
        finally:
            self._asking, self._ticks = False, 0
        self._report_change()

    def _report_change(self) -> None:
        if self._last_known != self.is_alive:
            self._last_known = self.is_alive
            self._changed()


@attrs.frozen
class Liveness:
    """Whether the database answers reads, and whether there is one to write to; both are one without standbys."""

    reads: DatabaseLiveness
    writes: DatabaseLiveness

    def start(self, services: MultiService) -> None:
        """Start both as parts of ``services``."""
        self.reads.setServiceParent(services)  # type: ignore[no-untyped-call] # Twisted's
        if self.writes is not self.reads:
            self.writes.setServiceParent(services)  # type: ignore[no-untyped-call] # Twisted's
