"""What a fault is, and what servers are to say of it: the words of which the table of faults is made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
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

    One that is ``gone`` says nothing. ``reads`` says that what has failed in ``core`` is writing alone. ``primaries`` is the
    word for those of the cluster.
    """

    failed: frozenset[str] = frozenset()
    word: str = "failed"
    gone: bool = False
    reads: bool = False
    primaries: str = "ok"

    @property
    def ok(self) -> bool:
        """Whether it says that it is well."""
        return not self.failed and not self.gone and self.primaries == "ok"

    @property
    def ready(self) -> bool:
        """Whether it says that it can serve."""
        return not self.gone and self.failed.isdisjoint(NEEDED - {"core"} if self.reads else NEEDED)

    def word_of(self, value: str) -> str:
        """What it says of one value."""
        return self.word if value in self.failed else "ok"

    def __str__(self) -> str:
        """The words of the page."""
        if self.gone:
            return "no answer"
        if self.ok:
            return "200"
        return f"502: {'; '.join(self._complaints())}"

    def _complaints(self) -> Iterator[str]:
        missing = [name for name in (*SERVICES, DATABASE) if name not in self.failed]
        if not missing:
            yield f"all {self.word}"
        elif len(missing) < 3:
            yield f"all but {', '.join(missing)} {self.word}"
        elif self.failed:
            yield f"{', '.join(name for name in (*SERVICES, DATABASE) if name in self.failed)} {self.word}"
        if self.primaries != "ok":
            yield f"primaries {self.primaries}"


OK: Final = Verdict()
GONE: Final = Verdict(gone=True)

#: All that asks the database.
WITHOUT_DATABASE: Final = Verdict(VALUES - {"audit"})


#: Another server has a primary too; where writes are refused for that, nothing is rotated.
CONTESTED: Final = Verdict(primaries="two")
REFUSED: Final = Verdict(frozenset({"expiration"}), primaries="two")


def failing(*names: str, reads: bool = False) -> Verdict:
    """These values have failed."""
    return Verdict(frozenset(names), reads=reads)


@attrs.frozen(kw_only=True)
class Fault:
    """One fault: how it is caused and undone, and what is to be said meanwhile. ``words`` are those of the page.

    ``third`` is the word for the third member. ``within`` are the intervals until the verdict, ``recovery`` those until its
    end is told, ``afar`` the seconds that it takes beyond that to be known of a server elsewhere. ``told`` must
    become true of the follower's replication status.
    ``hangs``: whether ``/livez`` is timed. ``never_ok``: whether the primary may say that it is well at no moment.
    ``writers``: who is ready to write, if its verdict lets it. ``ends_bed``: whether nothing can be tried on the bed
    afterwards. ``mounts``: whether it needs a disk that was mounted.
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
    writers: frozenset[str] = frozenset({"primary"})
    ends_bed: bool = False
    mounts: bool = False
    ldap: bool = False

    def of(self, server: str) -> Verdict:
        """The verdict of ``primary`` or ``follower``."""
        return self.primary if server == "primary" else self.follower

    def writes(self, server: str) -> bool:
        """Whether that one is ready to write."""
        verdict = self.of(server)
        return server in self.writers and verdict.ready and "core" not in verdict.failed
