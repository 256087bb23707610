"""The store of effective policies on PostgreSQL: read from one snapshot, and never beyond the overall limit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import attrs

from svc.model.names import ACTING_KINDS, RoleName, is_other_kind, is_role_kind, root_policy
from svc.model.policy_loads import (
    AnnotationRow,
    EffectivePolicyRows,
    EffectiveQuery,
    Excess,
    MembershipRow,
    PermissionRow,
    ResourceRow,
    RestrictionRow,
    Rows,
)
from svc.model.query_results import Sealed
from svc.storage.driver.columns import fetch_for_rows, rows_of, to_array
from svc.storage.driver.statements import Statement, Statements, Transaction
from svc.storage.sql.impact import filter_visible
from svc.storage.sql.kinds import kinds_in
from svc.storage.sql.mapped_memberships import NOT_MAPPED
from svc.storage.sql.policy_versions import read_current_version

#: The most rows of a sort that are read, whatever the limit of the query (POL-81).
MOST: Final = 100_000

#: The most bytes of ids and texts that are read: twice as many as a document may have.
BYTES_MOST: Final = 64 * 1024 * 1024

#: The greatest depth of ids, for queries that don't set one.
_ANY_DEPTH: Final = 1_000_000

#: The account's resources within spans of ids; a span has its first id, and the first beyond. Note [Plans that last].
_THINGS: Final = f"""
    thing (resource_id, owner_id) AS MATERIALIZED (
        SELECT found.resource_id, found.owner_id
        FROM unnest($1::text[], $2::text[]) AS span (first, beyond), LATERAL (
            SELECT resource_id, owner_id FROM resources
            WHERE resource_id >= span.first AND resource_id < span.beyond
                AND split_part(resource_id, ':', 2) <> ALL ($3::text[])
                AND length(resource_id) - length(replace(resource_id, '/', '')) <= $4::integer
            OFFSET 0
        ) AS found
        LIMIT {MOST + 1}
    )
"""


def _weight_expression(sort: str, table: str, key: str, texts: str, condition: str = "") -> str:
    """Return the common table expression ``sort (bytes)``: the length of the texts in each row of a table about things."""
    return f"""
    {sort} (bytes) AS MATERIALIZED (
        SELECT of_thing.bytes FROM thing, LATERAL (
            SELECT {texts} AS bytes FROM {table} WHERE {table}.{key} = thing.resource_id {condition} OFFSET 0
        ) AS of_thing LIMIT {MOST + 1}
    )
    """


_BYTES: Final = " + ".join(
    f"(SELECT coalesce(sum(bytes), 0)::bigint FROM {sort})"
    for sort in ("annotation", "permission", "membership", "restriction")
)

_NO_OWNERSHIP: Final = f"AND NOT ownership AND {NOT_MAPPED}"

#: How many rows of each sort there are, and how many bytes in all; no sort is counted further than one beyond ``MOST``.
_EXTENT: Final = Statement.with_name("effective_extent")(f"""
    WITH {_THINGS},
    {_weight_expression("annotation", "annotations", "resource_id", "octet_length(name) + octet_length(value)")},
    {_weight_expression("permission", "permissions", "resource_id", "octet_length(privilege) + octet_length(role_id)")},
    {_weight_expression("membership", "memberships", "role_id", "octet_length(member_id)", _NO_OWNERSHIP)},
    {_weight_expression("restriction", "restrictions", "role_id", "octet_length(cidr)")}
    SELECT
        (SELECT count(*) FROM thing), (SELECT count(*) FROM annotation), (SELECT count(*) FROM permission),
        (SELECT count(*) FROM membership), (SELECT count(*) FROM restriction),
        (SELECT coalesce(sum(octet_length(resource_id) + octet_length(owner_id)), 0)::bigint FROM thing) + {_BYTES}
