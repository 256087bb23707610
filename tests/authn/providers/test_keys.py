"""Tests of ``svc.authn.providers.keys``: keys are fetched when needed and never oftener than allowed."""

from __future__ import annotations

import itertools
from collections.abc import Coroutine
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.logger import ILogObserver, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from svc.authn.providers.fetch_waiters import BUDGET_BYTES, RELEASE_BATCH, TOKEN_COPIES, WAIT_BYTES
from svc.authn.providers.keys import RETRIED_LIMIT, RETRIES, ProviderKeys
from svc.crypto.key_sets import parse_key_set
from svc.model.authentication import IProviderKeys, KeySource, KeysState, LoginRequest
from svc.model.errors import KeysUnavailable
from svc.model.key_sets import KeySet
from tests.signing import jwk, jwks

SOURCE = KeySource("https://idp.example/keys")
OTHER = KeySource("https://other.example/keys")
INTERVAL = 10.0
START = 1_000_000.0

#: After how many seconds a fetch that failed is tried again.
PAUSE = INTERVAL / RETRIES

#: The size of a large token, and how many logins with one fill the room.
LARGE = 16_000
PLACES = BUDGET_BYTES // (WAIT_BYTES + TOKEN_COPIES * LARGE)

ONE, TWO = jwks(jwk("k1")), jwks(jwk("k2"))


def other(number: int) -> KeySource:
    """Another source."""
    return KeySource(f"https://other.example/keys/{number}")


class Provider:
    """Stands for the network: remembers what was asked and when, and answers when told to."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.asked: list[KeySource] = []
        self.moments: list[float] = []
        self.answers: list[Deferred[KeySet]] = []

    async def fetch(self, source: KeySource) -> KeySet:
        """Ask, and wait for ``answer`` or ``fail``."""
        self.asked.append(source)
        self.moments.append(self._clock.seconds())
        answer: Deferred[KeySet] = Deferred()
        self.answers.append(answer)
        return await answer

    def answer(self, document: bytes) -> None:
        """Answer the oldest open request."""
        self.answers.pop(0).callback(parse_key_set(document))

    def fail(self, why: str = "no route") -> None:
        """Fail the oldest open request."""
        self.answers.pop(0).errback(KeysUnavailable(why))


class Case(SynchronousTestCase):
    """Keys of a provider; ``max_age`` and ``stale_if_error`` are theirs."""

    max_age: float | None = None
    stale_if_error = 0.0

    def setUp(self) -> None:
        """A provider that nobody asked yet."""
        self.clock = Clock()
        self.clock.advance(START)
        self.provider = Provider(self.clock)
        self.chance = 0.0
        self.keys = self.made(limit=3)

    def made(self, limit: int = 1000) -> ProviderKeys:
        """Keys that are fetched from the provider."""
        return ProviderKeys(
            self.provider.fetch,
            self.clock,
            INTERVAL,
            max_age=self.max_age,
            stale_if_error=self.stale_if_error,
            limit=limit,
            chance=lambda: self.chance,
        )

    def begin(self, question: Coroutine[Any, Any, KeySet]) -> Deferred[KeySet]:
        """Ask without waiting."""
        return Deferred.fromCoroutine(question)

    def filled(self, document: bytes = ONE, source: KeySource = SOURCE) -> KeySet:
        """The first set of a source."""
        asked = self.begin(self.keys.current_keys(source))
        self.provider.answer(document)
        return self.successResultOf(asked)

    def assert_refused(self, asked: Deferred[KeySet], why: str, retry_after: int | None = None) -> None:
        """The question was answered with a refusal that says why, and when to come again."""
        refusal = self.failureResultOf(asked, KeysUnavailable).value
        self.assertIn(why, refusal.why)
        self.assertIn(retry_after, (None, refusal.retry_after))

    def ids(self, keys: KeySet) -> list[str | None]:
        """The ids of a set's keys."""
        return [key.key_id for key in keys.keys]

    def given(self, refreshes: int = 0) -> KeySet:
        """The set that is given out at once."""
        return self.successResultOf(self.begin(self.keys.current_keys(SOURCE, refreshes)))


