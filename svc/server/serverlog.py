"""The server's log: where it goes, lines as text or JSON (CFG-41), levels, and what becomes of lines that repeat.

Note [Repeats are counted]. A wrong password in a loop, or a database that is away, would hide the lines that matter and fill
disks. So of each kind the first ``AT_ONCE`` lines of a minute are written, and the others counted: at its end one line has
their number, that of their addresses, and the last of them. The kind is what the program says (module, format, type of the
exception), never what strangers do; where that is too coarse ``repeats_as`` names a finer one, of a bounded set. Nothing is
lost by it: the audit has a record of each request.

Note [Opened again]. A file of ``twistd``'s own is cut into pieces of a megabyte, and goes on in the file that was moved away
when something else rotates it. This one isn't cut, and is opened again at SIGHUP, as audit files are.

Note [Fields]. An object has what the text of the same event has, and no more: the message, and by their names the values
that stand in it. So what isn't written as text, because it is no business of a log's readers, isn't written as JSON.
"""

from __future__ import annotations

import json
import math
import os
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from string import Formatter
from typing import Any, Final, Self, TextIO

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.logger import (
    FilteringLogObserver,
    ILogObserver,
    LegacyLogObserverWrapper,
    LogEvent,
    Logger,
    LogLevel,
    LogLevelFilterPredicate,
    LogPublisher,
    eventAsText,
    formatEvent,
    globalLogPublisher,
    textFileLogObserver,
)
from twisted.python.threadable import isInIOThread
from zope.interface import implementer

from svc.model.background import PeriodicService
from svc.model.clocks import iso_milliseconds

#: How many lines of a kind are written at once, in each period of so many seconds.
AT_ONCE: Final = 10
PERIOD: Final = 60.0

#: How many kinds, and addresses of each, are distinguished in one period.
KINDS: Final = 1000
ADDRESSES: Final = 100

_log = Logger()


@attrs.define
class _Repeated:
    """Events of one kind in a period: ``last`` is the last that was not written."""

    count: int = 0
    addresses: set[str] = attrs.field(factory=set)
    last: LogEvent = attrs.field(factory=dict)


@implementer(ILogObserver)
class RepeatFilter:
    """Pass events on to ``inner``, except repeated ones, which are counted (Note [Repeats are counted])."""

    def __init__(self, inner: ILogObserver, clock: IReactorTime) -> None:
        self._write = LogPublisher(inner)  # which survives that a disk is full
        self._clock = clock
        self._since = clock.seconds()
        self._kinds: dict[object, _Repeated] = {}
        # Threads log too; and so does, in the middle of a call, what is collected as garbage there.
        self._lock = threading.RLock()

    def __call__(self, event: LogEvent) -> None:
        """See ``ILogObserver``."""
        if not self._is_repeated(event):
            self._write(event)

    def _is_repeated(self, event: LogEvent) -> bool:
        kind = _event_kind(event)
        with self._lock:
            repeated = self._kinds.get(kind)
            if repeated is None:
                repeated = self._kinds.setdefault(kind if len(self._kinds) < KINDS else None, _Repeated())
            repeated.count += 1
            if repeated.count <= AT_ONCE:
                return False
            if len(repeated.addresses) <= ADDRESSES and isinstance(address := event.get("client_ip"), str):
                repeated.addresses.add(address)
            repeated.last = event
            return True

    def log_counts(self) -> None:
        """Log what was counted since this was called last, and begin again."""
        now = self._clock.seconds()
        with self._lock:
            kinds, self._kinds = self._kinds, {}
            since, self._since = self._since, now
        for repeated in kinds.values():
            if repeated.last:
                self._write(_summary_event(repeated, now - since))


def _event_kind(event: LogEvent) -> object:
    fault = None if (failure := event.get("log_failure")) is None else failure.type
    return event.get("log_namespace"), event.get("log_format"), event.get("repeats_as"), fault


def _summary_event(repeated: _Repeated, seconds: float) -> LogEvent:
    known = len(repeated.addresses)
    count = f"more than {ADDRESSES}" if known > ADDRESSES else str(known)
    addresses = f", from {count} address{'es' if known != 1 else ''}" if known else ""
    text, last = (
        "{count} more like this in the last {seconds:.0f} s{addresses}; the last: {last}",
        formatEvent(repeated.last),
    )
    summary = {
        "log_format": text,
        "count": repeated.count - AT_ONCE,
        "seconds": seconds,
        "addresses": addresses,
        "last": last,
    }
    kept = ("log_level", "log_namespace", "log_system", "log_time", "log_process")
    return summary | {name: repeated.last[name] for name in kept if name in repeated.last}


