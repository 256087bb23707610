"""The rows that policies record, of four sorts, and restrictions of roles: read for a load, and changed by it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, Generic, TypeVar

import attrs

from svc.model.deleted_records import RecordRetention
from svc.model.names import ACTOR_KINDS, is_role_kind
from svc.model.policy_loads import (
    AnnotationRow,
    Changes,
    MembershipRow,
    PermissionRow,
    PresentRows,
    ResourceRow,
    RestrictionRow,
    RowKeys,
    Rows,
)
from svc.model.query_results import Sealed
from svc.storage.driver.columns import fetch_for_rows, rows_of
from svc.storage.driver.statements import Statement, Transaction
from svc.storage.sql import deletions, impact, search
from svc.storage.sql.mapped_memberships import NOT_MAPPED, UNMAP
from svc.storage.sql.owners import own_within

Row = TypeVar("Row", bound=tuple[Any, ...])

# -- reading ----------------------------------------------------------------------------------------------------------


@attrs.frozen
class _Table(Generic[Row]):
    """A table of one sort of rows: its columns with their types, of which the first ``key`` are the key.

    Rows that don't meet ``condition`` are as good as missing.
    """

    name: str
    row: Callable[..., Row]
    key: int
    types: Mapping[str, str]
    condition: str = "true"
    #: Takes a policy, and returns the rows that it recorded.
    own: Statement = attrs.field(init=False)
    #: Takes columns of keys, then a policy, and returns the rows with one of those keys that it did not record.
    foreign: Statement = attrs.field(init=False)
    #: Takes the same, and returns all rows with one of those keys, each with whether the policy recorded it.
    named: Statement = attrs.field(init=False)

    @property
    def columns(self) -> str:
        """Return all columns, as in a ``SELECT``."""
        return ", ".join(self.types)

    def keys_of(self, rows: Sequence[Row]) -> list[tuple[Any, ...]]:
        """Return the keys of rows."""
        return [row[: self.key] for row in rows]

    @own.default
    def _default_own(self) -> Statement:
        return Statement(f"{self.name}_own", f"SELECT {self.columns} FROM {self.name} WHERE policy_id = $1::text")

    @foreign.default
    def _default_foreign(self) -> Statement:
        keys = ", ".join(list(self.types)[: self.key])
        return Statement.with_name(f"{self.name}_foreign")(f"""
            SELECT {self.columns} FROM {self._rows_query(self.key)} AS wanted ({keys}) JOIN {self.name} USING ({keys})
            WHERE policy_id IS DISTINCT FROM ${self.key + 1}::text AND {self.condition}
        """)

    @named.default
    def _default_named(self) -> Statement:
        keys = ", ".join(list(self.types)[: self.key])
        return Statement.with_name(f"{self.name}_named")(f"""
            SELECT {self.columns}, policy_id IS NOT DISTINCT FROM ${self.key + 1}::text
            FROM {self._rows_query(self.key)} AS wanted ({keys}) JOIN {self.name} USING ({keys}) WHERE {self.condition}
        """)

    def create_statement(self) -> Statement:
        """Return a statement that takes columns of rows, then the policy that records them."""
        arrays = ", ".join(f"${number}::{element}[]" for number, element in enumerate(self.types.values(), start=1))
        return Statement.with_name(f"{self.name}_create")(f"""
            INSERT INTO {self.name} ({self.columns}, policy_id) SELECT {self.columns}, ${len(self.types) + 1}::text
            FROM unnest({arrays}) AS created ({self.columns})
        """)

    def update_statement(self) -> Statement:
        """Return a statement for the last column of rows: it takes columns, then the policy that must have recorded them."""
        last = list(self.types)[-1]
        return Statement.with_name(f"{self.name}_update")(f"""
            UPDATE {self.name} AS {self.name[:-1]} SET {last} = changed.{last}
            FROM {self._rows_query(len(self.types))} AS changed ({self.columns})
            WHERE {self._same_condition("changed", len(self.types))}
        """)

    def delete_statement(self) -> Statement:
        """Return a statement that takes columns of keys, then the policy that must have recorded the rows."""
        return Statement.with_name(f"{self.name}_delete")(f"""
            DELETE FROM {self.name} AS {self.name[:-1]}
            USING {self._rows_query(self.key)} AS deleted ({", ".join(list(self.types)[: self.key])})
            WHERE {self._same_condition("deleted", self.key)}
        """)

    async def read_rows(
        self, transaction: Transaction, policy: str, keys: Sequence[tuple[Any, ...]]
    ) -> tuple[tuple[Row, ...], ...]:
        """Return the policy's own rows, and the foreign ones."""
        own = await transaction.fetch(self.own, policy)
        foreign = await fetch_for_rows(transaction, self.foreign, keys, policy)
        return tuple(self.row(*row) for row in own), tuple(self.row(*row) for row in foreign)

    async def read_rows_by_key(
        self, transaction: Transaction, policy: str, keys: Sequence[tuple[Any, ...]]
    ) -> tuple[tuple[Row, ...], ...]:
        """Return the rows with these keys: the policy's own, and the foreign ones."""
        found = dict.fromkeys(tuple(row) for row in await fetch_for_rows(transaction, self.named, keys, policy))
        return tuple(tuple(self.row(*row) for *row, is_own in found if is_own is own) for own in (True, False))

    def _rows_query(self, width: int) -> str:
        return rows_of(*list(self.types.values())[:width])

    def _same_condition(self, rows: str, width: int) -> str:
        """Return the condition that a row has a key and a policy, which is the parameter after ``width`` columns.

        ``IS NOT DISTINCT FROM`` is a condition that no index serves: with ``=``, all rows of the policy might be read for
        each batch, and compared with each row of it.
        """
        keys = " AND ".join(f"{self.name[:-1]}.{name} = {rows}.{name}" for name in list(self.types)[: self.key])
        return f"{keys} AND policy_id IS NOT DISTINCT FROM ${width + 1}::text"


