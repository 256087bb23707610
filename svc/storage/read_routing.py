"""Reads that may go to a standby, while writes follow the primary (CLU chapter, "Reading from standbys").

Note [Where a read goes]. A read goes to the standby in use, if that is known to have replayed all writes of this
server's processes; else to the primary. The writes are in the slots that the processes share: a commit's version is there
before anybody learns of it. The standby's position was polled before: it never goes back, so that it is at least so far when
the read arrives. A request that may write reads from the primary, and one that has read from a replica goes on there, or
with the primary: it never sees an older state than before.

Note [Failover]. A read that a replica can't answer goes to the other one. If both are away, and while another standby may
be found, it waits for that. It is sent again only if the replica has gone: a slow read would take as long elsewhere. A read
changes nothing, so that it may be answered twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

import attrs
from twisted.internet.task import deferLater

from svc.model.counts import PoolCounts
from svc.model.errors import StoreBehind, StoreUnavailable
from svc.model.names import RoleName
from svc.model.request_notes import RequestNotes, request_notes
from svc.model.versions import StateVersion
from svc.storage.driver.connection import Fetched, Session
from svc.storage.driver.database import Database
from svc.storage.driver.progress import Progress
from svc.storage.driver.query_timeout import QUERY_TIMEOUT
from svc.storage.driver.standbys import Standby
from svc.storage.driver.statements import CachedReading, NamedAnswer, Statement, Transaction
from svc.storage.replicas import PAUSE, Replicas

T = TypeVar("T")

#: How many seconds a read waits for a standby where there is no primary.
WAIT: Final = 2.0


@attrs.frozen
class _StandbyInUse:
    """The standby in use, as ``Progress`` polls it."""

    _replicas: Replicas

    @property
    def server(self) -> str:
        """See ``PolledDatabase``."""
        standby = self._replicas.standby
        return "" if standby is None else standby.reached.server

    async def fetch(self, statement: Statement, *parameters: object) -> Fetched:
        """See ``PolledDatabase``."""
        standby = self._replicas.standby
        if standby is None:
            raise StoreUnavailable("there is neither a primary nor a standby")
        return await standby.database.fetch(statement, *parameters)


class ReadRouter:
    """Runs reads where they may go, and all else on the primary. Provides ``ReadSource``."""

    uses_standbys = True

    def __init__(self, clock: Any, replicas: Replicas) -> None:
        self._clock = clock
        self._replicas = replicas
        self._primary = replicas.primary
        self._progress, self._standby_progress = Progress(replicas.primary, clock), Progress(_StandbyInUse(replicas), clock)

    def count_read_sessions(self) -> PoolCounts:
        """Count the sessions for reads, with the primary and with the standby; without any, nothing can be read."""
        return self._sum_counts(lambda database: database.count_read_sessions())

    def count_sessions(self) -> PoolCounts:
        """Count all sessions. Thread-safe."""
        return self._sum_counts(lambda database: database.count_sessions())

    def _sum_counts(self, count: Callable[[Database], PoolCounts]) -> PoolCounts:
        standby = self._replicas.standby
        counted = count(self._primary)
        return counted if standby is None else PoolCounts.sum_counts((counted, count(standby.database)))

    async def fetch(self, statement: Statement, *parameters: object) -> Fetched:
        """See ``Database``."""
        return await self._route_read(lambda database: database.fetch(statement, *parameters))

    async def fetch_uncached(self, statement: Statement, *parameters: object) -> Fetched:
        """See ``Database``."""
        return await self.fetch(statement, *parameters)

    async def fetch_with_server(self, statement: Statement, *parameters: object) -> tuple[Fetched, str]:
        """See ``Database``."""
        return await self._route_read(lambda database: database.fetch_with_server(statement, *parameters))

    async def read(self, reading: CachedReading[T]) -> T:
        """See ``Database``."""
        return await self._route_read(lambda database: database.read(reading))

    async def read_with_server(self, reading: CachedReading[T]) -> tuple[NamedAnswer[T], str]:
        """See ``Database``."""
        return await self._route_read(lambda database: database.read_with_server(reading))

    async def transact_read_only(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """See ``Database``."""
        return await self._route_read(lambda database: database.transact_read_only(work))

    async def change(self, statement: Statement, *parameters: object) -> Fetched:
        """See ``Database``."""
        return await self._primary.change(statement, *parameters)

    async def transact(self, work: Callable[[Transaction], Awaitable[T]], *, statement_timeout: float | None = None) -> T:
        """See ``Database``."""
        return await self._primary.transact(work, statement_timeout=statement_timeout)

    async def open_session(self, lost: Callable[[Exception], None]) -> Session:
        """See ``Replicas``."""
        return await self._replicas.open_session(lost)

    async def wait_until_reached(self, versions: Sequence[StateVersion], role: RoleName) -> None:
        """See ``Progress``; after it, the current request reads from no older state."""
        notes = request_notes()
        if notes is not None:
            notes.at_least = tuple(versions)
        if self._find_standby(notes) is not None:
            return
        try:
            await self._progress.wait_until_reached(versions, role)
        except StoreBehind:
            raise
        except StoreUnavailable:
            await self._standby_progress.wait_until_reached(versions, role)

    # -- where it goes

    async def _route_read(self, work: Callable[[Database], Awaitable[T]]) -> T:
        """Note [Failover]."""
        notes = request_notes()
        if notes is not None and notes.may_write:
            return await work(self._primary)
        failed: Standby | None = None
        both_away: float | None = None
        while True:
            standby, sent = self._find_standby(notes), self._clock.seconds()
            if standby is failed:
                standby = None
            try:
                result = await work(self._primary if standby is None else standby.database)
            except StoreUnavailable:
                now = self._clock.seconds()
                if now - sent > QUERY_TIMEOUT and self._has_sessions(standby):
                    # By then the loss of the replica's other sessions has been noticed.
                    await deferLater(self._clock, PAUSE)
                if standby is not None:
                    if now - sent > QUERY_TIMEOUT and self._has_sessions(standby):
                        raise
                    failed = standby
                    self._replicas.recheck_standby()
                    continue
                both_away = now if both_away is None else both_away
                if self._is_final(notes, now - both_away, now - sent):
                    raise
                failed = None
                self._replicas.recheck_standby()
                await deferLater(self._clock, PAUSE)
            else:
                if notes is not None:
                    notes.replica = standby or self._primary
                return result

    def _has_sessions(self, standby: Standby | None) -> bool:
        """Return whether there are sessions with the replica that a read went to."""
        if standby is None:
            return self._replicas.has_primary
        return standby is self._replicas.standby and standby.database.count_read_sessions().sessions > 0

    def _is_final(self, notes: RequestNotes | None, waited: float, lasted: float) -> bool:
        """Return whether a read has failed for good: ``waited`` seconds without a replica, ``lasted`` in the last try."""
        if notes is not None and notes.replica is self._primary:
            return True
        if self._replicas.lacks_standby:
            return True
        return waited > WAIT or (lasted > QUERY_TIMEOUT and self._replicas.has_primary)

    def _find_standby(self, notes: RequestNotes | None) -> Standby | None:
        """Return the standby in use if this request may read from it (Note [Where a read goes])."""
        if notes is None:
            return self._replicas.find_readable_standby(())
        if notes.replica is None:
            return self._replicas.find_readable_standby(notes.at_least)
        standby = self._replicas.standby
        return standby if notes.replica is standby else None