class ProviderKeysTests(Case):
    """Sources without an age."""

    def test_provides_the_interface(self) -> None:
        """It is a provider of provider keys."""
        verifyObject(IProviderKeys, self.keys)

    def test_fetches_once(self) -> None:
        """A set at hand is given out without asking again, however old it is (AUTH-43)."""
        keys = self.filled()
        self.clock.advance(1e6)
        self.assertIs(self.successResultOf(self.begin(self.keys.current_keys(SOURCE))), keys)
        self.assertEqual(self.provider.asked, [SOURCE])

    def test_concurrent_misses_share_one_fetch(self) -> None:
        """Who comes while a fetch is under way waits for that one, for a first set and for a newer one (AUTH-47)."""
        asked = [self.begin(self.keys.current_keys(SOURCE)) for _ in range(5)]
        self.provider.answer(ONE)
        sets = [self.successResultOf(each) for each in asked]
        self.assertEqual(len(set(map(id, sets))), 1)
        asked = [self.begin(self.keys.fetch_newer_keys(SOURCE, sets[0])) for _ in range(5)]
        self.provider.answer(TWO)
        self.assertEqual([self.ids(self.successResultOf(each)) for each in asked], [["k2"]] * 5)
        self.assertEqual(self.provider.asked, [SOURCE, SOURCE])

    def test_a_newer_set_at_hand_is_given_out(self) -> None:
        """Who saw an old set gets the newer one that is there already, without a fetch and whatever the budget."""
        old = self.filled()
        asked = self.begin(self.keys.fetch_newer_keys(SOURCE, old))
        self.provider.answer(TWO)
        new = self.successResultOf(asked)
        self.assertIs(self.successResultOf(self.begin(self.keys.fetch_newer_keys(SOURCE, old))), new)
        self.assertEqual(len(self.provider.asked), 2)

    def test_one_fetch_per_interval(self) -> None:
        """Inside the interval the set that was just fetched is the newest there is; after it, one fetch is made
        (AUTH-44).
        """
        keys = self.filled()
        asked = self.begin(self.keys.fetch_newer_keys(SOURCE, keys))
        self.provider.answer(ONE)
        keys = self.successResultOf(asked)
        for _ in range(1000):
            self.assertIs(self.successResultOf(self.begin(self.keys.fetch_newer_keys(SOURCE, keys))), keys)
        self.clock.advance(INTERVAL - 0.1)
        self.assertIs(self.successResultOf(self.begin(self.keys.fetch_newer_keys(SOURCE, keys))), keys)
        self.assertEqual(len(self.provider.asked), 2)
        self.clock.advance(0.1)
        asked = self.begin(self.keys.fetch_newer_keys(SOURCE, keys))
        self.provider.answer(TWO)
        self.assertEqual(self.ids(self.successResultOf(asked)), ["k2"])

    def test_failed_fetches_count(self) -> None:
        """A fetch that failed uses up the interval as one that succeeded does, and leaves nobody knowing what is newest
        (AUTH-44).
        """
        keys = self.filled()
        asked = self.begin(self.keys.fetch_newer_keys(SOURCE, keys))
        self.provider.fail()
        self.assert_refused(asked, "no route")
        for _ in range(1000):
            self.assert_refused(self.begin(self.keys.fetch_newer_keys(SOURCE, keys)), "was asked a moment ago")
        self.assert_refused(
            self.begin(self.keys.fetch_newer_keys(SOURCE, keys)), "again in 10.0 seconds; that failed: no route"
        )
        self.assertEqual(len(self.provider.asked), 2)

    def test_a_failed_first_fetch_is_free(self) -> None:
        """After a failed first fetch logins may ask for one more at once, and then for one per interval."""
        for _ in range(2):
            asked = self.begin(self.keys.current_keys(SOURCE))
            self.provider.fail()
            self.assert_refused(asked, "no route")
        self.assert_refused(self.begin(self.keys.current_keys(SOURCE)), "was asked a moment ago")
        self.assertEqual(len(self.provider.asked), 2)

    def test_what_a_failed_wish_leaves(self) -> None:
        """When an operator's fetch fails after a login's, nobody knows whether there are newer keys than that brought."""
        keys = self.filled()
        asked = self.begin(self.keys.fetch_newer_keys(SOURCE, keys))
        self.provider.answer(ONE)
        keys = self.successResultOf(asked)
        wish = self.begin(self.keys.current_keys(SOURCE, 1))
        self.provider.fail()
        self.assertIs(self.successResultOf(wish), keys)
        self.assert_refused(self.begin(self.keys.fetch_newer_keys(SOURCE, keys)), "that failed: no route", 2)
        self.clock.advance(PAUSE)
        self.provider.answer(TWO)
        self.assertEqual(self.ids(self.successResultOf(self.begin(self.keys.fetch_newer_keys(SOURCE, keys)))), ["k2"])

    def test_when_to_come_again(self) -> None:
        """Who is put off is told when there is a fetch again, and a moment more by chance, so that not all come at once."""
        for self.chance, first, second in ((0.0, 1, 2), (0.4, 1, 3), (1.0, 2, 4)):
            keys = self.made()
            asked = [self.begin(keys.current_keys(SOURCE)) for _ in range(3)]
            self.provider.fail()
            for each in asked:
                self.assert_refused(each, "no route", first)
            asked = [self.begin(keys.current_keys(SOURCE))]
            self.provider.fail()
            self.assert_refused(asked[0], "no route", second)
            self.assert_refused(self.begin(keys.current_keys(SOURCE)), "was asked a moment ago", second)

    def test_the_interval_runs_from_the_beginning(self) -> None:
        """A fetch that takes half the interval delays the next one no longer."""
        keys = self.filled()
        asked = self.begin(self.keys.fetch_newer_keys(SOURCE, keys))
        self.clock.advance(INTERVAL / 2)
        self.provider.fail()
        self.assert_refused(asked, "no route")
        self.clock.advance(INTERVAL / 2)
        self.begin(self.keys.fetch_newer_keys(SOURCE, keys))
        self.assertEqual(len(self.provider.asked), 3)

    def test_a_failed_refresh_keeps_the_good_set(self) -> None:
        """A fetch that failed leaves the old set in force, however often that happens (AUTH-43)."""
        keys = self.filled()
        for _ in range(5):
            asked = self.begin(self.keys.fetch_newer_keys(SOURCE, keys))
            self.provider.fail()
            self.failureResultOf(asked, KeysUnavailable)
            self.assertIs(self.successResultOf(self.begin(self.keys.current_keys(SOURCE))), keys)
            self.clock.advance(INTERVAL - 0.1)
            self.provider.fail()
            self.clock.advance(0.1)

    def test_one_who_leaves_takes_nothing_along(self) -> None:
        """A client that goes away, even the one that began the fetch, doesn't end the wait of others (AUTH-47)."""
        first, second = (self.begin(self.keys.current_keys(SOURCE)) for _ in range(2))
        first.cancel()
        self.failureResultOf(first, CancelledError)
        self.provider.answer(ONE)
        self.assertEqual(self.ids(self.successResultOf(second)), ["k1"])

    def test_a_fetch_outlives_everyone_who_waited(self) -> None:
        """When all clients have gone away the fetch still fills the source, and a failed one disturbs nobody."""
        for finish in (self.provider.fail, lambda: self.provider.answer(ONE)):
            asked = self.begin(self.keys.current_keys(SOURCE))
            asked.cancel()
            self.failureResultOf(asked, CancelledError)
            finish()
        self.successResultOf(self.begin(self.keys.current_keys(SOURCE)))

    def test_sources_are_strangers(self) -> None:
        """While one source hangs, another is filled and refreshed (AUTH-47)."""
        hanging = self.begin(self.keys.current_keys(SOURCE))
        asked = self.begin(self.keys.current_keys(OTHER))
        self.provider.answers.pop().callback(parse_key_set(ONE))
        keys = self.successResultOf(asked)
        asked = self.begin(self.keys.fetch_newer_keys(OTHER, keys))
        self.provider.answers.pop().callback(parse_key_set(TWO))
        self.successResultOf(asked)
        self.assertNoResult(hanging)

    def test_cached_keys_serve_while_a_refresh_hangs(self) -> None:
        """A refresh under way keeps nobody from the keys at hand (AUTH-47)."""
        keys = self.filled()
        self.begin(self.keys.fetch_newer_keys(SOURCE, keys))
        self.assertIs(self.successResultOf(self.begin(self.keys.current_keys(SOURCE))), keys)

    def test_memory_is_bounded(self) -> None:
        """Beyond the limit the least recently used source is forgotten (AUTH-43)."""
        self.filled()
        for number in range(2):
            self.filled(source=other(number))
        self.successResultOf(self.begin(self.keys.current_keys(SOURCE)))
        self.filled(source=OTHER)
        self.successResultOf(self.begin(self.keys.current_keys(SOURCE)))
        self.assertNoResult(self.begin(self.keys.current_keys(other(0))))

    def test_sources_without_keys_displace_none(self) -> None:
        """However many sources are named that give no keys, one that gave some is remembered."""
        keys = self.filled()
        for number in range(9):
            asked = self.begin(self.keys.current_keys(other(number)))
            self.provider.fail()
            self.assert_refused(asked, "")
        self.assertIs(self.successResultOf(self.begin(self.keys.current_keys(SOURCE))), keys)

    def test_a_bug_is_logged_and_refuses(self) -> None:
        """An unexpected error ends in a refusal for those who wait, and in the log as what it is."""
        keys = ProviderKeys(self.broken, self.clock, INTERVAL)
        self.assert_refused(self.begin(keys.current_keys(SOURCE)), "an error of this program")
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assert_refused(self.begin(keys.current_keys(SOURCE)), "an error of this program")
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    async def broken(self, source: KeySource) -> KeySet:
        """A fetch with a bug."""
        raise ZeroDivisionError

    def test_answers_at_once_are_fine(self) -> None:
        """A fetch that needs no waiting fills the source as any other."""

        async def fetch(source: KeySource) -> KeySet:
            return parse_key_set(ONE)

        keys = ProviderKeys(fetch, self.clock, INTERVAL)
        self.assertEqual(self.ids(self.successResultOf(self.begin(keys.current_keys(SOURCE)))), ["k1"])

    def test_sources_differ_by_trust(self) -> None:
        """The same address is another source with other authorities, or when it is a provider's (AUTH-43)."""
        self.filled()
        for source in (KeySource(SOURCE.uri, True), KeySource(SOURCE.uri, ca_cert="-"), KeySource(SOURCE.uri, True, "-")):
            self.assertNoResult(self.begin(self.keys.current_keys(source)))

    def test_nothing_is_renewed_without_an_age(self) -> None:
        """Without an age nothing happens in the background (AUTH-49)."""
        self.filled()
        self.assertEqual(self.clock.getDelayedCalls(), [])


