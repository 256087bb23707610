"""The decision on rivals in a process that is told of it."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.cluster.remote_write_gate import VALID_SECONDS, SupervisorWriteGate
from svc.cluster.split_brain import WriteDecision
from svc.model.errors import PrimaryContested, StoreUnavailable

REFUSAL = PrimaryContested("another one is newer")


class ToldVerdictTests(SynchronousTestCase):
    """Writes, as they may begin."""

    def setUp(self) -> None:
        """Begin with a verdict that nothing is known against."""
        self.clock = Clock()
        self.asked: list[bool] = []
        self.answer: Exception | None = None
        self.verdict = SupervisorWriteGate(self.clock, WriteDecision(), self.decide)

    async def decide(self, doubtful: bool) -> None:
        """Decide as the process that looks for rivals."""
        self.asked.append(doubtful)
        if self.answer is not None:
            raise self.answer

    def demand(self) -> Deferred[None]:
        """Be about to write."""
        return Deferred.fromCoroutine(self.verdict.wait_until_writable())

    def test_free(self) -> None:
        """Where nothing is known against it a write begins without a question (CFG-38)."""
        self.successResultOf(self.demand())
        self.assertEqual((self.asked, self.verdict.is_writable), ([], True))

    def test_refused(self) -> None:
        """A rival that was told of forbids writes, until it is told that none does (CFG-38)."""
        self.verdict.receive_decision(WriteDecision(True, REFUSAL, frozenset({"b.example"})))
        self.failureResultOf(self.demand(), PrimaryContested)
        self.assertEqual((self.verdict.is_writable, self.verdict.conflicting_members), (False, frozenset({"b.example"})))
        self.verdict.receive_decision(WriteDecision())
        self.successResultOf(self.demand())
        self.assertEqual(self.asked, [])

    def test_uncertain(self) -> None:
        """Where it isn't known a write asks, and is refused with what it is answered (CFG-38)."""
        self.verdict.receive_decision(WriteDecision(False))
        self.assertFalse(self.verdict.is_writable)
        self.successResultOf(self.demand())
        self.answer = StoreUnavailable("it is not known yet")
        self.failureResultOf(self.demand(), StoreUnavailable)
        self.assertEqual(self.asked, [False, False])

    def test_doubt(self) -> None:
        """After this process's database was away no write begins before rivals were asked about again (CFG-38)."""
        self.answer = StoreUnavailable("it is not known yet")
        self.verdict.require_poll()
        self.assertFalse(self.verdict.is_writable)
        self.failureResultOf(self.demand(), StoreUnavailable)
        # The other process knows of the doubt by the first question.
        self.assertEqual(self.asked, [True, False])
        self.answer = None
        self.successResultOf(self.demand())
        self.successResultOf(self.demand())
        self.assertEqual(len(self.asked), 3)
        self.assertTrue(self.verdict.is_writable)

    def test_doubt_without_a_write(self) -> None:
        """A doubt is resolved also when nobody writes, once the process that looks for rivals can tell (CFG-38)."""
        self.answer = StoreUnavailable("it is not known yet")
        self.verdict.require_poll()
        self.verdict.receive_decision(WriteDecision())
        self.assertFalse(self.verdict.is_writable)
        self.answer = None
        self.verdict.receive_decision(WriteDecision())
        self.assertTrue(self.verdict.is_writable)
        self.verdict.receive_decision(WriteDecision())
        self.assertEqual(self.asked, [True, False, False])

    def test_an_old_verdict(self) -> None:
        """Where there are other servers, a verdict that isn't told again is asked for after a while (CFG-38)."""
        self.clock.advance(VALID_SECONDS)
        self.assertFalse(self.verdict.is_writable)
        self.answer = StoreUnavailable("no answer")
        self.failureResultOf(self.demand(), StoreUnavailable)
        self.verdict.receive_decision(WriteDecision(alone=True))
        self.clock.advance(VALID_SECONDS)
        self.successResultOf(self.demand())
        self.assertEqual(self.asked, [False])

    def test_doubt_ends_with_a_rival(self) -> None:
        """A doubt that ends with a refusal forbids writes, also before that is told with the next verdict (CFG-38)."""
        self.answer = REFUSAL
        self.verdict.require_poll()
        self.failureResultOf(self.demand(), PrimaryContested)
        self.assertFalse(self.verdict.is_writable)
        self.verdict.receive_decision(WriteDecision(True, REFUSAL))
        self.failureResultOf(self.demand(), PrimaryContested)
        self.assertEqual(self.asked, [True])
