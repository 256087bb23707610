"""The store of mappings of LDAP authenticators on PostgreSQL, and of the memberships that follow from them.

The schema (0021) removes what depends on a mapping: a membership that a login makes is marked with each mapping that gives
it, and is removed with its last mark.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, TypeVar

import attrs

from svc.model.authentication import ROLES_FOLLOWED
from svc.model.deleted_records import DEFAULT_RETENTION
from svc.model.ldap_directories import (
    DirectoryName,
    LdapMapping,
    MappedRole,
    MappingDifference,
    MappingEventsOf,
    MappingPreview,
)
from svc.model.names import ResourceName, RoleName
from svc.storage.driver.columns import fetch_for_rows, rows_of, to_array
from svc.storage.driver.statements import Fetching, Statement, Statements, Transaction
from svc.storage.events import record_events
from svc.storage.policies import PolicyTransaction, transact_as_load
from svc.storage.sql.advisory_locks import lock_numbers

T = TypeVar("T")

#: The purpose of the lock on the mappings of an authenticator.
_MAPPINGS: Final = "ldap mappings"

_LOCK: Final = Statement("ldap_mappings_lock", "SELECT pg_advisory_xact_lock($1::integer, $2::integer)::text")
# A transaction that removes mappings reports the memberships that go with them, so none may be made in between.
_LOCK_SHARED: Final = Statement(
    "ldap_mappings_lock_shared", "SELECT pg_advisory_xact_lock_shared($1::integer, $2::integer)::text"
)
_MAPPING: Final = Statement.with_name("ldap_mapping_one")("""
    SELECT role_id, name FROM ldap_mappings WHERE webservice_id = $1::text AND kind = $2::text AND key = $3::text
    ORDER BY role_id
""")
_NAMES: Final = Statement.with_name("ldap_mapping_names")("""
    SELECT key, min(name) FROM ldap_mappings WHERE webservice_id = $1::text AND kind = $2::text GROUP BY key ORDER BY key
""")
_KINDS: Final = Statement.with_name("ldap_mapping_kinds")("""
    SELECT kind FROM (VALUES ('group'), ('user')) AS known (kind)
    WHERE EXISTS (SELECT FROM ldap_mappings WHERE webservice_id = $1::text AND ldap_mappings.kind = known.kind OFFSET 0)
""")
_COUNT: Final = Statement.with_name("ldap_mapping_count")(
    "SELECT count(DISTINCT key) FROM ldap_mappings WHERE webservice_id = $1::text AND kind = $2::text"
)
_REMOVE: Final = Statement.with_name("ldap_mapping_remove")("""
    DELETE FROM ldap_mappings
    WHERE webservice_id = $1::text AND kind = $2::text AND key = $3::text AND NOT role_id = ANY ($4::text[])
""")
_SET: Final = Statement.with_name("ldap_mapping_set")("""
    INSERT INTO ldap_mappings (webservice_id, kind, key, role_id, name)
    SELECT $1::text, $2::text, $3::text, role_id, $5::text FROM unnest($4::text[]) AS given (role_id)
    ON CONFLICT (webservice_id, kind, key, role_id) DO UPDATE SET name = EXCLUDED.name
""")
_LOSING: Final = Statement.with_name("ldap_mapping_losing")("""
    SELECT role_id, member_id FROM mapped_memberships AS made
    WHERE webservice_id = $1::text AND kind = $2::text AND key = $3::text AND role_id = ANY ($4::text[])
        AND NOT EXISTS (
            SELECT FROM mapped_memberships AS other
            WHERE other.role_id = made.role_id AND other.member_id = made.member_id
                AND (other.webservice_id, other.kind, other.key) <> (made.webservice_id, made.kind, made.key)
        )
    ORDER BY role_id, member_id
