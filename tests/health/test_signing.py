"""The check of ``authn`` finds what is wrong with keys, and does no more for many accounts than for a few."""

from __future__ import annotations

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from svc.crypto.tokens import AccessTokens, SigningKeys, new_signing_key
from svc.crypto.vault import Vault
from svc.health.probes import ProbeFailed
from svc.health.signing import ACCOUNTS_PER_ROUND, KEYS_PER_ROUND, KEYS_PER_TICK, AuthnProbe
from svc.model.authentication import Admitted
from svc.model.errors import StoreUnavailable
from svc.model.names import admin_of
from svc.model.probes import IProbe
from svc.model.query_results import Caller, StoredSigningKey
from tests.crypto.test_keyring import Store
from tests.memory import Memory, MemoryAccounts


@attrs.define
class Watched:
    """Tokens, whose number is counted; ``mistaken`` makes them prove another role."""

    inner: AccessTokens
    issued: list[str] = attrs.field(factory=list)
    mistaken: bool = False

    async def issue_token(self, admitted: Admitted) -> bytes:
        """Issue one."""
        self.issued.append(admitted.role.account)
        return await self.inner.issue_token(admitted)

    async def find_caller(self, authorization: bytes | None) -> Caller:
        """Return the role that it proves."""
        caller = await self.inner.find_caller(authorization)
        return attrs.evolve(caller, role=admin_of("someone-else")) if self.mistaken else caller


class Counted(MemoryAccounts):
    """Accounts; the rows that were read are counted."""

    def __init__(self, memory: Memory) -> None:
        super().__init__(memory)
        self.rows: list[int] = []

    async def list_newest_signing_keys(self, after: str, limit: int) -> list[tuple[str, StoredSigningKey | None]]:
        """Count them."""
        found = await super().list_newest_signing_keys(after, limit)
        self.rows.append(len(found))
        return found


