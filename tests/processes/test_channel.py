"""Questions, answers and notices between two processes, in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import KeysUnavailable, StoreUnavailable
from svc.processes.channel import ANSWER_TIMEOUT, MAX_QUESTIONS, ProcessChannel


class ChannelTests(SynchronousTestCase):
    """Two ends of a connection."""

    def setUp(self) -> None:
        """Connect them."""
        self.clock = Clock()
        self.heard: list[object] = []
        self.answers: dict[object, Callable[[], Awaitable[object]]] = {}
        self.losses: list[str] = []

        async def answer(question: Any) -> object:
            return await self.answers[question]()

        self.asking = ProcessChannel(self.clock, answer, self.heard.append, lambda: self.losses.append("asking"))
        self.answering = ProcessChannel(self.clock, answer, self.heard.append, lambda: self.losses.append("answering"))
        self.wires = {self.asking: StringTransport(), self.answering: StringTransport()}
        for end, wire in self.wires.items():
            end.makeConnection(wire)

    def carry(self) -> None:
        """Carry what was written to the other end, in small pieces."""
        for end, other in ((self.asking, self.answering), (self.answering, self.asking)):
            wire = self.wires[end]
            data = wire.value()
            wire.clear()
            for at in range(0, len(data), 7):
                other.dataReceived(data[at : at + 7])

    def ask(self, question: object, patience: float | None = ANSWER_TIMEOUT) -> Deferred[Any]:
        """Ask, and have the other end hear it."""
        asked = Deferred.fromCoroutine(self.asking.send_question(question, patience))
        self.carry()
        return asked

    def test_answers(self) -> None:
        """Each question gets its own answer, whichever comes first."""
        late: Deferred[object] = Deferred()

        async def later() -> object:
            return await late

        async def now() -> object:
            return 2

        self.answers = {"slow": later, "fast": now}
        slow, fast = self.ask("slow"), self.ask("fast")
        self.carry()
        self.assertEqual(self.successResultOf(fast), 2)
        self.assertNoResult(slow)
        late.callback([1])
        self.carry()
        self.assertEqual(self.successResultOf(slow), [1])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_refusals(self) -> None:
        """A refusal of the domain is raised where was asked; a bug is a refusal there, and in the log here."""

        async def refuse() -> object:
            raise KeysUnavailable("no route", 7)

        async def fail() -> object:
            raise KeyError("a bug")

        self.answers = {"refused": refuse, "bug": fail}
        refused, bug = self.ask("refused"), self.ask("bug")
        self.carry()
        self.assertEqual(self.failureResultOf(refused, KeysUnavailable).value.retry_after, 7)
        self.assertIn("KeyError", self.failureResultOf(bug, StoreUnavailable).value.why)
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)

    def test_patience(self) -> None:
        """An answer that doesn't come in time is a refusal, unless any time will do; one that comes later is passed over."""
        late: list[Deferred[object]] = []

        async def later() -> object:
            late.append(Deferred())
            return await late[-1]

        self.answers = {"slow": later}
        slow, patient = self.ask("slow"), self.ask("slow", None)
        self.clock.advance(ANSWER_TIMEOUT)
        self.failureResultOf(slow, StoreUnavailable)
        self.assertNoResult(patient)
        for each in late:
            each.callback(1)
        self.carry()
        self.assertEqual(self.successResultOf(patient), 1)

    def test_notices(self) -> None:
        """What is told is heard in its order."""
        for number in range(3):
            self.asking.send_notice(number)
        self.carry()
        self.assertEqual(self.heard, [0, 1, 2])

    def test_an_end_that_does_not_read(self) -> None:
        """To an end that doesn't read no question is put, and what may be lost isn't told, which who tells it learns."""
        self.asking.pauseProducing()
        self.failureResultOf(self.ask("anything"), StoreUnavailable)
        self.assertFalse(self.asking.send_notice("droppable", droppable=True))
        self.assertTrue(self.asking.send_notice("needed"))
        self.carry()
        self.assertEqual(self.heard, ["needed"])
        self.asking.resumeProducing()
        self.asking.send_notice("again", droppable=True)
        self.carry()
        self.assertEqual(self.heard, ["needed", "again"])

    def test_questions_are_bounded(self) -> None:
        """No more questions are open than may be."""
        asked = [Deferred.fromCoroutine(self.asking.send_question("never", None)) for _ in range(MAX_QUESTIONS)]
        self.failureResultOf(Deferred.fromCoroutine(self.asking.send_question("one more")), StoreUnavailable)
        asked[0].cancel()
        asked[0].addErrback(lambda _: None)
        self.assertNoResult(Deferred.fromCoroutine(self.asking.send_question("one more")))

    def test_the_other_end_goes(self) -> None:
        """When the other process is gone, all questions to it are refused, and the owner is told."""
        asked = Deferred.fromCoroutine(self.asking.send_question("anything"))
        self.asking.connectionLost()
        self.failureResultOf(asked, StoreUnavailable)
        self.failureResultOf(Deferred.fromCoroutine(self.asking.send_question("more")), StoreUnavailable)
        self.asking.send_notice("nothing")
        self.assertEqual(self.losses, ["asking"])
