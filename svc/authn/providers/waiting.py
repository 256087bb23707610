"""Who waits for the keys of providers: how many may, and who gives up his place to whom.

Note [Fair shares]. Until the keys are there a forged token is like any other, and nobody knows who sends it but for an
address. To wait costs next to nothing but memory, so that is what is shared out. While there is room everybody may wait,
from wherever he comes: many a network has one address for all. When there is none left, the source for which most is held
gives some of it up, and there the address that holds most: who came last from there is told to come again. Who would then
hold as much himself is told so at once. So a forger, with one address or some hundreds, fills the room only as long as
nobody else needs it. A provider that never answers takes no room from others. Who shares an address with a forger keeps his
place if he came first. Against as many addresses as the room has places there is no help but to come again.

Note [Let go in turn]. When the keys are there everybody goes on, some in each turn of the reactor, so that others have
theirs, and one of each address in turn, so that nobody is behind a crowd that is not his own. Who leaves gives his place up
at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from svc.model.key_sets import KeySet

#: What all who wait may take together, in bytes.
ROOM: Final = 64 * 1024 * 1024

#: What one takes beside its token, and how often a token is held, encoded and decoded, whole and in parts: as measured.
PLACE: Final = 16 * 1024
COPIES: Final = 6

#: How many go on in one turn of the reactor.
TURN: Final = 20

#: What one who waits is told.
Waiter = Deferred[KeySet]


@attrs.define
class _Share:
    """What one address has in a crowd: those who wait, in the order in which they came, each with what he takes."""

    waiters: dict[Waiter, int] = attrs.Factory(dict)
    taken: int = 0


class Crowd:
    """Those who wait for one fetch."""

    def __init__(self, room: WaitingRoom) -> None:
        self._room = room
        self._shares: dict[str, _Share] = {}
        self._going = False
        self.taken = 0

    @property
    def empty(self) -> bool:
        """Whether nobody waits."""
        return not self._shares

    def enter(self, address: str, size: int) -> Waiter | None:
        """Let somebody of this address, with a token of so many bytes, wait; ``None`` when there is no room for him.

        Those who give up their places are told so by the room's ``refuse``, in another turn of the reactor: they may do
        anything then.
        """
        weight = PLACE + COPIES * size
        leaving: list[Waiter] = []
        waiter: Waiter | None = None
        if self._room.make_way(self, address, weight, leaving):
            waiter = Deferred(lambda left: self._leave(address, left))
            share = self._shares.setdefault(address, _Share())
            share.waiters[waiter] = weight
            share.taken += weight
            self._room.take(self, weight)
        for other in leaving:
            self._room.clock.callLater(0, self._room.refuse, other)
        return waiter

    def let_go(self, tell: Callable[[Waiter], object]) -> None:
        """Tell everybody (Note [Let go in turn]). Nobody else may enter."""
        if not self._going:
            self._room.give_up(self, self.taken)
            self._going = True
        for _ in range(TURN):
            if not self._shares:
                return
            address, share = next(iter(self._shares.items()))
            waiter = next(iter(share.waiters))
            self._leave(address, waiter)
            if share.waiters:
                self._shares[address] = self._shares.pop(address)
            tell(waiter)
        if self._shares:
            self._room.clock.callLater(0, self.let_go, tell)

    def held(self, address: str) -> int:
        """What this address takes."""
        share = self._shares.get(address)
        return 0 if share is None else share.taken

    def largest(self) -> str:
        """The address that takes most."""
        return max(self._shares.items(), key=lambda item: item[1].taken)[0]

    def evict(self, address: str) -> Waiter:
        """Take his place from who came last from this address, and return him."""
        waiter = next(reversed(self._shares[address].waiters))
        self._leave(address, waiter)
        return waiter

    def _leave(self, address: str, waiter: Waiter) -> None:
        share = self._shares.get(address)
        if share is None or waiter not in share.waiters:
            return  # his place is another's already
        weight = share.waiters.pop(waiter)
        share.taken -= weight
        if not share.waiters:
            del self._shares[address]
        if not self._going:
            self._room.give_up(self, weight)


class WaitingRoom:
    """What is shared out (Note [Fair shares]): ``size`` bytes. ``refuse`` tells somebody that his place went to another."""

    def __init__(self, clock: IReactorTime, refuse: Callable[[Waiter], object], size: int = ROOM) -> None:
        self.clock = clock
        self.refuse = refuse
        self._free = size
        self._crowds: dict[Crowd, None] = {}

    def take(self, crowd: Crowd, weight: int) -> None:
        """Count so many bytes for a crowd."""
        self._crowds[crowd] = None
        self._free -= weight
        crowd.taken += weight

    def give_up(self, crowd: Crowd, weight: int) -> None:
        """Count them no more."""
        self._free += weight
        crowd.taken -= weight
        if not crowd.taken:
            self._crowds.pop(crowd, None)

    def make_way(self, crowd: Crowd, address: str, weight: int, leaving: list[Waiter]) -> bool:
        """Make room for so many bytes, for somebody of this address in this crowd, unless it is he who has to go.

        ``leaving`` gets those who lost their places, in either case.
        """
        while weight > self._free:
            fullest = max(self._crowds, key=lambda each: each.taken, default=crowd)
            if crowd.taken + weight >= fullest.taken:
                fullest = crowd
            if fullest.empty:
                return False
            largest = fullest.largest()
            if fullest is crowd and crowd.held(address) + weight >= crowd.held(largest):
                return False
            leaving.append(fullest.evict(largest))
        return True
