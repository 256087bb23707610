"""Lists of the resources that a role sees, found from the side where there is less to read.

A resource is seen by its owner, through whatever roles, by those who have any privilege on it (ROLE-4), and by those who
inspect it (INS-1).

Note [Starting points and walks]

A viewer who sees three resources of a million must not cost reading the million, nor one who sees them all and asks for the
first ten. So a list is made in one of these ways, the first that applies:

* From starting points, in one statement: what the viewer's roles own, and what is permitted to them, when that is less than
  ``POINTS_MOST`` for fewer than ``ROLES_MOST`` roles. The cost depends on what the viewer sees, wherever it lies; if that is
  more, so many rows are read in vain. If the query names an owner, the resources that the owner's roles own are tried
  before. If there is a policy to inspect among the points, another statement is run, with what lies beneath it, if that is
  as little.
* From the documents that match a search, in one statement, when they are less than ``MATCHES_MOST``, seen or not.
* By a walk through the ids in order, a window of them with each statement, until the list is full. Its viewer sees much, and
  its search finds much, so that this is soon; a count, and an offset, cost what they pass over. No window takes long. Where
  a search goes by class there is a walk for each class.

Each way has candidates, and evaluates them alike. Whether the viewer owns one is searched from both ends, once for each
distinct owner among them, as in ``access_facts``, Note [Standing in one statement]. A candidate that the viewer doesn't own
may be permitted to any of the roles that it holds; these are all read as soon as the first candidate has a permission and
isn't the viewer's. Only where the viewer neither owns nor may do anything with one are owners followed (``invocation``, Note
[From below]). Each window does that again: for a viewer that holds many roles, and doesn't own what the walk passes, it is
slow.

The statements take: the viewer; two texts that the ids lie between; kinds, or NULL; the wanted owner, or NULL; offset and
limit. Then the fields of ``Search`` where there is a search. A count has the limit 0. So that plans don't depend on sizes
(``access_facts``, Note [Plans that last]), no expression with these names is joined to another: where a row is looked for in
one, it is by a subquery which PostgreSQL can only hash, or which ``OFFSET 0`` keeps for itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from svc.model.authorization import INSPECT
from svc.model.names import ACCOUNT_LIMIT, THING_KINDS, is_kind, kind_sort_key
from svc.model.query_results import ResourcesQuery
from svc.storage.driver.columns import to_array
from svc.storage.driver.statements import Fetching, Statement
from svc.storage.sql.access_facts import administrators_of, inspected_query
from svc.storage.sql.search import CLASS, FOUND, MATCHING, QUERY_WORDS

#: With so many roles, or so many starting points, a list is not made from starting points.
ROLES_MOST = 1000
POINTS_MOST = 5000

#: With so many documents that match, a list is not made from these.
MATCHES_MOST = 20_000

#: How many ids a statement of a walk passes: the first at least so many, later ones up to so many.
WINDOW_LEAST = 256
WINDOW_MOST = 65_536

#: After every id: no account's name has more bytes of this.
_LAST: Final = "\U0010ffff" * (ACCOUNT_LIMIT // 4 + 1)

_OF_KINDS: Final = "($4::text[] IS NULL OR split_part(resource_id, ':', 2) = ANY ($4))"
_WITHIN: Final = f"resource_id > $2::text AND resource_id < $3::text AND {_OF_KINDS}"


def _held_query(name: str, parameter: str, limit: str = "") -> str:
    """Return the common table expression of the roles that a role holds; if there are more than a limit, at least so many.

    A role can hold another twice, by ownership and by a grant: half of the rows that are read may be the same roles.
    """
    return f"""
    {name} (role_id) AS (
        VALUES ({parameter}::text COLLATE "C")
        UNION
        SELECT unnest(ARRAY(SELECT role_id FROM memberships WHERE member_id = {name}.role_id {limit})) FROM {name}
    )
    """


_QUERY_WORDS: Final = QUERY_WORDS.format(text="$8::text")
_CLASS: Final = CLASS.format(by_class="$10::boolean", document="found.document")
_HELD_BY_ALL: Final = f"{_held_query('held', '$1')}, {_held_query('held_by_owner', '$5')}"


def _seen_query(*, inspecting: bool) -> str:
    """Return what follows ``candidates (resource_id, owner_id, class)``, each of them once; ``inspecting``: a viewer may."""
    opened = inspected_query("SELECT owner_id FROM owners WHERE wanted AND NOT owned")
    return f"""
    owners (owner_id, owned, wanted) AS MATERIALIZED (
        SELECT
            owner_id,
            EXISTS (SELECT FROM held WHERE role_id = ANY (administrators) OFFSET 0),
            $5::text IS NULL OR EXISTS (SELECT FROM held_by_owner WHERE role_id = ANY (administrators) OFFSET 0)
        FROM (
            SELECT owner_id, ARRAY({administrators_of("different.owner_id")}) AS administrators
            FROM (SELECT DISTINCT owner_id FROM candidates OFFSET 0) AS different
            OFFSET 0
        ) AS administered
    ),
    {f"{opened}," if inspecting else ""}
    seen (resource_id, class) AS MATERIALIZED (
        SELECT resource_id, class FROM candidates
        WHERE (owner_id IN (SELECT owner_id FROM owners WHERE wanted)) IS TRUE AND (
            owner_id IN (SELECT owner_id FROM owners WHERE owned)
            OR EXISTS (
                SELECT FROM permissions
                WHERE permissions.resource_id = candidates.resource_id AND (role_id IN (SELECT role_id FROM held)) IS TRUE
                OFFSET 0
            )
            {"OR (owner_id IN (SELECT id FROM inspected)) IS TRUE" if inspecting else ""}
        )
    )
    """


_ANSWER: Final = """
    (SELECT count(*) FROM seen),
    ARRAY(SELECT resource_id FROM seen ORDER BY class, resource_id LIMIT $7::bigint OFFSET $6::bigint)
