"""The store of access: who has a privilege, directly or through others, on PostgreSQL.

Note [From both ends]

Whether a role hangs on another (``svc/services/access_paths.py``, Note [Levels]) is found by following the roles that it
holds, and those that these hold, a bounded number of memberships up. Most roles hold few. For one that holds many, the first
question is whether it is a direct member of any of the base's roles, of which there are few. The rest is searched in the
order of ids, and the search ends with the first match.

Each statement looks up memberships and permissions by comparisons of whole rows where more than one index would serve, so
that no other plan fits (``sql/access_facts.py``, Note [Plans that last]).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import attrs

from svc.model.access import AccessTarget, DirectAccess, PathStep, SearchFrontier, StepKind
from svc.model.names import RoleName
from svc.storage.driver.columns import to_array
from svc.storage.driver.statements import Statement, Statements
from svc.storage.sql.impact import VISIBLE

#: A role that holds no more roles than this is checked through these roles.
_LIGHT: Final = 100

#: For a resource with more permissions of one privilege, each role is looked up separately.
_FEW: Final = 200

# -- what is had directly ----------------------------------------------------------------------------------------------

_DIRECT: Final = Statement.with_name("access_direct")("""
    SELECT role_id, bool_or(owning) FROM (
        SELECT owner_id AS role_id, true AS owning FROM resources WHERE resource_id = $1::text AND owner_id >= $3::text
        UNION ALL
        SELECT given.role_id, false FROM unnest($2::text[]) AS asked (privilege), LATERAL (
            SELECT role_id FROM permissions
            WHERE resource_id = $1 AND permissions.privilege = asked.privilege AND role_id >= $3
            ORDER BY role_id LIMIT $4::bigint
        ) AS given
    ) AS direct
    GROUP BY role_id ORDER BY role_id LIMIT $4
""")


def _permitted_condition(resource: str, privilege: str, role: str) -> str:
    """Return a condition: a privilege on a resource is permitted to a role itself."""
    row = f"({resource}, {privilege}, {role})"
    return f"""EXISTS (
        SELECT FROM permissions
        WHERE (resource_id, privilege, role_id) >= {row} AND (resource_id, privilege, role_id) <= {row} OFFSET 0
    )"""


def _direct_condition(role: str, resource: str, privileges: str) -> str:
    """Return a condition: a role owns a resource, or is permitted one of the privileges itself."""
    return f"""(
        {role} = (SELECT owner_id FROM resources WHERE resource_id = {resource})
        OR EXISTS (
            SELECT FROM unnest({privileges}) AS asked (privilege) WHERE {
        _permitted_condition(resource, "asked.privilege", role)
    }
        )
    )"""


_AMONG: Final = Statement.with_name("access_direct_among")(f"""
    SELECT id, id = (SELECT owner_id FROM resources WHERE resource_id = $1::text)
    FROM unnest($3::text[]) AS held (id) WHERE {_direct_condition("held.id", "$1::text", "$2::text[]")}
""")

# -- memberships -------------------------------------------------------------------------------------------------------


def _step_statement(name: str, own: str, other: str) -> Statement:
    """Return the statement that leads from the roles ``$1`` in one column to those in the other, from the ids ``$2`` on."""
    return Statement.with_name(name)(f"""
        SELECT {own}, {other} FROM unnest($1::text[], $2::text[]) AS asked (id, start), LATERAL (
            SELECT {own}, {other} FROM memberships
            WHERE ({own}, {other}) >= (asked.id, asked.start) AND ({own}, {other}) < (asked.id, $3::text)
            ORDER BY {own}, {other} LIMIT $4::bigint
        ) AS next LIMIT $4
    """)


_MEMBERS: Final = _step_statement("access_members", "role_id", "member_id")
_HELD: Final = _step_statement("access_held", "member_id", "role_id")

# -- how far roles are from the base -----------------------------------------------------------------------------------


def _parents_query(role: str, before: str = "") -> str:
    """Return a query for the roles ``parents.role_id`` that a role is a direct member of."""
    bound = f" AND (member_id, role_id) < ({role}, {before})" if before else f" AND member_id = {role}"
    return f"(SELECT role_id FROM memberships WHERE (member_id, role_id) >= ({role}, ''){bound} OFFSET 0) AS parents"


def _in_base(role: str, base: str, resource: str, privileges: str) -> str:
    return f"""CASE WHEN {base}::text[] IS NULL THEN {_direct_condition(role, f"{resource}::text", f"{privileges}::text[]")}
        ELSE ({role} IN (SELECT unnest({base}::text[]))) IS TRUE END"""


def _near_condition(role: str, steps: str, base: str, resource: str, privileges: str) -> str:
    """Return a condition: a role is at most so many memberships from the base."""
    return f"""EXISTS (
        WITH RECURSIVE up (role_id, step) AS (
            SELECT {role}, 0
            UNION
            SELECT unnest(ARRAY(SELECT role_id FROM memberships WHERE member_id = up.role_id)), step + 1
            FROM up WHERE step < {steps}
        )
        SELECT FROM up WHERE {_in_base("up.role_id", base, resource, privileges)}
    )"""


#: The parameters that define the base: its roles, or where these are NULL, the roles that have a privilege directly.
_BASE: Final = ("$3", "$4", "$5")


def _of_base(condition: str = "true") -> str:
    """Return a condition: the candidate is a direct member of a role of the base."""
    return f"""EXISTS (
        SELECT FROM unnest($3::text[]) AS base (id) WHERE {condition} AND EXISTS (
            SELECT FROM memberships WHERE role_id = base.id AND member_id = candidate.id OFFSET 0
        )
    )"""


_EARLIER: Final = Statement.with_name("access_earlier")(f"""
    SELECT id FROM (
        SELECT id, parent, $3::text[] IS NULL OR (
            SELECT count(*) FROM (SELECT FROM memberships WHERE member_id = asked.id LIMIT {_LIGHT + 1}) AS few
        ) <= {_LIGHT} AS light
        FROM unnest($1::text[], $2::text[]) AS asked (id, parent) OFFSET 0
    ) AS candidate
    WHERE {_in_base("candidate.id", *_BASE)} OR CASE WHEN $6::integer = 0 THEN
        CASE WHEN light THEN EXISTS (
            SELECT FROM {_parents_query("candidate.id", "candidate.parent")} WHERE {_in_base("parents.role_id", *_BASE)}
        ) ELSE {_of_base("base.id < candidate.parent")} END
    ELSE
        CASE WHEN light THEN EXISTS (
            SELECT FROM {_parents_query("candidate.id")} WHERE {_in_base("parents.role_id", *_BASE)}
        ) ELSE {_of_base()} END
        OR EXISTS (
            SELECT FROM {_parents_query("candidate.id", "candidate.parent")} WHERE {
    _near_condition("parents.role_id", "$6", *_BASE)
}
        )
        OR $6 > 1 AND EXISTS (
            SELECT FROM {_parents_query("candidate.id")}
            WHERE parents.role_id <> candidate.parent AND {_near_condition("parents.role_id", "$6 - 1", *_BASE)}
        )
    END