class AuthnProbeTests(SynchronousTestCase):
    """Real keys of accounts in memory."""

    def setUp(self) -> None:
        """There are two accounts."""
        self.clock, self.vault, self.memory = Clock(), Vault(b"k" * 32), Store()
        self.accounts = Counted(self.memory)
        self.add("one", "two")
        self.keys = SigningKeys(self.accounts, self.vault, self.clock)
        self.tokens = Watched(AccessTokens(self.keys, self.clock, 480, 480))
        self.probe = AuthnProbe(self.keys, self.tokens, self.clock)

    def add(self, *names: str) -> None:
        """Make accounts."""
        for name in names:
            self.memory.accounts[name] = [new_signing_key(self.vault, name, 0.0)]

    def check(self) -> list[str]:
        """Check once; the accounts whose keys were tried."""
        self.tokens.issued.clear()
        checked = Deferred.fromCoroutine(self.probe.check())
        self.clock.pump([0.0] * (KEYS_PER_ROUND // KEYS_PER_TICK + 1))
        self.successResultOf(checked)
        return list(self.tokens.issued)

    def fault(self) -> str:
        """Check once, which fails; why."""
        checked = Deferred.fromCoroutine(self.probe.check())
        self.clock.pump([0.0] * (KEYS_PER_ROUND // KEYS_PER_TICK + 1))
        return str(self.failureResultOf(checked, ProbeFailed).value)

    def overwrite(self, account: str) -> None:
        """Have the store hold a key that is sealed under another data key."""
        [key] = self.memory.accounts[account]
        self.memory.accounts[account] = [attrs.evolve(key, sealed=new_signing_key(Vault(b"o" * 32), account, 0.0).sealed)]

    def test_every_key(self) -> None:
        """A token is issued with each key in use, and proves whom it was issued to (HEALTH-15)."""
        verifyObject(IProbe, self.probe)
        self.assertEqual(self.probe.service, "authn")
        self.assertEqual(sorted(self.check()), ["one", "two"])
        self.memory.accounts.clear()
        self.assertEqual(self.check(), [])

    def test_wrong_caller(self) -> None:
        """It fails when a token proves a role that it wasn't issued to."""
        self.tokens.mistaken = True
        self.assertIn("one: a token for one:user:admin proves someone-else:user:admin", self.fault())

    def test_a_key_is_deleted(self) -> None:
        """An account without a key fails it, though the former one is remembered, until it has one again (HEALTH-15)."""
        self.check()
        kept, self.memory.accounts["one"] = self.memory.accounts["one"], []
        self.assertIn("one: it has no key to sign with: run svc account rotate-signing-key one", self.fault())
        self.memory.accounts["one"] = kept
        self.check()
        self.memory.accounts["one"] = [attrs.evolve(kept[0], retires_at=9e9)]
        self.assertIn("it has no key", self.fault())
        del self.memory.accounts["one"]
        self.assertEqual(self.check(), ["two"])

    def test_a_key_is_overwritten(self) -> None:
        """A key that doesn't open as the store has it fails the check, though the remembered one serves on (HEALTH-15)."""
        self.check()
        self.overwrite("two")
        self.assertIn("two: ", self.fault())
        self.assertIn("two: ", self.fault())
        self.add("two")
        self.check()

    def test_the_store_is_away(self) -> None:
        """While the store can't be asked the check fails, and no account is blamed for it afterwards."""
        self.memory.down = True
        self.failureResultOf(Deferred.fromCoroutine(self.probe.check()), StoreUnavailable)
        self.memory.down = False
        self.check()

    def test_a_round_does_not_grow(self) -> None:
        """With 2,000 accounts a round reads no more rows, asks no more questions and makes no more tokens than with 500
        (HEALTH-16).
        """
        work = []
        for count in (500, 2000):
            self.add(*(f"a{number:04}" for number in range(count)))
            for _ in range(8):
                rows, asked = sum(self.accounts.rows), self.memory.asked
                tried = len(self.check())
                work.append((sum(self.accounts.rows) - rows, self.memory.asked - asked, tried))
        self.assertLessEqual(max(rows for rows, _, _ in work), ACCOUNTS_PER_ROUND + 1)
        self.assertLessEqual(max(asked for _, asked, _ in work), 2)
        self.assertLessEqual(max(tried for _, _, tried in work), KEYS_PER_ROUND)

    def test_a_fault_among_many(self) -> None:
        """Of as many accounts as a round looks at, the next round knows which one's key was overwritten, or is gone."""
        self.add(*(f"a{number:03}" for number in range(ACCOUNTS_PER_ROUND - 2)))
        self.check()
        self.overwrite("a250")
        self.assertRegex(self.fault(), "a250: WrongDataKey")
        self.add("a250")
        self.check()
        self.memory.accounts["a499"] = []
        self.add("a499")
        self.memory.accounts["a123"] = []
        self.assertRegex(self.fault(), "a123: it has no key")

    def test_a_fault_among_very_many(self) -> None:
        """Of four times as many accounts, the fourth round knows at the latest, and it counts until it is mended
        (HEALTH-16).
        """
        names = [f"a{number:04}" for number in range(4 * ACCOUNTS_PER_ROUND)]
        self.memory.accounts.clear()
        self.add(*names)
        for _ in range(5):
            self.check()
        self.memory.accounts[names[-1]] = []
        failed = []
        for _ in range(12):
            checked = Deferred.fromCoroutine(self.probe.check())
            self.clock.pump([0.0] * (KEYS_PER_ROUND // KEYS_PER_TICK + 1))
            failed.append(isinstance(checked.result, Failure))
            checked.addErrback(lambda failure: failure.trap(ProbeFailed))
        self.assertIn(True, failed[:4])
        self.assertNotIn(False, failed[failed.index(True) :])

    def test_requests_have_their_turn(self) -> None:
        """After some keys the reactor turns; when that takes long, the others are tried first in the next round."""
        self.add(*(f"a{number:02}" for number in range(30)))
        checked = Deferred.fromCoroutine(self.probe.check())
        self.assertEqual(len(self.tokens.issued), KEYS_PER_TICK)
        self.assertNoResult(checked)
        self.clock.advance(1)
        self.successResultOf(checked)
        first = list(self.tokens.issued)
        self.assertEqual(len(first), KEYS_PER_TICK)
        self.assertFalse(set(first) & set(self.check()))
