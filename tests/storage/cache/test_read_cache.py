"""Readings of several statements, remembered, of a database in memory."""

from __future__ import annotations

from contextvars import copy_context
from typing import Any, TypeVar, cast

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import StoreUnavailable
from svc.model.request_notes import begin_notes
from svc.model.versions import TouchedRecords
from svc.storage.cache.commit_counters import CommitCounters
from svc.storage.cache.read_cache import ReadCache
from svc.storage.driver.connection import Fetched
from svc.storage.driver.database import Database
from svc.storage.driver.statements import CachedReading, NamedAnswer, Statement, Transaction
from tests.storage.cache.test_invalidation_poll import LAG, LookedAt, LookingSession, change

T = TypeVar("T")

LIMIT = 1_000_000


class Read(LookedAt):
    """A database that answers readings, if it isn't away, and counts turns."""

    turns = 0

    async def fetch(self, statement: Statement, *parameters: object) -> Fetched:
        """Take a turn."""
        if self.away:
            raise StoreUnavailable("it is away")
        self.turns += 1
        return [(True,)]

    async def read_with_server(self, reading: CachedReading[T]) -> tuple[NamedAnswer[T], str]:
        """Run a reading."""
        if self.away:
            raise StoreUnavailable("it is away")
        return await reading.work(cast(Transaction, None)), self.server

    async def read(self, reading: CachedReading[T]) -> T:
        """Run a reading."""
        answer, _ = await self.read_with_server(reading)
        return answer.value


@attrs.define
class Page:
    """Something that is read, and how often it was."""

    names: tuple[str, ...] | None = ("~:acct",)
    lasts: float | None = None
    asked: int = 0
    held: Deferred[None] | None = None

    async def work(self, _: Transaction) -> NamedAnswer[tuple[int]]:
        """Read it."""
        self.asked += 1
        number = self.asked
        if self.held is not None:
            await self.held
        return NamedAnswer((number,), self.names, lasts=self.lasts)


