"""Commands that are completed in memory."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.testing import MemoryReactorClock
from twisted.python.failure import Failure


class Nowhere(MemoryReactorClock):
    """A reactor, or a network, without anybody to reach."""

    def make_requester(self, *_: Any) -> Any:
        """See ``Network``; its clock stands still."""
        return self


def complete(work: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
    """Complete a coroutine that waits for nothing, or raise what it raises."""
    faults: list[Failure] = []
    Deferred.fromCoroutine(work(Nowhere())).addErrback(faults.append)
    if faults:
        faults[0].raiseException()
