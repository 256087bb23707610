"""The store of the sealed values of variables on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs
from zope.interface import implementer

from svc.model.dialect import Dialect
from svc.model.events import EventBatch
from svc.model.expiration import LIFETIME, ROTATOR, Duration, lifetime_of
from svc.model.names import ResourceName
from svc.model.ports import ISecrets
from svc.model.query_results import Asker, Sealed, SecretReading
from svc.storage.driver.columns import column
from svc.storage.driver.database import Database, Statement, Transaction
from svc.storage.events import record
from svc.storage.sql.access_facts import CURRENT, HELD, WITH_ACCESS_FACTS, access_facts_of, administrators_of, identity

Decide = Callable[[SecretReading], Sealed | None]

#: How many versions of a value are kept (SEC-4).
VERSIONS_KEPT: Final = 20

#: The largest number of a version that the column can hold.
_LARGEST_VERSION: Final = 2**31 - 1

#: When a value ended, to the moment; ``NULL`` while it hasn't. A rotated variable's values don't end.
ENDED_AT: Final = f"""
    CASE WHEN {{value}}.expires_at <= clock_timestamp()
        AND NOT EXISTS (SELECT FROM annotations WHERE resource_id = {{resource}} AND name = '{ROTATOR}')
    THEN extract(epoch FROM {{value}}.expires_at)::double precision END
"""

_READ: Final = f"""
    {WITH_ACCESS_FACTS}
    SELECT
        access_facts.*, CASE WHEN ended_at IS NULL THEN secret.sealed END, secret.version,
        (SELECT value FROM annotations WHERE resource_id = $2 AND name = $4::text), ended_at
    FROM access_facts LEFT JOIN LATERAL
"""
_ENDED: Final = (
    f"LEFT JOIN LATERAL (SELECT {ENDED_AT.format(value='secret', resource='$2')} AS ended_at OFFSET 0) AS ended ON true"
)
_READ_NEWEST: Final = Statement.named("secret_read_newest")(
    f"{_READ} (SELECT * FROM secrets WHERE resource_id = $2 ORDER BY version DESC LIMIT 1) AS secret ON true {_ENDED}"
)
_READ_VERSION: Final = Statement.named("secret_read_version")(
    f"{_READ} (SELECT * FROM secrets WHERE resource_id = $2 AND version = $5::integer OFFSET 0) AS secret ON true {_ENDED}"
)

# Each is judged as by itself (``access_facts``, Note [Standing in one statement]), with what is the same for many read once.
# No value is looked at before it is known that all of them together are few enough bytes.
_READ_ALL: Final = Statement.named("secret_read_all")(f"""
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
    caller (caller_current) AS MATERIALIZED (SELECT {CURRENT.format(number="$4", caller="$1")})
    SELECT
        caller_current, resource_exists, owns, privileges, holds, policy_id,
        CASE WHEN sum(size) OVER () <= $3::bigint AND ended_at IS NULL THEN (
            SELECT sealed FROM secrets WHERE secrets.resource_id = one.asked_id AND secrets.version = one.version
        ) END,
        version, NULL::text, ended_at
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
            SELECT version, octet_length(sealed) AS size, {ENDED_AT.format(value="secrets", resource="asked_id")} AS ended_at
            FROM secrets WHERE secrets.resource_id = asked_id ORDER BY version DESC LIMIT 1
        ) AS newest ON true
        OFFSET 0
    ) AS one
    ORDER BY number
""")

# What refers to the variable may be added meanwhile; deleting it must wait, and so must another writer.
LOCK: Final = Statement.named("secret_lock")(f"""
    SELECT (
        SELECT value FROM annotations WHERE resource_id = $1 AND name = '{LIFETIME}'
            AND NOT EXISTS (SELECT FROM annotations WHERE resource_id = $1 AND name = '{ROTATOR}')
    )
    FROM resources WHERE resource_id = $1::text FOR NO KEY UPDATE
""")

# Whatever was decided about the value before is out of date. Annotations that nobody has looked at since come first.
WRITE: Final = Statement.named("secret_write")(f"""
    WITH added AS (
        INSERT INTO secrets (resource_id, version, sealed, expires_at)
        SELECT
            $1::text, coalesce(max(version), 0) + 1, $2::bytea,
            now() + make_interval(months => $3::integer, days => $4::integer, secs => $5::double precision)
        FROM secrets WHERE resource_id = $1
        RETURNING version, expires_at
    ), trimmed AS (
        DELETE FROM secrets WHERE resource_id = $1 AND version <= (SELECT version FROM added) - {VERSIONS_KEPT}
    ), noted AS (
        UPDATE expirations SET
            due_at = coalesce((SELECT expires_at FROM added WHERE NOT changed), '-infinity'),
            edition = edition + 1, failures = 0, fault = NULL
        WHERE resource_id = $1
    )
    SELECT version FROM added
""")


def span(duration: Duration | None) -> tuple[int | None, int | None, float | None]:
    """Return a duration as the parameters of ``make_interval`` in a statement; nulls make it null."""
    return (None, None, None) if duration is None else (duration.months, duration.days, duration.seconds)


@implementer(ISecrets)
@attrs.frozen
class SecretStore:
    """Provides ``ISecrets`` on PostgreSQL; ``dialect`` has the prefix of the ``mime_type`` annotation."""

    _database: Database
    _dialect: Dialect

    async def read(self, caller: Asker, variable: ResourceName, version: int | None = None) -> SecretReading:
        """See ``ISecrets``."""
        asked = self._asked(caller, variable)
        if version is None:
            (row,) = await self._database.fetch(_READ_NEWEST, *asked)
        else:
            possible = version if 0 < version <= _LARGEST_VERSION else 0
            (row,) = await self._database.fetch(_READ_VERSION, *asked, possible)
        return _reading_of(row)

    async def read_all(self, caller: Asker, resources: Sequence[ResourceName], most: int) -> list[SecretReading]:
        """See ``ISecrets``."""
        role, creation = identity(caller)
        rows = await self._database.fetch(_READ_ALL, role, column([str(name) for name in resources]), most, creation)
        return [_reading_of(row) for row in rows]

    async def write(
        self, caller: Asker, variable: ResourceName, decide: Decide, trail: EventBatch | None = None
    ) -> int | None:
        """See ``ISecrets``."""

        async def work(transaction: Transaction) -> int | None:
            locked = await transaction.fetch(LOCK, str(variable))
            (row,) = await transaction.fetch(_READ_NEWEST, *self._asked(caller, variable))
            sealed = decide(_reading_of(row))
            if sealed is None:
                return None
            lifetime = lifetime_of(locked[0][0]) if locked else None
            ((version,),) = await transaction.fetch(WRITE, str(variable), sealed, *span(lifetime))
            await record(transaction, trail)
            return int(version)

        return await self._database.transact(work)

    def _asked(self, caller: Asker, variable: ResourceName) -> tuple[str, str, int | None, str]:
        role, creation = identity(caller)
        return role, str(variable), creation, f"{self._dialect.prefix}/mime_type"


def _reading_of(row: tuple[Any, ...]) -> SecretReading:
    *access_facts, sealed, version, mime_type, ended_at = row
    return SecretReading(access_facts_of(tuple(access_facts)), sealed, version, mime_type, ended_at)
