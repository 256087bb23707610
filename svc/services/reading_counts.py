"""Reads of variables, counted in memory and written together (READ-1 to READ-8).

Note [No write of its own]. A read of a secret is answered from memory, and must not cost a write. So it is counted in the
process that answers it, which hands its counts over every few seconds to the one process of the server that writes them.
Both times together are the minute that a server which is killed loses at most.

Note [One batch at a time]. The process that writes freezes some of the counts as a batch with a number, and passes that very
batch again until it is known to be added: to the database, or, on a follower, to a server that writes to the primary and
asks for it. The database knows the last number, so that nothing is counted twice (``storage.readings``). A batch is handed
out whoever may write: where both do, the second changes nothing.

Note [Bounded]. A server whose counts can't be written keeps so many pairs of a role and a variable, each of a day. Of more
than these only the day is kept, as one on which reads were not counted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred, DeferredLock
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.logger import Logger

from svc.model.authentication import DAY, day_of
from svc.model.background import PeriodicService, run_in_background
from svc.model.clocks import WallClock
from svc.model.errors import OutcomeUnknown, ReadOnlyStandby, StoreUnavailable
from svc.model.query_results import Caller
from svc.model.readings import CountedReads, PurgePosition, ReaderKey, ReadingBatch
from svc.services.kept_counts import CountsFile, KeptCounts
from svc.storage.readings import ReadingStore

#: Seconds after which a process hands its counts over, after which they are written, and that the last round may take.
HANDOVER_INTERVAL: Final = 10.0
WRITE_INTERVAL: Final = 50.0
LAST_ROUND: Final = 5.0

#: The most pairs that wait to be written, and that all processes of a server have before they hand them over.
MAX_PAIRS: Final = 80_000
MAX_UNSENT: Final = 20_000

#: The most pairs in a batch, and the most characters of their ids.
BATCH_PAIRS: Final = 1000
BATCH_CHARACTERS: Final = 128 * 1024

#: The most batches of another server in one round.
MAX_BATCHES: Final = 2 * MAX_PAIRS // BATCH_PAIRS

#: The most steps of a purge in one round, between which others are served and members are asked.
PURGE_STEPS: Final = 20

Counts = Mapping[ReaderKey, Mapping[str, int]]

#: Takes the counts of a process, and the days on which some were lost.
TakeCounts = Callable[[Counts, Collection[int]], object]

#: Asks another server for its next batch, after it was confirmed that one of ``source`` with this number was added.
#: Returns ``None`` when there was no answer.
FetchBatch = Callable[[str, int], Awaitable[ReadingBatch | None]]

_log = Logger()

_FAILED: Final = "Counts of reads could not be written"


class PendingCounts:
    """Counts that wait, of at most ``most`` pairs (Note [Bounded])."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._counts: dict[ReaderKey, dict[str, int]] = {}
        self._lost_days: set[int] = set()
        self.pairs = 0

    def add_read(self, key: ReaderKey, variable: str) -> None:
        """Count a read."""
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = {}
        if variable in counts:
            counts[variable] += 1
        elif self.pairs < self._most:
            counts[variable] = 1
            self.pairs += 1
        else:
            self._lost_days.add(key.day)

    def add_reads(self, key: ReaderKey, variables: Collection[str]) -> None:
        """Count a read of each of these, which are different."""
        counts = self._counts.setdefault(key, {})
        before = len(counts)
        for name in variables if self.pairs + len(variables) <= self._most else self._choose(key, variables):
            counts[name] = counts.get(name, 0) + 1
        self.pairs += len(counts) - before

    def add_counts(self, key: ReaderKey, reads: Mapping[str, int]) -> None:
        """Count as many reads of each as are given."""
        counts = self._counts.setdefault(key, {})
        before = len(counts)
        if self.pairs + len(reads) > self._most:
            reads = {name: reads[name] for name in self._choose(key, reads)}
        for name, number in reads.items():
            counts[name] = counts.get(name, 0) + number
        self.pairs += len(counts) - before

    def _choose(self, key: ReaderKey, variables: Collection[str]) -> list[str]:
        """Return those for which there is room: the known ones, and some of the others."""
        known = self._counts[key]
        new = [name for name in variables if name not in known]
        free = max(self._most - self.pairs, 0)
        if len(new) > free:
            self._lost_days.add(key.day)
        return [*(name for name in variables if name in known), *new[:free]]

    def add_lost_days(self, days: Iterable[int]) -> None:
        """Note days on which reads were lost."""
        self._lost_days.update(days)

    def take_all(self) -> tuple[Counts, frozenset[int]]:
        """Return all, and have none of it any more."""
        taken: Counts = self._counts
        lost = frozenset(self._lost_days)
        self._counts, self._lost_days, self.pairs = {}, set(), 0
        return taken, lost

    def take_batch(self) -> tuple[int, tuple[CountedReads, ...], tuple[int, ...]]:
        """Return the oldest day, some of its counts, and all lost days, and have these no more."""
        reads: list[CountedReads] = []
        day, size = min((key.day for key, counts in self._counts.items() if counts), default=0), 0
        for key in [key for key in self._counts if key.day == day]:
            counts = self._counts[key]
            while counts and len(reads) < BATCH_PAIRS and size < BATCH_CHARACTERS:
                variable, count = counts.popitem()
                reads.append(CountedReads(key.role, key.creation, variable, count))
                size += len(key.role) + len(variable)
            if counts:
                break
            del self._counts[key]
        self.pairs -= len(reads)
        lost, self._lost_days = tuple(sorted(self._lost_days)), set()
        return day, tuple(reads), lost

    @property
    def is_empty(self) -> bool:
        """Return whether nothing waits."""
        return not self.pairs and not self._lost_days


