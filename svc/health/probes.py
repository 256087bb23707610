"""The checks of each service: every one does, on a small scale, what the service is for (rulings: health)."""

from __future__ import annotations

import base64
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Protocol

import attrs
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from zope.interface import implementer

from svc.authentication import Admitted, Caller
from svc.directories import DirectoryRefused, IDirectories, LdapServer
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
    """Opens the canary. The other half of ``core``, a transaction that writes, is a check of :class:`DatabaseProbe`."""

    service = "core"

    _state: IDatabaseState
    _open_canary: Callable[[Sealed], object]

    async def check(self) -> None:
        """Fail with what the vault or the database raises."""
        self._open_canary(await self._state.canary())


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


#: Faulty directories that a failure names.
_NAMED: Final = 5


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


@implementer(IProbe)
@attrs.frozen
class LdapProbe:
    """Binds to every configured LDAP directory, all at once; there may be none.

    ``servers`` returns the directories with the webservices that name them; what stands for one that can't be asked says
    why. ``directories`` returns their client, and is called when there is one to ask.
    """

    service = "ldap"

    _servers: Callable[[], Coroutine[Any, Any, Sequence[tuple[str, LdapServer | object]]]]
    _directories: Callable[[], IDirectories]

    async def check(self) -> None:
        """Fail when one of them can't be bound to, and name it. Each is asked once, however many webservices name it."""
        servers = await self._servers()
        faults = [f"{name}: {server}" for name, server in servers if not isinstance(server, LdapServer)]
        named = {server: name for name, server in servers if isinstance(server, LdapServer)}
        reached = [Deferred.fromCoroutine(self._fault(name, server)) for server, name in named.items()]
        faults += [fault for fault in await gatherResults(reached, consumeErrors=True) if fault is not None]
        if faults:
            more = f"; and {len(faults) - _NAMED} more" if len(faults) > _NAMED else ""
            raise ProbeFailed("; ".join(faults[:_NAMED]) + more)

    async def _fault(self, name: str, server: LdapServer) -> str | None:
        try:
            await self._directories().reach(server)
        except DirectoryRefused as refusal:
            return f"{name}: {refusal.detail} ({refusal.reason.value})"
        return None


class Expiring(Protocol):
    """The loop of expiration."""

    @property
    def patience(self) -> float:
        """How long after a round the next one must have ended, in seconds."""

    @property
    def trouble(self) -> str | None:
        """Why the last round failed; ``None`` when it didn't."""

    async def first_round(self) -> None:
        """Return when a round has ended that could do its work."""

    def last_round(self) -> float | None:
        """When one ended last, in epoch seconds."""

    async def look(self) -> None:
        """Read what is due, and do nothing about it."""


@implementer(IProbe)
@attrs.frozen
class ExpirationProbe:
    """Looks how the loop of expiration ended its last round, and when, and reads what the next one begins with.

    A round may take as long as rotations do, so by its end alone a database that hangs would be noticed late. Before the
    first has ended it waits for that, as long as a check may take: so a server that has just started isn't ill. A server
    whose turn it isn't, and one whose database is a standby, ends its rounds by finding that out.
    """

    service = "expiration"

    _loop: Expiring
    _clock: IReactorTime

    async def check(self) -> None:
        """Fail when the last round has, or none has ended for too long, or is to come, once the clock was set back."""
        await self._loop.first_round()
        if (why := self._loop.trouble) is not None:
            raise ProbeFailed(f"the last round of expiration failed: {why}")
        last, patience = self._loop.last_round(), self._loop.patience
        if last is None or abs(self._clock.seconds() - last) > patience:
            raise ProbeFailed(f"no round of expiration has ended for {patience:g} s")
        await self._loop.look()


@attrs.frozen
class DatabaseProbe:
    """Asks whether a connection answers, and where the log stands; and whether a write is taken."""

    _state: IDatabaseState

    async def check(self) -> ReplicationPosition:
        """Return the position; fail when the database doesn't answer."""
        await self._state.connected()
        return await self._state.position()

    async def write(self) -> None:
        """Return when a simple transaction has committed, which writes, on a standby reads; fail otherwise."""
        await self._state.transaction()
