"""The dependencies of a read, as columns of its statement, for the read cache.

Note [Columns of a cached statement]. After its own columns, a cached statement returns: ``names``, of everything whose
change may change the answer (``schema/0010_changes.sql``); ``lasts``, in how many seconds the row changes by itself, NULL
for never; ``known``, whether it is about something that exists. ``names`` and ``known`` are taken from the first row. A
statement follows memberships no further than it must; it returns one more name than the cache keeps apart
(``svc/storage/cache/dependency_names.py``, Note [Coarse names]).

Note [Who administers]. Whether a caller owns a thing is searched from both ends (``access_facts``, Note [Standing in one
statement]), but it follows from the roles that the caller holds, and the thing's owner: a role that administers the owner
holds it by a chain of memberships, and a caller who holds that role holds each role of the chain. So a caller owns a thing
if and only if the owner is among the roles that it holds. These are found by following their memberships, so that a change
of administrators which makes a difference changes one of those.

A read depends on absent rows too. Each row is found by an id, of a role, a resource, a member or an account, so that the
name with that id covers it, be it there or not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from svc.storage.driver.statements import CachedStatement, Statement

#: One more than the cache keeps apart.
_MOST: Final = 65

#: The memberships of the roles that the caller holds, with ``held``.
HELD_NAMES: Final = f"ARRAY(SELECT 'm:' || role_id FROM held LIMIT {_MOST})"

#: The columns where a row has no dependencies.
NONE: Final = ", NULL::text[], NULL::double precision, NULL::boolean"


#: The caller ``$1`` of a token: the role's row, and that of its account, which has an epoch too.
CALLER_NAMES: Final = "ARRAY['r:' || $1, 'k:' || split_part($1, ':', 1)]"


def name_array(*names: tuple[str, str]) -> str:
    """Return an array of names in SQL, each of a letter and an id in SQL, such as ``("r", "$1")``."""
    return "ARRAY[" + ", ".join(f"'{letter}:' || {sql}" for letter, sql in names) + "]"


def cached_statement(
    name: str,
    sql: Callable[[str], str],
    *names: str,
    lasts: str = "NULL::double precision",
    known: str = "true",
    first: str = "true",
) -> CachedStatement:
    """Return a statement whose answer may be cached.

    :param sql: returns the statement with more columns, each after a comma, or with ``""``.
    :param names: arrays of names, in SQL.
    :param first: whether a row is the first, in SQL, where there may be more.
    """
    columns = f", CASE WHEN {first} THEN {' || '.join(names)} END, {lasts}, {known}"
    return CachedStatement(name, sql(""), with_dependencies=Statement(f"{name}_remembered", sql(columns)))
