"""Counts of what records carry, within a transaction (``limits.RecordLimits``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from svc.model.policy_loads import RecordLimit
from svc.storage.driver.columns import fetch_for_rows
from svc.storage.driver.statements import Statement, Transaction


def _count_statement(limit: RecordLimit, number: str, rows: str) -> Statement:
    """Return those of the records ``$1`` whose ``number`` of rows, each of the record ``asked.id``, is more than ``$2``."""
    return Statement.with_name(f"record_limit_{limit}")(f"""
        SELECT asked.id, counted.number FROM unnest($1::text[]) AS asked (id), LATERAL (
            SELECT {number} AS number FROM ({rows} OFFSET 0) AS carried
        ) AS counted
        WHERE counted.number > $2::bigint
    """)


# "0" follows the slash in byte order.
_COUNTED: Final[Mapping[RecordLimit, Statement]] = {
    limit: _count_statement(limit, number, rows)
    for limit, number, rows in (
        (RecordLimit.ANNOTATIONS, "count(*)", "SELECT FROM annotations WHERE resource_id = asked.id"),
        (
            RecordLimit.ANNOTATION_BYTES,
            "coalesce(sum(octet_length(name) + octet_length(value)), 0)::bigint",
            "SELECT name, value FROM annotations WHERE resource_id = asked.id",
        ),
        (RecordLimit.PERMISSIONS, "count(*)", "SELECT FROM permissions WHERE resource_id = asked.id"),
        (RecordLimit.RESTRICTIONS, "count(*)", "SELECT FROM restrictions WHERE role_id = asked.id"),
        (
            RecordLimit.PUBLIC_KEYS,
            "count(*)",
            """
            SELECT FROM resources
            WHERE resource_id >= regexp_replace(asked.id, '^([^:]*):user:', '\\1:public_key:user/') || '/'
                AND resource_id < regexp_replace(asked.id, '^([^:]*):user:', '\\1:public_key:user/') || '0'
            """,
        ),
        (
            RecordLimit.LAYERS,
            "count(*) FILTER (WHERE NOT ownership AND split_part(role_id, ':', 2) = 'layer')",
            "SELECT role_id, ownership FROM memberships WHERE member_id = asked.id",
        ),
    )
}


async def list_exceeding(
    transaction: Transaction, limit: RecordLimit, records: Sequence[str], most: int
) -> list[tuple[str, int]]:
    """See ``PolicyTransaction``."""
    rows = await fetch_for_rows(transaction, _COUNTED[limit], [(record,) for record in records], most)
    return sorted((record, int(number)) for record, number in rows)
