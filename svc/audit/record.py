"""A record of the audit: one line in the form of RFC 5424.

::

    <86>1 2026-11-22T09:30:00.125Z host svc 4f1d fetch [auth@43868 user="acme:host:web"][subject@43868 …]… acme:host:web …

Text from outside is escaped first: nothing can end a line, or look like the end of a value. So each record is one line, and
a parser of the RFC reads back exactly what was written. Parts that many records have in common aren't cached: that helped
no more callers than fit, and cost each of them a lookup.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from svc.model.clocks import WallClock
from svc.model.events import OUTCOME_UNKNOWN, WARNING, AuditContext, Event, EventSource, Outcome
from svc.model.text import escape_unprintable

#: Bytes of a parameter's value, and of a message, before they are escaped; longer ones are truncated, and end with "…".
VALUE_LIMIT: Final = 1200
MESSAGE_LIMIT: Final = 2400

#: Bytes of a record, whose values are cut to ``SHORT_VALUE_LIMIT`` where it would have more, and of its header up to the
#: request's id with the element of the chain.
RECORD_LIMIT: Final = 16 * 1024
SHORT_VALUE_LIMIT: Final = 240
HEADER_LIMIT: Final = 768

#: Characters up to which a record is within its limit, whatever they are: one takes four bytes at most.
_SAFE_LENGTH: Final = (RECORD_LIMIT - HEADER_LIMIT) // 4

#: The number under which the ids of structured data are registered (AUD-11).
ENTERPRISE: Final = "43868"

#: Values that need no escape, as most; characters that need one; fields of the header, and characters that none has
#: (RFC 5424, 6: PRINTUSASCII).
_PLAIN: Final = re.compile(r"[ !#-\[^-~]*")
_ESCAPED: Final = re.compile(r'["\\\]]')
_FIELD: Final = re.compile(r"[!-~]+")
_NO_FIELD: Final = re.compile(r"[^!-~]")

#: The beginning of a message that has more than ASCII (RFC 5424, 6.4).
_BOM: Final = "\ufeff"


def truncate_printable(text: str, limit: int) -> str:
    """Return a text of at most ``limit`` bytes and an ellipsis, in which every character can be seen."""
    shown = escape_unprintable(text, limit)
    encoded = shown.encode()
    return shown if len(encoded) <= limit else encoded[:limit].decode("utf-8", "ignore") + "…"


def quote_value(text: str, limit: int = VALUE_LIMIT) -> str:
    """Return a value as it stands between the quotation marks of a parameter (RFC 5424, 6.3.3)."""
    if len(text) <= limit and _PLAIN.fullmatch(text):
        return text
    return _ESCAPED.sub(r"\\\g<0>", truncate_printable(text, limit))


def format_field(text: str, limit: int) -> str:
    """Return a field of the header: printable ASCII without blanks, and ``-`` where there is none."""
    if len(text) <= limit and _FIELD.fullmatch(text):
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


def _format_record(origin: AuditContext, event: Event, outcome: Outcome, limit: int) -> str:
    """Return a record from the kind of its message to its end (AUD-11), with values of at most so many bytes."""
    msgid, operation, subject, _, _, user, authenticator, service, policy, _, _, _ = event
    message, client_ip, reason = message_of(origin, event, outcome), origin.client_ip, outcome.reason
    user = user or origin.user
    values = "".join([value for _, value in subject])
    texts = f"{message}{authenticator}{service}{client_ip}{operation}{reason}{values}{'' if policy is None else policy[0]}"
    # Most have nothing to quote, which is found sooner of all together.
    if len(texts) > limit or not _PLAIN.fullmatch(texts):
        user, authenticator, service, reason = (
            None if text is None else quote_value(text, limit) for text in (user, authenticator, service, reason)
        )
        operation, client_ip, message = (
            quote_value(operation, limit),
            quote_value(client_ip, limit),
            truncate_printable(message, MESSAGE_LIMIT),
        )
        subject = tuple([(name, quote_value(value, limit)) for name, value in subject])
        policy = None if policy is None else (quote_value(policy[0], limit), policy[1])
        message = message if message.isascii() else _BOM + message
    about = "".join([f' {name}="{value}"' for name, value in subject])
    about = f"[subject@{ENTERPRISE}{about}]" if about else ""
    who = "" if user is None else f' user="{user}"'
    if authenticator is not None:
        who += f' authenticator="{authenticator}"'
    if service is not None:
        who += f' service="{service}"'
    who = who or ' user="-"'
    done = f'result="{outcome.result_name}" operation="{operation}"' + ("" if reason is None else f' reason="{reason}"')
    done += ' stale="true"' if outcome.stale else ""
    loaded = "" if policy is None else f'[policy@{ENTERPRISE} id="{policy[0]}" version="{policy[1]}"]'
    data = f'[auth@{ENTERPRISE}{who}][client@{ENTERPRISE} ip="{client_ip}"][action@{ENTERPRISE} {done}]{loaded}'
    return f"{format_field(msgid, 32)} {about}{data} {message}"


class RecordFormatter:
    """Writes records of one server."""

    def __init__(self, server: EventSource, wall: WallClock) -> None:
        self._server = f"Z {format_field(server.hostname, 255)} {format_field(server.appname, 48)} "
        self._wall = wall
        self._second = -1
        self._date = ""

    def format_events(self, origin: AuditContext, events: Sequence[Event], outcome: Outcome) -> list[bytes]:
        """Return the lines of events, without their ends."""
        now = self._wall.seconds()
        second = int(now)
        if second != self._second:
            self._second = second
            self._date = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        milliseconds = int((now - second) * 1000)
        header = f">1 {self._date}.{milliseconds:03}{self._server}{format_field(origin.request_id, 128)} "
        lines: list[bytes] = []
        for event in events:
            its = outcome if event.reason is None or outcome.reason is not None else Outcome(event.reason, outcome.stale)
            text = _format_record(origin, event, its, VALUE_LIMIT)
            if len(text) > _SAFE_LENGTH and len(text.encode()) > RECORD_LIMIT - HEADER_LIMIT:
                text = _format_record(origin, event, its, SHORT_VALUE_LIMIT)
            severity = event.severity if its.reason is None else WARNING
            lines.append(f"<{event.facility * 8 + severity}{header}{text}".encode())
        return lines
