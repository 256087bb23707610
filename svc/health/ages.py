"""The ages of keys and of the last backup, polled from the database, for metrics."""

from __future__ import annotations

from typing import Final

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from svc.model.background import PeriodicService
from svc.model.databases import Ages
from svc.model.errors import Refusal
from svc.storage.database_state import DatabaseState

#: Seconds between two queries: these things take days to become old.
INTERVAL: Final = 60.0

_log = Logger()


class AgesPoller(PeriodicService):
    """Polls the database. ``current`` is the last answer: while the database is unavailable, the ages keep growing."""

    name = "ages"

    def __init__(self, clock: IReactorTime, state: DatabaseState) -> None:
        super().__init__(clock, INTERVAL, self._poll_ages, _log, "Ages could not be asked about")
        self._state = state
        self.current: Ages | None = None

    async def _poll_ages(self) -> None:
        try:
            self.current = await self._state.read_ages()
        except Refusal:
            """The pool says so in the log, and the next time comes soon."""
