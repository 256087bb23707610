"""Throttling of failed logins: failures are counted, by role and by address, for passwords and API keys alike.

Wrappers around an authenticator and a login share one :class:`Throttle` (TOK-21 to TOK-24, ``--login-throttle``):

* Ten failures in a minute to prove one role, from any addresses, have further ones answered late: by one second, two, four …
  up to a minute, until there has been none for a minute. The right key is admitted at once: nobody can be locked out. An
  unknown role is slow like any other. Failures for which a directory isn't asked any more (LOCK-6) are late from the first
  one on.
* Three hundred failures from one address have all of its attempts refused until the minute is over, before anything is
  queried or hashed. An IPv6 client has 2**64 addresses, so its network of 64 bits counts. A trusted proxy stands for many
  clients, and is not refused.

Note [Bounded]. The roles and addresses that failed last are counted in memory, ``KEPT`` of each: evicting one early takes
more failures than waiting. Roles are kept by a digest, since names may be long. At most ``HELD`` answers are held at once,
each for a minute at most; beyond that, and once the server stops, failures are answered at once. A client that disconnects
before its answer is counted for its address: a password that was hashed for nobody costs as much.

Note [Undecided]. A refusal from the read cache while the database is away is answered as if the role weren't cached
(``pacing``, Note [No refusal from stale memory]). It isn't counted, or its answer would be late and the other's not.

Note [One count]. Where several processes serve, one counts for all: N processes are not N times as many guesses. It is
notified of each failure, and reports at once which addresses are refused. So an attempt that succeeds needs no question.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import Final, Protocol, TypeVar

import attrs
from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from svc.model.authentication import (
    Admitted,
    ExplainedRefusal,
    Explanation,
    ExplanationRequest,
    IAuthenticator,
    IKeyExplainer,
    ILogin,
    LoginRequest,
    Refused,
    Step,
)
from svc.model.names import RoleName
from svc.model.query_results import Network, counted_as, is_within
from svc.model.reasons import PUT_OFF, Reason, RefusalKind
from svc.model.request_notes import is_stale
from svc.model.text import shown

K = TypeVar("K")
R = TypeVar("R", bound=LoginRequest)
T = TypeVar("T")

#: The seconds for which failures count.
MINUTE: Final = 60.0

#: The failures in that time after which further ones of a role are slow, and the longest delay in seconds.
ROLE_FAILURES: Final = 10
LONGEST_DELAY: Final = 60.0

#: The failures in that time after which all attempts from an address are refused.
ADDRESS_FAILURES: Final = 300

#: The most roles, and addresses, that are kept; the most answers that are held at once.
KEPT: Final = 8192
HELD: Final = 1000

#: The name of the check in explanations.
_CHECK: Final = "throttle"

#: Refusals that are the fault of the server, a provider or a directory: no guess is among them.
_OURS: Final = PUT_OFF | {Reason.CREDENTIALS_UNREADABLE, Reason.CONFIGURATION_INVALID}


@attrs.frozen
class Pressure:
    """How many failures to prove a role count now, up to ``ROLE_FAILURES``, and the seconds by which another is delayed."""

    failures: int
    delay: float


@attrs.define
class _Role:
    """Failures to prove a role: when the last ones were, how many were slow in succession, and until when more are."""

    recent: deque[float] = attrs.field(factory=lambda: deque(maxlen=ROLE_FAILURES))
    slowed: int = 0
    slow_until: float = 0.0

    def delay(self, now: float, *, late: bool = False) -> float:
        """Count a failure, and return the delay of its answer in seconds, as of one of many if it is ``late``."""
        slow = late or now < self.slow_until or (len(self.recent) == ROLE_FAILURES and now - self.recent[0] < MINUTE)
        self.recent.append(now)
        if not slow:
            self.slowed = 0
            return 0.0
        # Two to the sixth is more than a minute.
        delay = min(2.0 ** min(self.slowed, 6), LONGEST_DELAY)
        self.slowed += 1
        self.slow_until = now + delay + MINUTE
        return delay

    def pressure(self, now: float) -> Pressure:
        """Return how many failures count now, and the delay that one more would have."""
        other = _Role(deque(self.recent, ROLE_FAILURES), self.slowed, self.slow_until)
        return Pressure(sum(now - each < MINUTE for each in self.recent), other.delay(now))


@attrs.define
class _Address:
    """Failures from an address in the minute that began with one of them."""

    since: float
    failures: int = 0


class IFailures(Protocol):
    """The count of one server's failures."""

    def refused_for(self, client_ip: str) -> int | None:
        """Return the seconds for which an address is still refused; ``None`` when it isn't."""

    def left(self, client_ip: str) -> None:
        """Count a client of this address that left before its answer."""

    async def failed(self, client_ip: str, role: str, *, late: bool = False) -> float:
        """Count a failure from this address to prove a role, and return the delay of its answer in seconds.

        ``late``: it is late, as after many failures, however few there were.
        """

    async def pressure(self, role: str) -> Pressure:
        """Return how a role stands, and count nothing."""


