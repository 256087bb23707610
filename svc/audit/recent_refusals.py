"""The refusals of the last hour, in the memory of the server; the audit has them for good.

Note [Shares of a room]. A refusal costs a stranger nothing, so memory is shared out. While there is room all are kept. When
there is none left, the address that takes most gives up its oldest: a flood from one address, however long, pushes out its
own. An IPv6 client has 2**64 addresses, so its network of 64 bits counts. Sums are those of the kept refusals, and an answer
says whether some were evicted.

Note [In batches]. Where several processes serve, one keeps for all. The others collect theirs, in rooms of the same rule,
and hand them over a moment after the first: a refusal waits for no other process, and a flood is one message in that time.
Refusals that the other process can't take now stay, and are handed over later; if some are lost until then for lack of room,
that is reported, as it is when a process ends before it has handed over all.
"""

from __future__ import annotations

import itertools
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

import attrs
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from svc.model.clocks import WallClock
from svc.model.query_results import address_counting_key
from svc.model.refusals import IRefusals, RefusalCount, RefusalGroup, RefusalsFound, RefusalsQuery, RefusedRequest

#: The seconds for which refusals are kept.
HOUR: Final = 3600.0

#: The parts of the room, each for a refusal whose texts have so many bytes or begin as many more; measured, one takes a KB.
MAX_PARTS: Final = 10_000
PART_BYTES: Final = 512

#: The same of a process that collects them, and the seconds until it hands them over.
BATCH: Final = 1000
REPORT_DELAY: Final = 0.25


_NEVER: Final = float("-inf")


class _StoredRefusal(NamedTuple):
    """A refusal in the room: what its address is counted as, and the parts that it takes."""

    refused: RefusedRequest
    address: str
    parts: int


@attrs.define
class _AddressShare:
    """The refusals of an address in the room: their numbers, the oldest first, and the parts that they take together."""

    numbers: deque[int] = attrs.field(factory=deque)
    parts: int = 0


