"""Retention of events in the database: a timer removes older ones, a few at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from svc.model.background import PeriodicService
from svc.model.clocks import WallClock
from svc.model.errors import ReadOnlyStandby, StoreUnavailable
from svc.storage.events import EventStore

#: Seconds between two searches for old events.
INTERVAL: Final = 3600.0

_log = Logger()


class EventRetention(PeriodicService):
    """Removes events that are older than ``age``, in seconds, unless ``ensure_writable`` raises ``ReadOnlyStandby``."""

    name = "retention"

    def __init__(
        self,
        clock: IReactorTime,
        wall: WallClock,
        events: EventStore,
        age: float,
        ensure_writable: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(clock, INTERVAL, self._purge_events, _log, "Old events could not be removed")
        self._wall, self._events, self._age, self._demand_primary = wall, events, age, ensure_writable

    async def _purge_events(self) -> None:
        try:
            await self._demand_primary()
            count = await self._events.purge_before(self._wall.seconds() - self._age)
        except (ReadOnlyStandby, StoreUnavailable):
            return
        if count:
            _log.info("{count} old events of the audit were removed", count=count)
