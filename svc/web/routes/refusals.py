"""Recent refusals over HTTP (REF-5 to REF-7)."""

from __future__ import annotations

import re
from typing import Final

import attrs

from svc.model.clocks import iso_milliseconds
from svc.model.errors import Forbidden, InvalidParameter
from svc.model.events import Event
from svc.model.refusals import RefusalCount, RefusedRequest
from svc.services.refusals import RefusalService
from svc.web.http.declarations import Answer, Parameter, ParameterSource
from svc.web.http.messages import Json, Response
from svc.web.http.routing import REQUIRED, Call, Routes
from svc.web.http.shapes import BOOLEAN, TEXT, array_shape, integer_shape, object_shape

#: How many refusals are listed unless ``limit`` says otherwise, and at most.
DEFAULT_LIMIT: Final = 100
MAX_LIMIT: Final = 1000

_CURSOR: Final = re.compile("[1-9][0-9]{0,17}", re.ASCII)


def _read_limit(source: ParameterSource) -> int:
    limit = source.query.positive_integer("limit")
    if limit is not None and limit > MAX_LIMIT:
        raise InvalidParameter("limit", f"'limit' must not exceed {MAX_LIMIT}", code="unprocessable_entity")
    return DEFAULT_LIMIT if limit is None else limit


def _read_after(source: ParameterSource) -> int | None:
    cursor = source.query.text("after")
    if cursor is not None and not _CURSOR.fullmatch(cursor):
        raise InvalidParameter("after", "'after' is none that this list gave out")
    return None if cursor is None else int(cursor)


LIMIT: Final = Parameter(
    "limit", _read_limit, integer_shape(1, MAX_LIMIT), f"the most refusals that are listed; {DEFAULT_LIMIT} if absent"
)
AFTER: Final = Parameter("after", _read_after, TEXT, "where an answer before ended, to go on from there")
REQUEST: Final = Parameter.text("request", "only those of the request of this id")

_REFUSAL: Final = object_shape(
    {
        **dict.fromkeys(("at", "request", "client_ip", "route", "reason", "detail"), TEXT),
        **dict.fromkeys(("authenticator", "service", "role"), TEXT.or_null()),
    }
)
_FOUND: Final = object_shape(
    {
        "server": TEXT,
        "since": TEXT,
        "complete": BOOLEAN,
        "sums": array_shape(
            object_shape(
                {"reason": TEXT, "authenticator": TEXT.or_null(), "service": TEXT.or_null(), "count": integer_shape(1)}
            )
        ),
        "refusals": array_shape(_REFUSAL),
        "after": TEXT.or_null(),
    }
)


def refusals_read(call: Call) -> list[Event]:
    """Recent refusals were read."""
    return [Event("refusals", "list", call.asked_values("request", "limit"), "read recent refusals", "read recent refusals")]


@attrs.frozen
class Refusals:
    """The route of recent refusals."""

    routes = Routes()

    refusals: RefusalService

    @routes.add(
        "GET",
        "/refusals",
        caller=REQUIRED,
        query=(REQUEST, AFTER, LIMIT),
        answers=(Answer(200, "the refusals of this server in the last hour, the newest first, and sums", _FOUND),),
        errors=(Forbidden,),
        privileges="owns or inspects the root policy",
        audit=refusals_read,
    )
    async def show(self, call: Call, *, request: str | None, after: int | None, limit: int) -> Response:
        """Return the refusals of the caller's account."""
        found = await self.refusals.list_recent(call.invocation, request, after, limit)
        return Response.json(
            {
                "server": call.origin.server.hostname,
                "since": iso_milliseconds(found.since),
                "complete": found.complete,
                "sums": [_sum_json(each) for each in found.counts],
                "refusals": [_refusal_json(each) for each in found.refusals],
                "after": None if found.before is None else str(found.before),
            }
        )


def _sum_json(count: RefusalCount) -> dict[str, Json]:
    sort = count.group
    return {"reason": sort.reason, "authenticator": sort.authenticator, "service": sort.service_id, "count": count.count}


def _refusal_json(refused: RefusedRequest) -> dict[str, Json]:
    return {
        "at": iso_milliseconds(refused.at),
        "request": refused.request_id,
        "client_ip": refused.client_ip,
        "route": refused.route,
        "reason": refused.reason,
        "detail": refused.detail,
        "authenticator": refused.authenticator,
        "service": refused.service_id,
        "role": refused.role,
    }