""")

# The roles that mappings of the authenticator $1 give, and have given, the member $2, for whom the directory has the names
# $3, $4.
_MAPPED: Final = Statement.with_name("ldap_mapping_standing")("""
    WITH given (kind, key, role_id) AS MATERIALIZED (
        SELECT asked.kind, asked.key, mapping.role_id
        FROM (SELECT DISTINCT * FROM unnest($3::text[], $4::text[]) AS asked (kind, key)) AS asked, LATERAL (
            SELECT role_id FROM ldap_mappings
            WHERE webservice_id = $1::text AND ldap_mappings.kind = asked.kind AND ldap_mappings.key = asked.key OFFSET 0
        ) AS mapping
    ), made (kind, key, role_id) AS MATERIALIZED (
        SELECT kind, key, role_id FROM mapped_memberships WHERE member_id = $2::text AND webservice_id = $1
    ), standing (kind, key, role_id) AS MATERIALIZED (SELECT * FROM given UNION SELECT * FROM made)
    SELECT
        kind, key, role_id,
        EXISTS (SELECT FROM given WHERE (given.kind, given.key, given.role_id) = (s.kind, s.key, s.role_id)),
        EXISTS (SELECT FROM made WHERE (made.kind, made.key, made.role_id) = (s.kind, s.key, s.role_id)),
        EXISTS (SELECT FROM memberships WHERE role_id = s.role_id AND member_id = $2 AND NOT ownership OFFSET 0),
        EXISTS (SELECT FROM mapped_memberships WHERE role_id = s.role_id AND member_id = $2 OFFSET 0),
        EXISTS (
            SELECT FROM mapped_memberships
            WHERE role_id = s.role_id AND member_id = $2 AND webservice_id <> $1 OFFSET 0
        )
    FROM standing AS s
""")

# Evaluates a member as a login's candidate after a change of its direct roles: it gains $3, and loses $4.
_MAY_AUTHENTICATE: Final = Statement.with_name("ldap_mapping_may_authenticate")(f"""
    WITH RECURSIVE direct (role_id) AS MATERIALIZED (
        SELECT $1::text COLLATE "C"
        UNION
        SELECT role_id FROM memberships WHERE member_id = $1 AND (ownership OR NOT role_id = ANY ($4::text[]))
        UNION
        SELECT unnest($3::text[]) COLLATE "C"
    ), held (role_id) AS (
        SELECT role_id FROM direct
        UNION
        SELECT unnest(ARRAY(SELECT role_id FROM memberships WHERE member_id = held.role_id)) FROM held
        WHERE held.role_id <> $1
    ), followed (role_id) AS (SELECT role_id FROM held LIMIT {ROLES_FOLLOWED})
    SELECT EXISTS (SELECT FROM followed WHERE role_id = ANY (ARRAY(
        SELECT owner_id FROM resources WHERE resource_id = $2::text
        UNION ALL
        SELECT role_id FROM permissions WHERE resource_id = $2 AND privilege = 'authenticate'
    )))
""")

# This and any other transaction that grants memberships wait for each other: a membership that policy grants isn't marked.
_LOCK_MEMBER: Final = Statement("ldap_mapping_lock_member", "SELECT role_id FROM roles WHERE role_id = $1::text FOR UPDATE")
_JOIN: Final = Statement.with_name("ldap_mapping_join")("""
    INSERT INTO memberships (role_id, member_id, ownership, admin_option)
    SELECT role_id, $2::text, false, false FROM unnest($1::text[]) AS gained (role_id)
""")
_MARK: Final = Statement.with_name("ldap_mapping_mark")(f"""
    INSERT INTO mapped_memberships (kind, key, role_id, webservice_id, member_id)
    SELECT kind, key, role_id, $4::text, $5::text FROM {rows_of("text", "text", "text")} AS begun (kind, key, role_id)
""")
_UNMARK: Final = Statement.with_name("ldap_mapping_unmark")(f"""
    DELETE FROM mapped_memberships AS made
    USING {rows_of("text", "text", "text")} AS ceased (kind, key, role_id)
    WHERE made.role_id = ceased.role_id AND made.member_id = $5::text AND made.webservice_id = $4::text
        AND made.kind = ceased.kind AND made.key = ceased.key
