"""The records in the servers' audit files over HTTP: for clients, of the whole cluster, and for its other servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final

import attrs

from svc.audit.record_files import RecordQuery, event_of
from svc.audit.record_search import RecordKey, RecordsPage, RecordsQuestion
from svc.cluster.record_questions import RecordQuestions
from svc.model.clocks import iso_milliseconds
from svc.model.errors import AuditSearchUnavailable, Forbidden, InvalidName, InvalidParameter, RecordNotFound, RouteNotFound
from svc.model.events import Event
from svc.model.names import ResourceName
from svc.services.audit_search import AuditSearchService, FoundRecord, RecordsFound, SearchedThings
from svc.web.http.declarations import Answer, Parameter, ParameterSource, Unaudited
from svc.web.http.messages import Json, Response, encode_json
from svc.web.http.routing import PUBLIC, REQUIRED, Call, Routes
from svc.web.http.shapes import BOOLEAN, INTEGER, TEXT, array_shape, integer_shape, object_shape, raw_shape
from svc.web.routes.audit import BATCH_SIZE, DEFAULT_LIMIT, EVENT_MEMBERS, MAX_LIMIT, moment_parameter, read_limit

#: The outcomes that a record may have.
OUTCOMES: Final = ("success", "failure", "unknown")


def _read_outcome(source: ParameterSource) -> str | None:
    outcome = source.query.text("outcome")
    if outcome is not None and outcome not in OUTCOMES:
        raise InvalidParameter("outcome", f"'outcome' is one of {', '.join(OUTCOMES)}")
    return outcome


def _read_after(source: ParameterSource) -> RecordKey | None:
    cursor = source.query.text("after")
    try:
        return None if cursor is None else RecordKey.parse(cursor)
    except ValueError:
        raise InvalidParameter("after", "'after' is none that this search gave out") from None


def _thing_parameter(name: str, description: str) -> Parameter[ResourceName | None]:
    def read(source: ParameterSource) -> ResourceName | None:
        text = source.query.text(name)
        try:
            return None if text is None else ResourceName.parse(text)
        except InvalidName as refusal:
            message = f"'{name}' must be a full id, account:kind:identifier: {refusal.message}"
            raise InvalidParameter(name, message) from None

    return Parameter(name, read, TEXT, description)


_THINGS: Final = (
    _thing_parameter("role", "the role that they are about: a full id"),
    _thing_parameter("resource", "the resource that they are about: a full id"),
    _thing_parameter("about", "what they are about, as role, resource or member: a full id"),
)
_TIMES: Final = (
    moment_parameter("since", "from which moment on they are, as RFC 3339 has it"),
    moment_parameter("until", "before which moment they are, as RFC 3339 has it"),
)
_TEXTS: Final = (
    Parameter.text("user", "who did it: the full id of the role"),
    Parameter.text("what", "their sort, what was done, or the id of what it was done to"),
    Parameter("outcome", _read_outcome, TEXT, f"how it ended: {', '.join(OUTCOMES)}"),
    Parameter.text("request", "the id of the request"),
    Parameter.text("msgid", "their sort"),
    Parameter.text("operation", "what was done"),
    Parameter.text("client_ip", "from which address"),
)
_LIMIT: Final = Parameter(
    "limit", read_limit, integer_shape(1, MAX_LIMIT), f"the most records that are listed; {DEFAULT_LIMIT} if absent"
)
_AFTER: Final = Parameter("after", _read_after, TEXT, "where an answer before ended, to go on from there")


def _read_query(source: ParameterSource) -> RecordQuery:
    times = {parameter.name: parameter.read(source) for parameter in _TIMES}
    bounds = {name: iso_milliseconds(at).replace("+00:00", "Z") for name, at in times.items() if at is not None}
    filters: dict[str, Any] = {parameter.name: parameter.read(source) for parameter in _TEXTS}
    return RecordQuery(**bounds, **filters)


def _read_things(source: ParameterSource) -> SearchedThings:
    return SearchedThings(**{parameter.name: parameter.read(source) for parameter in _THINGS})


_PARAMETERS: Final = (
    Parameter.combine("query", _read_query, *_TIMES, *_TEXTS),
    Parameter.combine("things", _read_things, *_THINGS),
    _LIMIT,
    _AFTER,
)

_FOUND: Final = object_shape(
    {
        "records": array_shape(object_shape({"server": TEXT, **EVENT_MEMBERS, "number": INTEGER.or_null()})),
        "after": TEXT.or_null(),
        "complete": BOOLEAN,
        "servers": array_shape(object_shape({"server": TEXT, "complete": BOOLEAN, "faults": array_shape(TEXT)})),
    }
)


def records_searched(call: Call) -> list[Event]:
    """The audit's files were searched."""
    names = [parameter.name for parameter in (*_TIMES, *_TEXTS, *_THINGS, _LIMIT, _AFTER)]
    return [Event("audit", "search", call.asked_values(*names), "searched the audit", "search the audit")]


