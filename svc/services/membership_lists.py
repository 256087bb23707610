"""Lists of memberships of any length, read in batches.

Note [Lists of any length]. No list is held in memory: it is read in batches, each from after the last row of the one before,
and written as it is read. So it need not match the state of any one moment; but a row that exists all the time is in it
once. A page of at most one batch is read at once, with one row more that shows whether there is a next page. Of a longer one
the last row is looked up first, since the cursor to the next page is written before the rows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

import attrs

from svc.model.errors import RecordNotFound
from svc.model.query_results import ListingKey, Membership, MembersQuery

R_co = TypeVar("R_co", covariant=True)

#: How many rows are read at once; by a search, which is done again for each batch; and the most that a list can have.
BATCH: Final = 2000
SEARCH_BATCH: Final = 5000
_ROWS_MAX: Final = 2**63 - 1

#: The most rows of a page that is requested again and again.
USUAL: Final = 100


@attrs.frozen
class Page(Generic[R_co]):
    """The rows of one page, in batches; ``last`` is the key of its last row when there is another page."""

    batches: AsyncIterator[Sequence[R_co]]
    last: ListingKey | None


@attrs.frozen
class MembershipList:
    """A list of memberships: ``read`` returns the rows of a query, and ``key_of`` a row's key."""

    read: Callable[[MembersQuery], Awaitable[Sequence[Membership]]]
    key_of: Callable[[Membership], ListingKey]

    async def read_page(self, query: MembersQuery, first: Sequence[Membership]) -> Page[Membership]:
        """Return the page of a query; without a ``limit``, all. ``first`` are the rows of ``first_batch_query(query)``."""
        limit = query.limit
        if limit is not None and limit <= _batch_size(query):
            last = self.key_of(first[limit - 1]) if len(first) > limit else None
            return Page(in_batches(first[:limit]), last)
        last = None if limit is None else await self._find_last_key(query, limit)
        return Page(self.read_batches(query, first, last), last)

    async def read_batches(
        self, query: MembersQuery, rows: Sequence[Membership], last: ListingKey | None = None
    ) -> AsyncIterator[Sequence[Membership]]:
        """Return ``rows``, the first batch from the query's place on, and those after it, up to ``last``, or to the end."""
        batch = _batch_size(query)
        query = attrs.evolve(query, limit=batch)
        while True:
            within = rows if last is None else [row for row in rows if not last.is_before(self.key_of(row))]
            if within:
                yield within
            if len(within) < batch:
                return
            query = attrs.evolve(query, offset=0, after=self.key_of(rows[-1]))
            rows = await self.read(query)

    async def _find_last_key(self, query: MembersQuery, limit: int) -> ListingKey | None:
        """Return the key of the last row of the page, if there is another after it."""
        offset = query.offset + limit - 1
        rows = await self.read(attrs.evolve(query, limit=2, offset=offset)) if offset <= _ROWS_MAX else ()
        return self.key_of(rows[0]) if len(rows) > 1 else None


def first_batch_query(query: MembersQuery) -> MembersQuery:
    """Return the query of the first rows that are read of a list."""
    batch = _batch_size(query)
    return attrs.evolve(query, limit=batch if query.limit is None or query.limit > batch else query.limit + 1)


def _batch_size(query: MembersQuery) -> int:
    return SEARCH_BATCH if query.search else BATCH


async def in_batches(rows: Sequence[R_co]) -> AsyncIterator[Sequence[R_co]]:
    """Return rows that have been read, in batches."""
    for start in range(0, len(rows), BATCH):
        yield rows[start : start + BATCH]


async def require_rows(batches: AsyncIterator[Sequence[R_co]], name: object) -> AsyncIterator[Sequence[R_co]]:
    """Return the same batches, when there is anything in them.

    :raises NotFound: the role or resource ``name`` was deleted after it was read.
    """

    async def chain_batches(first: Sequence[R_co]) -> AsyncIterator[Sequence[R_co]]:
        yield first
        async for batch in batches:
            yield batch

    async for first in batches:
        if first:
            return chain_batches(first)
    raise RecordNotFound.for_name(name)
