"""Retention of events in the database: a timer removes older ones, a few at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from svc.model.clocks import WallClock
from svc.model.errors import StoreReadOnly, StoreUnavailable
from svc.model.events import IEvents

#: The time from one look for old events to the next, in seconds.
INTERVAL: Final = 3600.0

_log = Logger()


class Retention(Service):
    """Removes events that are older than ``age``, in seconds, unless ``demand_primary`` raises ``StoreReadOnly``."""

    name = "retention"

    def __init__(
        self,
        clock: IReactorTime,
        wall: WallClock,
        events: IEvents,
        age: float,
        demand_primary: Callable[[], Awaitable[None]],
    ) -> None:
        self._wall, self._events, self._age, self._demand_primary = wall, events, age, demand_primary
        self._loop = LoopingCall(lambda: Deferred.fromCoroutine(self._purge()))
        self._loop.clock = clock

    def startService(self) -> None:
        """Begin to remove events, at once."""
        super().startService()  # type: ignore[no-untyped-call] # Twisted's
        self._loop.start(INTERVAL).addErrback(lambda failure: _log.failure("Old events are not removed any more", failure))

    def stopService(self) -> None:
        """Remove no more."""
        super().stopService()  # type: ignore[no-untyped-call] # Twisted's
        if self._loop.running:
            self._loop.stop()

    async def _purge(self) -> None:
        try:
            await self._demand_primary()
            count = await self._events.purge(self._wall.seconds() - self._age)
        except (StoreReadOnly, StoreUnavailable):
            return
        if count:
            _log.info("{count} old events of the audit were removed", count=count)