@attrs.frozen
class AuditRecords:
    """The route of a search in the files of all servers."""

    routes = Routes()

    search: AuditSearchService

    @routes.add(
        "GET",
        "/audit/records",
        caller=REQUIRED,
        query=_PARAMETERS,
        answers=(Answer(200, "the records, the newest first, and what each server could not read", _FOUND),),
        errors=(Forbidden, RecordNotFound, AuditSearchUnavailable),
        privileges="owns or inspects the root policy, or each role and resource that it asks about",
        audit=records_searched,
    )
    async def list(
        self, call: Call, *, query: RecordQuery, things: SearchedThings, limit: int, after: RecordKey | None
    ) -> Response:
        """Return what all servers of the cluster recorded, logins and reads too."""
        found = await self.search.search_records(call.invocation, query, things, limit, after)
        return await Response.json_array(_record_batches(found.records), head=b'{"records":[', tail=_encode_rest(found))


async def _record_batches(records: Sequence[FoundRecord]) -> AsyncIterator[Sequence[Json]]:
    for start in range(0, len(records), BATCH_SIZE):
        yield [_record_json(each) for each in records[start : start + BATCH_SIZE]]


def _record_json(record: FoundRecord) -> dict[str, Json]:
    event: dict[str, Any] = event_of(record.line)
    return {"server": record.server, **event}


def _encode_rest(found: RecordsFound) -> bytes:
    """Return the end of the answer, after its records."""
    servers: list[Json] = [
        {"server": name, "complete": not faults, "faults": list(faults)} for name, faults in found.faults.items()
    ]
    rest: dict[str, Json] = {
        "after": None if found.after is None else str(found.after),
        "complete": not any(found.faults.values()),
        "servers": servers,
    }
    return b"]," + encode_json(rest)[1:]


QUESTION: Final = Parameter.text("question", "the search", required=True)
CHALLENGE: Final = Parameter.text("challenge", "random digits that the answer is bound to", required=True)
CODE: Final = Parameter.text("code", "what proves that a server of the cluster asks", required=True)


@attrs.frozen
class PeerRecords:
    """The route by which other servers of the cluster search this one's files (``svc.cluster.record_questions``)."""

    routes = Routes()

    questions: RecordQuestions
    search: Callable[[RecordsQuestion], Awaitable[RecordsPage]]

    @routes.add(
        "GET",
        "/cluster/records",
        caller=PUBLIC,
        query=(QUESTION, CHALLENGE, CODE),
        answers=(Answer(200, "records that nobody else can decrypt", raw_shape("application/octet-stream")),),
        errors=(RouteNotFound, AuditSearchUnavailable),
        privileges="knows the data key",
        audit=Unaudited("the server that was asked by a client has the record"),
    )
    async def tell(self, call: Call, *, question: str | None, challenge: str | None, code: str | None) -> Response:
        """Return what this server recorded to another server of the cluster; to others it is 404."""
        asked = self.questions.read_question(question or "", challenge or "", code or "")
        if asked is None:
            raise call.route_not_found()
        wanted, sent = asked
        fault = self.questions.find_clock_fault(sent)
        page = await self.search(wanted) if fault is None else RecordsPage(faults=(fault,))
        return Response.content(self.questions.seal_page(sent, page), "application/octet-stream")
