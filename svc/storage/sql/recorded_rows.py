"""The rows that policies record, of four sorts, and restrictions of roles: read for a load, and changed by it, in few
statements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, Generic, TypeVar

import attrs

from svc.model.names import ACTOR_KINDS, ROLE_KINDS
from svc.model.policy_rows import (
    AnnotationRow,
    Changes,
    MembershipRow,
    PermissionRow,
    Present,
    ResourceRow,
    RestrictionRow,
    Rows,
)
from svc.model.query_results import Sealed
from svc.storage.driver.columns import for_each, rows_of
from svc.storage.driver.database import Statement, Transaction
from svc.storage.sql import search

Row = TypeVar("Row", bound=tuple[Any, ...])

# -- reading ----------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class _Table(Generic[Row]):
    """A sort of rows, whose first ``key`` fields are the key.

    ``own`` takes a policy and returns the rows that it recorded. ``foreign`` takes columns of keys, then a policy, and
    returns the rows with one of those keys that the policy did not record.
    """

    row: Callable[..., Row]
    key: int
    own: Statement
    foreign: Statement

    def keys(self, rows: Sequence[Row]) -> list[tuple[Any, ...]]:
        """Return the keys of rows."""
        return [row[: self.key] for row in rows]

    async def read(
        self, transaction: Transaction, policy: str, keys: Sequence[tuple[Any, ...]]
    ) -> tuple[tuple[Row, ...], ...]:
        """Return the policy's own rows, and the foreign ones."""
        own = await transaction.fetch(self.own, policy)
        foreign = await for_each(transaction, self.foreign, keys, policy)
        return tuple(self.row(*row) for row in own), tuple(self.row(*row) for row in foreign)


_RESOURCES: Final = _Table(
    row=ResourceRow,
    key=1,
    own=Statement("resources_own", "SELECT resource_id, owner_id FROM resources WHERE policy_id = $1::text"),
    foreign=Statement.named("resources_foreign")(f"""
        SELECT resource_id, owner_id FROM {rows_of("text")} AS wanted (resource_id) JOIN resources USING (resource_id)
        WHERE policy_id IS DISTINCT FROM $2::text
    """),
)
_MEMBERSHIPS: Final = _Table(
    row=MembershipRow,
    key=3,
    own=Statement(
        "memberships_own", "SELECT role_id, member_id, ownership, admin_option FROM memberships WHERE policy_id = $1::text"
    ),
    foreign=Statement.named("memberships_foreign")(f"""
        SELECT role_id, member_id, ownership, admin_option
        FROM {rows_of("text", "text", "boolean")} AS wanted (role_id, member_id, ownership)
            JOIN memberships USING (role_id, member_id, ownership)
        WHERE policy_id IS DISTINCT FROM $4::text
    """),
)
_PERMISSIONS: Final = _Table(
    row=PermissionRow,
    key=3,
    own=Statement("permissions_own", "SELECT resource_id, privilege, role_id FROM permissions WHERE policy_id = $1::text"),
    foreign=Statement.named("permissions_foreign")(f"""
        SELECT resource_id, privilege, role_id
        FROM {rows_of("text", "text", "text")} AS wanted (resource_id, privilege, role_id)
            JOIN permissions USING (resource_id, privilege, role_id)
        WHERE policy_id IS DISTINCT FROM $4::text
    """),
)
_ANNOTATIONS: Final = _Table(
    row=AnnotationRow,
    key=2,
    own=Statement("annotations_own", "SELECT resource_id, name, value FROM annotations WHERE policy_id = $1::text"),
    foreign=Statement.named("annotations_foreign")(f"""
        SELECT resource_id, name, value
        FROM {rows_of("text", "text")} AS wanted (resource_id, name) JOIN annotations USING (resource_id, name)
        WHERE policy_id IS DISTINCT FROM $3::text
    """),
)
_STORED_RESTRICTIONS: Final = Statement.named("restrictions_stored")("""
    SELECT asked.role_id, cidr FROM unnest($1::text[]) AS asked (role_id), LATERAL (
        SELECT cidr FROM restrictions WHERE restrictions.role_id = asked.role_id OFFSET 0
    ) AS restriction
""")
_RESTRICTIONS: Final = Statement.named("restrictions_own")("""
    SELECT wanted.role_id, cidr
    FROM unnest($1::text[]) AS wanted (role_id), LATERAL (
        SELECT cidr FROM restrictions WHERE restrictions.role_id = wanted.role_id OFFSET 0
    ) AS restriction
    WHERE (SELECT policy_id FROM roles WHERE roles.role_id = wanted.role_id) = $2::text
""")
_EXISTING: Final = Statement.named("resources_existing")(f"""
    SELECT resource_id FROM {rows_of("text")} AS asked (resource_id) JOIN resources USING (resource_id)
""")


