"""Resources: what a role sees, and who may do what with it."""

from __future__ import annotations

from typing import Final

import attrs

from svc.model.authorization import Allowed, role_sight, see, use
from svc.model.dialect import Dialect
from svc.model.errors import Forbidden, InvalidName, InvalidParameter, NotFound, RouteNotFound
from svc.model.names import RESOURCE_KINDS, ResourceName, RoleName, account_name
from svc.model.ports import IResources, IRoles
from svc.model.query_results import ResourcesQuery
from svc.services.pages import in_batches
from svc.web.http.response import Response
from svc.web.http.routing import REQUIRED, Call, Routes
from svc.web.routes import auditing
from svc.web.routes.description import described
from svc.web.routes.listing import SEARCH

#: The most resources that one list has, and how many it has when neither ``limit`` nor ``offset`` is given (core 3.1).
LIST_MOST: Final = 1000

#: The one ``limit`` beyond ``LIST_MOST`` that is taken: what clients of the installed base ask for (core 3.1).
LIST_EXCEPTION: Final = 10_000

#: How many resources a list has when ``offset`` is given without ``limit`` (core 3.1).
LIST_PAGE: Final = 10

#: The most roles with a privilege that are told; nobody reads more, and each request would hold them all.
PERMITTED_MOST: Final = 100_000

#: The most bytes of policy texts that a policy is shown with: its newest versions, as far as that goes. A list has none.
TEXTS_MOST: Final = 1024 * 1024

_PATH: Final = "/resources/<flat:account>/<kind>/<tail:identifier>"


@attrs.frozen
class Resources:
    """The routes of resources (wire facts, core 3)."""

    routes = Routes()

    store: IResources
    roles: IRoles
    dialect: Dialect

    @routes.add("GET", "/resources", caller=REQUIRED, audit=auditing.resources_listed)
    async def everywhere(self, call: Call) -> Response:
        """List or count the resources that the caller sees, of every account or of the one in the query."""
        return await self._list(call, call.query.text("account"), call.query.texts("kind"))

    @routes.add("GET", "/resources/<flat:account>", caller=REQUIRED, audit=auditing.resources_listed)
    async def of_account(self, call: Call, account: str) -> Response:
        """List or count the resources of an account that the caller sees."""
        return await self._list(call, account, call.query.texts("kind"))

    @routes.add("GET", "/resources/<flat:account>/<kind>", caller=REQUIRED, audit=auditing.resources_listed)
    async def of_kind(self, call: Call, account: str, kind: str) -> Response:
        """List or count the resources of an account and a kind that the caller sees."""
        if kind not in RESOURCE_KINDS:
            raise RouteNotFound("GET", f"/resources/{account}/{kind}")
        return await self._list(call, account, (kind,))

    @routes.add("GET", _PATH, caller=REQUIRED, audit=auditing.resource_asked)
    async def one(self, call: Call, account: str, kind: str, identifier: str) -> Response:
        """Show a resource; or, with ``check`` or ``permitted_roles``, answer who has a privilege on it (core 3.4)."""
        if kind not in RESOURCE_KINDS:
            raise RouteNotFound("GET", f"/resources/{account}/{kind}/{identifier}")
        name = ResourceName.of(account, kind, identifier)
        if call.query.flag("check"):
            return await self._check(call, name)
        if call.query.flag("permitted_roles"):
            return await self._permitted_roles(call, name)
        see(await self.roles.standing(call.caller, name), name)
        found = await Response.json_pieces(described(self.store.described([str(name)], TEXTS_MOST)))
        if found.pieces is None and not found.body:
            # It was deleted in between.
            raise NotFound.of(name)
        return found

    async def _list(self, call: Call, account: str | None, kinds: tuple[str, ...]) -> Response:
        limit, offset = call.query.positive_integer("limit"), call.query.natural("offset")
        counted, search = call.query.boolean("count"), SEARCH.read(call)
        if limit is None:
            limit = LIST_MOST if offset is None else LIST_PAGE
        elif limit > LIST_MOST and limit != LIST_EXCEPTION and not counted:
            message = f"'Limit' parameter must not exceed {LIST_MOST}"
            raise InvalidParameter("limit", message, code="unprocessable_entity")
        if account is not None:
            account_name(account)
        viewer = await self._acting(call, "role", "acting_as")
        owner = await self._owner(call, account, viewer)
        query = ResourcesQuery(viewer, account, kinds, owner, search, limit, offset or 0)
        if counted:
            return Response.json({"count": await self.store.count_visible(query)})
        found = described(self.store.described(await self.store.visible(query)))
        return await Response.json_pieces(found, head=b"[", tail=b"]")

    async def _acting(self, call: Call, *parameters: str) -> RoleName:
        """The role that the caller acts as: that of the first of these parameters that has a value, or its own.

        :raises Forbidden: there is no such role, or the caller does not hold it.
        """
        caller = call.caller.role
        texts = [call.query.text(parameter) for parameter in parameters]
        try:
            role = next((RoleName.parse(text) for text in texts if text), caller)
        except InvalidName as refusal:
            raise Forbidden(f"{caller} may not act as what is no role: {refusal.message}") from None
        if not (await self.roles.standing(call.caller, role.resource)).holds:
            raise Forbidden(f"{caller} may not act as {role}")
        return role

    async def _owner(self, call: Call, account: str | None, viewer: RoleName) -> RoleName | None:
        """The role of ``owner``, ``kind:id`` or a full id; that one exists is told to those who see it, or hold it.

        :raises InvalidParameter: it has not the form of an id.
        :raises NotFound: there is no such role, or as good as; the same is read for either.
        """
        given = call.query.text("owner")
        if given is None and not call.query.flag("owner"):
            return None
        parts = (given or "").split(":", 2)
        if len(parts) < 2:
            raise InvalidParameter("owner", f"'owner' must be the id of a role. Expected at least 2 tokens in {given or ''}")
        account, kind, identifier = [account or viewer.account, *parts] if len(parts) == 2 else parts
        try:
            owner = RoleName.of(account, kind, identifier)
        except InvalidName:
            raise NotFound(account, kind, identifier) from None
        standing = await self.roles.standing(viewer, owner.resource)
        if not (standing.holds or role_sight(standing) == Allowed()):
            raise NotFound.of(owner, hidden=standing.exists)
        return owner

    async def _check(self, call: Call, name: ResourceName) -> Response:
        privilege = _required(call, "privilege")
        caller = call.caller.role
        role = await self._acting(call, "role") if call.query.text("role") else caller
        standing = await self.roles.standing(call.caller, name)
        see(standing, name)
        if role != caller:
            standing = await self.roles.standing(role, name)
        return Response.empty(204 if use(standing, privilege) == Allowed() else 404)

    async def _permitted_roles(self, call: Call, name: ResourceName) -> Response:
        privilege = _required(call, "privilege", "permission")
        see(await self.roles.standing(call.caller, name), name)
        return await Response.json_array(in_batches(await self.store.permitted(name, privilege, PERMITTED_MOST)))


def _required(call: Call, *parameters: str) -> str:
    """The value of the first of these parameters that has one, be it empty (wire facts, core 3.4 and 10).

    :raises InvalidParameter: none has.
    """
    for value in map(call.query.text, parameters):
        if value is not None:
            return value
    raise InvalidParameter(parameters[0], parameters[0])