_RESOURCES: Final = _Table("resources", ResourceRow, 1, {"resource_id": "text", "owner_id": "text"})
_MEMBERSHIPS: Final = _Table(
    "memberships",
    MembershipRow,
    3,
    {"role_id": "text", "member_id": "text", "ownership": "boolean", "admin_option": "boolean"},
    NOT_MAPPED,
)
_PERMISSIONS: Final = _Table(
    "permissions", PermissionRow, 3, {"resource_id": "text", "privilege": "text", "role_id": "text"}
)
_ANNOTATIONS: Final = _Table("annotations", AnnotationRow, 2, {"resource_id": "text", "name": "text", "value": "text"})
_STORED_RESTRICTIONS: Final = Statement.with_name("restrictions_stored")("""
    SELECT asked.role_id, cidr FROM unnest($1::text[]) AS asked (role_id), LATERAL (
        SELECT cidr FROM restrictions WHERE restrictions.role_id = asked.role_id OFFSET 0
    ) AS restriction
""")
_RESTRICTIONS: Final = Statement.with_name("restrictions_own")("""
    SELECT wanted.role_id, cidr
    FROM unnest($1::text[]) AS wanted (role_id), LATERAL (
        SELECT cidr FROM restrictions WHERE restrictions.role_id = wanted.role_id OFFSET 0
    ) AS restriction
    WHERE (SELECT policy_id FROM roles WHERE roles.role_id = wanted.role_id) = $2::text
""")
_EXISTING: Final = Statement.with_name("resources_existing")(f"""
    SELECT resource_id FROM {rows_of("text")} AS asked (resource_id) JOIN resources USING (resource_id)
""")


async def read_present(transaction: Transaction, policy: str, wanted: Rows, deleted: Sequence[str]) -> PresentRows:
    """Read the rows relevant to loading ``wanted`` into the policy, and to deleting the resources ``deleted``."""
    resources = dict.fromkeys((*(row.resource for row in wanted.resources), *deleted))
    tables = [
        await _RESOURCES.read_rows(transaction, policy, [(resource,) for resource in resources]),
        await _MEMBERSHIPS.read_rows(transaction, policy, _MEMBERSHIPS.keys_of(wanted.memberships)),
        await _PERMISSIONS.read_rows(transaction, policy, _PERMISSIONS.keys_of(wanted.permissions)),
        await _ANNOTATIONS.read_rows(transaction, policy, _ANNOTATIONS.keys_of(wanted.annotations)),
    ]
    own, foreign = (Rows(*rows) for rows in zip(*tables, strict=True))
    restricted = await fetch_for_rows(transaction, _RESTRICTIONS, _restrictable_roles(wanted.resources), policy)
    return PresentRows(attrs.evolve(own, restrictions=tuple(RestrictionRow(*row) for row in restricted)), foreign)


async def read_present_by_key(transaction: Transaction, policy: str, keys: RowKeys) -> PresentRows:
    """Read the rows that have these keys, and the restrictions that the policy recorded of the roles."""
    tables = [
        await _RESOURCES.read_rows_by_key(transaction, policy, [(resource,) for resource in keys.resources]),
        await _MEMBERSHIPS.read_rows_by_key(transaction, policy, keys.memberships),
        await _PERMISSIONS.read_rows_by_key(transaction, policy, keys.permissions),
        await _ANNOTATIONS.read_rows_by_key(transaction, policy, keys.annotations),
    ]
    own, foreign = (Rows(*rows) for rows in zip(*tables, strict=True))
    restricted = await fetch_for_rows(transaction, _RESTRICTIONS, [(role,) for role in keys.restricted], policy)
    return PresentRows(attrs.evolve(own, restrictions=tuple(RestrictionRow(*row) for row in restricted)), foreign)


