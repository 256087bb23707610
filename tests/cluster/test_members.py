"""The members of a cluster, on a clock that the tests turn."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import ILogObserver, LogEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import provider

from svc.cluster.members import Members
from svc.cluster.reports import UNREACHABLE, MemberHealth, ProbeReply, parse_reply
from tests.walls import Wall

WELL = parse_reply(200, b'{"ok": true, "services": {"core": "ok", "ok": true}}')
ILL = parse_reply(502, b'{"ok": false, "services": {"core": "failed", "ok": false}}')
GONE = ProbeReply(fault=UNREACHABLE, why="no connection")


class MembersTests(SynchronousTestCase):
    """Two members, ``b`` and ``c``, which answer when the test says so."""

    def setUp(self) -> None:
        """Nobody has been asked."""
        self.clock = Clock()
        self.clock.advance(1000)
        self.wall = Wall(self.clock)
        self.asked: dict[str, list[Deferred[ProbeReply]]] = {"b": [], "c": []}
        self.members = Members(self.clock, self.wall, {name: self.asking(name) for name in self.asked})
        self.said: list[str] = []

        @provider(ILogObserver)
        def observer(event: LogEvent) -> None:
            self.said.append(str(event.get("log_format")))

        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)

    def asking(self, name: str) -> Any:
        """What asks a member."""

        async def ask() -> ProbeReply:
            answer: Deferred[ProbeReply] = Deferred()
            self.asked[name].append(answer)
            return await answer

        return ask

    def answer(self, name: str = "b") -> Deferred[ProbeReply | None]:
        """Want an answer."""
        return Deferred.fromCoroutine(self.members.fetch_health(name))

    def overview(self) -> Deferred[list[MemberHealth]]:
        """Look at all of them."""
        return Deferred.fromCoroutine(self.members.list_health())

    def tell(self, name: str, answer: ProbeReply) -> None:
        """Let the newest question to a member be answered."""
        self.asked[name][-1].callback(answer)

    def test_strangers(self) -> None:
        """Of a name that isn't listed, exactly so, nothing is known, and nobody is asked (HEALTH-18)."""
        for name in ("", "B", "b.", "b ", "d", "127.0.0.1", "b:80", "http://b", "u@b", "..", "\x00", "b\x00", "\u212a"):
            self.assertIsNone(self.successResultOf(self.answer(name)))
        self.assertEqual(self.asked, {"b": [], "c": []})

    def test_one_question_at_a_time(self) -> None:
        """However many want an answer, a member is asked once, and all get it; other members aren't asked (HEALTH-21)."""
        waiting = [self.answer() for _ in range(100)]
        self.assertEqual((len(self.asked["b"]), len(self.asked["c"])), (1, 0))
        self.tell("b", WELL)
        self.assertEqual({id(self.successResultOf(each)) for each in waiting}, {id(WELL)})

    def test_one_question_a_second(self) -> None:
        """An answer is good for a second, a failure too; then the member is asked again (HEALTH-21)."""
        for answer in (WELL, GONE):
            self.answer()
            self.tell("b", answer)
            self.clock.advance(1)
            self.assertIs(self.successResultOf(self.answer()), answer)
            self.clock.advance(0.1)
        self.assertNoResult(self.answer())
        self.assertEqual(len(self.asked["b"]), 3)

    def test_clock_set_back(self) -> None:
        """An answer that a clock put back has left in the future is none."""
        self.answer()
        self.tell("b", WELL)
        self.clock.rightNow = 500.0
        self.assertNoResult(self.answer())
        self.assertEqual(len(self.asked["b"]), 2)

    def test_who_leaves(self) -> None:
        """Who doesn't wait any longer takes nothing from the others, nor from the question."""
        leaves, stays = self.answer(), self.answer()
        leaves.cancel()
        self.failureResultOf(leaves)
        self.tell("b", WELL)
        self.assertIs(self.successResultOf(stays), WELL)

    def test_bug(self) -> None:
        """A question that meets a bug is one without an answer, and the log has the traceback."""
        waiting = self.answer()
        self.asked["b"][-1].errback(LookupError("bug"))
        answer = self.successResultOf(waiting)
        assert answer is not None
        self.assertEqual((answer.fault, answer.ok), (UNREACHABLE, False))
        self.assertEqual(len(self.flushLoggedErrors(LookupError)), 1)

    def test_overview(self) -> None:
        """A look at all asks all at once, and shows each in the order of the settings."""
        looking = self.overview()
        self.assertEqual([len(each) for each in self.asked.values()], [1, 1])
        self.tell("c", ILL)
        self.tell("b", WELL)
        seen = [(each.name, each.word, each.services, each.changed) for each in self.successResultOf(looking)]
        self.assertEqual(seen, [("b", "ok", {"core": "ok"}, None), ("c", "failed", {"core": "failed"}, None)])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_no_members(self) -> None:
        """Where no servers are listed there is nothing to see."""
        self.assertEqual(self.successResultOf(Deferred.fromCoroutine(Members(self.clock, self.clock, {}).list_health())), [])

    def test_last_known(self) -> None:
        """A member that hangs holds a look up for a second, if it answered within a minute: that is shown, with its age
        (HEALTH-25).
        """
        self.overview()
        self.tell("b", WELL)
        self.tell("c", WELL)
        self.clock.advance(30)
        looking = self.overview()
        self.tell("b", WELL)
        self.clock.advance(0.9)
        self.assertNoResult(looking)
        self.clock.advance(0.1)
        b, c = self.successResultOf(looking)
        self.assertEqual((round(b.age, 3), c.word, round(c.age, 3)), (1.0, "ok", 31.0))
        self.tell("c", GONE)
        self.clock.advance(0.5)
        looking = self.overview()
        self.tell("b", WELL)
        _, c = self.successResultOf(looking)
        self.assertEqual((c.word, c.is_reachable, c.age), (UNREACHABLE, False, 0.5))

    def test_nothing_known(self) -> None:
        """What was known more than a minute ago isn't shown: the member's answer, or its absence, is waited for
        (HEALTH-25).
        """
        self.overview()
        self.tell("b", WELL)
        self.tell("c", WELL)
        self.clock.advance(61)
        looking = self.overview()
        self.tell("b", WELL)
        self.clock.advance(4.9)
        self.assertNoResult(looking)
        self.tell("c", GONE)
        self.assertEqual([each.word for each in self.successResultOf(looking)], ["ok", UNREACHABLE])

    def test_who_stops_looking(self) -> None:
        """Who stops looking leaves nothing behind on the clock, and the questions go on."""
        looking = self.overview()
        looking.cancel()
        self.failureResultOf(looking)
        self.tell("b", WELL)
        self.tell("c", WELL)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.successResultOf(self.overview())

    def test_last_change(self) -> None:
        """A change is when an answer differs from the one before in state; where the log stands is none."""
        moments = []
        for answer in (
            WELL,
            parse_reply(200, b'{"ok":true,"services":{"core":"ok","ok":true},"n":1}'),
            ILL,
            ILL,
            GONE,
            WELL,
        ):
            looking = self.overview()
            self.tell("b", answer)
            self.tell("c", WELL)
            moments.append(self.successResultOf(looking)[0].changed)
            self.clock.advance(10)
        self.assertEqual(moments, [None, None, 1020.0, 1020.0, 1040.0, 1050.0])
        self.wall.ahead = -500.0
        looking = self.overview()
        self.tell("b", ILL)
        self.tell("c", WELL)
        self.assertEqual(self.successResultOf(looking)[0].changed, 560.0)

    def test_looked_at_steadily(self) -> None:
        """When a member fell silent, and was back, is known though nobody looked then; since when it is as it is it says
        itself (OPS-6).
        """
        told = parse_reply(200, b'{"ok": true, "cluster": {"node": {"changed": 900}}}')
        members = Members(self.clock, self.wall, {name: self.asking(name) for name in self.asked}, 5.0)
        members.startService()
        self.addCleanup(members.stopService)
        moments = []
        for answer in (told, told, GONE, GONE, told, told):
            for name in self.asked:
                self.tell(name, answer)
            looking = Deferred.fromCoroutine(members.list_health())
            moments.append(self.successResultOf(looking)[0].changed)
            self.clock.advance(5)
        self.assertEqual(moments, [900, 900, 1010.0, 1010.0, 1020.0, 1020.0])
        self.assertEqual(len(self.asked["b"]), 7)

    def test_only_changes_are_logged(self) -> None:
        """That a member gives no report is logged once however long it lasts, and its end once."""
        for answer in (WELL, GONE, GONE, GONE, ILL, WELL):
            self.answer()
            self.tell("b", answer)
            self.clock.advance(2)
        said = [line for line in self.said if line.startswith("The server")]
        self.assertEqual([line.partition("gives ")[2][:9] for line in said], ["no health", "health re"])
