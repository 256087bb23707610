"""A record of the audit: one line in the form of RFC 5424.

::

    <86>1 2026-11-22T09:30:00.125Z host svc 4f1d fetch [auth@43868 user="acme:host:web"][subject@43868 …]… acme:host:web …

What stands in it from outside is made visible first: nothing can end a line, or look like the end of a value. So each record
is one line, and a parser of the RFC reads back exactly what was written.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from svc.model.clocks import WallClock
from svc.model.events import OUTCOME_UNKNOWN, WARNING, AuditContext, Event, Outcome, Server, Subject
from svc.model.text import printable

#: Bytes of a parameter's value, and of a message, before they are escaped; what is longer is cut, and ends with "…".
VALUE_LIMIT: Final = 1200
MESSAGE_LIMIT: Final = 2400

#: Bytes of a record, whose values are cut to ``SHORT`` where it would have more, and of its header up to the request's id.
RECORD_LIMIT: Final = 16 * 1024
SHORT: Final = 240
HEADER_LIMIT: Final = 512

#: The number under which the ids of structured data are registered, and the actor where the role of a login doesn't exist
#: (AUD-11).
ENTERPRISE: Final = "43868"
NOT_FOUND: Final = "not-found"

#: Values that need no escape, as most; characters that need one; those that no header has (RFC 5424, 6: PRINTUSASCII).
_PLAIN: Final = re.compile(r"[ !#-\[^-~]*")
_ESCAPED: Final = re.compile(r'["\\\]]')
_NO_FIELD: Final = re.compile(r"[^!-~]")

#: How many records are remembered without their headers, and the longest of these in bytes: callers repeat themselves.
_REMEMBERED: Final = 1024
_USUAL: Final = 1024

#: The beginning of a message that has more than ASCII (RFC 5424, 6.4).
_BOM: Final = "\ufeff"

#: An event, its user, the client's address, and the reason of a failure: what a record is remembered by.
_Key = tuple[Event, str | None, str, str | None]


def visible(text: str, limit: int) -> str:
    """Return a text of at most ``limit`` bytes and an ellipsis, in which every character can be seen."""
    shown = printable(text, limit)
    encoded = shown.encode()
    return shown if len(encoded) <= limit else encoded[:limit].decode("utf-8", "ignore") + "…"


def quoted(text: str, limit: int = VALUE_LIMIT) -> str:
    """Return a value as it stands between the quotation marks of a parameter (RFC 5424, 6.3.3)."""
    if len(text) <= limit and _PLAIN.fullmatch(text):
        return text
    return _ESCAPED.sub(r"\\\g<0>", visible(text, limit))


def field(text: str, limit: int) -> str:
    """Return a field of the header: printable ASCII without blanks, and ``-`` where there is none."""
    if text.isalnum() and text.isascii() and len(text) <= limit:
        return text
    return _NO_FIELD.sub("?", text)[:limit] or "-"


def message_of(origin: AuditContext, event: Event, outcome: Outcome) -> str:
    """Return the message of a record, in words."""
    user = event.user or origin.user or "somebody"
    if outcome.reason is None:
        return f"{user} {event.did}"
    if outcome.reason == OUTCOME_UNKNOWN:
        return f"{user} tried to {event.does}, and may have: {outcome.reason}"
    return f"{user} failed to {event.does}: {outcome.reason}"


def _element(name: str, parameters: Subject, limit: int) -> str:
    values = "".join([f' {key}="{quoted(value, limit)}"' for key, value in parameters])
    return f"[{name}@{ENTERPRISE}{values}]"


@functools.lru_cache(_REMEMBERED)
def _surroundings(
    user: str | None,
    authenticator: str | None,
    service: str | None,
    client_ip: str,
    operation: str,
    reason: str | None,
    policy: tuple[str, int] | None,
    limit: int,
) -> str:
    """Return an event's structured data but for its subject (AUD-11), which many events have in common."""
    auth = (("user", user), ("authenticator", authenticator), ("service", service))
    action = (("result", Outcome(reason).word), ("operation", operation))
    elements: list[tuple[str, Subject]] = [
        ("auth", tuple([(name, value) for name, value in auth if value is not None]) or (("user", "-"),)),
        ("client", (("ip", client_ip),)),
        ("action", action if reason is None else (*action, ("reason", reason))),
    ]
    if policy is not None:
        elements.append(("policy", (("id", policy[0]), ("version", str(policy[1])))))
    return "".join([_element(*each, limit) for each in elements])


def _told(origin: AuditContext, event: Event, outcome: Outcome, limit: int) -> bytes:
    """Return a record from the kind of its message to its end, with values of at most so many bytes."""
    user = event.user or origin.user
    around = user, event.authenticator, event.service, origin.client_ip, event.operation, outcome.reason, event.policy
    message = message_of(origin, event, outcome)
    if len(message) > MESSAGE_LIMIT or not _PLAIN.fullmatch(message):
        message = visible(message, MESSAGE_LIMIT)
    mark = "" if message.isascii() else _BOM
    subject = _element("subject", event.subject, limit) if event.subject else ""
    return f"{field(event.msgid, 32)} {subject}{_surroundings(*around, limit)} {mark}{message}".encode()


class Records:
    """Writes records of one server."""

    def __init__(self, server: Server, wall: WallClock) -> None:
        self._server = f"Z {field(server.hostname, 255)} {field(server.appname, 48)} "
        self._wall = wall
        self._second = -1
        self._date = ""
        #: The priority of a record, and what follows its header.
        self._remembered: dict[_Key, tuple[bytes, bytes]] = {}

    def written(self, origin: AuditContext, events: Sequence[Event], outcome: Outcome) -> list[bytes]:
        """Return the lines of events, without their ends."""
        now = self._wall.seconds()
        second = int(now)
        if second != self._second:
            self._second = second
            self._date = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        milliseconds = int((now - second) * 1000)
        header = f"{self._date}.{milliseconds:03}{self._server}{field(origin.request_id, 128)} ".encode()
        lines = []
        for event in events:
            key = event, origin.user, origin.client_ip, outcome.reason
            priority, told = self._remembered.get(key) or self._remember(key, origin, outcome)
            lines.append(priority + header + told)
        return lines

    def _remember(self, key: _Key, origin: AuditContext, outcome: Outcome) -> tuple[bytes, bytes]:
        event = key[0]
        severity = event.severity if outcome.reason is None else WARNING
        told = _told(origin, event, outcome, VALUE_LIMIT)
        if len(told) > RECORD_LIMIT - HEADER_LIMIT:
            told = _told(origin, event, outcome, SHORT)
        parts = b"<%d>1 " % (event.facility * 8 + severity), told
        if len(told) <= _USUAL:
            if len(self._remembered) >= _REMEMBERED:
                self._remembered.clear()
            self._remembered[key] = parts
        return parts
