"""The routes for expiring credentials, inactive roles and unread secrets (END-1, END-24, READ-14)."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

import attrs

from svc.model.authentication import IDLE_ROLES_START, IdleRolesCursor, iso_day
from svc.model.clocks import iso_milliseconds
from svc.model.errors import Forbidden, InvalidParameter
from svc.model.events import Event
from svc.model.expiration import EXPIRATIONS_START, ExpirationCursor, ExpirationKind, UpcomingExpiration
from svc.services.inactive_roles import InactiveRole, InactiveRoleService, InactiveRolesQuery
from svc.services.readers import ReaderService, UnreadQuery
from svc.services.upcoming_expirations import UpcomingExpirationService, UpcomingExpirationsQuery
from svc.web.http.declarations import Answer, Parameter, ParameterSource
from svc.web.http.messages import Json, Response
from svc.web.http.routing import REQUIRED, AuditEventsFunction, Call, Routes
from svc.web.http.shapes import BOOLEAN, INTEGER, TEXT, array_shape, integer_shape, object_shape, string_shape
from svc.web.routes.readers import AFTER_VARIABLE, MAX_SECONDS, UNREAD_SHAPE, read_seconds, unread_json

P = TypeVar("P", ExpirationCursor, IdleRolesCursor)

#: How many things a page has unless ``limit`` says otherwise, and at most.
DEFAULT_LIMIT: Final = 100
MAX_LIMIT: Final = 1000

#: Default seconds: a month ahead, a quarter back, and a year, after which a key without an expiration is old.
DEFAULT_WITHIN: Final = 30 * 86_400
DEFAULT_SINCE: Final = 90 * 86_400
DEFAULT_AGE: Final = 365 * 86_400

#: A moment, in epoch seconds, that is later than all that are listed.
_MAX_MOMENT: Final = 1e11

#: Longer than the cursor of the longest id.
_CURSOR_FORM: Final = re.compile("[A-Za-z0-9_-]{1,8192}")

_KINDS: Final = tuple(kind.value for kind in ExpirationKind)


def _seconds_parameter(name: str, usual: int, description: str) -> Parameter[int]:
    def read(source: ParameterSource) -> int:
        seconds = read_seconds(source, name)
        return usual if seconds is None else seconds

    return Parameter(name, read, integer_shape(0, MAX_SECONDS), f"{description}, in seconds; {usual} if absent")


def _read_limit(source: ParameterSource) -> int:
    limit = source.query.positive_integer("limit")
    if limit is not None and limit > MAX_LIMIT:
        raise InvalidParameter("limit", f"'limit' must not exceed {MAX_LIMIT}")
    return limit or DEFAULT_LIMIT


def _read_kinds(source: ParameterSource) -> frozenset[ExpirationKind]:
    given = source.query.texts("kind")
    for name in given:
        if name not in _KINDS:
            raise InvalidParameter("kind", f"'kind' is one of {', '.join(_KINDS)}")
    return frozenset(map(ExpirationKind, given))


def _cursor_parameter(place: Callable[..., P], types: tuple[type, ...], start: P) -> Parameter[P]:
    """Declare the cursor of a list whose places have fields of these types."""

    def read(source: ParameterSource) -> P:
        if not source.query.has_flag("after"):
            return start
        given = source.query.text("after") or ""
        try:
            fields = json.loads(base64.b64decode(given + "=" * (-len(given) % 4), b"-_", validate=True))
            fits = isinstance(fields, list) and [type(field) for field in fields] == list(types)
            found = place(*fields) if _CURSOR_FORM.fullmatch(given) and fits else None
            if found is None or encode_cursor(found) != given or not _is_comparable(found):
                raise ValueError("another form")
        except (ValueError, RecursionError):
            raise InvalidParameter("after", "'after' is none that this listing gave out") from None
        return found

    return Parameter("after", read, TEXT, "where the page before ended, as that page says")


def encode_cursor(place: NamedTuple) -> str:
    """Return a place as text that a client hands back and needn't understand."""
    written = json.dumps(list(place), ensure_ascii=False, separators=(",", ":"))
    return base64.urlsafe_b64encode(written.encode("utf-8")).rstrip(b"=").decode("ascii")


def _is_comparable(place: ExpirationCursor | IdleRolesCursor) -> bool:
    """Return whether the fields are such as the store can compare with."""
    return all("\0" not in field if isinstance(field, str) else -1 <= field <= _MAX_MOMENT for field in place)


WITHIN_SECONDS: Final = _seconds_parameter("within", DEFAULT_WITHIN, "how far ahead")
AGE_SECONDS: Final = _seconds_parameter("age", DEFAULT_AGE, "the age at which a key without an expiration is listed")
AFTER_EXPIRATION: Final = _cursor_parameter(ExpirationCursor, (float, int, str, str), EXPIRATIONS_START)
UNREAD_SECONDS: Final = _seconds_parameter("since", DEFAULT_SINCE, "for how long there was no read")
SINCE_SECONDS: Final = _seconds_parameter("since", DEFAULT_SINCE, "for how long there was no login")
AFTER_INACTIVE_ROLE: Final = _cursor_parameter(IdleRolesCursor, (bool, float, str), IDLE_ROLES_START)
LIMIT: Final = Parameter(
    "limit", _read_limit, integer_shape(1, MAX_LIMIT), f"the most that the page has; {DEFAULT_LIMIT} if absent"
)
KIND: Final = Parameter(
    "kind", _read_kinds, array_shape(string_shape(*_KINDS)), "what is listed; all if absent", field="kinds"
)
_EXPIRATION: Final = object_shape(
    {"kind": string_shape(*_KINDS), "at": TEXT, "id": TEXT, "by_age": BOOLEAN},
    {"part": TEXT, "since": TEXT, "failures": INTEGER, "fault": TEXT},
)
_INACTIVE_ROLE: Final = object_shape(
    {"role": TEXT, "created_at": TEXT, "last_login": TEXT.or_null(), "idle_since": TEXT, "certain": BOOLEAN}
)


