"""The journal: when records are taken, and what happens when they can't be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.internet.task import Clock
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from svc.audit.journal import BATCH, MAX_RECORDS, PATIENCE, Backlog, ISink, Journal
from svc.model.errors import AuditUnavailable
from svc.model.events import AuditContext, Event, EventSource, IJournal, Outcome
from svc.model.names import RoleName

ALICE = RoleName("acme", "user", "alice")


def fetched(name: str) -> Event:
    """An event."""
    return Event("fetch", "fetch", (("resource", name),), f"fetched {name}", f"fetch {name}")


@implementer(ISink)
class Shelf:
    """A sink that takes what it is given, at once unless it is ``held``, or fails for a ``fault``.

    ``at_once``: how many records it takes so at most.
    """

    name = "the shelf"

    def __init__(self) -> None:
        self.writes: list[list[bytes]] = []
        self.held = False
        self.at_once = 10**6
        self.fault: str | None = None
        self.opened = 0
        self.closed = False
        self.hopeful = True

    async def open(self, backlog: Backlog) -> None:
        """See ``ISink``."""
        self.backlog = backlog

    def try_write(self, records: Sequence[bytes]) -> Sequence[bytes]:
        """See ``ISink``."""
        taken = [] if self.held or self.fault is not None else records[: self.at_once]
        if taken:
            self.writes.append(list(taken))
        return taken

    def drain_backlog(self) -> None:
        """See ``ISink``."""
        if self.fault is not None:
            self.backlog.mark_failed(self.fault)
        elif not self.held and self.backlog:
            records = self.backlog.oldest_records(10**9)
            self.writes.append(records)
            self.backlog.mark_delivered(len(records))

    def is_ready(self) -> bool:
        """See ``ISink``."""
        return self.hopeful

    def reopen(self) -> None:
        """See ``ISink``."""
        self.opened += 1

    async def close(self) -> None:
        """See ``ISink``."""
        self.drain_backlog()
        self.closed = True

    def names(self) -> list[str]:
        """What the records are of, in order."""
        return [record.rpartition(b" ")[2].decode() for write in self.writes for record in write]


class JournalCase(SynchronousTestCase):
    """A journal with a sink or two."""

    refuses = True

    def setUp(self) -> None:
        """Open it."""
        self.clock, self.lost = Clock(), list[int]()
        self.shelf, self.other = Shelf(), Shelf()
        self.journal = self.make(self.shelf)

    def make(self, *sinks: Shelf) -> Journal:
        """A journal that is open."""
        journal = Journal(
            EventSource("m", "svc"), self.clock, self.clock, sinks, refuses=self.refuses, count_lost=self.lost.append
        )
        journal.startService()
        self.successResultOf(Deferred.fromCoroutine(journal.open()))
        return journal

    def take(self, *names: str, journal: Journal | None = None) -> Deferred[Any]:
        """Record events."""
        journal = journal or self.journal
        origin = AuditContext(journal.server, str(ALICE), "192.0.2.7", "r")
        return Deferred.fromCoroutine(journal.record_events(origin, [fetched(name) for name in names], Outcome()))

    def fill(self, journal: Journal | None = None) -> Deferred[Any]:
        """Record as many events as a sink may be behind."""
        return gatherResults([self.take(*["x"] * BATCH, journal=journal) for _ in range(MAX_RECORDS // BATCH)])

    def refused(self, taking: Deferred[Any]) -> str:
        """Why something was refused."""
        return str(self.failureResultOf(taking, AuditUnavailable).value.why)


class TakenTests(JournalCase):
    """Sinks that take what they are given."""

    def test_interface(self) -> None:
        """The journal provides what routes ask of it."""
        self.assertTrue(verifyObject(IJournal, self.journal))

    def test_at_once(self) -> None:
        """A request goes on at once where its records are taken at once, all by one write, in order (AUD-1)."""
        for names in (("a",), ("b", "c"), ("d",)):
            self.successResultOf(self.take(*names))
        self.assertEqual(self.shelf.names(), ["a", "b", "c", "d"])
        self.assertEqual(len(self.shelf.writes), 3)

    def test_later(self) -> None:
        """Where a sink takes its time, a request goes on when its own records are taken (AUD-1)."""
        self.shelf.held = True
        first, second = self.take("a"), self.take("b", "c")
        self.assertNoResult(first)
        self.shelf.backlog.mark_delivered(1)
        self.successResultOf(first)
        self.shelf.backlog.mark_delivered(1)
        self.assertNoResult(second)
        self.shelf.backlog.mark_delivered(1)
        self.successResultOf(second)

    def test_found_out(self) -> None:
        """A sink that fails when it is given a record has that request refused, and takes the record when it can."""
        self.shelf.fault = "no space"
        self.assertIn("no space", self.refused(self.take("a")))
        self.shelf.fault = None
        self.shelf.drain_backlog()
        self.assertEqual(self.shelf.names(), ["a"])

    def test_nothing_to_record(self) -> None:
        """A request without events waits for nothing."""
        self.successResultOf(self.take())
        self.assertEqual(self.shelf.writes, [])

    def test_every_sink(self) -> None:
        """A record is taken when every sink has it (AUD-15)."""
        journal = self.make(self.shelf, self.other)
        self.other.held = True
        taking = self.take("a", journal=journal)
        self.assertEqual(self.shelf.names(), ["a"])
        self.assertNoResult(taking)
        self.other.held = False
        self.other.drain_backlog()
        self.successResultOf(taking)
        self.assertEqual(self.other.names(), ["a"])

    def test_as_written(self) -> None:
        """The other sinks get what the first has written, as it wrote it, whether it took it at once or later (AUD-35)."""
        journal = self.make(self.shelf, self.other)
        written = b"<86>1 stamped a"
        self.shelf.try_write = lambda records: [written for _ in records]  # type: ignore[method-assign] # it stamps
        self.successResultOf(self.take("a", journal=journal))
        self.assertEqual(self.other.writes, [[written]])
        self.shelf.try_write = lambda records: records[:0]  # type: ignore[method-assign] # it takes its time
        self.shelf.held = True
        taking = self.take("b", journal=journal)
        self.assertEqual(len(self.other.writes), 1)
        self.shelf.backlog.mark_delivered(1, [written])
        self.successResultOf(taking)
        self.assertEqual(self.other.writes, [[written]] * 2)

    def test_some_at_once(self) -> None:
        """What one sink takes only in part, and another not at all, is taken later, each record once and in order."""
        journal = self.make(self.shelf, self.other)
        self.shelf.at_once, self.other.held = 2, True
        taking = self.take("a", "b", "c", journal=journal)
        self.assertEqual((self.shelf.names(), self.other.names()), (["a", "b", "c"], []))
        self.assertEqual((self.shelf.backlog.last_delivered, self.other.backlog.last_delivered), (3, 0))
        self.shelf.held = True
        after = self.take("d", journal=journal)
        self.assertEqual((self.shelf.backlog.last_delivered, self.other.backlog.last_delivered), (3, 0))
        self.other.backlog.mark_delivered(3)
        self.successResultOf(taking)
        self.assertNoResult(after)
        self.shelf.backlog.mark_delivered(1)
        self.assertNoResult(after)
        self.other.backlog.mark_delivered(1)
        self.successResultOf(after)
        self.shelf.at_once, self.shelf.held = 1, False
        self.shelf.fault = "no space"
        self.refused(self.take("e", "f", journal=journal))
        self.assertEqual(self.shelf.backlog.last_delivered, 4)

    def test_in_part_while_held(self) -> None:
        """A request waits for the rest of its records where some were taken at once."""
        self.shelf.at_once = 1
        self.shelf.drain_backlog = lambda: None  # type: ignore[method-assign] # it comes to the rest later
        taking = self.take("a", "b", "c")
        self.assertEqual((self.shelf.names(), len(self.shelf.backlog), self.shelf.backlog.last_delivered), (["a"], 2, 1))
        self.shelf.backlog.mark_delivered(1)
        self.assertNoResult(taking)
        self.shelf.backlog.mark_delivered(1)
        self.successResultOf(taking)

    def test_a_client_that_leaves(self) -> None:
        """What was recorded stays recorded when nobody waits for it any more (AUD-6)."""
        taking = self.take("a")
        taking.addErrback(lambda _: None)
        taking.cancel()
        self.assertEqual(self.shelf.names(), ["a"])

    def test_stop(self) -> None:
        """The end writes what there is, closes the sinks, and takes nothing more."""
        taking = self.take("a")
        self.successResultOf(self.journal.stopService())
        self.successResultOf(taking)
        self.assertTrue(self.shelf.closed)
        self.assertEqual(self.shelf.names(), ["a"])
        self.assertIn("stops", self.refused(self.take("b")))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_reopen(self) -> None:
        """At a rotation of files every sink is opened again."""
        self.journal.reopen()
        self.assertEqual(self.shelf.opened, 1)


class RefusedTests(JournalCase):
    """A sink that takes nothing, while requests are to be refused."""

    def test_failure(self) -> None:
        """While a sink fails, requests that wait are refused, and so are later ones; nothing is forgotten (AUD-20)."""
        self.shelf.held = True
        taking = self.take("a")
        with capturedLogs() as logs:
            self.shelf.backlog.mark_failed("No space left on device")
        self.assertIn("No space left", self.refused(taking))
        self.assertEqual(["{sink}" in event["log_format"] for event in logs], [True])
        self.assertRaises(AuditUnavailable, self.journal.require_available)
        self.assertIn("No space left", self.refused(self.take("b")))
        self.shelf.held = False
        self.shelf.drain_backlog()
        self.journal.require_available()
        again = self.take("c")
        self.successResultOf(again)
        self.assertEqual(self.shelf.names(), ["a", "c"])

    def test_patience(self) -> None:
        """A sink that takes no record for too long counts as one that fails, until it takes it (AUD-22)."""
        self.shelf.held = True
        taking = self.take("a")
        self.clock.advance(PATIENCE - 0.1)
        self.assertNoResult(taking)
        self.clock.advance(0.2)
        self.assertIn("takes no record", self.refused(taking))
        self.shelf.held = False
        self.shelf.drain_backlog()
        self.journal.require_available()

    def test_patience_is_each_records_own(self) -> None:
        """Patience is counted for each record from when it was recorded (AUD-22)."""
        first = self.take("a")
        self.successResultOf(first)
        self.clock.advance(PATIENCE - 1)
        self.shelf.held = True
        second = self.take("b")
        self.clock.advance(2)
        self.assertNoResult(second)
        self.clock.advance(PATIENCE)
        self.refused(second)

    def test_full(self) -> None:
        """A sink may be behind only so far; then requests are refused at once (AUD-22)."""
        self.shelf.held = True
        taking = self.fill()
        self.assertIn("too far behind", self.refused(self.take("more")))
        self.assertNoResult(taking)
        self.shelf.held = False
        self.shelf.drain_backlog()
        self.successResultOf(taking)
        self.assertEqual(self.lost, [])

    def test_many(self) -> None:
        """The records of a large batch are written in pieces, and others get their turn between these (SEC-42)."""
        taking = self.take(*map(str, range(2 * BATCH + 1)))
        self.assertEqual(list(map(len, self.shelf.writes)), [BATCH])
        self.successResultOf(self.take("another"))
        self.assertNoResult(taking)
        self.clock.advance(0)
        self.successResultOf(taking)
        self.assertEqual(list(map(len, self.shelf.writes)), [BATCH, 1, BATCH, 1])
        self.assertEqual(self.shelf.names()[-1], str(2 * BATCH))

    def test_full_by_size(self) -> None:
        """So is one that has too many bytes to take (AUD-22)."""
        self.shelf.held = True
        for _ in range(8):
            self.take(*["x" * 1100] * 1000).addErrback(lambda _: None)
        self.assertIn("too far behind", self.refused(self.take("more")))

    def check(self, journal: Journal | None = None) -> Deferred[None]:
        """Check the journal once."""
        return Deferred.fromCoroutine((journal or self.journal).check())

    def checks(self) -> list[bytes]:
        """The checks that were recorded, by how they ended."""
        records = [record for write in self.shelf.writes for record in write if b" health " in record]
        return [record.partition(b'result="')[2].partition(b'"')[0] for record in records]

    def test_check_is_quiet(self) -> None:
        """The first check of a server is recorded, and then one in an hour, however many there are and whatever else is
        (AUD-23).
        """
        for number in range(2 * 720):
            self.successResultOf(self.check())
            if number % 100 == 7:
                self.successResultOf(self.take("a"))
            self.clock.advance(5)
        self.assertEqual(self.checks(), [b"success"] * 2)
        self.assertIn(b"svc checked the audit", self.shelf.writes[0][0])

    def test_check_in_doubt(self) -> None:
        """Where a sink sees that it may not take one more record, one is given to it, and that decides (AUD-23)."""
        self.successResultOf(self.check())
        self.shelf.hopeful = False
        self.successResultOf(self.check())
        self.assertEqual(self.checks(), [b"success"] * 2)
        self.shelf.fault = "full"
        self.assertEqual(self.refused(self.check()), "the shelf: full")

    def test_check_that_changes(self) -> None:
        """That the audit fails is recorded once, where it can be: at once by a sink that works, later by the one that
        doesn't; and so is that it works again (AUD-23).
        """
        journal = self.make(self.shelf, self.other)
        self.shelf.at_once = 0  # as a connection, which takes all a moment later
        self.successResultOf(self.check(journal))
        self.other.hopeful, self.other.fault = False, "full"
        for _ in range(3):
            self.assertEqual(self.refused(self.check(journal)), "the shelf: full")
            self.clock.advance(5)
        # The first was given to both when there was only doubt.
        self.assertEqual(self.checks(), [b"success", b"success", b"failure"])
        self.other.hopeful, self.other.fault = True, None
        self.other.drain_backlog()
        for _ in range(2):
            self.successResultOf(self.check(journal))
        self.assertEqual(self.checks(), [b"success", b"success", b"failure", b"success"])
        self.assertEqual(self.other.names(), self.shelf.names())

    def test_check_of_what_fails(self) -> None:
        """A check fails with the sinks, and waits for the last record where that takes its time."""
        self.shelf.backlog.mark_failed("gone")
        self.failureResultOf(self.check(), AuditUnavailable)
        self.shelf.backlog.mark_recovered()
        self.shelf.held = True
        taking = self.take("a")
        checked = self.check()
        self.assertNoResult(checked)
        self.shelf.held = False
        self.shelf.drain_backlog()
        self.successResultOf(taking)
        self.successResultOf(checked)

    def test_check_that_was_given_up(self) -> None:
        """A check waits for the record of an earlier one that was given up, and passes when the sinks have taken it."""
        self.shelf.held = True
        for _ in range(2):
            waiting = self.check()
            self.assertNoResult(waiting)
            waiting.cancel()
            self.failureResultOf(waiting, CancelledError)
        last = self.check()
        self.shelf.held = False
        self.shelf.drain_backlog()
        self.successResultOf(last)


class ContinuedTests(JournalCase):
    """A sink that takes nothing, while requests are to go on."""

    refuses = False

    def test_go_on(self) -> None:
        """While a sink fails nobody waits; what there is room for is recorded later (AUD-21)."""
        self.shelf.held = True
        taking = self.take("a")
        self.shelf.backlog.mark_failed("gone")
        self.successResultOf(taking)
        self.successResultOf(self.take("b"))
        self.journal.require_available()
        self.shelf.held = False
        self.shelf.drain_backlog()
        self.assertEqual(self.shelf.names(), ["a", "b"])
        self.assertEqual(self.lost, [])

    def test_without_the_first(self) -> None:
        """While the first sink fails the others get records at once, as they are, each once and in order (AUD-35)."""
        journal = self.make(self.shelf, self.other)
        self.shelf.held = True
        self.take("a", journal=journal)
        self.assertEqual(self.other.names(), [])
        self.shelf.backlog.mark_failed("gone")
        self.assertEqual(self.other.names(), ["a"])
        self.successResultOf(self.take("b", "c", journal=journal))
        self.assertEqual(self.other.names(), ["a", "b", "c"])
        self.shelf.held = False
        self.shelf.drain_backlog()
        self.successResultOf(self.take("d", journal=journal))
        self.assertEqual((self.shelf.names(), self.other.names()), (["a", "b", "c", "d"],) * 2)

    def test_lost(self) -> None:
        """Records that there is no room for are lost, counted, and told of once in a while (AUD-21)."""
        journal = self.make(self.shelf, self.other)
        self.shelf.held = True
        self.fill(journal)
        with capturedLogs() as logs:
            for _ in range(3):
                self.successResultOf(self.take("lost", "too", journal=journal))
        self.assertEqual(self.lost, [2, 2, 2])
        self.assertEqual(len([event for event in logs if "lost" in event["log_format"]]), 1)
        self.assertEqual(self.other.names()[-2:], ["lost", "too"])
        self.shelf.held = False
        self.shelf.drain_backlog()
        after = self.take("b", journal=journal)
        self.successResultOf(after)
        self.assertEqual(self.shelf.names()[-1], "b")


class WaitingTests(JournalCase):
    """A first sink that fails, while requests are refused."""

    def test_others_wait(self) -> None:
        """The others get no record that the first sink hasn't written, and so none without its digest (AUD-35)."""
        journal = self.make(self.shelf, self.other)
        self.shelf.held = True
        taking = self.take("a", journal=journal)
        self.shelf.backlog.mark_failed("gone")
        self.refused(taking)
        self.assertEqual(self.other.names(), [])
        self.shelf.held = False
        self.shelf.drain_backlog()
        self.assertEqual((self.shelf.names(), self.other.names()), (["a"], ["a"]))
