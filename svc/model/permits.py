"""Permits for something that a server has few of, taken by its processes: threads that hash, large loads of policy.

Note [One counts]. The process that counts has :class:`PermitPool`; a serving process has :class:`RemotePermits`, which sends
requests to it. A permit belongs to the process that took it, so that those of a process that has died are known, and given
to others.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import attrs
from twisted.internet.defer import Deferred

from svc.model.errors import Refusal


class IPermits(Protocol):
    """Permits, as seen by code that takes one."""

    async def acquire(self, role: str) -> Callable[[], None]:
        """Wait for a permit, and return a function that releases it; ``role`` is the role that it is for, empty for none.

        :raises Refusal: too many wait already.
        """


@attrs.frozen(eq=False)
class Permit:
    """A permit that is taken or waited for: of a process by number, under a number of its own."""

    holder: int
    number: int
    role: str
    granted: Deferred[None] = attrs.field(factory=Deferred)


class PermitPool:
    """``count`` permits, granted in the order of requests.

    ``waiting`` is how many may wait, ``each`` how many of one role may have a permit or wait; a named role has only one
    permit at a time. ``refusal`` makes the exception that is raised when there are more.
    """

    def __init__(self, count: int, waiting: int, each: int, refusal: Callable[[str], Refusal]) -> None:
        self._count, self._most_waiting, self._per_role, self._refusal = count, waiting, each, refusal
        self.taken: list[Permit] = []
        self.waiting: deque[Permit] = deque()

    async def acquire(self, holder: int, number: int, role: str) -> None:
        """Return when the process ``holder`` has the permit, until :meth:`release`.

        :raises Refusal: too many wait already.
        """
        place = Permit(holder, number, role)
        if role and sum(other.role == role for other in (*self.taken, *self.waiting)) >= self._per_role:
            raise self._refusal(f"{self._per_role} of the same role are under way already")
        self.waiting.append(place)
        self._grant_waiting()
        if place in self.waiting and self.count_waiting(place) > self._most_waiting:
            self.waiting.remove(place)
            raise self._refusal(f"{self._most_waiting} wait already")
        await place.granted

    def release(self, holder: int, number: int | None = None) -> None:
        """Release the permit of this number, or the wait for it; without a number all of this process."""
        for places in (self.taken, self.waiting):
            for place in [each for each in places if each.holder == holder and number in {None, each.number}]:
                places.remove(place)
        self._grant_waiting()

    def choose_next(self) -> Permit | None:
        """Return which of those that wait gets the next permit; ``None`` if none may have it yet."""
        busy = {place.role for place in self.taken} - {""}
        return next((each for each in self.waiting if each.role not in busy), None)

    def count_waiting(self, permit: Permit) -> int:  # noqa: ARG002 (of pools with shares)
        """Return how many wait of those that count together with this one, itself included."""
        return len(self.waiting)

    def _grant_waiting(self) -> None:
        while len(self.taken) < self._count:
            place = self.choose_next()
            if place is None:
                return
            self.waiting.remove(place)
            self.taken.append(place)
            place.granted.callback(None)


class RemotePermits:
    """Permits of another process: ``ask`` requests the permit of a number from it, and ``end`` reports its release."""

    def __init__(self, ask: Callable[[int, str], Awaitable[object]], end: Callable[[int], object]) -> None:
        self._request_permit, self._release_permit = ask, end
        self._numbers: Final = itertools.count(1)

    async def acquire(self, role: str) -> Callable[[], None]:
        """See ``IPermits``."""
        number = next(self._numbers)
        try:
            await self._request_permit(number, role)
        except BaseException:
            self._release_permit(number)
            raise

        def release_permit() -> None:
            self._release_permit(number)

        return release_permit


def make_local_permits(pool: PermitPool) -> RemotePermits:
    """Return the permits of a pool of this process itself, for a server that has no other."""
    return RemotePermits(lambda number, role: pool.acquire(0, number, role), lambda number: pool.release(0, number))
