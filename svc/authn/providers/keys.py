"""The verification keys of identity providers, kept in memory: fetched when needed, never more often than allowed.

Note [Budget]. Anyone can send a token that no key verifies, and each might be the first of a new key. So logins have a
source fetched at most once in an interval, whatever the result, and are answered at once inside the interval: forged tokens
make this server neither a hammer against a provider nor a queue of waiting logins, no unknown key id is stored, and a true
rotation is noticed within one interval (AUTH-44). The answer is that of the newest set, if it was fetched within the
interval and no fetch has failed since; else the login may be tried again (AUTH-45). Fetches that no stranger causes don't
count: the first of a source, one for each wish of an operator for newer keys, and those of the next note and the last.

Note [Retries]. A provider that fails is mostly back before the interval is over, perhaps with other keys. So the server
repeats a failed fetch a fifth of the interval later, until it succeeds or no login has lacked its keys for a whole interval.
With what logins may ask for, that is six fetches in an interval at most, however many tokens come. Few sources are retried
at a time; the others wait for the interval, which bounds the cost of a thousand broken sources.

Note [Shared fetch]. A login that needs a source that is being fetched waits for that fetch, if there is room
(``fetch_waiters``). A client that leaves ends its own wait alone. There is no lock, and sources know nothing of each other.

Note [Refresh requests]. An operator's requests for newer keys are numbered. A fetch fulfils those that were known when it
began; a login that brings a later one meanwhile lets it end, and begins another.

Note [Ages]. With an age set, a set of keys is renewed in the background at three quarters of the age, and again while that
fails, as long as the source is used. A set that has reached the age is used only where a fetch has just failed, and for no
longer than the settings say; then it is dropped (AUTH-49).
"""

from __future__ import annotations

import math
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from svc.authn.providers.fetch_waiters import FetchWaiters, WaitBudget, Waiter
from svc.model.authentication import IProviderKeys, KeySource, KeysState, LoginRequest, spread_retry_after
from svc.model.errors import KeysUnavailable
from svc.model.key_sets import KeySet
from svc.model.query_results import address_counting_key

#: Returns the key set of a source, which has a usable key, or raises ``KeysUnavailable``.
Fetch = Callable[[KeySource], Awaitable[KeySet]]

#: The most sources in the cache. The least recently used one without keys is evicted first, else the least recently used.
SOURCES_LIMIT: Final = 1000

#: The retries of a failed fetch in an interval, and the sources that are retried at a time (Note [Retries]).
RETRIES: Final = 5
RETRIED_LIMIT: Final = 16

#: The part of the age after which a set is renewed, and the one after which that is retried.
_RENEWAL_PART: Final = 3 / 4
_RETRY_PART: Final = 1 / 8

#: Seconds without a login after which a source isn't renewed any more; the age counts where it is longer.
_UNUSED_SECONDS: Final = 3600.0

_log = Logger()


@attrs.define(eq=False)
class _SourceState:
    """The state of one source; moments are in seconds.

    ``set_at``: when the fetch of ``keys`` began; ``attempted_at``: when the last one did; ``spent_at``: when the last one
    that counts did (Note [Budget]). ``failure``: why the last one that ended failed; ``problems`` and ``unused`` are those
    of the keys that it found, if it found none to use. ``waiters`` waits for the one under way. ``requested_refresh`` is the
    newest wish, ``fulfilled`` the newest that a fetch was made for, less than any wish before the first fetch (Note
    [Wishes]). ``used_at``: when the keys were last needed; ``lacked_at``: when those at hand last didn't do. ``timer`` comes
    in the background at ``timer_at``; ``renews``: whether it is one of Note [Ages].
    """

    source: KeySource
    used_at: float
    keys: KeySet | None = None
    set_at: float = 0.0
    attempted_at: float = 0.0
    failure: str | None = None
    problems: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    spent_at: float | None = None
    waiters: FetchWaiters | None = None
    requested_refresh: int = 0
    fulfilled: int = -1
    lacked_at: float | None = None
    renews: bool = False
    timer_at: float = 0.0
    timer: IDelayedCall | None = None


