"""Timers with a precision of some ten microseconds.

Note [Whole milliseconds]. The reactor waits for whole milliseconds from the last event on, so that a wait of 20 ms ends a
fraction of one later, and the fraction reveals when that event was. For refused logins, which must reveal nothing of the
work done in the meantime (FAIL-18), that is too much: a thousand tries distinguish 0.3 ms from 0.9 ms. Linux has timers that
are descriptors, which the reactor reads like a connection; Python has them from 3.13 on. Elsewhere the reactor's own wait.
"""

from __future__ import annotations

import ctypes
import heapq
import itertools
import os
import time
from contextlib import suppress
from typing import Any, Final

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReadDescriptor
from twisted.internet.task import deferLater
from twisted.python.failure import Failure
from zope.interface import implementer

_LIBC: Final = ctypes.CDLL(None)
_ABSOLUTE: Final = 1
_BILLION: Final = 1_000_000_000


class _Timespec(ctypes.Structure):
    """``struct timespec``."""

    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    """``struct itimerspec``: how often a timer ends again, here never, and when it ends first."""

    _fields_ = (("interval", _Timespec), ("value", _Timespec))


@implementer(IReadDescriptor)
class FineTimer(Service):
    """One timer of the system, for any number of waits. It is stopped after everything that waits."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._waiting: list[tuple[int, int, Deferred[None]]] = []
        self._numbers = itertools.count()
        self._descriptor = _create_timer()

    def startService(self) -> None:
        """Begin to read the timer."""
        super().startService()  # type: ignore[no-untyped-call] # Twisted's
        if self._descriptor is not None:
            self._reactor.addReader(self)

    def stopService(self) -> None:
        """Notice nothing any more."""
        super().stopService()  # type: ignore[no-untyped-call] # Twisted's
        if self._descriptor is not None:
            self._reactor.removeReader(self)
            os.close(self._descriptor)
            self._descriptor = None

    def wait_seconds(self, seconds: float) -> Deferred[None]:
        """Return when so many seconds have passed."""
        if self._descriptor is None:
            return deferLater(self._reactor, seconds)
        due = time.monotonic_ns() + round(seconds * _BILLION)
        wait: Deferred[None] = Deferred()
        heapq.heappush(self._waiting, (due, next(self._numbers), wait))
        if self._waiting[0][2] is wait:
            _set_timer(self._descriptor, due)
        return wait

    def fileno(self) -> int:
        """Return the timer's descriptor."""
        assert self._descriptor is not None
        return self._descriptor

    def doRead(self) -> None:
        """End the waits that are due."""
        with suppress(BlockingIOError):
            os.read(self.fileno(), 8)
        while self._waiting and self._waiting[0][0] <= time.monotonic_ns():
            wait = heapq.heappop(self._waiting)[2]
            # One that was cancelled has ended.
            if not wait.called:
                wait.callback(None)
        if self._waiting and self._descriptor is not None:
            _set_timer(self._descriptor, self._waiting[0][0])

    def connectionLost(self, reason: Failure) -> None:
        """Nothing is connected."""

    def logPrefix(self) -> str:
        """Return what Twisted's log calls it."""
        return "The timer of refusals"


def _create_timer() -> int | None:
    """Return the descriptor of a timer; ``None`` where the system has none."""
    try:
        descriptor: int = _LIBC.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
    except AttributeError:
        return None
    return descriptor if descriptor >= 0 else None


def _set_timer(descriptor: int, due: int) -> None:
    """Have a timer end at a moment, in nanoseconds of the monotonic clock; at once where that has passed."""
    setting = _Itimerspec(value=_Timespec(*divmod(due, _BILLION)))
    _LIBC.timerfd_settime(descriptor, _ABSOLUTE, ctypes.byref(setting), None)
