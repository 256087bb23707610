"""Account signing keys, and the tokens issued and verified with them."""

from __future__ import annotations

import base64
import gc
import json
import weakref
from collections.abc import Coroutine
from typing import Any, TypeVar

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.crypto import tokens
from svc.crypto.tokens import INVALID, MISSING, AccessTokens, SigningKeys, new_signing_key
from svc.crypto.vault import Vault, signing_key_name
from svc.model.authentication import Admitted
from svc.model.errors import AuthenticationRefused, BearerRefused, RecordNotFound, StoreUnavailable, WrongDataKey
from svc.model.names import RoleName
from svc.model.query_results import Caller, Sealed, StoredSigningKey
from tests.memory import Memory, MemoryAccounts

T = TypeVar("T")

NOW = 1_700_000_000.75
ALICE = RoleName("acct", "user", "alice")
WEB = RoleName("acct", "host", "web")


@attrs.define
class Store(Memory):
    """The store in memory; counts what it is asked."""

    asked: int = 0

    def ask(self) -> None:
        """Count, and answer."""
        self.asked += 1
        super().ask()


def header(token: bytes) -> bytes:
    """The ``Authorization`` header that carries the token."""
    return b'Token token="%s"' % base64.b64encode(token)


class KeyringCase(SynchronousTestCase):
    """Two accounts with a key each, and one server."""

    def setUp(self) -> None:
        """Make them."""
        self.clock = Clock()
        self.clock.advance(NOW)
        self.vault = Vault(b"k" * 32)
        self.store = Store()
        self.accounts = MemoryAccounts(self.store)
        for account in ("acct", "other"):
            self.now(self.accounts.create_account(account, Sealed(b""), new_signing_key(self.vault, account, NOW)))
        self.first, self.others = (self.newest(account).key_id for account in ("acct", "other"))
        self.store.asked = 0
        self.keys, self.tokens = self.server()

    def newest(self, account: str = "acct") -> StoredSigningKey:
        """The key with which the account signs."""
        return self.store.accounts[account][-1]

    def server(self) -> tuple[SigningKeys, AccessTokens]:
        """Another server on the same store."""
        keys = SigningKeys(self.accounts, self.vault, self.clock)
        return keys, AccessTokens(keys, self.clock, user_ttl=480, host_ttl=600, cache_limit=3)

    def now(self, work: Coroutine[Deferred[Any], Any, T]) -> T:
        """The result of work that must be done at once."""
        return self.successResultOf(Deferred.fromCoroutine(work))

    def refusal(self, work: Coroutine[Deferred[Any], Any, object], kind: type[Exception]) -> Any:
        """The refusal of work that must be refused at once."""
        return self.failureResultOf(Deferred.fromCoroutine(work), kind).value

    def issue(self, role: RoleName = ALICE) -> bytes:
        """A header with a new token, signed by the newest key of the role's account."""
        return header(self.now(self.tokens.issue_token(Admitted(role, self.newest(role.account).key_id))))

    def assertInvalid(self, authorization: bytes) -> None:
        """The header is refused as invalid."""
        self.assertEqual(self.refusal(self.tokens.find_caller(authorization), BearerRefused).message, INVALID)


