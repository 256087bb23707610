"""Split brain: the other primaries of the same database system, and the writes that they forbid.

When a standby was promoted and the former primary is started again, both take writes, and one of them will be thrown away
with all that it took. PostgreSQL counts promotions in the timeline. Of two primaries the one on the older timeline takes no
writes here; on equal timelines, as of a copy that was started beside its original, neither does (CLU-16).

Note [The same one]. Several servers may stand on one PostgreSQL, which differs from another by the moment at which it was
started, in microseconds. So that a restart isn't taken for another primary, this server's own database is queried before the
others are asked and after they answered, and the answers count only when both results agree.

Note [Kept conflicts]. Another primary that forbids writes forbids them until it reports something else: that it is a
standby now, on no newer timeline than ours, or that its database is ours. That it can't be reached any more is no reason to
write: an operator who knows that it is gone for good restarts this server. One on an older timeline, which refuses writes
itself, is dropped after a while without an answer.

Note [Asked before the first write]. No write begins before all members have been asked once, or gave no answer in time; nor
after this server's database was away. While that is away, or doesn't say which one it is, writes are refused, and wait for
nothing. A member that can't be reached keeps nobody from writing: this is no vote, and can't be one between two.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import attrs
from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from svc.model.background import PeriodicService
from svc.model.clocks import WallClock
from svc.model.databases import DatabaseIdentity
from svc.model.errors import PrimaryContested, StoreUnavailable

#: The longest time from one poll of the others to the next, and for which a write waits for one, in seconds; and how many
#: intervals after its last answer a primary on an older timeline is dropped.
LONGEST_INTERVAL: Final = 5.0
MAX_WAIT: Final = 5.0
INTERVALS_RETAINED: Final = 3

#: The words for primaries in health reports; the last where one's own database doesn't say which it is.
ONE_PRIMARY: Final = "ok"
TWO_PRIMARIES: Final = "two"
UNKNOWN_PRIMARIES: Final = "unknown"

_log = Logger()


@attrs.frozen
class ConflictingPrimary:
    """Another server's database that is a primary beside ours, and when that was last heard, by the clock of the reactor."""

    identity: DatabaseIdentity
    last_seen: float


@attrs.frozen
class WriteDecision:
    """The decision of :class:`SplitBrainDetector` on writes: ``certain`` when none is awaited; ``refusal`` is why they are
    forbidden.

    ``alone``: there is no other server to ask.
    """

    certain: bool = True
    refusal: PrimaryContested | None = None
    conflicting_members: frozenset[str] = frozenset()
    alone: bool = False


def is_conflicting(own: DatabaseIdentity, other: DatabaseIdentity) -> bool:
    """Return whether the other database has another history than our primary: as a primary, or on a newer timeline."""
    if own.standby or other.system != own.system:
        return False
    return other.timeline > own.timeline or (not other.standby and other.started != own.started)


