"""The members of the cluster, asked for their health on demand, each at most once a second.

Note [No amplifier]. Anyone may ask this server about another, without a login. So each member is asked once at a time,
however many wait for the answer, and an answer is good for a second: nobody can make this server send a member more than one
question a second. A client that leaves ends its own wait alone. Only members that the settings list are ever queried.

Note [The time of a change]. Members are also polled steadily, so that the time is known when one fell silent and when it was
back, not the time of a request. The time of its last change is in the answer of a member.

Note [Last known]. An overview of the cluster doesn't wait for a member that hangs, if there is an answer of a moment ago:
that is shown with its age, and the new one in the next overview.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Protocol

import attrs
from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from svc.cluster.reports import UNREACHABLE, MemberHealth, ProbeReply, member_health
from svc.model.background import PeriodicService
from svc.model.clocks import WallClock

#: For how many seconds an answer is as good as a new one, for how many it may stand in for one that doesn't come, and how
#: long that is waited for then.
FRESH_SECONDS: Final = 1.0
STALE_SECONDS: Final = 60.0
MAX_WAIT: Final = 1.0

_log = Logger()


@attrs.frozen
class _KnownReport:
    """A reply, when it came, by the clock of the reactor, and since when it is the same, in epoch seconds.

    ``recovered_at``: when the member was first heard again after it gave no report, in epoch seconds.
    """

    reply: ProbeReply
    at: float
    changed: float | None = None
    recovered_at: float | None = None

    @property
    def comparable_state(self) -> object:
        """Return all that counts as the state: not the position of the database's log."""
        document, database = self.reply.document, self.reply.document.get("database")
        database_ok = database.get("ok") if isinstance(database, dict) else None
        return self.reply.fault, self.reply.ok, document.get("services"), document.get("cluster"), database_ok


class _MemberPoller:
    """One member, and what is known of it."""

    def __init__(self, clock: IReactorTime, wall: WallClock, name: str, ask: Callable[[], Awaitable[ProbeReply]]) -> None:
        self.name = name
        self._clock, self._wall, self._ask = clock, wall, ask
        self._known: _KnownReport | None = None
        self._waiters: list[Deferred[None]] | None = None

    def refresh_report(self) -> Deferred[None]:
        """Fire when what is known is fresh (Note [No amplifier]); never fail but by cancellation."""
        known: Deferred[None] = Deferred()
        if self._report_age() <= FRESH_SECONDS and self._waiters is None:
            known.callback(None)
        elif self._waiters is None:
            self._waiters = [known]
            Deferred.fromCoroutine(self._fetch_reply()).addBoth(self._record_reply)
        else:
            self._waiters.append(known)
        return known

    async def fresh_reply(self) -> ProbeReply:
        await self.refresh_report()
        assert self._known is not None
        return self._known.reply

    async def refresh_or_reuse(self) -> None:
        """Wait for a fresh answer, but not long where there is a recent one (Note [Last known])."""
        informed = self.refresh_report()
        if self._report_age() <= STALE_SECONDS:
            with suppress(DeferredTimeout):
                await informed.addTimeout(MAX_WAIT, self._clock)
        else:
            await informed

    def member_health(self) -> MemberHealth:
        assert self._known is not None
        known, age = self._known, max(0.0, self._report_age())
        if known.reply.fault:
            return MemberHealth(name=self.name, here=False, word=known.reply.fault, changed=known.changed, age=age)
        health = member_health(self.name, known.reply.document, here=False, changed=known.changed, age=age)
        if known.recovered_at is None or health.changed is None or health.changed == known.changed:
            return health
        return attrs.evolve(health, changed=max(health.changed, known.recovered_at))

    async def _fetch_reply(self) -> ProbeReply:
        return await self._ask()

    def _report_age(self) -> float:
        """Return the seconds since the last answer; one that a clock put back has left in the future counts as none."""
        age = float("inf") if self._known is None else self._clock.seconds() - self._known.at
        return age if age >= 0 else float("inf")

    def _record_reply(self, result: ProbeReply | Failure) -> None:
        if isinstance(result, Failure):
            _log.failure("Asking the server {name} for its health met a bug", result, name=self.name)
            result = ProbeReply(fault=UNREACHABLE, why="an error of this program, which its log tells")
        before, fresh = self._known, _KnownReport(result, self._clock.seconds())
        if before is not None:
            now, same = self._wall.seconds(), before.comparable_state == fresh.comparable_state
            back = now if before.reply.fault and not result.fault else before.recovered_at
            fresh = attrs.evolve(fresh, changed=before.changed if same else now, recovered_at=back)
        self._known = fresh
        # Only a change is news.
        fault = "" if before is None else before.reply.fault
        if result.fault and result.fault != fault:
            _log.warn("The server {name} gives no health report: {why}", name=self.name, why=result.why)
        elif fault and not result.fault:
            _log.info("The server {name} gives health reports again", name=self.name)
        waiters, self._waiters = self._waiters or [], None
        for waiter in waiters:
            waiter.callback(None)  # which one that was cancelled ignores


class IMembers(Protocol):
    """The members, as routes ask for them."""

    async def fetch_health(self, name: str) -> ProbeReply | None:
        """Return the health of the member of exactly this name, a second old at most; ``None`` if there is none."""

    async def list_health(self) -> Sequence[MemberHealth]:
        """Return the health of all members."""


class Members(Service):
    """The members, each with the function that queries it, by the names under which the settings list them.

    Once started, it polls them every ``interval`` seconds (Note [The time of a change]).
    """

    name = "members"

    def __init__(
        self,
        clock: IReactorTime,
        wall: WallClock,
        asking: Mapping[str, Callable[[], Awaitable[ProbeReply]]],
        interval: float = STALE_SECONDS,
    ) -> None:
        self._members = {name: _MemberPoller(clock, wall, name, ask) for name, ask in asking.items()}
        self._polling = PeriodicService(clock, interval, self._poll_members, _log, "Members are not looked at")

    def startService(self) -> None:
        """Begin with a poll at once, if there are any."""
        super().startService()  # type: ignore[no-untyped-call] # Twisted's
        if self._members:
            self._polling.startService()

    def stopService(self) -> None:
        """End the polls; the result of one that is under way is dropped."""
        super().stopService()  # type: ignore[no-untyped-call] # Twisted's
        self._polling.stopService()

    async def fetch_health(self, name: str) -> ProbeReply | None:
        """Return the health of the member of exactly this name, a second old at most; ``None`` if there is none."""
        member = self._members.get(name)
        return None if member is None else await member.fresh_reply()

    async def list_health(self) -> list[MemberHealth]:
        """Return the health of all members, asked at the same time (Note [Last known])."""
        attending = [Deferred.fromCoroutine(member.refresh_or_reuse()) for member in self._members.values()]
        try:
            for each in attending:
                await each
        finally:
            for each in attending:
                each.cancel()
                each.addErrback(lambda failure: failure.trap(CancelledError))
        return [member.member_health() for member in self._members.values()]

    async def _poll_members(self) -> None:
        for member in self._members.values():
            member.refresh_report()
