"""Numbered SQL files, applied in order, each once, each with its record in one transaction.

Servers that start at once wait for each other at an advisory lock. A standby receives the schema from its primary. A
forecast of migrations is made without running any of them.

Note [Two records]. A program works on a newer schema if it is compatible with all that is newer (Note [Expand, then
contract] in ``migration_heads``). It can't know that of files that it doesn't have, so the record of a migration says which
programs are. The first release reads only the table ``schema_versions``, and refuses rows that it doesn't know. So later
migrations are recorded in ``schema_steps``, and in ``schema_versions`` too only if the first release isn't compatible with
them.

Note [Comments may change]. A migration is identified by the SHA-256 of its statements, without comments and blank lines.
Versions 1 to 21 were identified by that of the whole file, and are recorded so, since earlier programs compare it.

Note [Nobody queues]. A statement that waits for a lock makes all others queue behind it. So a migration waits only for a
moment, is rolled back, lets others pass, and is retried.
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

from svc.model.errors import ReadOnlyStandby, StandbyBehind, StartRefused, StoreUnavailable
from svc.storage.driver.database import Database
from svc.storage.driver.failures import DatabaseAltered, LockNotAvailable, StatementFailed, summarize_error
from svc.storage.driver.location import milliseconds
from svc.storage.driver.migration_heads import Lock, MigrationHead, parse_head
from svc.storage.driver.statements import Statement, Transaction

#: The key of the advisory lock: ``svc`` and a blank in ASCII for this program, then 1 for this purpose.
_LOCK: Final = 0x7376632000000001
#: How long one statement of a migration may take, and the wait for another server's, in seconds.
STATEMENT_TIMEOUT: Final = 3600.0
#: How long a migration waits for one lock, how long others may pass then, in seconds, and how often it is tried in all.
LOCK_TIMEOUT: Final = 0.3
LOCK_PAUSE: Final = 1.0
LOCK_ATTEMPTS: Final = 40
#: The last version of the schema whose programs know one record alone (Note [Two records]).
FIRST_RELEASE: Final = 9

#: The SHA-256 of whole files, by that of their statements (Note [Comments may change]): the one that is recorded, and
#: perhaps that of an earlier wording.
FORMER: Final[Mapping[str, tuple[str, ...]]] = {
    "f130aeb8bd3511adad88af53ef46e289a773a1e5367a022c2a7882fbc31fbd44": (
        "418bd433c5d59fcec67792a3eb003fe117e7ecc9e34ed354d8670a6ec742e974",
    ),  # 0001_start.sql
    "328afec2420e14df5e39acf267ff2d76408011f76f4ed894b032b31c3b57c942": (
        "4aec5a64eea6ba1e8c18d533c96f5dbdeba183b32e8637feffda6c80e7d20bb0",
    ),  # 0002_language.sql
    "286705aef29a2d1f46a662ec1fe595983bfadfb0f2ec2d12ea48fccba0519e26": (
        "d298face396ec222059aa60cf815a73400331826243be8d05aa8529ea6e605ed",
    ),  # 0003_search.sql
    "e4649f83b5cc961805a8c106cd1a43f913f2f90dad33b9447daa42fdc128e716": (
        "4d7c6f7e278f4754c2f64e3189c0a90214a94750c2ef12f758b992a8a62f7691",
    ),  # 0004_authenticators.sql
    "db26ed87c87c864a3c795641a52962c95b545bf412354dd030b6928559e8ab74": (
        "1957afe037c11b538212d8dd80beb36975f7391a2f8042bff33079b1b5db650e",
    ),  # 0005_host_factories.sql
    "e9f11e663306f390d0a54d918cbe9e7dba8d2e61d73c98e5f1b5db2c99a6b786": (
        "be3f9ebd0f3b472989bab3afb5392108c1b64172827a8a98b57988e8e113e9bd",
    ),  # 0006_credentials.sql
    "9358555cf8573d6be0a58ff7f77500d3eb439a1d2bbc3fd270f3b762d675cac3": (
        "26cbb27e573c42234ccd95444a8339b3f4bf7cd80f8add7f071807ceb95f7bda",
    ),  # 0007_expirations.sql
    "32afb35a741955523e502829847b8f3f91d52bdb08c237303bdd05c0b98202b4": (
        "4a64caf73c12213b8090374316debcccd93a32ab6d0fbdce5643d6b150cc7fc6",
    ),  # 0008_audit.sql
    "1165676dc55d74211cb8037dccc3c781e63480bd62b54bbce19775a11ed7500c": (
        "114d8ad39bf66e7889670cfa0b5c51f56c4dd784ef8945299a0ddcc476e7a667",
    ),  # 0009_creations.sql
    "7de8979a6d776698c8e9022900e25c6184042dc26b166b567d16a93392c3f541": (
        "dc05d5750d1434b40ce241012e4bab6ae30f763e3d195fbc0e17057d5dbdf91c",
    ),  # 0010_changes.sql
    "5ef9970d5d50be347c97e4ad5cf314b207d96c2fa9f41a8e7238ae2f0bc94a07": (
        "d1e4f362dafb3a30ba8aca54ad2f8349239c6abb6de96f66c1e92ea1c3a5b755",
    ),  # 0011_timeline.sql
    "5025ed166872c0cca017618abe5243f4cd3e579e2cc1d113d8e8c933163cf53e": (
        "a68b00fc45a848fecb017c963a51de07e77b5d3737bcdc3a39549195bb8b8190",
    ),  # 0012_data_keys.sql
    "56e42e221ed086b96f7c87f2cd81e44642342a62bd7f3ee13471f3e0ff68de6e": (
        "b619594624587ba8001f758ac826e40c676c38c3fc28ca9dbdffb19f30025dc3",
        "622115defb29434527d47f4c713d5c64937ab909b26c12fe260fcd44d2055c54",
    ),  # 0013_deleted.sql
    "db496fd022f19213624352c73e9cabfa861fcd2cfeaf7b00cd51a4a00a63367a": (
        "dba01645b72ba5d313d98b2688f17c3f52a80aabc397b1e7fe0ae54866012836",
    ),  # 0014_sessions.sql
    "4a83ccf9130433047ddb5069c7176692154bc8aeda9ad2068141d4d0cdea2096": (
        "30555a1534162e19fb70b262dd5d5cc48f3d0524e32544b6a611216bb5e5337b",
    ),  # 0015_since.sql
    "b3afec7de4484f6ed488b041fd84aa7546a68cea374964ed05828494b0316832": (
        "90558683939a6f70014971196aa4bb6100ea34eb893dc51de4c703dabcc77658",
    ),  # 0016_backups.sql
    "9d7609efe01c2c07ae291c8af2e4281cdb117b9759c1a6ed1fb73d22e3b004e0": (
        "78214689d51ad4e5d03dc8762b99ccba31483fbd32693d68884ee6d4ff083801",
    ),  # 0017_audit_keys.sql
    "0471229f432c0c20aa92fa6fad46d4324b8c7a360244ed3be4a40aae1c1c6300": (
        "f47c926ec91a48a5f9eacb2d28cb82b5e991dfdbc2dcdb3221ba75b05d7377fb",
    ),  # 0018_last_logins.sql
    "7232052266db542867b90df26af047c3db49feef429edc5517655b52bcca2170": (
        "068f52129f1982006bfff1485f76233f7be947504fc6a00136de81779f85a108",
    ),  # 0019_audit_filters.sql
    "aa2c3ffb0e7343a2e153efde0343c3552030b767ed57fe6c7932274e57f8468b": (
        "83264fb1117e9e253602c9b92bd2cfc1c500770f29dc0d8051f0a0f1cc5a7ad9",
    ),  # 0020_audit_filter_rows.sql
    "c0d1c8ecdae190e28bcf3a9b0dd72c4b2131b99e1cade7ae2729042c584087b0": (
        "55168ac55ba88f5fa1b5b7158e93b12dc6a2dcb12caaa028226c8a400421347e",
        "2704c1de68f674501de97db6d306691772a60403ef11d3f7ec1d7c711df94587",
    ),  # 0021_ldap_mappings.sql
}
#: A string literal, which stays as it is, or a comment.
_COMMENT: Final = re.compile(r"('(?:[^']|'')*')|--[^\n]*|/\*.*?\*/", re.DOTALL)
_FILE = re.compile(r"([0-9]{4})_[a-z0-9_]+\.sql")
_SURROUNDINGS: Final = Statement("migration_surroundings", "SELECT pg_is_in_recovery(), current_setting('server_encoding')")
_RECORDS: Final = Statement.with_name("migration_records")(
    "SELECT to_regclass('schema_versions') IS NOT NULL, to_regclass('schema_steps') IS NOT NULL"
)
_APPLIED: Final = Statement(
    "migration_applied", "SELECT version, name, sha256, version FROM schema_versions ORDER BY version"
)
_APPLIED_STEPS: Final = Statement.with_name("migration_applied_steps")("""
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
_USERS: Final = Statement.with_name("migration_users")("""
    SELECT pid, application_name, coalesce(extract(epoch FROM clock_timestamp() - min(xact_start)), 0)::float
    FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE granted AND pid <> pg_backend_pid()
        AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND relation = ANY (SELECT to_regclass(name) FROM unnest($1::text[]) AS name)
    GROUP BY pid, application_name ORDER BY 3 DESC, pid
""")

