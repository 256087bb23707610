"""The database with a read cache, whose entries depend on names, and which is never staler than promised.

Note [Never staler than promised]. A cacheable statement, or a read of several, is answered from the cache if the state that
was confirmed last is new enough (``invalidation_poll``, Note [Waiting for polls]). Otherwise it waits for an invalidation
poll, and if none is possible, goes to the database. Note [Never a wrong answer] of the package proves that each answer is
one that the database gave in the time allowed (CLU-31, CLU-32). The proof requires of this module: the moment is noted
before a read is sent; its answer is cached only if no poll since then found one of its names; and a request that may write
reads nothing from the cache. A use case of several statements bypasses the cache for all but one of them, or has all of them
in one read, which sees one snapshot.

Note [Stale, when asked for]. With ``--serve-stale`` the cache outlives its history for as many seconds while there is no
session to poll with, and the database can't be reached: if that isn't known, the database is asked first. It then answers
logins and reads of secrets (``Route.serves_stale``), unless this server has confirmed a write since the last poll, which may
concern any of it. When there is a session again, it is dropped.

Note [Strangers]. Anybody can ask about roles and resources that don't exist, under any number of names. The answers have a
small share of their own, so that they evict only each other. Whether an answer belongs there is decided by the database's
answer: when a role is created, the cached answers about its absence are dropped like all that the change touches.

Note [Lists]. A batch or a list can be requested in any number of ways, and one may be large. These have a share of their own
too, so that a single client can't evict everybody's logins.
"""

from __future__ import annotations

import enum
import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeVar, TypeVarTuple, cast

import attrs
from twisted.application.service import Service
from twisted.logger import Logger

from svc.model.background import PeriodicService
from svc.model.counts import CacheCounts
from svc.model.errors import StoreUnavailable
from svc.model.request_notes import RequestNotes, request_notes
from svc.model.versions import TouchedRecords
from svc.storage.cache.commit_counters import CommitCounters
from svc.storage.cache.dependency_names import expand_dependencies, touched_records
from svc.storage.cache.invalidation_poll import InvalidationPoll, PolledSnapshot
from svc.storage.driver.connection import Fetched, SharedText
from svc.storage.driver.statements import (
    PING,
    CachedReading,
    CachedStatement,
    NamedAnswer,
    ReadSource,
    Statement,
    Transaction,
    split_dependencies,
)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

#: Seconds between two polls where the cache is to outlive the database; and at most, after a change of this server.
_POLL_INTERVAL: Final = 1.0
_SOON: Final = 0.1

#: Seconds after which a value that expires is read again: no two clocks run alike for long.
_LONGEST: Final = 60.0

#: How long a poll may take, in seconds, if the database is quick: well below the pace of refusals (``authn/throttling``).
_QUICK: Final = 0.005

_log = Logger()


