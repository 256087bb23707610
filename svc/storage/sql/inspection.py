"""The resources that a role sees by inspecting a policy (INS-1), as a statement, and as pieces of SQL that several share.

Note [Asked last]. Few roles inspect anything, and what they inspect may be much. So it isn't cached, and no other statement
computes it: inspection is looked up only if a caller sees a thing neither as an owner nor by a privilege; and if no thing of
that name exists, so that the time doesn't reveal which it was.

Note [From below]. Whether a thing is inspected is found out from the thing: its owners are followed upwards, those of many
things together, each of them once. Among them are the policies that own it, of which one may have been opened to the caller.
From there the search goes down again, only along the owners that were followed, since a policy may own a million others, and
so finds the things that are inspected. So a long chain of owners costs no more than as many owners side by side.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from typing import Final

import attrs

from svc.model.authorization import INSPECT
from svc.model.names import RoleName
from svc.model.query_results import AccessFacts, Caller, CallerOrRole
from svc.storage.driver.columns import column_batches, to_array
from svc.storage.driver.connection import Fetched
from svc.storage.driver.statements import (
    CachedReading,
    CachedStatement,
    NamedAnswer,
    Statements,
    Transaction,
    split_dependencies,
)
from svc.storage.sql.access_facts import HELD
from svc.storage.sql.dependencies import HELD_NAMES, cached_statement

#: Runs a statement: in a transaction, or as ``Statements.fetch`` or ``Statements.fetch_uncached`` does.
Fetch = Callable[..., Awaitable[Fetched]]

#: The full id of the root policy of an id's account.
_ROOT: Final = "split_part({id}, ':', 1) || ':policy:root'"


def inspected_query(ids: str, held: str = "SELECT role_id FROM held") -> str:
    """Return common table expressions, the last of them ``inspected (id)``: of the ids that a query ``(id)`` selects, those
    that are policies that a role inspects, are owned by one, or are of an account whose root it inspects.

    ``held`` selects all roles that the role holds, or at least those of them that may inspect a policy of ``inspectable``.
    """
    return f"""
    above (id, owner_id) AS (
        SELECT found.* FROM ({ids}) AS asked (id), LATERAL (
            SELECT resource_id, owner_id FROM resources WHERE resource_id = asked.id OFFSET 0
        ) AS found
        UNION
        SELECT found.* FROM above, LATERAL (
            SELECT resource_id, owner_id FROM resources WHERE resource_id = above.owner_id OFFSET 0
        ) AS found
    ),
    inspectable (id) AS MATERIALIZED (
        SELECT id FROM above WHERE split_part(id, ':', 2) = 'policy'
        UNION
        SELECT {_ROOT.format(id="id")} FROM ({ids}) AS asked (id)
    ),
    inspected_policies (id) AS MATERIALIZED (
        SELECT id FROM inspectable WHERE EXISTS (
            SELECT FROM permissions
            WHERE resource_id = inspectable.id AND privilege = '{INSPECT}' AND (role_id IN ({held})) IS TRUE
            OFFSET 0
        )
    ),
    owned (by_owner) AS MATERIALIZED (
        SELECT jsonb_object_agg(owner_id, ids) FROM (
            SELECT owner_id, jsonb_agg(id) AS ids FROM above
            WHERE EXISTS (SELECT FROM inspected_policies) GROUP BY owner_id
        ) AS different
    ),
    below (id) AS (
        SELECT id FROM inspected_policies
        UNION
        SELECT thing COLLATE "C"
        FROM below, jsonb_array_elements_text((SELECT by_owner FROM owned) -> below.id) AS thing
    ),
    inspected (id) AS MATERIALIZED (
        SELECT id FROM ({ids}) AS asked (id)
        WHERE EXISTS (SELECT FROM inspected_policies) AND (
            ({_ROOT.format(id="id")} IN (SELECT id FROM inspected_policies)) IS TRUE
            OR (id IN (SELECT id FROM below)) IS TRUE
        )
    )
    """


# A role may exist without a resource (ROLE-5).
_INSPECTED: Final = cached_statement(
    "inspected",
    lambda more: (
        f"""
    WITH RECURSIVE {HELD.format(caller="$1")},
    asked (id) AS MATERIALIZED (SELECT unnest($2::text[]) COLLATE "C"),
    {inspected_query("SELECT id FROM asked")}
    SELECT ARRAY(
        SELECT id FROM inspected WHERE EXISTS (SELECT FROM resources WHERE resource_id = inspected.id OFFSET 0)
            OR EXISTS (SELECT FROM roles WHERE role_id = inspected.id OFFSET 0)
    ){more}
    """
    ),
    HELD_NAMES,
    "ARRAY(SELECT 'r:' || id FROM asked UNION SELECT 'r:' || owner_id FROM above UNION SELECT 'r:' || id FROM inspectable)",
    known="EXISTS (SELECT FROM above)",
)


async def filter_inspected(fetch: Fetch, caller: RoleName, resources: Iterable[str]) -> frozenset[str]:
    """Return those of the full ids of which there is a resource or a role, and that a role inspects."""
    found = set[str]()
    for (ids,) in column_batches([(full,) for full in resources]):
        ((some,),) = await fetch(_INSPECTED, str(caller), ids)
        found.update(some)
    return frozenset(found)


def needs_no_inspection(access_facts: AccessFacts) -> bool:
    """Return whether nothing depends on inspection: the caller isn't there, or sees the resource anyway."""
    return access_facts.owns or bool(access_facts.privileges) or not access_facts.caller_exists


async def add_inspection(fetch: Fetch, caller: CallerOrRole, read: Mapping[str, AccessFacts]) -> Mapping[str, AccessFacts]:
    """Return access facts, by the full ids of their resources, after looking up inspection where something depends on it."""
    unsettled = _needing_inspection(read)
    return mark_inspected(read, await filter_inspected(fetch, _role_of(caller), unsettled)) if unsettled else read


def mark_inspected(read: Mapping[str, AccessFacts], found: Container[str]) -> Mapping[str, AccessFacts]:
    """Return access facts, by the full ids of their resources, of which those that were ``found`` are only inspected."""
    return {full: attrs.evolve(each, inspects=True) if full in found else each for full, each in read.items()}


async def read_with_inspection(
    database: Statements,
    statement: CachedStatement,
    parameters: Sequence[object],
    caller: CallerOrRole,
    facts_of: Callable[[Fetched], Mapping[str, AccessFacts]],
) -> tuple[Fetched, frozenset[str]]:
    """Return the rows of a statement, and which of the resources in them are only inspected.

    ``facts_of`` returns the access facts in rows, by the full ids of their resources.
    """

    async def read_both(transaction: Transaction) -> NamedAnswer[tuple[Fetched, frozenset[str]]]:
        answer = split_dependencies(await transaction.fetch(statement.with_dependencies, *parameters))
        asked = to_array(_needing_inspection(facts_of(answer.value)))
        more = split_dependencies(await transaction.fetch(_INSPECTED.with_dependencies, str(_role_of(caller)), asked))
        names = None if answer.names is None or more.names is None else [*answer.names, *more.names]
        return NamedAnswer((answer.value, frozenset(more.value[0][0])), names, answer.known, answer.lasts, answer.single)

    return await database.read(CachedReading((f"{statement.name}_inspected", *parameters), read_both))


def _needing_inspection(read: Mapping[str, AccessFacts]) -> list[str]:
    return [full for full, each in read.items() if not needs_no_inspection(each)]


def _role_of(caller: CallerOrRole) -> RoleName:
    return caller.role if isinstance(caller, Caller) else caller
