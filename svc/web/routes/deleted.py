"""The routes for records that policy deleted: list, restore, purge (DEL-6 to DEL-24)."""

from __future__ import annotations

import re
from functools import partial
from typing import Final

import attrs

from svc.model.clocks import iso_milliseconds
from svc.model.deleted_records import DeletedRecord
from svc.model.errors import Forbidden, InvalidParameter, PolicyConflict, PolicyInvalid, RecordNotFound
from svc.model.events import NOTICE, Event, Subject
from svc.model.names import RoleName
from svc.services.deleted_records import BATCH_MOST, DeletedService, RestoreObstacle
from svc.web.http.declarations import NO_BODY, Answer, Parameter, ParameterSource, PathName
from svc.web.http.messages import Json, Response
from svc.web.http.routing import REQUIRED, Call, Routes
from svc.web.http.shapes import BOOLEAN, INTEGER, TEXT, array_shape, integer_shape, object_shape, string_shape

#: How many records a list has unless ``limit`` says otherwise, and at most.
DEFAULT_LIMIT: Final = 100
MAX_LIMIT: Final = 1000

_NUMBER: Final = re.compile("[1-9][0-9]{0,17}", re.ASCII)


def _read_limit(source: ParameterSource) -> int:
    limit = source.query.positive_integer("limit")
    if limit is not None and limit > MAX_LIMIT:
        raise InvalidParameter("limit", f"'limit' must not exceed {MAX_LIMIT}")
    return DEFAULT_LIMIT if limit is None else limit


def _read_numbers(source: ParameterSource) -> tuple[int, ...]:
    texts = tuple(dict.fromkeys(source.query.texts("number")))
    if len(texts) > BATCH_MOST or not all(map(_NUMBER.fullmatch, texts)):
        raise InvalidParameter("number", f"'number' must be the number of a deleted record, at most {BATCH_MOST} times")
    return tuple(map(int, texts))


def _read_required_numbers(source: ParameterSource) -> tuple[int, ...]:
    if numbers := _read_numbers(source):
        return numbers
    raise InvalidParameter("number", "'number' says what is had back: give it for each record of the list")


LIMIT: Final = Parameter(
    "limit", _read_limit, integer_shape(1, MAX_LIMIT), f"the most records that are listed; {DEFAULT_LIMIT} if absent"
)
OFFSET: Final = Parameter(
    "offset", lambda source: source.query.natural("offset") or 0, integer_shape(0), "how many newer ones are left out"
)
_MANY: Final = f"the number of a record in the list, up to {BATCH_MOST} times"
NUMBERS: Final = Parameter("number", _read_required_numbers, array_shape(INTEGER), _MANY, field="numbers", required=True)
ONLY: Final = Parameter("number", _read_numbers, array_shape(INTEGER), f"{_MANY}; without any, all", field="numbers")

_VERSIONS: Final = array_shape(INTEGER)
_RECORD: Final = object_shape(
    {
        "number": INTEGER,
        "id": TEXT,
        "owner": TEXT,
        "overwritten": BOOLEAN,
        "versions": _VERSIONS,
        "deleted_at": TEXT,
        "kept_until": TEXT,
    }
)
_RESTORED: Final = object_shape(
    {
        "restored": array_shape(object_shape({"number": INTEGER, "id": TEXT, "versions": _VERSIONS})),
        "left": array_shape(object_shape({"number": INTEGER, "reason": string_shape(*RestoreObstacle)})),
        "rows_left_out": INTEGER,
    }
)


def deleted_listed(call: Call) -> list[Event]:
    """The records that a policy deleted were listed."""
    name = call.path_full_id("policy")
    return [Event("deleted", "list", (("policy", name),), f"listed what {name} deleted", f"list what {name} deleted")]


