"""The store of the sealed values of variables on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from svc.model.deleted_records import DEFAULT_RETENTION, OVERWRITTEN_MOST, RecordRetention
from svc.model.dialect import Dialect
from svc.model.events import EventBatch
from svc.model.expiration import LIFETIME, ROTATOR, Duration, parse_lifetime
from svc.model.names import ResourceName
from svc.model.query_results import AccessFacts, CallerOrRole, Sealed, SecretReading
from svc.storage.cache.dependency_names import fold_names
from svc.storage.driver.columns import to_array
from svc.storage.driver.connection import Fetched
from svc.storage.driver.statements import (
    CachedReading,
    CachedStatement,
    NamedAnswer,
    Statement,
    Statements,
    Transaction,
    split_dependencies,
)
from svc.storage.events import record_events
from svc.storage.sql.access_facts import (
    CURRENT,
    FACTS,
    HELD,
    WITH_ACCESS_FACTS,
    access_facts_of,
    add_inspection,
    administrators_of,
    caller_parameters,
    mark_inspected,
    needs_no_inspection,
    read_with_inspection,
)
from svc.storage.sql.deletions import ROW_BYTES, readers_of
from svc.storage.sql.dependencies import CALLER_NAMES, HELD_NAMES, cached_statement, name_array

Decide = Callable[[SecretReading], Sealed | None]
Digest = Callable[[Sequence[SecretReading]], str]

#: How many versions of a value are kept (SEC-4).
VERSIONS_MOST: Final = 20

#: The largest number of a version that the column can hold.
_LARGEST_VERSION: Final = 2**31 - 1

#: When a value expired, to the moment; ``NULL`` while it hasn't. A rotated variable's values don't expire.
ENDED_AT: Final = f"""
    CASE WHEN {{value}}.expires_at <= clock_timestamp()
        AND NOT EXISTS (SELECT FROM annotations WHERE resource_id = {{resource}} AND name = '{ROTATOR}')
    THEN extract(epoch FROM {{value}}.expires_at)::double precision END
"""

#: In how many seconds a value expires that hasn't; ``NULL`` for never. A rotated one's too, since its rotator may go.
LASTS: Final = """
    CASE WHEN {value}.expires_at IS NOT NULL
    THEN greatest(extract(epoch FROM {value}.expires_at - clock_timestamp()), 0)::double precision END
