"""The store of policies on PostgreSQL: one transaction for each load, and one load at a time for each policy.

Note [The number of before]. A program of the last release may run beside this one during an upgrade. It locks a policy by
one number, for which names can be made to collide (``advisory_locks``, Note [Names apart]). A load here takes a shared lock
on this number, so that it and a load there exclude each other, while no load here waits for another by it. The numbers of
this program's constants are left out: otherwise the name of a policy could block what they are for. The second lock can be
removed when no schema supports that release.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

import attrs
from twisted.logger import Logger

from svc.model.deleted_records import DEFAULT_RETENTION, RecordRetention
from svc.model.errors import PolicyConflict
from svc.model.events import EventBatch
from svc.model.idempotency import RequestKey, StoredAnswer
from svc.model.names import RoleName
from svc.model.ownership import Ownership
from svc.model.policy_loads import Changes, PolicyVersion, PresentRows, RecordLimit, RowKeys, Rows, Side, Surroundings
from svc.model.query_results import AccessFacts, CallerOrRole, Sealed
from svc.storage import idempotency
from svc.storage.driver.columns import fetch_for_rows
from svc.storage.driver.failures import ForeignKeyViolation, UniqueViolation, summarize_error
from svc.storage.driver.statements import Statement, Statements, Transaction
from svc.storage.events import record_events
from svc.storage.roles import access_facts
from svc.storage.secrets import VERSIONS_MOST
from svc.storage.sql import impact, record_limits, recorded_rows
from svc.storage.sql.advisory_locks import CONSTANTS, lock_numbers
from svc.storage.sql.kinds import kinds_in, kinds_of
from svc.storage.sql.owners import read_ownership
from svc.storage.sql.policy_versions import read_current_version
from svc.storage.sql.role_closure import CALLER, UPDATABLE, held_among, updating_query

T = TypeVar("T")

#: How many versions of a policy its history keeps (POL-39).
HISTORY_MOST: Final = 20

#: How long one statement of a load may take, in seconds: a deletion may reach far.
STATEMENT_TIMEOUT: Final = 60.0

# The last release's programs take only the second lock (Note [The number of before]).
_LOCK: Final = Statement.with_name("policy_lock")(f"""
    SELECT CASE
        WHEN NOT pg_try_advisory_xact_lock($1::integer, $2::integer) THEN false
        WHEN former >> 32 = {CONSTANTS} THEN true
        ELSE pg_try_advisory_xact_lock_shared(former)
    END
    FROM (SELECT hashtextextended('policy ' || $3::text, 0) OFFSET 0) AS hashed (former)
""")

#: The roles that hold a role ``asked`` with admin option.
_ADMINISTRATORS: Final = """
    SELECT administrator.member_id FROM asked, LATERAL (
        SELECT member_id FROM memberships WHERE memberships.role_id = asked.role_id AND admin_option OFFSET 0
    ) AS administrator
"""

_HOLDS_MORE: Final = Statement.with_name("policy_holds_more")("""
    SELECT EXISTS (SELECT FROM resources WHERE policy_id = $1::text OFFSET $2::bigint)
        OR EXISTS (SELECT FROM memberships WHERE policy_id = $1 OFFSET $2)
        OR EXISTS (SELECT FROM permissions WHERE policy_id = $1 OFFSET $2)
        OR EXISTS (SELECT FROM annotations WHERE policy_id = $1 OFFSET $2)
""")
# The ids that begin with an id and a slash are a range of the key: "0" follows the slash in byte order.
_OWNERS_DENYING: Final = Statement.with_name("policy_owners_denying")(f"""
    WITH RECURSIVE {CALLER.format(caller="$1")}, {kinds_of("$2::text")},
    thing (resource_id, owner_id) AS MATERIALIZED (
        SELECT found.resource_id, found.owner_id
        FROM (
            SELECT $2 || ':' || kind || ':' || $3::text AS named FROM kinds WHERE kind IS NOT NULL OFFSET 0
        ) AS below, LATERAL (
            SELECT resource_id, owner_id FROM resources
            WHERE resource_id >= below.named || '/' AND resource_id < below.named || '0'
                AND (policy_id IS NOT NULL OR split_part(resource_id, ':', 2) <> 'host') OFFSET 0
        ) AS found
    ),
    {updating_query("$1")}
    SELECT DISTINCT owner_id FROM thing WHERE NOT {UPDATABLE}