"""


def _points_statement(name: str, start: str, *, searching: bool) -> Statement:
    """Return the statement for a list from the points of ``held`` or ``held_by_owner``; first, whether it is complete.

    From ``held`` it is NULL where the viewer inspects something. With this it is made from ``inspected_query``, which are
    the points of ``held`` and what lies beneath.
    """
    roles, points = ("$11::bigint", "$12::bigint") if searching else ("$8::bigint", "$9::bigint")
    seeing, inspecting = start != "held_by_owner", start == "inspected"
    held = _held_query("held", "$1", f"LIMIT 2 * {roles}" * seeing)
    held_by_owner = _held_query("held_by_owner", "$5", f"LIMIT 2 * {roles}" * (not seeing))
    permitted = f"UNION ALL (SELECT resource_id, privilege FROM permissions WHERE role_id = few.role_id LIMIT {points})"
    more = {
        "held": f"AND NULLIF(NOT EXISTS (SELECT FROM points WHERE privilege = '{INSPECT}'), false)",
        "inspected": f"AND (SELECT count(*) FROM beneath) < {points}",
    }.get(start, "")
    matching = f"CROSS JOIN LATERAL {MATCHING.format(split='$9::boolean', resource_id='point.resource_id')}"
    return Statement.with_name(name)(f"""
        WITH RECURSIVE {held}, {held_by_owner}, {f"{_QUERY_WORDS}," if searching else ""}
        few (role_id) AS MATERIALIZED (SELECT role_id FROM {"held" if seeing else start} LIMIT {roles}),
        points (resource_id, privilege) AS MATERIALIZED (
            SELECT point.* FROM few CROSS JOIN LATERAL (
                (SELECT resource_id, NULL::text FROM resources WHERE owner_id = few.role_id LIMIT {points})
                {permitted if seeing else ""}
            ) AS point
            LIMIT {points}
        ),
        {_beneath_query(points) if inspecting else ""}
        extent (complete) AS MATERIALIZED (
            SELECT (SELECT count(*) FROM points) < {points} AND (SELECT count(*) FROM few) < {roles} {more}
        ),
        candidates (resource_id, owner_id, class) AS MATERIALIZED (
            SELECT point.resource_id, resource.owner_id, {_CLASS if searching else "0"}
            FROM (
                SELECT DISTINCT resource_id FROM (
                    SELECT resource_id FROM points {"UNION ALL SELECT resource_id FROM beneath" if inspecting else ""}
                ) AS found
                WHERE (SELECT complete FROM extent) AND {_WITHIN} OFFSET 0
            ) AS point
            CROSS JOIN LATERAL (
                SELECT owner_id FROM resources WHERE resources.resource_id = point.resource_id OFFSET 0
            ) AS resource
            {matching if searching else ""}
        ),
        {_seen_query(inspecting=start != "held")}
        SELECT (SELECT complete FROM extent), {_ANSWER}
    """)


def _beneath_query(most: str) -> str:
    """Return the common table expressions of what the viewer inspects by its ``points``: of one, up to so many.

    Beneath the root lies all of its account. Only what is a role can own anything.
    """
    things = ", ".join(f"'{kind}'" for kind in sorted(THING_KINDS))
    return f"""
        inspecting (inspected_id) AS MATERIALIZED (
            SELECT DISTINCT resource_id FROM points
            WHERE privilege = '{INSPECT}' AND split_part(resource_id, ':', 2) = 'policy'
        ),
        owned_by_inspected (resource_id) AS (
            SELECT inspected_id FROM inspecting WHERE inspected_id <> split_part(inspected_id, ':', 1) || ':policy:root'
            UNION
            SELECT unnest(CASE WHEN split_part(resource_id, ':', 2) NOT IN ({things}) THEN ARRAY(
                SELECT resource_id FROM resources WHERE owner_id = owned_by_inspected.resource_id LIMIT {most}
            ) END) FROM owned_by_inspected
        ),
        beneath (resource_id) AS MATERIALIZED (
            (SELECT resource_id FROM owned_by_inspected LIMIT {most})
            UNION ALL
            SELECT of_account.resource_id FROM inspecting CROSS JOIN LATERAL (
                SELECT resource_id FROM resources
                WHERE resource_id > split_part(inspected_id, ':', 1) || ':'
                    AND resource_id < split_part(inspected_id, ':', 1) || ';'
                LIMIT {most}
            ) AS of_account
            WHERE inspected_id = split_part(inspected_id, ':', 1) || ':policy:root'
        ),
    """


#: The list from the documents that match a search; whether they are fewer than ``$11``, and it is complete, comes first.
_FOUND: Final = Statement.with_name("resources_found")(f"""
    WITH RECURSIVE {_HELD_BY_ALL}, {_QUERY_WORDS},
    matching (resource_id, document) AS MATERIALIZED (
        SELECT resource_id, document FROM {FOUND.format(split="$9::boolean", most="$11::bigint")}
    ),
    extent (complete) AS MATERIALIZED (SELECT count(*) < $11::bigint FROM matching),
    candidates (resource_id, owner_id, class) AS MATERIALIZED (
        SELECT resource.resource_id, resource.owner_id, {_CLASS}
        FROM (SELECT resource_id, document FROM matching WHERE (SELECT complete FROM extent) OFFSET 0) AS found
        CROSS JOIN LATERAL (
            SELECT resource_id, owner_id FROM resources
            WHERE resources.resource_id = found.resource_id AND {_WITHIN} OFFSET 0
        ) AS resource
    ),
    {_seen_query(inspecting=True)}
    SELECT (SELECT complete FROM extent), {_ANSWER}
