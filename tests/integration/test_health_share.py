"""What a round of health reads of very many accounts, on a real PostgreSQL."""

from __future__ import annotations

from typing import Any, Final

from twisted.internet import reactor as installed_reactor

from svc.crypto.tokens import AccessTokens, SigningKeys, new_signing_key
from svc.crypto.vault import Vault
from svc.health.probes import ProbeFailed
from svc.health.signing import ACCOUNTS_PER_ROUND, KEYS_PER_ROUND, AuthnProbe
from svc.model.clocks import MachineClock
from svc.model.query_results import StoredSigningKey
from svc.storage.accounts import AccountStore
from svc.storage.driver.columns import to_array
from svc.storage.driver.statements import Statement
from tests.integration.postgres import DatabaseTestCase
from tests.integration.test_plans import entries_read

reactor: Any = installed_reactor

_ACCOUNTS: Final = Statement("test_accounts", "INSERT INTO accounts (account) SELECT unnest($1::text[])")
_KEYS: Final = Statement(
    "test_keys",
    """
    INSERT INTO signing_keys (account, key_id, sealed, created_at)
    SELECT account, key_id, sealed, 1 FROM unnest($1::text[], $2::text[], $3::bytea[]) AS new (account, key_id, sealed)
    """,
)
_OVERWRITE: Final = Statement("test_overwrite", "UPDATE signing_keys SET sealed = $2::bytea WHERE account = $1::text")
_DELETE: Final = Statement("test_delete", "DELETE FROM signing_keys WHERE account = $1::text")

#: How many rounds are compared.
_ROUNDS: Final = 5


class SigningTests(DatabaseTestCase):
    """Real keys of very many accounts."""

    async def prepare(self) -> None:
        """Have as many accounts as a round looks at."""
        await super().prepare()
        self.vault = Vault(b"k" * 32)
        await self.add(f"a{number:04}" for number in range(ACCOUNTS_PER_ROUND))
        wall = MachineClock()
        keys = SigningKeys(AccountStore(self.database), self.vault, wall)
        self.probe = AuthnProbe(keys, AccessTokens(keys, wall, 480, 480), reactor)

    async def add(self, names: Any) -> None:
        """Add accounts."""
        keys = [new_signing_key(self.vault, name, 1.0) for name in names]
        await self.database.change(_ACCOUNTS, to_array(key.account for key in keys))
        await self.restore(*keys)

    async def restore(self, *keys: StoredSigningKey) -> None:
        """Add keys."""
        columns = (to_array(getattr(key, name) for key in keys) for name in ("account", "key_id", "sealed"))
        await self.database.change(_KEYS, *columns)

    async def failed(self) -> str | None:
        """Check once; why it failed."""
        try:
            await self.probe.check()
        except ProbeFailed as failure:
            return failure.message
        return None

    async def test_one_of_many(self) -> None:
        """Of 500 accounts, a round knows which one's key was overwritten, or deleted, since the one before."""
        self.assertIsNone(await self.failed())
        other = new_signing_key(Vault(b"o" * 32), "a0250", 1.0)
        await self.database.change(_OVERWRITE, "a0250", other.sealed)
        self.assertIn("a0250: WrongDataKey", await self.failed() or "")
        await self.database.change(_DELETE, "a0250")
        self.assertIn("a0250: it has no key to sign with", await self.failed() or "")
        await self.restore(new_signing_key(self.vault, "a0250", 1.0))
        self.assertIsNone(await self.failed())

    async def test_work(self) -> None:
        """The database reads no more for a round of 2,500 accounts than for one of 500: some entries for each that is looked
        at, or whose key is tried (HEALTH-16).
        """
        work = [await self._work()]
        await self.add(f"b{number:04}" for number in range(4 * ACCOUNTS_PER_ROUND))
        work.append(await self._work())
        self.assertLess(max(work), _ROUNDS * (4 * ACCOUNTS_PER_ROUND + 10 * KEYS_PER_ROUND))

    async def _work(self) -> int:
        before = await entries_read(self.database)
        for _ in range(_ROUNDS):
            self.assertIsNone(await self.failed())
        return await entries_read(self.database) - before
