"""Passwords: which are good enough, and where they are hashed."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase, TestCase

from svc.crypto.passwords import (
    MAX_REFUSAL_DELAY,
    RECOMMENDED,
    HashCost,
    LowPriorityPool,
    Passwords,
    can_be_password,
    demand_password,
)
from svc.model.credentials import new_api_key
from svc.model.errors import InvalidParameter, PasswordsBusy
from tests.threads import CHEAP, Threads, passwords_in

GOOD = b"My-Password-1"


class RulesTests(SynchronousTestCase):
    """What a password must be (TOK-15)."""

    def test_good_ones(self) -> None:
        """Twelve to 128 characters will do, with two of either case, a digit and a special one, a blank among these
        (TOK-15).
        """
        special = " !\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
        for text in ("ABcdefghij1!", "AB" + "é" * 6 + "cd1 ", "ABcd1!" + "x" * 122, "ABcd1!" + "😀" * 122):
            self.assertTrue(can_be_password(text.encode()), text)
        for character in special:
            self.assertTrue(can_be_password(f"ABcdefghij1{character}".encode()), character)

    def test_bad_ones(self) -> None:
        """Anything shorter or longer, or without one of the sorts, or with a line end, or that isn't UTF-8, won't do
        (TOK-15).
        """
        for body in (
            b"",
            b"ABcdefghi1!",
            b"ABcd1!" + b"x" * 123,
            b"Abcdefghij1!",
            b"aBCDEFGHIJ1!",
            b"ABcdefghijk!",
            b"ABcdefghijk1",
            b"ABcdefghij1!\n",
            b"ABcdef\nghij1!",
            b"ABcdefghij1!\r",
            b"ABcdefghij1!\xff",
            "ÄÖcdefghij1!".encode(),
            "ABcdefghij\u0661!".encode(),
        ):
            self.assertFalse(can_be_password(body), body)
            refusal = self.assertRaises(InvalidParameter, demand_password, body)
            self.assertEqual((refusal.parameter, refusal.code), ("password", "validation_failed"))
            self.assertTrue(refusal.message.startswith("A password has 12 to 128 characters, "))
            self.assertEqual(refusal.vendor_code, "CONJ00046E")

    def test_not_repeated(self) -> None:
        """A refusal doesn't repeat the password (FAIL-11)."""
        self.assertNotIn("Secret", str(self.assertRaises(InvalidParameter, demand_password, b"Secret")))

    def test_keys_are_no_passwords(self) -> None:
        """No API key can be a password, so that none needs to be hashed."""
        for _ in range(100):
            self.assertFalse(can_be_password(new_api_key().encode()))

    @given(st.binary(max_size=200))
    def test_total(self, evidence: bytes) -> None:
        """Whatever is sent is a password or isn't."""
        self.assertIn(can_be_password(evidence), {True, False})


