"""The state of the database, as health asks for it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

import attrs

from svc.model.databases import Ages, AttachedStandby, DatabaseNode, ReplicationPosition, VerifiedBackup
from svc.model.errors import StoreUnavailable
from svc.model.names import INTERNAL_ACCOUNT, ResourceName, RoleName
from svc.model.query_results import AccessFacts, Sealed
from svc.storage.driver.connection import TIMELINE
from svc.storage.driver.database import Database
from svc.storage.driver.failures import DatabaseAltered, StatementFailed
from svc.storage.driver.statements import PING, Fetching, ReadSource, Statement, Transaction
from svc.storage.roles import held_facts

T = TypeVar("T")

_STANDBY: Final = Statement("state_standby", "SELECT pg_is_in_recovery(), beaten_at FROM heartbeat")
_HEARTBEAT: Final = Statement("state_beat", "UPDATE heartbeat SET beaten_at = now()")
_CANARY: Final = Statement("canary", "SELECT sealed FROM canary")
_ADD_CANARY: Final = Statement("canary_add", "INSERT INTO canary (sealed) VALUES ($1::bytea) ON CONFLICT DO NOTHING")

# A standby that has only just started streams the log from the beginning of a segment, and reports all before that as
# received: as long as it has replayed more, it has received nothing. See Note [Beats] in svc/storage/driver/replication.py.
_POSITION: Final = Statement.with_name("state_position")("""
    SELECT
        lsn::text, pg_wal_lsn_diff(lsn, '0/0')::bigint, standby,
        CASE WHEN standby AND pg_last_wal_receive_lsn() >= lsn
            THEN pg_wal_lsn_diff(pg_last_wal_receive_lsn(), lsn)::bigint END,
        CASE WHEN standby THEN (
            SELECT greatest(extract(epoch FROM clock_timestamp() - beaten_at), 0)::float FROM heartbeat WHERE single
        ) END
    FROM (
        SELECT standby, CASE WHEN standby
            THEN coalesce(pg_last_wal_replay_lsn(), pg_last_wal_receive_lsn(), '0/0') ELSE pg_current_wal_lsn() END AS lsn
        FROM (SELECT pg_is_in_recovery() AS standby OFFSET 0) AS mode
        OFFSET 0
    ) AS log
""")

# A standby's timeline is as in Note [Histories] of svc/storage/driver/progress.py, and it counts as a standby since its
# PostgreSQL was started. A client that is still taking a base backup is no standby. Without the role pg_read_all_stats their
# states aren't shown.
_NODE: Final = Statement.with_name("state_node")(f"""
    SELECT
        now.timeline,
        extract(epoch FROM CASE WHEN standby THEN pg_postmaster_start_time()
            WHEN now.timeline = heartbeat.timeline THEN since END)::float,
        current_setting('server_version'),
        (SELECT greatest((SELECT max(version) FROM schema_steps), (SELECT max(version) FROM schema_versions))),
        CASE WHEN NOT standby THEN (
            SELECT json_agg(json_build_array(
                application_name, state, sync_state, pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)::bigint,
                extract(epoch FROM replay_lag)::float, extract(epoch FROM backend_start)::float
            ) ORDER BY application_name, pid)::text
            FROM pg_stat_replication WHERE state IS DISTINCT FROM 'backup'
        ) END
    FROM (SELECT pg_is_in_recovery() AS standby OFFSET 0) AS mode CROSS JOIN heartbeat CROSS JOIN LATERAL (
        SELECT CASE WHEN standby THEN greatest(heartbeat.timeline, (SELECT timeline_id FROM pg_control_checkpoint()))
            ELSE {TIMELINE} END AS timeline
    ) AS now
""")

#: How many standbys are reported.
_STANDBYS: Final = 16
# There is one key for each account that signs, its newest.
_AGES: Final = Statement.with_name("state_ages")("""
    SELECT
        (SELECT min(newest.created_at) FROM accounts JOIN LATERAL (
            SELECT created_at FROM signing_keys WHERE signing_keys.account = accounts.account ORDER BY serial DESC LIMIT 1
        ) AS newest ON true),
        extract(epoch FROM made_at)::double precision, extract(epoch FROM dumped_at)::double precision, file, beside
    FROM (SELECT) AS always LEFT JOIN backups ON single
""")
_BACKED_UP: Final = Statement("state_backed_up", "UPDATE backups SET made_at = clock_timestamp() WHERE single")
# A backup that is older than the last one doesn't show how much would be lost.
_BACKUP_VERIFIED: Final = Statement.with_name("state_backup_verified")("""
    UPDATE backups SET
        verified_at = clock_timestamp(), dumped_at = to_timestamp($1::double precision), size = $2::bigint, file = $3::text,
        beside = $4::boolean
    WHERE single AND (dumped_at IS NULL OR dumped_at <= to_timestamp($1))
