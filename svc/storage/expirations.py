"""The store of expirations on PostgreSQL: the values that expire or are rotated, and when that is due.

Note [Exclusive rounds]. A round holds an advisory lock in a transaction that does nothing else, for as long as the work
takes. A server that only lost its session goes on beside the next one for a moment: so every write of a round rechecks the
revision (column ``edition``), or the staged value, that it was decided on.

Note [Revisions]. A row is read in one transaction and acted upon in another. A value set or an annotation changed meanwhile
raises the revision, and a decision made on an earlier revision matches no row.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import attrs

from svc.model.deleted_records import DEFAULT_RETENTION, RecordRetention
from svc.model.events import EventBatch
from svc.model.expiration import LIFETIME, ROTATION_PREFIX, ROTATOR, DueVariable, Duration, RoundOwner
from svc.model.names import ResourceName
from svc.model.query_results import AccessFacts, CallerOrRole, Sealed
from svc.storage.driver.columns import to_array
from svc.storage.driver.statements import Statement, Statements, Transaction
from svc.storage.events import record_events
from svc.storage.roles import access_facts
from svc.storage.sealed_columns import EXPIRATION_LOCK
from svc.storage.secrets import ENDED_AT, LOCK, WRITE, interval_parameters

_TRY_LOCK: Final = Statement.with_name("expiration_turn")("""
    SELECT standby, CASE WHEN standby THEN false ELSE pg_try_advisory_xact_lock($1::bigint) END
    FROM (SELECT pg_is_in_recovery() AS standby OFFSET 0) AS mode
""")
_DUE: Final = Statement.with_name("expiration_due")(f"""
    SELECT
        due.resource_id, edition,
        ARRAY(
            SELECT ARRAY[name, value] FROM (SELECT * FROM annotations WHERE resource_id = due.resource_id OFFSET 0) AS given
            WHERE name = '{LIFETIME}' OR name LIKE '{ROTATION_PREFIX}%'
        ),
        changed, sealed, extract(epoch FROM expires_at)::double precision, coalesce(expires_at <= clock_timestamp(), false),
        failures
    FROM (SELECT * FROM expirations WHERE due_at <= now() ORDER BY due_at LIMIT $1::bigint) AS due
    LEFT JOIN LATERAL (
        SELECT sealed, expires_at FROM secrets WHERE secrets.resource_id = due.resource_id ORDER BY version DESC LIMIT 1
    ) AS newest ON true
""")

# Waits for a transaction that is setting a value, so that the values below are all that there are.
_CURRENT: Final = Statement.with_name("expiration_current")(
    "SELECT edition FROM expirations WHERE resource_id = $1::text AND edition = $2::bigint FOR NO KEY UPDATE"
)
_END_ALL: Final = Statement.with_name("expiration_end_all")("""
    UPDATE secrets SET
        expires_at = created_at + make_interval(months => $2::integer, days => $3::integer, secs => $4::double precision)
    WHERE resource_id = $1::text
""")
_REPLACE_NEWEST: Final = Statement.with_name("expiration_replace_newest")("""
    UPDATE secrets SET
        expires_at = CASE WHEN expires_at IS NOT NULL AND version = newest THEN
            created_at + make_interval(months => $2::integer, days => $3::integer, secs => $4::double precision) END
    FROM (SELECT max(version) AS newest FROM secrets WHERE resource_id = $1::text) AS known
    WHERE resource_id = $1
""")
_MARK_UNCHANGED: Final = Statement.with_name("expiration_settle")("""
    UPDATE expirations SET
        changed = false, failures = 0, fault = NULL,
        due_at = coalesce(
            (SELECT expires_at FROM secrets WHERE resource_id = $1 ORDER BY version DESC LIMIT 1), $2::timestamptz
        )
    WHERE resource_id = $1::text