""")


def _walk_statement(name: str, *, searching: bool) -> Statement:
    """Return the statement for a window of a walk, from ``$2`` on. The last id comes first, or NULL when there are no more.

    Where there is a search, and it goes by class, only what has the class ``$11`` is a candidate.
    """
    window = "$12::bigint" if searching else "$8::bigint"
    found = f"""
        CROSS JOIN LATERAL {MATCHING.format(split="$9::boolean", resource_id="passed.resource_id")}
        WHERE (NOT $10 OR {_CLASS} = $11::integer) AND
    """
    return Statement.with_name(name)(f"""
        WITH RECURSIVE {_HELD_BY_ALL}, {f"{_QUERY_WORDS}," if searching else ""}
        passed (resource_id, owner_id) AS MATERIALIZED (
            SELECT resource_id, owner_id FROM resources WHERE resource_id > $2::text AND resource_id < $3::text
            ORDER BY resource_id LIMIT {window}
        ),
        candidates (resource_id, owner_id, class) AS MATERIALIZED (
            SELECT resource_id, owner_id, 0 FROM passed {found if searching else "WHERE"}
            {_OF_KINDS}
        ),
        {_seen_query(inspecting=True)}
        SELECT (SELECT max(resource_id) FROM passed HAVING count(*) = {window}), {_ANSWER}
    """)


#: By the roles to start from, and whether there is a search.
_POINTS: Final[Mapping[tuple[str, bool], Statement]] = {
    (start, searching): _points_statement(f"resources_of_{start}{'_found' * searching}", start, searching=searching)
    for start in ("held", "inspected", "held_by_owner")
    for searching in (False, True)
}
#: By whether there is a search.
_WALK: Final[Mapping[bool, Statement]] = {
    searching: _walk_statement(f"resources_walk{'_found' * searching}", searching=searching) for searching in (False, True)
}


@attrs.frozen
class Listing:
    """The number of resources found to be seen, and the ids of those asked for."""

    number: int
    ids: list[str]


async def list_visible(database: Fetching, query: ResourcesQuery, *, counting: bool) -> Listing:
    """Return what a query matches. ``number`` is that of all only when it counts, whatever its ``limit`` and ``offset``."""
    kinds = sorted({*filter(is_kind, query.kinds)}, key=kind_sort_key)
    if query.kinds and not kinds:
        return Listing(0, [])
    # Where there is no order, there are no classes.
    by_class = query.search is not None and query.search.by_class and not counting
    asked = _ListParameters(
        str(query.viewer),
        *_id_range(query, kinds),
        to_array(kinds) if kinds else None,
        None if query.owner is None else str(query.owner),
        () if query.search is None else (query.search.text, query.search.split, by_class),
    )
    offset, limit = (0, 0) if counting else (query.offset, query.limit)
    return await _list_at_once(database, asked, offset, limit) or await _walk_all(database, asked, offset, limit, by_class)


async def _list_at_once(database: Fetching, asked: _ListParameters, offset: int, limit: int) -> Listing | None:
    """Return a list that one statement can make: from starting points, or from what matches a search."""
    parameters = asked.as_tuple(asked.after, offset, limit)
    for start in ("held",) if asked.owner is None else ("held_by_owner", "held"):
        for way in (start, "inspected"):
            statement = _POINTS[way, bool(asked.search)]
            ((complete, number, ids),) = await database.fetch(statement, *parameters, ROLES_MOST, POINTS_MOST)
            if complete is not None:
                break
        if complete:
            return Listing(number, ids)
    if asked.search:
        ((complete, number, ids),) = await database.fetch(_FOUND, *parameters, MATCHES_MOST)
        if complete:
            return Listing(number, ids)
    return None


async def _walk_all(database: Fetching, asked: _ListParameters, offset: int, limit: int, by_class: bool) -> Listing:
    """Return a list that is made by walks: one for each class of a search that goes by class."""
    whole = Listing(0, [])
    for rank in range(3) if by_class else range(1):
        part = await _walk_windows(database, asked, rank, max(offset - whole.number, 0), limit - len(whole.ids))
        whole = Listing(whole.number + part.number, whole.ids + part.ids)
        if 0 < limit <= len(whole.ids):
            break
    return whole


@attrs.frozen
class _ListParameters:
    """The parameters of all statements for one list: see Note [Starting points and walks]."""

    viewer: str
    after: str
    beyond: str
    kinds: str | None
    owner: str | None
    search: tuple[object, ...]

    def as_tuple(self, after: str, offset: int, limit: int) -> tuple[object, ...]:
        """Return the parameters of a statement that looks at what lies after an id."""
        return self.viewer, after, self.beyond, self.kinds, self.owner, offset, limit, *self.search


async def _walk_windows(database: Fetching, asked: _ListParameters, rank: int, offset: int, limit: int) -> Listing:
    number, found, after = 0, list[str](), asked.after
    window = min(max(offset + limit, WINDOW_LEAST), WINDOW_MOST)
    while True:
        parameters = asked.as_tuple(after, max(offset - number, 0), limit - len(found))
        more = (rank, window) if asked.search else (window,)
        ((last, seen, ids),) = await database.fetch(_WALK[bool(asked.search)], *parameters, *more)
        number += seen
        found += ids
        if last is None or 0 < limit <= len(found):
            return Listing(number, found)
        after, window = last, min(16 * window, WINDOW_MOST)


def _id_range(query: ResourcesQuery, kinds: list[str]) -> tuple[str, str]:
    """Return what all ids lie between. A semicolon follows the colon in byte order, and a zero the slash."""
    account, below = query.account, query.below
    if account is None:
        after, beyond = "", _LAST
    elif not kinds:
        after, beyond = f"{account}:", f"{account};"
    elif below is None:
        after, beyond = f"{account}:{kinds[0]}:", f"{account}:{kinds[-1]};"
    else:
        (kind,) = kinds
        after, beyond = f"{account}:{kind}:{below}/", f"{account}:{kind}:{below}0"
    return after if query.after is None else max(after, query.after, key=str.encode), beyond
