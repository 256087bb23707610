"""A database that a backup is restored into: the check that it is empty, leftovers of a restore, and logins that end with
it.

Note [The mark]. A restore may be killed at any moment. So before anything else a table says that one is under way, and names
all that it will make. While the table is there no server starts; the next restore drops what the table names, and nothing
else, and begins from an empty database again. The last transaction of a restore drops the table. A dump is restored as a
whole or not at all: unless every object of the dump that the table names is there, none of them comes from the dump, and a
table of the same name belongs to another program.

Note [One at a time]. A restore holds an advisory lock as long as it lives, in a transaction of a session of its own, which a
pooler doesn't share out. PostgreSQL releases the lock of a killed restore at once, but works on: on the statement that the
restore was waiting for, and for its ``pg_restore``, which lives on. So the sessions of a restore share a name, and the next
restore, once it has the lock, terminates those of others. A restore whose lock is lost ends; another may have begun
meanwhile. So the mark has the number of its restore, which is compared before that removes the mark, or drops anything.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from typing import Any, Final, TypeVar

import attrs
from psycopg2.extensions import make_dsn
from twisted.internet.defer import Deferred

from svc.model.errors import StartRefused
from svc.storage.driver.columns import to_array
from svc.storage.driver.database import Database
from svc.storage.driver.failures import DatabaseAltered, StatementFailed, summarize_error
from svc.storage.driver.location import dsn_parameters
from svc.storage.driver.migrations import Migration
from svc.storage.driver.statements import ReadSource, Statement, Transaction
from svc.storage.sql.access_facts import NEW_EPOCH

T = TypeVar("T")

#: A kind of object, its schema, its name.
DumpObject = tuple[str, str, str]

#: The kinds of objects that migrations make, in the order in which they can be dropped.
KINDS: Final = ("VIEW", "TABLE", "SEQUENCE", "FUNCTION")

#: How many of the variables that are rotated are named.
NAMED: Final = 20

#: The key of the advisory lock of restores, ``svc`` and a blank in ASCII, then 3.
_RESTORE_LOCK: Final = 0x7376632000000003

#: Seconds that a killed restore may take to release its lock, and its sessions to end; and the pauses between attempts.
RELEASE_TIMEOUT: Final = 10.0
_RELEASE_PAUSE: Final = 0.1

#: Sessions of a restore are named so, followed by what tells them from those of another.
_SESSION_NAME: Final = "svc restore "

#: Seconds that dropping objects, counting rows and ending logins may take.
RESTORE_TIMEOUT: Final = 3600.0

_CREATED: Final = re.compile(rf"(?m)^CREATE (?:OR REPLACE )?({'|'.join(KINDS)}) (?:IF NOT EXISTS )?([a-z0-9_]+)")

_IS_MARKED: Final = Statement("restoring_marked", "SELECT to_regclass('svc_restoring') IS NOT NULL")
_BEGIN_LOCK: Final = "BEGIN READ ONLY; SET LOCAL idle_in_transaction_session_timeout = 0"
_TRY_LOCK: Final = "SELECT pg_try_advisory_xact_lock(%s)"
_TERMINATE_OTHERS: Final = Statement.with_name("restoring_terminate")(f"""
    SELECT pg_terminate_backend(pid, $1::bigint) FROM pg_stat_activity
    WHERE datname = current_database() AND starts_with(application_name, '{_SESSION_NAME}')
        AND application_name <> current_setting('application_name')
""")
_IS_SUPERUSER: Final = Statement("restoring_superuser", "SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
_SCHEMA: Final = Statement.with_name("restoring_schema")("""
    SELECT current_schema(), format(
        'CREATE SCHEMA IF NOT EXISTS %1$I AUTHORIZATION %2$I; ALTER ROLE %3$I IN DATABASE %4$I SET search_path = %1$I',
        $1::text, current_user, session_user, current_database()
    )
""")
# The mark of an older program doesn't say which objects come from the dump.
_MARKED: Final = Statement.with_name("restoring_objects")("""
    SELECT kind, place, name, coalesce((to_jsonb(svc_restoring) ->> 'dumped')::boolean, true) FROM svc_restoring