@implementer(IProviderKeys)
@attrs.define(eq=False, repr=False)
class ProviderKeys:
    """Key sets by their source; all times are in seconds.

    ``refetch_interval`` is that of Note [Budget]. ``max_age`` is the age that a set may reach, ``None`` for any, and
    ``stale_if_error`` how much more while the provider can't be reached (Note [Ages]). ``chance`` returns numbers from 0 to
    1 (``authentication.spread_retry_after``). ``on_fetched`` is called with a source when a fetch of it has ended.
    """

    _fetch: Fetch
    _clock: IReactorTime
    _refetch_interval: float
    _age_limit: float | None = attrs.field(default=None, alias="max_age", kw_only=True)
    _stale_if_error: float = attrs.field(default=0.0, kw_only=True)
    _limit: int = attrs.field(default=SOURCES_LIMIT, kw_only=True)
    _chance: Callable[[], float] = attrs.field(default=random.random, kw_only=True)
    _on_fetched: Callable[[KeySource], object] = attrs.field(default=lambda _: None, kw_only=True)
    _max_age: float = attrs.field(init=False)
    _budget: WaitBudget = attrs.field(init=False)
    _sources: OrderedDict[KeySource, _SourceState] = attrs.field(factory=OrderedDict, init=False)
    _retried: set[_SourceState] = attrs.field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        self._max_age = math.inf if self._age_limit is None else self._age_limit
        self._budget = WaitBudget(self._clock, self._evict_waiter)

    async def current_keys(self, source: KeySource, refreshes: int = 0, request: LoginRequest | None = None) -> KeySet:
        """See ``IProviderKeys``."""
        known = self._get_source(source)
        known.requested_refresh = max(known.requested_refresh, refreshes)
        if known.waiters is not None and known.fulfilled < refreshes:
            with suppress(KeysUnavailable):
                await self._await_fetch(known, request)
        free = known.fulfilled < refreshes
        keys = self._usable_keys(known)
        young = self._clock.seconds() - known.set_at < self._max_age
        if keys is not None and not free and (young or self._renewal_just_failed(known)):
            return keys
        if keys is None:
            known.lacked_at = self._clock.seconds()
        try:
            return await self._await_fetch(known, request, free=free)
        except KeysUnavailable:
            keys = self._usable_keys(known)
            if keys is None:
                raise
            return keys

    async def fetch_newer_keys(self, source: KeySource, seen: KeySet, request: LoginRequest | None = None) -> KeySet:
        """See ``IProviderKeys``."""
        known = self._get_source(source)
        keys = self._usable_keys(known)
        if keys is not None and (keys is not seen or self._is_newest(known)):
            return keys
        known.lacked_at = self._clock.seconds()
        return await self._await_fetch(known, request)

    def keys_state(self, source: KeySource) -> KeysState:
        """See ``IProviderKeys``."""
        known = self._sources.get(source)
        if known is None:
            return KeysState()
        keys = self._usable_keys(known)
        if keys is None:
            return KeysState((), known.problems, None, known.attempted_at, known.failure, known.unused)
        return KeysState(
            keys=tuple((key.key_id, key.thumbprint) for key in keys.keys),
            problems=keys.problems,
            fetched_at=known.set_at,
            attempted_at=known.attempted_at,
            failure=known.failure,
            unused=keys.unused,
        )

    def mark_used(self, source: KeySource) -> None:
        """Note that the keys of a source are in use elsewhere, if it is known."""
        if source in self._sources:
            self._get_source(source)

    def cached_keys(self, source: KeySource) -> KeySet | None:
        """Return the usable set of a source; asks nobody."""
        known = self._sources.get(source)
        return None if known is None else self._usable_keys(known)

    def fulfilled_refresh(self, source: KeySource) -> int:
        """Return the number of the newest request with a fetch (Note [Refresh requests]); -1 before the first."""
        known = self._sources.get(source)
        return -1 if known is None else known.fulfilled

    def key_set_ages(self) -> list[float]:
        """Return the age of each usable key set, in seconds; may be called from another thread, and changes nothing."""
        now, most = self._clock.seconds(), self._max_age + self._stale_if_error
        # A dict's own iteration is one step; that of an OrderedDict calls for hashes, and other threads run meanwhile.
        sources = list(dict.values(self._sources))
        ages = [now - known.set_at for known in sources if known.keys is not None]
        return [age for age in ages if age < most]

    def _get_source(self, source: KeySource) -> _SourceState:
        now = self._clock.seconds()
        known = self._sources.get(source)
        if known is None:
            known = self._sources[source] = _SourceState(source, now)
            if len(self._sources) > self._limit:
                self._evict_source(known)
        else:
            known.used_at = now
            self._sources.move_to_end(source)
        return known

    def _evict_source(self, newest: _SourceState) -> None:
        """Make room. Sources that never gave any keys, which cost nothing to name, can't displace those that did."""
        others = [each for each in self._sources.values() if each is not newest]
        forgotten = next((each for each in others if each.keys is None), others[0])
        del self._sources[forgotten.source]
        self._cancel_scheduled(forgotten)

    def _usable_keys(self, known: _SourceState) -> KeySet | None:
        """Return the set, even one that is only usable while the provider can't be reached; drop one too old for that."""
        if known.keys is not None and self._clock.seconds() - known.set_at >= self._max_age + self._stale_if_error:
            known.keys = None
            _log.info("the keys of {uri} are too old, and are dropped", uri=known.source.uri)
        return known.keys

    def _renewal_just_failed(self, known: _SourceState) -> bool:
        """Return whether the last fetch failed, and so lately that a set that has reached the age still does."""
        return known.failure is not None and 0 <= self._clock.seconds() - known.attempted_at < self._renewal_pause()

    def _is_newest(self, known: _SourceState) -> bool:
        """Return whether the keys at hand must do: they just came, and no fetch is under way or allowed."""
        answered = known.failure is None and self._clock.seconds() - known.set_at < self._refetch_interval
        return answered and known.waiters is None and self._interval_left(known.spent_at) > 0

    def _await_fetch(self, known: _SourceState, request: LoginRequest | None, *, free: bool = False) -> Waiter:
        """Wait for the fetch that is under way, or begin one (Notes [Shared fetch] and [Budget])."""
        address, size = ("", 0) if request is None else (address_counting_key(request.client_ip), len(request.evidence))
        if known.waiters is not None:
            waiter = known.waiters.add_waiter(address, size)
        else:
            if not free:
                self._spend_budget(known)
            crowd = FetchWaiters(self._budget)
            waiter = crowd.add_waiter(address, size)
            self._begin_fetch(known, crowd)
        if waiter is None:
            raise self._no_room_error()
        return waiter

    def _evict_waiter(self, waiter: Waiter) -> None:
        if not waiter.called:  # its client may have left meanwhile
            waiter.errback(self._no_room_error())

    def _no_room_error(self) -> KeysUnavailable:
        return KeysUnavailable("more logins wait for keys than there is room for", spread_retry_after(chance=self._chance))

    def _spend_budget(self, known: _SourceState) -> None:
        """Take this interval's fetch, or see to it that the server itself makes one (Note [Retries])."""
        wait = self._interval_left(known.spent_at)
        if not wait:
            known.spent_at = self._clock.seconds()
            return
        if known not in self._retried and self._may_be_retried(known):
            self._schedule_fetch(known, self._renewal_pause())
        why = f"{known.source.uri} was asked a moment ago, and may be asked again in {wait:.1f} seconds"
        why = why if known.failure is None else f"{why}; that failed: {known.failure}"
        raise KeysUnavailable(why, self._retry_after(known), known.problems, known.unused)

    def _interval_left(self, since: float | None) -> float:
        """Return the seconds that are left of the interval that began then."""
        return 0.0 if since is None else max(0.0, self._refetch_interval - (self._clock.seconds() - since))

    def _retry_after(self, known: _SourceState) -> int:
        """Return the seconds after which a login without these keys may be tried again: a fetch was made then, or may be."""
        wait = self._interval_left(known.spent_at)
        if known.timer is not None:
            wait = min(wait, max(0.0, known.timer_at - self._clock.seconds()))
        return spread_retry_after(wait, self._chance)

    def _begin_fetch(self, known: _SourceState, crowd: FetchWaiters) -> None:
        self._cancel_scheduled(known)
        known.waiters = crowd
        known.fulfilled = known.requested_refresh
        known.attempted_at = began = self._clock.seconds()
        Deferred.fromCoroutine(self._fetch_keys(known.source)).addBoth(self._finish_fetch, known, began)

    async def _fetch_keys(self, source: KeySource) -> KeySet:
        return await self._fetch(source)

    def _finish_fetch(self, result: KeySet | Failure, known: _SourceState, began: float) -> None:
        """Keep a new set, and notify every waiter. A set that is at hand outlives a fetch that failed."""
        crowd, known.waiters = known.waiters, None
        assert crowd is not None
        uri = known.source.uri
        known.problems = known.unused = ()
        if isinstance(result, KeySet):
            keys = known.keys = result
            known.set_at, known.failure, known.lacked_at = began, None, None
            _log.info("{count} keys came from {uri}", count=len(keys.keys), uri=uri, problems=keys.problems)
            self._schedule_fetch(known, self._max_age * _RENEWAL_PART)
            self._on_fetched(known.source)
            crowd.release_all(lambda waiter: waiter.callback(keys))
            return
        if not isinstance(result.value, KeysUnavailable):
            why = f"{uri}: an error of this program, which its log tells"
            _log.failure("the fetch of {uri} ended in an unexpected error", result, uri=uri)
        elif (why := result.value.why) != known.failure:
            # The same failure is logged once, and not with every retry.
            at_hand = known.keys is not None
            _log.warn("the keys of a provider could not be fetched: {why}", why=why, at_hand=at_hand)
        if isinstance(result.value, KeysUnavailable):
            known.problems, known.unused = result.value.problems, result.value.unused
        known.failure = why
        self._schedule_fetch(known, self._renewal_pause())
        self._on_fetched(known.source)
        crowd.release_all(
            lambda waiter: waiter.errback(KeysUnavailable(why, self._retry_after(known), known.problems, known.unused))
        )

    # -- fetches in the background (Notes [Ages] and [Retries]) -------------------------------------------------------

    def _renewal_pause(self) -> float:
        """Return the seconds after which the renewal of a set is retried."""
        return max(self._refetch_interval, self._max_age * _RETRY_PART)

    def _is_lacking(self, known: _SourceState) -> bool:
        """Return whether the last fetch failed, and a login lacked keys within the interval."""
        return known.failure is not None and self._interval_left(known.lacked_at) > 0

    def _may_be_retried(self, known: _SourceState) -> bool:
        return len(self._retried) < RETRIED_LIMIT and self._is_lacking(known)

    def _schedule_fetch(self, known: _SourceState, pause: float) -> None:
        """Look at a source after ``pause`` seconds, unless it has no keys to renew; sooner if its keys are lacking."""
        self._cancel_scheduled(known)
        if self._sources.get(known.source) is not known:
            return
        if self._usable_keys(known) is None:
            pause = math.inf
        known.renews = True
        if self._may_be_retried(known):
            self._retried.add(known)
            known.renews, pause = False, self._refetch_interval / RETRIES
        if math.isfinite(pause):
            known.timer_at = self._clock.seconds() + pause
            known.timer = self._clock.callLater(pause, self._run_scheduled, known)

    def _run_scheduled(self, known: _SourceState, /) -> None:
        known.timer = None
        is_used = self._clock.seconds() - known.used_at < max(_UNUSED_SECONDS, self._max_age)
        if self._is_lacking(known) or (known.renews and is_used):
            self._begin_fetch(known, FetchWaiters(self._budget))
        else:
            self._schedule_fetch(known, self._renewal_pause())

    def _cancel_scheduled(self, known: _SourceState) -> None:
        self._retried.discard(known)
        if known.timer is not None:
            known.timer.cancel()
            known.timer = None