""")

_NEAREST: Final = Statement.with_name("access_nearest")(f"""
    SELECT role_id FROM (
        SELECT role_id FROM memberships
        WHERE (member_id, role_id) >= ($1::text, '') AND (member_id, role_id) < ($1, $6::text)
        ORDER BY member_id, role_id OFFSET 0
    ) AS parents
    WHERE {_near_condition("parents.role_id", "$5::integer", "$2", "$3", "$4")}
    LIMIT 1
""")
_NEAREST_OF: Final = Statement.with_name("access_nearest_of")("""
    SELECT id FROM unnest($2::text[]) AS base (id)
    WHERE EXISTS (SELECT FROM memberships WHERE role_id = base.id AND member_id = $1::text OFFSET 0)
    ORDER BY id COLLATE "C" LIMIT 1
""")

# -- counts, and what roles have ---------------------------------------------------------------------------------------

_COUNT: Final = Statement.with_name("access_count")("""
    WITH RECURSIVE holders (role_id) AS (
        (
            SELECT owner_id FROM resources WHERE resource_id = $1::text
            UNION
            SELECT given.role_id FROM unnest($2::text[]) AS asked (privilege), LATERAL (
                SELECT role_id FROM permissions WHERE resource_id = $1 AND permissions.privilege = asked.privilege OFFSET 0
            ) AS given
        )
        UNION
        SELECT members.member_id FROM holders, LATERAL (
            SELECT member_id FROM memberships WHERE NOT $3::boolean AND role_id = holders.role_id OFFSET 0
        ) AS members
    )
    SELECT count(*) FROM holders
""")

_GIVEN: Final = Statement.with_name("access_given")(f"""
    SELECT thing.resource_id, thing.owner_id, NULL
    FROM unnest($1::text[]) AS asked (id), LATERAL (
        SELECT resource_id, owner_id FROM resources WHERE resource_id = asked.id OFFSET 0
    ) AS thing
    WHERE thing.owner_id IN (SELECT unnest($3::text[]))
    UNION ALL
    SELECT asked.id, given.role_id, sought.privilege
    FROM unnest($1) AS asked (id), unnest($2::text[]) AS sought (privilege), LATERAL (
        SELECT few.role_id FROM (
            SELECT role_id FROM permissions
            WHERE resource_id = asked.id AND permissions.privilege = sought.privilege LIMIT {_FEW}
        ) AS few
        WHERE few.role_id IN (SELECT unnest($3))
        UNION
        SELECT held.id FROM unnest($3) AS held (id)
        WHERE (
            SELECT count(*) FROM (
                SELECT FROM permissions
                WHERE resource_id = asked.id AND permissions.privilege = sought.privilege LIMIT {_FEW}
            ) AS few
        ) = {_FEW} AND {_permitted_condition("asked.id", "sought.privilege", "held.id")}
    ) AS given
""")


_RESOURCES: Final = Statement.with_name("access_resources")("""
    SELECT resource_id FROM resources WHERE resource_id > $1::text AND resource_id < $2::text
    ORDER BY resource_id LIMIT $3::bigint
