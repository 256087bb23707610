"""A record of the audit: one line in the form of RFC 5424.

::

    <86>1 2026-11-22T09:30:00.125Z host svc 4f1d fetch [auth@43868 user="acme:host:web"][subject@43868 …]… acme:host:web …

Whatever stands in it from outside is made visible first (``audit.printable``): nothing can end a line, or look like the end
of a value. So each record is one line, and a parser of the RFC reads back exactly what was written.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from twisted.internet.interfaces import IReactorTime

from svc.audit import printable
from svc.events import WARNING, Event, Origin, Outcome, Server, Subject

#: The longest value of a parameter, and the longest message, in bytes before they are escaped; what is longer is cut, and
#: ends with "…".
VALUE_LIMIT: Final = 1200
MESSAGE_LIMIT: Final = 2400

#: No record has more bytes: where it would, its values are cut to ``SHORT``.
RECORD_LIMIT: Final = 16 * 1024
SHORT: Final = 240

#: The number under which the ids of structured data are registered (wire facts, core 6).
ENTERPRISE: Final = "43868"

#: Who acts where the role of a login doesn't exist, and where there was no login (wire facts, authn 7).
NOT_FOUND: Final = "not-found"

#: What is known to need no escape: most values.
_PLAIN: Final = re.compile(r"[ !#-\[^-~]*")

_ESCAPED: Final = re.compile(r'["\\\]]')

#: What a field of the header may not hold (RFC 5424, 6: PRINTUSASCII).
_NO_FIELD: Final = re.compile(r"[^!-~]")

#: How many elements of records are remembered as they are written: the same callers do the same things.
_REMEMBERED: Final = 1024

#: What begins a message that has more than ASCII (RFC 5424, 6.4).
_BOM: Final = "\ufeff"


def visible(text: str, limit: int) -> str:
    """A text of at most ``limit`` bytes and an ellipsis, in which every character can be seen."""
    shown = printable(text, limit)
    encoded = shown.encode()
    return shown if len(encoded) <= limit else encoded[:limit].decode("utf-8", "ignore") + "…"


def quoted(text: str, limit: int = VALUE_LIMIT) -> str:
    """A value as it stands between the quotation marks of a parameter (RFC 5424, 6.3.3)."""
    if len(text) <= limit and _PLAIN.fullmatch(text):
        return text
    return _ESCAPED.sub(r"\\\g<0>", visible(text, limit))


def field(text: str, limit: int) -> str:
    """A field of the header: printable ASCII without blanks, and ``-`` where there is none."""
    return _NO_FIELD.sub("?", text)[:limit] or "-"


def surroundings(origin: Origin, event: Event, outcome: Outcome) -> Iterator[tuple[str, Subject]]:
    """The structured data of an event but for its subject: names, and parameters (wire facts, core 6)."""
    auth = (("user", event.user or origin.user), ("authenticator", event.authenticator), ("service", event.service))
    yield "auth", tuple([(name, value) for name, value in auth if value is not None]) or (("user", "-"),)
    yield "client", (("ip", origin.client_ip),)
    action = (("result", outcome.word), ("operation", event.operation))
    yield "action", action if outcome.reason is None else (*action, ("reason", outcome.reason))
    if event.policy is not None:
        policy, version = event.policy
        yield "policy", (("id", policy), ("version", str(version)))


def message_of(origin: Origin, event: Event, outcome: Outcome) -> str:
    """What a record says in words."""
    user = event.user or origin.user or "somebody"
    if outcome.reason is None:
        return f"{user} {event.did}"
    return f"{user} failed to {event.does}: {outcome.reason}"


@functools.lru_cache(_REMEMBERED)
def _element(name: str, parameters: Subject, limit: int = VALUE_LIMIT) -> str:
    values = "".join([f' {key}="{quoted(value, limit)}"' for key, value in parameters])
    return f"[{name}@{ENTERPRISE}{values}]"


def severity_of(event: Event, outcome: Outcome) -> int:
    """The severity of a record."""
    return event.severity if outcome.reason is None else WARNING


class Records:
    """Writes records of one server. The clock tells seconds since the epoch."""

    def __init__(self, server: Server, clock: IReactorTime) -> None:
        self._server = f"{field(server.hostname, 255)} {field(server.appname, 48)}"
        self._clock = clock
        self._second = -1
        self._date = ""

    def written(self, origin: Origin, events: Sequence[Event], outcome: Outcome) -> list[bytes]:
        """The lines of events, without their ends."""
        now, procid = self._now(), field(origin.request_id, 128)
        # What is the same for the many events of one request is written once.
        same: dict[object, tuple[str, str]] = {}
        lines = []
        for event in events:
            key = (
                event.msgid,
                event.operation,
                event.user,
                event.authenticator,
                event.service,
                event.policy,
                event.severity,
            )
            if key not in same:
                priority = event.facility * 8 + severity_of(event, outcome)
                head = f"<{priority}>1 {now} {self._server} {procid} {field(event.msgid, 32)} "
                same[key] = head, "".join([_element(*each) for each in surroundings(origin, event, outcome)])
            head, rest = same[key]
            message = message_of(origin, event, outcome)
            if len(message) > MESSAGE_LIMIT or not _PLAIN.fullmatch(message):
                message = visible(message, MESSAGE_LIMIT)
            mark = "" if message.isascii() else _BOM
            subject = _element("subject", event.subject) if event.subject else ""
            line = f"{head}{subject}{rest} {mark}{message}".encode()
            if len(line) > RECORD_LIMIT:
                rest = "".join([_element(*each, SHORT) for each in surroundings(origin, event, outcome)])
                line = f"{head}{_element('subject', event.subject, SHORT)}{rest} {mark}{message}".encode()
            lines.append(line)
        return lines

    def _now(self) -> str:
        now = self._clock.seconds()
        second = int(now)
        if second != self._second:
            self._second = second
            self._date = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{self._date}.{int((now - second) * 1000):03}Z"
