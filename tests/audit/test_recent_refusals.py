"""Refusals of the last hour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from svc.audit.recent_refusals import BATCH, HOUR, MAX_PARTS, PART_BYTES, REPORT_DELAY, RecentRefusals, RemoteRefusals
from svc.model.refusals import IRefusals, RefusalCount, RefusalGroup, RefusalsFound, RefusalsQuery, RefusedRequest

NOW = 1_700_000_000.0
ALL = RefusalsQuery("acme", limit=100_000)

REFUSED = RefusedRequest(
    at=NOW,
    request_id="id-1",
    client_ip="192.0.2.1",
    account="acme",
    route="POST /authn/<account>/<login>/authenticate",
    reason="credentials-wrong",
    detail="the evidence is not the role's API key",
    authenticator="authn",
    role="acme:host:web",
)


class RefusalsCase(SynchronousTestCase):
    """A clock."""

    def setUp(self) -> None:
        """Set it."""
        self.clock = Clock()
        self.clock.advance(NOW)

    def result_of(self, coroutine: Coroutine[Any, Any, RefusalsFound]) -> RefusalsFound:
        """What is found, at once."""
        return self.successResultOf(Deferred.fromCoroutine(coroutine))

    def refused(self, **changes: Any) -> RefusedRequest:
        """A refusal of this moment."""
        return attrs.evolve(REFUSED, **{"at": self.clock.seconds(), **changes})


class RecentRefusalsTests(RefusalsCase):
    """What one server keeps."""

    def found(self, kept: RecentRefusals, query: RefusalsQuery = ALL) -> RefusalsFound:
        """What it finds."""
        return self.result_of(kept.find_recent(query))

    def test_interfaces(self) -> None:
        """The memory, and its stand-in in a process that serves, keep refusals."""
        verifyObject(IRefusals, RecentRefusals(self.clock))
        verifyObject(
            IRefusals, RemoteRefusals(self.clock, self.clock, lambda *_: True, RecentRefusals(self.clock).find_recent)
        )

    def test_an_hour(self) -> None:
        """A refusal is kept for an hour, and it is told since when there are any (REF-1, REF-7)."""
        kept = RecentRefusals(self.clock)
        kept.add_refusal(self.refused())
        self.clock.advance(HOUR / 2)
        kept.add_refusal(self.refused(request_id="id-2"))
        found = self.found(kept)
        self.assertEqual(([each.request_id for each in found.refusals], found.since), (["id-2", "id-1"], NOW))
        self.clock.advance(HOUR / 2)
        found = self.found(kept)
        self.assertEqual([each.request_id for each in found.refusals], ["id-2"])
        self.assertEqual((found.since, found.complete), (NOW, True))
        self.clock.advance(HOUR / 2)
        self.assertEqual(self.found(kept), RefusalsFound(NOW + HOUR / 2, True, (), (), None))

    def test_a_clock_that_is_set_back(self) -> None:
        """What seems to come from a later hour is dropped, so that nothing stays for ever."""
        kept = RecentRefusals(self.clock)
        kept.add_refusal(self.refused(at=NOW + 2 * HOUR))
        self.assertEqual(self.found(kept).refusals, ())

    def test_of_an_account(self) -> None:
        """An account's refusals are its own, in the list and in the sums (REF-3, REF-6)."""
        kept = RecentRefusals(self.clock)
        kept.add_refusal(self.refused(account="other"))
        kept.add_refusal(self.refused())
        found = self.found(kept)
        self.assertEqual(
            (len(found.refusals), found.counts), (1, (RefusalCount(RefusalGroup("credentials-wrong", "authn"), 1),))
        )
        self.assertEqual(self.found(kept, attrs.evolve(ALL, account="none")).counts, ())

    def test_sums(self) -> None:
        """Sums count all that the account has, by reason, authenticator and service, the largest first; those of one sort
        can be asked for (REF-7).
        """
        kept = RecentRefusals(self.clock)
        sorts = (
            RefusalGroup("role-unknown", "authn"),
            RefusalGroup("role-unknown", "authn-jwt", "ci"),
            RefusalGroup("role-unknown", "authn-jwt", "other"),
            RefusalGroup("forbidden"),
        )
        for count, sort in enumerate(sorts, 1):
            for _ in range(count):
                kept.add_refusal(self.refused(**attrs.asdict(sort)))
        expected = tuple(RefusalCount(sort, count) for count, sort in reversed([*enumerate(sorts, 1)]))
        self.assertEqual(self.found(kept, attrs.evolve(ALL, limit=1)).counts, expected)
        for count, sort in enumerate(sorts, 1):
            found = self.found(kept, attrs.evolve(ALL, group=sort))
            self.assertEqual(
                {(each.reason, each.authenticator, each.service_id) for each in found.refusals}, {attrs.astuple(sort)}
            )
            self.assertEqual((len(found.refusals), found.counts), (count, expected))

    def test_pages(self) -> None:
        """A list goes on where it ended, though others have come, and ends (REF-8)."""
        kept = RecentRefusals(self.clock)
        for number in range(7):
            kept.add_refusal(self.refused(request_id=f"id-{number}"))
        found = self.found(kept, RefusalsQuery("acme", limit=3))
        self.assertEqual([each.request_id for each in found.refusals], ["id-6", "id-5", "id-4"])
        kept.add_refusal(self.refused(request_id="id-7"))
        found = self.found(kept, RefusalsQuery("acme", before=found.before, limit=3))
        self.assertEqual([each.request_id for each in found.refusals], ["id-3", "id-2", "id-1"])
        found = self.found(kept, RefusalsQuery("acme", before=found.before, limit=3))
        self.assertEqual(([each.request_id for each in found.refusals], found.before), (["id-0"], None))

    def test_one_request(self) -> None:
        """Those of one request are found, also where a client has named several alike (REF-8)."""
        kept = RecentRefusals(self.clock)
        for request_id, role in (("a", "x"), ("b", "y"), ("a", "z")):
            kept.add_refusal(self.refused(request_id=request_id, role=role))
        found = self.found(kept, RefusalsQuery("acme", request_id="a"))
        self.assertEqual([each.role for each in found.refusals], ["z", "x"])

    def test_a_flood_pushes_out_its_own(self) -> None:
        """However many refusals come from one address, or one network of IPv6, those of others stay (REF-4)."""
        for flood in (lambda number: "203.0.113.9", lambda number: f"2001:db8::{number:x}"):
            kept = RecentRefusals(self.clock)
            kept.add_refusal(self.refused(request_id="first"))
            for number in range(MAX_PARTS + 500):
                kept.add_refusal(self.refused(request_id="flood", client_ip=flood(number)))
            found = self.found(kept)
            self.assertEqual(Counter(each.request_id for each in found.refusals), {"flood": MAX_PARTS - 1, "first": 1})
            self.assertFalse(found.complete)

    def test_large_ones_take_more(self) -> None:
        """A refusal with long texts takes the room of several, so that the bytes are bounded too (REF-4)."""
        kept = RecentRefusals(self.clock, room=10)
        for _ in range(10):
            kept.add_refusal(self.refused(detail="x" * (4 * PART_BYTES)))
        self.assertEqual(len(self.found(kept).refusals), 2)
        kept.add_refusal(self.refused(detail="\U0001f600" * PART_BYTES))
        self.assertEqual(len(self.found(kept).refusals), 2)

    @given(
        st.lists(
            st.tuples(st.integers(0, 4), st.integers(0, 3 * PART_BYTES), st.sampled_from([0.0, 0.0, 1.0, HOUR / 3])),
            max_size=150,
        )
    )
    def test_whoever_floods(self, comes: list[tuple[int, int, float]]) -> None:
        """Within the room all are kept for an hour; beyond it an address loses its oldest, and none below its share."""
        clock, room = Clock(), 60
        kept = RecentRefusals(clock, room)
        whole: list[RefusedRequest] = []
        for number, (address, size, later) in enumerate(comes):
            clock.advance(later)
            refused = self.refused(
                at=clock.seconds(), client_ip=f"192.0.2.{address}", request_id=str(number), detail="x" * size
            )
            whole.append(refused)
            kept.add_refusal(refused)
            found = self.found(kept)
            left = [each for each in whole if clock.seconds() - each.at < HOUR]
            taken = Counter[str]()
            for each in found.refusals:
                taken[each.client_ip] += _parts(each)
            self.assertLessEqual(taken.total(), room)
            for address_of in {each.client_ip for each in left}:
                mine = [each for each in left if each.client_ip == address_of]
                stayed = [each for each in reversed(found.refusals) if each.client_ip == address_of]
                self.assertEqual(stayed, mine[len(mine) - len(stayed) :], "an address loses its oldest first")
                # A share of the room, less what one refusal of another can take.
                if sum(map(_parts, mine)) <= room // 5 - 4:
                    self.assertEqual(stayed, mine)
            if len(found.refusals) == len(left) == len(whole):
                self.assertTrue(found.complete)


