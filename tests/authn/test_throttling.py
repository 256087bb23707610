"""Guessing is slowed down."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.authn.throttling import (
    ADDRESS_FAILURES,
    MAX_TRACKED,
    Failures,
    RemoteFailures,
    Throttle,
)
from svc.model.authentication import Admitted, LoginRequest, Refused
from svc.model.errors import InvalidName, StoreUnavailable
from svc.model.names import RoleName
from svc.model.reasons import POSTPONING_REASONS, Reason
from svc.model.request_notes import begin_notes
from tests.statuses import refusal_status

KEY = b"the key"


class Keeper:
    """Admits everybody by one key; ``reason`` is that of its refusals. It counts what it is asked, and may be ``slow``."""

    def __init__(self) -> None:
        self.asked = 0
        self.reason = Reason.CREDENTIALS_WRONG
        self.slow: Deferred[None] | None = None
        self.down = False

    async def authenticate(self, request: LoginRequest) -> Admitted | Refused:
        """Decide."""
        self.asked += 1
        if self.down:
            raise StoreUnavailable("it is down")
        if self.slow is not None:
            await self.slow
        try:
            role = RoleName.from_login(request.account, request.login or "")
        except InvalidName:
            return Refused(Reason.REQUEST_MALFORMED, "no")
        return Admitted(role, "key") if request.evidence == KEY else Refused(self.reason, "no", str(role))

    async def api_key(self, request: LoginRequest) -> bytes | Refused:
        """Decide."""
        decision = await self.authenticate(request)
        return decision if isinstance(decision, Refused) else KEY


class ThrottleTests(SynchronousTestCase):
    """Failures, and what comes of them."""

    def setUp(self) -> None:
        """Make a throttle that trusts a proxy."""
        self.clock = Clock()
        self.keeper = Keeper()
        self.failures = Failures(self.clock, (ip_network("10.9.0.0/16"),))
        self.throttle = Throttle(self.clock, self.failures)
        self.authenticate = self.throttle.throttle_failures(self.keeper.authenticate)
        self.read_key = self.throttle.throttle_failures(self.keeper.api_key)

    def attempt(self, login: str = "alice", evidence: bytes = b"", address: str = "192.0.2.1") -> Deferred[Any]:
        """Try to authenticate."""
        request = LoginRequest("acct", login, evidence, address)
        return Deferred.fromCoroutine(self.authenticate(request))

    def fail_at_once(self, count: int, login: str = "alice", address: str = "192.0.2.1") -> None:
        """Fail so often, with answers that come at once."""
        for _ in range(count):
            refused = self.successResultOf(self.attempt(login, address=address))
            self.assertEqual(refusal_status(refused), 401)

    def failure_seconds(self, login: str = "alice", address: str = "192.0.2.1") -> float:
        """Fail once, and wait for the answer; how long that was."""
        began, failing = self.clock.seconds(), self.attempt(login, address=address)
        while not failing.called:
            self.clock.advance(0.5)
        self.assertEqual(refusal_status(self.successResultOf(failing)), 401)
        return self.clock.seconds() - began

    def test_delays(self) -> None:
        """After ten failures in a minute further ones wait one second, two, and so on up to a minute (TOK-21)."""
        self.fail_at_once(10)
        self.assertEqual([self.failure_seconds() for _ in range(9)], [1, 2, 4, 8, 16, 32, 60, 60, 60])

    def test_the_right_key_is_admitted_at_once(self) -> None:
        """Anyone who has the key is admitted at once, however slow failures are, and others' failures stay slow (TOK-21)."""
        self.fail_at_once(10)
        self.failure_seconds()
        self.assertIsInstance(self.successResultOf(self.attempt(evidence=KEY)), Admitted)
        self.assertEqual(self.failure_seconds(), 2)

    def test_a_minute_of_quiet(self) -> None:
        """After a minute without a failure, counted from the last answer, failures are answered at once again (TOK-21)."""
        self.fail_at_once(10)
        self.failure_seconds()
        self.clock.advance(59.5)
        self.assertEqual(self.failure_seconds(), 2)
        self.clock.advance(60)
        self.fail_at_once(10)
        self.assertEqual(self.failure_seconds(), 1)

    def test_few_failures(self) -> None:
        """Ten failures that take a minute or longer slow nobody down."""
        for _ in range(30):
            self.fail_at_once(1)
            self.clock.advance(6.1)

    def test_failures_at_the_same_time(self) -> None:
        """Failures that run side by side wait as long as those that come one after the other."""
        self.fail_at_once(10)
        failing = [self.attempt() for _ in range(4)]
        for seconds, done in ((0, 0), (1, 1), (1, 2), (2, 3), (3.5, 3), (0.5, 4)):
            self.clock.advance(seconds)
            self.assertEqual(sum(each.called for each in failing), done)

    def test_all_ways_count_together(self) -> None:
        """Authenticating and logging in are counted together, from all addresses, and for each role by itself (TOK-23)."""
        for number in range(10):
            request = LoginRequest("acct", "user/alice" if number % 2 else "alice", b"", f"192.0.2.{number}")
            self.successResultOf(Deferred.fromCoroutine(self.read_key(request)))
        self.assertEqual(self.failure_seconds(address="192.0.2.77"), 1)
        self.fail_at_once(10, "bob")
        self.fail_at_once(10, "host/alice")

    def test_unknown_roles(self) -> None:
        """An unknown role, and one that can't be, become slow as any other: that tells nobody who there is (TOK-21)."""
        self.keeper.reason = Reason.ROLE_UNKNOWN
        self.fail_at_once(10, "nobody")
        self.assertEqual(self.failure_seconds("nobody"), 1)
        self.fail_at_once(10, "odd\udc80")
        self.assertEqual(self.failure_seconds("odd\udc80"), 1)

    def test_a_right_key_from_elsewhere(self) -> None:
        """A refusal for the address is slow, too: it would tell that the key was right (TOK-23)."""
        self.keeper.reason = Reason.ORIGIN_REFUSED
        self.fail_at_once(10)
        self.assertEqual(self.failure_seconds(), 1)

    def test_the_servers_own_faults(self) -> None:
        """What the server itself can't do is no failure, nor is a store that is away (FAIL-12, TOK-23)."""
        for reason in (Reason.CREDENTIALS_UNREADABLE, Reason.CONFIGURATION_INVALID, *sorted(POSTPONING_REASONS)):
            self.keeper.reason = reason
            self.fail_at_once(400)
        self.keeper.down = True
        for _ in range(400):
            self.failureResultOf(self.attempt(), StoreUnavailable)
        self.keeper.down, self.keeper.reason = False, Reason.CREDENTIALS_WRONG
        self.fail_at_once(10)

    def test_stale_refusals(self) -> None:
        """What memory refuses that outlived the database is no failure: its answer is no later than that of a role which
        isn't remembered (CLU-37, TOK-23).
        """

        async def refused() -> Admitted | Refused:
            begin_notes().stale = 3.0
            return await self.authenticate(LoginRequest("acct", "alice", b"", "192.0.2.1"))

        for _ in range(400):
            self.assertIsInstance(self.successResultOf(Deferred.fromCoroutine(refused())), Refused)
        self.fail_at_once(10)

    def exhaust(self, address: str = "192.0.2.1") -> None:
        """Fail as often as an address may, for a role each."""
        for number in range(ADDRESS_FAILURES):
            self.fail_at_once(1, f"user-{number}", address)

    def test_addresses(self) -> None:
        """After 300 failures an address is refused until the minute is over, and nothing is asked; others are not
        (TOK-22).
        """
        self.exhaust()
        self.clock.advance(20)
        asked = self.keeper.asked
        refused = self.successResultOf(self.attempt(evidence=KEY))
        self.assertEqual((refused.reason, refusal_status(refused), refused.retry_after), (Reason.FAILURES_TOO_MANY, 429, 40))
        self.assertEqual(self.keeper.asked, asked)
        self.assertIsInstance(self.successResultOf(self.attempt(evidence=KEY, address="192.0.2.2")), Admitted)
        self.clock.advance(40)
        self.assertIsInstance(self.successResultOf(self.attempt(evidence=KEY)), Admitted)
        self.fail_at_once(1, "zoe")

    def test_networks_of_ipv6(self) -> None:
        """All addresses of an IPv6 network of 64 bits are one; the network beside it is another (TOK-22)."""
        for number in range(ADDRESS_FAILURES):
            self.fail_at_once(1, f"user-{number}", f"2001:db8::{number:x}:1")
        self.assertEqual(refusal_status(self.successResultOf(self.attempt(evidence=KEY, address="2001:db8::ffff"))), 429)
        self.assertIsInstance(self.successResultOf(self.attempt(evidence=KEY, address="2001:db8:0:1::1")), Admitted)

    def test_trusted_proxies(self) -> None:
        """A proxy that is trusted, and names no client, is never refused: it stands for many (TOK-22)."""
        self.exhaust("10.9.1.1")
        self.assertIsInstance(self.successResultOf(self.attempt(evidence=KEY, address="10.9.1.1")), Admitted)
        self.exhaust("10.8.1.1")
        self.assertEqual(refusal_status(self.successResultOf(self.attempt(evidence=KEY, address="10.8.1.1"))), 429)

    def test_no_address(self) -> None:
        """A client without an address, as at a socket of the file system, counts as one."""
        self.exhaust("")
        self.assertEqual(refusal_status(self.successResultOf(self.attempt(address=""))), 429)

    def test_successes(self) -> None:
        """Any number of successes, from one address and at the same time, is no failure."""
        for _ in range(1000):
            self.assertIsInstance(self.successResultOf(self.attempt(evidence=KEY)), Admitted)

    def test_who_leaves_early(self) -> None:
        """A client that leaves before the answer is counted for its address, since the work was done."""
        for number in range(ADDRESS_FAILURES):
            self.keeper.slow = Deferred()
            attempt = self.attempt(f"user-{number}")
            attempt.cancel()
            self.failureResultOf(attempt, CancelledError)
        self.keeper.slow = None
        self.assertEqual(refusal_status(self.successResultOf(self.attempt(evidence=KEY))), 429)

    def test_who_does_not_wait(self) -> None:
        """Anyone who doesn't wait for a late answer leaves nothing behind, and is slowed down all the same."""
        self.fail_at_once(10)
        for _ in range(3):
            attempt = self.attempt()
            attempt.cancel()
            self.failureResultOf(attempt, CancelledError)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(self.failure_seconds(), 8)

    def test_held_answers_are_bounded(self) -> None:
        """No more answers are held at once than may be; further ones come at once (TOK-24)."""
        self.throttle = Throttle(self.clock, self.failures, held=2)
        self.authenticate = self.throttle.throttle_failures(self.keeper.authenticate)
        self.fail_at_once(10)
        held = [self.attempt() for _ in range(2)]
        self.fail_at_once(1)
        self.clock.advance(1)
        self.assertEqual([each.called for each in held], [True, False])
        self.assertFalse(self.attempt().called)

    def test_memory_is_bounded(self) -> None:
        """Of roles and addresses so many are kept, those that failed last; who goes on failing is not forgotten (TOK-24)."""
        for number in range(MAX_TRACKED + 50):
            if number % 1000 == 0 and number < 10_000:
                self.fail_at_once(1, "alice", "198.51.100.1")
            self.fail_at_once(1, "x" * 500 + str(number), f"2001:db8:{number:x}::1")
        self.assertEqual(len(self.failures._roles), MAX_TRACKED)
        self.assertEqual(len(self.failures._addresses), MAX_TRACKED)
        self.fail_at_once(1, "alice", "198.51.100.1")
        self.assertEqual(self.failure_seconds(), 1)

    def test_stopping(self) -> None:
        """When the server stops, held answers come at once, and further ones aren't held (TOK-24)."""
        self.throttle.startService()
        self.fail_at_once(10)
        held = self.attempt()
        self.assertNoResult(held)
        self.throttle.stopService()
        self.assertEqual(refusal_status(self.successResultOf(held)), 401)
        self.fail_at_once(3)
        self.assertEqual(self.clock.getDelayedCalls(), [])


