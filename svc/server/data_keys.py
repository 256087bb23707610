"""Data keys while a server runs: each process follows the rotation in the database, one reseals values; and the start of a
rotation.

Note [Forgotten late]. A retired key goes on opening for a moment: a request may have read a value before it was resealed,
and the read cache may hold one. It is dropped when the database has answered again after that moment, so that a server which
lost its database just then keeps it.

Note [Known first]. Before anything is sealed under a new key, every server must know it. Those on the primary say so in the
database; the others of the cluster, whose databases take no writes, are queried.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from svc.cluster.member_client import MemberClient, load_trust
from svc.cluster.peer_claims import PeerClaims
from svc.crypto.keyfiles import add_data_key
from svc.crypto.vault import CANARY, Vault, data_key_id
from svc.model.background import PeriodicService
from svc.model.data_keys import FetchKeyIds, KeyProgress, KeyUser, ResealOutcome
from svc.model.databases import ClusterMember
from svc.model.errors import OutcomeUnknown, ReadOnlyStandby, Refusal, StartRefused, StoreUnavailable
from svc.model.query_results import Sealed
from svc.net.trust import Trust
from svc.server.bootstrap import Installation, describe_missing_keys
from svc.server.data_key_source import DataKeySource, is_key_given
from svc.settings.config import Settings
from svc.storage.data_keys import DataKeyStore

#: Seconds between two polls of the keys in the database, and between two announcements of the key that a process seals with.
POLL_INTERVAL: Final = 1.0
ANNOUNCE_INTERVAL: Final = 5.0

#: Seconds after which a retired key is dropped (Note [Forgotten late]).
GRACE: Final = 30.0

#: How many values are sealed again at a time.
BATCH: Final = 100

_log = Logger()


class KeyPoller(PeriodicService):
    """Polls the keys in the database, updates the vault, and announces the key that this process seals with.

    ``process`` is a name that no other process has, and ``place`` its name for operators. ``writable`` returns whether the
    database takes writes. ``source`` is polled for new keys; without one they come from another process. ``on_read`` is
    called with the keys that were found there.
    """

    name = "data-keys"

    def __init__(
        self,
        clock: IReactorTime,
        store: DataKeyStore,
        vault: Vault,
        process: str,
        place: str,
        writable: Callable[[], bool],
        source: DataKeySource | None,
        on_read: Callable[[Sequence[bytes]], object] = lambda _: None,
    ) -> None:
        super().__init__(clock, POLL_INTERVAL, self.poll_keys, _log, "Data keys could not be looked at")
        self._clock, self._store, self._vault, self._writable = clock, store, vault, writable
        self._process, self._display_name = process, place
        self._source, self._on_read = source, on_read
        #: The state of the file when its keys were taken here: until then each poll reads it, as the fault may be over, or
        #: the database may need no more what the file lacks.
        self._read: tuple[int, ...] | None = None
        #: The state of the file, and why it couldn't be used, that the log has.
        self._warned: tuple[tuple[int, ...] | None, str] | None = None
        self._announced: tuple[KeyUser, float] | None = None
        #: When this process noticed that a key is retired, by the key's id.
        self._retired: dict[str, float] = {each.key_id: -GRACE for each in vault.stored if each.retired}
        self._missing: tuple[str, ...] = ()

    def open_canary(self, canary: Sealed) -> None:
        """Check that this process can open all that the database has; raises ``StartRefused``, or as ``Vault.open``."""
        if self._vault.missing_ids:
            raise StartRefused(describe_missing_keys(self._vault))
        self._vault.open(CANARY, canary)

    async def poll_keys(self) -> None:
        """Poll once."""
        try:
            if self._source is not None and self._source.file_state() != self._read:
                await self._read_source(self._source)
            await self._follow_rotation()
            await self._announce_key()
        except (StoreUnavailable, ReadOnlyStandby, OutcomeUnknown):
            """The pool says so in the log."""

    async def reread_source(self) -> None:
        """Read the keys again, and have those that were found if the database needs none that isn't among them."""
        assert self._source is not None
        self._warned = None
        await self._read_source(self._source)

    async def _read_source(self, source: DataKeySource) -> None:
        state, self._read = source.file_state(), None
        try:
            keys = await source.read_keys()
            if keys is None:
                raise StartRefused("there is none any more")
            there, needed = set(map(data_key_id, keys)), self._vault.needed_ids
            lost = [each for each in needed if each not in there and each in self._vault.given_ids]
            if lost:
                raise StartRefused(f"the database still needs the data key {' '.join(lost)}, which is not there any more")
        except (Refusal, OSError) as refusal:
            why = getattr(refusal, "message", str(refusal))
            if self._warned != (state, why):
                self._warned = state, why
                warning = "Data keys at {where} can't be used, so those that were read before stay: {why}"
                _log.warn(warning, where=source.where, why=why)
            return
        self._read = state
        if keys != self._vault.given_keys:
            self._vault.set_keys(keys)
            self._on_read(keys)
            _log.info("Data keys were read again: {keys}", keys=" ".join(self._vault.given_ids))

    async def _follow_rotation(self) -> None:
        stored, now, vault = await self._store.list_keys(), self._clock.seconds(), self._vault
        if not stored:  # Its primary was lost before it could note the key.
            if self._writable():
                await self._store.record_first_key(vault.current_id)
            return
        for each in stored:
            if each.retired and each.key_id not in self._retired:
                self._retired[each.key_id] = now
                if each.key_id in vault.given_ids:
                    text = (
                        "The data key {key} is not needed any more: remove it from where the server gets it. Backups need it"
                    )
                    _log.info(f"{text} that were made until now", key=each.key_id)
        forgotten = {key_id for key_id, since in self._retired.items() if now >= since + GRACE}
        before = vault.current_id
        vault.use_stored_keys(stored, forgotten)
        if vault.current_id != before:
            _log.info("Values are sealed under the data key {key} now", key=vault.current_id)
        if vault.missing_ids != self._missing:
            self._missing = vault.missing_ids
            if vault.missing_ids:
                _log.error("This server can't open values: {why}", why=describe_missing_keys(vault))

    async def _announce_key(self) -> None:
        vault, now = self._vault, self._clock.seconds()
        seals = vault.current_id if vault.current_id in vault.given_ids else ""
        user = KeyUser(self._display_name, seals, vault.given_ids)
        if self._writable() and (
            self._announced is None or self._announced[0] != user or now >= self._announced[1] + ANNOUNCE_INTERVAL
        ):
            await self._store.announce_process(self._process, user)
            self._announced = user, now


