"""Open an installation, for the server and for administrative commands: migrate the database, check the data key."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import attrs
from twisted.application.service import MultiService
from twisted.internet.defer import maybeDeferred
from twisted.internet.interfaces import IReactorTime, IStreamClientEndpoint
from twisted.internet.task import deferLater
from twisted.logger import Logger

from svc.audit.record import KEY_BYTES
from svc.crypto.keyfiles import admin_key_file, make_data_key, write_admin_key
from svc.crypto.tokens import new_signing_key
from svc.crypto.vault import AUDIT_KEY, CANARY, Vault, api_key_name, data_key_id, parse_data_keys
from svc.model.clocks import MachineClock, WallClock
from svc.model.credentials import new_api_key
from svc.model.data_keys import StoredDataKey
from svc.model.errors import (
    ConfigurationInvalid,
    Conflict,
    OutcomeUnknown,
    ReadOnlyStandby,
    StandbyBehind,
    StartRefused,
    StoreUnavailable,
    WrongDataKey,
)
from svc.model.events import EventBatch
from svc.model.idempotency import Once
from svc.model.names import admin_of
from svc.model.query_results import Sealed
from svc.server.data_key_source import DataKeySource, is_key_given, parse_command
from svc.server.lifecycle import ServerService, add_child, running_services
from svc.server.listening import Endpoint
from svc.settings.config import Settings
from svc.storage.accounts import AccountStore
from svc.storage.audit_keys import AuditKeyStore
from svc.storage.data_keys import DataKeyStore
from svc.storage.database_state import DatabaseState
from svc.storage.driver.database import Database
from svc.storage.driver.failures import DatabaseUnfit
from svc.storage.driver.location import with_attributes
from svc.storage.driver.migrations import migrate
from svc.storage.driver.standbys import Standbys
from svc.storage.embedded.directory import DataDirectory
from svc.storage.embedded.embedded import EmbeddedPostgres
from svc.storage.restoring import require_restored

#: Connections to the database for reads, and for writes (Note [Reads and writes] in svc/storage/driver/database.py).
POOL_SIZE: Final = 8
WRITERS: Final = 4

#: Seconds in which the embedded PostgreSQL, which runs by then, must let us in; and between two checks of a standby.
EMBEDDED_WAIT: Final = 10.0
STANDBY_POLL_INTERVAL: Final = 0.25

#: Seconds for which another process of a server waits for the database before it begins without.
JOINED_WAIT: Final = 1.0

T = TypeVar("T")

log = Logger()


def check_data_key(settings: Settings) -> None:
    """Check before the start that there can be a data key.

    :raises ConfigurationInvalid: the one that was given is none, or the database needs one to be given.
    """
    if settings.data_key is not None:
        parse_data_keys(settings.data_key)
    elif settings.data_key_command is not None:
        parse_command(settings.name_of("data_key_command"), settings.data_key_command)
    elif settings.database_url is not None and not is_key_given(settings):
        raise ConfigurationInvalid(
            "SERVICE_DATA_KEY",
            "must hold the data key of the database, unless --data-key-file or --data-key-command gives it: for a new"
            " database make one with `svc data-key generate`, and keep it",
        )


@attrs.frozen
class Installation:
    """A database whose schema is up to date, and the vault that opens its values; the DSN, and where the keys come from.

    ``audit_key`` is that of the audit's digests.
    """

    clock: IReactorTime
    wall: WallClock
    dsn: str = attrs.field(repr=False)
    database: Database
    state: DatabaseState
    accounts: AccountStore
    data_keys: DataKeyStore
    source: DataKeySource
    vault: Vault
    audit_key: bytes = attrs.field(repr=False)

    @classmethod
    async def open(
        cls,
        parent: MultiService,
        reactor: Any,
        settings: Settings,
        *,
        joining: bool = False,
        sessions: tuple[int, int] = (POOL_SIZE, WRITERS),
        undone: Callable[[], bool] = lambda: False,
    ) -> Self:
        """Open the installation; its services are added to ``parent``, which must be running.

        ``joining``: it is for a command, which uses the embedded PostgreSQL of a server that runs, if one does.
        ``sessions``: how many there are for reads, and for writes.
        ``undone``: as for ``EmbeddedPostgres``.

        :raises ConfigurationInvalid: the database's URL or the data key isn't one.
        :raises StartRefused: there is no database, it is not ours, or the data key doesn't fit it; on a standby, what only
            its primary can write has not arrived within ``--database-wait`` seconds.
        :raises StoreUnavailable: the database went away again.
        """
        check_data_key(settings)
        dsn, database, standby = await _connected_database(parent, reactor, settings, joining, sessions, undone)
        begun = standby or database
        await _retry_until_replicated(reactor, settings.database_wait, lambda: migrate(begun))
        state, keys, source = DatabaseState(begun), DataKeyStore(begun), DataKeySource.from_settings(reactor, settings)
        given = await _read_given_keys(settings, source, state)
        vault = await _retry_until_replicated(reactor, settings.database_wait, lambda: _open_vault(given, state, keys))
        audit_key = await _retry_until_replicated(
            reactor, settings.database_wait, lambda: _open_audit_key(vault, AuditKeyStore(begun))
        )
        if standby is not None:
            await maybeDeferred(standby.disownServiceParent)
        return cls._from_database(reactor, dsn, database, source, vault, audit_key)

    @classmethod
    async def join_running(
        cls,
        parent: MultiService,
        reactor: Any,
        settings: Settings,
        dsn: str,
        vault: Vault,
        audit_key: bytes,
        sessions: tuple[int, int],
    ) -> Self:
        """Open an installation that another process of this server has open; its database may be away at the moment.

        ``sessions``: as for :meth:`open`; ``vault`` has the keys of the other process, which has the ``audit_key`` too.
        """
        database = add_child(parent, _make_database(reactor, settings, dsn, sessions, JOINED_WAIT))
        with suppress(StoreUnavailable):
            await database.wait_until_connected()
        return cls._from_database(reactor, dsn, database, DataKeySource.from_settings(reactor, settings), vault, audit_key)

    @classmethod
    def _from_database(
        cls, reactor: Any, dsn: str, database: Database, source: DataKeySource, vault: Vault, audit_key: bytes
    ) -> Self:
        state, accounts, keys = DatabaseState(database), AccountStore(database), DataKeyStore(database)
        return cls(
            clock=reactor,
            wall=MachineClock(),
            dsn=dsn,
            database=database,
            state=state,
            accounts=accounts,
            data_keys=keys,
            source=source,
            vault=vault,
            audit_key=audit_key,
        )

    async def create_account(
        self,
        account: str,
        api_key: str,
        trail: EventBatch | None = None,
        once: Once[None] | None = None,
        *,
        announced: bool = True,
    ) -> None:
        """Make an account, whose admin has that API key; ``announced`` as ``AccountStore.create_account``.

        :raises Conflict: it exists.
        :raises AnswerKept: ``once`` says that it was made before.
        """
        admin_key = self.vault.seal(api_key_name(admin_of(account)), api_key.encode("ascii"))
        signing_key = new_signing_key(self.vault, account, self.wall.seconds())
        await self.accounts.create_account(account, admin_key, signing_key, trail, once, announced=announced)

    async def recover_account(self, account: str, api_key: str, trail: EventBatch | None = None) -> None:
        """Give the admin of an account that API key, in place of the one that was lost.

        :raises NotFound: the account is missing, or has no admin any more.
        """
        admin_key = self.vault.seal(api_key_name(admin_of(account)), api_key.encode("ascii"))
        await self.accounts.recover_account(account, admin_key, trail)

    async def ensure_account(self, account: str, data_dir: Path, tell: Callable[[str], bool] | None) -> bool:
        """Make an account unless it is there, and have the API key of its admin shown, or written to a file.

        So is the key of one that an earlier start has made, while no server has been ready since. ``tell`` shows it to the
        operator at the terminal, and returns whether that was possible; a daemon has none. Return whether a key was shown,
        or written.
        """
        path = admin_key_file(data_dir, account)
        if account in await self.accounts.list_accounts():
            if (sealed := await self.accounts.read_unannounced_key(account)) is None:
                return False
            api_key = self.vault.open(api_key_name(admin_of(account)), sealed).decode("ascii")
            if tell is None or not tell(api_key):
                self._write_key(account, path, api_key)
            return True
        api_key = new_api_key()
        # Before the account is made: nobody could ever use an account whose key is lost.
        if tell is None:
            write_admin_key(path, api_key)
        try:
            await self.create_account(account, api_key, announced=False)
        except Conflict:  # Another server has just made it, and knows the key.
            if tell is None:
                path.unlink()
            return False
        except OutcomeUnknown:  # It may have been made after all, with this key.
            if tell is not None:
                write_admin_key(path, api_key)
            raise
        if tell is None or not tell(api_key):
            self._write_key(account, path, api_key)
        return True

    @staticmethod
    def _write_key(account: str, path: Path, api_key: str) -> None:
        write_admin_key(path, api_key)
        log.warn("The account {account} was made. The API key of its admin is in {path}", account=account, path=str(path))


@attrs.frozen(kw_only=True, repr=False)
class StartPlan:
    """All that a server starts with, be it one process or several.

    ``show_admin_key`` is as for ``tap.build_server``; a daemon has none.
    """

    services: ServerService
    reactor: Any
    settings: Settings
    installation: Installation
    endpoints: Sequence[Endpoint]
    metrics_endpoint: Endpoint | None
    audit_syslog: IStreamClientEndpoint | None
    show_admin_key: Callable[[str], bool] | None


async def run_on_database(reactor: Any, settings: Settings, work: Callable[[Database], Awaitable[T]]) -> T:
    """Run work on the database alone, whose schema stays as it was found, and close everything after it.

    An embedded database that doesn't exist isn't made. The work makes its queries one after the other: there is one session.

    :raises Refusal: as :meth:`Installation.open`, or as ``work`` does.
    """
    demand_database(settings)
    async with running_services() as services:
        _, database, standby = await _connected_database(services, reactor, settings, True, (1, 1))
        return await work(standby or database)


def demand_database(settings: Settings) -> None:
    """Return if there is a database, so that none has to be made; raises ``StartRefused``."""
    if settings.database_url is None and DataDirectory(settings.data_dir).cluster_version() is None:
        raise StartRefused(
            f"there is no database in {settings.data_dir}: name the server's --data-dir, --database-url or --config"
        )


async def _connected_database(
    parent: MultiService,
    reactor: Any,
    settings: Settings,
    joining: bool,
    sessions: tuple[int, int],
    undone: Callable[[], bool] = lambda: False,
) -> tuple[str, Database, Database | None]:
    """Connect to the database, after starting the embedded one if no other is set; return its DSN and itself.

    Where reads may go to standbys, and there is no primary to be had, a standby to begin with is returned too, a child of
    ``parent`` as well. ``joining``, ``sessions`` and ``undone`` are as in ``Installation.open``.

    :raises ConfigurationInvalid: the database's URL isn't one.
    :raises StartRefused: there is no database within ``--database-wait`` seconds, or it can't be used.
    """
    url, wait = settings.database_url, settings.database_wait
    if settings.reads_from_standby and url is None:
        raise ConfigurationInvalid(
            settings.name_of("read_from"),
            "may be standby for the hosts of --database-url alone: the embedded database has none",
        )
    if url is None:
        embedded = add_child(parent, EmbeddedPostgres(reactor, settings.data_dir, joining=joining, should_undo=undone))
        url, wait = await embedded.wait_until_ready(), EMBEDDED_WAIT
    try:
        if settings.reads_from_standby:
            url = with_attributes(url, "primary")
        database = add_child(parent, _make_database(reactor, settings, url, sessions, wait))
    except ConfigurationInvalid as refusal:
        raise ConfigurationInvalid(settings.name_of("database_url"), refusal.message) from None
    try:
        await database.wait_until_connected()
    except DatabaseUnfit as refusal:
        raise StartRefused(refusal.why) from None
    except StoreUnavailable as refusal:
        standby = await _connect_standby(parent, reactor, url, database) if settings.reads_from_standby else None
        if standby is None:
            raise StartRefused(f"the database was not there within {wait:g} seconds: {refusal.why}") from None
        log.warn("There is no primary: this server begins to read from a standby, and takes no writes until there is one")
        await require_restored(standby)
        return url, database, standby
    await require_restored(database)
    return url, database, None


def _make_database(reactor: Any, settings: Settings, dsn: str, sessions: tuple[int, int], first_wait: float) -> Database:
    readers, writers = sessions
    timeout = settings.statement_timeout
    return Database(reactor, dsn, pool_size=readers, writers=writers, statement_timeout=timeout, first_wait=first_wait)


async def _connect_standby(parent: MultiService, reactor: Any, url: str, primary: Database) -> Database | None:
    """Return the standby that has come furthest, connected; ``None`` if there is none."""
    found = await Standbys(reactor, url, primary).find_standbys()
    for each in found:
        each.close("it was asked for the start")
    furthest = max(found, key=lambda each: (each.reached.timeline, each.reached.position or 0), default=None)
    if furthest is None:
        return None
    database = add_child(parent, furthest.database)
    await database.wait_until_connected()
    return database


async def _retry_until_replicated(clock: IReactorTime, wait: float, work: Callable[[], Awaitable[T]]) -> T:
    """Do ``work``; on a standby that is behind, repeat it until its needs have arrived, for ``wait`` seconds at most."""
    deadline, logged = clock.seconds() + wait, ""
    while True:
        try:
            return await work()
        except StandbyBehind as refusal:
            if clock.seconds() >= deadline:
                raise
            if refusal.message != logged:
                log.warn("Waiting for the primary: {why}", why=refusal.message)
            logged = refusal.message
        await deferLater(clock, STANDBY_POLL_INTERVAL)


async def _open_vault(given: tuple[bytes, ...], state: DatabaseState, keys: DataKeyStore) -> Vault:
    """Return the vault under the data keys, once these are known to be the database's (DATA-8, DATA-33)."""
    vault = Vault(*given)
    try:
        canary = await state.establish_canary(vault.seal(CANARY, b"svc"))
    except ReadOnlyStandby:
        why = "the database of this standby has not been initialised: start the same program on the primary first"
        raise StandbyBehind(why) from None
    if not (stored := await keys.list_keys()):
        if (first := find_first_key(given, canary)) is None:
            raise StartRefused(f"{_MISFIT}, which was initialised with another one: give that one, or another database")
        with suppress(ReadOnlyStandby):  # Its primary does that.
            await keys.record_first_key(first)
        stored = await keys.list_keys() or [StoredDataKey(first)]
    vault.use_stored_keys(stored)
    if vault.missing_ids:
        raise StartRefused(describe_missing_keys(vault))
    try:
        vault.open(CANARY, await state.read_canary())  # A rotation may have begun since.
    except WrongDataKey:
        raise StartRefused(f"{_MISFIT}: its canary was altered; restore the database from a backup") from None
    return vault


