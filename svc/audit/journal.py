"""The journal: it takes every event of the server, gives it to the sinks, and notifies when they all have it.

Note [No waiting for a file]. Records are given to the sinks at once: a file or a pipe takes them with one system call, which
costs less than gathering those of a turn of the reactor. Records that a sink has not taken go into its backlog; where it
takes its time, as a connection does, the request waits.

Note [When a sink fails]. Records that a sink hasn't taken are kept, up to ``MAX_RECORDS`` records or ``MAX_BYTES``. As long
as it takes nothing, requests that must be audited are refused (``--audit-failure refuse``), so that nothing secret leaves
without its record; or they are answered (``continue``), and records beyond that room are lost: they are counted, and the log
says how many. A sink that takes no record within ``PATIENCE`` counts as one that fails.

Note [Checks]. Health checks the journal each round. Where a sink doubts that it would take one more record, one is given to
it, and that decides. Otherwise a check is recorded when it finds what the one before did not, and once in
``CHECK_RECORD_INTERVAL`` seconds: so a quiet server's audit is quiet, and yet it is known that it could have spoken.

Note [The first sink]. Records are numbered and digested by the first sink when it writes them (``record``), and go on to the
others as it wrote them, so that all have the same. While it takes nothing and requests go on without it, the others get
records as they are, without a digest: better unproven than lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import Final

import attrs
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from zope.interface import Attribute, Interface, implementer

from svc.audit.record import RecordFormatter
from svc.model.clocks import WallClock
from svc.model.errors import AuditUnavailable
from svc.model.events import DEBUG, AuditContext, Event, EventSource, IJournal, Outcome

#: How many records a sink may be behind, and of how many bytes together, before it counts as full.
MAX_RECORDS: Final = 10_000
MAX_BYTES: Final = 8 * 1024 * 1024

#: How many records are written at once.
BATCH: Final = 500

#: Seconds that a sink may take over a record before requests stop waiting for it; between two messages in the log about lost
#: records; and between two records of checks that find all well.
PATIENCE: Final = 5.0
LOSS_LOG_INTERVAL: Final = 60.0
CHECK_RECORD_INTERVAL: Final = 3600.0

_log = Logger()

_CHECK: Final = Event("health", "check", (), "checked the audit", "check the audit", user="svc", severity=DEBUG)


@attrs.define(eq=False)
class _SinkState:
    """A sink with its backlog."""

    sink: ISink
    backlog: Backlog
    logged_failure: str | None = None


@attrs.frozen(eq=False)
class _WaitingRecord:
    """A request that waits until the record of this number is taken, since a moment."""

    number: int
    since: float
    delivered: Deferred[None]


@implementer(IJournal)
class Journal(Service):
    """Provides ``IJournal`` by writing records to sinks, of which there is one at least (Note [The first sink]).

    :param refuses: whether requests are refused while a sink takes nothing (Note [When a sink fails]).
    :param count_lost: is called with the number of records that were lost just now.
    """

    name = "journal"

    def __init__(
        self,
        server: EventSource,
        clock: IReactorTime,
        wall: WallClock,
        sinks: Sequence[ISink],
        *,
        refuses: bool,
        count_lost: Callable[[int], object] | None = None,
    ) -> None:
        self.server, self._clock, self._formatter = server, clock, RecordFormatter(server, wall)
        self._refuses, self._count_lost = refuses, count_lost
        self._other_sinks = [_SinkState(sink, Backlog(self._release_delivered)) for sink in sinks[1:]]
        self._first_sink = _SinkState(sinks[0], Backlog(self._release_delivered, self._forward_delivered))
        self._sinks = [self._first_sink, *self._other_sinks]
        self._last_number = 0
        #: The number up to which records have gone on from the first sink to the others.
        self._forwarded = 0
        #: The result and the time of the last check that was recorded.
        self._last_check_passed: bool | None = None
        self._check_noted_at = 0.0
        self._waiting: deque[_WaitingRecord] = deque()
        self._patience_timer: IDelayedCall | None = None
        self._lost_count = 0
        self._loss_logged_at: float | None = None

    async def open(self) -> None:
        """Open every sink.

        :raises StartRefused: one can't be opened.
        """
        for line in self._sinks:
            await line.sink.open(line.backlog)

    def reopen(self) -> None:
        """Have every sink open its destination again, as after its file was moved away."""
        _log.info("Audit files are opened again")
        for line in self._sinks:
            line.sink.reopen()

    def stopService(self) -> Deferred[None]:
        """Give the sinks what there is, and close them. Nothing is taken any more."""
        super().stopService()  # type: ignore[no-untyped-call] # Twisted's
        return Deferred.fromCoroutine(self._close_sinks())

    async def _close_sinks(self) -> None:
        if self._patience_timer is not None and self._patience_timer.active():
            self._patience_timer.cancel()
        for line in self._sinks:
            await line.sink.close()
            if line.backlog:
                _log.error("{count} audit records were not taken by {sink}", count=len(line.backlog), sink=line.sink.name)
        self._release_all("the server stops")

    def require_available(self) -> None:
        """See ``IJournal``."""
        for line in self._sinks if self._refuses else ():
            # A sink without a backlog that hasn't failed takes records.
            if (line.backlog.size or line.backlog.failure is not None) and (why := self.failure) is not None:
                raise AuditUnavailable(why)

    @property
    def failure(self) -> str | None:
        """Return why records can't be taken now; ``None`` when they can."""
        for line in self._sinks:
            backlog = line.backlog
            if backlog.failure is not None:
                return f"{line.sink.name}: {backlog.failure}"
            if backlog.size and _is_full(backlog):
                return f"{line.sink.name} is too far behind"
        return None

    def backlog_sizes(self) -> list[tuple[str, int]]:
        """Return the name of each sink, and how many records it has yet to take."""
        return [(line.sink.name, len(line.backlog)) for line in self._sinks]

    async def record_events(self, origin: AuditContext, events: Sequence[Event], outcome: Outcome) -> None:
        """See ``IJournal``."""
        for start in range(0, len(events), BATCH):
            if start:  # others get their turn
                await deferLater(self._clock, 0)
            self.require_available()
            if not self.running:
                raise AuditUnavailable("the server stops")
            last = self._give_to_sinks(self._formatter.format_events(origin, events[start : start + BATCH], outcome))
            if last is not None:
                await self._drain_and_await(last)
        if not events:
            self.require_available()

    async def check(self) -> None:
        """Return when the sinks have taken the last record, and would take one more (Note [Checks]).

        :raises AuditUnavailable: they have not, or wouldn't.
        """
        try:
            await self._check_sinks()
        except AuditUnavailable:
            if self._last_check_passed is not False:
                self._note_check(False)
                # Nobody waits for it: a sink that works has it now, one that doesn't when it works again.
                origin = AuditContext(self.server, None, "-", "-")
                self._give_to_sinks(self._formatter.format_events(origin, [_CHECK], Outcome("unavailable")))
                self._drain_backlogs()
            raise

    async def _check_sinks(self) -> None:
        due = not self._last_check_passed or self._clock.seconds() - self._check_noted_at >= CHECK_RECORD_INTERVAL
        if self.failure is None and self._last_delivered < self._last_number:
            # Like that of a check that was given up: to have been written is not to have been taken.
            await self._await_delivery(self._last_number)
        elif self.failure is None and (due or not self._are_sinks_ready()):
            await self.record_events(AuditContext(self.server, None, "-", "-"), [_CHECK], Outcome())
            if self.failure is None:
                self._note_check(True)
        if (why := self.failure) is not None:
            raise AuditUnavailable(why)

    def _are_sinks_ready(self) -> bool:
        ready = [line.sink.is_ready() for line in self._sinks]  # each is checked: one may find that its file was moved away
        return all(ready)

    def _note_check(self, well: bool) -> None:
        self._last_check_passed, self._check_noted_at = well, self._clock.seconds()

    async def _drain_and_await(self, last: int) -> None:
        """Wait for sinks that take their time over the records up to this one (Note [No waiting for a file])."""
        self._drain_backlogs()
        if self._last_delivered >= last:
            return
        if any(line.backlog.failure is not None for line in self._sinks):
            self.require_available()
        elif self._refuses or self.failure is None:
            await self._await_delivery(last)

    def _drain_backlogs(self) -> None:
        for line in self._sinks:
            line.sink.drain_backlog()

    def _give_to_sinks(self, records: Sequence[bytes]) -> int | None:
        """Give the next records to the sinks, or to the backlogs of these.

        Return the number of the last, ``None`` where every sink has taken all of them.
        """
        count, backlog = len(records), self._first_sink.backlog
        self._last_number = last = self._last_number + count
        taken = self._first_sink.sink.try_write(records) if not backlog.size and backlog.failure is None else ()
        whole = len(taken) == count
        if taken and self._other_sinks:
            whole = self._forward_records([*enumerate(taken, last - count + 1)]) and whole
        if len(taken) == count:
            backlog.last_number = last
            return None if whole else last
        rest = [*enumerate(records[len(taken) :], last - count + len(taken) + 1)]
        if _is_full(backlog):
            backlog.last_number = last
            self._forward_records([*backlog.records_after(self._forwarded), *rest])
            self._report_lost(count)
        else:
            backlog.add_records(rest)
            self._bypass_first_sink()
        return last

    def _bypass_first_sink(self) -> None:
        """Pass on what the first sink doesn't take, where requests go on without it."""
        if self._other_sinks and not self._refuses and self._first_sink.backlog.failure is not None:
            self._forward_records(self._first_sink.backlog.records_after(self._forwarded))

    def _forward_delivered(self, records: Sequence[tuple[int, bytes]]) -> None:
        """Pass on what the first sink has taken from its backlog."""
        if self._other_sinks:
            self._forward_records(records)
            for line in self._other_sinks:
                line.sink.drain_backlog()

    def _forward_records(self, records: Sequence[tuple[int, bytes]]) -> bool:
        """Give records to the other sinks that these don't have, and return whether they took all at once."""
        records = [each for each in records if each[0] > self._forwarded]
        if not records:
            return True
        self._forwarded = last = records[-1][0]
        whole, lost = True, 0
        for line in self._other_sinks:
            backlog = line.backlog
            taken = (
                line.sink.try_write([record for _, record in records])
                if not backlog.size and backlog.failure is None
                else ()
            )
            if len(taken) == len(records):
                backlog.last_number = last
                continue
            whole = False
            if _is_full(backlog):
                backlog.last_number = last
                lost = len(records)
            else:
                backlog.add_records(records[len(taken) :])
        if lost:
            self._report_lost(lost)
        return whole

    @property
    def _last_delivered(self) -> int:
        """Return the number up to which every sink has taken all records."""
        return min([line.backlog.last_delivered for line in self._sinks])

    async def _await_delivery(self, number: int) -> None:
        """Wait until the record of this number is taken, or a sink is found to take none."""
        waiting = _WaitingRecord(number, self._clock.seconds(), Deferred())
        self._waiting.append(waiting)
        if self._patience_timer is None:
            self._patience_timer = self._clock.callLater(PATIENCE, self._check_oldest)
        await waiting.delivered

    def _release_delivered(self) -> None:
        """Release the requests whose records are taken, and all while a sink takes none."""
        self._bypass_first_sink()
        safe = self._last_delivered if self._waiting else 0
        while self._waiting and self._waiting[0].number <= safe:
            self._waiting.popleft().delivered.callback(None)
        for line in self._sinks:
            if line.logged_failure != line.backlog.failure:
                line.logged_failure = line.backlog.failure
                _log_sink_state(line)
        if self._waiting and (why := self.failure) is not None:
            self._release_all(why)

    def _release_all(self, why: str) -> None:
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            if self._refuses:
                each.delivered.errback(AuditUnavailable(why))
            else:
                each.delivered.callback(None)

    def _check_oldest(self) -> None:
        """Check whether the oldest record has waited too long."""
        self._patience_timer = None
        if not self._waiting:
            return
        if (due := self._waiting[0].since + PATIENCE - self._clock.seconds()) > 0:
            self._patience_timer = self._clock.callLater(due, self._check_oldest)
            return
        for line in self._sinks:
            if line.backlog and line.backlog.failure is None:
                line.backlog.mark_failed(f"takes no record for {PATIENCE:g} seconds")

    def _report_lost(self, count: int) -> None:
        if self._count_lost is not None:
            self._count_lost(count)
        self._lost_count += count
        now = self._clock.seconds()
        if self._loss_logged_at is None or not 0 <= now - self._loss_logged_at < LOSS_LOG_INTERVAL:
            self._loss_logged_at = now
            _log.error("{count} audit records were lost since the start: {why}", count=self._lost_count, why=self.failure)


