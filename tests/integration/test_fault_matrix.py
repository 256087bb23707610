"""Every fault against every route of health, on a primary and its follower: no false ok, no false failure, and in time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from twisted.trial.unittest import TestCase

from tests.integration.fault_matrix import FAULTS, tried
from tests.integration.postgres import unavailable
from tests.integration.verdicts import Fault


class FaultMatrixTests(TestCase):
    """One test for each fault, all on one bed."""

    timeout = 300
    skip = unavailable()


def _test(fault: Fault) -> Callable[[FaultMatrixTests], Awaitable[None]]:
    async def test(_: FaultMatrixTests) -> None:
        await tried(fault)

    test.__doc__ = f"{fault.words}: both servers tell the truth of it in time, at every route, and of its end (HEALTH-17)."
    return test


for _number, _fault in enumerate(FAULTS, 1):
    setattr(FaultMatrixTests, f"test_{_number:02}_{_fault.name}", _test(_fault))
