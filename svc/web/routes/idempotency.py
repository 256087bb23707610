"""The header by which clients name a change that they may repeat (WIRE-53 to WIRE-57)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from svc.model.errors import InvalidParameter, RequestRunning, TooOften
from svc.model.events import Event
from svc.model.idempotency import HEADER
from svc.web.http.declarations import Parameter, ParameterSource
from svc.web.http.routing import AuditEventsFunction, Call
from svc.web.http.shapes import TEXT

#: A string of RFC 9651, or its characters alone, as many a client sends it. Two lines of the header are no key.
_KEY: Final = re.compile(r'("?)([A-Za-z0-9._~:/+=@-]{1,128})\1', re.ASCII)


def _read_key(source: ParameterSource) -> str | None:
    text = source.header(HEADER)
    if text is None:
        return None
    if (matched := _KEY.fullmatch(text.strip(" \t"))) is None:
        raise InvalidParameter(
            HEADER, "must have 1 to 128 letters, digits and characters of ._~:/+=@-", "unprocessable_entity"
        )
    return matched[2]


IDEMPOTENCY_KEY: Final = Parameter(
    HEADER, _read_key, TEXT, "a name for this change, by which it can be repeated", field="key"
)

#: The refusals of a route that takes the header, beside all else.
IDEMPOTENCY_ERRORS: Final = (RequestRunning, InvalidParameter, TooOften)


def unless_repeated(events: AuditEventsFunction) -> AuditEventsFunction:
    """Return the function of a change that clients may repeat: a repeat changes nothing, and returns secrets again."""

    def events_or_repeats(call: Call) -> Sequence[Event]:
        found = events(call)
        if not call.audit_facts.get("repeated"):
            return found
        words = "repeated a request, and was given its answer again"
        return [event._replace(operation="repeat", did=f"{words}: {event.did}") for event in found]

    return events_or_repeats