def deleted_restored(call: Call) -> list[Event]:
    """Deleted records and values were restored: an event for each, and for each row that came with them."""
    policy = call.path_full_id("policy")
    if "restored" not in call.audit_facts:
        words = f"what {policy} deleted"
        return [Event("deleted", "restore", (("policy", policy),), f"restored {words}", f"restore {words}", severity=NOTICE)]
    events = []
    for name, versions in call.audit_facts["restored"]:
        words = name + (f" with its versions {', '.join(map(str, versions))}" if versions else "")
        subject = (("resource", name), ("policy", policy))
        events.append(Event("deleted", "restore", subject, f"restored {words}", f"restore {words}", severity=NOTICE))
    return [*events, *call.audit_facts["rows"]]


def deleted_purged(call: Call) -> list[Event]:
    """Deleted records were purged: an event for each that was named, or one for all."""
    policy, purged = call.path_full_id("policy"), call.audit_facts.get("purged")
    if purged is None or (purged and not ONLY.read(call)):
        count, words = "-" if purged is None else str(len(purged)), f"what {policy} deleted"
        subject: Subject = (("policy", policy), ("count", count))
        return [Event("deleted", "purge", subject, f"purged {words}", f"purge {words}", severity=NOTICE)]
    return [
        Event(
            "deleted", "purge", (("resource", name), ("policy", policy)), f"purged {name}", f"purge {name}", severity=NOTICE
        )
        for name in dict.fromkeys(purged)
    ]


@attrs.frozen
class DeletedRecords:
    """The routes of what was deleted, by the policy that had recorded it."""

    routes = Routes()
    _policy_route = partial(
        routes.add,
        path="/deleted/<flat:account>/policy/<tail:identifier>",
        name=PathName("policy", RoleName.from_parts, "policy"),
        caller=REQUIRED,
        privileges="update on the policy, and authority over each record",
    )

    deleted: DeletedService

    @_policy_route(
        "GET",
        query=(LIMIT, OFFSET),
        privileges="inspects the policy, or update on it and authority over each record",
        answers=(Answer(200, "the records that can be restored, the newest first", array_shape(_RECORD)),),
        errors=(Forbidden, RecordNotFound),
        audit=deleted_listed,
    )
    async def listed(self, call: Call, policy: RoleName, *, limit: int, offset: int) -> Response:
        """List the deleted records that can be restored."""
        records = await self.deleted.list_records(call.invocation, policy, limit, offset)
        return Response.json([_record_json(record) for record in records])

    @_policy_route(
        "POST",
        query=(NUMBERS,),
        body=NO_BODY,
        answers=(Answer(200, "the restored records, and why the rest was not", _RESTORED),),
        errors=(Forbidden, RecordNotFound, PolicyConflict, PolicyInvalid),
        audit=deleted_restored,
    )
    async def restore(self, call: Call, policy: RoleName, *, numbers: tuple[int, ...]) -> Response:
        """Restore records and values."""
        outcome = await self.deleted.restore_records(call.invocation, policy, numbers)
        restored: list[Json] = [
            {"number": record.number, "id": record.resource, "versions": list(record.versions)} for record in outcome.records
        ]
        left: list[Json] = [{"number": number, "reason": why.value} for number, why in sorted(outcome.skipped.items())]
        return Response.json({"restored": restored, "left": left, "rows_left_out": outcome.skipped_rows})

    @_policy_route(
        "DELETE",
        query=(ONLY,),
        answers=(Answer(200, "how many records were purged", object_shape({"purged": INTEGER})),),
        errors=(Forbidden, RecordNotFound),
        audit=deleted_purged,
    )
    async def purge(self, call: Call, policy: RoleName, *, numbers: tuple[int, ...]) -> Response:
        """Purge records for good."""
        purged = await self.deleted.purge_records(call.invocation, policy, numbers or None)
        return Response.json({"purged": len(purged)})


def _record_json(record: DeletedRecord) -> dict[str, Json]:
    return {
        "number": record.number,
        "id": record.resource,
        "owner": record.owner.role,
        "overwritten": record.overwritten,
        "versions": list(record.versions),
        "deleted_at": iso_milliseconds(record.deleted_at),
        "kept_until": iso_milliseconds(record.until),
    }
