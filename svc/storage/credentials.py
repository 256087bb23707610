"""What roles prove themselves with, as PostgreSQL keeps it."""

from __future__ import annotations

from typing import Final

import attrs
from zope.interface import implementer

from svc.authentication import Credential
from svc.interfaces import ICredentials
from svc.names import RoleName
from svc.storage.database import Database, Statement

_CREDENTIAL: Final = Statement(
    "credential",
    """
    SELECT
        EXISTS (SELECT FROM accounts WHERE account = $2::text),
        EXISTS (SELECT FROM roles WHERE role_id = $1::text),
        (SELECT api_key FROM credentials WHERE role_id = $1),
        (SELECT key_id FROM signing_keys WHERE account = $2 ORDER BY serial DESC LIMIT 1)
    """,
)


@implementer(ICredentials)
@attrs.frozen
class CredentialStore:
    """Provides ``ICredentials`` on PostgreSQL."""

    _database: Database

    async def credential(self, role: RoleName) -> Credential:
        """See ``ICredentials``."""
        (row,) = await self._database.fetch(_CREDENTIAL, str(role), role.account)
        return Credential(*row)
