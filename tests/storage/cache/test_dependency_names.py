"""Names of what changes, and of what readings depend on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.storage.cache.dependency_names import ALL, FEW, FOLLOWED, expand_dependencies, expand_touched, fold_names
from tests.strategies import ACCOUNTS, IDENTIFIERS

_LETTERS = "rvmgcwk"
_NAMES = st.builds(
    lambda letter, account, rest: f"{letter}:{account}:host:{rest}", st.sampled_from(_LETTERS), ACCOUNTS, IDENTIFIERS
)


class NamesTests(SynchronousTestCase):
    """What touches what."""

    @given(st.lists(_NAMES, max_size=10), _NAMES)
    def test_touched(self, names: list[str], touched: str) -> None:
        """A reading is touched by each of its names, by each of its accounts as a whole, and by everything (CLU-32)."""
        depended = expand_dependencies(names)
        self.assertTrue(set(names) <= depended)
        self.assertIn(ALL, depended)
        for name in names:
            self.assertFalse(depended.isdisjoint(expand_touched([name])))
            account = name[2:].partition(":")[0]
            self.assertFalse(depended.isdisjoint(expand_touched([f"*:{account}"])))
        if touched not in names:
            self.assertTrue(depended.isdisjoint(expand_touched([touched])))

    @given(ACCOUNTS, st.integers(FOLLOWED - 2, FOLLOWED + 5))
    def test_many(self, account: str, count: int) -> None:
        """Beyond so many memberships, a reading depends on all that policy says in the account, not elsewhere (CLU-32)."""
        depended = expand_dependencies(f"m:{account}:group:{number}" for number in range(count))
        self.assertEqual(len([name for name in depended if name[0] == "m"]), min(count, FOLLOWED))
        for touching in "rmg":
            touched = set(expand_touched([f"{touching}:{account}:user:somebody"]))
            self.assertEqual(depended.isdisjoint(touched), count <= FOLLOWED)
            self.assertTrue(depended.isdisjoint(expand_touched([f"{touching}:{account}x:user:somebody"])))
        for fine in "vcwk":
            self.assertTrue(depended.isdisjoint(expand_touched([f"{fine}:{account}:user:somebody"])))

    def test_accounts(self) -> None:
        """An account's row has no identifier in its name."""
        self.assertEqual(expand_dependencies(["k:acme"]), {"*", "*:acme", "k:acme"})
        self.assertEqual(list(expand_touched(["k:acme"])), ["k:acme"])

    def test_folded(self) -> None:
        """A batch of many depends on their folders, one of few on each, and none on the folder of its caller (SEC-39)."""
        for count in (FEW, FEW + 1):
            ids = frozenset({f"acct:variable:app/{number}" for number in range(count - 1)} | {"acct:variable:x"})
            names = ["m:acct:host:app/h", "r:acct:host:app/h", *(f"{letter}:{full}" for full in ids for letter in "rv")]
            found = set(fold_names(names, ids))
            folder = {name if name.endswith(":x") else "/:acct:variable:app" for name in names[2:]}
            self.assertEqual(found, set(names) if count == FEW else {*names[:2], *folder})
            for name in names:
                self.assertFalse(found.isdisjoint(expand_touched([name])), name)

    def test_folders(self) -> None:
        """A change of a record or value in a folder touches the folder, which a login of an authenticator depends on."""
        for name in ("r:acct:variable:svc/authn-jwt/ci/issuer", "v:acct:variable:svc/authn-jwt/ci/issuer"):
            self.assertIn("/:acct:variable:svc/authn-jwt/ci", set(expand_touched([name])))
        self.assertEqual(
            list(expand_touched(["v:acct:variable:db", "c:acct:host:a/b"])), ["v:acct:variable:db", "c:acct:host:a/b"]
        )
