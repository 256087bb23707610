"""Counts of reads in memory: what is counted, what is written and handed out, and what is lost."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from svc.model.authentication import DAY
from svc.model.names import RoleName
from svc.model.query_results import Caller
from svc.model.readings import ReaderKey, ReadingBatch
from svc.services import kept_counts, reading_counts
from svc.services.kept_counts import CountsFile, KeptCounts, decode_counts, encode_counts
from svc.services.reading_counts import (
    HANDOVER_INTERVAL,
    MAX_PAIRS,
    MAX_UNSENT,
    WRITE_INTERVAL,
    PendingCounts,
    ReadingCounter,
    ReadingRecorder,
)
from tests.memory import Memory
from tests.memory_reads import MemoryReads, reads_of

TODAY = 20_000
ALICE = Caller(RoleName("acme", "user", "alice"), 0, 7)
KEY = ReaderKey("acme:user:alice", 7, TODAY)
YEAR = 365.0 * DAY


def variables(names: Sequence[str]) -> list[str]:
    """Full ids."""
    return [f"acme:variable:{name}" for name in names]


class PendingCountsTests(SynchronousTestCase):
    """Counts that wait."""

    @given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 3), st.lists(st.sampled_from("xyzuvw"), unique=True))))
    def test_bounded(self, steps: list[tuple[str, int, list[str]]]) -> None:
        """There are never more pairs than the limit; what is counted is complete unless its day is lost (READ-5)."""
        pending, expected = PendingCounts(5), dict[tuple[str, int, str], int]()
        for role, day, names in steps:
            key = ReaderKey(role, 0, day)
            if len(names) == 1:
                pending.add_read(key, names[0])
            elif len(names) % 2:
                pending.add_counts(key, dict.fromkeys(names, 1))
            else:
                pending.add_reads(key, names)
            for name in names:
                expected[role, day, name] = expected.get((role, day, name), 0) + 1
            self.assertLessEqual(pending.pairs, 5)
        counts, lost = pending.take_all()
        found = {(key.role, key.day, name): number for key, reads in counts.items() for name, number in reads.items()}
        self.assertLessEqual(found.items() - expected.items(), {(key, found[key]) for key in found if key[1] in lost})
        self.assertEqual({day for _, day, _ in expected.keys() - found.keys()} - lost, set())
        self.assertTrue(pending.is_empty)

    @given(st.lists(st.tuples(st.integers(1, 3), st.text("xyz", max_size=2)), max_size=30))
    def test_batches(self, reads: list[tuple[int, str]]) -> None:
        """Batches have all that was counted, each of one day, the oldest first (READ-1)."""
        self.patch(reading_counts, "BATCH_PAIRS", 2)
        pending, found, days = PendingCounts(100), list[tuple[int, str]](), list[int]()
        for day, name in reads:
            pending.add_read(ReaderKey("r", 0, day), name)
        while not pending.is_empty:
            day, some, _ = pending.take_batch()
            self.assertTrue(0 < len(some) <= 2)
            days.append(day)
            found += [(day, read.variable) for read in some for _ in range(read.number)]
        self.assertEqual((sorted(found), days), (sorted(reads), sorted(days)))
        self.assertEqual(pending.pairs, 0)


class CounterTests(SynchronousTestCase):
    """What one process counts."""

    def setUp(self) -> None:
        """A counter, whose counts the test takes."""
        self.clock, self.wall = Clock(), Clock()
        self.wall.advance(TODAY * DAY)
        self.taken: list[Any] = []
        self.counter = ReadingCounter(self.clock, self.wall, lambda *taken: self.taken.append(taken), 20)

    def test_handed_over(self) -> None:
        """Counts are handed over every ten seconds, and the rest at the stop (READ-3)."""
        self.counter.startService()
        self.counter.count_read(ALICE, "x")
        self.counter.count_reads(ALICE, ["x", "y"])
        self.counter.count_reads(ALICE, [])
        self.assertEqual(self.taken, [])
        self.clock.advance(HANDOVER_INTERVAL)
        self.assertEqual(self.taken, [({KEY: {"x": 2, "y": 1}}, frozenset())])
        self.clock.advance(HANDOVER_INTERVAL)
        self.assertEqual(len(self.taken), 1)
        self.wall.advance(DAY)
        self.counter.count_read(ALICE, "x")
        self.counter.stopService()
        self.assertEqual(self.taken[1:], [({KEY._replace(day=TODAY + 1): {"x": 1}}, frozenset())])

    def test_many(self) -> None:
        """Many pairs aren't kept until then (READ-5)."""
        share = MAX_UNSENT // 20
        for number in range(share):
            self.counter.count_read(ALICE, str(number))
        self.counter.count_reads(ALICE, list(map(str, range(share + 5))))
        self.assertEqual([sum(map(len, counts.values())) for counts, _ in self.taken], [share, share + 5])