""")
_MARK: Final = Statement(
    "restoring_mark",
    "INSERT INTO svc_restoring (kind, place, name, dumped, restore)"
    " SELECT *, $5::text FROM unnest($1::text[], $2::text[], $3::text[], $4::boolean[])",
)
_TABLE: Final = """
    CREATE TABLE svc_restoring (
        kind text NOT NULL, place text NOT NULL, name text NOT NULL, dumped boolean NOT NULL, restore text NOT NULL
    )
"""
_LOCK_MARK: Final = "LOCK TABLE svc_restoring"
_IS_OWN: Final = Statement.with_name("restoring_own")("""
    SELECT EXISTS (SELECT FROM svc_restoring WHERE to_jsonb(svc_restoring) ->> 'restore' = $1::text)
""")
_UNMARK: Final = "DROP TABLE svc_restoring"

# Only existing objects, quoted, and functions with their arguments; never an extension's objects.
_THERE: Final = Statement.with_name("restoring_there")("""
    SELECT found.kind, found.place, found.name, found.shown FROM (
        SELECT CASE relkind WHEN 'v' THEN 'VIEW' WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END AS kind, nspname AS place,
            relname AS name, format('%I.%I', nspname, relname) AS shown, pg_class.oid, 'pg_class'::regclass AS catalog
        FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
        WHERE relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
        UNION ALL
        SELECT 'FUNCTION', nspname, proname, pg_proc.oid::regprocedure::text, pg_proc.oid, 'pg_proc'
        FROM pg_proc JOIN pg_namespace ON pg_namespace.oid = pronamespace
        UNION ALL
        SELECT 'TYPE', nspname, typname, format('%I.%I', nspname, typname), pg_type.oid, 'pg_type'
        FROM pg_type JOIN pg_namespace ON pg_namespace.oid = typnamespace WHERE typtype IN ('d', 'e', 'r')
    ) AS found
    WHERE place NOT IN ('pg_catalog', 'information_schema') AND NOT starts_with(place, 'pg_')
        AND ($1::text[] IS NULL OR (found.kind, place, found.name) IN (
            SELECT * FROM unnest($1, $2::text[], $3::text[])
        ))
        AND NOT EXISTS (
            SELECT FROM pg_depend WHERE pg_depend.classid = found.catalog AND pg_depend.objid = found.oid
                AND deptype IN ('e', 'i', 'a')
        )
    ORDER BY place, found.name
""")

_END_TOKENS: Final = Statement("restoring_end_tokens", f"UPDATE accounts SET epoch = {NEW_EPOCH} RETURNING account")
_END_SESSIONS: Final = Statement(
    "restoring_end_sessions",
    "WITH ended AS (DELETE FROM sessions RETURNING role_id) SELECT count(*) FROM ended",
)
_COUNTS: Final = Statement.with_name("restoring_counts")("""
    SELECT
        (SELECT count(*) FROM accounts),
        (SELECT count(*) FROM roles WHERE NOT starts_with(role_id, '/:')),
        (SELECT count(*) FROM resources WHERE NOT starts_with(resource_id, '/:')),
        (SELECT count(*) FROM secrets WHERE NOT starts_with(resource_id, '/:')),
        (SELECT count(*) FROM host_factory_tokens
            WHERE expires_at > extract(epoch FROM now()) AND NOT starts_with(factory_id, '/:')),
        (SELECT count(*) FROM distrusted_keys WHERE NOT starts_with(resource_id, '/:')),
        (SELECT extract(epoch FROM beaten_at)::double precision FROM heartbeat)
""")
_ROTATED: Final = Statement.with_name("restoring_rotated")("""
    SELECT resource_id FROM annotations
    WHERE name = $1::text AND EXISTS (SELECT FROM secrets WHERE secrets.resource_id = annotations.resource_id OFFSET 0)
    ORDER BY resource_id
