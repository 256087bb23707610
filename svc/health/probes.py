"""The checks of each service: every one does, on a small scale, what the service is for (rulings: health)."""

from __future__ import annotations

import base64
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from zope.interface import implementer

from svc.authentication import Admitted, Caller
from svc.errors import Refusal
from svc.factories import IHostFactories
from svc.interfaces import IDatabaseState, IProbe
from svc.publickeys import IPublicKeys
from svc.records import ReplicationPosition, Sealed


@attrs.frozen(str=False)
class ProbeFailed(Refusal):
    """A service works, but wrongly; raised by a probe, for the log."""

    message: str


class Tokens(Protocol):
    """What issues access tokens, and tells whom one proves."""

    async def issue(self, admitted: Admitted) -> bytes:
        """Return the text of a new token."""

    async def caller(self, authorization: bytes | None) -> Caller:
        """Return the role that the value of an ``Authorization`` header proves."""


@implementer(IProbe)
@attrs.frozen
class CoreProbe:
    """Opens the canary, and runs a simple transaction."""

    service = "core"

    _state: IDatabaseState
    _open_canary: Callable[[Sealed], object]

    async def check(self) -> None:
        """Fail with what the vault or the database raises."""
        self._open_canary(await self._state.canary())
        await self._state.transaction()


@implementer(IProbe)
@attrs.frozen
class AuthnProbe:
    """Issues an access token with each account key in use, and proves its caller by it.

    ``in_use`` returns an identity for each of these keys.
    """

    service = "authn"

    _in_use: Callable[[], Coroutine[Any, Any, Sequence[Admitted]]]
    _tokens: Tokens
    _clock: IReactorTime

    async def check(self) -> None:
        """Fail with what the keys or the tokens raise, or when a token proves another role than it was issued to."""
        for admitted in await self._in_use():
            token = base64.b64encode(await self._tokens.issue(admitted))
            caller = await self._tokens.caller(b'Token token="%s"' % token)
            if caller.role != admitted.role:
                raise ProbeFailed(f"a token for {admitted.role} proves {caller.role}")
            # Many accounts mean many signatures: requests have their turn after each.
            await deferLater(self._clock, 0)


@implementer(IProbe)
@attrs.frozen
class AuthzProbe:
    """Asks the database a privilege question whose answer is known."""

    service = "authz"

    _state: IDatabaseState

    async def check(self) -> None:
        """Fail when the answer is wrong, or there is none."""
        if not await self._state.privilege_known():
            raise ProbeFailed("a privilege question with a known answer was answered wrongly")


@implementer(IProbe)
@attrs.frozen
class HostFactoryProbe:
    """Looks up a host factory's token that is always there, and one that never is."""

    service = "host-factory"

    _factories: IHostFactories

    async def check(self) -> None:
        """Fail when either answer is wrong, or there is none."""
        if not await self._factories.token_known():
            raise ProbeFailed("a host factory's token that is known was not found, or one that there is not was")


@implementer(IProbe)
@attrs.frozen
class PublicKeysProbe:
    """Looks up a public key that is always there."""

    service = "pubkeys"

    _keys: IPublicKeys

    async def check(self) -> None:
        """Fail when it isn't found, or there is no answer."""
        if not await self._keys.key_known():
            raise ProbeFailed("a public key that is known was not found")


class Recording(Protocol):
    """What tells whether audit records can be written."""

    async def check(self) -> None:
        """Return when the sinks have taken the last record, and one more."""


@implementer(IProbe)
@attrs.frozen
class AuditProbe:
    """Asks whether the audit's sinks took the last record, and gives them one more, unless there was another meanwhile."""

    service = "audit"

    _journal: Recording

    async def check(self) -> None:
        """Fail while a sink takes no records."""
        await self._journal.check()


@attrs.frozen
class DatabaseProbe:
    """Asks whether a connection answers, and where the log stands."""

    _state: IDatabaseState

    async def check(self) -> ReplicationPosition:
        """Return the position; fail when the database doesn't answer."""
        await self._state.connected()
        return await self._state.position()
