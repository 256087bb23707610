"""The store of counted reads on PostgreSQL.

Note [Added once]. Whether a batch was added isn't always known: the answer to a COMMIT, or to another server, may be lost.
So the number of the last batch of each server is written with the counts, and a batch that comes again changes nothing.

Note [Nobody waits]. Counts refer to no role and to no resource, so that a load that deletes these locks nothing of them, and
is delayed by nothing. All that add counts go by one order: server, variables, roles, pairs.

Note [Numbers are scarce]. A number is used up by each INSERT, also by one that conflicts. So only what isn't there is
inserted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from svc.model.names import ResourceName, RoleName
from svc.model.readings import (
    DAYS_KEPT,
    CountingState,
    PurgePosition,
    Reader,
    ReadersCursor,
    ReadingBatch,
    VariableRead,
    VariableUse,
)
from svc.storage.driver.columns import to_array
from svc.storage.driver.statements import Statement, Statements, Transaction
from svc.storage.sql.access_facts import HELD, administrators_of, filter_inspected

#: A server is missing when it has not been heard for so many seconds, and forgotten when nobody asks it for so many.
SILENCE: Final = 180
FORGOTTEN: Final = 3600

#: How many variables, and how many roles, one step of a purge goes through.
PURGE_STEP: Final = 500

#: The day that a parameter has as a number.
_DAY: Final = "date '1970-01-01' + {}::integer"

_CLAIM: Final = Statement.with_name("readings_claim")("""
    INSERT INTO reading_sources (source, sequence, added_at) VALUES ($1::text, $2::bigint, now())
    ON CONFLICT (source) DO UPDATE SET sequence = excluded.sequence, added_at = excluded.added_at
    WHERE reading_sources.sequence < excluded.sequence
    RETURNING source
""")
_ADD_VARIABLES: Final = Statement.with_name("readings_add_variables")(f"""
    INSERT INTO read_variables (resource_id, made_at, last_day)
    SELECT resource_id, created_at, {_DAY.format("$2")} FROM unnest($1::text[]) AS given (id), LATERAL (
        SELECT resource_id, created_at FROM resources WHERE resources.resource_id = given.id OFFSET 0
    ) AS found
    WHERE split_part(resource_id, ':', 2) = 'variable' AND NOT EXISTS (
        SELECT FROM read_variables
        WHERE read_variables.resource_id = found.resource_id AND made_at = found.created_at OFFSET 0
    )
    ORDER BY resource_id
    ON CONFLICT DO NOTHING
""")
_ADVANCE_VARIABLES: Final = Statement.with_name("readings_advance_variables")(f"""
    WITH earlier (variable) AS MATERIALIZED (
        SELECT variable FROM read_variables WHERE last_day < {_DAY.format("$2")} AND variable = ANY (ARRAY(
            SELECT known.variable FROM unnest($1::text[]) AS given (id), LATERAL (
                SELECT created_at FROM resources WHERE resources.resource_id = given.id OFFSET 0
            ) AS found, LATERAL (
                SELECT variable FROM read_variables
                WHERE read_variables.resource_id = given.id AND made_at = found.created_at OFFSET 0
            ) AS known
        ))
        ORDER BY variable FOR NO KEY UPDATE
    )
    UPDATE read_variables SET last_day = {_DAY.format("$2")} FROM earlier WHERE read_variables.variable = earlier.variable
""")
_ADD_READERS: Final = Statement.with_name("readings_add_readers")("""
    INSERT INTO readers (role_id, creation)
    SELECT role_id, creation FROM unnest($1::text[], $2::bigint[]) AS given (id, number), LATERAL (
        SELECT role_id, creation FROM roles
        WHERE roles.role_id = given.id AND roles.creation = given.number OFFSET 0
    ) AS found
    WHERE NOT EXISTS (
        SELECT FROM readers WHERE readers.role_id = found.role_id AND readers.creation = found.creation OFFSET 0
    )
    ORDER BY role_id
    ON CONFLICT DO NOTHING
