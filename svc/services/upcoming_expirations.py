"""The use case of expirations: of values, tokens, keys and certificates in one list, ordered by time (END-1 to END-9).

Note [Windows]. The list is merged from several sorts, each read in its order, a window at a time, from after the place where
the page before ended. The items of a window that the caller doesn't see are left out. So a page costs a few windows of each
sort, however much there is: it may have less than was requested, or nothing, and still say where to continue. It ends at the
earliest place at which the windows of a sort ended, since that sort isn't known beyond.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Final

import attrs
from twisted.internet.interfaces import IReactorTime

from svc.authn.evaluation import FederatedAuthenticator
from svc.model.clocks import WallClock
from svc.model.dialect import SINGLE_TYPES, Dialect, authenticator_name
from svc.model.errors import Forbidden
from svc.model.expiration import (
    EXPIRATIONS_START,
    SERVER_KINDS,
    ExpirationCursor,
    ExpirationKind,
    ExpirationsPage,
    UpcomingExpiration,
)
from svc.model.query_results import Caller, ResourcesQuery
from svc.services.invocation import Invocation, can_read_all
from svc.storage.accounts import AccountStore
from svc.storage.resources import ResourceStore
from svc.storage.roles import RoleStore
from svc.storage.upcoming_expirations import UpcomingExpirationStore

#: How many rows are read at once, and of each sort in one request.
WINDOW: Final = 1000
WINDOWS: Final = 5

#: How many authenticators are checked for the keys of their providers.
AUTHENTICATORS: Final = 200

_Read = Callable[[ExpirationCursor, int], Awaitable[ExpirationsPage]]


@attrs.frozen
class UpcomingExpirationsQuery:
    """A query for expirations within so many seconds, and for keys without one that become so old; no kinds mean all."""

    within: int
    age: int
    kinds: AbstractSet[ExpirationKind] = frozenset()
    limit: int = 100
    after: ExpirationCursor = EXPIRATIONS_START


@attrs.frozen
class UpcomingExpirationsPage:
    """A page of the list, in order; ``after`` is where the next one continues, ``None`` at the end."""

    expirations: Sequence[UpcomingExpiration]
    after: ExpirationCursor | None


@attrs.frozen
class KeyExpirations:
    """Signing keys of an account, and keys of its identity providers that this process has cached.

    ``providers`` has the authenticators' kinds by name. ``longest`` is the age at which keys of providers that are renewed
    here are dropped, in seconds; ``None`` where they aren't renewed.
    """

    accounts: AccountStore
    resources: ResourceStore
    providers: Mapping[str, FederatedAuthenticator]
    dialect: Dialect
    clock: IReactorTime
    wall: WallClock
    longest: float | None

    async def list_signing_keys(self, account: str, age: int) -> list[UpcomingExpiration]:
        """Return the newest key, which ages, and those before it, which retire."""
        found = []
        for key in await self.accounts.list_signing_keys(account):
            newest = key.retires_at is None
            at = key.created_at + age if key.retires_at is None else key.retires_at
            found.append(UpcomingExpiration(ExpirationKind.SIGNING_KEY, at, account, key.key_id, key.created_at, newest))
        return found

    async def list_provider_keys(self, caller: Caller, age: int) -> list[UpcomingExpiration]:
        """Return the keys of providers: those that aren't renewed age, others expire if they can't be renewed by then."""
        found = []
        for name, service_id in (await self._list_authenticators(caller))[:AUTHENTICATORS]:
            known = await self.providers[name].cached_keys_state(caller.role.account, service_id)
            if known is None or known[1].fetched_at is None:
                continue
            uri, state = known
            since = self.wall.seconds() - (self.clock.seconds() - known[1].fetched_at)
            if self.longest is None or state.failure is not None:
                webservice = f"{caller.role.account}:webservice:{self.dialect.prefix}/{authenticator_name(name, service_id)}"
                at = since + (age if self.longest is None else self.longest)
                about = (webservice, uri, since, self.longest is None, 0, state.failure)
                found.append(UpcomingExpiration(ExpirationKind.PROVIDER_KEYS, at, *about))
        return found

    async def _list_authenticators(self, caller: Caller) -> list[tuple[str, str | None]]:
        """Return types, and service ids where they have one."""
        query = ResourcesQuery(caller.role, caller.role.account, ("webservice",))
        parts = [name.split(":", 2)[2].split("/") for name in await self.resources.list_visible(query)]
        return [
            (name, rest[0] if rest else None)
            for prefix, name, *rest in (each for each in parts if len(each) in {2, 3})
            if prefix == self.dialect.prefix and name in self.providers and (name in SINGLE_TYPES) != bool(rest)
        ]


@attrs.frozen
class UpcomingExpirationService:
    """The use case. ``certificates`` returns those of this server: the setting of each, its purpose, its expiration."""

    store: UpcomingExpirationStore
    roles: RoleStore
    keys: KeyExpirations
    certificates: Callable[[], Awaitable[Iterable[tuple[str, str, float]]]]
    wall: WallClock

    async def list_expirations(self, invocation: Invocation, query: UpcomingExpirationsQuery) -> UpcomingExpirationsPage:
        """Return the expirations of the caller's account whose resources it sees; all, if it may look at the whole account.

        :raises Forbidden: the caller's role is gone.
        """
        caller = invocation.caller
        if not await self.roles.caller_exists(caller):
            raise Forbidden("the token's role no longer exists")
        everything = await can_read_all(self.roles, caller)
        kinds = frozenset(query.kinds or ExpirationKind).difference(() if everything else SERVER_KINDS)
        until = self.wall.seconds() + query.within
        found: list[UpcomingExpiration] = []
        ends: list[ExpirationCursor] = []
        for read in self._stored_readers(caller.role.account, query, kinds, until):
            some, last = await self._read_visible(read, caller, query, everything=everything)
            found += some
            ends += [] if last is None else [last]
        found += [
            ending
            for ending in await self._list_local(caller, query, kinds)
            if ending.at <= until and query.after < ending.cursor
        ]
        found.sort(key=lambda ending: ending.cursor)
        complete = min(ends, default=None)
        if complete is not None:
            found = [ending for ending in found if ending.cursor <= complete]
        if len(found) > query.limit:
            return UpcomingExpirationsPage(found[: query.limit], found[query.limit - 1].cursor)
        return UpcomingExpirationsPage(found, complete)

    def _stored_readers(
        self, account: str, query: UpcomingExpirationsQuery, kinds: AbstractSet[ExpirationKind], until: float
    ) -> Iterator[_Read]:
        """Return the readers of the sorts that the store knows; expirations in the past are left out."""
        store = self.store
        now = ExpirationCursor(self.wall.seconds(), -1, "", "")

        def make_reader(read: Callable[..., Awaitable[ExpirationsPage]], *more: float, ended: bool = False) -> _Read:
            async def read_window(after: ExpirationCursor, most: int) -> ExpirationsPage:
                return await read(account, after if ended else max(after, now), until, *more, most)

            return read_window

        if not kinds.isdisjoint({ExpirationKind.VALUE, ExpirationKind.ROTATION}):
            yield partial(_filter_kinds, make_reader(store.list_variables, ended=True), kinds)
        if ExpirationKind.HOST_FACTORY_TOKEN in kinds:
            yield make_reader(store.list_factory_tokens)
        if ExpirationKind.API_KEY in kinds:
            yield make_reader(store.list_expiring_api_keys)
            yield make_reader(store.list_rotated_api_keys, query.age, ended=True)
            yield make_reader(store.list_unrotated_api_keys, query.age, ended=True)

    async def _read_visible(
        self, read: _Read, caller: Caller, query: UpcomingExpirationsQuery, *, everything: bool
    ) -> tuple[list[UpcomingExpiration], ExpirationCursor | None]:
        """Return the items of one sort that the caller sees, and how far they go (Note [Windows])."""
        found: list[UpcomingExpiration] = []
        after: ExpirationCursor | None = query.after
        for _ in range(WINDOWS):
            assert after is not None
            reading = await read(after, WINDOW)
            some, after = reading.expirations, reading.last
            if not everything and some:
                visible = await self.store.filter_visible(caller.role, sorted({ending.id for ending in some}))
                some = [ending for ending in some if ending.id in visible or ending.id == str(caller.role)]
            found += some
            if len(found) > query.limit:
                return found[: query.limit], found[query.limit - 1].cursor
            if after is None:
                break
        return found, after

    async def _list_local(
        self, caller: Caller, query: UpcomingExpirationsQuery, kinds: AbstractSet[ExpirationKind]
    ) -> list[UpcomingExpiration]:
        """Return the expirations that need no walk through the store: certificates, signing keys, and keys of providers."""
        found: list[UpcomingExpiration] = []
        if ExpirationKind.CERTIFICATE in kinds:
            found += [
                UpcomingExpiration(ExpirationKind.CERTIFICATE, at, setting, name)
                for setting, name, at in await self.certificates()
            ]
        if ExpirationKind.SIGNING_KEY in kinds:
            now = self.wall.seconds()
            keys = await self.keys.list_signing_keys(caller.role.account, query.age)
            found += [key for key in keys if key.by_age or key.at > now]
        if ExpirationKind.PROVIDER_KEYS in kinds:
            found += await self.keys.list_provider_keys(caller, query.age)
        return found


async def _filter_kinds(
    read: _Read, kinds: AbstractSet[ExpirationKind], after: ExpirationCursor, most: int
) -> ExpirationsPage:
    reading = await read(after, most)
    return attrs.evolve(reading, expirations=[ending for ending in reading.expirations if ending.kind in kinds])
