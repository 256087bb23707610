"""A forecast of the migrations that would bring the schema up to date, made without running any of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from svc.storage.driver.database import Database
from svc.storage.driver.migration_heads import Lock
from svc.storage.driver.migrations import Migration, SchemaState, TableUser, packaged, stand, table_users
from svc.storage.driver.statements import Statement

#: A transaction that has lasted so long, in seconds, would make a migration wait.
LONG: Final = 1.0

_SIZES: Final = Statement.named("forecast_sizes")("""
    SELECT name, pg_total_relation_size(to_regclass(name)) FROM unnest($1::text[]) AS name
    WHERE to_regclass(name) IS NOT NULL
""")


@attrs.frozen
class Locked:
    """A table that is locked, its size in bytes, with its indexes, and for about how many seconds it is locked."""

    lock: Lock
    size: int

    @property
    def seconds(self) -> float:
        """About how long the work on it takes."""
        return self.lock.seconds(self.size)


@attrs.frozen
class MigrationStep:
    """A migration that would be made: the tables that it locks, and the sessions that it would wait for now."""

    migration: Migration
    locked: Sequence[Locked]
    waits_for: Sequence[TableUser]


@attrs.frozen
class Forecast:
    """How the schema stands, the version that this program brings it to, and how."""

    standing: SchemaState
    known: int
    steps: Sequence[MigrationStep]


async def forecast(database: Database, wanted: Sequence[Migration] | None = None) -> Forecast:
    """Find out what :func:`svc.storage.driver.migrations.migrate` would do; nothing is locked or written.

    :raises StartRefused: as ``migrate`` does.
    :raises StoreUnavailable: PostgreSQL can't be reached.
    """
    migrations = packaged() if wanted is None else wanted
    standing = await stand(database, migrations)
    tables = sorted({lock.table for each in standing.pending for lock in each.head.locks})
    sizes: dict[str, int] = dict(await database.fetch(_SIZES, tables))
    return Forecast(standing, len(migrations), [await _step(database, each, sizes) for each in standing.pending])


async def _step(database: Database, migration: Migration, sizes: Mapping[str, int]) -> MigrationStep:
    # A table that isn't there is made by a migration before this one.
    locked = [Locked(lock, sizes[lock.table]) for lock in migration.head.locks if lock.table in sizes]
    return MigrationStep(
        migration, locked, [each for each in await table_users(database, migration) if each.seconds >= LONG]
    )
