"""Throttling of failed logins, counted by role and by address; and the steady pace at which refusals are answered.

Wrappers of logins by API key, password and signed request share one :class:`Throttle` (TOK-21 to TOK-24,
``--login-throttle``); a forged JWT costs no more than its verification:

* Ten failures in a minute to prove one role, from any addresses, have further ones answered late: by one second, two, four …
  up to a minute, until there has been none for a minute. The right key is admitted at once: nobody can be locked out. An
  unknown role is slow like any other. Failures for which a directory isn't asked any more (LOCK-6) are late from the first
  one on.
* Three hundred failures from one address have all of its attempts refused until the minute is over, before anything is
  queried or hashed. An IPv6 client has 2**64 addresses, so its network of 64 bits counts. A trusted proxy stands for many
  clients, and is not refused.

Note [Bounded]. The roles and addresses that failed last are counted in memory, ``MAX_TRACKED`` of each: evicting one early
takes more failures than waiting. Roles are kept by a digest, since names may be long. At most ``MAX_DELAYED`` answers are
held at once, each for a minute at most; beyond that, and once the server stops, failures are answered at once. A client that
disconnects before its answer is counted for its address: a password that was hashed for nobody costs as much.

Note [Undecided]. A refusal from the read cache while the database is away is answered as if the role weren't cached
(Note [No refusal from a stale cache]). It isn't counted, or its answer would be late and the other's not.

Note [One count]. Where several processes serve, one counts for all: N processes are not N times as many guesses. It is
notified of each failure, and reports at once which addresses are refused. So an attempt that succeeds needs no question.

Note [Steps]. Whether a role is cached decides how soon a login is refused, and one that logs in often is cached. So a
refusal is answered at the end of a step of ``step`` seconds since the request: the first, unless the database is slow,
whether the role is known, cached or neither (FAIL-18). A slow database, or one that reads wait for, takes longer: then a
refusal from the cache makes an empty query (``await_read``), which takes as long as a read, and fails as one. Admissions
aren't held: an admitted client knows that the role exists.

Where a directory is queried, steps are longer (``LDAP_STEP``): a bind follows only where it has an entry, and takes it tens
of milliseconds.

Note [No refusal from a stale cache]. While the database is unavailable, the read cache may admit (``--serve-stale``). It
refuses nobody: a key that fails may be a new one, and roles that aren't cached can't be verified (FAIL-12). So both get the
same answer, at the same pace. Where that query shows that the database is available again, it decides, as about roles that
aren't cached: at that moment, too, both get the same.
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

from svc.model.authentication import (
    A,
    Decide,
    Explain,
    ExplainedRefusal,
    Explanation,
    ExplanationRequest,
    ExplanationStep,
    Q,
    Refused,
)
from svc.model.errors import StoreUnavailable
from svc.model.names import RoleName
from svc.model.query_results import Network, address_counting_key, is_within
from svc.model.reasons import POSTPONING_REASONS, Reason, RefusalKind
from svc.model.request_notes import is_stale, request_notes
from svc.model.text import quote_text

K = TypeVar("K")
T = TypeVar("T")

#: The seconds for which failures count.
FAILURE_WINDOW: Final = 60.0

#: The failures in that time after which further ones of a role are slow, and the longest delay in seconds.
ROLE_FAILURES: Final = 10
LONGEST_DELAY: Final = 60.0

#: The failures in that time after which all attempts from an address are refused.
ADDRESS_FAILURES: Final = 300

#: The most roles, and addresses, that are kept; the most answers that are held at once.
MAX_TRACKED: Final = 8192
MAX_DELAYED: Final = 1000

#: The name of the check in explanations.
_CHECK: Final = "throttle"

#: Refusals that are the fault of the server, a provider or a directory: no guess is among them.
_SERVER_FAULTS: Final = POSTPONING_REASONS | {Reason.CREDENTIALS_UNREADABLE, Reason.CONFIGURATION_INVALID}


@attrs.frozen
class RoleThrottle:
    """How many failures to prove a role count now, up to ``ROLE_FAILURES``, and the seconds by which another is delayed."""

    failures: int
    delay: float


@attrs.define
class _RoleFailures:
    """Failures to prove a role: when the last ones were, how many were slow in succession, and until when more are."""

    recent: deque[float] = attrs.field(factory=lambda: deque(maxlen=ROLE_FAILURES))
    slowed: int = 0
    slow_until: float = 0.0

    def add_failure(self, now: float, *, late: bool = False) -> float:
        """Count a failure, and return the delay of its answer in seconds, as of one of many if it is ``late``."""
        slow = late or now < self.slow_until or (len(self.recent) == ROLE_FAILURES and now - self.recent[0] < FAILURE_WINDOW)
        self.recent.append(now)
        if not slow:
            self.slowed = 0
            return 0.0
        # Two to the sixth is more than a minute.
        delay = min(2.0 ** min(self.slowed, 6), LONGEST_DELAY)
        self.slowed += 1
        self.slow_until = now + delay + FAILURE_WINDOW
        return delay

    def read_throttle(self, now: float) -> RoleThrottle:
        """Return how many failures count now, and the delay that one more would have."""
        other = _RoleFailures(deque(self.recent, ROLE_FAILURES), self.slowed, self.slow_until)
        return RoleThrottle(sum(now - each < FAILURE_WINDOW for each in self.recent), other.add_failure(now))


@attrs.define
class _AddressFailures:
    """Failures from an address in the minute that began with one of them."""

    since: float
    failures: int = 0


class IFailures(Protocol):
    """The count of one server's failures."""

    def refused_seconds(self, client_ip: str) -> int | None:
        """Return the seconds for which an address is still refused; ``None`` when it isn't."""

    def count_address_failure(self, client_ip: str) -> None:
        """Count a failure of this address alone, as where a client left before its answer."""

    async def count_failure(self, client_ip: str, role: str, *, late: bool = False) -> float:
        """Count a failure from this address to prove a role, and return the delay of its answer in seconds.

        ``late``: it is late, as after many failures, however few there were.
        """

    async def read_throttle(self, role: str) -> RoleThrottle:
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
        self._on_refused = refuse
        self._roles: OrderedDict[bytes, _RoleFailures] = OrderedDict()
        self._addresses: OrderedDict[str, _AddressFailures] = OrderedDict()

    def refused_seconds(self, client_ip: str) -> int | None:
        """See ``IFailures``."""
        address = self._addresses.get(address_counting_key(client_ip))
        if address is None or not _is_over_limit(address):
            return None
        left = address.since + FAILURE_WINDOW - self._clock.seconds()
        return math.ceil(left) if left > 0 else None

    def refused_addresses(self) -> list[tuple[str, float]]:
        """Return the addresses that are refused, as they are counted, each with the seconds that are left of it."""
        now = self._clock.seconds()
        ends = ((name, each.since + FAILURE_WINDOW - now) for name, each in self._addresses.items() if _is_over_limit(each))
        return [(name, left) for name, left in ends if left > 0]

    def count_address_failure(self, client_ip: str) -> None:
        """See ``IFailures``."""
        if is_within(client_ip, self._proxies):
            return
        now, name = self._clock.seconds(), address_counting_key(client_ip)
        address = self._addresses.get(name)
        if address is None or now - address.since >= FAILURE_WINDOW:
            address = _AddressFailures(now)
        address.failures += 1
        _put_bounded(self._addresses, name, address)
        if address.failures == ADDRESS_FAILURES:
            self._on_refused(name, address.since + FAILURE_WINDOW - now)

    async def count_failure(self, client_ip: str, role: str, *, late: bool = False) -> float:
        """See ``IFailures``."""
        self.count_address_failure(client_ip)
        name = _digest_role(role)
        failures = self._roles.get(name) or _RoleFailures()
        _put_bounded(self._roles, name, failures)
        return failures.add_failure(self._clock.seconds(), late=late)

    async def read_throttle(self, role: str) -> RoleThrottle:
        """See ``IFailures``."""
        return (self._roles.get(_digest_role(role)) or _RoleFailures()).read_throttle(self._clock.seconds())