async def read(transaction: Transaction, policy: str, wanted: Rows, deleted: Sequence[str]) -> Present:
    """Read what bears on loading ``wanted`` into the policy, and on deleting the resources ``deleted``."""
    resources = dict.fromkeys((*(row.resource for row in wanted.resources), *deleted))
    tables = [
        await _RESOURCES.read(transaction, policy, [(resource,) for resource in resources]),
        await _MEMBERSHIPS.read(transaction, policy, _MEMBERSHIPS.keys(wanted.memberships)),
        await _PERMISSIONS.read(transaction, policy, _PERMISSIONS.keys(wanted.permissions)),
        await _ANNOTATIONS.read(transaction, policy, _ANNOTATIONS.keys(wanted.annotations)),
    ]
    own, foreign = (Rows(*rows) for rows in zip(*tables, strict=True))
    restricted = await for_each(transaction, _RESTRICTIONS, _restrictable(wanted.resources), policy)
    return Present(attrs.evolve(own, restrictions=tuple(RestrictionRow(*row) for row in restricted)), foreign)


async def existing(transaction: Transaction, resources: Sequence[str]) -> frozenset[str]:
    """Return those of the resources that are there."""
    return frozenset(chain.from_iterable(await for_each(transaction, _EXISTING, [(asked,) for asked in resources])))


async def stored(transaction: Transaction, rows: Rows) -> Rows:
    """Return the rows that have the keys of ``rows``, whoever recorded them, and all restrictions of its resources."""
    # No policy has the empty text for its id, so that all are foreign to it.
    tables: tuple[tuple[_Table[Any], Sequence[Any]], ...] = (
        (_RESOURCES, rows.resources),
        (_MEMBERSHIPS, rows.memberships),
        (_PERMISSIONS, rows.permissions),
        (_ANNOTATIONS, rows.annotations),
    )
    found = [
        tuple([table.row(*row) for row in await for_each(transaction, table.foreign, table.keys(asked), "")])
        for table, asked in tables
    ]
    restricted = await for_each(transaction, _STORED_RESTRICTIONS, _restrictable(rows.resources))
    return attrs.evolve(Rows(*found), restrictions=tuple(RestrictionRow(*row) for row in restricted))


# -- creating: columns of rows, then the policy that records them -----------------------------------------------------

# A role that no policy recorded can outlive its resource. Who defines its name in a policy gets a new role, without the old
# one's memberships, privileges and credential.
_DELETE_REMAINS: Final = Statement.named("roles_delete_remains")("""
    DELETE FROM roles
    WHERE role_id = ANY ($1::text[]) AND NOT EXISTS (SELECT FROM resources WHERE resource_id = roles.role_id OFFSET 0)
""")
_CREATE_ROLES: Final = Statement(
    "roles_create",
    "INSERT INTO roles (role_id, policy_id) SELECT role_id, $2::text FROM unnest($1::text[]) AS created (role_id)",
)
_CREATE_CREDENTIALS: Final = Statement.named("credentials_create")("""
    INSERT INTO credentials (role_id, api_key)
    SELECT role_id, api_key FROM unnest($1::text[], $2::bytea[]) AS created (role_id, api_key)
""")
_CREATE_RESOURCES: Final = Statement.named("resources_create")("""
    INSERT INTO resources (resource_id, owner_id, policy_id)
    SELECT resource_id, owner_id, $3::text FROM unnest($1::text[], $2::text[]) AS created (resource_id, owner_id)
""")
_CREATE_MEMBERSHIPS: Final = Statement.named("memberships_create")("""
    INSERT INTO memberships (role_id, member_id, ownership, admin_option, policy_id)
    SELECT role_id, member_id, ownership, admin_option, $5::text
    FROM unnest($1::text[], $2::text[], $3::boolean[], $4::boolean[])
        AS created (role_id, member_id, ownership, admin_option)
""")
_CREATE_PERMISSIONS: Final = Statement.named("permissions_create")("""
    INSERT INTO permissions (resource_id, privilege, role_id, policy_id)
    SELECT resource_id, privilege, role_id, $4::text
    FROM unnest($1::text[], $2::text[], $3::text[]) AS created (resource_id, privilege, role_id)
""")
_CREATE_ANNOTATIONS: Final = Statement.named("annotations_create")("""
    INSERT INTO annotations (resource_id, name, value, policy_id)
    SELECT resource_id, name, value, $4::text
    FROM unnest($1::text[], $2::text[], $3::text[]) AS created (resource_id, name, value)
""")
_CREATE_RESTRICTIONS: Final = Statement.named("restrictions_create")("""
    INSERT INTO restrictions (role_id, cidr)
    SELECT role_id, cidr FROM unnest($1::text[], $2::text[]) AS created (role_id, cidr)
""")

