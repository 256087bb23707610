"""A backup on trial: restored into a database of its own, brought up to date, and opened to the last value.

Nothing of what is opened is kept or shown; what can't be opened is named by its id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
from twisted.application.service import MultiService

from svc.crypto.vault import CANARY, Vault
from svc.model.data_keys import StoredDataKey
from svc.model.errors import StartRefused, StoreUnavailable, WrongDataKey
from svc.server.bootstrap import first_key
from svc.server.lifecycle import child
from svc.storage.data_keys import DataKeyStore
from svc.storage.database_state import DatabaseState
from svc.storage.driver.database import Database
from svc.storage.driver.migrations import migrate, packaged
from svc.storage.dumps import is_dump, restore
from svc.storage.embedded.embedded import EmbeddedPostgres
from svc.storage.sealed_values import KINDS, SealedStore

#: How many of those that don't open are named.
NAMED: Final = 10

#: How long a statement on the restored database may take, in seconds, and its start.
PATIENCE: Final = 60.0


@attrs.frozen
class Verified:
    """The result. ``version`` is that of the backup's schema, ``current`` the program's; ``opened`` counts by kind.
    ``data_keys`` are the ids of the keys that it is sealed under, of which a backup made during a rotation has two.

    ``failed`` counts what doesn't open, and ``first_failed`` are the ids of the first of these.
    """

    version: int
    current: int
    opened: Mapping[str, int]
    data_keys: Sequence[str]
    failed: int
    first_failed: Sequence[str]


async def verify(parent: MultiService, reactor: Any, path: Path, directory: Path, data_keys: Sequence[bytes]) -> Verified:
    """Restore the dump at ``path`` in ``directory``, which must not exist, and open all that it holds.

    :param parent: runs what this needs; the caller stops it, and removes the directory.
    :raises StartRefused: it can't be restored, it is no dump of this program's database, or one of a newer program's, or
        it was sealed under another data key: says which.
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
    store, vault = SealedStore(database), Vault(*data_keys)
    version = await store.version()
    await migrate(database)
    try:
        canary = await DatabaseState(database).canary()
    except StoreUnavailable:
        raise StartRefused("it holds no canary: it was made of a database that no server had been started on") from None
    stored = await DataKeyStore(database).keys()
    first = None if stored else first_key(data_keys, canary)
    vault.adopt(stored or [StoredDataKey(first or "")])
    if vault.missing:
        its = "another one" if first is None and not stored else " ".join(vault.missing)
        given = " ".join(vault.known)
        raise StartRefused(
            f"the data key is not the one under which the backup was sealed, {its}; given was {given}: give {its}"
        )
    opened = Counter(dict.fromkeys(KINDS, 0))
    failed: list[str] = []
    try:
        vault.open(CANARY, canary)
    except WrongDataKey:
        failed.append("the canary")
    async for kind, shown, name, sealed in store.values():
        try:
            vault.open(name, sealed)
            opened[kind] += 1
        except WrongDataKey:
            failed.append(shown)
    return Verified(version, len(packaged()), dict(opened), vault.needed, len(failed), failed[:NAMED])
