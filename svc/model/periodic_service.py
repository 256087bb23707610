"""Services that do something periodically."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger


class PeriodicService(Service):
    """Does ``work`` every ``interval`` seconds, one round at a time, the first as soon as it is started.

    An exception ends the rounds: it is written to ``log`` with the sentence ``failed``.
    """

    def __init__(
        self, clock: IReactorTime, interval: float, work: Callable[[], Coroutine[Any, Any, None]], log: Logger, failed: str
    ) -> None:
        self._interval, self._log, self._failed = interval, log, failed
        self._loop = LoopingCall(lambda: Deferred.fromCoroutine(work()))
        self._loop.clock = clock

    def startService(self) -> None:
        """Begin with a round at once."""
        super().startService()  # type: ignore[no-untyped-call] # Twisted's
        self._loop.start(self._interval).addErrback(lambda failure: self._log.failure(self._failed, failure))

    def stopService(self) -> None:
        """Begin no more rounds; one that is under way continues."""
        super().stopService()  # type: ignore[no-untyped-call] # Twisted's
        if self._loop.running:
            self._loop.stop()