async def _open_audit_key(vault: Vault, store: AuditKeyStore) -> bytes:
    """Return the key of the audit's digests, which the first server that comes for it makes."""
    if (sealed := await store.read_key()) is None:
        try:
            await store.add_key(vault.seal(AUDIT_KEY, os.urandom(KEY_BYTES)))
        except ReadOnlyStandby:
            why = "its database has no audit key yet: start the same program on the primary first"
            raise StandbyBehind(why) from None
        sealed = await store.read_key()
        assert sealed is not None
    try:
        return vault.open(AUDIT_KEY, sealed)
    except WrongDataKey:
        raise StartRefused(
            "the audit key of the database can't be opened, since it was altered: restore the table audit_keys from a"
            " backup, or delete its row, for a new key, with which older records can't be verified"
        ) from None


_MISFIT: Final = "the data key does not fit this database"


def describe_missing_keys(vault: Vault) -> str:
    """Return what to do about data keys that the database needs, and that weren't given."""
    given, missing = " ".join(vault.given_ids), " ".join(vault.missing_ids)
    if vault.current_id in vault.missing_ids:
        return f"{_MISFIT}, which is sealed under {missing}, and {given} was given: give that one, or another database"
    return (
        f"{_MISFIT} alone: some of its values are still sealed under {missing}, and {given} was given: give both, the newest"
        " first, until `svc data-key status` says that the old one is not needed"
    )


def find_first_key(given: Sequence[bytes], canary: Sealed) -> str | None:
    """Return the id of the key that a database was initialised with, which no server has noted; ``None`` if not given."""
    for key in given:
        with suppress(WrongDataKey):
            Vault(key).open(CANARY, canary)
            return data_key_id(key)
    return None


async def _read_given_keys(settings: Settings, source: DataKeySource, state: DatabaseState) -> tuple[bytes, ...]:
    keys = await source.read_keys()
    if keys is not None:
        return keys
    path = source.file
    assert path is not None
    if await _is_initialised(state):
        raise StartRefused(
            f"{path} is missing, and the database in {settings.data_dir} was initialised with a data key:"
            " restore the file from a copy, or give the key as SERVICE_DATA_KEY"
        )
    key = make_data_key(path)
    warning = "A data key was made. Without it the database is worthless: keep a copy of {path} elsewhere"
    log.warn(warning, path=str(path))
    return (key,)


async def _is_initialised(state: DatabaseState) -> bool:
    try:
        await state.read_canary()
    except StoreUnavailable:
        await state.check_connection()  # Unless this fails as well, there is no canary yet.
        return False
    return True
