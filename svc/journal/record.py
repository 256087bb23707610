"""A record of the audit: one line in the form of RFC 5424.

::

    <86>1 2026-11-22T09:30:00.125Z host svc 4f1d fetch [auth@43868 user="acme:host:web"][subject@43868 …]… acme:host:web …

Whatever stands in it from outside is made visible first (``audit.printable``): nothing can end a line, or look like the end
of a value. So each record is one line, and a parser of the RFC reads back exactly what was written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
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


def data_of(origin: Origin, event: Event, outcome: Outcome) -> dict[str, Subject]:
    """The structured data of an event, by id (wire facts, core 6)."""
    user = event.user or origin.user
    auth: Subject = (("user", user or "-"),)
    if event.authenticator is not None:
        auth += (("authenticator", event.authenticator),)
    if event.service is not None:
        auth += (("service", event.service),)
    action: Subject = (("result", outcome.word), ("operation", event.operation))
    if outcome.reason is not None:
        action += (("reason", outcome.reason),)
    data = {"subject": event.subject, "auth": auth, "client": (("ip", origin.client_ip),), "action": action}
    if event.policy is not None:
        policy, version = event.policy
        data["policy"] = (("id", policy), ("version", str(version)))
    return {f"{name}@{ENTERPRISE}": parameters for name, parameters in data.items() if parameters}


def message_of(origin: Origin, event: Event, outcome: Outcome) -> str:
    """What a record says in words."""
    user = event.user or origin.user or "somebody"
    if outcome.reason is None:
        return f"{user} {event.did}"
    return f"{user} failed to {event.does}: {outcome.reason}"


def _elements(data: Mapping[str, Subject], limit: int) -> str:
    return "".join([_element(name, parameters, limit) for name, parameters in data.items()])


def _element(name: str, parameters: Subject, limit: int) -> str:
    values = "".join([f' {key}="{quoted(value, limit)}"' for key, value in parameters])
    return f"[{name}{values}]"


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

    def written(self, origin: Origin, event: Event, outcome: Outcome) -> bytes:
        """The line of an event, without its end."""
        priority = event.facility * 8 + severity_of(event, outcome)
        message = message_of(origin, event, outcome)
        if len(message) > MESSAGE_LIMIT or not _PLAIN.fullmatch(message):
            message = visible(message, MESSAGE_LIMIT)
        mark = "" if message.isascii() else _BOM
        procid, msgid = field(origin.request_id, 128), field(event.msgid, 32)
        head, data = f"<{priority}>1 {self._now()} {self._server} {procid} {msgid}", data_of(origin, event, outcome)
        line = f"{head} {_elements(data, VALUE_LIMIT)} {mark}{message}".encode()
        return line if len(line) <= RECORD_LIMIT else f"{head} {_elements(data, SHORT)} {mark}{message}".encode()

    def _now(self) -> str:
        now = self._clock.seconds()
        second = int(now)
        if second != self._second:
            self._second = second
            self._date = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{self._date}.{int((now - second) * 1000):03}Z"
