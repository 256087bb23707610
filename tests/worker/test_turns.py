"""Large loads wait for their turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from svc.model.errors import PolicyConflict
from svc.model.policy_loads import ILoads, Load, LoadOutcome
from svc.worker.pool import LimitedLoads
from tests.worker.test_pool import load


@implementer(ILoads)
class SlowLoads:
    """Loads that end when the test says so."""

    def __init__(self) -> None:
        self.ending: list[Deferred[LoadOutcome]] = []

    async def load_policy(self, load: Load) -> LoadOutcome:
        """See ``ILoads``."""
        self.ending.append(Deferred())
        return await self.ending[-1]


class LoadsInTurnTests(SynchronousTestCase):
    """One load and its turn."""

    def setUp(self) -> None:
        """Make both."""
        self.inner, self.given = SlowLoads(), 0
        self.turn: Deferred[None] = Deferred()
        self.loads = LimitedLoads(self.inner, self)
        self.whose: list[str] = []

    async def acquire(self, whose: str) -> Callable[[], None]:
        """See ``IPermits``."""
        self.whose.append(whose)
        await self.turn

        def give_back() -> None:
            self.given += 1

        return give_back

    def test_in_turn(self) -> None:
        """A load begins when it has its turn, of its caller's, and gives it back with its outcome (CFG-34)."""
        self.assertTrue(verifyObject(ILoads, self.loads))
        wanted = load(b"", "alice")
        loading = Deferred.fromCoroutine(self.loads.load_policy(wanted))
        self.assertEqual((self.whose, self.inner.ending), ([str(wanted.caller.role)], []))
        self.turn.callback(None)
        outcome = cast("LoadOutcome", object())
        self.inner.ending[0].callback(outcome)
        self.assertIs(self.successResultOf(loading), outcome)
        self.assertEqual(self.given, 1)

    def test_failure(self) -> None:
        """What a load raises is raised, and its turn is given back."""
        self.turn.callback(None)
        loading: Deferred[Any] = Deferred.fromCoroutine(self.loads.load_policy(load(b"", "alice")))
        self.inner.ending[0].errback(PolicyConflict())
        self.failureResultOf(loading, PolicyConflict)
        self.assertEqual(self.given, 1)

    def test_the_client_leaves(self) -> None:
        """A load whose client has left has its turn until it ends."""
        self.turn.callback(None)
        loading: Deferred[Any] = Deferred.fromCoroutine(self.loads.load_policy(load(b"", "alice")))
        loading.cancel()
        self.failureResultOf(loading, CancelledError)
        self.assertEqual(self.given, 0)
        self.inner.ending[0].callback(cast("LoadOutcome", object()))
        self.assertEqual(self.given, 1)