"""


def _read_query(secret: str) -> Callable[[str], str]:
    """Return the SQL that reads a variable with the row ``secret`` of its values, and more columns."""
    return lambda more: (
        f"""
        {WITH_ACCESS_FACTS}
        SELECT
            access_facts.*, CASE WHEN ended_at IS NULL THEN secret.sealed END, secret.version,
            (SELECT value FROM annotations WHERE resource_id = $2 AND name = $4::text), ended_at{more}
        FROM access_facts LEFT JOIN LATERAL ({secret}) AS secret ON true
            LEFT JOIN LATERAL (SELECT {ENDED_AT.format(value="secret", resource="$2")} AS ended_at OFFSET 0) AS ended ON true
    """
    )


_NAMES: Final = (HELD_NAMES, CALLER_NAMES, name_array(("r", "$2"), ("v", "$2")))
_LASTS: Final = f"CASE WHEN ended_at IS NULL THEN {LASTS.format(value='secret')} END"
_KNOWN: Final = "caller_current IS NOT NULL AND resource_exists"
_READ_NEWEST: Final = cached_statement(
    "secret_read_newest",
    _read_query("SELECT * FROM secrets WHERE resource_id = $2 ORDER BY version DESC LIMIT 1"),
    *_NAMES,
    lasts=_LASTS,
    known=_KNOWN,
)
_READ_VERSION: Final = cached_statement(
    "secret_read_version",
    _read_query("SELECT * FROM secrets WHERE resource_id = $2 AND version = $5::integer OFFSET 0"),
    *_NAMES,
    lasts=_LASTS,
    known=f"{_KNOWN} AND secret.version IS NOT NULL",
)

_READABLE: Final = "(owns OR 'execute' = ANY (privileges))"

# Each is evaluated as on its own (``access_facts``, Note [Standing in one statement]), with shared facts read once. No value
# is read before it is known that all of them together are few enough bytes; values that the caller may not read don't count,
# and aren't returned.
_READ_ALL: Final = cached_statement(
    "secret_read_all",
    lambda more: (
        f"""
    WITH RECURSIVE {HELD.format(caller="$1")},
    asked (asked_id, number, resource_exists, owner_id, policy_id) AS MATERIALIZED (
        SELECT listed.asked_id, number, found.resource_id IS NOT NULL, found.owner_id, found.policy_id
        FROM unnest($2::text[]) WITH ORDINALITY AS listed (asked_id, number)
        LEFT JOIN LATERAL (SELECT * FROM resources WHERE resource_id = listed.asked_id OFFSET 0) AS found ON true
    ),
    owned (owner_id, owns) AS MATERIALIZED (
        SELECT owner_id, EXISTS (SELECT FROM held WHERE role_id IN ({administrators_of("owner.owner_id")}))
        FROM (SELECT DISTINCT owner_id FROM asked WHERE owner_id IS NOT NULL) AS owner
    ),
    caller (caller_current) AS MATERIALIZED (SELECT {CURRENT.format(numbers="$4", caller="$1")})
    SELECT
        caller_current, resource_exists, owns, privileges, holds, policy_id,
        CASE WHEN sum(size) FILTER (WHERE {_READABLE}) OVER () <= $3::bigint AND ended_at IS NULL AND {_READABLE} THEN (
            SELECT sealed FROM secrets WHERE secrets.resource_id = one.asked_id AND secrets.version = one.version
        ) END,
        version, NULL::text, ended_at, (extract(epoch FROM created_at) * 1000000)::bigint{more}
    FROM (
        SELECT
            caller_current, asked.*, coalesce(owns, false) AS owns,
            CASE WHEN owns OR NOT resource_exists THEN '{{}}' ELSE ARRAY(
                SELECT privilege
                FROM (SELECT privilege, role_id FROM permissions WHERE resource_id = asked_id OFFSET 0) AS given
                WHERE role_id IN (SELECT role_id FROM held)
            ) END AS privileges,
            CASE WHEN EXISTS (SELECT FROM roles WHERE role_id = asked_id OFFSET 0)
                THEN coalesce(owns, false) OR EXISTS (SELECT FROM held WHERE role_id = asked_id) ELSE false END AS holds,
            newest.*
        FROM asked CROSS JOIN caller LEFT JOIN owned ON owned.owner_id = asked.owner_id
        LEFT JOIN LATERAL (
            SELECT version, octet_length(sealed) AS size, expires_at, created_at,
                {ENDED_AT.format(value="secrets", resource="asked_id")} AS ended_at
            FROM secrets WHERE secrets.resource_id = asked_id ORDER BY version DESC LIMIT 1
        ) AS newest ON true
        OFFSET 0
    ) AS one
    ORDER BY number
"""
    ),
    HELD_NAMES,
    CALLER_NAMES,
    "ARRAY(SELECT unnest(ARRAY['r:' || asked_id, 'v:' || asked_id]) FROM asked)",
    lasts=f"CASE WHEN ended_at IS NULL THEN {LASTS.format(value='one')} END",
    known="caller_current IS NOT NULL AND (SELECT bool_or(asked.resource_exists) FROM asked)",
    first="number = 1",
)

# References to the variable may be added meanwhile; deleting it must wait, and so must another writer.
LOCK: Final = Statement.with_name("secret_lock")(f"""
    SELECT (
        SELECT value FROM annotations WHERE resource_id = $1 AND name = '{LIFETIME}'
            AND NOT EXISTS (SELECT FROM annotations WHERE resource_id = $1 AND name = '{ROTATOR}')
    )
    FROM resources WHERE resource_id = $1::text FOR NO KEY UPDATE
