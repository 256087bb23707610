"""The store of resources on PostgreSQL.

Note [First pages]. The first page of a list takes several statements: whether the caller exists, what it sees, and the
descriptions of that. All read one state, and their answers are cached as one. A page follows from these rows:

* Of ``roles``, ``memberships``, ``resources``, ``permissions`` and ``annotations``, those of the caller's account and of the
  account that is listed. No document and no request makes memberships across accounts (POL-30, ROLE-36), so the roles that
  the caller holds are of its own account, and what it owns follows from them (``sql/dependencies``, Note [Who administers]).
  A page depends on absent rows as well, so single rows aren't named: all that these tables have of an account is named
  ``~``. Of ``accounts``, the epoch of the caller's, which is named ``k``.
* Of ``secrets``, the versions of the listed variables, which are named ``v``; of ``restrictions``, those of the listed
  roles, named ``c``. The expiration of a value is shown as a time, and the value is listed afterwards as before: no page
  expires.
* Of ``policy_versions``, ``host_factory_tokens`` and ``expirations``, the rows shown with policies, with host factories, and
  with variables that have annotations about expiration. Their changes have no names, so that a page with one of these isn't
  cached.

Other tables are read only by a search. How a list is found, and how much of it fits into a portion, depends on more rows;
its contents don't: a page that is cached is whole.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

import attrs

from svc.model.errors import TooManyRoles
from svc.model.expiration import is_about_expiration
from svc.model.names import ResourceName, is_kind, is_role_kind
from svc.model.query_results import Caller, Resource, ResourcesPage, ResourcesQuery
from svc.storage.driver.statements import CachedReading, NamedAnswer, Statement, Statements, Transaction
from svc.storage.roles import held_facts
from svc.storage.sql import descriptions
from svc.storage.sql.access_facts import caller_parameters
from svc.storage.sql.visibility import list_visible

#: The kinds of resources whose descriptions change without a name (Note [First pages]).
_UNNAMED: Final = frozenset({"policy", "host_factory"})

#: If the limit for one role cuts off members, there are too many for the answer, too.
_PERMITTED: Final = Statement.with_name("resource_permitted")("""
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
""")


@attrs.frozen
class ResourceStore:
    """Resources, and who sees them."""

    _database: Statements

    async def list_visible(self, query: ResourcesQuery) -> list[str]:
        """Return the full ids of the resources that the query matches; a viewer that doesn't exist sees none."""
        return (await list_visible(self._database, query, counting=False)).ids

    async def read_first_page(self, caller: Caller, query: ResourcesQuery, text_limit: int = 0) -> ResourcesPage:
        """Return the page of a query of ``caller``, which names an account, and neither an owner nor words nor an offset.

        Its ``first`` resources are those that fit into a portion together; ``text_limit`` as in ``stream_described``.

        :raises CallerReplaced: the caller's role isn't the one that there is now.
        """
        kinds = tuple(sorted({*filter(is_kind, query.kinds)})) if query.kinds else None
        key = "resources_first_page", *caller_parameters(caller), query.account, kinds, query.limit

        async def read_page(transaction: Transaction) -> NamedAnswer[ResourcesPage]:
            holds = (await held_facts(transaction.fetch, caller, str(caller.role.resource))).holds
            ids = (await list_visible(transaction, query, counting=False)).ids if holds else []
            first = await descriptions.first_portion(transaction, ids, text_limit)
            page = ResourcesPage(holds, tuple(first), tuple(ids[len(first) :]))
            accounts = f"~:{caller.role.account}", f"~:{query.account}", f"k:{caller.role.account}"
            names = None if page.rest or not all(map(_is_named, first)) else [*accounts, *map(_dependency_name, first)]
            return NamedAnswer(page, names, known=bool(ids))

        return await self._database.read(CachedReading(key, read_page))

    async def count_visible(self, query: ResourcesQuery) -> int:
        """Return how many resources the query matches, whatever its ``limit`` and ``offset``."""
        return (await list_visible(self._database, query, counting=True)).number

    def stream_described(self, ids: Sequence[str], text_limit: int = 0) -> AsyncIterator[Sequence[Resource]]:
        """Return those of the resources that exist, in the order of ``ids``, seen or not, in portions of a bounded size.

        One that is too large comes in parts (see ``Resource``), permissions before annotations. Of the histories of
        policies texts are read, of each policy the newest first, until these are more than ``text_limit`` bytes together.
        """
        return descriptions.stream_described(self._database, ids, text_limit)

    async def list_permitted_roles(self, resource: ResourceName, privilege: str, limit: int) -> list[str]:
        """Return the full ids of the roles that have the privilege, in order: the owner, those permitted, and their holders.

        :raises TooManyRoles: they are more than ``limit``.
        """
        ((roles,),) = await self._database.fetch(_PERMITTED, str(resource), privilege, limit + 1)
        if len(roles) > limit:
            raise TooManyRoles(limit)
        return list(roles)


def _is_named(resource: Resource) -> bool:
    """Return whether all changes of a resource's description have names (Note [First pages])."""
    annotations = (annotation.name for annotation in resource.annotations)
    return _kind_of(resource) not in _UNNAMED and not any(map(is_about_expiration, annotations))


def _dependency_name(resource: Resource) -> str:
    """Return the name of the part of a resource's description that isn't policy data."""
    return f"{'c' if is_role_kind(_kind_of(resource)) else 'v'}:{resource.id}"


def _kind_of(resource: Resource) -> str:
    return resource.id.split(":", 2)[1]
