"""Proof by API key."""

from __future__ import annotations

import attrs
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from svc.authentication import Admitted, Attempt, IAuthenticator, ILogin, Refused
from svc.authenticators.apikey import ApiKeyAuthenticator
from svc.credentials import new_api_key
from svc.errors import Reason, StoreUnavailable
from svc.names import RoleName, admin_of
from svc.records import Sealed, StoredSigningKey
from svc.rows import ResourceRow, Rows
from svc.vault import Vault, api_key_name
from tests.memory import Memory, MemoryAccounts, MemoryCredentials

KEY = new_api_key().encode()
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
        made = MemoryAccounts(self.store).create("acct", Sealed(b""), StoredSigningKey("acct", "signing", Sealed(b""), 0))
        self.successResultOf(Deferred.fromCoroutine(made))
        self.store.add(
            Rows(tuple(ResourceRow(str(role), str(admin_of("acct"))) for role in (ALICE, WEB, KEYLESS))),
            api_keys={str(role): self.vault.seal(api_key_name(role), KEY) for role in (ALICE, WEB)},
        )
        self.store.asked = 0
        self.authenticator = ApiKeyAuthenticator(MemoryCredentials(self.store), self.vault)

    def decide(self, login: str | None, evidence: bytes = KEY, account: str = "acct") -> Admitted | Refused:
        """The decision on one attempt, having seen that a login with the key is decided alike."""
        attempt = Attempt(account, login, evidence, "10.0.0.1")
        decision = self.successResultOf(Deferred.fromCoroutine(self.authenticator.authenticate(attempt)))
        told = self.successResultOf(Deferred.fromCoroutine(self.authenticator.api_key(attempt)))
        self.assertEqual(told, evidence if isinstance(decision, Admitted) else decision)
        return decision

    def assertRefused(self, reason: Reason, login: str | None, evidence: bytes = KEY, account: str = "acct") -> Refused:
        """The attempt is refused for that reason."""
        decision = self.decide(login, evidence, account)
        assert isinstance(decision, Refused), (reason, login, decision)
        self.assertEqual((decision.reason, decision.status), (reason, 401), login)
        return decision

    def test_interfaces(self) -> None:
        """It is an authenticator, and tells API keys."""
        self.assertTrue(verifyObject(IAuthenticator, self.authenticator))
        self.assertTrue(verifyObject(ILogin, self.authenticator))

    def test_the_key_admits(self) -> None:
        """A role's own key admits it, as a user with and without prefix and as a host, to be signed for by its account."""
        self.assertEqual(self.decide("alice"), Admitted(ALICE, "signing"))
        self.assertEqual(self.decide("user/alice"), Admitted(ALICE, "signing"))
        self.assertEqual(self.decide("host/apps/web"), Admitted(WEB, "signing"))

    def test_other_evidence_does_not(self) -> None:
        """Anything but the very bytes of the key is refused: nothing is trimmed, and no case is folded."""
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
        """An unknown account, an unknown role and a role without a key are refused, each for its own reason."""
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
        """In an account without signing key nobody is admitted; the API key is told all the same."""
        self.store.accounts["acct"] = []
        attempt = Attempt("acct", "alice", KEY, "10.0.0.1")
        decision = self.successResultOf(Deferred.fromCoroutine(self.authenticator.authenticate(attempt)))
        assert isinstance(decision, Refused)
        self.assertEqual(decision.reason, Reason.CONFIGURATION_INVALID)
        self.assertEqual(self.successResultOf(Deferred.fromCoroutine(self.authenticator.api_key(attempt))), KEY)

    def test_the_work_is_alike(self) -> None:
        """Every attempt, whatever becomes of it, asks the store one question and opens one sealed key."""
        for account, login, evidence in (
            ("acct", "alice", KEY),
            ("acct", "alice", b"wrong"),
            ("acct", "bob", KEY),
            ("acct", "keyless", KEY),
            ("nowhere", "alice", KEY),
        ):
            asked, opened = self.store.asked, self.vault.opened
            attempt = Attempt(account, login, evidence, "10.0.0.1")
            self.successResultOf(Deferred.fromCoroutine(self.authenticator.authenticate(attempt)))
            self.assertEqual((self.store.asked - asked, self.vault.opened - opened), (1, 1), login)

    def test_evidence_stays_out_of_the_reasons(self) -> None:
        """No refusal repeats what was sent as a key, nor the key that would have been right."""
        for login in ("alice", "bob", "keyless"):
            shown = repr(self.decide(login, b"sent-as-key"))
            self.assertNotIn("sent-as-key", shown)
            self.assertNotIn(KEY.decode(), shown)

    def test_a_failing_store_is_no_refusal(self) -> None:
        """While the store can't be asked the attempt is neither admitted nor refused."""
        self.store.down = True
        attempt = Attempt("acct", "alice", KEY, "10.0.0.1")
        self.failureResultOf(Deferred.fromCoroutine(self.authenticator.authenticate(attempt)), StoreUnavailable)
