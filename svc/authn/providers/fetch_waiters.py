"""Waits for the keys of providers: their number, and which one is ended for which other.

Note [Fair shares]. Until the keys are there a forged token is like any other, and all that is known of its sender is an
address. A wait costs memory, so memory is shared out. While there is room every login may wait: many a network has one
address for all. When there is none left, the fetch for which most is held ends the wait that began last of the address that
holds most there; a login that would then hold as much itself is refused instead. So a forger, with one address or some
hundreds, fills the room only as long as nobody else needs it, and a provider that never answers takes no room from others.
Logins that share an address with a forger keep their places if they came first. Against as many addresses as there are
places the only remedy is to try again.

Note [Let go in turn]. When the keys are there all waits end, some in each turn of the reactor, so that others have theirs,
and one of each address in turn, so that nobody waits behind another address's crowd.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from svc.model.key_sets import KeySet

#: The bytes that all waits may take together.
BUDGET_BYTES: Final = 64 * 1024 * 1024

#: The bytes of one wait beside its token, and how often a token is held, encoded and decoded, whole and in parts: measured.
WAIT_BYTES: Final = 16 * 1024
TOKEN_COPIES: Final = 6

#: The waits that end in one turn of the reactor.
RELEASE_BATCH: Final = 20

#: One wait, which ends with the keys.
Waiter = Deferred[KeySet]


@attrs.define
class _AddressWaiters:
    """The waits of one address in a crowd, in their order, each with its bytes."""

    waiters: dict[Waiter, int] = attrs.Factory(dict)
    bytes_held: int = 0


class FetchWaiters:
    """The waits for one fetch."""

    def __init__(self, room: WaitBudget) -> None:
        self._budget = room
        self._shares: dict[str, _AddressWaiters] = {}
        self._is_releasing = False
        self.bytes_held = 0

    @property
    def is_empty(self) -> bool:
        """Return whether nobody waits."""
        return not self._shares

    def add_waiter(self, address: str, size: int) -> Waiter | None:
        """Begin a wait for this address, with a token of so many bytes; ``None`` when there is no room.

        Waits that end for it are refused in another turn of the reactor: they may do anything then.
        """
        weight = WAIT_BYTES + TOKEN_COPIES * size
        leaving: list[Waiter] = []
        waiter: Waiter | None = None
        if self._budget.make_room(self, address, weight, leaving):
            waiter = Deferred(lambda left: self._remove_waiter(address, left))
            share = self._shares.setdefault(address, _AddressWaiters())
            share.waiters[waiter] = weight
            share.bytes_held += weight
            self._budget.reserve_bytes(self, weight)
        for other in leaving:
            self._budget.clock.callLater(0, self._budget.evict, other)
        return waiter

    def release_all(self, tell: Callable[[Waiter], object]) -> None:
        """End all waits by ``tell`` (Note [Let go in turn]); none may begin any more."""
        if not self._is_releasing:
            self._budget.release_bytes(self, self.bytes_held)
            self._is_releasing = True
        for _ in range(RELEASE_BATCH):
            if not self._shares:
                return
            address, share = next(iter(self._shares.items()))
            waiter = next(iter(share.waiters))
            self._remove_waiter(address, waiter)
            if share.waiters:
                self._shares[address] = self._shares.pop(address)
            tell(waiter)
        if self._shares:
            self._budget.clock.callLater(0, self.release_all, tell)

    def bytes_of(self, address: str) -> int:
        """Return the bytes of an address."""
        share = self._shares.get(address)
        return 0 if share is None else share.bytes_held

    def largest_address(self) -> str:
        """Return the address that takes most."""
        return max(self._shares.items(), key=lambda item: item[1].bytes_held)[0]

    def evict_last(self, address: str) -> Waiter:
        """Remove the waiter that came last from this address, and return it."""
        waiter = next(reversed(self._shares[address].waiters))
        self._remove_waiter(address, waiter)
        return waiter

    def _remove_waiter(self, address: str, waiter: Waiter) -> None:
        share = self._shares.get(address)
        if share is None or waiter not in share.waiters:
            return  # it has been evicted
        weight = share.waiters.pop(waiter)
        share.bytes_held -= weight
        if not share.waiters:
            del self._shares[address]
        if not self._is_releasing:
            self._budget.release_bytes(self, weight)


class WaitBudget:
    """The ``size`` bytes that are shared out (Note [Fair shares]). ``evict`` notifies a waiter that it was evicted."""

    def __init__(self, clock: IReactorTime, refuse: Callable[[Waiter], object], size: int = BUDGET_BYTES) -> None:
        self.clock = clock
        self.evict = refuse
        self._free = size
        self._groups: dict[FetchWaiters, None] = {}

    def reserve_bytes(self, crowd: FetchWaiters, weight: int) -> None:
        """Count bytes for a crowd."""
        self._groups[crowd] = None
        self._free -= weight
        crowd.bytes_held += weight

    def release_bytes(self, crowd: FetchWaiters, weight: int) -> None:
        """Count them no more."""
        self._free += weight
        crowd.bytes_held -= weight
        if not crowd.bytes_held:
            self._groups.pop(crowd, None)

    def make_room(self, crowd: FetchWaiters, address: str, weight: int, leaving: list[Waiter]) -> bool:
        """Return whether there is room for this address in this crowd; append evicted waiters to ``leaving`` either way."""
        while weight > self._free:
            fullest = max(self._groups, key=lambda each: each.bytes_held, default=crowd)
            if crowd.bytes_held + weight >= fullest.bytes_held:
                fullest = crowd
            if fullest.is_empty:
                return False
            largest = fullest.largest_address()
            if fullest is crowd and crowd.bytes_of(address) + weight >= crowd.bytes_of(largest):
                return False
            leaving.append(fullest.evict_last(largest))
        return True