class RetryTests(Case):
    """Note [Retries]."""

    def put_off(self, keys: ProviderKeys, seen: KeySet | None = None, source: KeySource = SOURCE) -> None:
        """A login that lacks newer keys, or any, is put off at once."""
        self.assert_refused(
            self.begin(keys.current_keys(source) if seen is None else keys.fetch_newer_keys(source, seen)), ""
        )

    def test_keys_that_changed_in_an_outage(self) -> None:
        """When the provider answers again, its new keys are at hand by themselves, long before the interval is over
        (AUTH-46).
        """
        old = self.filled()
        asked = self.begin(self.keys.fetch_newer_keys(SOURCE, old))
        self.provider.fail()
        self.assert_refused(asked, "no route", 2)
        self.clock.advance(PAUSE)
        self.provider.fail()
        self.clock.advance(PAUSE)
        self.provider.answer(TWO)
        self.assertEqual(self.clock.seconds(), START + 2 * PAUSE)
        self.assertEqual(self.ids(self.successResultOf(self.begin(self.keys.fetch_newer_keys(SOURCE, old)))), ["k2"])
        self.assertEqual(self.ids(self.given()), ["k2"])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_a_start_in_an_outage(self) -> None:
        """Where there were no keys yet, they come when the provider answers for the first time."""
        self.begin(self.keys.current_keys(SOURCE)).addErrback(lambda _: None)
        self.provider.fail()
        self.clock.advance(PAUSE)
        waiting = self.begin(self.keys.current_keys(SOURCE))
        self.provider.answer(ONE)
        self.assertEqual(self.ids(self.successResultOf(waiting)), ["k1"])
        self.assertEqual(len(self.provider.asked), 2)

    def test_logins_join(self) -> None:
        """Who comes while a fetch is being tried again waits for it, and spends nothing."""
        old = self.filled()
        self.begin(self.keys.fetch_newer_keys(SOURCE, old)).addErrback(lambda _: None)
        self.provider.fail()
        self.clock.advance(PAUSE)
        waiting = [self.begin(self.keys.fetch_newer_keys(SOURCE, old)) for _ in range(5)]
        self.provider.answer(TWO)
        for each in waiting:
            self.assertEqual(self.ids(self.successResultOf(each)), ["k2"])
        self.assertEqual(len(self.provider.asked), 3)

    def test_a_flood_in_an_outage(self) -> None:
        """However many tokens come while the provider fails, it is asked six times in an interval at most (AUTH-46)."""
        old = self.filled()
        for rate in (1, 10, 100):
            before = len(self.provider.asked)
            for _ in range(30 * rate):
                self.begin(self.keys.fetch_newer_keys(SOURCE, old)).addErrback(lambda _: None)
                if self.provider.answers:
                    self.provider.fail()
                self.clock.advance(INTERVAL / rate / 3)
            asked = len(self.provider.asked) - before
            self.assertLessEqual(asked, 10 * (RETRIES + 1) + 1)
            self.assertGreaterEqual(asked, 10 * (RETRIES - 1) if rate > 1 else 10)

    def test_only_while_somebody_needs_them(self) -> None:
        """When no login lacked the keys for an interval the provider is left alone, until one does (AUTH-46)."""
        old = self.filled()
        self.begin(self.keys.fetch_newer_keys(SOURCE, old)).addErrback(lambda _: None)
        while self.provider.answers:
            self.provider.fail()
            self.given()
            self.clock.advance(PAUSE)
        self.assertEqual(len(self.provider.asked), 2 + RETRIES - 1)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.clock.advance(INTERVAL)
        self.begin(self.keys.fetch_newer_keys(SOURCE, old)).addErrback(lambda _: None)
        self.provider.fail()
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)

    def test_a_renewal_that_failed(self) -> None:
        """An operator's fetch that failed isn't tried again by itself, but is when a login lacks newer keys."""
        self.filled()
        self.begin(self.keys.fetch_newer_keys(SOURCE, self.given()))
        self.provider.answer(ONE)
        self.begin(self.keys.current_keys(SOURCE, 1))
        self.provider.fail()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.put_off(self.keys, self.given())
        self.put_off(self.keys, self.given())
        self.assertEqual([call.getTime() for call in self.clock.getDelayedCalls()], [START + PAUSE])

    def test_few_sources_at_a_time(self) -> None:
        """So many broken sources are tried again and no more; the others are as soon as there is room for them (AUTH-46)."""
        keys = self.made()
        for number in range(RETRIED_LIMIT + 5):
            for _ in range(2):
                asked = self.begin(keys.current_keys(other(number)))
                self.provider.fail()
                self.failureResultOf(asked)
        self.assertEqual(len(self.clock.getDelayedCalls()), RETRIED_LIMIT)
        last = other(RETRIED_LIMIT + 4)
        self.assert_refused(self.begin(keys.current_keys(last)), "was asked a moment ago", 10)
        self.clock.advance(PAUSE)
        self.provider.answer(ONE)
        self.assert_refused(self.begin(keys.current_keys(last)), "was asked a moment ago", 2)
        while self.provider.answers:
            self.provider.fail()
        self.assertEqual(len(self.clock.getDelayedCalls()), RETRIED_LIMIT)

    def test_a_forgotten_source(self) -> None:
        """What is forgotten for want of room isn't asked any more."""
        for number in range(4):
            self.begin(self.keys.current_keys(other(number))).addErrback(lambda _: None)
            self.provider.fail()
        self.clock.advance(PAUSE)
        self.assertEqual(len(self.provider.answers), 3)

    def test_told_once(self) -> None:
        """A failure is logged when it begins and when it is another one, and not with every try."""
        told: list[str] = []

        @implementer(ILogObserver)
        def observe(event: Any) -> None:
            if "could not be fetched" in (event["log_format"] or ""):
                told.append(event["why"])

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        self.begin(self.keys.current_keys(SOURCE)).addErrback(lambda _: None)
        for why in ("no route", "no route", "status 503", "status 503"):
            self.provider.fail(why)
            self.clock.advance(PAUSE)
        self.assertEqual(told, ["no route", "status 503"])


