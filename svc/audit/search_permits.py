"""Permits for searches of the audit files, of which a server does two at a time (AUD-62, AUD-65).

Note [Shares]. The owner of a resource may search for what was done to it, and a search may take a minute. So a role has one
permit at a time, and one of the two is never given to a role that may not read all of its account. Those that wait are
counted for each account, and for roles that read all of it apart, so that nobody fills the queue for others. When a permit
is free, the account gets it whose last one is longest ago.

Note [Of other servers]. A question of another server names the role that asked that one, and has the same share here.
"""

from __future__ import annotations

import itertools
from typing import Final

from svc.audit.record_search import RecordsQuestion
from svc.model.errors import AuditSearchUnavailable
from svc.model.permits import Permit, PermitPool

#: Searches of a server at a time, and those among them that are kept for roles that may read all of their account.
MAX_SEARCHES: Final = 2
KEPT_SEARCHES: Final = 1

#: Searches that may wait for each account, by roles that read all of it and by others; and searches of a role, all together.
MAX_WAITING: Final = 4
MAX_OF_ROLE: Final = 3

#: The beginnings of the texts for which permits are taken.
_ALL: Final = "all "
_SOME: Final = "some "


def permit_of_question(question: RecordsQuestion) -> str:
    """Return for whom the permit is taken by which a question is answered: who asks, and whether that may read all."""
    return f"{_ALL if question.reads_all else _SOME}{question.role or question.account}"


class SearchPermits(PermitPool):
    """Permits by :func:`permit_of_question` (Note [Shares])."""

    def __init__(self) -> None:
        super().__init__(MAX_SEARCHES, MAX_WAITING, MAX_OF_ROLE, _refuse_search)
        #: When accounts that have or want a permit last got one, by a count of permits.
        self._served: dict[str, int] = {}
        self._counter: Final = itertools.count(1)

    def choose_next(self) -> Permit | None:
        """See ``PermitPool``."""
        busy = {_role_of(permit) for permit in self.taken}
        is_kept = sum(not _reads_all(permit) for permit in self.taken) >= MAX_SEARCHES - KEPT_SEARCHES
        fitting = [each for each in self.waiting if _role_of(each) not in busy and (_reads_all(each) or not is_kept)]
        # Of those of one account, and of accounts that had none, the first that came is the first here.
        chosen = min(fitting, key=lambda each: self._served.get(_account_of(each), 0), default=None)
        if chosen is not None:
            present = {_account_of(each) for each in (*self.taken, *self.waiting)}
            self._served = {account: at for account, at in self._served.items() if account in present}
            self._served[_account_of(chosen)] = next(self._counter)
        return chosen

    def count_waiting(self, permit: Permit) -> int:
        """See ``PermitPool``."""
        group = (_account_of(permit), _reads_all(permit))
        return sum((_account_of(each), _reads_all(each)) == group for each in self.waiting)


def _refuse_search(why: str) -> AuditSearchUnavailable:
    return AuditSearchUnavailable(f"too many searches of the audit are under way on this server: {why}")


def _reads_all(permit: Permit) -> bool:
    return permit.role.startswith(_ALL)


def _role_of(permit: Permit) -> str:
    return permit.role.partition(" ")[2]


def _account_of(permit: Permit) -> str:
    return _role_of(permit).partition(":")[0]
