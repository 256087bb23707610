"""The access facts of a caller towards a resource, as pieces of SQL that several statements share.

Note [The caller of a token]

A token is of one creation of its role (``Caller``). Each reading for its caller has a row of ``access_facts``, or its like,
with ``caller_current``: whether that is the creation of the role that exists now. ``access_facts_of``, through which every
row of that kind goes, raises ``CallerReplaced`` where it is not, so none can be forgotten, and none costs a round trip more.
A role that is judged by its name alone, since the caller was found to hold it, is handed over as a ``RoleName``.

Note [Standing in one statement]

``held`` are all roles that the caller holds, computed breadth first and only as far as the statement asks: an ``EXISTS``
that finds what it looks for ends it. An account's admin holds every role of the account, so whether a caller owns something
must not depend on listing them. It is therefore asked from the other end too: ``administrators`` are the owner's role and
the roles that hold it through memberships with admin option alone. They are few, and a caller who holds one of them holds
the owner's role. The admin is found among them by the first row of ``held``, a workload after its handful of roles.

Note [Plans that last]

A prepared statement is planned once for its session, perhaps while the tables are as good as empty, so plans must not depend
on sizes. A subquery in ``ARRAY`` or with ``OFFSET 0`` is planned by itself: its only reasonable plan is to look in the index
that serves its condition. An array is moreover taken for ten rows, so that no large table is set up for ``held``. The
sessions (``location``) use generic plans, and read a table in full only where no index serves. And no table that has several
indexes is ever quite empty (``schema/0003_search.sql``): to a single row every index leads as soon as any other.
"""

from __future__ import annotations

from typing import Any, Final

from svc.model.errors import CallerReplaced
from svc.model.query_results import AccessFacts, Asker, Caller

#: A common table expression: the roles that ``caller`` holds, itself included. ``UNION`` ends circles of memberships.
HELD: Final = """
    held (role_id) AS (
        VALUES ({caller}::text COLLATE "C")
        UNION
        SELECT unnest(ARRAY(SELECT role_id FROM memberships WHERE member_id = held.role_id)) FROM held
    )
"""

#: Whether a role is of the creation ``number``, any if that is NULL; NULL when there is no such role.
CURRENT: Final = "(SELECT {number}::bigint IS NULL OR creation = {number} FROM roles WHERE role_id = {caller})"


def administrators(roles: str, *carried: str) -> str:
    """Return a common table expression ``administrators (role_id)``: the roles that the query ``roles`` selects, and those
    that hold them through memberships with admin option alone. Columns of the query before that are ``carried`` along.
    """
    return f"""
    administrators ({", ".join([*carried, "role_id"])}) AS (
        {roles}
        UNION
        SELECT {"".join(f"{column}, " for column in carried)}unnest(ARRAY(
            SELECT member_id FROM memberships WHERE role_id = administrators.role_id AND admin_option
        )) FROM administrators
    )
    """


def administrators_of(role: str) -> str:
    """Return a query ``(role_id)``: a role, and those that hold it through memberships with admin option alone."""
    return f"WITH RECURSIVE {administrators(f'SELECT {role}')} SELECT role_id FROM administrators"


#: Common table expressions after ``held`` of role ``$1``, the last of them with one row, ``access_facts``, about resource
#: ``$2``, of the role whose creation is ``$3``. Where there is no such resource nothing is looked for in ``held``.
JUDGED: Final = f"""
    {administrators("SELECT owner_id FROM resources WHERE resource_id = $2::text")},
    ownership (owns) AS MATERIALIZED (
        SELECT CASE WHEN EXISTS (SELECT FROM administrators)
            THEN EXISTS (SELECT FROM held WHERE role_id IN (SELECT role_id FROM administrators)) ELSE false END
    ),
    access_facts (caller_current, resource_exists, owns, privileges, holds, policy_id) AS (
        SELECT
            {CURRENT.format(number="$3", caller="$1")}, resource_id IS NOT NULL, owns,
            CASE WHEN owns THEN '{{}}' ELSE ARRAY(
                SELECT privilege
                FROM (SELECT privilege, role_id FROM permissions WHERE resource_id = $2 OFFSET 0) AS given
                WHERE role_id IN (SELECT role_id FROM held)
            ) END,
            CASE WHEN EXISTS (SELECT FROM roles WHERE role_id = $2)
                THEN owns OR EXISTS (SELECT FROM held WHERE role_id = $2) ELSE false END,
            policy_id
        FROM ownership LEFT JOIN resources ON resource_id = $2
    )
"""

#: The beginning of a statement with one row ``access_facts``: of role ``$1``, its creation ``$3``, about resource ``$2``.
WITH_ACCESS_FACTS: Final = f"WITH RECURSIVE {HELD.format(caller='$1')}, {JUDGED}"


def identity(caller: Asker) -> tuple[str, int | None]:
    """Return a caller as the parameters of a statement: the role's full id, and its creation, ``None`` for any."""
    return (str(caller.role), caller.creation) if isinstance(caller, Caller) else (str(caller), None)


def access_facts_of(row: tuple[Any, ...]) -> AccessFacts:
    """Make an ``AccessFacts`` of a row of ``access_facts``.

    :raises CallerReplaced: there is a role of the caller's name, and of another creation.
    """
    current, exists, owns, privileges, holds, recorded_by = row
    if current is False:
        raise CallerReplaced
    return AccessFacts(current is not None, exists, owns, frozenset(privileges), holds, recorded_by)