""")
# The setting has a row only for roles that may read it.
_DATA_DIRECTORY: Final = Statement("state_data_directory", "SELECT setting FROM pg_settings WHERE name = 'data_directory'")

# The schema makes these. The caller's group has been given one privilege, and owns nothing.
_KNOWN_CALLER: Final = RoleName(INTERNAL_ACCOUNT, "user", "health")
_KNOWN_RESOURCE: Final = ResourceName(INTERNAL_ACCOUNT, "webservice", "health")
_KNOWN_FACTS: Final = AccessFacts(caller_exists=True, exists=True, privileges=frozenset({"read"}))


@attrs.frozen
class DatabaseState:
    """The state of the database, for health. ``reads`` is given where those may go to standbys."""

    _database: Database
    _reads: ReadSource = attrs.field(default=attrs.Factory(lambda self: self._database, takes_self=True))

    async def check_connection(self) -> None:
        """Return when a connection answers."""
        await self._reads.fetch(PING)

    async def check_transaction(self) -> None:
        """Commit a simple transaction that writes (on a standby: reads)."""

        async def read_standby(transaction: Transaction) -> bool:
            for standby, _ in await transaction.fetch(_STANDBY):
                return bool(standby)
            raise StoreUnavailable("the database has lost the row that health writes")

        if not await self._database.transact_read_only(read_standby):
            await self._database.change_unreported(_HEARTBEAT)

    async def read_canary(self) -> Sealed:
        """Return the sealed canary that was stored when the database was initialised.

        :raises StoreUnavailable: there is none yet.
        """
        for (sealed,) in await self._reads.fetch(_CANARY):
            return Sealed(sealed)
        raise StoreUnavailable("the database holds no canary yet")

    async def establish_canary(self, sealed: Sealed) -> Sealed:
        """Store the canary unless there is one, and return the one that is stored; used at the start."""
        if not await self._database.fetch(_CANARY):
            await self._database.change(_ADD_CANARY, sealed)
        return await self.read_canary()

    async def can_check_known_privileges(self) -> bool:
        """Return whether two queries about privileges, one held and one not, are answered correctly.

        It asks with the statement that real requests use.
        """
        return await held_facts(self._reads.fetch, _KNOWN_CALLER, str(_KNOWN_RESOURCE)) == _KNOWN_FACTS

    async def read_position(self) -> ReplicationPosition:
        """Return the position of the log, and of a standby how far it lags behind."""
        return await self._read_state(_read_position)

    async def read_ages(self) -> Ages:
        """Return since when keys are in use, and when the last backup was made."""
        return await self._read_state(_read_ages)

    async def record_backup(self) -> None:
        """Note that a backup was made now.

        :raises ReadOnlyStandby: the database is a standby.
        """
        await self._database.change(_BACKED_UP)

    async def record_verified_backup(self, backup: VerifiedBackup) -> None:
        """Note a backup that was found whole now, unless a newer one is noted.

        :raises ReadOnlyStandby: the database is a standby.
        """
        await self._database.change(_BACKUP_VERIFIED, backup.dumped, backup.size, backup.file, backup.beside)

    async def read_data_directory(self) -> str | None:
        """Return where PostgreSQL has its data, on its machine; ``None`` where the session's role may not read that."""
        return next((place for (place,) in await self._database.fetch(_DATA_DIRECTORY)), None)

    async def _read_state(self, ask: Callable[[Fetching], Awaitable[T]]) -> T:
        """Return the primary's answer, or, without a primary, that of a standby that reads may go to."""
        try:
            return await ask(self._database)
        except StoreUnavailable:
            if not self._reads.uses_standbys:
                raise
            return await ask(self._reads)


async def _read_position(place: Fetching) -> ReplicationPosition:
    (row,) = await place.fetch(_POSITION)
    position = ReplicationPosition(*row)
    # A setting that the role may not read is no reason to report the database as unhealthy.
    with suppress(StatementFailed, DatabaseAltered):
        for timeline, since, release, schema, standbys in await place.fetch(_NODE):
            seen = None if position.standby else _parse_standbys(standbys)
            return attrs.evolve(position, node=DatabaseNode(timeline, since, release.split()[0], schema, seen))
    return position


async def _read_ages(place: Fetching) -> Ages:
    ((signing_key, backup, dumped, file, beside),) = await place.fetch(_AGES)
    return Ages(signing_key, backup, None if dumped is None else VerifiedBackup(dumped, None, file or "", beside))


def _parse_standbys(text: str | None) -> tuple[AttachedStandby, ...] | None:
    rows = [] if text is None else json.loads(text)
    return tuple(AttachedStandby(*row) for row in rows[:_STANDBYS]) if all(state for _, state, *_ in rows) else None
