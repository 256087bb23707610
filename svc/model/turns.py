"""Turns at something that a server has few of, taken by its processes: threads that hash, large loads of policy.

Note [One counts]. The process that counts has :class:`SharedTurns`; a serving process has :class:`AskedTurns`, which sends
requests to it. A turn belongs to the process that took it, so that those of a process that has died are known, and given to
others.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import attrs
from twisted.internet.defer import Deferred

from svc.model.errors import Refusal


class ITurns(Protocol):
    """Turns, as seen by code that takes one."""

    async def take(self, whose: str) -> Callable[[], None]:
        """Wait for a turn, and return a function that releases it; ``whose`` is the role that it is for, empty for none.

        :raises Refusal: too many wait already.
        """


@attrs.frozen(eq=False)
class _Turn:
    """A turn that is taken or waited for: of a process by number, under a number of its own."""

    holder: int
    number: int
    whose: str
    begun: Deferred[None] = attrs.field(factory=Deferred)


class SharedTurns:
    """``count`` turns, given in the order of requests.

    ``waiting`` is how many may wait, ``each`` how many of one role may have a turn or wait; a named role has only one turn
    at a time. ``refusal`` makes the exception that is raised when there are more.
    """

    def __init__(self, count: int, waiting: int, each: int, refusal: Callable[[str], Refusal]) -> None:
        self._count, self._most_waiting, self._each, self._refusal = count, waiting, each, refusal
        self._taken: list[_Turn] = []
        self._waiting: deque[_Turn] = deque()

    async def take(self, holder: int, number: int, whose: str) -> None:
        """Return when the process ``holder`` has the turn, until :meth:`end`.

        :raises Refusal: too many wait already.
        """
        place = _Turn(holder, number, whose)
        if whose and sum(other.whose == whose for other in (*self._taken, *self._waiting)) >= self._each:
            raise self._refusal(f"{self._each} of the same role are under way already")
        self._waiting.append(place)
        self._give()
        if place in self._waiting and len(self._waiting) > self._most_waiting:
            self._waiting.remove(place)
            raise self._refusal(f"{self._most_waiting} wait already")
        await place.begun

    def end(self, holder: int, number: int | None = None) -> None:
        """Release the turn of this number, or the wait for it; without a number all of this process."""
        for places in (self._taken, self._waiting):
            for place in [each for each in places if each.holder == holder and number in {None, each.number}]:
                places.remove(place)
        self._give()

    def _give(self) -> None:
        while len(self._taken) < self._count:
            busy = {place.whose for place in self._taken} - {""}
            place = next((each for each in self._waiting if each.whose not in busy), None)
            if place is None:
                return
            self._waiting.remove(place)
            self._taken.append(place)
            place.begun.callback(None)


class AskedTurns:
    """Turns of another process: ``ask`` requests the turn of a number from it, and ``end`` reports its release."""

    def __init__(self, ask: Callable[[int, str], Awaitable[object]], end: Callable[[int], object]) -> None:
        self._ask, self._end = ask, end
        self._numbers: Final = itertools.count(1)

    async def take(self, whose: str) -> Callable[[], None]:
        """See ``ITurns``."""
        number = next(self._numbers)
        try:
            await self._ask(number, whose)
        except BaseException:
            self._end(number)
            raise

        def give_back() -> None:
            self._end(number)

        return give_back