""")


@attrs.frozen
class LdapMappingStore:
    """The store of mappings."""

    _database: Statements

    async def transact(self, work: Callable[[MappingTransaction], Awaitable[T]]) -> T:
        """Run ``work`` in one transaction, as ``PolicyStore.transact`` does."""
        return await transact_as_load(
            self._database, lambda transaction: work(MappingTransaction(transaction, DEFAULT_RETENTION))
        )

    async def read_mapping(self, webservice: ResourceName, name: DirectoryName) -> LdapMapping | None:
        """Return what a name is mapped to, ``None`` for nothing."""
        return await _read_mapping(self._database, webservice, name)

    async def list_names(self, webservice: ResourceName, kind: str) -> list[str]:
        """Return the names of a kind that are mapped, as they were written, in the order of their keys."""
        return [name for _, name in await self._database.fetch(_NAMES, str(webservice), kind)]

    async def list_kinds(self, webservice: ResourceName) -> frozenset[str]:
        """Return the kinds of the names that are mapped."""
        return frozenset(kind for (kind,) in await self._database.fetch(_KINDS, str(webservice)))

    async def preview_changes(
        self, webservice: ResourceName, member: RoleName, names: Sequence[DirectoryName]
    ) -> MappingPreview:
        """Return what ``apply_mappings`` would change."""

        async def read_preview(transaction: Transaction) -> MappingPreview:
            rows = await _read_mapped(transaction, webservice, member, names)
            difference = MappingDifference.from_rows(rows)
            mapped = tuple(sorted({row.name for row in rows if row.given}))
            return MappingPreview(difference, mapped, await _may_authenticate(transaction, webservice, member, difference))

        return await self._database.transact_read_only(read_preview)

    async def apply_mappings(
        self, webservice: ResourceName, member: RoleName, names: Sequence[DirectoryName], trail: MappingEventsOf
    ) -> tuple[MappingDifference, bool]:
        """Bring a member's mapped memberships in line with the mappings of these names.

        All in one transaction, with the events. Return what changed, and whether the member may authenticate now. A member
        that doesn't exist has no change.
        """
        nothing = MappingDifference()

        async def apply_change(transaction: Transaction) -> tuple[MappingDifference, bool]:
            difference = nothing
            await transaction.fetch(_LOCK_SHARED, *lock_numbers(_MAPPINGS, str(webservice)))
            if await transaction.fetch(_LOCK_MEMBER, str(member)):
                difference = MappingDifference.from_rows(await _read_mapped(transaction, webservice, member, names))
                await transaction.fetch(_JOIN, to_array(difference.gains), str(member))
                for statement, marks in ((_MARK, difference.begins), (_UNMARK, difference.ceases)):
                    rows = [(name.kind, name.key, role) for name, role in marks]
                    await fetch_for_rows(transaction, statement, rows, str(webservice), str(member))
                await record_events(transaction, trail(difference))
            return difference, await _may_authenticate(transaction, webservice, member, nothing)

        return await transact_as_load(self._database, apply_change)


@attrs.frozen
class MappingTransaction(PolicyTransaction):
    """A transaction in which mappings change."""

    async def lock_mappings(self, webservice: ResourceName) -> None:
        """Wait until no other transaction changes the mappings of an authenticator, and keep others out."""
        await self._transaction.fetch(_LOCK, *lock_numbers(_MAPPINGS, str(webservice)))

    async def read_mapping(self, webservice: ResourceName, name: DirectoryName) -> LdapMapping | None:
        """Return what a name is mapped to, ``None`` for nothing."""
        return await _read_mapping(self._transaction, webservice, name)

    async def count_names(self, webservice: ResourceName, kind: str) -> int:
        """Return how many names of a kind are mapped."""
        ((count,),) = await self._transaction.fetch(_COUNT, str(webservice), kind)
        return int(count)

    async def set_mapping(self, webservice: ResourceName, name: DirectoryName, written: str, roles: Sequence[str]) -> None:
        """Map a name, written as ``written``, to these roles and no others; with none, the mapping is removed.

        Memberships that followed only from roles that are left out are removed.
        """
        key = (str(webservice), name.kind, name.key, to_array(roles))
        await self._transaction.fetch(_REMOVE, *key)
        await self._transaction.fetch(_SET, *key, written)

    async def list_lost_memberships(
        self, webservice: ResourceName, name: DirectoryName, roles: Collection[str]
    ) -> list[tuple[str, str]]:
        """Return roles and members, in order, whose membership follows from a name's mapping to these roles alone."""
        asked = (str(webservice), name.kind, name.key, to_array(roles))
        return [(role, member) for role, member in await self._transaction.fetch(_LOSING, *asked)]


async def _read_mapping(statements: Fetching, webservice: ResourceName, name: DirectoryName) -> LdapMapping | None:
    rows = await statements.fetch(_MAPPING, str(webservice), name.kind, name.key)
    return LdapMapping(rows[0][1], tuple(role for role, _ in rows)) if rows else None


async def _read_mapped(
    transaction: Transaction, webservice: ResourceName, member: RoleName, names: Sequence[DirectoryName]
) -> list[MappedRole]:
    kinds, keys = to_array([name.kind for name in names]), to_array([name.key for name in names])
    rows = await transaction.fetch(_MAPPED, str(webservice), str(member), kinds, keys)
    return [MappedRole(DirectoryName(kind, key), *rest) for kind, key, *rest in rows]


async def _may_authenticate(
    transaction: Transaction, webservice: ResourceName, member: RoleName, difference: MappingDifference
) -> bool:
    ((may,),) = await transaction.fetch(
        _MAY_AUTHENTICATE, str(member), str(webservice), to_array(difference.gains), to_array(difference.loses)
    )
    return bool(may)
