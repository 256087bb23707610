"""Which of many roles a caller holds, as pieces of SQL that several statements share.

Note [Few roles or few members]

A workload holds a handful of roles, of which each may have a million members; an account's admin holds a million. Evaluating
thousands of rows must not list the million in either case. So up to ``ROLES_FEW`` roles of the caller are listed. When these
are all, they are the answer. Otherwise the members of each distinct role in question are followed, up to ``MEMBERS_FEW``,
and when these are all, the caller is among them or doesn't hold the role. Otherwise it is evaluated as in ``access_facts``,
Note [Standing in one statement]: only for a caller who neither administers it, nor reaches it soon, are all roles listed,
once.

A pair of roles can have two memberships, by ownership and by a grant: a limit of rows must be twice that of roles.
"""

from __future__ import annotations

from typing import Final

from svc.storage.sql.access_facts import HELD, administrators_of

#: A caller with fewer roles has them listed.
ROLES_FEW: Final = 1000

#: The most members of a role that are followed.
MEMBERS_FEW: Final = 100

#: Common table expressions of a caller, after which those of :func:`held_among` may come.
CALLER: Final = f"""
    {HELD},
    first_held (role_id) AS (
        VALUES ({{caller}}::text COLLATE "C")
        UNION
        SELECT unnest(ARRAY(SELECT role_id FROM memberships WHERE member_id = first_held.role_id LIMIT {2 * ROLES_FEW}))
        FROM first_held
    ),
    few (role_id) AS MATERIALIZED (SELECT role_id FROM first_held LIMIT {ROLES_FEW}),
    extent (complete) AS MATERIALIZED (SELECT count(*) < {ROLES_FEW} FROM few)
"""


def held_among(name: str, caller: str, roles: str) -> str:
    """Return a common table expression ``name (role_id)``: of the roles that the query ``roles (role_id)`` finds, all that
    ``caller`` holds, and perhaps others that it holds. The query is not run for a caller with few roles.
    """
    return f"""
    {name} (role_id) AS MATERIALIZED (
        SELECT role_id FROM few
        UNION ALL
        SELECT role_id FROM (
            SELECT role_id, ARRAY(
                WITH RECURSIVE members (role_id) AS (
                    SELECT different.role_id
                    UNION
                    SELECT unnest(ARRAY(
                        SELECT member_id FROM memberships WHERE role_id = members.role_id LIMIT {2 * MEMBERS_FEW}
                    )) FROM members
                )
                SELECT role_id FROM members LIMIT {MEMBERS_FEW}
            ) AS members
            FROM (
                SELECT DISTINCT role_id FROM ({roles}) AS asked (role_id) WHERE NOT (SELECT complete FROM extent) OFFSET 0
            ) AS different
            OFFSET 0
        ) AS judged
        WHERE CASE
            WHEN {caller} = ANY (members) THEN true
            WHEN cardinality(members) < {MEMBERS_FEW} THEN false
            ELSE EXISTS (SELECT FROM held WHERE held.role_id = ANY (ARRAY({administrators_of("judged.role_id")})) OFFSET 0)
        END
    )
    """


_UPDATERS: Final = """
    SELECT given.role_id FROM thing, LATERAL (
        SELECT role_id FROM permissions WHERE resource_id = thing.resource_id AND privilege = 'update' OFFSET 0
    ) AS given
    WHERE (owner_id IN (SELECT role_id FROM owning)) IS NOT TRUE
"""


def updating_query(caller: str) -> str:
    """Return the common table expressions for :data:`UPDATABLE`, after ``thing (resource_id, owner_id)``."""
    return f"{held_among('owning', caller, 'SELECT owner_id FROM thing')}, {held_among('updating', caller, _UPDATERS)}"


#: Whether the caller has the privilege ``update`` on the resource ``thing``, by ownership or permission.
UPDATABLE: Final = """(
    (owner_id IN (SELECT role_id FROM owning)) IS TRUE
    OR EXISTS (
        SELECT FROM permissions
        WHERE resource_id = thing.resource_id AND privilege = 'update'
            AND (role_id IN (SELECT role_id FROM updating)) IS TRUE
        OFFSET 0
    )
)"""
