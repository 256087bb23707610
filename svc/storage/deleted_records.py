"""The store of what was deleted, on PostgreSQL (see ``sql/deletions`` for how it gets there)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import attrs

from svc.model.deleted_records import (
    DEFAULT_RETENTION,
    FACTS_MOST,
    RECORDS_MOST,
    DeletedRecord,
    DeletedRecordOwner,
    PresentRecord,
    RecordRetention,
    RetainedTotals,
    RoleIdentity,
)
from svc.model.names import ACTOR_KINDS, RoleName
from svc.model.policy_loads import AnnotationRow, MembershipRow, PermissionRow, RestrictionRow
from svc.storage.driver.columns import fetch_for_rows, rows_of, to_array
from svc.storage.driver.statements import Statement, Statements, Transaction
from svc.storage.policies import PolicyTransaction, transact_as_load
from svc.storage.sql import deletions
from svc.storage.sql.access_facts import filter_inspected

T = TypeVar("T")

#: How many old records are removed at once.
PURGED: Final = 1000


def _retention_condition(table: str, seconds: str) -> str:
    """Return the condition that a row's retention isn't over."""
    return f"{table}.deleted_at > now() - make_interval(secs => {seconds}::double precision)"


#: The condition that a row belongs to the policy ``$1``, in its current creation.
_OF_POLICY: Final = "policy_id = $1::text AND policy_creation = (SELECT creation FROM roles WHERE role_id = $1)"

_OWNERS: Final = Statement.with_name("deleted_owners")(
    f"""
    WITH RECURSIVE chain (role_id, creation, there, owner_id, owner_creation) AS (
        SELECT found.* FROM (
            SELECT DISTINCT owner_id, owner_creation FROM deleted_records
            WHERE {_OF_POLICY} AND {_retention_condition("deleted_records", "$2")}
        ) AS first, LATERAL ({{step}}) AS found
        UNION
        SELECT found.* FROM chain AS first, LATERAL ({{step}}) AS found WHERE first.owner_id IS NOT NULL
    )
    SELECT * FROM chain
""".format(
        step=f"""
        SELECT first.owner_id, first.owner_creation, there, above.owner_id, above.owner_creation
        FROM (SELECT EXISTS (
            SELECT FROM roles WHERE role_id = first.owner_id AND creation = first.owner_creation OFFSET 0
        ) AS there OFFSET 0) AS standing
        LEFT JOIN LATERAL (
            SELECT
                CASE WHEN owner_id = resource_id THEN policy_id ELSE owner_id END AS owner_id,
                CASE WHEN owner_id = resource_id THEN policy_creation ELSE owner_creation END AS owner_creation
            FROM deleted_records
            WHERE resource_id = first.owner_id AND creation = first.owner_creation AND NOT there
                AND {_retention_condition("deleted_records", "$2")}
            ORDER BY number DESC LIMIT 1
        ) AS above ON true
    """
    )
)

_OF_OWNERS: Final = "((owner_id, owner_creation) IN (SELECT * FROM unnest($3::text[], $4::bigint[]))) IS TRUE"
_COLUMNS: Final = """
    number, resource_id, owner_id, owner_creation, creation, overwritten, extract(epoch FROM made_at)::double precision,
    extract(epoch FROM deleted_at)::double precision,
    extract(epoch FROM deleted_at + make_interval(secs => $2::double precision))::double precision,
    ARRAY(SELECT version FROM deleted_values WHERE record = number ORDER BY version), facts"""
_LISTED: Final = Statement.with_name("deleted_listed")(f"""
    SELECT {_COLUMNS} FROM deleted_records
    WHERE {_OF_POLICY} AND {_OF_OWNERS} AND {_retention_condition("deleted_records", "$2")}
    ORDER BY number DESC LIMIT $5::bigint OFFSET $6::bigint
""")
_LOCK_CHOSEN: Final = Statement(
    "deleted_lock_chosen", "SELECT FROM deleted_records WHERE number = ANY ($1::bigint[]) ORDER BY number FOR UPDATE"
)
_BY_NUMBER: Final = """
    unnest($5::bigint[]) WITH ORDINALITY AS asked (one, place), LATERAL (
        SELECT * FROM deleted_records WHERE deleted_records.number = asked.one OFFSET 0
    ) AS kept
"""
_CHOSEN: Final = Statement.with_name("deleted_chosen")(f"""
    SELECT {_COLUMNS.removesuffix("facts")} CASE
        WHEN row_number() OVER named = 1 OR sum(octet_length(facts::text)) OVER named <= {FACTS_MOST} THEN facts END
    FROM {_BY_NUMBER}
    WHERE {_OF_POLICY} AND {_OF_OWNERS} AND {_retention_condition("kept", "$2")}
    WINDOW named AS (ORDER BY place) ORDER BY number DESC
