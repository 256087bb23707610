"""The audit over HTTP (AUD-27)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any, Final

import attrs

from svc.model.clocks import iso_milliseconds, parse_rfc3339
from svc.model.errors import Forbidden, InvalidName, InvalidParameter, RecordNotFound
from svc.model.events import PARAMETERS, Event, EventsQuery, StoredEvent
from svc.model.names import ResourceName
from svc.services.audit_events import AuditService
from svc.web.http.declarations import Answer, Parameter, ParameterSource
from svc.web.http.messages import Json, Response
from svc.web.http.routing import REQUIRED, Call, Routes
from svc.web.http.shapes import INTEGER, TEXT, array_shape, integer_shape, mapping_shape, object_shape

#: How many events a list has unless ``limit`` says otherwise, and at most.
DEFAULT_LIMIT: Final = 100
MAX_LIMIT: Final = 1000

#: How many events are written down before somebody else is served: each may have some KB.
BATCH_SIZE: Final = 50

_PARAMETER: Final = re.compile(r"([a-z]+)@43868/([a-z_]+)", re.ASCII)
_DIGITS: Final = re.compile(r"[0-9]{1,2}", re.ASCII)


def read_limit(source: ParameterSource) -> int:
    """Read ``limit``; a bad ``offset`` is refused before one that is too large."""
    limit = source.query.positive_integer("limit")
    source.query.natural("offset")
    if limit is not None and limit > MAX_LIMIT:
        raise InvalidParameter("limit", f"'limit' must not exceed {MAX_LIMIT}", code="unprocessable_entity")
    return DEFAULT_LIMIT if limit is None else limit


def _number_parameter(name: str, most: int, description: str) -> Parameter[int | None]:
    def read(source: ParameterSource) -> int | None:
        text = source.query.text(name)
        if text is None:
            return None
        if not _DIGITS.fullmatch(text) or int(text) > most:
            raise InvalidParameter(name, f"'{name}' is a number from 0 to {most}")
        return int(text)

    return Parameter(name, read, integer_shape(0, most), description)


def moment_parameter(name: str, description: str) -> Parameter[float | None]:
    """Return the parameter of this name, a moment with its zone, which is read as epoch seconds."""

    def read(source: ParameterSource) -> float | None:
        text = source.query.text(name)
        try:
            return None if text is None else parse_rfc3339(text)
        except ValueError:
            message = f"'{name}' is a moment with its zone, as 2026-11-22T09:30:00Z"
            raise InvalidParameter(name, message) from None

    return Parameter(name, read, TEXT, description)


def _read_data_filters(source: ParameterSource) -> tuple[tuple[str, str, str], ...]:
    """Read the parameters of structured data, each as ``subject@43868/role=…``."""
    found = []
    for name in dict.fromkeys(key for key, _ in source.query.pairs if "@" in key):
        matched = _PARAMETER.fullmatch(name)
        if matched is None or not (matched[1] == "subject" or matched.groups() in PARAMETERS):
            others = ", ".join(f"{element}@43868/{parameter}" for element, parameter in sorted(PARAMETERS))
            raise InvalidParameter(name[:100], f"events can be looked for by subject@43868/<parameter>, {others}")
        if (value := source.query.text(name)) is not None:
            found.append((matched[1], matched[2], value))
    return tuple(found)


_FILTERS: Final[tuple[Parameter[Any], ...]] = (
    Parameter(
        "limit", read_limit, integer_shape(1, MAX_LIMIT), f"the most events that are listed; {DEFAULT_LIMIT} if absent"
    ),
    Parameter(
        "offset", lambda source: source.query.natural("offset") or 0, integer_shape(0), "how many newer ones are left out"
    ),
    # Their largest values are those of RFC 5424, 6.2.1.
    _number_parameter("facility", 23, "their facility (RFC 5424)"),
    _number_parameter("severity", 7, "their severity (RFC 5424)"),
    Parameter.text("hostname", "the machine of the server that reported them"),
    Parameter.text("appname", "the program that reported them"),
    Parameter.text("procid", "the id of the request"),
    Parameter.text("msgid", "their sort"),
    Parameter.text("what", "their sort, or what was done"),
    moment_parameter("since", "from which moment on they are, as RFC 3339 has it"),
    moment_parameter("until", "before which moment they are, as RFC 3339 has it"),
)


def _read_query(source: ParameterSource) -> EventsQuery:
    """Read what all parameters ask for together; the use case adds the account."""
    filters = {parameter.name: parameter.read(source) for parameter in _FILTERS}
    return EventsQuery("", data=_read_data_filters(source), **filters)


FILTER_PARAMETERS: Final = (
    *(parameter.as_ignored for parameter in _FILTERS),
    Parameter(
        "<name>@43868/<parameter>", _read_query, TEXT, "a parameter of their data, as subject@43868/role", field="query"
    ),
)

EVENT_MEMBERS: Final = {
    **dict.fromkeys(("timestamp", "hostname", "appname", "procid", "msgid", "message"), TEXT),
    **dict.fromkeys(("facility", "severity", "number"), INTEGER),
    "sdata": mapping_shape(mapping_shape(TEXT)),
}

_EVENT: Final = object_shape(EVENT_MEMBERS)


def audit_read(call: Call) -> list[Event]:
    """The audit was read."""
    about = call.values.get("identifier")
    return [Event("audit", "list", (), "read the audit", "read the audit") if about is None else audit_read_event(about)]


def audit_read_event(name: str) -> Event:
    """The audit of one thing was read."""
    return Event("audit", "list", (("resource", name),), f"read the audit of {name}", f"read the audit of {name}")


@attrs.frozen
class Audit:
    """The routes of the audit."""

    routes = Routes()
    _list_route = partial(
        routes.add,
        "GET",
        caller=REQUIRED,
        query=FILTER_PARAMETERS,
        answers=(
            Answer(200, "the events, the newest first", array_shape(_EVENT)),
            Answer(404, "no event fits: an empty array", array_shape(_EVENT)),
        ),
        audit=audit_read,
        errors=(Forbidden, RecordNotFound),
        privileges="owns or inspects it, or the root policy",
    )

    audit: AuditService

    @_list_route("/audit", errors=(Forbidden,), privileges="owns or inspects the root policy")
    async def everything(self, call: Call, *, query: EventsQuery) -> Response:
        """List the events of the caller's account."""
        return await _list_response(await self.audit.list_all_events(call.invocation, query))

    @_list_route("/audit/resources/<tail:identifier>")
    async def of_resource(self, call: Call, identifier: str, *, query: EventsQuery) -> Response:
        """List the events whose subject has this resource."""
        return await _list_response(
            await self.audit.list_events_about(call.invocation, query, _read_resource_name(identifier), "resource")
        )

    @_list_route("/audit/roles/<tail:identifier>")
    async def of_role(self, call: Call, identifier: str, *, query: EventsQuery) -> Response:
        """List the events whose subject has this role."""
        return await _list_response(
            await self.audit.list_events_about(call.invocation, query, _read_resource_name(identifier), "role")
        )

    @_list_route("/audit/entities/<tail:identifier>")
    async def of_entity(self, call: Call, identifier: str, *, query: EventsQuery) -> Response:
        """List the events whose subject has this id as role, resource or member."""
        return await _list_response(
            await self.audit.list_events_about(call.invocation, query, _read_resource_name(identifier), None)
        )


def _read_resource_name(text: str) -> ResourceName:
    try:
        return ResourceName.parse(text)
    except InvalidName as refusal:
        raise InvalidParameter("id", f"'id' must be a full id, account:kind:identifier: {refusal.message}") from None


async def _list_response(events: list[StoredEvent]) -> Response:
    """Return the answer to a list; one of nothing is 404 (AUD-27)."""

    async def event_batches() -> AsyncIterator[Sequence[Json]]:
        for start in range(0, len(events), BATCH_SIZE):
            yield [_event_json(event) for event in events[start : start + BATCH_SIZE]]

    return await Response.json_array(event_batches(), status=200 if events else 404)


def _event_json(event: StoredEvent) -> dict[str, Json]:
    return {
        "timestamp": iso_milliseconds(event.at),
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
