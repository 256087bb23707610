"""Recoveries of accounts on a server's machine, reported by every server in its log and its audit.

Note [Logged by servers]. The command that gives an admin another key works beside the servers, and has neither their log nor
their sinks. So it leaves a row, and each server polls for rows once in ``INTERVAL`` seconds. It reports those of the last
hour: a server that was down meanwhile does so at its start, and one that is started again repeats it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from svc.model.background import PeriodicService
from svc.model.clocks import iso_seconds
from svc.model.errors import AuditUnavailable, StoreUnavailable
from svc.model.events import WARNING, AuditContext, Event, IJournal, Outcome
from svc.model.names import admin_of
from svc.model.text import escape_unprintable

#: Seconds between two polls, and for which a recovery is reported.
INTERVAL: Final = 5.0
REPORT_WINDOW: Final = 3600.0

_log = Logger()


def recovery_event(account: str, by: str) -> Event:
    """Return the event of a recovery: ``by`` is who made it, as far as is known, in words."""
    admin = str(admin_of(account))
    words = f"the admin of the account {account} another API key{by}"
    subject = (("account", account), ("role", admin), ("resource", admin))
    return Event("account", "recover", subject, f"gave {words}", f"give {words}", user="svc", severity=WARNING)


class RecoveryReporter(PeriodicService):
    """Logs and records accounts that were recovered. ``recovered`` returns those of the last seconds, with the moments."""

    name = "recoveries"

    def __init__(
        self,
        clock: IReactorTime,
        recovered: Callable[[float], Awaitable[Sequence[tuple[str, float]]]],
        journal: IJournal,
    ) -> None:
        super().__init__(clock, INTERVAL, self._report_recoveries, _log, "Recoveries could not be reported")
        self._list_recovered, self._journal = recovered, journal
        self._reported: frozenset[tuple[str, float]] = frozenset()

    async def _report_recoveries(self) -> None:
        try:
            found = frozenset(await self._list_recovered(REPORT_WINDOW))
        except StoreUnavailable:
            return
        news, self._reported = sorted(found - self._reported), found
        for account, at in news:
            sentence = "The admin of the account {account} was given another API key on a server's machine, at {at}"
            _log.warn(sentence, account=escape_unprintable(account), at=iso_seconds(at))
            origin = AuditContext(self._journal.server, None, "-", "-")
            try:
                await self._journal.record_events(origin, [recovery_event(account, f", at {iso_seconds(at)}")], Outcome())
            except AuditUnavailable:
                self._reported -= {(account, at)}
