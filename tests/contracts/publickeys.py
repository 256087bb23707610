"""The suite of ``PublicKeyStore``."""

from __future__ import annotations

from collections.abc import Mapping

from svc.model.credentials import KEYS_LIMIT
from svc.model.query_results import Sealed
from svc.storage.policies import PolicyTransaction
from tests.contracts.base import Contract, Draft, Stores, load, role, scenario

BOB = role("user:bob")


class PublicKeysContract(Contract):
    """Public keys of users."""

    async def _set(self, stores: Stores, values: Mapping[str, Sealed]) -> None:
        async def work(transaction: PolicyTransaction) -> None:
            await transaction.set_values({f"acct:public_key:{name}": value for name, value in values.items()})

        await stores.policies.transact(work)

    @scenario
    async def test_known(self) -> None:
        """It knows what health asks for."""
        keys = (await self.stores()).public_keys
        self.assertIs(await keys.can_find_known_key(), True)

    @scenario
    async def test_newest(self) -> None:
        """The newest values of a user's own keys come in the order of their names; keys without a value don't (KEY-9)."""
        stores = await self.stores_with_account()
        names = ["user/bob/b", "user/bob/a/b", "user/bob/Z", "user/bob/none", "user/bobby/x", "user/bob0/x", "users/bob/x"]
        await load(stores, Draft().define("user:bob", *(f"public_key:{name}" for name in names)))
        await self._set(stores, {name: Sealed(b"old") for name in names if not name.endswith("none")})
        await self._set(stores, {"user/bob/b": Sealed(b"new\x00")})
        self.assertEqual(
            await stores.public_keys.list_keys(BOB),
            [
                ("acct:public_key:user/bob/Z", b"old"),
                ("acct:public_key:user/bob/a/b", b"old"),
                ("acct:public_key:user/bob/b", b"new\x00"),
            ],
        )

    @scenario
    async def test_nobody(self) -> None:
        """Nobody has no keys, nor has a user of another account (KEY-10)."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("user:bob", "public_key:user/bob/k"))
        await self._set(stores, {"user/bob/k": Sealed(b"key")})
        for user in (role("user:eve"), role("user:bob", "other")):
            self.assertEqual(await stores.public_keys.list_keys(user), [])

    @scenario
    async def test_many(self) -> None:
        """Of very many keys the first are told (KEY-12)."""
        stores = await self.stores_with_account()
        names = [f"user/bob/{number:05}" for number in range(KEYS_LIMIT + 1)]
        await load(stores, Draft().define(*(f"public_key:{name}" for name in names)))
        await self._set(stores, dict.fromkeys(names, Sealed(b"key")))
        found = await stores.public_keys.list_keys(BOB)
        self.assertEqual([name for name, _ in found], [f"acct:public_key:{name}" for name in names[:-1]])
