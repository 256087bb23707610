"""Keys of identity providers that one process of a server fetches for all.

:class:`SharedKeys` is in the process that fetches, and :class:`RemoteKeys` in each that serves.

Note [One budget]. Budgets, refresh requests, ages and retries are those of the one :class:`ProviderKeys` behind. A copy
answers logins by itself while its keys suffice; it is notified of every fetch as soon as that has ended, so that all copies
are the same. It requests missing keys: one request for each source at a time, for which logins wait as they wait for a
fetch.

Note [A moment's answer]. Forged tokens may not make the copies ask without end either. An answer that there is nothing newer
is good for ``REFUSAL_SECONDS``, or until a fetch has ended.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, Final

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from svc.authn.providers.fetch_waiters import FetchWaiters, WaitBudget, Waiter
from svc.authn.providers.keys import SOURCES_LIMIT, ProviderKeys
from svc.crypto.key_sets import parse_key_set
from svc.model.authentication import IProviderKeys, KeySource, KeysState, LoginRequest, spread_retry_after
from svc.model.errors import KeysUnavailable, StoreUnavailable
from svc.model.key_sets import KeySet
from svc.model.query_results import address_counting_key

#: Seconds for which an answer is good that there is nothing newer, or too old a set to be had (Note [A moment's answer]);
#: and between two words that a source is in use.
REFUSAL_SECONDS: Final = 1.0
USE_REPORT_INTERVAL: Final = 60.0

_NOTHING: Final = KeySet(())

_log = Logger()


@attrs.frozen
class KeysRequest:
    """A question for keys: ``newer`` than the set of the number ``seen`` (0 for none), or those at hand.

    ``refreshes`` is as in ``IProviderKeys.current_keys``.
    """

    source: KeySource
    seen: int
    newer: bool
    refreshes: int = 0


@attrs.frozen
class KeysResponse:
    """The keys of a source, the set of this ``number``; ``document`` is ``None`` for one that has it already.

    ``age`` is that of the set and ``attempt_age`` the time since the last fetch began, both in seconds; ``failure`` is why
    that failed. ``fulfilled`` is the newest wish that it was made for. ``issuer`` is as in ``KeySet``. Number 0 stands for
    none.
    """

    source: KeySource
    number: int
    document: bytes | None = attrs.field(repr=False)
    age: float
    attempt_age: float | None
    failure: str | None
    fulfilled: int
    issuer: str | None = None


class SharedKeys:
    """Answers the requests of copies; ``tell`` sends all of them an unrequested answer."""

    def __init__(
        self,
        clock: IReactorTime,
        make: Callable[[Callable[[KeySource], object]], ProviderKeys],
        tell: Callable[[KeysResponse], object],
    ) -> None:
        self._clock = clock
        self._broadcast = tell
        self._last_number = 0
        #: The number of the newest set of each source that was sent.
        self._sent_sets: OrderedDict[KeySource, tuple[int, KeySet]] = OrderedDict()
        self.keys = make(self._publish_keys)

    async def answer_request(self, question: KeysRequest) -> KeysResponse:
        """Return what there is.

        :raises KeysUnavailable: there is nothing, or nothing newer, to be had now.
        """
        number, seen = self._sent_sets.get(question.source, (0, _NOTHING))
        if question.newer:
            found = await self.keys.fetch_newer_keys(question.source, seen if number == question.seen else _NOTHING)
        else:
            found = await self.keys.current_keys(question.source, question.refreshes)
        return self._make_response(question.source, found, question.seen)

    def mark_used(self, source: KeySource) -> None:
        """Note that a copy uses a source."""
        self.keys.mark_used(source)

    def _publish_keys(self, source: KeySource) -> None:
        if (found := self.keys.cached_keys(source)) is not None:
            self._broadcast(self._make_response(source, found, self._sent_sets.get(source, (0, None))[0]))

    def _make_response(self, source: KeySource, found: KeySet, seen: int) -> KeysResponse:
        number, known = self._sent_sets.pop(source, (0, _NOTHING))
        if known is not found:
            self._last_number += 1
            number = self._last_number
        self._sent_sets[source] = (number, found)
        if len(self._sent_sets) > SOURCES_LIMIT:
            self._sent_sets.popitem(last=False)
        state, now = self.keys.keys_state(source), self._clock.seconds()
        return KeysResponse(
            source,
            number,
            None if number == seen else found.document,
            0.0 if state.fetched_at is None else now - state.fetched_at,
            None if state.attempted_at is None else now - state.attempted_at,
            state.failure,
            self.keys.fulfilled_refresh(source),
            found.issuer,
        )


@attrs.frozen
class _CachedRefusal:
    """Why a question came to nothing: one for ``newer`` keys or not, and which wish it brought; until when that is good."""

    newer: bool
    refreshes: int
    until: float
    why: str | None
    wait: int
    problems: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()


@attrs.define(eq=False)
class _RemoteKeySet:
    """The state of one source; moments are in seconds. ``good_until``: when its keys are to be requested again."""

    keys: KeySet | None = None
    number: int = 0
    set_at: float = 0.0
    attempted_at: float | None = None
    failure: str | None = None
    problems: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    fulfilled: int = -1
    good_until: float = 0.0
    used_at: float = -math.inf
    waiters: FetchWaiters | None = None
    refusal: _CachedRefusal | None = None


@implementer(IProviderKeys)
class RemoteKeys:
    """Key sets by their source, as the process that fetches has them (Note [One budget]).

    ``ask`` sends a question to it, and ``use`` notifies it that a source is in use. ``max_age`` is that of ``ProviderKeys``;
    ``room`` has the bytes that waiting logins may take.
    """

    def __init__(
        self,
        clock: IReactorTime,
        ask: Callable[[KeysRequest], Coroutine[Any, Any, KeysResponse]],
        use: Callable[[KeySource], object],
        max_age: float | None,
        room: int,
    ) -> None:
        self._clock, self._request_keys, self._report_use = clock, ask, use
        self._max_age = math.inf if max_age is None else max_age
        self._budget = WaitBudget(clock, _evict_waiter, room)
        self._sources: OrderedDict[KeySource, _RemoteKeySet] = OrderedDict()

    async def current_keys(self, source: KeySource, refreshes: int = 0, request: LoginRequest | None = None) -> KeySet:
        """See ``IProviderKeys``."""
        copy = self._get_source(source)
        while copy.keys is None or copy.fulfilled < refreshes or self._clock.seconds() >= copy.good_until:
            self._check_refusal(copy, newer=False, refreshes=refreshes)
            await self._await_response(copy, KeysRequest(source, copy.number, newer=False, refreshes=refreshes), request)
        return copy.keys

    async def fetch_newer_keys(self, source: KeySource, seen: KeySet, request: LoginRequest | None = None) -> KeySet:
        """See ``IProviderKeys``."""
        copy = self._get_source(source)
        while copy.keys is None or copy.keys is seen:
            if self._check_refusal(copy, newer=True) and copy.keys is not None:
                return copy.keys
            await self._await_response(copy, KeysRequest(source, copy.number, newer=True), request)
        return copy.keys

    def keys_state(self, source: KeySource) -> KeysState:
        """See ``IProviderKeys``."""
        copy = self._sources.get(source)
        if copy is None:
            return KeysState()
        if copy.keys is None:
            return KeysState((), copy.problems, None, copy.attempted_at, copy.failure, copy.unused)
        return KeysState(
            keys=tuple((key.key_id, key.thumbprint) for key in copy.keys.keys),
            problems=copy.keys.problems,
            fetched_at=copy.set_at,
            attempted_at=copy.attempted_at,
            failure=copy.failure,
            unused=copy.keys.unused,
        )

    def receive_response(self, answer: KeysResponse) -> None:
        """Take an unrequested answer: a fetch has ended."""
        if (copy := self._sources.get(answer.source)) is not None:
            self._apply_response(copy, answer)

    def _get_source(self, source: KeySource) -> _RemoteKeySet:
        now, copy = self._clock.seconds(), self._sources.pop(source, None) or _RemoteKeySet()
        self._sources[source] = copy
        if len(self._sources) > SOURCES_LIMIT:
            self._sources.popitem(last=False)
        if copy.keys is not None and now - copy.used_at >= USE_REPORT_INTERVAL:
            copy.used_at = now
            self._report_use(source)
        return copy

    def _check_refusal(self, copy: _RemoteKeySet, *, newer: bool, refreshes: int = 0) -> bool:
        """Return whether it is known that there is nothing newer (Note [A moment's answer]).

        :raises KeysUnavailable: it is known that there is nothing.
        """
        refusal = copy.refusal
        if refusal is None or refusal.newer is not newer or refusal.refreshes < refreshes:
            return False
        if self._clock.seconds() >= refusal.until:
            copy.refusal = None
            return False
        if refusal.why is not None:
            wait = spread_retry_after(max(0, refusal.wait - 1))
            raise KeysUnavailable(refusal.why, wait, refusal.problems, refusal.unused)
        return True

    async def _await_response(self, copy: _RemoteKeySet, question: KeysRequest, request: LoginRequest | None) -> None:
        """Wait for the answer to the question that is under way, or put this one."""
        address, size = ("", 0) if request is None else (address_counting_key(request.client_ip), len(request.evidence))
        asked = copy.waiters is not None
        crowd = copy.waiters = copy.waiters or FetchWaiters(self._budget)
        waiter = crowd.add_waiter(address, size)
        if not asked:
            Deferred.fromCoroutine(self._request_keys(question)).addBoth(self._handle_response, copy, question)
        if waiter is None:
            raise _no_room_error()
        await waiter

    def _handle_response(self, result: KeysResponse | Failure, copy: _RemoteKeySet, question: KeysRequest) -> None:
        crowd, copy.waiters = copy.waiters, None
        assert crowd is not None
        until = self._clock.seconds() + REFUSAL_SECONDS
        if isinstance(result, KeysResponse):
            same = result.number == copy.number
            self._apply_response(copy, result)
            if question.newer and same:
                copy.refusal = _CachedRefusal(newer=True, refreshes=0, until=until, why=None, wait=0)
        else:
            match result.value:
                case KeysUnavailable(why=why, retry_after=wait) | StoreUnavailable(why=why, retry_after=wait):
                    pass
                case error:
                    _log.failure("The question for keys ended in an unexpected error", result)
                    why, wait = f"an error of this program, which its log tells: {type(error).__name__}", 1
            found: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
            if isinstance(result.value, KeysUnavailable):
                found = result.value.problems, result.value.unused
            copy.refusal = _CachedRefusal(question.newer, question.refreshes, until, why, wait, *found)
            if copy.keys is None:
                copy.failure, copy.attempted_at = why, self._clock.seconds()
                copy.problems, copy.unused = found
        crowd.release_all(lambda waiter: waiter.callback(_NOTHING))

    def _apply_response(self, copy: _RemoteKeySet, answer: KeysResponse) -> None:
        now = self._clock.seconds()
        if answer.document is not None:
            copy.keys = attrs.evolve(parse_key_set(answer.document, answer.source.algorithms), issuer=answer.issuer)
            copy.refusal = None
        elif answer.number != copy.number:
            return  # The copy began between two answers: it requests the missing one.
        copy.number, copy.set_at, copy.failure = answer.number, now - answer.age, answer.failure
        copy.attempted_at = None if answer.attempt_age is None else now - answer.attempt_age
        copy.fulfilled = answer.fulfilled
        # A set that has reached the age, and is given all the same, is good for a moment.
        copy.good_until = max(copy.set_at + self._max_age, now + REFUSAL_SECONDS)


def _evict_waiter(waiter: Waiter) -> None:
    if not waiter.called:  # its client may have left meanwhile
        waiter.errback(_no_room_error())


def _no_room_error() -> KeysUnavailable:
    return KeysUnavailable("more logins wait for keys than there is room for", spread_retry_after())