""")
_RESOURCES: Final = Statement("effective_resources", f"WITH {_THINGS} SELECT resource_id, owner_id FROM thing")
_ANNOTATIONS: Final = Statement.with_name("effective_annotations")(
    f"SELECT resource_id, name, value FROM {rows_of('text')} AS thing (resource_id) JOIN annotations USING (resource_id)"
)
_PERMISSIONS: Final = Statement.with_name("effective_permissions")(f"""
    SELECT resource_id, privilege, role_id FROM {rows_of("text")} AS thing (resource_id) JOIN permissions USING (resource_id)
    WHERE EXISTS (SELECT FROM resources WHERE resources.resource_id = permissions.role_id OFFSET 0)
""")
_MEMBERSHIPS: Final = Statement.with_name("effective_memberships")(f"""
    SELECT thing.role_id, member_id, ownership, admin_option FROM unnest($1::text[]) AS thing (role_id), LATERAL (
        SELECT member_id, ownership, admin_option FROM memberships
        WHERE memberships.role_id = thing.role_id AND {NOT_MAPPED} OFFSET 0
    ) AS membership
    WHERE NOT ownership AND EXISTS (SELECT FROM resources WHERE resources.resource_id = membership.member_id OFFSET 0)
""")
_LAYERS: Final = Statement.with_name("effective_layers")("""
    SELECT role_id, member_id, ownership, admin_option FROM unnest($1::text[]) AS thing (member_id), LATERAL (
        SELECT role_id, ownership, admin_option FROM memberships WHERE memberships.member_id = thing.member_id OFFSET 0
    ) AS membership
    WHERE NOT ownership AND split_part(role_id, ':', 2) = 'layer'
        AND EXISTS (SELECT FROM resources WHERE resources.resource_id = membership.role_id OFFSET 0)
""")
_RESTRICTIONS: Final = Statement.with_name("effective_restrictions")("""
    SELECT thing.role_id, cidr FROM unnest($1::text[]) AS thing (role_id), LATERAL (
        SELECT cidr FROM restrictions WHERE restrictions.role_id = thing.role_id OFFSET 0
    ) AS restriction
""")

#: The newest values of public keys within spans of ids.
_PUBLIC_KEYS: Final = Statement.with_name("effective_public_keys")(f"""
    SELECT key.resource_id, value.sealed
    FROM unnest($1::text[], $2::text[]) AS span (first, beyond), LATERAL (
        SELECT resource_id FROM resources WHERE resource_id >= span.first AND resource_id < span.beyond OFFSET 0
    ) AS key, LATERAL (
        SELECT sealed FROM secrets WHERE secrets.resource_id = key.resource_id ORDER BY version DESC LIMIT 1
    ) AS value
    LIMIT {MOST + 1}
""")
_NAMED: Final = Statement.with_name("effective_named")(f"""
    SELECT resource_id, owner_id, policy_id FROM {rows_of("text")} AS asked (resource_id) JOIN resources USING (resource_id)
""")

#: The users that roles in spans own, or policies in spans recorded, with ids that have the suffix.
_USERS: Final = Statement.with_name("effective_users")(f"""
    SELECT DISTINCT resource_id FROM (
        SELECT owned.resource_id FROM unnest($1::text[], $2::text[]) AS span (first, beyond), LATERAL (
            SELECT resource_id FROM resources WHERE owner_id >= span.first AND owner_id < span.beyond OFFSET 0
        ) AS owned
        UNION ALL
        SELECT recorded.resource_id FROM unnest($3::text[], $4::text[]) AS span (first, beyond), LATERAL (
            SELECT resource_id FROM resources WHERE policy_id >= span.first AND policy_id < span.beyond OFFSET 0
        ) AS recorded
    ) AS found
    WHERE split_part(resource_id, ':', 2) = 'user'
        AND (right(resource_id, length($5::text)) = $5 OR strpos(resource_id, $5 || '-') > 0)
    LIMIT {MOST + 1}
