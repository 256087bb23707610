"""Counters for monitoring, served as Prometheus text on an endpoint of their own (HEALTH-26).

It is one of their own because counters by reason would reveal to a stranger what refusals hide from clients. Labels come
from bounded sets alone: nothing that a stranger sends can make a series. Where nothing is served nothing is counted, and the
library isn't loaded, which would make every start longer.

Note [Read in a thread]. The library's resource makes its text in a thread of the reactor's pool. So functions that are read
on request must be thread-safe, and change nothing.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
from twisted.application.service import Service
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from svc.model.authentication import Admitted, Authenticate, LoginRequest, Refused
from svc.model.counts import CacheCounts, ConnectionCounts, PoolCounts, PurgeCounts
from svc.model.databases import Ages, ReplicationPosition
from svc.model.query_results import CheckResult
from svc.model.reasons import RefusalKind

#: Upper bounds of durations, in seconds.
_REQUEST_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_LAG_BUCKETS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)

#: Seconds between two measurements of the reactor's lag.
LAG_INTERVAL: Final = 0.25

#: Values of labels, each with a number.
Samples = Iterable[tuple[Sequence[str], float]]


@attrs.frozen
class Family:
    """A metric as a value: of this ``kind``, with samples by their name and labels."""

    name: str
    text: str
    kind: str
    samples: Mapping[tuple[Any, ...], float]


class Metrics:
    """The counters of one process, all in ``registry``."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Histogram  # noqa: PLC0415 - as above

        self.registry = registry = CollectorRegistry()
        text = (
            "Attempts to authenticate, by type of authenticator, outcome (admitted, refused, undecided), and reason if any."
        )
        labels = ("authenticator", "outcome", "reason")
        self._authentications = Counter("svc_authentications", text, labels, registry=registry)
        text = "Audit records for which there was no room while a sink took none."
        self._lost_records = Counter("svc_audit_records_lost", text, registry=registry)
        text = "Requests, by route and status of the answer; gone: the client left before there was one."
        self._requests = Counter("svc_requests", text, ("operation", "status"), registry=registry)
        text, buckets = "Seconds from a request's head to its answer, by route.", _REQUEST_BUCKETS
        self._request_seconds = Histogram("svc_request_seconds", text, ("operation",), buckets=buckets, registry=registry)
        text = "Seconds by which the event loop is late for what is due."
        self._reactor_lag = Histogram("svc_reactor_lag_seconds", text, buckets=_LAG_BUCKETS, registry=registry)

    def count_lost_records(self, count: int) -> None:
        """Count audit records that were lost."""
        self._lost_records.inc(count)

    def count_request(self, operation: str, status: str, seconds: float) -> None:
        """Count a request for this route, or for none, as texts of which there are few."""
        self._requests.labels(operation, status).inc()
        self._request_seconds.labels(operation).observe(seconds)

    def observe_lag(self, seconds: float) -> None:
        """Note how late the event loop was."""
        self._reactor_lag.observe(seconds)

    def watch_key_sets(self, ages: Callable[[], Sequence[float]]) -> None:
        """Report on the key sets of identity providers, of which ``ages`` has the ages in seconds."""
        self._register_metric("svc_key_sets", "Key sets of identity providers that are held.", lambda: [((), len(ages()))])
        text = "Age of the oldest of these, in seconds; 0 when there is none."
        self._register_metric("svc_key_set_oldest_seconds", text, lambda: [((), max(ages(), default=0.0))])

    def watch_checks(self, findings: Callable[[], Sequence[CheckResult]]) -> None:
        """Report the last result of each check of health."""

        def check_seconds() -> Samples:
            return [((found.name,), found.seconds) for found in findings() if found.seconds is not None]

        def check_results() -> Samples:
            return [((found.name,), float(found.value == "ok")) for found in findings()]

        text = "Whether the last check of a service succeeded, 1 or 0; that of the database is called database."
        self._register_metric("svc_probe_ok", text, check_results, labels=("service",))
        text = "Seconds that the last check of a service took."
        self._register_metric("svc_probe_seconds", text, check_seconds, labels=("service",))

    def watch_backlogs(self, backlogs: Callable[[], Sequence[tuple[str, int]]]) -> None:
        """Report how many audit records each sink has yet to take."""
        name, text = "svc_audit_records_waiting", "Audit records that a sink has not taken yet."
        self._register_metric(name, text, lambda: [((sink,), count) for sink, count in backlogs()], labels=("sink",))

    def watch_other_primaries(self, counted: Callable[[], Mapping[str, int]]) -> None:
        """Report how many other primaries of the same database system are known."""
        text = "Other primaries of the database system that this server knows of, by their timeline beside its own."
        self._register_metric(
            "svc_other_primaries", text, lambda: [((t,), n) for t, n in counted().items()], labels=("timeline",)
        )

    def watch_deleted(self, counts: Callable[[], PurgeCounts]) -> None:
        """Report on what was deleted and is kept."""
        watch = self._register_metric
        watch("svc_deleted_records", "Deleted records that can be had back.", lambda: [((), counts().records)])
        watch("svc_deleted_bytes", "Bytes that these take, about.", lambda: [((), counts().bytes)])
        text = "Deleted records that were purged by themselves: their time was over, or their account had too much."
        watch(
            "svc_deleted_purged",
            text,
            lambda: [(("old",), counts().old), (("excess",), counts().excess)],
            labels=("reason",),
            counts=True,
        )

    def watch_data_key(self, age: Callable[[], float], counted: Callable[[], Mapping[str, float]]) -> None:
        """Report on the data key, and on how far its rotation has come."""
        self._register_metric(
            "svc_data_key_age_seconds", "Seconds since the current data key came into use.", lambda: [((), age())]
        )
        text = (
            "Values that the last rotation of the data key sealed again (resealed), that are left for it, about (remaining),"
        )
        text += " and that the old key doesn't open (unopened)."
        name = "svc_data_key_values"
        self._register_metric(name, text, lambda: [((state,), n) for state, n in counted().items()], labels=("state",))

    def watch_sessions(self, count: Callable[[], PoolCounts]) -> None:
        """Report on the sessions with the database."""
        watch = self._register_metric
        watch("svc_database_sessions", "Sessions with the database.", lambda: [((), count().sessions)])
        watch("svc_database_sessions_lent", "Sessions that are in use.", lambda: [((), count().lent)])
        watch("svc_database_waiting", "Who waits for a session now.", lambda: [((), count().waiting)])
        watch("svc_database_waits", "How often a session was waited for.", lambda: [((), count().waits)], counts=True)
        text = "Seconds for which sessions were waited for."
        watch("svc_database_wait_seconds", text, lambda: [((), count().waited)], counts=True)

    def watch_cache(self, counts: Callable[[], CacheCounts]) -> None:
        """Report on the read cache."""
        watch = self._register_metric
        text = "Answers that came from memory, which was confirmed to be current."
        watch("svc_memory_hits", text, lambda: [((), counts().hits)], counts=True)
        text = "Readings that memory might have answered, and the database did."
        watch("svc_memory_misses", text, lambda: [((), counts().misses)], counts=True)
        text = "Remembered answers that were dropped since what they depend on changed."
        watch("svc_memory_dropped", text, lambda: [((), counts().dropped)], counts=True)
        text = "Remembered answers that gave way to others, for want of room."
        watch("svc_memory_evicted", text, lambda: [((), counts().evicted)], counts=True)
        text = "Answers from memory that wasn't confirmed, while the database couldn't be asked (--serve-stale)."
        watch("svc_memory_stale", text, lambda: [((), counts().stale)], counts=True)
        watch("svc_memory_looks", "Invalidation polls of the read cache.", lambda: [((), counts().polls)], counts=True)
        watch("svc_memory_entries", "Answers that are remembered.", lambda: [((), counts().entries)])
        watch("svc_memory_bytes", "Bytes that these take, about.", lambda: [((), counts().bytes)])
        text = "Seconds since memory was last confirmed to be current; it is looked at when a request needs it."
        watch("svc_memory_age_seconds", text, lambda: [((), counts().age or 0.0)])

    def watch_connections(self, counts: Callable[[], ConnectionCounts]) -> None:
        """Report how many connections there are."""
        watch = self._register_metric
        watch("svc_connections", "Connections of clients.", lambda: [((), counts().open)])
        text = "Idle connections that were closed to make room for others."
        watch("svc_connections_evicted", text, lambda: [((), counts().evicted)], counts=True)
        text = "Connections that came when there was no room, on which only health is answered."
        watch("svc_connections_overflowed", text, lambda: [((), counts().overflowed)], counts=True)

    def watch_process(self, version: str, python: str, started: float) -> None:
        """Report which program this is, and what its process uses, which has run since ``started`` (epoch seconds)."""
        text, labels = "The program and the Python that run, with the value 1.", ("version", "python")
        self._register_metric("svc_build_info", text, lambda: [((version, python), 1.0)], labels=labels)
        watch, used = self._register_metric, ProcessUsage()
        watch("process_start_time_seconds", "When the process started, in epoch seconds.", lambda: [((), started)])
        text = "Seconds of processor time that were used."
        watch("process_cpu_seconds", text, lambda: [((), used.cpu_seconds)], counts=True)
        watch("process_resident_memory_bytes", "Memory in use, in bytes.", lambda: _known_sample(used.memory_bytes))
        watch("process_open_fds", "Open files, connections among them.", lambda: _known_sample(used.open_files))
        watch("process_max_fds", "How many files may be open.", lambda: [((), used.max_open_files)])

    def watch_certificates(self, shown: Callable[[], Iterable[tuple[str, str, float]]]) -> None:
        """Report when certificates expire: the setting of each, its name, and the moment in epoch seconds."""
        name, text = "svc_certificate_expiry_timestamp_seconds", "When a certificate that this server shows expires."
        labels = ("setting", "name")
        self._register_metric(name, text, lambda: [((setting, of), end) for setting, of, end in shown()], labels=labels)

    def watch_replication(self, position: Callable[[], ReplicationPosition | None]) -> None:
        """Report where the database's log stands, and how far a standby's lags behind; nothing while that isn't known."""

        def standby_sample() -> Samples:
            return [((), float(at.standby))] if (at := position()) is not None else []

        def position_sample() -> Samples:
            return [((), at.position)] if (at := position()) is not None else []

        self._register_metric("svc_database_standby", "Whether the database is a standby, 1 or 0.", standby_sample)
        text = "The position in the database's log: written on a primary, replayed on a standby."
        self._register_metric("svc_replication_position_bytes", text, position_sample)
        text = "Of a standby, what it has received of the log and not replayed."
        self._register_metric(
            "svc_replication_lag_bytes", text, lambda: _known_sample(getattr(position(), "lag_bytes", None))
        )
        text = "Of a standby, the age of the newest sign of life of its primary."
        self._register_metric(
            "svc_replication_lag_seconds", text, lambda: _known_sample(getattr(position(), "lag_seconds", None))
        )

    def watch_ages(self, ages: Callable[[], Ages | None], now: Callable[[], float]) -> None:
        """Report how old keys and the last backup are, by the time ``now``; nothing while that isn't known."""

        def age_sample(moment: Callable[[Ages], float | None]) -> Samples:
            found = ages()
            since = None if found is None else moment(found)
            return _known_sample(None if since is None else max(0.0, now() - since))

        text = "Age of the oldest key that an account signs access tokens with."
        self._register_metric("svc_signing_key_oldest_seconds", text, lambda: age_sample(lambda found: found.signing_key))
        text = "Time since svc backup create last made a backup."
        self._register_metric("svc_backup_age_seconds", text, lambda: age_sample(lambda found: found.backup))
        text = "Age of the newest backup that svc backup verify found whole."
        self._register_metric(
            "svc_backup_verified_age_seconds",
            text,
            lambda: age_sample(lambda found: None if found.verified is None else found.verified.dumped),
        )

    def watch_passwords(self, pending: Callable[[], int], places: int) -> None:
        """Report how many passwords are hashed, or wait for a thread; ``places`` is how many there may be."""
        text = "Passwords that are being hashed, or wait for a thread."
        self._register_metric("svc_passwords_pending", text, lambda: [((), pending())])
        self._register_metric(
            "svc_passwords_places", "How many of these there may be; more are refused.", lambda: [((), places)]
        )

    def _register_metric(
        self, name: str, text: str, read: Callable[[], Samples], *, labels: Sequence[str] = (), counts: bool = False
    ) -> None:
        """Report the result of ``read`` at each request (Note [Read in a thread]); ``counts``: it only ever grows."""
        self.registry.register(_CallbackMetric(name, text, labels, read, counts))

    def count_decisions(self, authenticate: Authenticate, name: str) -> Authenticate:
        """Return a function that decides in the same way, and counts the decisions of an authenticator of type ``name``.

        A type is one such as ``authn-jwt``. A postponed login is undecided.
        """

        async def decide_counted(request: LoginRequest) -> Admitted | Refused:
            decision = await authenticate(request)
            outcome, reason = "admitted", ""
            if isinstance(decision, Refused):
                outcome = "undecided" if decision.kind is RefusalKind.POSTPONED else "refused"
                reason = decision.reason.value
            self._authentications.labels(name, outcome, reason).inc()
            return decision

        return decide_counted

    def watch_workers(self, counts: Callable[[], tuple[int, int]]) -> None:
        """Report how many processes serve requests, and how often one of them was replaced."""
        self._register_metric("svc_workers", "Processes that serve requests.", lambda: [((), counts()[0])])
        text = "Processes that served requests, and were replaced."
        self._register_metric("svc_worker_replacements", text, lambda: [((), counts()[1])], counts=True)

    def collect_families(self) -> list[Family]:
        """Return all that is counted, as values."""
        return [
            Family(
                each.name,
                each.documentation,
                each.type,
                {(s.name, *sorted(s.labels.items())): s.value for s in each.samples},
            )
            for each in self.registry.collect()
        ]


