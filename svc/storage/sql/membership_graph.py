"""The graph of memberships around a role, followed step by step, and no further than a bound.

Note [Step by step]

PostgreSQL could follow memberships by itself (see ``access_facts``), but not record the way, nor stop at a number: an admin
holds every role of its account. So it is queried for a batch of memberships at a time, of the roles that the last ones led
to. The event loop turns between two batches; a circle leads to nothing new, and ends.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

from svc.model.errors import TooManyRoles
from svc.model.names import RoleName
from svc.model.query_results import EffectiveMembers, ListingKey, MembersQuery
from svc.storage.driver.columns import to_array
from svc.storage.driver.statements import Statement, Statements
from svc.storage.sql.access_facts import HELD, administrators_query, inspected_query
from svc.storage.sql.search import rank_matches

#: How many roles are followed for one request.
ROLES_LIMIT: Final = 50_000
#: How many memberships between them.
EDGES_LIMIT: Final = 250_000
#: How many memberships away from the role in question: ways are part of the answer, and get longer and longer.
STEPS_LIMIT: Final = 500
#: How many roles one statement takes, and how many memberships it returns: about 5 ms of the reactor.
BATCH: Final = 1000

#: A role, and a direct member of it.
Edge = tuple[str, str]


def _step_statement(name: str, own: str, other: str) -> Statement:
    """Return the statement that leads from the roles ``$1`` in column ``own`` to those in column ``other``, of each from
    behind ``$2`` on, in order. PostgreSQL takes them one after the other (Note [Pages by key] in ``memberships``).
    """
    return Statement.with_name(name)(f"""
        SELECT role_id, member_id FROM unnest($1::text[], $2::text[]) AS asked (id, after), LATERAL (
            SELECT role_id, member_id FROM memberships
            WHERE ({own}, {other}) > (asked.id, asked.after) AND ({own}, {other}) < (asked.id, $3::text)
            ORDER BY {own}, {other} LIMIT $4::bigint
        ) AS next LIMIT $4
    """)


_DOWN: Final = _step_statement("membership_graph_down", "role_id", "member_id")
_UP: Final = _step_statement("membership_graph_up", "member_id", "role_id")

_VISIBLE: Final = Statement.with_name("membership_graph_visible")(f"""
    WITH RECURSIVE {HELD.format(caller="$1")},
    thing AS MATERIALIZED (
        SELECT resource_id, owner_id FROM unnest($2::text[]) AS asked (id), LATERAL (
            SELECT resource_id, owner_id FROM resources WHERE resource_id = asked.id OFFSET 0
        ) AS found
    ),
    {administrators_query("SELECT DISTINCT owner_id, owner_id FROM thing", "owner_id")},
    owner AS MATERIALIZED (
        SELECT owner_id FROM (SELECT DISTINCT owner_id FROM thing) AS asked WHERE EXISTS (SELECT FROM held WHERE role_id IN (
            SELECT role_id FROM administrators WHERE administrators.owner_id = asked.owner_id
        ))
    ),
    {inspected_query("SELECT DISTINCT owner_id FROM thing WHERE owner_id NOT IN (SELECT owner_id FROM owner)")}
    SELECT resource_id FROM thing WHERE owner_id IN (SELECT owner_id FROM owner) OR EXISTS (
        SELECT FROM (SELECT role_id FROM permissions WHERE permissions.resource_id = thing.resource_id OFFSET 0) AS given
        WHERE role_id IN (SELECT role_id FROM held)
    ) OR owner_id IN (SELECT id FROM inspected)
""")


async def list_effective_members(database: Statements, query: MembersQuery) -> EffectiveMembers:
    """See ``RoleStore``."""
    search, after = query.search, query.after
    led_from = await _follow_memberships(database, _DOWN, query.role)
    members = [name for name in sorted(led_from) if not query.kinds or name.split(":", 2)[1] in query.kinds]
    classes: dict[str, int] = {}
    if search is not None:
        matching = await rank_matches(database, search, members)
        members = [member for member in members if member in matching]
        if search.by_class:
            classes = matching
            members.sort(key=matching.__getitem__)
    if after is not None:
        members = [member for member in members if after.is_before(ListingKey(member, rank=classes.get(member)))]
    beyond = None if query.limit is None else query.offset + query.limit
    return EffectiveMembers(str(query.role), members[query.offset : beyond], classes, led_from)


async def list_held_roles(database: Statements, role: RoleName) -> list[str]:
    """See ``RoleStore``."""
    return sorted({str(role), *await _follow_memberships(database, _UP, role)})


async def stream_graph(database: Statements, caller: RoleName, role: RoleName) -> AsyncIterator[Sequence[Edge]]:
    """See ``RoleStore``."""
    around = sorted(
        {str(role), *await _follow_memberships(database, _UP, role), *await _follow_memberships(database, _DOWN, role)}
    )
    seen: list[str] = []
    for start in range(0, len(around), BATCH):
        rows = await database.fetch(_VISIBLE, str(caller), to_array(around[start : start + BATCH]))
        seen.extend(sorted(name for (name,) in rows))
    async for edges in _stream_edges(database, _DOWN, role.account, seen):
        yield edges


async def _follow_memberships(database: Statements, step: Statement, role: RoleName) -> dict[str, str]:
    """Return every role that steps from ``role`` lead to, with the role from which it was reached first: by a shortest way.

    :raises TooManyRoles: one of the limits is exceeded.
    """
    reached: dict[str, str] = {}
    edges = steps = 0
    coming = [str(role)]
    while coming:
        steps += 1
        new: list[str] = []
        async for batch in _stream_edges(database, step, role.account, coming):
            edges += len(batch)
            for here, there in batch if step is _DOWN else ((member, name) for name, member in batch):
                if there not in reached:
                    reached[there] = here
                    if there != str(role):
                        new.append(there)
            if len(reached) > ROLES_LIMIT or edges > EDGES_LIMIT or steps > STEPS_LIMIT:
                raise TooManyRoles(ROLES_LIMIT)
        coming = new
    return reached


async def _stream_edges(
    database: Statements, step: Statement, account: str, roles: Sequence[str]
) -> AsyncIterator[Sequence[Edge]]:
    """Return all memberships of ``roles`` in the direction of ``step``, role by role, each pair once."""
    position, after = 0, ""
    while position < len(roles):
        asked = roles[position : position + BATCH]
        places = [after, *[""] * (len(asked) - 1)]
        # A semicolon follows the colon in byte order.
        rows = await database.fetch(step, to_array(asked), to_array(places), f"{account};", BATCH)
        # A pair that is there twice, for ownership and for a grant, comes so in one batch: the next begins behind both.
        edges: list[Edge] = list(dict.fromkeys(rows))
        if edges:
            yield edges
        if len(rows) < BATCH:
            position, after = position + len(asked), ""
        else:
            here, there = edges[-1] if step is _DOWN else edges[-1][::-1]
            position, after = position + asked.index(here), there
