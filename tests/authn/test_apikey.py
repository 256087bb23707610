"""Proof by API key."""

from __future__ import annotations

import attrs
from argon2 import PasswordHasher
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.authn.apikey import ApiKeyAuthenticator
from svc.crypto.passwords import MAX_REFUSAL_DELAY, HashCost
from svc.crypto.vault import Vault, api_key_name, password_name
from svc.model.authentication import Admitted, LoginRequest, Refused
from svc.model.credentials import new_api_key
from svc.model.errors import PasswordsBusy, StoreUnavailable
from svc.model.names import RoleName, admin_of
from svc.model.policy_loads import ResourceRow, Rows
from svc.model.query_results import Sealed, StoredSigningKey
from svc.model.reasons import Reason
from tests.memory import Memory, MemoryAccounts, MemoryCredentials
from tests.statuses import refusal_status
from tests.threads import CHEAP, Threads, passwords_in

KEY = new_api_key().encode()
PASSWORD = b"My-Password-1"
ALICE = RoleName("acct", "user", "alice")
WEB = RoleName("acct", "host", "apps/web")
KEYLESS = RoleName("acct", "user", "keyless")


@attrs.define
class Store(Memory):
    """The store in memory; counts what it is asked."""

    asked: int = 0

    def ask(self) -> None:
        """Count, and answer."""
        self.asked += 1
        super().ask()


class CountingVault(Vault):
    """A vault that counts what it opens."""

    def __init__(self, data_key: bytes) -> None:
        super().__init__(data_key)
        self.opened = 0

    def open(self, name: str, sealed: Sealed) -> bytes:
        """Count, and open."""
        self.opened += 1
        return super().open(name, sealed)