""")
_ADD_COUNTS: Final = Statement.with_name("readings_add_counts")(f"""
    INSERT INTO readings (days, count, variable, reader, last_day)
    SELECT 1, given.count, variable, reader, {_DAY.format("$5")}
    FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) AS given (variable_id, role_id, creation, count),
    LATERAL (
        SELECT created_at FROM resources WHERE resource_id = given.variable_id OFFSET 0
    ) AS found, LATERAL (
        SELECT variable FROM read_variables
        WHERE resource_id = given.variable_id AND made_at = found.created_at OFFSET 0
    ) AS known, LATERAL (
        SELECT reader FROM readers WHERE readers.role_id = given.role_id AND readers.creation = given.creation OFFSET 0
    ) AS who
    ORDER BY variable, reader
    ON CONFLICT (variable, reader) DO UPDATE SET
        last_day = greatest(readings.last_day, excluded.last_day),
        count = readings.count + excluded.count,
        days = CASE
            WHEN excluded.last_day >= readings.last_day + {DAYS_KEPT} THEN 1
            WHEN excluded.last_day >= readings.last_day
                THEN (readings.days << (excluded.last_day - readings.last_day)) | 1
            WHEN excluded.last_day > readings.last_day - {DAYS_KEPT}
                THEN readings.days | (1::bigint << (readings.last_day - excluded.last_day))
            ELSE readings.days
        END
""")
_ADD_LOSSES: Final = Statement.with_name("readings_add_losses")("""
    INSERT INTO reading_losses (day) SELECT date '1970-01-01' + given.day FROM unnest($1::integer[]) AS given (day)
    ORDER BY day ON CONFLICT DO NOTHING
""")
_HEARD: Final = Statement.with_name("readings_heard")("""
    INSERT INTO reading_servers (server, heard_at, asked_at)
    SELECT server, CASE WHEN server = ANY ($2::text[]) THEN now() END, now()
    FROM unnest($1::text[]) AS given (server) ORDER BY server
    ON CONFLICT (server) DO UPDATE
    SET heard_at = coalesce(excluded.heard_at, reading_servers.heard_at), asked_at = excluded.asked_at
""")
_FORGET: Final = Statement.with_name("readings_forget")(
    f"DELETE FROM reading_servers WHERE asked_at < now() - make_interval(secs => {FORGOTTEN})"
)
_STATE: Final = Statement.with_name("readings_state")(f"""
    SELECT
        extract(epoch FROM since)::double precision,
        ARRAY(
            SELECT server FROM reading_servers
            WHERE (heard_at > now() - make_interval(secs => {SILENCE})) IS NOT TRUE ORDER BY server
        ),
        (SELECT max(day) - date '1970-01-01' FROM reading_losses)
    FROM readings_kept WHERE single
""")
_READERS: Final = Statement.with_name("readings_readers")(f"""
    SELECT who.role_id, one.last_day - date '1970-01-01', one.count, one.days
    FROM (SELECT created_at FROM resources WHERE resource_id = $1::text OFFSET 0) AS resource, LATERAL (
        SELECT variable FROM read_variables WHERE resource_id = $1 AND made_at = resource.created_at OFFSET 0
    ) AS known, LATERAL (
        SELECT reader, last_day, count, days FROM readings
        WHERE readings.variable = known.variable AND last_day >= {_DAY.format("$2")} AND last_day <= {_DAY.format("$3")}
        OFFSET 0
    ) AS one, LATERAL (
        SELECT role_id FROM readers WHERE readers.reader = one.reader AND EXISTS (
            SELECT FROM roles WHERE roles.role_id = readers.role_id AND roles.creation = readers.creation OFFSET 0
        ) OFFSET 0
    ) AS who
    WHERE one.last_day < {_DAY.format("$3")} OR who.role_id > $4::text
    ORDER BY one.last_day DESC, who.role_id LIMIT $5::bigint
""")
_READ_BY: Final = Statement.with_name("readings_read_by")(f"""
    SELECT found.resource_id, one.last_day - date '1970-01-01', one.count
    FROM (SELECT creation FROM roles WHERE role_id = $1::text OFFSET 0) AS present, LATERAL (
        SELECT reader FROM readers WHERE role_id = $1 AND readers.creation = present.creation OFFSET 0
    ) AS who, LATERAL (
        SELECT variable, last_day, count FROM readings
        WHERE readings.reader = who.reader AND last_day >= {_DAY.format("$2")} OFFSET 0
    ) AS one, LATERAL (
        SELECT resource_id FROM read_variables WHERE read_variables.variable = one.variable AND EXISTS (
            SELECT FROM resources
            WHERE resources.resource_id = read_variables.resource_id AND created_at = read_variables.made_at OFFSET 0
        ) OFFSET 0
    ) AS found
    ORDER BY one.last_day DESC, found.resource_id LIMIT $3::bigint
