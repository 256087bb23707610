"""Numbered SQL files, applied in order, each once, each with its record in one transaction.

Servers that start at once wait for each other at an advisory lock. A standby receives the schema from its primary.

Note [Two records]. A program works on a newer schema if it bears all that is newer (Note [Expand, then contract] in
``migration_heads``). It can't know that of files that it doesn't have, so the record of a migration says which programs do.
The first release asks the table ``schema_versions`` alone, and refuses rows that it doesn't know. So later migrations are
recorded in ``schema_steps``, and also there only if it doesn't bear them.

Note [Nobody queues]. A statement that waits for a lock has everybody else wait behind it. So a migration waits for a moment
only, is rolled back, lets others pass, and is tried again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import resources
from typing import Final

import attrs
from twisted.logger import Logger

from svc.model.errors import StandbyBehind, StartRefused, StoreReadOnly, StoreUnavailable
from svc.storage.driver.database import Database
from svc.storage.driver.failures import LockNotAvailable, StatementFailed, summary
from svc.storage.driver.location import milliseconds
from svc.storage.driver.migration_heads import MigrationHead, head_of
from svc.storage.driver.statements import Statement, Transaction

#: The key of the advisory lock, ``svc`` and a blank in ASCII, then 1: of this program, for this purpose.
_LOCK: Final = 0x7376632000000001
#: How long one statement of a migration may take, and the wait for another server's, in seconds.
STATEMENT_TIMEOUT: Final = 3600.0
#: How long a migration waits for one lock, how long others may pass then, in seconds, and how often it is tried in all.
LOCK_TIMEOUT: Final = 0.3
LOCK_PAUSE: Final = 1.0
LOCK_ATTEMPTS: Final = 40
#: The last version of the schema whose programs know one record alone (Note [Two records]).
FIRST_RELEASE: Final = 9

_FILE = re.compile(r"([0-9]{4})_[a-z0-9_]+\.sql")
_SURROUNDINGS: Final = Statement("migration_surroundings", "SELECT pg_is_in_recovery(), current_setting('server_encoding')")
_RECORDS: Final = Statement.named("migration_records")(
    "SELECT to_regclass('schema_versions') IS NOT NULL, to_regclass('schema_steps') IS NOT NULL"
)
_APPLIED: Final = Statement(
    "migration_applied", "SELECT version, name, sha256, version FROM schema_versions ORDER BY version"
)
_APPLIED_STEPS: Final = Statement.named("migration_applied_steps")("""
    SELECT version, name, sha256, min(needs) FROM (
        SELECT version, name, sha256, needs FROM schema_steps
        UNION ALL SELECT version, name, sha256, version FROM schema_versions
    ) AS applied
    GROUP BY version, name, sha256 ORDER BY version
""")
_RECORD: Final = Statement("migration_record", "INSERT INTO schema_versions (version, name, sha256) VALUES ($1, $2, $3)")
_RECORD_STEP: Final = Statement(
    "migration_record_step", "INSERT INTO schema_steps (version, name, sha256, needs) VALUES ($1, $2, $3, $4)"
)
_TABLES: Final = """
    CREATE TABLE IF NOT EXISTS schema_versions (
        version integer PRIMARY KEY, name text NOT NULL, sha256 text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now()
    );
    CREATE TABLE IF NOT EXISTS schema_steps (
        version integer PRIMARY KEY, name text NOT NULL, sha256 text NOT NULL, needs integer NOT NULL,
        applied_at timestamptz NOT NULL DEFAULT now()
    )
"""
_USERS: Final = Statement.named("migration_users")("""
    SELECT pid, application_name, coalesce(extract(epoch FROM clock_timestamp() - min(xact_start)), 0)::float
    FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE granted AND pid <> pg_backend_pid()
        AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND relation = ANY (SELECT to_regclass(name) FROM unnest($1::text[]) AS name)
    GROUP BY pid, application_name ORDER BY 3 DESC, pid
""")

_log = Logger()


@attrs.frozen
class Migration:
    """One numbered SQL file."""

    version: int
    name: str
    sql: str = attrs.field(repr=False)
    sha256: str = attrs.field(init=False)
    head: MigrationHead = attrs.field(init=False, repr=False)

    @sha256.default
    def _sha256(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @head.default
    def _head(self) -> MigrationHead:
        return head_of(self.version, self.sql)


@attrs.frozen
class SchemaState:
    """How a schema stands: its version, whether it is a standby's, and the migrations that it lacks."""

    version: int
    standby: bool
    pending: Sequence[Migration]


@attrs.frozen
class TableUser:
    """A session of another program that has a table locked, since its transaction began, ``seconds`` ago."""

    process: int
    program: str
    seconds: float

    def __str__(self) -> str:
        return f"process {self.process} ({self.program or 'unnamed'}), for {self.seconds:.0f} s"


def numbered(files: Mapping[str, str]) -> list[Migration]:
    """Put SQL files in order, by the number that their names begin with.

    :raises ValueError: a name is not of the form ``NNNN_name.sql``, the numbers are not 1, 2, 3 …, or a head is malformed.
    """
    migrations = []
    for expected, name in enumerate(sorted(files), start=1):
        matched = _FILE.fullmatch(name)
        if matched is None or int(matched[1]) != expected:
            raise ValueError(f"expected migration {expected:04}, found {name}")
        migrations.append(Migration(expected, name, files[name]))
    return migrations


def packaged() -> list[Migration]:
    """Return the migrations of this program, in order."""
    schema = resources.files("svc.storage") / "schema"
    return numbered({file.name: file.read_text(encoding="utf-8") for file in schema.iterdir() if file.name.endswith(".sql")})