class ReportedRefusalsTests(RefusalsCase):
    """A process that serves, and the one that keeps."""

    def setUp(self) -> None:
        """Make both."""
        super().setUp()
        self.batches: list[tuple[tuple[RefusedRequest, ...], bool]] = []
        self.kept = RecentRefusals(self.clock)
        self.reported = RemoteRefusals(self.clock, self.clock, self.report, self.kept.find_recent)
        self.reads = True

    def report(self, refused: tuple[RefusedRequest, ...], complete: bool) -> bool:
        """Hand a batch over, as long as the other process reads."""
        if self.reads:
            self.batches.append((refused, complete))
            self.kept.add_batch(refused, complete=complete)
        return self.reads

    def test_in_batches(self) -> None:
        """Refusals are handed over together, a moment after the first, and then nothing is said until another (REF-9)."""
        for number in range(3):
            self.reported.add_refusal(self.refused(request_id=str(number)))
        self.assertEqual(self.batches, [])
        self.clock.advance(REPORT_DELAY)
        self.assertEqual([(len(refused), complete) for refused, complete in self.batches], [(3, True)])
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.reported.add_refusal(self.refused(request_id="3"))
        self.clock.advance(REPORT_DELAY)
        found = self.result_of(self.reported.find_recent(ALL))
        self.assertEqual([each.request_id for each in found.refusals], ["3", "2", "1", "0"])
        self.assertTrue(found.complete)

    def test_a_flood_in_a_batch(self) -> None:
        """A flood in one batch pushes out its own there too, and it is told that something is missing (REF-4, REF-7)."""
        self.reported.add_refusal(self.refused(request_id="first"))
        for _ in range(2 * BATCH):
            self.reported.add_refusal(self.refused(request_id="flood", client_ip="203.0.113.9"))
        self.clock.advance(REPORT_DELAY)
        found = self.result_of(self.reported.find_recent(ALL))
        self.assertEqual(Counter(each.request_id for each in found.refusals), {"flood": BATCH - 1, "first": 1})
        self.assertFalse(found.complete)
        self.reported.add_refusal(self.refused())
        self.clock.advance(REPORT_DELAY)
        self.assertTrue(self.batches[-1][1])

    def test_a_process_that_does_not_read(self) -> None:
        """What the other process can't take now is there later; and if there are too many until then, it is told that some
        are missing (REF-7, REF-9).
        """
        self.reads = False
        self.reported.add_refusal(self.refused(request_id="first"))
        self.clock.pump([REPORT_DELAY] * 3)
        self.reported.add_refusal(self.refused(request_id="second"))
        self.reads = True
        self.clock.advance(REPORT_DELAY)
        found = self.result_of(self.reported.find_recent(ALL))
        self.assertEqual(([each.request_id for each in found.refusals], found.complete), (["second", "first"], True))
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.reads = False
        for number in range(BATCH + 1):
            self.reported.add_refusal(self.refused(request_id=str(number)))
            self.clock.advance(REPORT_DELAY / 100)
        self.reads = True
        self.clock.advance(REPORT_DELAY)
        found = self.result_of(self.reported.find_recent(ALL))
        self.assertEqual((len(found.refusals), found.complete), (BATCH + 2, False))


def _parts(refused: RefusedRequest) -> int:
    """What a refusal of these tests takes of the room."""
    return 1 + (len(f"{refused.request_id}{refused.account}{refused.detail}None{refused.role}")) // PART_BYTES
