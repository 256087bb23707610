"""The shield between a caller's cancellation and the work."""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import StoreUnavailable
from svc.storage.driver.failures import Contention
from svc.storage.driver.shield import run_to_end


class ShieldTests(SynchronousTestCase):
    """Work that waits for a Deferred of the test's, and a caller that may leave."""

    def setUp(self) -> None:
        """Begin the work."""
        self.wait: Deferred[int] = Deferred()
        self.ended: list[int] = []
        self.caller = run_to_end(self.work())

    async def work(self) -> int:
        """Wait, and note the end."""
        self.ended.append(await self.wait)
        return 7

    def test_result(self) -> None:
        """A caller that stays gets the result."""
        self.wait.callback(1)
        self.assertEqual(self.successResultOf(self.caller), 7)

    def test_failure(self) -> None:
        """A caller that stays gets the failure."""
        self.wait.errback(KeyError())
        self.failureResultOf(self.caller, KeyError)

    def test_cancelled(self) -> None:
        """A caller that leaves is let go at once, and the work goes on to its end."""
        self.caller.cancel()
        self.failureResultOf(self.caller, CancelledError)
        self.assertEqual(self.ended, [])
        self.wait.callback(1)
        self.assertEqual(self.ended, [1])

    def test_refusals_unheard(self) -> None:
        """That the store was unavailable for work whose caller has left is no news."""
        for refusal in (StoreUnavailable("away"), Contention("conflict")):
            self.setUp()
            self.caller.cancel()
            self.failureResultOf(self.caller, CancelledError)
            self.wait.errback(refusal)
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_bugs_unheard(self) -> None:
        """A bug in work whose caller has left is logged."""
        self.caller.cancel()
        self.failureResultOf(self.caller, CancelledError)
        self.wait.errback(KeyError())
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)
