"""The rows that a load may change, before and after, for dry runs.

The statements take ids first. They are lateral, with ``OFFSET 0``, for Note [Plans that last] in ``access_facts``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import starmap
from typing import Any, Final

from svc.model.authorization import INSPECT
from svc.model.names import RoleName
from svc.model.policy_loads import (
    AnnotationRow,
    MembershipRow,
    PermissionRow,
    RecordedOwner,
    ResourceRow,
    Rows,
    Side,
    Surroundings,
)
from svc.storage.driver.columns import column_batches, fetch_for_rows, rows_of, to_array
from svc.storage.driver.statements import Statement, Transaction
from svc.storage.sql.access_facts import inspected_query
from svc.storage.sql.owners import own_within
from svc.storage.sql.role_closure import CALLER, held_among

# -- the rows that go with resources -----------------------------------------------------------------------------------

#: More than is really deleted with them, since owners and policies may be deleted without a thing. Includes a user's public
#: keys.
_GONE: Final = Statement.with_name("impact_gone")(f"""
    WITH RECURSIVE gone (id) AS (
        SELECT unnest($1::text[]) COLLATE "C"
        UNION
        SELECT unnest(ARRAY(
            SELECT resource_id FROM resources WHERE owner_id = gone.id
            UNION ALL
            SELECT resource_id FROM resources WHERE policy_id = gone.id
            UNION ALL
            SELECT role_id FROM roles WHERE policy_id = gone.id
            UNION ALL
            {own_within("gone.id", "$2::text")}
            UNION ALL
            SELECT resource_id FROM resources
            WHERE gone.id ~ '^[^:]*:user:'
                AND resource_id >= regexp_replace(gone.id, '^([^:]*):user:', '\\1:public_key:user/') || '/'
                AND resource_id < regexp_replace(gone.id, '^([^:]*):user:', '\\1:public_key:user/') || '0'
        )) FROM gone
    )
    SELECT id FROM gone LIMIT $3::bigint
""")


def _touched_statement(name: str, table: str, columns: str, ends: Sequence[str]) -> Statement:
    """Return the rows of a table that name an id in one of these columns."""
    selects = " UNION ALL ".join(f"SELECT {columns} FROM {table} WHERE {end} = gone.id" for end in ends)
    return Statement.with_name(name)(f"""
        SELECT {columns} FROM unnest($1::text[]) AS gone (id), LATERAL (
            SELECT {columns} FROM ({selects}) AS looked OFFSET 0
        ) AS found LIMIT $2::bigint
    """)


_MEMBERSHIP: Final = "role_id, member_id, ownership, admin_option"
_PERMISSION: Final = "resource_id, privilege, role_id"
_ANNOTATION: Final = "resource_id, name, value"

_TOUCHED: Final[Sequence[tuple[Any, Statement]]] = (
    (ResourceRow, _touched_statement("impact_resources", "resources", "resource_id, owner_id", ["resource_id"])),
    (
        MembershipRow,
        _touched_statement("impact_memberships", "memberships", _MEMBERSHIP, ["role_id", "member_id", "policy_id"]),
    ),
    (
        PermissionRow,
        _touched_statement("impact_permissions", "permissions", _PERMISSION, ["resource_id", "role_id", "policy_id"]),
    ),
    (AnnotationRow, _touched_statement("impact_annotations", "annotations", _ANNOTATION, ["resource_id", "policy_id"])),
)


async def list_cascading_ids(
    transaction: Transaction, policy: str, resources: Sequence[str], most: int | None = None
) -> dict[str, None] | None:
    """Return the ids of all that may be deleted with resources in a load of ``policy``, with these; ``None`` for more than
    ``most``.
    """
    gone: dict[str, None] = {}
    limit = None if most is None else most + 1
    for (ids,) in column_batches([(resource,) for resource in resources]):
        gone.update((full, None) for (full,) in await transaction.fetch(_GONE, ids, policy, limit))
        if most is not None and len(gone) > most:
            return None
    return gone


async def read_deletion_cascade(transaction: Transaction, policy: str, resources: Sequence[str], most: int) -> Rows | None:
    """See ``PolicyTransaction``."""
    gone = await list_cascading_ids(transaction, policy, resources, most)
    if gone is None:
        return None
    sorts, count = [], 0
    for row, statement in _TOUCHED:
        found: dict[Any, None] = {}
        for (ids,) in column_batches([(full,) for full in gone]):
            found.update((row(*values), None) for values in await transaction.fetch(statement, ids, most + 1))
            if count + len(found) > most:
                return None
        count += len(found)
        sorts.append(tuple(found))
    return Rows(*sorts)


# -- the surroundings of resources -------------------------------------------------------------------------------------

_OWNERS: Final = Statement.with_name("impact_seen")(f"""
    SELECT resource_id, owner_id, policy_id FROM {rows_of("text")} AS asked (resource_id) JOIN resources USING (resource_id)
