"""Resources over HTTP (RES-1)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import attrs

from svc.model.access import Position
from svc.model.errors import Forbidden, InvalidName, InvalidParameter, RecordNotFound, TooManyRoles
from svc.model.names import RESOURCE_KINDS, ResourceName, RoleName, account_name
from svc.model.query_results import ResourcesQuery, Search
from svc.services.access import AccessService
from svc.services.membership_lists import in_batches
from svc.services.resources import ResourceService
from svc.web.http.declarations import Answer, Parameter, PathName, Source
from svc.web.http.response import Response
from svc.web.http.routing import REQUIRED, Call, Routes
from svc.web.http.shapes import TEXT, array
from svc.web.routes import audit_events
from svc.web.routes.access import (
    AFTER_HOLDER,
    ASKED_ROLE,
    DIRECT,
    HOLDERS_SHAPE,
    PAGE_LIMIT,
    VERDICT_SHAPE,
    holders_json,
    verdict_json,
)
from svc.web.routes.description import RESOURCE_SHAPE, described
from svc.web.routes.listing import COUNT_SHAPE, KIND, LIMIT, OFFSET, PARTS, SEARCH, count_of, demand_whole

#: The most resources that one list has, and how many it has when neither ``limit`` nor ``offset`` is given (RES-5).
LIST_MOST: Final = 1000

#: The one ``limit`` beyond ``LIST_MOST`` that is taken: clients of the installed base request it (RES-5).
LIST_EXCEPTION: Final = 10_000

#: How many resources a list has when ``offset`` is given without ``limit`` (RES-4).
LIST_PAGE: Final = 10


@attrs.frozen
class Part:
    """The part of a list that is asked for, or with ``count`` its length; ``whole``: that of the whole list."""

    limit: int
    offset: int
    count: bool
    search: Search | None
    whole: bool

    def counted(self, number: int) -> int:
        """Return the count to answer where the whole list has ``number`` resources (RES-6)."""
        return number if self.whole else max(min(number - self.offset, self.limit), 0)


def _part(source: Source) -> Part:
    limit, offset, count, search = LIMIT.read(source), OFFSET.read(source), COUNT.read(source), SEARCH.read(source)
    whole = limit is offset is None or not source.dialect.count_of_page
    if limit is None:
        limit = LIST_MOST if offset is None else LIST_PAGE
    elif limit > LIST_MOST and limit != LIST_EXCEPTION and not count:
        message = f"'Limit' parameter must not exceed {LIST_MOST}"
        raise InvalidParameter("limit", message, code="unprocessable_entity")
    return Part(limit, offset or 0, count, search, whole)


def _acting_as(source: Source) -> str | None:
    role, acting_as = source.query.text("role"), source.query.text("acting_as")
    return role or acting_as or None


def _owner(source: Source) -> str | None:
    return source.query.text("owner") or ("" if source.query.flag("owner") else None)


def _privilege(*names: str) -> Callable[[Source], str]:
    """Read the first of these parameters that has a value, be it empty (RES-23, RES-25)."""

    def read(source: Source) -> str:
        for value in map(source.query.text, names):
            if value is not None:
                return value
        raise InvalidParameter(names[0], names[0])

    return read


ACCOUNT: Final = Parameter.text("account", "the account whose resources are listed, all unless there is one")
COUNT: Final = Parameter.boolean("count", "whether to return the length of the list instead of the list")
PART: Final = Parameter.together("part", _part, LIMIT, OFFSET, COUNT, SEARCH)
ROLE: Final = Parameter.text("role", "the full id of a role of the caller's that is acted as")
ACTING_AS: Final = Parameter.together(
    "acting_as", _acting_as, ROLE, Parameter.text("acting_as", "the same, where role has no value"), late=True
)
OWNER: Final = Parameter("owner", _owner, TEXT, "the id of a role that owns what is listed", late=True)
PRIVILEGE: Final = Parameter("privilege", _privilege("privilege"), TEXT, "a privilege", required=True)


def _permission(source: Source) -> str:
    demand_whole(source.query, "permitted_roles", "count", *PARTS)
    return _privilege("privilege", "permission")(source)


PERMISSION: Final = Parameter.together(
    "privilege",
    _permission,
    PRIVILEGE,
    Parameter.text("permission", "the same, where privilege has no value"),
)

_LIST: Final = (
    Answer(200, "resources, ordered by id", array(RESOURCE_SHAPE)),
    Answer(200, "how many they are, with count", COUNT_SHAPE),
)


@attrs.frozen
class Resources:
    """The routes of resources."""

    routes = Routes()
    _asking = partial(routes.add, "GET", caller=REQUIRED, errors=(Forbidden, RecordNotFound))
    _listing = partial(
        _asking,
        answers=_LIST,
        privileges="holds the role that it acts as, which sees what is listed",
        audit=audit_events.resources_listed,
    )
    _reading = partial(
        _asking,
        "/resources/<flat:account>/<kind>/<tail:identifier>",
        kinds=RESOURCE_KINDS,
        name=PathName("name", ResourceName.of),
        privileges="sees the resource",
        audit=audit_events.resource_asked,
    )

    resources: ResourceService
    access: AccessService

    @_listing("/resources", query=(ACCOUNT, KIND, PART, ACTING_AS, OWNER), errors=(Forbidden, InvalidName, RecordNotFound))
    async def everywhere(self, call: Call, *, account: str | None, kinds: tuple[str, ...], part: Part) -> Response:
        """Return the resources of all accounts, or of one, that the caller sees; or how many they are."""
        return await self._list(call, account, kinds, part)

    @_listing("/resources/<flat:account>", query=(KIND, PART, ACTING_AS, OWNER))
    async def of_account(self, call: Call, account: str, *, kinds: tuple[str, ...], part: Part) -> Response:
        """Return the resources of an account that the caller sees; or how many they are."""
        return await self._list(call, account, kinds, part)

    @_listing("/resources/<flat:account>/<kind>", kinds=RESOURCE_KINDS, query=(PART, ACTING_AS, OWNER))
    async def of_kind(self, call: Call, account: str, kind: str, *, part: Part) -> Response:
        """Return the resources of an account and a kind that the caller sees; or how many they are."""
        if kind not in RESOURCE_KINDS:
            # Policies may have invented the kind: this is shown to callers that see a resource of it.
            query = ResourcesQuery(call.caller.role, account_name(account), (kind,))
            if not await self.resources.count_resources(call.invocation, query, call.late(ACTING_AS), lambda: None):
                raise call.no_route()
        return await self._list(call, account, (kind,), part)

    @_reading(
        when="check",
        query=(PRIVILEGE, ROLE),
        answers=(Answer(204, "the role has the privilege"), Answer(404, "it hasn't")),
        privileges="sees the resource, and holds the role that is checked",
    )
    async def check(self, call: Call, name: ResourceName, *, privilege: str, role: str | None) -> Response:
        """Return whether the caller, or a role that it holds, has a privilege (RES-15, RES-21, RES-23)."""
        has = await self.resources.has_privilege(call.invocation, name, privilege, role or None)
        return Response.empty(204 if has else 404)

    @_reading(
        when="permitted_roles",
        query=(PERMISSION,),
        answers=(Answer(200, "full ids of roles, in order", array(TEXT)),),
        errors=(Forbidden, RecordNotFound, TooManyRoles),
    )
    async def permitted_roles(self, call: Call, name: ResourceName, *, privilege: str) -> Response:
        """Return the roles that have a privilege (RES-23)."""
        return await Response.json_array(
            in_batches(await self.resources.list_permitted_roles(call.invocation, name, privilege))
        )

    @_reading(
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
        after: Position | None,
    ) -> Response:
        """Return the roles that have a privilege, each with a way; or how many they are (ACC-1)."""
        if count:
            return count_of(await self.access.count_holders(call.invocation, name, privilege, direct=direct))
        page = await self.access.list_holders(call.invocation, name, privilege, direct=direct, limit=limit, after=after)
        return Response.json(holders_json(page))

    @_reading(
        when="can",
        query=(PRIVILEGE, ASKED_ROLE),
        answers=(Answer(200, "whether the role has the privilege, and why or what is missing", VERDICT_SHAPE),),
        errors=(Forbidden, RecordNotFound),
        privileges="sees the resource; sees the role, or holds it",
    )
    async def can(self, call: Call, name: ResourceName, *, privilege: str, role: RoleName) -> Response:
        """Return whether a role has a privilege, and why or what is missing (ACC-8)."""
        return Response.json(verdict_json(await self.access.check_privilege(call.invocation, name, privilege, role)))

    @_reading(answers=(Answer(200, "the resource", RESOURCE_SHAPE),))
    async def show(self, call: Call, name: ResourceName) -> Response:
        """Return the resource with its permissions and annotations (RES-15)."""
        return await Response.json_pieces(described(await self.resources.read_resource(call.invocation, name)))

    async def _list(self, call: Call, account: str | None, kinds: tuple[str, ...], part: Part) -> Response:
        if account is not None:
            account_name(account)
        acting_as, owner = call.late(ACTING_AS), partial(call.late, OWNER)
        query = ResourcesQuery(call.caller.role, account, kinds, None, part.search, part.limit, part.offset)
        if part.count:
            return count_of(part.counted(await self.resources.count_resources(call.invocation, query, acting_as, owner)))
        found = await self.resources.list_resources(call.invocation, query, acting_as, owner)
        return await Response.json_pieces(described(found), head=b"[", tail=b"]")
