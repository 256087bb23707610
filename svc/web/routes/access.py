"""The parameters and answers of questions about access, as the routes of resources and of roles have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from svc.model.access import AccessCheckResult, HoldersCursor, HoldersPage, PathStep, ReachableResourcesPage, StepKind
from svc.model.errors import InvalidName, InvalidParameter
from svc.model.events import Event, Subject
from svc.model.names import RoleName
from svc.services.access import PAGE, PAGE_MOST
from svc.web.http.declarations import Parameter, ParameterSource
from svc.web.http.messages import Json
from svc.web.http.shapes import BOOLEAN, TEXT, array_shape, integer_shape, object_shape, string_shape
from svc.web.routes.cursors import parse_position_cursor, parse_resource_cursor, position_cursor, resource_cursor


def _read_limit(source: ParameterSource) -> int:
    limit = source.query.positive_integer("limit")
    if limit is not None and limit > PAGE_MOST:
        raise InvalidParameter("limit", f"'limit' must not exceed {PAGE_MOST}")
    return limit or PAGE


def _read_role(source: ParameterSource) -> RoleName:
    given = source.query.text("role")
    if given is None:
        raise InvalidParameter("role", "role")
    try:
        return RoleName.parse(given)
    except InvalidName as refusal:
        raise InvalidParameter("role", f"'role': {refusal.message}") from None


def _read_after_holder(source: ParameterSource) -> HoldersCursor | None:
    return parse_position_cursor(source.query.text("after") or "") if source.query.has_flag("after") else None


def _read_after_resource(source: ParameterSource) -> str | None:
    return parse_resource_cursor(source.query.text("after") or "") if source.query.has_flag("after") else None


PAGE_LIMIT: Final = Parameter("limit", _read_limit, integer_shape(1, PAGE_MOST), "the most that the page has")
AFTER_HOLDER: Final = Parameter("after", _read_after_holder, TEXT, "where the page before ended, as that page says")
AFTER_RESOURCE: Final = Parameter("after", _read_after_resource, TEXT, "where the page before ended, as that page says")
DIRECT: Final = Parameter.boolean("direct", "only the owner, and roles that are permitted the privilege themselves")
QUERIED_ROLE: Final = Parameter("role", _read_role, TEXT, "the full id of the role that is asked about", required=True)
PRIVILEGES: Final = Parameter.texts("privilege", "read, execute and update unless there are some", field="privileges")

PATH_SHAPE: Final = array_shape(object_shape({"role": TEXT.or_null(), "by": string_shape(*StepKind)}))
_AFTER: Final = TEXT.or_null()
HOLDERS_SHAPE: Final = object_shape(
    {"holders": array_shape(object_shape({"role": TEXT, "way": PATH_SHAPE})), "after": _AFTER}
)
ACCESS_CHECK_SHAPE: Final = object_shape(
    {
        "can": BOOLEAN,
        "way": PATH_SHAPE.or_null(),
        "missing": array_shape(object_shape({"role": TEXT, "by": string_shape(StepKind.OWNER, StepKind.PERMITTED)})),
        "privileges": array_shape(TEXT),
    }
)
REACH_SHAPE: Final = object_shape(
    {
        "resources": array_shape(
            object_shape({"resource": TEXT, "privileges": array_shape(TEXT), "way": PATH_SHAPE.or_null()})
        ),
        "after": _AFTER,
    }
)


def holders_listed_event(name: str, privilege: str, asked: Subject) -> Event:
    """Return the event of listing the roles with a privilege on a resource; ``asked`` are the other parameters."""
    words = f"who can {privilege} {name}"
    subject = (("resource", name), ("privilege", privilege), *asked)
    return Event("resource", "who-can", subject, f"listed {words}", f"list {words}")


def holders_json(page: HoldersPage) -> Json:
    """Return a page of holders."""
    found = [{"role": holder.role, "way": steps_json(holder.path)} for holder in page.holders]
    return {"holders": found, "after": None if page.after is None else position_cursor(page.after)}


def access_check_json(found: AccessCheckResult) -> Json:
    """Return whether a role has a privilege, and why or what is missing."""
    way = None if found.path is None else steps_json(found.path)
    return {"can": found.allowed, "way": way, "missing": steps_json(found.missing), "privileges": found.privileges}


def reach_json(page: ReachableResourcesPage) -> Json:
    """Return a page of what a role reaches."""
    found = [
        {
            "resource": each.resource,
            "privileges": each.privileges,
            "way": None if each.path is None else steps_json(each.path),
        }
        for each in page.resources
    ]
    return {"resources": found, "after": None if page.after is None else resource_cursor(page.after)}


def steps_json(steps: Sequence[PathStep]) -> Json:
    """Return the steps of a way."""
    return [{"role": step.role, "by": step.kind.value} for step in steps]
