"""Resources with all that their route shows, read in portions of a bounded size.

Note [Portions]

A list may have a thousand resources, each with any amount of data, and while a statement's rows are parsed nobody else is
served; so they are bounded by bytes. Each resource is weighed, as far as it could fit, and those are described that fit into
a portion together. A resource that doesn't fit into one by itself comes in parts: its permissions and annotations are read
page by page, each from behind the last of the one before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from math import isfinite
from typing import Any, Final

import attrs

from svc.model.expiration import is_about_expiration
from svc.model.host_factories import name_token
from svc.model.limits import RECORD_LIMITS
from svc.model.query_results import (
    ExpirationState,
    OutstandingToken,
    Permission,
    RecordedVersion,
    Resource,
    ResourceAnnotation,
    SecretVersion,
    count_text_bytes,
)
from svc.storage.driver.columns import to_array
from svc.storage.driver.statements import Fetching, Statement

#: How many tokens of a host factory are shown.
TOKENS_LISTED: Final = 100
#: The approximate weight of a portion, in bytes of its texts: the reactor takes some milliseconds for it.
PORTION: Final = 64 * 1024
#: How many resources are requested at once.
BATCH: Final = 250
#: How many permissions one statement reads and orders of a resource that comes in parts, and how many of them are in a part.
_PERMISSIONS_READ: Final = 2000
_PERMISSIONS: Final = 500
#: How many annotations are read for one part.
_ANNOTATIONS: Final = 1000
#: The weight of a row beside its texts.
_ROW: Final = 40

#: The data of resources of every kind, then those of some kinds: one array for each. Rows are looked up first and put in
#: order then: an index that has them in order could be read from end to end for each resource. As soon as ``$2`` bytes are
#: exceeded, ``fits`` is false, and permissions and annotations aren't read. Of each sort no more rows are weighed than could
#: fit (Note [Portions]).
_DESCRIBED: Final = Statement.with_name("resources_described")(f"""
    SELECT
        place, fits, resource_id, owner_id, policy_id, extract(epoch FROM created_at)::double precision,
        CASE WHEN fits THEN ARRAY(
            SELECT ARRAY[privilege, role_id, policy_id]
            FROM (SELECT * FROM permissions WHERE resource_id = resource.resource_id OFFSET 0) AS given
            ORDER BY role_id, privilege
        ) ELSE '{{}}' END,
        CASE WHEN fits THEN ARRAY(
            SELECT ARRAY[name, value, policy_id]
            FROM (SELECT * FROM annotations WHERE resource_id = resource.resource_id OFFSET 0) AS given
            ORDER BY name
        ) ELSE '{{}}' END,
        ARRAY(SELECT version FROM secrets WHERE secrets.resource_id = resource.resource_id ORDER BY version),
        ARRAY(
            SELECT extract(epoch FROM expires_at)::double precision
            FROM secrets WHERE secrets.resource_id = resource.resource_id ORDER BY version
        ),
        ARRAY(
            SELECT extract(epoch FROM secrets.created_at)::double precision
            FROM secrets WHERE secrets.resource_id = resource.resource_id ORDER BY version
        ),
        (
            SELECT ARRAY[extract(epoch FROM due_at)::double precision::text, failures::text, fault]
            FROM expirations WHERE expirations.resource_id = resource.resource_id
        ),
        CASE WHEN split_part(resource_id, ':', 2) = 'host_factory' THEN ARRAY(
            SELECT role_id
            FROM (SELECT * FROM memberships WHERE member_id = resource.resource_id OFFSET 0) AS granted
            WHERE NOT ownership AND split_part(role_id, ':', 2) = 'layer'
            ORDER BY role_id LIMIT {RECORD_LIMITS.layers}
        ) ELSE '{{}}' END,
        ARRAY(
            SELECT cidr FROM restrictions WHERE restrictions.role_id = resource.resource_id
            ORDER BY cidr LIMIT {RECORD_LIMITS.restrictions}
        )
    FROM (
        SELECT place, found.*, sum(weight) OVER (ORDER BY place) <= $2::bigint AS fits
        FROM unnest($1::text[]) WITH ORDINALITY AS asked (id, place)
        CROSS JOIN LATERAL (SELECT * FROM resources WHERE resource_id = asked.id OFFSET 0) AS found
        CROSS JOIN LATERAL (
            SELECT {_ROW}
                + coalesce((
                    SELECT sum({_ROW} + octet_length(concat(privilege, role_id, policy_id)))
                    FROM (SELECT * FROM permissions WHERE resource_id = asked.id LIMIT $2::bigint / {_ROW} + 1) AS given
                ), 0)
                + coalesce((
                    SELECT sum({_ROW} + octet_length(name) + octet_length(value) + octet_length(concat(policy_id)))
                    FROM (SELECT * FROM annotations WHERE resource_id = asked.id LIMIT $2::bigint / {_ROW} + 1) AS given
                ), 0)
                + CASE split_part(asked.id, ':', 2)
                    WHEN 'host_factory' THEN coalesce((
                        SELECT sum({_ROW} + octet_length(role_id))
                        FROM (SELECT * FROM memberships WHERE member_id = asked.id LIMIT {RECORD_LIMITS.layers}) AS granted
                    ), 0) + coalesce((
                        SELECT sum({_ROW} * (1 + cardinality(networks)))
                        FROM (SELECT * FROM host_factory_tokens WHERE factory_id = asked.id LIMIT {TOKENS_LISTED}) AS token
                    ), 0)
                    WHEN 'policy'
                    THEN 200 * (SELECT count(*) FROM policy_versions WHERE policy_versions.policy_id = asked.id)
                    ELSE {_ROW} * (SELECT count(*) FROM (
                        SELECT FROM restrictions WHERE role_id = asked.id LIMIT {RECORD_LIMITS.restrictions}
                    ) AS restriction)
                END AS weight
            OFFSET 0
        ) AS weighed
        OFFSET 0
    ) AS resource
    ORDER BY place
