"""The counters of the processes of a server."""

from __future__ import annotations

import mmap

from twisted.trial.unittest import SynchronousTestCase

from svc.model.versions import StateVersion
from svc.storage.cache.commit_counters import BYTES, WIDTH, CommitCounters, WrittenVersions


class SlotsTests(SynchronousTestCase):
    """Slots on one page."""

    def setUp(self) -> None:
        """Make a page that processes would share."""
        page = mmap.mmap(-1, 3 * WIDTH * BYTES)
        view = memoryview(page).cast("Q")
        self.addCleanup(page.close)
        self.addCleanup(view.release)
        self.view = view
        self.slots = [CommitCounters(view, number) for number in range(3)]

    def test_seen_by_all(self) -> None:
        """A commit of one process changes what all read, whether it was confirmed or not (CLU-31)."""
        for slots in self.slots:
            for confirmed in (True, False):
                before = [each.read_counters() for each in self.slots]
                slots.count_commit(confirmed=confirmed)
                after = [each.read_counters() for each in self.slots]
                self.assertTrue(all(one != other for one, other in zip(before, after, strict=True)))
                self.assertEqual(len(set(after)), 1)

    def test_confirmed(self) -> None:
        """Commits that were confirmed are told apart from those that perhaps happened (CLU-36)."""
        before = self.slots[0].read_counters()
        self.slots[1].count_commit(confirmed=False)
        self.assertEqual(
            CommitCounters.confirmed_commits(before), CommitCounters.confirmed_commits(self.slots[0].read_counters())
        )
        self.slots[1].count_commit(confirmed=True)
        self.assertEqual(CommitCounters.confirmed_commits(self.slots[0].read_counters()), [0, 1, 0])

    def test_replaced(self) -> None:
        """A process that takes another's place goes on counting where that ended (CLU-31)."""
        self.slots[2].count_commit(confirmed=True)
        before = self.slots[0].read_counters()
        CommitCounters(self.view, 2).count_commit(confirmed=True)
        self.assertEqual(CommitCounters.confirmed_commits(self.slots[0].read_counters()), [0, 0, 2])
        self.assertNotEqual(self.slots[0].read_counters(), before)

    def test_versions(self) -> None:
        """The newest version of each system counts that any process has made, whatever comes after it (CLU-39)."""
        for number, version in (
            (0, StateVersion(7, 1, 10)),
            (1, StateVersion(7, 1, 12)),
            (1, StateVersion(7, 1, 11)),
            (2, StateVersion(7, 2, 3)),
            (2, StateVersion(7, 1, 99)),
        ):
            self.slots[number].count_commit(confirmed=True, version=version)
        read = self.slots[0].read_counters()
        self.assertEqual(self.slots[1].written_versions(read), WrittenVersions((StateVersion(7, 2, 3),)))
        self.slots[2].count_commit(confirmed=True, version=StateVersion(8, 1, 1))
        written = self.slots[0].written_versions(self.slots[0].read_counters())
        self.assertEqual(set(written.versions), {StateVersion(7, 1, 12), StateVersion(8, 1, 1)})
        self.assertEqual(self.slots[0].written_versions(read).timeline, 2)

    def test_nothing_written(self) -> None:
        """At first nothing is written (CLU-39)."""
        written = self.slots[0].written_versions(self.slots[0].read_counters())
        self.assertEqual((written, written.timeline), (WrittenVersions(), 0))

    def test_settled(self) -> None:
        """A commit with an unknown outcome has no version until the primary was asked afterwards where it stands, by the
        process that made it (CLU-39).
        """
        one, other = self.slots[:2]
        self.assertIsNone(one.pending_number())
        one.count_commit(confirmed=False)
        number = one.pending_number()
        one.count_commit(confirmed=False)
        self.assertFalse(other.written_versions(other.read_counters()).certain)
        self.assertIsNone(other.pending_number())
        one.resolve_pending(number, StateVersion(7, 1, 10))
        self.assertFalse(other.written_versions(other.read_counters()).certain)
        one.resolve_pending(one.pending_number(), StateVersion(7, 1, 11))
        self.assertEqual(other.written_versions(other.read_counters()), WrittenVersions((StateVersion(7, 1, 11),)))

    def test_private(self) -> None:
        """A server of one process has a page of its own."""
        one, other = CommitCounters.for_one_process(), CommitCounters.for_one_process()
        one.count_commit(confirmed=True)
        self.assertEqual(
            (CommitCounters.confirmed_commits(one.read_counters()), CommitCounters.confirmed_commits(other.read_counters())),
            ([1], [0]),
        )
