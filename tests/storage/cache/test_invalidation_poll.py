"""Looks for changes, at a database in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock, deferLater
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.model.counts import PoolCounts
from svc.model.errors import StoreUnavailable
from svc.model.versions import StateVersion
from svc.storage.cache.commit_counters import CommitCounters
from svc.storage.cache.invalidation_poll import InvalidationPoll
from svc.storage.driver.connection import Fetched, Session
from svc.storage.driver.database import Database
from svc.storage.driver.query_timeout import QUERY_TIMEOUT

LAG = 2.0

#: The answer to a look at which nothing is new.
NOTHING: Sequence[tuple[Any, ...]] = (("10:10:", False, "0", "1", None, None, None),)


def change(xid: int, *touched: str) -> tuple[Any, ...]:
    """Return a row of a change."""
    return None, None, None, None, str(xid), f"(0,{xid})", list(touched)


class LookingSession:
    """A session whose statements are answered by the test."""

    def __init__(self, lost: Callable[[Exception], None], server: str) -> None:
        self.server = server
        self.lost = False
        #: The parameters of the look under way, and its answer.
        self.asked: Sequence[object] | None = None
        self._lost = lost
        self._answer: Deferred[Fetched] | None = None
        self.looks = 0

    def run(self, sql: str, parameters: Sequence[object] = ()) -> Deferred[Fetched]:
        """Begin a statement."""
        answer: Deferred[Fetched] = Deferred()
        if sql.startswith("PREPARE"):
            answer.callback([])
            return answer
        self.asked, self._answer = parameters, answer
        self.looks += 1
        return answer

    def answer(self, *rows: tuple[Any, ...]) -> None:
        """Answer the look under way."""
        answer, self._answer, self.asked = self._answer, None, None
        assert answer is not None
        answer.callback(list(rows or NOTHING))

    def drop(self, reason: Exception) -> None:
        """Lose it."""
        if self.lost:
            return
        self.lost = True
        answer, self._answer, self.asked = self._answer, None, None
        self._lost(reason)
        if answer is not None:
            answer.errback(Failure(reason))


class LookedAt:
    """A database with sessions to look with."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.sessions: list[LookingSession] = []
        self.away = self.busy = False
        self.uses_standbys = False
        self.server = "one"

    def count_read_sessions(self) -> PoolCounts:
        """Count its sessions for readings."""
        return PoolCounts(1, int(self.busy), 0, 0, 0.0, 0)

    async def open_session(self, lost: Callable[[Exception], None]) -> Session:
        """Open a session, in the next turn."""
        await deferLater(self.clock, 0.0)
        if self.away:
            raise StoreUnavailable("it is away")
        self.sessions.append(LookingSession(lost, self.server))
        return cast(Session, self.sessions[-1])


class LooksCase(SynchronousTestCase):
    """Looks that have begun."""

    def setUp(self) -> None:
        """Open the session, and look once."""
        self.clock, self.slots = Clock(), CommitCounters.for_one_process()
        self.database = LookedAt(self.clock)
        self.changed: list[list[str]] = []
        self.began: list[int] = []
        self.looks = InvalidationPoll(
            self.clock,
            cast(Database, self.database),
            self.slots,
            LAG,
            self.changed.append,
            lambda: self.began.append(self.looks.processed),
        )
        self.looks.start()
        self.clock.advance(0)
        self.session.answer()

    @property
    def session(self) -> LookingSession:
        """The session that was opened last."""
        return self.database.sessions[-1]

    def confirm(self) -> Deferred[bool]:
        """Ask for a confirmation."""
        return Deferred.fromCoroutine(self.looks.confirm_current())

    def look(self, *rows: tuple[Any, ...]) -> None:
        """Have it look, and be answered so."""
        asked = Deferred.fromCoroutine(self.looks.poll_now())
        self.session.answer(*rows)
        self.assertTrue(self.successResultOf(asked))