""")

#: The permissions of a resource behind one, by role and privilege.
_PERMISSIONS_AFTER: Final = Statement.with_name("resource_permissions_after")("""
    SELECT privilege, role_id, policy_id
    FROM (SELECT * FROM permissions WHERE resource_id = $1::text OFFSET 0) AS given
    WHERE (role_id, privilege) > ($2::text, $3::text)
    ORDER BY role_id, privilege LIMIT $4::bigint
""")

#: The annotations of a resource behind one, while those before have less than ``$4`` bytes.
_ANNOTATIONS_AFTER: Final = Statement.with_name("resource_annotations_after")(f"""
    SELECT name, value, policy_id FROM (
        SELECT *, sum(weight) OVER (ORDER BY name) - weight AS before FROM (
            SELECT name, value, policy_id, {_ROW} + octet_length(name) + octet_length(value) AS weight
            FROM annotations WHERE resource_id = $1::text AND name > $2::text ORDER BY name LIMIT $3::bigint
        ) AS following
    ) AS weighed
    WHERE before < $4::bigint ORDER BY name
""")

#: The versions of policies, with texts of each from the newest on, while all have at most ``$2`` bytes together.
_HISTORY: Final = Statement.with_name("resources_history")("""
    SELECT
        policy_id, version, extract(epoch FROM created_at)::double precision, sha256, loaded_by, client_ip,
        CASE WHEN sum(octet_length(text)) OVER (ORDER BY place, version DESC) <= $2::bigint THEN text END
    FROM unnest($1::text[]) WITH ORDINALITY AS asked (id, place)
    CROSS JOIN LATERAL (SELECT * FROM policy_versions WHERE policy_id = asked.id OFFSET 0) AS history
    ORDER BY policy_id, version
""")

#: The tokens of host factories that expire first.
_TOKENS: Final = Statement.with_name("resources_tokens")(f"""
    SELECT asked.id, digest, expires_at, networks FROM unnest($1::text[]) AS asked (id) CROSS JOIN LATERAL (
        SELECT digest, expires_at, networks FROM host_factory_tokens WHERE factory_id = asked.id
        ORDER BY expires_at, digest LIMIT {TOKENS_LISTED}
    ) AS token
    ORDER BY expires_at, digest
