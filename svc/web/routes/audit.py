"""The audit over HTTP (wire facts, core 5)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Final

import attrs

from svc.model.errors import InvalidName, InvalidParameter
from svc.model.events import PARAMETERS, EventsQuery, StoredEvent
from svc.model.names import ResourceName
from svc.services.audit_reading import AuditService
from svc.web.http.query import Query
from svc.web.http.response import Response
from svc.web.http.routing import REQUIRED, Call, Routes
from svc.web.routes import auditing

#: How many events a list has unless ``limit`` says otherwise, and at most.
PAGE: Final = 100
MOST: Final = 1000

#: How many events are written down before somebody else is served: each may have some KB.
BATCH: Final = 50

#: The largest facility and the largest severity (RFC 5424, 6.2.1).
_FACILITY_MOST: Final = 23
_SEVERITY_MOST: Final = 7

_PARAMETER: Final = re.compile(r"([a-z]+)@43868/([a-z_]+)", re.ASCII)
_DIGITS: Final = re.compile(r"[0-9]{1,2}", re.ASCII)


@attrs.frozen
class Audit:
    """The routes of the audit."""

    routes = Routes()

    audit: AuditService

    @routes.add("GET", "/audit", caller=REQUIRED, audit=auditing.audit_read)
    async def everything(self, call: Call) -> Response:
        """List the events of the caller's account."""
        return await _listed(await self.audit.all_events(call.invocation, _query(call)))

    @routes.add("GET", "/audit/resources/<tail:identifier>", caller=REQUIRED, audit=auditing.audit_read)
    async def of_resource(self, call: Call, identifier: str) -> Response:
        """List the events whose subject has this resource."""
        return await self._of(call, identifier, "resource")

    @routes.add("GET", "/audit/roles/<tail:identifier>", caller=REQUIRED, audit=auditing.audit_read)
    async def of_role(self, call: Call, identifier: str) -> Response:
        """List the events whose subject has this role."""
        return await self._of(call, identifier, "role")

    @routes.add("GET", "/audit/entities/<tail:identifier>", caller=REQUIRED, audit=auditing.audit_read)
    async def of_entity(self, call: Call, identifier: str) -> Response:
        """List the events whose subject has this id as role, resource or member."""
        return await self._of(call, identifier, None)

    async def _of(self, call: Call, identifier: str, parameter: str | None) -> Response:
        query, name = _query(call), _named(identifier)
        return await _listed(await self.audit.events_of(call.invocation, query, name, parameter))


async def _listed(events: list[StoredEvent]) -> Response:
    """Return the answer to a list; one of nothing is 404 (wire facts, core 5)."""

    async def shown() -> AsyncIterator[Sequence[object]]:
        for start in range(0, len(events), BATCH):
            yield [_shown(event) for event in events[start : start + BATCH]]

    return await Response.json_array(shown(), status=200 if events else 404)


def _shown(event: StoredEvent) -> dict[str, object]:
    return {
        "timestamp": datetime.fromtimestamp(event.at, UTC).isoformat(timespec="milliseconds"),
        "facility": event.facility,
        "severity": event.severity,
        "hostname": event.hostname,
        "appname": event.appname,
        "procid": event.procid,
        "msgid": event.msgid,
        "sdata": {f"{name}@43868": parameters for name, parameters in event.data.items()},
        "message": event.message,
        "number": event.number,
    }


def _named(text: str) -> ResourceName:
    try:
        return ResourceName.parse(text)
    except InvalidName as refusal:
        raise InvalidParameter("id", f"'id' must be a full id, account:kind:identifier: {refusal.message}") from None


def _query(call: Call) -> EventsQuery:
    """What the query asks for.

    :raises InvalidParameter: a parameter is not what it has to be.
    """
    query = call.query
    limit, offset = query.positive_integer("limit"), query.natural("offset")
    if limit is not None and limit > MOST:
        raise InvalidParameter("limit", f"'limit' must not exceed {MOST}", code="unprocessable_entity")
    return EventsQuery(
        call.caller.role.account,
        facility=_number(query, "facility", _FACILITY_MOST),
        severity=_number(query, "severity", _SEVERITY_MOST),
        hostname=_text(query, "hostname"),
        appname=_text(query, "appname"),
        procid=_text(query, "procid"),
        msgid=_text(query, "msgid"),
        data=_data(query),
        limit=PAGE if limit is None else limit,
        offset=offset or 0,
    )


def _number(query: Query, name: str, most: int) -> int | None:
    text = query.text(name)
    if text is None:
        return None
    if not _DIGITS.fullmatch(text) or int(text) > most:
        raise InvalidParameter(name, f"'{name}' is a number from 0 to {most}")
    return int(text)


def _text(query: Query, name: str) -> str | None:
    """A text to compare with.

    :raises InvalidParameter: it holds NUL, which no event does.
    """
    text = query.text(name)
    if text is not None and "\x00" in text:
        raise InvalidParameter(name, f"'{name}' may not hold a NUL character")
    return text


def _data(query: Query) -> tuple[tuple[str, str, str], ...]:
    """The parameters of structured data, each as ``subject@43868/role=…``."""
    found = []
    for name in dict.fromkeys(key for key, _ in query.pairs if "@" in key):
        matched = _PARAMETER.fullmatch(name)
        if matched is None or not (matched[1] == "subject" or matched.groups() in PARAMETERS):
            others = ", ".join(f"{element}@43868/{parameter}" for element, parameter in sorted(PARAMETERS))
            raise InvalidParameter(name[:100], f"events can be looked for by subject@43868/<parameter>, {others}")
        value = _text(query, name)
        if value is not None:
            found.append((matched[1], matched[2], value))
    return tuple(found)
