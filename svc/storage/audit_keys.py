"""The key of the audit's digests, sealed, as PostgreSQL keeps it: one for all servers on a database and its followers."""

from __future__ import annotations

from typing import Final

import attrs

from svc.model.query_results import Sealed
from svc.storage.driver.database import Database
from svc.storage.driver.statements import Statement

_READ: Final = Statement("audit_key", "SELECT sealed FROM audit_keys WHERE number = 1")
_ADD: Final = Statement(
    "audit_key_add", "INSERT INTO audit_keys (number, sealed) VALUES (1, $1::bytea) ON CONFLICT DO NOTHING"
)


@attrs.frozen
class AuditKeyStore:
    """The audit key of a database."""

    _database: Database

    async def read_key(self) -> Sealed | None:
        """Return it; ``None`` before it was made."""
        return next((Sealed(sealed) for (sealed,) in await self._database.fetch(_READ)), None)

    async def add_key(self, sealed: Sealed) -> None:
        """Keep it, unless there is one.

        :raises ReadOnlyStandby: this is a standby.
        """
        await self._database.change(_ADD, sealed)