""")
_READ_SINCE: Final = Statement.with_name("readings_read_since")(f"""
    SELECT given.id FROM unnest($1::text[]) AS given (id), LATERAL (
        SELECT created_at FROM resources WHERE resource_id = given.id OFFSET 0
    ) AS found, LATERAL (
        SELECT last_day FROM read_variables WHERE resource_id = given.id AND made_at = found.created_at OFFSET 0
    ) AS known
    WHERE known.last_day >= {_DAY.format("$2")} ORDER BY given.id COLLATE "C"
""")
_VARIABLES: Final = Statement.with_name("readings_variables")("""
    SELECT found.resource_id, extract(epoch FROM found.created_at)::double precision, known.last_day - date '1970-01-01'
    FROM (
        SELECT resource_id, created_at FROM resources
        WHERE resource_id > greatest($1::text || ':variable:', $2::text) COLLATE "C"
            AND resource_id < ($1 || ':variable;') COLLATE "C"
        ORDER BY resource_id LIMIT $3::bigint
    ) AS found LEFT JOIN LATERAL (
        SELECT last_day FROM read_variables
        WHERE read_variables.resource_id = found.resource_id AND made_at = found.created_at OFFSET 0
    ) AS known ON true
    ORDER BY found.resource_id
""")
_OWNED: Final = Statement.with_name("readings_owned")(f"""
    WITH RECURSIVE {HELD.format(caller="$1")},
    asked (resource_id, owner_id) AS MATERIALIZED (
        SELECT resource_id, owner_id FROM unnest($2::text[]) AS given (id), LATERAL (
            SELECT resource_id, owner_id FROM resources WHERE resources.resource_id = given.id OFFSET 0
        ) AS found
    ),
    owners (owner_id) AS MATERIALIZED (
        SELECT owner_id FROM (SELECT DISTINCT owner_id FROM asked) AS owner
        WHERE EXISTS (SELECT FROM held WHERE role_id IN ({administrators_of("owner.owner_id")}))
    )
    SELECT resource_id FROM asked WHERE owner_id IN (SELECT owner_id FROM owners)
""")
_PURGE_VARIABLES: Final = Statement.with_name("readings_purge_variables")(f"""
    WITH part AS MATERIALIZED (
        SELECT variable, resource_id, made_at FROM read_variables WHERE variable > $1::integer
        ORDER BY variable LIMIT {PURGE_STEP}
    ),
    old AS (
        DELETE FROM readings WHERE variable = ANY (ARRAY(SELECT variable FROM part)) AND last_day < {_DAY.format("$2")}
    ),
    gone AS (
        DELETE FROM read_variables WHERE variable = ANY (ARRAY(
            SELECT variable FROM part WHERE resource_id NOT LIKE '/:%' AND NOT EXISTS (
                SELECT FROM resources WHERE resources.resource_id = part.resource_id AND created_at = part.made_at OFFSET 0
            ) AND NOT EXISTS (
                SELECT FROM deleted_records
                WHERE deleted_records.resource_id = part.resource_id AND deleted_records.made_at = part.made_at OFFSET 0
            )
        ))
    )
    SELECT CASE WHEN count(*) = {PURGE_STEP} THEN max(variable) END FROM part
""")
_PURGE_READERS: Final = Statement.with_name("readings_purge_readers")(f"""
    WITH part AS MATERIALIZED (
        SELECT reader, role_id, creation FROM readers WHERE reader > $1::integer ORDER BY reader LIMIT {PURGE_STEP}
    ),
    gone AS (
        DELETE FROM readers WHERE reader = ANY (ARRAY(
            SELECT reader FROM part WHERE role_id NOT LIKE '/:%' AND NOT EXISTS (
                SELECT FROM roles WHERE roles.role_id = part.role_id AND roles.creation = part.creation OFFSET 0
            )
        ))
    )
    SELECT CASE WHEN count(*) = {PURGE_STEP} THEN max(reader) END FROM part
