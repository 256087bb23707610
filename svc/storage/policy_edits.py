"""Single changes of policy on PostgreSQL: one transaction for each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import chain
from typing import Final, TypeVar

import attrs

from svc.model.authorization import INSPECT
from svc.model.deleted_records import DEFAULT_RETENTION, RecordRetention
from svc.model.errors import RecordNotFound
from svc.model.names import RoleName
from svc.model.policy_loads import AnnotationRow
from svc.model.query_results import Membership, Sealed
from svc.storage.credentials import REVOKE
from svc.storage.driver.columns import column_batches, fetch_for_rows, rows_of
from svc.storage.driver.statements import Statement, Statements
from svc.storage.policies import PolicyTransaction, transact_as_load
from svc.storage.sql import search
from svc.storage.sql.access_facts import inspected_query
from svc.storage.sql.kinds import kinds_of
from svc.storage.sql.role_closure import CALLER, held_among

T = TypeVar("T")

# "0" follows the slash in byte order.
_BENEATH: Final = Statement.with_name("edit_beneath")(f"""
    WITH RECURSIVE {kinds_of("$1::text")}
    SELECT found.resource_id
    FROM (
        SELECT $1 || ':' || kind || ':' || $2::text AS named FROM kinds WHERE kind NOT IN ('user', 'public_key') OFFSET 0
    ) AS below, LATERAL (
        (SELECT resource_id FROM resources WHERE resource_id = below.named)
        UNION ALL
        (
            SELECT resource_id FROM resources
            WHERE resource_id >= below.named || '/' AND resource_id < below.named || '0' LIMIT $3::bigint
        )
    ) AS found
    ORDER BY found.resource_id LIMIT $3
""")
_REMOVE_GRANT: Final = Statement.with_name("edit_remove_grant")(
    "DELETE FROM memberships WHERE role_id = $1::text AND member_id = $2::text AND NOT ownership RETURNING role_id"
)
_GRANTS: Final = Statement.with_name("edit_grants")("""
    SELECT role_id, member_id, admin_option, ownership, policy_id FROM memberships
    WHERE member_id = $1::text AND NOT ownership ORDER BY role_id
""")
#: Another API key, and no password.
_REPLACE_CREDENTIALS: Final = Statement.with_name("edit_replace_credentials")("""
    UPDATE credentials SET api_key = $2::bytea, password = NULL, rotated_at = now(), edition = edition + 1
    WHERE role_id = $1::text RETURNING role_id
""")
_END_SESSIONS: Final = Statement.with_name("edit_end_sessions")(
    "DELETE FROM sessions WHERE role_id = $1::text RETURNING session_id"
)
_ANNOTATE: Final = Statement.with_name("edit_annotate")("""
    INSERT INTO annotations (resource_id, name, value, policy_id)
    SELECT resource_id, name, value, $4::text
    FROM unnest($1::text[], $2::text[], $3::text[]) AS said (resource_id, name, value)
    ON CONFLICT (resource_id, name) DO UPDATE SET value = EXCLUDED.value
""")
_REMOVE_ANNOTATION: Final = Statement.with_name("edit_remove_annotation")(
    "DELETE FROM annotations WHERE resource_id = $1::text AND name = $2::text RETURNING name"
)
#: The permissions by which the resource ``thing`` is read; only a policy can be inspected.
_READ_PERMISSIONS: Final = f"""
    FROM permissions WHERE resource_id = thing.resource_id
        AND (privilege = 'read' OR (privilege = '{INSPECT}' AND split_part(resource_id, ':', 2) = 'policy'))
"""
_READERS: Final = f"SELECT given.role_id FROM thing, LATERAL (SELECT role_id {_READ_PERMISSIONS} OFFSET 0) AS given"
_READABLE: Final = Statement.with_name("edit_readable")(f"""
    WITH RECURSIVE {CALLER.format(caller="$2")},
    thing (resource_id, owner_id) AS MATERIALIZED (
        SELECT resource.resource_id, resource.owner_id FROM unnest($1::text[]) AS given (id), LATERAL (
            SELECT resource_id, owner_id FROM resources WHERE resource_id = given.id OFFSET 0
        ) AS resource
    ),
    {held_among("owning", "$2", "SELECT owner_id FROM thing")},
    {held_among("reading", "$2", _READERS)},
    {inspected_query("SELECT owner_id FROM thing WHERE (owner_id IN (SELECT role_id FROM owning)) IS NOT TRUE")}
    SELECT resource_id FROM thing
    WHERE (owner_id IN (SELECT role_id FROM owning)) IS TRUE
        OR EXISTS (SELECT {_READ_PERMISSIONS} AND (role_id IN (SELECT role_id FROM reading)) IS TRUE OFFSET 0)
        OR (owner_id IN (SELECT id FROM inspected)) IS TRUE
