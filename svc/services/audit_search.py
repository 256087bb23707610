"""The use case of searching the audit files of all servers of the cluster, logins and reads included (AUD-63).

Note [Whose records]. The files of a server have the records of all accounts. A search is of the caller's account alone, and
of the time since that was made, so that nobody reads the records of a deleted account of the same name (AUD-26). A role that
owns or inspects the root policy searches all of them; others name a role or resource that they own or inspect (AUD-29).

Note [One order]. Each server returns a page in the same order, by keys that depend on the records alone. So pages can be
merged, and a record that two servers have is found once. Beyond the end of a page that has more, nothing is known of its
server: the merged page ends there too.
"""

from __future__ import annotations

import heapq
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final

import attrs
from twisted.internet.defer import CancelledError, Deferred

from svc.audit.record_files import RecordQuery
from svc.audit.record_search import PAGE_BYTES, RecordKey, RecordsPage, RecordsQuestion
from svc.model.clocks import iso_milliseconds
from svc.model.errors import AuditSearchUnavailable, Forbidden, RecordNotFound
from svc.model.names import ResourceName
from svc.services.invocation import Invocation, can_read_all, require_inspection
from svc.storage.events import EventStore
from svc.storage.roles import RoleStore

SearchRecords = Callable[[RecordsQuestion], Awaitable[RecordsPage]]

#: Later than any record.
_NEVER: Final = "~"


@attrs.frozen
class FoundRecord:
    """The line of a record, and the server that has it."""

    server: str
    line: bytes


@attrs.frozen
class RecordsFound:
    """Records of several servers, newest first, and the key to go on ``after``, ``None`` at the end.

    ``faults`` says of each server why some of its records may be missing.
    """

    records: tuple[FoundRecord, ...]
    after: RecordKey | None
    faults: Mapping[str, Sequence[str]]


@attrs.frozen
class SearchedThings:
    """The names that a search is narrowed to, each ``None`` where it isn't."""

    role: ResourceName | None = None
    resource: ResourceName | None = None
    about: ResourceName | None = None

    @property
    def names(self) -> list[ResourceName]:
        """Those that there are."""
        return [name for name in (self.role, self.resource, self.about) if name is not None]


@attrs.frozen
class AuditSearchService:
    """Searches this server, called ``own_name``, and the ``members`` of its cluster, by name."""

    own_name: str
    search_own: SearchRecords
    members: Mapping[str, SearchRecords]
    events: EventStore
    roles: RoleStore

    async def search_records(
        self,
        invocation: Invocation,
        query: RecordQuery,
        things: SearchedThings,
        limit: int,
        after: RecordKey | None = None,
    ) -> RecordsFound:
        """Return the newest records of the caller's account that match, before the one of the key ``after``.

        ``query`` names no role or resource: ``things`` does.

        :raises RecordNotFound: one of the things is of another account, or the caller may not know that it exists.
        :raises Forbidden: the caller may not read what is asked for (Note [Whose records]).
        :raises AuditSearchUnavailable: this server can't search now.
        """
        account = invocation.caller.role.account
        reads_all = await self._require_permission(invocation, things)
        began = await self.events.account_began(account)
        # Of an account that is gone since the token was verified, there is nothing.
        since = _NEVER if began is None else max(query.since, iso_milliseconds(began).replace("+00:00", "Z"))
        narrowed = {name: str(value) for name, value in attrs.asdict(things, recurse=False).items() if value is not None}
        narrow = attrs.evolve(query, since=since, **narrowed)
        question = RecordsQuestion(narrow, account, limit, after, str(invocation.caller.role), reads_all)
        pages = {} if since == _NEVER else await self._ask_all(question)
        records, last = merge_pages(pages, limit)
        return RecordsFound(tuple(records), last, {name: page.faults for name, page in pages.items()})

    async def _require_permission(self, invocation: Invocation, things: SearchedThings) -> bool:
        """Return whether the caller may read all records of the account, and not only those of these things."""
        for name in things.names:
            if name.account != invocation.caller.role.account:
                raise RecordNotFound.for_name(name)
        if await can_read_all(self.roles, invocation.caller):
            return True
        if not things.names:
            raise Forbidden("neither owns nor inspects the root policy, which a search of all records takes")
        for name in things.names:
            await require_inspection(self.roles, invocation.caller, name)
        return False

    async def _ask_all(self, question: RecordsQuestion) -> dict[str, RecordsPage]:
        """Ask all servers at the same time; when one refuses, or the client is gone, no question goes on."""
        own_name = "this server" if self.own_name in self.members else self.own_name
        searches = {own_name: self.search_own, **self.members}
        begun = {name: Deferred.fromCoroutine(_ask(search, question)) for name, search in searches.items()}
        try:
            return {name: await each for name, each in begun.items()}
        finally:
            for each in begun.values():
                each.cancel()
                each.addErrback(lambda failure: failure.trap(CancelledError, AuditSearchUnavailable))


async def _ask(search: SearchRecords, question: RecordsQuestion) -> RecordsPage:
    return await search(question)


def merge_pages(pages: Mapping[str, RecordsPage], limit: int) -> tuple[list[FoundRecord], RecordKey | None]:
    """Return the records of servers' pages, and the key to go on after, ``None`` at the end (Note [One order])."""
    known = max((RecordKey.of_line(page.lines[-1]) for page in pages.values() if page.more), default=None)
    records: list[FoundRecord] = []
    last: RecordKey | None = None
    size = 0
    for key, server, line in heapq.merge(
        *(_keyed_lines(name, page) for name, page in pages.items()), key=lambda found: found[0], reverse=True
    ):
        if key == last:
            continue
        size += len(line)
        if len(records) == limit or (records and size > PAGE_BYTES) or (known is not None and key < known):
            return records, last
        records.append(FoundRecord(server, line))
        last = key
    return records, None if known is None else last


def _keyed_lines(server: str, page: RecordsPage) -> Iterator[tuple[RecordKey, str, bytes]]:
    return ((RecordKey.of_line(line), server, line) for line in page.lines)