class Resealer(PeriodicService):
    """Seals again what is under an old key, a step at a time, ``pace`` values a second at most.

    ``ensure_writable`` returns when this server may write. ``progress`` is what was last known.
    """

    name = "resealing"

    def __init__(
        self,
        clock: IReactorTime,
        store: DataKeyStore,
        vault: Vault,
        pace: int,
        ensure_writable: Callable[[], Awaitable[None]],
    ) -> None:
        self._clock, self._store, self._vault, self._demand_primary = clock, store, vault, ensure_writable
        self._most = min(BATCH, pace)
        self._pause = self._most / pace
        # The pause counts from the end of the last step, which may have been another server's.
        super().__init__(clock, self._pause / 2, self.reseal_step, _log, "Values could not be sealed again")
        self._last_outcome: ResealOutcome | None = None
        self._unopened: str | None = None
        self._progress_read_at = -POLL_INTERVAL
        self.progress = KeyProgress()

    @property
    def is_rotating(self) -> bool:
        """Return whether there is a key to be retired."""
        return len(self._vault.needed_ids) > 1

    def count_values(self) -> Mapping[str, float]:
        """Return how it stands, for counters: values by what became of them. Thread-safe."""
        progress = self.progress
        remaining = progress.remaining_count if self.is_rotating else 0
        return {"resealed": progress.resealed_count, "remaining": remaining, "unopened": progress.unopened}

    def key_age(self) -> float:
        """Return for how many seconds the current key has been in use. Thread-safe."""
        stored = self._vault.stored
        return stored[-1].age if stored else 0.0

    async def reseal_step(self) -> None:
        """Go a step further, if there is a key to be retired."""
        if not self.is_rotating or self._vault.missing_ids:
            return
        try:
            await self._demand_primary()
            moved = await self._store.advance_rotation(self._vault.reseal, self._most, self._pause)
            if moved is ResealOutcome.RETIRED or self._clock.seconds() >= self._progress_read_at + POLL_INTERVAL:
                self._progress_read_at, self.progress = self._clock.seconds(), await self._store.read_progress()
        except (ReadOnlyStandby, StoreUnavailable, OutcomeUnknown):
            return  # The next step tries again, and the pool says so in the log.
        except Refusal as refusal:
            _log.debug("Values are not sealed again here: {why}", why=str(refusal))
            return
        if moved is not ResealOutcome.NOTHING and moved is not self._last_outcome:
            self._last_outcome = moved
            _log.info("Rotation of the data key: {moved}", moved=moved.value)
        if (first := self.progress.first_unopened) != self._unopened:
            self._unopened = first
            if first is not None:
                text = "The old data key is kept, since it does not open what seems to be sealed under it: {first}"
                _log.warn(f"{text}; set it again, or delete it", first=first)


