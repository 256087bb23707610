"""The store of resources on PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

import attrs
from zope.interface import implementer

from svc.model.errors import TooManyRoles
from svc.model.names import ResourceName
from svc.model.ports import IResources
from svc.model.query_results import Resource, ResourcesQuery
from svc.storage.driver.database import Database, Statement
from svc.storage.sql import descriptions
from svc.storage.sql.visibility import listing

#: Members that are left out by the limit of one role are too many for the answer, too.
_PERMITTED: Final = Statement.named("resource_permitted")("""
    WITH RECURSIVE permitted (role_id) AS (
        (
            SELECT owner_id FROM resources WHERE resource_id = $1::text
            UNION
            SELECT role_id FROM permissions WHERE resource_id = $1 AND privilege = $2::text
        )
        UNION
        SELECT unnest(ARRAY(SELECT member_id FROM memberships WHERE role_id = permitted.role_id LIMIT $3::bigint))
        FROM permitted
    )
    SELECT ARRAY(SELECT role_id FROM (SELECT role_id FROM permitted LIMIT $3) AS found ORDER BY role_id)
""")


@implementer(IResources)
@attrs.frozen
class ResourceStore:
    """Provides ``IResources`` on PostgreSQL."""

    _database: Database

    async def visible(self, query: ResourcesQuery) -> list[str]:
        """See ``IResources``."""
        return (await listing(self._database, query, counting=False)).ids

    async def count_visible(self, query: ResourcesQuery) -> int:
        """See ``IResources``."""
        return (await listing(self._database, query, counting=True)).number

    def described(self, ids: Sequence[str], text_limit: int = 0) -> AsyncIterator[Sequence[Resource]]:
        """See ``IResources``."""
        return descriptions.described(self._database, ids, text_limit)

    async def permitted(self, resource: ResourceName, privilege: str, limit: int) -> list[str]:
        """See ``IResources``."""
        ((roles,),) = await self._database.fetch(_PERMITTED, str(resource), privilege, limit + 1)
        if len(roles) > limit:
            raise TooManyRoles(limit)
        return list(roles)
