"""The database's role in replication, primary or standby, and the heartbeat by which a standby's lag is known.

Note [Who is a standby]. PostgreSQL is polled once a second, since it may be promoted, restarted as a standby, or replaced by
another at any moment; a standby four times a second, since a proxy that looks for the primary waits for the result. If the
last answer was "primary", a write begins, and PostgreSQL refuses it if that has changed; if it was "standby", PostgreSQL is
asked again before a write is refused. So a promoted standby takes the very next write, a write on a standby costs one query,
and one on a primary none. A primary that can't be reached doesn't count as one until it has answered again: it may come back
as a standby, and meanwhile a proxy that got another answer would send it writes.

Note [Beats]. An idle primary writes nothing, so a standby's position doesn't show its lag. So a primary records the time
once a second, however many servers use it, and a standby compares the last time that it has replayed with its own clock.
Where the clocks of the two machines differ (NTP), the lag is wrong by as much. A beat records its timeline, too. Without
beats, a server that writes nothing would read for ever from a standby that gets no changes any more.
"""

from __future__ import annotations

from typing import Any, Final

from twisted.logger import Logger

from svc.model.background import PeriodicService, run_in_background
from svc.model.databases import DatabaseIdentity
from svc.model.errors import ReadOnlyStandby, StoreUnavailable
from svc.storage.driver.connection import TIMELINE
from svc.storage.driver.database import Database
from svc.storage.driver.statements import Statement

#: Time between two beats, in seconds.
HEARTBEAT_INTERVAL: Final = 1.0
#: How often a standby is polled in that time.
POLLS_PER_HEARTBEAT: Final = 4
_STANDBY: Final = Statement("replication_standby", "SELECT pg_is_in_recovery()")

# A primary's control file has its timeline after the first checkpoint only. A standby has its primary's.
_IDENTITY: Final = Statement.with_name("replication_identity")(f"""
    SELECT system_identifier,
        CASE WHEN standby THEN (SELECT timeline_id FROM pg_control_checkpoint())
            ELSE {TIMELINE} END,
        (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint, standby
    FROM (SELECT pg_is_in_recovery() AS standby OFFSET 0) AS mode CROSS JOIN pg_control_system()
""")

# A little less than a beat: of several servers one writes the beat, and one that is slightly early doesn't skip its own.
_HEARTBEAT: Final = Statement.with_name("replication_beat")(f"""
    UPDATE heartbeat SET beaten_at = clock_timestamp(), timeline = log.timeline,
        since = CASE WHEN heartbeat.timeline = log.timeline THEN since ELSE clock_timestamp() END
    FROM (SELECT {TIMELINE} AS timeline OFFSET 0) AS log
    WHERE single AND (
        beaten_at NOT BETWEEN clock_timestamp() - interval '0.8 s' AND clock_timestamp()
        OR heartbeat.timeline <> log.timeline
    )
""")

_log = Logger()


class Replication(PeriodicService):
    """Poll whether the database is a standby (Note [Who is a standby]), and write heartbeats when it is not (Note [Beats]).

    ``beats``: whether this process does that; where a server has several one of them does.
    """

    name = "replication"

    def __init__(self, database: Database, clock: Any, *, beats: bool = True) -> None:
        failed = "It could not be found out whether the database is a standby"
        super().__init__(clock, HEARTBEAT_INTERVAL / POLLS_PER_HEARTBEAT, self._poll_role, _log, failed)
        self._database = database
        self._writes_heartbeats = beats
        self._standby: bool | None = None
        self._writing = False
        self._rounds = 0

    @property
    def is_writable(self) -> bool:
        """Return whether the database was a primary when it was last asked; false before the first answer."""
        return self._standby is False

    async def require_primary(self) -> None:
        """Return when a write may begin.

        :raises ReadOnlyStandby: the database is a standby.
        :raises StoreUnavailable: it was a standby at the last answer, and can't be reached now.
        """
        if self._standby is not False and await self.is_standby():
            raise ReadOnlyStandby()

    async def is_standby(self) -> bool:
        """Ask whether the database is a standby.

        :raises StoreUnavailable: it can't be reached.
        """
        ((standby,),) = await self._database.fetch(_STANDBY)
        if standby != self._standby:
            if standby:
                _log.warn("The database is a standby: this server is a follower, and takes no writes")
            elif self._standby:
                _log.warn("The database is a primary now: this server is no follower any more, and takes writes")
        self._standby = standby
        return bool(standby)

    async def read_identity(self) -> DatabaseIdentity:
        """Ask which PostgreSQL this is.

        :raises StoreUnavailable: it can't be reached.
        """
        ((system, timeline, started, standby),) = await self._database.fetch(_IDENTITY)
        # PostgreSQL has no unsigned numbers.
        return DatabaseIdentity(system % (1 << 64), timeline, started, standby)

    async def _poll_role(self) -> None:
        self._rounds += 1
        if self._standby is False and self._rounds % POLLS_PER_HEARTBEAT:
            return
        try:
            standby = await self.is_standby()
        except StoreUnavailable:  # the pool says so in the log
            self._standby = self._standby or None  # A primary may come back as a standby.
        else:
            # Nothing waits for it: a write may hang, as for a synchronous standby, while queries are answered.
            if self._writes_heartbeats and not standby and not self._writing:
                run_in_background(self._write_heartbeat(), _log, "A beat failed")

    async def _write_heartbeat(self) -> None:
        self._writing = True
        try:
            await self._database.change_unreported(_HEARTBEAT)
        except ReadOnlyStandby:
            self._standby = None  # Its role was about to change, or it takes no writes for another reason.
        except StoreUnavailable:
            """The pool says so in the log."""
        finally:
            self._writing = False
