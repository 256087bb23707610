"""Resources over HTTP (RES-1)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import attrs

from svc.model.access import HoldersCursor
from svc.model.errors import Forbidden, InvalidName, InvalidParameter, RecordNotFound, TooManyRoles
from svc.model.events import Event, Subject
from svc.model.names import RESOURCE_KINDS, ResourceName, RoleName, check_account_name
from svc.model.query_results import ResourcesQuery, Search
from svc.model.readings import ReadersCursor
from svc.services.access import AccessService
from svc.services.membership_lists import in_batches
from svc.services.readers import ReaderService, ReadersQuery
from svc.services.resources import ResourceService
from svc.web.http.declarations import Answer, Parameter, ParameterSource, PathName
from svc.web.http.messages import Response
from svc.web.http.routing import REQUIRED, Call, Routes
from svc.web.http.shapes import TEXT, array_shape
from svc.web.routes import access
from svc.web.routes.access import (
    ACCESS_CHECK_SHAPE,
    AFTER_HOLDER,
    DIRECT,
    HOLDERS_SHAPE,
    PAGE_LIMIT,
    QUERIED_ROLE,
    access_check_json,
    holders_json,
)
from svc.web.routes.listing import COUNT_SHAPE, KIND, LIMIT, OFFSET, PART_PARAMETERS, SEARCH, count_response, refuse_parts
from svc.web.routes.readers import AFTER_READER, READERS_SHAPE, SINCE_READ, readers_json, readers_listed_event
from svc.web.routes.resource_json import RESOURCE_SHAPE, describe_resources

#: The most resources that one list has, and how many it has when neither ``limit`` nor ``offset`` is given (RES-5).
MAX_LIMIT: Final = 1000

#: The one ``limit`` beyond ``MAX_LIMIT`` that is taken: clients of the installed base request it (RES-5).
EXCEPTIONAL_LIMIT: Final = 10_000

#: How many resources a list has when ``offset`` is given without ``limit`` (RES-4).
DEFAULT_PAGE: Final = 10


@attrs.frozen
class ListPart:
    """The part of a list that is asked for, or with ``count`` its length; ``whole``: that of the whole list."""

    limit: int
    offset: int
    count: bool
    search: Search | None
    whole: bool

    def count_within(self, number: int) -> int:
        """Return the count to answer where the whole list has ``number`` resources (RES-6)."""
        return number if self.whole else max(min(number - self.offset, self.limit), 0)


def _read_part(source: ParameterSource) -> ListPart:
    limit, offset, count, search = LIMIT.read(source), OFFSET.read(source), COUNT.read(source), SEARCH.read(source)
    whole = limit is offset is None or not source.dialect.count_of_page
    if limit is None:
        limit = MAX_LIMIT if offset is None else DEFAULT_PAGE
    elif limit > MAX_LIMIT and limit != EXCEPTIONAL_LIMIT and not count:
        message = f"'Limit' parameter must not exceed {MAX_LIMIT}"
        raise InvalidParameter("limit", message, code="unprocessable_entity")
    return ListPart(limit, offset or 0, count, search, whole)


def _read_acting_as(source: ParameterSource) -> str | None:
    role, acting_as = source.query.text("role"), source.query.text("acting_as")
    return role or acting_as or None


def _read_owner(source: ParameterSource) -> str | None:
    return source.query.text("owner") or ("" if source.query.has_flag("owner") else None)


def _privilege_reader(*names: str) -> Callable[[ParameterSource], str]:
    """Read the first of these parameters that has a value, be it empty (RES-23, RES-25)."""

    def read(source: ParameterSource) -> str:
        found = [text for text in map(source.query.text, names) if text is not None]
        if not found:
            raise InvalidParameter(names[0], names[0])
        return found[0]

    return read


ACCOUNT: Final = Parameter.text("account", "the account whose resources are listed, all unless there is one")
COUNT: Final = Parameter.boolean("count", "whether to return the length of the list instead of the list")
PART: Final = Parameter.combine("part", _read_part, LIMIT, OFFSET, COUNT, SEARCH)
ROLE: Final = Parameter.text("role", "the full id of a role of the caller's that is acted as")
ACTING_AS: Final = Parameter.combine(
    "acting_as", _read_acting_as, ROLE, Parameter.text("acting_as", "the same, where role has no value"), late=True
)
OWNER: Final = Parameter("owner", _read_owner, TEXT, "the id of a role that owns what is listed", late=True)
PRIVILEGE: Final = Parameter("privilege", _privilege_reader("privilege"), TEXT, "a privilege", required=True)


def _read_permission(source: ParameterSource) -> str:
    refuse_parts(source.query, "permitted_roles", "count", *PART_PARAMETERS)
    return _privilege_reader("privilege", "permission")(source)


PERMISSION: Final = Parameter.combine(
    "privilege",
    _read_permission,
    PRIVILEGE,
    Parameter.text("permission", "the same, where privilege has no value"),
)

_LIST: Final = (
    Answer(200, "resources, ordered by id", array_shape(RESOURCE_SHAPE)),
    Answer(200, "how many they are, with count", COUNT_SHAPE),
)


def resources_listed(call: Call) -> list[Event]:
    """Resources were listed or counted."""
    names = ("account", "kind", "owner", "search", "limit", "offset", "count", "role", "acting_as")
    return [resources_listed_event(call.asked_values(*names))]


def resources_listed_event(asked: Subject) -> Event:
    """Resources were listed; the parameters of the request are the subject."""
    return Event("list", "list", asked, "listed resources", "list resources")


def resource_queried(call: Call) -> list[Event]:
    """A resource was shown, or the roles with a privilege on it."""
    name = call.path_full_id()
    subject: Subject = (("resource", name),)
    privilege = call.asked_value("privilege") or call.asked_value("permission") or "-"
    if call.asked_flag("check"):
        role = call.asked_value("role") or str(call.caller.role)
        words = f"if {role} can {privilege} {name}"
        subject = (*subject, ("role", role), ("privilege", privilege))
        return [Event("check", "check", subject, f"checked {words}", f"check {words}")]
    if call.asked_flag("permitted_roles"):
        words = f"the roles that can {privilege} {name}"
        subject = (*subject, ("privilege", privilege))
        return [Event("resource", "permitted-roles", subject, f"listed {words}", f"list {words}")]
    if call.asked_flag("who_can"):
        return [access.holders_listed_event(name, privilege, call.asked_values("direct", "limit", "count"))]
    if call.asked_flag("can"):
        role = call.asked_value("role") or "-"
        words = f"why {role} can {privilege} {name}"
        subject = (*subject, ("role", role), ("privilege", privilege))
        return [Event("resource", "can", subject, f"asked {words}", f"ask {words}")]
    if call.asked_flag("readers"):
        return [readers_listed_event(name)]
    return [resource_shown_event(name)]


def resource_shown_event(name: str) -> Event:
    """A resource was shown."""
    return Event("resource", "show", (("resource", name),), f"read {name}", f"read {name}")


@attrs.frozen
class Resources:
    """The routes of resources."""

    routes = Routes()
    _get_route = partial(routes.add, "GET", caller=REQUIRED, errors=(Forbidden, RecordNotFound))
    _list_route = partial(
        _get_route,
        answers=_LIST,
        privileges="holds the role that it acts as, which sees what is listed",
        audit=resources_listed,
    )
    _read_route = partial(
        _get_route,
        "/resources/<flat:account>/<kind>/<tail:identifier>",
        kinds=RESOURCE_KINDS,
        name=PathName("name", ResourceName.from_parts),
        privileges="sees the resource",
        audit=resource_queried,
    )

    resources: ResourceService
    access: AccessService
    readers: ReaderService

    @_list_route(
        "/resources", query=(ACCOUNT, KIND, PART, ACTING_AS, OWNER), errors=(Forbidden, InvalidName, RecordNotFound)
    )
    async def everywhere(self, call: Call, *, account: str | None, kinds: tuple[str, ...], part: ListPart) -> Response:
        """Return the resources of all accounts, or of one, that the caller sees; or how many they are."""
        return await self._list_resources(call, account, kinds, part)

    @_list_route("/resources/<flat:account>", query=(KIND, PART, ACTING_AS, OWNER))
    async def of_account(self, call: Call, account: str, *, kinds: tuple[str, ...], part: ListPart) -> Response:
        """Return the resources of an account that the caller sees; or how many they are."""
        return await self._list_resources(call, account, kinds, part)

    @_list_route("/resources/<flat:account>/<kind>", kinds=RESOURCE_KINDS, query=(PART, ACTING_AS, OWNER))
    async def of_kind(self, call: Call, account: str, kind: str, *, part: ListPart) -> Response:
        """Return the resources of an account and a kind that the caller sees; or how many they are."""
        if kind not in RESOURCE_KINDS:
            # Policies may have invented the kind: this is shown to callers that see a resource of it.
            query = ResourcesQuery(call.caller.role, check_account_name(account), (kind,))
            if not await self.resources.count_resources(call.invocation, query, call.read_late(ACTING_AS), lambda: None):
                raise call.route_not_found()
        return await self._list_resources(call, account, (kind,), part)

    @_read_route(
        when="check",
        query=(PRIVILEGE, ROLE),
        answers=(Answer(204, "the role has the privilege"), Answer(404, "it hasn't")),
        privileges="sees the resource, and holds the role that is checked",
    )
    async def check(self, call: Call, name: ResourceName, *, privilege: str, role: str | None) -> Response:
        """Return whether the caller, or a role that it holds, has a privilege (RES-15, RES-21, RES-23)."""
        has = await self.resources.has_privilege(call.invocation, name, privilege, role or None)
        return Response.empty(204 if has else 404)

    @_read_route(
        when="permitted_roles",
        query=(PERMISSION,),
        answers=(Answer(200, "full ids of roles, in order", array_shape(TEXT)),),
        errors=(Forbidden, RecordNotFound, TooManyRoles),
    )
    async def permitted_roles(self, call: Call, name: ResourceName, *, privilege: str) -> Response:
        """Return the roles that have a privilege (RES-23)."""
        return await Response.json_array(
            in_batches(await self.resources.list_permitted_roles(call.invocation, name, privilege))
        )

    @_read_route(
        when="who_can",
        query=(PRIVILEGE, DIRECT, COUNT, PAGE_LIMIT, AFTER_HOLDER),
        answers=(
            Answer(200, "roles with a shortest way each, those with the shortest first", HOLDERS_SHAPE),
            Answer(200, "how many they are, with count", COUNT_SHAPE),
        ),
        errors=(Forbidden, RecordNotFound, TooManyRoles),
        privileges="sees the resource; on ways, the roles that it sees are named",
    )
    async def who_can(
        self,
        call: Call,
        name: ResourceName,
        *,
        privilege: str,
        direct: bool,
        count: bool,
        limit: int,
        after: HoldersCursor | None,
    ) -> Response:
        """Return the roles that have a privilege, each with a way; or how many they are (ACC-1)."""
        if count:
            return count_response(await self.access.count_holders(call.invocation, name, privilege, direct=direct))
        page = await self.access.list_holders(call.invocation, name, privilege, direct=direct, limit=limit, after=after)
        return Response.json(holders_json(page))

    @_read_route(
        when="can",
        query=(PRIVILEGE, QUERIED_ROLE),
        answers=(Answer(200, "whether the role has the privilege, and why or what is missing", ACCESS_CHECK_SHAPE),),
        errors=(Forbidden, RecordNotFound),
        privileges="sees the resource; sees the role, or holds it",
    )
    async def can(self, call: Call, name: ResourceName, *, privilege: str, role: RoleName) -> Response:
        """Return whether a role has a privilege, and why or what is missing (ACC-8)."""
        return Response.json(access_check_json(await self.access.check_privilege(call.invocation, name, privilege, role)))

    @_read_route(
        when="readers",
        query=(SINCE_READ, PAGE_LIMIT, AFTER_READER),
        answers=(Answer(200, "roles, those that read the variable last first", READERS_SHAPE),),
        errors=(Forbidden, RecordNotFound),
        privileges="owns or inspects the variable",
    )
    async def list_readers(
        self, call: Call, name: ResourceName, *, since: int | None, limit: int, after: ReadersCursor
    ) -> Response:
        """Return the roles that have read a variable, with the days on which they did (READ-10)."""
        page = await self.readers.list_readers(call.invocation, ReadersQuery(name, since, limit, after))
        return Response.json(readers_json(name, page))

    @_read_route(answers=(Answer(200, "the resource", RESOURCE_SHAPE),))
    async def show(self, call: Call, name: ResourceName) -> Response:
        """Return the resource with its permissions and annotations (RES-15)."""
        return await Response.json_pieces(describe_resources(await self.resources.read_resource(call.invocation, name)))

    async def _list_resources(self, call: Call, account: str | None, kinds: tuple[str, ...], part: ListPart) -> Response:
        if account is not None:
            check_account_name(account)
        acting_as, owner = call.read_late(ACTING_AS), partial(call.read_late, OWNER)
        query = ResourcesQuery(call.caller.role, account, kinds, None, part.search, part.limit, part.offset)
        if part.count:
            return count_response(
                part.count_within(await self.resources.count_resources(call.invocation, query, acting_as, owner))
            )
        found = await self.resources.list_resources(call.invocation, query, acting_as, owner)
        return await Response.json_pieces(describe_resources(found), head=b"[", tail=b"]")