class _LogFile:
    """A log file, which can be opened again after rotation."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = self._open_file()

    def _open_file(self) -> TextIO:
        # It has the reasons for refusals, which are for operators alone.
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        return open(descriptor, "a", encoding="utf-8", errors="backslashreplace")

    def write(self, text: str) -> None:
        self._file.write(text)

    def flush(self) -> None:
        self._file.flush()

    def reopen(self) -> None:
        """Open the file at the path again; where that fails, go on with the old one (Note [Opened again])."""
        try:
            fresh = self._open_file()
        except OSError as error:
            _log.error("The log can't be opened again: {path}: {why}", path=str(self.path), why=error.strerror)
            return
        old, self._file = self._file, fresh
        old.close()


@attrs.frozen
class ForwardedEvent:
    """An event of the log of another process, as text, and in its parts; ``kind`` is what it counts as when it repeats."""

    level: str
    namespace: str
    time: float
    kind: str
    text: str
    message: str = ""
    fields: Mapping[str, str | int | float | bool | None] = attrs.field(factory=dict)
    traceback: str | None = None

    def log_locally(self, name: str) -> None:
        """Log it here, under the name of the process."""
        globalLogPublisher(
            {
                "log_level": LogLevel.lookupByName(self.level),
                "log_namespace": self.namespace,
                "log_time": self.time,
                "log_format": "[{name}] {text}",
                "name": name,
                "text": self.text,
                "log_process": name,
                "log_message": self.message,
                "log_fields": dict(self.fields),
                "log_traceback": self.traceback,
                "repeats_as": self.kind,
            }
        )


@implementer(ILogObserver)
@attrs.frozen
class ForwardingObserver:
    """Has another process log what is logged here; ``forward`` is called in the thread of the ``reactor``."""

    reactor: Any
    forward: Callable[[ForwardedEvent], object]

    def __call__(self, event: LogEvent) -> None:
        """See ``ILogObserver``."""
        forwarded = ForwardedEvent(
            str(getattr(event.get("log_level"), "name", "info")),
            str(event.get("log_namespace", "-")),
            event.get("log_time", 0.0),
            f"{event.get('log_format')} {event.get('repeats_as', '')}",
            eventAsText(event, includeTimestamp=False, includeSystem=False),
            formatEvent(event),
            event_fields(event),
            event_traceback(event),
        )
        if isInIOThread():
            self.forward(forwarded)
        else:
            self.reactor.callFromThread(self.forward, forwarded)


class RepeatReporter(PeriodicService):
    """Log the counts of repeated events after each period, and at the end."""

    def __init__(self, repeats: RepeatFilter, clock: IReactorTime) -> None:
        super().__init__(clock, PERIOD, repeats.log_counts, _log, "Repeated events could not be counted")
        self._repeats = repeats

    def stopService(self) -> None:
        """Log them a last time."""
        self._repeats.log_counts()
        super().stopService()


@attrs.frozen
class ServerLog:
    """The log of a server: ``observer`` takes events, ``repeats`` behind it counts them; ``file`` is where it is one."""

    observer: ILogObserver
    repeats: RepeatFilter
    file: _LogFile | None = None

    @classmethod
    def of_process(cls, twistd: Mapping[str, Any], clock: IReactorTime, log_format: str, level: str) -> Self:
        """Return the log that the options of ``twistd`` ask for: a file, standard output in the foreground, or syslog.

        ``log_format`` is ``text`` or ``json``; to syslog it is always text. Lines below ``level`` aren't written.
        """
        if twistd.get("syslog"):
            from twisted.python.syslog import SyslogObserver  # noqa: PLC0415 - not every system has one

            emit: Any = SyslogObserver(twistd.get("prefix") or "svc").emit
            return cls.at_level(level, LegacyLogObserverWrapper(emit), clock)
        name, foreground = twistd.get("logfile"), twistd.get("nodaemon", False)
        if name == "-" or (foreground and not name):
            if not foreground:
                raise SystemExit("svc did not start: a daemon has no standard output to log to: name a file as --logfile")
            return cls.at_level(level, make_observer(sys.stdout, log_format), clock)
        name = name or "twistd.log"
        try:
            file = _LogFile(Path(name).absolute())
        except OSError as error:
            raise SystemExit(f"svc did not start: the log {name} can't be written: {error.strerror}") from None
        return cls.at_level(level, make_observer(file, log_format), clock, file)

    @classmethod
    def at_level(cls, level: str, observer: ILogObserver, clock: IReactorTime, file: _LogFile | None = None) -> Self:
        """Return the log that ``observer`` writes, to a file if it is one, from a level on."""
        repeats = RepeatFilter(observer, clock)
        return cls(filter_by_level(repeats, level), repeats, file)


#: The names of fields that every object has, which no value of an event takes.
_RESERVED_FIELDS: Final = frozenset({"time", "level", "logger", "former_logger", "process", "message", "traceback"})

#: Modules that were renamed before 1.0, with the names that filters of logs may still have; they are logged until 2.0.
FORMER_LOGGERS: Final = {
    "svc.audit.expiration_events": "svc.audit.refusals",
    "svc.cluster.remote_write_gate": "svc.cluster.told_verdict",
    "svc.cluster.split_brain": "svc.cluster.rival_primaries",
    "svc.health.liveness": "svc.health.pulse",
    "svc.services.login_explanations": "svc.services.explanations",
    "svc.storage.cache.invalidation_poll": "svc.storage.memory.looks",
    "svc.storage.cache.read_cache": "svc.storage.memory.memory",
    "svc.storage.cache.trimming": "svc.storage.memory.trimming",
    "svc.storage.replicas": "svc.storage.places",
    "svc.web.http.client_address": "svc.web.http.origin",
    "svc.web.http.connection": "svc.web.http.occupancy",
    "svc.web.http.messages": "svc.web.http.request",
}


def event_fields(event: LogEvent) -> dict[str, str | int | float | bool | None]:
    """Return the values that stand in an event's message, by name (Note [Fields]); others than numbers as text."""
    if "log_fields" in event:
        fields: dict[str, str | int | float | bool | None] = event["log_fields"]
        return fields
    found: dict[str, str | int | float | bool | None] = {}
    try:
        parts = list(Formatter().parse(event.get("log_format") or ""))
    except ValueError:  # a message of a library that isn't one
        return {}
    for _, name, _, _ in parts:
        if name and name.isidentifier() and name in event and not name.startswith("log_"):
            value = event[name]
            found[name] = value if value is None or isinstance(value, int) or _is_number(value) else str(value)
    return found