""")
_SWITCH: Final = Statement.with_name("edit_switch")("""
    INSERT INTO authenticator_switches (resource_id, enabled) VALUES ($1::text, $2::boolean)
    ON CONFLICT (resource_id) DO UPDATE SET enabled = EXCLUDED.enabled
""")
_SWITCHES: Final = Statement.with_name("edit_switches")("""
    SELECT asked.resource_id, switch.enabled FROM unnest($1::text[]) AS asked (resource_id), LATERAL (
        SELECT enabled FROM authenticator_switches WHERE authenticator_switches.resource_id = asked.resource_id OFFSET 0
    ) AS switch
""")
_EXISTING: Final = Statement.with_name("edit_existing")(f"""
    SELECT resource_id FROM {rows_of("text")} AS asked (resource_id) JOIN resources USING (resource_id)
""")


@attrs.frozen
class PolicyEditStore:
    """The store of single changes."""

    _database: Statements
    _keeping: RecordRetention = DEFAULT_RETENTION

    async def transact(self, work: Callable[[EditTransaction], Awaitable[T]]) -> T:
        """Run ``work`` in one transaction, as ``PolicyStore.transact`` does."""
        return await transact_as_load(self._database, lambda transaction: work(EditTransaction(transaction, self._keeping)))

    async def filter_readable(self, viewer: RoleName, resources: Sequence[str]) -> list[str]:
        """Return those of the resources, in order, that the viewer owns, inspects, or may ``read``."""
        return sorted(await self._fetch_names(_READABLE, resources, str(viewer)), key=str.encode)

    async def filter_existing(self, resources: Sequence[str]) -> frozenset[str]:
        """Return those of the resources that exist."""
        return frozenset(await self._fetch_names(_EXISTING, resources))

    async def read_switches(self, webservices: Sequence[str]) -> dict[str, bool]:
        """Return whether authenticators are switched on, of those that ever were switched on or off."""
        asked = [(webservice,) for webservice in webservices]
        rows = [await self._database.fetch(_SWITCHES, *columns) for columns in column_batches(asked)]
        return dict(chain.from_iterable(rows))

    async def _fetch_names(self, statement: Statement, resources: Sequence[str], *others: object) -> list[str]:
        asked = [(resource,) for resource in resources]
        rows = [await self._database.fetch(statement, *columns, *others) for columns in column_batches(asked)]
        return [found for (found,) in chain.from_iterable(rows)]


@attrs.frozen
class EditTransaction(PolicyTransaction):
    """A transaction of a policy, in which single rows can be changed, whatever policy recorded them."""

    async def list_beneath(self, policy: RoleName, most: int) -> list[str] | None:
        """Return the resources that have the policy's id, or whose ids begin with its id and a slash, in order.

        Users and public keys, whose ids don't show a policy, are not among them. ``None`` when they are more than ``most``.
        """
        found = await self._transaction.fetch(_BENEATH, policy.account, policy.identifier, most + 1)
        return None if len(found) > most else [resource for (resource,) in found]

    async def remove_grant(self, role: RoleName, member: RoleName) -> bool:
        """Revoke a role from a direct member, and return whether there was a grant; ownership stays."""
        return bool(await self._transaction.fetch(_REMOVE_GRANT, str(role), str(member)))

    async def list_grants(self, member: RoleName) -> list[Membership]:
        """Return the memberships of a role in others, ordered by id, without those that follow from ownership."""
        return [Membership(*row) for row in await self._transaction.fetch(_GRANTS, str(member))]

    async def end_logins(self, role: RoleName, api_key: Sealed) -> None:
        """End the access tokens and sessions of a role, and put an API key in the place of its own and of its password.

        :raises RecordNotFound: the role is missing.
        """
        if not await self._transaction.fetch(REVOKE, str(role)):
            raise RecordNotFound.for_name(role)
        await self._transaction.fetch(_REPLACE_CREDENTIALS, str(role), api_key)
        await self._transaction.fetch(_END_SESSIONS, str(role))

    async def set_annotations(self, policy: RoleName, rows: Sequence[AnnotationRow]) -> None:
        """Set annotations of resources that exist; those of new names are recorded by ``policy``."""
        await fetch_for_rows(self._transaction, _ANNOTATE, list(rows), str(policy))
        await search.index_documents(self._transaction, (row.resource for row in rows))

    async def remove_annotation(self, resource: str, name: str) -> bool:
        """Remove an annotation, and return whether there was one."""
        removed = await self._transaction.fetch(_REMOVE_ANNOTATION, resource, name)
        await search.index_documents(self._transaction, [resource] if removed else ())
        return bool(removed)

    async def switch_authenticator(self, webservice: str, on: bool) -> None:
        """Switch the authenticator of a webservice that exists on or off."""
        await self._transaction.fetch(_SWITCH, webservice, on)
