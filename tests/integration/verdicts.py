"""What a fault is, and what servers are to say of it: the words of which the table of faults is made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import attrs

from tests.integration.bed import Bed

#: Every value of a health report: one for each service, and the database's.
SERVICES: Final = ("core", "authn", "authz", "expiration", "host-factory", "pubkeys", "audit", "ldap")
DATABASE: Final = "database"
VALUES: Final = frozenset((*SERVICES, DATABASE))

#: What readiness is about; the servers refuse what they can't record.
NEEDED: Final = frozenset({"core", "authn", "authz", "audit", DATABASE})

#: How many intervals may pass until a server tells the truth of itself.
WITHIN: Final = 2.0

Act = Callable[[Bed], Awaitable[None]]


@attrs.frozen
class Verdict:
    """What a server says of itself: ``word`` of each value that is in ``failed``, ``ok`` of all others.

    One that is ``gone`` says nothing.
    """

    failed: frozenset[str] = frozenset()
    word: str = "failed"
    gone: bool = False

    @property
    def ok(self) -> bool:
        """Whether it says that it is well."""
        return not self.failed and not self.gone

    @property
    def ready(self) -> bool:
        """Whether it says that it can serve."""
        return not self.gone and self.failed.isdisjoint(NEEDED)

    def word_of(self, value: str) -> str:
        """What it says of one value."""
        return self.word if value in self.failed else "ok"

    def __str__(self) -> str:
        """The words of the page."""
        if self.gone:
            return "no answer"
        if self.ok:
            return "200"
        missing = [name for name in (*SERVICES, DATABASE) if name not in self.failed]
        if not missing:
            return f"502: all {self.word}"
        if len(missing) < 3:
            return f"502: all but {', '.join(missing)} {self.word}"
        return f"502: {', '.join(name for name in (*SERVICES, DATABASE) if name in self.failed)} {self.word}"


OK: Final = Verdict()
GONE: Final = Verdict(gone=True)

#: All that asks the database.
WITHOUT_DATABASE: Final = Verdict(VALUES - {"audit"})


def failing(*names: str) -> Verdict:
    """These values have failed."""
    return Verdict(frozenset(names))


@attrs.frozen(kw_only=True)
class Fault:
    """One fault: how it is caused and undone, and what is to be said meanwhile. ``words`` are those of the page.

    ``third`` is the word for the third member. ``within`` are the intervals until the verdict, ``recovery`` those until its
    end is told, ``afar`` the seconds that it takes beyond that to be known of a server elsewhere. ``told`` must
    become true of the follower's replication status.
    ``hangs``: whether ``/livez`` is timed. ``never_ok``: whether the primary may say that it is well at no moment.
    ``ends_bed``: whether nothing can be tried on the bed afterwards. ``mounts``: whether it needs a disk that was mounted.
    """

    name: str
    words: str
    inject: Act
    undo: Act
    primary: Verdict = OK
    follower: Verdict = OK
    third: str = "ok"
    within: float = WITHIN
    recovery: float = WITHIN
    afar: float = 1.0
    told: Callable[[Mapping[str, Any]], bool] | None = None
    telling: str = ""
    hangs: bool = False
    never_ok: bool = False
    ends_bed: bool = False
    mounts: bool = False
    ldap: bool = False

    def of(self, server: str) -> Verdict:
        """The verdict of ``primary`` or ``follower``."""
        return self.primary if server == "primary" else self.follower