class CurrentTests(LooksCase):
    """When memory may be used."""

    def test_age(self) -> None:
        """It is current for the lag after the look was sent, however long that took to be answered (CLU-32)."""
        asked = self.confirm()
        self.clock.advance(QUERY_TIMEOUT * 0.9)
        self.session.answer()
        self.assertTrue(self.successResultOf(asked))
        self.clock.advance(LAG - QUERY_TIMEOUT * 0.9)
        self.assertTrue(self.looks.is_current())
        self.clock.advance(0.001)
        self.assertFalse(self.looks.is_current())

    def test_slots(self) -> None:
        """It isn't current once any process of the server has written (CLU-31)."""
        self.assertTrue(self.looks.is_current())
        for confirmed in (True, False):
            self.slots.count_commit(confirmed=confirmed)
            self.assertFalse(self.looks.is_current())
            self.look()
            self.assertTrue(self.looks.is_current())

    def test_looks_ahead(self) -> None:
        """From half of the lag on, a request that is answered from memory has it look again, once (CLU-32)."""
        self.clock.advance(LAG / 2)
        self.assertTrue(self.looks.is_current())
        self.assertIsNone(self.session.asked)
        self.clock.advance(0.1)
        self.assertTrue(self.looks.is_current())
        self.assertTrue(self.looks.is_current())
        self.assertEqual(self.session.looks, 2)
        self.session.answer()
        self.assertTrue(self.looks.is_current())
        self.assertEqual(self.session.looks, 2)

    def test_joined(self) -> None:
        """Requests wait for the look under way, unless the server has written since it was sent (CLU-31)."""
        first, second = self.confirm(), self.confirm()
        self.slots.count_commit(confirmed=True)
        third, fourth = self.confirm(), self.confirm()
        self.session.answer()
        self.assertTrue(self.successResultOf(first) and self.successResultOf(second))
        self.assertNoResult(third)
        self.assertFalse(self.looks.is_current())
        self.session.answer()
        self.assertTrue(self.successResultOf(third) and self.successResultOf(fourth))
        self.assertEqual(self.session.looks, 3)

    def test_joined_late(self) -> None:
        """Requests don't wait for a look that was sent longer ago than the lag (CLU-32)."""
        looks = InvalidationPoll(
            self.clock, cast(Database, self.database), self.slots, 0.2, self.changed.append, lambda: None
        )
        looks.start()
        self.clock.advance(0)
        first = Deferred.fromCoroutine(looks.confirm_current())
        self.clock.advance(0.3)
        second = Deferred.fromCoroutine(looks.confirm_current())
        self.session.answer()
        self.assertTrue(self.successResultOf(first))
        self.assertNoResult(second)
        self.session.answer()
        self.assertTrue(self.successResultOf(second))

    def test_cancelled(self) -> None:
        """A request that is cancelled while it waits leaves the others waiting, and the look under way."""
        first, second = self.confirm(), self.confirm()
        first.addErrback(lambda _: None)
        first.cancel()
        self.session.answer()
        self.assertTrue(self.successResultOf(second))