#: A transaction that has lasted so long, in seconds, would make a migration wait.
LONG: Final = 1.0

_SIZES: Final = Statement.with_name("forecast_sizes")("""
    SELECT name, pg_total_relation_size(to_regclass(name)) FROM unnest($1::text[]) AS name
    WHERE to_regclass(name) IS NOT NULL
""")

_log = Logger()


@attrs.frozen
class Migration:
    """One numbered SQL file; ``sha256`` is of its statements (Note [Comments may change])."""

    version: int
    name: str
    sql: str = attrs.field(repr=False)
    sha256: str = attrs.field(init=False)
    head: MigrationHead = attrs.field(init=False, repr=False)

    @sha256.default
    def _compute_sha256(self) -> str:
        lines = (line.rstrip() for line in _COMMENT.sub(r"\1", self.sql).split("\n"))
        return hashlib.sha256("\n".join(filter(None, lines)).encode()).hexdigest()

    @property
    def recorded_sha256(self) -> str:
        """The hash that a database keeps of it."""
        return FORMER.get(self.sha256, (self.sha256,))[0]

    def is_recorded(self, name: str, sha256: str) -> bool:
        """Return whether a record is of this migration."""
        return name == self.name and sha256 in {self.sha256, *FORMER.get(self.sha256, ())}

    @head.default
    def _parse_head(self) -> MigrationHead:
        return parse_head(self.version, self.sql)


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