class CrowdTests(Case):
    """Logins that wait for one fetch; how places are shared out is in ``test_waiting``."""

    def login(self, address: str = "192.0.2.1", size: int = 1000) -> Deferred[KeySet]:
        """A login from this address, with a token of so many bytes, before there are keys."""
        request = LoginRequest("acme", None, bytes(size), address, "ci")
        return self.begin(self.keys.current_keys(SOURCE, 0, request))

    def test_a_storm_at_the_start(self) -> None:
        """Thousands of logins wait for the first keys, from one address as from many, and all go on, some in each turn."""
        waiting = [self.login("192.0.2.1" if number % 2 else f"198.51.100.{number % 250}") for number in range(2500)]
        self.provider.answer(ONE)
        self.assertEqual(sum(each.called for each in waiting), RELEASE_BATCH)
        self.clock.advance(0)
        for each in waiting:
            self.assertEqual(self.ids(self.successResultOf(each)), ["k1"])
        self.assertEqual(self.provider.asked, [SOURCE])

    def test_a_failed_first_fetch(self) -> None:
        """When the first fetch fails all who wait are put off."""
        waiting = [self.login() for _ in range(300)]
        self.provider.fail()
        self.clock.advance(0)
        for each in waiting:
            self.assert_refused(each, "no route")

    def fill(self, address: str) -> list[Deferred[KeySet]]:
        """Fill all the room with large tokens from one address."""
        waiting = [self.login(address, LARGE) for _ in range(PLACES)]
        for each in waiting:
            self.assertNoResult(each)
            each.addErrback(lambda failure: None if failure.trap(CancelledError, KeysUnavailable) else failure)
        return waiting

    def test_forgers_leave_room(self) -> None:
        """Forged tokens that fill all the room keep nobody out who comes from elsewhere; who sends more is put off."""
        forged = self.fill("2001:db8::1")
        self.assert_refused(self.login("2001:db8::2", LARGE), "more logins wait for keys than there is room for", 2)
        good = [self.login(f"198.51.100.{number}") for number in range(200)]
        self.clock.advance(0)
        self.assertGreater(sum(each.called for each in forged), 0)
        self.provider.answer(ONE)
        self.clock.advance(0)
        for each in good:
            self.successResultOf(each)

    def test_forgers_who_hang_up(self) -> None:
        """A client that hangs up leaves its place at once."""
        for _ in range(5):
            for each in self.fill("192.0.2.66"):
                each.cancel()
        last = self.login("192.0.2.66")
        self.assertNoResult(last)
        self.provider.answer(ONE)
        self.successResultOf(last)
        self.assertEqual(self.clock.getDelayedCalls(), [])


