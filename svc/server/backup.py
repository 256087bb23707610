"""A backup on trial, and put back: restored into a database, brought up to date, and opened to the last value.

Opened values are never kept or shown; values that can't be opened are named by their ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs
from twisted.application.service import MultiService

from svc.crypto.keyfiles import data_key_file, write_data_keys
from svc.crypto.tokens import new_signing_key
from svc.crypto.vault import CANARY, Vault
from svc.model.clocks import MachineClock
from svc.model.data_keys import StoredDataKey
from svc.model.databases import VerifiedBackup
from svc.model.errors import ConfigurationInvalid, Refusal, StartRefused, StoreUnavailable, WrongDataKey
from svc.model.expiration import ROTATOR
from svc.model.query_results import Sealed
from svc.server.bootstrap import find_first_key
from svc.server.lifecycle import add_child
from svc.settings.config import Settings
from svc.storage.accounts import AccountStore
from svc.storage.data_keys import DataKeyStore
from svc.storage.database_state import DatabaseState
from svc.storage.driver.database import Database
from svc.storage.driver.migrations import load_migrations, migrate
from svc.storage.dumps import DumpContents, parse_bytea, read_contents, require_own_code, require_own_objects, restore_dump
from svc.storage.embedded.embedded import EmbeddedPostgres
from svc.storage.restoring import RestoredCounts, RestoringStore, name_sessions, rename_schema
from svc.storage.sealed_columns import KINDS, SealedValueStore

T = TypeVar("T")

#: How many of those that don't open are named.
NAMED_FAILURES: Final = 10

#: How long a statement on the restored database may take, in seconds, and its start.
DATABASE_TIMEOUT: Final = 60.0

#: The tables of a dump that say under which data keys it is sealed.
_KEY_TABLES: Final = ("canary", "data_keys")

_NO_CANARY: Final = "it holds no canary: it was made of a database that no server had been started on"

_SUPERUSER: Final = (
    "The role of the database is a superuser, and a restore runs the definitions in a dump as that role: use a role that"
    " only owns the database, unless nobody but you could write the dump"
)

#: Shows that one waits: the work, and the phase that it is.
ShowProgress = Callable[[Awaitable[T], str], Awaitable[T]]


@attrs.frozen
class VerificationResult:
    """The result. ``version`` is that of the backup's schema, ``current`` the program's; ``opened`` counts by kind.
    ``data_keys`` are the ids of the keys that it is sealed under, of which a backup made during a rotation has two.

    ``failed`` counts what doesn't open, and ``first_failed`` are the ids of the first of these. ``dumped`` is when the
    backup was made, in epoch seconds.
    """

    version: int
    current: int
    opened: Mapping[str, int]
    data_keys: Sequence[str]
    failed: int
    first_failed: Sequence[str]
    dumped: float


@attrs.frozen
class RestoreResult:
    """A restore. ``sessions`` counts those that have ended; ``rotated`` are variables that a rotator replaces.

    ``resumed``: leftovers of an earlier restore were removed first.
    """

    verified: VerificationResult
    counts: RestoredCounts
    accounts: Sequence[str]
    sessions: int
    rotated: Sequence[str]
    resumed: bool


async def verify_backup(
    parent: MultiService, reactor: Any, path: Path, directory: Path, data_keys: Sequence[bytes]
) -> VerificationResult:
    """Restore the dump at ``path`` in ``directory``, which must not exist, and open all that it holds.

    :param parent: runs what this needs; the caller stops it, and removes the directory.
    :raises StartRefused: it can't be restored, it is no dump of this program's database, or one of a newer program's, or
        it was sealed under another data key: says which.
    """
    dump = await read_contents(reactor, path, _KEY_TABLES, embedded=True)
    schema, _ = require_own_objects(dump.entries)
    dsn = await add_child(parent, EmbeddedPostgres(reactor, directory, durable=False)).wait_until_ready()
    database = await _connect_database(parent, reactor, dsn)
    await _restore_into_embedded(reactor, database, dsn, path, schema)
    _, verified = await _verify_contents(database, data_keys, dump)
    return verified


async def restore_backup(
    parent: MultiService,
    reactor: Any,
    settings: Settings,
    path: Path,
    data_keys: Sequence[bytes],
    shown: ShowProgress[Any],
    *,
    warn: Callable[[str], None],
    damaged: bool = False,
) -> RestoreResult:
    """Restore the dump at ``path`` into the settings' database, which must be empty, or left by a restore that was killed.

    :param parent: runs what this needs. Only when the caller has stopped it is all on the disk.
    :param warn: called with a sentence if the database's role may do more than a restore should.
    :param damaged: restore it although some values don't open.
    :raises StartRefused: as ``verify_backup``, or there is something in the database: says what. Its beginning is removed.
    """
    embedded = settings.database_url is None
    dump = await read_contents(reactor, path, _KEY_TABLES, embedded=embedded)
    schema, objects = require_own_objects(dump.entries)
    _demand_keys(data_keys, dump)  # before anything is made
    postgres = None
    if settings.database_url is None:
        postgres = add_child(parent, EmbeddedPostgres(reactor, settings.data_dir, restoring=True))
        dsn = await shown(postgres.wait_until_ready(), "Making a database")
    else:
        try:
            dsn = name_sessions(settings.database_url)
        except ConfigurationInvalid as refusal:
            raise ConfigurationInvalid(settings.name_of("database_url"), refusal.message) from None
    database = await _connect_database(parent, reactor, dsn, DATABASE_TIMEOUT if embedded else settings.database_wait)
    store = RestoringStore(database)
    if not embedded and await store.is_superuser():
        warn(_SUPERUSER)

    async def fill_database() -> RestoreResult:
        resumed = False if embedded else await store.begin_restore(schema, objects, load_migrations())
        try:
            if embedded:
                restoring = _restore_into_embedded(reactor, database, dsn, path, schema)
            else:
                restoring = restore_dump(reactor, dsn, path, schema, embedded=False)
            await shown(restoring, "Restoring the tables")
            vault, verified = await shown(_verify_contents(database, data_keys, dump), "Opening what is sealed")
            if verified.failed and not damaged:
                raise StartRefused(
                    f"{verified.failed} of its values can't be opened: {', '.join(verified.first_failed)}; nothing was"
                    " restored. With --damaged all else is"
                )
            accounts, sessions = await store.end_logins()
            now = MachineClock().seconds()
            for account in accounts:
                await AccountStore(database).rotate_signing_key(new_signing_key(vault, account, now), now)
            counts, rotated = await store.count_contents(), await store.list_rotated_variables(ROTATOR)
            if not embedded:
                await store.finish_restore()
        except BaseException:
            if not embedded:
                with suppress(Refusal):  # the next restore removes it
                    await store.abandon_restore()
            raise
        return RestoreResult(verified, counts, accounts, sessions, rotated, resumed)

    result = await (fill_database() if embedded else store.run_locked(fill_database))
    if postgres is not None:
        write_data_keys(data_key_file(settings.data_dir), data_keys)
        postgres.restored = True
    return result


async def _restore_into_embedded(reactor: Any, database: Database, dsn: str, path: Path, schema: str) -> None:
    """Restore a dump into a new embedded database; its tables go to ``public``, in whichever schema they were dumped."""
    await rename_schema(database, "public", schema)
    await restore_dump(reactor, dsn, path, schema, embedded=True)
    await rename_schema(database, schema, "public")


async def record_verification(state: DatabaseState, settings: Settings, path: Path, verified: VerificationResult) -> None:
    """Have the database know of a backup that was found whole.

    :raises Refusal: it can't be written.
    """
    place = str(settings.data_dir) if settings.database_url is None else await state.read_data_directory()
    beside = None
    with suppress(OSError, TypeError):  # another machine's, or one that may not be looked at
        beside = path.stat().st_dev == Path(str(place)).stat().st_dev if place is not None else None
    await state.record_verified_backup(VerifiedBackup(verified.dumped, path.stat().st_size, str(path), beside))


async def _connect_database(parent: MultiService, reactor: Any, dsn: str, wait: float = DATABASE_TIMEOUT) -> Database:
    database = add_child(parent, Database(reactor, dsn, pool_size=1, statement_timeout=DATABASE_TIMEOUT, first_wait=wait))
    try:
        await database.wait_until_connected()
    except StoreUnavailable as refusal:
        raise StartRefused(f"the database was not there within {wait:g} seconds: {refusal.why}") from None
    return database


def _demand_keys(data_keys: Sequence[bytes], dump: DumpContents) -> None:
    """Return when these are the data keys of a dump; the dump alone is looked at."""
    if not dump.rows["canary"]:
        raise StartRefused(_NO_CANARY)
    canary = Sealed(parse_bytea(dump.rows["canary"][0]["sealed"] or ""))
    rows = sorted(dump.rows["data_keys"], key=lambda row: int(row["number"] or 0))
    stored = [
        StoredDataKey(row["key_id"] or "", row["closed_at"] is not None, row["retired_at"] is not None) for row in rows
    ]
    vault = _open_vault(data_keys, canary, stored)
    try:
        vault.open(CANARY, canary)
    except WrongDataKey:
        raise StartRefused("its canary was altered, so that it can't be known whether the data key fits") from None


def _open_vault(data_keys: Sequence[bytes], canary: Sealed, stored: Sequence[StoredDataKey]) -> Vault:
    """Return the vault that opens what a backup holds.

    :raises StartRefused: a data key that it needs isn't given.
    """
    vault = Vault(*data_keys)
    first = None if stored else find_first_key(data_keys, canary)
    vault.use_stored_keys(stored or [StoredDataKey(first or "")])
    if vault.missing_ids:
        its = "another one" if first is None and not stored else " ".join(vault.missing_ids)
        given = " ".join(vault.given_ids)
        raise StartRefused(
            f"the data key is not the one under which the backup was sealed, {its}; given was {given}: give {its}"
        )
    return vault


async def _verify_contents(
    database: Database, data_keys: Sequence[bytes], dump: DumpContents
) -> tuple[Vault, VerificationResult]:
    """Bring a restored database up to date, and open all that it holds."""
    store, state = SealedValueStore(database), DatabaseState(database)
    version = await store.read_schema_version()
    await require_own_code(database, load_migrations())
    await migrate(database)
    try:
        canary = await state.read_canary()
    except StoreUnavailable:
        raise StartRefused(_NO_CANARY) from None
    vault = _open_vault(data_keys, canary, await DataKeyStore(database).list_keys())
    opened = Counter(dict.fromkeys(KINDS, 0))
    failed: list[str] = []
    try:
        vault.open(CANARY, canary)
    except WrongDataKey:
        failed.append("the canary")
    async for kind, shown, name, sealed in store.stream_values():
        try:
            vault.open(name, sealed)
            opened[kind] += 1
        except WrongDataKey:
            failed.append(shown)
    # Clocks of machines differ, and an older dump may have the time of another zone: a server's sign of life is later.
    now, alive = MachineClock().seconds(), (await RestoringStore(database).count_contents()).alive
    dumped = min(max(alive, dump.dumped_at or 0.0), now)
    current = len(load_migrations())
    return vault, VerificationResult(
        version, current, dict(opened), vault.needed_ids, len(failed), failed[:NAMED_FAILURES], dumped
    )