""")
_PURGE: Final = Statement.with_name("deleted_purge")(f"""
    DELETE FROM deleted_records
    WHERE {_OF_POLICY} AND {_OF_OWNERS} AND {_retention_condition("deleted_records", "$2")} RETURNING resource_id
""")
_PURGE_CHOSEN: Final = Statement.with_name("deleted_purge_chosen")(f"""
    DELETE FROM deleted_records WHERE number = ANY (ARRAY(
        SELECT number FROM {_BY_NUMBER} WHERE {_OF_POLICY} AND {_OF_OWNERS} AND {_retention_condition("kept", "$2")}
    )) RETURNING resource_id
""")

_LOCK: Final = Statement.with_name("deleted_lock")(
    "SELECT FROM resources WHERE resource_id = ANY ($1::text[]) ORDER BY resource_id FOR NO KEY UPDATE"
)
_PRESENT: Final = Statement.with_name("deleted_standings")(f"""
    SELECT
        resource_id, owner_id, (SELECT creation FROM roles WHERE role_id = owner_id), policy_id,
        extract(epoch FROM created_at)::double precision,
        {deletions.readers_of("found.resource_id")},
        (SELECT version FROM secrets WHERE secrets.resource_id = found.resource_id ORDER BY version DESC LIMIT 1)
    FROM unnest($1::text[]) AS asked (id), LATERAL (
        SELECT resource_id, owner_id, policy_id, created_at FROM resources WHERE resource_id = asked.id OFFSET 0
    ) AS found
""")
_CREATIONS: Final = Statement.with_name("deleted_creations")("""
    SELECT role_id, creation FROM unnest($1::text[]) AS asked (id), LATERAL (
        SELECT role_id, creation FROM roles WHERE role_id = asked.id OFFSET 0
    ) AS found
""")

_RENAME: Final = Statement.with_name("deleted_rename")(f"""
    UPDATE roles SET creation = made.creation FROM {rows_of("text", "bigint")} AS made (id, creation) WHERE role_id = made.id
""")
_DATE: Final = Statement.with_name("deleted_date")(f"""
    UPDATE resources SET created_at = (SELECT made_at FROM deleted_records WHERE deleted_records.number = made.number)
    FROM {rows_of("text", "bigint")} AS made (id, number) WHERE resource_id = made.id
""")
_FOLLOW: Final = Statement.with_name("deleted_follow")(f"""
    UPDATE deleted_records SET owner_creation = (SELECT roles.creation FROM roles WHERE role_id = made.id)
    FROM {rows_of("text", "bigint")} AS made (id, creation) WHERE owner_id = made.id AND owner_creation = made.creation
""")

#: The rows ``$1`` of records that were made again.
_RESTORED: Final = """
    unnest($1::bigint[]) AS asked (one), LATERAL (
        SELECT resource_id, facts FROM deleted_records WHERE deleted_records.number = asked.one OFFSET 0
    ) AS made
"""
_SWITCH: Final = Statement.with_name("deleted_switch")(f"""
    INSERT INTO authenticator_switches (resource_id, enabled)
    SELECT resource_id, (facts ->> 'enabled')::boolean FROM {_RESTORED} WHERE facts ? 'enabled'
""")
_DISTRUST: Final = Statement.with_name("deleted_distrust")(f"""
    INSERT INTO distrusted_keys (resource_id, key, distrusted_by, created_at)
    SELECT resource_id, given ->> 0, given ->> 1, (given ->> 2)::timestamptz
    FROM {_RESTORED}, jsonb_array_elements(facts -> 'distrusted') AS given
""")
_FILL: Final = Statement.with_name("deleted_fill")("""
    INSERT INTO secrets (resource_id, version, sealed, created_at, expires_at)
    SELECT resource_id, kept.* FROM unnest($1::bigint[]) AS asked (number), LATERAL (
        SELECT resource_id FROM deleted_records WHERE deleted_records.number = asked.number OFFSET 0
    ) AS filled, LATERAL (
        SELECT version, sealed, created_at, expires_at FROM deleted_values WHERE record = asked.number OFFSET 0
    ) AS kept
""")
_MARK_DUE: Final = Statement.with_name("deleted_note")("""
    UPDATE expirations SET due_at = '-infinity', changed = true, edition = edition + 1
    WHERE resource_id = ANY (ARRAY(SELECT resource_id FROM deleted_records WHERE number = ANY ($1::bigint[])))
