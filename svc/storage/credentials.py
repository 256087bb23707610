"""What roles prove themselves with, as PostgreSQL keeps it."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Final

import attrs
from zope.interface import implementer

from svc.authentication import RESTRICTIONS_LIMIT
from svc.credentials import Credential, ICredentials
from svc.errors import NotFound
from svc.events import Trail
from svc.names import RoleName
from svc.records import Sealed
from svc.storage.database import Database, Statement, Transaction
from svc.storage.events import record
from svc.storage.failures import ForeignKeyViolation

_CREDENTIAL: Final = Statement(
    "credential",
    f"""
    SELECT
        EXISTS (SELECT FROM accounts WHERE account = $2::text),
        (SELECT creation FROM roles WHERE role_id = $1::text),
        stored.api_key,
        (SELECT key_id FROM signing_keys WHERE account = $2 ORDER BY serial DESC LIMIT 1),
        stored.password,
        stored.expires_at,
        ARRAY(SELECT cidr FROM restrictions WHERE role_id = $1 ORDER BY cidr LIMIT {RESTRICTIONS_LIMIT})
    FROM (SELECT) AS always LEFT JOIN credentials AS stored ON stored.role_id = $1
    """,
)
_SET_API_KEY: Final = Statement(
    "credential_set_api_key",
    """
    INSERT INTO credentials (role_id, api_key, rotated_at)
    SELECT role_id, $2::bytea, now() FROM roles WHERE role_id = $1::text
    ON CONFLICT (role_id) DO UPDATE SET api_key = excluded.api_key, rotated_at = excluded.rotated_at RETURNING role_id
    """,
)
_ROTATED_AT: Final = Statement(
    "credential_rotated_at",
    "SELECT extract(epoch FROM rotated_at)::double precision FROM credentials WHERE role_id = $1::text",
)
_SET_PASSWORD: Final = Statement(
    "credential_set_password",
    """
    UPDATE credentials SET password = $2::bytea
    WHERE role_id = $1::text AND ($3::bytea IS NULL OR password = $3) RETURNING role_id
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
        account_exists, creation, api_key, signing_key, password, expires_at, networks = row
        restrictions, known = tuple(map(ip_network, networks)), creation is not None
        return Credential(account_exists, known, api_key, signing_key, password, expires_at, restrictions, creation or 0)

    async def set_api_key(self, role: RoleName, api_key: Sealed, trail: Trail | None = None) -> None:
        """See ``ICredentials``."""
        try:
            found = await self._set(trail, _SET_API_KEY, str(role), api_key)
        except ForeignKeyViolation:  # the role went meanwhile
            found = False
        if not found:
            raise NotFound.of(role)

    async def rotated_at(self, role: RoleName) -> float | None:
        """See ``ICredentials``."""
        rows = await self._database.fetch(_ROTATED_AT, str(role))
        return rows[0][0] if rows else None

    async def set_password(
        self, role: RoleName, password: Sealed, instead_of: Sealed | None = None, trail: Trail | None = None
    ) -> bool:
        """See ``ICredentials``."""
        return await self._set(trail, _SET_PASSWORD, str(role), password, instead_of)

    async def _set(self, trail: Trail | None, statement: Statement, *parameters: object) -> bool:
        """Change a credential, and record that with it; whether there was one to change."""

        async def work(transaction: Transaction) -> bool:
            found = bool(await transaction.fetch(statement, *parameters))
            await record(transaction, trail if found else None)
            return found

        return await self._database.transact(work)