class HashingTests(SynchronousTestCase):
    """Hashes, and the threads that make them."""

    def setUp(self) -> None:
        """Make threads that do what they are given at once."""
        self.threads = Threads()
        self.passwords = passwords_in(self.threads)

    def result(self, work: Any) -> Any:
        """The result of what waits for nothing."""
        return self.successResultOf(begun(work))

    def test_matches(self) -> None:
        """A hash has its parameters in it, and matches the very password it was made of; two of one password differ."""
        one, two = (self.result(self.passwords.hash_password(GOOD)) for _ in range(2))
        self.assertTrue(one.startswith(b"$argon2id$v=19$m=8,t=1,p=1$"))
        self.assertNotEqual(one, two)
        self.assertIs(self.result(self.passwords.verify_password(one, GOOD)), True)
        for other in (GOOD + b" ", GOOD.lower(), b"", GOOD + b"\x00"):
            self.assertIs(self.result(self.passwords.verify_password(one, other)), False)

    def test_turns(self) -> None:
        """Where processes share the threads, a password is hashed in its turn, which is given back also when its client has
        left (CFG-34).
        """
        turns: list[Deferred[None]] = []
        given: list[str] = []

        class Taken:
            """Turns that the test gives."""

            async def acquire(self, whose: str) -> Callable[[], None]:
                """See ``IPermits``."""
                turns.append(Deferred())
                await turns[-1]
                return lambda: given.append(whose)

        pool: Any = self.threads
        passwords = Passwords(self.threads, pool, cost=CHEAP, permits=Taken())
        waiting, leaving = begun(passwords.hash_password(GOOD)), begun(passwords.hash_password(GOOD))
        self.assertEqual(self.threads.done, 0)
        leaving.cancel()
        self.failureResultOf(leaving, CancelledError)
        for turn in turns:
            turn.callback(None)
        self.assertTrue(self.successResultOf(waiting).startswith(b"$argon2id$"))
        self.assertEqual(given, ["", ""])
        self.result(passwords.wait_for_room())

    def test_no_hash(self) -> None:
        """Where there is no hash, the same work is done for nothing (TOK-17)."""
        self.assertIs(self.result(self.passwords.verify_password(None, GOOD)), False)
        self.assertEqual(self.threads.done, 1)

    def test_other_costs(self) -> None:
        """A hash of another cost still matches, and is told to be outdated."""
        hashed = self.result(self.passwords.hash_password(GOOD))
        pool: Any = self.threads
        dearer = Passwords(self.threads, pool, cost=HashCost(16, 2, 1))
        self.assertIs(self.result(dearer.verify_password(hashed, GOOD)), True)
        self.assertEqual((self.passwords.is_outdated(hashed), dearer.is_outdated(hashed)), (False, True))

    def test_the_recommended_cost(self) -> None:
        """What hashes cost in service is what OWASP recommends for Argon2id: 19 MiB, two passes, one lane (TOK-16)."""
        self.assertEqual(RECOMMENDED, HashCost(19456, 2, 1))
        self.assertNotEqual(RECOMMENDED, CHEAP)

    def test_nothing_on_the_reactor(self) -> None:
        """Nothing is hashed or compared before a thread does it."""
        hashed = self.result(self.passwords.hash_password(GOOD))
        self.threads.busy = True
        waiting = [begun(self.passwords.hash_password(GOOD)), begun(self.passwords.verify_password(hashed, GOOD))]
        for each in waiting:
            self.assertNoResult(each)
        self.assertEqual(len(self.threads.work), 2)
        self.threads.run()
        self.assertIs(self.successResultOf(waiting[1]), True)
        self.successResultOf(waiting[0])

    def test_a_full_queue(self) -> None:
        """More than may wait is refused at once, until there is room again; a client that leaves makes none."""
        self.threads.busy = True
        waiting = [begun(self.passwords.verify_password(None, GOOD)) for _ in range(5)]
        refusal = self.failureResultOf(begun(self.passwords.verify_password(None, GOOD)), PasswordsBusy).value
        self.assertEqual(refusal.retry_after, 2)
        for each in waiting:
            each.cancel()
            self.failureResultOf(each, CancelledError)
        self.failureResultOf(begun(self.passwords.verify_password(None, GOOD)), PasswordsBusy)
        self.threads.run(1)
        last = begun(self.passwords.verify_password(None, GOOD))
        self.failureResultOf(begun(self.passwords.verify_password(None, GOOD)), PasswordsBusy)
        self.threads.run()
        self.assertIs(self.successResultOf(last), False)

    def test_room(self) -> None:
        """Who asks for room where there is none is refused after a moment of its own, unless there is some by then
        (TOK-18).
        """
        chances = iter([0.25, 0.75, 0.5])
        pool: Any = self.threads
        passwords = Passwords(self.threads, pool, waiting=0, cost=CHEAP, chance=lambda: next(chances))
        self.result(passwords.wait_for_room())
        self.threads.busy = True
        first = begun(passwords.verify_password(None, GOOD))
        soon, late, between = (begun(passwords.wait_for_room()) for _ in range(3))
        self.threads.advance(MAX_REFUSAL_DELAY / 4)
        self.failureResultOf(soon, PasswordsBusy)
        self.assertNoResult(between)
        self.threads.advance(MAX_REFUSAL_DELAY / 4)
        self.failureResultOf(between, PasswordsBusy)
        self.threads.run()
        self.successResultOf(first)
        self.assertNoResult(late)
        self.threads.advance(MAX_REFUSAL_DELAY / 4)
        self.successResultOf(late)

    def test_whoever_leaves_is_not_waited_for(self) -> None:
        """Who leaves before there is room leaves nothing behind."""
        self.threads.busy = True
        for _ in range(5):
            begun(self.passwords.hash_password(GOOD))
        leaving = begun(self.passwords.wait_for_room())
        leaving.cancel()
        self.failureResultOf(leaving, CancelledError)
        self.assertEqual(self.threads.getDelayedCalls(), [])

    def test_service(self) -> None:
        """The threads are there while the service runs."""
        self.passwords.startService()
        self.assertTrue(self.threads.started)
        self.passwords.stopService()
        self.assertFalse(self.threads.started)


class ThreadTests(TestCase):
    """Real threads."""

    async def test_beside_the_reactor(self) -> None:
        """A real pool hashes in a thread that isn't the reactor's and steps back for it, and which ends with the service."""
        pool = LowPriorityPool(0, 1, "test")
        passwords = Passwords(installed_reactor, pool, cost=CHEAP)
        passwords.startService()
        try:
            hashed = await passwords.hash_password(GOOD)
            self.assertIs(await passwords.verify_password(hashed, GOOD), True)
            self.assertNotEqual(await passwords._run_in_pool(threading.get_ident), threading.get_ident())
            if sys.platform == "linux":
                self.assertEqual(await passwords._run_in_pool(priority), min(priority() + 10, 19))
        finally:
            passwords.stopService()
        self.assertFalse(any(thread.is_alive() for thread in pool.threads))


def priority() -> int:
    """How nice this thread is."""
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def begun(work: Awaitable[Any]) -> Deferred[Any]:
    """Begin something."""

    async def waiting() -> Any:
        return await work

    return Deferred.fromCoroutine(waiting())
