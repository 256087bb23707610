"""A short time-out for queries to PostgreSQL whose caller has something else to fall back on."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.task import LoopingCall

T = TypeVar("T")

#: How long it may take, in seconds; and in beats of the reactor.
PATIENCE: Final = 1.0
_BEATS: Final = 4


async def in_time(answer: Deferred[T], clock: Any) -> T:
    """Return an answer that comes within ``PATIENCE``, counted in beats, so that the suspension of this process doesn't
    count.

    :raises TimeoutError: Twisted's: it doesn't, and has been cancelled.
    """
    beats = 0

    def beat() -> None:
        nonlocal beats
        beats += 1
        if beats == _BEATS:
            answer.cancel()

    loop = LoopingCall(beat)
    loop.clock = clock
    loop.start(PATIENCE / _BEATS, now=False)
    try:
        return await answer
    except CancelledError:
        if beats < _BEATS:
            raise
        raise DeferredTimeout from None
    finally:
        loop.stop()