""")
_REMOVE: Final = Statement("deleted_remove", "DELETE FROM deleted_records WHERE number = ANY ($1::bigint[])")

_PURGE_OLD: Final = Statement.with_name("deleted_purge_old")(f"""
    DELETE FROM deleted_records WHERE number = ANY (ARRAY(
        SELECT number FROM deleted_records
        WHERE deleted_at <= now() - make_interval(secs => $1::double precision) ORDER BY deleted_at LIMIT {PURGED}
    )) RETURNING number
""")
_EXCESSIVE: Final = Statement.with_name("deleted_excessive")(f"""
    SELECT account FROM deleted_records WHERE account IS NOT NULL
    GROUP BY account HAVING sum(bytes) > $1::bigint OR count(*) > {RECORDS_MOST} ORDER BY account
""")
_TOTALS: Final = Statement.with_name("deleted_totals")(
    "SELECT count(*), coalesce(sum(bytes), 0)::bigint FROM deleted_records WHERE account IS NOT NULL"
)


@attrs.frozen
class DeletedStore:
    """The store of kept records."""

    _database: Statements
    _keeping: RecordRetention = DEFAULT_RETENTION

    async def transact_read_only(self, work: Callable[[DeletedTransaction], Awaitable[T]]) -> T:
        """Run ``work``, which changes nothing, in a transaction; a standby can do so too."""
        return await self._database.transact_read_only(
            lambda transaction: work(DeletedTransaction(transaction, self._keeping))
        )

    async def transact(self, work: Callable[[DeletedTransaction], Awaitable[T]]) -> T:
        """Run ``work`` as ``PolicyStore.transact`` does."""
        return await transact_as_load(
            self._database, lambda transaction: work(DeletedTransaction(transaction, self._keeping))
        )

    async def purge_old(self) -> int:
        """Remove for good the records past their retention, some at a time, and return how many those were."""
        count = 0
        while removed := len(await self._database.change(_PURGE_OLD, self._keeping.seconds)):
            count += removed
        return count

    async def enforce_limits(self) -> dict[str, int]:
        """Remove the oldest records of accounts that have too many, and return how many these were, by account."""
        accounts = [account for (account,) in await self._database.fetch(_EXCESSIVE, self._keeping.bytes)]

        async def apply_limits(transaction: Transaction) -> dict[str, int]:
            return {account: await deletions.purge_excess(transaction, account, self._keeping) for account in accounts}

        return await self._database.transact(apply_limits) if accounts else {}

    async def read_usage(self) -> RetainedTotals:
        """Return how much is kept."""
        (totals,) = await self._database.fetch(_TOTALS)
        return RetainedTotals(*totals)


@attrs.frozen
class DeletedTransaction(PolicyTransaction):
    """A transaction of a policy that can read and restore deleted records. Those past their retention don't appear."""

    async def list_owners(self, policy: RoleName) -> list[DeletedRecordOwner]:
        """Return the owners of the policy's kept records, each once; of those that are kept their owners, and so on."""
        rows = await self._transaction.fetch(_OWNERS, str(policy), self._keeping.seconds)
        return [
            DeletedRecordOwner(
                RoleIdentity(role, creation), there, None if owner is None else RoleIdentity(owner, owner_creation)
            )
            for role, creation, there, owner, owner_creation in rows
        ]

    async def filter_inspected(self, caller: RoleName, resources: Iterable[str]) -> frozenset[str]:
        """Return those of the resources that the caller inspects (INS-1)."""
        return await filter_inspected(self._transaction.fetch, caller, resources)

    async def list_records(
        self, policy: RoleName, owners: Iterable[RoleIdentity], limit: int, offset: int
    ) -> list[DeletedRecord]:
        """Return the policy's kept records that belonged to these owners, the newest first."""
        asked = self._query_parameters(policy, owners)
        return [_parse_record(row) for row in await self._transaction.fetch(_LISTED, *asked, limit, offset)]

    async def lock_records(
        self, policy: RoleName, owners: Iterable[RoleIdentity], numbers: Sequence[int]
    ) -> list[DeletedRecord]:
        """Return those of the same with these numbers, the newest first, locked until the transaction ends.

        Those that are named first are ``whole``, until their facts have ``FACTS_MOST`` bytes together.
        """
        await self._transaction.fetch(_LOCK_CHOSEN, _number_array(numbers))
        asked = self._query_parameters(policy, owners)
        return [_parse_record(row) for row in await self._transaction.fetch(_CHOSEN, *asked, _number_array(numbers))]

    async def read_present_records(self, resources: Iterable[str]) -> dict[str, PresentRecord]:
        """Return the state of those of the resources that exist, locked against writers of values."""
        asked = [(resource,) for resource in sorted(resources)]
        await fetch_for_rows(self._transaction, _LOCK, asked)
        rows = await fetch_for_rows(self._transaction, _PRESENT, asked)
        return {
            resource: PresentRecord(
                RoleIdentity(owner, creation),
                policy,
                made_at,
                frozenset(RoleIdentity(*reader) for reader in readers or ()),
                newest,
            )
            for resource, owner, creation, policy, made_at, readers, newest in rows
        }

    async def read_creations(self, roles: Iterable[str]) -> dict[str, int]:
        """Return the creations of those of the roles that exist."""
        return dict(await fetch_for_rows(self._transaction, _CREATIONS, [(role,) for role in roles]))

    async def restore_records(self, made: Sequence[DeletedRecord], filled: Sequence[DeletedRecord]) -> None:
        """Restore what was kept of records, and remove it from the kept ones.

        ``made``: those that this transaction has made again. They get the times when they had been made; webservices are
        switched, and distrust keys, as before; roles that can't log in get their creations back. Of users and hosts the next
        creation takes the place of the old one, where it owned kept records. ``filled``: those whose values are put back,
        with versions, times and expirations as they were.
        """
        run = self._transaction.fetch
        roles = [(record.resource, record.creation) for record in made if record.creation is not None]
        # Tokens name the creations of users and hosts: old tokens must prove nothing.
        actors = [role for role in roles if role[0].split(":", 2)[1] in ACTOR_KINDS]
        await run(_RENAME, *_pair_columns([role for role in roles if role not in actors]))
        await run(_FOLLOW, *_pair_columns(actors))
        await run(_DATE, *_pair_columns([(record.resource, record.number) for record in made]))
        made_numbers, filled_numbers = ([record.number for record in some] for some in (made, filled))
        for statement in (_SWITCH, _DISTRUST):
            await run(statement, _number_array(made_numbers))
        for statement in (_FILL, _MARK_DUE):
            await run(statement, _number_array(filled_numbers))
        await run(_REMOVE, _number_array([*made_numbers, *filled_numbers]))

    async def purge_records(
        self, policy: RoleName, owners: Iterable[RoleIdentity], numbers: Sequence[int] | None
    ) -> list[str]:
        """Remove for good what ``lock_records`` would return, or ``list_records`` in all; return the full id of each."""
        asked = self._query_parameters(policy, owners)
        if numbers is None:
            rows = await self._transaction.fetch(_PURGE, *asked)
        else:
            rows = await self._transaction.fetch(_PURGE_CHOSEN, *asked, _number_array(numbers))
        return sorted(resource for (resource,) in rows)

    def _query_parameters(self, policy: RoleName, owners: Iterable[RoleIdentity]) -> tuple[str, float, str, str]:
        known = tuple(owners)
        roles = to_array([owner.role for owner in known])
        return str(policy), self._keeping.seconds, roles, _number_array([owner.creation for owner in known])