class ReadTests(SynchronousTestCase):
    """Readings of several statements."""

    def setUp(self) -> None:
        """Begin to remember."""
        self.clock = Clock()
        self.database = Read(self.clock)
        self.memory = self._memory()

    def _memory(self, **options: Any) -> ReadCache:
        self.slots = CommitCounters.for_one_process()
        memory = ReadCache(self.clock, cast(Database, self.database), self.slots, lag=LAG, limit=LIMIT, **options)
        memory.startService()
        self.addCleanup(memory.stopService)
        self.clock.advance(0)
        self.session.answer()
        return memory

    @property
    def session(self) -> LookingSession:
        """The session that looks."""
        return self.database.sessions[-1]

    def begin(self, page: Page, *key: object) -> Deferred[tuple[int]]:
        """Begin to read a page."""
        return Deferred.fromCoroutine(self.memory.read(CachedReading(("page", *key), page.work)))

    def told(self, page: Page, *key: object) -> int:
        """Read a page."""
        (number,) = self.successResultOf(self.begin(page, *key))
        return number

    def look(self, *touched: str) -> None:
        """Have it look, and find something."""
        asked = Deferred.fromCoroutine(self.memory.poll_now())
        self.session.answer(("20:20:", False, "0", "1", None, None, None), change(10, *touched))
        self.assertTrue(self.successResultOf(asked))

    def test_remembered(self) -> None:
        """What was read is told until a change touches one of its names, to those who ask for the same (CLU-34)."""
        page = Page()
        self.assertEqual([self.told(page), self.told(page), self.told(page, 2), self.told(page)], [1, 1, 2, 1])
        for touched, expected in (("v:acct:variable:x", 1), ("r:other:host:h", 1), ("r:acct:host:h", 3), ("*", 4)):
            self.look(touched)
            self.assertEqual(self.told(page), expected, touched)
        counts = self.memory.cache_counts()
        self.assertEqual((counts.hits, counts.misses), (4, 4))

    def test_followed(self) -> None:
        """Anyone who follows changes is told of each that a look found, and of all when memory starts from nothing; looks
        are made every second for them, and no more when nobody follows (SEC-48, SEC-52).
        """
        told: list[TouchedRecords] = []
        end = self.memory.follow_changes(told.append)
        self.look("v:acct:variable:x/y", "m:acct:user:z", "r:acct:host:h", "k:other", "c:acct:host:h")
        found = TouchedRecords(frozenset({"acct:variable:x/y", "acct:host:h"}), frozenset({"other"}))
        self.assertEqual(told, [found])
        self.look("*:acct")
        self.look("*")
        self.assertEqual(told[1:], [TouchedRecords(accounts=frozenset({"acct"})), TouchedRecords(everything=True)])
        looks = self.session.looks
        for _ in range(30):
            self.clock.advance(0.1)
            if self.session.asked is not None:
                self.session.answer(("20:20:", False, "0", "1", None, None, None))
        self.assertIn(self.session.looks - looks, (2, 3))
        # Rows of changes that it hasn't seen were removed.
        asked = Deferred.fromCoroutine(self.memory.poll_now())
        self.session.answer(("30:30:", False, "25", "1", None, None, None))
        self.successResultOf(asked)
        self.assertEqual(told[-1], TouchedRecords(everything=True))
        end()
        count, looks = len(told), self.session.looks
        self.look("v:acct:variable:x")
        self.clock.pump([0.1] * 30)
        self.assertEqual((len(told), self.session.looks), (count, looks + 1))

    def test_unnamed(self) -> None:
        """What may change without a name is read each time (CLU-34)."""
        page = Page(names=None)
        self.assertEqual([self.told(page), self.told(page)], [1, 2])
        self.assertEqual(self.memory.cache_counts().entries, 0)

    def test_overtaken(self) -> None:
        """What a change has overtaken while it was read isn't remembered (CLU-32)."""
        for touched, expected in (("m:acct:user:x", 2), ("m:other:user:x", 1)):
            page = Page(held=Deferred())
            asked = self.begin(page, touched)
            self.look(touched)
            assert page.held is not None
            page.held.callback(None)
            page.held = None
            self.assertEqual(self.successResultOf(asked), (1,))
            self.assertEqual(self.told(page, touched), expected, touched)

    def test_ends(self) -> None:
        """What changes by itself is read again in time (CLU-34)."""
        page = Page(lasts=1.0)
        self.assertEqual([self.told(page), self.told(page)], [1, 1])
        self.clock.advance(1.0)
        self.assertEqual(self.told(page), 2)

    def test_writes(self) -> None:
        """A request that may write reads nothing from memory (CLU-34)."""
        page = Page()
        self.told(page)

        def ask() -> int:
            begin_notes().may_write = True
            return self.told(page)

        self.assertEqual(copy_context().run(ask), 2)
        self.assertEqual(self.told(page), 1)

    def test_stale(self) -> None:
        """What is remembered outlives the database only where that was asked for, for requests that may be answered so, and
        unless this server has confirmed a change since the last look (CLU-36).
        """
        for options, may_serve_stale, written, stands_in in (
            ({}, True, False, False),
            ({"serve_stale": 30.0}, True, False, True),
            ({"serve_stale": 30.0}, False, False, False),
            ({"serve_stale": 30.0}, True, True, False),
        ):
            self.memory = self._memory(**options)
            page = Page()
            self.told(page)
            if written:
                self.slots.count_commit(confirmed=True)
            self.session.drop(StoreUnavailable("gone"))
            self.database.away = True

            def ask(page: Page = page, may_serve_stale: bool = may_serve_stale) -> Deferred[tuple[int]]:
                begin_notes().may_serve_stale = may_serve_stale
                return self.begin(page)

            asked = copy_context().run(ask)
            if stands_in:
                self.assertEqual(self.successResultOf(asked), (1,))
            else:
                self.failureResultOf(asked, StoreUnavailable)
            self.database.away = False

    def test_history(self) -> None:
        """What outlives the database is of the history that was looked at last: it has the versions that it had (CLU-36)."""
        self.memory = self._memory(serve_stale=30.0)
        self.told(Page())
        history = self.memory.history
        for _ in range(2):
            self.session.drop(StoreUnavailable("gone"))
            self.assertEqual(self.memory.history, history)

    def test_own_changes(self) -> None:
        """What is to outlive the database is looked at soon after each change of this server, also while nobody asks: a
        change is no reason to answer nothing for as long as the database is away (CLU-36).
        """
        self.memory = self._memory(serve_stale=30.0)
        self.told(Page())
        self.slots.count_commit(confirmed=True)
        self.assertFalse(self.memory.can_serve_stale())
        looks = self.session.looks
        self.clock.advance(0.15)
        self.assertEqual(self.session.looks, looks + 1)
        self.session.answer()
        self.assertTrue(self.memory.can_serve_stale())
        self.clock.pump([0.1] * 8)
        self.assertEqual(self.session.looks, looks + 1)

    def test_turn(self) -> None:
        """A refusal from memory takes a reading's time while the database works for others, is slow, or is outlived; one
        that asked the database has taken it, and one that needed nothing, as of an address that failed too often, takes none
        (FAIL-18, TOK-22, CLU-37).
        """

        async def turn(recalled: bool = True, asked: bool = False, stale: float | None = None) -> None:
            notes = begin_notes()
            notes.cache_used, notes.queried, notes.stale = recalled, asked, stale
            await self.memory.equalize_timing()

        def questions(**noted: Any) -> int:
            self.database.turns = 0
            self.successResultOf(copy_context().run(Deferred.fromCoroutine, turn(**noted)))
            return self.database.turns

        self.assertEqual((questions(), questions(stale=3.0)), (0, 1))
        self.database.busy = True
        self.assertEqual((questions(), questions(asked=True), questions(recalled=False)), (1, 0, 0))
        self.database.busy = False
        asked = Deferred.fromCoroutine(self.memory.poll_now())
        self.clock.advance(0.01)
        self.assertEqual(questions(), 1, "a look is slow")
        self.session.answer()
        self.successResultOf(asked)
        self.assertEqual(questions(), 1, "a look was slow")
        self.look()
        self.assertEqual(questions(), 0)
        self.database.away = self.database.busy = True
        self.failureResultOf(copy_context().run(Deferred.fromCoroutine, turn(recalled=True)), StoreUnavailable)

    def test_asked(self) -> None:
        """It is known of a request that it asked the database for something, or was told what is remembered (FAIL-18)."""
        page = Page()

        async def asked() -> tuple[bool, bool]:
            notes = begin_notes()
            await self.memory.read(CachedReading(("page",), page.work))
            return notes.queried, notes.cache_used

        told = [self.successResultOf(copy_context().run(Deferred.fromCoroutine, asked())) for _ in range(2)]
        self.assertEqual(told, [(True, False), (False, True)])
