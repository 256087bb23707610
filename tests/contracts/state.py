"""The suite of ``IDatabaseState``."""

from __future__ import annotations

from zope.interface.verify import verifyObject

from svc.model.errors import StoreUnavailable
from svc.model.ports import IDatabaseState
from svc.model.query_results import Sealed
from tests.contracts.base import Contract, scenario


class StateContract(Contract):
    """What health asks of the database."""

    @scenario
    async def test_provides(self) -> None:
        """It provides the interface."""
        verifyObject(IDatabaseState, (await self.stores()).state)

    @scenario
    async def test_works(self) -> None:
        """A store that works answers, commits, and knows what it should about privileges."""
        state = (await self.stores()).state
        await state.connected()
        await state.transaction()
        self.assertIs(await state.privilege_known(), True)

    @scenario
    async def test_canary(self) -> None:
        """The canary is missing at first, then the one that was established first, for ever (DATA-8)."""
        state = (await self.stores()).state
        with self.assertRaises(StoreUnavailable):
            await state.canary()
        self.assertEqual(await state.establish_canary(Sealed(b"\x00first\\")), b"\x00first\\")
        self.assertEqual(await state.establish_canary(Sealed(b"second")), b"\x00first\\")
        self.assertEqual(await state.canary(), b"\x00first\\")

    @scenario
    async def test_position(self) -> None:
        """The position of the log is the same in bytes as in text (HEALTH-5)."""
        position = await (await self.stores()).state.position()
        high, low = position.text.split("/")
        self.assertEqual(position.position, (int(high, 16) << 32) + int(low, 16))
        self.assertGreater(position.position, 0)
        self.assertFalse(position.standby)
        self.assertEqual((position.lag_bytes, position.lag_seconds), (None, None))