# -- updating: columns of rows, then the policy that must have recorded them ------------------------------------------

# Rows are found by their keys. ``IS NOT DISTINCT FROM`` is a condition that no index serves: with ``=``, all rows of the
# policy might be read for each batch, and compared with each row of it.

_UPDATE_RESOURCES: Final = Statement.named("resources_update")(f"""
    UPDATE resources AS resource SET owner_id = changed.owner_id
    FROM {rows_of("text", "text")} AS changed (resource_id, owner_id)
    WHERE resource.resource_id = changed.resource_id AND policy_id IS NOT DISTINCT FROM $3::text
""")
_UPDATE_MEMBERSHIPS: Final = Statement.named("memberships_update")(f"""
    UPDATE memberships AS membership SET admin_option = changed.admin_option
    FROM {rows_of("text", "text", "boolean", "boolean")}
        AS changed (role_id, member_id, ownership, admin_option)
    WHERE membership.role_id = changed.role_id AND membership.member_id = changed.member_id
        AND membership.ownership = changed.ownership AND policy_id IS NOT DISTINCT FROM $5::text
""")
_UPDATE_ANNOTATIONS: Final = Statement.named("annotations_update")(f"""
    UPDATE annotations AS annotation SET value = changed.value
    FROM {rows_of("text", "text", "text")} AS changed (resource_id, name, value)
    WHERE annotation.resource_id = changed.resource_id AND annotation.name = changed.name
        AND policy_id IS NOT DISTINCT FROM $4::text
""")

# -- deleting: columns of keys, then the policy that must have recorded the rows --------------------------------------

_DELETE_MEMBERSHIPS: Final = Statement.named("memberships_delete")(f"""
    DELETE FROM memberships AS membership
    USING {rows_of("text", "text", "boolean")} AS deleted (role_id, member_id, ownership)
    WHERE membership.role_id = deleted.role_id AND membership.member_id = deleted.member_id
        AND membership.ownership = deleted.ownership AND policy_id IS NOT DISTINCT FROM $4::text
""")
_DELETE_PERMISSIONS: Final = Statement.named("permissions_delete")(f"""
    DELETE FROM permissions AS permission
    USING {rows_of("text", "text", "text")} AS deleted (resource_id, privilege, role_id)
    WHERE permission.resource_id = deleted.resource_id AND permission.privilege = deleted.privilege
        AND permission.role_id = deleted.role_id AND policy_id IS NOT DISTINCT FROM $4::text
""")
_DELETE_ANNOTATIONS: Final = Statement.named("annotations_delete")(f"""
    DELETE FROM annotations AS annotation
    USING {rows_of("text", "text")} AS deleted (resource_id, name)
    WHERE annotation.resource_id = deleted.resource_id AND annotation.name = deleted.name
        AND policy_id IS NOT DISTINCT FROM $3::text
""")
_DELETE_RESTRICTIONS: Final = Statement.named("restrictions_delete")("""
    DELETE FROM restrictions
    WHERE role_id = ANY ($1::text[])
        AND ((role_id, cidr) IN (SELECT * FROM unnest($1, $2::text[]) AS deleted (role_id, cidr))) IS TRUE
        AND (SELECT policy_id FROM roles WHERE roles.role_id = restrictions.role_id) = $3::text
""")

