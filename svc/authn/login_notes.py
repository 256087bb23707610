"""Logins, noted in memory and written down later: which day a role logged in last.

Note [No write of its own]. A login notes its role here, and that is all it costs. Every minute, and when many are noted, the
notes are written in batches; written roles are kept in memory until the day is over, so that a role is written once a day by
each process, and once more where a user has come by another directory. When the server stops, the rest is written. A killed
process loses the notes since its last round: one login in a minute. Of directories that take turns within a day, at several
processes, another than the last may be kept until the next day.

Note [Bounded]. The number of roles in memory is limited. When there are more, those that have been written are dropped, and
written once more if they log in again; while nothing can be written, further roles aren't noted, and the log says how many
logins that were. A follower can't write at all: it notes until it is full, and writes when it has become a primary.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from twisted.internet.defer import CancelledError, Deferred, DeferredLock
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from svc.model.authentication import DAY, Admitted, LoginRecord
from svc.model.background import PeriodicService, run_in_background
from svc.model.clocks import WallClock
from svc.model.errors import OutcomeUnknown, StoreReadOnly, StoreUnavailable
from svc.model.names import RoleName
from svc.storage.last_logins import LastLoginStore

#: Seconds between two rounds, and for which the last one may take.
INTERVAL: Final = 60.0
LAST_ROUND: Final = 5.0

#: The most roles in memory, and the number of unwritten ones at which they are written at once.
MAX_ROLES: Final = 50_000
FLUSH_COUNT: Final = 10_000

#: How many are written by one statement.
BATCH: Final = 1000

_log = Logger()
_FAILED: Final = "Last logins could not be written"


class LastLoginRecorder(PeriodicService):
    """The notes of one process; nothing is written while ``demand_primary`` raises ``StoreReadOnly``."""

    name = "login notes"

    def __init__(
        self,
        clock: IReactorTime,
        wall: WallClock,
        store: LastLoginStore,
        demand_primary: Callable[[], Awaitable[None]],
        *,
        most: int = MAX_ROLES,
        many: int = FLUSH_COUNT,
    ) -> None:
        super().__init__(clock, INTERVAL, self.write_notes, _log, _FAILED)
        self._clock, self._wall = clock, wall
        self._store, self._demand_primary = store, demand_primary
        self._max_roles, self._flush_count = most, many
        self._day = 0
        #: Creations of the roles that logged in on this day, each with the directory that was noted last, if any was.
        self._noted_today: dict[RoleName, tuple[int, str | None]] = {}
        self._unwritten: dict[RoleName, LoginRecord] = {}
        self._lost_count = 0
        self._is_follower = False
        self._writing = DeferredLock()

    def note_login(self, admitted: Admitted) -> None:
        """Note a role that has logged in (Note [No write of its own])."""
        day = int(self._wall.seconds()) // DAY
        if day != self._day:
            self._day = day
            self._noted_today = {}
        role, creation = admitted.role, admitted.creation
        directory = admitted.directory if role.kind == "user" else None  # hosts have none
        known, known_directory = self._noted_today.get(role, (None, None))
        if known == creation and directory in {None, known_directory}:
            return
        self._add_note(LoginRecord(role, creation, day, directory))

    def note_directory(self, admitted: Admitted) -> None:
        """Note the directory of a user who was given an API key, which is no login yet (END-20)."""
        waiting, noted = self._unwritten.get(admitted.role), (admitted.creation, admitted.directory)
        if waiting is None or (waiting.creation, waiting.directory) != noted:
            self._add_note(LoginRecord(admitted.role, admitted.creation, None, admitted.directory))

    def _add_note(self, noted: LoginRecord) -> None:
        role, waiting = noted.role, self._unwritten.get(noted.role)
        if waiting is not None and waiting.creation == noted.creation:
            day = waiting.day if noted.day is None else noted.day
            directory = waiting.directory if noted.directory is None else noted.directory
            noted = LoginRecord(role, noted.creation, day, directory)
        if waiting is None and len(self._unwritten) >= self._max_roles:
            self._lost_count += noted.day is not None
            return
        if noted.day is not None and len(self._noted_today) >= self._max_roles:
            today = (each for each in self._unwritten.values() if each.day == self._day)
            self._noted_today = {each.role: (each.creation, each.directory) for each in today}
        if noted.day is not None or self._noted_today.get(role, (None, None))[0] == noted.creation:
            self._noted_today[role] = noted.creation, noted.directory
        self._unwritten[role] = noted
        if len(self._unwritten) >= self._flush_count and not self._writing.locked and not self._is_follower:
            run_in_background(self.write_notes(), _log, _FAILED)

    async def write_notes(self) -> None:
        """Write what is noted, as far as that can be done now."""
        await self._writing.run(lambda: Deferred.fromCoroutine(self._write_batches()))

    def stopService(self) -> Deferred[None]:
        """Write the rest, as far as that can be done soon."""
        super().stopService()
        written = Deferred.fromCoroutine(self.write_notes()).addTimeout(LAST_ROUND, self._clock)
        written.addErrback(lambda failure: failure.trap(DeferredTimeout, CancelledError) and None)
        return written.addCallback(lambda _: self._log_unwritten())

    async def _write_batches(self) -> None:
        noted = list(self._unwritten.values())
        try:
            for start in range(0, len(noted), BATCH):
                await self._demand_primary()
                some = noted[start : start + BATCH]
                locked = set(await self._store.record_logins(some))
                for each in some:
                    if each not in locked and self._unwritten.get(each.role) is each:
                        del self._unwritten[each.role]
                self._is_follower = False
        except StoreReadOnly:
            self._is_follower = True
        except (StoreUnavailable, OutcomeUnknown):
            """The pool says so in the log, and the next round tries again."""
        lost, self._lost_count = self._lost_count, 0
        if lost and not self._is_follower:
            _log.warn("{count} logins aren't kept as last logins: there are too many to be written", count=lost)

    def _log_unwritten(self) -> None:
        if self._unwritten and not self._is_follower:
            warning = "The last logins of {count} roles aren't kept: they could not be written before the end"
            _log.warn(warning, count=len(self._unwritten))