class RecorderTests(SynchronousTestCase):
    """The one that writes."""

    def setUp(self) -> None:
        """A recorder on a memory that has a variable and a user."""
        self.clock, self.memory = Clock(), Memory()
        self.clock.advance(TODAY * DAY)
        self.memory.roles["acme:user:alice"] = None
        self.memory.creations["acme:user:alice"] = 7
        for name in variables("xyz"):
            self.memory.resources[name] = ("acme:user:admin", None)
            self.memory.made[name] = 1.0
        self.others: dict[str, ReadingRecorder | None] = {}
        self.recorder = self.recorder_of("here", self.memory)

    def recorder_of(self, source: str, memory: Memory, members: Sequence[str] = ()) -> ReadingRecorder:
        """A recorder that asks these members."""

        def ask(name: str) -> Any:
            async def fetch(source: str, confirmed: int) -> ReadingBatch | None:
                other = self.others[name]
                return None if other is None else other.hand_out(source, confirmed)

            return fetch

        fetches = {name: ask(name) for name in members}
        return ReadingRecorder(self.clock, self.clock, MemoryReads(memory), memory.ensure_writable, fetches, source, YEAR)

    def count(self, recorder: ReadingRecorder, *names: str) -> None:
        """Hand counts over."""
        recorder.add_counts({KEY: dict.fromkeys(variables(names), 1)}, ())

    def do_round(self, recorder: ReadingRecorder) -> None:
        """Let the recorder do a round of both loops."""
        self.successResultOf(Deferred.fromCoroutine(recorder.write_counts()))
        self.successResultOf(Deferred.fromCoroutine(recorder.collect_counts()))

    def test_written(self) -> None:
        """Counts of processes are added up, and written each minute and at the stop (READ-3)."""
        self.recorder.startService()
        self.count(self.recorder, "x", "y")
        self.count(self.recorder, "x")
        self.assertEqual(reads_of(self.memory), {})
        self.clock.advance(WRITE_INTERVAL)
        self.assertEqual(reads_of(self.memory), {"user:alice": {"x": 2, "y": 1}})
        self.count(self.recorder, "z")
        self.successResultOf(self.recorder.stopService())
        self.assertEqual(reads_of(self.memory), {"user:alice": {"x": 2, "y": 1, "z": 1}})

    def test_handover_and_write(self) -> None:
        """Both intervals together are a minute (READ-3)."""
        self.assertEqual(HANDOVER_INTERVAL + WRITE_INTERVAL, 60)

    def test_outcome_unknown(self) -> None:
        """While the database is away counts wait, and a batch that was added unnoticed isn't added again (READ-6)."""
        self.count(self.recorder, "x")
        batch = self.recorder.hand_out("", 0)
        self.successResultOf(Deferred.fromCoroutine(MemoryReads(self.memory).add_batch(batch)))
        self.memory.down = True
        self.count(self.recorder, "x", "y")
        self.do_round(self.recorder)
        self.assertEqual(self.recorder.hand_out("", 0), batch)
        self.memory.down = False
        self.do_round(self.recorder)
        self.assertEqual(reads_of(self.memory), {"user:alice": {"x": 2, "y": 1}})

    def test_bounded(self) -> None:
        """What waits is bounded, and the day of what is lost is noted (READ-5)."""
        self.memory.standby = True
        self.do_round(self.recorder)
        for start in range(0, MAX_PAIRS + 2000, 1000):
            self.recorder.add_counts({KEY: {str(number): 1 for number in range(start, start + 1000)}}, ())
        self.recorder.add_counts({}, (TODAY - 1,))
        batch = self.recorder.hand_out("", 0)
        self.assertEqual(batch.lost_days, (TODAY - 1, TODAY))
        number, confirmed = 0, 0
        while not (batch := self.recorder.hand_out("here", confirmed)).is_empty:
            number, confirmed = number + len(batch.reads), batch.sequence
        self.assertEqual(number, MAX_PAIRS)

    def test_collected(self) -> None:
        """A primary collects what followers have, each once, and names those that it can't reach (READ-7)."""
        follower = Memory()
        follower.standby = True
        east = self.others["east"] = self.recorder_of("e", follower)
        self.others["west"] = None
        primary = self.recorder_of("p", self.memory, ["east", "west"])
        self.do_round(east)
        self.count(east, "x", "y")
        self.count(primary, "x")
        self.do_round(primary)
        self.assertEqual(reads_of(self.memory), {"user:alice": {"x": 2, "y": 1}})
        self.do_round(primary)
        self.assertEqual(reads_of(self.memory), {"user:alice": {"x": 2, "y": 1}})
        state = self.successResultOf(Deferred.fromCoroutine(MemoryReads(self.memory).read_state()))
        self.assertEqual(state.missing, ("west",))
        self.memory.now += 170.0
        self.others["east"] = None
        self.do_round(primary)
        self.memory.now += 20.0
        state = self.successResultOf(Deferred.fromCoroutine(MemoryReads(self.memory).read_state()))
        self.assertEqual(state.missing, ("east", "west"))
        self.count(east, "z")
        self.others["east"] = east
        self.do_round(primary)
        self.assertEqual(reads_of(self.memory)["user:alice"]["z"], 1)

    def test_hanging_member(self) -> None:
        """A member that doesn't answer delays neither writes nor what others deliver (READ-3, READ-7)."""
        east = self.others["east"] = self.recorder_of("e", self.memory)
        self.count(east, "y")
        primary = self.recorder_of("p", self.memory, ["east"])
        silent: Deferred[ReadingBatch | None] = Deferred()

        async def hang(_: str, __: int) -> ReadingBatch | None:
            return await silent

        primary._members = {"west": hang, **primary._members}
        primary.startService()
        self.count(primary, "x")
        self.clock.advance(WRITE_INTERVAL)
        self.assertEqual(reads_of(self.memory), {"user:alice": {"x": 1, "y": 1}})
        silent.callback(None)
        self.successResultOf(primary.stopService())

    def test_promoted(self) -> None:
        """A promoted follower writes what it kept, and adds nothing again that was collected before (READ-6)."""
        self.memory.standby = True
        self.do_round(self.recorder)
        self.count(self.recorder, "x")
        batch = self.recorder.hand_out("", 0)
        self.memory.standby = False
        self.successResultOf(Deferred.fromCoroutine(MemoryReads(self.memory).add_batch(batch)))
        self.do_round(self.recorder)
        self.count(self.recorder, "y")
        self.do_round(self.recorder)
        self.assertEqual(reads_of(self.memory), {"user:alice": {"x": 1, "y": 1}})

    def restart(self, memory: Memory, path: Path, source: str) -> ReadingRecorder:
        """A recorder with a file, started."""
        recorder = ReadingRecorder(
            self.clock, self.clock, MemoryReads(memory), memory.ensure_writable, {}, source, YEAR, CountsFile(path)
        )
        recorder.startService()
        return recorder

    def test_kept(self) -> None:
        """A follower that stops keeps what wasn't delivered in a file, and goes on with it; a batch that was added unnoticed
        isn't added again (READ-6, READ-7).
        """
        follower, path = Memory(), Path(self.mktemp())
        follower.standby = True
        first = self.restart(follower, path, "one")
        self.count(first, "x")
        batch = first.hand_out("", 0)
        self.successResultOf(Deferred.fromCoroutine(MemoryReads(self.memory).add_batch(batch)))
        self.count(first, "x", "y")
        first.add_counts({}, (TODAY - 1,))
        self.successResultOf(first.stopService())
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
        self.assertTrue(first.hand_out("", 0).is_empty)
        second = self.others["east"] = self.restart(follower, path, "two")
        self.assertFalse(path.exists())
        self.assertEqual(second.hand_out("", 0), batch)
        self.do_round(self.recorder_of("p", self.memory, ["east"]))
        self.assertEqual(reads_of(self.memory), {"user:alice": {"x": 2, "y": 1}})
        self.assertEqual(list(self.memory.reading_losses), [TODAY - 1])
        self.successResultOf(second.stopService())
        self.assertFalse(path.exists())

    def test_kept_old(self) -> None:
        """A batch whose number the database may have forgotten is not used again: its day is lost (READ-6, READ-7)."""
        kept = KeptCounts(ReadingBatch("one", 1, TODAY, (), (TODAY - 2,)), {KEY: {"x": 2}}, frozenset([3]))
        self.assertEqual(decode_counts(encode_counts(kept), TODAY + 63), kept)
        old = decode_counts(encode_counts(kept), TODAY + 64)
        self.assertEqual(old, KeptCounts(None, kept.counts, frozenset([3, TODAY - 2, TODAY])))

    def test_damaged(self) -> None:
        """A damaged file, or one that is too large, is ignored and removed, and the log says so (READ-7)."""
        path = Path(self.mktemp())
        self.patch(kept_counts, "MAX_BYTES", 200)
        good = encode_counts(KeptCounts(None, {KEY: {"x": 2}}, frozenset()))
        lines: Any = []
        add_line: Any = lines.append
        globalLogPublisher.addObserver(add_line)
        self.addCleanup(globalLogPublisher.removeObserver, add_line)
        for contents in (
            b"",
            b"[]",
            good[:-1],
            good.replace(b"2", b"-2"),
            good.replace(b'"x"', b'"\\u0000"'),
            good + b" " * 200,
        ):
            path.write_bytes(contents)
            lines.clear()
            self.assertIsNone(CountsFile(path).take(TODAY), contents)
            self.assertEqual((len(lines), path.exists()), (1, False), contents)
        self.assertFalse(CountsFile(path / "absent").write(KeptCounts(None, {}, frozenset())))

    def test_confirmed_by_another(self) -> None:
        """A confirmation of another server's batch, or of an older one, drops nothing (READ-6)."""
        self.count(self.recorder, "x")
        first = self.recorder.hand_out("", 0)
        self.assertEqual(self.recorder.hand_out("other", 5), first)
        self.assertEqual(self.recorder.hand_out("here", 0), first)
        self.assertTrue(self.recorder.hand_out("here", 1).is_empty)

    def test_purged_once_a_day(self) -> None:
        """What is older than the retention is purged, once a day (READ-9)."""
        self.recorder.startService()
        old = {KEY._replace(day=TODAY - 366): dict.fromkeys(variables("x"), 1)}
        self.recorder.add_counts(old, ())
        self.clock.advance(WRITE_INTERVAL)
        self.assertEqual(reads_of(self.memory), {"user:alice": {"x": 1}})
        self.clock.pump([WRITE_INTERVAL] * (DAY // int(WRITE_INTERVAL)))
        self.assertEqual(reads_of(self.memory), {})