""")
_PURGE_SOURCES: Final = Statement.with_name("readings_purge_sources")(
    f"DELETE FROM reading_sources WHERE added_at < now() - make_interval(days => {DAYS_KEPT})"
)


@attrs.frozen
class ReadingStore:
    """Reads of variables, counted by role."""

    _database: Statements

    async def add_batch(self, batch: ReadingBatch) -> None:
        """Add the counts of a batch, unless they were added before (Note [Added once]).

        Reads of variables and of roles that aren't there any more aren't counted.
        """
        variables = to_array(sorted({read.variable for read in batch.reads}))
        roles = sorted({(read.role, read.creation) for read in batch.reads})
        day = batch.day

        async def apply_change(transaction: Transaction) -> None:
            if not await transaction.fetch(_CLAIM, batch.source, batch.sequence):
                return
            if batch.reads:
                await transaction.fetch(_ADD_VARIABLES, variables, day)
                await transaction.fetch(_ADVANCE_VARIABLES, variables, day)
                ids, creations = to_array(role for role, _ in roles), to_array(str(number) for _, number in roles)
                await transaction.fetch(_ADD_READERS, ids, creations)
                columns = (
                    to_array(read.variable for read in batch.reads),
                    to_array(read.role for read in batch.reads),
                    to_array(str(read.creation) for read in batch.reads),
                    to_array(str(read.number) for read in batch.reads),
                )
                await transaction.fetch(_ADD_COUNTS, *columns, day)
            if batch.lost_days:
                await transaction.fetch(_ADD_LOSSES, to_array(map(str, batch.lost_days)))

        await self._database.transact(apply_change)

    async def record_servers(self, asked: Sequence[str], heard: Sequence[str]) -> None:
        """Keep which other servers were asked for their counts, and which of them delivered all that they had."""

        async def apply_change(transaction: Transaction) -> None:
            await transaction.fetch(_HEARD, to_array(sorted(asked)), to_array(heard))
            await transaction.fetch(_FORGET)

        await self._database.transact(apply_change)

    async def read_state(self) -> CountingState:
        """Return what is known of the counts."""
        ((since, missing, lost_day),) = await self._database.fetch(_STATE)
        return CountingState(since, tuple(missing), lost_day)

    async def list_readers(self, variable: ResourceName, since: int, after: ReadersCursor, most: int) -> list[Reader]:
        """Return roles that read a variable on the day ``since`` or later: those that did last first, then by id."""
        rows = await self._database.fetch(_READERS, str(variable), since, after.day, after.role, most)
        return [Reader(role, day, count, mask) for role, day, count, mask in rows]

    async def list_read_by(self, role: RoleName, since: int, most: int) -> list[VariableRead]:
        """Return variables that a role read on the day ``since`` or later: those read last first, then by id."""
        return [VariableRead(*row) for row in await self._database.fetch(_READ_BY, str(role), since, most)]

    async def filter_read(self, variables: Sequence[str], since: int) -> list[str]:
        """Return those of the variables, by full ids, that anybody read on the day ``since`` or later, in order."""
        return [str(name) for (name,) in await self._database.fetch(_READ_SINCE, to_array(variables), since)]

    async def list_variables(self, account: str, after: str, most: int) -> list[VariableUse]:
        """Return variables of an account in the order of their full ids, those behind ``after``, with their last days."""
        rows = await self._database.fetch(_VARIABLES, account, after, most)
        return [VariableUse(ResourceName.parse(name), made_at, day) for name, made_at, day in rows]

    async def filter_inspectable(self, role: RoleName, variables: Sequence[str]) -> frozenset[str]:
        """Return those of the variables, by full ids, that a role owns or inspects."""
        rows = await self._database.fetch(_OWNED, str(role), to_array(variables))
        owned = frozenset(str(name) for (name,) in rows)
        return owned | await filter_inspected(self._database.fetch, role, [name for name in variables if name not in owned])

    async def purge(self, position: PurgePosition, before: int) -> PurgePosition:
        """Purge a part of what was read before a day, or belongs to nothing any more; return how far it has come."""
        variable, reader = position.variable, position.reader
        if variable is not None:
            ((variable,),) = await self._database.change(_PURGE_VARIABLES, variable, before)
        elif reader is not None:
            ((reader,),) = await self._database.change(_PURGE_READERS, reader)
        if variable is reader is None:
            await self._database.change(_PURGE_SOURCES)
        return PurgePosition(variable, reader)
