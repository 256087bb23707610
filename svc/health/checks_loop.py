"""The loop of health checks, a round of all of them at a steady pace, and the report of the last round.

Note [Hanging checks]. A check that gives no answer by its deadline has failed, and is cancelled. One that goes on regardless
counts as failed until it has ended, and isn't started again beside itself. So it holds up neither its neighbours, nor the
next round, nor a reader of the report.

Note [Staleness]. The report is kept in memory, and would look healthy for ever if the loop behind it died. So it says
``stale`` once the last round is older than three intervals, by a clock that nobody sets (``clocks``, Note [Two clocks]).

Note [Reading and writing]. A database that takes no writes, because its disk is full or a synchronous standby is away, lets
everybody log in and read. So ``core`` is two checks, of which readiness depends on the one that reads; the report has the
worse of the two.

Note [Reported in time]. A process that doesn't check has the last report received from the one that does. Reports may stop
coming, as rounds of checks may. Then the report says ``stale`` after the same three intervals: a process that is cut off
from the others doesn't look healthy.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

import attrs
from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from svc._version import VERSION
from svc.health.probes import DatabaseProbe
from svc.model.background import PeriodicService
from svc.model.clocks import WallClock
from svc.model.databases import ReplicationPosition
from svc.model.dialect import Dialect
from svc.model.errors import Refusal
from svc.model.probes import IProbe
from svc.model.query_results import CheckResult

T = TypeVar("T")

#: The longest time that a check may take, in seconds, or half an interval; and how many intervals old a round may be.
LONGEST_CHECK: Final = 2.0
INTERVALS_UNTIL_STALE: Final = 3

#: How many rounds come early while what is needed fails after something has changed, and the pauses between them in seconds:
#: a server that the change has made slow may need some until it is well.
EAGER_ROUNDS: Final = 5
EAGER_PAUSE: Final = 1.0

#: The service that the check of writing belongs to (Note [Reading and writing]).
_CORE: Final = "core"

#: The services without which nobody can log in and read a secret: readiness depends on them, beside the database. So is the
#: audit, where requests are refused while their records can't be written.
NEEDED_TO_SERVE: Final = frozenset({_CORE, "authn", "authz"})

_STARTING: Final = "starting"
#: The word for what works.
OK: Final = "ok"
_FAILED: Final = "failed"
_STALE: Final = "stale"

log = Logger()


@attrs.frozen
class HealthReport:
    """The health of this server: one word for each service and for the database (HEALTH-2, HEALTH-3).

    ``position`` is that of the database's log; ``None`` unless the database is ok. ``moment`` is when the last round ended,
    and ``changed`` when each value became what it is, that of the database under ``database``: both in epoch seconds.
    ``unready`` are the needed services that don't work; ``writing`` is the word for the check of writing, ``primaries`` that
    for other primaries in the cluster, ``None`` without others.
    """

    dialect: Dialect
    services: Mapping[str, str]
    database: str
    position: ReplicationPosition | None
    moment: float | None = attrs.field(default=None, eq=False)
    changed: Mapping[str, float] = attrs.field(factory=dict, eq=False)
    unready: frozenset[str] = attrs.field(default=frozenset(), eq=False)
    writing: str = attrs.field(default=OK, eq=False)
    primaries: str | None = None

    @property
    def services_ok(self) -> bool:
        """Whether every service works."""
        return all(value == OK for value in self.services.values())

    @property
    def ok(self) -> bool:
        """Whether the server works."""
        return self.services_ok and self.database == OK and self.primaries in {None, OK}

    @property
    def is_ready(self) -> bool:
        """Whether the server could serve in the last round: log somebody in, check their rights, and read a secret."""
        return self.database == OK and not self.unready

    @property
    def is_ready_to_write(self) -> bool:
        """Whether it could do that, and its database took a write, unless it is a standby."""
        return self.is_ready and self.writing == OK

    def as_stale(self, since: float) -> HealthReport:
        """Return what the report says once it is too old, since a moment in epoch seconds."""
        return attrs.evolve(
            self,
            services=dict.fromkeys(self.services, _STALE),
            database=_STALE,
            position=None,
            changed=dict.fromkeys(self.changed, since),
            unready=frozenset(self.services),
            writing=_STALE,
        )

    def document(self) -> dict[str, Any]:
        """Return the report as JSON has it (HEALTH-2)."""
        location, at = f"{self.dialect.replication_prefix}current_xlog_location", self.position
        seconds = None if at is None or at.lag_seconds is None else round(at.lag_seconds, 3)
        return {
            "services": {**self.services, "ok": self.services_ok},
            "database": {
                "ok": self.database == OK,
                "connect": {"main": self.database},
                "replication_status": {
                    location: at.text if at else None,
                    f"{location}_bytes": at.position if at else None,
                    **({"lag_bytes": at.lag_bytes, "lag_seconds": seconds} if at and at.standby else {}),  # HEALTH-6
                },
            },
            **({} if self.primaries is None else {"cluster": self._cluster_document(self.primaries)}),
            "ok": self.ok,
        }

    def _cluster_document(self, primaries: str) -> dict[str, Any]:
        return {"ok": primaries == OK, "primaries": primaries, "node": self.node_document()}

    def node_document(self) -> dict[str, Any]:
        """Return this server's own entry as a node of its cluster, as JSON has it (OPS-6)."""
        node = self.position.node if self.position else None
        database: dict[str, Any] = dict.fromkeys(("timeline", "since", "release", "schema", "standbys"))
        if node is not None:
            standbys = None if node.standbys is None else [attrs.asdict(each) for each in node.standbys]
            database = {**attrs.asdict(node, recurse=False), "standbys": standbys}
        return {"version": VERSION, "changed": max(self.changed.values(), default=None), **database}


