"""Opening sessions with whichever of several hosts suits, as the primary does.

Note [Side by side]. libpq tries hosts one after the other, and one that doesn't answer, since its machine is cut off, holds
it up until the operating system's time-out. So where only one host can suit, each is tried on its own: first the one that
was found last, and after a moment, or when that has refused, all others at the same time. The first session that opens is
taken. A host that has refused, as a standby does, is tried again while another doesn't answer: it may have been promoted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater

from svc.model.errors import StoreUnavailable

#: For how many seconds the host that was found last is tried alone, and the pause after which one that refused is retried.
HEAD_START: Final = 0.25
PAUSE: Final = 0.25

#: The parameters of libpq that tell hosts apart.
_ADDRESS: Final = ("host", "hostaddr", "port")


class Openable(Protocol):
    """``Session``, as far as it is needed here."""

    async def open(self, parameters: Mapping[str, str]) -> None:
        """Connect, with parameters of libpq. May be cancelled."""

    def close(self) -> None:
        """Close it."""


class SuitableHosts(Protocol):
    """``Location``, as far as it is needed here."""

    async def list_alternatives(self, *, read_only: bool) -> Sequence[Mapping[str, str]]:
        """Return parameters of libpq: for each host separately where only one can suit."""


S = TypeVar("S", bound=Openable)


class Hosts(Generic[S]):
    """Open sessions with the hosts of ``places``."""

    def __init__(self, clock: Any, places: SuitableHosts) -> None:
        self._clock = clock
        self._location = places
        #: The host that was found last.
        self._last = ""
        #: Hosts on an older timeline than another primary: a session with one would be refused.
        self._avoided: frozenset[str] = frozenset()

    def avoid(self, names: frozenset[str]) -> None:
        """Try these hosts only where there is no other, from now on."""
        self._avoided = names

    def prefer(self, name: str) -> None:
        """Try a host first from now on."""
        self._last = name

    async def open(self, make: Callable[[], S], *, read_only: bool) -> S:
        """Return a session that is open, one of those that ``make`` returns. May be cancelled.

        :raises StoreUnavailable: no host suits.
        """
        alternatives = await self._location.list_alternatives(read_only=read_only)
        if len(alternatives) == 1:
            session = make()
            await session.open(alternatives[0])
            return session
        named = by_name(alternatives)
        hosts = {name: place for name, place in named.items() if name not in self._avoided} or named
        attempt = _Attempt(self._clock, make, hosts, self._last if self._last in hosts else next(iter(hosts)))
        try:
            self._last, session = await attempt.result
        finally:
            attempt.end()
        return session


def by_name(places: Sequence[Mapping[str, str]]) -> Mapping[str, Mapping[str, str]]:
    """Return the parameters of hosts by a name for each, which has all that tells them apart."""
    return {" ".join(each[name] for name in _ADDRESS if name in each): each for each in places}


class _Attempt(Generic[S]):
    """One attempt with all hosts; ``result`` is the name of the one that suits, and a session."""

    def __init__(self, clock: Any, make: Callable[[], S], hosts: Mapping[str, Mapping[str, str]], first: str) -> None:
        self._clock, self._make, self._hosts = clock, make, hosts
        self.result: Deferred[tuple[str, S]] = Deferred()
        self._refusals: dict[str, str] = {}
        self._trying: dict[str, Deferred[None]] = {}
        #: The host of which the result is.
        self._deciding = ""
        self._others = [name for name in hosts if name != first]
        self._head_start = clock.callLater(HEAD_START, self._start_others)
        self._start_host(first)

    def end(self) -> None:
        """Give up what is under way."""
        if self._head_start.active():
            self._head_start.cancel()
        for name, trying in self._trying.items():
            if name != self._deciding:  # None is cancelled while it runs.
                trying.cancel()

    def _start_host(self, name: str) -> None:
        self._trying[name] = Deferred.fromCoroutine(self._try_host(name)).addErrback(self._report_bug)

    def _report_bug(self, failure: Any) -> None:
        if not failure.check(CancelledError) and not self.result.called:
            self.result.errback(failure)

    def _start_others(self) -> None:
        """Try the others, too."""
        for name in self._others:
            if not self.result.called:
                self._start_host(name)

    async def _try_host(self, name: str) -> None:
        """Try one host until there is a result."""
        while True:
            session = self._make()
            try:
                await session.open(self._hosts[name])
            except StoreUnavailable as refusal:
                self._record_refusal(name, refusal.why)
            else:
                if self.result.called:
                    session.close()
                else:
                    self._deciding = name
                    self.result.callback((name, session))
            if self.result.called:
                return
            await deferLater(self._clock, PAUSE)

    def _record_refusal(self, name: str, why: str) -> None:
        self._refusals[name] = f"{name}: {why}"
        if self._head_start.active():
            self._head_start.reset(0)
        if len(self._refusals) == len(self._hosts) and not self.result.called:
            self._deciding = name
            self.result.errback(StoreUnavailable("; ".join(self._refusals[each] for each in self._hosts)))