""")

# Earlier decisions about the value are out of date. If annotations have changed and the change isn't processed yet, the
# variable is due at once. Values that are pushed out are kept if ``$6`` says so, up to a limit for each variable.
WRITE: Final = Statement.with_name("secret_write")(f"""
    WITH added AS (
        INSERT INTO secrets (resource_id, version, sealed, expires_at)
        SELECT
            $1::text, coalesce(max(version), 0) + 1, $2::bytea,
            now() + make_interval(months => $3::integer, days => $4::integer, secs => $5::double precision)
        FROM secrets WHERE resource_id = $1
        RETURNING version, expires_at
    ), trimmed AS (
        DELETE FROM secrets WHERE resource_id = $1 AND version <= (SELECT version FROM added) - {VERSIONS_MOST}
        RETURNING version, sealed, created_at, expires_at
    ), kept AS (
        INSERT INTO deleted_records (
            account, resource_id, owner_id, owner_creation, policy_id, policy_creation, overwritten, made_at,
            bytes, facts
        )
        SELECT
            split_part($1, ':', 1), $1, owner_id, (SELECT creation FROM roles WHERE role_id = resource.owner_id),
            policy_id, (SELECT creation FROM roles WHERE role_id = resource.policy_id), true, created_at,
            {ROW_BYTES} + (SELECT sum(octet_length(sealed)) FROM trimmed),
            jsonb_strip_nulls(jsonb_build_object('readers', {readers_of("resource.resource_id")}))
        FROM (SELECT * FROM resources WHERE resource_id = $1 OFFSET 0) AS resource
        WHERE policy_id IS NOT NULL AND split_part($1, ':', 2) = 'variable' AND $6::boolean AND EXISTS (SELECT FROM trimmed)
        RETURNING number
    ), moved AS (
        INSERT INTO deleted_values (record, version, sealed, created_at, expires_at)
        SELECT number, version, sealed, created_at, expires_at FROM kept, trimmed
    ), dropped AS (
        DELETE FROM deleted_records WHERE number = ANY (ARRAY(
            SELECT number FROM deleted_records WHERE resource_id = $1 AND overwritten AND EXISTS (SELECT FROM kept)
            ORDER BY number DESC OFFSET {OVERWRITTEN_MOST - 1}
        ))
    ), noted AS (
        UPDATE expirations SET
            due_at = coalesce((SELECT expires_at FROM added WHERE NOT changed), '-infinity'),
            edition = edition + 1, failures = 0, fault = NULL
        WHERE resource_id = $1
    )
    SELECT version FROM added