class ChangeTests(LooksCase):
    """What is asked for, and told."""

    def test_asked(self) -> None:
        """On a primary exactly those are asked for that the last look couldn't see (CLU-32)."""
        self.look(("740:753:740,745", False, "0", "1", None, None, None))
        self.confirm()
        self.assertEqual(self.session.asked, ("753", "{740,745}"))

    def test_standby(self) -> None:
        """On a standby all from the oldest on are asked for, and told once (CLU-32)."""
        self.look(("740:753:", True, "0", "1", None, None, None), change(741, "v:a"), change(738, "v:b"))
        self.assertEqual(self.changed, [["v:a", "v:b"]])
        self.look(("740:760:", True, "0", "1", None, None, None), change(741, "v:a"), change(740, "v:c"))
        self.assertEqual(self.changed[1:], [["v:c"]])
        self.look(("741:760:", False, "0", "1", None, None, None), change(741, "v:a"), change(740, "v:c"))
        self.assertEqual(self.changed[2:], [], "as it was asked before it was promoted")

    def test_promoted_meanwhile(self) -> None:
        """A snapshot that was taken before a promotion names nothing open, though the look ends after it (CLU-32)."""
        self.look(("740:753:", True, "0", "1", None, None, None))
        self.look(("740:753:", False, "0", "1", None, None, None))
        self.confirm()
        self.assertEqual(self.session.asked, ("740", "{}"))

    def test_touched(self) -> None:
        """An answer is untouched if no look since it was asked for found its names, and none was forgotten (CLU-32)."""
        mark = self.looks.reading_mark()
        assert mark is not None
        self.look(("11:11:", False, "0", "1", None, None, None), change(10, "v:a", "m:acct:b"))
        for names, untouched in (
            (["v:b"], True),
            (["v:b", "v:a"], False),
            (["~:acct"], False),
            (["~:other"], True),
            ([], True),
        ):
            self.assertEqual(self.looks.is_untouched(mark, "one", names), untouched, names)
        later = self.looks.reading_mark()
        assert later is not None
        self.assertTrue(self.looks.is_untouched(later, "one", ["v:a"]))
        self.assertFalse(self.looks.is_untouched(later, "another", ["v:b"]))
        self.look(("11:11:", False, "11", "1", None, None, None))
        self.assertTrue(self.looks.is_untouched(later, "one", ["v:b"]), "what was removed had been seen")
        self.look(("12:12:", False, "12", "1", None, None, None))
        self.assertFalse(self.looks.is_untouched(later, "one", ["v:b"]), "something was removed unseen")
        self.assertEqual(self.began, [1, 4])

    def test_everything(self) -> None:
        """What touches everything touches all that is remembered (DATA-26)."""
        self.look(("10:11:", False, "0", "1", None, None, None), change(10, "v:a", "*"))
        self.assertEqual(self.changed, [["*"]])

    def test_many_changes(self) -> None:
        """A look that returns as many changes as it may leaves out others, so that everything has changed (CLU-32)."""
        self.look(("10:10:", True, "0", "1", None, None, None))
        mark = self.looks.reading_mark()
        assert mark is not None
        many = [change(xid, f"v:{xid}") for xid in range(11, 11 + 5_000)]
        self.look(("10:6000:", True, "0", "1", None, None, None), *many[1:])
        self.assertEqual(len(self.changed[0]), 4_999)
        self.assertTrue(self.looks.is_untouched(mark, "one", ["v:x", "*"]))
        self.look(("10:6000:", True, "0", "1", None, None, None), *many)
        self.assertEqual(self.changed[1:], [["*"]])
        self.assertFalse(self.looks.is_untouched(mark, "one", ["v:x", "*"]))
        self.look(("10:6000:", True, "0", "1", None, None, None), *many[1:], change(6_000, "v:left-out"))
        self.assertEqual(self.changed[2:], [["*"]])
        self.look(("6000:6001:", True, "0", "1", None, None, None), change(6_000, "v:left-out"), change(6_001, "v:late"))
        self.assertEqual(self.changed[3:], [["v:late"]], "what was seen is skipped again")

    def test_many_names(self) -> None:
        """So many names are kept; readings under way then are not remembered (CLU-35)."""
        mark = self.looks.reading_mark()
        assert mark is not None
        self.look(("10:11:", False, "0", "1", None, None, None), change(10, *(f"v:{number}" for number in range(50_001))))
        self.assertTrue(self.looks.is_untouched(mark, "one", ["v:x"]))
        self.look(("11:12:", False, "0", "1", None, None, None), change(11, "v:y"))
        self.assertFalse(self.looks.is_untouched(mark, "one", ["v:x"]))


class ReachedTests(LooksCase):
    """Looks at another PostgreSQL than this server writes to."""

    def reached(self, far: str, xid: int = 10) -> tuple[Any, ...]:
        """The answer to a look at which nothing is new, by a PostgreSQL that was so far before."""
        return f"{xid}:{xid}:", " " in far, "0", far, None, None, None

    def asked(self, far: str, *rows: tuple[Any, ...]) -> bool:
        """Whether a look confirms what is remembered."""
        asked = Deferred.fromCoroutine(self.looks.poll_now())
        self.session.answer(self.reached(far), *rows)
        return self.successResultOf(asked)

    def begin(self, far: str) -> None:
        """Begin with a look at a standby that is so far."""
        self.database.server = "7 1.5"
        self.session.drop(StoreUnavailable("gone"))
        self.looks.start()
        self.clock.advance(0)
        self.session.answer(self.reached(far))

    def test_standby(self) -> None:
        """A look at a standby confirms nothing before that had replayed what this server wrote until then (CLU-39)."""
        self.begin("1 10")
        self.assertTrue(self.looks.is_current())
        self.slots.count_commit(confirmed=True, version=StateVersion(7, 1, 12))
        self.assertFalse(self.asked("1 11"))
        self.assertFalse(self.looks.is_current())
        self.assertTrue(self.asked("1 12"))
        self.assertTrue(self.looks.is_current())
        self.assertTrue(self.looks.shows_versions([StateVersion(7, 1, 12)]))
        self.assertFalse(self.looks.shows_versions([StateVersion(7, 1, 13)]))

    def test_changes_found(self) -> None:
        """What it finds is forgotten all the same, and what outlives the database is what was confirmed (CLU-36, CLU-39)."""
        self.begin("1 10")
        confirmed = self.looks.confirmed
        self.slots.count_commit(confirmed=True, version=StateVersion(7, 1, 12))
        self.assertFalse(self.asked("1 11", change(10, "v:a")))
        self.assertEqual(self.changed, [["v:a"]])
        self.assertIs(self.looks.confirmed, confirmed)

    def test_unknown_outcome(self) -> None:
        """Where readings may go to standbys, it confirms nothing while the outcome of a commit is unknown (CLU-39)."""
        self.begin("1 10")
        self.slots.count_commit(confirmed=False)
        self.assertTrue(self.asked("1 11"))
        self.database.uses_standbys = True
        self.assertFalse(self.asked("1 11"))
        self.slots.resolve_pending(self.slots.pending_number(), StateVersion(7, 1, 11))
        self.assertTrue(self.asked("1 11"))

    def test_former_primary(self) -> None:
        """A session with a primary that was left behind looks no more, and confirms nothing (CLU-44)."""
        self.begin("1")
        self.slots.count_commit(confirmed=True, version=StateVersion(7, 1, 12))
        self.assertTrue(self.asked("1"))
        self.slots.count_commit(confirmed=True, version=StateVersion(7, 2, 5))
        self.assertFalse(self.asked("1"))
        self.assertTrue(self.session.lost)
        self.assertFalse(self.looks.shows_versions([]))