async def filter_existing(transaction: Transaction, resources: Sequence[str]) -> frozenset[str]:
    """Return those of the resources that are there."""
    return frozenset(chain.from_iterable(await fetch_for_rows(transaction, _EXISTING, [(asked,) for asked in resources])))


async def read_stored(transaction: Transaction, rows: Rows) -> Rows:
    """Return the rows that have the keys of ``rows``, of any policy, and all restrictions of its resources."""
    # No policy has the empty text for its id, so that all are foreign to it.
    tables: tuple[tuple[_Table[Any], Sequence[Any]], ...] = (
        (_RESOURCES, rows.resources),
        (_MEMBERSHIPS, rows.memberships),
        (_PERMISSIONS, rows.permissions),
        (_ANNOTATIONS, rows.annotations),
    )
    found = [
        tuple([table.row(*row) for row in await fetch_for_rows(transaction, table.foreign, table.keys_of(asked), "")])
        for table, asked in tables
    ]
    restricted = await fetch_for_rows(transaction, _STORED_RESTRICTIONS, _restrictable_roles(rows.resources))
    return attrs.evolve(Rows(*found), restrictions=tuple(RestrictionRow(*row) for row in restricted))


# -- creating ---------------------------------------------------------------------------------------------------------

# A role that no policy recorded can outlive its resource. A policy that defines its name gets a new role, without the old
# one's memberships, privileges and credential.
_DELETE_REMAINS: Final = Statement.with_name("roles_delete_remains")("""
    DELETE FROM roles
    WHERE role_id = ANY ($1::text[]) AND NOT EXISTS (SELECT FROM resources WHERE resource_id = roles.role_id OFFSET 0)
""")
_CREATE_ROLES: Final = Statement.with_name("roles_create")(
    "INSERT INTO roles (role_id, policy_id) SELECT role_id, $2::text FROM unnest($1::text[]) AS created (role_id)"
)
_CREATE_CREDENTIALS: Final = Statement.with_name("credentials_create")("""
    INSERT INTO credentials (role_id, api_key)
    SELECT role_id, api_key FROM unnest($1::text[], $2::bytea[]) AS created (role_id, api_key)
""")
_CREATE_RESOURCES: Final = _RESOURCES.create_statement()
_CREATE_MEMBERSHIPS: Final = _MEMBERSHIPS.create_statement()
_CREATE_PERMISSIONS: Final = _PERMISSIONS.create_statement()
_CREATE_ANNOTATIONS: Final = _ANNOTATIONS.create_statement()
_CREATE_RESTRICTIONS: Final = Statement.with_name("restrictions_create")("""
    INSERT INTO restrictions (role_id, cidr)
    SELECT role_id, cidr FROM unnest($1::text[], $2::text[]) AS created (role_id, cidr)
""")

# -- updating and deleting --------------------------------------------------------------------------------------------

_UPDATE_RESOURCES: Final = _RESOURCES.update_statement()
_UPDATE_MEMBERSHIPS: Final = _MEMBERSHIPS.update_statement()
_UPDATE_ANNOTATIONS: Final = _ANNOTATIONS.update_statement()
_DELETE_MEMBERSHIPS: Final = _MEMBERSHIPS.delete_statement()
_DELETE_PERMISSIONS: Final = _PERMISSIONS.delete_statement()
_DELETE_ANNOTATIONS: Final = _ANNOTATIONS.delete_statement()
_DELETE_RESTRICTIONS: Final = Statement.with_name("restrictions_delete")("""
    DELETE FROM restrictions
    WHERE role_id = ANY ($1::text[])
        AND ((role_id, cidr) IN (SELECT * FROM unnest($1, $2::text[]) AS deleted (role_id, cidr))) IS TRUE
        AND (SELECT policy_id FROM roles WHERE roles.role_id = restrictions.role_id) = $3::text
""")

# Of any policy: an explicit deletion reaches beyond the loaded one (POL-45). The schema deletes what depends on them. Roles
# are found here nevertheless: row by row, PostgreSQL can't follow a thousand owners.
_GONE: Final = f"""
    WITH RECURSIVE gone (role_id) AS (
        SELECT unnest($1::text[]) COLLATE "C"
        UNION
        SELECT unnest(ARRAY(
            SELECT role_id FROM roles WHERE policy_id = gone.role_id
            UNION ALL
            SELECT resource_id FROM resources
            WHERE owner_id = gone.role_id AND (SELECT policy_id FROM roles WHERE role_id = resource_id) IS NOT NULL
            UNION ALL
            {own_within("gone.role_id", "$2::text")}
        )) FROM gone
    )
"""
_DELETE_ROLES: Final = Statement(
    "roles_delete", f"{_GONE} DELETE FROM roles WHERE role_id = ANY (ARRAY(SELECT role_id FROM gone))"
)
_ANNOTATED_BY_GONE: Final = Statement.with_name("annotated_by_gone")(f"""
    {_GONE} SELECT DISTINCT resource_id
    FROM gone, LATERAL (SELECT resource_id FROM annotations WHERE policy_id = gone.role_id OFFSET 0) AS annotated
""")
_DELETE_RESOURCES: Final = Statement("resources_delete", "DELETE FROM resources WHERE resource_id = ANY ($1::text[])")


