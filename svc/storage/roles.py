"""Roles as PostgreSQL keeps them: how they stand towards resources, and who their members are."""

from __future__ import annotations

from typing import Final

import attrs
from zope.interface import implementer

from svc.interfaces import IRoles
from svc.names import ROLE_KINDS, ResourceName, RoleName
from svc.records import Membership, MembersQuery, Standing
from svc.storage.columns import column
from svc.storage.database import Database, Statement
from svc.storage.standing import WITH_STANDING, standing_of

#: The standing of role ``$1`` towards resource ``$2``.
STANDING: Final = Statement("standing", f"{WITH_STANDING} SELECT * FROM standing")

_EXISTS: Final = Statement("role_exists", "SELECT EXISTS (SELECT FROM roles WHERE role_id = $1::text)")

#: A role's members lie in its own account, so that those of one kind are a range of the key.
_MATCHING: Final = """
    FROM memberships
    WHERE role_id = $1::text AND (role_id, member_id) >= ($1, $2::text) AND (role_id, member_id) < ($1, $3::text)
        AND split_part(member_id, ':', 2) = ANY ($4::text[])
"""

_MEMBERS: Final = Statement(
    "members",
    f"""
    SELECT role_id, member_id, admin_option, ownership, policy_id {_MATCHING}
    ORDER BY member_id, ownership DESC LIMIT $5::bigint OFFSET $6::bigint
    """,
)

_COUNT_MEMBERS: Final = Statement("count_members", f"SELECT count(*) {_MATCHING}")


@implementer(IRoles)
@attrs.frozen
class RoleStore:
    """Provides ``IRoles`` on PostgreSQL."""

    _database: Database

    async def standing(self, caller: RoleName, resource: ResourceName) -> Standing:
        """See ``IRoles``."""
        (row,) = await self._database.fetch(STANDING, str(caller), str(resource))
        return standing_of(row)

    async def exists(self, role: RoleName) -> bool:
        """See ``IRoles``."""
        ((exists,),) = await self._database.fetch(_EXISTS, str(role))
        return bool(exists)

    async def members(self, query: MembersQuery) -> list[Membership]:
        """See ``IRoles``."""
        if (matching := _matching(query)) is None:
            return []
        rows = await self._database.fetch(_MEMBERS, *matching, query.limit, query.offset)
        return [Membership(*row) for row in rows]

    async def count_members(self, query: MembersQuery) -> int:
        """See ``IRoles``."""
        if (matching := _matching(query)) is None:
            return 0
        ((count,),) = await self._database.fetch(_COUNT_MEMBERS, *matching)
        return int(count)


def _matching(query: MembersQuery) -> tuple[str, str, str, str] | None:
    """The parameters of ``_MATCHING``; ``None`` when the query asks for kinds that no role has, and for no others."""
    kinds = sorted(ROLE_KINDS.intersection(query.kinds) if query.kinds else ROLE_KINDS)
    if not kinds:
        return None
    account = query.role.account
    # A semicolon follows the colon in byte order.
    return str(query.role), f"{account}:{kinds[0]}:", f"{account}:{kinds[-1]};", column(kinds)
