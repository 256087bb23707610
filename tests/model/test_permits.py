"""Turns that processes take at what the server has few of."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import LoadsUnavailable
from svc.model.permits import PermitPool, RemotePermits


class TurnsTests(SynchronousTestCase):
    """Two turns, three that may wait, two of one role."""

    def setUp(self) -> None:
        """Make them."""
        self.turns = PermitPool(2, 3, 2, LoadsUnavailable)
        self.number = 0

    def take(self, holder: int = 1, whose: str = "") -> Deferred[None]:
        """Take the next turn."""
        self.number += 1
        return Deferred.fromCoroutine(self.turns.acquire(holder, self.number, whose))

    def test_order(self) -> None:
        """Turns are given in their order, as many at a time as there are, to whichever processes (CFG-34)."""
        first, second, third, fourth = self.take(1), self.take(2), self.take(3), self.take(1)
        for each in (first, second):
            self.successResultOf(each)
        self.assertNoResult(third)
        self.turns.release(2, 2)
        self.successResultOf(third)
        self.assertNoResult(fourth)

    def test_one_role(self) -> None:
        """A role has one at a time, and no more may wait for it than so many; others pass it (CFG-34)."""
        self.successResultOf(self.take(1, "alice"))
        waiting = self.take(2, "alice")
        self.failureResultOf(self.take(1, "alice"), LoadsUnavailable)
        self.successResultOf(self.take(1, "bob"))
        self.assertNoResult(waiting)
        self.turns.release(1, 1)
        self.successResultOf(waiting)

    def test_too_many(self) -> None:
        """No more wait than may."""
        for _ in range(5):
            self.take()
        self.failureResultOf(self.take(), LoadsUnavailable)

    def test_a_process_dies(self) -> None:
        """The turns of a process that has died, and its waits, are given to others (CFG-34)."""
        for _ in range(3):
            self.take(1)
        other = self.take(2)
        self.turns.release(1)
        self.successResultOf(other)
        self.successResultOf(self.take(3))

    def test_asked(self) -> None:
        """A turn of another process is given back once, also when nobody waits for it any more."""
        over: list[int] = []
        asked: dict[int, Deferred[object]] = {}

        async def ask(number: int, whose: str) -> object:
            asked[number] = Deferred()
            return await asked[number]

        turns = RemotePermits(ask, over.append)
        taken: Deferred[Callable[[], None]] = Deferred.fromCoroutine(turns.acquire("alice"))
        left = Deferred.fromCoroutine(turns.acquire("bob"))
        asked[1].callback(None)
        self.successResultOf(taken)()
        left.cancel()
        self.failureResultOf(left)
        self.assertEqual(over, [1, 2])