class SplitBrainDetector(Service):
    """Asks the members every ``interval`` seconds for their databases, and decides whether this server may write.

    ``observe`` returns the identity of one's own database now, and ``asking`` has a function for that of each member, which
    returns ``None`` when it doesn't answer in time.
    """

    name = "rivals"

    def __init__(
        self,
        clock: IReactorTime,
        wall: WallClock,
        observe: Callable[[], Awaitable[DatabaseIdentity]],
        asking: Mapping[str, Callable[[], Awaitable[DatabaseIdentity | None]]],
        interval: float,
    ) -> None:
        self._clock, self._wall, self._observe, self._asking = clock, wall, observe, asking
        self._interval = min(interval, LONGEST_INTERVAL)
        self._polling = PeriodicService(clock, self._interval, self._poll_members, _log, "Primaries are not looked for")
        #: Whether the members have been asked since the database came (Note [Asked before the first write]).
        self._certain = not asking
        self._waiting: list[Deferred[None]] = []
        #: Why the last poll had no result, if this server's own database couldn't be queried.
        self._poll_fault: str | None = None
        self._own: DatabaseIdentity | None = None
        self._conflicts: dict[str, ConflictingPrimary] = {}
        self._conflicting_members: frozenset[str] = frozenset()
        self._identity_unknown = False
        self._status = ONE_PRIMARY
        self._changed = wall.seconds()

    def startService(self) -> None:
        """Begin with a poll at once, if there is any other server."""
        super().startService()  # type: ignore[no-untyped-call] # Twisted's
        if self._asking:
            self._polling.startService()

    def stopService(self) -> None:
        """End the loop; the result of a poll that is under way is dropped."""
        super().stopService()  # type: ignore[no-untyped-call] # Twisted's
        self._polling.stopService()

    def require_poll(self) -> None:
        """Let no write begin until the members were polled again: this server's database was away."""
        if self._polling.running:
            self._certain, self._poll_fault = False, None
            self._polling.trigger()

    @property
    def status(self) -> str | None:
        """Return the word for the primaries in health reports; ``None`` where there are no others to ask."""
        return self._status if self._asking else None

    @property
    def changed_at(self) -> float:
        """Return when that became so, in epoch seconds."""
        return self._changed

    @property
    def is_writable(self) -> bool:
        """Whether no other primary forbids writes, and no poll is pending."""
        return self._certain and self._find_refusal() is None

    @property
    def conflicting_members(self) -> frozenset[str]:
        """Return the members that have primaries beside each other, or beside ours, of the one system that is ours too."""
        return self._conflicting_members

    def count_by_timeline(self) -> Mapping[str, int]:
        """Count the other primaries by their timelines compared with ours: ``newer``, ``same``, ``older``."""
        own = self._own
        if own is None:
            return {}
        timelines = [conflict.identity.timeline for conflict in self._conflicts.values()]
        newer, older = sum(each > own.timeline for each in timelines), sum(each < own.timeline for each in timelines)
        return {"newer": newer, "same": timelines.count(own.timeline), "older": older}

    @property
    def decision(self) -> WriteDecision:
        """Return what is known now, for other processes of the server."""
        return WriteDecision(self._certain, self._find_refusal(), self._conflicting_members, alone=not self._asking)

    async def wait_until_writable(self) -> None:
        """Return when a write may begin.

        :raises PrimaryContested: another primary forbids it.
        :raises StoreUnavailable: it isn't known in time whether there is one.
        """
        if not self._certain:
            await self._wait_for_poll()
        if (refusal := self._find_refusal()) is not None:
            raise refusal

    async def _wait_for_poll(self) -> None:
        if self._poll_fault is not None:
            raise StoreUnavailable(self._poll_fault)
        waiting: Deferred[None] = Deferred()
        self._waiting.append(waiting)
        try:
            await waiting.addTimeout(MAX_WAIT, self._clock)
        except DeferredTimeout:
            raise StoreUnavailable("it is not known yet whether another server has a newer primary") from None
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)

    def _find_refusal(self) -> PrimaryContested | None:
        own, timelines = self._own, {name: conflict.identity.timeline for name, conflict in self._conflicts.items()}
        if own is None or max(timelines.values(), default=-1) < own.timeline:
            return None
        name = max(timelines, key=timelines.__getitem__)
        if timelines[name] > own.timeline:
            return PrimaryContested(f"the database of the server {name} has been made the primary: changes belong there")
        return PrimaryContested(
            f"the database of the server {name} is a primary too, with the same right as the one here: neither takes changes"
        )

    async def _poll_members(self) -> None:
        try:
            await self._try_poll()
        except Exception:  # the loop must go on, and nothing was decided
            _log.failure("Other primaries can't be judged, so this server refuses writes")
            self._certain = False
            self._refuse_waiting("whether another server has a newer primary can't be told")

    async def _try_poll(self) -> None:
        try:
            before = await self._observe()
            asked = [Deferred.fromCoroutine(_fetch_identity(ask)) for ask in self._asking.values()]
            answers = [answer for _, answer in await DeferredList(asked)]
            after = await self._observe()
        except StoreUnavailable as refusal:  # The pool says so in the log.
            self._refuse_waiting(refusal.why)
            return
        except Exception:  # the loop must go on
            if not self._identity_unknown:
                _log.failure("The database doesn't say which one it is, so this server refuses writes: may its role ask?")
            self._identity_unknown, self._certain = True, False
            self._update_status()
            self._refuse_waiting("the database here doesn't say which one it is, which is to be known before a write")
            return
        if before != after or self._polling.triggered:
            return  # Note [The same one]; and a database that was away since needs another poll.
        self._update_conflicts(after, dict(zip(self._asking, answers, strict=True)))
        self._identity_unknown, self._certain, self._poll_fault = False, True, None
        self._update_status()
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.callback(None)

    def _refuse_waiting(self, why: str) -> None:
        """Note why there is nothing to decide by, and refuse those that wait, unless another poll follows at once."""
        if self._certain or self._polling.triggered:
            return
        self._poll_fault = why
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.errback(StoreUnavailable(why))

    def _update_conflicts(self, own: DatabaseIdentity, answers: Mapping[str, DatabaseIdentity | None]) -> None:
        """Update the other primaries by the answers (Note [Kept conflicts])."""
        now, before, refused = self._clock.seconds(), self._conflicts, self._find_refusal()
        kept = {} if own.standby or self._own is None or self._own.system != own.system else dict(before)
        for name, answer in answers.items():
            if answer is not None:
                kept.pop(name, None)
                if is_conflicting(own, answer):
                    kept[name] = ConflictingPrimary(answer, now)
        oldest = now - INTERVALS_RETAINED * self._interval
        self._own = own
        self._conflicts = {
            name: conflict
            for name, conflict in kept.items()
            if conflict.identity.timeline >= own.timeline or conflict.last_seen > oldest
        }
        ours = {name: answer for name, answer in answers.items() if answer is not None and answer.system == own.system}
        primaries = {name: answer.started for name, answer in ours.items() if not answer.standby}
        started = {*primaries.values()} | (set() if own.standby else {own.started})
        self._conflicting_members = frozenset(primaries if len(started) > 1 else ())
        self._log_changes(before, refused)

    def _update_status(self) -> None:
        """Update the word for health reports."""
        word = TWO_PRIMARIES if self._conflicts else UNKNOWN_PRIMARIES if self._identity_unknown else ONE_PRIMARY
        if word != self._status:
            self._status, self._changed = word, self._wall.seconds()

    def _log_changes(self, before: Mapping[str, ConflictingPrimary], refused: PrimaryContested | None) -> None:
        """Log what has changed."""
        assert self._own is not None
        for name in self._conflicts.keys() - before.keys():
            news = "The server {name} has another primary of this database system, on timeline {theirs}; here it is {ours}"
            _log.error(news, name=name, theirs=self._conflicts[name].identity.timeline, ours=self._own.timeline)
        refusal = self._find_refusal()
        if refusal is not None and (refused is None or refusal.why != refused.why):
            _log.error("This server refuses writes: {why}", why=refusal.why)
        elif refusal is None and refused is not None:
            _log.warn("No other primary forbids writes any more")
        if before and not self._conflicts:
            _log.warn("There is no other primary of this database system any more")


async def _fetch_identity(ask: Callable[[], Awaitable[DatabaseIdentity | None]]) -> DatabaseIdentity | None:
    try:
        return await ask()
    except Exception:  # a bug in one question may not keep the others from counting
        _log.failure("Asking a server for its database met a bug")
        return None


def primaries_of(
    split_brain: SplitBrainDetector, contested: Callable[[], bool], wall: WallClock
) -> Callable[[], tuple[str, float] | None]:
    """Return a function that returns the word for the primaries in health reports, and since when it has been so.

    ``contested`` returns whether two hosts of this server's own database are primaries.
    """
    since: float | None = None

    def primaries() -> tuple[str, float] | None:
        nonlocal since
        since = (wall.seconds() if since is None else since) if contested() else None
        if since is not None:
            return TWO_PRIMARIES, since
        word = split_brain.status
        return None if word is None else (word, split_brain.changed_at)

    return primaries