def order_migrations(files: Mapping[str, str]) -> list[Migration]:
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


def load_migrations() -> list[Migration]:
    """Return the migrations of this program, in order."""
    schema = resources.files("svc.storage") / "schema"
    return order_migrations(
        {file.name: file.read_text(encoding="utf-8") for file in schema.iterdir() if file.name.endswith(".sql")}
    )


async def migrate(database: Database, wanted: Sequence[Migration] | None = None) -> int:
    """Bring the schema up to date and return its version, which is higher if a newer program has migrated it.

    :param wanted: the migrations to have been applied, instead of :func:`load_migrations` ones.
    :raises StartRefused: the schema is incompatible with this program, or made from other files; or PostgreSQL refuses to
        change it, or others keep its tables locked.
    :raises StandbyBehind: it is too old, and this is a standby, to which its primary hasn't yet sent a newer one.
    :raises StoreUnavailable: PostgreSQL went away; each migration that was applied by then stays.
    """
    migrations = load_migrations() if wanted is None else wanted

    try:
        standing = await read_schema_state(database, migrations)
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
            standing = await _apply_pending(database, migrations, standing.pending[0])
    except (StatementFailed, DatabaseAltered, ReadOnlyStandby) as error:
        raise StartRefused(
            f"PostgreSQL refused to change the schema ({summarize_error(error)}): the database must be this program's own,"
            " and its role must be allowed to create tables there"
        ) from error
    database.tables_required |= standing.version > 0
    return standing.version


