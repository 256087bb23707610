"""The share of each connection in the reactor's time.

Note [Steps]: a client may send a thousand requests at once, or a body in a million chunks; done in one turn of the reactor,
they would make everybody else wait. So a connection that has received something gets one step at once, which ends with a
request that was answered or has to wait, or with a piece of a chunked body. The rest waits here: in each turn of the
reactor, waiting connections make steps one after the other, until ``STEPS_PER_ITERATION`` are done or
``SECONDS_PER_ITERATION`` have passed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime

#: Unread bytes beyond which no more is read; beside these there may be what one reading brings.
UNREAD_LIMIT: Final = 16 * 1024

#: How many steps are made in one turn of the reactor, and for how many seconds another one is begun.
STEPS_PER_ITERATION: Final = 32
SECONDS_PER_ITERATION: Final = 0.002


class StepQueue:
    """The connections that have more to do, in the order of their next steps (Note [Steps])."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._steps: deque[Callable[[], None]] = deque()
        self._call: IDelayedCall | None = None

    def add_step(self, step: Callable[[], None]) -> None:
        """Have a step made after those that wait already."""
        self._steps.append(step)
        self._schedule_call()

    def _schedule_call(self) -> None:
        if self._call is None and self._steps:
            self._call = self._clock.callLater(0, self._run_steps)

    def _run_steps(self) -> None:
        made, end = 0, self._clock.seconds() + SECONDS_PER_ITERATION
        try:
            while self._steps and made < STEPS_PER_ITERATION and self._clock.seconds() < end:
                made += 1
                self._steps.popleft()()
        finally:
            # Not before: a step that is added meanwhile needs no call of its own.
            self._call = None
            self._schedule_call()