def _known_sample(value: float | None) -> Samples:
    """Return the sample of a value, none where it isn't known."""
    return [] if value is None else [((), value)]


@attrs.frozen(eq=False)
class _CallbackMetric:
    """A metric that is read at each request."""

    name: str
    text: str
    labels: Sequence[str]
    read: Callable[[], Samples]
    counts: bool

    def collect(self) -> Iterator[Any]:
        """Return the current samples, for the registry."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415 - as above

        kind: Any = CounterMetricFamily if self.counts else GaugeMetricFamily
        family = kind(self.name, self.text, labels=self.labels)
        for values, number in self.read():
            family.add_metric(values, number)
        yield family


class ReactorLag(Service):
    """Measures, four times a second, how much later than it was due it is called."""

    name = "reactor-lag"

    def __init__(self, clock: IReactorTime, observe: Callable[[float], object]) -> None:
        self._clock = clock
        self._observe = observe
        self._due = 0.0
        self._call: IDelayedCall | None = None

    def startService(self) -> None:
        """Start measuring."""
        super().startService()  # type: ignore[no-untyped-call] # Twisted's
        self._schedule_call()

    def stopService(self) -> None:
        """Stop measuring."""
        super().stopService()  # type: ignore[no-untyped-call] # Twisted's
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _schedule_call(self) -> None:
        self._due = self._clock.seconds() + LAG_INTERVAL
        self._call = self._clock.callLater(LAG_INTERVAL, self._measure_lag)

    def _measure_lag(self) -> None:
        self._observe(max(0.0, self._clock.seconds() - self._due))
        self._schedule_call()


@attrs.frozen
class ProcessUsage:
    """The current resource usage of this process, from Linux's ``/proc``; ``None`` where the system doesn't provide it.

    The library's own collector needs ``/proc/stat``, which a unit with ``ProcSubset=pid`` doesn't see.
    """

    _own: Path = Path("/proc/self")

    @property
    def cpu_seconds(self) -> float:
        """Return the seconds of processor time."""
        times = os.times()
        return times.user + times.system

    @property
    def open_files(self) -> int | None:
        """Return how many files are open."""
        try:
            return len(os.listdir(self._own / "fd"))
        except OSError:
            return None

    @property
    def max_open_files(self) -> int:
        """Return how many there may be."""
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]

    @property
    def memory_bytes(self) -> int | None:
        """Return the bytes of memory."""
        try:
            return int((self._own / "statm").read_text("ascii").split()[1]) * resource.getpagesize()
        except OSError:
            return None
