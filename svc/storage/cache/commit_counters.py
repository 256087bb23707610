"""The counters by which the processes of one server share that they have written, and up to which version.

Note [One slot, one writer]. A number that all processes raise would lose updates, and run backwards. So each process has a
slot that it alone writes, and a reader compares all of them: nothing has been written for as long as none has moved. A slot
has counters of commits that were confirmed and of those whose outcome isn't known, and the newest version of the state that
one of its commits made; each has 8 bytes, which the machine reads and writes atomically. A read during a write of a slot
differs from a read afterwards, so that they can't be confused.

Note [Settled]. For a commit with an unknown outcome the version isn't known either. So the primary is asked afterwards for
its position: the commit, if it was made, comes before that, and the slot has the number of these commits up to which that
has been done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Self

import attrs

from svc.model.versions import StateVersion

#: The numbers in a slot: counters, and the three numbers of a version.
_CONFIRMED: Final = 0
_UNKNOWN: Final = 1
_RESOLVED: Final = 2
_VERSION: Final = 3
WIDTH: Final = 6

#: Bytes of a number.
BYTES: Final = 8


@attrs.frozen
class WrittenVersions:
    """The writes of a server's processes: the newest version on each system that they wrote to.

    ``certain``: whether that is all of it (Note [Settled]).
    """

    versions: tuple[StateVersion, ...] = ()
    certain: bool = True

    @property
    def timeline(self) -> int:
        """Return the newest timeline that was written on; 0 when nothing was."""
        return max((version.timeline for version in self.versions), default=0)


@attrs.frozen
class CommitCounters:
    """The slots of all processes of a server, on one page of memory, of which this process writes the one numbered ``own``.

    ``page`` is a view of unsigned 8-byte numbers, ``WIDTH`` for each slot.
    """

    _page: memoryview
    _own: int = 0
    #: The last bytes that were decoded, and their meaning.
    _known: dict[bytes, WrittenVersions] = attrs.field(factory=dict, init=False, eq=False)
    #: Returns all numbers; equal when nothing was written in between.
    read_counters: Callable[[], bytes] = attrs.field(init=False, eq=False, repr=False)

    @read_counters.default
    def _page_reader(self) -> Callable[[], bytes]:
        return self._page.tobytes

    @classmethod
    def for_one_process(cls) -> Self:
        """Return the slot of a server that is one process."""
        return cls(memoryview(bytearray(WIDTH * BYTES)).cast("Q"))

    def count_commit(self, *, confirmed: bool, version: StateVersion | None = None) -> None:
        """Count a commit of this process, with the version of the state after it; called before anybody learns of it."""
        if version is not None:
            self._raise_version(version)
        self._page[self._own * WIDTH + (_CONFIRMED if confirmed else _UNKNOWN)] += 1

    def pending_number(self) -> int | None:
        """Return the number for ``resolve_pending``; ``None`` when this process has nothing to settle (Note [Settled])."""
        counters = self._page[self._own * WIDTH : self._own * WIDTH + _VERSION]
        return None if counters[_RESOLVED] == counters[_UNKNOWN] else counters[_UNKNOWN]

    def resolve_pending(self, number: int | None, version: StateVersion) -> None:
        """Note the version at which the primary stood after ``pending_number`` had returned the number."""
        self._raise_version(version)
        if number is not None:
            self._page[self._own * WIDTH + _RESOLVED] = number

    def written_versions(self, read: bytes) -> WrittenVersions:
        """Return what was written by then, from the result of ``read_counters``."""
        known = self._known.get(read)
        if known is None:
            self._known.clear()
            known = self._known[read] = _parse_written(memoryview(read).cast("Q").tolist())
        return known

    @staticmethod
    def confirmed_commits(read: bytes) -> list[int]:
        """Return the counters of confirmed commits of all processes, from the result of ``read_counters``."""
        return memoryview(read).cast("Q").tolist()[_CONFIRMED::WIDTH]

    def _raise_version(self, version: StateVersion) -> None:
        """Note a version, unless the slot has a newer one of that system."""
        at = self._own * WIDTH + _VERSION
        system, *reached = self._page[at : at + 3]
        if system != version.system or reached < [version.timeline, version.position]:
            self._page[at], self._page[at + 1], self._page[at + 2] = version.system, version.timeline, version.position


def _parse_written(numbers: list[int]) -> WrittenVersions:
    newest: dict[int, StateVersion] = {}
    for at in range(_VERSION, len(numbers) - 2, WIDTH):
        version = StateVersion(*numbers[at : at + 3])
        other = newest.get(version.system)
        if version.timeline and (other is None or (other.timeline, other.position) < (version.timeline, version.position)):
            newest[version.system] = version
    return WrittenVersions(tuple(newest.values()), numbers[_UNKNOWN::WIDTH] == numbers[_RESOLVED::WIDTH])
