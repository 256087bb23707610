"""Work that many need and that is done once."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

T = TypeVar("T")


class SharedWork(Generic[T]):
    """One run of the work for all callers that need its result meanwhile; a cancelled caller only stops waiting."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._work = work
        self._waiters: list[Deferred[T]] = []
        self._is_running = False

    async def result(self) -> T:
        """Return the result of the work, or what it raises."""
        waiter: Deferred[T] = Deferred()
        self._waiters.append(waiter)
        if not self._is_running:
            self._is_running = True
            Deferred.fromCoroutine(self._work()).addBoth(self._notify_waiters)
        return await waiter

    def _notify_waiters(self, result: T | Failure) -> None:
        self._is_running = False
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.callback(result)  # a failure goes to its errbacks
