"""The checks of each service: every one does, on a small scale, what the service is for (HEALTH-15)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import attrs
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from svc.model.databases import ReplicationPosition
from svc.model.errors import Refusal
from svc.model.probes import IProbe
from svc.model.query_results import Sealed
from svc.storage.database_state import DatabaseState
from svc.storage.host_factories import HostFactoryStore
from svc.storage.public_keys import PublicKeyStore


@attrs.frozen(str=False)
class ProbeFailed(Refusal):
    """A service works, but wrongly; raised by a probe, for the log."""

    message: str


@implementer(IProbe)
@attrs.frozen
class CoreProbe:
    """Opens the canary. The other half of ``core``, a transaction that writes, is a check of :class:`DatabaseProbe`."""

    service = "core"

    _state: DatabaseState
    _open_canary: Callable[[Sealed], object]

    async def check(self) -> None:
        """Fail with what the vault or the database raises."""
        self._open_canary(await self._state.read_canary())


@implementer(IProbe)
@attrs.frozen
class AuthzProbe:
    """Asks the database a privilege question whose answer is known."""

    service = "authz"

    _state: DatabaseState

    async def check(self) -> None:
        """Fail when the answer is wrong, or there is none."""
        if not await self._state.can_check_known_privileges():
            raise ProbeFailed("a privilege question with a known answer was answered wrongly")


@implementer(IProbe)
@attrs.frozen
class HostFactoryProbe:
    """Looks up a host factory's token that is always there, and one that never is."""

    service = "host-factory"

    _factories: HostFactoryStore

    async def check(self) -> None:
        """Fail when either answer is wrong, or there is none."""
        if not await self._factories.can_find_known_token():
            raise ProbeFailed("a host factory's token that is known was not found, or one that there is not was")


@implementer(IProbe)
@attrs.frozen
class PublicKeysProbe:
    """Looks up a public key that is always there."""

    service = "pubkeys"

    _keys: PublicKeyStore

    async def check(self) -> None:
        """Fail when it isn't found, or there is no answer."""
        if not await self._keys.can_find_known_key():
            raise ProbeFailed("a public key that is known was not found")


class _Journal(Protocol):
    """``svc.audit.journal.Journal``."""

    async def check(self) -> None: ...


@implementer(IProbe)
@attrs.frozen
class AuditProbe:
    """Checks the journal."""

    service = "audit"

    _journal: _Journal

    async def check(self) -> None:
        """Fail while a sink takes no records."""
        await self._journal.check()


class _Expirations(Protocol):
    """``svc.rotation.rotation_loop.ExpirationLoop``."""

    @property
    def max_round_seconds(self) -> float: ...
    @property
    def failure(self) -> str | None: ...
    async def await_first_round(self) -> None: ...
    def last_round_at(self) -> float | None: ...
    async def check_store(self) -> None: ...


@implementer(IProbe)
@attrs.frozen
class ExpirationProbe:
    """Checks how and when the loop of expiration ended its last round, and reads what the next one begins with.

    A round may take as long as rotations do, so by its end alone a database that hangs would be noticed late. The probe
    waits for the end of the first round, as long as a check may take: so a server that has just started isn't reported as
    failed.
    """

    service = "expiration"

    _loop: _Expirations
    _clock: IReactorTime

    async def check(self) -> None:
        """Fail when the last round has, or none has ended for too long."""
        await self._loop.await_first_round()
        if (why := self._loop.failure) is not None:
            raise ProbeFailed(f"the last round of expiration failed: {why}")
        last, patience = self._loop.last_round_at(), self._loop.max_round_seconds
        if last is None or self._clock.seconds() - last > patience:
            raise ProbeFailed(f"no round of expiration has ended for {patience:g} s")
        await self._loop.check_store()


@attrs.frozen
class DatabaseProbe:
    """Asks whether a connection answers, and where the log stands; and whether a write is taken."""

    _state: DatabaseState

    async def check(self) -> ReplicationPosition:
        """Return the position; fail when the database doesn't answer."""
        await self._state.check_connection()
        return await self._state.read_position()

    async def write(self) -> None:
        """Return when a simple transaction has committed, which writes, on a standby reads; fail otherwise."""
        await self._state.check_transaction()
