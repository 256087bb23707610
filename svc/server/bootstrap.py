"""Open an installation, for the server and for administrative commands: migrate the database, check the data key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import attrs
from twisted.application.service import MultiService
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from svc.crypto.keyfiles import admin_key_file, data_key_file, make_data_key, read_data_key, write_admin_key
from svc.crypto.keyring import new_signing_key
from svc.crypto.vault import CANARY, Vault, api_key_name, parse_data_key
from svc.model.clocks import MachineClock, WallClock
from svc.model.credentials import new_api_key
from svc.model.errors import (
    ConfigurationInvalid,
    Conflict,
    OutcomeUnknown,
    StandbyBehind,
    StartRefused,
    StoreReadOnly,
    StoreUnavailable,
    WrongDataKey,
)
from svc.model.events import EventBatch
from svc.model.names import admin_of
from svc.server.lifecycle import child
from svc.settings.config import Settings
from svc.storage.accounts import AccountStore
from svc.storage.database_state import DatabaseState
from svc.storage.driver.database import Database
from svc.storage.driver.migrations import migrate
from svc.storage.embedded.embedded import EmbeddedPostgres

#: Connections to the database for readings, and for writes (Note [Readings and writes] in svc/storage/driver/database.py).
POOL_SIZE: Final = 8
WRITERS: Final = 4

#: Seconds in which the embedded PostgreSQL, which runs by then, must let us in; and between two looks at a standby.
EMBEDDED_WAIT: Final = 10.0
GLANCE: Final = 0.25

T = TypeVar("T")

log = Logger()


def check_data_key(settings: Settings) -> None:
    """Check before the start that there can be a data key.

    :raises ConfigurationInvalid: the one that was given is none, or the database needs one to be given.
    """
    if settings.data_key is not None:
        parse_data_key(settings.data_key)
    elif settings.database_url is not None:
        raise ConfigurationInvalid(
            "SERVICE_DATA_KEY",
            "must hold the data key of the database: for a new database make one with `svc data-key generate`, and keep it",
        )


@attrs.frozen
class Installation:
    """A database whose schema is up to date, and the vault that opens its values; the DSN and the key of these."""

    clock: IReactorTime
    wall: WallClock
    dsn: str = attrs.field(repr=False)
    database: Database
    state: DatabaseState
    accounts: AccountStore
    data_key: bytes = attrs.field(repr=False)
    vault: Vault

    @classmethod
    async def open(cls, parent: MultiService, reactor: Any, settings: Settings, *, joining: bool = False) -> Self:
        """Open the installation; its services are added to ``parent``, which must be running.

        ``joining``: it is for a command, which uses the embedded PostgreSQL of a server that runs, if one does.

        :raises ConfigurationInvalid: the database's URL or the data key isn't one.
        :raises StartRefused: there is no database, it is not ours, or the data key doesn't fit it; on a standby, what only
            its primary can write has not arrived within ``--database-wait`` seconds.
        :raises StoreUnavailable: the database went away again.
        """
        check_data_key(settings)
        dsn, database = await _database(parent, reactor, settings, joining)
        await _replicated(reactor, settings.database_wait, lambda: migrate(database))
        state = DatabaseState(database)
        data_key = await _data_key(settings, state)
        vault = await _replicated(reactor, settings.database_wait, lambda: _vault(data_key, state))
        return cls(reactor, MachineClock(), dsn, database, state, AccountStore(database), data_key, vault)

    async def create_account(self, account: str, api_key: str, trail: EventBatch | None = None) -> None:
        """Make an account, whose admin has that API key.

        :raises Conflict: it exists.
        """
        admin_key = self.vault.seal(api_key_name(admin_of(account)), api_key.encode("ascii"))
        signing_key = new_signing_key(self.vault, account, self.wall.seconds())
        await self.accounts.create(account, admin_key, signing_key, trail)

    async def ensure_account(self, account: str, data_dir: Path, tell: Callable[[str], bool] | None) -> None:
        """Make an account unless it is there, and have the API key of its admin told, or written to a file.

        ``tell`` shows it to the operator at the terminal, and returns whether that was possible; a daemon has none.
        """
        if account in await self.accounts.names():
            return
        api_key, path = new_api_key(), admin_key_file(data_dir, account)
        # Before the account is made: nobody could ever use an account whose key is lost.
        if tell is None:
            write_admin_key(path, api_key)
        try:
            await self.create_account(account, api_key)
        except Conflict:  # Another server has just made it, and knows the key.
            if tell is None:
                path.unlink()
            return
        except OutcomeUnknown:  # It may have been made after all, with this key.
            if tell is not None:
                write_admin_key(path, api_key)
            raise
        if tell is not None:
            if tell(api_key):
                return
            write_admin_key(path, api_key)
        log.warn("The account {account} was made. The API key of its admin is in {path}", account=account, path=str(path))


async def _database(parent: MultiService, reactor: Any, settings: Settings, joining: bool) -> tuple[str, Database]:
    """Connect to the database, after starting the embedded one if no other is set; return its DSN and itself."""
    url, wait = settings.database_url, settings.database_wait
    if url is None:
        embedded = child(parent, EmbeddedPostgres(reactor, settings.data_dir, joining=joining))
        url, wait = await embedded.ready(), EMBEDDED_WAIT
    try:
        database = Database(
            reactor, url, pool_size=POOL_SIZE, writers=WRITERS, statement_timeout=settings.statement_timeout, first_wait=wait
        )
    except ConfigurationInvalid as refusal:
        raise ConfigurationInvalid(settings.key("database_url"), refusal.message) from None
    child(parent, database)
    try:
        await database.connected()
    except StoreUnavailable as refusal:
        raise StartRefused(f"the database was not there within {wait:g} seconds: {refusal.why}") from None
    return url, database


async def _replicated(clock: IReactorTime, wait: float, work: Callable[[], Awaitable[T]]) -> T:
    """Do ``work``; on a standby that is behind, repeat it until its needs have arrived, for ``wait`` seconds at most."""
    deadline, told = clock.seconds() + wait, ""
    while True:
        try:
            return await work()
        except StandbyBehind as refusal:
            if clock.seconds() >= deadline:
                raise
            if refusal.message != told:
                log.warn("Waiting for the primary: {why}", why=refusal.message)
            told = refusal.message
        await deferLater(clock, GLANCE)


async def _vault(data_key: bytes, state: DatabaseState) -> Vault:
    """Return the vault under the data key, once that is known to be the database's (DATA-8)."""
    vault = Vault(data_key)
    try:
        vault.open(CANARY, await state.establish_canary(vault.seal(CANARY, b"svc")))
    except StoreReadOnly:
        why = "the database of this standby has not been initialised: start the same program on the primary first"
        raise StandbyBehind(why) from None
    except WrongDataKey:
        raise StartRefused(
            "the data key does not fit this database, which was initialised with another one:"
            " give that one, or another database"
        ) from None
    return vault


async def _data_key(settings: Settings, state: DatabaseState) -> bytes:
    if settings.data_key is not None:
        return parse_data_key(settings.data_key)
    path = data_key_file(settings.data_dir)
    key = read_data_key(path)
    if key is None:
        if await _is_initialised(state):
            raise StartRefused(
                f"{path} is missing, and the database in {settings.data_dir} was initialised with a data key:"
                " restore the file from a copy, or give the key as SERVICE_DATA_KEY"
            )
        key = make_data_key(path)
        warning = "A data key was made. Without it the database is worthless: keep a copy of {path} elsewhere"
        log.warn(warning, path=str(path))
    return key


async def _is_initialised(state: DatabaseState) -> bool:
    try:
        await state.canary()
    except StoreUnavailable:
        await state.connected()  # Unless this fails as well, there is no canary yet.
        return False
    return True
