"""The parameters and answers of questions about access, as the routes of resources and of roles have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from svc.model.access import AccessVerdict, By, HoldersPage, Position, ReachPage, WayStep
from svc.model.errors import InvalidName, InvalidParameter
from svc.model.events import Event, Subject
from svc.model.names import RoleName
from svc.services.access import PAGE, PAGE_MOST
from svc.web.http.declarations import Parameter, Source
from svc.web.http.json_bytes import Json
from svc.web.http.shapes import BOOLEAN, TEXT, array, integer, obj, text
from svc.web.routes.cursors import position_cursor, position_of, resource_cursor, resource_of


def _limit(source: Source) -> int:
    limit = source.query.positive_integer("limit")
    if limit is not None and limit > PAGE_MOST:
        raise InvalidParameter("limit", f"'limit' must not exceed {PAGE_MOST}")
    return limit or PAGE


def _role(source: Source) -> RoleName:
    given = source.query.text("role")
    if given is None:
        raise InvalidParameter("role", "role")
    try:
        return RoleName.parse(given)
    except InvalidName as refusal:
        raise InvalidParameter("role", f"'role': {refusal.message}") from None


def _after_holder(source: Source) -> Position | None:
    return position_of(source.query.text("after") or "") if source.query.flag("after") else None


def _after_resource(source: Source) -> str | None:
    return resource_of(source.query.text("after") or "") if source.query.flag("after") else None


PAGE_LIMIT: Final = Parameter("limit", _limit, integer(1, PAGE_MOST), "the most that the page has")
AFTER_HOLDER: Final = Parameter("after", _after_holder, TEXT, "where the page before ended, as that page says")
AFTER_RESOURCE: Final = Parameter("after", _after_resource, TEXT, "where the page before ended, as that page says")
DIRECT: Final = Parameter.boolean("direct", "only the owner, and roles that are permitted the privilege themselves")
ASKED_ROLE: Final = Parameter("role", _role, TEXT, "the full id of the role that is asked about", required=True)
PRIVILEGES: Final = Parameter.texts("privilege", "read, execute and update unless there are some", field="privileges")

WAY_SHAPE: Final = array(obj({"role": TEXT.or_null(), "by": text(*By)}))
_AFTER: Final = TEXT.or_null()
HOLDERS_SHAPE: Final = obj({"holders": array(obj({"role": TEXT, "way": WAY_SHAPE})), "after": _AFTER})
VERDICT_SHAPE: Final = obj(
    {
        "can": BOOLEAN,
        "way": WAY_SHAPE.or_null(),
        "missing": array(obj({"role": TEXT, "by": text(By.OWNER, By.PERMITTED)})),
        "privileges": array(TEXT),
    }
)
REACH_SHAPE: Final = obj(
    {"resources": array(obj({"resource": TEXT, "privileges": array(TEXT), "way": WAY_SHAPE.or_null()})), "after": _AFTER}
)


def holders_listed(name: str, privilege: str, asked: Subject) -> Event:
    """Return the event of listing the roles with a privilege on a resource; ``asked`` are the other parameters."""
    words = f"who can {privilege} {name}"
    subject = (("resource", name), ("privilege", privilege), *asked)
    return Event("resource", "who-can", subject, f"listed {words}", f"list {words}")


def holders_json(page: HoldersPage) -> Json:
    """Return a page of holders."""
    found = [{"role": holder.role, "way": steps_json(holder.way)} for holder in page.holders]
    return {"holders": found, "after": None if page.after is None else position_cursor(page.after)}


def verdict_json(found: AccessVerdict) -> Json:
    """Return whether a role has a privilege, and why or what is missing."""
    way = None if found.way is None else steps_json(found.way)
    return {"can": found.can, "way": way, "missing": steps_json(found.missing), "privileges": found.privileges}


def reach_json(page: ReachPage) -> Json:
    """Return a page of what a role reaches."""
    found = [
        {
            "resource": each.resource,
            "privileges": each.privileges,
            "way": None if each.way is None else steps_json(each.way),
        }
        for each in page.resources
    ]
    return {"resources": found, "after": None if page.after is None else resource_cursor(page.after)}


def steps_json(steps: Sequence[WayStep]) -> Json:
    """Return the steps of a way."""
    return [{"role": step.role, "by": step.by.value} for step in steps]
