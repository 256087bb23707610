"""The versions of policies, which their loads count."""

from __future__ import annotations

from typing import Final

from svc.storage.driver.statements import Statement, Transaction

_CURRENT: Final = Statement.with_name("policy_version")("""
    SELECT coalesce(max(version), 0) FROM policy_versions WHERE policy_id = $1::text
""")


async def read_current_version(transaction: Transaction, policy: str) -> int:
    """Return the number of a policy's last load, 0 if none was made."""
    ((version,),) = await transaction.fetch(_CURRENT, policy)
    return int(version)
