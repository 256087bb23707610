"""A short time-out for queries to PostgreSQL whose caller has something else to fall back on."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.task import LoopingCall

T = TypeVar("T")

#: How long it may take, in seconds; and in beats of the reactor.
QUERY_TIMEOUT: Final = 1.0
_TICKS: Final = 4


async def within_timeout(answer: Deferred[T], clock: Any) -> T:
    """Return an answer that comes within ``QUERY_TIMEOUT``, counted in beats, so that the suspension of this process doesn't
    count.

    :raises TimeoutError: Twisted's: it doesn't, and has been cancelled.
    """
    beats = 0

    def count_tick() -> None:
        nonlocal beats
        beats += 1
        if beats == _TICKS:
            answer.cancel()

    loop = LoopingCall(count_tick)
    loop.clock = clock
    loop.start(QUERY_TIMEOUT / _TICKS, now=False)
    try:
        return await answer
    except CancelledError:
        if beats < _TICKS:
            raise
        raise DeferredTimeout from None
    finally:
        loop.stop()