@implementer(IRefusals)
class RecentRefusals:
    """Keeps refusals (Note [Shares of a room])."""

    def __init__(self, wall: WallClock, room: int = MAX_PARTS) -> None:
        self._wall = wall
        self._max_parts = room
        self._began = wall.seconds()
        self._evicted_at = _NEVER
        self._number = 0
        self._used_parts = 0
        self._refusals: OrderedDict[int, _StoredRefusal] = OrderedDict()
        self._shares: dict[str, _AddressShare] = {}
        #: The addresses by the parts that they take, in the order in which they came to take as many; and the most.
        self._sizes: dict[int, OrderedDict[str, None]] = {}
        self._largest_size = 0

    def add_refusal(self, refused: RefusedRequest) -> None:
        """See ``IRefusals``."""
        self._drop_expired()
        self._number += 1
        kept = _StoredRefusal(refused, address_counting_key(refused.client_ip), 1 + _text_size(refused) // PART_BYTES)
        self._refusals[self._number] = kept
        self._resize_share(kept.address, kept.parts).numbers.append(self._number)
        while self._used_parts > self._max_parts:
            largest = next(iter(self._sizes[self._largest_size]))
            self._evicted_at = self._wall.seconds()
            self._drop_refusal(self._shares[largest].numbers[0])

    async def find_recent(self, query: RefusalsQuery) -> RefusalsFound:
        """See ``IRefusals``."""
        self._drop_expired()
        counts: Counter[RefusalGroup] = Counter()
        found: list[tuple[int, RefusedRequest]] = []
        for number, (refused, _, _) in reversed(self._refusals.items()):
            if refused.account != query.account:
                continue
            sort = RefusalGroup(refused.reason, refused.authenticator, refused.service_id)
            counts[sort] += 1
            fits = query.request_id in {None, refused.request_id} and query.group in {None, sort}
            if fits and len(found) <= query.limit and (query.before is None or number < query.before):
                found.append((number, refused))
        more = len(found) > query.limit
        found = found[: query.limit]
        since = max(self._began, self._wall.seconds() - HOUR)
        return RefusalsFound(
            since,
            self._evicted_at < since,
            tuple(itertools.starmap(RefusalCount, counts.most_common())),
            tuple(refused for _, refused in found),
            found[-1][0] if more else None,
        )

    def list_all(self) -> tuple[tuple[RefusedRequest, ...], bool]:
        """Return all refusals, the oldest first, and whether none was pushed out."""
        return tuple([kept.refused for kept in self._refusals.values()]), self._evicted_at == _NEVER

    def clear(self) -> None:
        """Begin again, with none."""
        self._evicted_at, self._used_parts, self._largest_size = _NEVER, 0, 0
        for room in (self._refusals, self._shares, self._sizes):
            room.clear()

    def add_batch(self, refused: Sequence[RefusedRequest], *, complete: bool) -> None:
        """Keep what another process has collected; ``complete``: it had room for all."""
        for each in refused:
            self.add_refusal(each)
        if not complete:
            self._evicted_at = self._wall.seconds()

    def _drop_expired(self) -> None:
        """Drop what is older than an hour, by a clock that may have been set."""
        now = self._wall.seconds()
        while self._refusals:
            number, kept = next(iter(self._refusals.items()))
            if abs(now - kept.refused.at) < HOUR:
                return
            self._drop_refusal(number)

    def _drop_refusal(self, number: int) -> None:
        kept = self._refusals.pop(number)
        share = self._resize_share(kept.address, -kept.parts)
        share.numbers.popleft()  # what is dropped is the oldest of its address

    def _resize_share(self, address: str, parts: int) -> _AddressShare:
        """Let an address take more or fewer parts."""
        share, sizes = self._shares.get(address), self._sizes
        if share is None:
            share = self._shares[address] = _AddressShare()
        else:
            same = sizes[share.parts]
            del same[address]
            if not same:
                del sizes[share.parts]
        share.parts = size = share.parts + parts
        self._used_parts += parts
        if not size:
            del self._shares[address]
        elif size in sizes:
            sizes[size][address] = None
        else:
            sizes[size] = OrderedDict([(address, None)])
        self._largest_size = max(self._largest_size, size)
        while self._largest_size and self._largest_size not in sizes:
            self._largest_size -= 1
        return share


@implementer(IRefusals)
class RemoteRefusals:
    """Refusals that another process of the server keeps (Note [In batches]).

    ``report`` hands over a batch and whether it is complete, and returns whether it was taken; ``ask`` puts a query.
    """

    def __init__(
        self,
        clock: IReactorTime,
        wall: WallClock,
        report: Callable[[tuple[RefusedRequest, ...], bool], bool],
        ask: Callable[[RefusalsQuery], Awaitable[RefusalsFound]],
    ) -> None:
        self._clock = clock
        self._batch = RecentRefusals(wall, BATCH)
        self._report = report
        self._query = ask
        self._is_scheduled = False

    def add_refusal(self, refused: RefusedRequest) -> None:
        """See ``IRefusals``."""
        self._batch.add_refusal(refused)
        self._schedule_report()

    async def find_recent(self, query: RefusalsQuery) -> RefusalsFound:
        """See ``IRefusals``."""
        return await self._query(query)

    def _schedule_report(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._clock.callLater(REPORT_DELAY, self._report_batch)

    def _report_batch(self) -> None:
        self._is_scheduled = False
        if self._report(*self._batch.list_all()):
            self._batch.clear()
        else:
            self._schedule_report()


def _text_size(refused: RefusedRequest) -> int:
    """Return the bytes that the texts of a refusal take at most."""
    texts = f"{refused.request_id}{refused.account}{refused.detail}{refused.service_id}{refused.role}"
    return len(texts) if texts.isascii() else 4 * len(texts)
