"""The lines of the log: as text, or each as a JSON object (CFG-41); and the level from which they are written.

Note [Fields]. An object has what the text of the same event has, and no more: the message, and by their names the values
that stand in it. So what isn't written as text, because it is no business of a log's readers, isn't written as JSON.
"""

from __future__ import annotations

import json
import math
from string import Formatter
from typing import Any, Final, TextIO

import attrs
from twisted.logger import (
    FilteringLogObserver,
    ILogObserver,
    LogEvent,
    LogLevel,
    LogLevelFilterPredicate,
    eventAsText,
    formatEvent,
    textFileLogObserver,
)
from zope.interface import implementer

from svc.model.clocks import iso_milliseconds

#: The names of fields that every object has, which no value of an event takes.
_RESERVED_FIELDS: Final = frozenset({"time", "level", "logger", "former_logger", "process", "message", "traceback"})

#: Modules that were renamed before 1.0, with the names that filters of logs may still have; they are logged until 2.0.
FORMER_LOGGERS: Final = {
    "svc.cluster.remote_write_gate": "svc.cluster.told_verdict",
    "svc.cluster.split_brain": "svc.cluster.rival_primaries",
    "svc.health.liveness": "svc.health.pulse",
    "svc.services.login_explanations": "svc.services.explanations",
    "svc.storage.cache.invalidation_poll": "svc.storage.memory.looks",
    "svc.storage.cache.read_cache": "svc.storage.memory.memory",
    "svc.storage.cache.trimming": "svc.storage.memory.trimming",
    "svc.storage.replicas": "svc.storage.places",
    "svc.web.http.client_address": "svc.web.http.origin",
    "svc.web.http.connection_limits": "svc.web.http.occupancy",
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
