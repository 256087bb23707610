"""Throttling of failed logins: failures are counted, by role and by address, for passwords and API keys alike.

Wrappers around an authenticator and a login share one :class:`Throttle` (TOK-21 to TOK-24, ``--login-throttle``):

* Ten failures in a minute to prove one role, from wherever they come, have further ones answered late: by one second, two,
  four … up to a minute, until there has been none for a minute. Who has the key is admitted at once, whatever others do:
  nobody can be locked out. An unknown role is slow like any other.
* Three hundred failures from one address have all of its attempts refused until the minute is over, before anything is
  asked or hashed. An IPv6 client has 2**64 addresses, so its network of 64 bits counts. A proxy that is trusted stands for
  many clients, and is not refused.

Note [Bounded]. All that is counted is in memory: of the roles and of the addresses that failed last, so many. To be
forgotten before its time takes as many failures of others in between as are kept, which is slower than to wait. Roles are
kept by a digest, since names may be long. Late answers are held while their clients wait, no more than ``HELD`` at once,
each for a minute at most; beyond that, and once the server stops, failures are answered at once. Who leaves before the
answer is counted too, for the address, even while there is no room: a password that was hashed for nobody costs as much.
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

#: How long failures count, in seconds.
MINUTE: Final = 60.0

#: How many failures in that time make further ones of a role slow, and how slow at most, in seconds.
ROLE_FAILURES: Final = 10
LONGEST_DELAY: Final = 60.0

#: After how many failures in that time all attempts from an address are refused.
ADDRESS_FAILURES: Final = 300

#: How many roles, and how many addresses, are kept in mind.
KEPT: Final = 8192

#: How many answers are held at once.
HELD: Final = 1000

#: Refusals that are the server's own fault, or a provider's or directory's: no guess is among them.
_OURS: Final = PUT_OFF | {Reason.CREDENTIALS_UNREADABLE, Reason.CONFIGURATION_INVALID}


@attrs.define
class _Role:
    """Failures to prove a role: when the last ones were, how many were slow in succession, and until when more are."""

    recent: deque[float] = attrs.field(factory=lambda: deque(maxlen=ROLE_FAILURES))
    slowed: int = 0
    slow_until: float = 0.0

    def delay(self, now: float) -> float:
        """Count a failure, and return for how many seconds its answer is to wait."""
        slow = now < self.slow_until or (len(self.recent) == ROLE_FAILURES and now - self.recent[0] < MINUTE)
        self.recent.append(now)
        if not slow:
            self.slowed = 0
            return 0.0
        # Two to the sixth is more than a minute; larger powers would only grow.
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
    """The failures of one server (Note [Bounded]). ``proxies`` are the networks that are trusted to name their clients.

    When it stops, every answer that is held is let go.
    """

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
        """Decide on a request unless its address has failed too often; a failure's answer may be long in coming."""
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
        """Return for how many seconds more an address is refused; ``None`` when it isn't."""
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
        """Count a failure to prove a role, and return for how long its answer is to wait."""
        name = blake2b(role.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        failures = self._roles.get(name) or _Role()
        _remember(self._roles, name, failures)
        return failures.delay(self._clock.seconds())

    async def _hold(self, seconds: float) -> None:
        """Wait; not when too many wait already."""
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
class ThrottledAuthenticator:
    """Throttles the failures of ``inner``."""

    def __init__(self, inner: IAuthenticator, throttle: Throttle) -> None:
        self._inner = inner
        self._throttle = throttle

    async def authenticate(self, request: LoginRequest) -> Admitted | Refused:
        """Let ``inner`` decide."""
        return await self._throttle.slowed(request, self._inner.authenticate)


@implementer(ILogin)
class ThrottledLogin:
    """Throttles the failures of ``inner``."""

    def __init__(self, inner: ILogin, throttle: Throttle) -> None:
        self._inner = inner
        self._throttle = throttle

    async def api_key(self, request: LoginRequest) -> bytes | Refused:
        """Let ``inner`` decide."""
        return await self._throttle.slowed(request, self._inner.api_key)
