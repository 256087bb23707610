"""The parameters and answers of questions about who reads a secret, as the routes of resources and of what isn't used have
them (READ-10, READ-14).
"""

from __future__ import annotations

from typing import Final

from svc.model.authentication import iso_day
from svc.model.clocks import iso_milliseconds
from svc.model.errors import InvalidParameter
from svc.model.events import Event
from svc.model.names import ResourceName
from svc.model.readings import READERS_START, Reader, ReadersCursor, ReadersOfSeveral
from svc.services.readers import ReadersPage, RoleReads, UnreadPage, UnreadVariable
from svc.web.http.declarations import Parameter, ParameterSource
from svc.web.http.messages import Json
from svc.web.http.shapes import BOOLEAN, INTEGER, TEXT, array_shape, integer_shape, object_shape
from svc.web.routes.cursors import parse_reader_cursor, parse_resource_cursor, reader_cursor, resource_cursor

#: A hundred years: no moment lies beyond all calendars.
MAX_SECONDS: Final = 36_525 * 86_400


def read_seconds(source: ParameterSource, name: str) -> int | None:
    """Return a number of seconds, a hundred years at most; ``None`` where it isn't given.

    :raises InvalidParameter: it is anything else.
    """
    seconds = source.query.natural(name)
    if seconds is not None and seconds > MAX_SECONDS:
        raise InvalidParameter(name, f"'{name}' must not exceed {MAX_SECONDS}: a hundred years")
    return seconds


def _read_after_reader(source: ParameterSource) -> ReadersCursor:
    return parse_reader_cursor(source.query.text("after") or "") if source.query.has_flag("after") else READERS_START


def _read_after_variable(source: ParameterSource) -> str:
    return parse_resource_cursor(source.query.text("after") or "") if source.query.has_flag("after") else ""


SINCE_READ: Final = Parameter(
    "since",
    lambda source: read_seconds(source, "since"),
    integer_shape(0, MAX_SECONDS),
    "how far back, in seconds; as far as reads are kept if absent",
)
AFTER_READER: Final = Parameter("after", _read_after_reader, TEXT, "where the page before ended, as that page says")
AFTER_VARIABLE: Final = Parameter("after", _read_after_variable, TEXT, "where the page before ended, as that page says")

_READER: Final = object_shape({"role": TEXT, "last_read": TEXT, "count": INTEGER, "days": array_shape(TEXT)})
_UNREAD: Final = object_shape(
    {"variable": TEXT, "created_at": TEXT, "last_read": TEXT.or_null(), "unread_since": TEXT, "certain": BOOLEAN}
)
_COMMON: Final = {"kept_since": TEXT, "missing": array_shape(TEXT), "after": TEXT.or_null()}
READERS_SHAPE: Final = object_shape({"variable": TEXT, "readers": array_shape(_READER), "certain": BOOLEAN, **_COMMON})
_READ: Final = object_shape({"variable": TEXT, "last_read": TEXT, "count": INTEGER})
ROLE_READS_SHAPE: Final = object_shape(
    {
        "variables": array_shape(_READ),
        "since": TEXT,
        "complete": BOOLEAN,
        "hidden": BOOLEAN,
        "certain": BOOLEAN,
        "kept_since": TEXT,
        "missing": array_shape(TEXT),
    }
)
_NAMED_READERS: Final = object_shape({"role": TEXT, "last_read": TEXT, "count": INTEGER})
READERS_OF_SEVERAL_SHAPE: Final = object_shape(
    {
        "variables": array_shape(object_shape({"variable": TEXT, "readers": array_shape(_NAMED_READERS), "more": BOOLEAN})),
        "since": TEXT,
        "complete": BOOLEAN,
        "certain": BOOLEAN,
        "kept_since": TEXT,
        "missing": array_shape(TEXT),
    }
)
UNREAD_SHAPE: Final = object_shape({"unused": array_shape(_UNREAD), **_COMMON})


def readers_listed_event(name: str) -> Event:
    """Return the event of listing the roles that read a variable."""
    words = f"who has read {name}"
    return Event("resource", "readers", (("resource", name),), f"listed {words}", f"list {words}")


def readers_json(variable: ResourceName, page: ReadersPage) -> Json:
    """Return a page of readers of a variable."""
    return {
        "variable": str(variable),
        "readers": [_reader_json(reader) for reader in page.readers],
        "certain": page.certain,
        "kept_since": iso_milliseconds(page.kept_since),
        "missing": list(page.missing),
        "after": None if page.after is None else reader_cursor(page.after),
    }


def role_reads_json(reads: RoleReads) -> Json:
    """Return the variables that a role has read."""
    return {
        "variables": [
            {"variable": read.variable, "last_read": iso_day(read.last_day), "count": read.number}
            for read in reads.variables
        ],
        "since": iso_day(reads.since),
        "complete": reads.complete,
        "hidden": reads.hidden,
        "certain": reads.certain,
        "kept_since": iso_milliseconds(reads.kept_since),
        "missing": list(reads.missing),
    }


def readers_of_several_json(found: ReadersOfSeveral) -> Json:
    """Return who has read several variables."""
    return {
        "variables": [
            {
                "variable": each.variable,
                "readers": [
                    {"role": reader.role, "last_read": iso_day(reader.last_day), "count": reader.count}
                    for reader in each.readers
                ],
                "more": each.more,
            }
            for each in found.variables
        ],
        "since": iso_day(found.since),
        "complete": found.complete,
        "certain": found.certain,
        "kept_since": iso_milliseconds(found.kept_since),
        "missing": list(found.missing),
    }


def unread_json(page: UnreadPage) -> Json:
    """Return a page of variables that nobody reads."""
    return {
        "unused": [_unread_json(each) for each in page.variables],
        "kept_since": iso_milliseconds(page.kept_since),
        "missing": list(page.missing),
        "after": None if page.after is None else resource_cursor(page.after),
    }


def _reader_json(reader: Reader) -> dict[str, Json]:
    return {
        "role": reader.role,
        "last_read": iso_day(reader.last_day),
        "count": reader.count,
        "days": [iso_day(day) for day in reader.list_days()],
    }


def _unread_json(unread: UnreadVariable) -> dict[str, Json]:
    use = unread.use
    return {
        "variable": str(use.variable),
        "created_at": iso_milliseconds(use.made_at),
        "last_read": None if use.last_day is None else iso_day(use.last_day),
        "unread_since": iso_day(unread.unread_since),
        "certain": unread.certain,
    }
