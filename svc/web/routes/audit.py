"""The audit over HTTP (AUD-27)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any, Final

import attrs

from svc.model.clocks import iso_milliseconds, rfc3339
from svc.model.errors import Forbidden, InvalidName, InvalidParameter, RecordNotFound
from svc.model.events import PARAMETERS, EventsQuery, StoredEvent
from svc.model.names import ResourceName
from svc.services.audit_events import AuditService
from svc.web.http.declarations import Answer, Parameter, Source
from svc.web.http.json_bytes import Json
from svc.web.http.response import Response
from svc.web.http.routing import REQUIRED, Call, Routes
from svc.web.http.shapes import INTEGER, TEXT, array, integer, keyed, obj
from svc.web.routes import audit_events

#: How many events a list has unless ``limit`` says otherwise, and at most.
PAGE: Final = 100
MOST: Final = 1000

#: How many events are written down before somebody else is served: each may have some KB.
BATCH: Final = 50

_PARAMETER: Final = re.compile(r"([a-z]+)@43868/([a-z_]+)", re.ASCII)
_DIGITS: Final = re.compile(r"[0-9]{1,2}", re.ASCII)


def _limit(source: Source) -> int:
    """Read ``limit``; a bad ``offset`` is refused before one that is too large."""
    limit = source.query.positive_integer("limit")
    source.query.natural("offset")
    if limit is not None and limit > MOST:
        raise InvalidParameter("limit", f"'limit' must not exceed {MOST}", code="unprocessable_entity")
    return PAGE if limit is None else limit


def _number(name: str, most: int, description: str) -> Parameter[int | None]:
    def read(source: Source) -> int | None:
        text = source.query.text(name)
        if text is None:
            return None
        if not _DIGITS.fullmatch(text) or int(text) > most:
            raise InvalidParameter(name, f"'{name}' is a number from 0 to {most}")
        return int(text)

    return Parameter(name, read, integer(0, most), description)


def _moment(name: str, description: str) -> Parameter[float | None]:
    def read(source: Source) -> float | None:
        text = source.query.text(name)
        try:
            return None if text is None else rfc3339(text)
        except ValueError:
            message = f"'{name}' is a moment with its zone, as 2026-11-22T09:30:00Z"
            raise InvalidParameter(name, message) from None

    return Parameter(name, read, TEXT, description)


def _data(source: Source) -> tuple[tuple[str, str, str], ...]:
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
    Parameter("limit", _limit, integer(1, MOST), f"the most events that are listed; {PAGE} if absent"),
    Parameter("offset", lambda source: source.query.natural("offset") or 0, integer(0), "how many newer ones are left out"),
    # Their largest values are those of RFC 5424, 6.2.1.
    _number("facility", 23, "their facility (RFC 5424)"),
    _number("severity", 7, "their severity (RFC 5424)"),
    Parameter.text("hostname", "the machine of the server that reported them"),
    Parameter.text("appname", "the program that reported them"),
    Parameter.text("procid", "the id of the request"),
    Parameter.text("msgid", "their sort"),
    Parameter.text("what", "their sort, or what was done"),
    _moment("since", "from which moment on they are, as RFC 3339 has it"),
    _moment("until", "before which moment they are, as RFC 3339 has it"),
)


def _query(source: Source) -> EventsQuery:
    """Read what all parameters ask for together; the use case adds the account."""
    filters = {parameter.name: parameter.read(source) for parameter in _FILTERS}
    return EventsQuery("", data=_data(source), **filters)


FILTER: Final = (
    *(parameter.ignored for parameter in _FILTERS),
    Parameter("<name>@43868/<parameter>", _query, TEXT, "a parameter of their data, as subject@43868/role", field="query"),
)

_EVENT: Final = obj(
    {
        **dict.fromkeys(("timestamp", "hostname", "appname", "procid", "msgid", "message"), TEXT),
        **dict.fromkeys(("facility", "severity", "number"), INTEGER),
        "sdata": keyed(keyed(TEXT)),
    }
)


@attrs.frozen
class Audit:
    """The routes of the audit."""

    routes = Routes()
    _listing = partial(
        routes.add,
        "GET",
        caller=REQUIRED,
        query=FILTER,
        answers=(
            Answer(200, "the events, the newest first", array(_EVENT)),
            Answer(404, "no event fits: an empty array", array(_EVENT)),
        ),
        audit=audit_events.audit_read,
        errors=(Forbidden, RecordNotFound),
        privileges="owns or inspects it, or the root policy",
    )

    audit: AuditService

    @_listing("/audit", errors=(Forbidden,), privileges="owns or inspects the root policy")
    async def everything(self, call: Call, *, query: EventsQuery) -> Response:
        """List the events of the caller's account."""
        return await _listed(await self.audit.list_all_events(call.invocation, query))

    @_listing("/audit/resources/<tail:identifier>")
    async def of_resource(self, call: Call, identifier: str, *, query: EventsQuery) -> Response:
        """List the events whose subject has this resource."""
        return await _listed(await self.audit.list_events_about(call.invocation, query, _named(identifier), "resource"))

    @_listing("/audit/roles/<tail:identifier>")
    async def of_role(self, call: Call, identifier: str, *, query: EventsQuery) -> Response:
        """List the events whose subject has this role."""
        return await _listed(await self.audit.list_events_about(call.invocation, query, _named(identifier), "role"))

    @_listing("/audit/entities/<tail:identifier>")
    async def of_entity(self, call: Call, identifier: str, *, query: EventsQuery) -> Response:
        """List the events whose subject has this id as role, resource or member."""
        return await _listed(await self.audit.list_events_about(call.invocation, query, _named(identifier), None))


def _named(text: str) -> ResourceName:
    try:
        return ResourceName.parse(text)
    except InvalidName as refusal:
        raise InvalidParameter("id", f"'id' must be a full id, account:kind:identifier: {refusal.message}") from None


async def _listed(events: list[StoredEvent]) -> Response:
    """Return the answer to a list; one of nothing is 404 (AUD-27)."""

    async def shown() -> AsyncIterator[Sequence[Json]]:
        for start in range(0, len(events), BATCH):
            yield [_shown(event) for event in events[start : start + BATCH]]

    return await Response.json_array(shown(), status=200 if events else 404)


def _shown(event: StoredEvent) -> dict[str, Json]:
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