""")


async def stream_described(database: Fetching, ids: Sequence[str], text_limit: int) -> AsyncIterator[Sequence[Resource]]:
    """See ``ResourceStore``."""
    start, number, room = 0, BATCH, text_limit
    while start < len(ids):
        asked = ids[start : start + number]
        rows = await database.fetch(_DESCRIBED, to_array(asked), PORTION)
        fitting = [row for row in rows if row[1]]
        if not fitting and rows:
            (resource,) = await _make_resources(database, rows[:1], room)
            room -= count_text_bytes([resource])
            async for part in _stream_parts(database, resource, rows[0]):
                yield part
            start, number = start + rows[0][0], max(number // 2, 1)
            continue
        if fitting:
            resources = await _make_resources(database, fitting, room)
            room -= count_text_bytes(resources)
            yield resources
        if len(fitting) == len(rows):
            start, number = start + len(asked), min(2 * number, BATCH)
        else:
            start, number = start + rows[len(fitting)][0] - 1, 2 * len(fitting)


async def first_portion(database: Fetching, ids: Sequence[str], text_limit: int) -> list[Resource]:
    """Return those of some resources that exist, in the order of ``ids``, as long as they fit into a portion together."""
    rows = await database.fetch(_DESCRIBED, to_array(ids), PORTION) if ids else []
    return await _make_resources(database, [row for row in rows if row[1]], text_limit)


async def _make_resources(database: Fetching, rows: Sequence[tuple[Any, ...]], text_limit: int) -> list[Resource]:
    """Return the resources of rows, as far as these have them."""
    policies = [row[2] for row in rows if row[2].split(":", 2)[1] == "policy"]
    history = await _read_history(database, policies, text_limit) if policies else {}
    factories = [row[2] for row in rows if row[2].split(":", 2)[1] == "host_factory"]
    tokens = await _read_tokens(database, factories) if factories else {}
    return [
        Resource(
            id=name,
            owner=owner,
            policy=policy,
            created_at=created_at,
            permissions=tuple(Permission(*permission) for permission in permissions),
            annotations=tuple(ResourceAnnotation(*annotation) for annotation in annotations),
            secret_versions=tuple(map(SecretVersion, versions, ends, set_at)),
            history=tuple(history.get(name, ())),
            layers=tuple(layers),
            restrictions=tuple(restrictions),
            tokens=tuple(tokens.get(name, ())),
            expiration=_parse_expiration(expiration)
            if any(is_about_expiration(annotation[0]) for annotation in annotations)
            else None,
        )
        for row in rows
        for _, _, name, owner, policy, created_at, permissions, annotations, versions, ends, *others in (row,)
        for set_at, expiration, layers, restrictions in (others,)
    ]


async def _stream_parts(database: Fetching, resource: Resource, row: tuple[Any, ...]) -> AsyncIterator[Sequence[Resource]]:
    """Return a resource in parts, of which it is the last; ``row`` is that of :data:`_DESCRIBED`."""
    last = ("", "")
    while permissions := await database.fetch(_PERMISSIONS_AFTER, resource.id, *last, _PERMISSIONS_READ):
        for start in range(0, len(permissions), _PERMISSIONS):
            some = tuple(Permission(*permission) for permission in permissions[start : start + _PERMISSIONS])
            yield [attrs.evolve(resource, permissions=some, continued=True)]
        privilege, role, _ = permissions[-1]
        last = role, privilege
    name, about_expiration = "", False
    while annotations := await database.fetch(_ANNOTATIONS_AFTER, resource.id, name, _ANNOTATIONS, PORTION):
        about_expiration = about_expiration or any(is_about_expiration(found) for found, *_ in annotations)
        described = tuple(ResourceAnnotation(*annotation) for annotation in annotations)
        yield [attrs.evolve(resource, annotations=described, continued=True)]
        name = annotations[-1][0]
    yield [attrs.evolve(resource, expiration=_parse_expiration(row[10]) if about_expiration else None)]


async def _read_history(database: Fetching, policies: Sequence[str], text_limit: int) -> Mapping[str, list[RecordedVersion]]:
    history = defaultdict[str, list[RecordedVersion]](list)
    for policy, *version in await database.fetch(_HISTORY, to_array(policies), text_limit):
        history[policy].append(RecordedVersion(*version))
    return history


async def _read_tokens(database: Fetching, factories: Sequence[str]) -> Mapping[str, list[OutstandingToken]]:
    tokens = defaultdict[str, list[OutstandingToken]](list)
    for factory, digest, expires_at, networks in await database.fetch(_TOKENS, to_array(factories)):
        tokens[factory].append(OutstandingToken(name_token(digest), expires_at, tuple(networks)))
    return tokens


def _parse_expiration(row: Sequence[str | None] | None) -> ExpirationState | None:
    if row is None:
        return None
    due_at, failures, fault = row
    moment = float(due_at or "inf")
    return ExpirationState(moment if isfinite(moment) else None, int(failures or 0), fault)
