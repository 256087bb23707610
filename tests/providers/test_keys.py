"""Tests of ``svc.providers.keys``: keys are fetched when needed and never oftener than allowed."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from svc.errors import KeysUnavailable
from svc.interfaces import IProviderKeys
from svc.jose import KeySet
from svc.providers.keys import ProviderKeys
from tests.signing import jwk, jwks

URI = "https://idp.example/keys"
OTHER = "https://other.example/keys"
INTERVAL = 10.0

ONE, TWO = jwks(jwk("k1")), jwks(jwk("k2"))


class Provider:
    """Stands for the network: remembers what was asked, and answers when told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers: list[Deferred[bytes]] = []

    async def fetch(self, uri: str) -> bytes:
        """Ask, and wait for ``answer`` or ``fail``."""
        self.asked.append(uri)
        answer: Deferred[bytes] = Deferred()
        self.answers.append(answer)
        return await answer

    def answer(self, document: bytes) -> None:
        """Answer the oldest open request."""
        self.answers.pop(0).callback(document)

    def fail(self, why: str = "no route") -> None:
        """Fail the oldest open request."""
        self.answers.pop(0).errback(KeysUnavailable(why))


class ProviderKeysTests(SynchronousTestCase):
    """``ProviderKeys``."""

    def setUp(self) -> None:
        """A provider that nobody asked yet."""
        self.provider = Provider()
        self.clock = Clock()
        self.clock.advance(1_000_000)
        self.keys = ProviderKeys(self.provider.fetch, self.clock, INTERVAL, limit=3)

    def begin(self, question: Coroutine[Any, Any, KeySet]) -> Deferred[KeySet]:
        """Ask without waiting."""
        return Deferred.fromCoroutine(question)

    def filled(self, document: bytes = ONE, uri: str = URI) -> KeySet:
        """The first set of a source."""
        asked = self.begin(self.keys.current(uri))
        self.provider.answer(document)
        return self.successResultOf(asked)

    def assert_refused(self, asked: Deferred[KeySet], why: str) -> None:
        """The question was answered with a refusal that says why."""
        self.assertIn(why, self.failureResultOf(asked, KeysUnavailable).value.why)

    def ids(self, keys: KeySet) -> list[str | None]:
        """The ids of a set's keys."""
        return [key.key_id for key in keys.keys]

    def test_provides_the_interface(self) -> None:
        """It is a provider of provider keys."""
        verifyObject(IProviderKeys, self.keys)

    def test_fetches_once(self) -> None:
        """A set at hand is given out without asking again, however old it is."""
        keys = self.filled()
        self.clock.advance(1e6)
        self.assertIs(self.successResultOf(self.begin(self.keys.current(URI))), keys)
        self.assertEqual(self.provider.asked, [URI])

    def test_concurrent_misses_share_one_fetch(self) -> None:
        """Who comes while a fetch is under way waits for that one, for a first set and for a newer one."""
        asked = [self.begin(self.keys.current(URI)) for _ in range(5)]
        self.provider.answer(ONE)
        sets = [self.successResultOf(each) for each in asked]
        self.assertEqual(len(set(map(id, sets))), 1)
        asked = [self.begin(self.keys.newer(URI, sets[0])) for _ in range(5)]
        self.provider.answer(TWO)
        self.assertEqual([self.ids(self.successResultOf(each)) for each in asked], [["k2"]] * 5)
        self.assertEqual(self.provider.asked, [URI, URI])

    def test_a_newer_set_at_hand_is_given_out(self) -> None:
        """Who saw an old set gets the newer one that is there already, without a fetch and whatever the budget."""
        old = self.filled()
        asked = self.begin(self.keys.newer(URI, old))
        self.provider.answer(TWO)
        new = self.successResultOf(asked)
        self.assertIs(self.successResultOf(self.begin(self.keys.newer(URI, old))), new)
        self.assertEqual(len(self.provider.asked), 2)

    def test_one_fetch_per_interval(self) -> None:
        """Inside the interval a newer set is refused at once; after it, one fetch is made."""
        keys = self.filled()
        asked = self.begin(self.keys.newer(URI, keys))
        self.provider.answer(ONE)
        keys = self.successResultOf(asked)
        for _ in range(1000):
            self.assert_refused(self.begin(self.keys.newer(URI, keys)), "was asked a moment ago")
        self.clock.advance(INTERVAL - 0.1)
        self.assert_refused(self.begin(self.keys.newer(URI, keys)), "again in 0.1 seconds")
        self.assertEqual(len(self.provider.asked), 2)
        self.clock.advance(0.1)
        asked = self.begin(self.keys.newer(URI, keys))
        self.provider.answer(TWO)
        self.assertEqual(self.ids(self.successResultOf(asked)), ["k2"])

    def test_failed_fetches_count(self) -> None:
        """A fetch that failed uses up the interval as one that succeeded does."""
        keys = self.filled()
        asked = self.begin(self.keys.newer(URI, keys))
        self.provider.fail()
        self.assert_refused(asked, "no route")
        self.assert_refused(self.begin(self.keys.newer(URI, keys)), "was asked a moment ago")
        self.assertEqual(len(self.provider.asked), 2)

    def test_a_failed_first_fetch_is_free(self) -> None:
        """After a failed first fetch one more is made at once, and then one per interval."""
        for _ in range(2):
            asked = self.begin(self.keys.current(URI))
            self.provider.fail()
            self.assert_refused(asked, "no route")
        self.assert_refused(self.begin(self.keys.current(URI)), "was asked a moment ago")
        self.clock.advance(INTERVAL)
        asked = self.begin(self.keys.current(URI))
        self.provider.answer(ONE)
        self.assertEqual(self.ids(self.successResultOf(asked)), ["k1"])

    def test_the_interval_runs_from_the_beginning(self) -> None:
        """A fetch that takes half the interval delays the next one no longer."""
        keys = self.filled()
        asked = self.begin(self.keys.newer(URI, keys))
        self.clock.advance(INTERVAL / 2)
        self.provider.fail()
        self.assert_refused(asked, "no route")
        self.clock.advance(INTERVAL / 2)
        self.begin(self.keys.newer(URI, keys))
        self.assertEqual(len(self.provider.asked), 3)

    def test_a_clock_put_back_stops_nothing(self) -> None:
        """When the clock is put back by a day, the next fetch doesn't wait for a day."""
        keys = self.filled()
        asked = self.begin(self.keys.newer(URI, keys))
        self.provider.answer(ONE)
        keys = self.successResultOf(asked)
        self.clock.rightNow -= 86_400
        self.begin(self.keys.newer(URI, keys))
        self.assertEqual(len(self.provider.asked), 3)

    def test_a_failed_refresh_keeps_the_good_set(self) -> None:
        """Errors, web pages, broken sets and sets without usable key leave the old set in force."""
        keys = self.filled()
        for spoil in (
            self.provider.fail,
            lambda: self.provider.answer(b"<html>maintenance</html>"),
            lambda: self.provider.answer(b'{"keys": []}'),
            lambda: self.provider.answer(b""),
            lambda: self.provider.answer(jwks(jwk("k2", 1024))),
        ):
            self.clock.advance(INTERVAL)
            asked = self.begin(self.keys.newer(URI, keys))
            spoil()
            self.failureResultOf(asked, KeysUnavailable)
            self.assertIs(self.successResultOf(self.begin(self.keys.current(URI))), keys)

    def test_says_what_is_wrong_with_a_set(self) -> None:
        """The refusal names the address and the fault."""
        for document, why in (
            (b"<html>", f"{URI}: the answer is not usable: it is not JSON"),
            (
                jwks(jwk("weak", 1024)),
                f"{URI}: the answer is not usable: it has no usable key. key 1 'weak' is refused: it has 1024 bits",
            ),
        ):
            self.clock.advance(INTERVAL)
            asked = self.begin(self.keys.current(URI))
            self.provider.answer(document)
            self.assert_refused(asked, why)

    def test_one_who_leaves_takes_nothing_along(self) -> None:
        """A client that goes away, even the one that began the fetch, doesn't end the wait of others."""
        first, second = (self.begin(self.keys.current(URI)) for _ in range(2))
        first.cancel()
        self.failureResultOf(first, CancelledError)
        self.provider.answer(ONE)
        self.assertEqual(self.ids(self.successResultOf(second)), ["k1"])

    def test_a_fetch_outlives_everyone_who_waited(self) -> None:
        """When all clients have gone away the fetch still fills the source, and a failed one disturbs nobody."""
        for finish in (self.provider.fail, lambda: self.provider.answer(ONE)):
            asked = self.begin(self.keys.current(URI))
            asked.cancel()
            self.failureResultOf(asked, CancelledError)
            finish()
        self.successResultOf(self.begin(self.keys.current(URI)))

    def test_sources_are_strangers(self) -> None:
        """While one source hangs, another is filled and refreshed."""
        hanging = self.begin(self.keys.current(URI))
        asked = self.begin(self.keys.current(OTHER))
        self.provider.answers.pop().callback(ONE)
        keys = self.successResultOf(asked)
        asked = self.begin(self.keys.newer(OTHER, keys))
        self.provider.answers.pop().callback(TWO)
        self.successResultOf(asked)
        self.assertNoResult(hanging)

    def test_cached_keys_serve_while_a_refresh_hangs(self) -> None:
        """A refresh under way keeps nobody from the keys at hand."""
        keys = self.filled()
        self.begin(self.keys.newer(URI, keys))
        self.assertIs(self.successResultOf(self.begin(self.keys.current(URI))), keys)

    def test_memory_is_bounded(self) -> None:
        """Beyond the limit the least recently used source is forgotten."""
        self.filled()
        for number in range(2):
            self.filled(uri=f"{OTHER}/{number}")
        self.successResultOf(self.begin(self.keys.current(URI)))
        self.filled(uri=OTHER)
        self.successResultOf(self.begin(self.keys.current(URI)))
        self.assertNoResult(self.begin(self.keys.current(f"{OTHER}/0")))

    def test_a_bug_is_logged_and_refuses(self) -> None:
        """An unexpected error ends in a refusal for those who wait, and in the log as what it is."""
        keys = ProviderKeys(self.broken, self.clock, INTERVAL)
        self.assert_refused(self.begin(keys.current(URI)), "an error of this program")
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assert_refused(self.begin(keys.current(URI)), "an error of this program")
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    async def broken(self, uri: str) -> bytes:
        """A fetch with a bug."""
        raise ZeroDivisionError

    def test_answers_at_once_are_fine(self) -> None:
        """A fetch that needs no waiting fills the source as any other."""

        async def fetch(uri: str) -> bytes:
            return ONE

        keys = ProviderKeys(fetch, self.clock, INTERVAL)
        self.assertEqual(self.ids(self.successResultOf(self.begin(keys.current(URI)))), ["k1"])