class RefreshTests(Case):
    """An operator's wishes for newer keys."""

    def test_a_wish_is_fulfilled_once(self) -> None:
        """A new number makes one fetch, whatever the budget, and who brings it waits for that."""
        old = self.filled()
        spent = self.begin(self.keys.fetch_newer_keys(SOURCE, old))
        self.provider.answer(ONE)
        old = self.successResultOf(spent)
        asked = self.begin(self.keys.current_keys(SOURCE, 1))
        self.assertNoResult(asked)
        self.assertIs(self.given(), old)
        self.provider.answer(TWO)
        self.assertEqual(self.ids(self.successResultOf(asked)), ["k2"])
        self.assertEqual(self.ids(self.given(1)), ["k2"])
        self.assertEqual(len(self.provider.asked), 3)

    def test_a_wish_leaves_the_budget_alone(self) -> None:
        """After an operator's refresh a login's is made as if there had been none (AUTH-44)."""
        self.filled()
        asked = self.begin(self.keys.current_keys(SOURCE, 1))
        self.provider.answer(TWO)
        self.begin(self.keys.fetch_newer_keys(SOURCE, self.successResultOf(asked)))
        self.assertEqual(len(self.provider.asked), 3)

    def test_a_failed_wish_keeps_the_good_set(self) -> None:
        """When a refresh fails the set at hand is given out, and the refresh isn't tried again."""
        keys = self.filled()
        asked = self.begin(self.keys.current_keys(SOURCE, 1))
        self.provider.fail()
        self.assertIs(self.successResultOf(asked), keys)
        self.assertIs(self.given(1), keys)
        self.assertEqual(self.keys.keys_state(SOURCE).failure, "no route")

    def test_a_wish_without_a_set(self) -> None:
        """A wish is free where there is no set at hand too, and fails as the fetch does."""
        for refreshes in (0, 0, 1, 2):
            asked = self.begin(self.keys.current_keys(SOURCE, refreshes))
            self.provider.fail()
            self.assert_refused(asked, "no route")
        self.assert_refused(self.begin(self.keys.current_keys(SOURCE, 2)), "was asked a moment ago")

    def test_a_wish_after_the_beginning_of_a_fetch(self) -> None:
        """What was fetched since before the wish doesn't fulfil it: another fetch is made, one for all who brought it."""
        keys = self.filled()
        self.begin(self.keys.fetch_newer_keys(SOURCE, keys))
        asked = [self.begin(self.keys.current_keys(SOURCE, 1)) for _ in range(3)]
        self.provider.answer(ONE)
        self.assertEqual(len(self.provider.asked), 3)
        self.assertNoResult(asked[0])
        self.provider.answer(TWO)
        self.assertEqual(self.ids(self.successResultOf(asked[0])), ["k2"])
        for each in asked[1:]:
            self.successResultOf(each)
        self.assertEqual(len(self.provider.asked), 3)

    def test_a_wish_after_a_fetch_that_fails(self) -> None:
        """The fetch that was under way before a wish may fail without harm to it."""
        self.filled()
        self.begin(self.keys.fetch_newer_keys(SOURCE, self.given())).addErrback(lambda _: None)
        asked = self.begin(self.keys.current_keys(SOURCE, 1))
        self.provider.fail()
        self.provider.answer(TWO)
        self.assertEqual(self.ids(self.successResultOf(asked)), ["k2"])

    def test_wishes_known_at_the_first_fetch(self) -> None:
        """The first fetch after a start fulfils all wishes up to then; older numbers are no wishes."""
        asked = self.begin(self.keys.current_keys(SOURCE, 7))
        self.provider.answer(ONE)
        self.successResultOf(asked)
        self.given(7)
        self.given(3)
        self.assertEqual(len(self.provider.asked), 1)