def _listing_events(operation: str, words: str) -> AuditEventsFunction:
    def events(_: Call) -> list[Event]:
        return [Event("endings", operation, (), f"listed {words}", f"list {words}")]

    return events


expirations_listed = _listing_events("expiring", "what ends")
inactive_roles_listed = _listing_events("unused", "roles that are not used")
unread_secrets_listed = _listing_events("unread", "secrets that are not read")


@attrs.frozen
class Endings:
    """The routes of expirations, and of roles and secrets that aren't used."""

    routes = Routes()

    expirations: UpcomingExpirationService
    inactive_roles: InactiveRoleService
    readers: ReaderService

    @routes.add(
        "GET",
        "/expiring",
        caller=REQUIRED,
        query=(WITHIN_SECONDS, AGE_SECONDS, KIND, LIMIT, AFTER_EXPIRATION),
        answers=(
            Answer(
                200,
                "what expires, the soonest first",
                object_shape({"expiring": array_shape(_EXPIRATION), "after": TEXT.or_null()}),
            ),
        ),
        errors=(Forbidden,),
        privileges="sees the resource; certificates, signing keys and keys of providers: owns the root policy",
        audit=expirations_listed,
    )
    async def expiring(
        self, call: Call, *, within: int, age: int, kinds: frozenset[ExpirationKind], limit: int, after: ExpirationCursor
    ) -> Response:
        """Return what expires soon in the caller's account."""
        page = await self.expirations.list_expirations(
            call.invocation, UpcomingExpirationsQuery(within, age, kinds, limit, after)
        )
        cursor = None if page.after is None else encode_cursor(page.after)
        return Response.json({"expiring": [_expiration_json(ending) for ending in page.expirations], "after": cursor})

    @routes.add(
        "GET",
        "/unused",
        caller=REQUIRED,
        query=(SINCE_SECONDS, LIMIT, AFTER_INACTIVE_ROLE),
        answers=(
            Answer(
                200,
                "users and hosts, those without any login first",
                object_shape(
                    {
                        "unused": array_shape(_INACTIVE_ROLE),
                        "kept_since": TEXT,
                        "followers_counted": BOOLEAN,
                        "followers": array_shape(TEXT),
                        "after": TEXT.or_null(),
                    }
                ),
            ),
        ),
        errors=(Forbidden,),
        privileges="sees the role",
        audit=inactive_roles_listed,
    )
    async def unused(self, call: Call, *, since: int, limit: int, after: IdleRolesCursor) -> Response:
        """Return the users and hosts of the caller's account that have not logged in for so long."""
        page = await self.inactive_roles.list_inactive(call.invocation, InactiveRolesQuery(since, limit, after))
        return Response.json(
            {
                "unused": [_inactive_role_json(role) for role in page.roles],
                "kept_since": iso_milliseconds(page.recorded_since),
                "followers_counted": False,
                "followers": list(page.followers),
                "after": None if page.after is None else encode_cursor(page.after),
            }
        )

    @routes.add(
        "GET",
        "/unused",
        when="secrets",
        caller=REQUIRED,
        query=(UNREAD_SECONDS, LIMIT, AFTER_VARIABLE),
        answers=(Answer(200, "variables that nobody has read, by id", UNREAD_SHAPE),),
        errors=(Forbidden,),
        privileges="owns or inspects the variable",
        audit=unread_secrets_listed,
    )
    async def unread(self, call: Call, *, since: int, limit: int, after: str) -> Response:
        """Return the variables of the caller's account that nobody has read for so long (READ-14)."""
        return Response.json(unread_json(await self.readers.list_unread(call.invocation, UnreadQuery(since, limit, after))))


def _expiration_json(ending: UpcomingExpiration) -> dict[str, Json]:
    shown: dict[str, Any] = {
        "kind": ending.kind.value,
        "at": iso_milliseconds(ending.at),
        "id": ending.id,
        "by_age": ending.by_age,
    }
    optional = {
        "part": ending.part or None,
        "since": None if ending.since is None or not math.isfinite(ending.since) else iso_milliseconds(ending.since),
        "failures": ending.failures or None,
        "fault": ending.fault,
    }
    return shown | {name: value for name, value in optional.items() if value is not None}


def _inactive_role_json(unused: InactiveRole) -> dict[str, Json]:
    role = unused.role
    return {
        "role": role.role,
        "created_at": iso_milliseconds(role.created_at),
        "last_login": None if role.day is None else iso_day(role.day),
        "idle_since": iso_day(unused.idle_since),
        "certain": unused.certain,
    }
