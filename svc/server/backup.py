"""A backup on trial: restored into a database of its own, brought up to date, and opened to the last value.

Nothing of what is opened is kept or shown; what can't be opened is named by its id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
from twisted.application.service import MultiService

from svc.crypto.vault import CANARY, Vault, api_key_name, password_name, signing_key_name
from svc.model.errors import StartRefused, StoreUnavailable, WrongDataKey
from svc.model.names import RoleName
from svc.model.query_results import Sealed
from svc.server.lifecycle import child
from svc.storage.database_state import DatabaseState
from svc.storage.driver.database import Database
from svc.storage.driver.migrations import migrate, packaged
from svc.storage.dumps import is_dump, restore
from svc.storage.embedded.embedded import EmbeddedPostgres
from svc.storage.sealed_values import SealedStore

#: Kinds of sealed values, in the order in which they are opened, and how many of those that don't open are named.
KINDS: Final = ("secrets", "API keys", "passwords", "signing keys")
NAMED: Final = 10

#: How long a statement on the restored database may take, in seconds, and its start.
PATIENCE: Final = 60.0


@attrs.frozen
class Verified:
    """The result. ``version`` is that of the backup's schema, ``current`` the program's; ``opened`` counts by kind.

    ``failed`` counts what doesn't open, and ``first_failed`` are the ids of the first of these.
    """

    version: int
    current: int
    opened: Mapping[str, int]
    failed: int
    first_failed: Sequence[str]


async def verify(parent: MultiService, reactor: Any, path: Path, directory: Path, data_key: bytes) -> Verified:
    """Restore the dump at ``path`` in ``directory``, which must not exist, and open all that it holds.

    :param parent: runs what this needs; the caller stops it, and removes the directory.
    :raises StartRefused: it can't be restored, it is no dump of this program's database, or one of a newer program's, or
        it was sealed under another data key.
    """
    try:
        if not is_dump(path):
            raise StartRefused("it is no dump in PostgreSQL's custom format, as pg_dump --format=custom makes it")
    except OSError as error:
        raise StartRefused(f"it can't be read: {error.strerror}") from None
    dsn = await child(parent, EmbeddedPostgres(reactor, directory, durable=False)).ready()
    await restore(reactor, dsn, path)
    database = child(parent, Database(reactor, dsn, pool_size=1, statement_timeout=PATIENCE, first_wait=PATIENCE))
    await database.connected()
    store, vault = SealedStore(database), Vault(data_key)
    version = await store.version()
    await migrate(database)
    try:
        vault.open(CANARY, await DatabaseState(database).canary())
    except StoreUnavailable:
        raise StartRefused("it holds no canary: it was made of a database that no server had been started on") from None
    except WrongDataKey:
        raise StartRefused("the data key is not the one under which the backup was sealed: give that one") from None
    opened = Counter(dict.fromkeys(KINDS, 0))
    failed: list[str] = []
    async for kind, shown, name, sealed in _sealed(store):
        try:
            vault.open(name, sealed)
            opened[kind] += 1
        except WrongDataKey:
            failed.append(shown)
    return Verified(version, len(packaged()), dict(opened), len(failed), failed[:NAMED])


async def _sealed(store: SealedStore) -> AsyncIterator[tuple[str, str, str, Sealed]]:
    """Return all sealed values, each after its kind, the id that operators see, and the name under which it opens."""
    async for name, version, sealed in store.secrets():
        yield "secrets", f"{name} (version {version})", name, sealed
    async for name, sealed in store.candidates():
        yield "secrets", f"{name} (of an unfinished rotation)", name, sealed
    async for role, sealed in store.api_keys():
        yield "API keys", f"API key of {role}", api_key_name(RoleName.parse(role)), sealed
    async for role, sealed in store.passwords():
        yield "passwords", f"password of {role}", password_name(RoleName.parse(role)), sealed
    async for key_id, account, sealed in store.signing_keys():
        yield "signing keys", f"signing key {key_id} of {account}", signing_key_name(account, key_id), sealed