class StateTests(Case):
    """What operators are told."""

    def test_of_an_unknown_source(self) -> None:
        """Nothing is known of a source that nobody used, and nobody is asked."""
        self.assertEqual(self.keys.keys_state(SOURCE), KeysState())
        self.assertEqual(self.provider.asked, [])

    def test_of_a_good_source(self) -> None:
        """The keys are told by id and thumbprint, with problems of others and the moment of the fetch."""
        keys = self.filled(jwks(jwk("k1"), jwk("weak", 1024)))
        state = self.keys.keys_state(SOURCE)
        self.assertEqual(state.keys, (("k1", keys.keys[0].thumbprint),))
        self.assertIn("'weak' is refused", state.problems[0])
        self.assertEqual((state.fetched_at, state.attempted_at, state.failure), (START, START, None))

    def test_of_a_source_that_fails(self) -> None:
        """The last fetch and why it failed are told beside the set at hand; the next success takes the failure away."""
        keys = self.filled()
        self.clock.advance(100)
        asked = self.begin(self.keys.fetch_newer_keys(SOURCE, keys))
        self.provider.fail()
        self.failureResultOf(asked)
        state = self.keys.keys_state(SOURCE)
        self.assertEqual(len(state.keys), 1)
        self.assertEqual((state.fetched_at, state.attempted_at, state.failure), (START, START + 100, "no route"))
        self.clock.advance(100)
        self.begin(self.keys.fetch_newer_keys(SOURCE, keys))
        self.provider.answer(TWO)
        state = self.keys.keys_state(SOURCE)
        self.assertEqual((state.fetched_at, state.attempted_at, state.failure), (START + 200, START + 200, None))

    def test_of_a_source_without_keys(self) -> None:
        """A source that never answered has a failure and no keys."""
        asked = self.begin(self.keys.current_keys(SOURCE))
        self.provider.fail()
        self.failureResultOf(asked)
        self.assertEqual(self.keys.keys_state(SOURCE), KeysState(attempted_at=START, failure="no route"))

    def test_ages(self) -> None:
        """The ages of all sets at hand are told; a source without a set has none."""
        self.assertEqual(self.keys.key_set_ages(), [])
        self.filled()
        self.clock.advance(30)
        self.filled(source=OTHER)
        self.begin(self.keys.current_keys(other(1)))
        self.clock.advance(5)
        self.assertEqual(self.keys.key_set_ages(), [35.0, 5.0])


