"""The queries of ``svc doctor`` to PostgreSQL, in a session that changes nothing."""

from __future__ import annotations

from typing import Final

import attrs

from svc.model.databases import Ages, DatabaseFacts
from svc.storage.database_state import DatabaseState
from svc.storage.driver.database import Database
from svc.storage.driver.statements import Statement
from svc.storage.sealed_columns import SealedValueStore

_CLOCK: Final = Statement("examination_clock", "SELECT extract(epoch FROM clock_timestamp())::double precision")
_FACTS: Final = Statement.with_name("examination_facts")("""
    SELECT
        current_setting('server_version_num')::integer,
        current_setting('listen_addresses'),
        current_setting('max_connections')::integer,
        (SELECT count(*)::integer FROM pg_stat_get_activity(NULL) WHERE datid <> 0),
        current_setting('fsync') = 'on' AND current_setting('synchronous_commit') <> 'off',
        current_setting('is_superuser') = 'on',
        (SELECT extract(epoch FROM last_archived_time)::double precision FROM pg_stat_archiver),
        has_function_privilege('pg_catalog.pg_hba_file_rules()', 'EXECUTE'),
        (SELECT extract(epoch FROM nullif(rolvaliduntil, 'infinity'))::double precision
            FROM pg_roles WHERE rolname = session_user AND rolvaliduntil > '-infinity'),
        (SELECT setting FROM pg_settings WHERE name = 'data_directory')
""")
_OPEN_RULES: Final = Statement.with_name("examination_rules")("""
    SELECT count(*)::integer FROM pg_hba_file_rules()
    WHERE type LIKE 'host%' AND auth_method <> 'reject' AND error IS NULL
        AND (address = 'all' OR (address IN ('0.0.0.0', '::') AND netmask IN ('0.0.0.0', '::')))
""")


@attrs.frozen
class DatabaseDiagnostics:
    """Queries to the database; ``current`` is the newest version of the schema that this program knows."""

    _database: Database
    _current: int

    async def read_clock(self) -> float:
        """Return the time of day on PostgreSQL's machine, in epoch seconds."""
        ((seconds,),) = await self._database.fetch(_CLOCK)
        return float(seconds)

    async def read_facts(self) -> DatabaseFacts:
        """Return the facts to evaluate.

        :raises StoreUnavailable: PostgreSQL can't be reached.
        :raises StartRefused: the database has no schema yet.
        """
        version = await SealedValueStore(self._database).read_schema_version()
        (row,) = await self._database.fetch(_FACTS)
        server, listens, most, used, durable, superuser, archived, may_see, ends, directory = row
        rules = None
        if may_see:
            ((rules,),) = await self._database.fetch(_OPEN_RULES)
        state = DatabaseState(self._database)
        current = version == self._current
        return DatabaseFacts(
            schema_behind=max(0, self._current - version),
            server_version=server,
            listens=listens,
            open_rules=rules,
            most_connections=most,
            connections=used,
            durable=durable,
            superuser=superuser,
            archived=archived,
            password_expires_at=ends,
            ages=await state.read_ages() if current else Ages(None, None),
            lag=(await state.read_position()).lag_seconds,
            directory=directory,
        )
