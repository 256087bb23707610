"""Keys that one process fetches for all: the real keys behind, and copies of two processes before them."""

from __future__ import annotations

import pickle
from typing import Any

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from svc.authn.providers.copies import (
    REFUSAL_SECONDS,
    USE_REPORT_INTERVAL,
    KeysRequest,
    KeysResponse,
    RemoteKeys,
    SharedKeys,
)
from svc.authn.providers.fetch_waiters import BUDGET_BYTES
from svc.authn.providers.keys import SOURCES_LIMIT, ProviderKeys
from svc.crypto.key_sets import parse_key_set
from svc.model.authentication import IProviderKeys, KeySource, KeysState, LoginRequest
from svc.model.errors import KeysUnavailable, StoreUnavailable
from svc.model.key_sets import KeySet
from tests.signing import jwk, jwks

SOURCE = KeySource("https://idp.example/keys")
INTERVAL = 10.0

ONE, TWO = jwks(jwk("k1")), jwks(jwk("k2"))


class CopiesCase(SynchronousTestCase):
    """A provider, the process that asks it, and two that serve."""

    max_age: float | None = None

    def setUp(self) -> None:
        """Nobody has asked yet."""
        self.clock = Clock()
        self.clock.advance(1_000_000.0)
        self.asked = 0
        self.questions = 0
        self.used: list[KeySource] = []
        self.document: bytes | None = ONE
        self.faulty = KeysUnavailable("no route")
        self.waiting: list[Deferred[KeySet]] = []
        self.slow = False
        self.gone = False

        def make(changed: Any) -> ProviderKeys:
            return ProviderKeys(
                self.fetch, self.clock, INTERVAL, max_age=self.max_age, stale_if_error=30.0, on_fetched=changed
            )

        self.shared = SharedKeys(self.clock, make, self.tell)
        self.copies = [RemoteKeys(self.clock, self.ask, self.used.append, self.max_age, BUDGET_BYTES // 2) for _ in range(2)]

    async def fetch(self, source: KeySource) -> KeySet:
        """Answer as the provider."""
        self.asked += 1
        if self.slow:
            self.waiting.append(Deferred())
            return await self.waiting[-1]
        if self.document is None:
            raise self.faulty
        return attrs.evolve(parse_key_set(self.document), document=self.document, issuer="https://idp.example/")

    async def ask(self, question: KeysRequest) -> KeysResponse:
        """Put a question to the process that fetches, as over a connection."""
        self.questions += 1
        if self.gone:
            raise StoreUnavailable("it is gone")
        answer: KeysResponse = pickle.loads(
            pickle.dumps(await self.shared.answer_request(pickle.loads(pickle.dumps(question))))
        )
        return answer

    def tell(self, answer: KeysResponse) -> None:
        """Tell all copies."""
        for copy in self.copies:
            copy.receive_response(pickle.loads(pickle.dumps(answer)))

    def current(self, at: int = 0, refreshes: int = 0) -> Deferred[KeySet]:
        """Ask a copy for the keys at hand."""
        return Deferred.fromCoroutine(self.copies[at].current_keys(SOURCE, refreshes))

    def newer(self, seen: KeySet, at: int = 0) -> Deferred[KeySet]:
        """Ask a copy for newer keys."""
        return Deferred.fromCoroutine(self.copies[at].fetch_newer_keys(SOURCE, seen))

    def ids(self, keys: KeySet) -> list[str | None]:
        """The ids of keys."""
        return [key.key_id for key in keys.keys]


class CopiesTests(CopiesCase):
    """One budget."""

    def test_provides(self) -> None:
        """A copy is what authenticators ask."""
        self.assertTrue(verifyObject(IProviderKeys, self.copies[0]))

    def test_one_fetch(self) -> None:
        """Keys are fetched once, whichever process needs them, and each has them from then on by itself (CFG-33)."""
        first = self.successResultOf(self.current())
        self.assertEqual((self.ids(first), first.issuer), (["k1"], "https://idp.example/"))
        self.assertIs(self.successResultOf(self.current()), first)
        self.assertEqual((self.asked, self.questions), (1, 1))
        self.assertEqual(self.ids(self.successResultOf(self.current(1))), ["k1"])
        self.assertEqual((self.asked, self.questions), (1, 2))

    def test_a_rotation(self) -> None:
        """A key that one process has learnt all have, without a question, and without a fetch (CFG-33)."""
        first, second = self.successResultOf(self.current()), self.successResultOf(self.current(1))
        self.document = TWO
        self.assertEqual(self.ids(self.successResultOf(self.newer(first))), ["k2"])
        questions = self.questions
        self.assertEqual(self.ids(self.successResultOf(self.newer(second, 1))), ["k2"])
        self.assertEqual((self.asked, self.questions), (2, questions))

    def test_forged_tokens(self) -> None:
        """Of unknown keys the provider is asked once in an interval, and the process that asks once in a moment (CFG-33)."""
        keys = [self.successResultOf(self.current(at)) for at in range(2)]
        self.document = TWO
        for _ in range(50):
            for at in range(2):
                keys[at] = self.successResultOf(self.newer(keys[at], at))
        self.assertEqual(self.asked, 2)
        self.assertLessEqual(self.questions, 6)
        self.clock.advance(REFUSAL_SECONDS)
        self.assertIs(self.successResultOf(self.newer(keys[0])), keys[0])
        self.assertEqual(self.asked, 2)
        self.clock.advance(INTERVAL)
        self.successResultOf(self.newer(keys[0]))
        self.successResultOf(self.newer(keys[1], 1))
        self.assertEqual(self.asked, 3)

    def test_an_outage(self) -> None:
        """Logins are put off while there are no keys, of all processes together no oftener than of one (CFG-33)."""
        self.document = None
        for _ in range(20):
            for at in range(2):
                self.failureResultOf(self.current(at), KeysUnavailable)
        self.assertEqual(self.asked, 2)
        self.assertEqual(self.copies[0].keys_state(SOURCE).keys, ())
        self.assertIsNotNone(self.copies[0].keys_state(SOURCE).failure)
        self.document = ONE
        self.clock.pump([1.0] * 20)
        self.successResultOf(self.current())
        self.successResultOf(self.current(1))

    def test_a_wish(self) -> None:
        """An operator's wish is fulfilled once for all processes, whatever the budget (CFG-33)."""
        self.successResultOf(self.current())
        self.successResultOf(self.current(1))
        self.document = TWO
        for at in (0, 1, 0, 1):
            self.assertEqual(self.ids(self.successResultOf(self.current(at, refreshes=1))), ["k2"])
        self.assertEqual(self.asked, 2)
        self.assertEqual(self.ids(self.successResultOf(self.current(1, refreshes=2))), ["k2"])
        self.assertEqual(self.asked, 3)

    def test_shared_wait(self) -> None:
        """Logins wait for one question together; one that leaves ends its own wait alone."""
        self.slow = True
        waiting = [self.current() for _ in range(3)]
        waiting[1].cancel()
        self.failureResultOf(waiting[1], CancelledError)
        self.waiting.pop().callback(attrs.evolve(parse_key_set(ONE), document=ONE))
        self.clock.advance(0)
        self.assertEqual([self.ids(self.successResultOf(waiting[at])) for at in (0, 2)], [["k1"], ["k1"]])
        self.assertEqual((self.asked, self.questions), (1, 1))

    def test_crowded(self) -> None:
        """More logins than there is room for are put off."""
        self.slow = True
        request = LoginRequest("acme", None, bytes(16_000), "192.0.2.1")
        waiting = [
            Deferred.fromCoroutine(self.copies[0].current_keys(SOURCE, 0, request))
            for _ in range(BUDGET_BYTES // 2 // 100_000)
        ]
        self.clock.advance(0)
        failed = [each for each in waiting if each.called]
        self.assertTrue(failed)
        for each in failed:
            self.failureResultOf(each, KeysUnavailable)
        for each in waiting:
            each.addErrback(lambda _: None)

    def test_gone(self) -> None:
        """Where the process that fetches can't be asked, logins are put off, and keys at hand go on."""
        keys = self.successResultOf(self.current())
        self.gone = True
        self.failureResultOf(self.current(1), KeysUnavailable)
        self.assertIs(self.successResultOf(self.current()), keys)
        self.failureResultOf(self.newer(keys), KeysUnavailable)

    def test_no_usable_key(self) -> None:
        """The state of keys that can't be used says so of each, in all processes, until some can be (AUTH-60)."""
        self.faulty = KeysUnavailable("no usable key", problems=("key 1 is weak",), unused=("key 2 is for ES256",))
        self.document = None
        for at in range(2):
            self.failureResultOf(self.current(at), KeysUnavailable)
        for state in (self.shared.keys.keys_state(SOURCE), *(copy.keys_state(SOURCE) for copy in self.copies)):
            self.assertEqual((state.keys, state.problems, state.unused), ((), ("key 1 is weak",), ("key 2 is for ES256",)))
        self.document = ONE
        self.clock.advance(INTERVAL)
        for at in range(2):
            self.successResultOf(self.current(at))
        for state in (self.shared.keys.keys_state(SOURCE), *(copy.keys_state(SOURCE) for copy in self.copies)):
            self.assertEqual((state.problems, state.unused), ((), ()))

    def test_state(self) -> None:
        """A copy tells of a source what the process that fetches would tell, and of another nothing."""
        self.assertEqual(self.copies[0].keys_state(SOURCE), KeysState())
        self.successResultOf(self.current())
        self.clock.advance(3.0)
        self.assertEqual(self.copies[0].keys_state(SOURCE), self.shared.keys.keys_state(SOURCE))
        self.document = None
        self.clock.advance(INTERVAL)
        self.failureResultOf(self.newer(self.successResultOf(self.current())), KeysUnavailable)
        self.assertEqual(self.copies[0].keys_state(SOURCE), self.shared.keys.keys_state(SOURCE))

    def test_used(self) -> None:
        """That keys are in use is told now and then, so that they are kept where they are fetched."""
        for _ in range(5):
            self.successResultOf(self.current())
        self.assertEqual(self.used, [SOURCE])
        self.clock.advance(USE_REPORT_INTERVAL)
        self.successResultOf(self.current())
        self.assertEqual(self.used, [SOURCE] * 2)
        self.shared.mark_used(SOURCE)
        self.shared.mark_used(KeySource("https://unknown.example/keys"))
        self.assertEqual(len(self.shared.keys.key_set_ages()), 1)

    def test_bounded(self) -> None:
        """No more sources are remembered than one process would."""
        for number in range(SOURCES_LIMIT + 10):
            source = KeySource(f"https://idp.example/{number}")
            self.successResultOf(Deferred.fromCoroutine(self.copies[0].current_keys(source)))
        self.assertEqual(len(self.copies[0]._sources), SOURCES_LIMIT)
        self.assertEqual(len(self.shared._sent_sets), SOURCES_LIMIT)


class AgedTests(CopiesCase):
    """Keys with an age."""

    max_age = 40.0

    def test_renewed(self) -> None:
        """Keys are renewed once for all processes before they are too old (CFG-33)."""
        self.successResultOf(self.current())
        self.successResultOf(self.current(1))
        self.document = TWO
        self.clock.pump([1.0] * 35)
        self.assertEqual(self.asked, 2)
        for at in range(2):
            self.assertEqual(self.ids(self.successResultOf(self.current(at))), ["k2"])

    def test_too_old(self) -> None:
        """Keys that can't be renewed are used for as long as those of one process, and no longer (CFG-33)."""
        self.successResultOf(self.current())
        self.document = None
        self.clock.pump([1.0] * 60)
        for at in range(2):
            self.assertEqual(self.ids(self.successResultOf(self.current(at))), ["k1"])
        self.clock.pump([1.0] * 11)
        for at in range(2):
            self.failureResultOf(self.current(at), KeysUnavailable)