""")

#: How many things' rows are fetched at a time, so that no answer is long.
_BATCH: Final = 1000


@attrs.frozen
class EffectivePolicyStore:
    """Policies as they stand."""

    _database: Statements

    async def read_effective_policy(self, query: EffectiveQuery) -> EffectivePolicyRows | Excess | None:
        """Read a policy with all beneath it, as it stands at one moment; ``None`` when it is missing.

        Rows that name a role without a resource are left out: no document can refer to it.
        """

        async def read_snapshot(transaction: Transaction) -> EffectivePolicyRows | Excess | None:
            await transaction.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            return await _read_policy(transaction, query)

        return await self._database.transact_read_only(read_snapshot)


async def _read_policy(transaction: Transaction, query: EffectiveQuery) -> EffectivePolicyRows | Excess | None:
    policy, account = str(query.policy), query.policy.account
    is_root = query.policy == root_policy(account)
    kinds = [] if is_root else await kinds_in(transaction, account)
    others = [f"{account}:{kind}:{query.policy.identifier}" for kind in kinds if is_other_kind(kind)]
    names = [policy] if is_root else [policy, *query.namesakes, *others]
    named = {full: (owner, by) for full, owner, by in await fetch_for_rows(transaction, _NAMED, [(name,) for name in names])}
    if policy not in named:
        return None
    depth = _ANY_DEPTH if query.depth is None else query.depth
    if is_root:
        spans = [(f"{account}:", f"{account};")]
    else:
        depth += query.policy.identifier.count("/")
        spans = await _read_spans(transaction, query, kinds, named)
    things = (*_span_columns(spans), to_array(query.omitted_kinds), depth)
    (extent,) = await transaction.fetch(_EXTENT, *things)
    if excess := _find_excess(query.limit, *extent):
        return excess
    found, hidden = await _filter_visible(transaction, query, await transaction.fetch(_RESOURCES, *things))
    keys = await _read_public_keys(transaction, account, found)
    if isinstance(keys, Excess):
        return keys
    rows, around = await _read_rows(transaction, found), await _read_parent_ids(transaction, query.policy)
    return EffectivePolicyRows(rows, around, keys, hidden, await read_current_version(transaction, policy))


async def _read_spans(
    transaction: Transaction, query: EffectiveQuery, kinds: Sequence[str], named: Mapping[str, tuple[str, str | None]]
) -> list[tuple[str, str]]:
    """Return the spans of what belongs to a policy other than the root: what lies beneath it, its users and namesakes."""
    policy, account, identifier = str(query.policy), query.policy.account, query.policy.identifier
    of_owners = [_span_of(policy), *(_span_beneath(account, kind, identifier) for kind in kinds if is_role_kind(kind))]
    of_policies = [_span_of(policy), _span_beneath(account, "policy", identifier)]
    users = await transaction.fetch(_USERS, *_span_columns(of_owners), *_span_columns(of_policies), query.suffix)
    owner, _ = named[policy]
    namesakes = {
        full
        for full, (owned_by, by) in named.items()
        if (owned_by == owner and full.split(":", 2)[1] not in ACTING_KINDS)
        or _is_within(owned_by, of_owners)
        or (by is not None and _is_within(by, of_policies))
    }
    extra = sorted(namesakes.union(full for (full,) in users))
    return [*map(_span_of, extra), *(_span_beneath(account, kind, identifier) for kind in kinds if kind != "user")]


def _find_excess(
    limit: int, resources: int, annotations: int, permissions: int, memberships: int, restrictions: int, size: int
) -> Excess | None:
    """Return the excess of what a policy holds, if there is any; ``size`` is in bytes."""
    count = resources + annotations + permissions
    if count > limit:
        return Excess(count, limit)
    if max(memberships, restrictions) > MOST:
        return Excess(max(memberships, restrictions), MOST)
    return Excess(size, BYTES_MOST, "bytes") if size > BYTES_MOST else None


async def _read_rows(transaction: Transaction, found: list[tuple[Any, ...]]) -> Rows:
    """Return resources with the rows that are about them."""
    factories = [row for row in found if _kind_of(row) == "host_factory"]
    layers = [MembershipRow(*row) for row in await _fetch_batches(transaction, _LAYERS, factories)]
    members = [MembershipRow(*row) for row in await _fetch_batches(transaction, _MEMBERSHIPS, found)]
    return Rows(
        tuple(ResourceRow(*row) for row in found),
        tuple(dict.fromkeys([*members, *layers])),
        tuple([PermissionRow(*row) for row in await _fetch_batches(transaction, _PERMISSIONS, found)]),
        tuple([AnnotationRow(*row) for row in await _fetch_batches(transaction, _ANNOTATIONS, found)]),
        tuple([RestrictionRow(*row) for row in await _fetch_batches(transaction, _RESTRICTIONS, found)]),
    )


async def _read_public_keys(
    transaction: Transaction, account: str, found: list[tuple[Any, ...]]
) -> dict[str, Sealed] | Excess:
    """Return the public keys of the users among resources, by their full ids."""
    users = [row[0].split(":", 2)[2] for row in found if _kind_of(row) == "user"]
    keys: dict[str, Sealed] = {}
    for start in range(0, len(users), _BATCH):
        spans = [_span_beneath(account, "public_key", f"user/{user}") for user in users[start : start + _BATCH]]
        keys.update((full, Sealed(sealed)) for full, sealed in await transaction.fetch(_PUBLIC_KEYS, *_span_columns(spans)))
        if len(keys) > MOST:
            return Excess(len(keys), MOST)
    return keys


async def _read_parent_ids(transaction: Transaction, policy: RoleName) -> frozenset[str]:
    """Return the ids of those policies, but the root, whose ids are proper beginnings of a policy's."""
    identifier = policy.identifier
    beginnings = [identifier[:at] for at, char in enumerate(identifier) if char == "/" and at]
    around = await fetch_for_rows(
        transaction, _NAMED, [(f"{policy.account}:policy:{beginning}",) for beginning in beginnings]
    )
    return frozenset(full.split(":", 2)[2] for full, _, _ in around) - {"root"}