def event_traceback(event: LogEvent) -> str | None:
    """Return the traceback that the text of an event has below its message, ``None`` where it has none."""
    if "log_failure" not in event:
        return event.get("log_traceback")
    text = eventAsText(event, includeTimestamp=False, includeSystem=False)
    return text.removeprefix(formatEvent(event)).strip()


def format_json_line(event: LogEvent) -> str:
    """Return the line of an event."""
    level = getattr(event.get("log_level"), "name", "info")
    logger = str(event.get("log_namespace", "-"))
    line: dict[str, Any] = {
        "time": iso_milliseconds(event.get("log_time", 0.0)),
        "level": level,
        "logger": logger,
        "former_logger": FORMER_LOGGERS.get(logger),
        "process": event.get("log_process"),
        "message": event.get("log_message") or formatEvent(event),
        "traceback": event_traceback(event),
    }
    line.update({name: value for name, value in event_fields(event).items() if name not in _RESERVED_FIELDS})
    return json.dumps({name: value for name, value in line.items() if value is not None}) + "\n"


def _is_number(value: object) -> bool:
    """Return whether JSON has a number for it."""
    return isinstance(value, float) and math.isfinite(value)


@implementer(ILogObserver)
@attrs.frozen
class JsonLog:
    """Writes events as lines of JSON."""

    _file: TextIO

    def __call__(self, event: LogEvent) -> None:
        """See ``ILogObserver``."""
        if "log_failure" in event or formatEvent(event):
            self._file.write(format_json_line(event))
            self._file.flush()


def make_observer(file: Any, log_format: str) -> ILogObserver:
    """Return the observer that writes lines of ``log_format``, ``json`` or ``text``, to a file."""
    written: Any = JsonLog(file) if log_format == "json" else textFileLogObserver(file)
    return ILogObserver(written)


def filter_by_level(observer: ILogObserver, level: str) -> ILogObserver:
    """Return an observer that passes on events of this level and above it."""
    return ILogObserver(
        FilteringLogObserver(observer, [LogLevelFilterPredicate(defaultLogLevel=LogLevel.lookupByName(level))])
    )
