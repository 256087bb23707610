"""Resources as PostgreSQL keeps them: who sees which, what each is like, and who has a privilege on it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Final

import attrs
from zope.interface import implementer

from svc.errors import TooManyRoles
from svc.expirations import is_about_expiration
from svc.interfaces import IResources
from svc.names import ResourceName
from svc.records import (
    Annotation,
    Expiration,
    OutstandingToken,
    Permission,
    RecordedVersion,
    Resource,
    ResourcesQuery,
    SecretVersion,
)
from svc.storage.columns import column
from svc.storage.database import Database, Statement
from svc.storage.visibility import listing

#: How many tokens of a host factory are told.
TOKENS_TOLD: Final = 100

#: What is told of resources of every kind, and after it what only some kinds have: one array for each. Rows are looked up
#: first and put in order then: an index that has them in order could be read from end to end for each resource.
_DESCRIBED: Final = Statement(
    "resources_described",
    """
    SELECT
        resource_id, owner_id, policy_id, extract(epoch FROM created_at)::double precision,
        ARRAY(
            SELECT ARRAY[privilege, role_id, policy_id]
            FROM (SELECT * FROM permissions WHERE resource_id = resource.resource_id OFFSET 0) AS given
            ORDER BY role_id, privilege
        ),
        ARRAY(
            SELECT ARRAY[name, value, policy_id]
            FROM (SELECT * FROM annotations WHERE resource_id = resource.resource_id OFFSET 0) AS given
            ORDER BY name
        ),
        ARRAY(SELECT version FROM secrets WHERE secrets.resource_id = resource.resource_id ORDER BY version),
        ARRAY(
            SELECT extract(epoch FROM expires_at)::double precision
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
            ORDER BY role_id
        ) ELSE '{}' END,
        ARRAY(SELECT cidr FROM restrictions WHERE restrictions.role_id = resource.resource_id ORDER BY cidr)
    FROM unnest($1::text[]) WITH ORDINALITY AS asked (id, place)
    CROSS JOIN LATERAL (SELECT * FROM resources WHERE resource_id = asked.id OFFSET 0) AS resource
    ORDER BY place
    """,
)

#: The versions of policies, with texts from the newest on while they have at most ``$2`` bytes.
_HISTORY: Final = Statement(
    "resources_history",
    """
    SELECT
        policy_id, version, extract(epoch FROM created_at)::double precision, sha256, loaded_by, client_ip,
        CASE WHEN sum(octet_length(text)) OVER (PARTITION BY policy_id ORDER BY version DESC) <= $2::bigint THEN text END
    FROM unnest($1::text[]) AS asked (id)
    CROSS JOIN LATERAL (SELECT * FROM policy_versions WHERE policy_id = asked.id OFFSET 0) AS history
    ORDER BY policy_id, version
    """,
)

#: The tokens of host factories that expire first.
_TOKENS: Final = Statement(
    "resources_tokens",
    f"""
    SELECT asked.id, expires_at, networks
    FROM unnest($1::text[]) AS asked (id)
    CROSS JOIN LATERAL (
        SELECT expires_at, networks FROM host_factory_tokens WHERE factory_id = asked.id ORDER BY expires_at
        LIMIT {TOKENS_TOLD}
    ) AS token
    """,
)

#: Members that are left out by the limit of one role are too many for the answer, too.
_PERMITTED: Final = Statement(
    "resource_permitted",
    """
    WITH RECURSIVE permitted (role_id) AS (
        (
            SELECT owner_id FROM resources WHERE resource_id = $1::text
            UNION
            SELECT role_id FROM permissions WHERE resource_id = $1 AND privilege = $2::text
        )
        UNION
        SELECT unnest(ARRAY(SELECT member_id FROM memberships WHERE role_id = permitted.role_id LIMIT $3::bigint))
        FROM permitted
    )
    SELECT ARRAY(SELECT role_id FROM (SELECT role_id FROM permitted LIMIT $3) AS found ORDER BY role_id)
    """,
)


@implementer(IResources)
@attrs.frozen
class ResourceStore:
    """Provides ``IResources`` on PostgreSQL."""

    _database: Database

    async def visible(self, query: ResourcesQuery) -> list[str]:
        """See ``IResources``."""
        return (await listing(self._database, query, counting=False)).ids

    async def count_visible(self, query: ResourcesQuery) -> int:
        """See ``IResources``."""
        return (await listing(self._database, query, counting=True)).number

    async def described(self, ids: Sequence[str], text_limit: int = 0) -> list[Resource]:
        """See ``IResources``."""
        rows = await self._database.fetch(_DESCRIBED, column(ids))
        policies = [row[0] for row in rows if row[0].split(":", 2)[1] == "policy"]
        history = await self._history(policies, text_limit) if policies else {}
        factories = [row[0] for row in rows if row[0].split(":", 2)[1] == "host_factory"]
        tokens = await self._tokens(factories) if factories else {}
        return [
            Resource(
                row[0],
                row[1],
                row[2],
                row[3],
                tuple(Permission(*permission) for permission in permissions),
                tuple(Annotation(*annotation) for annotation in annotations),
                tuple(map(SecretVersion, versions, ends)),
                tuple(history.get(row[0], ())),
                tuple(layers),
                tuple(restrictions),
                tuple(tokens.get(row[0], ())),
                _expiration(expiration) if any(is_about_expiration(name) for name, *_ in annotations) else None,
            )
            for row in rows
            for permissions, annotations, versions, ends, expiration, layers, restrictions in (row[4:],)
        ]

    async def permitted(self, resource: ResourceName, privilege: str, limit: int) -> list[str]:
        """See ``IResources``."""
        ((roles,),) = await self._database.fetch(_PERMITTED, str(resource), privilege, limit + 1)
        if len(roles) > limit:
            raise TooManyRoles(limit)
        return list(roles)

    async def _history(self, policies: Sequence[str], text_limit: int) -> Mapping[str, list[RecordedVersion]]:
        history = defaultdict[str, list[RecordedVersion]](list)
        for policy, *version in await self._database.fetch(_HISTORY, column(policies), text_limit):
            history[policy].append(RecordedVersion(*version))
        return history

    async def _tokens(self, factories: Sequence[str]) -> Mapping[str, list[OutstandingToken]]:
        tokens = defaultdict[str, list[OutstandingToken]](list)
        for factory, expires_at, networks in await self._database.fetch(_TOKENS, column(factories)):
            tokens[factory].append(OutstandingToken(expires_at, tuple(networks)))
        return tokens


def _expiration(row: Sequence[str | None] | None) -> Expiration | None:
    if row is None:
        return None
    due_at, failures, fault = row
    moment = float(due_at or "inf")
    return Expiration(moment if isfinite(moment) else None, int(failures or 0), fault)
