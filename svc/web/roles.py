"""Roles: who belongs to them."""

from __future__ import annotations

from typing import Final

import attrs

from svc.access import see_role
from svc.dialect import Dialect
from svc.errors import RouteNotFound
from svc.interfaces import IRoles
from svc.names import ROLE_KINDS, RoleName
from svc.records import Membership, MembersQuery
from svc.web.response import Response
from svc.web.routing import REQUIRED, Call, Routes

#: How many members a page has when ``offset`` is given without ``limit`` (source document, endpoint 6).
_PAGE: Final = 10


@attrs.frozen
class Roles:
    """The routes of roles."""

    routes = Routes()

    store: IRoles
    dialect: Dialect

    @routes.add("GET", "/roles/<flat:account>/<kind>/<tail:identifier>", caller=REQUIRED)
    async def members(self, call: Call, account: str, kind: str, identifier: str) -> Response:
        """List or count the direct members of a role (source document, endpoint 6)."""
        if kind not in ROLE_KINDS or not call.query.flag("members"):
            raise RouteNotFound("GET", f"/roles/{account}/{kind}/{identifier}")
        limit, offset = call.query.positive_integer("limit"), call.query.natural("offset")
        counted = self._counted(call)
        if limit is None and offset is not None:
            limit = _PAGE
        role = RoleName.of(account, kind, identifier)
        standing = await self.store.standing(call.caller.role, role.resource)
        see_role(standing, role, call.caller.role, self.dialect)
        query = MembersQuery(role, call.query.texts("kind"), limit=limit, offset=offset or 0)
        if counted:
            return Response.json({"count": await self.store.count_members(query)})
        return Response.json([_record(member) for member in await self.store.members(query)])

    def _counted(self, call: Call) -> bool:
        return call.query.flag("count") if self.dialect.count_by_presence else call.query.boolean("count")


def _record(member: Membership) -> dict[str, object]:
    """A membership as the source document shows it; a row that no policy made has no ``policy`` (wire facts, core 0.4)."""
    record: dict[str, object] = {
        "admin_option": member.admin_option,
        "ownership": member.ownership,
        "role": member.role,
        "member": member.member,
    }
    return record if member.policy is None else record | {"policy": member.policy}
