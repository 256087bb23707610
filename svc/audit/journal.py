"""The journal: it takes every event of the server, gives it to the sinks, and notifies when they all have it.

Note [No waiting for a file]. Records are given to the sinks at once: a file or a pipe takes them with one system call, which
costs less than gathering those of a turn of the reactor. Records that a sink has not taken go into its backlog; where it
takes its time, as a connection does, the request waits.

Note [When a sink fails]. Records that a sink hasn't taken are kept, up to ``MOST`` records or ``MOST_BYTES``. As long as it
takes nothing, requests that must be audited are refused (``--audit-failure refuse``), so that nothing secret leaves without
its record; or they are answered (``continue``), and records beyond that room are lost: they are counted, and the log says
how many. A sink that takes no record within ``PATIENCE`` counts as one that fails.

Note [Checks]. Health checks the journal each round. Where a sink doubts that it would take one more record, one is given to
it, and that decides. Otherwise a check is recorded when it finds what the one before did not, and once in ``RECORDED``
seconds: so a quiet server's audit is quiet, and yet it is known that it could have spoken.

Note [The first sink]. Records are numbered and digested by the first sink when it writes them (``chain``), and go on to the
others as it wrote them, so that all have the same. While it takes nothing and requests go on without it, the others get
records as they are, without a digest: better unproven than lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import attrs
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from zope.interface import implementer

from svc.audit.backlog import Backlog, ISink
from svc.audit.record import Records
from svc.model.clocks import WallClock
from svc.model.errors import AuditUnavailable
from svc.model.events import DEBUG, AuditContext, Event, IJournal, Outcome, Server
from svc.model.names import RoleName

#: How many records a sink may be behind, and of how many bytes together, before it counts as full.
MOST: Final = 10_000
MOST_BYTES: Final = 8 * 1024 * 1024

#: How many records are written at once.
TURN: Final = 500

#: Seconds that a sink may take over a record before requests stop waiting for it; between two messages in the log about lost
#: records; and between two records of checks that find all well.
PATIENCE: Final = 5.0
REPORTS: Final = 60.0
RECORDED: Final = 3600.0

_log = Logger()

_CHECK: Final = Event("health", "check", (), "checked the audit", "check the audit", user="svc", severity=DEBUG)


@attrs.define(eq=False)
class _Line:
    """A sink with its backlog."""

    sink: ISink
    backlog: Backlog
    told: str | None = None


@attrs.frozen(eq=False)
class _WaitingRecord:
    """A request that waits until the record of this number is taken, since a moment."""

    number: int
    since: float
    taken: Deferred[None]


@implementer(IJournal)
class Journal(Service):
    """Provides ``IJournal`` by writing records to sinks, of which there is one at least (Note [The first sink]).

    :param refuses: whether requests are refused while a sink takes nothing (Note [When a sink fails]).
    :param count_lost: is called with the number of records that were lost just now.
    """

    name = "journal"

    def __init__(
        self,
        server: Server,
        clock: IReactorTime,
        wall: WallClock,
        sinks: Sequence[ISink],
        *,
        refuses: bool,
        count_lost: Callable[[int], object] | None = None,
    ) -> None:
        self._server, self._clock, self._records = server, clock, Records(server, wall)
        self._refuses, self._count_lost = refuses, count_lost
        self._others = [_Line(sink, Backlog(self._changed)) for sink in sinks[1:]]
        self._first = _Line(sinks[0], Backlog(self._changed, self._written))
        self._lines = [self._first, *self._others]
        self._last = 0
        #: The number up to which records have gone on from the first sink to the others.
        self._passed = 0
        #: The result and the time of the last check that was recorded.
        self._well: bool | None = None
        self._noted = 0.0
        self._waiting: deque[_WaitingRecord] = deque()
        self._watch: IDelayedCall | None = None
        self._lost = 0
        self._reported: float | None = None

    async def open(self) -> None:
        """Open every sink.

        :raises StartRefused: one can't be opened.
        """
        for line in self._lines:
            await line.sink.open(line.backlog)

    def reopen(self) -> None:
        """Have every sink open its destination again, as after its file was moved away."""
        _log.info("Audit files are opened again")
        for line in self._lines:
            line.sink.reopen()

    def stopService(self) -> Deferred[None]:
        """Give the sinks what there is, and close them. Nothing is taken any more."""
        super().stopService()  # type: ignore[no-untyped-call] # Twisted's
        return Deferred.fromCoroutine(self._close())

    async def _close(self) -> None:
        if self._watch is not None and self._watch.active():
            self._watch.cancel()
        for line in self._lines:
            await line.sink.close()
            if line.backlog:
                _log.error("{count} audit records were not taken by {sink}", count=len(line.backlog), sink=line.sink.name)
        self._give_up("the server stops")

    def origin(self, user: RoleName | None, client_ip: str, request_id: str) -> AuditContext:
        """See ``IJournal``."""
        return AuditContext(self._server, None if user is None else str(user), client_ip, request_id)

    def admit(self) -> None:
        """See ``IJournal``."""
        if self._refuses and (why := self.trouble) is not None:
            raise AuditUnavailable(why)

    @property
    def trouble(self) -> str | None:
        """Return why records can't be taken now; ``None`` when they can."""
        for line in self._lines:
            if line.backlog.trouble is not None:
                return f"{line.sink.name}: {line.backlog.trouble}"
            if _is_full(line.backlog):
                return f"{line.sink.name} is too far behind"
        return None

    def backlogs(self) -> list[tuple[str, int]]:
        """Return the name of each sink, and how many records it has yet to take."""
        return [(line.sink.name, len(line.backlog)) for line in self._lines]

    async def take(self, origin: AuditContext, events: Sequence[Event], outcome: Outcome) -> None:
        """See ``IJournal``."""
        for start in range(0, len(events), TURN):
            if start:  # others get their turn
                await deferLater(self._clock, 0)
            self.admit()
            await self._taken(self._records.written(origin, events[start : start + TURN], outcome))
        if not events:
            self.admit()

    async def check(self) -> None:
        """Return when the sinks have taken the last record, and would take one more (Note [Checks]).

        :raises AuditUnavailable: they have not, or wouldn't.
        """
        try:
            await self._tried()
        except AuditUnavailable:
            if self._well is not False:
                self._note(False)
                # Nobody waits for it: a sink that works has it now, one that doesn't when it works again.
                self._hand_over(self._checked(Outcome("unavailable")))
                self._wake()
            raise

    async def _tried(self) -> None:
        due = not self._well or self._clock.seconds() - self._noted >= RECORDED
        if self.trouble is None and self._safe < self._last:
            # Like that of a check that was given up: to have been written is not to have been taken.
            await self._settled(self._last)
        elif self.trouble is None and (due or not self._seems_ready()):
            await self._taken(self._checked(Outcome()))
            if self.trouble is None:
                self._note(True)
        if (why := self.trouble) is not None:
            raise AuditUnavailable(why)

    def _seems_ready(self) -> bool:
        ready = [line.sink.ready() for line in self._lines]  # each is checked: one may find that its file was moved away
        return all(ready)

    def _note(self, well: bool) -> None:
        self._well, self._noted = well, self._clock.seconds()

    def _checked(self, outcome: Outcome) -> list[bytes]:
        return self._records.written(self.origin(None, "-", "-"), [_CHECK], outcome)

    async def _taken(self, records: Sequence[bytes]) -> None:
        """Give records to the sinks, and wait where they take their time (Note [No waiting for a file])."""
        if not self.running:
            raise AuditUnavailable("the server stops")
        last = self._hand_over(records)
        if last is None:
            return
        self._wake()
        if self._safe >= last:
            return
        if any(line.backlog.trouble is not None for line in self._lines):
            self.admit()
        elif self._refuses or self.trouble is None:
            await self._settled(last)

    def _wake(self) -> None:
        for line in self._lines:
            line.sink.wake()

    def _hand_over(self, records: Sequence[bytes]) -> int | None:
        """Give the next records to the sinks, or to the backlogs of these.

        Return the number of the last, ``None`` where every sink has taken all of them.
        """
        count, backlog = len(records), self._first.backlog
        self._last = last = self._last + count
        taken = self._first.sink.take(records) if backlog.is_idle else ()
        whole = len(taken) == count
        if taken and self._others:
            whole = self._pass_on([*enumerate(taken, last - count + 1)]) and whole
        if len(taken) == count:
            backlog.pass_over(last)
            return None if whole else last
        rest = [*enumerate(records[len(taken) :], last - count + len(taken) + 1)]
        if _is_full(backlog):
            backlog.pass_over(last)
            self._pass_on([*backlog.after(self._passed), *rest])
            self._lose(count)
        else:
            backlog.add(rest)
            self._pass_by()
        return last

    def _pass_by(self) -> None:
        """Pass on what the first sink doesn't take, where requests go on without it."""
        if self._others and not self._refuses and self._first.backlog.trouble is not None:
            self._pass_on(self._first.backlog.after(self._passed))

    def _written(self, records: Sequence[tuple[int, bytes]]) -> None:
        """Pass on what the first sink has taken from its backlog."""
        if self._others:
            self._pass_on(records)
            for line in self._others:
                line.sink.wake()

    def _pass_on(self, records: Sequence[tuple[int, bytes]]) -> bool:
        """Give records to the other sinks that these don't have, and return whether they took all at once."""
        records = [each for each in records if each[0] > self._passed]
        if not records:
            return True
        self._passed = last = records[-1][0]
        whole, lost = True, 0
        for line in self._others:
            backlog = line.backlog
            taken = line.sink.take([record for _, record in records]) if backlog.is_idle else ()
            if len(taken) == len(records):
                backlog.pass_over(last)
                continue
            whole = False
            if _is_full(backlog):
                backlog.pass_over(last)
                lost = len(records)
            else:
                backlog.add(records[len(taken) :])
        if lost:
            self._lose(lost)
        return whole

    @property
    def _safe(self) -> int:
        """Return the number up to which every sink has taken all records."""
        return min([line.backlog.safe for line in self._lines])

    async def _settled(self, number: int) -> None:
        """Wait until the record of this number is taken, or a sink is found to take none."""
        waiting = _WaitingRecord(number, self._clock.seconds(), Deferred())
        self._waiting.append(waiting)
        if self._watch is None:
            self._watch = self._clock.callLater(PATIENCE, self._look)
        await waiting.taken

    def _changed(self) -> None:
        """Release the requests whose records are taken, and all while a sink takes none."""
        self._pass_by()
        safe = self._safe if self._waiting else 0
        while self._waiting and self._waiting[0].number <= safe:
            self._waiting.popleft().taken.callback(None)
        for line in self._lines:
            if line.told != line.backlog.trouble:
                line.told = line.backlog.trouble
                _tell(line)
        if self._waiting and (why := self.trouble) is not None:
            self._give_up(why)

    def _give_up(self, why: str) -> None:
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            if self._refuses:
                each.taken.errback(AuditUnavailable(why))
            else:
                each.taken.callback(None)

    def _look(self) -> None:
        """Check whether the oldest record has waited too long."""
        self._watch = None
        if not self._waiting:
            return
        if (due := self._waiting[0].since + PATIENCE - self._clock.seconds()) > 0:
            self._watch = self._clock.callLater(due, self._look)
            return
        for line in self._lines:
            if line.backlog and line.backlog.trouble is None:
                line.backlog.failed(f"takes no record for {PATIENCE:g} seconds")

    def _lose(self, count: int) -> None:
        if self._count_lost is not None:
            self._count_lost(count)
        self._lost += count
        now = self._clock.seconds()
        if self._reported is None or not 0 <= now - self._reported < REPORTS:
            self._reported = now
            _log.error("{count} audit records were lost since the start: {why}", count=self._lost, why=self.trouble)


def _is_full(backlog: Backlog) -> bool:
    return backlog.size > 0 and (len(backlog) >= MOST or backlog.size >= MOST_BYTES)


def _tell(line: _Line) -> None:
    if line.backlog.trouble is None:
        _log.warn("Audit records go to {sink} again", sink=line.sink.name)
    else:
        _log.error("Audit records can't go to {sink}: {why}", sink=line.sink.name, why=line.backlog.trouble)