""")
_HELD: Final = Statement.with_name("policy_roles_held")(f"""
    WITH RECURSIVE {CALLER.format(caller="$2")},
    asked (role_id) AS MATERIALIZED (SELECT unnest($1::text[]) COLLATE "C"),
    {held_among("holding", "$2", "SELECT role_id FROM asked")}
    SELECT role_id FROM asked WHERE (role_id IN (SELECT role_id FROM holding)) IS TRUE
""")
_NOT_GRANTABLE: Final = Statement.with_name("policy_not_grantable")(f"""
    WITH RECURSIVE {CALLER.format(caller="$2")},
    asked (role_id) AS MATERIALIZED (
        SELECT role.role_id FROM unnest($1::text[]) AS given (id), LATERAL (
            SELECT role_id FROM roles WHERE role_id = given.id OFFSET 0
        ) AS role
    ),
    {held_among("granting", "$2", _ADMINISTRATORS)}
    SELECT role_id FROM asked
    WHERE NOT EXISTS (
        SELECT FROM memberships
        WHERE memberships.role_id = asked.role_id AND admin_option
            AND (member_id IN (SELECT granting.role_id FROM granting)) IS TRUE
        OFFSET 0
    )
""")

#: The resources ``$1`` that are there.
_THINGS: Final = """
    thing (resource_id, owner_id) AS MATERIALIZED (
        SELECT resource.resource_id, resource.owner_id FROM unnest($1::text[]) AS given (id), LATERAL (
            SELECT resource_id, owner_id FROM resources WHERE resource_id = given.id OFFSET 0
        ) AS resource
    )
"""

_NOT_PERMITTABLE: Final = Statement.with_name("policy_not_permittable")(f"""
    WITH RECURSIVE {CALLER.format(caller="$2")}, {_THINGS},
    {held_among("permitting", "$2", "SELECT owner_id FROM thing")}
    SELECT resource_id FROM thing WHERE (owner_id IN (SELECT role_id FROM permitting)) IS NOT TRUE
""")
_NOT_UPDATABLE: Final = Statement.with_name("policy_not_updatable")(f"""
    WITH RECURSIVE {CALLER.format(caller="$2")}, {_THINGS}, {updating_query("$2")}
    SELECT resource_id FROM thing WHERE NOT {UPDATABLE}
""")
_RECORD: Final = Statement.with_name("policy_record")(f"""
    WITH added AS (
        INSERT INTO policy_versions (policy_id, version, text, sha256, loaded_by, client_ip)
        SELECT $1::text, coalesce(max(version), 0) + 1, $2::text, $3::text, $4::text, $5::text
        FROM policy_versions WHERE policy_id = $1
        RETURNING version
    ), trimmed AS (
        DELETE FROM policy_versions WHERE policy_id = $1 AND version <= (SELECT version FROM added) - {HISTORY_MOST}
    )
    SELECT version FROM added
""")
_NEWEST: Final = Statement.with_name("secrets_newest")("""
    SELECT resource_id, sealed FROM unnest($1::text[]) AS asked (resource_id), LATERAL (
        SELECT sealed FROM secrets WHERE secrets.resource_id = asked.resource_id ORDER BY version DESC LIMIT 1
    ) AS newest
""")

# A resource may have gone with its owner by now.
_SET: Final = Statement.with_name("secrets_set")(f"""
    WITH added AS (
        INSERT INTO secrets (resource_id, version, sealed)
        SELECT resource_id, coalesce(
            (SELECT version FROM secrets WHERE secrets.resource_id = fresh.resource_id ORDER BY version DESC LIMIT 1), 0
        ) + 1, sealed
        FROM unnest($1::text[], $2::bytea[]) AS fresh (resource_id, sealed)
        WHERE EXISTS (SELECT FROM resources WHERE resources.resource_id = fresh.resource_id OFFSET 0)
        RETURNING resource_id, version
    ), trimmed AS MATERIALIZED (
        SELECT old.resource_id, old.version FROM added, LATERAL (
            SELECT resource_id, version FROM secrets
            WHERE secrets.resource_id = added.resource_id AND secrets.version <= added.version - {VERSIONS_MOST} OFFSET 0
        ) AS old
    )
    DELETE FROM secrets
    WHERE resource_id = ANY ($1) AND ((resource_id, version) IN (SELECT resource_id, version FROM trimmed)) IS TRUE
