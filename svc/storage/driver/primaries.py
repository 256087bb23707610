"""The primaries among several hosts of a DSN: which there are, and which of them nothing is written to (CLU-45).

Note [Seen beside]. When a standby was promoted and the former primary runs on, both hosts say that they are the primary, and
the one that opens a session first would be written to. PostgreSQL counts promotions in the timeline. So all hosts are asked
before the first session is used, and every few seconds. Of two primaries of one system the one on the older timeline is
left; that the newer can't be reached any more is no reason to write to the older. On equal timelines, as of a copy that was
started beside its original, neither is written to. A host that gives no answer in a moment keeps no session waiting; its
answer counts when it comes.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from math import inf
from typing import Any, Final

import attrs
from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.logger import Logger

from svc.model.background import PeriodicService, run_in_background
from svc.model.errors import PrimaryContested, StoreUnavailable
from svc.storage.driver.commits import system_of
from svc.storage.driver.hosts import SuitableHosts, by_name
from svc.storage.driver.query_timeout import within_timeout

#: Seconds between two searches, and for which a session waits for one.
EVERY: Final = 5.0
MOMENT: Final = 0.5

_log = Logger()
_FAILED: Final = "Primaries among the hosts of the database are not looked for"


@attrs.frozen
class Primary:
    """A host that says that it is a primary; ``server`` is as in ``Session``."""

    host: str
    server: str
    timeline: int


class Primaries:
    """Searches for primaries on all hosts of ``places``.

    ``ask`` connects to a host with parameters of libpq, and returns its server, as in ``Session``, and its timeline.
    ``found`` is called with the name of a host that is a primary on a newer timeline than was known, and ``left`` after each
    search with the names of those that are primaries on older ones.
    """

    def __init__(
        self,
        clock: Any,
        places: SuitableHosts,
        ask: Callable[[Mapping[str, str]], Coroutine[Any, Any, tuple[str, int]]],
        found: Callable[[str], None],
        left: Callable[[frozenset[str]], None] = lambda _: None,
    ) -> None:
        self._clock, self._places, self._ask, self._found, self._left = clock, places, ask, found, left
        #: The primary on the newest timeline, by systems; and those on equal timelines at the last search.
        self._newest: dict[int, Primary] = {}
        self._tied: dict[int, tuple[str, str]] = {}
        self._logged_pairs: frozenset[tuple[str, str]] = frozenset()
        self._looked = -inf
        self._looking: Deferred[None] | None = None
        self._waiting: list[Deferred[None]] = []
        self._loop = PeriodicService(clock, EVERY, self._begin, _log, _FAILED)

    def start(self) -> None:
        """Search, and again every few seconds."""
        if not self._loop.running:
            self._loop.startService()

    def stop(self) -> None:
        """Look no more."""
        self._loop.stopService()
        if self._looking is not None:
            self._looking.cancel()

    @property
    def contested(self) -> bool:
        """Return whether two hosts were primaries of one system at the last search."""
        return bool(self._logged_pairs)

    def newest(self, server: str) -> int:
        """Return the newest timeline on which a primary of a server's system was seen; 0 for none."""
        newest = self._newest.get(system_of(server)) if self._newest else None
        return 0 if newest is None else newest.timeline

    async def look(self) -> None:
        """Return when all hosts were asked that answer in a moment, now or a few seconds ago."""
        if self._clock.seconds() - self._looked >= EVERY:
            self._begin()
        if self._looking is None:
            return
        waiting: Deferred[None] = Deferred()
        self._waiting.append(waiting)
        try:
            await waiting.addTimeout(MOMENT, self._clock)
        except DeferredTimeout:
            self._waiting.remove(waiting)

    def check(self, server: str, timeline: int, *, writes: bool) -> None:
        """Return if nothing is known against the use of a session with a primary, to read or to write.

        :raises PrimaryContested: another host has a better right; or the same, which forbids writes.
        """
        if not self._newest:
            return
        system = system_of(server)
        if 0 < timeline < self.newest(server):
            host = self._newest[system].host
            raise PrimaryContested(f"the host {host} of the database has been made the primary: changes belong there")
        if writes and (tied := self._tied.get(system)) is not None:
            hosts = " and ".join(tied)
            raise PrimaryContested(
                f"the hosts {hosts} of the database are both primaries, by the same right: neither takes changes"
            )

    def _begin(self) -> None:
        if self._looking is None:
            self._looked = self._clock.seconds()
            self._looking = run_in_background(self._look(), _log, _FAILED)
            self._looking.addBoth(self._end)

    def _end(self, _: object) -> None:
        self._looking = None
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.callback(None)

    async def _look(self) -> None:
        try:
            places = by_name(await self._places.list_alternatives(read_only=True))
        except StoreUnavailable:  # the pool says so in the log
            return
        if len(places) < 2:
            return
        asking = [Deferred.fromCoroutine(self._asked(host, place)) for host, place in places.items()]
        answers = await gatherResults(asking, consumeErrors=True)
        self._compare([primary for primary in answers if primary is not None])

    async def _asked(self, host: str, place: Mapping[str, str]) -> Primary | None:
        try:
            server, timeline = await within_timeout(Deferred.fromCoroutine(self._ask(place)), self._clock)
        except (StoreUnavailable, DeferredTimeout, CancelledError) as refusal:
            _log.debug("{host} is no primary: {why}", host=host, why=str(refusal))
            return None
        primary = Primary(host, server, timeline)
        newest = self._newest.get(system_of(server))
        if newest is None or timeline > newest.timeline:
            self._newest[system_of(server)] = primary
            self._found(host)
        return primary

    def _compare(self, primaries: list[Primary]) -> None:
        """Log primaries of one system that answered beside each other; note those on equal timelines, and on older ones."""
        older_ones = (each for each in primaries if each.timeline < self._newest[system_of(each.server)].timeline)
        self._left(frozenset(each.host for each in older_ones))
        pairs, self._tied = dict[tuple[str, str], tuple[Primary, Primary]](), {}
        for older in primaries:
            system = system_of(older.server)
            newer = max((each for each in primaries if system_of(each.server) == system), key=lambda each: each.timeline)
            if newer.server != older.server:
                pairs[newer.host, older.host] = newer, older
                if newer.timeline == older.timeline == self._newest[system].timeline:
                    self._tied[system] = newer.host, older.host
        for newer, older in (pairs[names] for names in pairs.keys() - self._logged_pairs):
            _log.error(
                "Two hosts of the database are primaries of one system (split brain): {newer} on timeline {theirs}, and"
                " {older} on timeline {its}; nothing is written to {left}",
                newer=newer.host,
                theirs=newer.timeline,
                older=older.host,
                its=older.timeline,
                left=older.host if older.timeline < newer.timeline else "either",
            )
        self._logged_pairs = frozenset(pairs)