class RemoteFailures:
    """Failures that another process of the server counts (Note [One count]).

    ``report`` reports a failure to it and returns the delay; ``report_left`` reports a client that left; ``ask`` returns how
    a role stands.
    """

    def __init__(
        self,
        clock: IReactorTime,
        report: Callable[[str, str, bool], Awaitable[float]],
        report_left: Callable[[str], object],
        ask: Callable[[str], Awaitable[RoleThrottle]],
    ) -> None:
        self._clock = clock
        self._report = report
        self._report_disconnect = report_left
        self._query_role = ask
        self._refused_until: OrderedDict[str, float] = OrderedDict()

    def refuse_address(self, name: str, seconds: float) -> None:
        """Refuse what is counted as this name for so many seconds."""
        _put_bounded(self._refused_until, name, self._clock.seconds() + seconds)

    def refused_seconds(self, client_ip: str) -> int | None:
        """See ``IFailures``."""
        if not self._refused_until:
            return None
        left = self._refused_until.get(address_counting_key(client_ip), 0.0) - self._clock.seconds()
        return math.ceil(left) if left > 0 else None

    def count_address_failure(self, client_ip: str) -> None:
        """See ``IFailures``."""
        self._report_disconnect(client_ip)

    async def count_failure(self, client_ip: str, role: str, *, late: bool = False) -> float:
        """See ``IFailures``."""
        return await self._report(client_ip, role, late)

    async def read_throttle(self, role: str) -> RoleThrottle:
        """See ``IFailures``."""
        return await self._query_role(role)