""")


@attrs.frozen
class AccessStore:
    """Memberships, owners and permissions, read piece by piece. All texts are in the order of their bytes."""

    _database: Statements

    async def list_direct_holders(self, target: AccessTarget, start: str, limit: int) -> list[PathStep]:
        """Return the owner, and the roles that are permitted it themselves, in order, from the id ``start`` on."""
        rows = await self._database.fetch(_DIRECT, *_target_parameters(target), start, limit)
        return [_last_step(role, owns) for role, owns in rows]

    async def filter_direct_holders(self, target: AccessTarget, roles: Collection[str]) -> list[PathStep]:
        """Return those of ``roles`` that ``list_direct_holders`` has."""
        rows = await self._database.fetch(_AMONG, *_target_parameters(target), to_array(sorted(roles)))
        return [_last_step(role, owns) for role, owns in sorted(rows)]

    async def list_direct_members(self, asked: Sequence[tuple[str, str]], limit: int) -> list[tuple[str, str]]:
        """Return pairs of a role and a direct member of it, for pairs of a role of one account and the id to begin with.

        They are in the order of ``asked``, then of the members, ``limit`` at most. A pair of which there are two
        memberships, an ownership and a grant, is there twice.
        """
        return await self._follow_step(_MEMBERS, asked, limit)

    async def list_direct_memberships(self, asked: Sequence[tuple[str, str]], limit: int) -> list[tuple[str, str]]:
        """Return pairs of a role and one that it is a direct member of; otherwise as ``list_direct_members``."""
        return await self._follow_step(_HELD, asked, limit)

    async def filter_reached_earlier(
        self, candidates: Sequence[tuple[str, str]], base: SearchFrontier, steps: int
    ) -> frozenset[str]:
        """Return those roles, of pairs of a role and one of ``steps`` memberships from the base, of which it is a member,
        that are no more than ``steps`` memberships from the base, or one more through a role whose id comes before.
        """
        roles, parents = map(to_array, zip(*candidates, strict=True))
        rows = await self._database.fetch(_EARLIER, roles, parents, *_base_parameters(base), steps)
        return frozenset(role for (role,) in rows)

    async def find_nearest_role(self, role: str, base: SearchFrontier, steps: int) -> str | None:
        """Return the first role, by id, that ``role`` is a direct member of, and that is at most ``steps`` memberships from
        the base; ``None`` if there is none.
        """
        if steps == 0 and base.roles is not None:
            rows = await self._database.fetch(_NEAREST_OF, role, to_array(base.roles))
        else:
            rows = await self._database.fetch(_NEAREST, role, *_base_parameters(base), steps, _account_end(role))
        return next((name for (name,) in rows), None)

    async def count_holders(self, target: AccessTarget, *, direct: bool) -> int:
        """Return how many roles ``direct`` has, with all that hold them unless only ``direct`` ones count."""
        ((count,),) = await self._database.fetch(_COUNT, *_target_parameters(target), direct)
        return int(count)

    async def list_rights(
        self, resources: Sequence[str], privileges: Sequence[str], roles: Collection[str]
    ) -> list[DirectAccess]:
        """Return what each of ``roles`` has on each of the resources by itself."""
        rows = await self._database.fetch(_GIVEN, to_array(resources), to_array(privileges), to_array(roles))
        return [DirectAccess(*row) for row in rows]

    async def list_resources(self, account: str, after: str, limit: int) -> list[str]:
        """Return the full ids of an account's resources, in order, from behind one on, seen or not."""
        rows = await self._database.fetch(_RESOURCES, max(f"{account}:", after), _account_end(f"{account}:"), limit)
        return [name for (name,) in rows]

    async def filter_visible(self, caller: RoleName, resources: Collection[str]) -> frozenset[str]:
        """Return those of the resources, by their full ids, that the caller sees (ROLE-4)."""
        rows = await self._database.fetch(VISIBLE, to_array(sorted(resources)), str(caller))
        return frozenset(name for (name,) in rows)

    async def _follow_step(self, step: Statement, asked: Sequence[tuple[str, str]], limit: int) -> list[tuple[str, str]]:
        roles, starts = map(to_array, zip(*asked, strict=True))
        return [
            (role, other)
            for role, other in await self._database.fetch(step, roles, starts, _account_end(asked[0][0]), limit)
        ]


def _target_parameters(target: AccessTarget) -> tuple[str, str]:
    return str(target.resource), to_array(target.privileges)


def _base_parameters(base: SearchFrontier) -> tuple[str | None, str, str]:
    return None if base.roles is None else to_array(sorted(base.roles)), *_target_parameters(base.target)


def _last_step(role: str, owns: bool) -> PathStep:
    return PathStep(role, StepKind.OWNER if owns else StepKind.PERMITTED)


def _account_end(role: str) -> str:
    """Return a bound that sorts after all ids of the role's account: a semicolon follows the colon in byte order."""
    return f"{role.partition(':')[0]};"