async def _filter_visible(
    transaction: Transaction, query: EffectiveQuery, found: list[tuple[Any, ...]]
) -> tuple[list[tuple[Any, ...]], tuple[str, ...]]:
    """Return those of the resources that the viewer sees, and the kinds of the others. Of a policy that owns itself no more
    than it is shown, and that is no secret to those who read the policy around it.
    """
    if query.viewer is None:
        return found, ()
    own = {full for full, owner in found if full == owner and _is_policy(full)}
    seen = own | await filter_visible(transaction, query.viewer, [full for full, _ in found])
    return [row for row in found if row[0] in seen], tuple(sorted(_kind_of(row) for row in found if row[0] not in seen))


async def _fetch_batches(
    transaction: Transaction, statement: Statement, things: list[tuple[Any, ...]]
) -> Iterable[tuple[Any, ...]]:
    """Return the rows of things, asked for some of them at a time."""
    batches = [things[start : start + _BATCH] for start in range(0, len(things), _BATCH)]
    return chain.from_iterable(
        [await transaction.fetch(statement, to_array(full for full, _ in batch)) for batch in batches]
    )


def _is_policy(full: str) -> bool:
    return full.split(":", 2)[1] == "policy"


def _kind_of(resource: tuple[Any, ...]) -> str:
    return str(resource[0]).split(":", 2)[1]


def _span_of(full: str) -> tuple[str, str]:
    """Return the span of one id: no character comes before U+0001."""
    return full, f"{full}\x01"


def _span_beneath(account: str, kind: str, identifier: str) -> tuple[str, str]:
    """Return the span of what begins with an id and a slash; ``0`` follows the slash in byte order."""
    return f"{account}:{kind}:{identifier}/", f"{account}:{kind}:{identifier}0"


def _is_within(full: str, spans: Iterable[tuple[str, str]]) -> bool:
    return any(first <= full < beyond for first, beyond in spans)


def _span_columns(spans: Iterable[tuple[str, str]]) -> tuple[str, str]:
    firsts, beyonds = zip(*spans, strict=True)
    return to_array(firsts), to_array(beyonds)