class ProcessesTests(SynchronousTestCase):
    """Failures that one process counts for several that serve."""

    def setUp(self) -> None:
        """Make the count, and two processes, each with a throttle."""
        self.clock = Clock()
        self.failures = Failures(self.clock, (), self.refuse)
        self.reports = 0
        self.reporting = [
            RemoteFailures(self.clock, self.report, self.failures.count_address_failure, self.failures.read_throttle)
            for _ in range(2)
        ]
        self.keepers = [Keeper(), Keeper()]
        self.authenticators = [
            Throttle(self.clock, each).throttle_failures(keeper.authenticate)
            for keeper, each in zip(self.keepers, self.reporting, strict=True)
        ]

    async def report(self, client_ip: str, role: str, late: bool) -> float:
        """Report a failure, as over a connection."""
        self.reports += 1
        return await self.failures.count_failure(client_ip, role, late=late)

    def refuse(self, name: str, seconds: float) -> None:
        """Tell all processes of an address."""
        for each in self.reporting:
            each.refuse_address(name, seconds)

    def attempt(self, at: int, evidence: bytes = b"", address: str = "192.0.2.1", login: str = "alice") -> Deferred[Any]:
        """Try to authenticate at a process."""
        request = LoginRequest("acct", login, evidence, address)
        return Deferred.fromCoroutine(self.authenticators[at](request))

    def test_guesses_count_together(self) -> None:
        """Two processes are not twice as many guesses: the eleventh is late, wherever it is made (CFG-32)."""
        for number in range(10):
            self.successResultOf(self.attempt(number % 2))
        late = [self.attempt(0), self.attempt(1)]
        self.clock.advance(1)
        self.assertEqual([each.called for each in late], [True, False])
        self.clock.advance(1)
        self.assertTrue(late[1].called)

    def test_the_right_key_asks_nobody(self) -> None:
        """An attempt with the right key is admitted without a question to the process that counts (CFG-32)."""
        self.assertIsInstance(self.successResultOf(self.attempt(0, KEY)), Admitted)
        self.assertEqual(self.reports, 0)

    def test_addresses_count_together(self) -> None:
        """An address that has failed too often is refused by all, for the rest of its minute (CFG-32)."""
        self.clock.advance(5)
        for number in range(ADDRESS_FAILURES):
            self.successResultOf(self.attempt(number % 2, login=f"role{number}"))
        self.clock.advance(20)
        asked = [keeper.asked for keeper in self.keepers]
        for at in range(2):
            refused = self.successResultOf(self.attempt(at, KEY))
            self.assertEqual((refused.reason, refused.retry_after), (Reason.FAILURES_TOO_MANY, 40))
        self.assertEqual([keeper.asked for keeper in self.keepers], asked)
        self.assertEqual(self.failures.refused_addresses(), [("192.0.2.1", 40.0)])
        self.clock.advance(40)
        self.assertEqual(self.failures.refused_addresses(), [])
        self.assertIsInstance(self.successResultOf(self.attempt(1, KEY)), Admitted)

    def test_clients_that_leave(self) -> None:
        """Clients that leave before their answers are counted for their address, in whichever process (CFG-32)."""
        for keeper in self.keepers:
            keeper.slow = Deferred()
        for number in range(ADDRESS_FAILURES):
            leaving = self.attempt(number % 2)
            leaving.cancel()
            self.failureResultOf(leaving, CancelledError)
            self.keepers[number % 2].slow = Deferred()
        self.assertEqual(self.successResultOf(self.attempt(0)).reason, Reason.FAILURES_TOO_MANY)
