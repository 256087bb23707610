"""The use case of watching secrets: versions are streamed as they change (SEC-47 to SEC-53).

Note [One reader]. The read cache reports a change, with the ids of the records that it touched. For each caller that watches
one of them there is one read without values, through the same cache, one read after the other: so a change that a
thousand watch doesn't flood the database, and watches of unchanged secrets cost it nothing. The caller's rights are part of
the read. It runs outside of any request's context, since it is done for none.

Note [Marks]. The state that a watch has sent, of all secrets together, has a mark, a digest of the names of the versions. A
client that reconnects names the last mark that it had. If that is still the mark, it has missed nothing; otherwise it gets
all versions again. So nothing is kept for clients that are gone, and the mark of one server is that of any other.

Note [A day of watching]. A client that watches a secret uses it, and may read it only when it changes. So a watch counts as
a read when it begins, and once on each day that it lasts; at midnight not all watches are counted in one turn.

Note [Bounded]. The pending events of a watch are a number for each of its secrets, however often they change meanwhile.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextvars import Context
from typing import Any, Final

import attrs
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from svc.model.authentication import day_of
from svc.model.background import PeriodicService
from svc.model.clocks import WallClock
from svc.model.errors import CallerReplaced, InvalidParameter, Refusal, StoreUnavailable, TooManyConnections
from svc.model.names import RoleName
from svc.model.query_results import Caller, SecretReading
from svc.model.versions import FollowChanges, TouchedRecords
from svc.services.invocation import Invocation
from svc.services.reading_counts import ReadingCounter
from svc.services.secret_batches import SHORT, SecretFault, fault_of, name_of, refusal_of
from svc.storage.secrets import SecretStore

#: Seconds between two heartbeats, between two checks for expired watches, and after which a failed read is repeated.
HEARTBEAT: Final = 10.0
_TICK: Final = 1.0
_PAUSE: Final = 1.0

#: How many watches are served before other requests.
_PAUSE_EVERY: Final = 100

#: How many ids are counted as read in one tick.
_COUNTED: Final = 2000

_GONE: Final = "gone"

#: The faults that a watched secret may have: its value isn't read, and need not exist.
_WATCHED: Final = frozenset({None, SecretFault.TOO_LARGE, SecretFault.VALUELESS})

_log = Logger()


@attrs.frozen
class VersionsEvent:
    """The numbers of the newest versions, ``None`` where there is no value; ``gone`` are ids that can't be read any more.

    ``mark`` identifies all that the watch has sent (Note [Marks]). Without any of these it is a heartbeat.
    """

    versions: Mapping[str, int | None] = attrs.field(factory=dict)
    gone: Sequence[str] = ()
    mark: str | None = None


@attrs.frozen
class WatchEnded:
    """The end of a watch: ``token``, ``role`` or ``drain``."""

    why: str


@attrs.define(eq=False)
class _Watcher:
    """One watch: the state that it has sent, by id, the pending events, and the stream that waits for these."""

    caller: Caller
    ids: tuple[str, ...]
    heartbeat_at: float
    known: dict[str, str] = attrs.field(factory=dict)
    #: The day for which its reads were counted (Note [A day of watching]).
    counted_day: int = -1
    #: The ids to read again, and the results not yet sent: a number, ``None`` without a value, or that it is gone.
    due: frozenset[str] = frozenset()
    pending: dict[str, int | str | None] = attrs.field(factory=dict)
    begun: bool = False
    heartbeat: bool = False
    ended: str | None = None
    waiting: Deferred[None] | None = None

    def wake(self) -> None:
        """Resume the stream."""
        waiting, self.waiting = self.waiting, None
        if waiting is not None:
            waiting.callback(None)

    def end(self, why: str) -> None:
        """End it."""
        if self.ended is None:
            self.ended = why
        self.wake()

    def take_reading(self, text: str, reading: SecretReading | None) -> None:
        """Record the result of a read of a secret, if it is new."""
        fault = fault_of(reading)
        version = None
        if reading is None or fault not in _WATCHED:
            name = _GONE
        elif fault is SecretFault.VALUELESS:
            name = ""
        else:
            version, name = reading.version, f"{reading.version} {reading.stamp}"
        if self.known.get(text) == name:
            return
        # Many watch the same secret: each text is kept once.
        self.known[text] = sys.intern(name)
        self.pending[text] = _GONE if name == _GONE else version

    def take_pending(self) -> VersionsEvent:
        """Return the pending versions, with the mark of all that is known (Note [Marks]), and mark them as sent."""
        pending, self.pending = self.pending, {}
        versions = {text: state for text, state in pending.items() if not isinstance(state, str)}
        gone = sorted(text for text, state in pending.items() if isinstance(state, str))
        named = "\n".join([f"{text} {self.known.get(text)}" for text in self.ids])
        return VersionsEvent(versions, gone, hashlib.sha256(named.encode("utf-8")).hexdigest()[:32])


class Watches(Service):
    """The watches of one process; at most ``most`` at a time. ``follow`` is ``None`` where no changes are reported."""

    name = "watches"

    def __init__(
        self,
        clock: Any,
        wall: WallClock,
        follow: FollowChanges | None,
        store: SecretStore,
        most: int,
        counter: ReadingCounter,
    ) -> None:
        self._clock, self._wall, self._follow, self._store, self._most = clock, wall, follow, store, most
        self._counter = counter
        self._watches: set[_Watcher] = set()
        self._by_id: dict[str, set[_Watcher]] = {}
        self._by_role: dict[str, set[_Watcher]] = {}
        #: The watches with ids to read, and whether a read is under way.
        self._due: dict[_Watcher, None] = {}
        self._working = False
        self._entered = -1
        self._unfollow: Callable[[], None] | None = None
        self._ticker = PeriodicService(clock, _TICK, self._tick, _log, "A round of watches failed", at_once=False)

    @property
    def is_possible(self) -> bool:
        """Whether changes are reported."""
        return self._follow is not None

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._watches)

    def stopService(self) -> None:
        """End all watches, and take no more."""
        super().stopService()  # type: ignore[no-untyped-call]  # Twisted has no types here
        for watch in tuple(self._watches):
            watch.end("drain")

    async def admit_watch(self, invocation: Invocation, ids: Sequence[str]) -> None:
        """Return when the caller may watch all of these, and there is room; it needs ``execute`` on each.

        :raises InvalidParameter: they are too many.
        :raises Forbidden: the caller lacks the privilege on one that it sees, or its own role is gone.
        :raises NoValue: one isn't there for this caller.
        :raises TooManyConnections: there are too many watches.
        :raises StoreUnavailable: the server is stopping.
        """
        if len(ids) > SHORT.ids:
            raise InvalidParameter("variable_ids", f"'variable_ids' may name at most {SHORT.ids} secrets at once")
        invocation.recorder.add_audit_facts(resources=ids)
        first: dict[SecretFault, Refusal] = {}
        for text, reading in (await self._read_secrets(invocation.caller, ids)).items():
            fault = fault_of(reading)
            if fault is not None and fault not in _WATCHED:
                # Hidden and missing secrets are refused in the order of the request, so that they look alike.
                rank = SecretFault.MISSING if fault is SecretFault.INVISIBLE else fault
                first.setdefault(rank, refusal_of(fault, text, reading))
        if first:
            raise first[min(first)]
        if not self.running:
            raise StoreUnavailable("the server is stopping")
        if len(self._watches) >= self._most:
            raise TooManyConnections

    async def stream_events(
        self, caller: Caller, ids: Sequence[str], last: str | None
    ) -> AsyncGenerator[VersionsEvent | WatchEnded, None]:
        """Yield the events of a watch, until it ends: all versions first, unless ``last`` is their mark, then changes."""
        # The heartbeats of many watches are spread over the time between two of one.
        self._entered += 1
        names = tuple(map(sys.intern, ids))
        watch = _Watcher(caller, names, self._clock.seconds() - self._entered % HEARTBEAT, due=frozenset(names))
        del caller, ids, names
        self._add_watch(watch)
        try:
            while True:
                while watch.ended is None and not (watch.heartbeat or watch.pending):
                    watch.waiting = Deferred()
                    await watch.waiting
                if watch.ended is not None:
                    yield WatchEnded(watch.ended)
                    return
                watch.heartbeat = False
                event = VersionsEvent() if not watch.pending else watch.take_pending()
                if not watch.begun and event.mark is not None:
                    watch.begun = True
                    self._count_reads(watch, day_of(self._wall.seconds()))
                    if event.mark == last:
                        event = VersionsEvent()
                yield event
                del event
        finally:
            self._remove_watch(watch)

    # -- which watches there are

    def _add_watch(self, watch: _Watcher) -> None:
        self._watches.add(watch)
        for text in watch.ids:
            self._by_id.setdefault(text, set()).add(watch)
        self._by_role.setdefault(str(watch.caller.role), set()).add(watch)
        if not self.running:
            watch.end("drain")
        if self._follow is not None and self._unfollow is None:
            self._unfollow = self._follow(self._mark_touched)
            self._ticker.startService()
        self._schedule_reading([watch])

    def _remove_watch(self, watch: _Watcher) -> None:
        self._watches.discard(watch)
        self._due.pop(watch, None)
        for key, index in (*((text, self._by_id) for text in watch.ids), (str(watch.caller.role), self._by_role)):
            others = index[key]
            others.discard(watch)
            if not others:
                del index[key]
        if not self._watches and self._unfollow is not None:
            self._unfollow()
            self._unfollow = None
            self._ticker.stopService()

    def _tick(self) -> None:
        """End watches whose token has expired, and send heartbeats."""
        now, today = self._clock.seconds(), self._wall.seconds()
        for watch in tuple(self._watches):
            if today >= watch.caller.expires_at:
                watch.end("token")
            elif now - watch.heartbeat_at >= HEARTBEAT:
                watch.heartbeat_at, watch.heartbeat = now, True
                watch.wake()
        self._count_day(day_of(today))

    def _count_day(self, day: int) -> None:
        """Count the reads of watches that began on an earlier day, of some of them (Note [A day of watching])."""
        counted = 0
        for watch in self._watches:
            if counted >= _COUNTED:
                break
            if watch.begun and watch.counted_day < day:
                counted += len(watch.ids)
                self._count_reads(watch, day)

    def _count_reads(self, watch: _Watcher, day: int) -> None:
        watch.counted_day = day
        known = watch.known
        self._counter.count_reads(
            watch.caller, {text: None for text in watch.ids if known.get(text) not in {"", _GONE}}.keys()
        )

    # -- what is read for them (Note [One reader])

    def _mark_touched(self, touched: TouchedRecords) -> None:
        if touched.everything or touched.accounts:
            self._mark_all_due(touched)
        for text in touched.ids:
            for watch in self._by_id.get(text, ()):
                watch.due |= {text}
                self._due[watch] = None
            # A role that is gone, or whose tokens were revoked, is found by any read.
            for watch in self._by_role.get(text, ()):
                watch.due |= {watch.ids[0]}
                self._due[watch] = None
        self._start_reading()

    def _mark_all_due(self, touched: TouchedRecords) -> None:
        for watch in self._watches:
            names = (str(watch.caller.role), *watch.ids)
            if touched.everything or any(name.partition(":")[0] in touched.accounts for name in names):
                watch.due |= frozenset(watch.ids)
                self._due[watch] = None

    def _schedule_reading(self, watches: Iterable[_Watcher]) -> None:
        self._due.update(dict.fromkeys(watches))
        self._start_reading()

    def _start_reading(self) -> None:
        if self._due and not self._working:
            self._working = True
            working = Context().run(Deferred.fromCoroutine, self._read_due())
            working.addErrback(self._end_failed)

    def _end_failed(self, failure: Failure) -> None:
        """End all watches, any of which may have missed something: their clients reconnect."""
        _log.failure("Watches are ended", failure)
        for watch in tuple(self._watches):
            watch.end("drain")

    async def _read_due(self) -> None:
        """Read the ids that are due, together for all watches of one caller that have the same ids due."""
        try:
            while self._due:
                first = next(iter(self._due))
                ids = first.due
                caller = _caller_identity(first.caller)
                together = [watch for watch in self._due if watch.due == ids and _caller_identity(watch.caller) == caller]
                for watch in together:
                    del self._due[watch]
                    watch.due = frozenset()
                if not await self._notify_watches(together, ids):
                    self._due.update(dict.fromkeys(each for each in together if each in self._watches))
                    for watch in together:
                        watch.due |= ids
                    await deferLater(self._clock, _PAUSE)
        finally:
            self._working = False

    async def _notify_watches(self, watches: Sequence[_Watcher], ids: frozenset[str]) -> bool:
        """Read for watches of one caller, and pass them the results; return whether that could be done."""
        try:
            readings = await self._read_secrets(watches[0].caller, sorted(ids))
        except StoreUnavailable:
            return False
        except CallerReplaced:
            for watch in watches:
                watch.end("role")
            return True
        gone = any(fault_of(reading) is SecretFault.CALLER_GONE for reading in readings.values())
        for number, watch in enumerate(watches, 1):
            if gone:
                watch.end("role")
            else:
                for text, reading in readings.items():
                    watch.take_reading(text, reading)
                watch.wake()
            if not number % _PAUSE_EVERY:
                await deferLater(self._clock, 0)
        return True

    async def _read_secrets(self, caller: Caller, ids: Sequence[str]) -> dict[str, SecretReading | None]:
        names = {text: name for text in ids if (name := name_of(text)) is not None}
        some = await self._store.read_newest_values(caller, [*names.values()], 0) if names else []
        found = dict(zip(names, some, strict=True))
        return {text: found.get(text) for text in ids}


def _caller_identity(caller: Caller) -> tuple[RoleName, int, int]:
    """Return the identity of a caller, whichever token it has."""
    return caller.role, caller.creation, caller.epoch
