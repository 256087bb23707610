"""The share of the accounts' things that a round of checks tries; it doesn't grow with their number.

Note [A share in each round]. There may be thousands of accounts, and a check has a moment. So a round *looks* at some
accounts, in order (one range of an index), and the next one at those after them. Of all that was seen it *tries* a few:
first those that have changed, then those that failed, then those never tried, then those tried longest ago. One that failed
counts as failing until it works or is gone. With n times as many accounts as a round looks at, a change is noticed within n
rounds.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

#: How many failures are named.
_NAMED: Final = 5

#: The function that lists accounts for a round: it returns the next accounts after one, in order, each with its things by
#: name.
ListAccounts = Callable[[str, int], Coroutine[Any, Any, Sequence[tuple[str, Mapping[str, T]]]]]


class AccountSampler(Generic[T]):
    """Samples accounts in their order. ``look`` is given an account and how many after it to find, fewer at the end."""

    def __init__(self, look: ListAccounts[T], looked: int, tried: int) -> None:
        self._list_accounts, self._accounts_limit, self._sample_limit = look, looked, tried
        self._after = ""
        #: Accounts that have any, in order, and the names of each one's.
        self._accounts: list[str] = []
        self._names: dict[str, frozenset[str]] = {}
        #: All that was seen, by name, in the order in which it is tried.
        self._due: OrderedDict[str, T] = OrderedDict()
        self._failing: dict[str, str] = {}

    async def next_sample(self) -> list[tuple[str, T]]:
        """List the next accounts, and return what to try now, with its names (Note [A share in each round])."""
        seen = await self._list_accounts(self._after, self._accounts_limit + 1)  # one more tells whether there are more
        last = seen[self._accounts_limit - 1][0] if len(seen) > self._accounts_limit else None
        found = dict(seen[: self._accounts_limit])
        for account in self._accounts_between(self._after, last):
            if account not in found:
                self._update_account(account, {})
        new, changed = [], []
        for account, things in found.items():
            self._update_account(account, things)
            for name, thing in things.items():
                if name not in self._due:
                    new.append(name)
                elif self._due[name] != thing:
                    changed.append(name)
                self._due[name] = thing
        self._after = last or ""
        failing = list(islice(self._failing, self._sample_limit // 2))
        for name in (*reversed(new), *reversed(failing), *reversed(changed)):
            self._due.move_to_end(name, last=False)
        return list(islice(self._due.items(), self._sample_limit))

    def record_result(self, name: str, why: str | None) -> bool:
        """Note that it works, or why it doesn't; return whether it works again."""
        failed = self._failing.pop(name, None) is not None
        if name in self._due:
            self._due.move_to_end(name)
            if why is not None:
                self._failing[name] = why
        return failed and why is None

    @property
    def failure_summary(self) -> str | None:
        """Return the failures and their reasons, some where they are many; ``None`` where all works that has been tried."""
        if not self._failing:
            return None
        more = len(self._failing) - _NAMED
        named = "; ".join(f"{name}: {why}" for name, why in islice(self._failing.items(), _NAMED))
        return named if more <= 0 else f"{named}; and {more} more"

    def _accounts_between(self, after: str, last: str | None) -> list[str]:
        end = len(self._accounts) if last is None else bisect_right(self._accounts, last)
        return self._accounts[bisect_right(self._accounts, after) : end]

    def _update_account(self, account: str, things: Mapping[str, T]) -> None:
        """Note the things of an account, and drop those that it has no more."""
        before = self._names.pop(account, None)
        for name in (before or frozenset()) - things.keys():
            del self._due[name]
            self._failing.pop(name, None)
        if things:
            self._names[account] = frozenset(things)
            if before is None:
                insort(self._accounts, account)
        elif before is not None:
            del self._accounts[bisect_right(self._accounts, account) - 1]
