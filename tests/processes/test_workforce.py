"""Processes that serve are watched and replaced: with a clock, and processes that are none."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from svc.model.errors import StartRefused
from svc.model.probes import IProbe
from svc.processes.workforce import (
    DEATHS_UNTIL_END,
    DEATHS_UNTIL_UNHEALTHY,
    HEARTBEAT_INTERVAL,
    HEARTBEATS_TO_START,
    HEARTBEATS_UNTIL_HUNG,
    LONGEST_PAUSE,
    QUICK_RESTARTS,
    STOP_TIMEOUT,
    YOUNG_SECONDS,
    CannotServe,
    IWorkerListener,
    Ping,
    Pong,
    Ready,
    ServingStarted,
    StopServing,
    WorkersFail,
    Workforce,
    WorkforceProbe,
)


class FakeProcess:
    """A process that says what the test has it say; ``told`` is what it was told."""

    def __init__(self, owner: IWorkerListener) -> None:
        self.owner = owner
        self.told: list[object] = []
        self.hangs = False
        self.killed = False

    def send_notice(self, notice: object) -> None:
        """Answer a ping unless it hangs; keep the rest."""
        if not isinstance(notice, Ping):
            self.told.append(notice)
        elif not self.hangs:
            self.owner.handle_notice(Pong())

    async def send_question(self, question: object, patience: float) -> Any:
        """Answer with what it was told first."""
        return [question, self.told[0]]

    def kill(self) -> None:
        """Die."""
        self.killed = True
        self.owner.handle_exit("killed")


class FakeOffice:
    """Gives tasks, and keeps what it hears."""

    def __init__(self) -> None:
        self.said: list[tuple[int, object]] = []
        self.dead: list[int] = []

    def make_task(self, number: int) -> object:
        """Return a task."""
        return f"task {number}"

    def handle_notice(self, number: int, notice: object) -> None:
        """Keep it."""
        self.said.append((number, notice))

    async def answer_question(self, number: int, question: object) -> Any:
        """Answer."""
        return number, question

    def release_worker(self, number: int) -> None:
        """Keep it."""
        self.dead.append(number)


class WorkforceTests(SynchronousTestCase):
    """Two processes that serve, and one that stands by."""

    def setUp(self) -> None:
        """Start."""
        self.clock, self.office = Clock(), FakeOffice()
        self.processes: list[FakeProcess] = []
        self.reasons: list[str] = []
        self.force = Workforce(self.clock, 2, self.started, lambda: self.office, self.reasons.append)
        self.force.startService()
        self.begun = Deferred.fromCoroutine(self.force.wait_until_serving())
        self.begun.addErrback(self.keep)
        self.why: str | None = None

    def keep(self, failure: Any) -> None:
        """Keep why the start failed."""
        failure.trap(StartRefused)
        self.why = failure.value.message

    def started(self, owner: IWorkerListener) -> FakeProcess:
        """Start a process."""
        process = FakeProcess(owner)
        self.processes.append(process)
        return process

    def living(self) -> list[FakeProcess]:
        """The processes that have not been killed."""
        return [process for process in self.processes if not process.killed]

    def serve(self) -> None:
        """Have all processes that have a task serve, and all others be ready."""
        for process in self.living():
            if not process.told:
                process.owner.handle_notice(Ready())
        for process in self.living():
            if process.told[:1] and process.told[-1] != "serves":
                process.owner.handle_notice(ServingStarted())
                process.told.append("serves")

    def complete(self) -> None:
        """Have the server serve, with one process that stands by."""
        self.serve()
        self.serve()

    def test_start(self) -> None:
        """Each process gets its task when it has read its modules; one more stands by when they serve (CFG-28)."""
        self.assertEqual(len(self.processes), 2)
        self.assertNoResult(self.begun)
        self.assertIsNone(self.force.health_fault)
        self.complete()
        self.successResultOf(self.begun)
        self.assertEqual([process.told[:1] for process in self.processes], [["task 1"], ["task 2"], []])
        self.assertEqual((self.force.serving_count, self.force.replaced), (2, 0))

    def test_replaced(self) -> None:
        """The place of one that dies is taken at once by the one that stands by, which is replaced (CFG-29)."""
        self.complete()
        self.processes[0].kill()
        self.assertEqual(self.processes[2].told, ["task 1"])
        self.assertEqual(self.office.dead, [1])
        self.assertEqual(len(self.living()), 3)
        self.serve()
        self.assertEqual((self.force.serving_count, self.force.replaced), (2, 1))

    def test_one_that_stands_by_dies(self) -> None:
        """The one that stands by is replaced too, and nobody is buried."""
        self.complete()
        self.processes[2].kill()
        self.assertEqual((len(self.living()), self.office.dead), (3, []))

    def test_hangs(self) -> None:
        """One that gives no answer for four beats is killed; others aren't, however long (CFG-29)."""
        self.complete()
        self.clock.pump([HEARTBEAT_INTERVAL] * 20)
        self.assertEqual(len(self.living()), 3)
        self.processes[1].hangs = True
        self.clock.pump([HEARTBEAT_INTERVAL] * (HEARTBEATS_UNTIL_HUNG - 1))
        self.assertFalse(self.processes[1].killed)
        self.clock.advance(HEARTBEAT_INTERVAL)
        self.assertTrue(self.processes[1].killed)
        self.assertEqual(self.processes[2].told, ["task 2"])

    def test_answers(self) -> None:
        """The server answers while one of those that serve does, whether others hang or not (CFG-40)."""
        self.assertFalse(self.force.is_responsive)
        self.complete()
        self.assertTrue(self.force.is_responsive)
        self.processes[0].hangs = True
        self.clock.pump([HEARTBEAT_INTERVAL] * HEARTBEATS_UNTIL_HUNG)
        self.assertTrue(self.force.is_responsive)
        self.processes[1].hangs = True
        self.clock.pump([HEARTBEAT_INTERVAL] * HEARTBEATS_UNTIL_HUNG)
        self.assertFalse(self.force.is_responsive)
        self.serve()
        self.assertTrue(self.force.is_responsive)

    def test_suspended(self) -> None:
        """When the whole machine was suspended, nobody is taken for one that hangs."""
        self.complete()
        for process in self.processes:
            process.hangs = True
        self.clock.advance(HEARTBEAT_INTERVAL * 1000)
        self.assertEqual(len(self.living()), 3)

    def test_never_ready(self) -> None:
        """One that never gets ready is killed in the end."""
        self.clock.pump([HEARTBEAT_INTERVAL] * HEARTBEATS_TO_START)
        self.assertTrue(self.processes[0].killed)
        self.assertIn("ended at once", self.why or "")

    def test_slow_to_serve(self) -> None:
        """One that has its task, and answers nothing until it serves, is killed as late as one that never gets ready."""
        self.processes[0].owner.handle_notice(Ready())
        self.assertEqual(self.processes[0].told, ["task 1"])
        self.processes[0].hangs = True
        self.clock.pump([HEARTBEAT_INTERVAL] * (HEARTBEATS_TO_START - 1))
        self.assertFalse(self.processes[0].killed)
        self.clock.advance(HEARTBEAT_INTERVAL)
        self.assertTrue(self.processes[0].killed)

    def test_cannot_start(self) -> None:
        """A process that can't serve when the server starts is the reason why that doesn't start (CFG-13)."""
        self.processes[0].owner.handle_notice(CannotServe("the key is gone"))
        self.assertEqual(self.why, "the key is gone")

    def test_ill(self) -> None:
        """Five deaths within a minute are told by the probe; a minute later all is well again (CFG-30)."""
        probe = WorkforceProbe(self.force)
        self.assertTrue(verifyObject(IProbe, probe))
        self.complete()
        self.successResultOf(Deferred.fromCoroutine(probe.check()))
        self.clock.pump([HEARTBEAT_INTERVAL] * int(YOUNG_SECONDS + 1))
        for _ in range(DEATHS_UNTIL_UNHEALTHY):
            self.living()[0].kill()
            self.complete()
            self.clock.pump([HEARTBEAT_INTERVAL] * 5)
            self.complete()
        refused = self.failureResultOf(Deferred.fromCoroutine(probe.check()), WorkersFail)
        self.assertIn("5 processes have died", str(refused.value))
        self.clock.pump([HEARTBEAT_INTERVAL] * 61)
        self.successResultOf(Deferred.fromCoroutine(probe.check()))

    def test_trouble(self) -> None:
        """A process that can't write its audit records makes the probe fail (CFG-37)."""
        self.complete()
        self.processes[0].owner.handle_notice(Pong("syslog: no connection"))
        self.assertEqual(self.force.health_fault, "worker 1: syslog: no connection")
        self.processes[0].owner.handle_notice(Pong())
        self.assertIsNone(self.force.health_fault)

    def die(self) -> None:
        """Have one that serves die, as soon as there is one."""
        for _ in range(int(LONGEST_PAUSE / HEARTBEAT_INTERVAL) + 2):
            serving = [process for process in self.living() if process.told]
            if serving:
                serving[0].kill()
                return
            self.clock.advance(HEARTBEAT_INTERVAL)
            self.complete()

    def test_again_and_again(self) -> None:
        """After some young deaths the next place is taken later and later; after ten the server gives up (CFG-30)."""
        self.complete()
        for _ in range(QUICK_RESTARTS):
            self.processes[-2].kill()
            self.complete()
        self.assertEqual(self.force.serving_count, 2)
        self.living()[0].kill()
        self.complete()
        self.assertEqual(self.force.serving_count, 1)
        self.clock.pump([HEARTBEAT_INTERVAL] * 2)
        self.complete()
        self.assertEqual(self.force.serving_count, 2)
        for _ in range(DEATHS_UNTIL_END - QUICK_RESTARTS - 1):
            self.assertEqual(self.reasons, [])
            self.die()
        self.assertEqual(len(self.reasons), 1)
        self.assertIn("10 of its processes have died", self.reasons[0])

    def test_old_deaths(self) -> None:
        """Deaths of processes that have served for a while never make the server give up (CFG-30)."""
        self.complete()
        for _ in range(3 * DEATHS_UNTIL_END):
            self.clock.pump([HEARTBEAT_INTERVAL] * int(YOUNG_SECONDS + 1))
            self.living()[0].kill()
            self.complete()
        self.assertEqual(self.reasons, [])

    def test_words(self) -> None:
        """What processes say and ask reaches the office with their numbers, and what is told all that have a place."""
        self.complete()
        self.processes[1].owner.handle_notice("something")
        self.assertEqual(self.office.said, [(2, "something")])
        answer = self.successResultOf(Deferred.fromCoroutine(self.processes[0].owner.answer_question("what")))
        self.assertEqual(answer, (1, "what"))
        self.force.notify_all("news")
        self.assertEqual([process.told[-1:] for process in self.processes], [["news"], ["news"], []])

    def test_each_is_asked(self) -> None:
        """All that serve are asked, and what they answer comes with their numbers."""
        self.complete()
        answers: dict[int, Any] = {}
        self.successResultOf(Deferred.fromCoroutine(self.force.question_all("count", 1.0, answers.__setitem__)))
        self.assertEqual(answers, {1: ["count", "task 1"], 2: ["count", "task 2"]})

    def test_one_hangs_at_the_stop(self) -> None:
        """One that hangs while all are stopped is killed as at any other time (CFG-31)."""
        self.complete()
        self.processes[1].hangs = True
        stopped = self.force.stopService()
        for at in (0, 2):
            self.processes[at].owner.handle_exit("of itself")
        self.clock.pump([HEARTBEAT_INTERVAL] * HEARTBEATS_UNTIL_HUNG)
        self.successResultOf(stopped)
        self.assertTrue(self.processes[1].killed)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stop(self) -> None:
        """The stop tells all to leave, and waits until they have; those that don't are killed (CFG-31)."""
        self.complete()
        stopped = self.force.stopService()
        self.assertEqual([process.told[-1] for process in self.processes], [StopServing()] * 3)
        self.processes[0].owner.handle_exit("of itself")
        self.assertNoResult(stopped)
        self.assertEqual(self.force.replaced, 0)
        self.clock.advance(STOP_TIMEOUT)
        self.assertEqual([process.killed for process in self.processes], [False, True, True])
        self.successResultOf(stopped)
        self.assertEqual(self.clock.getDelayedCalls(), [])