class Failures:
    """Counts failures in memory (Note [Bounded]).

    ``proxies`` are the networks that are trusted to name their clients. ``refuse`` is called with what an address is
    counted as, and for how many seconds it is refused, when that begins.
    """

    def __init__(
        self,
        clock: IReactorTime,
        proxies: Sequence[Network] = (),
        refuse: Callable[[str, float], object] = lambda *_: None,
    ) -> None:
        self._clock = clock
        self._proxies = proxies
        self._refuse = refuse
        self._roles: OrderedDict[bytes, _Role] = OrderedDict()
        self._addresses: OrderedDict[str, _Address] = OrderedDict()

    def refused_for(self, client_ip: str) -> int | None:
        """See ``IFailures``."""
        address = self._addresses.get(counted_as(client_ip))
        if address is None or not _is_many(address):
            return None
        left = address.since + MINUTE - self._clock.seconds()
        return math.ceil(left) if left > 0 else None

    def refused(self) -> list[tuple[str, float]]:
        """Return the addresses that are refused, as they are counted, each with the seconds that are left of it."""
        now = self._clock.seconds()
        ends = ((name, each.since + MINUTE - now) for name, each in self._addresses.items() if _is_many(each))
        return [(name, left) for name, left in ends if left > 0]

    def left(self, client_ip: str) -> None:
        """See ``IFailures``."""
        if is_within(client_ip, self._proxies):
            return
        now, name = self._clock.seconds(), counted_as(client_ip)
        address = self._addresses.get(name)
        if address is None or now - address.since >= MINUTE:
            address = _Address(now)
        address.failures += 1
        _remember(self._addresses, name, address)
        if address.failures == ADDRESS_FAILURES:
            self._refuse(name, address.since + MINUTE - now)

    async def failed(self, client_ip: str, role: str, *, late: bool = False) -> float:
        """See ``IFailures``."""
        self.left(client_ip)
        name = _digest(role)
        failures = self._roles.get(name) or _Role()
        _remember(self._roles, name, failures)
        return failures.delay(self._clock.seconds(), late=late)

    async def pressure(self, role: str) -> Pressure:
        """See ``IFailures``."""
        return (self._roles.get(_digest(role)) or _Role()).pressure(self._clock.seconds())


class ReportedFailures:
    """Failures that another process of the server counts (Note [One count]).

    ``report`` reports a failure to it and returns the delay; ``report_left`` reports a client that left; ``ask`` returns how
    a role stands.
    """

    def __init__(
        self,
        clock: IReactorTime,
        report: Callable[[str, str, bool], Awaitable[float]],
        report_left: Callable[[str], object],
        ask: Callable[[str], Awaitable[Pressure]],
    ) -> None:
        self._clock = clock
        self._report = report
        self._report_left = report_left
        self._ask = ask
        self._until: OrderedDict[str, float] = OrderedDict()

    def refuse(self, name: str, seconds: float) -> None:
        """Refuse what is counted as this name for so many seconds."""
        _remember(self._until, name, self._clock.seconds() + seconds)

    def refused_for(self, client_ip: str) -> int | None:
        """See ``IFailures``."""
        if not self._until:
            return None
        left = self._until.get(counted_as(client_ip), 0.0) - self._clock.seconds()
        return math.ceil(left) if left > 0 else None

    def left(self, client_ip: str) -> None:
        """See ``IFailures``."""
        self._report_left(client_ip)

    async def failed(self, client_ip: str, role: str, *, late: bool = False) -> float:
        """See ``IFailures``."""
        return await self._report(client_ip, role, late)

    async def pressure(self, role: str) -> Pressure:
        """See ``IFailures``."""
        return await self._ask(role)