class ReadCache(Service):
    """Answers statements like the database, from the cache where that is as good (Note [Never staler than promised]).

    ``lag`` is in seconds, ``limit`` in bytes; ``serve_stale`` in seconds (Note [Stale, when asked for]).
    """

    name = "memory"

    def __init__(
        self,
        reactor: Any,
        database: ReadSource,
        commit_counters: CommitCounters,
        *,
        lag: float,
        limit: int,
        serve_stale: float = 0.0,
    ) -> None:
        self._database = database
        self._counters = commit_counters
        self._reactor = reactor
        self._serve_stale = serve_stale
        self._entries = CacheEntries(limit)
        self._poll = InvalidationPoll(reactor, database, commit_counters, lag, self._drop_dependent, self._clear_all)
        self._listeners: list[Callable[[TouchedRecords], None]] = []
        #: Polls also without requests, so that a cache that outlives the database is recent, and has seen this server's
        #: writes; and so that listeners for changes are notified.
        failed = "Changes could not be looked for while nobody asks"
        self._poller = PeriodicService(reactor, _SOON, self._keep_current, _log, failed)
        self._hits = self._misses = self._dropped = self._evicted = self._stale = 0

    def cache_counts(self) -> CacheCounts:
        """Return the counts; callable from another thread."""
        return CacheCounts(
            hits=self._hits,
            misses=self._misses,
            dropped=self._dropped,
            evicted=self._evicted,
            stale=self._stale,
            polls=self._poll.processed,
            entries=len(self._entries),
            bytes=self._entries.size,
            age=self._poll.last_age(),
        )

    def startService(self) -> None:
        """Begin to poll for changes."""
        super().startService()  # type: ignore[no-untyped-call]  # Twisted has no types here
        self._poll.start()
        if self._serve_stale:
            self._poller.startService()

    def stopService(self) -> None:
        """Close the session of polls."""
        super().stopService()  # type: ignore[no-untyped-call]  # Twisted has no types here
        self._poller.stopService()
        self._poll.stop()

    def follow_changes(self, callback: Callable[[TouchedRecords], None]) -> Callable[[], None]:
        """See ``FollowChanges``. Changes are polled for every second at least, as long as anybody follows them."""
        self._listeners.append(callback)
        if not self._poller.running:
            self._poller.startService()

        def unfollow() -> None:
            self._listeners.remove(callback)
            if not self._listeners and not self._serve_stale:
                self._poller.stopService()

        return unfollow

    async def fetch(self, statement: Statement, *parameters: object) -> Fetched:
        """Return the rows of a statement that reads; raises as ``Database.fetch``."""
        notes = request_notes()
        if not isinstance(statement, CachedStatement) or (notes is not None and notes.may_write):
            return await self._database.fetch(statement, *parameters)
        return await self._read_through(notes, (statement.name, *parameters), self._fetch_cacheable, statement, parameters)

    async def read(self, reading: CachedReading[T]) -> T:
        """Return the answer to a read; raises as ``Database.read``."""
        notes = request_notes()
        if notes is not None and notes.may_write:
            return await self._database.read(reading)
        return await self._read_through(notes, reading.key, self._database.read_with_server, reading)

    async def fetch_uncached(self, statement: Statement, *parameters: object) -> Fetched:
        """See ``Statements``."""
        return await self._database.fetch(statement, *parameters)

    async def change(self, statement: Statement, *parameters: object) -> Fetched:
        """See ``Database``."""
        return await self._database.change(statement, *parameters)

    async def transact_read_only(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """See ``Database``."""
        return await self._database.transact_read_only(work)

    async def transact(self, work: Callable[[Transaction], Awaitable[T]], *, statement_timeout: float | None = None) -> T:
        """See ``Database``."""
        return await self._database.transact(work, statement_timeout=statement_timeout)

    async def equalize_timing(self) -> None:
        """Take as long as a read that isn't cached, for a request whose reads were all cached, unless the database is
        idle and quick: then neither takes long.

        :raises StoreUnavailable: the database can't be reached.
        """
        notes = request_notes()
        if notes is None or notes.queried or not notes.cache_used:
            return
        if notes.stale is not None or self._database.count_read_sessions().lent or self._poll.last_duration > _QUICK:
            await self._database.fetch(PING)

    def can_serve_stale(self) -> bool:
        """Return whether the cache may answer while the database can't be reached (Note [Stale, when asked for])."""
        confirmed = self._poll.confirmed
        if not self._serve_stale or confirmed is None:
            return False
        if self._reactor.seconds() - confirmed.sent.at > self._serve_stale:
            return False
        return not self._is_written_since(confirmed)

    def _keep_current(self) -> None:
        """Poll, if it is time, for a cache that is to outlive the database, or for listeners for changes."""
        confirmed = self._poll.confirmed
        if (
            confirmed is None
            or self._reactor.seconds() - confirmed.sent.at >= _POLL_INTERVAL
            or self._is_written_since(confirmed)
        ):
            self._poll.keep_current()

    def _is_written_since(self, seen: PolledSnapshot) -> bool:
        """Return whether this server has confirmed a change since a poll was sent."""
        return self._counters.confirmed_commits(self._counters.read_counters()) != self._counters.confirmed_commits(
            seen.sent.counters
        )

    @property
    def history(self) -> int:
        """Return the number of the history that is polled; while none is, of the one that is cached."""
        return self._poll.confirmed_in if self._poll.is_lost else self._poll.history

    @property
    def is_lost(self) -> bool:
        """Return whether there is no session to poll with."""
        return self._poll.is_lost

    async def poll_now(self) -> bool:
        """Return whether the cache's state was polled after this was called; otherwise reads go to the database."""
        return await self._poll.poll_now()

    async def _read_through(
        self,
        notes: RequestNotes | None,
        key: Key,
        ask: Callable[[*Ts], Awaitable[tuple[NamedAnswer[T], str]]],
        *asked: *Ts,
    ) -> T:
        """Return the cached answer, else that of the database."""
        poll = self._poll
        at_least = () if notes is None else notes.at_least
        value: T | None = None
        if (poll.is_current() or await poll.confirm_current()) and (not at_least or poll.shows_versions(at_least)):
            value = self._entries.get(key, self._reactor.seconds())
            self._hits += value is not None
        elif poll.failing:
            value = self._get_stale(key)
        if value is not None:
            if notes is not None:
                notes.cache_used = True
            return value
        self._misses += 1
        if notes is not None:
            notes.queried = True
        try:
            return await self._read_and_cache(key, ask, *asked)
        except StoreUnavailable:
            value = self._get_stale(key)
            if value is None:
                raise
            return value

    async def _read_and_cache(self, key: Key, ask: Callable[[*Ts], Awaitable[tuple[NamedAnswer[T], str]]], *asked: *Ts) -> T:
        """Ask the database, and cache its answer if it holds up to the last poll."""
        mark, sent = self._poll.reading_mark(), self._reactor.seconds()
        answer, server = await ask(*asked)
        if mark is None or answer.names is None:
            return answer.value
        names = expand_dependencies(answer.names)
        if self._poll.is_untouched(mark, server, names):
            ends_at = None if answer.lasts is None else sent + min(answer.lasts, _LONGEST)
            share = (
                CacheShare.NEGATIVE
                if not answer.known
                else CacheShare.SINGLE_ROW
                if answer.single
                else CacheShare.SEVERAL_ROWS
            )
            self._evicted += self._entries.put(key, answer.value, names, ends_at, share)
        return answer.value

    async def _fetch_cacheable(
        self, statement: CachedStatement, parameters: tuple[object, ...]
    ) -> tuple[NamedAnswer[Fetched], str]:
        """Run a cacheable statement."""
        rows, server = await self._database.fetch_with_server(statement.with_dependencies, *parameters)
        return split_dependencies(rows), server

    def _get_stale(self, key: Key) -> Any:
        """Return the cached answer of a history that has ended (Note [Stale, when asked for])."""
        notes = request_notes()
        if notes is None or not notes.may_serve_stale or not self._poll.is_lost or not self.can_serve_stale():
            return None
        value = self._entries.get(key, self._reactor.seconds())
        if value is not None:
            self._stale += 1
            notes.stale = self._poll.last_age()
        return value

    def _drop_dependent(self, names: list[str]) -> None:
        self._dropped += self._entries.drop_dependent(names)
        if self._listeners:
            self._notify_listeners(touched_records(names))

    def _clear_all(self) -> None:
        self._dropped += self._entries.clear()
        self._notify_listeners(TouchedRecords(everything=True))

    def _notify_listeners(self, changed: TouchedRecords) -> None:
        for callback in tuple(self._listeners):
            callback(changed)


#: The name of a statement or of a read, and its parameters.
Key = tuple[object, ...]


class CacheShare(enum.IntEnum):
    """The share of the cache that an answer is kept in: of one row, of several, or about something that doesn't exist."""

    SINGLE_ROW = enum.auto()
    SEVERAL_ROWS = enum.auto()
    NEGATIVE = enum.auto()


#: The part of all bytes that each share may take (Notes [Strangers] and [Lists]).
_PARTS: Final[Mapping[CacheShare, float]] = {
    CacheShare.SINGLE_ROW: 11 / 16,
    CacheShare.SEVERAL_ROWS: 1 / 4,
    CacheShare.NEGATIVE: 1 / 16,
}

#: The largest answer that is cached, as a part of all bytes.
_LARGEST: Final = 1 / 64

#: Bytes that Python needs for an entry with its key, for a name that it depends on, for one that no other entry depends on,
#: and for a value, beside its text.
_ENTRY: Final = 400
_NAME: Final = 100
_NEW_NAME: Final = 400
_VALUE: Final = 56


@attrs.frozen(eq=False)
class CachedAnswer:
    """An answer: its value, the names that it depends on, when it expires (seconds, ``None`` for never), and its bytes."""

    value: Any
    names: tuple[str, ...]
    ends_at: float | None
    size: int
    share: CacheShare


class CacheEntries:
    """The most recently used answers, in ``limit`` bytes."""

    def __init__(self, limit: int) -> None:
        self._limits = {share: int(limit * part) for share, part in _PARTS.items()}
        self._largest = int(limit * _LARGEST)
        self._answers: dict[Key, CachedAnswer] = {}
        #: The keys of each share, the least recently used first.
        self._used: dict[CacheShare, OrderedDict[Key, None]] = {share: OrderedDict() for share in CacheShare}
        self._sizes = dict.fromkeys(CacheShare, 0)
        self._by_name: dict[str, set[Key]] = {}

    @property
    def size(self) -> int:
        """Return about how many bytes all entries take."""
        return sum(self._sizes.values())

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._answers)

    def get(self, key: Key, now: float) -> Any:
        """Return the value of an answer that hasn't expired, ``None`` without one."""
        entry = self._answers.get(key)
        if entry is None:
            return None
        if entry.ends_at is not None and now >= entry.ends_at:
            self.discard(key)
            return None
        self._used[entry.share].move_to_end(key)
        return entry.value

    def put(self, key: Key, value: object, names: frozenset[str], ends_at: float | None, share: CacheShare) -> int:
        """Cache an answer, instead of an older one, and return how many others were evicted."""
        self.discard(key)
        size = _ENTRY + _weigh_value(key) + _weigh_value(value)
        size += sum(_NAME if name in self._by_name else _NEW_NAME for name in names)
        if size > self._largest:
            return 0
        used, evicted = self._used[share], 0
        # Many answers depend on the same names: each text is kept once.
        shared = tuple(map(sys.intern, names))
        self._answers[key] = CachedAnswer(value, shared, ends_at, size, share)
        used[key] = None
        self._sizes[share] += size
        for name in shared:
            self._by_name.setdefault(name, set()).add(key)
        while self._sizes[share] > self._limits[share]:
            self.discard(next(iter(used)))
            evicted += 1
        return evicted

    def discard(self, key: Key) -> None:
        """Drop an answer, if it is cached."""
        entry = self._answers.pop(key, None)
        if entry is None:
            return
        del self._used[entry.share][key]
        self._sizes[entry.share] -= entry.size
        for name in entry.names:
            keys = self._by_name[name]
            keys.discard(key)
            if not keys:
                del self._by_name[name]

    def drop_dependent(self, names: Iterable[str]) -> int:
        """Drop the answers that depend on one of the names, and return how many those were."""
        dropped = 0
        for name in names:
            for key in tuple(self._by_name.get(name, ())):
                self.discard(key)
                dropped += 1
        return dropped

    def clear(self) -> int:
        """Drop everything, and return how many answers that were."""
        count = len(self)
        self._answers.clear()
        self._by_name.clear()
        for used in self._used.values():
            used.clear()
        self._sizes = dict.fromkeys(CacheShare, 0)
        return count


def _weigh_value(value: object) -> int:
    """Return about how many bytes a value takes."""
    if isinstance(value, SharedText):
        return 0
    if isinstance(value, str | bytes):
        return _VALUE + len(value)
    if isinstance(value, tuple | list):
        return _VALUE + 8 * len(value) + sum(map(_weigh_value, value))
    if attrs.has(type(value)):
        return _weigh_value(attrs.astuple(cast(Any, value), recurse=False))
    return _VALUE