class Throttle(Service):
    """Slows failures down (Note [Bounded]). ``held`` is how many answers are held at once."""

    def __init__(self, clock: IReactorTime, failures: IFailures, held: int = MAX_DELAYED) -> None:
        self._clock = clock
        self._failures = failures
        self._max_delayed = held
        self._delayed: set[Deferred[None]] = set()
        self._stopped = False

    def stopService(self) -> None:
        """Let go of every answer that is held, and hold none any more."""
        super().stopService()  # type: ignore[no-untyped-call] # Twisted's
        self._stopped = True
        for held in list(self._delayed):
            held.callback(None)

    def throttle_failures(self, decide: Decide[Q, A]) -> Decide[Q, A]:
        """Return a function that decides unless the address has failed too often; failures may be answered late."""

        async def decide_throttled(request: Q) -> A | Refused:
            wait = self._failures.refused_seconds(request.client_ip)
            if wait is not None:
                detail = f"there were {ADDRESS_FAILURES} failures from this address within a minute"
                return Refused(Reason.FAILURES_TOO_MANY, detail, None, RefusalKind.TOO_OFTEN, wait)
            try:
                decision = await decide(request)
            except CancelledError:
                self._failures.count_address_failure(request.client_ip)
                raise
            # Undecided refusals aren't counted (Note [Undecided]).
            if isinstance(decision, Refused) and (decision.late or decision.reason not in _SERVER_FAULTS) and not is_stale():
                whose = decision.role or request.throttle_key
                await self._delay_answer(await self._failures.count_failure(request.client_ip, whose, late=decision.late))
            return decision

        return decide_throttled

    def throttle_explanations(self, explain: Explain) -> Explain:
        """Return a function that explains, and reports the state of the role and the address before.

        Failures of what is tried are throttled as those of logins. An attempt counts for the address of the request, not for
        the one that it asks about.
        """
        try_login = self.throttle_failures(explain)

        async def explain_throttled(request: ExplanationRequest) -> Explanation | Refused:
            role = str(RoleName.from_login(request.account, request.login or ""))
            step, wait = await self._describe_state(request.address, role)
            if wait is not None and (not request.tried or request.address != request.client_ip):
                return ExplainedRefusal(
                    Reason.FAILURES_TOO_MANY, step.detail, role, RefusalKind.TOO_OFTEN, wait, steps=(step,)
                )
            found = await (try_login if request.tried else explain)(request)
            if isinstance(found, Explanation | ExplainedRefusal):
                return attrs.evolve(found, steps=(step, *found.steps))
            return found

        return explain_throttled

    async def _describe_state(self, address: str, role: str) -> tuple[ExplanationStep, int | None]:
        """Return how an address and a role stand, as a check, and the seconds for which the address is refused, if it is."""
        wait = self._failures.refused_seconds(address)
        if wait is not None:
            detail = (
                f"there were {ADDRESS_FAILURES} failures from {quote_text(address)} within a minute: {wait} s are left of it"
            )
            return ExplanationStep(_CHECK, "failed", detail, Reason.FAILURES_TOO_MANY), wait
        pressure = await self._failures.read_throttle(role)
        failures = "no failures" if not pressure.failures else f"{pressure.failures} failures"
        many = " or more" if pressure.failures == ROLE_FAILURES else ""
        answered = f"answered {pressure.delay:g} s late" if pressure.delay else "answered at once"
        detail = f"{failures}{many} to prove the role in the last minute: another one is {answered}, the right one at once"
        return ExplanationStep(_CHECK, "passed", detail), None

    async def _delay_answer(self, seconds: float) -> None:
        """Wait, unless too many answers wait already."""
        if not seconds or self._stopped or len(self._delayed) >= self._max_delayed:
            return
        held: Deferred[None] = Deferred()
        self._delayed.add(held)
        timer = self._clock.callLater(seconds, held.callback, None)
        try:
            await held
        finally:
            self._delayed.discard(held)
            if timer.active():
                timer.cancel()


