"""Purges deleted records when their retention is over, or their account has too many, and kept answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from svc.model.background import PeriodicService
from svc.model.counts import PurgeCounts
from svc.model.errors import OutcomeUnknown, ReadOnlyStandby, StoreUnavailable
from svc.model.text import escape_unprintable
from svc.storage.deleted_records import DeletedStore
from svc.storage.idempotency import IdempotencyStore

#: Seconds from one round to the next.
INTERVAL: Final = 60.0

_log = Logger()


class PurgeService(PeriodicService):
    """Purges deleted records and kept answers at a steady pace, unless ``ensure_writable`` raises ``ReadOnlyStandby``."""

    name = "purging"

    def __init__(
        self,
        clock: IReactorTime,
        records: DeletedStore,
        answers: IdempotencyStore,
        ensure_writable: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(clock, INTERVAL, self.purge_expired, _log, "Deleted records and kept answers could not be purged")
        self._records, self._answers, self._demand_primary = records, answers, ensure_writable
        self._counts = PurgeCounts()

    def purge_counts(self) -> PurgeCounts:
        """Return the counts, as they were after the last round."""
        return self._counts

    async def purge_expired(self) -> None:
        """Do one round."""
        try:
            await self._demand_primary()
            await self._answers.purge_expired()
            old, excess = await self._records.purge_old(), await self._records.enforce_limits()
            kept = await self._records.read_usage()
        except (ReadOnlyStandby, StoreUnavailable, OutcomeUnknown):
            return
        if old:
            _log.info("{count} deleted records were purged: their time is over", count=old)
        warning = (
            "{count} deleted records of the account {account}, the oldest, were purged: it has more than --deleted-limit"
        )
        for account, count in excess.items():
            _log.warn(warning, count=count, account=escape_unprintable(account))
        before = self._counts
        self._counts = PurgeCounts(kept.records, kept.bytes, before.old + old, before.excess + sum(excess.values()))