async def begin_rotation(
    reactor: Any,
    installation: Installation,
    settings: Settings,
    members: Mapping[str, FetchKeyIds],
    wait: float,
    say: Callable[[str], object],
) -> str:
    """Begin to rotate to the newest of the keys that are given, and return its id; done twice, it is begun once.

    With the server's own key file, a new key is made and put into it. For ``wait`` seconds at most servers are waited for
    that don't know the key, and ``say`` is called with their names.

    :raises StartRefused: there is no new key, another rotation hasn't ended, or a server doesn't know the key; says which.
    """
    vault, store, source = installation.vault, installation.data_keys, installation.source
    current, used = vault.current_id, frozenset(each.key_id for each in vault.stored)
    if len(vault.needed_ids) > 1:
        if data_key_id(vault.given_keys[0]) == current:
            return current
        raise StartRefused(
            f"the rotation to {current} has not ended: `svc data-key status` says how far it has come; then rotate again"
        )
    if not is_key_given(settings):
        assert source.file is not None
        try:
            new = add_data_key(source.file, used)
        except OSError as error:
            raise StartRefused(f"{source.file} can't be written: {error.strerror}") from None
    else:
        new = vault.given_keys[0]
    new_id = data_key_id(new)
    if new_id == current:
        raise StartRefused(
            "there is no new data key: make one with `svc data-key generate`, and put it before the old one at"
            f" {source.where}, of every server"
        )
    if new_id in used:
        raise StartRefused(
            f"the data key {new_id} was in use before: put one that is new before {current} at {source.where}"
        )
    await _wait_until_known(reactor, store, members, new_id, wait, say)
    canary = vault.seal_next(new, CANARY, b"svc")
    if not await store.begin_rotation(current, new_id, canary, await store.count_sealed_values()):
        raise StartRefused("another rotation has just begun: `svc data-key status` tells of it")
    return new_id


