"""The kinds of an account's resources, found in as many steps as there are kinds, however many resources there are.

Policies may make up kinds, so that what lies beneath a policy by its id has no ranges of the key that are known in advance.
"""

from __future__ import annotations

from typing import Final

from svc.storage.driver.statements import Fetching, Statement


def kinds_of(account: str) -> str:
    """Return the common table expression ``kinds (kind)`` of an account, which ends with NULL."""
    return f"""
    kinds (kind) AS (
        SELECT {_first_kind(account, f"{account} || ':'")}
        UNION ALL
        SELECT {_first_kind(account, f"{account} || ':' || kinds.kind || ';'")} FROM kinds WHERE kinds.kind IS NOT NULL
    )
    """


def _first_kind(account: str, start: str) -> str:
    """Return the kind of an account's first resource from some id on. A semicolon follows the colon in byte order."""
    return f"""(
        SELECT split_part(resource_id, ':', 2) FROM resources
        WHERE resource_id >= {start} AND resource_id < {account} || ';' ORDER BY resource_id LIMIT 1
    )"""


_KINDS: Final = Statement.with_name("account_kinds")(f"""
    WITH RECURSIVE {kinds_of("$1::text")} SELECT kind FROM kinds WHERE kind IS NOT NULL
""")


async def kinds_in(database: Fetching, account: str) -> list[str]:
    """Return the kinds of which an account has resources, in the order of full ids."""
    return [kind for (kind,) in await database.fetch(_KINDS, account)]
