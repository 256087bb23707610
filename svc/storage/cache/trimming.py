"""Removes rows of changes that every server has seen.

Note [By snapshots, not by times]. A row's transaction may have begun long before it became visible. So only rows below the
oldest transaction of a snapshot taken some minutes ago are removed: every server that polled since saw them. A server that
didn't poll, or has a standby that didn't replay meanwhile, detects that by the number below which rows were removed
(``invalidation_poll``, Note [Missed]). Rows that come from another history, with a dump, have numbers that no transaction of
this one has had; they are removed too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

from twisted.logger import Logger

from svc.model.background import PeriodicService
from svc.model.errors import OutcomeUnknown, ReadOnlyStandby, StoreUnavailable
from svc.storage.driver.statements import Statement, Statements, Transaction

#: Seconds from one round to the next, and for how long rows are kept at least.
INTERVAL: Final = 60.0
RETENTION: Final = 300.0

_OLDEST: Final = Statement("changes_oldest", "SELECT pg_snapshot_xmin(pg_current_snapshot())::text")
# The first server locks the row; the next finds that nothing is left to do.
_REMOVED: Final = Statement.with_name("changes_removed")("""
    UPDATE changes_removed SET below = $1::text::xid8
    WHERE single AND (below < $1::text::xid8 OR below > pg_snapshot_xmax(pg_current_snapshot())) RETURNING single
""")
_REMOVE: Final = Statement("changes_remove", "DELETE FROM changes WHERE xid < $1::text::xid8")
_REMOVE_FOREIGN: Final = Statement(
    "changes_remove_foreign", "DELETE FROM changes WHERE xid >= pg_snapshot_xmax(pg_current_snapshot())"
)

_log = Logger()


class ChangeTrimming(PeriodicService):
    """Removes old rows of changes, unless ``ensure_writable`` raises ``ReadOnlyStandby``."""

    name = "trimming"

    def __init__(self, reactor: Any, database: Statements, ensure_writable: Callable[[], Awaitable[None]]) -> None:
        super().__init__(reactor, INTERVAL, self.trim, _log, "Old rows of changes could not be removed")
        self._reactor = reactor
        self._database = database
        self._demand_primary = ensure_writable
        #: Moments (seconds), each with the oldest transaction that was running then.
        self._snapshots: deque[tuple[float, str]] = deque()

    async def trim(self) -> None:
        """Do one round."""
        try:
            await self._demand_primary()
            now, ((oldest,),) = self._reactor.seconds(), await self._database.fetch(_OLDEST)
            below = "0"
            while self._snapshots and self._snapshots[0][0] <= now - RETENTION:
                below = self._snapshots.popleft()[1]
            self._snapshots.append((now, oldest))
            await self._database.transact(lambda transaction: _remove_rows(transaction, below))
        except (ReadOnlyStandby, StoreUnavailable, OutcomeUnknown):
            # A standby may become the primary of another history.
            self._snapshots.clear()


async def _remove_rows(transaction: Transaction, below: str) -> None:
    await transaction.fetch(_REMOVED, below)
    await transaction.fetch(_REMOVE, below)
    await transaction.fetch(_REMOVE_FOREIGN)