""")


@attrs.frozen
class RestoredCounts:
    """How much there is after a restore; ``alive`` is the time of the last heartbeat of a server, in epoch seconds."""

    accounts: int
    roles: int
    resources: int
    values: int
    factory_tokens: int
    distrusted: int
    alive: float


def objects_of(migrations: Iterable[Migration], schema: str) -> frozenset[DumpObject]:
    """Return the objects that migrations make in a schema, and those that record them."""
    made = {("TABLE", schema, "schema_versions"), ("TABLE", schema, "schema_steps")}
    return frozenset(
        made | {(kind, schema, name) for each in migrations for kind, name in _CREATED.findall(each.sql)},
    )


def name_sessions(dsn: str) -> str:
    """Return a DSN whose sessions are those of one restore (Note [One at a time]).

    :raises ConfigurationInvalid: it can't be used.
    """
    named: str = make_dsn(**{**dsn_parameters(dsn), "application_name": _SESSION_NAME + secrets.token_hex(8)})
    return named


async def rename_schema(database: Database, name: str, new: str) -> None:
    """Give a schema another name, if that isn't the one that it has.

    :raises StartRefused: PostgreSQL refuses it.
    """
    quoted, new_quoted = ('"' + each.replace('"', '""') + '"' for each in (name, new))

    async def run_rename(transaction: Transaction) -> None:
        await transaction.execute(f"ALTER SCHEMA {quoted} RENAME TO {new_quoted}")

    try:
        if name != new:
            await database.transact(run_rename)
    except (StatementFailed, DatabaseAltered) as error:
        raise StartRefused(f"PostgreSQL can't rename the schema {name} to {new}: {summarize_error(error)}") from error


async def require_restored(database: ReadSource) -> None:
    """Return if no restore into a database is under way.

    :raises StartRefused: one is, or was killed.
    :raises StoreUnavailable: PostgreSQL can't be reached.
    """
    for (marked,) in await database.fetch(_IS_MARKED):
        if marked:
            raise StartRefused("a restore into this database has not ended: run `svc backup restore` again: it starts over")


@attrs.frozen
class RestoringStore:
    """The database that a backup is restored into."""

    _database: Database
    #: The number of the restore.
    _number: str = attrs.field(init=False, factory=lambda: secrets.token_hex(8))

    async def run_locked(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Keep other restores out of the database until ``work`` has ended, after sessions that killed ones have left at
        work are ended (Note [One at a time]); it is cancelled if the lock is lost.

        :raises StartRefused: another restore is at work, or the lock was lost, or PostgreSQL won't end those sessions.
        """
        losses: list[Exception] = []
        running: list[Deferred[T]] = []

        def cancel_work(reason: Exception) -> None:
            losses.append(reason)
            for each in running:
                each.cancel()

        session = await self._database.open_session(cancel_work)
        try:
            await session.run(_BEGIN_LOCK)
            end = session.reactor.seconds() + RELEASE_TIMEOUT
            while (await session.run(_TRY_LOCK, (_RESTORE_LOCK,))) != [(True,)]:
                if session.reactor.seconds() > end:
                    raise StartRefused("another restore into this database is at work: wait for it, or end it")
                await self._database.pause(_RELEASE_PAUSE)
            try:
                ended = await self._database.fetch(_TERMINATE_OTHERS, int(RELEASE_TIMEOUT * 1000))
            except (StatementFailed, DatabaseAltered) as error:
                raise StartRefused(
                    f"what a killed restore has left at work can't be ended ({summarize_error(error)}): have PostgreSQL's"
                    f" superuser terminate the sessions named '{_SESSION_NAME}…'"
                ) from error
            if (False,) in ended:
                raise StartRefused("what a killed restore has left at work doesn't end: run it again when it has ended")
            if losses:
                raise losses[0]
            running.append(Deferred.fromCoroutine(work()))
            return await running[0]
        except BaseException:
            if running and losses:
                raise StartRefused(
                    f"the session that keeps other restores out was lost ({summarize_error(losses[0])}): run it again"
                ) from losses[0]
            raise
        finally:
            session.close()

    async def begin_restore(self, schema: str, objects: Collection[DumpObject], migrations: Sequence[Migration]) -> bool:
        """Mark an empty database (Note [The mark]); return whether leftovers of another restore had to be dropped.

        :param schema: that of the backup, into which it is restored.
        :param objects: those of the backup.
        :raises StartRefused: there is anything else in it, or the session makes its tables in another schema.
        """

        async def mark_database(transaction: Transaction) -> bool:
            ((current, remedy),) = await transaction.fetch(_SCHEMA, schema)
            if current != schema:
                raise StartRefused(
                    f"the backup's tables are in the schema {schema}, and the role's search_path leads to"
                    f" {'no schema' if current is None else f'the schema {current}'}: run `{remedy}` in the database first"
                )
            ((marked,),) = await transaction.fetch(_IS_MARKED)
            if marked:
                await transaction.execute(_LOCK_MARK)
                await _drop_leftovers(transaction)
            there = await transaction.fetch(_THERE, None, None, None)
            found = [f"the {kind.lower()} {shown}" for kind, _, _, shown in there]
            if found:
                more = f" and {len(found) - 3} more" if len(found) > 3 else ""
                raise StartRefused(
                    f"the database isn't empty: it has {', '.join(found[:3])}{more}; a backup is restored into a new one"
                )
            await transaction.execute(_TABLE)
            dumped = {each for each in objects if each[0] in KINDS}
            made = [(*each, each in dumped) for each in sorted(dumped | objects_of(migrations, schema))]
            await transaction.fetch(_MARK, *map(to_array, zip(*made, strict=True)), self._number)
            return bool(marked)

        try:
            return await self._database.transact(mark_database, statement_timeout=RESTORE_TIMEOUT)
        except DatabaseAltered as error:
            raise StartRefused(
                f"PostgreSQL refused to begin ({summarize_error(error)}): the database's role must own the database,"
                " so that it may create tables there"
            ) from error
        except StatementFailed as error:
            raise StartRefused(
                f"PostgreSQL refused to begin ({summarize_error(error)}): drop the database and create it"
            ) from error

    async def is_superuser(self) -> bool:
        """Return whether the role of the session may do everything in the whole of PostgreSQL."""
        return await self._database.fetch(_IS_SUPERUSER) == [(True,)]

    async def abandon_restore(self) -> None:
        """Drop all that this restore has made, and its mark; nothing if another has begun meanwhile."""

        async def drop_leftovers(transaction: Transaction) -> None:
            if await self._lock_own_mark(transaction):
                await _drop_leftovers(transaction)

        await self._database.transact(drop_leftovers, statement_timeout=RESTORE_TIMEOUT)

    async def finish_restore(self) -> None:
        """Remove the mark: the database is complete.

        :raises StartRefused: another restore has begun meanwhile.
        """

        async def remove_mark(transaction: Transaction) -> None:
            if not await self._lock_own_mark(transaction):
                raise StartRefused("another restore into this database has begun meanwhile: wait for it")
            await transaction.execute(_UNMARK)

        await self._database.transact(remove_mark)

    async def _lock_own_mark(self, transaction: Transaction) -> bool:
        """Return whether the mark is that of this restore, and keep it so until the transaction ends."""
        if await transaction.fetch(_IS_MARKED) != [(True,)]:
            return False
        await transaction.execute(_LOCK_MARK)
        return await transaction.fetch(_IS_OWN, self._number) == [(True,)]

    async def end_logins(self) -> tuple[list[str], int]:
        """Revoke all access tokens and end all sessions; return the accounts, and how many sessions there were."""

        async def end_all(transaction: Transaction) -> tuple[list[str], int]:
            accounts = [account for (account,) in await transaction.fetch(_END_TOKENS)]
            ((sessions,),) = await transaction.fetch(_END_SESSIONS)
            return accounts, sessions

        return await self._database.transact(end_all, statement_timeout=RESTORE_TIMEOUT)

    async def count_contents(self) -> RestoredCounts:
        """Return how much there is."""

        async def read_counts(transaction: Transaction) -> RestoredCounts:
            (row,) = await transaction.fetch(_COUNTS)
            return RestoredCounts(*row)

        return await self._database.transact(read_counts, statement_timeout=RESTORE_TIMEOUT)

    async def list_rotated_variables(self, annotation: str) -> list[str]:
        """Return the variables with a value that a rotator replaces, which this annotation names."""
        return [name for (name,) in await self._database.fetch(_ROTATED, annotation)]


async def _drop_leftovers(transaction: Transaction) -> None:
    """Drop what a marked restore has made, and the mark (Note [The mark]); keep all if other objects depend on any of it."""
    marked = [tuple(row) for row in await transaction.fetch(_MARKED)]
    names = [(kind, place, name) for kind, place, name, _ in marked]
    there = await transaction.fetch(_THERE, *map(to_array, zip(*names, strict=True))) if names else []
    # The sequence of an identity column is part of its table, and isn't found by itself.
    dumped = {(kind, place, name) for kind, place, name, of_dump in marked if of_dump and kind != "SEQUENCE"}
    if dumped <= {(kind, place, name) for kind, place, name, _ in there}:
        for kind in KINDS:
            shown = [shown for each, _, _, shown in there if each == kind]
            if shown:
                await transaction.execute(f"DROP {kind} {', '.join(shown)}")
    await transaction.execute(_UNMARK)