""")


def interval_parameters(duration: Duration | None) -> tuple[int | None, int | None, float | None]:
    """Return a duration as the parameters of ``make_interval`` in a statement; nulls make it null."""
    return (None, None, None) if duration is None else (duration.months, duration.days, duration.seconds)


@attrs.frozen
class SecretStore:
    """Sealed values of variables, with their versions.

    ``dialect`` has the prefix of the ``mime_type`` annotation.
    """

    _database: Statements
    _dialect: Dialect
    _keeping: RecordRetention = DEFAULT_RETENTION
    #: The annotation that has the content type of a value.
    _mime_type: str = attrs.field(init=False)

    @_mime_type.default
    def _name_annotation(self) -> str:
        return f"{self._dialect.prefix}/mime_type"

    async def read_value(self, caller: CallerOrRole, variable: ResourceName, version: int | None = None) -> SecretReading:
        """Read a value, the newest unless ``version`` is given, and the caller's access facts, in one round trip."""
        role, numbers = caller_parameters(caller)
        parameters = role, variable.full_id, numbers, self._mime_type
        if version is not None:
            possible = version if 0 < version <= _LARGEST_VERSION else 0
            readings = await self._fetch_readings(_READ_VERSION, (*parameters, possible), caller, [variable])
        else:
            readings = await self._fetch_readings(_READ_NEWEST, parameters, caller, [variable])
        return readings[0]

    async def read_newest_values(
        self, caller: CallerOrRole, resources: Sequence[ResourceName], most: int
    ) -> list[SecretReading]:
        """Read the newest value of each, in the order given, in one round trip, without ``mime_type``.

        If all that the caller may read has more than ``most`` bytes, sealed, no value is returned, though each has its
        ``version``. Values that the caller may not read are never returned.
        """
        role, numbers = caller_parameters(caller)
        parameters = role, to_array([str(name) for name in resources]), most, numbers
        return await self._fetch_readings(_READ_ALL, parameters, caller, resources)

    async def digest_values(self, caller: CallerOrRole, ids: Sequence[str], make: Digest) -> str:
        """Return the result of ``make``, always the same function of ``ids``, on ``read_newest_values`` without values;
        cached.
        """
        role, numbers = caller_parameters(caller)
        asked = to_array(ids)

        async def digest_readings(transaction: Transaction) -> NamedAnswer[str]:
            answer = split_dependencies(await transaction.fetch(_READ_ALL.with_dependencies, role, asked, 0, numbers))
            # Inspection isn't looked up: it lets nobody read a value.
            names = None if answer.names is None else fold_names(answer.names, frozenset(ids))
            return NamedAnswer(make(_parse_readings(answer.value)), names, answer.known, answer.lasts)

        return await self._database.read(CachedReading(("secret_digest", role, numbers, asked), digest_readings))

    async def write_value(
        self, caller: CallerOrRole, variable: ResourceName, decide: Decide, trail: EventBatch | None = None
    ) -> int | None:
        """Let ``decide`` check the variable, locked against other writers, and store what it returns as a new version.

        Keeps the newest ``VERSIONS_KEPT`` versions. ``decide`` is as in ``RoleStore.add_member``. Returns the new version,
        ``None`` when ``decide`` returned ``None``.
        """

        async def apply_change(transaction: Transaction) -> int | None:
            locked = await transaction.fetch(LOCK, str(variable))
            role, numbers = caller_parameters(caller)
            (row,) = await transaction.fetch(_READ_NEWEST, role, str(variable), numbers, self._mime_type)
            (reading,) = _parse_readings([row])
            facts = await add_inspection(transaction.fetch, caller, {str(variable): reading.access_facts})
            (reading,) = _with_facts([variable], [reading], facts)
            sealed = decide(reading)
            if sealed is None:
                return None
            lifetime = parse_lifetime(locked[0][0]) if locked else None
            ((version,),) = await transaction.fetch(
                WRITE, str(variable), sealed, *interval_parameters(lifetime), self._keeping.is_enabled
            )
            await record_events(transaction, trail)
            return int(version)

        return await self._database.transact(apply_change)

    async def _fetch_readings(
        self,
        statement: CachedStatement,
        parameters: Sequence[object],
        caller: CallerOrRole,
        variables: Sequence[ResourceName],
    ) -> list[SecretReading]:
        readings = _parse_readings(await self._database.fetch(statement, *parameters))
        for reading in readings:
            if not needs_no_inspection(reading.access_facts):
                break
        else:
            return readings

        def facts_by_resource(rows: Fetched) -> Mapping[str, AccessFacts]:
            pairs = zip(variables, _parse_readings(rows), strict=True)
            return {str(variable): reading.access_facts for variable, reading in pairs}

        rows, inspected = await read_with_inspection(self._database, statement, parameters, caller, facts_by_resource)
        return _with_facts(variables, _parse_readings(rows), mark_inspected(facts_by_resource(rows), inspected))


def _with_facts(
    variables: Sequence[ResourceName], readings: Sequence[SecretReading], facts: Mapping[str, AccessFacts]
) -> list[SecretReading]:
    """Return readings with these access facts; a variable that is only inspected has no value."""
    return [
        attrs.evolve(reading, access_facts=found, sealed=None if found.inspects else reading.sealed)
        for reading, found in zip(readings, (facts[str(variable)] for variable in variables), strict=True)
    ]


def _parse_readings(rows: Iterable[tuple[Any, ...]]) -> list[SecretReading]:
    """Return the readings of rows; of a batch most have the access facts of the one before."""
    readings = list[SecretReading]()
    facts: tuple[Any, ...] | None = None
    for row in rows:
        if row[:FACTS] != facts:
            facts = row[:FACTS]
            access_facts = access_facts_of(facts)
        readings.append(SecretReading(access_facts, *row[FACTS:]))
    return readings