""")

_log = Logger()


@attrs.frozen
class PolicyStore:
    """The store of policies."""

    _database: Statements
    _keeping: RecordRetention = DEFAULT_RETENTION

    async def transact(self, work: Callable[[PolicyTransaction], Awaitable[T]]) -> T:
        """Run ``work`` in one transaction: all of it happens, or, when it raises, nothing.

        ``work`` is run again from the start when it conflicted with another transaction, so it must be repeatable.

        :raises PolicyConflict: rows that it read were changed meanwhile.
        """
        return await transact_as_load(
            self._database, lambda transaction: work(PolicyTransaction(transaction, self._keeping))
        )


async def transact_as_load(database: Statements, work: Callable[[Transaction], Awaitable[T]]) -> T:
    """Run ``work`` in one transaction, which may take long.

    Rows that were added or removed since they were read make it a conflict, like a load that is under way.
    """
    try:
        return await database.transact(work, statement_timeout=STATEMENT_TIMEOUT)
    except (UniqueViolation, ForeignKeyViolation) as violation:
        _log.info("A policy load met the changes of another: {why}", why=summarize_error(violation))
        raise PolicyConflict from None


@attrs.frozen
class PolicyTransaction:
    """One transaction of a policy load."""

    _transaction: Transaction
    _keeping: RecordRetention

    async def claim_request_key(self, request: RequestKey) -> StoredAnswer | None:
        """Block other requests with this key until the transaction ends, and return the answer that is kept for it.

        :raises RequestRunning: one is under way.
        :raises TooOften: too much is kept for the caller already.
        """
        return await idempotency.claim_request_key(self._transaction, request)

    async def keep_answer(self, request: RequestKey, pieces: Sequence[Sealed]) -> None:
        """Keep the answer to a request whose key was claimed, as sealed pieces."""
        await idempotency.keep_answer(self._transaction, request, pieces)

    async def lock_policy(self, policy: RoleName) -> None:
        """Block every other load of this policy until the transaction ends.

        :raises PolicyConflict: one is under way.
        """
        ((locked,),) = await self._transaction.fetch(_LOCK, *lock_numbers("policy", str(policy)), str(policy))
        if not locked:
            raise PolicyConflict

    async def access_facts(self, caller: CallerOrRole, policy: RoleName) -> AccessFacts:
        """Return the access facts of ``caller`` and the policy; as ``RoleStore.access_facts``."""
        return await access_facts(self._transaction.fetch, caller, str(policy))

    async def owners_denying(self, caller: RoleName, policy: RoleName) -> list[str]:
        """Return the owners of the resources below ``<policy id>/`` that deny the caller ``update``, in order (POL-41).

        Hosts that host factories made don't count: no document changes them, and others may have made them.
        """
        rows = await self._transaction.fetch(_OWNERS_DENYING, str(caller), policy.account, policy.identifier)
        return sorted(owner for (owner,) in rows)

    async def filter_existing(self, resources: Sequence[str]) -> frozenset[str]:
        """Return those of the full ids whose resources exist; every role that policy can name has one."""
        return await recorded_rows.filter_existing(self._transaction, resources)

    async def has_more_rows(self, policy: RoleName, most: int) -> bool:
        """Return whether the policy has recorded more than ``most`` rows of any one sort."""
        ((more,),) = await self._transaction.fetch(_HOLDS_MORE, str(policy), most)
        return bool(more)

    async def read_present_rows(self, policy: RoleName, wanted: Rows, deleted: Sequence[str]) -> PresentRows:
        """Return the rows relevant to loading ``wanted`` into ``policy`` and to deleting the resources ``deleted``."""
        return await recorded_rows.read_present(self._transaction, str(policy), wanted, deleted)

    async def read_rows_by_key(self, policy: RoleName, keys: RowKeys) -> PresentRows:
        """Return the rows that have these keys, with the restrictions that ``policy`` recorded of these roles."""
        return await recorded_rows.read_present_by_key(self._transaction, str(policy), keys)

    async def read_ownership(self, records: Sequence[str], placed: Sequence[str]) -> Ownership:
        """Return the ownership of existing ``records``, with the policies around the ids ``placed``, taken or not."""
        return await read_ownership(self._transaction, records, placed)

    async def filter_held(self, caller: RoleName, roles: Iterable[str]) -> frozenset[str]:
        """Return those of the roles that the caller holds."""
        rows = await fetch_for_rows(self._transaction, _HELD, [(role,) for role in roles], str(caller))
        return frozenset(role for (role,) in rows)

    async def not_grantable(self, caller: RoleName, roles: Sequence[str]) -> list[str]:
        """Return those of the existing ``roles`` that the caller doesn't hold with admin option (POL-58)."""
        return await self._list_denied(_NOT_GRANTABLE, caller, roles)

    async def not_permittable(self, caller: RoleName, resources: Sequence[str]) -> list[str]:
        """Return those of the existing ``resources`` that the caller doesn't own (POL-58)."""
        return await self._list_denied(_NOT_PERMITTABLE, caller, resources)

    async def not_updatable(self, caller: RoleName, resources: Sequence[str]) -> list[str]:
        """Return those of the existing ``resources`` on which the caller hasn't ``update``."""
        return await self._list_denied(_NOT_UPDATABLE, caller, resources)

    async def _list_denied(self, statement: Statement, caller: RoleName, ids: Sequence[str]) -> list[str]:
        rows = await fetch_for_rows(self._transaction, statement, [(asked,) for asked in ids], str(caller))
        return sorted(denied for (denied,) in rows)

    async def apply_changes(self, policy: RoleName, changes: Changes, api_keys: Mapping[str, Sealed]) -> int:
        """Make the changes, set-based. ``api_keys`` holds the sealed key of every user and host that is created with one.

        With a resource its role is deleted, what that owns and, of a policy, what it recorded, and so on; of a user, its
        public keys. Of other rows only those are changed and deleted that ``policy`` recorded. Deleted records are kept (see
        ``deleted_records``). Returns how many kept records, the oldest, had to be purged, since the account had too many.
        """
        return await recorded_rows.apply_changes(self._transaction, str(policy), changes, api_keys, self._keeping)

    async def list_exceeding(self, limit: RecordLimit, records: Sequence[str], most: int) -> list[tuple[str, int]]:
        """Return those of the records that carry more than ``most`` of what the limit counts, and how much; in order."""
        return await record_limits.list_exceeding(self._transaction, limit, records, most)

    async def list_kinds(self, account: str) -> list[str]:
        """Return the kinds of which an account has resources, in the order of full ids."""
        return await kinds_in(self._transaction, account)

    async def read_sealed_values(self, resources: Sequence[str]) -> dict[str, Sealed]:
        """Return the newest values of those of the resources that have one."""
        newest = await fetch_for_rows(self._transaction, _NEWEST, [(resource,) for resource in resources])
        return {resource: Sealed(sealed) for resource, sealed in newest}

    async def set_values(self, values: Mapping[str, Sealed]) -> None:
        """Give the resources that exist new values, each as a new version, and keep as many as ``SecretStore`` does."""
        await fetch_for_rows(self._transaction, _SET, list(values.items()))

    async def read_version(self, policy: RoleName) -> int:
        """Return the number of the policy's last load, 0 if none was made. It stays so if the policy is locked."""
        return await read_current_version(self._transaction, str(policy))

    async def record_version(self, version: PolicyVersion) -> int:
        """Add a version to the policy's history and return its number, counting from 1."""
        ((number,),) = await self._transaction.fetch(
            _RECORD, str(version.policy), version.text, version.sha256, str(version.loaded_by), version.client_ip
        )
        return int(number)

    async def write_events(self, trail: EventBatch) -> tuple[int, int]:
        """Write events, and return their numbers: after the first of the two, up to the second."""
        return await record_events(self._transaction, trail)

    async def read_deletion_cascade(self, policy: RoleName, resources: Sequence[str], most: int) -> Rows | None:
        """Return every row that may be deleted with ``resources`` in a load of ``policy``: theirs, those of all that they
        own or recorded, and so on.

        Those of roles that outlive their resources are among them. ``None`` when these are more than ``most`` rows.
        """
        return await impact.read_deletion_cascade(self._transaction, str(policy), resources, most)

    async def list_cascading_ids(self, policy: RoleName, resources: Sequence[str]) -> frozenset[str]:
        """Return the ids of all that may be deleted with ``resources`` in a load of ``policy``, with these; not each is a
        resource.
        """
        return frozenset(await impact.list_cascading_ids(self._transaction, str(policy), resources) or ())

    async def read_stored_rows(self, rows: Rows) -> Rows:
        """Return the rows that have the keys of ``rows``, of any recorder, and all restrictions of its resources."""
        return await recorded_rows.read_stored(self._transaction, rows)

    async def read_surroundings(self, resources: Sequence[str], each: int) -> Surroundings:
        """Return the surroundings of ``resources``; of rows that name one of them, ``each`` for each, sort and end."""
        return await impact.read_surroundings(self._transaction, resources, each)

    async def read_adjacent_rows(self, side: Side, names: Sequence[str], each: int, most: int) -> Rows:
        """Return the rows that lead from roles or resources on a side; ``each`` for each sort and name, ``most`` in all."""
        return await impact.read_adjacent_rows(self._transaction, side, names, each, most)

    async def filter_visible(self, caller: RoleName, resources: Sequence[str]) -> frozenset[str]:
        """Return those of ``resources`` that exist and that the caller sees (ROLE-4)."""
        return await impact.filter_visible(self._transaction, caller, resources)