async def apply_changes(
    transaction: Transaction, policy: str, changes: Changes, api_keys: Mapping[str, Sealed], keeping: RecordRetention
) -> int:
    """Make the changes, in an order in which no row refers to one that is not there yet, or is gone already.

    Return as ``PolicyTransaction.apply_changes``.
    """
    await _create_rows(transaction, policy, changes.create, api_keys)
    await _update_rows(transaction, policy, changes.update)
    # With a policy its annotations are deleted, also those on resources that stay.
    bared = await fetch_for_rows(transaction, _ANNOTATED_BY_GONE, _roles_of(changes.delete.resources), policy)
    deleted = [row.resource for row in changes.delete.resources] if keeping.is_enabled else []
    copies = await deletions.copy_records(transaction, await impact.list_cascading_ids(transaction, policy, deleted) or ())
    await _delete_rows(transaction, policy, changes.delete)
    await search.index_documents(transaction, {*chain.from_iterable(bared), *_redescribed_resources(changes)})
    return await deletions.drop_copies(transaction, policy.partition(":")[0], copies, keeping)


async def _create_rows(transaction: Transaction, policy: str, rows: Rows, api_keys: Mapping[str, Sealed]) -> None:
    roles = _roles_of(rows.resources)
    await fetch_for_rows(transaction, _DELETE_REMAINS, roles)
    await fetch_for_rows(transaction, _CREATE_ROLES, roles, policy)
    await fetch_for_rows(transaction, _CREATE_CREDENTIALS, list(api_keys.items()))
    await fetch_for_rows(transaction, _CREATE_RESOURCES, rows.resources, policy)
    await fetch_for_rows(transaction, UNMAP, [row[:2] for row in rows.memberships if not row.ownership])
    await fetch_for_rows(transaction, _CREATE_MEMBERSHIPS, rows.memberships, policy)
    await fetch_for_rows(transaction, _CREATE_PERMISSIONS, rows.permissions, policy)
    await fetch_for_rows(transaction, _CREATE_ANNOTATIONS, rows.annotations, policy)
    await fetch_for_rows(transaction, _CREATE_RESTRICTIONS, rows.restrictions)


async def _update_rows(transaction: Transaction, policy: str, rows: Rows) -> None:
    await fetch_for_rows(transaction, _UPDATE_RESOURCES, rows.resources, policy)
    await fetch_for_rows(transaction, _UPDATE_MEMBERSHIPS, rows.memberships, policy)
    await fetch_for_rows(transaction, _UPDATE_ANNOTATIONS, rows.annotations, policy)


async def _delete_rows(transaction: Transaction, policy: str, rows: Rows) -> None:
    await fetch_for_rows(transaction, _DELETE_RESTRICTIONS, rows.restrictions, policy)
    await fetch_for_rows(transaction, _DELETE_ANNOTATIONS, _ANNOTATIONS.keys_of(rows.annotations), policy)
    await fetch_for_rows(transaction, _DELETE_PERMISSIONS, _PERMISSIONS.keys_of(rows.permissions), policy)
    await fetch_for_rows(transaction, _DELETE_MEMBERSHIPS, _MEMBERSHIPS.keys_of(rows.memberships), policy)
    await fetch_for_rows(transaction, _DELETE_ROLES, _roles_of(rows.resources), policy)
    await fetch_for_rows(transaction, _DELETE_RESOURCES, _RESOURCES.keys_of(rows.resources))


def _redescribed_resources(changes: Changes) -> Iterator[str]:
    """Return the resources whose search documents change."""
    yield from (row.resource for row in changes.create.resources)
    for rows in (changes.create, changes.update, changes.delete):
        yield from (row.resource for row in rows.annotations)


def _roles_of(resources: Sequence[ResourceRow]) -> list[tuple[str]]:
    """Return the resources that have a role of the same id, as one column."""
    return [(row.resource,) for row in resources if is_role_kind(row.resource.split(":", 2)[1])]


def _restrictable_roles(resources: Sequence[ResourceRow]) -> list[tuple[str]]:
    """Return the resources that log in, as one column."""
    return [(row.resource,) for row in resources if row.resource.split(":", 2)[1] in ACTOR_KINDS]