class AccountKeysTests(KeyringCase):
    """Loading, remembering, retiring."""

    def test_a_new_key_is_sealed(self) -> None:
        """A new key is kept sealed under its account and id, and doesn't open in another account or under another id
        (TOK-32).
        """
        stored = new_signing_key(self.vault, "acct", NOW)
        self.assertEqual((stored.account, stored.created_at, stored.retires_at), ("acct", NOW, None))
        for moved in (attrs.evolve(stored, account="other"), attrs.evolve(stored, key_id=self.first)):
            self.store.accounts = {moved.account: [moved]}
            self.refusal(SigningKeys(self.accounts, self.vault, self.clock).load_signing_key(moved.key_id), WrongDataKey)

    def test_keys_are_loaded_once(self) -> None:
        """A key is read from the store when it is first needed, to sign or to verify, and remembered."""
        signer = self.now(self.keys.load_signing_key(self.first))
        self.assertEqual(signer.verification.key_id, self.first)
        self.assertIs(self.now(self.keys.load_signing_key(self.first)), signer)
        self.assertIs(self.now(self.keys.load_verification_key(self.first)), signer.verification)
        self.assertEqual(self.store.asked, 1)

    def test_a_key_added_by_another_server_is_found(self) -> None:
        """A key that another server added verifies here without a refresh (CLU-23)."""
        self.now(self.keys.refresh())
        added = new_signing_key(self.vault, "acct", NOW)
        self.store.accounts["acct"].append(added)
        verifier = self.now(self.keys.load_verification_key(added.key_id))
        assert verifier is not None
        self.assertEqual(verifier.key_id, added.key_id)

    def test_unknown_ids_are_not_remembered(self) -> None:
        """An unknown id verifies nothing, and is looked for again the next time."""
        missing = new_signing_key(self.vault, "acct", NOW)
        self.assertIsNone(self.now(self.keys.load_verification_key(missing.key_id)))
        self.store.accounts["acct"].append(missing)
        self.assertIsNotNone(self.now(self.keys.load_verification_key(missing.key_id)))

    def test_a_signing_key_that_is_gone(self) -> None:
        """To sign with a key that went with its account is refused as a login to an unknown account."""
        self.store.accounts = {}
        self.refusal(self.keys.load_signing_key(self.first), AuthenticationRefused)

    def test_a_failing_store_is_no_missing_key(self) -> None:
        """While the store can't be asked, an unknown key is neither good nor bad; remembered ones still serve (CLU-24)."""
        self.now(self.keys.load_verification_key(self.first))
        self.store.down = True
        self.assertIsNotNone(self.now(self.keys.load_verification_key(self.first)))
        self.refusal(self.keys.load_verification_key(self.others), StoreUnavailable)
        self.refusal(self.keys.refresh(), StoreUnavailable)
        self.assertIsNotNone(self.now(self.keys.load_verification_key(self.first)))

    def test_a_retired_key_verifies_nothing(self) -> None:
        """From the moment of its retirement a key verifies nothing, whether it was remembered or not (CLU-22, TOK-32)."""
        self.now(self.keys.load_verification_key(self.first))
        self.now(self.keys.rotate_key("acct", 600))
        self.clock.advance(599)
        self.assertIsNotNone(self.now(self.keys.load_verification_key(self.first)))
        self.clock.advance(1)
        self.assertIsNone(self.now(self.keys.load_verification_key(self.first)))
        self.assertIsNone(self.now(self.server()[0].load_verification_key(self.first)))

    def test_rotation_adds_a_key(self) -> None:
        """A rotation gives the account another key to sign with, and leaves other accounts alone (CLU-22, TOK-32)."""
        self.now(self.keys.rotate_key("acct", 600))
        old, new = self.store.accounts["acct"]
        self.assertEqual((old.key_id, old.retires_at), (self.first, NOW + 600))
        self.assertEqual((new.created_at, new.retires_at), (NOW, None))
        self.assertEqual([key.retires_at for key in self.store.accounts["other"]], [None])

    def test_rotation_needs_an_account(self) -> None:
        """The keys of an account that doesn't exist can't be rotated."""
        self.refusal(self.keys.rotate_key("nobody", 600), RecordNotFound)

    def test_public_keys(self) -> None:
        """An account's public keys are those that verify now, the newest last; another account's aren't among them
        (TOK-33).
        """
        self.now(self.keys.rotate_key("acct", 600))
        newest = self.newest().key_id
        self.assertEqual([key["kid"] for key in self.now(self.keys.public_keys("acct"))], [self.first, newest])
        self.clock.advance(600)
        self.assertEqual([key["kid"] for key in self.now(self.keys.public_keys("acct"))], [newest])
        self.assertEqual(self.now(self.keys.public_keys("nobody")), [])
        self.assertEqual(self.now(self.keys.public_keys("acct"))[0].get("d"), None)

    def test_a_key_that_was_overwritten(self) -> None:
        """A stored key that doesn't open any more isn't held; the remembered one serves on, and rotation ends it."""
        token = self.issue()
        sealed = new_signing_key(Vault(b"o" * 32), "acct", NOW).sealed
        self.store.accounts["acct"] = [attrs.evolve(self.newest(), sealed=sealed)]
        self.assertRaises(WrongDataKey, self.keys.cache_key, self.newest())
        self.now(self.keys.refresh())
        self.assertEqual(self.now(self.tokens.find_caller(token)).role, ALICE)
        self.refusal(self.server()[1].find_caller(token), WrongDataKey)
        self.now(self.keys.rotate_key("acct", 600))
        self.keys.cache_key(self.newest())
        self.assertEqual(self.now(self.tokens.find_caller(self.issue())).role, ALICE)

    def test_a_key_that_was_sealed_anew(self) -> None:
        """A key that the store holds sealed again is opened once more, and goes on as before."""
        token = self.issue()
        name = signing_key_name("acct", self.first)
        again = self.vault.seal(name, self.vault.open(name, self.newest().sealed))
        self.store.accounts["acct"] = [attrs.evolve(self.newest(), sealed=again)]
        self.keys.cache_key(self.newest())
        signer = self.now(self.keys.load_signing_key(self.first))
        self.keys.cache_key(self.newest())
        self.assertIs(self.now(self.keys.load_signing_key(self.first)), signer)
        self.assertEqual(self.now(self.tokens.find_caller(token)).role, ALICE)

    def test_forgotten(self) -> None:
        """The keys of an account that are forgotten are asked for when they are needed; those of others are remembered."""
        for key_id in (self.first, self.others):
            self.now(self.keys.load_signing_key(key_id))
        asked = self.store.asked
        self.keys.drop_account("acct")
        self.assertTrue(self.keys.can_verify(self.others, NOW))
        self.assertFalse(self.keys.can_verify(self.first, NOW))
        self.assertIsNotNone(self.now(self.keys.load_verification_key(self.first)))
        self.assertEqual(self.store.asked - asked, 1)

    def test_refresh_is_bounded(self) -> None:
        """Of many remembered keys a refresh asks for some, in one question, and the next for the others (CLU-23)."""
        self.patch(tokens, "REFRESH_LIMIT", 2)
        self.now(self.accounts.create_account("third", Sealed(b""), new_signing_key(self.vault, "third", NOW)))
        ids = [self.newest(account).key_id for account in ("acct", "other", "third")]
        for key_id in ids:
            self.now(self.keys.load_signing_key(key_id))
        for account in ("acct", "other", "third"):
            self.now(self.server()[0].rotate_key(account, 10))
        self.clock.advance(10)
        asked = self.store.asked
        self.now(self.keys.refresh())
        self.assertEqual([self.keys.can_verify(key_id, NOW + 10) for key_id in ids], [False, False, True])
        self.now(self.keys.refresh())
        self.assertEqual([self.keys.can_verify(key_id, NOW + 10) for key_id in ids], [False, False, False])
        self.assertEqual(self.store.asked - asked, 2)

    def test_refresh_forgets(self) -> None:
        """A key that the store no longer has verifies nothing after a refresh (CLU-23)."""
        self.now(self.keys.load_verification_key(self.first))
        self.store.accounts = {}
        self.now(self.keys.refresh())
        self.assertIsNone(self.now(self.keys.load_verification_key(self.first)))
        self.assertFalse(self.keys.can_verify(self.first, NOW))


