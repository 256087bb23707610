"""Which things of the accounts a round of checks tries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from svc.health.sampling import AccountSampler

LOOKED, TRIED = 5, 4


class TurnsTests(SynchronousTestCase):
    """Things of a few accounts, each a number; what is negative doesn't work."""

    def setUp(self) -> None:
        """There are none."""
        self.things: dict[str, dict[str, int]] = {}
        self.looks: list[tuple[str, int]] = []
        self.turns: AccountSampler[int] = AccountSampler(self._look, LOOKED, TRIED)

    async def _look(self, after: str, limit: int) -> Sequence[tuple[str, Mapping[str, int]]]:
        self.looks.append((after, limit))
        return [(account, dict(self.things[account])) for account in sorted(self.things) if account > after][:limit]

    def add(self, *accounts: str) -> None:
        """Add accounts, each with a thing of the same name."""
        self.things |= {account: {account: 1} for account in accounts}

    def round(self) -> list[str]:
        """One round; the names of what it tried."""
        tried = self.successResultOf(Deferred.fromCoroutine(self.turns.next_sample()))
        for name, thing in tried:
            self.turns.record_result(name, "broken" if thing < 0 else None)
        return [name for name, _ in tried]

    def test_nothing(self) -> None:
        """Where there is nothing, nothing is tried and all is well."""
        self.assertEqual((self.round(), self.turns.failure_summary), ([], None))

    def test_all_in_turn(self) -> None:
        """Each round tries so many, and in the end everything has been tried as often as anything else (HEALTH-16)."""
        self.add("a", "b", "c", "d", "e", "f", "g")
        tried = [name for _ in range(14) for name in self.round()]
        self.assertEqual(len(tried), 14 * TRIED)
        self.assertLessEqual({tried.count(name) for name in self.things}, {7, 8, 9})

    def test_looks_are_bounded(self) -> None:
        """A round looks at so many accounts after those that it looked at last, and then from the beginning."""
        self.add(*(f"{number:02}" for number in range(12)))
        for _ in range(4):
            self.round()
        self.assertEqual(self.looks, [("", 6), ("04", 6), ("09", 6), ("", 6)])

    def test_a_change_comes_first(self) -> None:
        """A thing that has changed is tried in the round that sees it, whatever else is due (HEALTH-16)."""
        self.add("a", "b", "c", "d", "e")
        self.round()
        for account in "abcde":
            self.things[account][account] += 1
            self.assertEqual(self.round()[0], account)

    def test_failing(self) -> None:
        """What failed is tried again each round, and counts until it works; the turn of others comes all the same
        (HEALTH-16).
        """
        self.add("a", "b", "c", "d", "e")
        self.things["a"]["a"] = -1
        rounds = [self.round() for _ in range(6)]
        self.assertEqual([each.count("a") for each in rounds[1:]], [1] * 5)
        self.assertEqual({name for each in rounds[1:] for name in each}, set("abcde"))
        self.assertEqual(self.turns.failure_summary, "a: broken")
        self.things["a"]["a"] = 1
        self.round()
        self.assertIsNone(self.turns.failure_summary)

    def test_many_failing(self) -> None:
        """Many that fail take half of a round at most; of many some are named."""
        self.turns = AccountSampler(self._look, 100, TRIED)
        self.add(*(f"{number:02}" for number in range(20)))
        for number in range(10):
            self.things[f"{number:02}"][f"{number:02}"] = -1
        for _ in range(10):
            tried = self.round()
        self.assertEqual(sum(self.things[name][name] < 0 for name in tried), TRIED // 2)
        self.assertRegex(self.turns.failure_summary or "", r"^(\d\d: broken; ){5}and 5 more$")
        self.things["19"]["19"] = 2
        self.assertEqual(self.round()[0], "19")

    def test_gone(self) -> None:
        """Nothing that is gone counts as failing, or is tried: things, accounts, and accounts at the end."""
        self.add("a", "b", "z")
        self.things["a"] |= {"a2": -1}
        self.things["b"]["b"] = self.things["z"]["z"] = -1
        self.round()
        self.assertEqual(sorted((self.turns.failure_summary or "").split("; ")), ["a2: broken", "b: broken", "z: broken"])
        del self.things["a"]["a2"], self.things["b"], self.things["z"]
        self.assertEqual((self.round(), self.turns.failure_summary), (["a"], None))
        self.things.clear()
        self.assertEqual(self.round(), [])

    def test_gone_beyond_a_look(self) -> None:
        """Of more accounts than a round looks at, what is gone is known when its turn to be looked at has come."""
        self.add(*(f"{number:02}" for number in range(12)))
        self.things["11"]["11"] = -1
        for _ in range(3):
            self.round()
        self.assertEqual(self.turns.failure_summary, "11: broken")
        del self.things["11"]
        for _ in range(3):
            self.round()
        self.assertIsNone(self.turns.failure_summary)

    def test_not_gotten_to(self) -> None:
        """What a round didn't get to is first in the next one."""
        self.add("a", "b", "c", "d", "e")
        [(first, _), *others] = self.successResultOf(Deferred.fromCoroutine(self.turns.next_sample()))
        self.turns.record_result(first, None)
        self.assertEqual(self.round()[: len(others)], [name for name, _ in others])
