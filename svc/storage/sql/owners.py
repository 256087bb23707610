"""Owners of records, and the policies around them, found in few statements, however many records there are.

Note [The policy around]

The policy around a record is the longest beginning of its id, up to a slash, that is a policy's. An id that is made of
slashes has hundreds. But of all policies in the order of their ids, the last that doesn't come after the record's folder has
every beginning of that kind in common with it. So that one is looked up, and again for the part in common, until it is that
part itself. A folder is looked up once, however many records are in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from svc.model.names import root_policy
from svc.model.ownership import Ownership
from svc.model.policy_loads import RecordedOwner
from svc.storage.driver.columns import fetch_for_rows
from svc.storage.driver.statements import Statement, Transaction

# A batch is followed upwards as one: common owners are followed once, and a circle ends.
_OWNERS: Final = Statement.with_name("owners_of")("""
    WITH RECURSIVE known (id) AS (
        SELECT unnest($1::text[]) COLLATE "C"
        UNION
        SELECT unnest(ARRAY(SELECT unnest(ARRAY[owner_id, policy_id]) FROM resources WHERE resource_id = known.id))
        FROM known
    )
    SELECT found.resource_id, found.owner_id, found.policy_id FROM known, LATERAL (
        SELECT resource_id, owner_id, policy_id FROM resources WHERE resource_id = known.id OFFSET 0
    ) AS found
""")
_LAST_POLICY: Final = Statement.with_name("owners_last_policy")("""
    SELECT asked.id, (
        SELECT resource_id FROM resources WHERE resource_id >= asked.first AND resource_id <= asked.id
        ORDER BY resource_id DESC LIMIT 1
    ) FROM unnest($1::text[], $2::text[]) AS asked (id, first)
""")


def own_within(policy: str, loaded: str) -> str:
    """Return a query for the policies that own themselves, lie in ``policy``, if that full id is a policy's, and were
    recorded by the loaded policy: loads of no other delete them (POL-33, POL-45).
    """
    # No index serves the condition on the loaded policy: else all that it recorded might be read for each deleted policy.
    return f"""
        SELECT own.resource_id FROM resources AS own
        WHERE {policy} ~ '^[^:]*:policy:' AND own.resource_id > {policy} || '/' AND own.resource_id < {policy} || '0'
            AND own.owner_id = own.resource_id AND own.policy_id IS NOT DISTINCT FROM {loaded} AND NOT EXISTS (
                SELECT FROM resources AS nearer
                WHERE nearer.resource_id > {policy} || '/' AND nearer.resource_id < own.resource_id
                    AND starts_with(own.resource_id, nearer.resource_id || '/')
            )
    """


async def read_ownership(transaction: Transaction, records: Iterable[str], placed: Sequence[str]) -> Ownership:
    """See ``PolicyTransaction``."""
    around = await _find_policies_around(transaction, placed)
    asked = dict.fromkeys((*records, *around.values()))
    found = await fetch_for_rows(transaction, _OWNERS, [(record,) for record in asked])
    return Ownership({record: RecordedOwner(owner, policy) for record, owner, policy in found}, around)


async def _find_policies_around(transaction: Transaction, records: Sequence[str]) -> dict[str, str]:
    """Return the policy around each record (Note [The policy around])."""
    folders = {record: _parent_id(record) for record in records}
    led: dict[str, str] = {}
    coming = {folder for folder in folders.values() if not _is_root(folder)}
    while coming:
        rows = [(folder, folder[: _identifier_start(folder)]) for folder in sorted(coming)]
        for folder, last in await fetch_for_rows(transaction, _LAST_POLICY, rows):
            led[folder] = folder if last == folder else _common_parent(folder, last or "")
        coming = {folder for folder in led.values() if folder not in led and not _is_root(folder)}
    return {record: _follow_parents(folder, led) for record, folder in folders.items()}


def _parent_id(record: str) -> str:
    """Return the full id that a policy just around a record would have; the root's, where there can be none."""
    account, _, identifier = record.split(":", 2)
    return _policy_id(account, identifier.rpartition("/")[0])


def _common_parent(folder: str, other: str) -> str:
    """Return the longest proper beginning of a folder, up to a slash, that ``other`` begins with too."""
    same = next((at for at, (one, two) in enumerate(zip(folder, other, strict=False)) if one != two), len(other))
    start = _identifier_start(folder)
    return _policy_id(folder.partition(":")[0], folder[start : max(start, folder.rfind("/", start, same + 1))])


def _follow_parents(folder: str, led: dict[str, str]) -> str:
    while (following := led.get(folder, folder)) != folder:
        folder = following
    return folder


def _policy_id(account: str, identifier: str) -> str:
    return f"{account}:policy:{identifier}" if identifier else str(root_policy(account))


def _identifier_start(folder: str) -> int:
    """Return where the identifier begins."""
    return folder.index(":policy:") + len(":policy:")


def _is_root(folder: str) -> bool:
    return folder == str(root_policy(folder.partition(":")[0]))
