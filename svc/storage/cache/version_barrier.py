"""Requests that name a version of the state, where answers come from the read cache (CLU-28).

Note [Covered]. That the database has reached a version doesn't mean that the cache has: its state may be as old as the lag.
So the first request for a version makes the cache poll once more when the database has it. Later ones for the same version
need neither, while the polls are of one history, since the cache never goes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from svc.model.errors import StoreUnavailable
from svc.model.names import RoleName
from svc.model.request_notes import request_notes
from svc.model.versions import StateVersion
from svc.storage.cache.read_cache import ReadCache
from svc.storage.driver.progress import Progress

#: How many versions are kept.
_COVERED_MOST: Final = 1000


class VersionBarrier:
    """Delays requests until the database and its read cache have reached their versions."""

    def __init__(self, progress: Progress, memory: ReadCache) -> None:
        self._progress = progress
        self._cache = memory
        self._history = -1
        #: Versions that the cache has. Nothing follows from one for an earlier one: a client may name a version yet to come.
        self._covered: set[StateVersion] = set()

    async def wait_until_reached(self, versions: Sequence[StateVersion], role: RoleName) -> None:
        """See ``Progress``."""
        covered = self._history == self._cache.history and self._covered.issuperset(versions)
        if covered and not self._cache.is_lost:
            return
        try:
            await self._progress.wait_until_reached(versions, role)
        except StoreUnavailable:
            if covered and self._cache.can_serve_stale():
                return
            raise
        if covered:
            return
        if await self._cache.poll_now():
            self._record_covered(versions)
        elif (notes := request_notes()) is not None:
            # The database may have gone since, and the standby that replaces it may be older.
            notes.may_serve_stale = False

    def _record_covered(self, versions: Sequence[StateVersion]) -> None:
        if self._history != self._cache.history or len(self._covered) > _COVERED_MOST:
            self._covered.clear()
        self._history = self._cache.history
        self._covered.update(versions)
