"""Parameters that choose a part of a list, and the link to its next page."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from svc.model.errors import InvalidParameter
from svc.model.query_results import ListingKey, Search
from svc.web.http.declarations import Parameter, ParameterSource
from svc.web.http.messages import HeaderPairs, Response
from svc.web.http.query import Query
from svc.web.http.shapes import BOOLEAN, INTEGER, TEXT, object_shape
from svc.web.routes.cursors import encode_cursor, parse_cursor

#: Longest text of a search, in bytes of UTF-8.
SEARCH_LIMIT: Final = 4096

#: The answer to ``count``.
COUNT_SHAPE: Final = object_shape({"count": INTEGER})


def _read_search(source: ParameterSource) -> Search | None:
    """Read ``search``; ``None`` when it is absent or bare (RES-12)."""
    text, dialect = source.query.text("search"), source.dialect
    if text is None:
        return None
    if len(text.encode("utf-8", "surrogatepass")) > SEARCH_LIMIT:
        raise InvalidParameter("search", f"'search' is at most {SEARCH_LIMIT} bytes long")
    return Search(text, dialect.search_splits_values, dialect.search_by_class)


def _read_cursor(source: ParameterSource) -> ListingKey | None:
    """Read ``cursor``, which fits the search that it comes with."""
    query, text = source.query, source.query.text("cursor")
    if not query.has_flag("cursor"):
        return None
    search = _read_search(source)
    if query.has_flag("offset"):
        raise InvalidParameter("cursor", "'cursor' and 'offset' can't be given together")
    return parse_cursor(text or "", ranked=search is not None and search.by_class)


def _read_count(source: ParameterSource) -> bool:
    """Read ``count`` (ROLE-21), which in one dialect may have any value."""
    return source.query.has_flag("count") if source.dialect.count_by_presence else source.query.boolean("count")


LIMIT: Final = Parameter.positive_integer("limit", "the most that the page has")
OFFSET: Final = Parameter.natural("offset", "how many before the page are left out")
CURSOR: Final = Parameter(
    "cursor", _read_cursor, TEXT, "where the page before ended, as its link says", field="after", key="cursor"
)
SEARCH: Final = Parameter("search", _read_search, TEXT, "words that are found in what is listed", key="search")
KIND: Final = Parameter.texts("kind", "the kinds that are listed, all unless there are some", field="kinds")
COUNT: Final = Parameter(
    "count", _read_count, BOOLEAN, "whether to return the length of the list instead of the list", key="count", absent=False
)


#: The parameters that choose a part of a list.
PART_PARAMETERS: Final = ("limit", "offset", "cursor", "kind", "search")


def refuse_parts(query: Query, what: str, *parts: str) -> None:
    """Refuse these parameters, which a question that answers all it has would ignore without a sign.

    :raises InvalidParameter: one is there, with brackets or without.
    """
    given = {name.partition("[")[0] for name, _ in query.pairs}
    for part in parts:
        if part in given:
            raise InvalidParameter(part, f"'{part}' has no effect here: {what} lists all, and has no pages")


def count_response(number: int) -> Response:
    """Return the answer to ``count``."""
    return Response.json({"count": number})


def next_page_link(path: str, last: ListingKey, limit: int | None, asked: Query) -> HeaderPairs:
    """Return the ``Link`` header to the page behind ``last`` (RFC 8288), with the query that was ``asked``."""
    kept = [pair for pair in asked.pairs if pair[0] not in {"cursor", "offset", "limit"}]
    pairs = [*kept, ("limit", str(limit)), ("cursor", encode_cursor(last))]
    parameters = "&".join("=".join(quote(text, safe="[]") for text in pair if text is not None) for pair in pairs)
    return (("Link", f'<{path}?{parameters}>; rel="next"'),)
