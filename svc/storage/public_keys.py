"""The store of the public keys of users on PostgreSQL."""

from __future__ import annotations

from typing import Final

import attrs

from svc.model.credentials import KEYS_LIMIT
from svc.model.names import INTERNAL_ACCOUNT, RoleName
from svc.model.query_results import Sealed
from svc.storage.driver.statements import Statement, Statements

#: The newest values of the keys whose ids are in a span.
_NEWEST: Final = Statement.with_name("public_keys_newest")(f"""
    SELECT key.resource_id, value.sealed
    FROM (
        SELECT resource_id FROM resources WHERE resource_id >= $1::text AND resource_id < $2::text
        ORDER BY resource_id LIMIT {KEYS_LIMIT}
    ) AS key, LATERAL (
        SELECT sealed FROM secrets WHERE secrets.resource_id = key.resource_id ORDER BY version DESC LIMIT 1
    ) AS value
    ORDER BY key.resource_id
""")

# The schema makes this one.
_KNOWN: Final = f"{INTERNAL_ACCOUNT}:public_key:health"


@attrs.frozen
class PublicKeyStore:
    """Public keys of users."""

    _database: Statements

    async def list_keys(self, user: RoleName) -> list[tuple[str, Sealed]]:
        """Return the first ``KEYS_LIMIT`` keys of a user that have a value, in order: full ids with the newest values."""
        return await self._list_beneath(f"{user.account}:public_key:user/{user.identifier}")

    async def can_find_known_key(self) -> bool:
        """Look up a key that is always there, and return whether it was found.

        It is looked up with the statement that real requests use.
        """
        return await self._list_beneath(_KNOWN) == [(f"{_KNOWN}/known", b"known")]

    async def _list_beneath(self, name: str) -> list[tuple[str, Sealed]]:
        """Return the keys whose ids begin with a name and a slash; ``0`` follows the slash in byte order."""
        return [(key, Sealed(value)) for key, value in await self._database.fetch(_NEWEST, f"{name}/", f"{name}0")]