# Whoever recorded these: an explicit deletion reaches beyond the loaded policy (POL-45). The schema sees to
# what goes with them. Roles that go are found here nevertheless: row by row, PostgreSQL can't follow a thousand owners.
_GONE: Final = """
    WITH RECURSIVE gone (role_id) AS (
        SELECT unnest($1::text[]) COLLATE "C"
        UNION
        SELECT unnest(ARRAY(
            SELECT role_id FROM roles WHERE policy_id = gone.role_id
            UNION ALL
            SELECT resource_id FROM resources
            WHERE owner_id = gone.role_id AND (SELECT policy_id FROM roles WHERE role_id = resource_id) IS NOT NULL
        )) FROM gone
    )
"""
_DELETE_ROLES: Final = Statement(
    "roles_delete", f"{_GONE} DELETE FROM roles WHERE role_id = ANY (ARRAY(SELECT role_id FROM gone))"
)
_ANNOTATED_BY_GONE: Final = Statement.named("annotated_by_gone")(f"""
    {_GONE} SELECT DISTINCT resource_id
    FROM gone, LATERAL (SELECT resource_id FROM annotations WHERE policy_id = gone.role_id OFFSET 0) AS annotated
""")
_DELETE_RESOURCES: Final = Statement("resources_delete", "DELETE FROM resources WHERE resource_id = ANY ($1::text[])")


async def change(transaction: Transaction, policy: str, changes: Changes, api_keys: Mapping[str, Sealed]) -> None:
    """Make the changes, in an order in which nothing refers to what is not there yet, or to what is gone already."""
    await _create(transaction, policy, changes.create, api_keys)
    await _update(transaction, policy, changes.update)
    # A policy that goes takes its annotations along, also from resources that stay.
    bared = await for_each(transaction, _ANNOTATED_BY_GONE, _roles_of(changes.delete.resources))
    await _delete(transaction, policy, changes.delete)
    await search.index(transaction, {*chain.from_iterable(bared), *_redescribed(changes)})


async def _create(transaction: Transaction, policy: str, rows: Rows, api_keys: Mapping[str, Sealed]) -> None:
    roles = _roles_of(rows.resources)
    await for_each(transaction, _DELETE_REMAINS, roles)
    await for_each(transaction, _CREATE_ROLES, roles, policy)
    await for_each(transaction, _CREATE_CREDENTIALS, list(api_keys.items()))
    await for_each(transaction, _CREATE_RESOURCES, rows.resources, policy)
    await for_each(transaction, _CREATE_MEMBERSHIPS, rows.memberships, policy)
    await for_each(transaction, _CREATE_PERMISSIONS, rows.permissions, policy)
    await for_each(transaction, _CREATE_ANNOTATIONS, rows.annotations, policy)
    await for_each(transaction, _CREATE_RESTRICTIONS, rows.restrictions)


async def _update(transaction: Transaction, policy: str, rows: Rows) -> None:
    await for_each(transaction, _UPDATE_RESOURCES, rows.resources, policy)
    await for_each(transaction, _UPDATE_MEMBERSHIPS, rows.memberships, policy)
    await for_each(transaction, _UPDATE_ANNOTATIONS, rows.annotations, policy)


async def _delete(transaction: Transaction, policy: str, rows: Rows) -> None:
    await for_each(transaction, _DELETE_RESTRICTIONS, rows.restrictions, policy)
    await for_each(transaction, _DELETE_ANNOTATIONS, _ANNOTATIONS.keys(rows.annotations), policy)
    await for_each(transaction, _DELETE_PERMISSIONS, _PERMISSIONS.keys(rows.permissions), policy)
    await for_each(transaction, _DELETE_MEMBERSHIPS, _MEMBERSHIPS.keys(rows.memberships), policy)
    await for_each(transaction, _DELETE_ROLES, _roles_of(rows.resources))
    await for_each(transaction, _DELETE_RESOURCES, _RESOURCES.keys(rows.resources))


def _redescribed(changes: Changes) -> Iterator[str]:
    """Return the resources that a search finds otherwise after the changes."""
    yield from (row.resource for row in changes.create.resources)
    for rows in (changes.create, changes.update, changes.delete):
        yield from (row.resource for row in rows.annotations)


def _roles_of(resources: Sequence[ResourceRow]) -> list[tuple[str]]:
    """Return the resources that have a role of the same id, as one column."""
    return [(row.resource,) for row in resources if row.resource.split(":", 2)[1] in ROLE_KINDS]


def _restrictable(resources: Sequence[ResourceRow]) -> list[tuple[str]]:
    """Return the resources that log in, as one column."""
    return [(row.resource,) for row in resources if row.resource.split(":", 2)[1] in ACTOR_KINDS]