""")


def _sample_statement(name: str, table: str, columns: str, end: str) -> Statement:
    """Return some of the rows of a table that name an id in this column: ``$2`` for each id, ``$3`` in all."""
    return Statement.with_name(name)(f"""
        SELECT {columns} FROM unnest($1::text[]) AS asked (id), LATERAL (
            SELECT {columns} FROM {table} WHERE {end} = asked.id LIMIT $2::bigint
        ) AS found LIMIT $3::bigint
    """)


_MEMBERS: Final = _sample_statement("impact_members", "memberships", _MEMBERSHIP, "role_id")
_HELD: Final = _sample_statement("impact_held", "memberships", _MEMBERSHIP, "member_id")
_GIVEN: Final = _sample_statement("impact_permitted", "permissions", _PERMISSION, "resource_id")
_PERMITS: Final = _sample_statement("impact_permits", "permissions", _PERMISSION, "role_id")
_ANNOTATED: Final = _sample_statement("impact_annotated", "annotations", _ANNOTATION, "resource_id")
_OWNED: Final = _sample_statement("impact_owned", "resources", "resource_id, owner_id", "owner_id")
_OWNER: Final = _sample_statement("impact_owner", "resources", "resource_id, owner_id", "resource_id")
_SAMPLES: Final[Sequence[tuple[Any, Sequence[Statement]]]] = (
    (MembershipRow, [_MEMBERS, _HELD]),
    (PermissionRow, [_GIVEN, _PERMITS]),
    (AnnotationRow, [_ANNOTATED]),
)


async def read_surroundings(transaction: Transaction, resources: Sequence[str], each: int) -> Surroundings:
    """See ``PolicyTransaction``."""
    ids = [(resource,) for resource in resources]
    seen = {full: RecordedOwner(owner, by) for full, owner, by in await fetch_for_rows(transaction, _OWNERS, ids)}
    sorts = []
    for row, statements in _SAMPLES:
        found: dict[Any, None] = {}
        for statement in statements:
            found.update((row(*values), None) for values in await fetch_for_rows(transaction, statement, ids, each, None))
        sorts.append(tuple(found))
    return Surroundings(seen, Rows((), *sorts))


# -- what leads on from roles and resources ----------------------------------------------------------------------------

_SIDES: Final[dict[Side, tuple[Statement | None, Statement | None, Statement | None]]] = {
    Side.MEMBERS: (None, _MEMBERS, None),
    Side.HELD: (None, _HELD, None),
    Side.GRANTED: (_OWNED, None, _PERMITS),
    Side.GIVEN: (_OWNER, None, _GIVEN),
}


async def read_adjacent_rows(transaction: Transaction, side: Side, names: Sequence[str], each: int, most: int) -> Rows:
    """See ``PolicyTransaction``."""
    ids, sorts = to_array(names), []
    for row, statement in zip((ResourceRow, MembershipRow, PermissionRow), _SIDES[side], strict=True):
        found = [] if statement is None else await transaction.fetch(statement, ids, each, most)
        sorts.append(tuple(starmap(row, found)))
    return Rows(*sorts)


# -- the resources that a caller sees ----------------------------------------------------------------------------------

#: The roles that have any privilege on a ``thing`` that the caller doesn't own.
_PERMITTED: Final = """
    SELECT given.role_id FROM thing, LATERAL (
        SELECT role_id FROM permissions WHERE resource_id = thing.resource_id OFFSET 0
    ) AS given
    WHERE (owner_id IN (SELECT role_id FROM owning)) IS NOT TRUE
"""

#: The owners of what the caller doesn't own; and the roles that may inspect a policy which may own these.
_UNOWNED: Final = "SELECT DISTINCT owner_id FROM thing WHERE (owner_id IN (SELECT role_id FROM owning)) IS NOT TRUE"
_INSPECTORS: Final = f"""
    SELECT given.role_id FROM inspectable, LATERAL (
        SELECT role_id FROM permissions WHERE resource_id = inspectable.id AND privilege = '{INSPECT}' OFFSET 0
    ) AS given
"""

VISIBLE: Final = Statement.with_name("impact_visible")(f"""
    WITH RECURSIVE {CALLER.format(caller="$2")},
    thing (resource_id, owner_id) AS MATERIALIZED (
        SELECT found.resource_id, found.owner_id FROM unnest($1::text[]) AS asked (id), LATERAL (
            SELECT resource_id, owner_id FROM resources WHERE resource_id = asked.id OFFSET 0
        ) AS found
    ),
    {held_among("owning", "$2", "SELECT owner_id FROM thing")},
    {held_among("permitted", "$2", _PERMITTED)},
    {held_among("inspecting", "$2", _INSPECTORS)},
    {inspected_query(_UNOWNED, "SELECT role_id FROM inspecting")}
    SELECT resource_id FROM thing WHERE (owner_id IN (SELECT role_id FROM owning)) IS TRUE OR EXISTS (
        SELECT FROM permissions
        WHERE permissions.resource_id = thing.resource_id AND (role_id IN (SELECT role_id FROM permitted)) IS TRUE OFFSET 0
    ) OR (owner_id IN (SELECT id FROM inspected)) IS TRUE
""")


async def filter_visible(transaction: Transaction, caller: RoleName, resources: Sequence[str]) -> frozenset[str]:
    """See ``PolicyTransaction``."""
    rows = await fetch_for_rows(transaction, VISIBLE, [(resource,) for resource in resources], str(caller))
    return frozenset(full for (full,) in rows)