""")
_MARK_HANDLED: Final = Statement.with_name("expiration_rest")("""
    UPDATE expirations SET
        changed = false, fault = $3::text,
        due_at = coalesce((
            SELECT CASE WHEN expires_at > now() THEN expires_at END FROM secrets
            WHERE secrets.resource_id = $1 ORDER BY version DESC LIMIT 1
        ), 'infinity')
    WHERE resource_id = $1::text AND edition = $2::bigint
""")
_FAIL: Final = Statement.with_name("expiration_fail")("""
    UPDATE expirations SET
        failures = failures + 1, fault = $4::text, due_at = clock_timestamp() + make_interval(secs => $3::double precision)
    WHERE resource_id = $1::text AND edition = $2::bigint
""")
_STAGE: Final = Statement.with_name("expiration_stage")("""
    UPDATE expirations SET
        candidate = coalesce(candidate, $2::bytea), due_at = clock_timestamp() + make_interval(secs => $3::double precision)
    WHERE resource_id = $1::text
    RETURNING candidate
""")
_CANDIDATE: Final = Statement.with_name("expiration_candidate")(
    "SELECT edition FROM expirations WHERE resource_id = $1::text AND candidate = $2::bytea FOR NO KEY UPDATE"
)
_PROMOTED: Final = Statement("expiration_promoted", "UPDATE expirations SET candidate = NULL WHERE resource_id = $1::text")
_VALUES: Final = Statement.with_name("expiration_values")(f"""
    SELECT asked.resource_id, sealed
    FROM unnest($1::text[]) AS asked (resource_id)
    CROSS JOIN LATERAL (
        SELECT sealed, {ENDED_AT.format(value="secrets", resource="asked.resource_id")} AS ended_at
        FROM secrets WHERE secrets.resource_id = asked.resource_id ORDER BY version DESC LIMIT 1
    ) AS newest
    WHERE ended_at IS NULL
""")
_ANNOTATIONS: Final = Statement.with_name("expiration_annotations")(f"""
    SELECT name, value FROM annotations
    WHERE resource_id = $1::text AND (name = '{LIFETIME}' OR name LIKE '{ROTATION_PREFIX}%')
""")
_CLEAR: Final = Statement("expiration_clear", "UPDATE secrets SET expires_at = NULL WHERE resource_id = $1::text")
_CLEARED: Final = Statement.with_name("expiration_cleared")(f"""
    UPDATE expirations SET
        due_at = CASE WHEN EXISTS (SELECT FROM annotations WHERE resource_id = $1 AND name = '{ROTATOR}')
            THEN '-infinity'::timestamptz ELSE 'infinity' END,
        changed = false, edition = edition + 1, failures = 0, fault = NULL
    WHERE resource_id = $1::text
