"""The state of the database, as health asks for it."""

from __future__ import annotations

from typing import Final

import attrs
from zope.interface import implementer

from svc.model.errors import StoreUnavailable
from svc.model.names import INTERNAL_ACCOUNT, ResourceName, RoleName
from svc.model.ports import IDatabaseState
from svc.model.query_results import AccessFacts, ReplicationPosition, Sealed
from svc.storage.driver.database import Database, Statement, Transaction
from svc.storage.roles import access_facts

_ANSWER: Final = Statement("state_answer", "SELECT 1")
_STANDBY: Final = Statement("state_standby", "SELECT pg_is_in_recovery(), beaten_at FROM heartbeat")
_BEAT: Final = Statement("state_beat", "UPDATE heartbeat SET beaten_at = now()")
_CANARY: Final = Statement("canary", "SELECT sealed FROM canary")
_ADD_CANARY: Final = Statement("canary_add", "INSERT INTO canary (sealed) VALUES ($1::bytea) ON CONFLICT DO NOTHING")

# A standby that has only just begun asks for the log from the beginning of a segment, and takes what comes before that for
# received: as long as it has replayed more, it has received nothing. See Note [Beats] in svc/storage/driver/replication.py.
_POSITION: Final = Statement.named("state_position")("""
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

# The schema makes these. The caller's group has been given one privilege, and owns nothing.
_ASKER: Final = RoleName(INTERNAL_ACCOUNT, "user", "health")
_ASKED: Final = ResourceName(INTERNAL_ACCOUNT, "webservice", "health")
_KNOWN: Final = AccessFacts(caller_exists=True, exists=True, privileges=frozenset({"read"}))


@implementer(IDatabaseState)
@attrs.frozen
class DatabaseState:
    """Provides ``IDatabaseState`` on PostgreSQL."""

    _database: Database

    async def connected(self) -> None:
        """See ``IDatabaseState``."""
        await self._database.fetch(_ANSWER)

    async def transaction(self) -> None:
        """See ``IDatabaseState``."""

        async def look(transaction: Transaction) -> bool:
            for standby, _ in await transaction.fetch(_STANDBY):
                return bool(standby)
            raise StoreUnavailable("the database has lost the row that health writes")

        if not await self._database.look(look):
            await self._database.change(_BEAT)

    async def canary(self) -> Sealed:
        """See ``IDatabaseState``."""
        for (sealed,) in await self._database.fetch(_CANARY):
            return Sealed(sealed)
        raise StoreUnavailable("the database holds no canary yet")

    async def establish_canary(self, sealed: Sealed) -> Sealed:
        """See ``IDatabaseState``."""
        if not await self._database.fetch(_CANARY):
            await self._database.change(_ADD_CANARY, sealed)
        return await self.canary()

    async def privilege_known(self) -> bool:
        """See ``IDatabaseState``. It asks with the statement that real requests use."""
        return await access_facts(self._database, _ASKER, str(_ASKED)) == _KNOWN

    async def position(self) -> ReplicationPosition:
        """See ``IDatabaseState``."""
        (row,) = await self._database.fetch(_POSITION)
        return ReplicationPosition(*row)
