"""Listings of memberships: of a role's members, and of a role in others, by page and by search.

Note [Pages by key]

A page begins right after the key of the row before it and ends where it is full. So the rows must be a range of one index,
in its order: a comparison of whole rows, whose first column is the role in question, fits no other index, and PostgreSQL
begins to read at its lower end. (With an additional equality on that column it would begin at the first member.) Where
everybody is wanted from the first on, the equality is enough; comparing rows would take longer than skipping them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Self

import attrs

from svc.model.names import is_role_kind, kind_sort_key
from svc.model.query_results import AccessFacts, CallerOrRole, ListingKey, Membership, MembersQuery
from svc.storage.driver.columns import to_array
from svc.storage.driver.statements import Fetching, Statement, Statements
from svc.storage.sql.access_facts import WITH_ACCESS_FACTS, access_facts_of, caller_parameters
from svc.storage.sql.dependencies import CALLER_NAMES, HELD_NAMES, NONE, cached_statement, name_array
from svc.storage.sql.search import CLASS, FOUND, MATCHING, QUERY_WORDS, SHORT

_PARAMETER: Final = re.compile(r"\$([0-9]+)")
#: Before every row.
_START: Final = ListingKey("")


@attrs.frozen
class MembershipStatements:
    """The memberships that have one role in one column, listed by the other column."""

    _first_page: Statement
    _page: Statement
    _count_all: Statement
    _count: Statement
    _search: Statement
    _count_search: Statement

    @classmethod
    def of_columns(cls, name: str, own: str, other: str) -> Self:
        """Make the statements, named after ``name``, for the rows whose column ``own`` has the role in question."""
        # A range of kinds, narrowed to some of them when they are not all that lie in it.
        of_kinds = f"($4::text[] IS NULL OR split_part({other}, ':', 2) = ANY ($4))"
        range_ = f"({own}, {other}) >= ($1::text, $2::text) AND ({own}, {other}) < ($1, $3::text) AND {of_kinds}"
        rest = (
            f"FROM memberships WHERE ({own}, {other}, ownership) > ($1::text, $2::text, $5::boolean)"
            f" AND ({own}, {other}) < ($1, $3::text) AND {of_kinds}"
        )
        columns = "role_id, member_id, admin_option, ownership, policy_id"
        order = f"ORDER BY {own}, {other}, ownership"
        everyone = f"FROM memberships WHERE {own} = $1::text"
        # See Note [Searches from both ends] in svc/storage/sql/search.py.
        matching = f"""
            WITH {QUERY_WORDS.format(text="$5::text")},
            size (short) AS MATERIALIZED (
                SELECT count(*) <= {SHORT} FROM (SELECT FROM memberships WHERE {range_} LIMIT {SHORT + 1}) AS few
            ),
            matching AS (
                SELECT {columns}, document
                FROM (SELECT {columns} FROM memberships WHERE {range_} OFFSET 0) AS listed,
                    LATERAL {MATCHING.format(split="$6::boolean", resource_id=f"listed.{other}")}
                WHERE (SELECT short FROM size)
                UNION ALL
                SELECT {columns}, document
                FROM {FOUND.format(split="$6", most="NULL")}, LATERAL (
                    SELECT {columns} FROM memberships WHERE {own} = $1 AND {other} = found.resource_id OFFSET 0
                ) AS listed
                WHERE NOT (SELECT short FROM size) AND {of_kinds}
                    AND found.resource_id >= $2 COLLATE "C" AND found.resource_id < $3 COLLATE "C"
            )
        """
        unranked = f"SELECT {columns}, NULL::integer"
        return cls(
            Statement(f"{name}_first", f"{unranked} {everyone} {order} LIMIT $2::bigint OFFSET $3::bigint"),
            Statement(name, f"{unranked} {rest} {order} LIMIT $6::bigint OFFSET $7::bigint"),
            Statement(f"{name}_count_all", f"SELECT count(*) {everyone}"),
            Statement(f"{name}_count", f"SELECT count(*) {rest}"),
            Statement.with_name(f"{name}_search")(f"""
                {matching}
                SELECT {columns}, CASE WHEN $7 THEN rank END
                FROM (
                    SELECT *, {CLASS.format(by_class="$7::boolean", document="document")} AS rank FROM matching OFFSET 0
                ) AS ranked
                WHERE (rank, {other}, ownership) > ($8::integer, $9::text, $10::boolean)
                ORDER BY rank, {other}, ownership LIMIT $11::bigint OFFSET $12::bigint
            """),
            Statement(f"{name}_count_search", f"{matching} SELECT count(*) FROM matching"),
        )

    @property
    def page_statements(self) -> tuple[Statement, ...]:
        """Return the statements for pages."""
        return self._first_page, self._page, self._search

    async def read_page(self, database: Fetching, query: MembersQuery) -> list[Membership]:
        """Return the rows that the query asks for, in order."""
        if (asked := self.page_parameters(query)) is None:
            return []
        return list(map(Membership._make, await database.fetch(*asked)))

    def page_parameters(self, query: MembersQuery) -> tuple[Any, ...] | None:
        """Return the statement for a page, and its parameters; ``None`` when no row can match."""
        search = query.search
        if search is None and not query.kinds and query.after is None:
            return self._first_page, query.role.full_id, query.limit, query.offset
        if (bounds := _range_parameters(query)) is None:
            return None
        role, first, beyond, kinds = bounds
        after = query.after or _START
        if search is None:
            begin, ownership = max((first, False), (after.name, after.ownership))
            return self._page, role, begin, beyond, kinds, ownership, query.limit, query.offset
        rank = -1 if query.after is None else after.rank or 0
        searched = (search.text, search.split, search.by_class, rank, after.name, after.ownership)
        return self._search, *bounds, *searched, query.limit, query.offset

    async def count_rows(self, database: Statements, query: MembersQuery) -> int:
        """Return how many rows match, regardless of pages."""
        if (bounds := _range_parameters(query)) is None:
            return 0
        if query.search is None and not query.kinds:
            ((count,),) = await database.fetch(self._count_all, bounds[0])
        elif query.search is None:
            ((count,),) = await database.fetch(self._count, *bounds, False)
        else:
            ((count,),) = await database.fetch(self._count_search, *bounds, query.search.text, query.search.split)
        return int(count)


@attrs.frozen
class MembershipsWithFacts:
    """A listing that is read in one statement with the caller's access facts; without any, the caller reads no rows."""

    _listing: MembershipStatements
    _pages: Mapping[str, Statement]

    @classmethod
    def of(cls, listing: MembershipStatements) -> Self:
        """Make the statements from those of a listing, where the role is ``$1`` and here ``$2``."""
        first, *others = listing.page_statements
        names, known = name_array(("r", "$2"), ("g", "$2")), "caller_current IS NOT NULL AND resource_exists"
        name, sql = f"{first.name}_judged", _facts_query(first)
        statements: list[Statement] = [cached_statement(name, sql, HELD_NAMES, CALLER_NAMES, names, known=known)]
        statements += [Statement(f"{page.name}_judged", _facts_query(page)("")) for page in others]
        return cls(listing, {page.name: each for page, each in zip(listing.page_statements, statements, strict=True)})

    async def read_page(
        self, database: Statements, caller: CallerOrRole, query: MembersQuery, *, whole: bool
    ) -> tuple[AccessFacts, list[Membership]] | None:
        """Return the caller's access facts and the rows that the query asks for, in order; ``None`` when none can match."""
        if (asked := self._listing.page_parameters(query)) is None:
            return None
        page, role, *rest = asked
        asker, numbers = caller_parameters(caller)
        fetch = database.fetch if whole else database.fetch_uncached
        rows = iter(await fetch(self._pages[page.name], asker, role, numbers, *rest))
        (facts, *_) = next(rows)
        return access_facts_of(tuple(json.loads(facts))), list(map(Membership._make, rows))


