"""The verification keys of identity providers, kept in memory: fetched when needed, never oftener than allowed.

Note [Budget]. Anyone can send a token that no key verifies, and each might be the first of a new key. So a source is asked
at most once in an interval, whatever comes of it, and who needs more inside the interval is refused at once: forged tokens
can make this server neither a hammer against a provider nor a queue of waiting logins, and a true rotation is learnt within
one interval (rulings 4). No unknown key id needs to be remembered for that. What no stranger causes doesn't count: the first
fetch of a source, one for each wish of an operator for newer keys, and those of Note [Ages].

Note [Shared fetch]. Who needs a source that is being fetched waits for that fetch. It belongs to nobody: a client that
leaves takes its own wait with it and nothing else. There is no lock, and sources know nothing of each other.

Note [Wishes]. An operator's wishes are numbered. A fetch fulfils those that were known when it began; who brings a later one
while it is under way lets it end, and begins another.

Note [Ages]. With an age set, a set of keys is fetched anew in the background when three quarters of the age have passed, and
again and again while that fails, as long as somebody uses the source. A set that has reached the age is used only where
the provider was just asked in vain, and for no longer than the settings say; then it is dropped (rulings 4).
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from svc.authentication import IProviderKeys, KeySource, KeysState
from svc.errors import KeysUnavailable
from svc.jose import KeySet

#: Fetches the key set of a source, which has a usable key, or raises ``KeysUnavailable``.
Fetch = Callable[[KeySource], Awaitable[KeySet]]

#: Sources that are remembered. The least recently used without keys is forgotten first, else the least recently used; its
#: next fetch is a first one again.
SOURCES_LIMIT: Final = 1000

#: Logins that wait for one fetch; whoever comes then is refused at once.
WAITERS_LIMIT: Final = 100

#: The part of the age after which a set is fetched anew, and the one after which that is tried again.
_EARLY: Final = 3 / 4
_AGAIN: Final = 1 / 8

#: Seconds without any login after which a source isn't renewed any more; the age counts where it is longer.
_UNUSED: Final = 3600.0

_log = Logger()


@attrs.define(eq=False)
class _Known:
    """What is known of one source; moments are in seconds.

    ``set_at``: when the fetch of ``keys`` began; ``asked_at``: when the last one did; ``spent_at``: when the last one that
    counts did (Note [Budget]). ``failure``: why the last one that ended failed. ``waiters``: who waits for the one under
    way, ``None`` when there is none. ``wished`` is the newest wish that was brought, ``fulfilled`` the newest that a fetch
    was made for, and less than any wish before the first fetch (Note [Wishes]). ``used_at``: when somebody last needed the
    keys.
    """

    source: KeySource
    used_at: float
    keys: KeySet | None = None
    set_at: float = 0.0
    asked_at: float = 0.0
    failure: str | None = None
    spent_at: float | None = None
    waiters: list[Deferred[KeySet]] | None = None
    wished: int = 0
    fulfilled: int = -1
    renewal: IDelayedCall | None = None


@implementer(IProviderKeys)
class ProviderKeys:
    """Key sets by their source.

    ``refetch_interval`` is that of Note [Budget]. ``max_age`` is how old a set may become, ``None`` for any age, and
    ``stale_if_error`` how much older while the provider can't be asked (Note [Ages]). All are in seconds.
    """

    def __init__(
        self,
        fetch: Fetch,
        clock: IReactorTime,
        refetch_interval: float,
        *,
        max_age: float | None = None,
        stale_if_error: float = 0.0,
        limit: int = SOURCES_LIMIT,
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._refetch_interval = refetch_interval
        self._max_age = math.inf if max_age is None else max_age
        self._stale_if_error = stale_if_error
        self._limit = limit
        self._sources: OrderedDict[KeySource, _Known] = OrderedDict()

    async def current(self, source: KeySource, refreshes: int = 0) -> KeySet:
        """See ``IProviderKeys``."""
        known = self._known(source)
        known.wished = max(known.wished, refreshes)
        if known.waiters is not None and known.fulfilled < refreshes:
            await self._end(known)
        free = known.fulfilled < refreshes
        keys = self._at_hand(known)
        if keys is not None and not free and not self._is_due(known):
            return keys
        try:
            return await self._fetched(known, free=free)
        except KeysUnavailable:
            keys = self._at_hand(known)
            if keys is None:
                raise
            return keys

    async def newer(self, source: KeySource, seen: KeySet) -> KeySet:
        """See ``IProviderKeys``."""
        known = self._known(source)
        keys = self._at_hand(known)
        if keys is not None and keys is not seen:
            return keys
        return await self._fetched(known)

    def state(self, source: KeySource) -> KeysState:
        """See ``IProviderKeys``."""
        known = self._sources.get(source)
        if known is None:
            return KeysState()
        keys = self._at_hand(known)
        if keys is None:
            return KeysState(asked_at=known.asked_at, failure=known.failure)
        return KeysState(
            keys=tuple((key.key_id, key.thumbprint) for key in keys.keys),
            problems=keys.problems,
            fetched_at=known.set_at,
            asked_at=known.asked_at,
            failure=known.failure,
        )

    def ages(self) -> list[float]:
        """The age of each key set that may be used, in seconds. It may be asked from another thread, and changes nothing."""
        now, most = self._clock.seconds(), self._max_age + self._stale_if_error
        # A dict's own iteration is one step; that of an OrderedDict calls for hashes, and others have their turn meanwhile.
        sources = list(dict.values(self._sources))
        ages = [max(0.0, now - known.set_at) for known in sources if known.keys is not None]
        return [age for age in ages if age < most]

    # -- sources ------------------------------------------------------------------------------------------------------

    def _known(self, source: KeySource) -> _Known:
        now = self._clock.seconds()
        known = self._sources.get(source)
        if known is None:
            known = self._sources[source] = _Known(source, now)
            if len(self._sources) > self._limit:
                self._forget(known)
        else:
            known.used_at = now
            self._sources.move_to_end(source)
        return known

    def _forget(self, newest: _Known) -> None:
        """Make room. Sources that never gave any keys, which cost nothing to name, can't displace those that did."""
        others = [each for each in self._sources.values() if each is not newest]
        forgotten = next((each for each in others if each.keys is None), others[0])
        del self._sources[forgotten.source]
        self._put_off(forgotten)

    def _at_hand(self, known: _Known) -> KeySet | None:
        """The set that may be used, if only while the provider can't be asked; one that is too old for that is dropped."""
        if known.keys is not None and self._age(known) >= self._max_age + self._stale_if_error:
            known.keys = None
            _log.info("the keys of {uri} are too old, and are dropped", uri=known.source.uri)
        return known.keys

    def _age(self, known: _Known) -> float:
        now = self._clock.seconds()
        known.set_at = min(known.set_at, now)  # the clock may have been put back
        return now - known.set_at

    def _is_due(self, known: _Known) -> bool:
        """Whether the set at hand has reached the age, and the provider wasn't just asked for another in vain."""
        if self._age(known) < self._max_age:
            return False
        return known.failure is None or not 0 <= self._clock.seconds() - known.asked_at < self._again()

    # -- fetches ------------------------------------------------------------------------------------------------------

    def _fetched(self, known: _Known, *, free: bool = False) -> Deferred[KeySet]:
        """Wait for the fetch that is under way, or begin one (Notes [Shared fetch] and [Budget])."""
        waiter: Deferred[KeySet] = Deferred()
        if known.waiters is not None:
            if len(known.waiters) >= WAITERS_LIMIT:
                raise KeysUnavailable(f"{known.source.uri} is being asked, and {WAITERS_LIMIT} logins wait for that already")
            known.waiters.append(waiter)
            return waiter
        if not free:
            self._spend(known)
        self._begin(known, waiter)
        return waiter

    async def _end(self, known: _Known) -> None:
        """Wait for the end of the fetch that is under way, whatever comes of it."""
        try:
            await self._fetched(known)
        except KeysUnavailable:
            return

    def _spend(self, known: _Known) -> None:
        """Take this interval's fetch. An earlier one in the future, left by a clock that was put back, is forgotten."""
        now = self._clock.seconds()
        if known.spent_at is not None and 0 <= now - known.spent_at < self._refetch_interval:
            wait = known.spent_at + self._refetch_interval - now
            raise KeysUnavailable(f"{known.source.uri} was asked a moment ago, and may be asked again in {wait:.1f} seconds")
        known.spent_at = now

    def _begin(self, known: _Known, *waiters: Deferred[KeySet]) -> None:
        self._put_off(known)
        known.waiters = list(waiters)
        known.fulfilled = known.wished
        known.asked_at = began = self._clock.seconds()
        Deferred.fromCoroutine(self._read(known.source)).addBoth(self._arrived, known, began)

    async def _read(self, source: KeySource) -> KeySet:
        return await self._fetch(source)

    def _arrived(self, result: KeySet | Failure, known: _Known, began: float) -> None:
        """Keep a new set, and tell everyone who waits. A set that is at hand outlives a fetch that failed."""
        waiters, known.waiters = known.waiters or [], None
        uri = known.source.uri
        if isinstance(result, KeySet):
            known.keys, known.set_at, known.failure = result, began, None
            _log.info("{count} keys came from {uri}", count=len(result.keys), uri=uri, problems=result.problems)
            self._plan(known, self._max_age * _EARLY)
            for waiter in waiters:
                waiter.callback(result)
            return
        if isinstance(result.value, KeysUnavailable):
            why, at_hand = result.value.why, known.keys is not None
            _log.warn("the keys of a provider could not be fetched: {why}", why=why, at_hand=at_hand)
        else:
            why = f"{uri}: an error of this program, which its log tells"
            _log.failure("the fetch of {uri} ended in an unexpected error", result, uri=uri)
        known.failure = why
        self._plan(known, self._again())
        for waiter in waiters:
            waiter.errback(KeysUnavailable(why))

    # -- renewal in the background (Note [Ages]) ----------------------------------------------------------------------

    def _again(self) -> float:
        """Seconds after which a fetch that failed is tried again."""
        return max(self._refetch_interval, self._max_age * _AGAIN)

    def _plan(self, known: _Known, pause: float) -> None:
        """Look at a source again after that many seconds, unless it has no keys to renew."""
        remembered = self._sources.get(known.source) is known
        if remembered and self._at_hand(known) is not None and math.isfinite(pause):
            known.renewal = self._clock.callLater(pause, self._renew, known)

    def _renew(self, known: _Known, /) -> None:
        known.renewal = None
        if self._clock.seconds() - known.used_at < max(_UNUSED, self._max_age):
            self._begin(known)
        else:
            self._plan(known, self._again())

    def _put_off(self, known: _Known) -> None:
        if known.renewal is not None:
            known.renewal.cancel()
            known.renewal = None
