"""How far the database has come in the log, and requests that wait until it has come far enough (CLU-28).

Note [Histories]. A position means something on one timeline of one system.

* Another system: the version means nothing here, and nobody waits for it. Otherwise a restored dump couldn't be read.
* A lower timeline than the database's: the history has left that timeline behind. A version from before that point is here;
  one from after it was lost in a failover, and will never be here.
* The same timeline: a primary is at its end, and has everything. A standby has what it has replayed.
* A higher timeline: there was a promotion that this database knows nothing of, yet. It is behind, whatever its position.

A standby can't be asked for its timeline, only for the one in its control file, which is minutes late. So heartbeats have it
too, and the higher one counts. It may be too low for a second after a promotion, and then a request waits for that second.

Note [One database]. A position that was reached holds for one PostgreSQL, as long as it runs. Sessions with different ones,
as during a failover, prove nothing: while there are any, no position counts as reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from svc.model.background import run_in_background
from svc.model.errors import StoreBehind
from svc.model.names import RoleName
from svc.model.versions import StateVersion
from svc.storage.driver.commits import system_of
from svc.storage.driver.connection import IDENTITY, TIMELINE, Fetched
from svc.storage.driver.statements import Statement

#: How long a request waits, at most, in seconds.
WAIT_TIMEOUT: Final = 2.0

#: The time between an answer and the next query, while a request waits, in seconds.
PAUSE: Final = 0.025

#: How many requests may wait, and how many of one role.
WAITERS: Final = 100
WAITERS_PER_ROLE: Final = 20

#: The timeline, and the position that was replayed, of a standby; a primary's position is NULL.
POSITION_QUERY: Final = f"""
    SELECT standby, CASE WHEN standby
            THEN greatest((SELECT timeline FROM heartbeat WHERE single), (SELECT timeline_id FROM pg_control_checkpoint()))
            ELSE {TIMELINE} END AS timeline,
        CASE WHEN standby THEN (coalesce(pg_last_wal_replay_lsn(), '0/0') - '0/0')::bigint END AS position
    FROM (SELECT pg_is_in_recovery() AS standby OFFSET 0) AS mode
"""
_POSITION: Final = Statement.with_name("progress_position")(f"""
    SELECT {IDENTITY}, timeline, position
    FROM ({POSITION_QUERY}) AS reached CROSS JOIN pg_control_system()
""")

_log = Logger()


class PolledDatabase(Protocol):
    """The database, as far as it is needed here."""

    @property
    def server(self) -> str:
        """The one PostgreSQL that all sessions for reads are with; empty where it isn't one (Note [One database])."""

    async def fetch(self, statement: Statement, *parameters: object) -> Fetched:
        """Run a statement that reads."""


@attrs.frozen
class ReachedPosition:
    """The log that a PostgreSQL has on its timeline: all up to ``position``, or all there is where that is ``None``.

    ``server`` is as in ``Session``.
    """

    server: str
    timeline: int
    position: int | None

    def covers_version(self, version: StateVersion) -> bool:
        """Return whether nobody needs to wait for a version (Note [Histories])."""
        if version.system != system_of(self.server) or version.timeline < self.timeline:
            return True
        return version.timeline == self.timeline and (self.position is None or version.position <= self.position)

    def shows_commit(self, version: StateVersion) -> bool:
        """Return whether a commit of this server's is visible: as ``covers_version``, but a standby of another system isn't
        ours.
        """
        return self.covers_version(version) and (self.position is None or version.system == system_of(self.server))


@attrs.frozen(eq=False)
class _Waiting:
    versions: Sequence[StateVersion]
    role: RoleName
    arrival: Deferred[None]


class Progress:
    """Delays requests until their versions are reached. While any waits, the database is polled, once for all of them."""

    def __init__(self, database: PolledDatabase, clock: Any) -> None:
        self._database = database
        self._clock = clock
        self._newest: ReachedPosition | None = None
        self._waiting: list[_Waiting] = []
        self._polling = False

    async def wait_until_reached(self, versions: Sequence[StateVersion], role: RoleName) -> None:
        """Return when reads are answered from a state at least as new as each version, for a request of this role.

        :raises StoreBehind: they aren't within ``WAIT_TIMEOUT``, or too many wait already.
        :raises StoreUnavailable: the database can't be reached.
        """
        if self._has_reached(versions):
            return
        if len(self._waiting) >= WAITERS or sum(each.role == role for each in self._waiting) >= WAITERS_PER_ROLE:
            raise StoreBehind("too many requests wait for what was changed elsewhere")
        waiting = _Waiting(versions, role, Deferred())
        self._waiting.append(waiting)
        if not self._polling:
            self._polling = True
            run_in_background(self._poll_position(), _log, "The questions for the position in the log ended for a bug")
        try:
            await waiting.arrival.addTimeout(WAIT_TIMEOUT, self._clock)
        except DeferredTimeout:
            raise StoreBehind("what was changed elsewhere has not arrived here yet") from None
        finally:
            self._waiting.remove(waiting)

    def _has_reached(self, versions: Sequence[StateVersion]) -> bool:
        newest = self._newest
        if newest is None or newest.server != self._database.server:
            return False
        return all(map(newest.covers_version, versions))

    async def _poll_position(self) -> None:
        """Poll until no request waits any more."""
        try:
            # A request whose Deferred has fired may still be in the list.
            while any(not waiting.arrival.called for waiting in self._waiting):
                try:
                    ((server, timeline, position),) = await self._database.fetch(_POSITION)
                    self._newest = ReachedPosition(server, timeline, position)
                except Exception as error:  # whatever it is, the waiting requests get it
                    self._refuse_waiting(error)
                    continue
                for waiting in tuple(self._waiting):
                    if self._has_reached(waiting.versions) and not waiting.arrival.called:
                        waiting.arrival.callback(None)
                if self._waiting:
                    await deferLater(self._clock, PAUSE)
        finally:
            self._polling = False

    def _refuse_waiting(self, error: Exception) -> None:
        for waiting in tuple(self._waiting):
            if not waiting.arrival.called:
                waiting.arrival.errback(Failure(error))