def _pair_columns(rows: Sequence[tuple[str, int]]) -> tuple[str, str]:
    """Return the columns of rows, as ``to_array`` does."""
    return to_array([name for name, _ in rows]), _number_array(number for _, number in rows)


def _number_array(numbers: Iterable[int]) -> str:
    """Return an array of integers, as ``to_array`` does."""
    return "{" + ",".join(map(str, numbers)) + "}"


def _parse_record(row: tuple[Any, ...]) -> DeletedRecord:
    number, resource, owner, owner_creation, creation, overwritten, made_at, deleted_at, until, versions, details = row
    facts = details or {}
    grants, permissions = facts.get("grants", ()), facts.get("permissions", ())
    return DeletedRecord(
        number=number,
        resource=resource,
        owner=RoleIdentity(owner, owner_creation),
        creation=creation,
        overwritten=overwritten,
        made_at=made_at,
        deleted_at=deleted_at,
        until=until,
        readers=frozenset(RoleIdentity(*reader) for reader in facts.get("readers", ())),
        versions=tuple(versions),
        annotations=tuple(AnnotationRow(resource, *given) for given in facts.get("annotations", ())),
        restrictions=tuple(RestrictionRow(resource, cidr) for cidr in facts.get("restrictions", ())),
        grants=tuple(MembershipRow(role, member, ownership=False, admin_option=admin) for role, member, admin, *_ in grants),
        permissions=tuple(PermissionRow(*given[:3]) for given in permissions),
        creations=_parse_creations(grants, permissions),
        whole=details is not None,
    )


def _parse_creations(grants: Iterable[Sequence[Any]], permissions: Iterable[Sequence[Any]]) -> Mapping[str, int]:
    found = {role: creation for grant in grants for role, creation in zip(grant[:2], grant[3:], strict=True)}
    return found | {given[2]: given[3] for given in permissions}