class Throttle(Service):
    """Slows failures down (Note [Bounded]). ``held`` is how many answers are held at once."""

    def __init__(self, clock: IReactorTime, failures: IFailures, held: int = HELD) -> None:
        self._clock = clock
        self._failures = failures
        self._most_held = held
        self._held: set[Deferred[None]] = set()
        self._stopped = False

    def stopService(self) -> None:
        """Let go of every answer that is held, and hold none any more."""
        super().stopService()  # type: ignore[no-untyped-call] # Twisted's
        self._stopped = True
        for held in list(self._held):
            held.callback(None)

    async def slowed(self, request: R, decide: Callable[[R], Awaitable[T | Refused]]) -> T | Refused:
        """Decide on a request unless its address has failed too often; failures may be answered late."""
        wait = self._failures.refused_for(request.client_ip)
        if wait is not None:
            detail = f"there were {ADDRESS_FAILURES} failures from this address within a minute"
            return Refused(Reason.FAILURES_TOO_MANY, detail, None, RefusalKind.TOO_OFTEN, wait)
        try:
            decision = await decide(request)
        except CancelledError:
            self._failures.left(request.client_ip)
            raise
        # Undecided refusals aren't counted (Note [Undecided]).
        if isinstance(decision, Refused) and (decision.late or decision.reason not in _OURS) and not is_stale():
            whose = decision.role or request.whose
            await self._hold(await self._failures.failed(request.client_ip, whose, late=decision.late))
        return decision

    async def state(self, address: str, role: str) -> tuple[Step, int | None]:
        """Return how an address and a role stand, as a check, and the seconds for which the address is refused, if it is."""
        wait = self._failures.refused_for(address)
        if wait is not None:
            detail = f"there were {ADDRESS_FAILURES} failures from {shown(address)} within a minute: {wait} s are left of it"
            return Step(_CHECK, "failed", detail, Reason.FAILURES_TOO_MANY), wait
        pressure = await self._failures.pressure(role)
        failures = "no failures" if not pressure.failures else f"{pressure.failures} failures"
        many = " or more" if pressure.failures == ROLE_FAILURES else ""
        answered = f"answered {pressure.delay:g} s late" if pressure.delay else "answered at once"
        detail = f"{failures}{many} to prove the role in the last minute: another one is {answered}, the right one at once"
        return Step(_CHECK, "passed", detail), None

    async def _hold(self, seconds: float) -> None:
        """Wait, unless too many answers wait already."""
        if not seconds or self._stopped or len(self._held) >= self._most_held:
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


def _digest(role: str) -> bytes:
    return blake2b(role.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _is_many(address: _Address) -> bool:
    return address.failures >= ADDRESS_FAILURES


def _remember(kept: OrderedDict[K, T], name: K, value: T) -> None:
    """Keep a value as the newest, and evict the oldest when there are too many."""
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


@implementer(IKeyExplainer)
@attrs.frozen(eq=False)
class ThrottledExplainer:
    """Throttles the failures of ``inner`` as those of logins, and reports the state of the role and the address before."""

    _inner: IKeyExplainer
    _throttle: Throttle

    async def explain(self, request: ExplanationRequest) -> Explanation | Refused:
        """See ``IKeyExplainer``. An attempt counts for the address of the request, not for the one that it asks about."""
        role = str(RoleName.from_login(request.account, request.login or ""))
        step, wait = await self._throttle.state(request.address, role)
        if wait is not None and (not request.tried or request.address != request.client_ip):
            return ExplainedRefusal(Reason.FAILURES_TOO_MANY, step.detail, role, RefusalKind.TOO_OFTEN, wait, steps=(step,))
        if request.tried:
            found = await self._throttle.slowed(request, self._inner.explain)
        else:
            found = await self._inner.explain(request)
        if isinstance(found, Explanation | ExplainedRefusal):
            return attrs.evolve(found, steps=(step, *found.steps))
        return found