class SessionTests(LooksCase):
    """The session of looks, and its end."""

    def test_lost(self) -> None:
        """Without a session nothing is confirmed, and what was begun before isn't remembered after it (CLU-33)."""
        mark = self.looks.reading_mark()
        assert mark is not None
        asked = self.confirm()
        self.session.drop(StoreUnavailable("gone"))
        self.assertFalse(self.successResultOf(asked))
        self.assertTrue(self.looks.is_lost)
        self.assertFalse(self.looks.is_current())
        self.assertIsNone(self.looks.reading_mark())
        self.assertFalse(self.successResultOf(self.confirm()))
        self.clock.advance(0)
        self.session.answer()
        self.assertEqual(self.began, [1, 2])
        self.assertTrue(self.looks.is_current())
        self.assertFalse(self.looks.is_untouched(mark, "one", []))

    def test_patience(self) -> None:
        """A look that isn't answered in time loses the session: those who wait ask the database (CLU-33)."""
        first = self.confirm()
        self.clock.pump([QUERY_TIMEOUT / 4] * 2)
        self.slots.count_commit(confirmed=True)
        second = self.confirm()
        self.clock.pump([QUERY_TIMEOUT / 4] * 2)
        self.assertFalse(self.successResultOf(first))
        self.assertFalse(self.successResultOf(second))
        self.assertTrue(self.session.lost)

    def test_suspended(self) -> None:
        """A process that was suspended while it looked doesn't take the database for one that can't be asked (CLU-36)."""
        asked = self.confirm()
        self.clock.advance(10 * QUERY_TIMEOUT)
        self.assertFalse(self.looks.failing)
        self.session.answer()
        self.assertTrue(self.successResultOf(asked))

    def test_away(self) -> None:
        """While the database is away an attempt to open a session is made at most every quarter of a second (CLU-33)."""
        self.session.drop(StoreUnavailable("gone"))
        self.database.away = True
        for _ in range(10):
            self.assertFalse(self.successResultOf(self.confirm()))
            self.clock.advance(0)
        self.database.away = False
        self.assertFalse(self.successResultOf(self.confirm()))
        self.assertEqual(len(self.database.sessions), 1)
        self.clock.advance(0.25)
        self.assertFalse(self.successResultOf(self.confirm()))
        self.clock.advance(0)
        self.session.answer()
        self.assertTrue(self.looks.is_current())

    def test_bug(self) -> None:
        """A look whose answer isn't understood loses the session (CLU-33)."""
        asked = self.confirm()
        self.session.answer(("no snapshot", False, "0", "1", None, None, None))
        self.assertFalse(self.successResultOf(asked))
        self.assertTrue(self.looks.is_lost)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_stopped(self) -> None:
        """Once it is stopped, no session is opened."""
        self.looks.stop()
        self.assertFalse(self.successResultOf(self.confirm()))
        self.assertEqual(len(self.database.sessions), 1)

    def test_stopped_while_opening(self) -> None:
        """To be stopped while a session is being opened is no failure."""
        self.session.drop(StoreUnavailable("gone"))
        self.looks.start()
        self.looks.stop()
        self.assertEqual(self.flushLoggedErrors(), [])
