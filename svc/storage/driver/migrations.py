"""Numbered SQL files, applied in order, each once, each with its record in one transaction.

Servers that start at once wait for each other at an advisory lock. A standby receives the schema from its primary.
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

from svc.model.errors import StandbyBehind, StartRefused, StoreReadOnly
from svc.storage.driver.database import Database, Statement, Transaction
from svc.storage.driver.failures import StatementFailed, summary

#: The key of the advisory lock, ``svc`` and a blank in ASCII, then 1: of this program, for this purpose.
_LOCK: Final = 0x7376632000000001
#: How long one statement of a migration may take, and the wait for another server's, in seconds.
STATEMENT_TIMEOUT: Final = 3600.0
_FILE = re.compile(r"([0-9]{4})_[a-z0-9_]+\.sql")
_SURROUNDINGS: Final = Statement.named("migration_surroundings")(
    "SELECT pg_is_in_recovery(), to_regclass('schema_versions') IS NOT NULL, current_setting('server_encoding')"
)
_APPLIED: Final = Statement("migration_applied", "SELECT version, name, sha256 FROM schema_versions ORDER BY version")
_RECORD: Final = Statement("migration_record", "INSERT INTO schema_versions (version, name, sha256) VALUES ($1, $2, $3)")
_VERSIONS_TABLE: Final = """
    CREATE TABLE IF NOT EXISTS schema_versions (
        version integer PRIMARY KEY, name text NOT NULL, sha256 text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now()
    )
"""

_log = Logger()


@attrs.frozen
class Migration:
    """One numbered SQL file."""

    version: int
    name: str
    sql: str = attrs.field(repr=False)
    sha256: str = attrs.field(init=False)

    @sha256.default
    def _sha256(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


def numbered(files: Mapping[str, str]) -> list[Migration]:
    """Put SQL files in order, by the number that their names begin with.

    :raises ValueError: a name is not of the form ``NNNN_name.sql``, or the numbers are not 1, 2, 3 …
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
    """Bring the schema up to date and return its version.

    :param wanted: the migrations to have been applied, instead of :func:`packaged` ones.
    :raises StartRefused: the schema is newer than this program, or of other files, or PostgreSQL refuses to change it.
    :raises StandbyBehind: it is too old, and this is a standby, to which its primary has yet to send a newer one.
    :raises StoreUnavailable: PostgreSQL went away; each migration that was applied by then stays.
    """
    migrations = packaged() if wanted is None else wanted

    step = partial(_apply_next, migrations=migrations)
    try:
        if not await database.look(partial(_complete, migrations=migrations)):
            while (applied := await database.transact(step, statement_timeout=STATEMENT_TIMEOUT)) is not None:
                _log.info("Migration {name} was applied", name=applied.name)
    except (StatementFailed, StoreReadOnly) as error:
        raise StartRefused(
            f"PostgreSQL refused to change the schema ({summary(error)}): the database must be this program's own,"
            " and its role must be allowed to create tables there"
        ) from error
    return len(migrations)


async def _complete(transaction: Transaction, migrations: Sequence[Migration]) -> bool:
    """Return whether all migrations are applied, without a lock and without writing; refuse a schema that is too new."""
    ((standby, begun, encoding),) = await transaction.fetch(_SURROUNDINGS)
    if encoding != "UTF8":
        raise StartRefused(f"the database's encoding is {encoding}: create it with ENCODING 'UTF8'")
    version = _version(await transaction.fetch(_APPLIED) if begun else [], migrations)
    if standby and version < len(migrations):
        raise StandbyBehind(
            f"the schema of this standby is at version {version}, and this program needs {len(migrations)}:"
            " start the same program on the primary first"
        )
    return version == len(migrations)


async def _apply_next(transaction: Transaction, migrations: Sequence[Migration]) -> Migration | None:
    """Apply and record the next migration and return it; ``None`` when all are applied."""
    await transaction.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
    await transaction.execute(_VERSIONS_TABLE)
    version = _version(await transaction.fetch(_APPLIED), migrations)
    if version == len(migrations):
        return None
    migration = migrations[version]
    await transaction.execute(migration.sql)
    await transaction.fetch(_RECORD, migration.version, migration.name, migration.sha256)
    return migration


def _version(applied: Sequence[tuple[int, str, str]], migrations: Sequence[Migration]) -> int:
    """Return how many migrations are applied; refuse records of other ones."""
    if len(applied) > len(migrations):
        raise StartRefused(
            f"the database's schema is at version {applied[-1][0]}, and this program knows it up to {len(migrations)}:"
            " install the newer program, or use another database"
        )
    for (version, name, sha256), migration in zip(applied, migrations, strict=False):
        if (version, name, sha256) != (migration.version, migration.name, migration.sha256):
            raise StartRefused(
                f"the database's schema was made by another {name} (version {version}) than this program's {migration.name}:"
                " install the program that made it, or use another database"
            )
    return len(applied)
