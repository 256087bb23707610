"""The share of each connection in the reactor's time: bytes that wait for the parser, and turns.

Note [Turns]: a client may send a thousand requests at once, or a body in a million chunks; done in one turn of the reactor,
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

#: Bytes of a chunked body that are read at a time; when they are empty lines alone they take a quarter of a millisecond.
PIECE_SIZE: Final = 1024

#: How many steps are made in one turn of the reactor, and for how many seconds another one is begun.
STEPS_PER_ITERATION: Final = 32
SECONDS_PER_ITERATION: Final = 0.002


class StepQueue:
    """The connections that have more to do, in the order in which their turns come (Note [Turns])."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._steps: deque[Callable[[], None]] = deque()
        self._call: IDelayedCall | None = None

    def add_step(self, step: Callable[[], None]) -> None:
        """Have a step made when its turn has come."""
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


class UnreadBytes:
    """The ``size`` bytes that a connection has received and its parser hasn't got yet. Taking some moves no others."""

    __slots__ = ("_received", "_taken", "size")

    def __init__(self) -> None:
        self._received = b""
        self._taken = 0
        self.size = 0

    def append(self, data: bytes) -> None:
        """Add what was received."""
        self._received = self._received[self._taken :] + data if self.size else data
        self._taken = 0
        self.size = len(self._received)

    def take(self, size: int) -> bytes:
        """Take the next bytes, so many at most."""
        piece = self._received[self._taken : self._taken + size]
        self._taken += len(piece)
        self.size -= len(piece)
        return piece

    def put_back(self, size: int) -> None:
        """Put the last bytes of what was just taken back."""
        self._taken -= size
        self.size += size

    def find(self, mark: bytes, after: int = 0) -> int:
        """Return how many bytes, ``after`` or more, come before the first of these, -1 when they aren't there."""
        found = self._received.find(mark, self._taken + after)
        return found if found < 0 else found - self._taken

    def starts_with(self, mark: bytes) -> bool:
        """Return whether these bytes come next."""
        return self._received.startswith(mark, self._taken)

    def peek_all(self) -> bytes:
        """Return everything, and take nothing."""
        return self._received[self._taken :]

    def clear(self) -> None:
        """Forget it."""
        self._received, self._taken, self.size = b"", 0, 0
