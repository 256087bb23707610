"""Keeps what a policy load deletes: rows are copied before the deletion, and the copies of records that stayed are dropped.

Note [Before and after]. Cascades and triggers delete what depends on a record, and return nothing. So everything that may be
deleted is locked and copied first, and afterwards the copies of what is still there are dropped. The lock comes in a
statement before the copy: a value that is set meanwhile is in the copy, or its writer waits and finds its variable gone.
Values are locked too, so that none is copied, unnoticed, under a data key that is being retired (``sealed_columns``,
``guarded``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from svc.model.deleted_records import RECORDS_MOST, RecordRetention
from svc.model.names import THING_KINDS
from svc.storage.driver.columns import fetch_for_rows
from svc.storage.driver.statements import Statement, Transaction

#: About how many bytes a row takes beside its values and facts.
ROW_BYTES: Final = 512

_LOCK: Final = Statement.with_name("deleted_lock_going")(
    "SELECT resource_id FROM resources WHERE resource_id = ANY ($1::text[]) ORDER BY resource_id FOR UPDATE"
)


def _creation_query(role: str) -> str:
    return f"(SELECT creation FROM roles WHERE role_id = {role})"


def readers_of(variable: str) -> str:
    """Return a query for the identities of the roles that are permitted to read the values of a variable, in JSON."""
    return f"""(
        SELECT jsonb_agg(jsonb_build_array(role_id, {_creation_query("permissions.role_id")})) FROM permissions
        WHERE permissions.resource_id = {variable} AND privilege = 'execute'
    )"""


#: Records without a policy, as hosts of host factories, aren't copied: they can be made again with a token. Nor are public
#: keys: they are no secrets, and would belong to the next user of the name.
_COPY: Final = Statement.with_name("deleted_copy")(f"""
    WITH kept AS (
        INSERT INTO deleted_records (
            account, resource_id, creation, owner_id, owner_creation, policy_id, policy_creation, overwritten, made_at,
            bytes, facts
        )
        SELECT
            split_part(going.resource_id, ':', 1), going.resource_id, {_creation_query("going.resource_id")}, owner_id,
            {_creation_query("going.owner_id")}, policy_id, {_creation_query("going.policy_id")}, false, created_at,
            {ROW_BYTES} + octet_length(facts::text) + coalesce(
                (SELECT sum(octet_length(sealed)) FROM secrets WHERE secrets.resource_id = going.resource_id), 0
            ), facts
        FROM unnest($1::text[]) AS asked (id), LATERAL (
            SELECT resource_id, owner_id, policy_id, created_at, split_part(resource_id, ':', 2) AS kind
            FROM resources WHERE resource_id = asked.id OFFSET 0
        ) AS going, LATERAL (
            SELECT jsonb_strip_nulls(jsonb_build_object(
                'annotations', (
                    SELECT jsonb_agg(jsonb_build_array(name, value)) FROM (
                        SELECT * FROM annotations WHERE annotations.resource_id = going.resource_id OFFSET 0
                    ) AS annotation WHERE annotation.policy_id = going.policy_id
                ),
                'restrictions', CASE WHEN kind IN ('user', 'host') THEN (
                    SELECT jsonb_agg(cidr) FROM restrictions WHERE restrictions.role_id = going.resource_id
                ) END,
                'grants', CASE WHEN kind <> ALL ('{{{",".join(sorted(THING_KINDS))}}}') THEN (
                    SELECT jsonb_agg(jsonb_build_array(
                        role_id, member_id, admin_option, {_creation_query("granted.role_id")},
                        {_creation_query("granted.member_id")}
                    )) FROM (
                        SELECT * FROM memberships WHERE memberships.role_id = going.resource_id
                        UNION ALL
                        SELECT * FROM memberships WHERE memberships.member_id = going.resource_id OFFSET 0
                    ) AS granted WHERE granted.policy_id = going.policy_id AND NOT ownership
                ) END,
                'permissions', (
                    SELECT jsonb_agg(jsonb_build_array(
                        resource_id, privilege, role_id, {_creation_query("given.role_id")}
                    )) FROM (
                        SELECT * FROM permissions WHERE permissions.resource_id = going.resource_id
                        UNION ALL
                        SELECT * FROM permissions
                        WHERE permissions.role_id = going.resource_id AND permissions.resource_id <> going.resource_id
                        OFFSET 0
                    ) AS given WHERE given.policy_id = going.policy_id
                ),
                'readers', CASE WHEN kind = 'variable' THEN {readers_of("going.resource_id")} END,
                'enabled', CASE WHEN kind = 'webservice' THEN (
                    SELECT enabled FROM authenticator_switches WHERE authenticator_switches.resource_id = going.resource_id
                ) END,
                'distrusted', CASE WHEN kind = 'webservice' THEN (
                    SELECT jsonb_agg(jsonb_build_array(key, distrusted_by, created_at)) FROM distrusted_keys
                    WHERE distrusted_keys.resource_id = going.resource_id
                ) END
            )) AS facts OFFSET 0
        ) AS known
        WHERE policy_id IS NOT NULL AND kind <> 'public_key'
        RETURNING number, resource_id
    ), moved AS (
        INSERT INTO deleted_values (record, version, sealed, created_at, expires_at)
        SELECT number, version, sealed, created_at, expires_at FROM kept, LATERAL (
            SELECT * FROM secrets WHERE secrets.resource_id = kept.resource_id FOR NO KEY UPDATE
        ) AS stored
    )
    SELECT number::text FROM kept
""")
_DROP_STAYING: Final = Statement.with_name("deleted_drop_staying")("""
    DELETE FROM deleted_records WHERE number = ANY ($1::bigint[])
        AND EXISTS (SELECT FROM resources WHERE resources.resource_id = deleted_records.resource_id OFFSET 0)
""")
_DROP_OLDEST: Final = Statement.with_name("deleted_drop_oldest")(f"""
    DELETE FROM deleted_records WHERE number = ANY (ARRAY(
        SELECT number FROM (
            SELECT number, sum(bytes) OVER (ORDER BY number DESC) AS total, row_number() OVER (ORDER BY number DESC) AS place
            FROM deleted_records WHERE account = $1::text
        ) AS ranked
        WHERE total > $2::bigint OR place > {RECORDS_MOST}
    )) RETURNING number
""")


async def copy_records(transaction: Transaction, going: Iterable[str]) -> list[tuple[str]]:
    """Copy the records that may go, and return the numbers of the copies (Note [Before and after])."""
    rows = [(resource,) for resource in sorted(going)]
    await fetch_for_rows(transaction, _LOCK, rows)
    return [(number,) for (number,) in await fetch_for_rows(transaction, _COPY, rows)]


async def drop_copies(transaction: Transaction, account: str, copies: Sequence[tuple[str]], keeping: RecordRetention) -> int:
    """Drop the copies of records that stayed, then the oldest of an account that has too many; return how many of these."""
    if not copies:
        return 0
    await fetch_for_rows(transaction, _DROP_STAYING, copies)
    return await purge_excess(transaction, account, keeping)


async def purge_excess(transaction: Transaction, account: str, keeping: RecordRetention) -> int:
    """Remove for good the oldest records of an account that has too many, and return how many these were."""
    return len(await transaction.fetch(_DROP_OLDEST, account, keeping.bytes))
