"""The entries of the read cache: answers of the database, each with the names that it depends on, within a number of bytes.

Note [Strangers]. Anybody can ask about roles and resources that don't exist, under any number of names. The answers have a
small share of their own, so that they evict only each other. Whether an answer belongs there is decided by the database's
answer: when a role is created, the cached answers about its absence are dropped like all that the change touches.

Note [Lists]. A batch or a list can be requested in any number of ways, and one may be large. These have a share of their own
too, so that a single client can't evict everybody's logins.
"""

from __future__ import annotations

import enum
import sys
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import attrs

from svc.storage.driver.connection import SharedText

#: The name of a statement or of a read, and its parameters.
Key = tuple[object, ...]


class CacheShare(enum.IntEnum):
    """The share of the cache that an answer is kept in: of one row, of several, or about something that doesn't exist."""

    SINGLE_ROW = enum.auto()
    SEVERAL_ROWS = enum.auto()
    NEGATIVE = enum.auto()


#: The part of all bytes that each share may take (Notes [Strangers] and [Lists]).
_PARTS: Final[Mapping[CacheShare, float]] = {
    CacheShare.SINGLE_ROW: 11 / 16,
    CacheShare.SEVERAL_ROWS: 1 / 4,
    CacheShare.NEGATIVE: 1 / 16,
}

#: The largest answer that is cached, as a part of all bytes.
_LARGEST: Final = 1 / 64

#: Bytes that Python needs for an entry with its key, for a name that it depends on, for one that no other entry depends on,
#: and for a value, beside its text.
_ENTRY: Final = 400
_NAME: Final = 100
_NEW_NAME: Final = 400
_VALUE: Final = 56


@attrs.frozen(eq=False)
class CachedAnswer:
    """An answer: its value, the names that it depends on, when it expires (seconds, ``None`` for never), and its bytes."""

    value: Any
    names: tuple[str, ...]
    ends_at: float | None
    size: int
    share: CacheShare


class CacheEntries:
    """The most recently used answers, in ``limit`` bytes."""

    def __init__(self, limit: int) -> None:
        self._limits = {share: int(limit * part) for share, part in _PARTS.items()}
        self._largest = int(limit * _LARGEST)
        self._answers: dict[Key, CachedAnswer] = {}
        #: The keys of each share, the least recently used first.
        self._used: dict[CacheShare, OrderedDict[Key, None]] = {share: OrderedDict() for share in CacheShare}
        self._sizes = dict.fromkeys(CacheShare, 0)
        self._by_name: dict[str, set[Key]] = {}

    @property
    def size(self) -> int:
        """Return about how many bytes all entries take."""
        return sum(self._sizes.values())

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._answers)

    def get(self, key: Key, now: float) -> Any:
        """Return the value of an answer that hasn't expired, ``None`` without one."""
        entry = self._answers.get(key)
        if entry is None:
            return None
        if entry.ends_at is not None and now >= entry.ends_at:
            self.discard(key)
            return None
        self._used[entry.share].move_to_end(key)
        return entry.value

    def put(self, key: Key, value: object, names: frozenset[str], ends_at: float | None, share: CacheShare) -> int:
        """Cache an answer, instead of an older one, and return how many others were evicted."""
        self.discard(key)
        size = _ENTRY + _weigh_value(key) + _weigh_value(value)
        size += sum(_NAME if name in self._by_name else _NEW_NAME for name in names)
        if size > self._largest:
            return 0
        used, evicted = self._used[share], 0
        # Many answers depend on the same names: each text is kept once.
        shared = tuple(map(sys.intern, names))
        self._answers[key] = CachedAnswer(value, shared, ends_at, size, share)
        used[key] = None
        self._sizes[share] += size
        for name in shared:
            self._by_name.setdefault(name, set()).add(key)
        while self._sizes[share] > self._limits[share]:
            self.discard(next(iter(used)))
            evicted += 1
        return evicted

    def discard(self, key: Key) -> None:
        """Drop an answer, if it is cached."""
        entry = self._answers.pop(key, None)
        if entry is None:
            return
        del self._used[entry.share][key]
        self._sizes[entry.share] -= entry.size
        for name in entry.names:
            keys = self._by_name[name]
            keys.discard(key)
            if not keys:
                del self._by_name[name]

    def drop_dependent(self, names: Iterable[str]) -> int:
        """Drop the answers that depend on one of the names, and return how many those were."""
        dropped = 0
        for name in names:
            for key in tuple(self._by_name.get(name, ())):
                self.discard(key)
                dropped += 1
        return dropped

    def clear(self) -> int:
        """Drop everything, and return how many answers that were."""
        count = len(self)
        self._answers.clear()
        self._by_name.clear()
        for used in self._used.values():
            used.clear()
        self._sizes = dict.fromkeys(CacheShare, 0)
        return count


def _weigh_value(value: object) -> int:
    """Return about how many bytes a value takes."""
    if isinstance(value, SharedText):
        return 0
    if isinstance(value, str | bytes):
        return _VALUE + len(value)
    if isinstance(value, tuple | list):
        return _VALUE + 8 * len(value) + sum(map(_weigh_value, value))
    if attrs.has(type(value)):
        return _weigh_value(attrs.astuple(cast(Any, value), recurse=False))
    return _VALUE
