"""Work that is done once for all callers that wait for it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class SharedWork(Generic[K, T]):
    """Work under way, by key. It goes on when its callers have left."""

    def __init__(self) -> None:
        self._waiters: dict[K, list[Deferred[T]]] = {}

    def is_under_way(self, key: K) -> bool:
        """Return whether there is work of this key that has not ended."""
        return key in self._waiters

    def done(self, key: K, work: Callable[[], Coroutine[Any, Any, T]]) -> Deferred[T]:
        """Wait for the work of this key, which begins now unless it is under way."""
        waiter: Deferred[T] = Deferred()
        if key in self._waiters:
            self._waiters[key].append(waiter)
        else:
            self._waiters[key] = [waiter]
            Deferred.fromCoroutine(work()).addBoth(self._ended, key)
        return waiter

    def _ended(self, result: T | Failure, key: K) -> None:
        for waiter in self._waiters.pop(key):
            if waiter.called:
                continue  # its client may have left meanwhile
            if isinstance(result, Failure):
                waiter.errback(result.value)
            else:
                waiter.callback(result)