def _digest_role(role: str) -> bytes:
    return blake2b(role.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _is_over_limit(address: _AddressFailures) -> bool:
    return address.failures >= ADDRESS_FAILURES


def _put_bounded(kept: OrderedDict[K, T], name: K, value: T) -> None:
    """Keep a value as the newest, and evict the oldest when there are too many."""
    kept[name] = value
    kept.move_to_end(name)
    if len(kept) > MAX_TRACKED:
        kept.popitem(last=False)


#: Seconds of a step: many times what a read of the database takes.
STEP: Final = 0.02

#: Seconds of a step where directories are queried: many times the duration of a bind.
LDAP_STEP: Final = 0.25


@attrs.frozen(eq=False)
class RefusalPace:
    """The pace of refusals.

    ``await_read`` returns when a read that begins now would have its answer, ``sleep`` when so many seconds have passed, and
    not even a fraction of a millisecond later (``svc/server/fine_timer.py``).
    """

    _clock: IReactorTime
    _await_read: Callable[[], Awaitable[None]]
    _sleep: Callable[[float], Awaitable[None]]
    step: float = STEP

    def pace_refusals(self, decide: Decide[Q, A]) -> Decide[Q, A]:
        """Return a function that decides in the same way, and raises so, and refuses at the end of a step (Note [Steps])."""

        async def decide_paced(request: Q) -> A | Refused:
            began, unavailable, notes = self._clock.seconds(), None, request_notes()
            try:
                decision = await decide(request)
                if not isinstance(decision, Refused):
                    return decision
                await self._await_read()
                if notes is not None and notes.stale is not None:
                    # The database is available again.
                    notes.stale, notes.may_serve_stale = None, False
                    decision = await decide(request)
                    if not isinstance(decision, Refused):
                        return decision
            except StoreUnavailable as error:
                unavailable = error
            if notes is not None and notes.stale is not None:
                # The answer reveals to nobody that the role is cached.
                notes.stale = None
                unavailable = StoreUnavailable("what is remembered admits nobody with this evidence, and may be out of date")
            await self._sleep(self.step - (self._clock.seconds() - began) % self.step)
            if unavailable is not None:
                raise unavailable
            return decision

        return decide_paced