class ApiKeyTests(SynchronousTestCase):
    """Logins of users and hosts."""

    def setUp(self) -> None:
        """Make two roles that have a key, and one that has none."""
        self.vault = CountingVault(b"k" * 32)
        self.store = Store()
        made = MemoryAccounts(self.store).create_account(
            "acct", Sealed(b""), StoredSigningKey("acct", "signing", Sealed(b""), 0)
        )
        self.successResultOf(Deferred.fromCoroutine(made))
        self.store.add(
            Rows(tuple(ResourceRow(str(role), str(admin_of("acct"))) for role in (ALICE, WEB, KEYLESS))),
            api_keys={str(role): self.vault.seal(api_key_name(role), KEY) for role in (ALICE, WEB)},
        )
        self.store.asked = 0
        self.clock = Clock()
        self.threads = Threads()
        self.authenticator = ApiKeyAuthenticator(
            MemoryCredentials(self.store), self.vault, passwords_in(self.threads), self.clock
        )

    def decide(self, login: str | None, evidence: bytes = KEY, account: str = "acct") -> Admitted | Refused:
        """The decision on one attempt, having seen that a login with the key is decided alike."""
        request = LoginRequest(account, login, evidence, "10.0.0.1")
        decision = self.successResultOf(Deferred.fromCoroutine(self.authenticator.authenticate(request)))
        told = self.successResultOf(Deferred.fromCoroutine(self.authenticator.api_key(request)))
        self.assertEqual(told, evidence if isinstance(decision, Admitted) else decision)
        return decision

    def assertRefused(self, reason: Reason, login: str | None, evidence: bytes = KEY, account: str = "acct") -> Refused:
        """The attempt is refused for that reason."""
        decision = self.decide(login, evidence, account)
        assert isinstance(decision, Refused), (reason, login, decision)
        self.assertEqual((decision.reason, refusal_status(decision)), (reason, 401), login)
        return decision

    def test_the_key_admits(self) -> None:
        """A role's own key admits it, as a user with and without prefix and as a host, to be signed for by its account
        (TOK-1).
        """
        self.assertEqual(self.decide("alice"), Admitted(ALICE, "signing"))
        self.assertEqual(self.decide("user/alice"), Admitted(ALICE, "signing"))
        self.assertEqual(self.decide("host/apps/web"), Admitted(WEB, "signing"))

    def test_other_evidence_does_not(self) -> None:
        """Anything but the very bytes of the key is refused: nothing is trimmed, and no case is folded (TOK-4)."""
        for evidence in (
            b"",
            KEY + b"\n",
            b" " + KEY,
            KEY[:-1],
            KEY.upper(),
            KEY + KEY,
            b"\x00" + KEY,
            b"\xff",
            b"x" * 10_000,
        ):
            self.assertRefused(Reason.CREDENTIALS_WRONG, "alice", evidence)

    def test_strangers_are_refused(self) -> None:
        """An unknown account, an unknown role and a role without a key are refused, each for its own reason (TOK-6)."""
        self.assertRefused(Reason.ACCOUNT_UNKNOWN, "alice", account="nowhere")
        self.assertRefused(Reason.ROLE_UNKNOWN, "bob")
        self.assertRefused(Reason.ROLE_UNKNOWN, "apps/web")
        refused = self.assertRefused(Reason.CREDENTIALS_MISSING, "keyless")
        self.assertEqual(refused.role, "acct:user:keyless")

    def test_a_login_that_names_nobody_is_refused(self) -> None:
        """An absent, empty or malformed login, or account, is refused before the store is asked."""
        for login in (None, "", "host/", "a\x00b", "x" * 2000, "\ud800"):
            self.assertRefused(Reason.REQUEST_MALFORMED, login)
        self.assertRefused(Reason.REQUEST_MALFORMED, "alice", account="a:b")
        self.assertEqual(self.store.asked, 0)

    def test_a_key_that_was_moved_is_refused(self) -> None:
        """A sealed key that was copied from another role proves neither, and the refusal says that it can't be read."""
        self.store.credentials[str(ALICE)] = self.store.credentials[str(WEB)]
        self.assertRefused(Reason.CREDENTIALS_UNREADABLE, "alice")

    def test_no_signing_key(self) -> None:
        """In an account without signing key the right key is put off, and not called bad; it is told all the same
        (TOK-34).
        """
        self.store.accounts["acct"] = []
        request = LoginRequest("acct", "alice", KEY, "10.0.0.1")
        decision = self.successResultOf(Deferred.fromCoroutine(self.authenticator.authenticate(request)))
        assert isinstance(decision, Refused)
        self.assertEqual((decision.reason, refusal_status(decision)), (Reason.SIGNING_KEY_UNUSABLE, 503))
        self.assertIsNotNone(decision.retry_after)
        self.assertRefused(Reason.CREDENTIALS_WRONG, "alice", b"wrong")
        self.assertEqual(self.successResultOf(Deferred.fromCoroutine(self.authenticator.api_key(request))), KEY)

    def test_the_work_is_alike(self) -> None:
        """Every attempt, whatever becomes of it, asks the store one question and opens one sealed key (FAIL-18)."""
        for account, login, evidence in (
            ("acct", "alice", KEY),
            ("acct", "alice", b"wrong"),
            ("acct", "bob", KEY),
            ("acct", "keyless", KEY),
            ("nowhere", "alice", KEY),
        ):
            asked, opened = self.store.asked, self.vault.opened
            request = LoginRequest(account, login, evidence, "10.0.0.1")
            self.successResultOf(Deferred.fromCoroutine(self.authenticator.authenticate(request)))
            self.assertEqual((self.store.asked - asked, self.vault.opened - opened), (1, 1), login)

    def test_evidence_stays_out_of_the_reasons(self) -> None:
        """No refusal repeats what was sent as a key, nor the key that would have been right (FAIL-11)."""
        for login in ("alice", "bob", "keyless"):
            shown = repr(self.decide(login, b"sent-as-key"))
            self.assertNotIn("sent-as-key", shown)
            self.assertNotIn(KEY.decode(), shown)

    def test_a_failing_store_is_no_refusal(self) -> None:
        """While the store can't be asked the attempt is neither admitted nor refused (FAIL-16)."""
        self.store.down = True
        request = LoginRequest("acct", "alice", KEY, "10.0.0.1")
        self.failureResultOf(Deferred.fromCoroutine(self.authenticator.authenticate(request)), StoreUnavailable)

    def test_expired(self) -> None:
        """At its end, and after it, a key proves nothing, and a refusal tells that of the right key alone (TOK-13)."""
        self.clock.advance(1000)
        for expires_at, admitted in ((1000.5, True), (1000.0, False), (1.0, False)):
            self.store.key_expirations[str(ALICE)] = expires_at
            decision = self.decide("alice")
            self.assertEqual(isinstance(decision, Admitted), admitted)
        self.assertRefused(Reason.CREDENTIALS_EXPIRED, "alice")
        self.assertRefused(Reason.CREDENTIALS_WRONG, "alice", b"wrong")

    def test_off(self) -> None:
        """A key that policy has switched off proves nothing, with the work of any refusal; nor does its absence matter
        (TOK-52).
        """
        for login in ("alice", "keyless"):
            self.store.annotations[f"acct:user:{login}", "authn/api-key"] = ("false", None)
        for login in ("alice", "keyless"):
            for evidence in (KEY, b"wrong", PASSWORD):
                before = self.store.asked, self.vault.opened
                self.assertRefused(Reason.API_KEY_OFF, login, evidence)
                self.assertEqual((self.store.asked - before[0], self.vault.opened - before[1]), (2, 2))
        self.assertRefused(Reason.ROLE_UNKNOWN, "bob")

    def test_origins(self) -> None:
        """A restricted role authenticates from where it may; a wrong key is named as wrong. Logging in isn't restricted
        (TOK-6).
        """
        self.store.restrictions |= {(str(ALICE), "10.0.0.0/30"): None, (str(ALICE), "2001:db8::/32"): None}
        for address, evidence, reason in (
            ("10.0.0.3", KEY, None),
            ("2001:db8::1", KEY, None),
            ("::ffff:10.0.0.1", KEY, None),
            ("10.0.0.4", KEY, Reason.ORIGIN_REFUSED),
            ("", KEY, Reason.ORIGIN_REFUSED),
            ("10.0.0.4", b"wrong", Reason.CREDENTIALS_WRONG),
        ):
            request = LoginRequest("acct", "alice", evidence, address)
            decision = self.successResultOf(Deferred.fromCoroutine(self.authenticator.authenticate(request)))
            self.assertEqual(decision.reason if isinstance(decision, Refused) else None, reason, address)
            told = self.successResultOf(Deferred.fromCoroutine(self.authenticator.api_key(request)))
            self.assertEqual(told == KEY, evidence == KEY)

    # -- passwords ----------------------------------------------------------------------------------------------------

    def log_in(self, login: str, evidence: bytes = PASSWORD, account: str = "acct") -> bytes | Refused:
        """Log in."""
        request = LoginRequest(account, login, evidence, "10.0.0.1")
        told: bytes | Refused = self.successResultOf(Deferred.fromCoroutine(self.authenticator.api_key(request)))
        return told

    def give_password(self, cost: HashCost = CHEAP) -> Sealed:
        """Let Alice have the password, whose hash has this cost; return what is stored."""
        hashed = PasswordHasher(cost.passes, cost.memory, cost.lanes).hash(PASSWORD).encode()
        stored = self.store.passwords[str(ALICE)] = self.vault.seal(password_name(ALICE), hashed)
        return stored

    def test_passwords(self) -> None:
        """A user's password returns the user's API key; it doesn't authenticate, and nobody else's proves the user."""
        self.give_password()
        self.assertEqual(self.log_in("alice"), KEY)
        for login, evidence in (("alice", PASSWORD.lower()), ("alice", PASSWORD + b"!"), ("keyless", PASSWORD)):
            self.assertIsInstance(self.log_in(login, evidence), Refused)
        request = LoginRequest("acct", "alice", PASSWORD, "10.0.0.1")
        refused = self.successResultOf(Deferred.fromCoroutine(self.authenticator.authenticate(request)))
        assert isinstance(refused, Refused)
        self.assertEqual(refused.reason, Reason.CREDENTIALS_WRONG)

    def test_password_of_an_expired_key(self) -> None:
        """A password is good whatever the end of the key."""
        self.give_password()
        self.store.key_expirations[str(ALICE)] = -1.0
        self.assertEqual(self.log_in("alice"), KEY)

    def test_the_work_of_logins_is_alike(self) -> None:
        """What could be a user's password costs one comparison of a hash, for any role; what can't costs none (FAIL-18,
        TOK-17).
        """
        self.give_password()
        for account, login, evidence, compared in (
            ("acct", "alice", PASSWORD, 1),
            ("acct", "alice", PASSWORD + b"!", 1),
            ("acct", "bob", PASSWORD, 1),
            ("acct", "keyless", PASSWORD, 1),
            ("nowhere", "alice", PASSWORD, 1),
            ("acct", "alice", KEY, 0),
            ("acct", "alice", KEY[:-1], 0),
            ("acct", "bob", b"wrong", 0),
            ("acct", "host/apps/web", PASSWORD, 0),
            ("acct", "host/none", PASSWORD, 0),
        ):
            asked, done = self.store.asked, self.threads.done
            self.log_in(login, evidence, account)
            self.assertEqual((self.store.asked - asked, self.threads.done - done), (1, compared), (login, evidence))

    def test_a_password_that_was_moved(self) -> None:
        """The hash of another role's password doesn't open, and the refusal says that it can't be read."""
        self.store.passwords[str(KEYLESS)] = self.give_password()
        refused = self.log_in("keyless")
        assert isinstance(refused, Refused)
        self.assertEqual(refused.reason, Reason.CREDENTIALS_UNREADABLE)

    def test_hashes_of_another_cost(self) -> None:
        """A password whose hash has another cost than new ones is hashed again when it is proven, not before (TOK-16)."""
        stored = self.give_password(HashCost(16, 1, 1))
        self.log_in("alice", b"Another-Password-2")
        self.assertEqual(self.store.passwords[str(ALICE)], stored)
        self.assertEqual(self.log_in("alice"), KEY)
        renewed = self.store.passwords[str(ALICE)]
        self.assertIn(b"m=8,t=1,p=1$", self.vault.open(password_name(ALICE), renewed))
        self.assertEqual(self.log_in("alice"), KEY)
        self.assertEqual(self.store.passwords[str(ALICE)], renewed)

    def test_a_password_that_is_changed_meanwhile(self) -> None:
        """A password that was changed while the old one was hashed again stays changed."""
        self.give_password(HashCost(16, 1, 1))
        self.threads.busy = True
        request = LoginRequest("acct", "alice", PASSWORD, "10.0.0.1")
        login = Deferred.fromCoroutine(self.authenticator.api_key(request))
        self.threads.run(1)
        changed = self.store.passwords[str(ALICE)] = Sealed(b"changed")
        self.threads.run()
        self.assertEqual(self.successResultOf(login), KEY)
        self.assertEqual(self.store.passwords[str(ALICE)], changed)

    def test_on_a_standby(self) -> None:
        """Where nothing can be written a password logs in, and its hash stays as it is."""
        stored = self.give_password(HashCost(16, 1, 1))
        self.store.standby = True
        self.assertEqual(self.log_in("alice"), KEY)
        self.assertEqual(self.store.passwords[str(ALICE)], stored)

    def test_too_many_passwords(self) -> None:
        """When too many passwords wait it is neither proven nor refused, and nothing is asked; keys are compared as ever."""
        self.give_password()
        self.threads.busy = True
        request = LoginRequest("acct", "alice", PASSWORD, "10.0.0.1")
        for _ in range(5):
            self.assertNoResult(Deferred.fromCoroutine(self.authenticator.api_key(request)))
        asked = self.store.asked
        another = Deferred.fromCoroutine(self.authenticator.api_key(request))
        self.threads.advance(MAX_REFUSAL_DELAY)
        self.failureResultOf(another, PasswordsBusy)
        self.assertEqual(self.store.asked, asked)
        self.assertEqual(self.log_in("alice", KEY), KEY)