def _facts_query(page: Statement) -> Callable[[str], str]:
    """Return the SQL for a page whose first row has the access facts, as JSON: columns would cost in every row."""
    shifted = _PARAMETER.sub(lambda found: "$2" if found[1] == "1" else f"${int(found[1]) + 2}", page.sql)
    return lambda more: (
        f"""
        {WITH_ACCESS_FACTS}
        SELECT
            json_build_array(caller_current, resource_exists, owns, privileges, holds, policy_id)::text,
            NULL, NULL, NULL, NULL, NULL{more}
        FROM access_facts
        UNION ALL
        SELECT *{NONE if more else ""} FROM ({shifted}) AS page
        WHERE (SELECT owns OR holds OR privileges <> '{{}}' FROM access_facts)
    """
    )


def _range_parameters(query: MembersQuery) -> tuple[Any, ...] | None:
    """Return the role, the ends of the range in which the rows lie, and the kinds when others lie in it too; ``None`` when
    no role has any of the kinds asked for. Members are of the role's own account, so those of a kind are a range of the key.
    """
    account = query.role.account
    if not query.kinds:
        return query.role.full_id, f"{account}:", f"{account};", None
    kinds = sorted({*filter(is_role_kind, query.kinds)}, key=kind_sort_key)
    if not kinds:
        return None
    narrowed = to_array(kinds) if len(kinds) > 1 else None
    # A semicolon follows the colon in byte order; no id ends with the colon that follows its kind.
    return query.role.full_id, f"{account}:{kinds[0]}:", f"{account}:{kinds[-1]};", narrowed


MEMBERS: Final = MembershipStatements.of_columns("members", "role_id", "member_id")
MEMBERS_WITH_FACTS: Final = MembershipsWithFacts.of(MEMBERS)
MEMBERSHIPS: Final = MembershipStatements.of_columns("memberships", "member_id", "role_id")
