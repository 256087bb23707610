"""Tests of ``svc.authn.providers.fetch_waiters``: the waits for keys, and which one is ended for which other."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.authn.providers.fetch_waiters import RELEASE_BATCH, TOKEN_COPIES, WAIT_BYTES, FetchWaiters, WaitBudget, Waiter
from svc.model.key_sets import KeySet

#: How many may wait in the room of these tests, with tokens of no length.
PLACES = 12

KEYS = KeySet(())


class WaitingTests(SynchronousTestCase):
    """A room of a few places."""

    def setUp(self) -> None:
        """An empty room."""
        self.clock = Clock()
        self.refused: list[Waiter] = []
        self.room = WaitBudget(self.clock, self.refused.append, PLACES * WAIT_BYTES)
        self.crowd = FetchWaiters(self.room)

    def enter(self, address: str, count: int = 1, crowd: FetchWaiters | None = None, size: int = 0) -> list[Waiter | None]:
        """Let so many from this address in, or try to; return them."""
        return [(self.crowd if crowd is None else crowd).add_waiter(address, size) for _ in range(count)]

    def put_out(self) -> list[Waiter]:
        """Those who lost their places until now."""
        self.clock.advance(0)
        return self.refused

    def test_everybody_while_there_is_room(self) -> None:
        """As long as there is room one address may have all of it, and no wait ends for another (AUTH-48)."""
        self.assertNotIn(None, self.enter("a", PLACES))
        self.assertEqual(self.put_out(), [])

    def test_the_largest_share_yields(self) -> None:
        """In a full room the newcomer's place is that of who came last from the address that has most (AUTH-48)."""
        large = self.enter("a", 7)
        small = self.enter("b", 5)
        new = self.enter("c", 3)
        self.assertNotIn(None, [*small, *new])
        self.assertEqual(self.put_out(), large[:-4:-1])

    def test_who_has_most_is_refused(self) -> None:
        """Who would have more than anybody else is refused at once, and takes nobody's place."""
        self.enter("a", 6)
        self.enter("b", 6)
        self.assertEqual([*self.enter("a"), *self.enter("b")], [None, None])
        self.assertEqual(self.put_out(), [])

    def test_as_many_addresses_as_places(self) -> None:
        """When each place is of an address of its own, newcomers are refused."""
        for number in range(PLACES):
            self.enter(f"a{number}")
        self.assertEqual(self.enter("b"), [None])

    def test_the_largest_source_yields(self) -> None:
        """A source for which many wait, from however many addresses, takes no room from others (AUTH-48)."""
        for number in range(PLACES):
            self.enter(f"a{number}")
        other = FetchWaiters(self.room)
        self.assertEqual([each is None for each in self.enter("a0", 8, other)], [False] * 6 + [True] * 2)
        self.assertEqual(len(self.put_out()), 6)

    def test_large_tokens(self) -> None:
        """Room is what tokens take: a large one takes the place of several small ones, and is refused sooner."""
        small = self.enter("a", PLACES)
        self.assertNotIn(None, self.enter("b", size=3 * WAIT_BYTES // TOKEN_COPIES))
        self.assertEqual(self.put_out(), small[:-5:-1])
        self.assertEqual(self.enter("b", size=PLACES * WAIT_BYTES), [None])

    def test_what_was_given_up_in_vain_is_told(self) -> None:
        """A waiter that lost its place is told so, even if it wasn't enough for the newcomer."""
        waiting = self.enter("a", PLACES)
        self.assertEqual(self.enter("b", size=8 * WAIT_BYTES // TOKEN_COPIES), [None])
        gone = self.put_out()
        self.assertEqual(gone, waiting[: -len(gone) - 1 : -1])
        self.crowd.release_all(lambda waiter: waiter.callback(KEYS))
        self.assertEqual(sum(each is not None and each.called for each in waiting), PLACES - len(gone))

    def test_who_leaves(self) -> None:
        """A waiter that leaves gives up its place at once, and is told nothing later."""
        waiting = [each for each in self.enter("a", PLACES) if each is not None]
        for each in waiting:
            each.cancel()
            self.failureResultOf(each, CancelledError)
        self.assertTrue(self.crowd.is_empty)
        self.assertNotIn(None, self.enter("a", PLACES))
        self.crowd.release_all(lambda waiter: waiter.callback(KEYS))

    def test_who_leaves_when_he_has_lost_his_place(self) -> None:
        """A waiter that leaves between losing its place and being told so changes nothing any more."""
        waiting = [each for each in self.enter("a", PLACES) if each is not None]
        self.enter("b")
        waiting[-1].cancel()
        self.failureResultOf(waiting[-1], CancelledError)
        self.assertEqual(self.enter("a"), [None])

    def test_let_go_in_turn(self) -> None:
        """When the keys are there one of each address goes on after the other, and so many in one turn of the reactor."""
        room = WaitBudget(self.clock, self.refused.append)
        crowd = FetchWaiters(room)
        crowded, lonely = self.enter("a", 2 * RELEASE_BATCH, crowd), self.enter("b", 2, crowd)
        told: list[Waiter] = []
        crowd.release_all(told.append)
        self.assertEqual(told[:5], [crowded[0], lonely[0], crowded[1], lonely[1], crowded[2]])
        self.assertEqual(len(told), RELEASE_BATCH)
        left = crowded[-1]
        assert left is not None
        left.cancel()
        self.failureResultOf(left, CancelledError)
        self.clock.advance(0)
        self.assertEqual(told[5:], crowded[3:-1])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    @given(
        st.lists(
            st.tuples(st.sampled_from("abcdef"), st.integers(0, 2), st.integers(0, 3 * WAIT_BYTES))
            | st.integers(0, 30)
            | st.sampled_from(["go"]),
            max_size=80,
        )
    )
    def test_any_course_of_events(self, events: list[tuple[str, int, int] | int | str]) -> None:
        """Everybody waits, was told, or left; what all take is never more than the room, and nothing once all are gone."""
        self.setUp()
        crowds = [FetchWaiters(self.room) for _ in range(3)]
        here: dict[Waiter, tuple[str, int]] = {}
        told: Counter[Waiter] = Counter()
        for event in events:
            if isinstance(event, tuple):
                address, number, size = event
                waiter = crowds[number].add_waiter(address, size)
                if waiter is not None:
                    waiter.addErrback(lambda failure: failure.trap(CancelledError) and None)
                    here[waiter] = address, WAIT_BYTES + TOKEN_COPIES * size
            elif isinstance(event, int) and event < len(here):
                left = list(here)[event]
                del here[left]
                left.cancel()
            elif event == "go":
                crowds[0].release_all(lambda waiter: told.update([waiter]))
                self.clock.advance(0)
                crowds[0] = FetchWaiters(self.room)
            for gone in [*self.put_out(), *told]:
                here.pop(gone, None)
            self.assertEqual(sum(weight for _, weight in here.values()), sum(crowd.bytes_held for crowd in crowds))
            self.assertLessEqual(sum(crowd.bytes_held for crowd in crowds), PLACES * WAIT_BYTES)
        for crowd in crowds:
            crowd.release_all(lambda waiter: told.update([waiter]))
        self.clock.advance(0)
        self.assertLessEqual(set(here), set(told))
        self.assertEqual(set(told.values()) - {1}, set())
        self.assertNotIn(None, self.enter("z", PLACES, FetchWaiters(self.room)))