class AccessTokensTests(KeyringCase):
    """Issued, sent back, refused."""

    def test_a_token_proves_its_role(self) -> None:
        """The token issued for a role proves it, here and on another server, with the time of issue in whole seconds."""
        for role in (ALICE, WEB, RoleName("other", "user", "alice")):
            authorization = self.issue(role)
            caller = self.now(self.tokens.find_caller(authorization))
            self.assertEqual(caller, Caller(role, int(NOW)))
            self.assertEqual(caller.expires_at, int(NOW) + (480 if role.kind == "user" else 600))
            self.assertEqual(self.now(self.server()[1].find_caller(authorization)), Caller(role, int(NOW)))

    def test_users_and_hosts_have_their_own_lifetimes(self) -> None:
        """A user's token lives as long as users' do, a host's as long as hosts' (TOK-29)."""
        for role, lifetime in ((ALICE, 480), (WEB, 600)):
            token = json.loads(self.now(self.tokens.issue_token(Admitted(role, self.first))))
            read = json.loads(base64.b64decode(token["payload"]))
            self.assertEqual(read["exp"] - read["iat"], lifetime)

    def test_no_header(self) -> None:
        """Without a header there is no caller."""
        self.assertEqual(self.refusal(self.tokens.find_caller(None), BearerRefused).message, MISSING)

    def test_a_token_is_verified_once(self) -> None:
        """A token that was verified is known the next time, and the store isn't asked, nor need it be in reach (CLU-26)."""
        authorization = self.issue()
        caller = self.now(self.tokens.find_caller(authorization))
        asked = self.store.asked
        self.store.down = True
        for _ in range(5):
            self.assertIs(self.now(self.tokens.find_caller(authorization)), caller)
        self.assertEqual(self.store.asked, asked)

    def test_a_remembered_token_expires(self) -> None:
        """A token dies at its exp though it was verified before (CLU-26, TOK-29)."""
        authorization = self.issue()
        self.now(self.tokens.find_caller(authorization))
        self.clock.advance(479)
        self.now(self.tokens.find_caller(authorization))
        self.clock.advance(1)
        self.assertInvalid(authorization)
        self.assertInvalid(authorization)

    def test_a_remembered_token_dies_with_its_key(self) -> None:
        """A token dies when its key retires, or goes with its account, though it was verified before (CLU-26)."""
        authorization = self.issue()
        self.now(self.tokens.find_caller(authorization))
        self.now(self.keys.rotate_key("acct", 10))
        self.clock.advance(9)
        self.now(self.tokens.find_caller(authorization))
        self.clock.advance(1)
        self.assertInvalid(authorization)

        foreign = self.issue(RoleName("other", "user", "alice"))
        self.now(self.tokens.find_caller(foreign))
        self.store.accounts = {}
        self.now(self.keys.refresh())
        self.assertInvalid(foreign)

    def test_retirement_reaches_a_running_server(self) -> None:
        """A key that was rotated by another process is refused here from its retirement on, once there was a refresh
        (CLU-23, TOK-32).
        """
        authorization = self.issue()
        self.now(self.tokens.find_caller(authorization))
        self.now(self.server()[0].rotate_key("acct", 10))
        self.now(self.keys.refresh())
        self.clock.advance(10)
        self.assertInvalid(authorization)

    def test_a_key_that_comes_back_verifies_again(self) -> None:
        """A remembered token whose key was lost from memory is verified again, and is good when the store has the key."""
        authorization = self.issue()
        self.now(self.tokens.find_caller(authorization))
        kept, self.store.accounts = self.store.accounts, {}
        self.now(self.keys.refresh())
        self.store.accounts = kept
        self.assertEqual(self.now(self.tokens.find_caller(authorization)).role, ALICE)

    def test_memory_is_bounded(self) -> None:
        """No more tokens are remembered than may be, those used last; the others are verified again and are as good."""
        headers = [self.issue(RoleName("acct", "user", f"user-{number}")) for number in range(5)]
        callers = [self.now(self.tokens.find_caller(authorization)) for authorization in headers[:3]]
        self.assertIs(self.now(self.tokens.find_caller(headers[0])), callers[0])
        self.now(self.tokens.find_caller(headers[3]))
        self.assertIs(self.now(self.tokens.find_caller(headers[0])), callers[0])
        self.assertIs(self.now(self.tokens.find_caller(headers[2])), callers[2])
        again = self.now(self.tokens.find_caller(headers[1]))
        self.assertIsNot(again, callers[1])
        self.assertEqual(again, callers[1])

    def test_the_dead_are_forgotten(self) -> None:
        """A token that has expired doesn't stay in memory until that is full."""
        caller = weakref.ref(self.now(self.tokens.find_caller(self.issue())))
        self.now(self.tokens.find_caller(self.issue(WEB)))
        self.assertIsNotNone(caller())
        self.clock.advance(480)
        self.now(self.tokens.find_caller(self.issue(WEB)))
        gc.collect()
        self.assertIsNone(caller())

    def test_refused_tokens_are_not_remembered(self) -> None:
        """A token that was refused for want of its key is good as soon as the store has the key."""
        authorization = self.issue()
        server, kept = self.server()[1], self.store.accounts
        self.store.accounts = {}
        self.refusal(server.find_caller(authorization), BearerRefused)
        self.store.accounts = kept
        self.assertEqual(self.now(server.find_caller(authorization)).role, ALICE)

    def test_one_account_does_not_speak_for_another(self) -> None:
        """A key signs for roles of its own account alone, and the caller's account is the key's (CLU-25)."""
        self.refusal(self.tokens.issue_token(Admitted(RoleName("other", "user", "alice"), self.first)), ValueError)
        self.assertEqual(
            self.now(self.tokens.find_caller(self.issue(RoleName("other", "user", "alice")))).role.account, "other"
        )