class IHealth(Protocol):
    """The health of the server, as routes report it."""

    def last_report(self, dialect: Dialect) -> HealthReport:
        """Return the report of the last round, at once."""

    def now(self) -> float:
        """Return the moment by which the times of reports go, in epoch seconds."""


class _CheckRunner(Generic[T]):
    """One check, and its last result: ``value`` is the word for the report, ``result`` what the check returned.

    ``changed`` is when the word became what it is, ``seconds`` how long the last check did, in seconds.
    """

    def __init__(
        self, clock: IReactorTime, wall: WallClock, name: str, check: Callable[[], Coroutine[Any, Any, T]], deadline: float
    ) -> None:
        self.name = name
        self.value = _STARTING
        self.changed = wall.seconds()
        self.seconds: float | None = None
        self.result: T | None = None
        self._clock = clock
        self._wall = wall
        self._check = check
        self._deadline = deadline
        self._running: Deferred[T] | None = None
        self._timer: IDelayedCall | None = None

    def run_check(self) -> Deferred[None]:
        """Check once. The Deferred fires, and never fails, when there is something to report (Note [Hanging checks])."""
        if self._running is not None:
            self._record_failure("an earlier check has not ended yet")
            return succeed(None)
        known: Deferred[None] = Deferred()
        began = self._clock.seconds()
        running = self._running = Deferred.fromCoroutine(self._check())

        def time_out() -> None:
            self._timer = None
            self.seconds = self._deadline
            self._record_failure(f"no answer within {self._deadline:g} s")
            running.cancel()
            known.callback(None)

        def finish_check(result: T | Failure) -> None:
            self._running = None
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
                self.seconds = max(0.0, self._clock.seconds() - began)
                self._record_result(result)
                known.callback(None)

        self._timer = self._clock.callLater(self._deadline, time_out)
        running.addBoth(finish_check)
        return known

    def cancel_check(self) -> None:
        """Give up the check that runs, and report nothing of it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._running is not None:
            self._running.cancel()

    def _record_result(self, result: T | Failure) -> None:
        if not isinstance(result, Failure):
            if self.value == _FAILED:
                log.info("Health: {service} works again", service=self.name)
            self._set_value(OK)
            self.result = result
        elif result.check(Refusal):
            self._record_failure(str(result.value))
        else:
            self._record_failure(f"{type(result.value).__name__}: {result.value}", log_failure=result)

    def _record_failure(self, reason: str, **fields: object) -> None:
        # Only a change is news: a line in every round would hide the one that names the cause.
        if self.value != _FAILED:
            log.warn("Health: {service} has failed: {reason}", service=self.name, reason=reason, **fields)
        self._set_value(_FAILED)

    def _set_value(self, value: str) -> None:
        if self.value != value:
            self.value, self.changed = value, self._wall.seconds()


def longest_check(interval: float) -> float:
    """Return how many seconds a check may take where a round begins every ``interval`` seconds."""
    return min(LONGEST_CHECK, interval / 2)


class ChecksLoop(Service):
    """Makes a round of all checks at once every ``interval`` seconds, each check with its own deadline.

    ``primaries`` is the word for the primaries of the cluster, and since when, in epoch seconds; ``None`` without a cluster.
    """

    name = "health"

    def __init__(
        self,
        clock: IReactorTime,
        wall: WallClock,
        probes: Sequence[IProbe],
        database: DatabaseProbe,
        interval: float,
        needed: frozenset[str] = NEEDED_TO_SERVE,
        primaries: Callable[[], tuple[str, float] | None] = lambda: None,
    ) -> None:
        deadline = longest_check(interval)
        self._clock, self._wall, self._interval = clock, wall, interval
        self._needed, self._primaries = needed, primaries
        self._services = [_CheckRunner(clock, wall, probe.service, probe.check, deadline) for probe in probes]
        self._database = _CheckRunner(clock, wall, "database", database.check, deadline)
        self._writing = _CheckRunner(clock, wall, f"{_CORE} (writing)", database.write, deadline)
        self._rounds = PeriodicService(clock, interval, self._run_round, log, "A round of health checks met a bug")
        self._first: Deferred[None] = Deferred()
        # When the last round ended, or, before that, when the loop was started; and the time of day when one ended last.
        self._last: float | None = None
        self._moment: float | None = None
        #: How many rounds may yet come early, and the next of them.
        self._eager = 0
        self._early: IDelayedCall | None = None

    def startService(self) -> None:
        """Begin with a round at once."""
        super().startService()  # type: ignore[no-untyped-call] # Twisted's
        self._last = self._clock.seconds()
        self._rounds.startService()

    def check_soon(self) -> None:
        """Have a round begin at once, or as soon as the one that is under way has ended, since something has changed."""
        self._eager = EAGER_ROUNDS
        self._trigger_round()

    def _trigger_round(self) -> None:
        if self._early is not None and self._early.active():
            self._early.cancel()
        self._rounds.trigger()

    def stopService(self) -> None:
        """End the loop, and give up the checks that run."""
        super().stopService()  # type: ignore[no-untyped-call] # Twisted's
        self._rounds.stopService()
        if self._early is not None and self._early.active():
            self._early.cancel()
        for watch in self._all_runners():
            watch.cancel_check()

    async def first_round(self) -> None:
        """Return when the first round has ended."""
        await self._first

    def last_report(self, dialect: Dialect) -> HealthReport:
        """Return the report of the last round, at once, even while a check hangs (Note [Staleness])."""
        patience = INTERVALS_UNTIL_STALE * self._interval
        overdue = 0.0 if self._last is None else self._clock.seconds() - self._last - patience
        stale, changed = overdue > 0, self._change_times()
        if stale:  # since when it was as old as it may be
            changed = dict.fromkeys(changed, self._wall.seconds() - overdue)
        reading = {watch.name: _STALE if stale else watch.value for watch in self._services}
        writing = _STALE if stale else self._writing.value
        word, since = self._primaries() or (None, 0.0)
        return HealthReport(
            dialect=dialect,
            services=reading | ({} if writing == OK or reading.get(_CORE, OK) != OK else {_CORE: writing}),
            database=_STALE if stale else self._database.value,
            position=self._database.result if self._database.value == OK and not stale else None,
            moment=self._moment,
            changed=changed if word is None else changed | {"primaries": since},
            unready=frozenset(name for name, value in reading.items() if value != OK and name in self._needed),
            writing=writing,
            primaries=word,
        )

    def now(self) -> float:
        """Return the moment by which the times of reports go, in epoch seconds."""
        return self._wall.seconds()

    def list_findings(self) -> list[CheckResult]:
        """Return the last result of each check, that of the database under ``database``."""
        found = []
        for watch in self._reported_runners():
            ill = self._writing if watch.name == _CORE and watch.value == OK and self._writing.value != OK else watch
            found.append(CheckResult(watch.name, ill.value, ill.seconds))
        return found

    def _change_times(self) -> dict[str, float]:
        changed = {watch.name: watch.changed for watch in self._reported_runners()}
        if _CORE in changed:
            changed[_CORE] = max(changed[_CORE], self._writing.changed)
        return changed

    def _all_runners(self) -> list[_CheckRunner[Any]]:
        return [*self._reported_runners(), self._writing]

    def _reported_runners(self) -> list[_CheckRunner[Any]]:
        return [*self._services, self._database]

    async def _run_round(self) -> None:
        await DeferredList([watch.run_check() for watch in self._all_runners()])
        self._last, self._moment = self._clock.seconds(), self._wall.seconds()
        needed = [watch.value for watch in self._all_runners() if watch.name in self._needed]
        if {*needed, self._database.value, self._writing.value} == {OK}:
            self._eager = 0
        elif self._eager and self._rounds.running:
            self._eager -= 1
            self._early = self._clock.callLater(EAGER_PAUSE, self._trigger_round)
        if not self._first.called:
            self._first.callback(None)


class RemoteHealth:
    """The last report received; ``interval`` is that of the rounds, in seconds (Note [Reported in time])."""

    def __init__(self, clock: IReactorTime, wall: WallClock, interval: float, report: HealthReport) -> None:
        self._clock, self._wall, self._patience = clock, wall, INTERVALS_UNTIL_STALE * interval
        self.receive_report(report)

    def receive_report(self, report: HealthReport) -> None:
        """Keep a report."""
        self._report, self._received_at = report, self._clock.seconds()

    def last_report(self, dialect: Dialect) -> HealthReport:
        """Return the report."""
        report = attrs.evolve(self._report, dialect=dialect)
        overdue = self._clock.seconds() - self._received_at - self._patience
        return report if overdue <= 0 else report.as_stale(self._wall.seconds() - overdue)

    def now(self) -> float:
        """Return the moment by which the times of reports go, in epoch seconds."""
        return self._wall.seconds()
