"""The access facts of a caller towards a resource, inspection among them (INS-1), as SQL that several statements share.

Note [The caller of a token]

A token is of one creation of its role (``Caller``). Each read for its caller has a row of ``access_facts``, or its like,
with ``caller_current``: whether that is the creation of the role that exists now. ``access_facts_of``, through which every
row of that kind goes, raises ``CallerReplaced`` where it is not, so no check can be forgotten, and none costs a further
round trip. A role that is evaluated by its name alone, since the caller was found to hold it, is passed as a ``RoleName``.

Note [Epochs]

A token also carries the epoch that its role had at the login, a number that is compared with the creation, in the same
place. It is the role's own, combined with its account's by exclusive or; each is replaced by a random number to revoke the
tokens of the role, or of the account. So it changes whenever one of them does. No clock is compared: ``iat`` counts whole
seconds of several machines.

A login reads the epoch in the statement that reads the facts about its evidence (``svc/storage/credentials.py``,
``svc/storage/authenticators.py``), thus in one snapshot. If first a key, say, and then the tokens were revoked, a login that
was admitted by the key saw neither, and its token has the old epoch, whenever it is issued. The order matters to decisions
on several reads, or on facts outside of the database: the epoch is read no later than any of them. So a directory is
asked after the read (``svc/authn/ldap/authenticator.py``). Keys of providers are older than it, but the operators'
settings about them are in the statement (``svc/authn/evaluation.py``, Note [Optimistic settings]).

Note [Standing in one statement]

``held`` are all roles that the caller holds, computed breadth first and only as far as the statement asks: an ``EXISTS``
that finds what it looks for ends it. An account's admin holds every role of the account, so whether a caller owns something
must not depend on listing them. It is therefore searched from the other end too: ``administrators_query`` are the owner's
role and the roles that hold it through memberships with admin option alone. They are few, and a caller who holds one of them
holds the owner's role. The admin is found among them by the first row of ``held``, a workload after its handful of roles.

Note [Plans that last]

A prepared statement is planned once for its session, perhaps while the tables are as good as empty, so plans must not depend
on sizes. A subquery in ``ARRAY`` or with ``OFFSET 0`` is planned by itself: its only reasonable plan is a scan of the index
that serves its condition. An array is moreover estimated at ten rows, so that no large hash table is set up for ``held``.
The sessions (``location``) use generic plans, and read a table in full only where no index serves. And no table that has
several indexes is ever quite empty (``schema/0003_search.sql``): for a single row every index costs the same.

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
from typing import Any, Final

import attrs

from svc.model.authorization import INSPECT
from svc.model.errors import CallerReplaced
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
from svc.storage.sql.dependencies import HELD_NAMES, cached_statement

#: A common table expression: the roles that ``caller`` holds, itself included. ``UNION`` ends circles of memberships.
HELD: Final = """
    held (role_id) AS (
        VALUES ({caller}::text COLLATE "C")
        UNION
        SELECT unnest(ARRAY(SELECT role_id FROM memberships WHERE member_id = held.role_id)) FROM held
    )
"""

#: The numbers of a row of ``roles`` that its tokens carry: its creation, and its epoch (Note [Epochs]).
NUMBERS: Final = """
    ARRAY[
        roles.creation,
        roles.epoch # (SELECT accounts.epoch FROM accounts WHERE accounts.account = split_part(roles.role_id, ':', 1))
    ]
"""

#: ``NUMBERS`` for a login; without an account, which admits nobody, the epoch is 0.
LOGIN_NUMBERS: Final = f"array_replace({NUMBERS}, NULL, 0)"

#: A new random epoch, of 53 bits like creations (``schema/0009_creations.sql``).
NEW_EPOCH: Final = "hashtextextended(gen_random_uuid()::text, 0) & 9007199254740991"

#: Whether a role has these ``numbers``, any if that is NULL; NULL when there is no such role.
CURRENT: Final = (
    f"(SELECT {{numbers}}::bigint[] IS NULL OR {{numbers}} = {NUMBERS} FROM roles WHERE roles.role_id = {{caller}})"
)


def administrators_query(roles: str, *carried: str) -> str:
    """Return a common table expression ``administrators (role_id)``: the roles that the query ``roles`` selects, and those
    that hold them through memberships with admin option alone. Columns of the query before that are ``carried`` along.
    """
    return f"""
    administrators ({", ".join([*carried, "role_id"])}) AS (
        {roles}
        UNION
        SELECT {"".join(f"{column}, " for column in carried)}unnest(ARRAY(
            SELECT member_id FROM memberships WHERE role_id = administrators.role_id AND admin_option
        )) FROM administrators
    )
    """


def administrators_of(role: str) -> str:
    """Return a query ``(role_id)``: a role, and those that hold it through memberships with admin option alone."""
    return f"WITH RECURSIVE {administrators_query(f'SELECT {role}')} SELECT role_id FROM administrators"


#: Common table expressions after ``held`` of role ``$1``, the last of them with one row, ``access_facts``, about resource
#: ``$2``, of the role whose numbers are ``$3``. Without that resource, nothing is searched for in ``held``.
FACTS_TABLES: Final = f"""
    {administrators_query("SELECT owner_id FROM resources WHERE resource_id = $2::text")},
    ownership (owns) AS MATERIALIZED (
        SELECT CASE WHEN EXISTS (SELECT FROM administrators)
            THEN EXISTS (SELECT FROM held WHERE role_id IN (SELECT role_id FROM administrators)) ELSE false END
    ),
    access_facts (caller_current, resource_exists, owns, privileges, holds, policy_id) AS (
        SELECT
            {CURRENT.format(numbers="$3", caller="$1")}, resource_id IS NOT NULL, owns,
            CASE WHEN owns THEN '{{}}' ELSE ARRAY(
                SELECT privilege
                FROM (SELECT privilege, role_id FROM permissions WHERE resource_id = $2 OFFSET 0) AS given
                WHERE role_id IN (SELECT role_id FROM held)
            ) END,
            CASE WHEN EXISTS (SELECT FROM roles WHERE role_id = $2)
                THEN owns OR EXISTS (SELECT FROM held WHERE role_id = $2) ELSE false END,
            policy_id
        FROM ownership LEFT JOIN resources ON resource_id = $2
    )
"""

#: The beginning of a statement with one row ``access_facts``: of role ``$1``, its numbers ``$3``, about resource ``$2``.
WITH_ACCESS_FACTS: Final = f"WITH RECURSIVE {HELD.format(caller='$1')}, {FACTS_TABLES}"


#: How many columns that row has.
FACTS: Final = 6


def caller_parameters(caller: CallerOrRole) -> tuple[str, str | None]:
    """Return a caller as the parameters of a statement: the role's full id, and its numbers, ``None`` for any."""
    if isinstance(caller, Caller):
        return caller.role.full_id, f"{{{caller.creation},{caller.epoch}}}"
    return str(caller), None


def access_facts_of(row: tuple[Any, ...]) -> AccessFacts:
    """Make an ``AccessFacts`` of a row of ``access_facts``.

    :raises CallerReplaced: there is a role of the caller's name, and of another creation or epoch.
    """
    current, exists, owns, privileges, holds, recorded_by = row
    if current is False:
        raise CallerReplaced
    return AccessFacts(current is not None, exists, owns, frozenset(privileges), holds, recorded_by)


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