""")


@attrs.frozen
class ExpirationStore:
    """Variables that are due. Every method may raise ``StoreUnavailable`` and ``ReadOnlyStandby``.

    A decision on a revision that is not the current one any more is dropped: the variable is due again.
    """

    _database: Statements
    _keeping: RecordRetention = DEFAULT_RETENTION

    async def run_exclusively(self, work: Callable[[], Awaitable[None]]) -> RoundOwner:
        """Do ``work`` unless another server is doing it, or this one's database is a standby (Note [Exclusive rounds])."""

        async def run_if_locked(transaction: Transaction) -> RoundOwner:
            ((standby, ours),) = await transaction.fetch(_TRY_LOCK, EXPIRATION_LOCK)
            if not ours:
                return RoundOwner.STANDBY if standby else RoundOwner.OTHERS
            await work()
            return RoundOwner.OURS

        return await self._database.transact_read_only(run_if_locked)

    async def list_due(self, most: int) -> list[DueVariable]:
        """Return the variables that are due, at most ``most`` of them, those that have been due for longest first."""
        return [
            DueVariable(ResourceName(*resource.split(":", 2)), revision, dict(annotations), *others)
            for resource, revision, annotations, *others in await self._database.fetch(_DUE, most)
        ]

    async def set_lifetime(self, due: DueVariable, lifetime: Duration | None) -> None:
        """Make all values expire ``lifetime`` after they were set, or never; the variable is due when the newest expires."""
        await self._change_expirations(due, _END_ALL, lifetime, "infinity")

    async def set_interval(self, due: DueVariable, interval: Duration) -> None:
        """Have the newest value replaced ``interval`` after it was set, if it was to be replaced, and else now."""
        await self._change_expirations(due, _REPLACE_NEWEST, interval, "-infinity")

    async def _change_expirations(
        self, due: DueVariable, statement: Statement, duration: Duration | None, otherwise: str
    ) -> None:
        variable = str(due.variable)

        async def apply_change(transaction: Transaction) -> None:
            await transaction.fetch(LOCK, variable)
            if await transaction.fetch(_CURRENT, variable, due.revision):
                await transaction.fetch(statement, variable, *interval_parameters(duration))
                await transaction.fetch(_MARK_UNCHANGED, variable, otherwise)

        await self._database.transact(apply_change)

    async def mark_handled(self, due: DueVariable, fault: str | None = None) -> None:
        """Leave the variable alone until its newest value expires, or something changes; ``fault`` is shown with it."""
        await self._database.change(_MARK_HANDLED, str(due.variable), due.revision, fault)

    async def record_failure(self, due: DueVariable, pause: float, fault: str) -> None:
        """Count a failed rotation, record its ``fault``, and make the variable due again in ``pause`` seconds."""
        await self._database.change(_FAIL, str(due.variable), due.revision, pause, fault)

    async def stage_value(self, variable: ResourceName, candidate: Sealed, lease: float) -> Sealed | None:
        """Stage a value that is about to be put in force elsewhere, and return the staged one.

        An earlier one stays, since it isn't known whether it is in force. For ``lease`` seconds the variable is not due.
        ``None`` when the variable is missing.
        """
        for (kept,) in await self._database.change(_STAGE, str(variable), candidate, lease):
            return Sealed(kept)
        return None

    async def promote_value(
        self, variable: ResourceName, candidate: Sealed, interval: Duration, trail: EventBatch | None = None
    ) -> int | None:
        """Make the staged value the newest, due after ``interval``; return its version, ``None`` if it isn't staged now."""

        async def apply_change(transaction: Transaction) -> int | None:
            locked = await transaction.fetch(LOCK, str(variable))
            if not (locked and await transaction.fetch(_CANDIDATE, str(variable), candidate)):
                return None
            ((version,),) = await transaction.fetch(
                WRITE, str(variable), candidate, *interval_parameters(interval), self._keeping.is_enabled
            )
            await transaction.fetch(_PROMOTED, str(variable))
            await record_events(transaction, trail)
            return int(version)

        return await self._database.transact(apply_change)

    async def read_unexpired_values(self, variables: Sequence[ResourceName]) -> dict[str, Sealed]:
        """Return the newest values of those that have one which hasn't expired, by full ids."""
        rows = await self._database.fetch(_VALUES, to_array([str(name) for name in variables]))
        return {name: Sealed(sealed) for name, sealed in rows}

    async def clear_expirations(
        self,
        caller: CallerOrRole,
        variable: ResourceName,
        decide: Callable[[AccessFacts], None],
        trail: EventBatch | None = None,
        check_annotations: Callable[[Mapping[str, str]], None] = lambda _: None,
    ) -> None:
        """Let ``decide`` check, or raise, then let no value of the variable expire; a rotated one is due now (SEC-25).

        ``check_annotations`` is called after ``decide``, with the annotations about expiration, and may raise, too.
        """

        async def apply_change(transaction: Transaction) -> None:
            await transaction.fetch(LOCK, str(variable))
            decide(await access_facts(transaction.fetch, caller, str(variable)))
            check_annotations(dict(await transaction.fetch(_ANNOTATIONS, str(variable))))
            await transaction.fetch(_CLEAR, str(variable))
            await transaction.fetch(_CLEARED, str(variable))
            await record_events(transaction, trail)

        await self._database.transact(apply_change)