async def _wait_until_known(
    reactor: Any,
    store: DataKeyStore,
    members: Mapping[str, FetchKeyIds],
    new: str,
    wait: float,
    say: Callable[[str], object],
) -> None:
    """Return when every server knows a key (Note [Known first]); raises ``StartRefused`` when one doesn't in time."""
    deadline, announced = reactor.seconds() + wait, ""
    while True:
        ignorant = [user.display_name for user in await store.list_key_users() if new not in user.knows]
        for name, ask in members.items():
            known = await ask()
            if known is None:
                ignorant.append(f"{name} (no answer)")
            elif new not in known:
                ignorant.append(name)
        if not ignorant:
            return
        whom = ", ".join(ignorant)
        if reactor.seconds() >= deadline:
            raise StartRefused(
                f"these servers don't know the data key {new}: {whom}. Give it to them, before the old one, and start them"
                " again, or take those that are gone for good out of --cluster; nothing was changed"
            )
        if whom != announced:
            say(f"waiting until the data key {new} is known to: {whom}")
            announced = whom
        await deferLater(reactor, POLL_INTERVAL)


def member_queries(reactor: Any, settings: Settings, vault: Vault) -> dict[str, FetchKeyIds]:
    """Return the functions that ask the other servers of the cluster for the keys that they know."""
    claims = PeerClaims(vault)
    common = Trust() if settings.cluster_ca is None else load_trust(settings.cluster_ca, settings.name_of("cluster_ca"))

    def make_query(member: ClusterMember) -> FetchKeyIds:
        trust = common if member.ca is None else load_trust(member.ca, settings.name_of("cluster"))
        return functools.partial(MemberClient(reactor, member, lambda: trust).fetch_data_keys, claims)

    return {member.name: make_query(member) for member in settings.cluster}


def describe_keys(vault: Vault, users: Sequence[KeyUser], progress: KeyProgress) -> dict[str, Any]:
    """Return the state of the data keys as JSON has it (CLI-33)."""
    rotating = len(vault.needed_ids) > 1
    return {
        "keys": [
            {
                "id": each.key_id,
                "state": "retired"
                if each.retired
                else "current"
                if each.key_id == vault.current_id
                else "closed"
                if each.closed
                else "old",
                "given": each.key_id in vault.given_ids,
                "age": round(each.age),
            }
            for each in vault.stored
        ],
        "new": [key_id for key_id in vault.given_ids if key_id not in {each.key_id for each in vault.stored}],
        "servers": [{"place": user.display_name, "seals": user.seals or None, "knows": list(user.knows)} for user in users],
        "rotating": rotating,
        "values": {
            "resealed": progress.resealed_count,
            "remaining": progress.remaining_count if rotating else 0,
            "unopened": progress.unopened,
            "first_unopened": progress.first_unopened,
        },
    }


def format_status(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines in which operators read the state of the data keys."""
    values, current = document["values"], next(each["id"] for each in document["keys"] if each["state"] == "current")
    for each in document["keys"]:
        what = {
            "current": "everything new is sealed under it",
            "old": "needed: servers may still seal with it",
            "closed": "needed: values are still sealed under it",
            "retired": "not needed, but by backups that name it",
        }[each["state"]]
        advice = "; remove it from where the servers get it" if each["state"] == "retired" and each["given"] else ""
        yield f"Data key {each['id']}: {what}{advice}"
    for key_id in document["new"]:
        yield f"Data key {key_id}: given, and not in use: svc data-key rotate begins to"
    if document["rotating"]:
        done, remaining = values["resealed"], values["remaining"]
        yield f"Sealed again: {done} values, about {remaining} remain"
        awaited = [each["place"] for each in document["servers"] if each["seals"] != current]
        if any(each["state"] == "old" for each in document["keys"]) and awaited:
            yield f"Waiting for these to seal with the new key: {', '.join(awaited)}"
        if not document["servers"]:
            yield "No server runs on this database: values are sealed again by servers"
        if values["unopened"]:
            yield (
                f"The old key is kept, since it doesn't open {values['unopened']} values that seem to be sealed under it,"
                f" the first {values['first_unopened']}: set them again, or delete them"
            )
    for each in document["servers"]:
        yield f"Server {each['place']}: seals with {each['seals'] or 'none'}, knows {' '.join(each['knows'])}"