def _is_full(backlog: Backlog) -> bool:
    return len(backlog) >= MAX_RECORDS or backlog.size >= MAX_BYTES


def _log_sink_state(line: _SinkState) -> None:
    if line.backlog.failure is None:
        _log.warn("Audit records go to {sink} again", sink=line.sink.name)
    else:
        _log.error("Audit records can't go to {sink}: {why}", sink=line.sink.name, why=line.backlog.failure)


class Backlog:
    """Records in order, each with its number, that a sink has been given and has not taken.

    ``changed`` is called when the sink reports on them, and ``written`` before that with those that it has taken, as it
    wrote them. ``failure`` says why it takes nothing at present, if that is so.
    """

    def __init__(
        self, changed: Callable[[], None], written: Callable[[Sequence[tuple[int, bytes]]], object] = lambda _: None
    ) -> None:
        self.failure: str | None = None
        self.size = 0
        self._on_change, self._on_delivered = changed, written
        self._records: deque[tuple[int, bytes]] = deque()
        #: The number up to which records are here, or have been taken, or are lost to the sink.
        self.last_number = 0

    def __len__(self) -> int:
        return len(self._records)

    @property
    def last_delivered(self) -> int:
        """Return the number up to which nothing is outstanding."""
        return self._records[0][0] - 1 if self._records else self.last_number

    def add_records(self, records: Sequence[tuple[int, bytes]]) -> None:
        """Give the sink more to take."""
        self._records.extend(records)
        self.last_number = records[-1][0]
        self.size += sum([len(record) for _, record in records])

    def oldest_records(self, size: int) -> list[bytes]:
        """Return the oldest records, as far as :func:`take_up_to` goes."""
        return take_up_to((record for _, record in self._records), size)

    def records_after(self, number: int) -> list[tuple[int, bytes]]:
        """Return those that are numbered after this."""
        return [*takewhile(lambda record: record[0] > number, reversed(self._records))][::-1]

    def mark_delivered(self, count: int, lines: Sequence[bytes] | None = None) -> None:
        """Note that the sink has taken so many of the oldest; ``lines`` are these as it wrote them, if not as they were."""
        gone = [self._records.popleft() for _ in range(count)]
        self.size -= sum([len(record) for _, record in gone])
        self.failure = None
        if lines is not None:
            gone = [(number, line) for (number, _), line in zip(gone, lines, strict=True)]
        self._on_delivered(gone)
        self._on_change()

    def mark_failed(self, why: str) -> None:
        """Note that the sink takes nothing, and tries again by itself."""
        self.failure = why
        self._on_change()

    def mark_recovered(self) -> None:
        """Note that the sink can take records again."""
        self.failure = None
        self._on_change()


def take_up_to(records: Iterable[bytes], size: int) -> list[bytes]:
    """Return the first of the records, of ``size`` bytes together or little more; none when there are none."""
    found: list[bytes] = []
    for record in records:
        found.append(record)
        size -= len(record)
        if size <= 0:
            break
    return found


class ISink(Interface):
    """A destination of records. They are taken in the order in which they are given, and none is given again once taken."""

    name = Attribute("""Its name in the log.""")

    async def open(backlog: Backlog) -> None:
        """Begin to take what the backlog has, now and later.

        :raises StartRefused: the destination is missing, and will be.
        """

    def try_write(records: Sequence[bytes]) -> Sequence[bytes]:
        """Take what can be taken at once, calling nobody back, and return it as it was written; called when the backlog is
        empty.

        It fails with nothing: the rest is given to the backlog, and reported there.
        """

    def drain_backlog() -> None:
        """Take what the backlog has; called whenever there is more."""

    def is_ready() -> bool:
        """Return whether one more record would be taken, as far as that shows without one; called when the backlog is empty.

        Where something else is at the destination's place by now, that is opened.
        """

    def reopen() -> None:
        """Open again what is now at the same place."""

    async def close() -> None:
        """Take what can be taken at once, and let go."""
