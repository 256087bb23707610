"""All sealed values, read by key in batches, for the check of a backup."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import attrs

from svc.model.errors import StartRefused
from svc.model.names import INTERNAL_ACCOUNT
from svc.model.query_results import Sealed
from svc.storage.driver.database import Database, Statement

#: How many values are read at a time; each may be as long as a request's body.
BATCH: Final = 100

_SECRETS: Final = Statement.named("sealed_secrets")(f"""
    SELECT resource_id, version, sealed FROM secrets
    WHERE (resource_id, version) > ($1::text, $2::integer) ORDER BY resource_id, version LIMIT {BATCH}
""")
_API_KEYS: Final = Statement(
    "sealed_api_keys", f"SELECT role_id, api_key FROM credentials WHERE role_id > $1::text ORDER BY role_id LIMIT {BATCH}"
)
_PASSWORDS: Final = Statement.named("sealed_passwords")(f"""
    SELECT role_id, password FROM credentials
    WHERE role_id > $1::text AND password IS NOT NULL ORDER BY role_id LIMIT {BATCH}
""")
_CANDIDATES: Final = Statement.named("sealed_candidates")(f"""
    SELECT resource_id, candidate FROM expirations
    WHERE resource_id > $1::text AND candidate IS NOT NULL ORDER BY resource_id LIMIT {BATCH}
""")
_SIGNING_KEYS: Final = Statement.named("sealed_signing_keys")(
    f"SELECT key_id, account, sealed FROM signing_keys WHERE key_id > $1::text ORDER BY key_id LIMIT {BATCH}"
)
_BEGUN: Final = Statement("sealed_begun", "SELECT to_regclass('schema_versions') IS NOT NULL")
_VERSION: Final = Statement("sealed_version", "SELECT version FROM schema_versions ORDER BY version DESC LIMIT 1")


@attrs.frozen
class SealedStore:
    """The sealed values of a database, without those in the program's own account."""

    _database: Database

    async def version(self) -> int:
        """Return the version of the schema.

        :raises StartRefused: there is none.
        """
        if await self._database.fetch(_BEGUN) == [(True,)]:
            for (version,) in await self._database.fetch(_VERSION):
                return int(version)
        raise StartRefused("it holds no database of this program")

    async def secrets(self) -> AsyncIterator[tuple[str, int, Sealed]]:
        """Yield every value: the full id of its variable or public key, its version, itself."""
        async for name, version, sealed in self._all(_SECRETS, "", 0):
            yield name, version, Sealed(sealed)

    async def api_keys(self) -> AsyncIterator[tuple[str, Sealed]]:
        """Yield every API key: its role, and itself."""
        async for role, sealed in self._all(_API_KEYS, ""):
            yield role, Sealed(sealed)

    async def passwords(self) -> AsyncIterator[tuple[str, Sealed]]:
        """Yield the hash of every password: its role, and itself."""
        async for role, sealed in self._all(_PASSWORDS, ""):
            yield role, Sealed(sealed)

    async def candidates(self) -> AsyncIterator[tuple[str, Sealed]]:
        """Yield every value that a rotation may have put in force: the full id of its variable, and itself."""
        async for name, sealed in self._all(_CANDIDATES, ""):
            yield name, Sealed(sealed)

    async def signing_keys(self) -> AsyncIterator[tuple[str, str, Sealed]]:
        """Yield every signing key: its id, its account, itself."""
        async for key_id, account, sealed in self._all(_SIGNING_KEYS, ""):
            yield key_id, account, Sealed(sealed)

    async def _all(self, statement: Statement, *first: Any) -> AsyncIterator[tuple[Any, ...]]:
        after = first
        while rows := await self._database.fetch(statement, *after):
            for row in rows:
                if not row[0].startswith(f"{INTERNAL_ACCOUNT}:"):
                    yield row
            after = rows[-1][: len(first)]
