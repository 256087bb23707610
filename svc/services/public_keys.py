"""Public keys of users: listed for anybody, and replaced by roles that policy permits."""

from __future__ import annotations

import attrs

from svc.crypto.vault import Vault
from svc.model.authorization import require_privilege
from svc.model.credentials import parse_public_key
from svc.model.errors import InvalidParameter
from svc.model.names import ResourceName, RoleName
from svc.model.query_results import Sealed, SecretReading
from svc.services.invocation import Invocation
from svc.services.secrets import holds_value
from svc.storage.public_keys import PublicKeyStore
from svc.storage.secrets import SecretStore


@attrs.frozen
class PublicKeyService:
    """The use cases of public keys (KEY-1). Policy declares them, with the first value of each."""

    store: PublicKeyStore
    values: SecretStore
    vault: Vault

    async def list_keys(self, user: RoleName) -> list[bytes]:
        """Return a user's keys, ordered by name; a user who has none, and one who doesn't exist, look alike."""
        return [self.vault.open(name, sealed).strip() for name, sealed in await self.store.list_keys(user)]

    async def replace_key(self, invocation: Invocation, name: ResourceName, key: bytes) -> None:
        """Replace a key; the caller needs ``update``. An unchanged one makes no new version.

        :raises NotFound: the key doesn't exist, or the caller may not see it.
        :raises Forbidden: the caller sees it and may not replace it.
        :raises InvalidParameter: ``key`` is no public key.
        """

        def seal_if_changed(reading: SecretReading) -> Sealed | None:
            require_privilege(reading.access_facts, "update", name)
            try:
                line = parse_public_key(key.decode("utf-8")).encode("utf-8")
            except ValueError:
                raise InvalidParameter("value", "Invalid public key format") from None
            unchanged = reading.sealed is not None and holds_value(self.vault, name, reading.sealed, line)
            return None if unchanged else self.vault.seal(str(name), line)

        await self.values.write_value(invocation.caller, name, seal_if_changed, invocation.recorder.event_batch)
