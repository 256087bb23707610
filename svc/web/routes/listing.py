"""How much of a list a request asks for, and the answer to it: all of it, a page, or its length.

Note [Lists of any length]

Nobody knows how long a list is, and none is held in memory: it is read in batches, each from behind the last row of the one
before, and written as it is read. So it need not be what it was at any one moment; but what was there all the time is in it
once. A page is as long as ``limit`` says; that of at most one batch is read at once, with one row more that tells whether
there is a next page. Of a longer one the last row is looked up first, since the cursor to the next page goes before it all.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar
from urllib.parse import quote

import attrs

from svc.model.dialect import Dialect
from svc.model.errors import InvalidParameter
from svc.model.names import RoleName
from svc.model.query_results import MembersQuery, Place, Search
from svc.web.http.query import Query
from svc.web.http.response import HeaderPairs, Response
from svc.web.routes.cursors import cursor_of, place_of

R = TypeVar("R")

#: How many rows are read at once. How many are written as one piece goes by their bytes (``response``, ``PIECE``).
BATCH: Final = 1000

#: The same for a search, which begins anew for each batch.
SEARCH_BATCH: Final = 5000

#: How many rows a page has when ``offset`` is given without ``limit`` (source document, endpoint 6).
PAGE: Final = 10

#: Longest text of a search, in bytes of UTF-8.
SEARCH_LIMIT: Final = 4096

#: No list is longer.
_ROWS_MAX: Final = 2**63 - 1


def counted(query: Query, dialect: Dialect) -> bool:
    """Whether the length of a list is asked for, instead of the list (rulings: two dialects, ``count``)."""
    return query.flag("count") if dialect.count_by_presence else query.boolean("count")


def search_in(query: Query, dialect: Dialect) -> Search | None:
    """What ``search`` asks for; ``None`` when it is absent or bare (wire facts, core 2).

    :raises InvalidParameter: it is longer than ``SEARCH_LIMIT``, or repeated.
    """
    text = query.text("search")
    if text is None:
        return None
    if len(text.encode("utf-8", "surrogatepass")) > SEARCH_LIMIT:
        raise InvalidParameter("search", f"'search' is at most {SEARCH_LIMIT} bytes long")
    return Search(text, dialect.search_splits_values, dialect.search_by_class)


def members_query(query: Query, role: RoleName, dialect: Dialect) -> MembersQuery:
    """What a query asks for of a role's members.

    :raises InvalidParameter: a parameter is not what it has to be; ``cursor`` and ``offset`` stand together.
    """
    limit, offset, cursor = query.positive_integer("limit"), query.natural("offset"), query.text("cursor")
    search = search_in(query, dialect)
    if query.flag("cursor"):
        if offset is not None:
            raise InvalidParameter("cursor", "'cursor' and 'offset' can't be given together")
        after = place_of(cursor or "", ranked=search is not None and search.by_class)
    else:
        after = None
    if limit is None and offset is not None:
        limit = PAGE
    return MembersQuery(role, query.texts("kind"), limit, offset or 0, search, after)


@attrs.frozen
class Listed(Generic[R]):
    """A list of rows, asked about by batch.

    ``read`` returns the rows of a query; ``place`` is a row's key; ``shown`` is what JSON has of it.
    """

    read: Callable[[MembersQuery], Awaitable[Sequence[R]]]
    place: Callable[[R], Place]
    shown: Callable[[R], object]

    async def answer(self, query: MembersQuery, asked: Query) -> Response:
        """The rows that are asked for; with a ``Link`` to the next page when ``limit`` leaves some.

        :param asked: the query as it came, which the link repeats.
        """
        limit, batch = query.limit, SEARCH_BATCH if query.search else BATCH
        if limit is not None and limit <= batch:
            rows = await self.read(attrs.evolve(query, limit=limit + 1))
            last = self.place(rows[limit - 1]) if len(rows) > limit else None
            page = [self.shown(row) for row in rows[:limit]]
            return await Response.json_array(in_batches(page), link(last, query, asked))
        last = None if limit is None else await self._last(query, limit)
        batches = ([self.shown(row) for row in rows] async for rows in self.batches(query, batch, last))
        return await Response.json_array(batches, link(last, query, asked))

    async def batches(self, query: MembersQuery, batch: int = BATCH, last: Place | None = None) -> AsyncIterator[list[R]]:
        """All rows from the query's place on, up to ``last``, or to the end."""
        query = attrs.evolve(query, limit=batch)
        while True:
            rows = await self.read(query)
            within = [row for row in rows if last is None or not last.before(self.place(row))]
            if within:
                yield within
            if len(within) < batch:
                return
            query = attrs.evolve(query, offset=0, after=self.place(rows[-1]))

    async def _last(self, query: MembersQuery, limit: int) -> Place | None:
        """The key of the last row of the page, if there is another behind it."""
        offset = query.offset + limit - 1
        rows = await self.read(attrs.evolve(query, limit=2, offset=offset)) if offset <= _ROWS_MAX else ()
        return self.place(rows[0]) if len(rows) > 1 else None


async def in_batches(rows: Sequence[object]) -> AsyncIterator[Sequence[object]]:
    """Rows that are at hand, to be written in pieces."""
    for start in range(0, len(rows), BATCH):
        yield rows[start : start + BATCH]


def link(last: Place | None, query: MembersQuery, asked: Query) -> HeaderPairs:
    """The ``Link`` header to the page behind ``last`` (RFC 8288); none when that is ``None``.

    :param asked: the query as it came, which the link repeats but for the cursor.
    """
    if last is None:
        return ()
    role = query.role
    path = "/".join(quote(part, safe="") for part in (role.account, role.kind, role.identifier))
    kept = [pair for pair in asked.pairs if pair[0] not in {"cursor", "offset", "limit"}]
    pairs = [*kept, ("limit", str(query.limit)), ("cursor", cursor_of(last))]
    parameters = "&".join(_written(name) + ("" if value is None else f"={_written(value)}") for name, value in pairs)
    return (("Link", f'</roles/{path}?{parameters}>; rel="next"'),)


def _written(text: str) -> str:
    return quote(text, safe="[]")
