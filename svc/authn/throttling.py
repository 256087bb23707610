"""Throttling of failed logins: failures are counted, by role and by address, for passwords and API keys alike.

Wrappers around an authenticator and a login share one :class:`Throttle` (TOK-21 to TOK-24, ``--login-throttle``):

* Ten failures in a minute to prove one role, from any addresses, have further ones answered late: by one second, two, four …
  up to a minute, until there has been none for a minute. The right key is admitted at once: nobody can be locked out. An
  unknown role is slow like any other.
* Three hundred failures from one address have all of its attempts refused until the minute is over, before anything is
  asked or hashed. An IPv6 client has 2**64 addresses, so its network of 64 bits counts. A trusted proxy stands for many
  clients, and is not refused.

Note [Bounded]. The roles and addresses that failed last are counted in memory, ``KEPT`` of each: to have one forgotten early
takes more failures than to wait. Roles are kept by a digest, since names may be long. At most ``HELD`` answers are held at
once, each for a minute at most; beyond that, and once the server stops, failures are answered at once. A client that
disconnects before its answer is counted for its address: a password that was hashed for nobody costs as much.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import Final, TypeVar

import attrs
from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from svc.model.authentication import Admitted, IAuthenticator, ILogin, LoginRequest, Refused
from svc.model.query_results import Network, counted_as, is_within
from svc.model.reasons import PUT_OFF, Reason, RefusalKind

K = TypeVar("K")
T = TypeVar("T")

#: The seconds for which failures count.
MINUTE: Final = 60.0

#: The failures in that time after which further ones of a role are slow, and the longest delay in seconds.
ROLE_FAILURES: Final = 10
LONGEST_DELAY: Final = 60.0

#: The failures in that time after which all attempts from an address are refused.
ADDRESS_FAILURES: Final = 300

#: The roles, and the addresses, that are remembered; the answers that are held at once.
KEPT: Final = 8192
HELD: Final = 1000

#: Refusals that are the fault of the server, a provider or a directory: no guess is among them.
_OURS: Final = PUT_OFF | {Reason.CREDENTIALS_UNREADABLE, Reason.CONFIGURATION_INVALID}


@attrs.define
class _Role:
    """Failures to prove a role: when the last ones were, how many were slow in succession, and until when more are."""

    recent: deque[float] = attrs.field(factory=lambda: deque(maxlen=ROLE_FAILURES))
    slowed: int = 0
    slow_until: float = 0.0

    def delay(self, now: float) -> float:
        """Count a failure, and return the delay of its answer in seconds."""
        slow = now < self.slow_until or (len(self.recent) == ROLE_FAILURES and now - self.recent[0] < MINUTE)
        self.recent.append(now)
        if not slow:
            self.slowed = 0
            return 0.0
        # Two to the sixth is more than a minute.
        delay = min(2.0 ** min(self.slowed, 6), LONGEST_DELAY)
        self.slowed += 1
        self.slow_until = now + delay + MINUTE
        return delay


@attrs.define
class _Address:
    """Failures from an address in the minute that began with one of them."""

    since: float
    failures: int = 0


class Throttle(Service):
    """The failures of one server (Note [Bounded]). ``proxies`` are the networks that are trusted to name their clients."""

    def __init__(self, clock: IReactorTime, proxies: Sequence[Network] = ()) -> None:
        self._clock = clock
        self._proxies = proxies
        self._roles: OrderedDict[bytes, _Role] = OrderedDict()
        self._addresses: OrderedDict[str, _Address] = OrderedDict()
        self._held: set[Deferred[None]] = set()
        self._stopped = False

    def stopService(self) -> None:
        """Let go of every answer that is held, and hold none any more."""
        super().stopService()  # type: ignore[no-untyped-call] # Twisted's
        self._stopped = True
        for held in list(self._held):
            held.callback(None)

    async def slowed(self, request: LoginRequest, decide: Callable[[LoginRequest], Awaitable[T | Refused]]) -> T | Refused:
        """Decide on a request unless its address has failed too often; failures may be answered late."""
        wait = self._wait(request.client_ip)
        if wait is not None:
            detail = f"there were {ADDRESS_FAILURES} failures from this address within a minute"
            return Refused(Reason.FAILURES_TOO_MANY, detail, None, RefusalKind.TOO_OFTEN, wait)
        try:
            decision = await decide(request)
        except CancelledError:
            self._count_address(request.client_ip)
            raise
        if isinstance(decision, Refused) and decision.reason not in _OURS:
            self._count_address(request.client_ip)
            await self._hold(self._delay(decision.role or f"{request.account}:{request.login}"))
        return decision

    def _wait(self, client_ip: str) -> int | None:
        """Return the seconds for which an address is still refused; ``None`` when it isn't."""
        address = self._addresses.get(counted_as(client_ip))
        if address is None or address.failures < ADDRESS_FAILURES:
            return None
        left = address.since + MINUTE - self._clock.seconds()
        return math.ceil(left) if left > 0 else None

    def _count_address(self, client_ip: str) -> None:
        if is_within(client_ip, self._proxies):
            return
        now, name = self._clock.seconds(), counted_as(client_ip)
        address = self._addresses.get(name)
        if address is None or now - address.since >= MINUTE:
            address = _Address(now)
        address.failures += 1
        _remember(self._addresses, name, address)

    def _delay(self, role: str) -> float:
        """Count a failure to prove a role, and return the delay of its answer."""
        name = blake2b(role.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        failures = self._roles.get(name) or _Role()
        _remember(self._roles, name, failures)
        return failures.delay(self._clock.seconds())

    async def _hold(self, seconds: float) -> None:
        """Wait, unless too many answers wait already."""
        if not seconds or self._stopped or len(self._held) >= HELD:
            return
        held: Deferred[None] = Deferred()
        self._held.add(held)
        timer = self._clock.callLater(seconds, held.callback, None)
        try:
            await held
        finally:
            self._held.discard(held)
            if timer.active():
                timer.cancel()


def _remember(kept: OrderedDict[K, T], name: K, value: T) -> None:
    """Keep a value as the newest, and forget the oldest when there are too many."""
    kept[name] = value
    kept.move_to_end(name)
    if len(kept) > KEPT:
        kept.popitem(last=False)


@implementer(IAuthenticator)
@attrs.frozen(eq=False)
class ThrottledAuthenticator:
    """Throttles the failures of ``inner``."""

    _inner: IAuthenticator
    _throttle: Throttle

    async def authenticate(self, request: LoginRequest) -> Admitted | Refused:
        """See ``IAuthenticator``."""
        return await self._throttle.slowed(request, self._inner.authenticate)


@implementer(ILogin)
@attrs.frozen(eq=False)
class ThrottledLogin:
    """Throttles the failures of ``inner``."""

    _inner: ILogin
    _throttle: Throttle

    async def api_key(self, request: LoginRequest) -> bytes | Refused:
        """See ``ILogin``."""
        return await self._throttle.slowed(request, self._inner.api_key)