class AgeTests(Case):
    """Sets that may become 800 seconds old, and 1000 more while the provider fails; failures are tried again after 100."""

    max_age = 800.0
    stale_if_error = 1000.0

    def use(self, seconds: float) -> None:
        """Let time pass, in which the keys are used."""
        self.given()
        self.clock.advance(seconds)

    def test_renewed_before_the_age(self) -> None:
        """After three quarters of the age keys are fetched again, while those at hand are given out without a wait
        (AUTH-49).
        """
        old = self.filled()
        for number in range(2, 6):
            self.use(599)
            self.assertEqual(len(self.provider.asked), number - 1)
            self.use(1)
            self.assertEqual(len(self.provider.asked), number)
            self.assertIs(self.given(), old)
            self.provider.answer(TWO)
            self.assertIsNot(self.given(), old)
            old = self.given()

    def test_the_budget_is_for_logins(self) -> None:
        """A fetch in the background isn't one that logins asked for, and they ask for theirs."""
        self.filled()
        self.clock.advance(600)
        self.provider.answer(ONE)
        self.begin(self.keys.fetch_newer_keys(SOURCE, self.given()))
        self.assertEqual(len(self.provider.asked), 3)

    def test_a_fetch_by_a_login_counts(self) -> None:
        """A login's fetch puts the one in the background off."""
        self.filled()
        self.clock.advance(500)
        self.begin(self.keys.fetch_newer_keys(SOURCE, self.given()))
        self.provider.answer(TWO)
        self.clock.advance(599)
        self.assertEqual(len(self.provider.asked), 2)
        self.clock.advance(1)
        self.assertEqual(len(self.provider.asked), 3)

    def test_tried_again(self) -> None:
        """While the provider fails it is asked again and again; the set at hand is given out until it is dropped
        (AUTH-49).
        """
        keys = self.filled()
        self.clock.advance(600)
        for _ in range(12):
            self.assertIs(self.given(), keys)
            self.provider.fail()
            self.assertIs(self.given(), keys)
            self.clock.advance(100)
        self.assertEqual(self.clock.seconds(), START + 1800)
        self.assertEqual(self.keys.keys_state(SOURCE).keys, ())
        asked = self.begin(self.keys.current_keys(SOURCE))
        self.provider.fail("still no route")
        self.assert_refused(asked, "still no route")
        self.clock.advance(10_000)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_better_late(self) -> None:
        """When the provider comes back, its keys are taken, and begin a new age."""
        self.filled()
        self.clock.advance(600)
        self.provider.fail()
        self.use(100)
        self.provider.answer(TWO)
        self.assertEqual(self.ids(self.given()), ["k2"])
        self.use(599)
        self.assertEqual(len(self.provider.asked), 3)

    def test_who_is_not_used_is_not_asked(self) -> None:
        """A source that nobody used for an hour isn't asked any more, and its keys are dropped in the end."""
        self.filled()
        while self.provider.answers or self.clock.seconds() < START + 6 * 3600:
            if self.provider.answers:
                self.provider.answer(TWO)
            self.clock.advance(50)
        self.assertEqual(len(self.provider.asked), 3600 // 600)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(self.keys.keys_state(SOURCE).keys, ())

    def test_used_again(self) -> None:
        """Who comes back after a long time waits for a fetch, and gets the old set when that fails."""
        self.filled()
        for _ in range(5):
            self.clock.advance(600)
            self.provider.answer(ONE)
        self.clock.advance(900)
        self.assertEqual(self.provider.answers, [])
        asked = [self.begin(self.keys.current_keys(SOURCE)) for _ in range(2)]
        for each in asked:
            self.assertNoResult(each)
        self.provider.fail()
        keys = self.given()
        for each in asked:
            self.assertIs(self.successResultOf(each), keys)

    def test_a_forgotten_source_is_not_renewed(self) -> None:
        """What is forgotten for want of room isn't asked any more, even when a fetch of it was under way."""
        self.filled()
        self.clock.advance(600)
        self.assertEqual(len(self.provider.answers), 1)
        for number in range(3):
            asked = self.begin(self.keys.current_keys(other(number)))
            self.provider.answers.pop().callback(parse_key_set(ONE))
            self.successResultOf(asked)
        self.provider.answer(TWO)
        self.assertEqual(len(self.clock.getDelayedCalls()), 3)


class StrictAgeTests(Case):
    """Sets that may become 800 seconds old, whatever the provider does."""

    max_age = 800.0

    def test_dropped_at_the_age(self) -> None:
        """A set that couldn't be renewed isn't used when it has reached the age (AUTH-49)."""
        keys = self.filled()
        self.clock.advance(600)
        self.provider.fail()
        self.clock.advance(100)
        self.provider.fail()
        self.clock.advance(99)
        self.assertIs(self.given(), keys)
        self.assertEqual(self.keys.key_set_ages(), [799.0])
        self.clock.advance(1)
        self.assertEqual(self.keys.key_set_ages(), [])
        asked = self.begin(self.keys.current_keys(SOURCE))
        self.assertNoResult(asked)
        self.provider.fail()
        self.assert_refused(asked, "no route")


class CourseTests(Case):
    """Sets of a bounded age, whatever happens."""

    max_age = 800.0
    stale_if_error = 1000.0

    @given(
        st.lists(
            st.sampled_from(["current", "refresh", "newer", "answer", "fail"]) | st.floats(1, 700) | st.floats(0.1, 12),
            max_size=60,
        )
    )
    def test_any_course_of_events(self, events: list[str | float]) -> None:
        """At most one fetch is under way, logins cause at most one in an interval, and no set is given out for too long.

        The server itself makes no two in less than a fifth of an interval.
        """
        self.setUp()
        began: dict[KeySet, float] = {}
        spent: list[float] = []
        own: list[float] = []
        seen, wishes = parse_key_set(TWO), 0
        for event in events:
            asked, before = None, len(self.provider.asked)
            if isinstance(event, float):
                self.clock.advance(event)
                own.extend(self.provider.moments[before:])
            elif event in {"current", "refresh"}:
                wishes += event == "refresh"
                asked = self.begin(self.keys.current_keys(SOURCE, wishes))
            elif event == "newer":
                asked = self.begin(self.keys.fetch_newer_keys(SOURCE, seen))
                spent.extend([self.clock.seconds()] * (len(self.provider.asked) - before))
            elif self.provider.answers and event == "answer":
                fetched = parse_key_set(ONE)
                began[fetched] = self.keys.keys_state(SOURCE).attempted_at or 0.0
                self.provider.answers.pop(0).callback(fetched)
            elif self.provider.answers:
                self.provider.fail()
            if asked is not None:
                given_out: list[KeySet] = []
                asked.addCallbacks(given_out.append, lambda failure: failure.trap(KeysUnavailable))
                for seen in given_out:
                    self.assertLess(self.clock.seconds() - began[seen], 1800)
            self.assertLessEqual(len(self.provider.answers), 1)
        self.assertTrue(all(later - earlier >= INTERVAL for earlier, later in itertools.pairwise(spent)))
        self.assertTrue(all(later - earlier > PAUSE - 1e-6 for earlier, later in itertools.pairwise(own)))