async def read_schema_state(database: Database, migrations: Sequence[Migration]) -> SchemaState:
    """Return the state of the schema, without a lock and without writing.

    :raises StartRefused: it is incompatible with this program, or made from other files.
    :raises StoreUnavailable: PostgreSQL can't be reached.
    """

    async def read_state(transaction: Transaction) -> SchemaState:
        ((standby, encoding),) = await transaction.fetch(_SURROUNDINGS)
        if encoding != "UTF8":
            raise StartRefused(f"the database's encoding is {encoding}: create it with ENCODING 'UTF8'")
        version = _check_version(await read_applied(transaction), migrations)
        return SchemaState(version, standby, migrations[version:])

    return await database.transact_read_only(read_state)


async def read_applied(transaction: Transaction) -> Sequence[tuple[int, str, str, int]]:
    """Return the version, name, SHA-256 and needs of each migration that was applied (Note [Two records])."""
    ((versions, steps),) = await transaction.fetch(_RECORDS)
    if not versions:
        return []
    return await transaction.fetch(_APPLIED_STEPS if steps else _APPLIED)


async def table_users(database: Database, migration: Migration) -> list[TableUser]:
    """Return the sessions that use tables which the migration locks, that of the longest transaction first."""
    tables = [lock.table for lock in migration.head.locks]
    return [TableUser(*row) for row in await database.fetch(_USERS, tables)] if tables else []


async def _apply_pending(database: Database, migrations: Sequence[Migration], awaited: Migration) -> SchemaState:
    """Apply the next migration (Note [Nobody queues]), ``awaited`` unless another server does; return the schema's state."""
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
    """Apply and record the next migration; return the schema's state then, and the migration, ``None`` for none."""
    await transaction.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
    await transaction.execute(_TABLES)
    version = _check_version(await read_applied(transaction), migrations)
    if version >= len(migrations):
        return SchemaState(version, False, []), None
    migration = migrations[version]
    await transaction.execute(f"SET LOCAL lock_timeout = {milliseconds(LOCK_TIMEOUT)}")
    await transaction.execute(migration.sql)
    record, needs = (migration.version, migration.name, migration.recorded_sha256), migration.head.needs
    if migration.version > FIRST_RELEASE:
        await transaction.fetch(_RECORD_STEP, *record, needs)
    if migration.version <= FIRST_RELEASE or needs > FIRST_RELEASE:
        await transaction.fetch(_RECORD, *record)
    return SchemaState(version + 1, False, migrations[version + 1 :]), migration


def _check_version(recorded: Sequence[tuple[int, str, str, int]], migrations: Sequence[Migration]) -> int:
    """Return how many migrations are applied; refuse records of other ones, and newer ones that are incompatible."""
    for (version, name, sha256, _), migration in zip(recorded, migrations, strict=False):
        if version != migration.version or not migration.is_recorded(name, sha256):
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


@attrs.frozen
class LockedTable:
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
    locked: Sequence[LockedTable]
    waits_for: Sequence[TableUser]


@attrs.frozen
class Forecast:
    """How the schema stands, the version that this program brings it to, and how."""

    state: SchemaState
    known: int
    steps: Sequence[MigrationStep]


async def forecast_migrations(database: Database, wanted: Sequence[Migration] | None = None) -> Forecast:
    """Find out what :func:`migrate` would do; nothing is locked or written.

    :raises StartRefused: as ``migrate`` does.
    :raises StoreUnavailable: PostgreSQL can't be reached.
    """
    migrations = load_migrations() if wanted is None else wanted
    standing = await read_schema_state(database, migrations)
    tables = sorted({lock.table for each in standing.pending for lock in each.head.locks})
    sizes: dict[str, int] = dict(await database.fetch(_SIZES, tables))
    return Forecast(standing, len(migrations), [await _make_step(database, each, sizes) for each in standing.pending])


async def _make_step(database: Database, migration: Migration, sizes: Mapping[str, int]) -> MigrationStep:
    # A table that isn't there is made by a migration before this one.
    locked = [LockedTable(lock, sizes[lock.table]) for lock in migration.head.locks if lock.table in sizes]
    return MigrationStep(
        migration, locked, [each for each in await table_users(database, migration) if each.seconds >= LONG]
    )