async def migrate(database: Database, wanted: Sequence[Migration] | None = None) -> int:
    """Bring the schema up to date and return its version, which is a higher one where a newer program has been.

    :param wanted: the migrations to have been applied, instead of :func:`packaged` ones.
    :raises StartRefused: the schema is one that this program doesn't bear, or of other files; or PostgreSQL refuses to
        change it, or others keep its tables locked.
    :raises StandbyBehind: it is too old, and this is a standby, to which its primary has yet to send a newer one.
    :raises StoreUnavailable: PostgreSQL went away; each migration that was applied by then stays.
    """
    migrations = packaged() if wanted is None else wanted

    try:
        standing = await stand(database, migrations)
        if standing.pending and standing.standby:
            raise StandbyBehind(
                f"the schema of this standby is at version {standing.version}, and this program needs {len(migrations)}:"
                " start the same program on the primary first"
            )
        if standing.version > len(migrations):
            _log.info(
                "The schema is at version {version}, and this program knows it up to {known}: it bears what is newer",
                version=standing.version,
                known=len(migrations),
            )
        while standing.pending:
            standing = await _step(database, migrations, standing.pending[0])
    except (StatementFailed, StoreReadOnly) as error:
        raise StartRefused(
            f"PostgreSQL refused to change the schema ({summary(error)}): the database must be this program's own,"
            " and its role must be allowed to create tables there"
        ) from error
    return standing.version


async def stand(database: Database, migrations: Sequence[Migration]) -> SchemaState:
    """Look how the schema stands, without a lock and without writing.

    :raises StartRefused: it is one that this program doesn't bear, or of other files.
    :raises StoreUnavailable: PostgreSQL can't be asked.
    """

    async def look(transaction: Transaction) -> SchemaState:
        ((standby, encoding),) = await transaction.fetch(_SURROUNDINGS)
        if encoding != "UTF8":
            raise StartRefused(f"the database's encoding is {encoding}: create it with ENCODING 'UTF8'")
        version = _version(await applied(transaction), migrations)
        return SchemaState(version, standby, migrations[version:])

    return await database.look(look)


async def applied(transaction: Transaction) -> Sequence[tuple[int, str, str, int]]:
    """Return the version, name, SHA-256 and needs of each migration that was applied (Note [Two records])."""
    ((versions, steps),) = await transaction.fetch(_RECORDS)
    if not versions:
        return []
    return await transaction.fetch(_APPLIED_STEPS if steps else _APPLIED)


async def table_users(database: Database, migration: Migration) -> list[TableUser]:
    """Return the sessions that use tables which the migration locks, that of the longest transaction first."""
    tables = [lock.table for lock in migration.head.locks]
    return [TableUser(*row) for row in await database.fetch(_USERS, tables)] if tables else []


async def _step(database: Database, migrations: Sequence[Migration], awaited: Migration) -> SchemaState:
    """Apply the next migration (Note [Nobody queues]), ``awaited`` unless another server does; return how things stand."""
    for attempt in range(LOCK_ATTEMPTS):
        if attempt:
            await database.pause(LOCK_PAUSE)
        try:
            standing, made = await database.transact(
                partial(_apply_next, migrations=migrations), statement_timeout=STATEMENT_TIMEOUT
            )
        except StoreUnavailable as refusal:
            if not isinstance(refusal.__cause__, LockNotAvailable):
                raise
            if not attempt:
                _log.warn("Migration {name} waits for tables that others have locked", name=awaited.name)
        else:
            if made is not None:
                _log.info("Migration {name} was applied", name=made.name)
            return standing
    others = "; ".join(map(str, (await table_users(database, awaited))[:3])) or "nobody now"
    raise StartRefused(
        f"migration {awaited.name} did not get its locks in {LOCK_ATTEMPTS} attempts. Its tables are used by {others}:"
        " end long transactions, such as a dump, and start again"
    )


async def _apply_next(transaction: Transaction, migrations: Sequence[Migration]) -> tuple[SchemaState, Migration | None]:
    """Apply and record the next migration and return it, ``None`` when all are applied, after how the schema stands then."""
    await transaction.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
    await transaction.execute(_TABLES)
    version = _version(await applied(transaction), migrations)
    if version >= len(migrations):
        return SchemaState(version, False, []), None
    migration = migrations[version]
    await transaction.execute(f"SET LOCAL lock_timeout = {milliseconds(LOCK_TIMEOUT)}")
    await transaction.execute(migration.sql)
    record, needs = (migration.version, migration.name, migration.sha256), migration.head.needs
    if migration.version > FIRST_RELEASE:
        await transaction.fetch(_RECORD_STEP, *record, needs)
    if migration.version <= FIRST_RELEASE or needs > FIRST_RELEASE:
        await transaction.fetch(_RECORD, *record)
    return SchemaState(version + 1, False, migrations[version + 1 :]), migration


def _version(recorded: Sequence[tuple[int, str, str, int]], migrations: Sequence[Migration]) -> int:
    """Return how many migrations are applied; refuse records of other ones, and newer ones that this program can't bear."""
    for (version, name, sha256, _), migration in zip(recorded, migrations, strict=False):
        if (version, name, sha256) != (migration.version, migration.name, migration.sha256):
            raise StartRefused(
                f"the database's schema was made by another {name} (version {version}) than this program's {migration.name}:"
                " install the program that made it, or use another database"
            )
    unborne = [version for version, _, _, needs in recorded[len(migrations) :] if needs > len(migrations)]
    if unborne:
        raise StartRefused(
            f"the database's schema is at version {recorded[-1][0]}, and this program knows it up to {len(migrations)}, and"
            f" can't work with version {unborne[0]}: install the newer program, or use another database"
        )
    return len(recorded)