class ReadingCounter(PeriodicService):
    """Counts the reads that one of ``processes`` answers, and hands the counts over (Note [No write of its own])."""

    name = "reading counter"

    def __init__(self, clock: Any, wall: WallClock, hand_over: TakeCounts, processes: int = 1) -> None:
        super().__init__(clock, HANDOVER_INTERVAL, self.hand_over, _log, "Counts of reads could not be handed over")
        self._wall, self._hand_over, self._max_unsent = wall, hand_over, MAX_UNSENT // processes
        # A batch may have more than what is handed over at once, and isn't split for that.
        self._pending = PendingCounts(MAX_PAIRS)

    def count_read(self, caller: Caller, variable: str) -> None:
        """Count that a caller has read a variable, by its full id."""
        pending = self._pending
        pending.add_read(ReaderKey(caller.role.full_id, caller.creation, int(self._wall.seconds()) // DAY), variable)
        if pending.pairs >= self._max_unsent:
            self.hand_over()

    def count_reads(self, caller: Caller, variables: Collection[str]) -> None:
        """Count that a caller has read variables, each once."""
        if variables:
            key = ReaderKey(caller.role.full_id, caller.creation, int(self._wall.seconds()) // DAY)
            self._pending.add_reads(key, variables)
            if self._pending.pairs >= self._max_unsent:
                self.hand_over()

    def hand_over(self) -> None:
        """Hand over what is counted."""
        if not self._pending.is_empty:
            self._hand_over(*self._pending.take_all())

    def stopService(self) -> Deferred[None] | None:
        """Hand over the rest."""
        stopped = super().stopService()
        self.hand_over()
        return stopped


class ReadingRecorder(PeriodicService):
    """Writes the counts of all processes of a server, and collects those of other servers that can't write theirs.

    ``members`` are the other servers, by name. Nothing is written while ``ensure_writable`` raises ``ReadOnlyStandby``.
    Reads of more than ``retention`` seconds ago are purged once a day. Counts that can't be written before the end are kept
    in ``file``, if there is one, until the next start.
    """

    name = "reading recorder"

    def __init__(
        self,
        clock: Any,
        wall: WallClock,
        store: ReadingStore,
        ensure_writable: Callable[[], Awaitable[None]],
        members: Mapping[str, FetchBatch],
        source: str,
        retention: float,
        file: CountsFile | None = None,
    ) -> None:
        super().__init__(clock, WRITE_INTERVAL, self.write_counts, _log, _FAILED)
        # Members that don't answer delay no write.
        self._collecting = PeriodicService(clock, WRITE_INTERVAL, self.collect_counts, _log, "Counts were not collected")
        self._clock, self._wall, self._store, self._ensure_writable = clock, wall, store, ensure_writable
        self._members, self._source, self._retention = members, source, retention
        self._pending = PendingCounts(MAX_PAIRS)
        #: The last number of a batch, and the batch that waits to be confirmed (Note [One batch at a time]).
        self._sequence = 0
        self._outgoing: ReadingBatch | None = None
        self._writing = DeferredLock()
        self._is_follower = False
        self._file = file
        self._purged_day, self._purge_position = 0, PurgePosition()
        self._warned = False

    def add_counts(self, counts: Counts, lost_days: Collection[int]) -> None:
        """Take the counts of a process."""
        for key, reads in counts.items():
            self._pending.add_counts(key, reads)
        self._pending.add_lost_days(lost_days)
        if self._pending.pairs >= MAX_PAIRS // 5 and not self._writing.locked and not self._is_follower:
            run_in_background(self.write_counts(), _log, _FAILED)

    def hand_out(self, source: str, confirmed: int) -> ReadingBatch:
        """Return the batch that waits; one of this source with the number ``confirmed`` has been added."""
        self._confirm(source, confirmed)
        return self._next_batch()

    async def collect_counts(self) -> None:
        """Collect what other servers have, all at the same time, and purge some of what is old."""
        try:
            await self._ensure_writable()
            if self._members:
                asked = {name: Deferred.fromCoroutine(self._collect(fetch)) for name, fetch in self._members.items()}
                heard = [name for name, collected in asked.items() if await collected]
                await self._store.record_servers(list(self._members), heard)
            await self._purge_old()
        except (ReadOnlyStandby, StoreUnavailable, OutcomeUnknown):
            """The next round tries again, and the pool says so in the log."""

    def startService(self) -> None:
        """Take what was kept at the last stop, and begin the rounds."""
        if self._file is not None and (kept := self._file.take(day_of(self._wall.seconds()))) is not None:
            self._outgoing = kept.outgoing
            self.add_counts(kept.counts, kept.lost_days)
        super().startService()
        self._collecting.startService()

    async def write_counts(self) -> None:
        """Write what is counted, as far as that can be done now."""
        await self._writing.run(lambda: Deferred.fromCoroutine(self._write_batches()))

    def stopService(self) -> Deferred[None]:
        """Write the rest, as far as that can be done soon."""
        super().stopService()
        self._collecting.stopService()
        written = Deferred.fromCoroutine(self.write_counts()).addTimeout(LAST_ROUND, self._clock)
        written.addErrback(lambda failure: failure.trap(DeferredTimeout, CancelledError) and None)
        return written.addCallback(lambda _: self._keep_unwritten())

    async def _write_batches(self) -> None:
        try:
            await self._ensure_writable()
            self._is_follower = False
            while not (batch := self._next_batch()).is_empty:
                await self._store.add_batch(batch)
                self._confirm(batch.source, batch.sequence)
        except ReadOnlyStandby:
            self._is_follower = True
        except (StoreUnavailable, OutcomeUnknown):
            """The pool says so in the log, and the next round tries again."""

    def _next_batch(self) -> ReadingBatch:
        if self._outgoing is None and not self._pending.is_empty:
            day, reads, lost = self._pending.take_batch()
            self._sequence += 1
            self._outgoing = ReadingBatch(self._source, self._sequence, day, reads, lost)
            if lost and not self._warned:
                self._warned = True
                _log.warn("Reads weren't counted: more than {most} pairs of roles and variables waited", most=MAX_PAIRS)
        return ReadingBatch(self._source, self._sequence, 0) if self._outgoing is None else self._outgoing

    def _confirm(self, source: str, sequence: int) -> None:
        if self._outgoing is not None and source == self._outgoing.source and sequence >= self._outgoing.sequence:
            self._outgoing = None

    async def _collect(self, fetch: FetchBatch) -> bool:
        """Add all that another server has; return whether it delivered all."""
        source, confirmed = "", 0
        try:
            for _ in range(MAX_BATCHES):
                batch = await fetch(source, confirmed)
                if batch is None or batch.is_empty:
                    return batch is not None
                await self._store.add_batch(batch)
                source, confirmed = batch.source, batch.sequence
        except (ReadOnlyStandby, StoreUnavailable, OutcomeUnknown):
            """The other server keeps what wasn't confirmed, and the next round asks again."""
        return False

    async def _purge_old(self) -> None:
        today = day_of(self._wall.seconds())
        if today == self._purged_day:
            return
        before = day_of(self._wall.seconds() - self._retention)
        for _ in range(PURGE_STEPS):
            self._purge_position = await self._store.purge(self._purge_position, before)
            if self._purge_position == PurgePosition(None, None):
                self._purged_day, self._purge_position = today, PurgePosition()
                break

    def _keep_unwritten(self) -> None:
        waiting = self._pending.pairs + (0 if self._outgoing is None else len(self._outgoing.reads))
        if self._outgoing is None and self._pending.is_empty:
            return
        # Counts in the file must not be handed out any more.
        kept = KeptCounts(self._outgoing, *self._pending.take_all())
        self._outgoing = None
        if self._file is not None and self._file.write(kept):
            return
        if waiting:
            warning = "The reads of {count} pairs of roles and variables are lost: they could not be written before the end"
            _log.warn(warning, count=waiting)
