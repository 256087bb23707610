"""The suite of ``DatabaseState``."""

from __future__ import annotations

from svc.model.errors import StoreUnavailable
from svc.model.query_results import Sealed, StoredSigningKey
from tests.contracts.base import Contract, scenario


class StateContract(Contract):
    """What health asks of the database."""

    @scenario
    async def test_works(self) -> None:
        """A store that works answers, commits, and knows what it should about privileges."""
        state = (await self.stores()).state
        await state.check_connection()
        await state.check_transaction()
        self.assertIs(await state.can_check_known_privileges(), True)

    @scenario
    async def test_canary(self) -> None:
        """The canary is missing at first, then the one that was established first, for ever (DATA-8)."""
        state = (await self.stores()).state
        with self.assertRaises(StoreUnavailable):
            await state.read_canary()
        self.assertEqual(await state.establish_canary(Sealed(b"\x00first\\")), b"\x00first\\")
        self.assertEqual(await state.establish_canary(Sealed(b"second")), b"\x00first\\")
        self.assertEqual(await state.read_canary(), b"\x00first\\")

    @scenario
    async def test_ages(self) -> None:
        """The oldest key that an account signs with now counts, and a backup is known when one was made (HEALTH-28)."""
        stores = await self.stores()
        none = await stores.state.read_ages()
        self.assertEqual((none.signing_key, none.backup), (None, None))
        for account, made in (("acme", 1000.0), ("other", 2000.0)):
            await stores.accounts.create_account(
                account, Sealed(b"k"), StoredSigningKey(account, account, Sealed(b"s"), made)
            )
        self.assertEqual((await stores.state.read_ages()).signing_key, 1000.0)
        await stores.accounts.rotate_signing_key(StoredSigningKey("acme", "newer", Sealed(b"s"), 3000.0), 4000.0)
        await stores.state.record_backup()
        ages = await stores.state.read_ages()
        self.assertEqual(ages.signing_key, 2000.0)
        self.assertIsNotNone(ages.backup)

    @scenario
    async def test_position(self) -> None:
        """The position of the log is the same in bytes as in text (HEALTH-5)."""
        position = await (await self.stores()).state.read_position()
        high, low = position.text.split("/")
        self.assertEqual(position.position, (int(high, 16) << 32) + int(low, 16))
        self.assertGreater(position.position, 0)
        self.assertFalse(position.standby)
        self.assertEqual((position.lag_bytes, position.lag_seconds), (None, None))
