"""Work in the background: pieces that nothing waits for, and services that work in rounds."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, maybeDeferred
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure


def run_in_background(work: Coroutine[Any, Any, None], log: Logger, failed: str) -> Deferred[None]:
    """Begin ``work``, and write an exception to ``log`` with the sentence ``failed``, unless the work was cancelled."""

    def log_failure(failure: Failure) -> None:
        if not failure.check(CancelledError):
            log.failure(failed, failure)

    return Deferred.fromCoroutine(work).addErrback(log_failure)


class PeriodicService(Service):
    """Does ``work`` every ``interval`` seconds, one round at a time; ``at_once``: the first round begins at the start.

    ``work`` is a function, or one whose Deferred or coroutine ends the round. An exception in a round is written to ``log``
    with the sentence ``failed``, and the next round comes.
    """

    def __init__(
        self, clock: Any, interval: float, work: Callable[[], object], log: Logger, failed: str, *, at_once: bool = True
    ) -> None:
        #: Whether a round begins as soon as the one under way has ended.
        self.triggered = False
        self._interval, self._work, self._log, self._failed, self._at_once = interval, work, log, failed, at_once
        self._under_way = False
        self._loop = LoopingCall(self._run_periodically)
        self._loop.clock = clock

    def startService(self) -> None:
        """Begin the rounds."""
        super().startService()  # type: ignore[no-untyped-call] # Twisted's
        self._loop.start(self._interval, now=self._at_once)

    def stopService(self) -> Deferred[None] | None:
        """Begin no more rounds; one that is under way continues."""
        super().stopService()  # type: ignore[no-untyped-call] # Twisted's
        if self._loop.running:
            self._loop.stop()
        return None

    def trigger(self) -> None:
        """Begin a round now, or as soon as the one under way has ended, since something has changed."""
        if self._under_way:
            self.triggered = True
        elif self._loop.running:
            self._loop.stop()
            self._loop.start(self._interval)

    async def _run_periodically(self) -> None:
        self._under_way = True
        while True:
            self.triggered = False
            try:
                await maybeDeferred(self._work)
            except Exception:  # the next round must come
                self._log.failure(self._failed)
            if not self.triggered or not self.running:
                break
        self._under_way = False
