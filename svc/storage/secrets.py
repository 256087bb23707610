"""Sealed values of variables and their versions, as PostgreSQL keeps them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs
from zope.interface import implementer

from svc.dialect import Dialect
from svc.events import Trail
from svc.interfaces import ISecrets
from svc.names import ResourceName, RoleName
from svc.records import Sealed, SecretReading
from svc.storage.columns import column
from svc.storage.database import Database, Statement, Transaction
from svc.storage.events import record
from svc.storage.standing import HELD, JUDGED, WITH_STANDING, standing_of

#: How many versions of a value are kept (wire facts, core 4).
VERSIONS_KEPT: Final = 20

#: The largest number of a version that the column can hold.
_LARGEST_VERSION: Final = 2**31 - 1

_READ: Final = f"""
    {WITH_STANDING}
    SELECT
        standing.*, secret.sealed, secret.version,
        (SELECT value FROM annotations WHERE resource_id = $2 AND name = $3::text)
    FROM standing LEFT JOIN LATERAL
"""
_READ_NEWEST: Final = Statement(
    "secret_read_newest",
    f"{_READ} (SELECT * FROM secrets WHERE resource_id = $2 ORDER BY version DESC LIMIT 1) AS secret ON true",
)
_READ_VERSION: Final = Statement(
    "secret_read_version",
    f"{_READ} (SELECT * FROM secrets WHERE resource_id = $2 AND version = $4::integer OFFSET 0) AS secret ON true",
)

# Each is read as by itself, but for what the caller holds, which is the same for all; the resource is the column of a row
# where it was a parameter. No value is looked at before it is known that all of them together are few enough bytes.
_READ_ALL: Final = Statement(
    "secret_read_all",
    f"""
    WITH RECURSIVE {HELD.format(caller="$1")}
    SELECT
        caller_exists, resource_exists, owns, privileges, holds, policy_id,
        CASE WHEN sum(size) OVER () <= $3::bigint THEN (
            SELECT sealed FROM secrets WHERE secrets.resource_id = one.asked_id AND secrets.version = one.version
        ) END,
        version,
        NULL::text
    FROM (
        SELECT judged.*, newest.version, newest.size, asked.resource_id AS asked_id, number
        FROM unnest($2::text[]) WITH ORDINALITY AS asked (resource_id, number)
        CROSS JOIN LATERAL (
            WITH RECURSIVE {JUDGED.replace("$2", "asked.resource_id")} SELECT * FROM standing
        ) AS judged
        LEFT JOIN LATERAL (
            SELECT version, octet_length(sealed) AS size FROM secrets
            WHERE secrets.resource_id = asked.resource_id ORDER BY version DESC LIMIT 1
        ) AS newest ON true
        OFFSET 0
    ) AS one
    ORDER BY number
    """,
)

# What refers to the variable may be added meanwhile; deleting it must wait, and so must another writer.
_LOCK: Final = Statement("secret_lock", "SELECT FROM resources WHERE resource_id = $1::text FOR NO KEY UPDATE")

_WRITE: Final = Statement(
    "secret_write",
    f"""
    WITH added AS (
        INSERT INTO secrets (resource_id, version, sealed)
        SELECT $1::text, coalesce(max(version), 0) + 1, $2::bytea FROM secrets WHERE resource_id = $1
        RETURNING version
    ), trimmed AS (
        DELETE FROM secrets WHERE resource_id = $1 AND version <= (SELECT version FROM added) - {VERSIONS_KEPT}
    )
    SELECT version FROM added
    """,
)


@implementer(ISecrets)
@attrs.frozen
class SecretStore:
    """Provides ``ISecrets`` on PostgreSQL; ``dialect`` says under which prefix the ``mime_type`` annotation stands."""

    _database: Database
    _dialect: Dialect

    async def read(self, caller: RoleName, variable: ResourceName, version: int | None = None) -> SecretReading:
        """See ``ISecrets``."""
        asked = (str(caller), str(variable), self._mime_type)
        if version is None:
            (row,) = await self._database.fetch(_READ_NEWEST, *asked)
        else:
            possible = version if 0 < version <= _LARGEST_VERSION else 0
            (row,) = await self._database.fetch(_READ_VERSION, *asked, possible)
        return _reading_of(row)

    async def read_all(self, caller: RoleName, resources: Sequence[ResourceName], most: int) -> list[SecretReading]:
        """See ``ISecrets``."""
        rows = await self._database.fetch(_READ_ALL, str(caller), column([str(name) for name in resources]), most)
        return [_reading_of(row) for row in rows]

    async def write(
        self,
        caller: RoleName,
        variable: ResourceName,
        decide: Callable[[SecretReading], Sealed | None],
        trail: Trail | None = None,
    ) -> int | None:
        """See ``ISecrets``."""

        async def work(transaction: Transaction) -> int | None:
            await transaction.fetch(_LOCK, str(variable))
            (row,) = await transaction.fetch(_READ_NEWEST, str(caller), str(variable), self._mime_type)
            sealed = decide(_reading_of(row))
            if sealed is None:
                return None
            ((version,),) = await transaction.fetch(_WRITE, str(variable), sealed)
            await record(transaction, trail)
            return int(version)

        return await self._database.transact(work)

    @property
    def _mime_type(self) -> str:
        return f"{self._dialect.prefix}/mime_type"


def _reading_of(row: tuple[Any, ...]) -> SecretReading:
    *standing, sealed, version, mime_type = row
    return SecretReading(standing_of(tuple(standing)), sealed, version, mime_type)
