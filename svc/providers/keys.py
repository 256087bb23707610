"""The verification keys of identity providers, kept in memory: fetched when needed, never oftener than allowed.

Note [Budget]. Anyone can send a token that no key verifies, and each might be the first of a new key. So a source is asked
at most once in an interval, whatever comes of it, and who needs more inside the interval is refused at once: forged tokens
can make this server neither a hammer against a provider nor a queue of waiting logins, and a true rotation is learnt within
one interval (rulings 4). The first fetch of a source doesn't count, so that a rotation just after a start isn't missed.

Note [Shared fetch]. Who needs a source that is being fetched waits for that fetch. It belongs to nobody: a client that
leaves takes its own wait with it and nothing else. There is no lock, and sources know nothing of each other.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from svc.errors import KeysUnavailable
from svc.interfaces import IProviderKeys
from svc.jose import KeySet, Malformed, parse_key_set

#: Fetches the document at an address, or raises ``KeysUnavailable``.
Fetch = Callable[[str], Awaitable[bytes]]

#: Sources that are remembered. The least recently used is forgotten first; its next fetch is a first one again.
SOURCES_LIMIT: Final = 1000

_log = Logger()


@attrs.define(eq=False)
class _Source:
    """What is known of one address.

    ``first``: it was never asked. ``asked_at``: when the last fetch that counts began, in seconds. ``waiters``: who waits
    for the fetch under way, ``None`` when there is none.
    """

    uri: str
    keys: KeySet | None = None
    first: bool = True
    asked_at: float | None = None
    waiters: list[Deferred[KeySet]] | None = None


@implementer(IProviderKeys)
class ProviderKeys:
    """Key sets by the address they come from. ``refetch_interval`` is in seconds (Note [Budget])."""

    def __init__(self, fetch: Fetch, clock: IReactorTime, refetch_interval: float, limit: int = SOURCES_LIMIT) -> None:
        self._fetch = fetch
        self._clock = clock
        self._refetch_interval = refetch_interval
        self._limit = limit
        self._sources: OrderedDict[str, _Source] = OrderedDict()

    async def current(self, uri: str) -> KeySet:
        """Return the set at hand, fetched now when there is none.

        :raises KeysUnavailable: it could not be fetched, or may not be fetched yet.
        """
        source = self._source(uri)
        return await self._fetched(source) if source.keys is None else source.keys

    async def newer(self, uri: str, seen: KeySet) -> KeySet:
        """Return a set that was fetched after ``seen``, fetched now when there is none.

        :raises KeysUnavailable: it could not be fetched, or may not be fetched yet; the old set stays.
        """
        source = self._source(uri)
        if source.keys is not None and source.keys is not seen:
            return source.keys
        return await self._fetched(source)

    def _source(self, uri: str) -> _Source:
        source = self._sources.get(uri)
        if source is None:
            source = self._sources[uri] = _Source(uri)
            if len(self._sources) > self._limit:
                self._sources.popitem(last=False)
        else:
            self._sources.move_to_end(uri)
        return source

    def _fetched(self, source: _Source) -> Deferred[KeySet]:
        """Wait for the fetch that is under way, or begin one (Notes [Shared fetch] and [Budget])."""
        waiter: Deferred[KeySet] = Deferred()
        if source.waiters is not None:
            source.waiters.append(waiter)
            return waiter
        if source.first:
            source.first = False
        else:
            self._spend(source)
        source.waiters = [waiter]
        Deferred.fromCoroutine(self._parsed(source.uri)).addBoth(self._arrived, source)
        return waiter

    def _spend(self, source: _Source) -> None:
        """Take this interval's fetch. An earlier one in the future, left by a clock that was put back, is forgotten."""
        now = self._clock.seconds()
        if source.asked_at is not None and 0 <= now - source.asked_at < self._refetch_interval:
            wait = source.asked_at + self._refetch_interval - now
            raise KeysUnavailable(f"{source.uri} was asked a moment ago, and may be asked again in {wait:.1f} seconds")
        source.asked_at = now

    async def _parsed(self, uri: str) -> KeySet:
        document = await self._fetch(uri)
        try:
            keys = parse_key_set(document)
        except Malformed as error:
            raise KeysUnavailable(f"{uri}: the answer is not usable: {error}") from None
        if not keys.keys:
            raise KeysUnavailable(f"{uri}: the answer is not usable: {keys.why_unusable}")
        return keys

    def _arrived(self, result: KeySet | Failure, source: _Source) -> None:
        """Keep a new set, and tell everyone who waits. A set that is at hand outlives a fetch that failed."""
        waiters, source.waiters = source.waiters or [], None
        if isinstance(result, KeySet):
            source.keys = result
            _log.info("{count} keys came from {uri}", count=len(result.keys), uri=source.uri, problems=result.problems)
            for waiter in waiters:
                waiter.callback(result)
            return
        if isinstance(result.value, KeysUnavailable):
            why = result.value.why
            _log.warn("the keys of a provider could not be fetched: {why}", why=why, at_hand=source.keys is not None)
        else:
            why = f"{source.uri}: an error of this program, which its log tells"
            _log.failure("the fetch of {uri} ended in an unexpected error", result, uri=source.uri)
        for waiter in waiters:
            waiter.errback(KeysUnavailable(why))
